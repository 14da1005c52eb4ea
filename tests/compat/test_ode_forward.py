"""`ode_forward` of ScalableMNN: every argument, and what it got wrong."""

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

import smnn
from helpers import random_problem, relative
from smnn.compat import ode_forward

f64 = torch.float64


def steps_first(case: Any) -> list[Tensor]:
    """The arguments with the time axis in front."""
    return [x.movedim(-k, 0) for x, k in zip(case.args, (4, 2, 3, 1))]


def test_signature_is_the_published_one() -> None:
    found = inspect.signature(ode_forward).parameters
    assert [(name, p.default) for name, p in found.items()] == [
        ("coefficients", inspect.Parameter.empty), ("rhs_equation", inspect.Parameter.empty),
        ("init_vars", inspect.Parameter.empty), ("steps", inspect.Parameter.empty),
        ("n_steps", None), ("n_init_var_steps", None), ("is_step_dim_first", False),
        ("weight_equation", 1.0), ("weight_init_var", 1.0), ("weight_smooth", 1.0),
        ("enable_central_smoothness", False), ("prefer_cuda_graph", True),
        ("frozen_lhs_cache_version", 0),
    ]  # fmt: skip
    assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in found.values())


@pytest.mark.parametrize("central", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_against_the_oracle(
    batch: tuple[int, ...], first: bool, central: bool, device: str
) -> None:
    scheme = "central" if central else "smnn"
    case = random_problem(1, batch=batch, R_init=1, scheme=scheme, device=device)
    args = steps_first(case) if first else case.args
    y = ode_forward(*args, is_step_dim_first=first, enable_central_smoothness=central)
    assert relative(y.movedim(0, -3) if first else y, case.oracle()) < 1e-9


def test_transforms() -> None:
    """Compiled in one graph, mapped, and differentiated twice: none of it worked."""
    case = random_problem(9, T=4, V=1, Q=1, R_init=1)
    c, d, u, s = case.args

    def loss(c: Tensor) -> Tensor:
        return ode_forward(c, d, u, s).square().sum()

    torch.compiler.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    assert compiled(c).item() == pytest.approx(loss(c).item(), rel=1e-12)
    both = torch.vmap(loss)(torch.stack([c, 2 * c]))
    assert both[1].item() == pytest.approx(loss(2 * c).item(), rel=1e-12)
    x = c.clone().requires_grad_()
    (g,) = torch.autograd.grad(loss(x), x, create_graph=True)
    h = 1e-6 * torch.randn(c.shape, dtype=f64)
    (slope,) = torch.autograd.grad(g, x, h)
    (after,) = torch.autograd.grad(loss(y := (c + h).requires_grad_()), y)
    assert relative(slope, after - g.detach()) < 1e-3


def test_weights_are_numbers_or_tensors() -> None:
    case = random_problem(2, R_init=1)
    plain = case.replace(w_gov=2.0, w_init=0.5, w_smooth=3.0)
    found = ode_forward(*case.args, weight_equation=2, weight_init_var=0.5, weight_smooth=3.0)
    assert relative(found, plain.oracle()) < 1e-9
    w = torch.tensor([3.0], dtype=f64, requires_grad=True)
    ode_forward(*case.args, weight_smooth=w).square().sum().backward()
    v = torch.tensor(3.0, dtype=f64, requires_grad=True)
    case.replace(w_smooth=v).solve().square().sum().backward()
    assert w.grad.item() == pytest.approx(v.grad.item(), rel=1e-10)
    with pytest.raises(smnn.ShapeError, match=r"weight_smooth: got shape \(2,\); expected one num"):
        ode_forward(*case.args, weight_smooth=torch.ones(2))


def test_number_of_steps() -> None:
    """Told by any tensor; by `n_steps` if all are constant; two if nothing tells."""
    case = random_problem(3, T=7, R_init=1, constant="cds")
    c, d, u, s = case.args
    expected = case.oracle()
    assert relative(ode_forward(c, d, u, s, 7), expected) < 1e-9
    assert relative(ode_forward(c, d.expand(7, -1), u, s), expected) < 1e-9
    assert relative(ode_forward(c, d, u, s.expand(6)), expected) < 1e-9
    assert ode_forward(c, d, u, s).shape[0] == 2
    with pytest.raises(smnn.ShapeError, match="s: got 5 steps; expected 6 steps"):
        ode_forward(c, d, u, s.expand(5), n_steps=7)


def test_initial_values_are_repeated() -> None:
    case = random_problem(4, T_init=1)
    c, d, u, s = case.args
    found = ode_forward(c, d, u, s, n_init_var_steps=3)
    assert relative(found, case.replace(u=u.expand(3, 2, 1)).oracle()) < 1e-9
    with pytest.raises(
        smnn.ShapeError, match="init_vars: got 2 times; expected n_init_var_steps ="
    ):
        ode_forward(c, d, u.expand(2, 2, 1), s, n_init_var_steps=3)


def test_no_initial_values() -> None:
    """As the published sine notebook passes them."""
    case = random_problem(5, T_init=0, Q=3, batch=(1, 1))
    c, d, _, s = case.args
    u = torch.empty(1, 1, 0, 2, 0, dtype=f64)
    assert relative(ode_forward(c, d, u, s), case.oracle()) < 1e-9


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("size", [5, 6])
@pytest.mark.parametrize("shared", ["c", "d", "u", "s"])
def test_missing_batch_axes_are_never_confused_with_time(
    shared: str, size: int, first: bool
) -> None:
    """Silently wrong in the published code for B == T (error 8.9) or B == T - 1 (2.1)."""
    case = random_problem(6, T=6, batch=(size,), shared=shared, R_init=1)
    position = "cdus".index(shared)
    if first:
        args = steps_first(case)
        args[position] = args[position].squeeze(1)
        y = ode_forward(*args, is_step_dim_first=True).movedim(0, -3)
    else:
        args = list(case.args)
        args[position] = args[position].squeeze(0)
        y = ode_forward(*args)
    assert relative(y, case.oracle()) < 1e-9


def test_a_frozen_left_hand_side_is_never_stale() -> None:
    """The published cache ignores a new c (error 11) and loses gradients by c and the steps."""
    case = random_problem(7, batch=(4,), R_init=1)
    inputs = [x.clone().requires_grad_() for x in case.args]
    ode_forward(*inputs, frozen_lhs_cache_version=1)
    c, d, u, s = inputs
    y = ode_forward(2 * c, d, u, s, frozen_lhs_cache_version=1)
    expected = smnn.solve(2 * c, d, u, s)
    assert relative(y, expected) == 0
    got = torch.autograd.grad(y.square().sum(), inputs)
    for g, e in zip(got, torch.autograd.grad(expected.square().sum(), inputs)):
        assert relative(g, e) < 1e-12
    short = ode_forward(*(x[:2] for x in inputs), frozen_lhs_cache_version=1)
    assert relative(short, case.oracle()[:2]) < 1e-9


def test_dtype_follows_the_coefficients() -> None:
    """The published code takes float32 initial values and steps, and stops at the rest."""
    case = random_problem(8, R_init=1)
    c, d, u, s = case.args
    y = ode_forward(c, d.float(), u.float(), s.float())
    assert y.dtype == f64
    expected = smnn.solve(c, *(x.float().double() for x in (d, u, s)))
    assert relative(y, expected) == 0
    assert ode_forward(c.float(), d, u, s).dtype == torch.float32


def test_what_is_no_solution_is_an_error() -> None:
    """The published code returns 2.5e16 for this."""
    c = torch.zeros(10, 1, 1, 3, dtype=f64)
    with pytest.raises(smnn.SolveError, match="singular"):
        ode_forward(c, c.new_zeros(10, 1), c.new_ones(1, 1, 1), c.new_full((9,), 0.1))


def test_messages() -> None:
    c, d, u, s = random_problem(1).args
    with pytest.raises(TypeError, match=r"steps: got float; expected a torch\.Tensor"):
        ode_forward(c, d, u, 0.1)
    with pytest.raises(
        smnn.ShapeError, match=r"init_vars: got shape \(2, 1\); expected at least 3"
    ):
        ode_forward(c, d, u[0], s)
