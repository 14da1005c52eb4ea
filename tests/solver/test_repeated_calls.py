"""Repeated calls with the same layout, which share a cached plan, are correct."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import smnn
from helpers import OPTIONS, SCHEMES, Case, option, random_problem, relative, same
from solver.internals import plan

PLAIN = [name for name, extra in OPTIONS.items() if "weights" not in extra]


def solve_and_differentiate(case: Case, backend: str) -> list[Tensor]:
    """The solution, first derivatives, and second derivatives by `c`."""
    leaves = {k: x.detach().requires_grad_() for k, x in zip("cdus", case.args)}
    y = case.replace(**leaves).solve(backend)
    first = torch.autograd.grad(y.square().sum(), list(leaves.values()), create_graph=True)
    total = sum(g.square().sum() for g in first)
    second = torch.autograd.grad(total, [leaves["c"], leaves["s"]], materialize_grads=True)
    return [y, *first, *second]


def as_if_first(case: Case, backend: str) -> list[Tensor]:
    """The same with weights that are tensors: such calls use no cached plan."""
    one = case.args[0].new_ones(())
    return solve_and_differentiate(case.replace(w_gov=one), backend)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PLAIN)
def test_second_call_for_every_option(
    name: str, scheme: str, fast_backend: str, device: str
) -> None:
    for seed in range(3):
        case = option(name, seed, scheme=scheme, device=device)
        got = solve_and_differentiate(case, fast_backend)
        assert relative(got[0], case.oracle()) < 1e-9
        assert same(got, as_if_first(case, fast_backend), 1e-8)


EXPANDED: dict[str, Callable[[Tensor], Tensor]] = {
    "batch": lambda x: x[:1].expand(3, *x.shape[1:]),
    "batch, constant in time": lambda x: x[:1, :1].expand(3, 1, *x.shape[2:]),
    "time": lambda x: x[:, :1].expand_as(x),
    "time of one sample": lambda x: x[:1, :1].expand(1, *x.shape[1:]),
    "everything": lambda x: x.flatten()[0].expand_as(x),
    "transposed": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "every second": lambda x: torch.stack([x, x], 1).flatten(0, 1)[::2],
}


@pytest.mark.parametrize("name", ["c", "d", "s"])
@pytest.mark.parametrize("how", EXPANDED)
def test_views_of_the_caller(how: str, name: str, fast_backend: str, device: str) -> None:
    """Inputs may be views that the caller has expanded."""
    for seed in range(3):
        case = random_problem(seed, batch=(3,), T_init=3, R_init=2, device=device, limit=None)
        view = EXPANDED[how](case.tensors()[name])
        got = []
        for extra in ({}, {"w_gov": view.new_ones(())}):
            leaf = view.detach().requires_grad_()
            y = case.replace(**{name: leaf}, **extra).solve(fast_backend)
            got.append([y, *torch.autograd.grad(y.square().sum(), leaf)])
        assert got[0][1].shape == view.shape
        assert same(got[0], got[1])


def test_order_shares_the_plan_of_padded_coefficients() -> None:
    """`order=` pads coefficients, and shares the plan of coefficients padded beforehand."""
    case = random_problem(1, batch=(2,), R=2)
    padded = case.replace(c=torch.nn.functional.pad(case.args[0], (0, 2)))
    want = padded.solve("cpu")
    count = len(plan._plans)
    assert torch.equal(case.replace(order=4).solve("cpu"), want)
    assert len(plan._plans) == count


def test_new_values_are_used(fast_backend: str, device: str) -> None:
    """New values in the same memory are used."""
    case = random_problem(1, batch=(2,), device=device)
    case.solve(fast_backend)
    for name in "cdus":
        case.tensors()[name].mul_(1.5)
        assert relative(case.solve(fast_backend), case.oracle()) < 1e-9


def test_options_are_part_of_the_layout(fast_backend: str, device: str) -> None:
    """The same shapes with another scheme, weight, number of times or dtype."""
    case = random_problem(1, batch=(2,), T=6, constant="cds", device=device)
    for change in (
        {}, {"scheme": "central"}, {"w_gov": 2.0}, {"w_init": 2.0}, {"w_smooth": 2.0},
        {"n_steps": 7}, {"order": 3}, {"scheme": "central", "n_steps": 8},
    ):  # fmt: skip
        for _ in range(2):
            this = case.replace(**change)
            assert relative(this.solve(fast_backend), this.oracle()) < 1e-9
    low = case.to(torch.float32)
    assert low.solve(fast_backend).dtype == torch.float32


def test_errors_are_raised_on_every_call(fast_backend: str, device: str) -> None:
    case = random_problem(1, batch=(2,), device=device)
    case.solve(fast_backend)
    c = case.args[0].clone()
    c[1, 3] = torch.nan
    for _ in range(2):
        with pytest.raises(smnn.SolveError, match=r"sample \(1,\): c contain NaN"):
            case.replace(c=c).solve(fast_backend)
        y, info = smnn.solve_ex(*case.replace(c=c).args, backend=fast_backend)
        assert info.status.tolist() == [0, 2]
        assert y[1].isnan().all()


def test_hooks_may_repack_saved_tensors(fast_backend: str, device: str) -> None:
    """Offloaded tensors come back contiguous; the kernels must not look for the old layout."""
    case = random_problem(1, T=6, V=2, Q=2, R=2, batch=(3,), device=device)
    inputs = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in case.args]
    inputs[0] = inputs[0][:1].expand_as(inputs[0])
    inputs = [x.detach().requires_grad_() for x in inputs]

    def found() -> tuple[torch.Tensor, ...]:
        y = smnn.solve_ex(*inputs, backend=fast_backend)[0]
        return torch.autograd.grad(y.square().sum(), inputs)

    def packed(x: torch.Tensor) -> torch.Tensor:
        return x.clone(memory_format=torch.contiguous_format)

    want = found()
    for _ in range(3):
        with torch.autograd.graph.saved_tensors_hooks(packed, lambda x: x):
            torch.testing.assert_close(found(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weight", [1.0, torch.ones((), dtype=torch.float64)], ids=type)
def test_hooks_must_not_change_the_dtype(weight: float | Tensor) -> None:
    """The kernels would read past the end of a tensor in single precision."""
    case = random_problem(1, T=6, batch=(3,)).replace(w_gov=weight)
    for x in case.args:
        x.requires_grad_()
    for _ in range(2):
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x.float(), lambda x: x):
            y = case.solve("cpu")
        with pytest.raises(
            RuntimeError, match=r"got torch\.float32 on cpu; expected torch\.float64"
        ):
            y.sum().backward()


def negative_view(x: Tensor) -> Tensor:
    """A view with the negative bit set: the memory holds the opposite numbers."""
    view = torch.complex(torch.zeros_like(x), -x).conj().imag
    assert view.is_neg()
    return view


@pytest.mark.parametrize("engine", ["cpu", "torch"])
@pytest.mark.parametrize("names", ["c", "d", "u", "s", "cdus"])
def test_negative_views(names: str, engine: str) -> None:
    case = random_problem(1, batch=(2,))
    inputs = {k: x.detach().requires_grad_() for k, x in case.tensors().items()}
    y = case.replace(**inputs).solve(engine)
    want = torch.autograd.grad(y.square().sum(), list(inputs.values()))
    for _ in range(2):
        views = {k: negative_view(x) if k in names else x for k, x in inputs.items()}
        again = case.replace(**views).solve(engine)
        got = torch.autograd.grad(again, list(inputs.values()), negative_view(2 * y.detach()))
        assert torch.equal(again, y)
        assert same(got, want, 1e-12)


def test_tensor_without_memory_is_refused() -> None:
    """PyTorch represents zeros in derivatives by such tensors."""
    c, d, u, s = random_problem(1, batch=(2,)).args
    zero = torch._efficientzerotensor(d.shape, dtype=d.dtype)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"d is a ZeroTensor.*torch\.zeros"):
            smnn.solve(c, zero, u, s, backend="cpu")
        smnn.solve(c, d, u, s, backend="cpu")
