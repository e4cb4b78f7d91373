/* What a packaged program's own code calls: values by slot, operators by name, a stack of arguments. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

struct Frame;
struct Weight {
  int64_t at;
  int dtype, ndim;
  const int64_t *sizes, *strides;
};
struct Operator {
  const char *name, *overload;
};

enum { P_TENSORS, P_OPTIONAL_TENSORS, P_INTS, P_FLOATS, P_BOOLS, P_NUMBERS };

int64_t p_size(Frame *f, int input, int dim);
void p_fact(Frame *f, bool holds, const char *message);
void p_apart(Frame *f, int written, int other);
void p_input(Frame *f, int input, int slot, int dtype, int ndim, const int64_t *sizes, const int64_t *strides, bool mutated);
void p_none(Frame *f);
void p_int(Frame *f, int64_t value);
void p_float(Frame *f, double value);
void p_bool(Frame *f, bool value);
void p_wrapped(Frame *f); /* the number last pushed, for an operator that takes a tensor */
void p_text(Frame *f, const char *value);
void p_dtype(Frame *f, int dtype);
void p_cpu(Frame *f);
void p_value(Frame *f, int slot);
void p_list(Frame *f, int kind, int count);
void p_call(Frame *f, int op, int slot);
void p_item(Frame *f, int from, int item, int slot);
void p_drop(Frame *f, int slot);
/* Branches and loops. */
bool p_truth(Frame *f, int slot);
void p_lay(Frame *f, int from, int slot, int ndim, const int64_t *strides); /* with these strides */
void p_copied(Frame *f);                                                    /* what was last pushed, in memory of its own */
void p_store(Frame *f, int slot);                                           /* what was last pushed */
void p_gather(Frame *f, int count, int slot);                               /* what was last pushed, as one */
void p_slice(Frame *f, int from, int dim, int64_t at, int slot);
void p_start(Frame *f, int slot); /* a list of tensors, which p_append and p_stack are for */
void p_append(Frame *f, int slot);
void p_stack(Frame *f, int slot, int dim, bool reverse);
void p_result(Frame *f);
void p_input_result(Frame *f, int input);

/* The program: `program.cpp`, which is written for each. */
extern const Weight p_weights[];
extern const Operator p_operators[];
extern const int p_weight_count, p_operator_count, p_slot_count, p_input_count;
extern const int64_t p_weight_bytes;
extern const bool p_writes_state;
void p_run(Frame *f);

/* Numbers as Python has them. */
static inline int64_t p_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t p_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline double p_fmin(double a, double b) { return b < a ? b : a; }
static inline double p_fmax(double a, double b) { return b > a ? b : a; }
static inline int64_t p_floordiv(int64_t a, int64_t b) {
  p_fact(nullptr, b != 0, "integer division or modulo by zero");
  if (b == -1) return -a;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t p_mod(int64_t a, int64_t b) { return b == -1 ? 0 : a - p_floordiv(a, b) * b; }
static inline double p_fmod(double a, double b) {
  double m = fmod(a, b);
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}
static inline int64_t p_pow(int64_t a, int64_t b) {
  int64_t found = 1;
  for (; b > 0; b--) found *= a;
  return found;
}
