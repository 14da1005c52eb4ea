"""Open untrusted NetCDF files: format from magic bytes, metadata checked before loading.

A file of a few kilobytes can declare an array larger than any memory, because chunks that were
never written take no space, and it can refer to other files. Both are rejected before xarray opens
the file and loads its coordinates.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smnn._util.files import InputError, check_file
from smnn._util.optional import MissingPackageError, require
from smnn.data._hdf5_probe import deadly
from smnn.errors import DataError

MOST_VALUES = 250_000_000
"""Values of one variable: twice the weekly grids of sea surface temperature since 1990."""
CLASSIC, HDF5 = b"CDF", b"\x89HDF\r\n\x1a\n"


class DataFormatError(DataError):
    """A file is not of the expected format; says what was found and what was expected."""


@contextlib.contextmanager
def open_netcdf(path: Path, purpose: str = "read NetCDF files") -> Iterator[Any]:
    """The data set in a file, for `with`; what goes wrong with it inside is told as one error.

    Args:
        path: NetCDF, classic or version 4.
        purpose: What xarray is needed for, if it is not there.

    Raises:
        DataFormatError: It is not a NetCDF file, damaged, or larger than can be loaded.
    """
    xarray = require("xarray", purpose)
    path = Path(path)
    try:
        check_file(path)
        with path.open("rb") as file:
            start = file.read(8)
    except InputError as error:
        raise DataFormatError(str(error)) from None
    except OSError as error:
        raise DataFormatError(f"{path}: {error.strerror}.") from None
    if start != HDF5 and start[:3] != CLASSIC:
        raise DataFormatError(f"{path}: not a NetCDF file (it starts with {start!r}).")
    try:
        if start == HDF5:
            require("h5netcdf", purpose)
            _check_hdf5(path, require("h5py", purpose))
        with xarray.open_dataset(
            path, engine="h5netcdf" if start == HDF5 else "scipy", cache=False
        ) as data:
            for name, variable in data.variables.items():
                _check_size(path, str(name), variable.size)
            yield data
    except Exception as error:
        # Ours say what is wrong; readers raise anything for a damaged file.
        if isinstance(error, MissingPackageError) or type(error).__module__.startswith("smnn."):
            raise
        what = (str(error).splitlines() or [""])[0].rstrip(".")
        raise DataFormatError(
            f"{path}: cannot be read as NetCDF ({type(error).__name__}: {what}). Is it damaged?"
        ) from None


def check_library(path: Path) -> None:
    """Make sure that the HDF5 library survives a file.

    Raises:
        DataFormatError: It does not.
    """
    if (why := deadly(path)) is not None:
        raise DataFormatError(f"{path} is damaged: {why}.")


def _check_hdf5(path: Path, h5py: Any) -> None:
    check_library(path)
    with h5py.File(path, "r") as file:
        for name in file:
            check_dataset(path, h5py, file, name)


def check_dataset(path: Path, h5py: Any, group: Any, name: str) -> Any:
    """What a group holds under a name, if it lies in this file and is of a size to be loaded.

    Raises:
        DataFormatError: It lies elsewhere, or is too large.
    """
    if isinstance(group.get(name, getlink=True), h5py.ExternalLink):
        raise DataFormatError(f"{path}: {name!r} lies in another file; expected one file.")
    found = group[name]
    if isinstance(found, h5py.Dataset):
        if found.external or found.is_virtual:
            raise DataFormatError(f"{path}: {name!r} lies in another file; expected one file.")
        _check_size(path, name, math.prod(found.shape or ()))
    return found


def _check_size(path: Path, name: str, size: int) -> None:
    if size > MOST_VALUES:
        raise DataFormatError(
            f"{path}: {name!r} has {size:,} values; expected at most {MOST_VALUES:,}. Select the "
            "region or the times that are needed, and save those."
        )
