"""Plot of a learned ODE: coefficients over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smnn._util.optional import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from smnn.nn._readout import Array, ODEReadout

# Colour-blind safe palette of Okabe and Ito.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def draw(readout: ODEReadout, n_steps: int | None) -> Figure:
    """Draw one panel per equation."""
    require("matplotlib", "plot a learned ODE")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    nb = readout.c.ndim - 4
    grid = readout.times(n_steps)
    grid = grid.reshape(-1, *grid.shape[nb:]).mean(0)
    t = grid if grid.ndim == 1 else grid.mean(-1)
    Q, V, orders = readout.c.shape[-3:]
    canvas = Figure(figsize=(7, 2.6 * Q + 0.4), dpi=150, layout="constrained")
    FigureCanvasAgg(canvas)
    for q, axes in enumerate(canvas.subplots(Q, 1, sharex=True, squeeze=False)[:, 0]):
        lines = [
            (f"of ${_name(readout.names[v])}{_primes(r)}$", readout.c[..., q, v, r])
            for r in range(orders)
            for v in range(V)
            if np.any(readout.c[..., q, v, r] != 0)
        ]
        lines.append(("right-hand side", readout.d[..., q]))
        for k, (label, values) in enumerate(lines):
            _draw_band(axes, t, values, nb, label, COLOURS[k % len(COLOURS)])
        axes.set_ylabel("coefficient" if Q == 1 else f"equation {q + 1}")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    axes.set_xlabel("time")
    axes.set_xlim(t[0], t[-1])
    return canvas


def _draw_band(axes: Any, t: Array, values: Array, nb: int, label: str, colour: str) -> None:
    flat = values.reshape(-1, values.shape[nb])
    low, middle, high = (
        np.broadcast_to(np.quantile(flat, part, axis=0), t.shape) for part in (0.1, 0.5, 0.9)
    )
    axes.plot(t, middle, color=colour, lw=1.4, label=label)
    if len(flat) > 1:
        axes.fill_between(t, low, high, color=colour, alpha=0.2, lw=0)


def _name(name: str) -> str:
    """Typeset trailing digits as a subscript."""
    letters = name.rstrip("0123456789")
    return f"{letters}_{{{name[len(letters) :]}}}" if letters and letters != name else name


def _primes(r: int) -> str:
    return "'" * r if r <= 3 else f"^{{({r})}}"
