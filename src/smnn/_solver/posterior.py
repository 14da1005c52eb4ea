r"""The Gaussian distribution behind the least-squares problem.

Weights are inverse standard deviations: with rows $A y \approx b$ and weights $W$, the trajectory
given all rows is normal with the solution as mean and $(A^\top W^2 A)^{-1}$ as covariance. Only the
blocks of neighbouring times are needed, and these follow from the factor in linear time.

Derivatives use the trace form $\mathrm{tr}(M(\theta)\, S) = \sum_i w_i^2\, a_i^\top S a_i$ of the
normal matrix $M$, which needs the same blocks of $S$: $\mathrm{d} \log\det M$ is that of the trace
form at $S = M^{-1}$, and the derivative of $\langle G, M^{-1} \rangle$ minus that at
$S = M^{-1} G M^{-1}$.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from smnn._solver import blocks
from smnn._solver.api import Options, _posed, solve
from smnn._solver.cyclic import chain
from smnn._solver.plan import Backend, backend_named, choose_backend
from smnn._solver.problem import Problem, Weight, make_problem
from smnn._solver.rows import (
    governing,
    initial,
    link_gram,
    link_rows,
    normal_residual,
    step_powers,
    taylor,
)
from smnn.errors import SolveError

KINDS = ("w_gov", "w_init", "w_smooth")


class Leverage(NamedTuple):
    """Share of the unknowns that each row determines; all shares sum to `T V (R+1)`."""

    governing: Tensor
    """`(*B, T, Q)`; with `scheme="hermite"` and `"hermite-l"` followed by the derivatives of the
    equations."""
    initial: Tensor
    """`(*B, T_init, V, R_init+1)`"""
    smoothness: Tensor
    """`(*B, T-1, V)`, the sum over all orders."""


# ---------------------------------------------------------------- sums over rows


def _by_variable(S: Tensor, V: int) -> Tensor:
    """Blocks `(B, N, V, m, m)` of each variable with itself."""
    B, N, n, _ = S.shape
    blocks_of = S.reshape(B, N, V, n // V, V, n // V)
    return blocks_of.diagonal(dim1=2, dim2=4).movedim(-1, 2)


def row_traces(problem: Problem, diag: Tensor, lag: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`w^2 a^T S a` of every row, from the blocks of `S`; the smoothness rows of a step as one."""
    c, _, u, s, w_gov, w_init, w_smooth, scheme = problem
    B, T, Q, V, m = c.shape
    rows = c.reshape(B, T, Q, V * m)
    gov = w_gov**2 * torch.einsum("btqi,btij,btqj->btq", rows, diag, rows)
    variances = diag.diagonal(dim1=2, dim2=3).view(B, T, V, m)
    start = w_init**2 * initial(variances, u)
    if T == 1:
        return gov, start, w_smooth.sum(-1)
    P = step_powers(s, m)
    own, across = _by_variable(diag, V), _by_variable(lag, V)
    F = taylor(m - 1).to(c.device)
    before = F @ (P.unsqueeze(-1) * own[:, :-1] * P.unsqueeze(-2)) @ F.T
    between = F @ (P.unsqueeze(-1) * across * P.unsqueeze(-2))
    change = P.unsqueeze(-1) * own[:, 1:] * P.unsqueeze(-2) + before - between - between.mT
    return gov, start, (link_gram(w_smooth, scheme) * change).sum((-1, -2))


def _squares(problem: Problem, y: Tensor) -> Tensor:
    """Sum of the squares of all weighted rows, `(B,)`."""
    c, d, u, s, w_gov, w_init, w_smooth, scheme = problem
    total = (w_gov * (governing(c, y) - d)).square().flatten(1).sum(1)
    total = total + (w_init * (initial(y, u) - u)).square().flatten(1).sum(1)
    if y.shape[1] == 1:
        return total
    m = y.shape[-1]
    P = step_powers(s, m)
    e = P * y[:, 1:] - (P * y[:, :-1]) @ taylor(m - 1).to(y.device).T
    gram = link_gram(w_smooth, scheme)
    return total + torch.einsum("btvi,btvij,btvj->b", e, gram, e)


class _Blocks(torch.autograd.Function):
    """Covariance blocks and `log det M`, differentiable once in `c, s` and the weights."""

    @staticmethod
    def forward(
        ctx: Any, engine: Backend, scheme: str, *tensors: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the blocks with a backend."""
        problem = Problem.of(tensors, scheme)
        found = engine.plan(problem).covariances()
        assert found is not None
        ctx.scheme = scheme
        ctx.save_for_backward(*tensors, *found[:2])
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g_diag: Tensor, g_lag: Tensor, g_logdet: Tensor) -> tuple[Any, ...]:
        """The gradient of a trace form with a symmetric `S`."""
        *tensors, diag, lag = ctx.saved_tensors
        weight = g_logdet[:, None, None, None]
        S = [weight * diag, weight * lag]
        if g_diag.any() or g_lag.any():
            factors = blocks.reduce(*chain(Problem.of(tensors, ctx.scheme))).factors
            more = blocks.sandwich(factors, (g_diag + g_diag.mT) / 2, g_lag / 2)
            S = [x - y for x, y in zip(S, more)]
        with torch.enable_grad():
            leaves = [
                x.detach().requires_grad_(w) for x, w in zip(tensors, ctx.needs_input_grad[2:])
            ]
            parts = row_traces(Problem.of(leaves, ctx.scheme), *S)
            total = torch.stack([x.sum() for x in parts]).sum()
        wanted = [x for x in leaves if x.requires_grad]
        found = iter(torch.autograd.grad(total, wanted, allow_unused=True))
        return None, None, *(next(found) if x.requires_grad else None for x in leaves)


# ---------------------------------------------------------------- the posterior


class Posterior:
    """Distribution of the trajectories given all rows. See `posterior`."""

    def __init__(
        self, mean: Tensor, problem: Problem, batch: tuple[int, ...], backend: str
    ) -> None:
        self.mean = mean
        """`(*B, T, V, R+1)`: what `solve` returns. Differentiable in every tensor."""
        self._problem, self._batch, self._backend = problem, batch, backend

    def _shaped(self, x: Tensor) -> Tensor:
        return x.reshape(self._batch + x.shape[1:]).to(self.mean.dtype)

    @functools.cached_property
    def _blocks(self) -> tuple[Tensor, Tensor, Tensor]:
        return _blocks_of(self._problem, self._backend)

    def variance(self) -> Tensor:
        """Variance of each entry of `mean`, `(*B, T, V, R+1)`.

        Differentiable once in `c`, `s` and the weights, as are all other methods but `sample`.
        """
        diag = self._blocks[0]
        return self._shaped(diag.diagonal(dim1=2, dim2=3).reshape(self._problem.y_shape))

    def covariance(self, lag: int = 0) -> Tensor:
        """Covariance of the jets at times `t` and `t + lag`, for a lag of 0 or 1.

        Returns:
            `(*B, T - lag, V, R+1, V, R+1)`.
        """
        if lag not in (0, 1):
            raise ValueError(
                f"lag: got {lag!r}; expected 0 or 1. Covariances of more distant times are not "
                "computed; estimate them from sample()."
            )
        _, _, V, m = self._problem.y_shape
        found = self._blocks[lag]
        return self._shaped(found.reshape(*found.shape[:2], V, m, V, m))

    def logdet(self) -> Tensor:
        """Logarithm of the determinant of the precision (the normal matrix), `(*B)`."""
        return self._shaped(self._blocks[2])

    def leverage(self) -> Leverage:
        """How much each row determines the solution.

        The leverage of a row is the derivative of its fitted value by its right-hand side: near 1
        nothing else determines the value, near 0 the row does not matter. The sum over all rows is
        the number of unknowns, `T V (R+1)`.
        """
        found = row_traces(self._problem, *self._blocks[:2])
        return Leverage(*(self._shaped(x) for x in found))

    @functools.cached_property
    def _normal(self) -> Callable[[Tensor], Tensor]:
        """Solve with the normal matrix."""
        tensors = [x.detach() for x in self._problem.tensors]
        plan = _engine(self._problem, self._backend).plan(Problem.of(tensors, self._problem.scheme))
        return functools.partial(plan.adjoint, plan.solve().factor)

    def sample(self, count: int = 1, generator: torch.Generator | None = None) -> Tensor:
        """Draw trajectories, `(count, *B, T, V, R+1)`; not differentiable.

        Solves again with normal noise added to every row, which has the posterior as distribution.
        """
        with torch.no_grad():
            draws = [self._draw(generator) for _ in range(count)]
            noise = torch.stack(draws) if draws else self.mean.new_empty(0, *self.mean.shape)
            return self.mean.detach() + noise.reshape(-1, *self.mean.shape).to(self.mean)

    def _draw(self, generator: torch.Generator | None) -> Tensor:
        problem = self._problem
        c, d, u, s, w_gov, w_init, w_smooth, scheme = problem
        T, m = c.shape[1], c.shape[4]

        def noise(x: Tensor) -> Tensor:
            return torch.randn(x.shape, dtype=x.dtype, device=x.device, generator=generator)

        load = torch.einsum("btqvr,btq->btvr", c, w_gov * noise(d))
        start = w_init * noise(u)
        load = load + pad(start, (0, m - u.shape[3], 0, 0, 0, T - u.shape[1]))
        if T > 1:
            scale, K, KF = link_rows(w_smooth, scheme)
            e = noise(w_smooth).unsqueeze(-2)
            columns = scale.unsqueeze(-1) * step_powers(s, m)
            load = load + pad(columns * (e @ K).squeeze(-2), (0, 0, 0, 0, 1, 0))
            load = load - pad(columns * (e @ KF).squeeze(-2), (0, 0, 0, 0, 0, 1))
        x = self._normal(load)
        zero = problem._replace(d=torch.zeros_like(d), u=torch.zeros_like(u))
        return x + self._normal(load + normal_residual(zero, x))

    def log_evidence(self, *, diffuse_sd: float | None = None) -> Tensor:
        r"""Log density of the initial values (the data) given the equations, `(*B)`.

        $\log p(u \mid \text{governing and smoothness rows})$, with the rows of `w_init = 0` left
        out. It is the ratio of two normalising constants, with and without the data: the density of
        all rows jointly would prefer weights that pull the trajectory to zero.

        Args:
            diffuse_sd: Where the equations leave the start of the trajectory free (as $y' = 0$
                does), the density needs a prior: standard deviation of the first jet, about zero,
                order `r` scaled by `s^r`. Choose it large; differences between weights do not
                depend on it.

        Raises:
            SolveError: The equations leave some directions free and there is no `diffuse_sd`.
        """
        problem = self._problem
        y = self.mean.detach().double().reshape(problem.y_shape)
        used = problem.w_init != 0
        logs = torch.where(used, problem.w_init, 1.0).abs().log() - used * math.log(2 * math.pi) / 2
        prior = _without_data(problem, diffuse_sd)
        squares = _squares(problem, y) - _squares(prior, _solved(prior, self._backend))
        change = self._blocks[2] - _blocks_of(prior, self._backend)[2]
        return self._shaped(logs.flatten(1).sum(1) - (squares + change) / 2)


def _engine(problem: Problem, backend: str) -> Backend:
    """The backend; instead of the GPU kernels, tensor operations on the same device."""
    engine = choose_backend(backend, problem.c.device, problem.block, problem.scheme)
    return backend_named("torch") if engine.name == "gpu" else engine


def _blocks_of(problem: Problem, backend: str) -> tuple[Tensor, Tensor, Tensor]:
    return _Blocks.apply(_engine(problem, backend), problem.scheme, *problem.tensors)


def _solved(prior: Problem, backend: str) -> Tensor:
    """The most probable trajectory without data."""
    weights: dict[str, Any] = dict(zip(KINDS, (x.detach() for x in prior.tensors[4:])))
    tensors = [x.detach() for x in prior.tensors[:4]]
    T = prior.y_shape[1]
    try:
        return solve(*tensors, **weights, scheme=prior.scheme, n_steps=T, backend=backend)
    except SolveError as error:
        raise SolveError(
            "log_evidence: without the initial values (the data), the rows do not determine the "
            "trajectory; pass diffuse_sd, the standard deviation of a wide prior of its start."
        ) from error


def _without_data(problem: Problem, diffuse_sd: float | None) -> Problem:
    """The problem without its initial rows; instead, if wanted, a wide prior of the first jet."""
    B, _, V, m = problem.y_shape
    u = problem.c.new_zeros(B, 1, V, m)
    if diffuse_sd is None:
        return problem._replace(u=u, w_init=torch.zeros_like(u))
    if not diffuse_sd > 0:
        raise ValueError(f"diffuse_sd: got {diffuse_sd!r}; expected a positive number, or None.")
    weights = u + 1 / diffuse_sd
    if problem.s.shape[1]:
        weights = weights * step_powers(problem.s[:, :1], m)
    return problem._replace(u=u, w_init=weights)


def posterior(
    c: Tensor,
    d: Tensor,
    u: Tensor,
    s: Tensor,
    *,
    w_gov: Weight = 1.0,
    w_init: Weight = 1.0,
    w_smooth: Weight = 1.0,
    order: int | None = None,
    scheme: str = "smnn",
    n_steps: int | None = None,
    backend: str = "auto",
) -> Posterior:
    r"""Solve, and describe the uncertainty of the solution.

    Reads each weight as the inverse of a standard deviation: rows of `u` are observations with
    noise $1/w_\mathrm{init}$, governing rows hold up to unknown forcing of size $1/w_\mathrm{gov}$,
    and smoothness rows up to remainders of size $1/w_\mathrm{smooth}$. Given all rows, the
    trajectory is normal with the solution as mean. Uncertainties are as good as the weights:
    `fit_weights` learns these from data.

    Everything takes time and memory linear in `T`. Arguments are those of `solve`; the scheme must
    couple neighbouring times only, so not `"central"`.

    Returns:
        A `Posterior` with `mean`, `variance()`, `covariance()`, `sample()`, `logdet()`,
        `leverage()` and `log_evidence()`.

    Examples:
        The mean of four measurements with noise 0.5, $y' = 0$, has the deviation $0.5 / \sqrt 4$:

        >>> import smnn, torch
        >>> c = torch.tensor([0.0, 1.0], dtype=torch.float64).view(1, 1, 1, 2)
        >>> u = torch.tensor([1.0, 2.0, 3.0, 2.0], dtype=torch.float64).view(4, 1, 1)
        >>> s = torch.ones(3, dtype=torch.float64)
        >>> found = smnn.posterior(c, c.new_zeros(1, 1), u, s, w_gov=1e6, w_init=2.0, w_smooth=1e6)
        >>> f"{found.mean[0, 0, 0]:.4f} {found.variance()[0, 0, 0].sqrt():.4f}"
        '2.0000 0.2500'
    """
    weights: dict[str, Any] = {"w_gov": w_gov, "w_init": w_init, "w_smooth": w_smooth}
    tensors, posed = _posed((c, d, u, s), order, Options(**weights, scheme=scheme))
    problem, batch = make_problem(
        *tensors, w_gov=posed.w_gov, w_init=posed.w_init, w_smooth=posed.w_smooth,
        scheme=posed.scheme, n_steps=n_steps,
    )  # fmt: skip
    if problem.reach > 1:
        raise ValueError(
            f"scheme: got {scheme!r}, whose rows couple three times; expected one that couples "
            "neighbouring times, such as 'smnn'."
        )
    mean = solve(
        c, d, u, s, **weights, order=order, scheme=scheme, n_steps=n_steps, backend=backend
    )  # fmt: skip
    return Posterior(mean, problem, batch, backend)


# ---------------------------------------------------------------- learning the weights


class FittedWeights(NamedTuple):
    """Result of `fit_weights`: weights to pass to `solve` or `posterior`."""

    w_gov: Weight
    w_init: Weight
    w_smooth: Weight
    log_evidence: float
    """Of the data under these weights, summed over the batch."""
    sd: dict[str, float]
    """Standard deviation of the logarithm of each learned multiplier."""
    message: str
    """Empty, or what to know before using the result."""


def fit_weights(
    c: Tensor,
    d: Tensor,
    u: Tensor,
    s: Tensor,
    *,
    learn: Sequence[str] = ("w_init", "w_smooth"),
    w_gov: Weight = 1.0,
    w_init: Weight = 1.0,
    w_smooth: Weight = 1.0,
    diffuse_sd: float | None = None,
    max_iterations: int = 60,
    **options: Any,
) -> FittedWeights:
    r"""Learn the sizes of noise, forcing and remainders from the data, by maximum evidence.

    Each kind of weight in `learn` is multiplied by one number, the same for the whole batch, that
    maximises the sum of `Posterior.log_evidence`: $1/w_\mathrm{init}$ becomes the standard
    deviation of the noise. Relative sizes within a kind stay as given.

    Args:
        c: As for `solve`.
        d: As for `solve`.
        u: The data: with weights of zero where there are none.
        s: As for `solve`.
        learn: Which of `"w_gov"`, `"w_init"`, `"w_smooth"`. With forcing that the equations do not
            contain, learn `"w_gov"`; its effect differs from that of `"w_smooth"` only if there are
            many data.
        w_gov: Start of the search, or fixed.
        w_init: Start of the search, or fixed.
        w_smooth: Start of the search, or fixed.
        diffuse_sd: See `Posterior.log_evidence`.
        max_iterations: Limit for the iterations of BFGS.
        options: `order`, `scheme`, `n_steps` and `backend`, as for `solve`.

    Returns:
        The weights, the evidence, and a message: it is not empty if the search did not converge or
        the data do not determine a weight.
    """
    given = dict(zip(KINDS, (w_gov, w_init, w_smooth)))
    unknown = [x for x in learn if x not in KINDS]
    if unknown or not learn:
        raise ValueError(f"learn: got {tuple(learn)!r}; expected some of {KINDS}.")

    def weights(logs: Tensor) -> dict[str, Any]:
        factors = dict(zip(learn, logs.exp().to(c.device, c.dtype).unbind()))
        return {x: w * factors[x] if x in factors else w for x, w in given.items()}

    def objective(logs: Tensor) -> tuple[float, Tensor]:
        logs = logs.detach().requires_grad_()
        found = posterior(c, d, u, s, **weights(logs), **options)
        total = found.log_evidence(diffuse_sd=diffuse_sd).sum().double()
        return -total.item(), -torch.autograd.grad(total, logs)[0]

    logs, value, inverse, converged = _minimise(objective, len(learn), max_iterations)
    sd = dict(zip(learn, inverse.diagonal().clamp(min=0).sqrt().tolist()))
    loose = [x for x in learn if sd[x] > 1.0]
    message = "" if converged else f"not converged after {max_iterations} iterations"
    if converged and loose:
        message = f"the data hardly determine {', '.join(loose)}: its logarithm has deviation > 1"
    fitted = weights(logs)
    plain = {x: w.item() if isinstance(w, Tensor) and w.ndim == 0 else w for x, w in fitted.items()}
    return FittedWeights(
        plain["w_gov"], plain["w_init"], plain["w_smooth"], -value, sd, message
    )  # fmt: skip


def _minimise(
    objective: Callable[[Tensor], tuple[float, Tensor]], size: int, max_iterations: int
) -> tuple[Tensor, float, Tensor, bool]:
    """Damped Newton with Hessians from differences of gradients: point, value, inverse, success."""
    x = torch.zeros(size, dtype=torch.float64)
    value, slope = objective(x)
    for _ in range(max_iterations):
        columns = [objective(x + 1e-3 * e)[1] - slope for e in torch.eye(size, dtype=x.dtype)]
        hessian = torch.stack(columns) / 1e-3
        curvature, axes = torch.linalg.eigh((hessian + hessian.T) / 2)
        curvature = curvature.abs().clamp(min=1e-9)
        step = -(axes / curvature) @ (axes.T @ slope)
        step = step * min(1.0, 2.0 / step.norm().item())
        inverse = (axes / curvature) @ axes.T
        if -(slope @ step).item() < 1e-6 * max(1.0, abs(value)) ** 0.5:
            return x, value, inverse, True
        for _ in range(12):
            new, new_slope = objective(x + step)
            if new < value:
                break
            step = step / 4
        else:
            return x, value, inverse, False
        x, value, slope = x + step, new, new_slope
    return x, value, inverse, False
