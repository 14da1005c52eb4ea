"""Many right-hand sides for one factor, in leading axes before the batch."""

import pytest
import torch
from torch import Tensor

import smnn
from helpers import SCHEMES, Case, random_problem, relative


def setting(device: str, **extra: object) -> tuple[Case, Tensor, Tensor]:
    """Three samples, and five right-hand sides for each."""
    case = random_problem(2, batch=(3,), R_init=1, device=device, **extra)
    generator = torch.Generator().manual_seed(1)
    d, u = (
        torch.randn(5, *x.shape, generator=generator, dtype=x.dtype).to(device)
        for x in case.args[1:3]
    )
    return case, d, u


def factor(case: Case, backend: str) -> smnn.Factorization:
    c, _, _, s = case.args
    return smnn.factorize(c, s, init_shape=(1, 2), **case.kw, backend=backend)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_right_hand_side_is_solved(scheme: str, backend: str, device: str) -> None:
    case, d, u = setting(device, scheme=scheme)
    y = factor(case, backend).solve(d, u)
    assert y.shape == (5, 3, 6, 2, 3)
    for k in range(5):
        assert relative(y[k], case.replace(d=d[k], u=u[k]).solve(backend)) < 1e-9


def test_axes_broadcast(fast_backend: str, device: str) -> None:
    case, d, u = setting(device)
    kept = factor(case, fast_backend)
    expected = kept.solve(d, u[:1].expand_as(u))
    assert relative(kept.solve(d, u[:1]), expected) < 1e-12
    assert relative(kept.solve(d, u[0]), expected) < 1e-12
    grid = kept.solve(d[:, None], u[None, :2])
    assert grid.shape == (5, 2, 3, 6, 2, 3)
    assert relative(grid[4, 1], kept.solve(d[4], u[1])) < 1e-12
    constant = kept.solve(d[:, :, :1], u[:, :1])  # time and batch of size 1
    assert relative(constant[3], kept.solve(d[3, :, :1].expand_as(d[3]), u[3, :1])) < 1e-12
    assert kept.solve(d[:0], u[:0]).shape == (0, 3, 6, 2, 3)


def test_factor_without_batch(fast_backend: str, device: str) -> None:
    case = random_problem(2, R_init=1, device=device)
    d = torch.stack([case.args[1], 2 * case.args[1]])
    y = factor(case, fast_backend).solve(d, case.args[2])
    assert y.shape == (2, 6, 2, 3)
    assert relative(y[1], case.replace(d=d[1]).solve(fast_backend)) < 1e-9


def test_gradients(fast_backend: str, device: str) -> None:
    case, d, u = setting(device)
    c = case.args[0].clone().requires_grad_()
    inputs = c, d.requires_grad_(), u.requires_grad_()
    y = factor(case.replace(c=c), fast_backend).solve(d, u)
    got = torch.autograd.grad(y.square().sum(), inputs)
    each = [case.replace(c=c, d=d[k], u=u[k]).solve(fast_backend) for k in range(5)]
    expected = torch.autograd.grad(torch.stack(each).square().sum(), inputs)
    assert all(relative(a, b) < 1e-8 for a, b in zip(got, expected))


def test_float32(fast_backend: str, device: str) -> None:
    case, d, u = setting(device)
    low = factor(case.to(torch.float32), fast_backend).solve(d.float(), u.float())
    assert low.dtype == torch.float32
    assert relative(low, factor(case, fast_backend).solve(d, u)) < 1e-4


@pytest.mark.parametrize(
    ("d", "u", "message"),
    [
        ((5, 3, 6, 2), (4, 3, 1, 2, 2), r"u: got \(4,\) in front of the batch; expected \(5,\)"),
        ((5, 3, 6, 2), (1, 5, 3, 1, 2, 2), r"u: got \(1, 5\) in front of the batch"),
        ((5, 4, 6, 2), (5, 3, 1, 2, 2), r"d: got shape \(4, 6, 2\); expected \(3, 6, 2\)"),
        ((5, 3, 6, 2), (5, 3, 1, 2, 1), r"u: got shape \(3, 1, 2, 1\); expected \(3, 1, 2, 2\)"),
    ],
)
def test_right_hand_sides_of_the_wrong_shape(
    d: tuple[int, ...], u: tuple[int, ...], message: str
) -> None:
    case, _, _ = setting("cpu")
    like = {"dtype": torch.float64}
    with pytest.raises(smnn.ShapeError, match=f"^{message}"):
        factor(case, "auto").solve(torch.zeros(d, **like), torch.zeros(u, **like))


def test_inside_compile(fast_backend: str, device: str) -> None:
    """The factor is created outside or inside, with gradients."""
    torch.compiler.reset()
    case, d, u = setting(device)
    d, u = d[:2], u[:2]
    kept = factor(case, fast_backend)

    def solve(d: Tensor, u: Tensor) -> Tensor:
        return kept.solve(d, u)

    def from_the_start(c: Tensor, d: Tensor, u: Tensor) -> Tensor:
        return factor(case.replace(c=c), fast_backend).solve(d, u)

    expected = kept.solve(d, u)
    compiled = torch.compile(solve, fullgraph=True, backend="eager")
    assert relative(compiled(d, u), expected) < 1e-11
    compiled = torch.compile(from_the_start, fullgraph=True, backend="aot_eager")
    c = case.args[0].clone().requires_grad_()
    y = compiled(c, d, u)
    assert relative(y, expected) < 1e-11
    (got,) = torch.autograd.grad(y.square().sum(), c)
    (plain,) = torch.autograd.grad(from_the_start(c, d, u).square().sum(), c)
    assert relative(got, plain) < 1e-9
