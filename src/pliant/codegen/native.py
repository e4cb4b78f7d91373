"""Assemble kernels into C translation units with entries that Python calls.

In:     runs of consecutive kernels, as `KernelText`s.
Out:    `NativeCode`: translation units, and for each run its entry's name and arguments.
Holds:  kernels with equal text are one C function, and so are entries; an entry runs all kernels of its run in order,
        holds the GIL only while it reads its arguments (or throughout, where the work is small), and raises IndexError
        if a lookup was out of range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from pliant.codegen import prelude
from pliant.codegen.c import KernelText, write_kernel
from pliant.codegen.forms import WrittenOnce
from pliant.codegen.sharing import share
from pliant.ir.loops import Buffer
from pliant.records import dataclass
from pliant.schedule.kernel import Kernel
from pliant.schedule.scratch import ALIGN
from pliant.symbolic.expr import ZERO, Expr
from pliant.targets.cpu import target
from pliant.wrappers.entering import ALWAYS, NEVER, RELEASE_GIL
from pliant.wrappers.shared_text import ADDRESSES, LISTED, PART, PYTHON

# Characters of kernels in one translation unit; more are split into units compiled in parallel, up to so many: each takes
# the compiler's start-up, as long as three or four kernels.
PART_TEXT, MAX_UNITS = 10000, 4
UNIT_TEXT, MOST_UNITS = 24000, 16  # characters of a unit where there is more text, and how many units then
AT_ONCE = 512  # that are read at once, for as many rows of tensors: they lie on the stack
# Units of little kernels and of entries: a quarter less to compile, and not much slower. Vectors stay, and so does the
# order of sums; without expensive optimizations gcc does not clear the upper halves of vector registers at the end.
QUICKLY = '#pragma GCC optimize("O1", "tree-vectorize", "expensive-optimizations")\n'
TABLE_CALLS = 32  # more calls of kernels in one entry are a table
TABLE_ENTRIES = 8  # more entries are tables, all of them: none is much of what the graph takes

RUN = "int64_t (*p_run)(p_part, void**, const int64_t*, int64_t, int64_t, int64_t, int32_t*);\n"

BIND = """\
void pliant_bind(void** table) { p_run = table[0]; p_addresses = table[1]; p_items = (int64_t)table[2]; }
"""
# the same, with what runs entries that are tables
BIND_TABLES = """\
typedef void (*p_kernel)(void**, const int64_t*, int32_t*);
static PyObject* (*p_enter)(PyObject* const*, const int32_t*, const int64_t*, const p_kernel*);
void pliant_bind(void** table) {
  p_run = table[0]; p_addresses = table[1]; p_items = (int64_t)table[2]; p_enter = table[3];
}
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One native call: the list of the graph's inputs (where it reads some itself), tensors, numbers, then the stream if
    its kernels run on one of `device`."""

    name: str
    reads_list: bool
    buffers: tuple[Buffer, ...]
    sizes: tuple[Expr, ...]
    device: torch.device | None = None


@dataclass(frozen=True, slots=True)
class NativeCode:
    """Texts of the translation units, the entries in order, and how many distinct kernels there are."""

    texts: tuple[str, ...]
    entries: tuple[Entry, ...]
    kernels: int


def write_native(
    runs: Sequence[Sequence[Kernel]], listed: Mapping[Buffer, int], scratch: Mapping[Buffer, int]
) -> NativeCode:
    """The code of all runs. `listed`: inputs of the graph that entries read from its list, and their places in it.
    `scratch`: buffers on an entry's stack, and where."""
    names: dict[str, str] = {}
    comments: dict[str, str] = {}
    entries: list[Entry] = []
    bodies: dict[str, str] = {}
    once = WrittenOnce(lambda kernel: [write_kernel(kernel)])
    shared = share([[text for kernel in run for text in once(kernel)] for run in runs])
    for written in shared:
        for kernel_text in written:
            names.setdefault(kernel_text.text, f"k{len(names)}")
            comments.setdefault(names[kernel_text.text], kernel_text.comment)
        as_table = len(shared) > TABLE_ENTRIES or len(written) > TABLE_CALLS
        entry, body = _entry(written, names, listed, scratch, as_table)
        name = bodies.setdefault(body, f"entry{len(bodies)}")
        entries.append(replace(entry, name=name))
    large = {kernel.text for written in shared for kernel in written if not kernel.is_little}
    named = [_named(body, name) for body, name in bodies.items()]
    if any("p_enter" in body for body in bodies):
        named.insert(0, f"static const p_kernel kernels[] = {{{', '.join(names.values())}}};\n")
    return NativeCode(_units(names, comments, large, named), tuple(entries), len(names))


def write_rows(
    kernels: Sequence[Kernel], listed: Mapping[Buffer, int], scratch: Mapping[Buffer, int]
) -> tuple[NativeCode, tuple[Expr, ...]]:
    """The code of kernels that run for each of many rows of tensors, and the numbers that its entry takes: it is called
    with a list, the address of the places of every row's tensors in it, how many rows there are, and the numbers."""
    written = [write_kernel(kernel) for kernel in kernels]
    names: dict[str, str] = {}
    comments: dict[str, str] = {}
    for kernel_text in written:
        comments.setdefault(names.setdefault(kernel_text.text, f"k{len(names)}"), kernel_text.comment)
    entry, body = _row_entry(written, names, listed, scratch)
    units = _units(names, comments, set(names), [_named(body, entry.name)])
    return NativeCode(units, (entry,), len(names)), entry.sizes


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
    return Entry("entry0", True, (), tuple(sizes)), "\n".join(body)


def _units(names: dict[str, str], comments: dict[str, str], large: set[str], bodies: list[str]) -> tuple[str, ...]:
    """Translation units: one, or several, with the entries in the shortest, where there are many kernels. `large`: the
    kernels whose own time is worth more than the compiler's."""
    texts = list(names)
    length = sum(map(len, texts))
    count = min(len(texts), max(min(MAX_UNITS, 1 + length // PART_TEXT), min(MOST_UNITS, length // UNIT_TEXT)))
    if count <= 1:
        kernels = "".join(comments[names[t]] + _named(t, names[t]) for t in texts)
        return (_unit("static", kernels, "".join(bodies), main=True),)
    parts = sorted(_parts(texts, large, count), key=lambda part: sum(map(len, part[0])))
    written = ["".join(comments[names[t]] + _shared(t, names[t]) for t in part) for part, _ in parts]
    elsewhere = "".join(
        f"P_HIDDEN void {names[t]}(void** p, const int64_t* n, int32_t* p_error);\n" for part, _ in parts[1:] for t in part
    )
    units = [_unit("P_HIDDEN", elsewhere + written[0], "".join(bodies), main=True, quickly=parts[0][1])]
    units += [_unit("P_HIDDEN", text, "", main=False, quickly=quickly) for text, (_, quickly) in zip(written[1:], parts[1:])]
    return tuple(units)


def _parts(texts: list[str], large: set[str], count: int) -> list[tuple[list[str], bool]]:
    """The kernels in `count` parts of much the same length, and whether all kernels of a part are little."""
    ranked = sorted(texts, key=len, reverse=True)
    little = [t for t in ranked if t not in large]
    share = round(count * sum(map(len, little)) / sum(map(len, texts)))
    if 0 < len(little) < len(texts):
        share = min(share, count - 1)
    if not share:
        return [(ranked[k::count], False) for k in range(count)]
    rest = [t for t in ranked if t in large]
    parts = [(little[k::share], True) for k in range(share)]
    return [part for part in [*parts, *((rest[k :: count - share], False) for k in range(count - share))] if part[0]]


def _named(text: str, name: str) -> str:
    return text.replace("@", name) + "\n"


def _shared(text: str, name: str) -> str:
    """The kernel with its driver visible to other translation units."""
    return _named(text.replace("static void @(", "P_HIDDEN void @("), name)


def _unit(linkage: str, kernels: str, entries: str, *, main: bool, quickly: bool = False) -> str:
    hidden = '#define P_HIDDEN __attribute__((visibility("hidden")))\n'
    parts = [QUICKLY if quickly else "", prelude.text_for(kernels + entries), hidden, PYTHON, PART]
    bind = BIND_TABLES if "p_enter" in entries else BIND
    parts += ["P_HIDDEN ", RUN, ADDRESSES, bind, LISTED if "p_listed" in entries else ""] if main else ["extern P_HIDDEN ", RUN]
    return "".join([*parts, "\n", kernels, entries])


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
