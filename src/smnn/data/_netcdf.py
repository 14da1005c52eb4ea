"""Open untrusted NetCDF files and Zarr stores: kind and metadata are checked before loading.

A file of a few kilobytes can declare an array larger than any memory, because chunks that were
never written take no space, and it can refer to other files. Both are rejected before xarray opens
the file and loads its coordinates.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smnn._util.files import InputError, check_file, read_bounded
from smnn._util.optional import MissingPackageError, require
from smnn.errors import DataError

MOST_VALUES = 250_000_000
"""Values of one variable: twice the weekly grids of sea surface temperature since 1990."""
CLASSIC, HDF5 = b"CDF", b"\x89HDF\r\n\x1a\n"
ZARR_METADATA = (".zarray", ".zgroup", ".zmetadata", "zarr.json")


class DataFormatError(DataError):
    """A file is not of the expected format; says what was found and what was expected."""


@contextlib.contextmanager
def open_netcdf(
    path: Path, purpose: str = "read NetCDF files", *, decode_times: bool = True
) -> Iterator[Any]:
    """Open a data set for a `with` statement; failures inside it are raised as one kind of error.

    Args:
        path: NetCDF file, classic or version 4, or the folder of a Zarr store.
        purpose: What xarray is needed for, for the message if it is missing.
        decode_times: Whether to convert times to dates.

    Raises:
        DataFormatError: It is of another kind, damaged, or larger than can be loaded.
    """
    xarray = require("xarray", purpose)
    path = Path(path)
    try:
        engine = _engine(path, purpose)
        extra: dict[str, Any] = {"decode_times": decode_times}
        if engine == "zarr":
            extra["consolidated"] = (path / ".zmetadata").exists()
        with xarray.open_dataset(path, engine=engine, cache=False, **extra) as data:
            for name, variable in data.variables.items():
                _check_size(path, str(name), variable.size)
            yield data
    except InputError as error:
        raise DataFormatError(str(error)) from None
    except Exception as error:
        # Ours say what is wrong; readers raise anything for a damaged file.
        if isinstance(error, MissingPackageError) or type(error).__module__.startswith("smnn."):
            raise
        what = (str(error).splitlines() or [""])[0].rstrip(".")
        raise DataFormatError(
            f"{path}: cannot be read as {'Zarr' if path.is_dir() else 'NetCDF'} "
            f"({type(error).__name__}: {what}). The file may be damaged."
        ) from None


def _engine(path: Path, purpose: str) -> str:
    """Check a file and return the engine of xarray that reads it."""
    if path.is_dir():
        _check_zarr(path)
        require("zarr", "read Zarr stores")
        return "zarr"
    try:
        check_file(path)
        with path.open("rb") as file:
            start = file.read(8)
    except OSError as error:
        raise DataFormatError(f"{path}: {error.strerror}.") from None
    if start[:3] == CLASSIC:
        return "scipy"
    if start != HDF5:
        raise DataFormatError(f"{path}: not a NetCDF file (it starts with {start!r}).")
    require("h5netcdf", purpose)
    h5py = require("h5py", purpose)
    with h5py.File(path, "r") as file:
        for name in file:
            check_dataset(path, h5py, file, name)
    return "h5netcdf"


def _check_zarr(path: Path) -> None:
    """Refuse stores whose codecs could run code on reading."""
    files = [x for x in path.rglob("*") if x.name in ZARR_METADATA]
    if not files:
        raise DataFormatError(f"{path} is a folder; expected a file or a Zarr store.")
    for file in files:
        try:
            record = json.dumps(json.loads(read_bounded(file, 64 * 2**20)))
        except ValueError:
            raise DataFormatError(f"{file} is not JSON; is the Zarr store damaged?") from None
        if "pickle" in record.lower():
            raise DataFormatError(
                f"{path} holds pickled Python objects; expected numbers. Objects are not read, "
                "since they can bring code with them."
            )


def check_dataset(path: Path, h5py: Any, group: Any, name: str) -> Any:
    """Return the item of a group if it lies in this file and is not too large to be loaded."""
    found = None
    if not isinstance(group.get(name, getlink=True), h5py.ExternalLink):
        found = group[name]
    dataset = isinstance(found, h5py.Dataset)
    if found is None or (dataset and (found.external or found.is_virtual)):
        raise DataFormatError(f"{path}: {name!r} lies in another file; expected one file.")
    if dataset:
        _check_size(path, name, math.prod(found.shape or ()))
    return found


def _check_size(path: Path, name: str, size: int) -> None:
    if size > MOST_VALUES:
        raise DataFormatError(
            f"{path}: {name!r} has {size:,} values; expected at most {MOST_VALUES:,}. Select the "
            "region or the times that are needed, and save those."
        )
