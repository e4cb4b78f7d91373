"""Write kernels and the entries that Python calls.

In:     runs of consecutive kernels, as `KernelText`s.
Out:    `NativeCode`: kernels, text of entries, and for each run its entry's name and arguments; `units.py` makes units of it.
Holds:  kernels with equal text are one C function, and so are entries; an entry runs all kernels of its run in order,
        holds the GIL only while it reads its arguments (or throughout, where the work is small), and raises IndexError
        if a lookup was out of range.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch

from pliant.codegen.c import KernelText, write_kernel
from pliant.codegen.forms import WrittenOnce
from pliant.codegen.interleaved import Pair, in_turn, write_pair
from pliant.codegen.sharing import share
from pliant.codegen.units import Piece, Unit, name_of, named, units_of
from pliant.ir.loops import Buffer
from pliant.records import dataclass
from pliant.schedule.kernel import Kernel
from pliant.schedule.scratch import ALIGN
from pliant.symbolic.expr import ZERO, Expr
from pliant.targets.cpu import target
from pliant.wrappers.entering import ALWAYS, NEVER, RELEASE_GIL

AT_ONCE = 512  # that are read at once, for as many rows of tensors: they lie on the stack
TABLE_CALLS = 32  # more calls of kernels in one entry are a table
TABLE_ENTRIES = 8  # more entries are tables, all of them: none is much of what the graph takes


@dataclass(frozen=True, slots=True)
class Entry:
    """One native call: the list of the graph's inputs (where it reads some itself), tensors, numbers, then the stream if
    its kernels run on one of `device`. functions: those of its kernels, in order."""

    name: str
    reads_list: bool
    buffers: tuple[Buffer, ...]
    sizes: tuple[Expr, ...]
    device: torch.device | None = None
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NativeCode:
    """The distinct kernels, the entries in order and their text (`bodies`); `units`: all of it for the compiler."""

    pieces: tuple[Piece, ...]
    entries: tuple[Entry, ...]
    bodies: str
    units: tuple[Unit, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The translation units."""
        return tuple(unit.text for unit in self.units)

    @property
    def kernels(self) -> int:
        """How many distinct ones there are."""
        return len(self.pieces)


def write_native(
    runs: Sequence[Sequence[Kernel]],
    listed: Mapping[Buffer, int],
    scratch: Mapping[Buffer, int],
    in_place: Mapping[Buffer, Buffer],
) -> NativeCode:
    """The code of all runs. `listed`: inputs of the graph that entries read from its list, and their places in it.
    `scratch`: buffers on an entry's stack, and where. `in_place`: those that take over the memory of others."""
    entries: list[Entry] = []
    bodies: dict[str, str] = {}
    once: WrittenOnce[KernelText] = WrittenOnce(_written)
    shared = share([[text for one in in_turn(run, in_place, scratch.keys()) for text in _texts(one, once)] for run in runs])
    names = _names(kernel for written in shared for kernel in written)
    for written in shared:
        as_table = len(shared) > TABLE_ENTRIES or len(written) > TABLE_CALLS
        entry, body = _entry(written, names, listed, scratch, as_table)
        name = bodies.setdefault(body, f"entry{len(bodies)}")
        entries.append(replace(entry, name=name, functions=tuple([names[one.text] for one in written])))
    texts = [named(body, name) for body, name in bodies.items()]
    if any("p_enter" in body for body in bodies):
        texts.insert(0, f"static const p_kernel kernels[] = {{{', '.join(names.values())}}};\n")
    return _code(_pieces([kernel for written in shared for kernel in written], names), entries, "".join(texts))


def _texts(one: Kernel | Pair, once: WrittenOnce[KernelText]) -> Sequence[KernelText]:
    return once(one.first, one.second, ordered=one.ordered) if isinstance(one, Pair) else once(one)


def _written(kernel: Kernel, behind: Kernel | None = None, ordered: bool = False) -> list[KernelText]:
    return [write_kernel(kernel) if behind is None else write_pair(kernel, behind, ordered=ordered)]


def write_rows(
    kernels: Sequence[Kernel], listed: Mapping[Buffer, int], scratch: Mapping[Buffer, int]
) -> tuple[NativeCode, tuple[Expr, ...]]:
    """The code of kernels that run for each of many rows of tensors, and the numbers that its entry takes: it is called
    with a list, the address of the places of every row's tensors in it, how many rows there are, and the numbers."""
    written = [replace(write_kernel(kernel), is_little=False) for kernel in kernels]
    names = _names(written)
    entry, body = _row_entry(written, names, listed, scratch)
    return _code(_pieces(written, names), [entry], named(body, entry.name)), entry.sizes


def _names(kernels: Iterable[KernelText]) -> dict[str, str]:
    """The name of each text."""
    return {text: name_of(text) for text in dict.fromkeys(kernel.text for kernel in kernels)}


def _pieces(kernels: Sequence[KernelText], names: dict[str, str]) -> tuple[Piece, ...]:
    comments: dict[str, str] = {}
    large = {kernel.text for kernel in kernels if not kernel.is_little}
    for kernel in kernels:
        comments.setdefault(kernel.text, kernel.comment)
    return tuple(Piece(name, text, comments[text], text not in large) for text, name in names.items())


def _code(pieces: tuple[Piece, ...], entries: Sequence[Entry], bodies: str) -> NativeCode:
    return NativeCode(pieces, tuple(entries), bodies, units_of(pieces, (), bodies))


def _row_entry(
    kernels: list[KernelText], names: dict[str, str], listed: Mapping[Buffer, int], scratch: Mapping[Buffer, int]
) -> tuple[Entry, str]:
    own = list(dict.fromkeys(b for k in kernels for b in k.buffers if b in scratch))
    buffers = [*sorted(listed, key=listed.__getitem__), *own]
    sizes = list(dict.fromkeys(s for k in kernels for s in k.sizes))
    width = len(listed)
    at_once = max(1, AT_ONCE // width)
    work = sum([k.work.as_int() or 0 for k in kernels])
    body = [
        "PyObject* @(PyObject* self, PyObject* const* args, int64_t count) {",
        f"  void *b[{len(buffers)}], *found[{at_once * width}];",
        f"  PyObject* objects[{at_once * width}];",
        f"  int64_t n[{max(1, len(sizes))}] = {{0}};",
        "  int32_t error = 0;",
        "  PyObject* const* const items = ((PyObject* const**)args[0])[p_items];",
        "  const int32_t* places = (const int32_t*)PyLong_AsUnsignedLongLong(args[1]);",
        "  int64_t rows = PyLong_AsLongLong(args[2]);",
        *(_number(s, k, 3) for k, s in enumerate(sizes)),
        "  if (PyErr_Occurred()) return 0;",
        *_scratch([scratch[b] for b in own], width),
        f"  for (; rows > 0; rows -= {at_once}) {{",
        f"    const int64_t now = p_min(rows, {at_once});",
        f"    for (int64_t k = 0; k < now * {width}; k++) objects[k] = items[*places++];",
        f"    if (p_addresses(objects, now * {width}, found)) return 0;",
        f"    void* const state = now * {work} > {RELEASE_GIL} ? PyEval_SaveThread() : 0;",
        "    for (int64_t row = 0; row < now; row++) {",
        f"      __builtin_memcpy(b, found + row * {width}, {width} * sizeof(void*));",
        *("    " + line for line in _calls(kernels, names, buffers, sizes)),
        "    }",
        "    if (state) PyEval_RestoreThread(state);",
        "  }",
        *_END,
    ]
    functions = tuple([names[one.text] for one in kernels])
    return Entry("entry0", True, (), tuple(sizes), functions=functions), "\n".join(body)


def _entry(
    kernels: list[KernelText],
    names: dict[str, str],
    listed: Mapping[Buffer, int],
    scratch: Mapping[Buffer, int],
    as_table: bool,
) -> tuple[Entry, str]:
    used = dict.fromkeys(b for k in kernels for b in k.buffers)
    own = {b: scratch[b] for b in used if b in scratch}
    given = {b: listed[b] for b in sorted((b for b in used if b in listed), key=listed.__getitem__)}
    passed = [b for b in used if b not in listed and b not in scratch]
    used_sizes = dict.fromkeys(s for k in kernels for s in k.sizes)
    sizes = [s for s in used_sizes if s.as_int() is None]
    work: Expr = ZERO
    for k in kernels:
        work = work + k.work
    if work.free and work not in sizes:
        sizes.append(work)
    constants = [s for s in used_sizes if s.as_int() is not None]  # in which kernels of one text differ
    parts = _Parts(kernels, list(given.values()), passed, list(own.values()), [*given, *passed, *own], sizes, constants, work)
    body = _as_table(parts, names) if as_table else _as_function(parts, names)
    return Entry("", bool(given), tuple(passed), tuple(sizes)), body


@dataclass(frozen=True, slots=True)
class _Parts:
    """What an entry is made of. `places` in the list of inputs, `passed` buffers, `offsets` on the stack: all of these are
    `buffers` in order; `sizes` and `constants` are the numbers."""

    kernels: list[KernelText]
    places: list[int]
    passed: list[Buffer]
    offsets: list[int]
    buffers: list[Buffer]
    sizes: list[Expr]
    constants: list[Expr]
    work: Expr


def _as_function(of: _Parts, names: dict[str, str]) -> str:
    work_text = f"n[{of.sizes.index(of.work)}]" if of.work.free else str(of.work)
    lines = ["PyObject* @(PyObject* self, PyObject* const* args, int64_t count) {"]
    lines += [
        f"  void* b[{max(1, len(of.buffers))}];",
        f"  int64_t n[{max(1, len(of.sizes) + len(of.constants))}] = {{0}};",
        "  int32_t error = 0;",
        *_constants(of.constants, len(of.sizes)),
        *_addresses(of.places, len(of.passed), of.offsets),
        *(_number(s, k, len(of.passed)) for k, s in enumerate(of.sizes)),
    ]
    if of.sizes:
        lines.append("  if (PyErr_Occurred()) return 0;")
    lines.append(f"  void* const state = {work_text} > {RELEASE_GIL} ? PyEval_SaveThread() : 0;")
    lines += _calls(of.kernels, names, of.buffers, [*of.sizes, *of.constants])
    lines.append("  if (state) PyEval_RestoreThread(state);")
    lines += _END
    return "\n".join(lines)


def _as_table(of: _Parts, names: dict[str, str]) -> str:
    """The entry as what `p_enter` reads."""
    rows = _rows(of.kernels, names, of.buffers, [*of.sizes, *of.constants])
    points = of.work.as_int()
    release = of.sizes.index(of.work) if points is None else ALWAYS if points > RELEASE_GIL else NEVER
    head = [
        len(of.places), len(of.passed), len(of.offsets), max(of.offsets, default=0) + target().scratch_each,
        len(of.sizes), len(of.constants), release, max(row[1] for row in rows), max(row[2] for row in rows), len(rows),
    ]  # fmt: skip
    numbers = [*head, *of.places, *of.offsets, *(int(s.kind is not int) for s in of.sizes), *(x for row in rows for x in row)]
    return "\n".join(
        [
            f"static const int32_t @_table[] = {{{', '.join(map(str, numbers))}}};",
            f"static const int64_t @_constants[] = {{{', '.join(map(str, of.constants or [ZERO]))}}};",
            "PyObject* @(PyObject* self, PyObject* const* args, int64_t count) {",
            "  return p_enter(args, @_table, @_constants, kernels);",
            "}",
            "",
        ]
    )


_END = (
    '  if (error) { PyErr_SetString(PyExc_IndexError, "index out of range in self"); return 0; }',
    "  Py_IncRef(&_Py_NoneStruct);",
    "  return &_Py_NoneStruct;",
    "}",
    "",
)


def _addresses(places: list[int], passed: int, offsets: list[int]) -> list[str]:
    """Fill `b`: what lies in the list of inputs, the arguments, what the entry has on its stack."""
    lines = []
    if places:
        lines.append(f"  static const int32_t places[] = {{{', '.join(map(str, places))}}};")
        lines.append(f"  if (p_listed(*args++, places, {len(places)}, b)) return 0;")
    first = f"b + {len(places)}" if places else "b"
    lines.append(f"  if (p_addresses(args, {passed}, {first})) return 0;")
    return lines + _scratch(offsets, len(places) + passed)


def _constants(constants: list[Expr], first: int) -> list[str]:
    if not constants:
        return []
    return [
        f"  static const int64_t constants[] = {{{', '.join(map(str, constants))}}};",
        f"  __builtin_memcpy(n + {first}, constants, sizeof(constants));",
    ]


def _scratch(offsets: list[int], first: int) -> list[str]:
    if not offsets:
        return []
    return [
        f"  char scratch[{max(offsets) + target().scratch_each}] __attribute__((aligned({ALIGN})));",
        f"  static const int32_t offsets[] = {{{', '.join(map(str, offsets))}}};",
        f"  for (int k = 0; k < {len(offsets)}; k++) b[{first} + k] = scratch + offsets[k];",
    ]


def _number(s: Expr, k: int, first: int) -> str:
    if s.kind is int:
        return f"  n[{k}] = PyLong_AsLongLong(args[{first + k}]);"
    return f"  {{ double x = PyFloat_AsDouble(args[{first + k}]); __builtin_memcpy(&n[{k}], &x, 8); }}"


def _calls(kernels: list[KernelText], names: dict[str, str], buffers: list[Buffer], sizes: list[Expr]) -> list[str]:
    """The kernels' calls in order: statements, or a table where they are many, which is quickly compiled."""
    if len(kernels) > TABLE_CALLS:
        rows = _rows(kernels, names, buffers, sizes)
        return _table(list(names.values()), rows)
    place = {b: k for k, b in enumerate(buffers)}
    number = {s: k for k, s in enumerate(sizes)}
    tensors = [[place[b] for b in kernel.buffers] for kernel in kernels]
    numbers = [[number[s] for s in kernel.sizes] for kernel in kernels]
    return [
        f"  {names[kernel.text]}((void*[]){{{_items('b', given)}}}, (const int64_t[]){{{_items('n', numbered)}}}, &error);"
        for kernel, given, numbered in zip(kernels, tensors, numbers)
    ]


def _rows(
    kernels: list[KernelText], names: dict[str, str], buffers: list[Buffer], sizes: list[Expr]
) -> list[list[int]]:
    """For each call the place of its kernel, how many tensors and numbers it takes, and their places."""
    kernel_at = {text: k for k, text in enumerate(names)}
    place = {b: k for k, b in enumerate(buffers)}
    number = {s: k for k, s in enumerate(sizes)}
    return [
        [
            kernel_at[kernel.text], len(kernel.buffers), len(kernel.sizes),
            *(place[b] for b in kernel.buffers), *(number[s] for s in kernel.sizes),
        ]
        for kernel in kernels
    ]  # fmt: skip


def _items(array: str, places: list[int]) -> str:
    return ", ".join(f"{array}[{k}]" for k in places) or "0"


def _table(names: list[str], rows: list[list[int]]) -> list[str]:
    """The calls as a loop over their rows."""
    return [
        f"  static void (*const kernels[])(void**, const int64_t*, int32_t*) = {{{', '.join(names)}}};",
        f"  static const int32_t calls[] = {{{', '.join(str(item) for row in rows for item in row)}}};",
        "  const int32_t* c = calls;",
        f"  for (int k = 0; k < {len(rows)}; k++) {{",
        f"    void* p[{1 + max(row[1] for row in rows)}];",
        f"    int64_t q[{1 + max(row[2] for row in rows)}];",
        "    const int32_t kernel = c[0], tensors = c[1], numbers = c[2];",
        "    c += 3;",
        "    for (int m = 0; m < tensors; m++) p[m] = b[*c++];",
        "    for (int m = 0; m < numbers; m++) q[m] = n[*c++];",
        "    kernels[kernel](p, q, &error);",
        "  }",
    ]
