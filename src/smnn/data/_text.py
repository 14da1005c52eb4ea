"""Numbers in text files: how a file is written is found out from its first lines."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from smnn._util.files import open_bounded
from smnn._util.optional import require

SAMPLE = 1 << 18
"""Bytes that are looked at to find out how a file is written."""
MAX_CELLS = 100_000_000
"""Values that are kept from one file: 0.8 GB."""
CHUNK_CELLS = 2_000_000
"""Values that are read at a time."""
MISSING = (
    "", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "NAN", "null", "NULL", "Null", "None",
    "none", "-", "--", "?", ".", "<NA>",
)  # fmt: skip
"""Texts that stand for no value."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
_DATE = re.compile(r"\d{4}-\d\d(-\d\d)?([ T]|$)")
_COMMENT = ("#", "%", "//")


BROKEN_PACKING = (gzip.BadGzipFile, EOFError, zlib.error)
"""What a gzip file raises that is none, or not whole."""


class TableError(ValueError):
    """A data file cannot be used as it is; says what was got, what was expected, what to do."""


def bad_packing(path: Path, error: Exception) -> TableError:
    """A name that promises a gzip file, and something else below it."""
    return TableError(f"{path.name} ends in .gz but is not a gzip file, or not all of it: {error}.")


@dataclass(frozen=True)
class Dialect:
    """How a text file is written."""

    encoding: str
    delimiter: str
    """One character, or `\\s+` for any white space."""
    decimal: str
    header: list[str] | None
    """Names of the columns; `None` if the file has none."""
    skip: int
    """Lines before the first row of numbers."""
    comment: str | None
    width: int
    """Number of columns."""


class Line(NamedTuple):
    """A line that counts, with its number in the file, from 1."""

    number: int
    text: str


def is_number(text: str, decimal: str = ".") -> bool:
    """Whether a field holds a number."""
    text = text.strip()
    return bool(_NUMBER.fullmatch(text) or (decimal == "," and _COMMA_NUMBER.fullmatch(text)))


def is_value(text: str, decimal: str = ".") -> bool:
    """Whether a field holds a number, a date, or stands for no value."""
    return is_number(text, decimal) or text.strip() in MISSING or bool(_DATE.match(text.strip()))


def sniff(path: Path) -> tuple[Dialect, list[str]]:
    """How a text file is written, and what is remarkable about it.

    Raises:
        TableError: It is empty, or no text.
    """
    notes: list[str] = []
    try:
        with open_bounded(path) as file:
            sample = file.read(SAMPLE)
    except BROKEN_PACKING as error:
        raise bad_packing(path, error) from None
    encoding, text = _decoded(path, sample, notes)
    lines = re.split(r"\r\n|\r|\n", text)
    if len(sample) == SAMPLE and len(lines) > 1:
        lines.pop()  # cut off in the middle
    if not text.strip():
        raise TableError(f"{path.name} is empty; expected a table with a column for each variable.")
    first = next((c for c in _COMMENT if any(line.lstrip().startswith(c) for line in lines)), None)
    rows = [
        Line(i, line)
        for i, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith(_COMMENT)
    ]
    if not rows:
        raise TableError(f"{path.name} has only comments; expected rows of numbers below them.")
    delimiter = _delimiter([row.text for row in rows[:200]])
    fields = [split(row.text, delimiter) for row in rows[:200]]
    decimal = _decimal(fields, delimiter)
    header, skip = _header(path, lines, rows, fields, delimiter, decimal, notes)
    width = len(header) if header else max(len(f) for f in fields)
    comment = first if first in ("#", "%") else None
    return Dialect(encoding, delimiter, decimal, header, skip, comment, width), notes


def split(line: str, delimiter: str) -> list[str]:
    """The fields of a line, without the quotes around them."""
    if delimiter == r"\s+":
        return line.split()
    reader = csv.reader([line], delimiter=delimiter, skipinitialspace=True)
    try:
        fields = next(reader, [])
    except csv.Error:  # a long line without this delimiter is more than it takes for a field
        fields = line.split(delimiter)
    return [field.strip() for field in fields]


def read_columns(path: Path, dialect: Dialect, wanted: Sequence[int], texts: Sequence[int]) -> Any:
    """Chosen columns as a pandas frame, in pieces, so that a large file needs little memory.

    Args:
        path: The file.
        dialect: How it is written.
        wanted: Positions of the columns.
        texts: Positions of those that must stay text as they are (marks of series).

    Raises:
        TableError: A row has too many fields, or there is more than can be kept.
    """
    pd = require("pandas", "read tables")
    names = [str(i) for i in range(dialect.width + 1)]
    beyond = names[-1]  # pandas drops fields beyond the last name without a word
    rows = max(1000, CHUNK_CELLS // max(1, len(wanted)))
    # From version 3 on every digit counts without asking; before, it has to be asked for.
    exact = {"float_precision": "round_trip"} if int(pd.__version__.split(".")[0]) < 3 else {}
    kept, total = [], 0
    try:
        with _text(path, dialect) as file:
            for _ in range(dialect.skip):
                file.readline()
            between = " " if dialect.delimiter == r"\s+" else dialect.delimiter
            reader = pd.read_csv(
                _Headed(between.join(names) + "\n", file), sep=dialect.delimiter, index_col=False,
                usecols=[*(names[i] for i in wanted), beyond], decimal=dialect.decimal,
                comment=dialect.comment, skipinitialspace=True, chunksize=rows,
                keep_default_na=False, **exact,
                na_values={names[i]: MISSING for i in wanted if i not in texts} | {beyond: ""},
                dtype={names[i]: str for i in texts},
            )  # fmt: skip
            for chunk in reader:
                if chunk.pop(beyond).notna().any():
                    raise _too_wide(path, dialect)
                kept.append(chunk)
                total += chunk.size
                if total > MAX_CELLS:
                    raise TableError(
                        f"{path.name} has more than {MAX_CELLS:,} values; expected fewer. Name the "
                        "columns that are needed, or thin the rows out first."
                    )
    except pd.errors.EmptyDataError:
        pass
    except BROKEN_PACKING as error:
        raise bad_packing(path, error) from None
    except (pd.errors.ParserError, csv.Error) as error:
        why = str(error).strip().splitlines()[0]
        raise TableError(f"{path.name} cannot be read as a table: {why}.") from None
    if not kept:
        return pd.DataFrame({names[i]: [] for i in wanted}).rename(columns=int)
    frame = kept[0] if len(kept) == 1 else pd.concat(kept, ignore_index=True)
    return frame.rename(columns=int)[list(wanted)]


def _text(path: Path, dialect: Dialect) -> IO[str]:
    return io.TextIOWrapper(open_bounded(path), dialect.encoding, "replace")


class _Headed:
    """A file with a line of our own before it, so that pandas knows how many columns there are."""

    def __init__(self, head: str, file: IO[str]) -> None:
        self.head, self.file = head, file

    def read(self, size: int = -1) -> str:
        head, self.head = self.head, ""
        return head or self.file.read(size)

    def __iter__(self) -> Iterator[str]:
        yield self.head
        yield from self.file


def first_bad_entry(
    path: Path, dialect: Dialect, column: int, bad: Callable[[str], bool]
) -> tuple[int, str] | None:
    """Line number and text of the first entry of a column that is bad."""
    with _text(path, dialect) as file:
        for number, line in enumerate(file, 1):
            if number <= dialect.skip or not line.strip() or line.lstrip().startswith(_COMMENT):
                continue
            fields = split(line.rstrip("\r\n"), dialect.delimiter)
            if column < len(fields) and bad(fields[column]):
                return number, fields[column]
    return None


def _too_wide(path: Path, dialect: Dialect) -> TableError:
    found = first_bad_entry(path, dialect, dialect.width, lambda text: bool(text))
    line = "" if found is None else f", line {found[0]}"
    return TableError(
        f"{path.name}{line}: got more than {dialect.width} fields; expected one for each name. "
        f"Fields are separated by {_spoken(dialect.delimiter)}; is there one too many, or a text "
        "without quotes?"
    )


def _spoken(delimiter: str) -> str:
    return {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}.get(
        delimiter, "white space"
    )


def _decoded(path: Path, sample: bytes, notes: list[str]) -> tuple[str, str]:
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if sample.startswith(mark):
            return encoding, sample.decode(encoding, "replace")
    controls = sum(byte < 32 and byte not in (9, 10, 11, 12, 13, 26) for byte in sample[:4096])
    if controls:
        raise TableError(
            f"{path.name} is not text: it begins with {sample[:8]!r}. Expected a table as CSV or "
            "TSV, or a file ending in .npy, .npz, .json, .nc, .parquet or .xlsx."
        )
    try:
        # A character may be cut at the end of the sample.
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=len(sample) < SAMPLE)
        return "utf-8", sample.decode("utf-8", "ignore")
    except UnicodeDecodeError:
        notes.append(f"{path.name} is not UTF-8; it is read as Windows-1252.")
        return "cp1252", sample.decode("cp1252", "replace")


def _delimiter(lines: list[str]) -> str:
    """The separator that leaves the most numbers, in lines of one length."""
    best, most = ",", (0.0, 0.0)
    body = lines[1:] or lines
    for candidate in (",", ";", "\t", "|", r"\s+"):
        rows = [split(line, candidate) for line in body]
        counts = [len(row) for row in rows]
        usual = max(set(counts), key=counts.count)
        if usual < 2:
            continue
        decimal = _decimal(rows, candidate)
        fields = [field for row in rows for field in row]
        good = sum(is_value(field, decimal) for field in fields) / len(fields)
        score = round(good, 3), round(counts.count(usual) / len(counts), 3)
        if score > most:
            best, most = candidate, score
    return best


def _decimal(fields: list[list[str]], delimiter: str) -> str:
    if delimiter == ",":
        return "."
    flat = [field for row in fields for field in row]
    commas = sum(bool(_COMMA_NUMBER.fullmatch(field)) for field in flat)
    points = sum(bool(re.fullmatch(r"[+-]?\d*\.\d+([eE][+-]?\d+)?", field)) for field in flat)
    return "," if commas > points else "."


def _units(row: list[str], below: list[str], decimal: str) -> bool:
    """Whether a row holds units: mostly words, no number but a 1, and numbers below it."""
    words = sum(not is_value(field, decimal) for field in row)
    plain = not any(is_number(field, decimal) and field != "1" for field in row)
    return plain and 2 * words > len(row) and any(is_number(f, decimal) for f in below)


def _header(
    path: Path,
    lines: list[str],
    rows: list[Line],
    fields: list[list[str]],
    delimiter: str,
    decimal: str,
    notes: list[str],
) -> tuple[list[str] | None, int]:
    """Names of the columns, and the number of lines before the first row of numbers."""
    if not all(is_value(field, decimal) for field in fields[0]):
        named = fields[0]
        if len(fields) > 2 and _units(fields[1], fields[2], decimal):
            notes.append(f"{path.name}, line {rows[1].number} holds units; it is skipped.")
            return named, rows[1].number
        if len(fields) > 1 and len(fields[1]) == len(named) + 1:
            named = ["", *named]  # row names have no heading
        return named, rows[0].number
    above = [line.strip() for line in lines[: rows[0].number - 1] if line.strip()]
    if above and above[-1].startswith(_COMMENT):
        words = split(above[-1].lstrip("#%/ \t"), delimiter)
        if len(words) == len(fields[0]) and not any(is_number(w, decimal) for w in words):
            return words, rows[0].number - 1  # numpy.savetxt writes the names as a comment
    notes.append(f"{path.name} has no line with names; its columns are called x1, x2, …")
    return None, rows[0].number - 1
