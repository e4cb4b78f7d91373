"""Launches of a GPU's kernels as tables, and the one native function that reads them.

Out:    `Launches`: the table of one run; `launcher_text()`: C that is built once for all graphs; `packed_addresses`.
Holds:  a run launches its kernels in order on the stream that it is given, and none whose grid is empty; it keeps the
        GIL, since a launch takes some microseconds; one that fails raises RuntimeError with the driver's message. Kernels
        that no launch needed yet may be missing: the first that does asks for all of them.

A graph brings no C of its own: a table is read in some ten nanoseconds a launch, and needs no compiler.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from pliant import background
from pliant.records import dataclass
from pliant.wrappers.shared_text import ADDRESSES, BASE, LISTED, PYTHON

# Blocks of a grid at most, in x, y and z, and threads of a block: of every GPU there is.
MOST_BLOCKS = ((1 << 31) - 1, (1 << 16) - 1, (1 << 16) - 1)
MOST_THREADS = 1024
ROW_WORDS = 480  # of a kernel that takes rows of arguments as one: all have 4 KB

# What the function is given as its `self`: a bytes object that holds this, then constants (int64), then functions
# (addresses; 0: not built yet), then int32: places in the list of inputs, whether a number is a float, and the launches, each the place of
# its function, how many tensors and numbers it takes, the place in `n` of a block's threads, shared bytes, the places in `n`
# of the blocks in x, y and z, how many rows of arguments it takes as words of one (0: it takes them as they are), and the
# places of its tensors in `b` and of its numbers in `n`. `context`: 0 where there is none.
_HEAD = """\
typedef struct {
  uint64_t launch, context;
  int32_t listed, passed, numbers, constants, functions, launches;
} p_head;
"""
HEAD = struct.Struct("=QQ6i")

_LAUNCHER = """\
extern char* PyBytes_AsString(PyObject*);
extern PyObject* PyObject_CallMethod(PyObject*, const char*, const char*, ...);
extern void Py_DecRef(PyObject*);
extern PyObject* PyErr_Format(PyObject*, const char*, ...);
extern PyObject* PyExc_RuntimeError;
typedef int (*p_launch)(void*, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, void*, void**);
static int (*cu_launch)(
    void*, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, void*, void**, void**);
static int (*cu_current)(void**);
static int (*cu_push)(void*);
static int (*cu_pop)(void**);
static int (*cu_text)(int, const char**);
void pliant_bind(void** table) { p_addresses = table[0]; p_items = (int64_t)table[1]; }
void pliant_driver(void** table) {
  cu_launch = table[0]; cu_current = table[1]; cu_push = table[2]; cu_pop = table[3]; cu_text = table[4];
}
int p_cuda(void* function, uint32_t x, uint32_t y, uint32_t z, uint32_t threads, uint32_t shared, void* stream, void** args) {
  return cu_launch(function, x, y, z, threads, 1, 1, shared, stream, args, 0);
}
static PyObject* p_failed(int code) {
  const char* text = 0;
  if (cu_text) cu_text(code, &text);
  return PyErr_Format(PyExc_RuntimeError, "a kernel could not be launched: %s (error %d)", text ? text : "unknown error", code);
}
static int p_build(PyObject* self, void** functions, int64_t count) {
  PyObject* const built = PyObject_CallMethod(self, "built", 0);
  if (!built) return 1;
  const char* const found = PyBytes_AsString(built);
  if (found) __builtin_memcpy(functions, found, count * sizeof(void*));
  Py_DecRef(built);
  return !found;
}
static void p_words(
    int64_t* words, int rows, const int32_t* tensor, int tensors, const int32_t* number, int numbers,
    void* const* b, const int64_t* n) {
  for (int r = 0; r < rows; r++) {
    for (int m = 0; m < tensors / rows; m++) *words++ = (int64_t)b[*tensor++];
    for (int m = 0; m < numbers / rows; m++) *words++ = n[*number++];
  }
}
PyObject* pliant_launch(PyObject* self, PyObject* const* args, int64_t count) {
  const p_head* const head = (const p_head*)PyBytes_AsString(self);
  if (!head) return 0;
  const int64_t* const constants = (const int64_t*)(head + 1);
  void** const functions = (void**)(constants + head->constants);
  const int32_t* const places = (const int32_t*)(functions + head->functions);
  const int32_t* const floats = places + head->listed;
  const int32_t* c = floats + head->numbers;
  const int32_t tensors = head->listed + head->passed, numbers = head->numbers;
  void* b[tensors + 1];
  int64_t n[numbers + head->constants + 1];
  if (head->listed && p_listed(*args++, places, head->listed, b)) return 0;
  if (p_addresses(args, head->passed, b + head->listed)) return 0;
  args += head->passed;
  for (int k = 0; k < numbers; k++) {
    if (floats[k]) {
      const double x = PyFloat_AsDouble(args[k]);
      __builtin_memcpy(n + k, &x, 8);
    } else n[k] = PyLong_AsLongLong(args[k]);
  }
  void* const stream = (void*)PyLong_AsUnsignedLongLong(args[numbers]);
  if (PyErr_Occurred()) return 0;
  __builtin_memcpy(n + numbers, constants, head->constants * sizeof(int64_t));
  void* before = 0;
  int pushed = 0, error = 0;
  if (head->context) {
    error = cu_current(&before);
    if (!error && before != (void*)head->context) pushed = !(error = cu_push((void*)head->context));
  }
  const p_launch launch = (p_launch)head->launch;
  int wide = 0;
  for (int k = 0; k < head->launches && !error; k++) {
    const int32_t given = c[1], numbered = c[2];
    const int64_t x = n[c[5]], y = n[c[6]], z = n[c[7]];
    const int32_t* const place = c + 9;
    const int32_t at = c[0], rows = c[8];
    const uint32_t threads = n[c[3]], shared = c[4];
    c = place + given + numbered;
    if (!x || !y || !z) continue;
    if ((uint64_t)x > MOST_X || (uint64_t)y > MOST_Y || (uint64_t)z > MOST_Z) { wide = 1; break; }
    if (!functions[at] && p_build(self, functions, head->functions)) {
      if (pushed) cu_pop(&before);
      return 0;
    }
    void* p[given + numbered + 1];
    int64_t words[rows ? ROW_WORDS : 1];
    if (rows) {
      p_words(words, rows, place, given, place + given, numbered, b, n);
      p[0] = words;
    } else {
      for (int m = 0; m < given; m++) p[m] = b + place[m];
      for (int m = given; m < given + numbered; m++) p[m] = n + place[m];
    }
    error = launch(functions[at], x, y, z, threads, shared, stream, p);
  }
  if (pushed) cu_pop(&before);
  if (error) return p_failed(error);
  if (wide) return PyErr_Format(PyExc_RuntimeError, "a kernel's grid has more blocks than a GPU allows");
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}
"""

# Whether tensors of a list lie where they lay. Its `self`: how many (int64), addresses, places in the list (int32).
_STAY = """\
extern PyObject _Py_TrueStruct, _Py_FalseStruct;
PyObject* pliant_stay(PyObject* self, PyObject* const* args, int64_t count) {
  const int64_t* const head = (const int64_t*)PyBytes_AsString(self);
  if (!head) return 0;
  const int64_t tensors = *head;
  void* const* const before = (void* const*)(head + 1);
  void* now[tensors + 1];
  if (tensors && p_listed(args[0], (const int32_t*)(before + tensors), tensors, now)) return 0;
  PyObject* const found = __builtin_memcmp(now, before, tensors * sizeof(void*)) ? &_Py_FalseStruct : &_Py_TrueStruct;
  Py_IncRef(found);
  return found;
}
"""


def packed_addresses(places: Sequence[int], addresses: Sequence[int]) -> bytes:
    """What `pliant_stay` reads."""
    count = len(places)
    return struct.pack(f"=q{count}Q{count}i", count, *addresses, *places)


def launcher_text() -> str:
    """The translation unit of the native functions: `pliant_launch`, `pliant_stay`, `p_cuda`, `pliant_bind`,
    `pliant_driver`."""
    limits = f"#define ROW_WORDS {ROW_WORDS}\n" + "".join(f"#define MOST_{axis} {most}\n" for axis, most in zip("XYZ", MOST_BLOCKS))
    return "".join([BASE, PYTHON, ADDRESSES, LISTED, limits, _HEAD, _LAUNCHER, _STAY])


class Addresses:
    """Addresses of a program's functions. known: 0 for those that are not built yet; `build`: builds these, in order."""

    def __init__(self, known: Sequence[int], build: Callable[[], Sequence[int]] | None = None) -> None:
        self.known = list(known)
        self._build, self._lock = build, background.lock()

    def built(self) -> list[int]:
        """The addresses, all of them built now."""
        with self._lock:
            if self._build is not None:
                made = iter(self._build())
                self.known = [address or next(made) for address in self.known]
                self._build = None
            return self.known


class Packed(bytes):
    """A table as the native function reads it. built: the table's functions, which it takes over, for one is missing."""

    built: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Launches:
    """The table of one run. functions: places among the functions of its program; calls: see `_HEAD`."""

    functions: tuple[int, ...]
    listed: tuple[int, ...]
    passed: int
    floats: tuple[bool, ...]
    constants: tuple[int, ...]
    calls: tuple[tuple[int, ...], ...]

    def packed(self, launch: int, context: int, addresses: Addresses) -> Packed:
        """What the native function reads. `addresses`: of all of the code's functions."""
        counts = (len(self.listed), self.passed, len(self.floats), len(self.constants), len(self.functions))
        words = [int32 for call in self.calls for int32 in call]
        packed = Packed(b"".join([
            HEAD.pack(launch, context, *counts, len(self.calls)),
            struct.pack(f"={len(self.constants)}q", *self.constants),
            self._packed(addresses.known),
            struct.pack(f"={len(self.listed) + len(self.floats) + len(words)}i", *self.listed, *self.floats, *words),
        ]))  # fmt: skip
        packed.built = lambda: self._packed(addresses.built())
        return packed

    def _packed(self, addresses: Sequence[int]) -> bytes:
        return struct.pack(f"={len(self.functions)}Q", *(addresses[k] for k in self.functions))
