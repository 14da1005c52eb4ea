"""The schemes `iwp`, `hermite` and `hermite-l`: rows, orders of accuracy, derivatives."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import smnn
from helpers import NAMES, Case, oracle, random_problem, relative
from solver.internals import backend_named, choose_backend

f64 = torch.float64
NEW = ("iwp", "hermite", "hermite-l")
BACKENDS = ("cpu", "torch", "reference")


def posed(case: Case) -> Case:
    """The same problem with every governing row written out: derivatives of constant equations."""
    kw = dict(case.kw)
    name, order = kw["scheme"], kw.pop("order")
    c, d, u, s = case.args
    Q, V, orders = c.shape[-3:]
    count = order - orders + 2
    if name not in ("hermite", "hermite-l"):
        return case
    h = s.flatten(c.ndim - 4).mean(-1)[..., None, None, None, None]
    wide = c.new_zeros(*h.shape[:-4], *c.shape[-4:-3], Q * count, V, order + 1)
    right = d.new_zeros(*d.shape[:-1], Q * count)
    right[..., :Q] = d
    for k in range(count):
        wide[..., k * Q : (k + 1) * Q, :, k : k + orders] = h**k * c
    if isinstance(w := kw.get("w_gov"), Tensor) and w.ndim:
        kw["w_gov"] = w.expand(*w.shape[:-1], Q).repeat(*[1] * (w.ndim - 1), count)
    links = order + 1 if name == "hermite-l" and Q < V else order + 1 - Q * count // V
    kw["scheme"] = f"{name}/{max(orders - 1, links)}"
    return Case((wide, right, u, s), kw)


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "two steps": {"T": 3},
    "more equations than variables": {"Q": 3},
    "one equation": {"Q": 1, "T_init": 5, "R_init": 1, "limit": 1e6},
    "second order": {"R": 2, "R_init": 1, "V": 1, "Q": 1},
    "an algebraic equation": {"R": 0, "T_init": 2},
    "order not raised": {"order": 1},
    "batch": {"batch": (2, 3)},
    "broadcast batch": {"batch": (2, 3), "shared": "cs"},
    "steps per variable": {"per_variable": True, "batch": (2,)},
    "all constant": {"constant": "cds", "batch": (2,)},
    "weights float": {"weights": "float"},
    "weights tensor": {"weights": "tensor", "batch": (2,)},
    "weights zeros": {"weights": "zeros", "batch": (2,), "Q": 4, "T_init": 5},
    "pieces": {"T": 120, "V": 1, "Q": 1, "limit": None},
    "kernels for one size": {"T": 150, "V": 1, "Q": 1, "batch": (5,), "order": 3, "limit": None},
}


def problem(name: str, scheme: str, seed: int = 0) -> Case:
    """A random problem with equations that are constant in time, as `hermite` needs for a test."""
    options = {"V": 2, "Q": 2, "R": 1, "order": 3, "scheme": "smnn"} | CASES[name]
    options["constant"] = "".join({*options.get("constant", ""), *"cd"})
    limit = options.pop("limit", 1e4)
    for attempt in range(300):
        case = random_problem(seed + 1000 * attempt, limit=None, **options)
        case = case.replace(scheme=scheme)
        if limit is None:  # decaying, so that it is well-posed for any number of times
            case.args[0][..., 0] = case.args[0][..., 1] = 1.0
            return case
        flat = posed(case)
        try:
            y = oracle(*flat.args, **flat.kw)
            info = smnn.solve_ex(*case.args, **case.kw, backend="torch", condition=True)[1]
        except np.linalg.LinAlgError:
            continue
        if float(info.condition.max()) < limit and np.abs(y).max() < 1e4:
            return case
    raise AssertionError("no well-posed problem found")


@pytest.mark.parametrize("scheme", NEW)
@pytest.mark.parametrize("name", CASES)
def test_against_dense_least_squares(name: str, scheme: str) -> None:
    case = problem(name, scheme)
    flat = posed(case)
    expected = oracle(*flat.args, **flat.kw)
    for backend in BACKENDS:
        assert relative(case.solve(backend), expected) < 1e-9, backend


@pytest.mark.parametrize("scheme", NEW)
@pytest.mark.parametrize("name", ["weights tensor", "pieces", "kernels for one size"])
def test_gradients_of_the_kernels(name: str, scheme: str) -> None:
    case = problem(name, scheme)
    if name != "weights tensor":
        case = case.replace(w_smooth=torch.full((1,) * (case.args[0].ndim - 1), 1.5, dtype=f64))

    def gradients(backend: str) -> list[Tensor]:
        leaves = {k: x.detach().clone().requires_grad_() for k, x in case.tensors().items()}
        loss = case.replace(**leaves).solve(backend).square().sum()
        return list(torch.autograd.grad(loss, [*leaves.values()]))

    expected = gradients("reference")
    largest = max(float(x.abs().max()) for x in expected)  # those by unused weights are zero
    for got, x in zip(gradients("cpu"), expected, strict=True):
        assert (got - x).abs().max() < 1e-9 * largest


@pytest.mark.parametrize("engine", ["cpu", "torch"])
@pytest.mark.parametrize("scheme", NEW)
def test_gradcheck_and_gradgradcheck(scheme: str, engine: str) -> None:
    """By every argument, through derivatives of `c` and `d` estimated on an uneven grid."""
    case = random_problem(1, T=3, V=1, Q=1, R=1, weights="tensor", limit=1e3, order=2)
    case = case.replace(scheme=scheme)
    leaves = [case.tensors()[name].clone().requires_grad_() for name in NAMES]

    def f(*x: Tensor) -> Tensor:
        return case.replace(**dict(zip(NAMES, x))).solve(engine)

    torch.autograd.gradcheck(f, leaves, atol=1e-6)
    torch.autograd.gradgradcheck(f, leaves, atol=1e-5, rtol=1e-4, fast_mode=engine == "torch")


def test_transforms_and_compile() -> None:
    case = random_problem(2, T=7, V=2, Q=2, R=1, batch=(2,), order=3).replace(scheme="hermite")
    c, d, u, s = case.args
    c = torch.tensor([[[1.0, 1.0], [0.5, 0.0]], [[0.0, 0.0], [1.0, 1.0]]], dtype=f64) + 0.01 * c

    def f(c: Tensor, d: Tensor) -> Tensor:
        return smnn.solve(c, d, u, s, **case.kw)

    tangent = torch.ones_like(d)
    _, forward = torch.func.jvp(lambda d: f(c, d), (d,), (tangent,))
    assert relative(forward, f(c, d + tangent) - f(c, d)) < 1e-9  # linear in d
    both = torch.stack([c, 2 * c])
    expected = torch.stack([f(x, d) for x in both])
    assert relative(torch.vmap(lambda x: f(x, d))(both), expected) < 1e-12
    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    assert relative(compiled(c, d), f(c, d)) < 1e-12


# ---------------------------------------------------------------- accuracy


def constant_error(scheme: str, order: int, s: float) -> float:
    """A rotation: x' = y, y' = -x. (By tensor operations, as kernels take time to compile.)"""
    T = round(3 / s) + 1
    c = torch.zeros(1, 2, 2, 2, dtype=f64)
    c[0, 0, 0, 1] = c[0, 1, 1, 1] = c[0, 1, 0, 0] = 1
    c[0, 0, 1, 0] = -1
    u = torch.tensor([[[0.0], [1.0]]], dtype=f64)
    step = torch.tensor([s], dtype=f64)
    kw = {"order": order, "scheme": scheme, "n_steps": T, "backend": "torch"}
    y = smnn.solve(c, c.new_zeros(1, 2), u, step, **kw)
    return float((y[:, 0, 0] - torch.sin(s * torch.arange(T, dtype=f64))).abs().max())


def varying_error(scheme: str, order: int, s: float) -> float:
    """y' + a(t) y = d(t) on an uneven grid, with y = 2 + sin(t)."""
    x = torch.linspace(0, 1, round(6 / s) + 1, dtype=f64)
    t = 6 * (x + 0.05 * torch.sin(3 * x))
    a, y = 1 + 0.5 * torch.cos(t), 2 + torch.sin(t)
    c = torch.stack([a, torch.ones_like(a)], -1)[:, None, None]
    d = (torch.cos(t) + a * y)[:, None]
    u = torch.full((1, 1, 1), 2.0, dtype=f64)
    found = smnn.solve(c, d, u, t.diff(), order=order, scheme=scheme, backend="torch")
    return float((found[:, 0, 0] - y).abs().max())


@pytest.mark.parametrize("error", [constant_error, varying_error])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_observed_orders(order: int, error: Any) -> None:
    """2R for `hermite`, one less for `hermite-l`; near R or above for `iwp`."""
    steps = (0.2, 0.1) if order < 4 else (0.3, 0.15)
    if error is varying_error:
        steps = tuple(x / 2 for x in steps)  # the finite differences must converge first
    observed = {}
    for scheme in NEW:
        coarse, fine = (error(scheme, order, s) for s in steps)
        observed[scheme] = math.log2(coarse / fine)
    assert observed["hermite"] > 2 * order - 0.3
    assert observed["hermite-l"] > 2 * order - 1.3
    assert observed["iwp"] > order - 0.3
    if error is constant_error:
        assert observed["hermite"] < 2 * order + 0.3
        assert observed["hermite-l"] < 2 * order - 0.7


def test_down_to_rounding() -> None:
    assert constant_error("hermite", 6, 0.2) < 1e-14
    assert varying_error("hermite", 6, 0.03) < 1e-12
    assert constant_error("smnn", 6, 0.2) > 1e-7  # the paper's rows


def test_native_order_of_higher_equations() -> None:
    """For an equation of order p, R - p + 1 governing rows: order 2 (R - p + 1)."""
    c = torch.tensor([2.1, 0.0, 1.0], dtype=f64).view(1, 1, 1, 3)
    u = torch.tensor([1.0, 0.0], dtype=f64).view(1, 1, 2)
    errors = []
    for T in (31, 61):
        s = torch.full((1,), 6 / (T - 1), dtype=f64)
        y = smnn.solve(c, c.new_zeros(1, 1), u, s, order=4, n_steps=T, scheme="hermite")
        phase = 2.1**0.5 * s * torch.arange(T, dtype=f64)
        errors.append(float((y[:, 0, 0] - torch.cos(phase)).abs().max()))
    assert 5.7 < math.log2(errors[0] / errors[1]) < 6.3


def test_damping_of_stiff_components() -> None:
    """y' = -1e4 (y - cos t) - sin t from y(0) = 2: only the L-stable rows forget the start."""
    t = 0.1 * torch.arange(41, dtype=f64)
    c = torch.tensor([1e4, 1.0], dtype=f64).view(1, 1, 1, 2)
    d, u, s = (
        (1e4 * torch.cos(t) - torch.sin(t))[:, None],
        t.new_full((1, 1, 1), 2.0),
        t.new_full((1,), 0.1),
    )
    damped, ringing = (
        (smnn.solve(c, d, u, s, order=3, scheme=x)[:, 0, 0] - torch.cos(t))[5:].abs().max()
        for x in ("hermite-l", "hermite")
    )
    assert damped < 1e-5
    assert ringing > 0.5


def test_given_derivatives() -> None:
    """`hermite/p` takes the derivatives as further equations."""
    t = 0.5 * torch.arange(13, dtype=f64)
    one, zero = torch.ones_like(t), torch.zeros_like(t)
    a, y = 1 + 0.5 * torch.cos(t), 2 + torch.sin(t)
    b, z = -0.5 * torch.sin(t), torch.cos(t)
    c = torch.stack([torch.stack([a, one, zero], -1), torch.stack([b, a, one], -1)], 1)[:, :, None]
    d = torch.stack([z + a * y, -torch.sin(t) + b * y + a * z], -1)
    u, s = t.new_full((1, 1, 1), 2.0), t.new_full((1,), 0.5)
    exact = smnn.solve(c, d, u, s, scheme="hermite/1")
    estimated = smnn.solve(c[:, :1, :, :2], d[:, :1], u, s, order=2, scheme="hermite")
    assert (exact[:, 0, 0] - y).abs().max() < 2e-4
    assert relative(exact, estimated) < 3e-2


# ---------------------------------------------------------------- the rest of the interface


@pytest.mark.parametrize("scheme", NEW)
def test_factorize(scheme: str) -> None:
    case = random_problem(4, T=9, V=2, Q=2, R=1, batch=(2,), order=2).replace(scheme=scheme)
    c, d, u, s = case.args
    kept = smnn.factorize(c, s, init_shape=(1, 1), **case.kw)
    assert relative(kept.solve(d, u), case.solve()) < 1e-9
    many = torch.stack([d, 2 * d.flip(1)])
    expected = torch.stack([case.replace(d=x).solve() for x in many])
    assert relative(kept.solve(many, u), expected) < 1e-9


@pytest.mark.parametrize("scheme", NEW)
def test_residuals(scheme: str) -> None:
    case = problem("batch", scheme)
    c, d, u, s = case.args
    found = smnn.residuals(case.solve(), c, d, u, s, order=3, scheme=scheme)
    cubic = torch.stack([torch.linspace(0, 1, 6, dtype=f64) ** 3] * 2, -1)
    t = torch.linspace(0, 1, 6, dtype=f64)
    cubic = torch.stack([t**3, 3 * t**2, 6 * t, 6 + 0 * t], -1)[:, None].expand(6, 2, 4)
    y = cubic.expand(2, 3, 6, 2, 4)
    smooth = smnn.residuals(y, c, d, u, torch.full_like(s, 0.2), order=3, scheme=scheme).smoothness
    assert smooth.max() < 1e-14
    if scheme != "iwp":  # as many rows as unknowns
        assert max(float(x.max()) for x in found) < 1e-9


def test_float32() -> None:
    case = random_problem(1, T=12, V=2, Q=2, R=1, order=3).replace(scheme="hermite")
    y = case.to(torch.float32).solve()
    assert y.dtype == torch.float32
    assert relative(y, case.to(torch.float32).to(f64).solve()) < 1e-6


def test_auto() -> None:
    """Differentiated rows for as many constant equations as variables, else only the given ones."""
    for options, scheme in (
        ({"constant": "cd"}, "hermite"), ({"constant": "c"}, "iwp"), ({"constant": "d"}, "iwp"),
        ({"constant": "cd", "Q": 1, "T_init": 5}, "iwp"),
    ):  # fmt: skip
        sizes = {"T": 6, "V": 2, "Q": 2, "R": 1, "order": 3} | options
        case = random_problem(1, **sizes)
        found = case.replace(scheme="auto").solve()
        assert torch.equal(found, case.replace(scheme=scheme).solve())


def test_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    case = random_problem(1, T=6, V=2, Q=2, R=1, order=3)
    for wrong in ("hermite/x", "iwp/2", "taylor"):
        with pytest.raises(ValueError, match=r"scheme: got .*; expected one of 'smnn', .*'auto'"):
            case.replace(scheme=wrong).solve()
    per_variable = case.args[3][:, None].expand(5, 2)
    with pytest.raises(smnn.ShapeError, match=r"one grid for all of them"):
        case.replace(scheme="hermite", s=per_variable).solve()
    with pytest.raises(smnn.ShapeError, match=r"4 steps; expected 5"):
        case.replace(scheme="hermite", s=case.args[3][:4]).solve()
    none = case.replace(scheme="hermite", u=torch.zeros(0, 2, 1, dtype=f64))
    with pytest.raises(smnn.SolveError, match=r"too few initial values"):
        none.solve()
    monkeypatch.setattr(type(backend_named("gpu")), "unavailable", lambda *_: None)
    monkeypatch.setattr("smnn._solver.plan._unavailable", lambda name: None)
    cuda = torch.device("cuda")
    assert choose_backend("auto", cuda, 6, "central").name == "gpu"
    assert choose_backend("auto", cuda, 6, "hermite/1").name == "torch"
    with pytest.raises(smnn.BackendError, match=r"kernels for the schemes 'smnn' and 'central'"):
        choose_backend("gpu", cuda, 6, "iwp")
