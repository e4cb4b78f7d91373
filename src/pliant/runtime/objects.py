"""Build the code of a graph from objects: each kernel is compiled once, whichever graphs of this process have it.

In:     `NativeCode` and the build options.
Out:    the path of its shared object in the store.
Holds:  layers, resume functions, forward and backward, and sizes that a kernel does not depend on give graphs with kernels
        of one text. The first build that needs one compiles it; others wait for that and link its object. What is linked
        has all of the graph's code, and nothing of other graphs. Where an object fails to come, or does not
        link, a graph is built of its own text alone.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path

from pliant import background, config
from pliant.codegen.native import NativeCode
from pliant.codegen.units import Piece, Unit, units_of
from pliant.debug import events
from pliant.errors import CompileError
from pliant.records import dataclass
from pliant.runtime.build import compile_objects, flags_of, link, stored
from pliant.runtime.compilers import find_compiler

MAX_BYTES = 32 << 20  # of objects that are held; the oldest go first
# A graph that is linked with others' objects takes the kernels that it calls and leaves the rest, entries among it. Of what
# two objects define it takes the first.
_SECTIONS = ("-ffunction-sections", "-fdata-sections")
_CHOOSE = ("-Wl,--gc-sections", "-Wl,-z,muldefs")

Key = tuple[tuple[str, ...], str, bool]  # compiler and flags; the kernel's name; whether it may be compiled quickly


@dataclass(frozen=True, slots=True)
class _Object:
    content: bytes
    quickly: bool


@dataclass(eq=False, slots=True)
class _Build:
    """What one build compiles: for each kernel its object once `ended` is set, and none where it failed."""

    process: int = field(default_factory=os.getpid)
    thread: int = field(default_factory=threading.get_ident)
    ended: threading.Event = field(default_factory=threading.Event)
    objects: dict[str, _Object] = field(default_factory=dict)

    def serves(self) -> bool:
        """Whether its objects are there, or another thread of this process makes them."""
        if self.ended.is_set():
            return bool(self.objects)
        return self.process == os.getpid() and self.thread != threading.get_ident()


_lock = background.lock()
_known: dict[Key, _Build] = {}
_held: deque[tuple[_Build, list[Key], int]] = deque()


def forget() -> None:
    """Compile all kernels anew."""
    with _lock:
        _known.clear()
        _held.clear()


def build_native(code: NativeCode, options: config.Build) -> Path:
    """The shared object of this code, built now if the store does not have it."""

    def make(work: Path, target: Path) -> None:
        try:
            _make(code, options, work, target)
        except _Lost as lost:
            events.record("unshared", why=str(lost))
            _alone(code, options, work, target)

    return stored(code.texts, options, make)


class _Lost(Exception):
    """Another build's objects did not come, or did not link."""


def _alone(code: NativeCode, options: config.Build, work: Path, target: Path) -> None:
    objects = compile_objects(code.texts, options, work, ())
    link(objects, code.texts, options, target, ())


def _make(code: NativeCode, options: config.Build, work: Path, target: Path) -> None:
    base = (find_compiler(options.compiler).identity, *flags_of(options))
    others, missing, mine = _claim(base, code.pieces)
    try:
        elsewhere = [one for one in code.pieces if one.name in others]
        units = units_of(missing, elsewhere, code.bodies) if elsewhere else code.units
        texts = [unit.text for unit in units]
        objects = compile_objects(texts, options, work, _SECTIONS)
        made = [_Object(path.read_bytes(), unit.quickly) for path, unit in zip(objects, units, strict=True)]
        mine.objects = {name: one for unit, one in zip(units, made, strict=True) for name in unit.kernels}
    finally:
        mine.ended.set()
    _hold(base, missing, mine, sum(len(one.content) for one in made))
    if not others:
        link(objects, code.texts, options, target, ())
        return
    foreign = _written(_awaited(others, options.build_timeout), work)
    ordered = _in_order(list(zip(objects, units, strict=True)), foreign)
    try:
        link(ordered, code.texts, options, target, (*_CHOOSE, _exports(code, work)))
    except CompileError as error:
        raise _Lost(str(error)) from error


def _claim(base: tuple[str, ...], pieces: Iterable[Piece]) -> tuple[dict[str, _Build], list[Piece], _Build]:
    """Which builds other kernels come from, the kernels to compile, and the build of these, which others may now await."""
    others: dict[str, _Build] = {}
    missing: list[Piece] = []
    mine = _Build()
    with _lock:
        for one in pieces:
            places = [(base, one.name, quickly) for quickly in (False, True)[: 1 + one.is_little]]
            found = next((b for b in map(_known.get, places) if b is not None and b.serves()), None)
            if found is not None:
                others[one.name] = found
            else:
                missing.append(one)
                _known[places[-1]] = mine
    return others, missing, mine


def _hold(base: tuple[str, ...], pieces: Iterable[Piece], build: _Build, size: int) -> None:
    with _lock:
        _held.append((build, [(base, one.name, one.is_little) for one in pieces], size))
        while sum(size for *_, size in _held) > MAX_BYTES:
            oldest, keys, _ = _held.popleft()
            for key in keys:
                if _known.get(key) is oldest:
                    del _known[key]


def _awaited(others: dict[str, _Build], seconds: float) -> list[_Object]:
    """The objects of these kernels, in the order in which they are linked."""
    found: dict[int, _Object] = {}
    for name, build in others.items():
        if not build.ended.wait(seconds) or name not in build.objects:
            raise _Lost(f"another build did not make {name}")
        one = build.objects[name]
        found[id(one)] = one
    return list(found.values())


def _written(objects: Sequence[_Object], work: Path) -> list[tuple[Path, bool]]:
    written = []
    for k, one in enumerate(objects):
        path = work / f"other{k}.o"
        path.write_bytes(one.content)
        written.append((path, one.quickly))
    return written


def _in_order(own: Sequence[tuple[Path, Unit]], others: Sequence[tuple[Path, bool]]) -> list[Path]:
    """The graph's entries first, then what was compiled with all optimizations."""
    (main, _), *rest = own
    all_others = [*((path, unit.quickly) for path, unit in rest), *others]
    return [main, *(path for path, _ in sorted(all_others, key=lambda one: one[1]))]


def _exports(code: NativeCode, work: Path) -> str:
    """The linker's option that nothing but this graph's entries can be found in the library."""
    names = "; ".join(["pliant_bind", *dict.fromkeys(entry.name for entry in code.entries)])
    script = work / "exports"
    script.write_text(f"{{ global: {names}; local: *; }};\n")
    return f"-Wl,--version-script={script}"
