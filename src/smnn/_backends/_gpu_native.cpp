// The short way of `_gpu_prepared.py` without Python: a forward call launches the kernels of one
// layout, and the backward runs in autograd's own thread, which then need not wait for Python.
//
// Compiled on the user's machine by `_gpu_native.py`. Neither CUDA headers nor CUDA libraries are
// needed: the two functions of CUDA come as addresses.

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// cuLaunchKernel, and aoti_torch_get_current_cuda_stream.
using LaunchKernel = int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, void *, void **, void **);
using CurrentStream = int (*)(int32_t, void **);

// Places that launches read or write; `_gpu_native.py` numbers them alike.
enum Place { C, D, U, S, Y, FACTOR, SCRATCH, RCOND, WEAKEST, STATUS, G, LAMBDA, GC, GD, GU, GS, PLACES };
using Bases = std::array<int64_t, PLACES>;

constexpr int ADJOINT = 16; // which program of the backward; those below are row gradients

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

// All that follows from the shapes. Held by every backward that will need it.
struct Plan : torch::CustomClassHolder {
  LaunchKernel launch_kernel;
  CurrentStream current_stream;
  Program solve;
  // Made when first needed: row gradients by which of them are wanted, then the adjoint.
  std::array<std::atomic<Program *>, 17> backward{};
  std::vector<int64_t> y_shape, batch;
  std::vector<std::vector<int64_t>> shapes; // of c, d, u, s with one batch axis
  std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> layouts; // of the caller's
  c10::Device device = c10::kCPU;
  int64_t factor_size, scratch_size, adjoint_scratch, verdicts;
  PyObject *program_for, *differentiable; // callables

  ~Plan() override {
    for (auto &program : backward) delete program.load();
    if (!Py_IsInitialized()) return;
    py::gil_scoped_acquire gil;
    Py_XDECREF(program_for);
    Py_XDECREF(differentiable);
  }

  void run(const Program &program, const Bases &bases, c10::Device device) const {
    void *stream = nullptr;
    TORCH_CHECK(current_stream(device.index(), &stream) == 0, "no current CUDA stream");
    int64_t values[MOST_ARGUMENTS + SPARE];
    void *parameters[MOST_ARGUMENTS + SPARE];
    for (const auto &launch : program) {
      const size_t count = launch.arguments.size();
      std::copy(launch.arguments.begin(), launch.arguments.end(), values);
      std::fill(values + count, values + count + SPARE, 0);
      for (const auto &[argument, place, offset] : launch.slots)
        values[argument] = bases[place] + 8 * offset;
      for (size_t i = 0; i < count + SPARE; i++) parameters[i] = &values[i];
      const int code = launch_kernel(reinterpret_cast<void *>(launch.function), launch.grid, 1, 1,
                                     launch.threads, 1, 1, launch.shared, stream, parameters, nullptr);
      TORCH_CHECK(code == 0, "a kernel of smnn could not be launched: CUDA driver error ", code);
    }
  }

  const Program &needed(int which) {
    if (Program *known = backward[which].load(std::memory_order_acquire)) return *known;
    py::gil_scoped_acquire gil; // also keeps two threads from making the same
    if (Program *known = backward[which].load()) return *known;
    py::list launches = py::reinterpret_borrow<py::object>(program_for)(which);
    auto *program = new Program(read_program(launches));
    backward[which].store(program, std::memory_order_release);
    return *program;
  }
};
using PlanPtr = c10::intrusive_ptr<Plan>;
using Solved = std::array<Tensor, 5>; // y, factor, rcond, weakest, status

int64_t address(const Tensor &x) { return reinterpret_cast<int64_t>(x.data_ptr()); }

Solved solve(const Plan &plan, const Tensor &c, const Tensor &d, const Tensor &u, const Tensor &s) {
  c10::OptionalDeviceGuard guard(c.device());
  const auto kind = c.options();
  const int64_t B = plan.y_shape[0], count = plan.verdicts;
  Tensor y = at::empty(plan.y_shape, kind), factor = at::empty({plan.factor_size}, kind);
  Tensor scratch = at::empty({plan.scratch_size}, kind);
  Tensor told = at::empty({2 * count + 1, B}, kind.dtype(at::kLong));
  Bases bases{};
  bases[C] = address(c), bases[D] = address(d), bases[U] = address(u), bases[S] = address(s);
  bases[Y] = address(y), bases[FACTOR] = address(factor), bases[SCRATCH] = address(scratch);
  bases[RCOND] = address(told), bases[WEAKEST] = bases[RCOND] + 8 * B * count;
  bases[STATUS] = bases[WEAKEST] + 8 * B * count;
  plan.run(plan.solve, bases, c.device());
  return {y, factor, told.select(0, count - 1).view(at::kDouble), told.select(0, 2 * count - 1),
          told.select(0, 2 * count)};
}

// The gradient by `x`, from that by its broadcast form with one batch axis.
Tensor summed(const Tensor &g, const Tensor &x, const Plan &plan) {
  if (g.sizes() == x.sizes()) return g;
  if (g.numel() == x.numel()) return g.view(x.sizes());
  std::vector<int64_t> full(plan.batch), own(x.sizes().vec());
  full.insert(full.end(), g.sizes().begin() + 1, g.sizes().end());
  if (own.size() < full.size()) own.push_back(1); // one step for all variables
  return at::sum_to(g.view(full), own).view(x.sizes());
}

// The same values where kernels look for them: hooks may give a saved tensor back repacked.
Tensor laid_out(const Tensor &x, const std::vector<int64_t> &strides) {
  if (x.strides() == strides) return x;
  Tensor small = x;
  for (size_t i = 0; i < strides.size(); i++)
    if (strides[i] == 0 && x.size(i) > 1) small = small.narrow(i, 0, 1);
  Tensor out = at::empty_strided(small.sizes(), strides, x.options()).copy_(small);
  return out.as_strided(x.sizes(), strides);
}

struct Solve : torch::autograd::Function<Solve> {
  static Tensor forward(AutogradContext *ctx, const Tensor &c, const Tensor &d, const Tensor &u,
                        const Tensor &s, const PlanPtr &plan, Solved *told) {
    *told = solve(*plan, c, d, u, s);
    ctx->save_for_backward({c, d, u, s, (*told)[0], (*told)[1]});
    ctx->saved_data["plan"] = c10::IValue::make_capsule(plan);
    ctx->set_materialize_grads(false);
    return (*told)[0];
  }

  static variable_list backward(AutogradContext *ctx, const variable_list &grads) {
    variable_list out(6);
    int wanted = 0;
    for (int i = 0; i < 4; i++) wanted |= ctx->needs_input_grad(i) << i;
    Tensor gy = grads[0];
    if (!gy.defined() || !wanted) return out;
    auto holder = ctx->saved_data["plan"].toCapsule();
    Plan &plan = static_cast<Plan &>(*holder);
    variable_list saved = ctx->get_saved_variables();
    if (!at::GradMode::is_enabled())
      for (int i = 0; i < 4; i++) saved[i] = laid_out(saved[i], plan.layouts[i].second);
    if (at::GradMode::is_enabled()) {
      py::gil_scoped_acquire gil;
      py::list tensors;
      for (int i = 0; i < 4; i++) tensors.append(saved[i]);
      py::list found = py::reinterpret_borrow<py::object>(plan.differentiable)(tensors, gy, wanted);
      for (int i = 0; i < 4; i++)
        if (wanted >> i & 1) out[i] = found[i].cast<Tensor>();
      return out;
    }
    const Tensor &y = saved[4], &factor = saved[5];
    c10::OptionalDeviceGuard guard(y.device());
    gy = gy.resolve_neg().contiguous();
    const auto kind = y.options();
    Tensor lam = at::empty(plan.y_shape, kind), scratch = at::empty({plan.adjoint_scratch}, kind);
    Bases bases{};
    bases[G] = address(gy), bases[FACTOR] = address(factor), bases[LAMBDA] = address(lam);
    bases[SCRATCH] = address(scratch), bases[Y] = address(y);
    plan.run(plan.needed(ADJOINT), bases, y.device());
    scratch.reset(); // its memory can serve the gradients: one stream, so they come after
    for (int i = 0; i < 4; i++) {
      bases[C + i] = address(saved[i]);
      if (!(wanted >> i & 1)) continue;
      out[i] = at::empty(plan.shapes[i], kind);
      bases[GC + i] = address(out[i]);
    }
    plan.run(plan.needed(wanted), bases, y.device());
    for (int i = 0; i < 4; i++)
      if (out[i].defined()) out[i] = summed(out[i], saved[i], plan);
    return out;
  }
};

struct Handle {
  PlanPtr plan;

  bool fits(int i, const Tensor &x) const {
    const auto &[sizes, strides] = plan->layouts[i];
    return x.scalar_type() == at::kDouble && x.device() == plan->device && x.sizes() == sizes &&
           x.strides() == strides && !x.is_neg();
  }

  std::optional<std::array<Tensor, 5>> fitting(const Tensor &c, const Tensor &d, const Tensor &u,
                                               const Tensor &s) {
    if (!(fits(0, c) && fits(1, d) && fits(2, u) && fits(3, s))) return std::nullopt;
    return call(c, d, u, s);
  }

  std::array<Tensor, 5> call(const Tensor &c, const Tensor &d, const Tensor &u, const Tensor &s) {
    py::gil_scoped_release gil;
    Solved out;
    const bool follow = at::GradMode::is_enabled() && (c.requires_grad() || d.requires_grad() ||
                                                       u.requires_grad() || s.requires_grad());
    if (!follow) {
      at::AutoDispatchBelowADInplaceOrView below;
      return solve(*plan, c, d, u, s);
    }
    Tensor y = Solve::apply(c, d, u, s, plan, &out);
    out[0] = y;
    return out;
  }
};

Handle make(uintptr_t launch_kernel, uintptr_t current_stream, const py::dict &x) {
  auto plan = c10::make_intrusive<Plan>();
  plan->launch_kernel = reinterpret_cast<LaunchKernel>(launch_kernel);
  plan->current_stream = reinterpret_cast<CurrentStream>(current_stream);
  plan->solve = read_program(x["solve"]);
  plan->y_shape = x["y_shape"].cast<std::vector<int64_t>>();
  plan->batch = x["batch"].cast<std::vector<int64_t>>();
  plan->shapes = x["shapes"].cast<std::vector<std::vector<int64_t>>>();
  plan->layouts = x["layouts"].cast<decltype(plan->layouts)>();
  plan->device = c10::Device(x["device"].cast<std::string>());
  plan->factor_size = x["factor_size"].cast<int64_t>();
  plan->scratch_size = x["scratch_size"].cast<int64_t>();
  plan->adjoint_scratch = x["adjoint_scratch"].cast<int64_t>();
  plan->verdicts = x["verdicts"].cast<int64_t>();
  plan->program_for = py::object(x["program_for"]).release().ptr();
  plan->differentiable = py::object(x["differentiable"]).release().ptr();
  return {plan};
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::class_<Handle>(m, "Plan", py::module_local())
      .def("__call__", &Handle::call)
      .def("fitting", &Handle::fitting);
  m.def("make", &make);
}
