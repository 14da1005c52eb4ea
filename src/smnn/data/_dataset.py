"""`TimeSeriesData`: series of numbers with their times, and a record of how they were read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from smnn._util.optional import require
from smnn.data._times import zone_offset
from smnn.errors import DataError

LISTED = 12
"""Names that a summary lists."""
EVEN = 1e-3
"""Spread of the steps, relative to the median, up to which they count as even."""


@dataclass(frozen=True)
class TimeSeriesData:
    """One or several series of the same variables."""

    names: list[str]
    """Variables, `V` of them."""
    times: list[np.ndarray]
    """One increasing array `(T_i,)` for each series, in `time_unit`."""
    values: list[np.ndarray]
    """`(T_i, V)` float64 for each series, NaN where a value is missing."""
    input_names: list[str] = field(default_factory=list)
    """External inputs, `U` of them."""
    inputs: list[np.ndarray] = field(default_factory=list)
    """`(T_i, U)` for each series, without gaps."""
    series: list[str] = field(default_factory=list)
    """Names of the series; `""` for a single one."""
    time_name: str | None = None
    """Name of the time column; `None` if rows were counted."""
    time_unit: str | None = None
    """Such as `"s"`, or `"days since 2024-01-01"` for calendar dates; `None` if unknown."""
    units: dict[str, str] = field(default_factory=dict)
    """Units by name, where the data state them."""
    notes: list[str] = field(default_factory=list)
    """What was assumed or dropped."""
    warnings: list[str] = field(default_factory=list)
    """What may be wrong with the data."""
    dates: list[np.ndarray] | None = None
    """Calendar dates `(T_i,)` of each series, `datetime64[us]`; in UTC if there is a time zone."""
    zone: str | None = None
    """Time zone of the dates, such as `"Europe/Berlin"` or `"UTC+01:00"`."""
    series_name: str | None = None
    """Name of the column that separates the series."""
    source: str = "data"
    """Name of the file, or kind of the object."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Number of rows left out, by reason."""

    @property
    def time_label(self) -> str:
        """Name and unit of the time: `t (s)`, but `year` for years."""
        name = self.time_name or "row"
        said = not self.time_unit or self.time_unit.rstrip("s") == name.lower().rstrip("s")
        return name if said else f"{name} ({self.time_unit})"

    @property
    def rows(self) -> int:
        """Number of times in all series together."""
        return sum(len(t) for t in self.times)

    @property
    def missing(self) -> int:
        """Number of missing values."""
        return int(sum(np.isnan(x).sum() for x in self.values))

    @property
    def step(self) -> float | None:
        """Median step of all series; `None` if every series has a single time."""
        steps = np.concatenate([np.diff(t) for t in self.times])
        return float(np.median(steps)) if len(steps) else None

    @property
    def even(self) -> bool:
        """Whether all steps are equal, to within a thousandth."""
        steps = np.concatenate([np.diff(t) for t in self.times])
        return bool(len(steps) and np.ptp(steps) <= EVEN * np.median(steps))

    def local_dates(self) -> list[np.ndarray] | None:
        """Dates as the clocks of the time zone showed them; UTC where clocks are set back."""
        if self.dates is None or self.zone is None:
            return self.dates
        shifts = [local_shift(x, self.zone) for x in self.dates]
        shifted = [x + s for x, s in zip(self.dates, shifts)]
        return shifted if all((np.diff(x) > np.timedelta64(0)).all() for x in shifted) else None

    def summary(self) -> str:
        """What was read, in one or two lines."""
        parts = [f"{self.source}: {self._time_text()}"]
        if len(self.series) > 1:
            by = f" by {self.series_name!r}" if self.series_name else ""
            parts.append(f"{len(self.series):,} series{by} ({_listed(self.series, 5)})")
        count = len(self.names)
        named = [f"{n} [{self.units[n]}]" if n in self.units else n for n in self.names]
        parts.append(f"variable{'s' * (count != 1)} {_listed(named, LISTED)}")
        if self.input_names:
            parts.append(f"inputs {_listed(self.input_names, LISTED)}")
        share = 100 * self.missing / max(1, self.rows * count)
        parts.append(f"{rows_text(self.rows)}, {share:.3g} % of the values missing")
        if self.dropped:
            reasons = [f"{count:,} {why}" for why, count in self.dropped.items()]
            parts.append(f"rows dropped: {', '.join(reasons)}")
        return "; ".join(parts) + "."

    def _time_text(self) -> str:
        if self.time_name is None:
            return "no time column, rows are 1 apart"
        unit = (self.time_unit or "").split(" since ")[0]
        step = "" if self.step is None else f", {'' if self.even else 'median '}step {self.step:g}"
        single = step.endswith("step 1") and len(unit) > 2
        step += f" {unit.removesuffix('s') if single else unit}" if unit and step else ""
        if self.dates is None:
            low, high = min(t[0] for t in self.times), max(t[-1] for t in self.times)
            unknown = "" if unit else ", unit unknown"
            return f"time {self.time_name!r} from {low:g} to {high:g} {unit}".rstrip() + (
                step + unknown
            )
        ends = min(x[0] for x in self.dates), max(x[-1] for x in self.dates)
        low, high = (show_date(x, self.zone) for x in ends)
        zone = f" ({self.zone})" if self.zone else ""
        return f"time {self.time_name!r} from {low} to {high}{zone}{step}"

    def without_input(self, name: str | None) -> tuple[TimeSeriesData, list[np.ndarray] | None]:
        """The same without an input column, and the values of this column."""
        if name is None:
            return self, None
        k = self.input_names.index(name)
        names = [*self.input_names[:k], *self.input_names[k + 1 :]]
        inputs = [np.delete(u, k, axis=1) for u in self.inputs]
        return replace(self, input_names=names, inputs=inputs), [u[:, k] for u in self.inputs]

    def dense(self, shortest: int = 1) -> TimeSeriesData:
        """The same without rows that have no value, and without series that are shorter."""
        kept = [np.isfinite(x).any(1) for x in self.values]
        long = [i for i, k in enumerate(kept) if k.sum() >= shortest]
        short, empty = len(kept) - len(long), sum(int((~k).sum()) for k in kept)
        if not short and not empty:
            return self

        def part(arrays: list[np.ndarray]) -> list[np.ndarray]:
            return [arrays[i][kept[i]] for i in long]

        note = [f"{rows_text(empty)} without any value: left out."] if empty else []
        warning = f"{short} series with fewer than {shortest} times: left out."
        return replace(
            self, times=part(self.times), values=part(self.values), inputs=part(self.inputs),
            dates=None if self.dates is None else part(self.dates),
            series=[self.series[i] for i in long], notes=[*self.notes, *note],
            warnings=[*self.warnings, *([warning] if short else [])],
            dropped=self.dropped | ({"without any value": empty} if empty else {}),
        )  # fmt: skip

    def varying(self, required: bool = False) -> TimeSeriesData:
        """The same without variables that never change, with a warning for each."""
        keep, warnings = [], list(self.warnings)
        everything = np.concatenate(self.values)
        for v, name in enumerate(self.names):
            known = everything[np.isfinite(everything[:, v]), v]
            constant = len(known) > 1 and np.ptp(known) == 0
            if constant and required:
                raise DataError(
                    f"columns: {name!r} is {known[0]:g} everywhere; expected a column that changes "
                    "in time. Leave it out."
                )
            if constant:
                warnings.append(f"the column {name!r} is {known[0]:g} everywhere and was left out.")
            else:
                keep.append(v)
        if not keep:
            raise DataError(
                f"{self.source} has no column of numbers that changes in time; expected one for "
                f"each variable. Its columns: {_listed(self.names, LISTED)}."
            )
        if len(keep) == len(self.names):
            return self
        return replace(
            self, names=[self.names[v] for v in keep], values=[x[:, keep] for x in self.values],
            warnings=warnings,
        )  # fmt: skip

    def to_frame(self) -> Any:
        """A pandas `DataFrame` with a column for each series and variable, indexed by time.

        Dates stay dates (in local time where that is unambiguous, otherwise in UTC); `attrs` holds
        the `notes`, the `units` that all variables share, the `time_zone` and the `summary`.
        """
        pd = require("pandas", "make a data frame")
        local = self.local_dates()
        stamps = self.dates if local is None else local
        frames = []
        for i, (label, values) in enumerate(zip(self.series, self.values)):
            names = self.names
            if len(self.series) > 1:
                names = [label if len(names) == 1 else f"{label} {n}" for n in names]
            index = pd.Index(self.times[i] if stamps is None else stamps[i].astype("M8[ns]"))
            frames.append(pd.DataFrame(values, columns=names, index=index))
        out = frames[0] if len(frames) == 1 else pd.concat(frames, axis=1).sort_index()
        if self.time_name is None:
            out.index = pd.RangeIndex(len(out))
        units = {self.units.get(name, "") for name in self.names}
        out.attrs = {
            "notes": [*self.notes, *self.warnings], "units": units.pop() if len(units) == 1 else "",
            "time_zone": "UTC" if self.zone and local is None else self.zone,
            "summary": self.summary(),
        }  # fmt: skip
        return out


def _listed(names: list[str], most: int) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def rows_text(count: int) -> str:
    """`1 row`, `2 rows`."""
    return f"{count:,} row{'s' * (count != 1)}"


def local_shift(dates: np.ndarray, zone: str) -> np.ndarray:
    """Local time minus UTC, `(n,)` in microseconds."""
    if (minutes := zone_offset(zone)) is not None:
        return np.full(dates.shape, minutes, "m8[m]").astype("m8[us]")
    pd = require("pandas", "convert time zones")
    at = pd.DatetimeIndex(np.atleast_1d(dates)).tz_localize("UTC")
    local = at.tz_convert(zone).tz_localize(None).to_numpy().astype("M8[us]")
    return (local - np.atleast_1d(dates)).reshape(dates.shape)


def show_date(date: np.datetime64, zone: str | None) -> str:
    """`2024-01-31`, with the time of day if that is not midnight."""
    at = np.asarray(date)
    at = at if zone is None else at + local_shift(at, zone)
    text = str(at).rstrip("0").rstrip(".") if "." in str(at) else str(at)
    return text.removesuffix("T00:00:00")
