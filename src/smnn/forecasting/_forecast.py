"""The result of a forecast: means, intervals, and components."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smnn._util.files import write_atomically
from smnn._util.machine import describe_machine
from smnn._util.optional import require
from smnn.forecasting._view import charts, report
from smnn.report.charts import Chart
from smnn.report.display import Displayable, Overview, chosen
from smnn.report.numbers import probabilities
from smnn.report.tables import forecast_frame

if TYPE_CHECKING:
    from smnn.forecasting._forecaster import Forecaster

QUANTITIES = ("mean", "lower", "upper")


@dataclass(frozen=True)
class Forecast(Displayable):
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
    """Nominal coverage of the prediction interval, the largest of `levels`."""
    components: dict[str, np.ndarray]
    """Components that add up to the mean (to its logarithm where `log` is true)."""
    log: np.ndarray
    """`shape`, which series are modelled by their logarithms."""
    names: tuple[str, ...]
    """One name per series."""
    levels: tuple[float, ...]
    """Levels of the intervals that `to_frame` lists, increasing."""
    _interval: Callable[[float], tuple[np.ndarray, np.ndarray]] = field(repr=False, compare=False)
    _source: Forecaster | None = field(default=None, repr=False, compare=False)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds at another level, `(H, *shape)` each."""
        (share,) = probabilities(level)
        return self._interval(share)

    def series(self, i: int) -> dict[str, np.ndarray]:
        """`mean`, `lower` and `upper` `(H,)` of one series, by index into `names`."""
        return {name: getattr(self, name).reshape(len(self.t), -1)[:, i] for name in QUANTITIES}

    def to_frame(self) -> Any:
        """Return a pandas `DataFrame` in the layout of Nixtla's packages.

        It has one row per series and time and the columns `unique_id`, `ds`, `smnn`, and for every
        level in `levels` columns such as `smnn-lo-90` and `smnn-hi-90`.
        """
        shape = len(self.t), len(self.names)
        bounds = {x: tuple(b.reshape(shape) for b in self.interval(x)) for x in self.levels}
        return forecast_frame(self.names, self.t, self.mean.reshape(shape), bounds)  # type: ignore[arg-type]

    def frame(self) -> Any:
        """Return a pandas table with the columns series, t, mean, lower and upper."""
        percent = f"{100 * self.level:.10g}"
        columns = ("unique_id", "ds", "smnn", f"smnn-lo-{percent}", f"smnn-hi-{percent}")
        return self.to_frame()[list(columns)].set_axis(["series", "t", *QUANTITIES], axis=1)

    def report(self, path: str | Path, *, name: str = "series") -> Path:
        """Write an HTML page with charts, components and equations.

        `make_report` makes one with a back-test.

        Args:
            path: File to write.
            name: Name of the data, for the title.
        """
        if self._source is None:
            raise ValueError("a report needs a forecast that Forecaster.predict made.")
        source, missing = self._source, self._source._not_fitted()
        made = report.ForecastReport(
            name, None, source._history, source, self, None, "make_report does that",
            (missing,) if missing else (), "", 0.0, describe_machine(),
        )  # fmt: skip
        return write_atomically(Path(path), made.html())

    def _charts(self, names: Sequence[str] | None) -> list[Chart]:
        shown = chosen(names, self.names, report.SOME_SHOWN, "series")
        return charts.curves(self._source._history if self._source else None, self, shown)

    def _overview(self) -> Overview:
        return report.forecast_overview(self)

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
