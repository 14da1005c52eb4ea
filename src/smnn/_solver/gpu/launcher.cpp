// A GPU plan as one call: the forward call launches the kernels of one layout, and the backward runs
// in the autograd thread without acquiring the GIL.
//
// Compiled on the user's machine by `launcher.py`. Requires neither CUDA headers nor libraries: the
// addresses of the driver functions are passed in.

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Sizes = std::vector<int64_t>;
using Inputs = std::array<const Tensor *, 4>; // c, d, u, s

int64_t address(const Tensor &x) { return reinterpret_cast<int64_t>(x.data_ptr()); }
int64_t address(const c10::DataPtr &x) { return reinterpret_cast<int64_t>(x.get()); }
py::object borrowed(PyObject *x) { return py::reinterpret_borrow<py::object>(x); }

struct Driver {
  // cuLaunchKernel, cuCtxGetCurrent, cuDevicePrimaryCtxRetain, cuCtxSetCurrent
  int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                void *, void **, void **);
  int (*context)(void **);
  int (*context_of)(void **, int);
  int (*set_context)(void *);
  int (*stream)(int32_t, void **); // aoti_torch_get_current_cuda_stream

  // A new thread has no CUDA context, and a launch there may crash the process. PyTorch sets one with
  // its first CUDA call in the thread, which in a backward may come later.
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

// Tensors that launches read or write, in the order of `PLACES` in `launcher.py`.
enum Place { C, D, U, S, Y, FACTOR, SCRATCH, RCOND, WEAKEST, STATUS, G, LAMBDA, GC, GD, GU, GS, PLACES };
using Bases = std::array<int64_t, PLACES>;

// Index of the adjoint solve; smaller ones are bit masks of row gradients.
constexpr int ADJOINT = 16;

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

void run_program(const Driver &driver, const Program &program, const Bases &bases,
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

// Everything that follows from shapes and weights; shared by all pending backward nodes.
struct Plan : c10::intrusive_ptr_target {
  const Plan *self = this;
  c10::Device device = c10::kCPU;
  Sizes y_shape, batch;
  std::vector<Sizes> shapes;  // of the gradients of c, d, u, s as written by the kernels
  std::vector<Sizes> strides; // of the caller's c, d, u, s
  Driver driver;
  c10::Allocator *memory; // PyTorch's allocator of the device
  c10::DispatchKey key;
  Program solve;
  // Created on first use: row gradients by bit mask, then the adjoint.
  mutable std::array<std::atomic<Program *>, 17> backward{};
  int64_t factor_size, scratch_size, adjoint_scratch, ratios;
  bool adjoint_in_scratch;                // instead of a buffer of its own
  PyObject *program_for, *differentiable; // callables

  explicit Plan(const py::dict &x)
      : device(x["device"].cast<std::string>()), y_shape(x["y_shape"].cast<Sizes>()),
        batch(x["batch"].cast<Sizes>()), shapes(x["shapes"].cast<std::vector<Sizes>>()),
        strides(x["strides"].cast<std::vector<Sizes>>()), driver(driver_of(x["functions"])),
        solve(read_program(x["solve"])), factor_size(x["factor_size"].cast<int64_t>()),
        scratch_size(x["scratch_size"].cast<int64_t>()),
        adjoint_scratch(x["adjoint_scratch"].cast<int64_t>()),
        ratios(x["ratios"].cast<int64_t>()),
        adjoint_in_scratch(x["adjoint_in_scratch"].cast<bool>()) {
    const Tensor some = at::empty({1}, at::TensorOptions(device).dtype(at::kDouble));
    memory = some.storage().allocator();
    TORCH_CHECK(memory, "no allocator of ", device);
    key = some.options().computeDispatchKey();
    program_for = py::object(x["program_for"]).release().ptr();
    differentiable = py::object(x["differentiable"]).release().ptr();
  }

  ~Plan() override {
    for (auto &program : backward) delete program.load();
    if (!Py_IsInitialized()) return;
    py::gil_scoped_acquire gil;
    Py_DECREF(program_for);
    Py_DECREF(differentiable);
  }

  void run(const Program &program, const Bases &bases, c10::Device device) const {
    run_program(driver, program, bases, device);
  }

  const Program &needed(int which) const {
    if (Program *known = backward[which].load(std::memory_order_acquire)) return *known;
    py::gil_scoped_acquire gil; // also serializes creation by several threads
    if (Program *known = backward[which].load()) return *known;
    py::list launches = borrowed(program_for)(which);
    auto *program = new Program(read_program(launches));
    backward[which].store(program, std::memory_order_release);
    return *program;
  }
};
using PlanPtr = c10::intrusive_ptr<Plan>;

// A plan wrapped in a tensor: the only kind of object that compiled autograd can save.
Tensor token_of(const PlanPtr &plan) {
  return at::from_blob(plan.get(), {int64_t(sizeof(Plan))}, [plan](void *) {}, at::kByte);
}
const Plan &plan_of(const c10::IValue &token) {
  const Plan &plan = *static_cast<const Plan *>(token.toTensor().const_data_ptr());
  TORCH_CHECK(plan.self == &plan, "the saved state of smnn was copied.");
  return plan;
}

// Gradient of `x` from that of its broadcast form with one batch axis.
Tensor summed(const Tensor &g, const Tensor &x, const Plan &plan) {
  if (g.sizes() == x.sizes()) return g;
  if (g.numel() == x.numel()) return g.view(x.sizes());
  Sizes full(plan.batch), own(x.sizes().vec());
  full.insert(full.end(), g.sizes().begin() + 1, g.sizes().end());
  if (own.size() < full.size()) own.push_back(1); // steps shared by all variables
  return at::sum_to(g.view(full), own).view(x.sizes());
}

// Uninitialized tensor, allocated without the dispatcher.
Tensor new_tensor(const Plan &plan, c10::IntArrayRef sizes, at::ScalarType kind = at::kDouble) {
  return at::detail::empty_generic(sizes, plan.memory, c10::DispatchKeySet(plan.key), kind,
                                   std::nullopt);
}

// View of a part of another tensor's memory.
Tensor part(const Tensor &whole, int64_t from, c10::IntArrayRef sizes, at::ScalarType kind) {
  auto out = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(whole.storage()), whole.key_set(), c10::scalarTypeToTypeMeta(kind));
  out.unsafeGetTensorImpl()->set_storage_offset(from);
  out.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return out;
}

// Results besides y: factor, pivot ratios, their indices, and the status of each sample.
struct Results {
  Tensor factor, ratios;

  Tensor row(int64_t i, int64_t B, at::ScalarType kind) const {
    return part(ratios, i * B, {B}, kind);
  }
};

Tensor solve(const Plan &plan, const Inputs &x, Results &found) {
  const c10::Device device = x[0]->device();
  c10::OptionalDeviceGuard guard(device);
  const int64_t B = plan.y_shape[0], count = plan.ratios, words = (2 * count + 1) * B;
  Tensor y = new_tensor(plan, plan.y_shape);
  found.factor = new_tensor(plan, {plan.factor_size});
  const c10::DataPtr scratch = plan.memory->allocate(8 * plan.scratch_size);
  Bases bases{};
  for (int i = 0; i < 4; i++) bases[C + i] = address(*x[i]);
  bases[Y] = address(y), bases[FACTOR] = address(found.factor);
  bases[SCRATCH] = address(scratch);
  bases[RCOND] = address(found.ratios = new_tensor(plan, {words}, at::kLong));
  bases[WEAKEST] = bases[RCOND] + 8 * B * count;
  bases[STATUS] = bases[WEAKEST] + 8 * B * count;
  plan.run(plan.solve, bases, device);
  return y;
}

// Restores the memory layout of a saved tensor: hooks may return it repacked.
Tensor with_layout(const Tensor &x, const Sizes &strides) {
  if (x.strides() == strides) return x;
  Tensor small = x;
  for (size_t i = 0; i < strides.size(); i++)
    if (strides[i] == 0 && x.size(i) > 1) small = small.narrow(i, 0, 1);
  Tensor out = at::empty_strided(small.sizes(), strides, x.options()).copy_(small);
  return out.as_strided(x.sizes(), strides);
}

// Saved state of `SolveOnGpu`, and whether it has been released.
variable_list saved_state(const AutogradContext &ctx, const Plan &plan) {
  variable_list saved = ctx.get_saved_variables();
  TORCH_CHECK(saved.size() == 7, "the saved state of smnn was released by a backward pass that failed. ",
              "Solve again, or pass retain_graph=True.");
  for (int i = 0; i < 7; i++) {
    const auto kind = i < 6 ? at::kDouble : at::kLong;
    TORCH_CHECK(saved[i].scalar_type() == kind && saved[i].device() == plan.device,
                "saved tensor: got ", saved[i].scalar_type(), " on ", saved[i].device(), "; expected ",
                kind, " on ", plan.device,
                ". If a hook unpacks saved tensors, it has to give them back as they were.");
  }
  return saved;
}

// Releases the saved state of a backward; empty if it is retained.
using Release = std::function<void()>;

struct SolveOnGpu : torch::autograd::Function<SolveOnGpu> {
  static variable_list backward(AutogradContext *ctx, const variable_list &grads,
                                const Release &release = {}) {
    variable_list out(4);
    int wanted = 0;
    for (int i = 0; i < 4; i++) wanted |= ctx->needs_input_grad(i) << i;
    Tensor gy = grads[0];
    if (!gy.defined() || !wanted) return out;
    const Plan &plan = plan_of(ctx->saved_data["plan"]);
    variable_list saved = saved_state(*ctx, plan);
    // In a vectorized Jacobian, `gy` stands for many tensors and has no memory.
    const bool many = !gy.has_storage() && !gy._is_zerotensor();
    if (at::GradMode::is_enabled() || many) {
      py::gil_scoped_acquire gil;
      py::list tensors;
      for (int i = 0; i < 4; i++) tensors.append(saved[i]);
      py::list found = borrowed(plan.differentiable)(tensors, gy, wanted);
      for (int i = 0; i < 4; i++)
        if (wanted >> i & 1) out[i] = found[i].cast<Tensor>();
      return out;
    }
    for (int i = 0; i < 4; i++) saved[i] = with_layout(saved[i], plan.strides[i]);
    const Tensor &y = saved[4];
    c10::OptionalDeviceGuard guard(y.device());
    if (gy._is_zerotensor())
      gy = at::zeros(gy.sizes(), y.options());
    else if (gy.is_neg() || !gy.is_contiguous())
      gy = gy.resolve_neg().contiguous();
    const c10::DataPtr lam = plan.memory->allocate(plan.adjoint_in_scratch ? 0 : 8 * y.numel());
    c10::DataPtr scratch = plan.memory->allocate(8 * plan.adjoint_scratch);
    Bases bases{};
    bases[G] = address(gy), bases[FACTOR] = address(saved[5]), bases[Y] = address(y);
    bases[STATUS] = address(saved[6]);
    bases[SCRATCH] = address(scratch);
    bases[LAMBDA] = plan.adjoint_in_scratch ? bases[SCRATCH] : address(lam);
    plan.run(plan.needed(ADJOINT), bases, y.device());
    // May be reused for gradients, which are written later on the same stream.
    if (!plan.adjoint_in_scratch) scratch.clear();
    if (release) release(), saved[5].reset();
    for (int i = 0; i < 4; i++) {
      bases[C + i] = address(saved[i]);
      if (!(wanted >> i & 1)) continue;
      out[i] = new_tensor(plan, plan.shapes[i]);
      bases[GC + i] = address(out[i]);
    }
    plan.run(plan.needed(wanted), bases, y.device());
    for (int i = 0; i < 4; i++)
      if (out[i].defined()) out[i] = summed(out[i], saved[i], plan);
    return out;
  }
};

bool needs_gradient(const Inputs &x) {
  return at::GradMode::is_enabled() && (x[0]->requires_grad() || x[1]->requires_grad() ||
                                        x[2]->requires_grad() || x[3]->requires_grad());
}

// Saved state of a solve.
struct SolveNode : torch::autograd::CppNode<SolveOnGpu> {
  variable_list apply(variable_list &&grads) override {
    std::lock_guard<std::mutex> lock(this->mutex_);
    if (torch::autograd::get_current_graph_task_keep_graph())
      return SolveOnGpu::backward(&this->ctx_, grads);
    return SolveOnGpu::backward(&this->ctx_, grads, [this] {
      this->ctx_.save_for_backward({});
      this->save_variables_to_ctx();
    });
  }
  std::string name() const override {
    static const std::string found = c10::demangle(typeid(SolveOnGpu).name());
    return found;
  }
};

template <class Node> auto new_node() {
  using Pointer = decltype(torch::autograd::Edge::function); // depends on the version of PyTorch
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>)
    return std::shared_ptr<Node>(new Node(), [](Node *x) { deleteNode(x); });
  else
    return c10::make_intrusive<Node>();
}

// A solve recorded by autograd. The generic `SolveOnGpu::apply` takes longer than a kernel launch.
Tensor solve_with_gradient(const Plan &plan, const c10::IValue &token, const Inputs &x,
                           Results &found) {
  Tensor y;
  {
    at::NoGradGuard guard;
    y = solve(plan, x, found);
    if (y.is_view()) y = y.clone();
  }
  auto node = new_node<SolveNode>();
  node->set_next_edges(torch::autograd::collect_next_edges(*x[0], *x[1], *x[2], *x[3]));
  node->set_ctx_grad_fn(node);
  node->is_variable_input_.assign(4, true); // for compiled autograd, like the following
  auto &ctx = node->ctx_;
  const Tensor status = found.row(2 * plan.ratios, plan.y_shape[0], at::kLong);
  ctx.save_for_backward({*x[0], *x[1], *x[2], *x[3], y, found.factor, status});
  ctx.saved_data["plan"] = token;
  ctx.set_materialize_grads(false);
  torch::autograd::set_history(y, node);
  node->save_variables_to_ctx();
  return y;
}

struct Handle {
  PlanPtr plan;
  c10::IValue token;
};

// `plan(c, d, u, s)` for tensors of its layout returns y, factor, status, rcond and weakest. Without
// pybind11, whose dispatch takes longer than the function.
PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  const auto &handle = *static_cast<Handle *>(PyCapsule_GetPointer(self, nullptr));
  const Plan &plan = *handle.plan;
  TORCH_CHECK_TYPE(count == 4, "expected c, d, u, s");
  Inputs x;
  for (int i = 0; i < 4; i++) {
    TORCH_CHECK_TYPE(THPVariable_Check(args[i]), "expected tensors");
    x[i] = &THPVariable_Unpack(args[i]);
    TORCH_CHECK(!x[i]->_is_zerotensor() || !x[i]->numel(), "cdus"[i],
                " is a ZeroTensor, without memory. Pass torch.zeros instead.");
  }
  Results found;
  Tensor y;
  {
    py::gil_scoped_release gil;
    y = needs_gradient(x) ? solve_with_gradient(plan, handle.token, x, found)
                          : solve(plan, x, found);
  }
  const int64_t B = plan.y_shape[0], last = plan.ratios;
  const auto wrapped = [](const Tensor &x) {
    return py::reinterpret_steal<py::object>(THPVariable_Wrap(x));
  };
  return py::make_tuple(wrapped(y), wrapped(found.factor),
                        wrapped(found.row(2 * last, B, at::kLong)),
                        wrapped(found.row(last - 1, B, at::kDouble)),
                        wrapped(found.row(2 * last - 1, B, at::kLong)))
      .release()
      .ptr();
  END_HANDLE_TH_ERRORS
}

py::object make(const py::dict &x) {
  static PyMethodDef method{
      "plan", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call)), METH_FASTCALL,
      nullptr};
  auto plan = c10::make_intrusive<Plan>(x);
  py::capsule self(new Handle{plan, token_of(plan)}, [](void *x) { delete static_cast<Handle *>(x); });
  return py::reinterpret_steal<py::object>(PyCFunction_New(&method, self.ptr()));
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("make", &make); }
