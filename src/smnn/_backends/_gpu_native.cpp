// The short way of `_gpu_prepared.py` without Python: a forward call launches the kernels of one
// layout, and the backward runs in autograd's own thread, which then need not wait for Python.
//
// Compiled on the user's machine by `_gpu_native.py`. Neither CUDA headers nor CUDA libraries are
// needed: the two functions of CUDA come as addresses.

#include "_native_common.h"

#include <c10/core/DeviceGuard.h>

#include <atomic>
#include <optional>
#include <string>
#include <tuple>

namespace {

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

struct Plan : PlanBase {
  using PlanBase::PlanBase;
  LaunchKernel launch_kernel;
  CurrentStream current_stream;
  Program solve;
  // Made when first needed: row gradients by which of them are wanted, then the adjoint.
  mutable std::array<std::atomic<Program *>, 17> backward{};
  int64_t factor_size, scratch_size, adjoint_scratch, verdicts;
  PyObject *program_for, *differentiable; // callables

  ~Plan() override {
    for (auto &program : backward) delete program.load();
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
using Solved = std::array<Tensor, 5>; // y, factor, rcond, weakest, status

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

// The same values where kernels look for them: hooks may give a saved tensor back repacked.
Tensor laid_out(const Tensor &x, const Sizes &strides) {
  if (x.strides() == strides) return x;
  Tensor small = x;
  for (size_t i = 0; i < strides.size(); i++)
    if (strides[i] == 0 && x.size(i) > 1) small = small.narrow(i, 0, 1);
  Tensor out = at::empty_strided(small.sizes(), strides, x.options()).copy_(small);
  return out.as_strided(x.sizes(), strides);
}

struct SolveOnGpu : torch::autograd::Function<SolveOnGpu> {
  static Tensor forward(AutogradContext *ctx, const Tensor &c, const Tensor &d, const Tensor &u,
                        const Tensor &s, const c10::IValue &token, Solved *told) {
    *told = solve(plan_of<Plan>(token), c, d, u, s);
    ctx->save_for_backward({c, d, u, s, (*told)[0], (*told)[1]});
    ctx->saved_data["plan"] = token;
    ctx->set_materialize_grads(false);
    return (*told)[0];
  }

  static variable_list backward(AutogradContext *ctx, const variable_list &grads) {
    variable_list out(6);
    int wanted = 0;
    for (int i = 0; i < 4; i++) wanted |= ctx->needs_input_grad(i) << i;
    Tensor gy = grads[0];
    if (!gy.defined() || !wanted) return out;
    const Plan &plan = plan_of<Plan>(ctx->saved_data["plan"]);
    variable_list saved = ctx->get_saved_variables();
    if (!at::GradMode::is_enabled())
      for (int i = 0; i < 4; i++) saved[i] = laid_out(saved[i], plan.layouts[i].second);
    if (at::GradMode::is_enabled()) {
      py::gil_scoped_acquire gil;
      py::list tensors;
      for (int i = 0; i < 4; i++) tensors.append(saved[i]);
      py::list found = borrowed(plan.differentiable)(tensors, gy, wanted);
      for (int i = 0; i < 4; i++)
        if (wanted >> i & 1) out[i] = found[i].cast<Tensor>();
      return out;
    }
    const Tensor &y = saved[4], &factor = saved[5];
    c10::OptionalDeviceGuard guard(y.device());
    gy = gy._is_zerotensor() ? at::zeros(gy.sizes(), y.options()) : gy.resolve_neg().contiguous();
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
  c10::IValue token;

  // `None` for tensors of another layout.
  std::optional<Solved> fitting(const Tensor &c, const Tensor &d, const Tensor &u, const Tensor &s) {
    if (!plan->fits(c, d, u, s)) return std::nullopt;
    return call(c, d, u, s);
  }

  Solved call(const Tensor &c, const Tensor &d, const Tensor &u, const Tensor &s) {
    py::gil_scoped_release gil;
    Solved out;
    const bool follow = at::GradMode::is_enabled() && (c.requires_grad() || d.requires_grad() ||
                                                       u.requires_grad() || s.requires_grad());
    if (!follow) {
      at::AutoDispatchBelowADInplaceOrView below;
      return solve(*plan, c, d, u, s);
    }
    Tensor y = SolveOnGpu::apply(c, d, u, s, token, &out);
    out[0] = y;
    return out;
  }
};

Handle make(uintptr_t launch_kernel, uintptr_t current_stream, const py::dict &x) {
  auto plan = c10::make_intrusive<Plan>(x);
  plan->launch_kernel = reinterpret_cast<LaunchKernel>(launch_kernel);
  plan->current_stream = reinterpret_cast<CurrentStream>(current_stream);
  plan->solve = read_program(x["solve"]);
  plan->device = c10::Device(x["device"].cast<std::string>());
  plan->factor_size = x["factor_size"].cast<int64_t>();
  plan->scratch_size = x["scratch_size"].cast<int64_t>();
  plan->adjoint_scratch = x["adjoint_scratch"].cast<int64_t>();
  plan->verdicts = x["verdicts"].cast<int64_t>();
  plan->program_for = plan->hold(x["program_for"]);
  plan->differentiable = plan->hold(x["differentiable"]);
  return {plan, token_of(plan)};
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { offer<Handle>(m, &make); }
