/* Between a program's own text (`program.c`) and what runs it (`runtime.c`, `products.c`). */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "pliant_standalone.h"

#define P_HIDDEN __attribute__((visibility("hidden")))
#define P_TRY(call)            \
  do {                         \
    const int p_code = (call); \
    if (p_code) return p_code; \
  } while (0)
#define P_FACT(holds, message) \
  if (!(holds)) return p_fail(PLIANT_SIZE, "%s", message)

/* One call: `at[k]` is where buffer k lies, `own[k]` its memory if the call is to release it. */
typedef struct {
  pliant_program *program;
  const pliant_tensor *inputs;
  pliant_tensor *results;
  char *weights, **at;
  void **own;
} p_call;

/* A tensor as operators see it. */
typedef struct {
  char *data;
  int ndim;
  int64_t size[5], stride[5];
} p_view;

typedef void (*p_part)(void **, const int64_t *, int64_t, int64_t, int64_t, int32_t *);

P_HIDDEN int p_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
P_HIDDEN int64_t p_run(p_part f, void **p, const int64_t *n, int64_t range, int64_t grain, int64_t most, int32_t *error);
P_HIDDEN void *p_new(int64_t bytes); /* of the call that runs: by the caller's allocator */
P_HIDDEN void p_delete(void *memory);

P_HIDDEN int p_rank(p_call *c, int input, pliant_dtype dtype, int ndim);
P_HIDDEN int p_apart(p_call *c, int written, int other);
P_HIDDEN int p_input(p_call *c, int input, int k, const int64_t *size, const int64_t *stride, bool copied);
P_HIDDEN int p_written(p_call *c, int input, int k, const int64_t *size, const int64_t *stride);
P_HIDDEN int p_allocate(p_call *c, int k, int ndim, const int64_t *size, const int64_t *stride, int itemsize);
P_HIDDEN int p_lay(p_call *c, int k, const char *from, int ndim, const int64_t *size, const int64_t *from_stride, const int64_t *stride, int itemsize);
P_HIDDEN bool p_truth(const void *element, pliant_dtype dtype);
P_HIDDEN void p_take(p_call *c, int k, int old);
P_HIDDEN void p_free(p_call *c, int k);
P_HIDDEN int p_result(p_call *c, int r, int k, pliant_dtype dtype, int ndim, const int64_t *size, const int64_t *stride, int64_t offset);
P_HIDDEN int p_input_result(p_call *c, int r, int input);
P_HIDDEN int p_number(p_call *c, int r, pliant_dtype dtype, const void *value);
P_HIDDEN void p_copy(char *to, const int64_t *to_stride, const char *from, const int64_t *from_stride, const int64_t *size, int ndim, int itemsize);

/* Operators, for float32 (f32) and float64 (f64): results, then the arguments of the schema. */
#define P_OPERATORS(type)                                                                                               \
  P_HIDDEN int p_mm_##type(const p_view *out, const p_view *a, const p_view *b);                                        \
  P_HIDDEN int p_addmm_##type(const p_view *out, const p_view *bias, const p_view *a, const p_view *b, double beta, double alpha); \
  P_HIDDEN int p_convolution_##type(                                                                                    \
      const p_view *out, const p_view *x, const p_view *w, const p_view *bias, const int64_t *stride,                   \
      const int64_t *padding, const int64_t *dilation, int64_t transposed, const int64_t *output_padding, int64_t groups); \
  P_HIDDEN int p_max_pool_##type(                                                                                       \
      const p_view *out, const p_view *where, const p_view *x, const int64_t *kernel, const int64_t *stride,            \
      const int64_t *padding, const int64_t *dilation, int64_t ceil_mode);                                              \
  P_HIDDEN int p_avg_pool_##type(                                                                                       \
      const p_view *out, const p_view *x, const int64_t *kernel, const int64_t *stride, const int64_t *padding,         \
      int64_t ceil_mode, int64_t count_include_pad, int64_t divisor);                                                   \
  P_HIDDEN int p_recurrent_##type(                                                                                      \
      const p_view *out, const p_view *h, const p_view *c, const p_view *x, const p_view *h0, const p_view *c0,         \
      const p_view *const *weights, int64_t kind, int64_t biases, int64_t layers, int64_t both, int64_t batch_first);
P_OPERATORS(f32)
P_OPERATORS(f64)
#undef P_OPERATORS

/* The program. */
extern P_HIDDEN const int p_input_count, p_result_count, p_buffer_count;
extern P_HIDDEN const int64_t p_weight_bytes;
extern P_HIDDEN const bool p_writes_state;
P_HIDDEN int p_body(p_call *c);

/* Numbers as Python has them; what a size's facts forbid (a divisor of 0) is no trap. */
static inline int64_t p_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t p_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline double p_fmin(double a, double b) { return b < a ? b : a; }
static inline double p_fmax(double a, double b) { return b > a ? b : a; }
static inline int64_t p_floordiv(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return -a * (b != 0);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t p_mod(int64_t a, int64_t b) { return b == 0 ? 0 : a - p_floordiv(a, b) * b; }
static inline double p_fmod(double a, double b) {
  const double m = fmod(a, b);
  return m != 0 ? ((m < 0) != (b < 0) ? m + b : m) : copysign(0.0, b);
}
static inline int64_t p_pow(int64_t a, int64_t b) {
  int64_t found = 1;
  for (; b > 0; b--) found *= a;
  return found;
}
