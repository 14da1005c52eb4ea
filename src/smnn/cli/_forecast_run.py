"""What `smnn forecast` computes: a fit, a forecast, and a test on the past."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from smnn._util.machine import describe_machine
from smnn.forecasting import Backtest, Forecast, Forecaster, SeriesError, backtest
from smnn.forecasting._time import Clock, make_clock
from smnn.forecasting._values import Values, read_values

ORIGINS = 8
MANY, FEWER_ORIGINS = 1000, 4
"""Of so many series, so few origins are tested unless more are asked for."""
FEW_ORIGINS = 4
"""A back-test from fewer deserves a warning."""
MOST_SHOWN = 12
SOME_SHOWN = 6
HONEST = (0.75, 0.99)
"""Share of observations in the intervals beyond which they deserve a warning, at 90 %."""
LATITUDES, LONGITUDES = ("lat", "latitude", "y"), ("lon", "longitude", "x")


@dataclass(frozen=True)
class Outcome:
    """A forecast with everything that is told about it."""

    source: str
    """Name of the file."""
    command: str
    series: Any
    """As read: a pandas `DataFrame` or an xarray `DataArray`."""
    values: Values
    clock: Clock
    forecaster: Forecaster
    forecast: Forecast
    tested: Backtest | None
    untested: str
    """Why there is no back-test; empty if there is one."""
    warnings: list[str]
    machine: dict[str, Any]
    seconds: float

    @property
    def shown(self) -> list[int]:
        """Places of the series that are drawn: all of a few, some of many, none without values."""
        alive = np.flatnonzero(np.isfinite(self.values.rows).any(1))
        if len(alive) <= MOST_SHOWN:
            return [int(i) for i in alive]
        return [int(i) for i in alive[np.linspace(0, len(alive) - 1, SOME_SHOWN).astype(int)]]

    @property
    def unit(self) -> str:
        """Of the values, where the file says so."""
        return str(getattr(self.series, "attrs", {}).get("units", ""))

    @property
    def grid(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Latitudes and longitudes, for a map."""
        dims: tuple[str, ...] = getattr(self.series, "dims", ())
        if len(dims) != 3 or dims[1] not in LATITUDES or dims[2] not in LONGITUDES:
            return None
        if any(d not in self.series.coords or self.series.sizes[d] < 2 for d in dims[1:]):
            return None
        return self.series[dims[1]].values, self.series[dims[2]].values

    @property
    def is_grid(self) -> bool:
        """Whether the result goes into a NetCDF file."""
        return hasattr(self.series, "dims")

    def doubts(self) -> list[str]:
        """Reasons to distrust the forecast."""
        out = list(self.warnings)
        if self.tested is None:
            return [*out, f"not tested on the past: {self.untested}"]
        best = self.tested.methods[1]
        ratio = self.tested.rmse() / max(self.tested.rmse(best), 1e-300)
        if ratio > 1.02:
            out.append(
                f"in the back-test the simple reference '{best}' was better "
                f"({100 / ratio:.0f} % of this error); consider it instead"
            )
        low, high = (1 - (1 - x) * (1 - self.tested.level) / 0.1 for x in HONEST)
        if not low <= self.tested.coverage <= high:
            out.append(
                f"{100 * self.tested.coverage:.0f} % of what came lay in intervals meant to hold "
                f"{100 * self.tested.level:.0f} %: take their width with care"
            )
        if (count := len(self.tested.origins)) < FEW_ORIGINS:
            out.append(
                f"the back-test has only {count} origin{'s' * (count != 1)}: its figures say little"
            )
        return out


def run(
    source: str, series: Any, forecaster: Forecaster, horizon: int | None, origins: int | None,
    command: str, say: Callable[[str], None],
) -> Outcome:  # fmt: skip
    """Fit, forecast, and test on the past.

    Args:
        source: Name of the file.
        series: What `read_series` read.
        forecaster: Not fitted yet.
        horizon: Steps ahead, or `None`.
        origins: Of the back-test; `None` for as many as the size of the data allows.
        command: That does the same again.
        say: Told what is being done.
    """
    start = time.perf_counter()
    values = read_values(series, None)
    if origins is None:
        origins = ORIGINS if len(values.names) <= MANY else FEWER_ORIGINS
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forecaster.fit(series, horizon=horizon)
    found = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    ahead = forecaster.predict()
    tested, reason = None, "no origins were asked for"
    if origins:
        say(f"Testing on the past: 0 of {origins} origins")
        try:
            tested = backtest(
                series, horizon=forecaster.horizon_, origins=origins, forecaster=forecaster,
                tick=lambda done: say(f"Testing on the past: {done} of {origins} origins"),
            )  # fmt: skip
        except SeriesError as error:  # too short a history
            reason = str(error)
    return Outcome(
        source, command, series, values, make_clock(values.t, len(values.array)), forecaster,
        ahead, tested, "" if tested is not None else reason, found, describe_machine(),
        time.perf_counter() - start,
    )  # fmt: skip
