"""Reading what has been learned: coefficients as arrays, equations as text, rates, a plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smnn.errors import mismatch
from smnn.nn._ode import LinearODE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ODEReadout:
    """A learned ODE as plain numbers. Made by `read_out`; printing it prints the equations."""

    c: Array
    """`(*B, T, Q, V, R+1)` coefficients; time size 1 where they are constant."""
    d: Array
    """`(*B, T, Q)` right-hand sides, likewise."""
    u: Array
    """`(*B, T_init, V, R_init+1)` initial values."""
    s: Array
    """`(*B, T-1)` or `(*B, T-1, V)` steps, likewise."""
    names: tuple[str, ...]
    """Of the variables."""

    def __str__(self) -> str:
        return "\n".join(self.equations())

    def equations(self, digits: int = 4) -> list[str]:
        """One line per equation, the highest derivative first.

        A coefficient that is the same everywhere is a number; one that varies over the batch or
        over time is its mean ± its standard deviation. Coefficients that are zero everywhere are
        left out.

        Args:
            digits: Significant digits of numbers that do not vary.
        """
        return [self._equation(q, digits, _TEXT) for q in range(self.d.shape[-1])]

    def latex(self, digits: int = 4) -> list[str]:
        """As `equations`, in LaTeX."""
        return [self._equation(q, digits, _LATEX) for q in range(self.d.shape[-1])]

    def _equation(self, q: int, digits: int, style: _Style) -> str:
        V, orders = self.c.shape[-2:]
        parts = []
        for r in reversed(range(orders)):
            for v in range(V):
                values = self.c[..., q, v, r]
                if np.any(values != 0):
                    sign, factor = _number(values, digits, style, unit=True)
                    gap = style.gap if factor else ""
                    parts.append((sign, factor + gap + style.derivative(self.names[v], r)))
        sign, right = _number(self.d[..., q], digits, style)
        left = "".join(
            (("-" if sign == "-" else "") if i == 0 else f" {sign} ") + text
            for i, (sign, text) in enumerate(parts)
        )
        return f"{left or '0'} = {'-' if sign == '-' else ''}{right}"

    def modes(self) -> NDArray[np.complex128]:
        r"""The rates $\lambda$ of the solutions $e^{\lambda t}$ of the homogeneous equations.

        For coefficients that vary in time, those of the equation frozen at each time. The real part
        is the growth, the imaginary part the angular frequency, in the unit of time of the steps.

        Returns:
            `(*B, T, n)` with `n = V` times the highest order that occurs, sorted by imaginary part.

        Raises:
            ValueError: If there are not as many equations as variables, or the matrix of the
                leading coefficients is singular.
        """
        Q, V = self.c.shape[-3:-1]
        used = np.flatnonzero(np.any(self.c != 0, axis=tuple(range(self.c.ndim - 1))))
        R = int(used[-1]) if len(used) else 0
        if Q != V or R == 0:
            raise ValueError(
                f"modes: got {Q} equations for {V} variables of order {R}; expected as many "
                "equations as variables, of order 1 or more."
            )
        leading = self.c[..., R]
        if np.any(np.linalg.cond(leading) > 1 / np.finfo(float).eps):
            raise ValueError(
                "modes: the matrix of the leading coefficients is singular; expected an equation "
                "that can be solved for the highest derivatives."
            )
        lead = self.c.shape[:-3]
        companion = np.zeros((*lead, V * R, V * R))
        companion[..., : V * (R - 1), V:] = np.eye(V * (R - 1))
        for r in range(R):
            block = np.linalg.solve(leading, self.c[..., r])
            companion[..., V * (R - 1) :, r * V : (r + 1) * V] = -block
        rates = np.linalg.eigvals(companion).astype(np.complex128)
        order = np.lexsort((rates.real, rates.imag), axis=-1)
        return np.take_along_axis(rates, order, -1)

    def times(self, n_steps: int | None = None) -> Array:
        """The time grid from 0, `(*B, T)` or `(*B, T, V)`; see `LinearODE.times`."""
        import torch

        ode = LinearODE(*(torch.from_numpy(x) for x in (self.c, self.d, self.u, self.s)))
        return ode.times(n_steps).numpy()

    def plot(self, n_steps: int | None = None) -> Figure:
        """Coefficients and right-hand sides over time, the middle of the batch and 80 % of it.

        Args:
            n_steps: Number of times, where the tensors do not tell it.

        Returns:
            A matplotlib figure: `.savefig(path)`.
        """
        from smnn.nn._plot import draw

        return draw(self, n_steps)


def read_out(
    ode: LinearODE, names: Sequence[str] | None = None, *, monic: bool = False
) -> ODEReadout:
    """Read a learned ODE as plain numbers.

    Args:
        ode: What a network has written down, on any device; `model.ode(x)`.
        names: Of the variables; `y`, or `y1, y2, ...` if not given.
        monic: Divide each equation by its leading coefficient: the highest derivative that occurs,
            of the variable with the number of the equation. A factor common to `c` and `d` is only
            a weight; without it the equation has one form.

    Raises:
        ValueError: If a leading coefficient is zero somewhere and `monic` is asked for.
    """
    V = ode.c.shape[-2]
    found = tuple(names) if names else (("y",) if V == 1 else tuple(f"y{v + 1}" for v in range(V)))
    if len(found) != V:
        raise mismatch("names", found, f"{V} names", "One for each variable.")
    c, d, u, s = (x.detach().cpu().double().numpy() for x in ode)
    if monic:
        nb = ode.batch_dims
        c, d = _broadcast_leading(c, d, nb)
        for q in range(c.shape[-3]):
            v = q if q < V else 0
            present = np.flatnonzero(np.any(c[..., q, v, :] != 0, axis=tuple(range(nb + 1))))
            leading = c[..., q, v, present[-1]].copy() if len(present) else np.zeros(1)
            if np.any(leading == 0):
                raise ValueError(
                    f"monic: the leading coefficient of equation {q} is zero somewhere; expected "
                    "one that never is. Read it with monic=False."
                )
            c[..., q, :, :] /= leading[..., None, None]
            d[..., q] /= leading
    return ODEReadout(c, d, u, s, found)


def _broadcast_leading(c: Array, d: Array, nb: int) -> tuple[Array, Array]:
    lead = np.broadcast_shapes(c.shape[: nb + 1], d.shape[: nb + 1])
    c = np.broadcast_to(c, lead + c.shape[nb + 1 :]).copy()
    return c, np.broadcast_to(d, lead + d.shape[nb + 1 :]).copy()


@dataclass(frozen=True)
class _Style:
    """How an equation is written."""

    gap: str
    plus_minus: str
    high: str
    """A derivative beyond the third, with the name and the order to be filled in."""
    power: str
    """A power of ten, with the mantissa and the exponent to be filled in."""

    def derivative(self, name: str, r: int) -> str:
        return name + "'" * r if r <= 3 else self.high.format(name=name, r=r)


_TEXT = _Style(" ", " ± ", "{name}^({r})", "{m}e{e}")
_LATEX = _Style(r"\,", r" \pm ", "{name}^{{({r})}}", r"{m} \times 10^{{{e}}}")


def _number(values: Array, digits: int, style: _Style, unit: bool = False) -> tuple[str, str]:
    """Sign and absolute value in words; a factor of one is empty if it is a `unit`."""
    mean = float(values.mean())
    sign = "-" if mean < 0 else "+"
    if np.ptp(values) <= 1e-12 * abs(mean):  # beyond rounding it does not vary
        if mean == 0:
            return "+", "0"
        return sign, "" if unit and abs(mean) == 1 else _plain(abs(mean), digits, style)
    spread = float(values.std(ddof=1))
    decimals = 1 - math.floor(math.log10(spread))
    if decimals > 7 or max(abs(mean), spread) >= 1e6:
        e = math.floor(math.log10(max(abs(mean), spread)))
        both = [f"{x / 10.0**e:.{max(decimals + e, 0)}f}" for x in (abs(mean), spread)]
        pair = style.power.format(m=f"({both[0]}{style.plus_minus}{both[1]})", e=e)
        return sign, pair
    both = [f"{round(x, decimals):.{max(decimals, 0)}f}" for x in (abs(mean), spread)]
    pair = both[0] + style.plus_minus + both[1]
    return sign, f"({pair})"


def _plain(x: float, digits: int, style: _Style) -> str:
    text = f"{x:.{digits}g}"
    if "e" in text:
        m, e = text.split("e")
        return style.power.format(m=m, e=int(e))
    return text
