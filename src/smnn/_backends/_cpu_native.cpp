// The short way of `_eager.py` for tensors of one layout, without Python: a forward call runs the
// kernel of Numba by its address, and autograd's own thread runs that of the derivative.
//
// Only what is usual is done here. All else is handed to Python, where it is written once: samples
// that may have failed, second derivatives, saved tensors that a hook has repacked.
//
// Compiled on the user's machine by `_native.py`.

#include "_native_common.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <pybind11/numpy.h>

#include <cstdlib>

namespace {

using I = int64_t;

// As in `_forward.py` and `_backward.py`.
using Forward = I (*)(I notes, I c, I d, I u, I s, I y, I factor, I scratch, I rcond, I weakest,
                      double doubtful, I phases, I first, I last);
using Backward = void (*)(I notes, I c, I d, I u, I s, I y, I factor, I g, I step0, I step1, I step2,
                          I step3, I scratch, I taylor, I top, I lam, I gc, I gd, I gu, I gs,
                          I gw_gov, I gw_init, I gw_smooth, I phases, I first, I last);

struct Plan : PlanBase {
  using PlanBase::PlanBase;
  Forward forward;
  Backward backward;
  I solve_notes, notes, taylor, top, solve_phases, phases, central_phase;
  I fine, started; // bits of what a solve finds
  double doubtful;
  I factor_size, scratch_size, threads;
  bool central;
  std::vector<Sizes> strides;              // of all that is saved: c, d, u, s, y, factor
  PyObject *verdict, *judged, *derivative; // callables
};
using PlanPtr = c10::intrusive_ptr<Plan>;

// What a solve tells besides y. Made and destroyed by who holds the interpreter's lock.
struct Told {
  py::array_t<double> rcond;
  py::array_t<int64_t> weakest;
  I rcond_at, weakest_at;
  Tensor factor;
  bool started = false;
  py::object verdict; // if not all is fine beyond doubt

  explicit Told(I B) : rcond(B), weakest(B) {
    rcond_at = reinterpret_cast<I>(rcond.mutable_data());
    weakest_at = reinterpret_cast<I>(weakest.mutable_data());
  }
};

// Memory as NumPy gives it to `cpu.py`. That of PyTorch is aligned, which for some sizes makes the C
// library fetch it anew from the system in every call: twice the time of a solve.
struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void *found = bytes ? std::malloc(bytes) : nullptr;
    TORCH_CHECK(found || !bytes, "not enough memory: smnn needs ", bytes, " bytes more.");
    return {found, found, &std::free, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void *to, const void *from, size_t count) const override {
    default_copy_data(to, from, count);
  }
} memory;

Tensor made(const Sizes &sizes) {
  return at::detail::empty_generic(sizes, &memory, c10::DispatchKeySet(c10::DispatchKey::CPU),
                                   at::kDouble, std::nullopt);
}

Tensor solve(const Plan &plan, const Tensor &c, const Tensor &d, const Tensor &u, const Tensor &s,
             Told &told) {
  Tensor y = made(plan.y_shape), scratch = made({plan.scratch_size});
  told.factor = made({plan.factor_size});
  const I found = plan.forward(plan.solve_notes, address(c), address(d), address(u), address(s),
                               address(y), address(told.factor), address(scratch), told.rcond_at,
                               told.weakest_at, plan.doubtful, plan.solve_phases, 0, 0);
  told.started = found & plan.started;
  if (found & plan.fine) return y;
  py::gil_scoped_acquire gil;
  py::tuple out = borrowed(plan.judged)(py::make_tuple(c, d, u, s), y, told.factor, found,
                                        told.rcond, told.weakest);
  told.factor = out[1].cast<Tensor>();
  told.verdict = out[2];
  return out[0].cast<Tensor>();
}

// Whether kernels find the values of a saved tensor where they look for them.
bool lies(const Tensor &x, const Sizes &strides) {
  return x.defined() && x.scalar_type() == at::kDouble && x.is_cpu() && x.strides() == strides;
}

// Whether memory and strides say all of a gradient.
bool plain(const Tensor &x, const Plan &plan) {
  return x.scalar_type() == at::kDouble && x.is_cpu() && x.layout() == at::kStrided &&
         !x.is_neg() && !x._is_zerotensor() && !at::isTensorSubclassLike(x) &&
         x.sizes() == plan.y_shape;
}

struct SolveOnCpu : torch::autograd::Function<SolveOnCpu> {
  static Tensor forward(AutogradContext *ctx, const Tensor &c, const Tensor &d, const Tensor &u,
                        const Tensor &s, const c10::IValue &token, Told *told) {
    Tensor y = solve(plan_of<Plan>(token), c, d, u, s, *told);
    ctx->save_for_backward({c, d, u, s, y, told->factor});
    ctx->saved_data["plan"] = token;
    ctx->set_materialize_grads(false);
    return y;
  }

  static variable_list backward(AutogradContext *ctx, const variable_list &grads) {
    variable_list out(6);
    int wanted = 0;
    for (int i = 0; i < 4; i++) wanted |= ctx->needs_input_grad(i) << i;
    const Tensor &g = grads[0];
    if (!g.defined() || !wanted) return out;
    const Plan &plan = plan_of<Plan>(ctx->saved_data["plan"]);
    const variable_list saved = ctx->get_saved_variables();
    bool usual = !at::GradMode::is_enabled() && plain(g, plan);
    for (int i = 0; i < 6; i++) usual = usual && lies(saved[i], plan.strides[i]);
    if (usual)
      rows(plan, saved, g, wanted, out);
    else
      by_python(plan, saved, g, wanted, out);
    return out;
  }

  static void rows(const Plan &plan, const variable_list &saved, const Tensor &g, int wanted,
                   variable_list &out) {
    Tensor scratch = made({plan.scratch_size}), lam;
    const bool central = plan.central && (wanted & 8);
    if (central) lam = made(plan.y_shape);
    std::array<I, 4> at{};
    for (int i = 0; i < 4; i++) {
      if (!(wanted >> i & 1)) continue;
      out[i] = made(plan.shapes[i]);
      at[i] = address(out[i]);
    }
    plan.backward(plan.notes, address(saved[0]), address(saved[1]), address(saved[2]),
                  address(saved[3]), address(saved[4]), address(saved[5]), address(g), g.stride(0),
                  g.stride(1), g.stride(2), g.stride(3), address(scratch), plan.taylor, plan.top,
                  central ? address(lam) : 0, at[0], at[1], at[2], at[3], 0, 0, 0,
                  plan.phases | (central ? plan.central_phase : 0), 0, 0);
    for (int i = 0; i < 4; i++)
      if (out[i].defined()) out[i] = summed(out[i], saved[i], plan);
  }

  static void by_python(const Plan &plan, const variable_list &saved, const Tensor &g, int wanted,
                        variable_list &out) {
    py::gil_scoped_acquire gil;
    py::list tensors;
    for (const Tensor &x : saved) tensors.append(x);
    py::list flags;
    for (int i = 0; i < 4; i++) flags.append(bool(wanted >> i & 1));
    py::sequence found = borrowed(plan.derivative)(tensors, g, flags);
    for (int i = 0; i < 4; i++)
      if (wanted >> i & 1) out[i] = found[i].cast<Tensor>();
  }
};

struct Handle {
  PlanPtr plan;
  c10::IValue token;

  // `None` for tensors of another layout, or another number of threads.
  py::object fitting(const Tensor &c, const Tensor &d, const Tensor &u, const Tensor &s) {
    if (!plan->fits(c, d, u, s) || at::get_num_threads() != plan->threads) return py::none();
    return call(c, d, u, s);
  }

  // y, factor, verdict.
  py::tuple call(const Tensor &c, const Tensor &d, const Tensor &u, const Tensor &s) {
    const char *names[] = {"c", "d", "u", "s"};
    const Tensor *inputs[] = {&c, &d, &u, &s};
    bool follow = false;
    for (int i = 0; i < 4; i++) {
      TORCH_CHECK(!inputs[i]->_is_zerotensor() || !inputs[i]->numel(), names[i],
                  " is a ZeroTensor, without memory. Pass torch.zeros instead.");
      follow = follow || inputs[i]->requires_grad();
    }
    Told told(plan->y_shape[0]);
    Tensor y;
    {
      py::gil_scoped_release gil;
      y = follow && at::GradMode::is_enabled() ? SolveOnCpu::apply(c, d, u, s, token, &told)
                                               : solve(*plan, c, d, u, s, told);
    }
    if (!told.verdict)
      told.verdict = borrowed(plan->verdict)(true, told.started, told.rcond, told.weakest);
    return py::make_tuple(y, told.factor, told.verdict);
  }
};

Handle make(const py::dict &x) {
  auto plan = c10::make_intrusive<Plan>(x);
  const auto number = [&](const char *name) { return x[name].cast<I>(); };
  plan->forward = reinterpret_cast<Forward>(number("forward"));
  plan->backward = reinterpret_cast<Backward>(number("backward"));
  plan->solve_notes = number("solve_notes"), plan->notes = number("notes");
  plan->taylor = number("taylor"), plan->top = number("top");
  plan->solve_phases = number("solve_phases"), plan->phases = number("phases");
  plan->central_phase = number("central_phase"), plan->central = x["central"].cast<bool>();
  plan->fine = number("fine"), plan->started = number("started");
  plan->doubtful = x["doubtful"].cast<double>();
  plan->factor_size = number("factor_size"), plan->scratch_size = number("scratch_size");
  plan->threads = number("threads");
  for (const auto &layout : plan->layouts) plan->strides.push_back(layout.second);
  plan->strides.push_back(made(plan->y_shape).strides().vec());
  plan->strides.push_back({1});
  plan->hold(x["kept"]); // owns the memory that notes refer to
  plan->verdict = plan->hold(x["verdict"]), plan->judged = plan->hold(x["judged"]);
  plan->derivative = plan->hold(x["derivative"]);
  return {plan, token_of(plan)};
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { offer<Handle>(m, &make); }
