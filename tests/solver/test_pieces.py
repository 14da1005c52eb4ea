"""Results do not depend on the number of pieces or threads."""

import pytest
import torch
from torch import Tensor

from helpers import SCHEMES, random_problem, relative
from solver.internals import Problem, backend_named, make_problem, row_gradients

PIECES = range(1, 9)


def problem_of(scheme: str, T: int, device: str, **extra: object) -> Problem:
    """A problem with few samples and many times."""
    sizes = {"V": 2, "Q": 2, "R": 2, "R_init": 1, "batch": (2,), "per_variable": True}
    chosen = sizes | {"limit": None} | extra
    case = random_problem(T, T=T, scheme=scheme, device=device, **chosen)
    return make_problem(*case.args, **case.kw)[0]


def possible(T: int, pieces: int, scheme: str) -> bool:
    """A piece must be longer than the separator at its end."""
    reach = 2 if scheme == "central" else 1
    return T // pieces > reach


def solve(problem: Problem, pieces: int, backend: str) -> tuple[Tensor, Tensor]:
    """The solution and an adjoint solution."""
    engine = backend_named(backend)
    solved = engine.plan(problem, pieces).solve()
    g = torch.randn(problem.y_shape, generator=torch.Generator().manual_seed(5)).to(problem.c)
    return solved.y, engine.plan(problem, pieces).adjoint(solved.factor, g)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("T", [13, 37, 101])
def test_any_number_of_pieces(T: int, scheme: str, fast_backend: str, device: str) -> None:
    problem = problem_of(scheme, T, device)
    whole = solve(problem, 1, fast_backend)
    cut = {P: solve(problem, P, fast_backend) for P in PIECES if possible(T, P, scheme)}
    assert len(cut) > 3
    errors = {P: [relative(a, b) for a, b in zip(parts, whole)] for P, parts in cut.items()}
    assert {P: e for P, e in errors.items() if max(e) > 1e-11} == {}


@pytest.mark.parametrize(
    "extra",
    [
        {"V": 1, "Q": 1, "R": 4, "R_init": 3},
        {"weights": "tensor"},
        {"weights": "zeros", "Q": 6, "T_init": 40, "R_init": 2, "limit": 1e5},
        {"T_init": 40, "Q": 1},
        {"T_init": 0, "Q": 3},
        {"constant": "cds"},
        {"batch": (9,), "shared": "cs"},
    ],
    ids=str,
)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_pieces_with_every_option(
    extra: dict[str, object], scheme: str, fast_backend: str, device: str
) -> None:
    problem = problem_of(scheme, 40, device, **extra)
    whole = solve(problem, 1, fast_backend)
    for P in (2, 5, 8):
        parts = solve(problem, P, fast_backend)
        assert max(relative(a, b) for a, b in zip(parts, whole)) < 1e-11


@pytest.mark.parametrize("scheme", SCHEMES)
def test_singular_sequence_is_detected_in_pieces(
    scheme: str, fast_backend: str, device: str
) -> None:
    problem = problem_of(scheme, 40, device, V=1, Q=1, batch=(3,))
    c, w_init = problem.c.clone(), problem.w_init.clone()
    c[1], w_init[1] = 0.0, 0.0  # nothing is said about sample 1 but that it is smooth
    problem = problem._replace(c=c, w_init=w_init)
    good = [0, 2]
    whole = backend_named(fast_backend).plan(problem, 1).solve()
    y_size = whole.y[0].numel()
    for P in PIECES:
        solved = backend_named(fast_backend).plan(problem, P).solve()
        _, rcond, weakest = solved.diagnostics.tensors()
        assert bool((rcond[good] > 1e-8).all())
        assert bool(((weakest >= 0) & (weakest < y_size)).all())
        assert not float(rcond[1]) > 1e-14
        assert relative(solved.y[good], whole.y[good]) < 1e-11


GRADIENTS = ("c", "d", "u", "s", "w_gov", "w_init", "w_smooth")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"V": 1, "Q": 1, "R": 4, "R_init": 3, "batch": (1,)},
        {"V": 3, "Q": 2, "R": 1, "batch": (20,)},
        {"weights": "tensor", "T_init": 17},
        {"T_init": 0, "Q": 3},
        {"constant": "cds", "shared": "cs"},
    ],
    ids=str,
)
def test_gradients_in_pieces(
    extra: dict[str, object], scheme: str, fast_backend: str, device: str
) -> None:
    """Compare with tensor expressions of the rows, for pieces of uneven length."""
    engine = backend_named(fast_backend)
    problem = problem_of(scheme, 37, device, **extra)
    gy = torch.randn(problem.y_shape, generator=torch.Generator().manual_seed(5)).to(problem.c)
    y = engine.plan(problem, 1).solve().y
    factor = engine.plan(problem, 1).solve().factor
    expected = row_gradients(problem, engine.plan(problem, 1).adjoint(factor, gy), y)
    for P in (1, 3, 8):
        factor = engine.plan(problem, P).solve().factor
        found = engine.plan(problem, P).gradients(problem.tensors, y, factor, gy, [True] * 7)
        for name, a, b in zip(GRADIENTS, found, expected, strict=True):
            assert a.shape == b.shape
            assert b.numel() == 0 or relative(a, b) < 1e-9, (P, name)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("B", "T"), [(1, 5), (1, 17), (3, 40), (40, 3)])
def test_row_gradients_of_any_size(
    B: int, T: int, scheme: str, fast_backend: str, device: str
) -> None:
    """For any number of lanes, and any layout of `lam` and `y`."""
    problem = problem_of(scheme, T, device, batch=(B,), weights="tensor")
    y = torch.randn(problem.y_shape, generator=torch.Generator().manual_seed(1)).to(problem.c)
    lam = y.flip(0, 1).transpose(0, 1).contiguous().transpose(0, 1)
    found = backend_named(fast_backend).row_gradients(problem, lam, y, [True] * 7)
    for name, a, b in zip(GRADIENTS, found, row_gradients(problem, lam, y), strict=True):
        assert relative(a, b) < 1e-11, name


@pytest.mark.parametrize("scheme", SCHEMES)
def test_automatic_number_of_pieces_is_valid(scheme: str, fast_backend: str, device: str) -> None:
    """For all sizes, pieces are longer than their separators."""
    del device
    for B in (0, 1, 2, 3, 7, 8, 100):
        for T in (1, 2, 3, 47, 48, 49, 100, 1000, 10**6):
            P = backend_named(fast_backend).pieces(B, T, 6, 2 if scheme == "central" else 1)
            # On a GPU, 0: lanes share a sequence; -1, with --reduced: odd-even reduction.
            assert P in (-1, 0, 1) or possible(T, P, scheme)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("batch", [(1,), (40,)])
def test_number_of_threads(
    batch: tuple[int, ...], scheme: str, fast_backend: str, device: str
) -> None:
    case = random_problem(
        2, T=300, V=2, R_init=1, batch=batch, scheme=scheme, device=device, limit=None
    )
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        inputs = [x.detach().clone().requires_grad_() for x in case.args]
        y = case.replace(**dict(zip("cdus", inputs))).solve(fast_backend)
        results.append([y, *torch.autograd.grad(y.square().sum(), inputs)])
    for other in results[1:]:
        assert max(relative(a, b) for a, b in zip(other, results[0])) < 1e-12
