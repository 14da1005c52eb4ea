"""Properties of every problem, drawn by Hypothesis; see `trust/properties.py` for more."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import NAMES, Case, random_problem, relative

EXAMPLES = settings(max_examples=12)
CLOSE = 1e-8
"""Tolerance for problems that are equivalent in exact arithmetic."""


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
