// python make.py folder; g++ caller.cpp -Ifolder -Lfolder -lprogram -Wl,-rpath,folder -o caller; ./caller folder/weights
#include <cstdio>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "pliant_standalone.h"

struct Destroy {
  void operator()(pliant_program *program) const { pliant_destroy(program); }
};

static void check(int code) {
  if (code) throw std::runtime_error(pliant_error());
}

int main(int argc, char **argv) try {
  pliant_program *made = nullptr;
  check(pliant_create(argc > 1 ? argv[1] : "weights", nullptr, &made));
  const std::unique_ptr<pliant_program, Destroy> program(made);
  std::vector<float> elements(2 * 8);
  std::iota(elements.begin(), elements.end(), 0.0f);
  int64_t sizes[] = {2, 8};
  const pliant_tensor x = {elements.data(), {1, 0}, 2, {2, 32, 1}, sizes, nullptr, 0};
  std::vector<pliant_tensor> results(pliant_result_count());
  check(pliant_run(program.get(), &x, 1, results.data()));
  const float *y = static_cast<const float *>(results[0].data);
  for (int64_t i = 0; i < results[0].shape[0]; i++) std::printf("%g\n", y[i * results[0].strides[0]]);
  pliant_release(program.get(), results.data(), (int)results.size());
} catch (const std::exception &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
