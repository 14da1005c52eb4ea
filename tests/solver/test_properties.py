"""What must hold for every problem, drawn by Hypothesis: symmetries, linearity, absent rows."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from helpers import NAMES, Case, random_problem, relative

EXAMPLES = settings(max_examples=12)
CLOSE = 1e-8
"""Two problems that are equal in exact arithmetic differ by rounding times the condition."""


@st.composite
def problems(draw: Any, **fixed: Any) -> dict[str, Any]:
    """Arguments of `random_problem`; there are always as many equations as variables."""
    scheme = draw(st.sampled_from(["smnn", "central"]))
    R = draw(st.integers(1, 3))
    V = draw(st.integers(1, 3))
    T = draw(st.integers(3, 7))
    chosen = {
        "seed": draw(st.integers(0, 10**6)),
        "T": T,
        "V": V,
        "R": R,
        "Q": V + draw(st.integers(0, 1)),
        "T_init": draw(st.integers(1, T)),
        "R_init": draw(st.integers(R - 1, R)),
        "batch": draw(st.sampled_from([(), (3,), (2, 2)])),
        "per_variable": draw(st.booleans()),
        "weights": draw(st.sampled_from(["one", "tensor", "broadcast"])),
        "scheme": scheme,
    }
    chosen |= {k: v(chosen) if callable(v) else v for k, v in fixed.items()}
    return chosen


def case_of(arguments: dict[str, Any], device: str) -> Case:
    return random_problem(**arguments, device=device, limit=1e5)


def flip(x: Tensor, axis: int) -> Tensor:
    return x.flip(axis)


@EXAMPLES
@given(problems(), st.floats(-3, 3), st.integers(0, 100))
def test_linear_in_the_right_hand_side(
    fast_backend: str, device: str, arguments: dict[str, Any], factor: float, seed: int
) -> None:
    case = case_of(arguments, device)
    _, d, u, _ = case.args
    generator = torch.Generator().manual_seed(seed)
    d2, u2 = (torch.randn(x.shape, generator=generator, dtype=x.dtype).to(device) for x in (d, u))
    parts = case.solve(fast_backend), case.replace(d=d2, u=u2).solve(fast_backend)
    together = case.replace(d=d + factor * d2, u=u + factor * u2).solve(fast_backend)
    assert relative(together, parts[0] + factor * parts[1]) < CLOSE


@EXAMPLES
@given(problems(batch=(5,)), st.permutations(range(5)))
def test_samples_are_independent(
    fast_backend: str, device: str, arguments: dict[str, Any], order: list[int]
) -> None:
    case = case_of(arguments, device)
    chosen = {k: x[order] for k, x in case.tensors().items() if x.ndim and x.shape[0] == 5}
    y = case.solve(fast_backend)
    assert relative(case.replace(**chosen).solve(fast_backend), y[order]) < 1e-12
    one = {k: x[2:3] for k, x in case.tensors().items() if x.ndim and x.shape[0] == 5}
    assert relative(case.replace(**one).solve(fast_backend), y[2:3]) < 1e-12


@EXAMPLES
@given(problems(V=3, Q=4, per_variable=True), st.permutations(range(3)), st.permutations(range(4)))
def test_names_of_variables_and_equations(
    fast_backend: str, device: str, arguments: dict[str, Any], v: list[int], q: list[int]
) -> None:
    case = case_of(arguments, device)
    relabelled = {
        "c": lambda x: x[..., q, :, :][..., v, :],
        "d": lambda x: x[..., q],
        "u": lambda x: x[..., v, :],
        "s": lambda x: x[..., v],
        "w_gov": lambda x: x[..., q],
        "w_init": lambda x: x[..., v, :],
        "w_smooth": lambda x: x[..., v, :],
    }
    new = {k: relabelled[k](x) for k, x in case.tensors().items()}
    y = case.solve(fast_backend)
    assert relative(case.replace(**new).solve(fast_backend), y[..., v, :]) < CLOSE


@EXAMPLES
@given(problems(weights="tensor"), st.sampled_from([0.25, 0.5, 2.0, 3.0]))
def test_unit_of_time(
    fast_backend: str, device: str, arguments: dict[str, Any], unit: float
) -> None:
    """In another unit of time the derivatives change by its powers and nothing else does."""
    case = case_of(arguments, device)
    now = case.tensors()
    power = unit ** torch.arange(arguments["R"] + 1, dtype=torch.float64, device=device)
    early = power[: arguments["R_init"] + 1]
    w_smooth = now["w_smooth"].clone()
    if arguments["scheme"] == "central":
        w_smooth[..., -1] *= unit  # the central rows carry one power of the step less
    new = {
        "c": now["c"] * power,
        "u": now["u"] / early,
        "s": now["s"] * unit,
        "w_init": now["w_init"] * early,
        "w_smooth": w_smooth,
    }
    expected = case.solve(fast_backend) / power
    assert relative(case.replace(**new).solve(fast_backend), expected) < CLOSE


@EXAMPLES
@given(problems(weights="tensor", T_init=lambda chosen: chosen["T"]))
def test_direction_of_time(fast_backend: str, device: str, arguments: dict[str, Any]) -> None:
    """Backwards, odd derivatives change their sign and nothing else does."""
    case = case_of(arguments, device)
    now, nb = case.tensors(), len(arguments["batch"])
    sign = (-1.0) ** torch.arange(arguments["R"] + 1, dtype=torch.float64, device=device)
    new = {k: flip(x, nb) for k, x in now.items()}
    new["c"] = new["c"] * sign
    new["u"] = new["u"] * sign[: arguments["R_init"] + 1]
    if arguments["scheme"] == "central":  # row t of the top order lies around time t + 1
        top = now["w_smooth"].narrow(nb, 0, arguments["T"] - 2)[..., -1]
        new["w_smooth"].narrow(nb, 0, arguments["T"] - 2)[..., -1] = flip(top, nb)
    expected = flip(case.solve(fast_backend), nb) * sign
    assert relative(case.replace(**new).solve(fast_backend), expected) < CLOSE


@EXAMPLES
@given(problems(batch=(2, 3)), st.sets(st.sampled_from("cdu")), st.sets(st.sampled_from("cds")))
def test_broadcasting_is_repetition(
    fast_backend: str, device: str, arguments: dict[str, Any], shared: set[str], constant: set[str]
) -> None:
    options = {"shared": "".join(sorted(shared)), "constant": "".join(sorted(constant))}
    case = case_of(arguments | options, device)
    T = arguments["T"]
    times = {"c": T, "d": T, "u": arguments["T_init"], "s": T - 1}
    full = {
        k: x.expand(2, 3, times[k], *x.shape[3:]).contiguous() for k, x in zip("cdus", case.args)
    }
    expected = case.replace(**full).solve(fast_backend)
    assert relative(case.solve(fast_backend), expected) < 1e-12


@EXAMPLES
@given(problems(Q=lambda chosen: chosen["V"] + 1), st.integers(0, 3), st.floats(-1e3, 1e3))
def test_equation_of_weight_zero_is_absent(
    fast_backend: str, device: str, arguments: dict[str, Any], which: int, nonsense: float
) -> None:
    case = case_of(arguments | {"weights": "one", "T_init": 2}, device)
    c, d, _, _ = case.args
    q = which % arguments["Q"]
    keep = [i for i in range(arguments["Q"]) if i != q]
    w_gov = d.new_ones((1,) * (d.ndim - 1) + (arguments["Q"],))
    w_gov[..., q] = 0.0
    c2, d2 = c.clone(), d.clone()
    c2[..., q, :, :], d2[..., q] = nonsense, -nonsense
    expected = case.replace(c=c[..., keep, :, :], d=d[..., keep]).solve(fast_backend)
    assert relative(case.replace(c=c2, d=d2, w_gov=w_gov).solve(fast_backend), expected) < CLOSE


@EXAMPLES
@given(problems(weights="one", T_init=lambda chosen: chosen["T"]), st.integers(1, 2))
def test_initial_value_of_weight_zero_is_absent(
    fast_backend: str, device: str, arguments: dict[str, Any], kept: int
) -> None:
    case = case_of(arguments, device)
    u, nb = case.args[2], len(arguments["batch"])
    w_init = torch.ones_like(u)
    w_init.narrow(nb, kept, arguments["T"] - kept).zero_()
    expected = case.replace(u=u.narrow(nb, 0, kept)).solve(fast_backend)
    assert relative(case.replace(w_init=w_init).solve(fast_backend), expected) < CLOSE


@EXAMPLES
@given(problems(weights="one"), st.sampled_from([1e-3, 0.5, 7.0, 1e4]))
def test_only_ratios_of_weights_matter(
    fast_backend: str, device: str, arguments: dict[str, Any], factor: float
) -> None:
    case = case_of(arguments, device)
    heavy = case.replace(w_gov=factor, w_init=factor, w_smooth=factor)
    assert relative(heavy.solve(fast_backend), case.solve(fast_backend)) < CLOSE


@EXAMPLES
@given(problems(), st.sampled_from([-1.0, 0.5, 100.0]))
def test_scale_and_sign_of_an_equation_belong_to_its_weight(
    fast_backend: str, device: str, arguments: dict[str, Any], factor: float
) -> None:
    case = case_of(arguments | {"weights": "one"}, device)
    c, d, _, _ = case.args
    expected = case.replace(w_gov=factor).solve(fast_backend)
    assert relative(case.replace(c=factor * c, d=factor * d).solve(fast_backend), expected) < CLOSE


@EXAMPLES
@given(problems(per_variable=False, batch=()))
def test_polynomials_are_reproduced(
    fast_backend: str, device: str, arguments: dict[str, Any]
) -> None:
    """A trajectory of degree R satisfies every smoothness row, so the answer is exact."""
    case = case_of(arguments, device)
    c, _, u, s = case.args
    R, V = arguments["R"], arguments["V"]
    t = np.concatenate([[0.0], np.cumsum(s.cpu().numpy())])
    rng = np.random.default_rng(arguments["seed"])
    y = np.zeros((len(t), V, R + 1))
    for v in range(V):
        polynomial = np.polynomial.Polynomial(rng.standard_normal(R + 1))
        for r in range(R + 1):
            y[:, v, r] = polynomial.deriv(r)(t) if r else polynomial(t)
    exact = torch.as_tensor(y, device=device)
    d = torch.einsum("tqvr,tvr->tq", c, exact)
    new = case.replace(d=d, u=exact[: u.shape[0], :, : u.shape[2]])
    assert relative(new.solve(fast_backend), exact) < CLOSE


@pytest.mark.parametrize("name", ["c", "d", "u"])
def test_missing_values_in_absent_rows(name: str, backend: str, device: str) -> None:
    """A row of weight zero is absent, whatever stands in it, and NaN often does."""
    case = random_problem(
        3, T=6, V=1, Q=2, R=2, T_init=3, R_init=2, batch=(2,), weights="tensor", device=device
    )
    row = "w_init" if name == "u" else "w_gov"
    w = case.tensors()[row].clone()
    w[1, 2] = 0.0
    case = case.replace(**{row: w})
    x = case.tensors()[name].clone()
    x[1, 2] = torch.nan
    assert relative(case.replace(**{name: x}).solve(backend), case.solve(backend)) < 1e-12
    grads = []
    for this in (case, case.replace(**{name: x})):
        leaves = {k: v.detach().clone().requires_grad_() for k, v in this.tensors().items()}
        y = this.replace(**leaves).solve(backend)
        grads.append(torch.autograd.grad(y.square().sum(), list(leaves.values())))
    assert all(relative(b, a) < 1e-12 for a, b, k in zip(*grads, NAMES) if k != row)
