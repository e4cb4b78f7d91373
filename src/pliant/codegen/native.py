"""Assemble kernels into C translation units with entries that Python calls.

In:     runs of consecutive kernels, as `KernelText`s.
Out:    `NativeCode`: translation units, and for each run its entry's name and arguments.
Holds:  kernels with equal text are one C function, and so are entries; an entry runs all kernels of its run in order,
        holds the GIL only while it reads its arguments (or throughout, where the work is small), and raises IndexError
        if a lookup was out of range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from pliant.codegen import prelude
from pliant.codegen.bernoulli import BERNOULLI
from pliant.codegen.c import KernelText, write_kernel
from pliant.codegen.fingerprint import FINGERPRINT
from pliant.codegen.sharing import share
from pliant.ir.loops import Buffer
from pliant.schedule.kernel import Kernel
from pliant.schedule.scratch import ALIGN
from pliant.symbolic.expr import ZERO, Expr
from pliant.targets.cpu import target

RELEASE_GIL = 1 << 16  # points of a run from which on the GIL is released
PART_TEXT = 4000  # characters of kernels in one translation unit; more are split into units compiled in parallel
MAX_UNITS = 4
AT_ONCE = 512  # that are read at once, for as many rows of tensors: they lie on the stack
TABLE_CALLS = 32  # more calls of kernels in one entry are a table

PYTHON = """\
typedef struct _object PyObject;
extern long long PyLong_AsLongLong(PyObject*);
extern unsigned long long PyLong_AsUnsignedLongLong(PyObject*);
extern PyObject* PyLong_FromUnsignedLongLong(unsigned long long);
extern double PyFloat_AsDouble(PyObject*);
extern PyObject* PyErr_Occurred(void);
extern void PyErr_SetString(PyObject*, const char*);
extern PyObject* PyExc_IndexError;
extern void Py_IncRef(PyObject*);
extern PyObject _Py_NoneStruct;
extern void* PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void*);
"""

# What kernels and entries share lies in a library of its own (RUNTIME), which is built once for all graphs; a graph's
# library is told where it is.
PART = """\
typedef void (*p_part)(void**, const int64_t*, int64_t, int64_t, int64_t, int32_t*);
"""

RUN = "int64_t (*p_run)(p_part, void**, const int64_t*, int64_t, int64_t, int64_t, int32_t*);\n"

ADDRESSES = """\
static int (*p_addresses)(PyObject* const*, int32_t, void**);
static int64_t p_items;
"""

BIND = """\
void pliant_bind(void** table) { p_run = table[0]; p_addresses = table[1]; p_items = (int64_t)table[2]; }
"""

# The addresses of some of the graph's inputs, in their list.
LISTED = """\
P_INLINE int p_listed(PyObject* list, const int32_t* places, int32_t count, void** out) {
  PyObject* const* const items = ((PyObject* const**)list)[p_items];
  if (places[count - 1] - places[0] == count - 1) return p_addresses(items + places[0], count, out);
  PyObject* found[count];
  for (int k = 0; k < count; k++) found[k] = items[places[k]];
  return p_addresses(found, count, out);
}
"""

# `p_run` spreads `range` items over threads, at least `grain` items each, and returns how many parts it made. Which part
# gets which items depends only on range and the number of parts. `p_layout`: where a tensor's object keeps the address of
# its data (`runtime.tensor_address`); zeros: not known.
_RUNTIME = """\
typedef struct { p_part f; void** p; const int64_t* n; int64_t range; int32_t* error; int64_t parts; } p_job;
typedef struct { uint64_t tensor, parameter, object, kind, storage, offset, data, owner, lazy; } p_layout;
static p_layout p_where;
static int (*p_reader)(void*, void*);
static void (*p_parallel)(void (*)(void*), void*, unsigned, unsigned);
static int (*p_thread)(void);
static int (*p_threads)(void);
static int (*p_maximum)(void);
void pliant_runtime(void** table) {
  p_reader = table[0]; p_parallel = table[1]; p_thread = table[2]; p_threads = table[3]; p_maximum = table[4];
  if (table[5]) p_where = *(const p_layout*)table[5];
}
static void p_share(void* data) {
  p_job* j = data;
  const int64_t parts = p_min(j->parts, p_threads()), k = p_thread();
  if (k >= parts) return;
  if (k == 0) j->parts = parts;
  const int64_t begin = j->range / parts * k + p_min(k, j->range % parts);
  const int64_t end = begin + j->range / parts + (k < j->range % parts);
  j->f(j->p, j->n, begin, end, k, j->error);
}
int64_t p_run_alone(
    p_part f, void** p, const int64_t* n, int64_t range, int64_t grain, int64_t most, int32_t* error) {
  f(p, n, 0, range, 0, error);
  return 1;
}
int64_t p_run(p_part f, void** p, const int64_t* n, int64_t range, int64_t grain, int64_t most, int32_t* error) {
  int64_t parts = range / grain;
  if (parts > 1) parts = p_min(parts, p_min(most, p_maximum ? p_maximum() : 1));
  if (parts <= 1) return p_run_alone(f, p, n, range, grain, most, error);
  // Always the whole team: a team of another size than the last one's makes the runtime end and start threads.
  p_job job = {f, p, n, range, error, parts};
  p_parallel(p_share, &job, 0, 0);
  return job.parts;
}
typedef struct {
  void* data; int32_t device_type, device_id; int32_t ndim; uint8_t code, bits; uint16_t lanes;
  int64_t* shape; int64_t* strides; uint64_t byte_offset;
} p_tensor;
static char p_nothing[4096] __attribute__((aligned(64)));
__attribute__((noinline)) static int p_ask(PyObject* o, void** out) {
  char* data;
  if (p_reader) {
    p_tensor t;
    if (p_reader(o, &t)) return 1;
    data = t.data ? (char*)t.data + t.byte_offset : 0;
  } else {
    data = (char*)PyLong_AsUnsignedLongLong(o);
    if (!data && PyErr_Occurred()) return 1;
  }
  *out = data ? data : p_nothing;
  return 0;
}
// Object, tensor, storage, data, each for all objects: so memory is read for many at once. No vectors: gathering words
// into them takes longer than reading them.
#define P_ONE_BY_ONE __asm__("" : "+r"(k))
int p_addresses(PyObject* const* objects, int32_t count, void** out) {
  const p_layout where = p_where;
  const uint64_t** const found = (const uint64_t**)out;
  for (int k = 0; k < count; k++) {
    const uint64_t* o = (const uint64_t*)objects[k];
    found[k] = where.kind && (o[1] == where.tensor || o[1] == where.parameter) ? (const uint64_t*)o[where.object] : 0;
    P_ONE_BY_ONE;
  }
  for (int k = 0; k < count; k++) {
    const uint64_t* t = found[k];
    found[k] = t && t[0] == where.kind && !t[where.offset] ? (const uint64_t*)t[where.storage] : 0;
    P_ONE_BY_ONE;
  }
  for (int k = 0; k < count; k++) {
    const uint64_t* s = found[k];
    out[k] = s && s[where.owner] != where.lazy ? (char*)s[where.data] : 0;
    if (!out[k] && p_ask(objects[k], out + k)) return 1;
  }
  return 0;
}
"""


def runtime_text() -> str:
    """The translation unit of what all graphs share: `pliant_runtime`, `p_run`, `p_run_alone`, `p_addresses`,
    `pliant_fingerprint`, `pliant_bernoulli`."""
    return "".join([prelude.text_for(""), PYTHON, PART, _RUNTIME, FINGERPRINT, BERNOULLI])


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
    for written in share([[write_kernel(kernel) for kernel in run] for run in runs]):
        for kernel_text in written:
            names.setdefault(kernel_text.text, f"k{len(names)}")
            comments.setdefault(names[kernel_text.text], kernel_text.comment)
        entry, body = _entry(written, names, listed, scratch)
        name = bodies.setdefault(body, f"entry{len(bodies)}")
        entries.append(replace(entry, name=name))
    return NativeCode(
        _units(names, comments, [_named(body, name) for body, name in bodies.items()]), tuple(entries), len(names)
    )


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
    return NativeCode(_units(names, comments, [_named(body, entry.name)]), (entry,), len(names)), entry.sizes


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


def _units(names: dict[str, str], comments: dict[str, str], bodies: list[str]) -> tuple[str, ...]:
    """Translation units: one, or several with the entries in the first, where there are many kernels."""
    texts = list(names)
    count = min(MAX_UNITS, len(texts), 1 + sum(map(len, texts)) // PART_TEXT)
    if count <= 1:
        kernels = "".join(comments[names[t]] + _named(t, names[t]) for t in texts)
        return (_unit("static", kernels, "".join(bodies), main=True),)
    ranked = sorted(texts, key=len, reverse=True)
    units = [
        _unit("P_HIDDEN", "".join(comments[names[t]] + _shared(t, names[t]) for t in ranked[k::count]), "", main=False)
        for k in range(count)
    ]
    declared = "".join(f"P_HIDDEN void {names[t]}(void** p, const int64_t* n, int32_t* p_error);\n" for t in texts)
    return (_unit("P_HIDDEN", declared, "".join(bodies), main=True), *units)


def _named(text: str, name: str) -> str:
    return text.replace("@", name) + "\n"


def _shared(text: str, name: str) -> str:
    """The kernel with its driver visible to other translation units."""
    return _named(text.replace("static void @(", "P_HIDDEN void @("), name)


def _unit(linkage: str, kernels: str, entries: str, *, main: bool) -> str:
    hidden = '#define P_HIDDEN __attribute__((visibility("hidden")))\n'
    parts = [prelude.text_for(kernels + entries), hidden, PYTHON, PART]
    parts += ["P_HIDDEN ", RUN, ADDRESSES, BIND, LISTED if "p_listed" in entries else ""] if main else ["extern P_HIDDEN ", RUN]
    return "".join([*parts, "\n", kernels, entries])


def _entry(
    kernels: list[KernelText], names: dict[str, str], listed: Mapping[Buffer, int], scratch: Mapping[Buffer, int]
) -> tuple[Entry, str]:
    used = dict.fromkeys(b for k in kernels for b in k.buffers)
    places = sorted(listed[b] for b in used if b in listed)
    passed = [b for b in used if b not in listed and b not in scratch]
    own = [b for b in used if b in scratch]
    buffers = [*sorted((b for b in used if b in listed), key=listed.__getitem__), *passed, *own]
    used_sizes = dict.fromkeys(s for k in kernels for s in k.sizes)
    sizes = [s for s in used_sizes if s.as_int() is None]
    work: Expr = ZERO
    for k in kernels:
        work = work + k.work
    if work.free and work not in sizes:
        sizes.append(work)
    constants = [s for s in used_sizes if s.as_int() is not None]  # in which kernels of one text differ
    work_text = f"n[{sizes.index(work)}]" if work.free else str(work)
    lines = ["PyObject* @(PyObject* self, PyObject* const* args, int64_t count) {"]
    lines += [
        f"  void* b[{max(1, len(buffers))}];",
        f"  int64_t n[{max(1, len(sizes) + len(constants))}] = {{0}};",
        "  int32_t error = 0;",
        *_constants(constants, len(sizes)),
        *_addresses(places, len(passed), [scratch[b] for b in own]),
        *(_number(s, k, len(passed)) for k, s in enumerate(sizes)),
    ]
    if sizes:
        lines.append("  if (PyErr_Occurred()) return 0;")
    lines.append(f"  void* const state = {work_text} > {RELEASE_GIL} ? PyEval_SaveThread() : 0;")
    lines += _calls(kernels, names, buffers, [*sizes, *constants])
    lines.append("  if (state) PyEval_RestoreThread(state);")
    lines += _END
    return Entry("", bool(places), tuple(passed), tuple(sizes)), "\n".join(lines)


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
    place = {b: k for k, b in enumerate(buffers)}
    number = {s: k for k, s in enumerate(sizes)}
    tensors = [[place[b] for b in kernel.buffers] for kernel in kernels]
    numbers = [[number[s] for s in kernel.sizes] for kernel in kernels]
    if len(kernels) > TABLE_CALLS:
        return _table([names[kernel.text] for kernel in kernels], tensors, numbers)
    return [
        f"  {names[kernel.text]}((void*[]){{{_items('b', given)}}}, (const int64_t[]){{{_items('n', numbered)}}}, &error);"
        for kernel, given, numbered in zip(kernels, tensors, numbers)
    ]


def _items(array: str, places: list[int]) -> str:
    return ", ".join(f"{array}[{k}]" for k in places) or "0"


def _table(called: list[str], tensors: list[list[int]], numbers: list[list[int]]) -> list[str]:
    """For each call the kernel, how many tensors and numbers it takes, and their places."""
    kernels = {name: k for k, name in enumerate(dict.fromkeys(called))}
    rows = [
        [kernels[name], len(given), len(numbered), *given, *numbered]
        for name, given, numbered in zip(called, tensors, numbers)
    ]
    return [
        f"  static void (*const kernels[])(void**, const int64_t*, int32_t*) = {{{', '.join(kernels)}}};",
        f"  static const int32_t calls[] = {{{', '.join(str(item) for row in rows for item in row)}}};",
        "  const int32_t* c = calls;",
        f"  for (int k = 0; k < {len(called)}; k++) {{",
        f"    void* p[{1 + max(map(len, tensors))}];",
        f"    int64_t q[{1 + max(map(len, numbers))}];",
        "    const int32_t kernel = c[0], tensors = c[1], numbers = c[2];",
        "    c += 3;",
        "    for (int m = 0; m < tensors; m++) p[m] = b[*c++];",
        "    for (int m = 0; m < numbers; m++) q[m] = n[*c++];",
        "    kernels[kernel](p, q, &error);",
        "  }",
    ]
