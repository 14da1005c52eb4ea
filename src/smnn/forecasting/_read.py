"""Reading of series from files: text tables and NetCDF grids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from smnn.data import DataError, DataFormatError, open_netcdf, read
from smnn.forecasting._time import SeriesError

GRIDS = (".nc", ".nc4", ".cdf", ".netcdf", ".zarr")


def read_series(
    path: str | Path, columns: list[str] | None = None, time: str | None = None, **options: Any
) -> Any:
    """Read series with their times.

    Args:
        path: A table with a header row (`.csv`, `.tsv`, `.txt`, optionally with `.gz`): one column
            per series, or a column that names the series; or a grid (`.nc`, `.zarr`).
        columns: Names of the columns to read (for NetCDF, of the variable); all numeric columns if
            `None`.
        time: Name of the time column (for NetCDF, of the time dimension, by default `time`);
            detected by its name or content if `None`.
        **options: Further arguments of `smnn.data.read`, for tables.

    Returns:
        A pandas `DataFrame` indexed by time, or an xarray `DataArray` with time first.
        `attrs["notes"]` lists decisions made by the reader.

    Raises:
        SeriesError: If the file cannot be read or contains no series.
    """
    path = Path(path)
    if path.exists() and path.suffix.lower() in GRIDS:
        grid = _read_grid(path, columns, time or "time")
        if grid is not None:
            return grid
    try:
        return read(path, columns=columns, time=time, **options).to_frame()
    except DataError as error:
        raise SeriesError(str(error)) from None


def _read_grid(path: Path, columns: list[str] | None, time: str) -> Any:
    try:
        with open_netcdf(path, "read a grid") as data:
            dims = list(map(str, data.dims))
            if time not in dims:
                raise SeriesError(
                    f"{path}: no dimension {time!r}; it has {', '.join(dims) or 'none'}. Pass the "
                    "name of the time dimension as time=."
                )
            usable = [str(v) for v in data.data_vars if time in data[v].dims]
            usable = [v for v in usable if data[v].dtype.kind in "iuf" and "bnds" not in v]
            series = [v for v in usable if data[v].ndim == 1]
            if series and {*(columns or series)} <= {*series}:
                return None  # a table
            if columns is not None and len(columns) == 1 and columns[0] in usable:
                usable = columns
            elif columns is not None:
                raise SeriesError(
                    f"{path}: no variable {', '.join(columns)} over {time!r}; it has "
                    f"{', '.join(usable) or 'none'}. Choose one of these."
                )
            if len(usable) != 1:
                raise SeriesError(
                    f"{path}: {len(usable)} variables have a dimension {time!r} "
                    f"({', '.join(usable) or 'none'}). Choose one with columns=."
                )
            field = data[usable[0]].transpose(time, ...).load()
    except DataFormatError as error:
        raise SeriesError(str(error)) from None
    if not field.size or not np.isfinite(field.values).any():
        raise SeriesError(f"{path}: all values of variable {usable[0]!r} are missing.")
    field = field.rename({time: "time"}) if time != "time" else field
    field.attrs["notes"] = []
    sizes = ", ".join(f"{size:,} {dim}" for dim, size in field.sizes.items())
    share = 100 * np.isnan(field.values).mean() if field.dtype.kind == "f" else 0.0
    field.attrs["summary"] = (
        f"{path.name}: grid {field.name!r} ({sizes}); {share:.3g} % of the values missing."
    )
    return field.sortby("time") if "time" in field.coords else field
