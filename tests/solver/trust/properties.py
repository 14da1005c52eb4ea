"""Properties that hold for every problem and backend, one function each.

A function takes `Problems` and a backend and returns the errors of the samples in units of
unavoidable rounding errors (`Problems.ratio`) unless stated otherwise; `None` if not applicable.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import smnn
from helpers import NAMES, Case, problem_of
from solver.internals import LARGEST_IN_A_LANE, SINGULAR, backend_named
from solver.trust import oracle
from solver.trust.problems import Problems, on_device, solve_ex

Errors = np.ndarray | None


def rng_of(p: Problems) -> np.random.Generator:
    return np.random.default_rng([p.shape.seed, 7])


def solve(case: Any, backend: str) -> Tensor:
    """Solution; failed samples are NaN."""
    return solve_ex(case, backend)[0]


def plain(p: Problems, backend: str) -> Tensor:
    return p.solve_ex(backend)[0]


# ---------------------------------------------------------------- the answer


def exact_least_squares(p: Problems, backend: str) -> Errors:
    """Compare with dense least squares in extended precision."""
    return p.ratio(plain(p, backend))


def float32(p: Problems, backend: str) -> Errors:
    """Compare with the rounded result of float64, in units of float32 rounding."""
    case = p.case.to(torch.float32)
    low, info = solve_ex(case, backend)
    high, _ = solve_ex(case.to(torch.float64), backend)
    fine = (info.status == 0).flatten().numpy() & p.well_posed
    low, high = p.flat(low)[fine], p.flat(high)[fine]
    size = np.abs(high)
    return np.abs(low - high).max(1, initial=0.0, where=size > 1e-30) / np.maximum(
        6e-8 * size.max(1, initial=0.0), 1e-300
    )


def linear(p: Problems, backend: str) -> Errors:
    """`2 b - b2` has the solution `2 y - y2`."""
    _, d, u, _ = p.case.args
    d2, u2 = p.right
    y, y2, both = (
        solve(p.case.replace(d=a, u=b), backend)
        for a, b in ((d, u), (d2, u2), (2 * d - d2, 2 * u - u2))
    )
    return p.ratio(both, 2 * y - y2, columns=(0, 0, 1, 2))


# ---------------------------------------------------------------- symmetries


def order_of_samples(p: Problems, backend: str) -> Errors:
    """Samples are independent of each other."""
    order = rng_of(p).permutation(p.count)
    full = {k: x[order] for k, x in zip(NAMES, p.full)}
    y, moved = solve(p.at_full_size(), backend), solve(p.at_full_size(**full), backend)
    back = np.argsort(order)
    return p.ratio(moved[back], y)


def names_of_variables_and_equations(p: Problems, backend: str) -> Errors:
    """A permutation of either only permutes the solution."""
    rng = rng_of(p)
    v, q = rng.permutation(p.shape.V), rng.permutation(p.shape.Q)
    c, d, u, s, w_gov, w_init, w_smooth = p.full
    new = {
        "c": c[:, :, q][:, :, :, v],
        "d": d[..., q],
        "u": u[:, :, v],
        "s": s[..., v],
        "w_gov": w_gov[..., q],
        "w_init": w_init[:, :, v],
        "w_smooth": w_smooth[:, :, v],
    }
    y = plain(p, backend).reshape(p.count, p.shape.T, p.shape.V, -1)
    back = solve(p.at_full_size(**new), backend)[:, :, np.argsort(v)]
    return p.ratio(back, y, columns=(0, 0))


def unit_of_time(p: Problems, backend: str) -> Errors:
    """In another unit of time, only derivatives change, by its powers."""
    unit = float(rng_of(p).choice([0.25, 0.5, 2.0, 3.0, 60.0]))
    c, d, u, s, w_gov, w_init, w_smooth = p.full
    power = unit ** np.arange(c.shape[-1])
    w_smooth = w_smooth.copy()
    if p.shape.scheme == "central":
        w_smooth[..., -1] *= unit  # the central rows carry one power of the step less
    early = power[: u.shape[-1]]
    new = {"c": c * power, "u": u / early, "s": s * unit, "w_init": w_init * early}
    y = solve(p.at_full_size(**new, w_smooth=w_smooth), backend)
    return p.ratio(y * torch.as_tensor(power), plain(p, backend), columns=(0, 0))


def direction_of_time(p: Problems, backend: str) -> Errors:
    """Reversed in time, only odd derivatives change, in sign."""
    c, d, u, s, w_gov, w_init, w_smooth = p.full
    T, m = c.shape[1], c.shape[-1]
    sign = (-1.0) ** np.arange(m)
    # Initial values at the first times become values at the last: on all times, most of weight 0.
    everywhere, weight = np.zeros((p.count, T, *u.shape[2:])), np.zeros((p.count, T, *u.shape[2:]))
    everywhere[:, : u.shape[1]], weight[:, : u.shape[1]] = u, w_init
    turned = w_smooth[:, ::-1].copy()
    if p.shape.scheme == "central" and T > 1:  # row t of the top order lies around time t + 1
        turned[:, : T - 2, :, -1] = w_smooth[:, : T - 2, :, -1][:, ::-1]
    new = {
        "c": c[:, ::-1] * sign,
        "d": d[:, ::-1],
        "u": everywhere[:, ::-1] * sign[: u.shape[-1]],
        "s": s[:, ::-1],
        "w_gov": w_gov[:, ::-1],
        "w_init": weight[:, ::-1],
        "w_smooth": turned,
    }
    y = solve(p.at_full_size(**new), backend).flip(1) * torch.as_tensor(sign)
    return p.ratio(y, plain(p, backend), columns=(0, 0))


def broadcasting_is_repetition(p: Problems, backend: str) -> Errors:
    """Axes of size 1, float weights and `order=` equal the same input at full size."""
    return p.ratio(plain(p, backend), solve(p.at_full_size(), backend), columns=(0, 0))


def weight_zero_is_absent(p: Problems, backend: str) -> Errors:
    """Another equation and initial time of weight zero, with arbitrary values and NaN."""
    rng = rng_of(p)
    c, d, u, s, w_gov, w_init, w_smooth = p.full
    noise = rng.choice([np.nan, np.inf, 1e6, -3.0], c[:, :, :1].shape)
    new = {
        "c": np.concatenate([noise, c], 2),
        "d": np.concatenate([noise[..., 0, 0], d], 2),
        "w_gov": np.concatenate([np.zeros_like(noise[..., 0, 0]), w_gov], 2),
    }
    if u.shape[1] < p.shape.T:
        more = rng.choice([np.nan, -np.inf, 1e6], (p.count, 1, *u.shape[2:]))
        new["u"] = np.concatenate([u, more], 1)
        new["w_init"] = np.concatenate([w_init, np.zeros_like(more)], 1)
    return p.ratio(solve(p.at_full_size(**new), backend), plain(p, backend), columns=(0, 0))


# ---------------------------------------------------------------- ways to compute it


def pieces_are_the_whole(p: Problems, backend: str) -> Errors:
    """Any number of pieces gives the same result; `None` for backends without pieces.

    On a GPU also a warp for each sequence (0); larger blocks have nothing else, and in an
    interpreter it would take a program for each sample.
    """
    if backend not in ("cpu", "gpu"):
        return None
    engine = backend_named(backend)
    case = on_device(p.case, backend)
    whole = problem_of(case)
    if backend == "gpu" and p.shape.V * p.shape.m > LARGEST_IN_A_LANE:
        return None
    reach = 2 if p.shape.scheme == "central" else 1
    cuts = [P for P in (2, 3, 5, 8) if reach < p.shape.T // P]
    if whole.c.is_cuda:
        cuts.append(0)
    worst = None
    y = engine.plan(whole, 1).solve().y
    for P in cuts:
        ratio = p.ratio(engine.plan(whole, P).solve().y, y, columns=(0, 0))
        worst = ratio if worst is None else np.maximum(worst, ratio)
    return worst


def many_right_hand_sides(p: Problems, backend: str) -> Errors:
    """One factor for two right-hand sides equals two separate solves."""
    case = on_device(p.at_full_size(), backend)
    c, d, u, s = case.args
    shape = u.shape[1], u.shape[3]
    kept = smnn.factorize(c, s, init_shape=shape, **case.kw, backend=backend, check=False)
    d2, u2 = (torch.tensor(x, device=d.device) for x in p.second)
    both = kept.solve(torch.stack([d, d2]), torch.stack([u, u2]))
    first = p.ratio(both[0], columns=(0,))
    second = p.ratio(both[1], p.exact.y[..., 1], columns=(1,))
    return np.maximum(first, second)


def _gentle(p: Problems) -> tuple[Case, np.ndarray, list[Tensor]]:
    """The case, the samples with condition below 1e5, and their seven tensors."""
    case = p.at_full_size()
    chosen = p.well_posed & (p.exact.condition < 1e5)
    keep = torch.as_tensor(chosen)
    return case, chosen, [x[keep] for x in (*case.args, *(case.kw[k] for k in NAMES[4:]))]


def gradients(p: Problems, backend: str) -> Errors:
    """Gradients by all seven arguments, compared with autograd through a dense QR.

    Compared are gradient times argument, relative to the largest of them, in units of rounding
    times the square of the condition number, which the adjoint solution cannot avoid. Samples of
    condition above 1e5 are left out.
    """
    case, chosen, tensors = _gentle(p)
    if not chosen.any():
        return None
    generator = torch.Generator().manual_seed(p.shape.seed)
    found = []
    for way in (backend, "oracle"):
        inputs = [x.clone().requires_grad_() for x in tensors]
        if way == "oracle":
            y = oracle.differentiable_solution(*inputs, scheme=p.shape.scheme)
        else:
            new = case.replace(**dict(zip(NAMES, inputs)))
            y = solve_ex(new, backend)[0].flatten(1)
        weight = torch.randn(y.shape, generator=generator.manual_seed(1), dtype=torch.float64)
        weight = weight * torch.as_tensor(p.exact.norms[chosen])
        grads = torch.autograd.grad((y * weight).sum(), inputs, materialize_grads=True)
        found.append([(g * x).detach().flatten(1) for g, x in zip(grads, inputs)])
    ours, theirs = (torch.cat(grads, 1) for grads in found)
    scale = theirs.norm(dim=1).clamp(min=1e-300)
    unit = oracle.EPS * p.exact.condition[chosen] ** 2
    return ((ours - theirs).norm(dim=1) / scale).numpy() / unit


def forward_mode(p: Problems, backend: str) -> Errors:
    """Directional derivatives in all seven arguments, compared with reverse mode.

    In the units of `gradients`, and for the same samples.
    """
    case, chosen, tensors = _gentle(p)
    if not chosen.any():
        return None
    generator = torch.Generator().manual_seed(p.shape.seed)
    along = [x * torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in tensors]

    def f(*x: Tensor) -> Tensor:
        return solve_ex(case.replace(**dict(zip(NAMES, x))), backend)[0].flatten(1)

    inputs = [x.clone().requires_grad_() for x in tensors]
    y = f(*inputs)
    weight = torch.randn(y.shape, generator=generator, dtype=torch.float64)
    weight = weight * torch.as_tensor(p.exact.norms[chosen])
    grads = torch.autograd.grad((y * weight).sum(), inputs, materialize_grads=True)
    parts = torch.cat([(g * t).flatten(1) for g, t in zip(grads, along)], 1)
    tangent = torch.func.jvp(f, tuple(tensors), tuple(along))[1]
    error = ((weight * tangent).sum(1) - parts.sum(1)).abs()
    unit = oracle.EPS * p.exact.condition[chosen] ** 2
    return (error / parts.abs().sum(1).clamp(min=1e-300)).numpy() / unit


# ---------------------------------------------------------------- singular problems


def condition_is_estimated(p: Problems, backend: str) -> Errors:
    """Factor between the estimate and the true condition number, where that is below 1e12."""
    _, info = p.solve_ex(backend, condition=True)
    true, estimate = p.exact.condition, info.condition.flatten().numpy()
    known = true < 1e12
    factor = estimate[known] / true[known]
    return np.maximum(factor, 1 / factor)


def wrongly_judged(p: Problems, backend: str) -> tuple[int, int]:
    """Number of regular samples reported as singular, and of singular ones not reported.

    Between condition numbers 1e12 and 1e16 either is accepted. The status is requested with
    `condition=True`, and "not finite" is wrong, since the input is finite.
    """
    _, info = p.solve_ex(backend, condition=True)
    status, true = info.status.flatten().numpy(), p.exact.condition
    return (
        int(((true < 1e12) & (status != 0)).sum()),
        int(((true > 1e16) & (status != SINGULAR)).sum()),
    )


PROPERTIES: dict[str, Callable[[Problems, str], Errors]] = {
    f.__name__: f
    for f in (
        exact_least_squares, float32, linear, order_of_samples, names_of_variables_and_equations,
        unit_of_time, direction_of_time, broadcasting_is_repetition, weight_zero_is_absent,
        pieces_are_the_whole, many_right_hand_sides, gradients, condition_is_estimated,
        forward_mode,
    )
}  # fmt: skip

LIMITS = dict.fromkeys(PROPERTIES, 4.0) | {
    "float32": 1.0 + 1e-6,
    "many_right_hand_sides": 100.0,
    "gradients": 100.0,
    "forward_mode": 100.0,
    "condition_is_estimated": 4.0,
}
"""Upper limits for every sample, in the unit of the property."""

FIXED: dict[str, dict[str, Any]] = {
    "pieces_are_the_whole": {
        "T": lambda chosen: 8 + 16 * (chosen["V"] == 1) + chosen["seed"] % 9,
        "T_init": lambda chosen: min(chosen["T_init"], chosen["T"]),
    },
    "order_of_samples": {
        "batch": lambda chosen: (max(int(np.prod(chosen["batch"], dtype=int)), 5),)
    },
    "names_of_variables_and_equations": {"per_variable": True},
}
"""Requirements of properties on their problems."""
