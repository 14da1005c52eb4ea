"""Sea surface temperature: NOAA Optimum Interpolation SST V2.

Three formats are supported: the weekly 1-degree file with its land mask, monthly grids, and the
weekly text file of the Nino regions. The monthly 2.5-degree grid and the Nino file are part of the
package (NOAA data are in the public domain; see `data/README.md` next to this file).

Standardization and climatologies are estimated only from the times before `until`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from smnn._util.files import InputError, read_bounded
from smnn.data import DataFormatError as DataFormatError
from smnn.data import open_netcdf

MONTHLY = "oisst_v2_monthly_2p5deg.nc"
NINO = "nino_weekly_1990_2020.for"
REGIONS = ("Nino1+2", "Nino3", "Nino3.4", "Nino4")
WANTED = "read sea surface temperatures"
LARGEST_TEXT = 2**26
"""Size limit of a text file in bytes."""


@dataclass(frozen=True)
class Grid:
    """Temperatures on a grid of latitudes and longitudes."""

    values: np.ndarray
    """`(T, A, O)` float32, NaN over land."""
    time: np.ndarray
    """`(T,)` `datetime64[ns]`."""
    lat: np.ndarray
    """`(A,)` degrees north."""
    lon: np.ndarray
    """`(O,)` degrees east."""
    ocean: np.ndarray
    """`(A, O)` cells without missing values that are ocean according to the mask, if any."""
    units: str = "degC"
    source: str = ""

    @property
    def series(self) -> np.ndarray:
        """`(T, N)` the ocean cells, float64."""
        return self.values[:, self.ocean].astype(float)

    @property
    def cells(self) -> np.ndarray:
        """`(N, 2)` latitude and longitude of the ocean cells."""
        a, o = np.nonzero(self.ocean)
        return np.stack([self.lat[a], self.lon[o]], axis=1)

    def on_grid(self, x: np.ndarray) -> np.ndarray:
        """Scatter `(..., N)` to `(..., A, O)`, with NaN elsewhere."""
        x = np.asarray(x, dtype=float)
        if x.shape[-1] != int(self.ocean.sum()):
            raise ValueError(
                f"x: got {x.shape[-1]} cells; expected {int(self.ocean.sum())}, the ocean cells."
            )
        out = np.full((*x.shape[:-1], *self.ocean.shape), np.nan)
        out[..., self.ocean] = x
        return out


def monthly() -> Grid:
    """The packaged grid: monthly means, 2.5 degrees, December 1981 to January 2023."""
    with resources.as_file(resources.files("smnn.datasets") / "data" / MONTHLY) as path:
        return read_grid(path)


def read_grid(path: str | Path, mask: str | Path | None = None, variable: str = "sst") -> Grid:
    """Read a NOAA grid: `sst.wkmean.1990-present.nc`, a monthly file, or one with the same layout.

    Packed integers are unpacked with scale factor and offset, missing values become NaN, and times
    are decoded with their units and calendar. Cells with missing values and cells that are land
    according to the mask are excluded; without a mask, the weekly file has values over land.

    Args:
        path: NetCDF file, classic or version 4.
        mask: File such as `lsmask.nc`: 1 over ocean, 0 over land.
        variable: Name of the variable.

    Raises:
        DataFormatError: The file is not laid out as expected.
    """
    path = Path(path)
    with open_netcdf(path, WANTED) as data:
        if variable not in data:
            have = ", ".join(sorted(map(str, data.data_vars)))
            raise DataFormatError(f"{path}: no variable {variable!r}; it has {have or 'none'}.")
        field = data[variable]
        missing = [name for name in ("time", "lat", "lon") if name not in field.dims]
        if missing:
            raise DataFormatError(
                f"{path}: {variable} has dimensions {field.dims}; expected time, lat and lon."
            )
        field = field.transpose("time", "lat", "lon")
        values = field.values.astype(np.float32)
        time = np.asarray(field["time"].values)
        if not np.issubdtype(time.dtype, np.datetime64):
            raise DataFormatError(
                f"{path}: the times are {time.dtype}; expected dates. "
                "Its time variable needs units such as 'days since 1800-01-01'."
            )
        lat, lon = field["lat"].values.astype(float), field["lon"].values.astype(float)
        units = str(field.attrs.get("units", "degC"))
        source = str(field.attrs.get("dataset", data.attrs.get("title", "")))
    ocean = np.isfinite(values).all(0)
    if mask is not None:
        ocean &= _read_mask(Path(mask), lat, lon)
        values = np.where(ocean, values, np.float32(np.nan))
    return Grid(values, time.astype("datetime64[ns]"), lat, lon, ocean, units, source)


def _read_mask(path: Path, lat: np.ndarray, lon: np.ndarray) -> np.ndarray:
    # The only time of NOAA's mask is in the year 1, which is no date here.
    with open_netcdf(path, WANTED, decode_times=False) as data:
        if "mask" not in data:
            raise DataFormatError(f"{path}: no variable 'mask'. Expected NOAA's lsmask.nc.")
        field = data["mask"]
        field = field.isel({d: 0 for d in field.dims if d not in ("lat", "lon")})
        field = field.transpose("lat", "lon")
        same = field.shape == (len(lat), len(lon)) and (
            np.allclose(field["lat"].values, lat) and np.allclose(field["lon"].values, lon)
        )
        if not same:
            raise DataFormatError(
                f"{path}: its grid is not that of the temperatures ({len(lat)} x {len(lon)})."
            )
        return np.asarray(field.values == 1)


@dataclass(frozen=True)
class Nino:
    """Weekly temperatures of the four Nino regions."""

    time: np.ndarray
    """`(T,)` `datetime64[ns]`, the middle of each week."""
    sst: np.ndarray
    """`(T, 4)` degrees."""
    anomaly: np.ndarray
    """`(T, 4)` deviations from NOAA's climatology, as published."""
    regions: tuple[str, ...] = REGIONS


def nino() -> Nino:
    """The packaged file: weeks from 3 January 1990 to 23 September 2020."""
    with resources.as_file(resources.files("smnn.datasets") / "data" / NINO) as path:
        return read_nino(path)


_WEEK = re.compile(r"^\s*(\d{2})([A-Z]{3})(\d{4})\s+(.+?)\s*$")
_NUMBER = re.compile(r"-?\d+\.\d+")
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]


def read_nino(path: str | Path) -> Nino:
    """Read NOAA's weekly text file (`wksst*.for`).

    Negative anomalies are not separated from the preceding temperature (`23.4-0.4`), so fields are
    recognized by their decimals.

    Raises:
        DataFormatError: A line does not consist of a date and eight numbers.
    """
    time: list[np.datetime64] = []
    rows: list[list[float]] = []
    try:
        text = read_bounded(Path(path), LARGEST_TEXT).decode("ascii", "replace")
    except InputError as error:
        raise DataFormatError(str(error)) from None
    except OSError as error:
        raise DataFormatError(f"{path}: {error.strerror or error}.") from None
    for number, line in enumerate(text.splitlines(), 1):
        match = _WEEK.match(line)
        if match is None:
            if time and line.strip():
                raise DataFormatError(f"{path}, line {number}: expected a week, got {line!r}.")
            continue  # the heading
        day, month, year, rest = match.groups()
        numbers = _NUMBER.findall(rest)
        if len(numbers) != 2 * len(REGIONS) or month not in _MONTHS:
            raise DataFormatError(
                f"{path}, line {number}: expected a date and {2 * len(REGIONS)} numbers, "
                f"got {line!r}."
            )
        try:
            time.append(np.datetime64(f"{year}-{_MONTHS.index(month) + 1:02d}-{day}", "ns"))
        except ValueError:
            raise DataFormatError(
                f"{path}, line {number}: there is no day {day}{month}{year}."
            ) from None
        rows.append([float(x) for x in numbers])
    if not rows:
        raise DataFormatError(f"{path}: no weeks found. Expected lines like '03JAN1990 23.4-0.4'.")
    table = np.array(rows)
    return Nino(np.array(time), table[:, 0::2], table[:, 1::2])


# ---------------------------------------------------------------- standardization, neighbours


@dataclass(frozen=True)
class Standard:
    """Offset and scale of a series, estimated from its training part."""

    offset: np.ndarray
    """Broadcasts against `(T, N)`."""
    scale: np.ndarray
    """Broadcasts against `(T, N)`, positive."""

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Standardize `(T, N)`."""
        return np.asarray((x - self.offset) / self.scale)

    def undo(self, x: np.ndarray) -> np.ndarray:
        """Convert standardized values back to degrees."""
        return np.asarray(x * self.scale + self.offset)


def standard(
    series: np.ndarray, time: np.ndarray, until: int, how: str = "global", harmonics: int = 3
) -> Standard:
    """Estimate offset and scale from the first `until` times.

    Args:
        series: `(T, N)`.
        time: `(T,)` dates.
        until: Length of the training part.
        how: `"global"`: one mean and one standard deviation over all cells and times, as in the
            paper; most of that deviation is spatial. `"anomaly"`: deviations of every cell from its
            own seasonal cycle, in units of their standard deviation.
        harmonics: Number of harmonics of the seasonal cycle.
    """
    T = len(series)
    if not 2 <= until <= T:
        raise ValueError(f"until: got {until}; expected 2 to {T}, the length of the series.")
    train = series[:until]
    if how == "global":
        return Standard(np.asarray(train.mean()), np.asarray(train.std()))
    if how != "anomaly":
        raise ValueError(f"how: got {how!r}; expected 'global' or 'anomaly'.")
    cycle = seasonal_waves(time, harmonics)
    weights = np.linalg.lstsq(cycle[:until], train, rcond=None)[0]
    offset = cycle @ weights
    spread = (train - offset[:until]).std(axis=0)
    # Under ice the temperature is almost constant; a floor avoids amplifying rounding errors.
    floor = 1e-3 * max(float(spread.max()), 1e-12)
    return Standard(offset, np.maximum(spread, floor))


def seasonal_waves(time: np.ndarray, harmonics: int) -> np.ndarray:
    """`(T, 1 + 2 * harmonics)` design matrix, with the phase given by the calendar."""
    year = time.astype("datetime64[Y]")
    length = (year + 1).astype("datetime64[ns]") - year.astype("datetime64[ns]")
    angle = 2 * np.pi * ((time.astype("datetime64[ns]") - year.astype("datetime64[ns]")) / length)
    waves = [f(j * angle) for j in range(1, harmonics + 1) for f in (np.cos, np.sin)]
    return np.stack([np.ones(len(time)), *waves], axis=1)


@dataclass(frozen=True)
class Neighbours:
    """Neighbours of every ocean cell on its circle of latitude."""

    start: np.ndarray
    """`(N+1,)` offsets into `partner`."""
    partner: np.ndarray
    """`(E,)` indices of cells."""

    @property
    def paired(self) -> np.ndarray:
        """Cells with at least one neighbour."""
        return np.flatnonzero(np.diff(self.start) > 0)


def neighbours(ocean: np.ndarray, reach: int = 5) -> Neighbours:
    """Pairs of ocean cells in the same row of the grid, at most `reach` columns apart.

    Rows are periodic (longitude 357.5 is next to 0), and both directions of a pair are listed.

    Args:
        ocean: `(A, O)` bool.
        reach: Largest distance in columns.
    """
    A, O = ocean.shape
    if not 1 <= reach < O:
        raise ValueError(f"reach: got {reach}; expected 1 to {O - 1}, less than a full circle.")
    index = np.full(ocean.shape, -1)
    index[ocean] = np.arange(int(ocean.sum()))
    offsets = sorted({k % O for k in range(-reach, reach + 1)} - {0})
    near = np.stack([np.roll(index, -k, axis=1) for k in offsets], axis=-1)[ocean]  # (N, K)
    there = near >= 0
    start = np.concatenate([[0], np.cumsum(there.sum(1))])
    return Neighbours(start, near[there])
