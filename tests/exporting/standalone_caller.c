/* Calls a standalone library from several threads: standalone_caller WEIGHTS INPUTS RESULTS THREADS REPEATS. Numbers in
   files are int64: how many tensors, and for each DLPack's code and bits, rank, sizes, then its elements. Says how many
   blocks of memory are left behind the last release, and by how many KiB the process grew. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pliant_standalone.h"

static pliant_program *program;
static pliant_tensor inputs[64];
static int input_count, repeats;
static long blocks;

/* ---- hooks: an allocator that counts, and threads for each loop */
static void *allocate(void *context, size_t bytes) {
  void *found = NULL;
  if (posix_memalign(&found, 64, bytes)) return NULL;
  __atomic_add_fetch((long *)context, 1, __ATOMIC_RELAXED);
  return found;
}
static void release(void *context, void *memory) {
  __atomic_sub_fetch((long *)context, 1, __ATOMIC_RELAXED);
  free(memory);
}

typedef struct {
  void (*part)(void *, int);
  void *data;
  int number;
} task;
static void *run_task(void *given) {
  task *one = given;
  one->part(one->data, one->number);
  return NULL;
}
static void parallel(void *context, int parts, void (*part)(void *, int), void *data) {
  task tasks[64];
  pthread_t ids[64];
  (void)context;
  for (int k = 0; k < parts; k++) tasks[k] = (task){part, data, k};
  for (int k = 1; k < parts; k++) pthread_create(&ids[k], NULL, run_task, &tasks[k]);
  part(data, 0);
  for (int k = 1; k < parts; k++) pthread_join(ids[k], NULL);
}

/* ---- files */
static int64_t number(FILE *file) {
  int64_t found = 0;
  if (fread(&found, 8, 1, file) != 1) exit(3);
  return found;
}

static void read_inputs(const char *path) {
  FILE *file = fopen(path, "rb");
  input_count = (int)number(file);
  for (int i = 0; i < input_count; i++) {
    pliant_tensor *one = &inputs[i];
    one->device.device_type = 1;
    one->dtype.code = (uint8_t)number(file);
    one->dtype.bits = (uint8_t)number(file);
    one->dtype.lanes = 1;
    one->ndim = (int32_t)number(file);
    one->shape = malloc(8 * (one->ndim + 1));
    int64_t bytes = one->dtype.bits / 8;
    for (int d = 0; d < one->ndim; d++) bytes *= one->shape[d] = number(file);
    one->data = malloc(bytes + 1);
    if (bytes && fread(one->data, bytes, 1, file) != 1) exit(3);
  }
  fclose(file);
}

static void write_elements(FILE *file, const pliant_tensor *one, int d, const char *at) {
  const int64_t width = one->dtype.bits / 8;
  if (d == one->ndim) fwrite(at, width, 1, file);
  for (int64_t i = 0; d < one->ndim && i < one->shape[d]; i++) write_elements(file, one, d + 1, at + i * one->strides[d] * width);
}

static void write_results(const char *path, const pliant_tensor *tensors, int count) {
  FILE *file = fopen(path, "wb");
  int64_t n = count;
  fwrite(&n, 8, 1, file);
  for (int i = 0; i < count; i++) {
    int64_t head[3] = {tensors[i].dtype.code, tensors[i].dtype.bits, tensors[i].ndim};
    fwrite(head, 8, 3, file);
    fwrite(tensors[i].shape, 8, tensors[i].ndim, file);
    write_elements(file, &tensors[i], 0, tensors[i].data);
  }
  fclose(file);
}

static void *work(void *path) {
  pliant_tensor results[64];
  for (int i = 0; i < repeats; i++) {
    const int code = pliant_run(program, inputs, input_count, results);
    if (code) {
      fprintf(stderr, "%d %s\n", code, pliant_error());
      exit(2);
    }
    if (path && i + 1 == repeats) write_results(path, results, pliant_result_count());
    pliant_release(program, results, pliant_result_count());
  }
  return NULL;
}

static long resident(void) {
  long pages = 0, all;
  FILE *file = fopen("/proc/self/statm", "r");
  if (fscanf(file, "%ld %ld", &all, &pages) != 2) exit(3);
  fclose(file);
  return pages * 4;
}

int main(int argc, char **argv) {
  const int threads = atoi(argv[4]);
  const pliant_hooks hooks = {&blocks, allocate, release, parallel, 3};
  pthread_t ids[64];
  char paths[64][4096];
  (void)argc;
  read_inputs(argv[2]);
  if (pliant_create(argv[1], &hooks, &program)) {
    fprintf(stderr, "%s\n", pliant_error());
    return 2;
  }
  repeats = 3;
  for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, work, NULL);
  for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  const long before = resident();
  repeats = atoi(argv[5]);
  for (int i = 0; i < threads; i++) {
    snprintf(paths[i], sizeof paths[i], "%s.%d", argv[3], i);
    pthread_create(&ids[i], NULL, work, paths[i]);
  }
  for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  const long grown = resident() - before;
  pliant_destroy(program);
  printf("%ld %ld\n", blocks, grown);
  for (int i = 0; i < input_count; i++) free(inputs[i].data), free(inputs[i].shape);
  return 0;
}
