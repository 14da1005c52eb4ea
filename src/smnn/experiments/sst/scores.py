"""Scores of a forecast of a grid: overall, by lead time, and as maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


def _short(x: np.ndarray) -> list[float]:
    """Six digits, which suffice for figures."""
    return [float(f"{value:.6g}") for value in x]


@dataclass(frozen=True)
class Scorer:
    """The truth and the climatology that forecasts are compared with."""

    truth: np.ndarray
    """`(H, N)` degrees."""
    climatology: np.ndarray
    """`(H, N)` degrees, from the history."""
    spread: float
    """Standard deviation over all cells and times of the history, the unit of relative errors."""
    area: np.ndarray
    """`(N,)` cosine of the latitude."""
    year: int = 12

    def score(self, forecast: np.ndarray, skip: int = 0) -> dict[str, Any]:
        """All scores of a forecast `(H, N)` in degrees, without the first `skip` steps.

        If some are skipped because they were given, there are no curves by lead time.
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
        scored = slice(skip, None)
        out: dict[str, Any] = {
            "relative_mse": float(miss[scored].mean() / self.spread**2),
            "relative_mse_first_year": float(miss[first].mean() / self.spread**2),
            "of_climatology": float(miss[scored].mean() / usual[scored].mean()),
            "of_climatology_first_year": float(miss[first].mean() / usual[first].mean()),
            "rmse": float(np.sqrt((miss[scored] * self._weights).sum(1).mean())),
            "anomaly_correlation": float(self.correlation(forecast)[scored].mean()),
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
        return np.asarray(self.area / self.area.sum())

    def correlation(self, forecast: np.ndarray) -> np.ndarray:
        """`(H,)` area-weighted anomaly correlation; zero for a forecast without anomalies."""
        a, b = forecast - self.climatology, self.truth - self.climatology
        w = self._weights
        both = (w * a * b).sum(1)
        size = np.sqrt((w * a * a).sum(1) * (w * b * b).sum(1))
        return np.asarray(np.where(size > 1e-12, both / np.maximum(size, 1e-12), 0.0))

    def skill_map(self, forecast: np.ndarray) -> np.ndarray:
        """`(N,)` one minus the squared error over that of climatology; 0 where both vanish."""
        miss = np.square(forecast - self.truth).mean(0)
        usual = np.square(self.climatology - self.truth).mean(0)
        return np.asarray(np.where(usual > 1e-12, 1 - miss / np.maximum(usual, 1e-12), 0.0))

    def rmse_map(self, forecast: np.ndarray) -> np.ndarray:
        """`(N,)` root mean squared error in degrees."""
        return np.asarray(np.sqrt(np.square(forecast - self.truth).mean(0)))
