"""The result of a forecast: means, intervals, and components."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from smnn._util.optional import require

QUANTITIES = ("mean", "lower", "upper")


@dataclass(frozen=True)
class Forecast:
    """Forecast of one or more series. Arrays are `(H, *shape)`, time first."""

    t: np.ndarray
    """`(H,)` future times: dates or numbers, as in the history."""
    mean: np.ndarray
    """Expected value; the median for series that are modelled by their logarithms."""
    lower: np.ndarray
    """Lower bound of the prediction interval."""
    upper: np.ndarray
    """Upper bound of the prediction interval."""
    level: float
    """Nominal coverage of the prediction interval."""
    components: dict[str, np.ndarray]
    """Components that add up to the mean (to its logarithm where `log` is true)."""
    log: np.ndarray
    """`shape`, which series are modelled by their logarithms."""
    names: tuple[str, ...]
    """One name per series."""
    _interval: Callable[[float], tuple[np.ndarray, np.ndarray]] = field(repr=False, compare=False)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds at another level, `(H, *shape)` each."""
        return self._interval(level)

    def series(self, i: int) -> dict[str, np.ndarray]:
        """`mean`, `lower` and `upper` `(H,)` of one series, by index into `names`."""
        return {name: getattr(self, name).reshape(len(self.t), -1)[:, i] for name in QUANTITIES}

    def frame(self) -> Any:
        """Return a pandas table with one row per series and time."""
        pandas = require("pandas", "make a table of a forecast")
        H, S = len(self.t), len(self.names)
        flat = {name: getattr(self, name).reshape(H, S).T.ravel() for name in QUANTITIES}
        index = {"series": np.repeat(self.names, H), "t": np.tile(self.t, S)}
        return pandas.DataFrame({**index, **flat})

    def record(self, series: Sequence[int] | None = None) -> dict[str, dict[str, list[Any]]]:
        """Return `mean`, `lower` and `upper` by series as lists; `None` replaces NaN.

        Args:
            series: Indices of the series to include; all if `None`.
        """
        chosen = range(len(self.names)) if series is None else series
        return {
            self.names[i]: {
                name: [float(v) if np.isfinite(v) else None for v in values]
                for name, values in self.series(i).items()
            }
            for i in chosen
        }

    def dataset(self, source: Any) -> Any:
        """Return the forecast as an xarray `Dataset` with the dimensions of the data.

        Args:
            source: The `DataArray` that was fitted.
        """
        xarray = require("xarray", "write a grid")
        coords: dict[str, Any] = {source.dims[0]: self.t}
        coords |= {d: source[d].values for d in source.dims[1:] if d in source.coords}
        units = {"units": str(source.attrs.get("units", ""))}
        data = {
            name: (source.dims, getattr(self, name).astype(np.float32), units)
            for name in QUANTITIES
        }
        return xarray.Dataset(data, coords, {"interval_level": self.level})
