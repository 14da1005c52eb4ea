// The short way of `prepared.py` without Python: a forward call launches the kernels of one
// layout, and the backward runs in autograd's own thread, which then need not wait for Python.
//
// Compiled on the user's machine by `launcher.py`. Neither CUDA headers nor CUDA libraries are
// needed: the functions of CUDA come as addresses.

#include "common.h"

#include <c10/core/DeviceGuard.h>

#include <atomic>
#include <string>
#include <tuple>

namespace {

struct Driver {
  // cuLaunchKernel, cuCtxGetCurrent, cuDevicePrimaryCtxRetain, cuCtxSetCurrent
  int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                void *, void **, void **);
  int (*context)(void **);
  int (*context_of)(void **, int);
  int (*set_context)(void *);
  int (*stream)(int32_t, void **); // aoti_torch_get_current_cuda_stream

  // A thread that CUDA does not know yet has no context, and a launch there may end the process.
  // PyTorch gives it one with its first own call of CUDA, which in a backward may come later.
  void *stream_of(c10::Device device) const {
    void *found = nullptr;
    int code = context(&found);
    if (!code && !found) {
      code = context_of(&found, device.index());
      if (!code) code = set_context(found);
    }
    TORCH_CHECK(code == 0, "no CUDA context: CUDA driver error ", code);
    TORCH_CHECK(stream(device.index(), &found) == 0, "no current CUDA stream");
    return found;
  }
};

Driver driver_of(const py::dict &functions) {
  Driver driver;
  const auto find = [&](const char *name, auto &function) {
    const auto found = functions[name].cast<uintptr_t>();
    function = reinterpret_cast<std::decay_t<decltype(function)>>(found);
  };
  find("launch", driver.launch), find("stream", driver.stream);
  find("context", driver.context), find("context_of", driver.context_of);
  find("set_context", driver.set_context);
  return driver;
}

// Places that launches read or write; `launcher.py` numbers them alike.
enum Place { C, D, U, S, Y, FACTOR, SCRATCH, RCOND, WEAKEST, STATUS, G, LAMBDA, GC, GD, GU, GS, PLACES };
using Bases = std::array<int64_t, PLACES>;

// Which program of the backward; those below are row gradients, alone or with the adjoint solve.
constexpr int ADJOINT = 16;

// Memory is asked for once if there is little of it: that takes half as long as a launch.
constexpr int64_t LITTLE = 1 << 22; // bytes
constexpr int64_t ALIGNED = 64;     // words
constexpr size_t MOST_ARGUMENTS = 96;
constexpr size_t SPARE = 8; // Triton appends pointers to scratch memory, which these kernels lack

struct Launch {
  uintptr_t function;
  unsigned grid, threads, shared;
  std::vector<int64_t> arguments;
  std::vector<std::tuple<int, int, int64_t>> slots; // argument, place, words from its start
};
using Program = std::vector<Launch>;

Program read_program(const py::list &launches) {
  Program program;
  for (const auto &item : launches) {
    auto x = item.cast<std::tuple<uintptr_t, unsigned, unsigned, unsigned, std::vector<int64_t>,
                                  std::vector<std::tuple<int, int, int64_t>>>>();
    TORCH_CHECK(std::get<4>(x).size() <= MOST_ARGUMENTS, "too many arguments for a launch");
    program.push_back({std::get<0>(x), std::get<1>(x), std::get<2>(x), std::get<3>(x),
                       std::get<4>(x), std::get<5>(x)});
  }
  return program;
}

// `bases` are addresses, by place.
void run_program(const Driver &driver, const Program &program, const int64_t *bases,
                 c10::Device device) {
  void *stream = driver.stream_of(device);
  int64_t values[MOST_ARGUMENTS + SPARE];
  void *parameters[MOST_ARGUMENTS + SPARE];
  for (const auto &launch : program) {
    const size_t count = launch.arguments.size();
    std::copy(launch.arguments.begin(), launch.arguments.end(), values);
    std::fill(values + count, values + count + SPARE, 0);
    for (const auto &[argument, place, offset] : launch.slots)
      values[argument] = bases[place] + 8 * offset;
    for (size_t i = 0; i < count + SPARE; i++) parameters[i] = &values[i];
    const int code = driver.launch(reinterpret_cast<void *>(launch.function), launch.grid, 1, 1,
                                   launch.threads, 1, 1, launch.shared, stream, parameters, nullptr);
    TORCH_CHECK(code == 0, "a kernel of smnn could not be launched: CUDA driver error ", code);
  }
}

struct Plan : PlanBase {
  using PlanBase::PlanBase;
  Driver driver;
  c10::Allocator *memory; // PyTorch's own of the device
  c10::DispatchKey key;
  Program solve;
  // Made when first needed: row gradients by which of them are wanted, then the adjoint.
  mutable std::array<std::atomic<Program *>, 17> backward{};
  int64_t factor_size, scratch_size, adjoint_scratch, verdicts;
  bool together; // adjoint solve and row gradients are one program
  bool held;     // the adjoint solution stays in the scratch
  PyObject *program_for, *differentiable; // callables

  ~Plan() override {
    for (auto &program : backward) delete program.load();
  }

  void run(const Program &program, const Bases &bases, c10::Device device) const {
    run_program(driver, program, bases.data(), device);
  }

  const Program &needed(int which) const {
    if (Program *known = backward[which].load(std::memory_order_acquire)) return *known;
    py::gil_scoped_acquire gil; // also keeps two threads from making the same
    if (Program *known = backward[which].load()) return *known;
    py::list launches = borrowed(program_for)(which);
    auto *program = new Program(read_program(launches));
    backward[which].store(program, std::memory_order_release);
    return *program;
  }
};
using PlanPtr = c10::intrusive_ptr<Plan>;

Tensor made(const Plan &plan, c10::IntArrayRef sizes, at::ScalarType kind = at::kDouble) {
  return made(sizes, plan.memory, plan.key, kind);
}

// A part of the memory of another tensor, as a tensor of its own.
Tensor part(const Tensor &whole, int64_t from, c10::IntArrayRef sizes, at::ScalarType kind) {
  auto out = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(whole.storage()), whole.key_set(), c10::scalarTypeToTypeMeta(kind));
  out.unsafeGetTensorImpl()->set_storage_offset(from);
  out.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return out;
}

// What a solve tells besides y: the factor, and `verdicts` for who wants them.
struct Told {
  bool wanted;
  Tensor factor, verdicts;

  Tensor row(int64_t i, int64_t B, at::ScalarType kind) const {
    return part(verdicts, i * B, {B}, kind);
  }
};

Tensor solve(const Plan &plan, const Inputs &x, Told &told) {
  const c10::Device device = x[0]->device();
  c10::OptionalDeviceGuard guard(device);
  const int64_t B = plan.y_shape[0], count = plan.verdicts, words = (2 * count + 1) * B;
  Tensor y = made(plan, plan.y_shape);
  const int64_t extra = plan.scratch_size + (told.wanted ? 0 : words);
  const bool apart = 8 * extra > LITTLE;
  told.factor = made(plan, {plan.factor_size + (apart ? 0 : extra)});
  if (!apart) told.factor.unsafeGetTensorImpl()->set_sizes_contiguous({plan.factor_size});
  c10::DataPtr scratch;
  if (apart) scratch = plan.memory->allocate(8 * extra);
  Bases bases{};
  for (int i = 0; i < 4; i++) bases[C + i] = address(*x[i]);
  bases[Y] = address(y), bases[FACTOR] = address(told.factor);
  bases[SCRATCH] = apart ? address(scratch) : bases[FACTOR] + 8 * plan.factor_size;
  bases[RCOND] = bases[SCRATCH] + 8 * plan.scratch_size;
  if (told.wanted) bases[RCOND] = address(told.verdicts = made(plan, {words}, at::kLong));
  bases[WEAKEST] = bases[RCOND] + 8 * B * count;
  bases[STATUS] = bases[WEAKEST] + 8 * B * count;
  plan.run(plan.solve, bases, device);
  return y;
}

// The same values where kernels look for them: hooks may give a saved tensor back repacked.
Tensor laid_out(const Tensor &x, const Sizes &strides) {
  if (x.strides() == strides) return x;
  Tensor small = x;
  for (size_t i = 0; i < strides.size(); i++)
    if (strides[i] == 0 && x.size(i) > 1) small = small.narrow(i, 0, 1);
  Tensor out = at::empty_strided(small.sizes(), strides, x.options()).copy_(small);
  return out.as_strided(x.sizes(), strides);
}

// Room for the gradients that are wanted, and so many words more, in one piece of memory if that is
// little. Gives the address of those words, else zero.
int64_t make_little(const Plan &plan, int wanted, int64_t more, variable_list &out) {
  std::array<int64_t, 4> from{};
  int64_t words = 0;
  for (int i = 0; i < 4; i++) {
    if (!(wanted >> i & 1)) continue;
    from[i] = words;
    words += (c10::multiply_integers(plan.shapes[i]) + ALIGNED - 1) / ALIGNED * ALIGNED;
  }
  if (8 * (words + more) > LITTLE) return 0;
  const Tensor whole = made(plan, {words + more});
  for (int i = 0; i < 4; i++)
    if (wanted >> i & 1) out[i] = part(whole, from[i], plan.shapes[i], at::kDouble);
  return address(whole) + 8 * words;
}

struct SolveOnGpu : torch::autograd::Function<SolveOnGpu> {
  static variable_list backward(AutogradContext *ctx, const variable_list &grads,
                                const Release &release = {}) {
    variable_list out(4);
    int wanted = 0;
    for (int i = 0; i < 4; i++) wanted |= ctx->needs_input_grad(i) << i;
    Tensor gy = grads[0];
    if (!gy.defined() || !wanted) return out;
    const Plan &plan = plan_of<Plan>(ctx->saved_data["plan"]);
    variable_list saved = kept(*ctx);
    if (at::GradMode::is_enabled()) {
      py::gil_scoped_acquire gil;
      py::list tensors;
      for (int i = 0; i < 4; i++) tensors.append(saved[i]);
      py::list found = borrowed(plan.differentiable)(tensors, gy, wanted);
      for (int i = 0; i < 4; i++)
        if (wanted >> i & 1) out[i] = found[i].cast<Tensor>();
      return out;
    }
    for (int i = 0; i < 4; i++) saved[i] = laid_out(saved[i], plan.layouts[i].second);
    const Tensor &y = saved[4];
    c10::OptionalDeviceGuard guard(y.device());
    if (gy._is_zerotensor())
      gy = at::zeros(gy.sizes(), y.options());
    else if (gy.is_neg() || !gy.is_contiguous())
      gy = gy.resolve_neg().contiguous();
    const int64_t words = plan.together || plan.held ? 0 : y.numel(); // of the adjoint solution
    const int64_t little = make_little(plan, wanted, words + plan.adjoint_scratch, out);
    c10::DataPtr lam, scratch;
    if (!little) {
      lam = plan.memory->allocate(8 * words);
      scratch = plan.memory->allocate(8 * plan.adjoint_scratch);
    }
    Bases bases{};
    bases[G] = address(gy), bases[FACTOR] = address(saved[5]), bases[Y] = address(y);
    bases[SCRATCH] = little ? little + 8 * words : address(scratch);
    bases[LAMBDA] = plan.held ? bases[SCRATCH] : little ? little : address(lam);
    if (!plan.together) {
      plan.run(plan.needed(ADJOINT), bases, y.device());
      // Memory that can serve the gradients: one stream, so they come after.
      if (!plan.held) scratch.clear();
      if (release && !little) release(), saved[5].reset();
    }
    if (!little)
      for (int i = 0; i < 4; i++)
        if (wanted >> i & 1) out[i] = made(plan, plan.shapes[i]);
    for (int i = 0; i < 4; i++) {
      bases[C + i] = address(saved[i]);
      if (out[i].defined()) bases[GC + i] = address(out[i]);
    }
    plan.run(plan.needed(wanted), bases, y.device());
    for (int i = 0; i < 4; i++)
      if (out[i].defined()) out[i] = summed(out[i], saved[i], plan);
    return out;
  }
};

struct Handle {
  PlanPtr plan;
  c10::IValue token;

  bool fits(const Inputs &x) const { return plan->fits(x); }

  PyObject *call(const Inputs &x, Want want) const {
    Told told{want > SOLUTION};
    Tensor y;
    {
      py::gil_scoped_release gil;
      y = followed(x) ? solve_followed<SolveOnGpu>(*plan, token, x, told) : solve(*plan, x, told);
    }
    if (!told.wanted) return THPVariable_Wrap(y);
    const int64_t B = plan->y_shape[0], count = plan->verdicts;
    const Tensor status = told.row(2 * count, B, at::kLong);
    const Tensor rcond = told.row(count - 1, B, at::kDouble);
    const Tensor weakest = told.row(2 * count - 1, B, at::kLong);
    return want == INFO ? tuple(y, status, rcond, weakest)
                        : tuple(y, told.factor, status, rcond, weakest);
  }
};

py::object make(const py::dict &x) {
  auto plan = c10::make_intrusive<Plan>(x);
  plan->driver = driver_of(x["functions"]);
  plan->solve = read_program(x["solve"]);
  plan->device = c10::Device(x["device"].cast<std::string>());
  const Tensor some = at::empty({1}, at::TensorOptions(plan->device).dtype(at::kDouble));
  plan->memory = some.storage().allocator();
  TORCH_CHECK(plan->memory, "no allocator of ", plan->device);
  plan->key = some.options().computeDispatchKey();
  plan->factor_size = x["factor_size"].cast<int64_t>();
  plan->scratch_size = x["scratch_size"].cast<int64_t>();
  plan->adjoint_scratch = x["adjoint_scratch"].cast<int64_t>();
  plan->verdicts = x["verdicts"].cast<int64_t>();
  plan->together = x["together"].cast<bool>();
  plan->held = x["held"].cast<bool>();
  plan->program_for = plan->hold(x["program_for"]);
  plan->differentiable = plan->hold(x["differentiable"]);
  return callable(Handle{plan, token_of(plan)});
}

// Launches that Python asks for, all of them in one call.
struct Launcher {
  Driver driver;
  Program program;
  size_t places;
  c10::Device device;
};

// The tensors, or their addresses, by place.
PyObject *launched(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  const auto &x = *static_cast<Launcher *>(PyCapsule_GetPointer(self, nullptr));
  TORCH_CHECK_TYPE(size_t(count) == x.places, "expected ", x.places, " tensors or addresses");
  std::array<int64_t, MOST_ARGUMENTS> bases;
  for (Py_ssize_t i = 0; i < count; i++) {
    const bool tensor = THPVariable_Check(args[i]);
    bases[i] = tensor ? address(THPVariable_Unpack(args[i])) : PyLong_AsLongLong(args[i]);
  }
  if (PyErr_Occurred()) return nullptr;
  {
    py::gil_scoped_release gil;
    run_program(x.driver, x.program, bases.data(), x.device);
  }
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

py::object launcher(const py::dict &x) {
  static PyMethodDef method{
      "launch", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&launched)),
      METH_FASTCALL, nullptr};
  const auto places = x["places"].cast<size_t>();
  TORCH_CHECK(places <= MOST_ARGUMENTS, "too many tensors for a launch");
  auto *made = new Launcher{driver_of(x["functions"]), read_program(x["launches"]), places,
                            c10::Device(x["device"].cast<std::string>())};
  py::capsule self(made, [](void *old) { delete static_cast<Launcher *>(old); });
  return py::reinterpret_steal<py::object>(PyCFunction_New(&method, self.ptr()));
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("make", &make);
  m.def("launcher", &launcher);
}
