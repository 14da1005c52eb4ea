r"""Learned parameters of every cell's ODE in physical units, and what they encode.

The time-invariant network predicts $y'' + c_1 y' + c_0 y = d(t)$ with constant coefficients, whose
free solutions are damped oscillations, or decays if the damping is strong. The forcing has a yearly
harmonic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from smnn.datasets.sst import Grid
from smnn.experiments.sst import probes
from smnn.experiments.sst.networks import MechanisticIdentifier, SeasonalForcing
from smnn.experiments.sst.train import SSTTask

FEATURES = ("c0", "c1", "constant", "yearly", "half-yearly", "third")


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


def cannot_probe(grid: Grid, chunks: int) -> str | None:
    """Reason why the parameters of a grid cannot be probed, or `None`."""
    lat, lon = grid.cells.T
    kind = probes.zones(lat)
    for side in (lon < 180, lon >= 180):
        missing = [name for k, name in enumerate(probes.ZONES) if not (kind[side] == k).any()]
        if missing:
            return f"no {' or '.join(missing)} cells in one half of the longitudes"
    return None if chunks > 1 else "the history holds a single chunk"


def probe(
    found: Parameters, grid: Grid, series: np.ndarray, length: int, seed: int
) -> dict[str, Any]:
    """Predict climate zones from the parameters, and estimate effects of zone and time.

    Args:
        found: Parameters of the history.
        grid: The grid.
        series: `(T, N)` the history in degrees.
        length: Length of a chunk.
        seed: Random seed of folds and shuffled labels.
    """
    C, N, F = found.values.shape
    lat, lon = grid.cells.T
    flat = _features(found.values).reshape(C * N, F)
    chunk = np.repeat(np.arange(C), N)
    lats, lons = np.tile(lat, C), np.tile(lon, C)
    means = series[len(series) - C * length :].reshape(C, length, N).mean(1)
    zone = probes.zone_probe(flat, lats, lons, chunk, seed)
    alone = probes.zone_probe(means.reshape(-1, 1), lats, lons, chunk, seed)
    # Neighbours are correlated: at most blocks of ten degrees are independent.
    block = (np.floor(lat / 10) * 100 + np.floor(lon / 10)).astype(int)
    # Covariates must precede the treatment: those of the first chunk, for both times.
    early = np.tile(_features(found.values)[0], (2, 1))
    late = probes.effect(
        early, np.repeat([False, True], N), means[[0, -1]].ravel(), np.tile(block, 2), seed
    )
    kind = probes.zones(lat)
    some = kind != 1
    tropical = probes.effect(
        _features(found.values)[-1][some], kind[some] == 0, means[-1][some], block[some], seed
    )
    return {
        "features": list(FEATURES),
        "zones": zone,
        "zones_by_mean_temperature": alone,
        "effects": {
            "last chunk against first": late.record(),
            "tropical against polar": tropical.record(),
        },
    }


def _features(values: np.ndarray) -> np.ndarray:
    """Logarithms of the positive parameters, for linear probes."""
    positive = [0, 1, 3, 4, 5]
    out = values.copy()
    out[..., positive] = np.log(np.maximum(out[..., positive], 1e-6))
    return out
