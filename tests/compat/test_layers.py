"""`ODEINDLayer` and `ODESYSLayer` of mech-nn against the rows written out in NumPy."""

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import smnn
from baselines.mnn_oracle import mnn_oracle
from helpers import relative
from smnn.compat import ODEConfig, ODEINDLayer, ODESYSLayer, SolverType

f64 = torch.float64
IND = {"bs": 2, "order": 2, "n_ind_dim": 3, "n_iv": 2, "n_step": 9, "n_iv_steps": 1}
SYS = {
    "bs": 2, "order": 3, "n_ind_dim": 2, "n_dim": 2, "n_equations": 2, "n_iv": 1,
    "n_iv_steps": 3, "n_step": 8,
}  # fmt: skip


@pytest.fixture(autouse=True)
def config() -> Iterator[type[ODEConfig]]:
    """Whatever a test sets, the default is left behind."""
    yield ODEConfig
    ODEConfig.linear_solver, ODEConfig.cg_max_iter = SolverType.EXACT, 200


def ind_inputs(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    draw = [rng.standard_normal(n) for n in ((2, 3, 9, 3), (2, 3, 9), (2, 3, 2))]
    return *map(torch.as_tensor, draw), torch.as_tensor(rng.uniform(0.5, 1.5, (2, 3, 8)))


def sys_inputs(seed: int = 0, ends: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    sizes = (2, 2, 2, 8, 2, 4), (2, 2, 2, 8), (2, 2, 6 + ends)
    draw = [rng.standard_normal(n) for n in sizes]
    return *map(torch.as_tensor, draw), torch.as_tensor(rng.uniform(0.5, 1.5, (2, 2, 7, 2)))


def parameters(layer: type) -> list[tuple[str, Any]]:
    found = inspect.signature(layer).parameters.values()
    return [(p.name, p.default) for p in found if p.kind is p.POSITIONAL_OR_KEYWORD]


def test_arguments_are_the_published_ones() -> None:
    none = inspect.Parameter.empty
    assert parameters(ODEINDLayer) == [
        ("bs", none), ("order", none), ("n_ind_dim", none), ("n_iv", none), ("n_step", none),
        ("n_iv_steps", none), ("solver_dbl", True), ("gamma", 0.5), ("alpha", 0.1),
        ("central_diff", True), ("double_ret", False), ("device", None),
    ]  # fmt: skip
    assert parameters(ODESYSLayer) == [
        ("bs", none), ("order", none), ("n_ind_dim", none), ("n_dim", none), ("n_equations", none),
        ("n_iv", none), ("n_iv_steps", none), ("n_step", none), ("periodic_boundary", False),
        ("solver_dbl", True), ("gamma", 0.5), ("alpha", 0.1), ("double_ret", True),
        ("device", None),
    ]  # fmt: skip


@pytest.mark.parametrize("solver", ["exact", "sparse_qr", "dense_cholesky"])
def test_independent_equations(solver: str, device: str) -> None:
    coeffs, rhs, iv, steps = (x.to(device) for x in ind_inputs())
    layer = ODEINDLayer(**IND, gamma=0.3, alpha=0.7, double_ret=True, solver=solver)
    u0, u1, u2, eps, returned = layer(coeffs, rhs, iv, steps)
    assert u0.shape == u1.shape == u2.shape == (2, 3, 9)
    assert eps.shape == (6,)
    assert torch.equal(returned, steps.reshape(6, 8, 1))
    for b, k in np.ndindex(2, 3):
        c, d = coeffs[b, k][:, None, None], rhs[b, k][:, None]
        expected = mnn_oracle(c, d, iv[b, k].view(1, 1, 2), steps[b, k], 0.3 * 0.7)
        for r, u in enumerate((u0, u1, u2)):
            assert relative(u[b, k], expected.y[:, 0, r]) < 1e-10
        assert eps[3 * b + k].item() == pytest.approx(expected.eps, rel=1e-9)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("solver", ["exact", "dense_cholesky"])
def test_systems(solver: str, periodic: bool, device: str) -> None:
    """Equations before times, a step for every variable, and the ends behind the initial values."""
    coeffs, rhs, iv, steps = (x.to(device) for x in sys_inputs(ends=6 if periodic else 0))
    layer = ODESYSLayer(**SYS, periodic_boundary=periodic, solver=solver)
    u0, u1, u2, eps, u = layer(coeffs, rhs, iv, steps)
    assert u.shape == (2, 2, 8, 2, 4)
    for r, part in enumerate((u0, u1, u2)):
        assert torch.equal(part, u[..., r])
    for b, k in np.ndindex(2, 2):
        c, d = coeffs[b, k].movedim(0, 1), rhs[b, k].mT
        start = iv[b, k, :6].view(3, 2, 1)
        ends = iv[b, k, 6:].view(2, 3) if periodic else None
        expected = mnn_oracle(c, d, start, steps[b, k], 0.05, ends)
        assert relative(u[b, k], expected.y) < 1e-9
        assert eps[2 * b + k].item() == pytest.approx(expected.eps, rel=1e-8)


@pytest.mark.parametrize("layer", ["ind", "sys"])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("double_ret", [False, True])
@pytest.mark.parametrize("dtype", [f64, torch.float32])
def test_dtypes(layer: str, double: bool, double_ret: bool, dtype: torch.dtype) -> None:
    """Of the published layers: float64 only with both; gradients in the dtype of their input."""
    kind, sizes, inputs = (
        (ODEINDLayer, IND, ind_inputs()) if layer == "ind" else (ODESYSLayer, SYS, sys_inputs())
    )
    inputs = [x.to(dtype).requires_grad_() for x in inputs]
    *parts, last = kind(**sizes, solver_dbl=double, double_ret=double_ret)(*inputs)
    returned = f64 if double and double_ret else torch.float32
    assert {x.dtype for x in parts} == {returned}
    assert last.dtype == (returned if layer == "sys" else f64 if double else dtype)
    sum(x.sum() for x in parts).backward()
    assert {x.grad.dtype for x in inputs} == {dtype}
    assert all(bool(x.grad.any()) for x in inputs)


def test_only_the_order_of_elements_matters() -> None:
    coeffs, rhs, iv, steps = ind_inputs()
    layer = ODEINDLayer(**IND, double_ret=True)
    u0, *_ = layer(coeffs, rhs, iv, steps)
    flat, *_ = layer(coeffs.reshape(6, -1), rhs.flatten(), iv.view(-1), steps.view(6, 8))
    assert torch.equal(u0, flat)


def test_without_initial_values() -> None:
    """As `fit/sine.py` of mech-nn does."""
    coeffs, rhs, _, steps = ind_inputs()
    layer = ODEINDLayer(**IND | {"n_iv": 0}, double_ret=True)
    u0, *_ = layer(coeffs, rhs, None, steps)
    c, d = coeffs[0, 0][:, None, None], rhs[0, 0][:, None]
    expected = mnn_oracle(c, d, np.zeros((0, 1, 0)), steps[0, 0], 0.05)
    assert relative(u0[0, 0], expected.y[:, 0, 0]) < 1e-9


def test_periodic_without_initial_values() -> None:
    """The published layer drops these rows when there are no initial values."""
    coeffs, rhs, _, steps = sys_inputs()
    layer = ODESYSLayer(**SYS | {"n_iv": 0}, periodic_boundary=True)
    *_, u = layer(coeffs, rhs, None, steps)
    c, d = coeffs[0, 0].movedim(0, 1), rhs[0, 0].mT
    expected = mnn_oracle(c, d, np.zeros((0, 2, 0)), steps[0, 0], 0.05, np.zeros((2, 3)))
    assert relative(u[0, 0], expected.y) < 1e-9


def test_smnn_instead() -> None:
    coeffs, rhs, iv, steps = sys_inputs()
    *_, eps, u = ODESYSLayer(**SYS, solver=SolverType.LEAST_SQUARES)(coeffs, rhs, iv, steps)
    c, d = coeffs.flatten(0, 1).movedim(1, 2), rhs.flatten(0, 1).mT
    expected = smnn.solve(c, d, iv.view(4, 3, 2, 1), steps.flatten(0, 1))
    assert relative(u.flatten(0, 1), expected) < 1e-12
    assert torch.equal(eps, torch.zeros(4, dtype=f64))
    with pytest.raises(ValueError, match="S-MNN has no periodic rows"):
        ODESYSLayer(**SYS, periodic_boundary=True, solver="least_squares")


@pytest.mark.parametrize("name", ["SPARSE_INDIRECT_BLOCK_CG", "SPARSE_INDIRECT_CG"])
def test_conjugate_gradients(name: str, config: type[ODEConfig]) -> None:
    inputs = ind_inputs()
    expected = ODEINDLayer(**IND, double_ret=True)(*inputs)[0]
    config.linear_solver, config.cg_max_iter = SolverType[name], 500
    layer = ODEINDLayer(**IND, double_ret=True)
    assert relative(layer(*inputs)[0], expected) < 1e-8
    config.cg_max_iter = 5
    with pytest.warns(RuntimeWarning, match="did not converge for 6 of 6 samples within 5 iter"):
        layer(*inputs)


def test_solver_is_the_configured_one_unless_told(config: type[ODEConfig]) -> None:
    assert ODEINDLayer(**IND).solver is SolverType.EXACT
    config.linear_solver = SolverType.DENSE_CHOLESKY
    layer = ODEINDLayer(**IND)
    config.linear_solver = SolverType.LEAST_SQUARES
    assert layer.solver is SolverType.DENSE_CHOLESKY
    assert ODEINDLayer(**IND, solver="exact").solver is SolverType.EXACT
    assert "n_step=9, solver=DENSE_CHOLESKY" in repr(layer)


def test_layers_hold_no_state() -> None:
    layer = ODESYSLayer(**SYS)
    assert not layer.state_dict()
    assert not list(layer.parameters())
    read = ("n_ind_dim", "n_equations", "n_step", "n_dim", "bs", "order", "n_iv", "n_iv_steps")
    assert [getattr(layer, name) for name in read] == [2, 2, 8, 2, 2, 3, 1, 3]


def test_messages() -> None:
    coeffs, rhs, iv, steps = ind_inputs()
    layer = ODEINDLayer(**IND)
    with pytest.raises(
        smnn.ShapeError, match=r"rhs: got shape \(1, 3, 9\), 27 elements; expected 5"
    ):
        layer(coeffs, rhs[:1], iv, steps)
    with pytest.raises(smnn.ShapeError, match="The layer was created for bs = 2"):
        layer(coeffs[:1], rhs, iv, steps)
    with pytest.raises(
        smnn.ShapeError, match="iv_rhs: got None; expected 2 values for each sample"
    ):
        layer(coeffs, rhs, None, steps)
    with pytest.raises(ValueError, match="order: got 1; expected at least 2"):
        ODEINDLayer(**IND | {"order": 1})
    with pytest.raises(
        ValueError, match="solver: got 'fast'; expected one of DENSE_CHOLESKY, EXACT"
    ):
        ODEINDLayer(**IND, solver="fast")
    with pytest.raises(smnn.SolveError, match="no unique finite solution"):
        layer(0 * coeffs, rhs, 0 * iv, steps)
