/* python make.py folder; gcc caller.c -Ifolder -Lfolder -lprogram -Wl,-rpath,folder -o caller; ./caller folder/weights */
#include <stdio.h>

#include "pliant_standalone.h"

int main(int argc, char **argv) {
  pliant_program *program;
  pliant_tensor result;
  float elements[2 * 8];
  int64_t sizes[] = {2, 8};
  for (int i = 0; i < 16; i++) elements[i] = i * 0.1f;
  pliant_tensor x = {elements, {1, 0}, 2, {2, 32, 1}, sizes, NULL, 0};
  if (argc < 2 || pliant_create(argv[1], NULL, &program)) {
    fprintf(stderr, "%s\n", pliant_error());
    return 1;
  }
  if (pliant_run(program, &x, 1, &result)) {
    fprintf(stderr, "%s\n", pliant_error());
    return 1;
  }
  const float *y = result.data;
  for (int64_t i = 0; i < result.shape[0]; i++, y += result.strides[0]) printf("%g %g %g %g\n", y[0], y[1], y[2], y[3]);
  pliant_release(program, &result, 1);
  pliant_destroy(program);
  return 0;
}
