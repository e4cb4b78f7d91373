/* A program that Pliant packaged, for callers in C or C++. Functions return 0, or another number and `pliant_error`. */
#ifndef PLIANT_PROGRAM_H
#define PLIANT_PROGRAM_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum {
  PLIANT_FLOAT32, PLIANT_FLOAT64, PLIANT_FLOAT16, PLIANT_BFLOAT16, PLIANT_INT64, PLIANT_INT32, PLIANT_INT16, PLIANT_INT8,
  PLIANT_UINT8, PLIANT_BOOL
};

/* Memory that somebody else owns. `strides` counts elements; NULL: row-major. `data` NULL: Python's None, among results. */
typedef struct {
  void *data;
  int32_t dtype, ndim;
  const int64_t *sizes, *strides;
} pliant_tensor;

typedef struct pliant_program pliant_program;
typedef struct pliant_results pliant_results;

/* `weights`: the file of that name beside the library; it is mapped, and never written. */
int pliant_create(const char *weights, pliant_program **made);
void pliant_destroy(pliant_program *program);

/* May be called by several threads at once; calls of a program that writes its buffers wait for one another. Inputs are the
   tensors of the exported call in order. Numbers among the results are tensors of rank 0. A result that the program says is
   an input is that input's memory. */
int pliant_run(pliant_program *program, const pliant_tensor *inputs, int count, pliant_results **results);
const pliant_tensor *pliant_tensors(const pliant_results *results, int *count);
void pliant_release(pliant_results *results);

/* What was wrong with this thread's last call. */
const char *pliant_error(void);

#ifdef __cplusplus
}
#endif
#endif
