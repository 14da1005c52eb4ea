"""The covariance sweep of the `cpu` backend agrees with elimination, or gives way to it."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import smnn
from helpers import Case, problem_of, random_problem, relative
from solver.internals import SweptPlan, backend_named, plan, program, sweep, swept

f64 = torch.float64


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sweep small problems, too."""
    monkeypatch.setattr(swept, "LEAST_SWEPT", 0)
    plan._plans.clear()
    yield
    plan._plans.clear()


@pytest.fixture
def eliminated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many samples of each sweep were eliminated instead."""
    counts: list[int] = []
    replace = SweptPlan._eliminated

    def counted(self: SweptPlan, which: Tensor, tensors: Any) -> Any:
        counts.append(int(which.sum()))
        return replace(self, which, tensors)

    monkeypatch.setattr(SweptPlan, "_eliminated", counted)
    return counts


def gradients(case: Case, backend: str) -> list[Tensor]:
    """Solution, and gradients of a fixed functional by every tensor among the arguments."""
    leaves = {k: x.detach().clone().requires_grad_() for k, x in case.tensors().items()}
    y = case.replace(**leaves).solve(backend)
    g = torch.cos(torch.arange(y.numel(), dtype=f64)).view(y.shape)
    return [y.detach(), *torch.autograd.grad(y, [*leaves.values()], g)]


OPTIONS: dict[str, dict[str, Any]] = {
    "one equation": {"V": 1, "Q": 1, "R": 2, "R_init": 1, "order": 4},
    "two equations": {"V": 2, "Q": 2, "R": 2, "R_init": 1},
    "more equations than variables": {"V": 1, "Q": 2, "R": 1, "R_init": 0},
    "a step per variable": {"V": 2, "Q": 2, "R": 1, "per_variable": True},
    "constant in time": {"V": 1, "Q": 1, "R": 2, "R_init": 1, "constant": "cds"},
    "constant coefficients": {"V": 2, "Q": 2, "R": 1, "constant": "c"},
    "weights": {"V": 2, "Q": 2, "R": 1, "R_init": 0, "weights": "tensor"},
    "weights of zero": {"V": 1, "Q": 3, "R": 1, "T_init": 20, "R_init": 0, "weights": "zeros"},
    "observed everywhere": {"V": 1, "Q": 1, "R": 2, "T_init": 20, "R_init": 0},
    "observed for some time": {"V": 2, "Q": 2, "R": 1, "T_init": 9, "R_init": 1},
    "twelve unknowns": {"V": 4, "Q": 4, "R": 2, "R_init": 1},
    "shared": {"V": 1, "Q": 1, "R": 2, "R_init": 1, "shared": "cs"},
}


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept results of any accuracy."""
    monkeypatch.setattr(sweep, "LARGEST_ERRORS", (1.0, 1.0))
    monkeypatch.setattr(program, "_compiled", {})


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", OPTIONS)
def test_agrees_with_least_squares(name: str, eliminated: list[int]) -> None:
    """Values and all gradients, for several groups of lanes of which one is incomplete."""
    case = random_problem(5, T=20, batch=(19,), limit=1e4, **OPTIONS[name])
    w = case.kw.get("w_smooth", 1.0)
    if isinstance(w, Tensor) and w.ndim:
        case = case.replace(w_smooth=w[..., :1].contiguous())  # the same for all orders
    for ours, expected in zip(gradients(case, "cpu"), gradients(case, "reference"), strict=True):
        assert relative(ours, expected) < 1e-8
    assert isinstance(backend_named("cpu").plan(problem_of(case)), SweptPlan)
    assert name == "weights of zero" or eliminated == []


@pytest.mark.parametrize("B", [1, 2, 3, 7, 9, 16, 17])
def test_any_number_of_samples(B: int, eliminated: list[int]) -> None:
    """The same numbers for a sample, whatever the others are."""
    ours = gradients(oscillators(B, 60), "cpu")
    for y, expected in zip(ours, gradients(oscillators(17, 60), "torch"), strict=True):
        assert relative(y, expected[:B]) < 1e-6  # gradients by c are that uncertain
    assert relative(ours[0], gradients(oscillators(17, 60), "torch")[0][:B]) < 1e-10
    assert eliminated == []


def oscillators(B: int, T: int, growth: float = 0.0) -> Case:
    """`y'' + w^2 y = growth y'` with a different frequency for every sample."""
    w = torch.linspace(1, 3, 17, dtype=f64)[:B]
    c = torch.stack([w**2, torch.full_like(w, -growth), torch.ones_like(w)], -1)
    u = torch.stack([torch.ones_like(w), torch.zeros_like(w)], -1)
    args = (
        c.view(B, 1, 1, 1, 3), torch.zeros(B, 1, 1, dtype=f64), u.view(B, 1, 1, 2),
        torch.full((B, 1), 0.05, dtype=f64),
    )  # fmt: skip
    return Case(args, {"order": 4, "n_steps": T})


def test_samples_that_grow_are_eliminated(eliminated: list[int]) -> None:
    """As if all were, and without an effect on other samples."""
    calm = oscillators(17, 300, growth=-0.1)
    c = calm.args[0].clone()
    c[3, ..., 0] = -9.0
    mixed = calm.replace(c=c)
    ours, undisturbed = gradients(mixed, "cpu"), gradients(calm, "cpu")
    assert set(eliminated) == {1}
    problem = problem_of(mixed)
    whole = backend_named("cpu").plan(problem).solve()  # keeps a factor: eliminates
    assert relative(ours[0][3], whole.y[3]) < 1e-9
    others = [b for b in range(17) if b != 3]
    for x, y in zip(ours, undisturbed, strict=True):
        assert torch.equal(x[others], y[others])
    by_elimination = gradients(mixed.replace(keep_factor=False), "cpu")
    assert relative(ours[3][3], by_elimination[3][3]) < 1e-6  # by the initial values


def test_inconsistent_rows_are_eliminated() -> None:
    """Five equations for one variable: the covariance would lose nine digits."""
    case = random_problem(
        1, T=30, V=1, Q=5, R=2, order=4, R_init=3, batch=(8,), constant="s", limit=None
    )
    case = case.replace(s=torch.full_like(case.args[3], 0.01))
    y, info = smnn.solve_ex(*case.args, **case.kw, backend="cpu")
    whole = backend_named("cpu").plan(problem_of(case)).solve()  # keeps a factor: eliminates
    assert torch.equal(y, whole.y)
    assert relative(y, case.oracle()) < 1e-11
    assert info.status.tolist() == [0] * 8


def test_failed_samples(eliminated: list[int]) -> None:
    """A bad step, a singular sample and one that is not finite, among good ones."""
    case = oscillators(6, 40)
    c, d, u, s = (x.clone() for x in case.args)
    c[1], c[4], s[2] = 0.0, torch.nan, -0.05
    y, info = smnn.solve_ex(c, d, u, s, **case.kw, backend="cpu")
    assert info.status.tolist() == [0, 3, 1, 0, 2, 0]
    assert y[[1, 2, 4]].isnan().all()
    assert relative(y[[0, 3, 5]], case.solve("cpu")[[0, 3, 5]]) < 1e-12
    assert eliminated == [3]


@pytest.mark.usefixtures("two_threads")
def test_number_of_threads() -> None:
    """Bitwise equal."""
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        case = oscillators(17, 300).replace()
        wide = case.replace(
            **{k: x.repeat(4, *[1] * (x.ndim - 1)) for k, x in zip("cdus", case.args)}
        )
        results.append(gradients(wide, "cpu"))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(other, results[0], strict=True))


def test_condition_number_with_gradients() -> None:
    """The residuals that are kept for the derivative must not be taken for a factor."""
    case = oscillators(17, 60)
    plain = smnn.solve_ex(*case.args, **case.kw, condition=True)[1].condition
    leaves = [x.clone().requires_grad_() for x in case.args]
    with_graph = smnn.solve_ex(*leaves, **case.kw, condition=True)[1].condition
    assert plain is not None and with_graph is not None
    assert torch.equal(plain, with_graph)
    assert (plain < 1e6).all()
