"""Compiled kernels of every kind on an emulated device: results, every access, any order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from solver.internals import (
    REDUCED,
    TRITON,
    Backend,
    Problem,
    Solved,
    backend_named,
    gpu,
    make_problem,
    strategy,
)

if not TRITON:
    pytest.skip("Triton is not installed", allow_module_level=True)
pytest.importorskip("triton.experimental.gluon._runtime")

from solver.gpu.emulated.device import emulated
from solver.internals import reduction

pytestmark = pytest.mark.slow

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
    """Choose the kernels of many or long sequences for a few short ones."""
    name = request.node.callspec.params["name"]
    monkeypatch.setattr(strategy, "SHORTEST_PIECE", 2)
    if name.startswith("teams"):
        monkeypatch.setattr(strategy, "WARPS_FOR_TEAMS", 1)
    if name.startswith("panels"):
        monkeypatch.setattr(strategy, "LARGEST_IN_REGISTERS", 32)
    if name.startswith("reduction"):
        monkeypatch.setattr(gpu, "_reduction_is_faster", lambda *sizes: True)
    if name.endswith("products of matrices"):
        monkeypatch.setattr(reduction, "MANY", 0)
        monkeypatch.setattr(reduction, "ROOM", 1)
    torch.use_deterministic_algorithms(True)  # new memory holds NaN
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
    """Largest difference, relative to the largest entry of each tensor."""
    pairs = [(x.reshape(y.shape), y) for x, y in zip(found, wanted, strict=True) if y.numel()]
    return max(float(((x - y).abs().max() / y.abs().max()).detach()) for x, y in pairs)


@pytest.mark.parametrize("name", CASES)
def test_kernels_agree_with_the_cpu(name: str) -> None:
    """Solution, adjoint solution and gradients, in two steps and in one."""
    problem, pieces = problem_of(name), CASES[name][5]
    ours, theirs = backend_named("gpu"), backend_named("cpu")
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
        solved, found = answers(ours, pieces)
    assert not solved.diagnostics.tensors()[0].any()
    assert error(found, answers(theirs, 1)[1]) < 1e-11
    assert memory.races == {}
