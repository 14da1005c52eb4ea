"""Extreme but valid input, compared with least squares in 120 digits or a closed form."""

import functools
import os
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import smnn
from helpers import Case, relative
from solver.trust import digits, oracle
from solver.trust.problems import Shape, on_device, random_problems, solve_ex

FEW = 25
"""Number of times that can be solved in 120 digits within a second."""
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1",
    reason="needs a CUDA device, or the interpreter of Triton",
)
on_every_backend = pytest.mark.parametrize(
    "solver", ["reference", "torch", "cpu", pytest.param("gpu", marks=[pytest.mark.gpu, needs_gpu])]
)


def case_of(c: Any, d: Any, u: Any, s: Any, **kw: Any) -> Case:
    c, d, u, s = (torch.as_tensor(np.asarray(x, float)) for x in (c, d, u, s))
    return Case((c, d, u, s), {"n_steps": len(s) + 1, **kw})


def scalar(*c: float) -> np.ndarray:
    """Constant coefficients of one equation."""
    return np.array(c).reshape(1, 1, 1, -1)


def extremes() -> dict[str, Case]:
    """By name."""
    rng = np.random.default_rng(0)
    noise, starts = rng.standard_normal, np.ones((1, 1, 2))
    steps = 10.0 ** rng.uniform(-6, 3, FEW - 1)
    steps[[3, 11]] = 1e-6, 1e3
    even = np.full(FEW - 1, 0.1)
    wide = 10.0 ** rng.uniform(-6, 6, (FEW, 2, 2, 3))
    twice = noise((FEW, 1, 2, 3))
    gap = noise((FEW, 1, 1, 3))
    gap[8:16] = 0.0
    out = {}
    for R in (2, 3):
        for scheme in ("smnn", "central"):
            kw = {"order": R, "scheme": scheme}
            name = f"R = {R}, {scheme}"
            out[f"steps from 1e-6 to 1e3, decay, {name}"] = case_of(
                scalar(1, 1), noise((FEW, 1)), starts[..., :1], steps, **kw
            )
            out[f"steps from 1e-6 to 1e3, oscillator, {name}"] = case_of(
                scalar(1, 0, 1), noise((FEW, 1)), starts, steps, **kw
            )
            out[f"coefficients over 12 decades, {name}"] = case_of(
                noise(wide.shape) * wide, noise((FEW, 2)), np.ones((1, 2, 2)), even, **kw
            )
    weights = torch.as_tensor(10.0 ** rng.uniform(-6, 6, (FEW, 2)))
    out["weights over 12 decades"] = case_of(
        noise(wide.shape), noise((FEW, 2)), np.ones((1, 2, 2)), even, w_gov=weights
    )
    for rate in (1e3, 1e6, 1e9, 5.0, -5.0, -50.0, -1e6):
        kind = "stiff" if rate > 5 else "unstable" if rate < 0 else "fast"
        out[f"{kind}, y' + {rate:g} y = 1"] = case_of(
            scalar(rate, 1), np.ones((FEW, 1)), starts[..., :1], even, order=4
        )
    out["two equations, one twice the other"] = case_of(
        np.concatenate([twice, 2 * twice], 1), noise((FEW, 2)), np.ones((1, 2, 3)), even
    )
    out["no equation at a third of the times"] = case_of(gap, noise((FEW, 1)), starts, even)
    out["no equation, observations alone"] = case_of(
        0 * gap, noise((FEW, 1)), noise((FEW, 1, 1)), even / 10, w_smooth=1e3
    )
    return out


EXTREMES = extremes()


@functools.cache
def exact(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Once for all backends."""
    case = EXTREMES[name]
    return digits.solve(*case.args, **case.kw)


@on_every_backend
@pytest.mark.parametrize("name", EXTREMES)
def test_against_120_digits(name: str, solver: str) -> None:
    """Values, and all derivatives in the unit of their columns: at most ten roundings times the
    condition number."""
    y, info = solve_ex(EXTREMES[name], solver, condition=True)
    assert int(info.status) == 0
    unit = oracle.EPS * float(info.condition)
    assert max(digits.errors(y, *exact(name))) < 10 * unit


@on_every_backend
def test_limit_of_float64(solver: str) -> None:
    """Nine decades of steps and one order more at a time: an error in proportion to the condition,
    until there is no answer and this is said."""
    rng = np.random.default_rng(4)
    steps = 10.0 ** rng.uniform(-6, 3, FEW - 1)
    steps[[3, 11]] = 1e-6, 1e3
    d = rng.standard_normal((FEW, 1))
    conditions = []
    for R in (2, 3, 4, 5, 6):
        case = case_of(scalar(1, 0, 1), d, np.ones((1, 1, 2)), steps, order=R)
        y, info = solve_ex(case, solver, condition=True)
        conditions.append(float(info.condition))
        if int(info.status) == 0:
            found, norms = digits.solve(*case.args, **case.kw)
            assert max(digits.errors(y, found, norms)) < 10 * oracle.EPS * conditions[-1]
        else:
            assert int(info.status) == 3
            assert y.isnan().all()
    assert conditions == sorted(conditions)
    assert conditions[0] < 1e6
    assert conditions[-1] > 1e15


@pytest.mark.parametrize(("V", "R"), [(16, 3), (8, 7), (32, 1)])
@pytest.mark.parametrize("scheme", ["smnn", "central"])
def test_64_unknowns_per_time(V: int, R: int, scheme: str) -> None:
    shape = Shape(
        seed=V, batch=(2,), T=4, V=V, Q=V, R=R, order=None, T_init=2, m_init=R, scheme=scheme,
        weights="tensor", per_variable=True, constant="", shared="", step=1.0, spread=0.0,
    )  # fmt: skip
    problems = random_problems(shape)
    assert problems.well_posed.all()
    for backend in ("torch", "cpu"):
        assert problems.ratio(problems.solve_ex(backend)[0]).max() < 4


# ---------------------------------------------------------------- a million times

on_fast_backends = pytest.mark.parametrize(
    "where", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, needs_gpu])]
)


def million(
    c: tuple[float, ...], d: Tensor, u: tuple[float, ...], s: float, order: int, where: str
) -> Tensor:
    f64 = {"dtype": torch.float64, "device": where}
    steps = torch.full((10**6 - 1,), s, **f64)
    args = torch.tensor(c, **f64).view(1, 1, 1, -1), d.to(where).view(-1, 1)
    u0 = torch.tensor(u, **f64).view(1, 1, -1)
    backend = "gpu" if where == "cuda" else "cpu"
    return smnn.solve(*args, u0, steps, order=order, backend=backend).cpu()


@on_fast_backends
def test_a_million_times_decay(where: str) -> None:
    """From 1 to exp(-1000), which float64 cannot hold beside 1."""
    t = 1e-3 * torch.arange(10**6, dtype=torch.float64)
    y = million((1.0, 1.0), t.new_zeros(1), (1.0,), 1e-3, 4, where)
    assert float((y[:, 0, 0] - torch.exp(-t)).abs().max()) < 1e-12


@on_fast_backends
def test_a_million_times_oscillation(where: str) -> None:
    """1,591 periods: the phase is kept."""
    t = 1e-2 * torch.arange(10**6, dtype=torch.float64)
    y = million((1.0, 0.0, 1.0), t.new_zeros(1), (1.0, 0.0), 1e-2, 6, where)
    assert float((y[:, 0, 0] - torch.cos(t)).abs().max()) < 1e-8


@on_fast_backends
def test_a_million_times_parabola(where: str) -> None:
    """A trajectory of degree R satisfies every smoothness row: the answer is known exactly."""
    x = torch.arange(10**6, dtype=torch.float64) / 1e6
    exact = torch.stack([1 + x - 2 * x**2, (1 - 4 * x) / 1e3, torch.full_like(x, -4e-6)], -1)
    c = (1.0, 0.5, 2.0)
    y = million(c, exact @ x.new_tensor(c), tuple(exact[0, :2].tolist()), 1e-3, 2, where)
    assert relative(y[:, 0, 0], exact[:, 0]) < 1e-11


# ---------------------------------------------------------------- scaled equations


def oscillator(scale: float) -> Case:
    """An equation and its right-hand side times `scale`."""
    even = np.full(FEW - 1, 0.1)
    d = np.sin(np.arange(FEW)).reshape(FEW, 1)
    return case_of(scale * scalar(2.1, 0, 1, 0, 0), scale * d, np.ones((1, 1, 2)), even)


@on_every_backend
@pytest.mark.parametrize("scale", [1e-160, 1e-80, 1e80, 1e160])
def test_weights_undo_the_scale_of_an_equation(scale: float, solver: str) -> None:
    """Squares of the coefficients and the weights overflow or underflow; their products do not."""
    plain, case = oscillator(1.0), oscillator(scale).replace(w_gov=1 / scale)
    expected, known = solve_ex(plain, solver, condition=True)
    y, info = solve_ex(case, solver, condition=True)
    assert int(info.status) == 0
    assert relative(y, expected) < 1e-11
    assert float(info.condition) == pytest.approx(float(known.condition), rel=1e-6)
    by_d = []
    for each in (plain, case):
        d = each.args[1].clone().requires_grad_()
        by_d.append(torch.autograd.grad(solve_ex(each.replace(d=d), solver)[0].sum(), d)[0])
    assert relative(scale * by_d[1], by_d[0]) < 1e-9


@on_every_backend
@pytest.mark.parametrize("scale", [1e-160, 1e-80, 1e80, 1e150])
def test_an_equation_of_extreme_size_is_refused(scale: float, solver: str) -> None:
    """Against weights of one, its rows or all others vanish in float64."""
    case = oscillator(scale)
    _, info = solve_ex(case, solver)
    assert int(info.status) != 0
    with pytest.raises(smnn.SolveError, match="no unique finite solution"):
        on_device(case, solver).solve(solver)
