"""How good a forecast of a grid is: overall, by lead time, and on a map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


def _short(x: np.ndarray) -> list[float]:
    """Six digits: curves are for pictures."""
    return [float(f"{value:.6g}") for value in x]


@dataclass(frozen=True)
class Judge:
    """The truth, and what errors are measured against."""

    truth: np.ndarray
    """`(H, N)` degrees."""
    climatology: np.ndarray
    """`(H, N)` degrees, from the history."""
    spread: float
    """Standard deviation over all cells and times of the history: relative errors divide by it."""
    area: np.ndarray
    """`(N,)` cosine of the latitude."""
    year: int = 12

    def score(self, forecast: np.ndarray, skip: int = 0) -> dict[str, Any]:
        """Everything about one forecast `(H, N)`.

        Args:
            forecast: In degrees.
            skip: Leading steps that are left out, because they were given; without curves by lead
                time then.
        """
        if forecast.shape != self.truth.shape:
            raise ValueError(
                f"forecast: got shape {forecast.shape}; expected {self.truth.shape}, as the truth."
            )
        if not np.isfinite(forecast).all():
            raise ValueError("forecast: got values that are not finite; expected numbers.")
        miss = np.square(forecast - self.truth)
        usual = np.square(self.climatology - self.truth)
        first = slice(skip, max(self.year, skip + 1))
        rest = slice(skip, None)
        out: dict[str, Any] = {
            "relative_mse": float(miss[rest].mean() / self.spread**2),
            "relative_mse_first_year": float(miss[first].mean() / self.spread**2),
            "of_climatology": float(miss[rest].mean() / usual[rest].mean()),
            "of_climatology_first_year": float(miss[first].mean() / usual[first].mean()),
            "rmse": float(np.sqrt((miss[rest] * self._weights).sum(1).mean())),
            "anomaly_correlation": float(self.correlation(forecast)[rest].mean()),
            "anomaly_correlation_first_year": float(self.correlation(forecast)[first].mean()),
        }
        if skip == 0:
            out |= {
                "relative_mse_by_lead": _short(miss.mean(1) / self.spread**2),
                "of_climatology_by_lead": _short(miss.mean(1) / usual.mean(1)),
                "rmse_by_lead": _short(np.sqrt((miss * self._weights).sum(1))),
                "anomaly_correlation_by_lead": _short(self.correlation(forecast)),
            }
        return out

    @property
    def _weights(self) -> np.ndarray:
        out: np.ndarray = self.area / self.area.sum()
        return out

    def correlation(self, forecast: np.ndarray) -> np.ndarray:
        """`(H,)` over the cells, of anomalies from climatology, weighted by area.

        Zero where a forecast has no anomaly, as climatology itself.
        """
        a, b = forecast - self.climatology, self.truth - self.climatology
        w = self._weights
        both = (w * a * b).sum(1)
        size = np.sqrt((w * a * a).sum(1) * (w * b * b).sum(1))
        out: np.ndarray = np.where(size > 1e-12, both / np.maximum(size, 1e-12), 0.0)
        return out

    def skill_map(self, forecast: np.ndarray) -> np.ndarray:
        """`(N,)` one minus the part of climatology's squared error; 0 where neither errs."""
        miss = np.square(forecast - self.truth).mean(0)
        usual = np.square(self.climatology - self.truth).mean(0)
        out: np.ndarray = np.where(usual > 1e-12, 1 - miss / np.maximum(usual, 1e-12), 0.0)
        return out

    def rmse_map(self, forecast: np.ndarray) -> np.ndarray:
        """`(N,)` degrees."""
        out: np.ndarray = np.sqrt(np.square(forecast - self.truth).mean(0))
        return out
