"""States and parameters from data: Gauss-Newton over the trajectory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from smnn._solver import blocks
from smnn.nonlinear._collocation import Collocation, named
from smnn.nonlinear._initial import Tolerances, check_times, march
from smnn.nonlinear._newton import correction, differentiable, newton
from smnn.nonlinear._solution import Solution, not_a_number

EXACT = 1e-7
"""Deviation that stands for rows that hold exactly, relative to the size of the variable."""
WIDE = 1e-4
"""Weight of the last iterate at the first node: only directions without data notice it."""
FIRST_SIZE = 16
"""Steps of the first window."""
LEAST_STEPS = 100
LEVELS = [1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5, 0.0]
"""Errors of the equation per step, relative to the variables, while it is imposed gradually."""


class _Data(NamedTuple):
    """Data on some nodes."""

    value: Tensor
    """`(B, K+1, V)`, any number where there are none."""
    weight: Tensor
    """`(B, K+1, V)` inverse deviations, 0 where there are none."""
    hold: Tensor
    """`(B, M)` weights that keep the first node near the last iterate."""

    def rows(self, x: Tensor) -> Tensor:
        B, N, M = x.shape
        V = self.value.shape[2]
        weight, value = self.weight.detach(), self.value.detach()
        jacobian = torch.cat([torch.diag_embed(weight), x.new_zeros(B, N, V, M - V)], -1)
        right = weight * (value - x[..., :V])
        rows = torch.cat([jacobian, right.unsqueeze(-1)], -1)
        hold = x.new_zeros(B, N, M, M + 1)
        hold[:, 0, :, :M] = torch.diag_embed(self.hold)
        return torch.cat([rows, hold], 2)

    def residual(self, x: Tensor) -> Tensor:
        return (self.weight * (x[..., : self.value.shape[2]] - self.value)).flatten(1)


class _Point(NamedTuple):
    """A trajectory on its mesh, and how good it is."""

    system: Collocation
    x: Tensor
    Z: Tensor
    converged: Tensor
    """`(B,)`"""
    chi2: Tensor
    """`(B,)` sum of the squares of the residuals of the data."""

    def better(self, other: _Point) -> _Point:
        """Of each sample, the trajectory that converged, or fits better."""
        first = self.converged & (~other.converged | (self.chi2 <= other.chi2))
        x, Z, converged, chi2 = (
            torch.where(first.view(-1, *[1] * (a.ndim - 1)), a, b)
            for a, b in zip(self[1:], other[1:])
        )
        return _Point(self.system, x, Z, converged, chi2)


class _Fit:
    """The data of a problem and its settings."""

    def __init__(self, t: Tensor, data: Tensor, sigma: Tensor, model_error: float) -> None:
        self.t, self.model_error = t, model_error
        self.seen = ~data.isnan()
        self.value = torch.where(self.seen, data, 0.0)
        self.weight = torch.where(self.seen, 1 / sigma, 0.0)
        self.iterations = 0

    def data_on(self, mesh: Tensor, x: Tensor) -> _Data:
        """The data on a part of a mesh; the mesh contains their times."""
        inside = (self.t >= mesh[0]) & (self.t <= mesh[-1])
        places = torch.searchsorted(mesh, self.t[inside])
        blank = self.value.new_zeros(len(self.value), len(mesh), self.value.shape[2])
        value = blank.index_copy(1, places, self.value[:, inside])
        weight = blank.index_copy(1, places, self.weight[:, inside])
        return _Data(value, weight, WIDE / _sizes(x))

    def link_weights(self, system: Collocation, x: Tensor, relative: float) -> Tensor:
        """Of the links `(B, K, M)`, if the equation has errors of this size in every step."""
        size, V = _sizes(x)[:, None], system.V
        error = (EXACT * size).expand(-1, system.h.shape[1], -1).clone()
        forcing = self.model_error * system.h.abs().sqrt().unsqueeze(-1)
        loose = torch.maximum(relative * size[..., :V], forcing)
        error[..., :V] = torch.maximum(error[..., :V], loose)
        return 1 / error

    def attempt(self, point: _Point, levels: list[float]) -> _Point:
        """Iterate with errors of the equation of decreasing size."""
        system, x, Z, *_ = point
        for i, relative in enumerate(levels):
            data, weight = self.data_on(system.t[0], x), self.link_weights(system, x, relative)
            limit = 40 if i == len(levels) - 1 else 8
            found = newton(
                system, data, x, Z, weight, floor=1e-12, max_iterations=limit, tolerance=1e-9
            )
            self.iterations += found.iterations
            x, Z = found.x, found.Z
        chi2 = data.residual(x).square().sum(1)
        return _Point(system, x, Z, found.converged, chi2.nan_to_num(torch.inf))

    def fits(self, point: _Point) -> Tensor:
        """Whether each sample converged to a trajectory that explains the data."""
        count = self.seen.flatten(1).sum(1)
        free = (count - point.x.shape[2]).clamp(min=1)
        if self.model_error:
            free = count
        return point.converged & (point.chi2 <= free + 6 * (2 * free).sqrt())

    def in_windows(self, point: _Point) -> _Point:
        """Begin with a few steps; predict some more, and fit again."""
        whole, x, Z = point.system, point.x.clone(), point.Z.clone()
        K, end, levels = whole.h.shape[1], FIRST_SIZE, LEVELS
        while True:
            end = min(end, K)
            part = _Point(whole.on(whole.t[:, : end + 1]), x[:, : end + 1], Z[:, :end], *point[3:])
            found = self.attempt(part, levels)
            x[:, : end + 1], Z[:, :end] = found.x, found.Z
            if end == K:
                return found._replace(system=whole)
            more = min(end + max(end // 2, 4), K)
            ahead = whole.on(whole.t[:, end : more + 1])
            moved = march(ahead, x[:, end], Tolerances(1e9, 1e9), 4 * (more - end))
            self.iterations += moved.iterations
            if moved.Z.shape[1] == more - end and bool(moved.alive.all()):
                x[:, end : more + 1], Z[:, end:more] = moved.x, moved.Z
            end, levels = more, LEVELS[-2:]


def _sizes(x: Tensor) -> Tensor:
    """Typical size of each variable and parameter, `(B, M)`."""
    return x.abs().amax(1).nan_to_num(1.0, 1.0, 1.0).clamp(min=1e-6)


def _first_guess(
    mesh: Tensor, t: Tensor, data: Tensor, guess: Tensor | None, constants: Tensor
) -> Tensor:
    """The guess, or straight lines between the data, or 0 where there are none, `(B, K+1, M)`."""
    B, _, V = data.shape
    out = data.new_zeros(B, len(mesh), V + constants.shape[1])
    out[..., V:] = constants[:, None]
    at, places = mesh.cpu().numpy(), t.cpu().numpy()
    for b in range(B):
        for v in range(V):
            known = data[b, :, v] if guess is None else guess[b, :, v]
            seen = ~known.isnan()
            if bool(seen.any()):
                where = seen.cpu().numpy()
                values = np.interp(at, places[where], known.cpu().numpy()[where])
                out[b, :, v] = torch.from_numpy(values)
    return out


def _refined(fit: _Fit, point: _Point, rtol: float, max_steps: int) -> tuple[_Point, Tensor]:
    """Cut steps with errors above `rtol` relative to the variables, and fit again."""
    for _ in range(6):
        size = _sizes(point.x)[:, None, : point.system.V]
        error = (point.system.local_errors(point.x, point.Z).abs() / (rtol * size)).amax(-1)
        error = torch.where(point.converged[:, None], error.nan_to_num(torch.inf), 0.0)
        parts = Tolerances(rtol, 0.0).parts(error, point.system.stages)
        if int(parts.max()) == 1 or int(parts.sum()) > max_steps:
            break
        moved = point.system.resampled(point.x, point.Z, parts)
        point = fit.attempt(_Point(*moved, *point[3:]), [0.0])
    return point, error.amax(1)


def smooth(
    f: Callable[..., Tensor],
    t: Tensor,
    data: Tensor,
    sigma: Tensor | float,
    params: dict[str, Tensor | float] | None = None,
    *,
    guess: Tensor | None = None,
    model_error: float = 0.0,
    rtol: float = 1e-5,
    stages: int = 3,
    max_steps: int = 20_000,
) -> Solution:
    r"""Estimate the states and parameters of a differential equation from noisy data.

    Finds the trajectory and the parameters that maximize the likelihood of the data under normal
    noise, by Gauss-Newton iterations over the whole trajectory. If these fail, the equation is
    imposed gradually, and then on windows of increasing length, which also works for chaotic
    systems and variables that are not observed. Standard deviations follow from the linearization.

    Args:
        f: `f(t, y)`, or `f(t, y, p)` with a dictionary of the parameters; see `odeint`.
        t: `(N,)` increasing times, which may be uneven.
        data: `(*B, N, V)` with NaN where there is no value. A variable without any is estimated
            from the others.
        sigma: Standard deviation of the noise: a number, or a tensor that broadcasts against
            `data`.
        params: First guesses of unknown parameters: numbers, or `(*B)`.
        guess: `(*B, N, V)` first guess of the trajectory, with NaN where unknown. Without it,
            straight lines between the data, and 0 for variables without data.
        model_error: Size of unmodelled forcing: standard deviation of its integral over a time of
            one. 0 means that the equation is exact.
        rtol: Steps between the data are cut until their estimated errors, relative to the
            variables, are smaller.
        stages: Collocation points per step; the order is `2 stages - 1`.
        max_steps: Limit for the number of steps.

    Returns:
        A `Solution` with `y`, `params`, their deviations `sd` and `params_sd`, and `chi2`. It is
        differentiable in `data`, `sigma` and all tensors in `f`; deviations are not.
    """
    batch, t = check_times(data.shape[:-2], t, data)
    if t[0] > t[-1] or data.shape[-2] != len(t):
        raise ValueError(
            f"data: got {data.shape[-2]} times; expected {len(t)} as in t, in increasing order."
        )
    V, names = data.shape[-1], tuple(params or ())
    values = data.reshape(-1, len(t), V).double()
    noise = torch.as_tensor(sigma, dtype=torch.float64, device=data.device)
    if not bool((noise.detach() > 0).all()):
        raise ValueError("sigma: got a value that is not positive; expected standard deviations.")
    noise = noise.expand(data.shape).reshape(values.shape)
    if not bool(values.isfinite().any(1).any(1).all()):
        raise ValueError("data: got a sample without any value; expected numbers, or NaN for some.")
    fit = _Fit(t, values, noise, model_error)
    parts = -(-LEAST_STEPS // (len(t) - 1))
    fine = torch.arange(parts, device=t.device) / parts
    mesh = torch.cat([(t[:-1, None] + t.diff()[:, None] * fine).flatten(), t[-1:]])
    first = None if guess is None else guess.detach().reshape(values.shape).double()
    with torch.no_grad():
        x = _first_guess(mesh, t, values.detach(), first, named(params, batch, t))
        system = Collocation(f, V, names, mesh.expand(len(x), -1), stages)
        point, error = _solved(fit, system, x, rtol, max_steps)
    return _finished(fit, point, error, batch, data.dtype)


def _solved(
    fit: _Fit, system: Collocation, x: Tensor, rtol: float, max_steps: int
) -> tuple[_Point, Tensor]:
    nothing = x.new_full((len(x),), torch.inf)
    start = _Point(system, x, system.flat(x), nothing < 0, nothing)
    best = fit.attempt(start, [0.0])
    for way in (lambda: fit.attempt(start, LEVELS), lambda: fit.in_windows(start)):
        if bool(fit.fits(best).all()):
            break
        best = best.better(way())
    return _refined(fit, best, rtol, max_steps)


def _finished(
    fit: _Fit, point: _Point, error: Tensor, batch: tuple[int, ...], dtype: torch.dtype
) -> Solution:
    system, x, Z, converged, _ = point
    V, names, mesh = system.V, system.names, system.t[0]
    data, weight = fit.data_on(mesh, x), fit.link_weights(system, x, 0.0)
    with torch.no_grad():
        step = correction(system, data, x, Z, weight)
        sd = blocks.covariances(step.factors)[0].diagonal(dim1=2, dim2=3).sqrt()
    count = fit.seen.flatten(1).sum(1)
    chi2, good = point.chi2 / count, fit.fits(point)
    loose = [
        [n for n, s, p in zip(names, a[V:], b[V:]) if s > max(abs(p), 1e-6)]
        for a, b in zip(sd[:, 0].tolist(), x[:, 0].tolist())
    ]
    reasons = []
    for i in range(len(x)):
        reason = ""
        if not converged[i]:
            reason = "the Gauss-Newton iteration did not converge"
        elif not good[i]:
            reason = (
                f"the residuals are {chi2[i].sqrt():.2g} times sigma: the equation does not "
                "explain the data, sigma is too small, or this is a local minimum"
            )
        elif loose[i]:
            reason = f"the data do not determine {', '.join(loose[i])}"
        elif error[i] > 10:
            reason = f"the steps are too long: their errors are {error[i]:.1e} times rtol"
        reasons.append(reason)
    places = torch.isin(mesh, fit.t).nonzero().flatten()
    found = not_a_number(differentiable(system, data, x, Z, weight, step), converged)

    def split(every: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        y = every[:, places, :V].reshape(*batch, len(places), V).to(dtype)
        return y, {n: every[:, 0, V + i].reshape(batch) for i, n in enumerate(names)}

    (y, params), (y_sd, params_sd) = split(found), split(not_a_number(sd, converged))
    return Solution(
        t=fit.t, y=y, params=params, sd=y_sd, params_sd=params_sd, chi2=chi2.reshape(batch),
        ok=torch.tensor([not r for r in reasons], device=x.device).reshape(batch),
        reasons=tuple(reasons), error=error.reshape(batch), iterations=fit.iterations, mesh=mesh,
        _dense=(system, x, Z),
    )  # fmt: skip
