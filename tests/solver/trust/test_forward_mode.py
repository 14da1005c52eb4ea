"""Derivatives along a direction: `torch.func.jvp`, `jacfwd`, `hessian`, and dual numbers."""

import pytest
import torch
import torch.autograd.forward_ad as forward
from torch import Tensor

import smnn
from helpers import NAMES, SCHEMES, random_problem, relative

Tensors = tuple[Tensor, ...]


def setting(scheme: str, device: str = "cpu", **extra: object) -> tuple[Tensors, Tensors]:
    """The seven tensors of a small batch, and a direction for each."""
    options = {"batch": (2,), "R_init": 1, "weights": "tensor", "per_variable": True} | extra
    case = random_problem(1, scheme=scheme, device=device, **options)
    tensors = *case.args, *(case.kw[k] for k in NAMES[4:])
    generator = torch.Generator().manual_seed(2)
    directions = tuple(
        torch.randn(x.shape, generator=generator, dtype=x.dtype).to(device) for x in tensors
    )
    return tensors, directions


def solution(*x: Tensor, **options: object) -> Tensor:
    w_gov, w_init, w_smooth = x[4:]
    return smnn.solve(*x[:4], w_gov=w_gov, w_init=w_init, w_smooth=w_smooth, **options)


@pytest.mark.parametrize("wanted", [False, True], ids=["plain", "requires grad"])
@pytest.mark.parametrize("keep_factor", [False, True])
def test_dual_numbers(wanted: bool, keep_factor: bool, backend: str, device: str) -> None:
    """The tangent was once lost silently where no gradient was required."""
    tensors, directions = setting("smnn", device)

    def f(*x: Tensor) -> Tensor:
        return solution(*x, backend=backend, keep_factor=keep_factor)

    expected = torch.func.jvp(f, tensors, directions)[1]
    for _ in range(2):  # whatever the solver remembers of the first call
        with forward.dual_level():
            dual = [
                forward.make_dual(x.clone().requires_grad_(wanted), t)
                for x, t in zip(tensors, directions)
            ]
            tangent = forward.unpack_dual(f(*dual)).tangent
        assert tangent is not None
        assert relative(tangent.detach(), expected) < 1e-11


def test_one_dual_argument(backend: str, device: str) -> None:
    """Cached plans must not be used for dual tensors."""
    (c, d, u, s, *_), (dc, *_) = setting("smnn", device)
    leaf = c.clone().requires_grad_()
    y = smnn.solve(leaf, d, u, s, backend=backend)
    (slope,) = torch.autograd.grad(y.square().sum(), leaf)
    with forward.dual_level():
        y = smnn.solve(forward.make_dual(c, dc), d, u, s, backend=backend).square().sum()
        found = forward.unpack_dual(y).tangent
    assert relative(found, (slope * dc).sum()) < 1e-9
    with forward.dual_level():  # no argument is dual
        plain = smnn.solve(c, d, u, s, backend=backend)
        assert forward.unpack_dual(plain).tangent is None
    assert relative(plain.square().sum(), y.detach()) < 1e-12


@pytest.mark.parametrize("scheme", SCHEMES)
def test_gradcheck(scheme: str, fast_backend: str, device: str) -> None:
    tensors, _ = setting(scheme, device, T=3)
    leaves = [x.clone().requires_grad_() for x in tensors]

    def f(*x: Tensor) -> Tensor:
        return solution(*x, scheme=scheme, backend=fast_backend)

    checks = {"check_forward_ad": True, "check_batched_forward_grad": True, "fast_mode": True}
    assert torch.autograd.gradcheck(f, leaves, **checks)
    assert torch.autograd.gradgradcheck(f, leaves, check_fwd_over_rev=True, fast_mode=True)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_jacobian_and_hessian(scheme: str, fast_backend: str, device: str) -> None:
    """Forward mode, reverse mode, and their combinations."""
    tensors, _ = setting(scheme, device, T=3, V=1, Q=1)

    def f(c: Tensor, s: Tensor) -> Tensor:
        c_and_rest = c, *tensors[1:3], s, *tensors[4:]
        return solution(*c_and_rest, scheme=scheme, backend=fast_backend)

    def loss(c: Tensor, s: Tensor) -> Tensor:
        return f(c, s).pow(3).sum()

    at, both = (tensors[0], tensors[3]), (0, 1)
    func = torch.func
    for ours, theirs in zip(func.jacfwd(f, both)(*at), func.jacrev(f, both)(*at)):
        assert relative(ours, theirs) < 1e-10
    expected = func.jacrev(func.jacrev(loss, both), both)(*at)
    for found in (func.hessian(loss, both)(*at), func.jacrev(func.jacfwd(loss, both), both)(*at)):
        for ours, theirs in zip(found, expected):
            assert all(relative(a, b) < 1e-9 for a, b in zip(ours, theirs))


def test_forward_mode_inside_forward_mode_is_refused(fast_backend: str, device: str) -> None:
    """PyTorch loses the second tangent, so this is an error."""
    (c, d, u, s, *_), _ = setting("smnn", device)

    def loss(c: Tensor) -> Tensor:
        return smnn.solve(c, d, u, s, backend=fast_backend).square().sum()

    with pytest.raises(NotImplementedError, match=r"inside forward mode; for second .*hessian"):
        torch.func.jacfwd(torch.func.jacfwd(loss))(c)


def test_jvp_through_a_factorization(fast_backend: str, device: str) -> None:
    (c, d, u, s, *_), (dc, dd, du, ds, *_) = setting("smnn", device)

    def through(c: Tensor, d: Tensor, u: Tensor, s: Tensor) -> Tensor:
        kept = smnn.factorize(c, s, init_shape=(1, 2), backend=fast_backend)
        return kept.solve(d, u)

    def plain(*x: Tensor) -> Tensor:
        return smnn.solve(*x, backend=fast_backend)

    ways = [torch.func.jvp(f, (c, d, u, s), (dc, dd, du, ds))[1] for f in (through, plain)]
    assert relative(*ways) < 1e-9


def test_float32_condition_and_failed_samples(fast_backend: str, device: str) -> None:
    (c, d, u, s, *_), (dc, *_) = setting("smnn", device)
    bad = c.clone()
    bad[1, 2] = torch.nan

    def f(c: Tensor) -> Tensor:
        return smnn.solve_ex(c, d, u, s, backend=fast_backend, condition=True)[0]

    whole = torch.func.jvp(f, (c,), (dc,))[1]
    tangent = torch.func.jvp(f, (bad,), (dc,))[1]
    assert relative(tangent[0], whole[0]) < 1e-11
    assert tangent[1].isnan().all()
    low = [x.float() for x in (c, d, u, s)]

    def g(c: Tensor) -> Tensor:
        return smnn.solve(c, *low[1:], backend=fast_backend)

    y, tangent = torch.func.jvp(g, (low[0],), (dc.float(),))
    assert (y.dtype, tangent.dtype) == (torch.float32, torch.float32)
    assert relative(tangent, whole) < 1e-3


def test_without_initial_values(fast_backend: str, device: str) -> None:
    """Where `solve` estimates the condition number itself."""
    (c, d, u, s, *_), (dc, *_) = setting("smnn", device, Q=6)
    none = u[:, :0]

    def f(c: Tensor) -> Tensor:
        return smnn.solve(c, d, none, s, backend=fast_backend)

    leaf = c.clone().requires_grad_()
    (slope,) = torch.autograd.grad(f(leaf).sum(), leaf)
    tangent = torch.func.jvp(f, (c,), (dc,))[1]
    assert relative(tangent.sum(), (slope * dc).sum()) < 1e-8
