// What `_cpu_native.cpp` and `_gpu_native.cpp` have in common.

#pragma once

#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Sizes = std::vector<int64_t>;

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
  bool fits(const Tensor &c, const Tensor &d, const Tensor &u, const Tensor &s) const {
    const std::array<const Tensor *, 4> inputs{&c, &d, &u, &s};
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

template <class Handle, class Make> void offer(py::module_ &m, Make make) {
  py::class_<Handle>(m, "Plan", py::module_local())
      .def("__call__", &Handle::call)
      .def("fitting", &Handle::fitting);
  m.def("make", make);
}

} // namespace
