// Runs a packaged program by PyTorch's operators, without Python: libtorch_cpu's public C++ interface.
#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <sstream>

#include "frame.h"
#include "pliant_program.h"

namespace {
thread_local std::string last_error;

const at::ScalarType dtypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                                 at::kInt,   at::kShort,  at::kChar, at::kByte,     at::kBool};
constexpr int dtype_count = sizeof(dtypes) / sizeof(*dtypes);

at::ScalarType dtype_of(int one) {
  TORCH_CHECK(one >= 0 && one < dtype_count, "no dtype has the number ", one);
  return dtypes[one];
}

int number_of(at::ScalarType dtype) {
  for (int i = 0; i < dtype_count; i++)
    if (dtypes[i] == dtype) return i;
  TORCH_CHECK(false, "a result is of a dtype that has no number");
}

at::Tensor tensor_of(const pliant_tensor &one) {
  at::IntArrayRef sizes(one.sizes, one.ndim);
  auto options = at::dtype(dtype_of(one.dtype));
  if (!one.strides) return at::from_blob(one.data, sizes, options);
  return at::from_blob(one.data, sizes, at::IntArrayRef(one.strides, one.ndim), options);
}

template <class F>
int guarded(F f) {
  try {
    f();
    return 0;
  } catch (const c10::Error &error) {
    last_error = error.what_without_backtrace();
  } catch (const std::exception &error) {
    last_error = error.what();
  }
  return 1;
}
}  // namespace

struct pliant_program {
  std::vector<at::Tensor> weights;
  std::vector<c10::OperatorHandle> operators;
  std::mutex one_at_a_time;
  void *memory = MAP_FAILED;
  size_t bytes = 0;

  explicit pliant_program(const char *path) {
    int file = open(path, O_RDONLY);
    TORCH_CHECK(file >= 0, "cannot open ", path);
    struct stat about;
    bool known = fstat(file, &about) == 0;
    bytes = known ? about.st_size : 0;
    if (bytes) memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    close(file);
    if (bytes != (size_t)p_weight_bytes || (bytes && memory == MAP_FAILED)) {
      unmap();
      TORCH_CHECK(false, path, " has not the weights of this program");
    }
    c10::InferenceMode inference;
    for (int i = 0; i < p_weight_count; i++) {
      const Weight &one = p_weights[i];
      weights.push_back(tensor_of({(char *)memory + one.at, one.dtype, one.ndim, one.sizes, one.strides}));
    }
    for (int i = 0; i < p_operator_count; i++)
      operators.push_back(c10::Dispatcher::singleton().findSchemaOrThrow(p_operators[i].name, p_operators[i].overload));
  }
  void unmap() {
    if (memory != MAP_FAILED) munmap(memory, bytes);
    memory = MAP_FAILED;
  }
  ~pliant_program() {
    weights.clear();
    unmap();
  }
};

struct pliant_results {
  std::vector<at::Tensor> owners;
  std::vector<pliant_tensor> tensors;

  void add(const at::Tensor &one) {
    owners.push_back(one);
    tensors.push_back({one.numel() ? one.data_ptr() : (void *)"", number_of(one.scalar_type()), (int32_t)one.dim(),
                       one.sizes().data(), one.strides().data()});
  }
  void add_none() {
    owners.emplace_back();
    tensors.push_back({nullptr, -1, 0, nullptr, nullptr});
  }
};

struct Frame {
  pliant_program &program;
  const pliant_tensor *inputs;
  pliant_results &results;
  std::vector<c10::IValue> slots;
  torch::jit::Stack stack;
  std::vector<std::pair<at::Tensor, at::Tensor>> written;  // inputs that were copied: what the caller has, what was written

  c10::IValue pop() {
    c10::IValue top = std::move(stack.back());
    stack.pop_back();
    return top;
  }
};

int64_t p_size(Frame *f, int input, int dim) {
  const pliant_tensor &one = f->inputs[input];
  TORCH_CHECK(dim < one.ndim, "input ", input, " has only ", one.ndim, " dimensions");
  return one.sizes[dim];
}

void p_fact(Frame *, bool holds, const char *message) { TORCH_CHECK(holds, message); }

void p_input(Frame *f, int input, int slot, int dtype, int ndim, const int64_t *sizes, const int64_t *strides, bool mutated) {
  const pliant_tensor &one = f->inputs[input];
  TORCH_CHECK(one.dtype == dtype, "input ", input, " has the dtype ", one.dtype, ", not ", dtype);
  TORCH_CHECK(one.ndim == ndim, "input ", input, " has ", one.ndim, " dimensions, not ", ndim);
  for (int d = 0; d < ndim; d++)
    TORCH_CHECK(one.sizes[d] == sizes[d], "input ", input, " has the size ", one.sizes[d], " in dimension ", d, ", not ", sizes[d]);
  at::Tensor given = tensor_of(one), taken = given;
  if (given.strides() != at::IntArrayRef(strides, ndim)) {
    taken = at::empty_strided(given.sizes(), at::IntArrayRef(strides, ndim), given.options());
    taken.copy_(given);
    if (mutated) f->written.emplace_back(given, taken);
  }
  f->slots[slot] = taken;
}

static std::pair<const char *, const char *> stretch_of(const at::Tensor &one) {
  auto low = (const char *)one.data_ptr(), high = low + (one.numel() ? one.element_size() : 0);
  for (int64_t d = 0; d < one.dim() && one.numel(); d++) {
    const int64_t reach = (one.size(d) - 1) * one.stride(d) * (int64_t)one.element_size();
    (reach < 0 ? low : high) += reach;
  }
  return {low, high};
}

void p_apart(Frame *f, int written, int other) {
  const auto a = stretch_of(tensor_of(f->inputs[written])), b = stretch_of(tensor_of(f->inputs[other]));
  TORCH_CHECK(a.first >= b.second || b.first >= a.second, "input ", written, ", which is written, shares memory with input ", other);
}

void p_none(Frame *f) { f->stack.emplace_back(); }
void p_int(Frame *f, int64_t value) { f->stack.emplace_back(value); }
void p_float(Frame *f, double value) { f->stack.emplace_back(value); }
void p_bool(Frame *f, bool value) { f->stack.emplace_back(value); }
void p_wrapped(Frame *f) {
  at::Tensor made = c10::scalar_to_tensor(f->pop().toScalar());
  made.unsafeGetTensorImpl()->set_wrapped_number(true);
  f->stack.emplace_back(std::move(made));
}
void p_text(Frame *f, const char *value) { f->stack.emplace_back(std::string(value)); }
void p_dtype(Frame *f, int dtype) { f->stack.emplace_back((int64_t)dtype_of(dtype)); }
void p_cpu(Frame *f) { f->stack.emplace_back(at::Device(at::kCPU)); }
void p_value(Frame *f, int slot) { f->stack.push_back(f->slots[slot]); }
void p_drop(Frame *f, int slot) { f->slots[slot] = c10::IValue(); }

template <class T>
static c10::IValue list_of(Frame *f, int count, T (*read)(const c10::IValue &)) {
  c10::List<T> made;
  for (auto at = f->stack.end() - count; at != f->stack.end(); ++at) made.push_back(read(*at));
  f->stack.resize(f->stack.size() - count);
  return made;
}

void p_list(Frame *f, int kind, int count) {
  c10::IValue made;
  switch (kind) {
    case P_TENSORS:
      made = list_of<at::Tensor>(f, count, [](const c10::IValue &one) { return one.toTensor(); });
      break;
    case P_OPTIONAL_TENSORS:
      made = list_of<std::optional<at::Tensor>>(f, count, [](const c10::IValue &one) { return one.toOptional<at::Tensor>(); });
      break;
    case P_INTS:
      made = list_of<int64_t>(f, count, [](const c10::IValue &one) { return one.toInt(); });
      break;
    case P_FLOATS:
      made = list_of<double>(f, count, [](const c10::IValue &one) { return one.toScalar().toDouble(); });
      break;
    case P_BOOLS:
      made = list_of<bool>(f, count, [](const c10::IValue &one) { return one.toBool(); });
      break;
    default:
      made = list_of<at::Scalar>(f, count, [](const c10::IValue &one) { return one.toScalar(); });
  }
  f->stack.push_back(std::move(made));
}

void p_call(Frame *f, int op, int slot) {
  const auto &one = f->program.operators[op];
  one.callBoxed(f->stack);
  if (f->stack.size() == 1)
    f->slots[slot] = f->pop();
  else if (!f->stack.empty())
    f->slots[slot] = c10::ivalue::Tuple::create(std::move(f->stack));
  f->stack.clear();
}

void p_item(Frame *f, int from, int item, int slot) {
  const c10::IValue &whole = f->slots[from];
  f->slots[slot] = whole.isTuple() ? whole.toTupleRef().elements().at(item) : whole.toListRef().at(item);
}

bool p_truth(Frame *f, int slot) { return f->slots[slot].toTensor().is_nonzero(); }

static at::Tensor laid(const at::Tensor &one, at::IntArrayRef strides) {
  if (one.strides() == strides) return one;
  return at::empty_strided(one.sizes(), strides, one.options()).copy_(one);
}
void p_lay(Frame *f, int from, int slot, int ndim, const int64_t *strides) {
  f->slots[slot] = laid(f->slots[from].toTensor(), at::IntArrayRef(strides, ndim));
}
void p_copied(Frame *f) { f->stack.emplace_back(f->pop().toTensor().clone()); }
void p_store(Frame *f, int slot) { f->slots[slot] = f->pop(); }
void p_gather(Frame *f, int count, int slot) {
  std::vector<c10::IValue> parts(f->stack.end() - count, f->stack.end());
  f->stack.resize(f->stack.size() - count);
  f->slots[slot] = c10::ivalue::Tuple::create(std::move(parts));
}
void p_slice(Frame *f, int from, int dim, int64_t at, int slot) {
  f->slots[slot] = f->slots[from].toTensor().select(dim, at).contiguous();
}
void p_start(Frame *f, int slot) { f->slots[slot] = c10::List<at::Tensor>(); }
void p_append(Frame *f, int slot) {
  at::Tensor one = f->pop().toTensor();
  f->slots[slot].toTensorList().push_back(one);
}
void p_stack(Frame *f, int slot, int dim, bool reverse) {
  auto parts = f->slots[slot].toTensorVector();
  if (reverse) std::reverse(parts.begin(), parts.end());
  f->slots[slot] = at::stack(parts, dim);
}

void p_result(Frame *f) {
  c10::IValue one = f->pop();
  if (one.isNone())
    f->results.add_none();
  else
    f->results.add(one.isTensor() ? one.toTensor() : at::scalar_tensor(one.toScalar(), at::dtype(one.toScalar().type())));
}

void p_input_result(Frame *f, int input) { f->results.add(tensor_of(f->inputs[input])); }

int pliant_create(const char *weights, pliant_program **made) {
  return guarded([&] { *made = new pliant_program(weights); });
}

void pliant_destroy(pliant_program *program) { delete program; }

int pliant_run(pliant_program *program, const pliant_tensor *inputs, int count, pliant_results **results) {
  return guarded([&] {
    TORCH_CHECK(count == p_input_count, "the program has ", p_input_count, " inputs, not ", count);
    c10::InferenceMode inference;
    std::unique_lock<std::mutex> alone(program->one_at_a_time, std::defer_lock);
    if (p_writes_state) alone.lock();
    auto made = std::make_unique<pliant_results>();
    Frame f{*program, inputs, *made, std::vector<c10::IValue>(p_slot_count), {}, {}};
    for (int i = 0; i < p_weight_count; i++) f.slots[i] = program->weights[i];
    p_run(&f);
    for (auto &[given, taken] : f.written) given.copy_(taken);
    *results = made.release();
  });
}

const pliant_tensor *pliant_tensors(const pliant_results *results, int *count) {
  *count = (int)results->tensors.size();
  return results->tensors.data();
}

void pliant_release(pliant_results *results) { delete results; }

const char *pliant_error(void) { return last_error.c_str(); }
