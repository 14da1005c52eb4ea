"""`residuals`: the root mean square of each kind of row, per sample."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

import smnn
from helpers import OPTIONS, SCHEMES, Case, expand, option, random_problem
from odes import ODES
from solver.trust.oracle import rows as weighted_rows


def residuals(y: torch.Tensor, case: Case) -> smnn.Residuals:
    known = {k: x for k, x in case.kw.items() if k != "n_steps"}
    return smnn.residuals(y, *case.args, **known)


def expected(y: torch.Tensor, case: Case) -> list[np.ndarray]:
    """From the rows of the oracle, without weights, leaving out those of weight zero."""
    scheme = case.kw.get("scheme", "smnn")
    batch, full = expand(*case.args, **case.kw)
    flat = (x.reshape(math.prod(batch), *x.shape[len(batch) :]) for x in full)
    *tensors, w_gov, w_init, w_smooth = flat
    weights = w_gov, w_init, w_smooth
    present = [np.where(w != 0, 1.0, 0.0) for w in weights]
    A, b = weighted_rows(*tensors, *present, scheme)
    complete, _ = weighted_rows(*tensors, *(np.ones_like(w) for w in weights), scheme)
    there = (np.abs(A).sum(2) > 0) | (np.abs(complete).sum(2) == 0)
    solution = y.detach().cpu().double().numpy().reshape(A.shape[0], A.shape[2])
    residual = (A @ solution[..., None])[..., 0] - b
    cuts = np.cumsum([w_gov[0].size, w_init[0].size])
    kinds = zip(np.split(residual, cuts, 1), np.split(there, cuts, 1))
    squares = [np.sum(r * r * here, 1) / np.maximum(here.sum(1), 1) for r, here in kinds]
    return [np.sqrt(x).reshape(batch) for x in squares]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", OPTIONS)
def test_against_the_rows_of_the_oracle(name: str, scheme: str, device: str) -> None:
    case = option(name, 2, scheme=scheme, device=device)
    y = case.solve()
    y = y + 0.1 * torch.sin(torch.arange(y.numel(), device=device).double()).view_as(y)
    got = residuals(y, case)
    for kind, value, want in zip(got._fields, got, expected(y, case)):
        assert value.shape == want.shape
        assert value.cpu().numpy() == pytest.approx(want, rel=1e-9, abs=1e-12), kind


def test_residuals_of_an_exact_solution_are_zero(device: str) -> None:
    """A straight line: y' = 1, y(0) = 2."""
    c = torch.tensor([0.0, 1.0], dtype=torch.float64, device=device).view(1, 1, 1, 2)
    d, u = c.new_ones(1, 1), c.new_full((1, 1, 1), 2.0)
    s = c.new_full((20,), 0.5)
    y = smnn.solve(c, d, u, s, order=3)
    assert all(float(x) < 1e-13 for x in smnn.residuals(y, c, d, u, s, order=3))


def test_contradicting_equations_increase_residuals(device: str) -> None:
    """Two contradicting equations increase the governing residual only."""
    case = random_problem(1, V=1, Q=2, R=1, T=8, device=device)
    c = case.args[0].clone()
    c[:, 1] = c[:, 0]
    d = case.args[1].clone()
    d[:, 1] = d[:, 0] + 2.0
    got = residuals(case.replace(c=c, d=d).solve(), case.replace(c=c, d=d))
    assert 0.9 < float(got.governing) < 2.0


def test_smoothness_residual_decreases_with_the_step(device: str) -> None:
    ode = ODES["harmonic"]
    smooth = []
    for s in (0.4, 0.2, 0.1):
        args = ode.native(50, s, device=device)
        y = smnn.solve(*args, order=4)
        smooth.append(float(smnn.residuals(y, *args, order=4).smoothness))
    assert smooth[0] > 4 * smooth[1] > 16 * smooth[2] > 0


def test_residuals_per_sample(device: str) -> None:
    case = random_problem(1, batch=(2, 3), device=device)
    y = case.solve()
    y[1, 2] += 1.0
    got = residuals(y, case)
    alone = residuals(case.solve(), case)
    assert got.governing.shape == got.initial.shape == got.smoothness.shape == (2, 3)
    assert torch.equal(got.governing[0], alone.governing[0])
    assert float(got.governing[1, 2]) > float(alone.governing[1, 2])


def test_differentiable_and_of_the_dtype_of_y(device: str) -> None:
    case = random_problem(1, batch=(2,), device=device)
    y = (case.solve() + 0.1).requires_grad_()
    sum(x.sum() for x in residuals(y, case)).backward()
    assert y.grad.isfinite().all()
    low = residuals(case.to(torch.float32).solve(), case.to(torch.float32))
    assert {x.dtype for x in low} == {torch.float32}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda y: y[..., :1, :],
        lambda y: y[:1],
        lambda y: y[0],
        lambda y: y.transpose(0, 1),  # the same number of entries
    ],
)
def test_solution_of_the_wrong_shape(wrong: Callable[[torch.Tensor], torch.Tensor]) -> None:
    case = random_problem(1, batch=(2, 3))
    with pytest.raises(smnn.ShapeError, match="y: got"):
        residuals(wrong(case.solve()), case)
