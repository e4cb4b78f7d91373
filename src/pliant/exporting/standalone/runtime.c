/* Runs a packaged program: handles, memory, arguments, results, threads. It needs the C library alone. */
#include "runtime.h"

#include <fcntl.h>
#ifdef __wasm__ /* has one thread, and nothing to wait for */
#define pthread_mutex_t int
#define PTHREAD_MUTEX_INITIALIZER 0
#define pthread_mutex_lock(lock) (void)(lock)
#define pthread_mutex_unlock(lock) (void)(lock)
#define pthread_mutex_destroy(lock) (void)(lock)
#else
#include <pthread.h>
#endif
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define P_PUBLIC __attribute__((visibility("default")))
enum { ALIGNED = 64, MOST_PARTS = 64, MOST_DIMS = 64 };

struct pliant_program {
  pliant_hooks hooks;
  char *weights;
  bool mapped, copied;
  pthread_mutex_t alone;
};

static __thread char last_error[512];
static __thread const pliant_hooks *hooks; /* of the call that this thread runs */

P_PUBLIC const char *pliant_error(void) { return last_error; }
P_PUBLIC int pliant_input_count(void) { return p_input_count; }
P_PUBLIC int pliant_result_count(void) { return p_result_count; }

int p_fail(int code, const char *format, ...) {
  va_list given;
  va_start(given, format);
  vsnprintf(last_error, sizeof last_error, format, given);
  va_end(given);
  return code;
}

/* ---- memory */
static void *from_system(void *context, size_t bytes) {
  (void)context;
  void *found = NULL;
  return posix_memalign(&found, ALIGNED, bytes) ? NULL : found;
}
static void to_system(void *context, void *memory) {
  (void)context;
  free(memory);
}

void *p_new(int64_t bytes) {
  void *found = bytes < 0 || (uint64_t)bytes > SIZE_MAX ? NULL : hooks->allocate(hooks->context, bytes ? (size_t)bytes : 1);
  if (!found) p_fail(PLIANT_MEMORY, "no memory for %lld bytes", (long long)bytes);
  return found;
}
void p_delete(void *memory) {
  if (memory) hooks->release(hooks->context, memory);
}

/* Bytes from the first element to behind the last; -1 if no number says it. */
static int64_t bytes_of(int ndim, const int64_t *size, const int64_t *stride, int itemsize) {
  int64_t last = 0, step;
  for (int d = 0; d < ndim; d++)
    if (size[d] <= 0) return size[d] < 0 ? -1 : 0;
  for (int d = 0; d < ndim; d++)
    if (__builtin_mul_overflow(size[d] - 1, stride[d], &step) || __builtin_add_overflow(last, step, &last)) return -1;
  return last < 0 || last >= INT64_MAX / itemsize ? -1 : (last + 1) * itemsize;
}

int p_allocate(p_call *c, int k, int ndim, const int64_t *size, const int64_t *stride, int itemsize) {
  c->at[k] = c->own[k] = p_new(bytes_of(ndim, size, stride, itemsize));
  return c->at[k] ? PLIANT_OK : PLIANT_MEMORY;
}
void p_take(p_call *c, int k, int old) {
  c->at[k] = c->at[old];
  c->own[k] = c->own[old];
  c->own[old] = NULL;
}
void p_free(p_call *c, int k) {
  p_delete(c->own[k]);
  c->own[k] = NULL;
}

void p_copy(char *to, const int64_t *to_stride, const char *from, const int64_t *from_stride, const int64_t *size, int ndim, int itemsize) {
  if (!ndim) {
    memcpy(to, from, itemsize);
    return;
  }
  const bool plain = ndim == 1 && to_stride[0] == 1 && from_stride[0] == 1;
  if (plain && size[0] > 0) memcpy(to, from, size[0] * itemsize);
  for (int64_t i = 0; !plain && i < size[0]; i++)
    p_copy(to + i * to_stride[0] * itemsize, to_stride + 1, from + i * from_stride[0] * itemsize, from_stride + 1, size + 1, ndim - 1, itemsize);
}

/* A copy that lies otherwise. */
int p_lay(p_call *c, int k, const char *from, int ndim, const int64_t *size, const int64_t *from_stride, const int64_t *stride, int itemsize) {
  P_TRY(p_allocate(c, k, ndim, size, stride, itemsize));
  p_copy(c->at[k], stride, from, from_stride, size, ndim, itemsize);
  return PLIANT_OK;
}

/* Whether an element is not 0; of a float of 16 bits the sign does not count. */
bool p_truth(const void *element, pliant_dtype dtype) {
  float single;
  double twice;
  uint64_t bits = 0;
  if (dtype.code == 2 && dtype.bits == 32) return memcpy(&single, element, 4), single != 0;
  if (dtype.code == 2 && dtype.bits == 64) return memcpy(&twice, element, 8), twice != 0;
  memcpy(&bits, element, dtype.bits / 8);
  return dtype.code == 2 || dtype.code == 4 ? (bits & 0x7fff) != 0 : bits != 0;
}

static void row_major(int64_t *stride, const int64_t *size, int ndim) {
  int64_t step = 1;
  for (int d = ndim - 1; d >= 0; d--) {
    stride[d] = step;
    if (__builtin_mul_overflow(step, p_max(size[d], 1), &step)) step = 0;
  }
}

/* ---- arguments */
int p_rank(p_call *c, int input, pliant_dtype dtype, int ndim) {
  const pliant_tensor *one = &c->inputs[input];
  if (one->device.device_type != 1)
    return p_fail(PLIANT_ARGUMENT, "input %d is on a device of type %d, not on the CPU", input, one->device.device_type);
  if (one->dtype.code != dtype.code || one->dtype.bits != dtype.bits || one->dtype.lanes != dtype.lanes)
    return p_fail(PLIANT_ARGUMENT, "input %d has the dtype (%d, %d, %d), not (%d, %d, %d)", input, one->dtype.code, one->dtype.bits,
                  one->dtype.lanes, dtype.code, dtype.bits, dtype.lanes);
  if (one->ndim != ndim) return p_fail(PLIANT_ARGUMENT, "input %d has %d dimensions, not %d", input, one->ndim, ndim);
  if (ndim && !one->shape) return p_fail(PLIANT_ARGUMENT, "input %d has no shape", input);
  return PLIANT_OK;
}

static int itemsize_of(const pliant_tensor *one) { return one->dtype.bits / 8; }

static const int64_t *strides_of(const pliant_tensor *one, int64_t *room) {
  if (one->strides) return one->strides;
  row_major(room, one->shape, one->ndim);
  return room;
}

/* The memory between the first element and the last; none where there are no elements. */
static void stretch_of(const pliant_tensor *one, uintptr_t *low, uintptr_t *high) {
  int64_t room[MOST_DIMS];
  const int64_t *strides = strides_of(one, room);
  *low = *high = (uintptr_t)one->data + one->byte_offset;
  for (int d = 0; d < one->ndim; d++)
    if (!one->shape[d]) return;
  *high += itemsize_of(one);
  for (int d = 0; d < one->ndim; d++) *(strides[d] < 0 ? low : high) += (one->shape[d] - 1) * strides[d] * itemsize_of(one);
}

int p_apart(p_call *c, int written, int other) {
  uintptr_t low, high, first, last;
  stretch_of(&c->inputs[written], &low, &high);
  stretch_of(&c->inputs[other], &first, &last);
  if (low >= last || first >= high) return PLIANT_OK;
  return p_fail(PLIANT_ARGUMENT, "input %d, which is written, shares memory with input %d", written, other);
}

int p_input(p_call *c, int input, int k, const int64_t *size, const int64_t *stride, bool copied) {
  const pliant_tensor *one = &c->inputs[input];
  const int itemsize = itemsize_of(one);
  int64_t room[MOST_DIMS];
  for (int d = 0; d < one->ndim; d++)
    if (one->shape[d] != size[d])
      return p_fail(PLIANT_SIZE, "input %d has the size %lld in dimension %d, not %lld", input, (long long)one->shape[d], d, (long long)size[d]);
  int64_t elements = 1;
  for (int d = 0; d < one->ndim; d++) elements *= size[d] != 0;
  if (!elements) return p_allocate(c, k, one->ndim, size, stride, itemsize);
  if (!one->data) return p_fail(PLIANT_ARGUMENT, "input %d has no data", input);
  const int64_t *have = strides_of(one, room);
  c->at[k] = (char *)one->data + one->byte_offset;
  bool same = !copied && (uintptr_t)c->at[k] % itemsize == 0;
  for (int d = 0; d < one->ndim; d++) same &= size[d] == 1 || have[d] == stride[d];
  if (same) return PLIANT_OK;
  const char *from = c->at[k];
  P_TRY(p_allocate(c, k, one->ndim, size, stride, itemsize));
  p_copy(c->at[k], stride, from, have, size, one->ndim, itemsize);
  return PLIANT_OK;
}

/* The new elements of an input that the program writes, where the call worked on a copy. */
int p_written(p_call *c, int input, int k, const int64_t *size, const int64_t *stride) {
  const pliant_tensor *one = &c->inputs[input];
  char *to = (char *)one->data + one->byte_offset;
  int64_t room[MOST_DIMS];
  if (c->at[k] != to && one->data) p_copy(to, strides_of(one, room), c->at[k], stride, size, one->ndim, itemsize_of(one));
  return PLIANT_OK;
}

/* ---- results */
static int described(pliant_tensor *made, pliant_dtype dtype, int ndim, const int64_t *size) {
  *made = (pliant_tensor){NULL, {1, 0}, ndim, dtype, p_new(16 * (int64_t)ndim), NULL, 0};
  if (!made->shape) return PLIANT_MEMORY;
  made->strides = made->shape + ndim;
  if (ndim) memcpy(made->shape, size, 8 * ndim);
  return PLIANT_OK;
}

static int copied_result(p_call *c, int r, pliant_dtype dtype, int ndim, const int64_t *size, const int64_t *stride, const char *from) {
  pliant_tensor *made = &c->results[r];
  const int itemsize = dtype.bits / 8;
  P_TRY(described(made, dtype, ndim, size));
  row_major(made->strides, size, ndim);
  made->data = p_new(bytes_of(ndim, size, made->strides, itemsize));
  if (!made->data) return PLIANT_MEMORY;
  p_copy(made->data, made->strides, from, stride, size, ndim, itemsize);
  return PLIANT_OK;
}

int p_result(p_call *c, int r, int k, pliant_dtype dtype, int ndim, const int64_t *size, const int64_t *stride, int64_t offset) {
  if (!c->own[k] || offset) return copied_result(c, r, dtype, ndim, size, stride, c->at[k] + offset * (dtype.bits / 8));
  pliant_tensor *made = &c->results[r];
  P_TRY(described(made, dtype, ndim, size));
  if (ndim) memcpy(made->strides, stride, 8 * ndim);
  made->data = c->own[k];
  c->own[k] = NULL; /* the results' now; `at` stays, for results that share it are copies */
  return PLIANT_OK;
}

int p_input_result(p_call *c, int r, int input) {
  const pliant_tensor *one = &c->inputs[input];
  int64_t room[MOST_DIMS];
  return copied_result(c, r, one->dtype, one->ndim, one->shape, strides_of(one, room), (char *)one->data + one->byte_offset);
}

int p_number(p_call *c, int r, pliant_dtype dtype, const void *value) {
  return copied_result(c, r, dtype, 0, NULL, NULL, value);
}

/* ---- threads */
typedef struct {
  p_part f;
  void **p;
  const int64_t *n;
  int64_t range;
  int parts;
  const pliant_hooks *hooks;
  int32_t error[MOST_PARTS];
} p_job;

static void run_part(void *data, int number) {
  p_job *j = data;
  const int64_t each = j->range / j->parts, rest = j->range % j->parts;
  const int64_t begin = each * number + p_min(number, rest);
  const pliant_hooks *before = hooks; /* a caller's thread may be inside another call */
  hooks = j->hooks;
  j->f(j->p, j->n, begin, begin + each + (number < rest), number, &j->error[number]);
  hooks = before;
}

int64_t p_run(p_part f, void **p, const int64_t *n, int64_t range, int64_t grain, int64_t most, int32_t *error) {
  const int64_t parts = p_min(p_min(range / p_max(grain, 1), hooks->threads), p_min(most, MOST_PARTS));
  if (parts <= 1 || !hooks->parallel) {
    f(p, n, 0, range, 0, error);
    return 1;
  }
  p_job job = {f, p, n, range, (int)parts, hooks, {0}};
  hooks->parallel(hooks->context, (int)parts, run_part, &job);
  for (int k = 0; k < parts; k++)
    if (job.error[k]) *error = job.error[k];
  return parts;
}

/* ---- the interface */
static int processor(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
#define NEEDED(name) if (!__builtin_cpu_supports(name)) return p_fail(PLIANT_PROCESSOR, "the processor has no " name)
#ifdef __AVX512F__
  NEEDED("avx512f");
#endif
#ifdef __AVX512BW__
  NEEDED("avx512bw");
#endif
#ifdef __AVX512VL__
  NEEDED("avx512vl");
#endif
#ifdef __AVX512DQ__
  NEEDED("avx512dq");
#endif
#ifdef __AVX2__
  NEEDED("avx2");
#endif
#ifdef __FMA__
  NEEDED("fma");
#endif
#endif
  return PLIANT_OK;
}

static int started(const pliant_hooks *given, pliant_program **made) {
  const pliant_hooks own = {NULL, from_system, to_system, NULL, 1};
  P_TRY(processor());
  if (given && !given->allocate != !given->release)
    return p_fail(PLIANT_ARGUMENT, "allocate and release are given together");
  pliant_hooks used = given ? *given : own;
  if (!used.allocate) used.allocate = from_system, used.release = to_system;
  pliant_program *program = used.allocate(used.context, sizeof *program);
  if (!program) return p_fail(PLIANT_MEMORY, "no memory for the program");
  *program = (pliant_program){used, NULL, false, false, PTHREAD_MUTEX_INITIALIZER};
  *made = program;
  return PLIANT_OK;
}

static int mapped(const char *path, char **memory) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  struct stat about;
  if (file < 0) return p_fail(PLIANT_WEIGHTS, "cannot open %s", path);
  const bool fits = fstat(file, &about) == 0 && about.st_size == p_weight_bytes;
  *memory = fits && p_weight_bytes ? mmap(NULL, p_weight_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0) : NULL;
  close(file);
  if (!fits || *memory == MAP_FAILED) return p_fail(PLIANT_WEIGHTS, "%s has not the weights of this program", path);
  return PLIANT_OK;
}

P_PUBLIC int pliant_create(const char *weights, const pliant_hooks *given, pliant_program **made) {
  pliant_program *program;
  char *memory = NULL;
  *made = NULL;
  P_TRY(mapped(weights, &memory));
  const int code = started(given, &program);
  if (code) {
    if (memory) munmap(memory, p_weight_bytes);
    return code;
  }
  program->weights = memory;
  program->mapped = memory != NULL;
  *made = program;
  return PLIANT_OK;
}

P_PUBLIC int pliant_create_from_memory(const void *weights, size_t bytes, const pliant_hooks *given, pliant_program **made) {
  pliant_program *program;
  *made = NULL;
  if (bytes != (size_t)p_weight_bytes || (uintptr_t)weights % ALIGNED)
    return p_fail(PLIANT_WEIGHTS, "these are not the weights of this program, or not aligned to %d bytes", ALIGNED);
  P_TRY(started(given, &program));
  program->weights = (char *)weights; /* only written where it is a copy */
  if (p_writes_state) {
    program->weights = program->hooks.allocate(program->hooks.context, bytes);
    program->copied = true;
    if (!program->weights) {
      pliant_destroy(program);
      return p_fail(PLIANT_MEMORY, "no memory for %zu bytes", bytes);
    }
    memcpy(program->weights, weights, bytes);
  }
  *made = program;
  return PLIANT_OK;
}

P_PUBLIC void pliant_destroy(pliant_program *program) {
  if (!program) return;
  const pliant_hooks used = program->hooks;
  if (program->mapped) munmap(program->weights, p_weight_bytes);
  if (program->copied && program->weights) used.release(used.context, program->weights);
  pthread_mutex_destroy(&program->alone);
  used.release(used.context, program);
}

P_PUBLIC int pliant_run(pliant_program *program, const pliant_tensor *inputs, int count, pliant_tensor *results) {
  if (count != p_input_count) return p_fail(PLIANT_ARGUMENT, "the program has %d inputs, not %d", p_input_count, count);
  char *at[p_buffer_count];
  void *own[p_buffer_count];
  memset(own, 0, sizeof own);
  for (int r = 0; r < p_result_count; r++) results[r] = (pliant_tensor){.device = {1, 0}};
  p_call c = {program, inputs, results, program->weights, at, own};
  const pliant_hooks *before = hooks;
  hooks = &program->hooks;
  if (p_writes_state) pthread_mutex_lock(&program->alone);
  const int code = p_body(&c);
  if (p_writes_state) pthread_mutex_unlock(&program->alone);
  for (int k = 0; k < p_buffer_count; k++) p_delete(own[k]);
  hooks = before;
  if (code) pliant_release(program, results, p_result_count);
  return code;
}

P_PUBLIC void pliant_release(pliant_program *program, pliant_tensor *results, int count) {
  const pliant_hooks *used = &program->hooks;
  for (int r = 0; r < count; r++) {
    if (results[r].data) used->release(used->context, results[r].data);
    if (results[r].shape) used->release(used->context, results[r].shape);
    results[r] = (pliant_tensor){.device = {1, 0}};
  }
}
