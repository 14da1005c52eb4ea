"""The governing rows that a scheme needs: of a higher order, or with their time derivatives."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from smnn._solver.problem import HERMITE
from smnn.errors import ShapeError, mismatch

WIDEST_STENCIL = 13
"""Points of a finite difference: with more, rounding and the ends of the grid spoil the rest."""


class Posed(NamedTuple):
    """What a scheme makes of the governing rows."""

    c: Tensor
    d: Tensor
    w_gov: float | Tensor
    scheme: str


def pose(
    c: Tensor, d: Tensor, s: Tensor, w_gov: float | Tensor, order: int | None, scheme: str
) -> Posed:
    """Raise the order of `c`, choose for `"auto"`, and add differentiated rows for `"hermite"`."""
    if not isinstance(c, Tensor) or c.ndim < 4:
        return Posed(c, d, w_gov, "smnn" if scheme == "auto" else scheme)
    if scheme == "auto":
        scheme = _chosen(c, d)
    wide = with_orders(c, order)
    if scheme not in HERMITE:
        return Posed(wide, d, w_gov, scheme)
    R, lowest = wide.shape[-1] - 1, c.shape[-1] - 1
    Q, V = c.shape[-3:-1]
    count = R - lowest + 1
    # As many links as complete the equations: with fewer equations than variables, more. Those of
    # `hermite-l` leave the top derivatives at the start to the equations.
    links = max(lowest, R + 1 - Q * count // max(V, 1))
    links = R + 1 if scheme == "hermite-l" and Q < V else links
    if count > 1:
        nb = c.ndim - 4
        _check_ranks(d, s, nb)
        left = derivatives(c, s, nb, nb, count, R)
        right = differentiated_right(d, s, nb, count, R)
        c, d = differentiated(left, right, mean_step(s, nb), R)
        if isinstance(w_gov, Tensor) and w_gov.ndim and w_gov.shape[-1] != 1:
            w_gov = torch.cat([w_gov] * count, -1)
    return Posed(c, d, w_gov, f"{scheme}/{links}")


def _check_ranks(d: Tensor, s: Tensor, nb: int) -> None:
    if d.ndim != nb + 2:
        raise mismatch("d", f"shape {tuple(d.shape)}", f"(*B, T, Q), {nb} batch axes", "As in c.")
    if s.ndim - nb not in (1, 2):
        rest = f"(*B, T-1) or (*B, T-1, V), {nb} batch axes"
        raise mismatch("s", f"shape {tuple(s.shape)}", rest, "As in c.")


def _chosen(c: Tensor, d: Tensor) -> str:
    """Differentiated rows where they are exact and there is one for every unknown."""
    time = c.ndim - 4
    constant = c.shape[time] == 1 and isinstance(d, Tensor) and d.ndim > time and d.shape[time] == 1
    return "hermite" if constant and c.shape[-3] >= c.shape[-2] else "iwp"


def with_orders(c: Tensor, order: int | None) -> Tensor:
    """Coefficients padded with zeros up to derivatives of this order; `c` itself for `None`.

    Raises:
        ShapeError: `c` already has derivatives of a higher order.
        TypeError: `order` is not an integer.
    """
    if order is None:
        return c
    if not isinstance(order, int):
        raise TypeError(f"order: got {order!r}; expected an integer, or None.")
    m = c.shape[-1]
    if order < m - 1:
        raise ShapeError(
            f"order: got {order}; expected at least {m - 1}, the highest order c has "
            f"(its last axis has {m} entries). order= only adds orders."
        )
    return torch.constant_pad_nd(c, (0, order + 1 - m)) if order >= m else c


def differentiated(c: list[Tensor], d: list[Tensor], h: Tensor, R: int) -> tuple[Tensor, Tensor]:
    """Governing rows and their time derivatives, row `k` in units of `h^-k`.

    Args:
        c: `h^k` times the derivative `k` of the coefficients, `(*B, T or 1, Q, V, p+1)` each; those
            that are left out are zero.
        d: The same for the right-hand side, `(*B, T or 1, Q)`: as many as there are rows.
        h: `(*B, 1)` a typical step.
        R: Highest derivative of the unknowns in the result, `p + len(d) - 1`.

    Returns:
        Coefficients `(*B, T or 1, K Q, V, R+1)` and right-hand side, derivative by derivative.
    """
    room = R + 1 - c[0].shape[-1]
    powers = [(h**j)[..., None, None, None] for j in range(len(d))]
    rows = []
    for k in range(len(d)):
        terms = [
            math.comb(k, i) * powers[k - i] * pad(c[i], (k - i, room - k + i))
            for i in range(min(k + 1, len(c)))
        ]
        rows.append(terms[0] if len(terms) == 1 else torch.stack(terms).sum(0))
    return torch.cat(torch.broadcast_tensors(*rows), -3), torch.cat(torch.broadcast_tensors(*d), -1)


def mean_step(s: Tensor, nb: int) -> Tensor:
    """The mean over time and variables, `(*B, 1)`; 1 if there is no step."""
    if not s.shape[nb]:
        return s.new_ones((*s.shape[:nb], 1))
    return s.flatten(nb).mean(-1, keepdim=True)


def derivatives(x: Tensor, s: Tensor, nb: int, time: int, count: int, R: int) -> list[Tensor]:
    """A tensor and its time derivatives below `count`, in units of the mean step; constant: itself.

    Args:
        x: Coefficients or right-hand sides, with times along an axis.
        s: `(*B, T-1 or 1)` steps, or `(*B, T-1 or 1, V)` if nothing varies in time.
        nb: Number of batch axes.
        time: The axis of `x`; axes before those of the batch number right-hand sides.
        count: Number of tensors in the result.
        R: Order of the scheme: differences have an error of order `2R + 1 - k`.
    """
    T = x.shape[time]
    if T == 1 or count == 1:
        return [x]
    if s.ndim == nb + 2 and s.shape[-1] > 1:
        raise mismatch(
            "s",
            f"steps for each of {s.shape[-1]} variables",
            "one grid for all of them, (*B, T-1)",
            "The hermite schemes differentiate c and d in time; scheme='iwp' does not.",
        )
    if s.shape[nb] not in (1, T - 1):
        raise mismatch("s", f"{s.shape[nb]} steps", f"{T - 1}, or 1", "T times have T - 1 steps.")
    steps, width = s.reshape(s.shape[: nb + 1]), min(2 * R + 1, WIDEST_STENCIL, T)
    first, weights = _stencils(steps, mean_step(s, nb), T, width, min(count, width))
    windows = x.unfold(time, width, 1).index_select(time, first).flatten(time + 1, -2)
    out = weights @ windows.mT  # (*B, T, count, features)
    return [x, *(g.unflatten(-1, x.shape[time + 1 :]) for g in out.unbind(-2)[1:])]


def differentiated_right(d: Tensor, s: Tensor, nb: int, count: int, R: int) -> list[Tensor]:
    """`derivatives` of `d (*E, *B, T, Q)`, `count` of them: zero where nothing is left."""
    found = derivatives(d, s, nb, d.ndim - 2, count, R)
    return [*found, *[torch.zeros_like(d)] * (count - len(found))]


def _stencils(s: Tensor, h: Tensor, T: int, width: int, count: int) -> tuple[Tensor, Tensor]:
    """First point `(T,)` of each finite difference, and weights `(..., T, count, width)`.

    They differentiate the polynomial through the `width` points around each time, which at the
    ends of the grid are the first or last ones.
    """
    times = torch.arange(T, device=s.device)
    first = (times - width // 2).clamp(0, T - width)
    places = torch.arange(width, device=s.device)
    if s.shape[-1] == 1:  # evenly spaced: one stencil for each position among its points
        at = (places - places[:, None]).to(s.dtype)
    else:
        t = pad(s.cumsum(-1), (1, 0))
        at = (t[..., first[:, None] + places] - t[..., None]) / h[..., None]
    powers = [torch.ones_like(at)]
    for i in range(1, width):
        powers.append(powers[-1] * at / i)
    unit = torch.eye(width, dtype=s.dtype, device=s.device)[:, :count]
    weights = torch.linalg.solve(torch.stack(powers, -2), unit.expand(*at.shape[:-1], -1, -1)).mT
    return first, weights[times - first] if s.shape[-1] == 1 else weights
