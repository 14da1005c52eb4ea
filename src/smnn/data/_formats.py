"""Where the columns of a table come from: text, or one of the other formats that people keep."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.files import InputError, read_bounded
from smnn._util.optional import MissingPackageError, require
from smnn.data._netcdf import DataFormatError, open_netcdf
from smnn.data._text import (
    MAX_CELLS,
    MISSING,
    Dialect,
    TableError,
    first_bad_entry,
    is_number,
    read_columns,
    sniff,
)

MAX_COLUMNS = 10_000
"""Columns of one file: far more than anybody has variables."""
MAX_JSON = 64 * 2**20
"""Bytes of a JSON file: as values of Python it takes some twenty times as many."""
MAX_UNPACKED = 8 * MAX_CELLS
"""Bytes of an archive, unpacked."""
SERIES = "series"
"""Name of the column that is made where a file holds its series on an axis."""


@dataclass
class Source:
    """A table that has been opened, not yet read."""

    path: Path
    names: list[str]
    """Headings of the columns, in their order; each once."""
    notes: list[str] = field(default_factory=list)
    dialect: Dialect | None = None
    """How it is written, if it is text."""
    frame: Any = None
    """The columns, if they are in memory already; keys are positions."""
    series: int | None = None
    """Position of a column that marks series, made from an axis of the file."""

    def load(self, wanted: Sequence[int], texts: Sequence[int]) -> Any:
        """Some columns as a pandas frame whose columns are positions."""
        if self.dialect is None:
            return self.frame[list(wanted)]
        return read_columns(self.path, self.dialect, wanted, texts)

    def where(self, column: int, rows: np.ndarray) -> str:
        """`line 7: got 'abc'` for the first bad entry of a column; `rows` are the bad rows."""
        if self.dialect is None:
            row = int(rows[0])
            return f"row {row + 1}: got {self.frame[column].iloc[row]!r}"
        decimal = self.dialect.decimal

        def bad(text: str) -> bool:
            number = is_number(text, decimal) and "inf" not in text.lower()
            return not number and text not in MISSING

        found = first_bad_entry(self.path, self.dialect, column, bad)
        return "got a text" if found is None else f"line {found[0]}: got {found[1]!r}"

    @property
    def decimal(self) -> str:
        """The sign before the decimals."""
        return "." if self.dialect is None else self.dialect.decimal


def open_source(path: Path) -> Source:
    """Open a table by the ending of its name; anything unknown is taken for text.

    Raises:
        TableError: There is no such file, or it is not what its name says.
    """
    if path.is_dir():
        raise TableError(f"{path} is a folder; expected a file. Name one of the files in it.")
    if not path.exists():
        near = (
            [p.name for p in path.parent.glob("*") if p.is_file()] if path.parent.is_dir() else []
        )
        from smnn._util.names import suggestion

        raise TableError(f"there is no file {path}{suggestion(path.name, near) or '.'}")
    if path.stat().st_size == 0:
        raise TableError(f"{path.name} is empty; expected a table with a column for each variable.")
    reader = _READERS.get(path.suffix.lower())
    try:
        if reader is None:
            return _text(path)
        source = reader(path)
    except PermissionError:
        raise TableError(f"{path} may not be read; change its permissions.") from None
    except (TableError, MissingPackageError):
        raise
    except (InputError, DataFormatError) as error:
        raise TableError(str(error)) from None
    except ImportError:
        package = _PACKAGES[path.suffix.lower()]
        raise MissingPackageError(
            f"{package} is needed to read {path.suffix} files; pip install {package}, or save the "
            "table as CSV."
        ) from None
    except Exception as error:  # whatever a foreign reader makes of a damaged file
        raise TableError(
            f"{path.name} cannot be read as {path.suffix or 'text'}: {type(error).__name__}: "
            f"{(str(error).strip() or 'no message').splitlines()[0].rstrip('.')}. Is it damaged, "
            "or of another kind than its name says?"
        ) from None
    if source.frame.size > MAX_CELLS:
        raise TableError(
            f"{path.name} has more than {MAX_CELLS:,} values; expected fewer. Keep the columns "
            "that are needed, or thin the rows out first."
        )
    return source


def _text(path: Path) -> Source:
    dialect, notes = sniff(path)
    named = dialect.header or [f"x{i + 1}" for i in range(dialect.width)]
    return Source(path, _once(path, named), notes, dialect)


def _once(path: Path, given: Sequence[Any]) -> list[str]:
    """Headings as texts; those without one are numbered."""
    if len(given) > MAX_COLUMNS:
        raise TableError(
            f"{path.name} has {len(given):,} columns; expected at most {MAX_COLUMNS:,}, a column "
            "for each variable and a row for each time. Is it turned on its side?"
        )
    names = [" ".join(str(n).split()) or f"column{i + 1}" for i, n in enumerate(given)]
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise TableError(
            f"{path.name}: got the column {doubled[0]!r} {names.count(doubled[0])} times; expected "
            "each name once. Rename the columns."
        )
    return names


def _framed(path: Path, columns: dict[str, Any], notes: list[str] | None = None) -> Source:
    pd = require("pandas", "read tables")
    names = _once(path, list(columns))
    sizes = {name: len(values) for name, values in zip(names, columns.values())}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise TableError(f"{path.name}: got columns of different lengths ({listed}); expected one.")
    frame = pd.DataFrame(dict(enumerate(columns.values())))
    if frame.empty:
        raise TableError(f"{path.name} has no columns with values in it.")
    return Source(path, names, notes or [], frame=frame)


def _pandas(path: Path) -> Source:
    pd = require("pandas", "read tables")
    if zipfile.is_zipfile(path):
        _check_archive(path)
    reader = pd.read_parquet if path.suffix.lower() == ".parquet" else pd.read_excel
    frame = reader(path)
    return _framed(path, {str(name): frame[name] for name in frame.columns})


def _check_archive(path: Path) -> None:
    """A zip file says how large its contents are, and is not read beyond that."""
    with zipfile.ZipFile(path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > MAX_UNPACKED:
        raise TableError(
            f"{path.name} holds {size:,} bytes unpacked; expected at most {MAX_UNPACKED:,}. Keep "
            "the columns that are needed, or thin the rows out first."
        )


def _npy(path: Path) -> Source:
    # Mapped, so that a header that promises more than the file holds is found out first.
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        if "Python objects" not in str(error):
            raise
        raise TableError(
            f"{path.name} holds Python objects; expected numbers. Objects are not read, since they "
            "can bring code with them."
        ) from None
    return _array(path, values, "x")


def _array(path: Path, values: np.ndarray, stem: str) -> Source:
    """`(T,)`, `(T, V)`, or `(series, T, V)`."""
    if values.ndim not in (1, 2, 3) or values.dtype.kind not in "fiub":
        raise TableError(
            f"{path.name}: got an array of {values.dtype} with shape {values.shape}; expected "
            "numbers of shape (T,), (T, V) or (series, T, V)."
        )
    labels = None
    if values.ndim == 3:
        labels = np.repeat(np.arange(1, len(values) + 1), values.shape[1]).astype(str)
        values = values.reshape(-1, values.shape[2])
    values = values[:, None] if values.ndim == 1 else values
    columns: dict[str, Any] = {f"{stem}{i + 1}": values[:, i] for i in range(values.shape[1])}
    notes = [f"{path.name} has no names; its columns are called {stem}1, {stem}2, …"]
    if labels is not None:
        columns[SERIES] = labels
    source = _framed(path, columns, notes)
    source.series = len(columns) - 1 if labels is not None else None
    return source


def _npz(path: Path) -> Source:
    _check_archive(path)
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if len(arrays) == 1:
        return _array(path, next(iter(arrays.values())), "x")
    columns: dict[str, Any] = {}
    for name, values in arrays.items():
        if values.ndim == 2:
            columns |= {f"{name}{i + 1}": values[:, i] for i in range(values.shape[1])}
        elif values.ndim == 1:
            columns[name] = values
        else:
            raise TableError(
                f"{path.name}: got {name!r} with shape {values.shape}; expected columns (T,) or "
                "tables (T, V) of one length."
            )
    return _framed(path, columns)


def _json(path: Path) -> Source:
    record = json.loads(read_bounded(path, MAX_JSON).decode("utf-8-sig"))
    if isinstance(record, dict) and {"columns", "data"} <= set(record):
        record = [dict(zip(record["columns"], row, strict=True)) for row in record["data"]]
    if isinstance(record, list) and record and all(isinstance(row, dict) for row in record):
        names = list(dict.fromkeys(name for row in record for name in row))
        return _framed(path, {name: [row.get(name) for row in record] for name in names})
    if isinstance(record, dict) and record and all(isinstance(v, list) for v in record.values()):
        return _framed(path, record)
    raise TableError(
        f"{path.name}: got JSON that is no table; expected a list of rows "
        '[{"t": 0, "x": 1}, …] or a dictionary of columns {"t": [0, …], "x": [1, …]}.'
    )


def _netcdf(path: Path) -> Source:
    with open_netcdf(path, "read .nc files") as data:
        sizes = {name: size for name, size in data.sizes.items() if size > 1}
        if not sizes:
            raise TableError(f"{path.name} has no axis along which anything changes.")
        axis = "time" if "time" in sizes else max(sizes, key=lambda name: sizes[name])
        columns = {axis: data[axis].values} if axis in data.coords else {}
        left = []
        for name, values in data.data_vars.items():
            if values.dims == (axis,):
                columns[str(name)] = values.values
            else:
                left.append(f"{name} {tuple(values.dims)}")
    notes = [f"left out, not a series along {axis!r}: {', '.join(left)}."] if left else []
    if not set(columns) - {axis}:
        raise TableError(
            f"{path.name}: got {', '.join(left) or 'no variables'}; expected variables along "
            f"{axis!r} alone. Select one place or average first, and save that."
        )
    return _framed(path, columns, notes)


_PACKAGES = {".parquet": "pyarrow", ".xlsx": "openpyxl", ".xls": "xlrd", ".ods": "odfpy"}
_READERS = {
    ".npy": _npy, ".npz": _npz, ".json": _json, ".nc": _netcdf, ".nc4": _netcdf,
    ".parquet": _pandas, ".xlsx": _pandas, ".xls": _pandas, ".ods": _pandas,
}  # fmt: skip
