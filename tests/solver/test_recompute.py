"""`keep_factor=False`: the same results, without a factor that outlives the call."""

import pytest
import torch
from torch import Tensor

import smnn
from helpers import random_problem
from solver.internals import eager

SCHEMES = ("smnn", "central")


def _leaves(args: tuple[Tensor, ...]) -> list[Tensor]:
    return [x.detach().clone().requires_grad_() for x in args]


def test_only_the_inputs_are_saved(fast_backend: str, device: str) -> None:
    case = random_problem(3, T=40, V=1, Q=1, R=2, batch=(5,), device=device)
    sizes = {}
    for keep in (True, False):
        kept: list[Tensor] = []

        def pack(x: Tensor, kept: list[Tensor] = kept) -> Tensor:
            kept.append(x)
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            smnn.solve_ex(*_leaves(case.args), backend=fast_backend, keep_factor=keep)
        sizes[keep] = sum({x.data_ptr(): x.untyped_storage().nbytes() for x in kept}.values())
    inputs = sum(x.untyped_storage().nbytes() for x in case.args)
    assert sizes[False] <= inputs + 3 * 8 * 64  # and the three weights, which are numbers
    assert sizes[True] > 3 * sizes[False]


@pytest.mark.parametrize("part", [1, 2**26])
@pytest.mark.parametrize(
    ("wanted", "scheme"), [("cdus", "smnn"), ("cdus", "central"), ("c", "smnn"), ("us", "smnn")]
)
def test_values_and_gradients(
    part: int,
    wanted: str,
    scheme: str,
    fast_backend: str,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two batch axes, some shared, some not contiguous; saved tensors that a hook repacks."""
    monkeypatch.setattr(eager, "PART", part)
    case = random_problem(3, T=9, V=2, Q=2, R=2, batch=(3, 5), device=device)
    c, d, u, s = (x.detach().clone() for x in case.args)
    every = [c[:1], d[:, ::2], u[:, :1], s.transpose(0, 1).contiguous().transpose(0, 1)[:, ::2]]
    every[0] = every[0][:, ::2]
    answers = []
    for keep in (True, False, False):
        leaves = [
            x.detach().requires_grad_(n in wanted) for n, x in zip("cdus", every, strict=True)
        ]
        followed = [x for x in leaves if x.requires_grad]
        pack = (lambda x: x.contiguous()) if len(answers) == 2 else (lambda x: x)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            y = smnn.solve(*leaves, scheme=scheme, backend=fast_backend, keep_factor=keep)
        g = torch.cos(torch.arange(y.numel(), dtype=y.dtype, device=device)).view_as(y)
        answers.append([y.detach(), *torch.autograd.grad(y, followed, g)])
    for found in answers[1:]:
        for a, b in zip(found, answers[0], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_second_derivatives(scheme: str) -> None:
    case = random_problem(5, T=4, V=1, Q=1, R=1, batch=(2,))

    def solve(*x: Tensor) -> Tensor:
        return smnn.solve(*x, scheme=scheme, keep_factor=False)

    leaves = _leaves(case.args)
    assert torch.autograd.gradcheck(solve, leaves)
    assert torch.autograd.gradgradcheck(solve, leaves)


def test_failed_samples_are_reported(fast_backend: str, device: str) -> None:
    case = random_problem(1, T=6, V=1, Q=1, R=2, batch=(4,), device=device)
    c = case.args[0].clone()
    c[2] = torch.nan
    with pytest.raises(smnn.SolveError, match=r"sample \(2,\): c contain NaN"):
        smnn.solve(c, *case.args[1:], backend=fast_backend, keep_factor=False)
    y, info = smnn.solve_ex(c, *case.args[1:], backend=fast_backend, keep_factor=False)
    assert info.status.tolist() == [0, 0, 2, 0]
    assert y[2].isnan().all()
    assert y[[0, 1, 3]].isfinite().all()


def test_inside_torch_func() -> None:
    case = random_problem(2, T=5, V=1, Q=1, R=1, batch=(3,))
    c, d, u, s = case.args

    def loss(d: Tensor) -> Tensor:
        return smnn.solve_ex(c, d, u, s, keep_factor=False)[0].square().sum()

    want = torch.autograd.grad(
        smnn.solve(c, x := d.clone().requires_grad_(), u, s).square().sum(), x
    )
    torch.testing.assert_close(torch.func.grad(loss)(d), want[0])


def test_wrong_shape() -> None:
    c, d, u, s = random_problem(2, T=5, batch=(3,)).args
    for _ in range(2):
        smnn.solve(c, d, u, s, keep_factor=False)
        with pytest.raises(smnn.ShapeError, match="u: got"):
            smnn.solve(c, d, u[..., :0, :], s, keep_factor=False)
