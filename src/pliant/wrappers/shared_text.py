"""C text that the native code of all graphs shares, and the unit of what they call: threads, addresses of tensors.

Out:    `runtime_text()`: the unit, built once; `auxiliary_text(name)`: units that few graphs need; `BASE`, `PYTHON`, `PART`, `ADDRESSES`, `LISTED`: what the
        units of graphs begin with.
"""

from __future__ import annotations

from pliant.wrappers.bernoulli import BERNOULLI
from pliant.wrappers.entering import ENTER
from pliant.wrappers.fingerprint import FINGERPRINT

BASE = """\
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define P_INLINE static inline __attribute__((always_inline))
#define P_OPAQUE(x) __asm__("" : "+r"(x))
#if defined(__FMA__) || defined(__aarch64__)
#define P_FMAf(a, b, c) __builtin_fmaf(a, b, c)
#else
#define P_FMAf(a, b, c) ((a) * (b) + (c))
#endif
#define P_LESSf(a, b) ((a) < (b) ? (a) : (b))
#define P_MOREf(a, b) ((a) > (b) ? (a) : (b))
#define P_CHOOSEf(c, a, b) ((c) ? (a) : (b))
#define P_ABSf(x) __builtin_fabsf(x)
#define P_ROOTf(x) __builtin_sqrtf(x)
#define P_SIGNf(x, s) __builtin_copysignf(x, s)
#define P_INTf(x) ((int32_t)(x))
#define P_NUMBERf(k) ((float)(k))
#define P_UPf(k) ((int32_t)((uint32_t)(k) << 23))
#define P_FLOATf(x) p_float(x)
#define P_BITSf(x) p_bits(x)
#define P_INF __builtin_inff()
#define P_NAN __builtin_nanf("")
P_INLINE int32_t p_bits(float x) { int32_t r; __builtin_memcpy(&r, &x, 4); return r; }
P_INLINE float p_float(int32_t x) { float r; __builtin_memcpy(&r, &x, 4); return r; }
#define INT64_C(x) x##ll
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define signbit(x) __builtin_signbit(x)
P_INLINE int64_t p_floordiv(int64_t a, int64_t b) { int64_t q = a / b; return q - ((a % b != 0) & ((a ^ b) < 0)); }
P_INLINE int64_t p_mod(int64_t a, int64_t b) { int64_t r = a % b; return r + ((r != 0) & ((r ^ b) < 0) ? b : 0); }
P_INLINE int64_t p_min(int64_t a, int64_t b) { return a < b ? a : b; }
P_INLINE int64_t p_max(int64_t a, int64_t b) { return a > b ? a : b; }
P_INLINE int64_t p_pow(int64_t a, int64_t b) {
  int64_t r = 1;
  for (; b > 0; b >>= 1, a *= a) if (b & 1) r *= a;
  return r;
}
"""

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
ADDRESSES = """\
static int (*p_addresses)(PyObject* const*, int32_t, void**);
static int64_t p_items;
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

PART = """\
typedef void (*p_part)(void**, const int64_t*, int64_t, int64_t, int64_t, int32_t*);
"""

# `p_run` spreads `range` items over threads, at least `grain` items each, and returns how many parts it made. Which part
# gets which items depends only on range and the number of parts. `p_layout`: where a tensor's object keeps the address of
# its data (`runtime.tensor_address`); zeros: not known.
_RUNTIME = """\
typedef struct { p_part f; void** p; const int64_t* n; int64_t range; int32_t* error; int64_t parts; } p_job;
typedef struct { uint64_t tensor, parameter, object, kind, storage, offset, data, owner, lazy; } p_layout;
static p_layout p_where;
static int64_t p_items;
static int (*p_reader)(void*, void*);
static void (*p_parallel)(void (*)(void*), void*, unsigned, unsigned);
static int (*p_thread)(void);
static int (*p_threads)(void);
static int (*p_maximum)(void);
void pliant_runtime(void** table) {
  p_reader = table[0]; p_parallel = table[1]; p_thread = table[2]; p_threads = table[3]; p_maximum = table[4];
  if (table[5]) p_where = *(const p_layout*)table[5];
  p_items = (int64_t)table[6];
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
    """The translation unit of what all graphs share: `pliant_runtime`, `p_run`, `p_run_alone`, `p_addresses`, `p_enter`."""
    return "".join([BASE, PYTHON, PART, _RUNTIME, LISTED, ENTER])


# Units of functions that few graphs call.
AUXILIARY = {"fingerprint": FINGERPRINT, "bernoulli": BERNOULLI}

_SHARED = """\
static int64_t (*p_run)(p_part, void**, const int64_t*, int64_t, int64_t, int64_t, int32_t*);
static int (*p_addresses)(PyObject* const*, int32_t, void**);
void pliant_bind(void** table) { p_run = table[0]; p_addresses = table[1]; }
"""


def auxiliary_text(name: str) -> str:
    """The translation unit of the function `pliant_<name>`, which is told of the library that all graphs share."""
    return "".join([BASE, PYTHON, PART, _SHARED, AUXILIARY[name]])
