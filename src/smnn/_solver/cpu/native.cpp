// The short way of `eager.py` for tensors of one layout, without Python: a forward call runs the
// kernel of Numba by its address, and autograd's own thread runs that of the derivative.
//
// Only what is usual is done here. All else is handed to Python, where it is written once: samples
// that may have failed, second derivatives, saved tensors that a hook has repacked.
//
// Compiled on the user's machine by `gpu/native/extension.py`.

#include "../gpu/native/common.h"

#include <ATen/Parallel.h>
#include <ATen/TensorSubclassLikeUtils.h>

#include <algorithm>
#include <cstdlib>

namespace {

using I = int64_t;

// As in `forward.py` and `backward.py`.
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

Tensor made(c10::IntArrayRef sizes, at::ScalarType kind = at::kDouble) {
  return made(sizes, &memory, c10::DispatchKey::CPU, kind);
}

// What a solve tells besides y.
struct Told {
  Want want;
  Tensor factor;
  bool fine = true, started = false;
  Tensor rcond, weakest; // where somebody asks for them
  py::object verdict;    // if not all is fine beyond doubt; destroyed with the interpreter's lock

  // Whether y is all that is asked for.
  bool brief() const { return fine && (want == SOLUTION || (want == CHECKED && started)); }
};

py::object array(const Tensor &x) { return py::cast(x).attr("numpy")(); }

Tensor solve(const Plan &plan, const Inputs &x, Told &told) {
  const I B = plan.y_shape[0];
  Tensor y = made(plan.y_shape);
  told.factor = made({plan.factor_size});
  const auto scratch = memory.allocate(8 * (plan.scratch_size + 2 * B));
  auto *rcond = static_cast<double *>(scratch.get()) + plan.scratch_size;
  auto *weakest = reinterpret_cast<I *>(rcond + B);
  const I found = plan.forward(plan.solve_notes, address(*x[0]), address(*x[1]), address(*x[2]),
                               address(*x[3]), address(y), address(told.factor), address(scratch),
                               reinterpret_cast<I>(rcond), reinterpret_cast<I>(weakest),
                               plan.doubtful, plan.solve_phases, 0, 0);
  told.fine = found & plan.fine, told.started = found & plan.started;
  if (told.brief()) return y;
  told.rcond = made({B}), told.weakest = made({B}, at::kLong);
  std::copy_n(rcond, B, told.rcond.mutable_data_ptr<double>());
  std::copy_n(weakest, B, told.weakest.mutable_data_ptr<I>());
  if (told.fine) return y;
  py::gil_scoped_acquire gil;
  py::tuple out = borrowed(plan.judged)(py::make_tuple(*x[0], *x[1], *x[2], *x[3]), y, told.factor,
                                        found, array(told.rcond), array(told.weakest));
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
  static variable_list backward(AutogradContext *ctx, const variable_list &grads,
                                const Release & = {}) { // all is needed to the end
    variable_list out(4);
    int wanted = 0;
    for (int i = 0; i < 4; i++) wanted |= ctx->needs_input_grad(i) << i;
    const Tensor &g = grads[0];
    if (!g.defined() || !wanted) return out;
    const Plan &plan = plan_of<Plan>(ctx->saved_data["plan"]);
    const variable_list saved = kept(*ctx);
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
    const auto scratch = memory.allocate(8 * plan.scratch_size);
    Tensor lam;
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

  bool fits(const Inputs &x) const {
    return plan->fits(x) && at::get_num_threads() == plan->threads;
  }

  PyObject *call(const Inputs &x, Want want) const {
    Told told{want};
    Tensor y;
    {
      py::gil_scoped_release gil;
      y = followed(x) ? solve_followed<SolveOnCpu>(*plan, token, x, told) : solve(*plan, x, told);
    }
    if (want == SOLUTION || told.brief()) return THPVariable_Wrap(y);
    if (want == INFO && told.fine) {
      const Tensor status = made({told.weakest.numel()}, at::kLong);
      std::fill_n(status.mutable_data_ptr<I>(), status.numel(), 0);
      return tuple(y, status, told.rcond, told.weakest);
    }
    if (!told.verdict)
      told.verdict =
          borrowed(plan->verdict)(true, told.started, array(told.rcond), array(told.weakest));
    if (want != INFO) return py::make_tuple(y, told.factor, told.verdict).release().ptr();
    const py::list info = told.verdict.attr("tensors")();
    return py::make_tuple(y, info[0], info[1], info[2]).release().ptr();
  }
};

py::object make(const py::dict &x) {
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
  return callable(Handle{plan, token_of(plan)});
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("make", &make); }
