/* Calls a packaged program from several threads: c_caller WEIGHTS INPUTS RESULTS THREADS REPEATS. Numbers in files are
   int64: how many tensors, and for each dtype, rank, bytes, sizes, then its elements. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pliant_program.h"

static const int64_t widths[] = {4, 8, 2, 2, 8, 4, 2, 1, 1, 1};
static pliant_program *program;
static pliant_tensor inputs[64];
static int input_count, repeats;

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
    one->dtype = (int32_t)number(file);
    one->ndim = (int32_t)number(file);
    int64_t bytes = number(file), *sizes = malloc(8 * (one->ndim + 1));
    for (int d = 0; d < one->ndim; d++) sizes[d] = number(file);
    one->sizes = sizes;
    one->data = malloc(bytes + 1);
    if (bytes && fread(one->data, bytes, 1, file) != 1) exit(3);
  }
  fclose(file);
}

static void write_results(const char *path, const pliant_tensor *tensors, int count) {
  FILE *file = fopen(path, "wb");
  int64_t n = count;
  fwrite(&n, 8, 1, file);
  for (int i = 0; i < count; i++) {
    int64_t head[3] = {tensors[i].dtype, tensors[i].ndim, widths[tensors[i].dtype]}, expected = 1;
    for (int d = tensors[i].ndim - 1; d >= 0; d--) {
      if (tensors[i].sizes[d] != 1 && tensors[i].strides[d] != expected) exit(4); /* tests have row-major results */
      expected *= tensors[i].sizes[d];
      head[2] *= tensors[i].sizes[d];
    }
    fwrite(head, 8, 3, file);
    fwrite(tensors[i].sizes, 8, tensors[i].ndim, file);
    fwrite(tensors[i].data, 1, head[2], file);
  }
  fclose(file);
}

static void *work(void *path) {
  for (int i = 0; i < repeats; i++) {
    pliant_results *results;
    if (pliant_run(program, inputs, input_count, &results)) {
      fprintf(stderr, "%s\n", pliant_error());
      exit(2);
    }
    int count;
    const pliant_tensor *tensors = pliant_tensors(results, &count);
    if (i + 1 == repeats) write_results(path, tensors, count);
    pliant_release(results);
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
  int threads = atoi(argv[4]);
  pthread_t ids[64];
  char paths[64][4096];
  (void)argc;
  repeats = 1;
  read_inputs(argv[2]);
  if (pliant_create(argv[1], &program)) {
    fprintf(stderr, "%s\n", pliant_error());
    return 2;
  }
  work(argv[3]);
  long before = resident();
  repeats = atoi(argv[5]);
  for (int i = 0; i < threads; i++) {
    snprintf(paths[i], sizeof paths[i], "%s.%d", argv[3], i);
    pthread_create(&ids[i], NULL, work, paths[i]);
  }
  for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  printf("%ld\n", resident() - before);
  pliant_destroy(program);
  return 0;
}
