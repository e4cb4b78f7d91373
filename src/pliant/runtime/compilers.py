"""C compilers: which one this machine has, and what it is told.

In:     the command that the configuration names, or none.
Out:    `find_compiler(wanted)`: a `Compiler`, or `CompilerNotFound`.
Holds:  a compiler is the one that is named, else cc, gcc or clang, else the clang of an installed package (`PACKAGE`), which
        serves where the system has none. Nothing is started to find it. All build the same texts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from pliant.errors import NoKernels
from pliant.records import dataclass
from pliant.wrappers.vector_math import vector_math

# Zig's distribution, of which clang and LLVM's linker are used, as they are. `zig cc` would do more than that: it traps what C
# leaves undefined, and keeps a cache of its own.
PACKAGE, PROGRAM = "ziglang", "zig"
INSTALL = "the clang that pip brings (pip install pliant[compiler])"
# The first is gcc's alone. With the second, a maximum among lanes begins at the least finite number for clang, and at -inf for
# gcc: of rows of -inf it would be -3.4e38. Without it clang makes vectors of what it knows to be independent.
_NOT_CLANGS = ("-fvect-cost-model", "-fopenmp-simd")


class CompilerNotFound(NoKernels):
    """No C compiler on this machine; the caller runs the graph without kernels."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """`command` compiles, and links as well unless `linker` does; `identity` changes when a program of it, or what it is
    started through, is replaced. `stands_in`: nobody asked for it, and the system has none, so what any other built will do."""

    command: tuple[str, ...]
    identity: str
    linker: tuple[str, ...] = ()
    stands_in: bool = False

    @property
    def is_cross(self) -> bool:
        """Whether it was told another machine."""
        return any(word.startswith(("--target", "-target")) for word in self.command)

    def flags(self, flags: Sequence[str]) -> list[str]:
        """What it is told for these flags, which are gcc's. Of gcc the text itself says which functions have vector variants."""
        if "clang" not in self.identity:
            return list(flags)
        own = ["-fveclib=libmvec"] if vector_math() and not self.is_cross and _has_wide_vectors(flags) else []
        return [*(flag for flag in flags if not flag.startswith(_NOT_CLANGS)), *own]

    def linking(self, flags: Sequence[str], objects: Sequence[str], target: str) -> list[str]:
        """The command that links a shared object; `flags` as compilers take them."""
        if not self.linker:
            return [*self.command, "-shared", "-nostdlib", *flags, *objects, "-o", target]
        own = [word for flag in flags for word in flag.removeprefix("-Wl,").split(",")]
        return [*self.linker, "-shared", *own, *objects, "-o", target]


def _has_wide_vectors(flags: Sequence[str]) -> bool:
    """Whether code is for this processor, with AVX2 or more. With the vectors of two doubles that all x86-64 has, clang's
    calls of libmvec gave wrong values."""
    return "-march=native" in flags and torch.backends.cpu.get_cpu_capability().startswith("AVX")


@functools.cache
def find_compiler(wanted: str) -> Compiler:
    """The compiler that the configuration names (`ccache gcc -m64`, as make takes it; `ziglang`), or the system's, or the
    package's; CompilerNotFound if there is none."""
    for command in _spellings(wanted) if wanted else (["cc"], ["gcc"], ["clang"], [PACKAGE]):
        path = _program(command[0]) if command else None
        if path is not None:
            return dataclasses.replace(_compiler(path, command), stands_in=not wanted and command == [PACKAGE])
    raise CompilerNotFound(
        f"no C compiler: `{wanted}` was not found" if wanted else "no C compiler: neither cc, gcc nor clang was found",
        kind="no-compiler",
        why="kernels for CPU are C text that a compiler of this machine builds",
        do=f"install gcc or clang, or {INSTALL}, or set PLIANT_CC to one",
    )


def _spellings(wanted: str) -> Iterator[list[str]]:
    """As one path, which may hold blanks, and as words."""
    yield [wanted]
    with contextlib.suppress(ValueError):  # a quotation mark without its other half
        import shlex

        yield shlex.split(wanted)


def _program(name: str) -> str | None:
    """The path of a program, or of the package's."""
    return _packaged() if name == PACKAGE else shutil.which(name)


def is_installed() -> bool:
    """Whether the package is there."""
    return _packaged() is not None


def _packaged() -> str | None:
    """The path of the package's program."""
    spec = importlib.util.find_spec(PACKAGE)  # the package is not imported
    folders = spec.submodule_search_locations if spec is not None else None
    found = (shutil.which(PROGRAM, path=folder) for folder in folders or ())
    return next((path for path in found if path is not None), None)


def _compiler(path: str, command: Sequence[str]) -> Compiler:
    words = list(command[1:])
    if Path(path).stem != PROGRAM:
        return Compiler((path, *words), " ".join(map(_identity, command)))
    more = words[1:] if words[:1] == ["cc"] else words
    return Compiler((path, "clang", *more), " ".join(map(_identity, [path, "clang", *more])), (path, "ld.lld"))


def _identity(word: str) -> str:
    """Of a program, which file it is; any other word says what it says."""
    path = shutil.which(word)
    if path is None:
        return word
    real = os.path.realpath(path)
    stat = os.stat(real)
    return f"{real}:{stat.st_size}:{stat.st_mtime_ns}"
