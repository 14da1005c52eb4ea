"""`factorize` gives the results of `solve` for any right-hand side."""

from typing import Any

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import smnn
from helpers import OPTIONS, SCHEMES, Case, option, random_problem, relative


def factor(case: Case, backend: str) -> smnn.Factorization:
    c, _, u, s = case.args
    shape = u.shape[-3], u.shape[-1]
    return smnn.factorize(c, s, init_shape=shape, **known_times(case), backend=backend)


def known_times(case: Case) -> dict[str, Any]:
    """Without `d`, the number of times may have to be said."""
    c, d, _, s = case.args
    nb = c.ndim - 4
    times = case.kw.get("n_steps") or max(c.shape[nb], d.shape[nb], s.shape[nb] + 1)
    return case.kw | {"n_steps": times}


def full_batch(case: Case) -> Case:
    """The batch of a factor is that of `c` and `s`: they carry it here."""
    batch = torch.broadcast_shapes(*(x.shape[: case.args[0].ndim - 4] for x in case.args))
    c = case.args[0]
    return case.replace(c=c.expand(*batch, *c.shape[len(batch) :]))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", OPTIONS)
def test_every_option(name: str, scheme: str, backend: str, device: str) -> None:
    case = full_batch(option(name, 1, scheme=scheme, device=device))
    _, d, u, _ = case.args
    assert relative(factor(case, backend).solve(d, u), case.solve(backend)) < 1e-9


def test_changing_c_afterwards_changes_nothing(fast_backend: str, device: str) -> None:
    case = random_problem(2, batch=(3,), R_init=1, device=device)
    c = case.args[0].clone()
    kept = factor(case.replace(c=c), fast_backend)
    c.mul_(3.0)
    assert relative(kept.solve(*case.args[1:3]), case.solve(fast_backend)) < 1e-9


@pytest.mark.parametrize("scheme", SCHEMES)
def test_differentiable_in_everything(scheme: str, fast_backend: str, device: str) -> None:
    case = random_problem(
        4, T=4, V=1, Q=2, R=2, R_init=1, weights="tensor", scheme=scheme, device=device, limit=300.0
    )
    names = list(case.tensors())

    def f(*x: torch.Tensor) -> torch.Tensor:
        new = case.replace(**dict(zip(names, x)))
        return factor(new, fast_backend).solve(*new.args[1:3])

    inputs = [x.detach().requires_grad_() for x in case.tensors().values()]
    assert gradcheck(f, inputs, atol=1e-6, rtol=1e-5)
    got = torch.autograd.grad(f(*inputs).square().sum(), inputs)
    y = case.replace(**dict(zip(names, inputs))).solve(fast_backend)
    assert all(
        relative(a, b) < 1e-8 for a, b in zip(got, torch.autograd.grad(y.square().sum(), inputs))
    )
    assert gradgradcheck(f, inputs, fast_mode=True, atol=1e-5, rtol=1e-3)


def test_gradients_through_several_solves(fast_backend: str, device: str) -> None:
    """One factor, two solves, one backward."""
    case = random_problem(4, R_init=1, device=device)
    c = case.args[0].clone().requires_grad_()
    _, d, u, _ = case.args
    kept = factor(case.replace(c=c), fast_backend)
    (got,) = torch.autograd.grad((kept.solve(d, u) * kept.solve(2 * d + 1, u)).sum(), c)
    case = case.replace(c=c)
    product = case.solve(fast_backend) * case.replace(d=2 * d + 1).solve(fast_backend)
    (expected,) = torch.autograd.grad(product.sum(), c)
    assert relative(got, expected) < 1e-8


def test_info_and_errors(fast_backend: str, device: str) -> None:
    case = random_problem(4, batch=(3,), R_init=1, device=device)
    assert factor(case, fast_backend).info.status.tolist() == [0, 0, 0]
    c = case.args[0].clone()
    c[1] = 0.0
    broken = case.replace(c=c)
    with pytest.raises(smnn.SolveError, match=r"sample \(1,\): singular"):
        factor(broken, fast_backend)
    kept = factor(broken.replace(check=False), fast_backend)
    assert kept.info.status.tolist() == [0, 3, 0]
    y = kept.solve(*case.args[1:3])
    assert relative(y[[0, 2]], case.solve(fast_backend)[[0, 2]]) < 1e-9
    assert y[1].isnan().all()


@pytest.mark.parametrize(
    ("d", "u", "message"),
    [
        ((3, 6, 3), (3, 1, 2, 2), r"d: got shape \(3, 6, 3\); expected \(3, 6, 2\)"),
        ((2, 6, 2), (3, 1, 2, 2), r"d: got shape \(2, 6, 2\); expected \(3, 6, 2\)"),
        ((6, 2), (3, 1, 2, 2), r"d: got shape \(6, 2\)"),
        ((3, 6, 2), (3, 2, 2, 2), r"u: got shape \(3, 2, 2, 2\); expected \(3, 1, 2, 2\)"),
        ((3, 6, 2), (3, 1, 2, 1), r"u: got shape \(3, 1, 2, 1\)"),
    ],
)
def test_wrong_right_hand_side(d: tuple[int, ...], u: tuple[int, ...], message: str) -> None:
    case = random_problem(4, batch=(3,), R_init=1)
    like = {"dtype": torch.float64}
    with pytest.raises(smnn.ShapeError, match=f"^{message}"):
        factor(case, "auto").solve(torch.zeros(d, **like), torch.zeros(u, **like))


def test_wrong_type_of_right_hand_side() -> None:
    kept, (_, d, u, _) = factor(case := random_problem(4, R_init=1), "auto"), case.args
    with pytest.raises(smnn.ShapeError, match=r"d: got torch\.float32 on cpu; expected a tensor"):
        kept.solve(d.float(), u)
    with pytest.raises(smnn.ShapeError, match=r"u: got list; expected a tensor of torch\.float64"):
        kept.solve(d, [1.0])
