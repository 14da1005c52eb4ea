"""Files as named columns, by the ending of their names."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.files import InputError, check_file, read_bounded
from smnn._util.optional import MissingPackageError, require
from smnn.data._netcdf import open_netcdf
from smnn.data._objects import (
    Source,
    from_array,
    from_columns,
    from_object,
    from_xarray,
    unique_names,
)
from smnn.data._text import MAX_CELLS, find_layout, line_of, read_columns, sniff
from smnn.errors import DataError

MAX_JSON = 64 * 2**20
"""Bytes of a JSON file: as values of Python it takes some twenty times as many."""
MAX_UNPACKED = 8 * MAX_CELLS
"""Bytes of an archive, unpacked."""


def open_file(
    path: Path, skip_rows: int | None, decimal: str | None, sheet: str | int, na: Sequence[str]
) -> Source:
    """Open a table; an unknown ending is taken for text.

    Raises:
        DataError: There is no such file, or it is not what its name says.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder; expected a file. Name one of the files in it.")
    if not path.exists():
        from smnn._util.names import suggestion

        near = [p.name for p in path.parent.glob("*") if p.is_file()]
        raise DataError(f"there is no file {path}{suggestion(path.name, near) or '.'}")
    suffix = path.suffix.lower()
    try:
        if not check_file(path).st_size:
            raise DataError(
                f"{path.name} is empty; expected a table with a column for each variable."
            )
        if suffix in _EXCEL:
            source = _excel(path, skip_rows, sheet)
        elif suffix in _READERS:
            source = _READERS[suffix](path)
        else:
            return _text(path, skip_rows, decimal, na)
    except PermissionError:
        raise DataError(f"{path} may not be read; change its permissions.") from None
    except (DataError, InputError, MissingPackageError):
        raise
    except ImportError:
        package = _PACKAGES[suffix][1]
        raise MissingPackageError(
            f"{package} is needed to read {path.suffix} files; pip install {package}, or save the "
            "table as CSV."
        ) from None
    except Exception as error:  # readers raise anything for a damaged file
        raise DataError(
            f"{path.name} cannot be read as {path.suffix or 'text'}: {type(error).__name__}: "
            f"{(str(error).strip() or 'no message').splitlines()[0].rstrip('.')}. Is it damaged, "
            "or of another kind than its name says?"
        ) from None
    _check_size(path, sum(map(len, source.columns.values())))
    source.label = path.name
    return source


def _check_size(path: Path, cells: int) -> None:
    if cells > MAX_CELLS:
        raise DataError(
            f"{path.name} has more than {MAX_CELLS:,} values; expected fewer. Keep the columns "
            "that are needed, or thin the rows out first."
        )


def _text(path: Path, skip_rows: int | None, decimal: str | None, na: Sequence[str]) -> Source:
    dialect, notes = sniff(path, skip_rows, decimal)
    names = dialect.names or [f"x{i + 1}" for i in range(dialect.width)]
    source = Source(path.name, unique_names(path.name, names), notes=notes)
    source.units = {i: unit for i, unit in enumerate(dialect.units or ()) if unit}
    source.decimal = dialect.decimal
    source.load = lambda wanted, texts: read_columns(path, dialect, wanted, texts, na)
    source.line = lambda column, bad: line_of(path, dialect, column, bad)
    return source


def _excel(path: Path, skip_rows: int | None, sheet: str | int) -> Source:
    pd = require("pandas", "read tables")
    if path.suffix.lower() in (".xlsx", ".xlsm"):
        require("openpyxl", f"read {path.suffix} files")
    if zipfile.is_zipfile(path):
        _check_archive(path)
    with pd.ExcelFile(path, engine=_PACKAGES[path.suffix.lower()][0]) as book:
        if sheet not in (book.sheet_names if isinstance(sheet, str) else range(99)):
            raise DataError(f"{path.name} has no sheet {sheet!r}: {', '.join(book.sheet_names)}.")
        frame = pd.read_excel(
            book, sheet_name=sheet, header=None, skiprows=skip_rows, keep_default_na=False
        )
        several = len(book.sheet_names) > 1
        shown = sheet if isinstance(sheet, str) else book.sheet_names[sheet]
    notes = [f"{path.name}: the sheet {shown!r} is read; sheet= names another."] if several else []
    frame = frame.dropna(how="all").dropna(how="all", axis=1)
    if frame.empty:
        raise DataError(f"{path.name} has no rows; expected a row for each time.")
    cells = frame.astype(object).to_numpy(object)
    head = [["" if v is None or v != v else str(v).strip() for v in row] for row in cells[:200]]
    layout = find_layout(head, frame.shape[1])
    named = head[layout.names] if layout.names is not None else None
    names = named or [f"x{i + 1}" for i in range(frame.shape[1])]
    body = {
        name: _cells(cells[layout.first :, i])
        for i, name in enumerate(unique_names(path.name, names))
    }
    source = from_columns(path.name, body, notes=notes)
    if layout.units is not None:
        source.units = {i: unit for i, unit in enumerate(head[layout.units]) if unit}
    return source


def _cells(values: np.ndarray) -> Any:
    """A column of a sheet: numbers if all cells are, otherwise text that is parsed later."""
    known = [v for v in values if v not in ("", None) and v == v]
    if known and all(isinstance(v, int | float) and not isinstance(v, bool) for v in known):
        return [v if isinstance(v, int | float) else None for v in values]
    return values


def _check_archive(path: Path) -> None:
    """A zip file states how large its contents are, and is not read beyond that."""
    with zipfile.ZipFile(path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > MAX_UNPACKED:
        raise DataError(
            f"{path.name} holds {size:,} bytes unpacked; expected at most {MAX_UNPACKED:,}. Keep "
            "the columns that are needed, or thin the rows out first."
        )


def _parquet(path: Path) -> Source:
    pd = require("pandas", "read tables")
    about = require("pyarrow.parquet", "read .parquet files").read_metadata(path)
    _check_size(path, about.num_rows * about.num_columns)
    return from_object(pd.read_parquet(path, engine="pyarrow"))


def _feather(path: Path) -> Source:
    require("pandas", "read tables")
    feather = require("pyarrow.feather", "read .feather files")
    return from_object(feather.read_table(path, memory_map=True).to_pandas())


def _npy(path: Path) -> Source:
    # Mapped, so that a header that declares more than the file holds is found out first.
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        if "Python objects" not in str(error):
            raise
        raise DataError(
            f"{path.name} holds Python objects; expected numbers. Objects are not read, since they "
            "can bring code with them."
        ) from None
    return _named(path, from_array(path.name, values))


def _npz(path: Path) -> Source:
    _check_archive(path)
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if len(arrays) == 1:
        return _named(path, from_array(path.name, next(iter(arrays.values()))))
    return from_object(arrays)


def _named(path: Path, source: Source) -> Source:
    source.plain = False
    source.notes = [f"{path.name} has no names; its columns are called x1, x2, …"]
    return source


def _json(path: Path) -> Source:
    text = read_bounded(path, MAX_JSON).decode("utf-8-sig")
    try:
        record = json.loads(text)
    except ValueError:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2 or not lines[0].lstrip().startswith("{"):
            raise
        record = [json.loads(line) for line in lines]  # JSON lines
    if isinstance(record, dict) and "schema" in record and isinstance(record.get("data"), list):
        record = record["data"]
    if isinstance(record, dict) and {"columns", "data"} <= set(record):
        record = [dict(zip(record["columns"], row, strict=True)) for row in record["data"]]
    if isinstance(record, list) and record and all(isinstance(row, dict) for row in record):
        names = list(dict.fromkeys(name for row in record for name in row))
        return from_columns(path.name, {n: [row.get(n) for row in record] for n in names})
    if isinstance(record, dict) and record:
        values = list(record.values())
        if all(isinstance(v, dict) and list(v) == list(values[0]) for v in values):
            keys = list(values[0])
            counted = keys == [str(i) for i in range(len(keys))]
            index = {} if counted else {"time" if "time" not in record else "index": keys}
            record = index | {name: list(v.values()) for name, v in record.items()}
        if all(isinstance(v, list) for v in record.values()):
            return from_columns(path.name, record)
    raise DataError(
        f"{path.name}: got JSON that is no table; expected a list of rows "
        '[{"t": 0, "x": 1}, …] or a dictionary of columns {"t": [0, …], "x": [1, …]}.'
    )


def _netcdf(path: Path) -> Source:
    with open_netcdf(path, "read .nc files") as data:
        return from_xarray(data, path.name)


_EXCEL = (".xlsx", ".xlsm", ".xls", ".ods")
_PACKAGES = {
    ".parquet": ("pyarrow", "pyarrow"), ".feather": ("pyarrow", "pyarrow"),
    ".xlsx": ("openpyxl", "openpyxl"), ".xlsm": ("openpyxl", "openpyxl"), ".xls": ("xlrd", "xlrd"),
    ".ods": ("odf", "odfpy"),
}  # fmt: skip
"""Engine of pandas, and the package that has it."""
_READERS: dict[str, Callable[[Path], Source]] = {
    ".npy": _npy, ".npz": _npz, ".json": _json, ".jsonl": _json, ".ndjson": _json, ".nc": _netcdf,
    ".nc4": _netcdf, ".cdf": _netcdf, ".netcdf": _netcdf, ".parquet": _parquet,
    ".feather": _feather,
}  # fmt: skip
