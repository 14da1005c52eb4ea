r"""Learned parameters of every cell's ODE in physical units.

The time-invariant network predicts $y'' + c_1 y' + c_0 y = d(t)$ with constant coefficients, whose
free solutions are damped oscillations, or decays if the damping is strong. The forcing has a yearly
harmonic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from smnn.experiments.sst.networks import MechanisticIdentifier, SeasonalForcing
from smnn.experiments.sst.train import SSTTask


@dataclass(frozen=True)
class Parameters:
    """Parameters of every cell in every chunk of the history."""

    values: np.ndarray
    """`(C, N, 6)`: `c0`, `c1`, the constant of the forcing and the amplitudes of its harmonics, in
    the unit of time in which a year is 2 pi; forcing in degrees."""

    @property
    def period(self) -> np.ndarray:
        """`(N,)` period of the free oscillation in months, last chunk; infinite if overdamped."""
        c0, c1 = self.values[-1, :, 0], self.values[-1, :, 1]
        square = c0 - c1**2 / 4
        return np.where(square > 0, 12 / np.sqrt(np.maximum(square, 1e-12)), np.inf)

    @property
    def damping(self) -> np.ndarray:
        """`(N,)` decay time of free solutions to 1/e in months, last chunk; the slower if two."""
        c0, c1 = self.values[-1, :, 0], self.values[-1, :, 1]
        root = np.sqrt(np.maximum(c1**2 / 4 - c0, 0.0))
        out: np.ndarray = 12 / (2 * np.pi) / np.maximum(c1 / 2 - root, 1e-9)
        return out

    @property
    def forcing(self) -> np.ndarray:
        """`(N,)` amplitude of the yearly forcing, degrees per squared time unit, last chunk."""
        return self.values[-1, :, 3]

    def summary(self) -> dict[str, Any]:
        """Quartiles."""

        def quartiles(x: np.ndarray) -> list[float]:
            return [float(q) for q in np.quantile(x[np.isfinite(x)], (0.25, 0.5, 0.75))]

        oscillating = np.isfinite(self.period)
        return {
            "period_months": quartiles(self.period) if oscillating.any() else None,
            "oscillating": float(oscillating.mean()),
            "damping_months": quartiles(self.damping),
            "forcing_degrees": quartiles(self.forcing),
        }


@torch.no_grad()
def read(task: SSTTask, x: np.ndarray, length: int, scale: float) -> Parameters:
    """Parameters of all cells in the whole chunks of a standardized history `(T, N)`.

    Args:
        task: The trained time-invariant network.
        x: The history; the last chunk ends with it.
        length: Length of a chunk.
        scale: Degrees per standardized unit.
    """
    model = task.model
    assert isinstance(model, MechanisticIdentifier)
    assert isinstance(model.forcing, SeasonalForcing)
    count = len(x) // length
    chunks = x[len(x) - count * length :].reshape(count, length, -1)
    anchor = next(task.parameters())
    out = []
    for chunk in chunks:
        code = model.encode(torch.as_tensor(chunk.T.copy()).to(anchor))
        c = model.coefficients(code)[:, 0, 0, 0, :2].double().cpu().numpy()
        a = model.forcing.amplitudes(code).double().cpu().numpy() * scale
        sizes = np.hypot(a[:, 1::2], a[:, 2::2])
        out.append(np.concatenate([c, a[:, :1], sizes], axis=1))
    return Parameters(np.stack(out))
