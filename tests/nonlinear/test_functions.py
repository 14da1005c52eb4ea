"""Derivatives, batches, dense output and errors of `odeint`, `solve_bvp` and `smooth`."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

import smnn
from nonlinear.problems import FITS, hires, robertson, span, vector

f64 = torch.float64
Parameters = dict[str, Tensor]


def logistic(t: Tensor, y: Tensor, p: Parameters) -> Tensor:
    return p["r"] * y * (1 - y)


def test_gradients_of_an_initial_value_problem() -> None:
    """By the initial value, the parameter, and a tensor that `f` contains: the closed form."""
    t = torch.linspace(0, 3, 7, dtype=f64)
    y0, r, k = (vector(x).requires_grad_() for x in (0.1, 1.5, 0.7))

    def f(t: Tensor, y: Tensor, p: Parameters) -> Tensor:
        return logistic(t, y, p) * k

    found = smnn.odeint(f, y0, t, {"r": r[0]}, rtol=1e-10).check()
    exact = 1 / (1 + (1 / y0 - 1) * torch.exp(-r * k * t))
    assert (found.y[:, 0] - exact).abs().max() < 1e-10
    for ours, expected in zip(
        torch.autograd.grad(found.y.square().sum(), (y0, r, k)),
        torch.autograd.grad(exact.square().sum(), (y0, r, k)),
    ):
        assert torch.allclose(ours, expected, rtol=1e-8)


def test_gradients_of_robertson() -> None:
    """A stiff problem: differences of the solution are matched to 1e-6."""
    t = torch.cat([vector(0.0), torch.logspace(-2, 3, 12, dtype=f64)])

    def last(rate: Tensor) -> Tensor:
        def f(t: Tensor, y: Tensor) -> Tensor:
            a, b, c = rate * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] * y[1]
            return torch.stack([b - a, a - b - c, c])

        return smnn.odeint(f, vector(1.0, 0.0, 0.0), t, rtol=1e-11, atol=1e-14).check().y[-1, 2]

    rate = torch.tensor(0.04, dtype=f64, requires_grad=True)
    (slope,) = torch.autograd.grad(last(rate), rate)
    h = 1e-4
    with torch.no_grad():
        near, far = ((last(rate + k * h) - last(rate - k * h)) / (2 * k * h) for k in (1, 2))
    assert slope.item() == pytest.approx(((4 * near - far) / 3).item(), rel=1e-6)


def test_gradients_of_hires() -> None:
    """A stiff problem: against the variational equations, integrated by SciPy."""
    start, end = 0.0057, 321.8122

    def rates(y: Any, more: Any) -> list[Any]:
        first, *rest = hires(0.0, y, None)
        return [first + more, *rest]

    last, more = vector(start).requires_grad_(), vector(0.0).requires_grad_()
    y0 = torch.cat([vector(1, 0, 0, 0, 0, 0, 0), last])
    found = smnn.odeint(
        lambda t, y: torch.stack(rates(y, more[0])), y0, vector(0.0, end), rtol=1e-11, atol=1e-14
    ).check()
    ours = [torch.autograd.grad(x, (last, more), retain_graph=True) for x in found.y[-1]]

    def variational(t: float, z: np.ndarray) -> np.ndarray:
        y, step = z[:8], 1e-30
        J = np.imag([rates(y + 1j * step * e, 0.0) for e in np.eye(8)]).T / step
        return np.concatenate([rates(y, 0.0), J @ z[8:16], J @ z[16:] + np.eye(8)[0]])

    z0 = np.concatenate([y0.detach(), np.eye(8)[7], np.zeros(8)])
    exact = solve_ivp(variational, (0, end), z0, "Radau", rtol=1e-9, atol=1e-12).y[:, -1]
    assert np.abs(found.y[-1].detach().numpy() - exact[:8]).max() < 1e-8
    for i, expected in enumerate((exact[8:16], exact[16:])):
        found_i = np.array([one[i].item() for one in ours])
        assert np.abs(found_i - expected).max() < 1e-6 * np.abs(expected).max()


def test_batch_and_failed_samples() -> None:
    """`y' = y^2` from several starts, of which one explodes: the others are as they are alone."""
    t = torch.linspace(0, 1, 6, dtype=f64)
    y0 = vector(-1.0, 0.5, 2.0).view(3, 1)
    found = smnn.odeint(lambda t, y: y**2, y0, t, rtol=1e-9)
    assert found.ok.tolist() == [True, True, False]
    assert found.y[2].isnan().all()
    assert (found.y[:2, :, 0] - 1 / (1 / y0[:2] - t)).abs().max() < 1e-8
    assert "may not exist" in found.reasons[2]
    with pytest.raises(smnn.SolveError, match=r"1 of 3 samples"):
        found.check()


def test_between_the_times() -> None:
    t = torch.linspace(0, 5, 6, dtype=f64)
    found = smnn.odeint(lambda t, y: torch.stack([y[1], -y[0]]), vector(0.0, 1.0), t, rtol=1e-10)
    between = torch.linspace(0, 5, 83, dtype=f64)
    assert (found.at(between)[:, 0] - between.sin()).abs().max() < 1e-6  # lower order than nodes
    with pytest.raises(ValueError, match="times: got"):
        found.at(vector(5.1))


def test_error_estimate_is_of_the_right_size() -> None:
    t = torch.from_numpy(span(20))
    for rtol in (1e-4, 1e-7):
        found = smnn.odeint(lambda t, y: torch.stack([y[1], -y[0]]), vector(0.0, 1.0), t, rtol=rtol)
        error = (found.y[:, 0] - t.sin()).abs().max().item()
        assert error < 100 * rtol
        assert found.error.item() > 0


def test_boundary_values_with_a_parameter() -> None:
    """The eigenvalue of `y'' + p y = 0`, and its derivative by the length of the interval."""
    length = torch.tensor(2.0, dtype=f64, requires_grad=True)

    def f(t: Tensor, y: Tensor, p: Parameters) -> Tensor:
        return length * torch.stack([y[1], -(p["k"] ** 2) * y[0]])

    def bc(a: Tensor, b: Tensor, p: Parameters) -> Tensor:
        return torch.stack([a[0], b[0], a[1] - 1])

    t = torch.linspace(0, 1, 21, dtype=f64)
    guess = torch.stack([(3 * t).sin(), (3 * t).cos()], -1)
    found = smnn.solve_bvp(f, bc, t, guess, {"k": 1.4}, rtol=1e-10).check()
    k = found.params["k"]
    assert k.item() == pytest.approx(math.pi / 2, rel=1e-10)
    (slope,) = torch.autograd.grad(k, length)
    assert slope.item() == pytest.approx(-math.pi / 4, rel=1e-8)


def test_boundary_values_agree_with_scipy() -> None:
    """The pendulum between two angles."""
    from scipy.integrate import solve_bvp

    t = torch.linspace(0, 2, 21, dtype=f64)
    guess = torch.stack([t / 2, torch.full_like(t, 0.5)], -1)
    found = smnn.solve_bvp(
        lambda t, y: torch.stack([y[1], -torch.sin(y[0])]),
        lambda a, b: torch.stack([a[0], b[0] - 1]), t, guess, rtol=1e-11, atol=1e-13,
    ).check()  # fmt: skip
    theirs = solve_bvp(
        lambda t, y: np.stack([y[1], -np.sin(y[0])]),
        lambda a, b: np.array([a[0], b[0] - 1]), t.numpy(), guess.T.numpy(), tol=1e-12,
        max_nodes=100_000,
    )  # fmt: skip
    assert np.abs(found.y.numpy().T - theirs.sol(t.numpy())).max() < 1e-10


def test_smoothing_is_differentiable_in_the_data() -> None:
    problem = FITS["logistic growth"]
    t, data = torch.from_numpy(problem.t), problem.data().requires_grad_()

    def f(t: Tensor, y: Tensor, p: Parameters) -> Tensor:
        return torch.stack(problem.f(t, y, p))

    def rate(data: Tensor) -> Tensor:
        found = smnn.smooth(f, t, data, 0.1, dict(problem.start), rtol=1e-8)
        return found.check().params["r"]

    (slope,) = torch.autograd.grad(rate(data), data)
    change = 1e-4 * torch.cos(torch.arange(len(t), dtype=f64))[:, None]
    with torch.no_grad():
        difference = (rate(data + change) - rate(data - change)) / 2
    assert (slope * change).sum().item() == pytest.approx(difference.item(), rel=1e-3)


def test_smoothing_a_linear_equation_is_weighted_least_squares() -> None:
    """`y' = -y` from uneven times: a regression on one unknown, with its deviation."""
    t = vector(0.0, 0.1, 0.5, 1.1, 3.0)
    data = torch.cos(torch.arange(5, dtype=f64))[:, None]
    sigma = vector(0.1, 0.2, 0.1, 0.3, 0.1)[:, None]
    found = smnn.smooth(lambda t, y: -y, t, data, sigma)
    basis, w = (-t).exp(), 1 / sigma[:, 0] ** 2
    start = (w * basis * data[:, 0]).sum() / (w * basis**2).sum()
    assert (found.y[:, 0] - start * basis).abs().max() < 1e-6
    assert found.sd is not None
    assert torch.allclose(found.sd[:, 0], basis / (w * basis**2).sum().sqrt(), rtol=1e-5)
    assert not bool(found.ok)  # these numbers are no decay
    assert "does not" in found.reasons[0]


def test_unmodelled_forcing_is_followed() -> None:
    """With `model_error`, a wrong equation follows the data with a larger deviation."""
    t = torch.linspace(0, 6, 61, dtype=f64)
    noise = torch.from_numpy(np.random.default_rng(0).normal(size=(61, 1)))
    data = t.sin()[:, None] + 0.05 * noise
    rigid = smnn.smooth(lambda t, y: 0 * y, t, data, 0.05)
    loose = smnn.smooth(lambda t, y: 0 * y, t, data, 0.05, model_error=1.0).check()
    assert not bool(rigid.ok)
    assert (loose.y[:, 0] - t.sin()).abs().mean() < 0.05
    assert loose.sd is not None
    covered = ((loose.y[:, 0] - t.sin()).abs() < 1.96 * loose.sd[:, 0]).double().mean()
    assert covered > 0.85


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f, t: smnn.odeint(f, vector(1.0), t.flip(0).repeat(2)), "t: got shape"),
        (lambda f, t: smnn.odeint(f, vector(1.0), t * math.inf), "t: got"),
        (lambda f, t: smnn.odeint(f, vector(1.0), t, {"p": vector(1.0, 2.0)}), "params"),
        (lambda f, t: smnn.solve_bvp(f, lambda a, b: a, t, t[:2, None]), "guess: got 2 times"),
        (
            lambda f, t: smnn.solve_bvp(f, lambda a, b: torch.cat([a, b]), t, t[:, None]),
            "bc: got 2 conditions; expected 1",
        ),
        (lambda f, t: smnn.smooth(f, t, t[:2, None], 1.0), "data: got 2 times"),
        (lambda f, t: smnn.smooth(f, t, t[:, None], 0.0), "sigma: got a value"),
        (lambda f, t: smnn.smooth(f, t, t[:, None] * math.nan, 1.0), "data: got a sample without"),
    ],
)
def test_errors_say_what_is_wrong(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(lambda t, y, p=None: -y, torch.linspace(0, 1, 5, dtype=f64))


def test_robertson_and_hires_need_few_steps() -> None:
    def rates(name: str) -> Any:
        right = {"robertson": robertson, "hires": hires}[name]
        return lambda t, y: torch.stack(right(t, y, torch))

    t = torch.cat([vector(0.0), torch.logspace(-4, 5, 30, dtype=f64)])
    found = smnn.odeint(rates("robertson"), vector(1, 0, 0), t, rtol=1e-9, atol=1e-13).check()
    assert len(found.mesh) <= 200
    assert (found.y.sum(1) - 1).abs().max() < 1e-12
    t, y0 = torch.linspace(0, 321.8122, 2, dtype=f64), vector(1, 0, 0, 0, 0, 0, 0, 0.0057)
    found = smnn.odeint(rates("hires"), y0, t, rtol=1e-9, atol=1e-12).check()
    assert len(found.mesh) <= 200
    # The reference of the Test Set for Initial Value Problem Solvers.
    assert abs(found.y[-1, 0] - 0.7371312573325668e-3) < 1e-7 * 0.74e-3
