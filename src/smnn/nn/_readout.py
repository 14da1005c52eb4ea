"""Learned ODEs as arrays, text, rates and plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smnn._util.names import explained
from smnn.errors import mismatch
from smnn.nn._ode import LinearODE
from smnn.report import figures
from smnn.report.charts import Band, Chart, Line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ODEReadout:
    """A learned ODE as NumPy arrays, as returned by `read_out`. `print` shows the equations."""

    c: Array
    """`(*B, T, Q, V, R+1)` coefficients; time size 1 if constant."""
    d: Array
    """`(*B, T, Q)` right-hand sides; time size 1 if constant."""
    u: Array
    """`(*B, T_init, V, R_init+1)` initial values."""
    s: Array
    """`(*B, T-1)` or `(*B, T-1, V)` steps; time size 1 if constant."""
    names: tuple[str, ...]
    """Names of the variables."""

    def __str__(self) -> str:
        return "\n".join(self.equations())

    def equations(self, digits: int = 4) -> list[str]:
        """Return one line per equation, highest derivative first.

        Coefficients that vary over the batch or over time are shown as mean ± standard deviation.
        Coefficients that are zero everywhere are omitted.

        Args:
            digits: Significant digits of constant coefficients.
        """
        return [self._equation(q, digits, _TEXT) for q in range(self.d.shape[-1])]

    def latex(self, digits: int = 4) -> list[str]:
        """Return the equations in LaTeX."""
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
        r"""Return the rates $\lambda$ of solutions $e^{\lambda t}$ of the homogeneous equations.

        For coefficients that vary in time, these are the rates of the equation frozen at each time.
        The real part is the growth rate, the imaginary part the angular frequency, both per unit of
        time of the steps.

        Returns:
            `(*B, T, n)`, sorted by imaginary part; `n` is `V` times the highest order that occurs.

        Raises:
            ValueError: The numbers of equations and variables differ, or the matrix of the leading
                coefficients is singular.
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
        """Return the time grid, starting at 0, `(*B, T)` or `(*B, T, V)`; see `LinearODE.times`."""
        import torch

        ode = LinearODE(*(torch.from_numpy(x) for x in (self.c, self.d, self.u, self.s)))
        return ode.times(n_steps).numpy()

    @explained
    def plot(self, n_steps: int | None = None) -> Figure:
        """Plot coefficients and right-hand sides over time: median and 80 % range of the batch.

        Args:
            n_steps: Number of times; required if all tensors are constant in time.

        Returns:
            A matplotlib figure with a panel for each equation: `.savefig(path)`.
        """
        nb, grid = self.c.ndim - 4, self.times(n_steps)
        grid = grid.reshape(-1, *grid.shape[nb:]).mean(0)
        t = grid if grid.ndim == 1 else grid.mean(-1)
        return figures.figure([self._chart(q, nb, t) for q in range(self.d.shape[-1])])

    def _chart(self, q: int, nb: int, t: Array) -> Chart:
        """Numbers of an equation over time."""
        V, orders = self.c.shape[-2:]
        shown = {f"of {_TEXT.derivative(self.names[v], r)}": self.c[..., q, v, r]
                 for r in range(orders) for v in range(V)}  # fmt: skip
        shown = {k: x for k, x in shown.items() if np.any(x != 0)}
        lines, bands = [], []
        for k, (label, x) in enumerate({**shown, "right-hand side": self.d[..., q]}.items()):
            flat = x.reshape(-1, x.shape[nb])
            found = np.quantile(flat, (0.1, 0.5, 0.9), axis=0)
            low, middle, high = (np.broadcast_to(part, t.shape) for part in found)
            lines.append(Line(t, middle, label, k))
            bands += [Band(t, low, high, "", k)] if len(flat) > 1 else []
        title = f"equation {q + 1}" if self.d.shape[-1] > 1 else ""
        return Chart(title, lines, "time", "coefficient", bands, x_range=(t[0], t[-1]))


def read_out(
    ode: LinearODE, names: Sequence[str] | None = None, *, monic: bool = False
) -> ODEReadout:
    """Convert a learned ODE to NumPy arrays.

    Args:
        ode: The ODE, on any device; for example `model.ode(x)`.
        names: Names of the variables; by default `y`, or `y1, y2, ...`.
        monic: Divide equation `q` by its leading coefficient: that of the highest derivative of
            variable `q` that occurs. A common factor of `c` and `d` only changes the weight of the
            equation; the monic form is unique.

    Raises:
        ValueError: `monic` is true and a leading coefficient is zero somewhere.
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
    """Formatting of an equation."""

    gap: str
    plus_minus: str
    high: str
    """Format of derivatives above the third order."""
    power: str
    """Format of powers of ten."""

    def derivative(self, name: str, r: int) -> str:
        return name + "'" * r if r <= 3 else self.high.format(name=name, r=r)


_TEXT = _Style(" ", " ± ", "{name}^({r})", "{m}e{e}")
_LATEX = _Style(r"\,", r" \pm ", "{name}^{{({r})}}", r"{m} \times 10^{{{e}}}")


def _number(values: Array, digits: int, style: _Style, unit: bool = False) -> tuple[str, str]:
    """Return sign and absolute value as text; with `unit`, a factor of one is empty."""
    mean = float(values.mean())
    sign = "-" if mean < 0 else "+"
    if np.ptp(values) <= 1e-12 * abs(mean):  # constant up to rounding
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
