"""Compiled kernels of every kind on an emulated device: their answers, every access, any order."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from torch import Tensor

import smnn
from helpers import random_problem

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
pytest.importorskip("triton.experimental.gluon._runtime")

from solver.gpu.emulated.device import emulated
from solver.gpu.emulated.driver import driven
from solver.internals import (
    REDUCED,
    Backend,
    Problem,
    Solved,
    backend_named,
    make_problem,
    reduction,
)
from solver.internals import gpu as gpu_backend
from solver.internals import strategy as plans

CASES = {  # scheme, B, T, V, R, pieces (0: several lanes for each), weights by order
    "two lanes": ("smnn", 5, 9, 1, 2, 1, False),
    "two lanes, several warps": ("smnn", 37, 6, 1, 1, 1, False),
    "two lanes, weights by order": ("smnn", 5, 8, 2, 1, 1, True),
    "two lanes, two launches": ("smnn", 19, 9, 2, 2, 1, False),
    "two lanes that go different ways": ("smnn", 5, 9, 1, 0, 1, False),
    "a lane": ("central", 37, 7, 1, 2, 1, False),
    "a single time": ("smnn", 5, 1, 1, 2, 1, False),
    "pieces": ("smnn", 5, 41, 1, 2, 7, False),
    "pieces of pieces": ("smnn", 3, 100, 1, 1, 33, False),
    "pieces, central": ("central", 5, 41, 1, 2, 4, True),
    "two warps": ("smnn", 5, 8, 3, 2, 0, False),
    "two warps, weights by order": ("smnn", 5, 9, 2, 2, 0, True),
    "a warp": ("central", 5, 8, 2, 2, 0, False),
    "teams of 8": ("smnn", 13, 5, 2, 2, 0, False),
    "teams of 16": ("central", 5, 5, 3, 2, 0, False),
    "tiles": ("smnn", 2, 3, 9, 2, 0, False),
    "tiles of four warps": ("central", 1, 3, 11, 2, 0, True),
    "panels": ("smnn", 1, 3, 17, 2, 0, False),
    "panels, central": ("central", 1, 3, 12, 2, 0, True),
    "reduction": ("smnn", 2, 11, 3, 2, REDUCED, False),
    "reduction, a single time": ("smnn", 2, 1, 2, 1, REDUCED, False),
    "reduction, weights by order": ("central", 2, 9, 1, 2, REDUCED, True),
    "reduction, central": ("central", 2, 5, 3, 1, REDUCED, False),
    "reduction, eight warps": ("smnn", 1, 5, 8, 2, REDUCED, False),
    "reduction, several launches a level": ("smnn", 1, 5, 12, 2, REDUCED, False),
    "reduction, products of matrices": ("smnn", 1, 3, 18, 1, REDUCED, False),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Few sequences and short ones go the ways of many and long ones."""
    name = request.node.callspec.params["name"]
    monkeypatch.setattr(plans, "SHORTEST_PIECE", 2)
    if name.startswith("teams"):
        monkeypatch.setattr(plans, "WARPS_FOR_TEAMS", 1)
    if name.startswith("panels"):
        monkeypatch.setattr(plans, "LARGEST_IN_REGISTERS", 32)
    if name.startswith("reduction"):
        monkeypatch.setattr(gpu_backend, "_few", lambda *sizes: True)
    if name.endswith("products of matrices"):
        monkeypatch.setattr(reduction, "MANY", 0)
        monkeypatch.setattr(reduction, "ROOM", 1)
    torch.use_deterministic_algorithms(True)  # memory that nobody has written holds no numbers
    yield
    torch.use_deterministic_algorithms(False)


def problem_of(name: str) -> Problem:
    scheme, B, T, V, R, _, by_order = CASES[name]
    random = torch.Generator().manual_seed(0)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=random)

    c, d, u = some(B, T, V + 1, V, R + 1), some(B, T, V + 1), some(B, 1, V, R)
    s, w = 0.3 + some(B, T - 1, V).abs(), 0.5 + some(B, T - 1, V, R + 1).abs()
    return make_problem(c, d, u, s, scheme=scheme, w_smooth=w if by_order else 1.0)[0]


def error(found: list[Tensor], wanted: list[Tensor]) -> float:
    """The largest, relative to the largest number of each."""
    pairs = [(x.reshape(y.shape), y) for x, y in zip(found, wanted, strict=True) if y.numel()]
    return max(float(((x - y).abs().max() / y.abs().max()).detach()) for x, y in pairs)


@pytest.mark.parametrize("name", CASES)
def test_kind(name: str) -> None:
    """Solution, adjoint solution and gradients, in two steps and in one."""
    problem, pieces = problem_of(name), CASES[name][5]
    gpu, judge = backend_named("gpu"), backend_named("cpu")
    g = torch.randn(problem.y_shape, dtype=torch.float64)
    wanted = [True] * 7

    def answers(engine: Backend, pieces: int) -> tuple[Solved, list[Tensor]]:
        solved = engine.plan(problem, pieces).solve()
        lam = engine.plan(problem, pieces).adjoint(solved.factor, g)
        apart = engine.row_gradients(problem, lam, solved.y, wanted)
        both = engine.plan(problem, pieces).gradients(
            problem.tensors, solved.y, solved.factor, g, wanted
        )
        return solved, [solved.y, lam, *apart, *both]

    with emulated() as memory:
        solved, found = answers(gpu, pieces)
    assert not solved.diagnostics.tensors()[0].any()
    assert error(found, answers(judge, 1)[1]) < 1e-11
    assert memory.races == {}


FROM_C = {
    "one launch": {"T": 7, "V": 1, "Q": 1, "R": 2, "batch": (3,)},
    "two launches": {"T": 7, "V": 3, "Q": 3, "R": 2, "batch": (2,)},
    "pieces": {"T": 64, "V": 1, "Q": 1, "R": 1, "batch": (1,)},
    "reduction": {"T": 12, "V": 4, "Q": 4, "R": 1, "batch": (2,)},
    # More than is asked for at once: the factor is given back before there are gradients.
    "much memory": {"T": 24_000, "V": 1, "Q": 12, "R": 1, "batch": (1,)},
}


@pytest.mark.parametrize("name", FROM_C)
def test_from_c(launcher: ModuleType, name: str) -> None:
    """Steps of a training as a user writes them."""
    leaves = random_problem(1, limit=None, **FROM_C[name]).args[:4]
    with driven(launcher) as driver:
        for _ in range(2):
            x = [t.clone().requires_grad_() for t in leaves]
            launched, y = len(driver.launched), smnn.solve(*x, backend="gpu")
            g = torch.randn_like(y)
            found = torch.autograd.grad(y, x, g)
            assert driver.error is None
    assert len(driver.launched) > launched + 1
    theirs = smnn.solve(*x, backend="cpu")
    assert error([y, *found], [theirs, *torch.autograd.grad(theirs, x, g)]) < 1e-11
    assert driver.memory.races == {}
