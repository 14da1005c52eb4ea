"""Read fields on a grid from files and labelled objects: which axis is time, which are space."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.files import check_file
from smnn._util.names import suggestion
from smnn._util.optional import MissingPackageError, require
from smnn.data import DataFormatError, check_dataset, open_netcdf
from smnn.discovery._field.data import FEWEST_POINTS, FieldSet, gather_fields
from smnn.errors import DataError

Field = np.ndarray[Any, np.dtype[Any]]
GRIDS = (".nc", ".nc4", ".cdf", ".netcdf", ".zarr")
TABLES = (*GRIDS, ".npz")
"""Files that hold a table or fields."""
SUFFIXES = (*TABLES, ".mat", ".h5", ".hdf5")
MOST = 250_000_000
"""Most bytes of an array file, unpacked: some 30 million numbers."""
TIME = re.compile(r"t|tt|ts|(date)?times?|date|(t|time)[ _-]?(s|ms|min|h|d|days?|y|years?)", re.I)
FIRST = re.compile(r"x|xx|xs|lon|longitude|space", re.IGNORECASE)
SECOND = re.compile(r"y|yy|ys|lat|latitude", re.IGNORECASE)
RUNS = re.compile(r"runs?|samples?|trajector(y|ies)|ensemble|members?|realizations?|batch", re.I)
FIELDS = re.compile(r"fields?|variables?|components?|channels?|species", re.IGNORECASE)
UNITS = (("years", 365.25 * 86400.0, 25 * 86400.0), ("days", 86400.0, 86400.0),
         ("hours", 3600.0, 3600.0), ("minutes", 60.0, 60.0), ("s", 1.0, 0.0))  # fmt: skip
"""Unit of times, its length in seconds, and the shortest step for which it is used."""


@dataclass
class Gridded:
    """Arrays with named axes.

    Attributes:
        arrays: Dimensions and values of each field.
        axes: Coordinates by dimension; those without are counted.
        source: Name of the file, or kind of the object.
        others: Names of arrays that are series along the time alone.
        notes: What was assumed.
    """

    arrays: dict[str, tuple[tuple[str, ...], Field]]
    axes: dict[str, Field]
    source: str
    others: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def holds_field(path: Path, columns: Sequence[str] | None = None) -> bool:
    """Whether a file holds fields on a grid rather than a table of series.

    A table stays one: NetCDF and npz files hold fields only if no series along time alone, or if
    `columns` names a field. MATLAB and HDF5 files are always read as fields.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in TABLES:
        return suffix in SUFFIXES
    try:
        found = _opened(Path(path))
    except DataError:  # the reader of tables says what is wrong
        return False
    named = bool(columns) and set(columns or ()) <= set(found.arrays)
    return bool(found.arrays) and (named or not found.others)


def read_field(
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    time: str | None = None,
    periodic: bool | Sequence[bool] | None = None,
) -> FieldSet:
    """Read fields on a grid, with their coordinates.

    Args:
        source: Path of a NetCDF, npz, MATLAB or HDF5 file or of a Zarr store; an xarray
            `DataArray` or `Dataset`; or a dictionary of arrays. Without named dimensions, axes
            are identified by the lengths of arrays with one axis, such as `t` and `x`.
        columns: Names of the fields; by default all on the largest grid.
        time: Name of the time axis; by default one called t or time, or with dates.
        periodic: Whether the domain is periodic, for each direction; `None` to detect it.

    Returns:
        The fields, for `FieldDiscovery.fit`.

    Raises:
        DataError: There is no field, or its axes cannot be identified.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.exists():
            near = [p.name for p in path.parent.glob("*") if p.is_file()]
            raise DataError(f"there is no file {path}{suggestion(path.name, near) or '.'}")
        if path.suffix.lower() not in SUFFIXES:
            raise DataError(f"{path.name}: expected a file ending in {', '.join(SUFFIXES)}.")
        found = _opened(path)
    else:
        found = _labelled(source, "the data")
    return _assembled(found, columns, time, periodic)


# ---------------------------------------------------------------- opening


def _opened(path: Path) -> Gridded:
    suffix = path.suffix.lower()
    if suffix in GRIDS:
        with open_netcdf(path, f"read {suffix} files") as data:
            return _labelled(data, path.name)
    try:
        check_file(path)
        if suffix == ".npz":
            arrays = _npz(path)
        elif suffix == ".mat" and not path.read_bytes()[:128].startswith(b"MATLAB 7.3"):
            arrays = _mat(path)
        else:
            arrays = _hdf5(path)
    except (DataError, MissingPackageError):
        raise
    except PermissionError:
        raise DataFormatError(f"{path} cannot be read: permission denied.") from None
    except Exception as error:  # readers raise anything for a damaged file
        what = (str(error).splitlines() or [""])[0].rstrip(".")
        raise DataFormatError(
            f"{path.name} cannot be read ({type(error).__name__}: {what}). The file may be "
            "damaged, or its extension wrong."
        ) from None
    return _unlabelled(arrays, path.name)


def _npz(path: Path) -> dict[str, Field]:
    import zipfile

    with zipfile.ZipFile(path) as archive:
        _check_size(path.name, sum(entry.file_size for entry in archive.infolist()))
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _mat(path: Path) -> dict[str, Field]:
    from scipy.io import loadmat, whosmat

    numbers = re.compile(r"double|single|logical|u?int\d+")
    known = [(name, shape) for name, shape, kind in whosmat(path) if numbers.match(kind)]
    _check_size(path.name, 8 * sum(prod(shape) for _, shape in known))
    found: dict[str, Field] = loadmat(path, variable_names=[name for name, _ in known])
    return {name: found[name] for name, _ in known}


def _hdf5(path: Path) -> dict[str, Field]:
    h5py = require("h5py", f"read {path.suffix} files")
    found: dict[str, Field] = {}
    with h5py.File(path, "r") as file:
        groups = [(str(name), check_dataset(path, h5py, file, name)) for name in file]
        for name, item in list(groups):  # one level of groups
            if isinstance(item, h5py.Group) and not name.startswith("#"):
                groups += [(str(n), check_dataset(path, h5py, item, n)) for n in item]
        for name, item in groups:
            if not isinstance(item, h5py.Dataset) or not item.shape:
                continue
            _check_size(path.name, 8 * prod(item.shape))
            values = item[()]
            if values.dtype.names == ("real", "imag"):  # complex numbers of MATLAB 7.3
                values = values["real"] + 1j * values["imag"]
            found[name] = values.T if path.suffix.lower() == ".mat" else values  # as in MATLAB
    return found


def _check_size(name: str, size: int) -> None:
    if size > MOST:
        raise DataError(
            f"{name} holds {size:,} bytes; expected at most {MOST:,}. Keep the part of the field "
            "that is needed."
        )


def _labelled(source: Any, label: str) -> Gridded:
    """Arrays of an xarray object, or of a dictionary."""
    if isinstance(source, Mapping) and not hasattr(source, "data_vars"):
        return _unlabelled({str(k): np.asarray(v) for k, v in source.items()}, label)
    if not hasattr(source, "data_vars"):
        source = source.to_dataset(name="u" if source.name is None else str(source.name))
    arrays: dict[str, tuple[tuple[str, ...], Field]] = {}
    others, smallest = [], min(FEWEST_POINTS, 4)
    for name, variable in source.data_vars.items():
        one = variable.squeeze(drop=True)
        if one.dtype.kind not in "fiubc":
            continue
        long = [d for d in one.dims if one.sizes[d] >= smallest]
        if len(long) < 2:
            others += [str(name)] if len(one.dims) == 1 else []
            continue
        arrays[str(name)] = (tuple(map(str, one.dims)), one.values)
    axes = {str(d): np.asarray(source[d].values) for d in source.dims if d in source.coords}
    times = [d for d in axes if axes[d].dtype.kind in "mM" or TIME.fullmatch(d)]
    others = [n for n in others if source[n].squeeze(drop=True).dims[0] in times]
    return Gridded(arrays, axes, label, others)


def _unlabelled(given: Mapping[str, Field], label: str) -> Gridded:
    """Arrays whose axes are identified by the lengths of those with one axis."""
    shaped = {n: np.squeeze(v) for n, v in given.items() if np.asarray(v).dtype.kind in "fiubcM"}
    lines = {n: v for n, v in shaped.items() if v.ndim == 1 and v.size > 3}
    blocks = {n: v for n, v in shaped.items() if v.ndim > 1}
    for name, values in list(blocks.items()):  # coordinates as a mesh
        axis = _axis_of_mesh(values) if len(blocks) > 1 else None
        if axis is not None and (TIME.fullmatch(name) or _space(name)):
            lines.setdefault(
                name, np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)[:, 0]
            )
            del blocks[name]
    out = Gridded({}, {}, label)
    for name, values in blocks.items():
        dims = _matched(values.shape, lines)
        if sum(d in lines for d in dims) > 1:
            out.arrays[name] = (tuple(dims), values)
        elif dims[0] in lines and TIME.fullmatch(dims[0]):
            out.others.append(name)
    used = {d for dims, _ in out.arrays.values() for d in dims}
    out.axes = {n: v for n, v in lines.items() if n in used}
    lengths = [len(v) for v in out.axes.values()]
    if out.arrays and len(set(lengths)) < len(lengths):
        shown = ", ".join(next(iter(out.arrays.values()))[0])
        out.notes.append(f"several axes have the same length; they were taken to be ({shown}).")
    if not out.arrays:
        shapes = ", ".join(f"{n} {v.shape}" for n, v in shaped.items()) or "no numbers"
        out.notes.append(f"it has {shapes}")
    return out


def _axis_of_mesh(values: Field) -> int | None:
    """The only axis along which an array changes."""
    changing = [a for a in range(values.ndim) if np.ptp(values, axis=a).any()]
    return changing[0] if len(changing) == 1 else None


def _space(name: str) -> bool:
    return bool(FIRST.fullmatch(name) or SECOND.fullmatch(name))


def _matched(shape: Sequence[int], lines: Mapping[str, Field]) -> list[str]:
    """A dimension for each axis: the array of its length, times and coordinates first."""

    def rank(name: str) -> int:
        patterns = (TIME, FIRST, SECOND)
        return next((i for i, p in enumerate(patterns) if p.fullmatch(name)), len(patterns))

    left = sorted(lines, key=rank)
    found = []
    for a, n in enumerate(shape):
        fits = [name for name in left if len(lines[name]) == n]
        found.append(fits[0] if fits else f"axis {a + 1}")
        left = [name for name in left if name != found[-1]]
    return found


# ---------------------------------------------------------------- putting together


def _assembled(
    found: Gridded, columns: Sequence[str] | None, time: str | None,
    periodic: bool | Sequence[bool] | None,
) -> FieldSet:  # fmt: skip
    names = _chosen(found, columns)
    dims = found.arrays[names[0]][0]
    when = _time_of(found, dims, time)
    runs = [d for d in dims if d != when and RUNS.fullmatch(d)]
    parts = [d for d in dims if d not in (when, *runs) and FIELDS.fullmatch(d)]
    space = [d for d in dims if d not in (when, *runs, *parts)]
    if not 1 <= len(space) <= 2 or len(runs) > 1 or len(parts) > 1:
        raise DataError(
            f"{found.source}: {names[0]} has the dimensions {', '.join(dims)}; expected time and "
            "one or two directions. Select a level or a section first."
        )
    if len(space) == 2 and (SECOND.fullmatch(space[0]) or FIRST.fullmatch(space[1])):
        space.reverse()
    order = [*runs, when, *space, *parts]
    stack = []
    for name in names:
        own, values = found.arrays[name]
        values = np.transpose(values, [own.index(d) for d in order])
        stack += [np.moveaxis(values, -1, 0)] if parts else [values[None]]
    u = np.moveaxis(np.concatenate(stack), 0, -1)
    notes = list(found.notes)
    sizes = dict(zip(order, u.shape))
    t, unit = _times(found.axes.get(when, np.arange(float(sizes[when]))))
    axes = [found.axes.get(d, np.arange(float(sizes[d]))) for d in space]
    if [*space] != ["x", "y"][: len(space)]:
        notes.append(", ".join(f"{a} is {d}" for a, d in zip("xy", space)) + ".")
    chosen = _proper(names, u.shape[-1])
    data = gather_fields(
        list(u) if runs else u, [t] * len(u) if runs else t, axes, chosen, periodic
    )
    data.source, data.time_unit = found.source, unit
    data.notes[:0] = notes
    return data


def _chosen(found: Gridded, columns: Sequence[str] | None) -> list[str]:
    """Names of the fields: those asked for, or all on the largest grid."""
    if not found.arrays:
        raise DataError(
            f"{found.source}: no field was found"
            + "".join(f"; {note}" for note in found.notes)
            + "; expected an array over time and space, and coordinates such as t and x of the "
            "lengths of its axes."
        )
    for name in columns or ():
        if name not in found.arrays:
            known = list(found.arrays)
            raise DataError(
                f"{found.source}: there is no field {name!r}{suggestion(name, known) or '.'} "
                f"Its fields: {', '.join(known)}."
            )
    largest = max(found.arrays, key=lambda n: found.arrays[n][1].size)
    same = [
        n for n, (dims, _) in found.arrays.items() if set(dims) == set(found.arrays[largest][0])
    ]
    chosen = list(columns) if columns else same
    left = [n for n in found.arrays if n not in chosen] + found.others
    if left:
        found.notes.append(f"left out: {', '.join(left)}.")
    if len({frozenset(found.arrays[n][0]) for n in chosen}) > 1:
        raise DataError(f"{found.source}: {', '.join(chosen)} are on different grids.")
    return chosen


def _time_of(found: Gridded, dims: Sequence[str], time: str | None) -> str:
    if time is not None:
        if time not in dims:
            raise DataError(
                f"{found.source}: there is no axis {time!r}; expected one of {', '.join(dims)}."
            )
        return time
    dated = [d for d in dims if d in found.axes and found.axes[d].dtype.kind in "mM"]
    exact = [d for d in dims if d.lower() in ("t", "time")]
    named = [d for d in dims if TIME.fullmatch(d)]
    for choice in (dated, exact, named):
        if choice:
            return choice[0]
    raise DataError(
        f"{found.source}: none of the axes {', '.join(dims)} is called t or time; name the time "
        "axis with time=."
    )


def _times(t: Field) -> tuple[Field, str | None]:
    """Times as numbers, in a unit that suits the steps of dates."""
    if t.dtype.kind not in "mM":
        return t, None
    seconds = (t - t[0]) / np.timedelta64(1, "s")
    step = float(np.median(np.diff(seconds)))
    unit, length, _ = next(u for u in UNITS if step >= u[2])
    since = f" since {str(t[0])[:10]}" if t.dtype.kind == "M" else ""
    return seconds / length, unit + since


def _proper(names: Sequence[str], count: int) -> list[str] | None:
    """Names that terms can have; `None` for the default ones."""
    fine = all(re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", n) and not n.endswith("bar") for n in names)
    reserved = {"i", "t", "x", "y"} & set(names)
    return list(names) if fine and not reserved and len(names) == count else None
