// What `native.cpp` and `launcher.cpp` have in common.

#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Sizes = std::vector<int64_t>;
using Inputs = std::array<const Tensor *, 4>; // c, d, u, s

// How much of a solve is asked for; `extension.py` numbers alike.
enum Want : long { CHECKED, SOLUTION, INFO, ALL };

// All that follows from the shapes and weights. Held by every backward that will need it.
struct PlanBase : c10::intrusive_ptr_target {
  const PlanBase *self = this;
  c10::Device device = c10::kCPU;
  Sizes y_shape, batch;
  std::vector<Sizes> shapes;                    // of the gradients by c, d, u, s as kernels write them
  std::vector<std::pair<Sizes, Sizes>> layouts; // sizes and strides of the caller's c, d, u, s
  std::vector<PyObject *> held;

  explicit PlanBase(const py::dict &x)
      : y_shape(x["y_shape"].cast<Sizes>()), batch(x["batch"].cast<Sizes>()),
        shapes(x["shapes"].cast<decltype(shapes)>()),
        layouts(x["layouts"].cast<decltype(layouts)>()) {}

  ~PlanBase() override {
    if (!Py_IsInitialized()) return;
    py::gil_scoped_acquire gil;
    for (PyObject *x : held) Py_DECREF(x);
  }

  PyObject *hold(py::object x) {
    held.push_back(x.release().ptr());
    return held.back();
  }

  // Whether kernels find the values of c, d, u, s where they look for them.
  bool fits(const Inputs &inputs) const {
    for (int i = 0; i < 4; i++) {
      const Tensor &x = *inputs[i];
      const auto &[sizes, strides] = layouts[i];
      if (!(x.scalar_type() == at::kDouble && x.device() == device && x.sizes() == sizes &&
            x.strides() == strides && !x.is_neg()))
        return false;
    }
    return true;
  }
};

// A plan as a tensor: the only way to keep an object that compiled autograd can carry.
template <class Plan> Tensor token_of(const c10::intrusive_ptr<Plan> &plan) {
  return at::from_blob(plan.get(), {int64_t(sizeof(Plan))}, [plan](void *) {}, at::kByte);
}
template <class Plan> const Plan &plan_of(const c10::IValue &token) {
  const Plan &plan = *static_cast<const Plan *>(token.toTensor().const_data_ptr());
  TORCH_CHECK(plan.self == &plan, "what smnn keeps for a derivative was copied.");
  return plan;
}

int64_t address(const Tensor &x) { return reinterpret_cast<int64_t>(x.data_ptr()); }
int64_t address(const c10::DataPtr &x) { return reinterpret_cast<int64_t>(x.get()); }
py::object borrowed(PyObject *x) { return py::reinterpret_borrow<py::object>(x); }

// The gradient by `x`, from that by its broadcast form with one batch axis.
Tensor summed(const Tensor &g, const Tensor &x, const PlanBase &plan) {
  if (g.sizes() == x.sizes()) return g;
  if (g.numel() == x.numel()) return g.view(x.sizes());
  Sizes full(plan.batch), own(x.sizes().vec());
  full.insert(full.end(), g.sizes().begin() + 1, g.sizes().end());
  if (own.size() < full.size()) own.push_back(1); // one step for all variables
  return at::sum_to(g.view(full), own).view(x.sizes());
}

// Memory of a tensor that kernels will write, without the way through the dispatcher.
Tensor made(c10::IntArrayRef sizes, c10::Allocator *memory, c10::DispatchKey key,
            at::ScalarType kind = at::kDouble) {
  return at::detail::empty_generic(sizes, memory, c10::DispatchKeySet(key), kind, std::nullopt);
}

// What `solve_followed` keeps. Once that is released PyTorch knows, unless the backward then failed.
variable_list kept(const AutogradContext &ctx) {
  variable_list saved = ctx.get_saved_variables();
  TORCH_CHECK(saved.size() == 6, "what smnn kept for this derivative was given back when it failed ",
              "before. Solve again, or pass retain_graph=True.");
  return saved;
}

bool followed(const Inputs &x) {
  return at::GradMode::is_enabled() && (x[0]->requires_grad() || x[1]->requires_grad() ||
                                        x[2]->requires_grad() || x[3]->requires_grad());
}

// Gives back all that autograd keeps for a backward; empty if there may be another one.
using Release = std::function<void()>;

// What autograd keeps of a solve. `Solve`, a `torch::autograd::Function`, has its backward.
template <class Solve> struct SolveNode : torch::autograd::CppNode<Solve> {
  variable_list apply(variable_list &&grads) override {
    std::lock_guard<std::mutex> lock(this->mutex_);
    if (torch::autograd::get_current_graph_task_keep_graph())
      return Solve::backward(&this->ctx_, grads);
    return Solve::backward(&this->ctx_, grads, [this] {
      this->ctx_.save_for_backward({});
      this->save_variables_to_ctx();
    });
  }
  std::string name() const override {
    static const std::string found = c10::demangle(typeid(Solve).name());
    return found;
  }
};

template <class Node> auto new_node() {
  using Pointer = decltype(torch::autograd::Edge::function); // it depends on the version of PyTorch
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>)
    return std::shared_ptr<Node>(new Node(), [](Node *x) { deleteNode(x); });
  else
    return c10::make_intrusive<Node>();
}

// A solve that autograd follows. `Solve::apply` would do the same for any arguments and results,
// which takes longer than to launch a kernel.
template <class Solve, class Plan, class Told>
Tensor solve_followed(const Plan &plan, const c10::IValue &token, const Inputs &x, Told &told) {
  Tensor y;
  {
    at::NoGradGuard guard;
    y = solve(plan, x, told);
    if (y.is_view()) y = y.clone();
  }
  auto node = new_node<SolveNode<Solve>>();
  node->set_next_edges(torch::autograd::collect_next_edges(*x[0], *x[1], *x[2], *x[3]));
  node->set_ctx_grad_fn(node);
  node->is_variable_input_.assign(4, true); // for compiled autograd, as what follows
  auto &ctx = node->ctx_;
  ctx.save_for_backward({*x[0], *x[1], *x[2], *x[3], y, told.factor});
  ctx.saved_data["plan"] = token;
  ctx.set_materialize_grads(false);
  torch::autograd::set_history(y, node);
  node->save_variables_to_ctx();
  return y;
}

template <class... X> PyObject *tuple(const X &...x) {
  return py::make_tuple(py::reinterpret_steal<py::object>(THPVariable_Wrap(x))...).release().ptr();
}

// `plan(c, d, u, s)` gives all; `plan(c, d, u, s, want)` what is wanted, or `None` for tensors that
// lie in memory in another way, or are more than their memory says. Not by pybind11, which takes
// longer to find its way to a function than the function takes.
template <class Handle>
PyObject *called(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  auto &handle = *static_cast<Handle *>(PyCapsule_GetPointer(self, nullptr));
  TORCH_CHECK_TYPE(count == 4 || count == 5, "expected c, d, u, s and what is wanted");
  Inputs x;
  for (int i = 0; i < 4; i++) {
    if (!THPVariable_CheckExact(args[i])) Py_RETURN_NONE;
    x[i] = &THPVariable_Unpack(args[i]);
  }
  const auto want = count == 4 ? ALL : Want(PyLong_AsLong(args[4]));
  if (count == 5 && !handle.fits(x)) Py_RETURN_NONE;
  for (int i = 0; i < 4; i++)
    TORCH_CHECK(!x[i]->_is_zerotensor() || !x[i]->numel(), "cdus"[i],
                " is a ZeroTensor, without memory. Pass torch.zeros instead.");
  return handle.call(x, want);
  END_HANDLE_TH_ERRORS
}

template <class Handle> py::object callable(Handle handle) {
  static PyMethodDef method{"plan", reinterpret_cast<PyCFunction>(
                                        reinterpret_cast<void (*)()>(&called<Handle>)),
                            METH_FASTCALL, nullptr};
  py::capsule self(new Handle(std::move(handle)), [](void *x) { delete static_cast<Handle *>(x); });
  return py::reinterpret_steal<py::object>(PyCFunction_New(&method, self.ptr()));
}

} // namespace
