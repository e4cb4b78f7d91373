/* A program that Pliant packaged as a library of its own: it needs the C library alone. Functions return PLIANT_OK, or
   what was wrong, of which `pliant_error` tells more. */
#ifndef PLIANT_STANDALONE_H
#define PLIANT_STANDALONE_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum {
  PLIANT_OK,
  PLIANT_ARGUMENT,  /* inputs of another number, dtype, rank or device than the program's */
  PLIANT_SIZE,      /* sizes for which the program was not exported */
  PLIANT_WEIGHTS,   /* a file that cannot be read, or that is of another program */
  PLIANT_MEMORY,    /* the allocator had none */
  PLIANT_INDEX,     /* elements of an input that are indices are out of range */
  PLIANT_PROCESSOR  /* the processor has not the instructions that the library was built for */
};

/* The layout of DLPack's DLTensor, so that pointers to those may be passed: `device_type` 1 is the CPU; `code` is 0 for
   signed integers, 1 unsigned ones, 2 floats, 4 bfloat16, 6 bool. `strides` counts elements; NULL: row-major. */
typedef struct { int32_t device_type, device_id; } pliant_device;
typedef struct { uint8_t code, bits; uint16_t lanes; } pliant_dtype;
typedef struct {
  void *data;
  pliant_device device;
  int32_t ndim;
  pliant_dtype dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} pliant_tensor;

/* What the caller does for the program; members may be NULL, and called by several threads at once. `allocate`: memory
   aligned to 64 bytes, or NULL. `parallel`: part(data, k) for every k below `parts`, on any threads; returns when all have.
   `threads`: parts that a loop is divided into at most (64 are the most); results do not depend on who runs them. */
typedef struct {
  void *context;
  void *(*allocate)(void *context, size_t bytes);
  void (*release)(void *context, void *memory);
  void (*parallel)(void *context, int parts, void (*part)(void *data, int number), void *data);
  int threads;
} pliant_hooks;

typedef struct pliant_program pliant_program;

/* `weights`: the file of that name beside the library, which is mapped and never written; or its bytes, aligned to 64,
   which must live as long as the program. `hooks` may be NULL: malloc, and the calling thread alone. */
int pliant_create(const char *weights, const pliant_hooks *hooks, pliant_program **made);
int pliant_create_from_memory(const void *weights, size_t bytes, const pliant_hooks *hooks, pliant_program **made);
void pliant_destroy(pliant_program *program);

int pliant_input_count(void);
int pliant_result_count(void);

/* May be called by several threads at once; calls of a program that writes its buffers wait for one another. Inputs are the
   tensors of the exported call in order. Fills in `results`, `pliant_result_count` of them, which are the caller's to
   release, whatever becomes of the program's inputs. Numbers are tensors of rank 0; `data` NULL is Python's None. */
int pliant_run(pliant_program *program, const pliant_tensor *inputs, int count, pliant_tensor *results);
void pliant_release(pliant_program *program, pliant_tensor *results, int count);

/* What was wrong with this thread's last call. */
const char *pliant_error(void);

#ifdef __cplusplus
}
#endif
#endif
