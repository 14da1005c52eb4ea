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
from smnn.data._dataset import rows_text
from smnn.data._netcdf import open_netcdf
from smnn.data._objects import (
    Source,
    from_array,
    from_columns,
    from_object,
    from_xarray,
    unique_names,
)
from smnn.data._text import (
    EMPTY,
    MAX_CELLS,
    TextOptions,
    find_layout,
    joined_names,
    line_of,
    read_columns,
    sniff,
)
from smnn.data._times import is_date
from smnn.data._values import is_number
from smnn.errors import DataError

MAX_JSON = 64 * 2**20
"""Bytes of a JSON file: as values of Python it takes some twenty times as many."""
MAX_UNPACKED = 8 * MAX_CELLS
"""Bytes of an archive, unpacked."""


def open_file(path: Path, options: TextOptions, sheet: str | int) -> Source:
    """Open a table; an unknown ending is taken for text."""
    suffix = path.suffix.lower()
    if path.is_dir() and suffix != ".zarr":
        raise DataError(f"{path} is a folder; expected a file. Name one of the files in it.")
    if not path.exists():
        from smnn._util.names import suggestion

        near = [p.name for p in path.parent.glob("*") if p.is_file()]
        raise DataError(f"there is no file {path}{suggestion(path.name, near) or '.'}")
    try:
        if not path.is_dir() and not check_file(path).st_size:
            raise DataError(f"{path.name} {EMPTY}")
        if suffix in _EXCEL:
            source = _excel(path, options.skip_rows, sheet)
        elif suffix in _READERS:
            source = _READERS[suffix](path)
        else:
            return _text(path, options)
    except PermissionError:
        raise DataError(f"{path} cannot be read: permission denied.") from None
    except (DataError, InputError, MissingPackageError):
        raise
    except Exception as error:  # readers raise anything for a damaged file
        raise DataError(
            f"{path.name} cannot be read as {path.suffix or 'text'}: {type(error).__name__}: "
            f"{(str(error).strip() or 'no message').splitlines()[0].rstrip('.')}. The "
            "file may be damaged, or its extension wrong."
        ) from None
    _check_size(path, sum(map(len, source.columns.values())))
    source.label = source.label if suffix in _EXCEL else path.name
    return source


def _check_size(path: Path, count: int, most: int = MAX_CELLS, what: str = "values") -> None:
    if count > most:
        raise DataError(
            f"{path.name} has {count:,} {what}; expected at most {most:,}. Keep the columns that "
            "are needed, or thin the rows out first."
        )


def _text(path: Path, options: TextOptions) -> Source:
    dialect = sniff(path, options)
    names = dialect.names or [f"x{i + 1}" for i in range(dialect.width)]
    return Source(
        path.name, unique_names(path.name, names), notes=dialect.notes, decimal=dialect.decimal,
        units={i: unit for i, unit in enumerate(dialect.units or ()) if unit},
        load=lambda wanted, texts: read_columns(path, dialect, wanted, texts, options.na),
        line=lambda column, bad: line_of(path, dialect, column, bad),
    )  # fmt: skip


def _excel(path: Path, skip_rows: int | None, sheet: str | int) -> Source:
    pd, engine = require("pandas", "read tables"), _EXCEL[path.suffix.lower()]
    require(engine, f"read {path.suffix} files")
    if zipfile.is_zipfile(path):
        _check_archive(path)
    with pd.ExcelFile(path, engine=engine) as book:
        if sheet not in (book.sheet_names if isinstance(sheet, str) else range(99)):
            raise DataError(f"{path.name} has no sheet {sheet!r}: {', '.join(book.sheet_names)}.")
        for shown in [sheet] if isinstance(sheet, str) else book.sheet_names[sheet:]:
            frame = pd.read_excel(
                book, sheet_name=shown, header=None, skiprows=skip_rows, keep_default_na=False
            )
            frame = frame.replace("", None).dropna(how="all").dropna(how="all", axis=1)
            if not frame.empty:
                break
        several = len(book.sheet_names) > 1
    label = f"{path.name}, sheet {shown!r}" if several else path.name
    if frame.empty:
        raise DataError(f"{label} has no rows; expected a row for each time.")
    cells = frame.astype(object).to_numpy(object)
    head = [["" if v is None or v != v else str(v).strip() for v in row] for row in cells[:200]]
    layout = find_layout(head, frame.shape[1])
    names, top = [f"x{i + 1}" for i in range(frame.shape[1])], layout.first
    if layout.names is not None:
        names, top = joined_names(head, layout.names)
    columns = {name: list(cells[layout.first :, i])
               for i, name in enumerate(unique_names(label, names))}  # fmt: skip
    source = from_columns(label, columns)
    source.notes += [f"{path.name}: the sheet {shown!r} is read; sheet= names another."] * several
    source.notes += [f"{rows_text(top)} above the table: skipped."] if top else []
    if layout.units is not None:
        source.units = {i: unit for i, unit in enumerate(head[layout.units]) if unit}
    return source


def _check_archive(path: Path) -> None:
    """A zip file states how large its contents are, and is not read beyond that."""
    with zipfile.ZipFile(path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    _check_size(path, size, MAX_UNPACKED, "bytes unpacked")


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
    return _unnamed(path, values)


def _npz(path: Path) -> Source:
    _check_archive(path)
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return from_object(arrays) if len(arrays) > 1 else _unnamed(path, *arrays.values())


def _unnamed(path: Path, values: np.ndarray) -> Source:
    if values.dtype.names:
        return from_object(values)
    source = from_array(path.name, values)
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
    tables = {} if not isinstance(record, dict) else {
        k: v for k, v in record.items()
        if isinstance(v, list) and v and all(isinstance(row, dict) for row in v)
    }  # fmt: skip
    split = isinstance(record, dict) and {"columns", "data"} <= set(record)
    if len(tables) == 1 and not split:
        record = next(iter(tables.values()))
    if split:
        columns = {
            name: list(x) for name, x in zip(record["columns"], zip(*record["data"], strict=True))
        }
        record = _indexed(columns, record.get("index", []))
    if isinstance(record, dict) and record and all(isinstance(v, dict) for v in record.values()):
        record = _nested(record)
    tabular = isinstance(record, list) and record and (
        all(isinstance(row, dict) for row in record) or all(isinstance(row, list) for row in record)
    )  # fmt: skip
    if tabular or (isinstance(record, dict) and record
                   and any(isinstance(v, list) and v for v in record.values())):  # fmt: skip
        source = from_object(record)
        return source if not source.plain else _unnamed(path, np.array(record, np.float64))
    raise DataError(
        f"{path.name}: got JSON that is no table; expected a list of rows "
        '[{"t": 0, "x": 1}, …] or a dictionary of columns {"t": [0, …], "x": [1, …]}.'
    )


def _nested(record: dict[str, dict[str, Any]]) -> dict[str, list[Any]]:
    """Columns of `{column: {index: value}}` or `{index: {column: value}}`."""

    def timed(keys: Sequence[str]) -> bool:
        return all(is_number(k) or is_date(k) for k in keys)

    inner = list(dict.fromkeys(key for row in record.values() for key in row))
    if timed(list(record)) and not timed(inner):
        columns = {name: [row.get(name) for row in record.values()] for name in inner}
        return _indexed(columns, list(record))
    return _indexed({name: [x.get(k) for k in inner] for name, x in record.items()}, inner)


def _indexed(columns: dict[str, list[Any]], index: Sequence[Any]) -> dict[str, list[Any]]:
    """Columns with an index in front that is more than a count."""
    if [str(x) for x in index] == [str(i) for i in range(len(index))]:
        return columns
    return {"time" if "time" not in columns else "index": list(index)} | columns


def _netcdf(path: Path) -> Source:
    with open_netcdf(path, f"read {path.suffix} files") as data:
        return from_xarray(data, path.name)


_EXCEL = {".xlsx": "openpyxl", ".xlsm": "openpyxl", ".xls": "xlrd", ".ods": "odf"}
"""The engine of pandas, which is the name of a package."""
_READERS: dict[str, Callable[[Path], Source]] = {
    ".npy": _npy, ".npz": _npz, ".json": _json, ".jsonl": _json, ".ndjson": _json,
    ".parquet": _parquet, ".feather": _feather,
    **dict.fromkeys((".nc", ".nc4", ".cdf", ".netcdf", ".zarr"), _netcdf),
}  # fmt: skip
