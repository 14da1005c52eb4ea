"""Tables in text: the dialect is found from the first lines, the columns are read by pandas."""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import itertools
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from smnn._util.files import open_bounded
from smnn._util.optional import require
from smnn.data._times import is_date
from smnn.data._values import CERTAIN, EITHER, MISSING, UNIT, decimal_sign, is_missing, is_number
from smnn.errors import DataError

SAMPLE = 1 << 18
"""Bytes from which the dialect is found."""
MAX_CELLS = 100_000_000
"""Values that are kept from one file: 0.8 GB."""
CHUNK_CELLS = 2_000_000
"""Values that are read at a time."""
SNIFFED = 200
"""Lines from which the dialect is found."""
_MISSING = sorted(
    {f(m) for m in MISSING for f in (str, str.upper, str.capitalize)} | {"NaN", "NaT"}
)
_COMMENT = ("#", "%", "//")
_RULE = re.compile(r"[-=+|:\s]*-[-=+|:\s]*-[-=+|:\s]*")
"""A line between names and rows, such as `----- -----`."""
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", r"\s+": "white space"}


class TextOptions(NamedTuple):
    """What is known of a text file; `None` to find it."""

    skip_rows: int | None
    decimal: str | None
    encoding: str | None
    na: Sequence[str]


@dataclass(frozen=True)
class Dialect:
    """How a text file is written."""

    encoding: str
    delimiter: str
    """One character, or `\\s+` for any white space."""
    decimal: str
    """`.` or `,`, or nothing if the sample leaves it open."""
    names: list[str] | None
    units: list[str] | None
    skip: int
    """Lines before the first row of data."""
    comment: str | None
    width: int
    """Number of columns."""
    notes: list[str] = field(default_factory=list)
    """What was assumed."""


class Layout(NamedTuple):
    """Where the parts of a table are, as positions of rows."""

    names: int | None
    units: int | None
    first: int


def sniff(path: Path, options: TextOptions) -> Dialect:
    """Find the dialect of a text file."""
    notes: list[str] = []
    skip_rows, decimal = options.skip_rows, options.decimal
    with _readable(path), open_bounded(path) as file:
        sample = file.read(SAMPLE)
    encoding, text = _decoded(path, sample, options.encoding, notes)
    lines = re.split(r"\r\n|\r|\n", text)
    if len(sample) == SAMPLE and len(lines) > 1:
        lines.pop()  # cut off in the middle
    rows = [
        (i, line) for i, line in _records(lines, skip_rows or 0)
        if line.strip() and not line.lstrip().startswith(_COMMENT) and not _RULE.fullmatch(line)
    ][: 2 * SNIFFED]  # fmt: skip
    if not rows:
        what = "has only comments; expected rows of numbers below them."
        raise DataError(f"{path.name} {what if text.strip() else EMPTY}")
    delimiter = _delimiter([line for _, line in rows], decimal)
    fields = [split(line, delimiter) for _, line in rows]
    half = fields[len(fields) // 3 :] if skip_rows is None else fields
    width = Counter(map(len, half)).most_common(1)[0][0]
    if delimiter != r"\s+" and (wider := _names_beyond(fields, width)):
        fields = [row + [""] * (wider - width) if len(row) == width else row for row in fields]
        width = wider
    counted = fields[0] == ["", *map(str, range(width - 1))]  # pandas, names that are numbers
    found = skip_rows is not None or (counted and width > 1)
    layout = Layout(0, None, 1) if found else find_layout(fields, width)
    body = [f for row in fields[layout.first :] for f in row]
    if decimal is None:
        decimal = decimal_sign(body, delimiter)
        notes += _doubtful_numbers(path, body, delimiter, decimal)
    units = None if layout.units is None else fields[layout.units]
    start = layout.first
    if layout.names is None:
        names, layout = _other_names(path, lines, rows, fields, width, layout, delimiter)
        start = layout.first if layout.names is None else layout.names
    else:
        names, start = joined_names(fields, layout.names)
        if start < layout.names and names == fields[start]:
            line = rows[layout.names][0]
            notes.append(f"{path.name}, line {line} is neither names nor numbers: skipped.")
    if names is None:
        if any(_kind(f) is False for f in fields[layout.first]):
            raise DataError(
                f"{path.name}, line {rows[layout.first][0]} has words and numbers, like the rows "
                "below it; expected a line with a name for each column. Add one; transpose the "
                "table if its columns are times; or give skip_rows=0 if this line has the names."
            )
        notes.append(f"{path.name} has no line with names; its columns are called x1, x2, …")
        if width > 2 and fields[start] in [[str(i + k) for i in range(width)] for k in (0, 1)]:
            notes.append(
                f"line {rows[start][0]} is read as values (skip_rows=0 reads it as names)."
            )
    if start and (above := rows[start][0] - 1) > (skip_rows or 0):
        lines_text = "line 1" if above == 1 else f"lines 1 to {above}"
        notes.append(f"{path.name}: {lines_text} above the table: skipped.")
    if layout.units is not None:
        notes.append(f"{path.name}, line {rows[layout.units][0]} holds units.")
    first = next((c for c in "#%" if any(x.lstrip().startswith(c) for x in lines)), None)
    comment = first if first and not re.search(r"#(N/A|DIV|VALUE|REF|NUM)", text) else None
    skip = rows[layout.first][0] - 1 if layout.first < len(rows) else len(lines)
    return Dialect(encoding, delimiter, decimal, names, units, skip, comment, width, notes)


def _names_beyond(fields: list[list[str]], width: int) -> int:
    """Number of names where there are more names than fields in the rows below; 0 if not."""
    for above, below in itertools.pairwise(fields):
        if len(above) > width == len(below) and any(map(_kind, below)):
            return len(above) if all(_kind(f) is False for f in above) else 0
    return 0


EMPTY = "is empty; expected a table with a column for each variable."


def _doubtful_numbers(path: Path, body: list[str], delimiter: str, decimal: str) -> list[str]:
    """Notes on numbers with three digits behind their only point or comma."""
    plain = [f for f in body if delimiter == ";" and re.fullmatch(r"[+-]?\d*\.\d+", f)]
    if plain and decimal == "." and all(re.fullmatch(r".?[1-9]\d{0,2}\.\d{3}", f) for f in plain):
        if any(re.fullmatch(r"\d\d?\.\d\d?\.\d{2,4}", f) for f in body):
            raise DataError(
                f"{path.name}: got {plain[0]!r}, which may be {plain[0]} (decimal point) or "
                f"{plain[0].replace('.', '')} (thousands separator). State which with decimal='.' "
                "or decimal=','."
            )
        return [f"{plain[0]!r} is read with a decimal point (decimal=',' reads thousands)."]
    either = [f for f in body if delimiter == "," and EITHER.fullmatch(f)]
    if either and decimal == "." and not any(CERTAIN["."].fullmatch(f) for f in body):
        other = either[0].replace(",", ".")
        return [f"{either[0]!r} is read with a thousands separator (decimal=',' reads {other})."]
    return []


def _records(lines: list[str], skip: int) -> Iterator[tuple[int, str]]:
    """Lines with the number of their first; a quoted field may contain ends of lines."""
    i = skip
    while i < len(lines):
        end = i + 1
        if lines[i].count('"') % 2:
            ends = (k for k in range(i + 1, min(i + 20, len(lines))) if lines[k].count('"') % 2)
            end = next(ends, i) + 1
        yield i + 1, " ".join(lines[i:end])
        i = end


def find_layout(rows: Sequence[Sequence[str]], width: int) -> Layout:
    """Find the names, the units and the first row of data below lines of other content."""
    kinds = [[_kind(f) for f in row] if len(row) == width else None for row in rows]
    below = [k for k in kinds[len(kinds) // 2 :] if k] or [k for k in kinds if k]
    usual = [
        sum(k[j] is True for k in below) >= max(1, sum(k[j] is False for k in below))
        for j in range(width)
    ]
    fits = [k is not None and {*k} != {None}
            and all(a in (None, b) for a, b in zip(k, usual)) for k in kinds]  # fmt: skip
    first = next((i for i, fit in enumerate(fits) if fit), None)
    if not any(usual) or first is None:
        first = next(i for i, k in enumerate(kinds) if k is not None)
        return Layout(first, None, first + 1)
    above = [(i, {*(kinds[i] or ())}) for i in range(first)]
    words = [i for i, k in above if False in k and True not in k]
    words = words or [i for i, k in above if False in k][-1:]
    if not words:
        return Layout(None, None, first)
    near = [i for i in words if i + 1 < len(rows) and len(rows[i + 1]) == width
            and _holds_units(rows[i + 1]) and not _holds_units(rows[i])]  # fmt: skip
    if not near:
        return Layout(words[-1], None, words[-1] + 1)
    names = near[-1]
    if len({*joined_names(rows, names)[0]}) < width:
        return Layout(names + 1, None, names + 2)  # merged cells above names that look like units
    first = names + 2
    while first in words:  # descriptions, kinds of values
        first += 1
    return Layout(names, names + 1, first)


def joined_names(rows: Sequence[Sequence[str]], at: int) -> tuple[list[str], int]:
    """Names in a row, completed by the rows above if some repeat or are missing; the top row."""
    names, i = list(rows[at]), at - 1
    above = rows[i] if at and len(rows[i]) == len(names) else [""]
    if len({*names}) < len(names) and len({*above}) == len(above) and "" not in above:
        return list(above), i  # the row below has kinds of values or the like
    while i >= 0 and len(rows[i]) == len(names) and not any(map(is_number, rows[i])) and (
        len({*names}) < len(names) or any(a and not b for a, b in zip(rows[i], names))
    ):  # fmt: skip
        top = list(rows[i])
        if len({*names}) < len(names):  # merged cells
            for j in range(1, len(top)):
                top[j] = top[j] or top[j - 1]
        names = [b if a in ("", b) else f"{a} {b}".strip() for a, b in zip(top, names)]
        i -= 1
    return (names, i + 1) if len({*names}) == len(names) else (list(rows[at]), at)


def _kind(field: str) -> bool | None:
    """True for a number or a date, `None` for a missing value."""
    return None if is_missing(field) else is_number(field) or is_date(field)


def _holds_units(row: Sequence[str]) -> bool:
    words = [f.strip() for f in row if f.strip() not in ("", "1", "-")]
    if not words or any(_kind(f) is not False for f in words):
        return False
    return 2 * sum(bool(UNIT.fullmatch(f)) for f in words) >= len(words)


def _other_names(
    path: Path, lines: list[str], rows: list[tuple[int, str]], fields: list[list[str]],
    width: int, layout: Layout, delimiter: str,
) -> tuple[list[str] | None, Layout]:  # fmt: skip
    """Names in a comment, or in a line that has a field less than the rows."""
    first = layout.first
    if not first:
        above = [line.strip() for line in lines[: rows[0][0] - 1] if line.strip()]
        if above and above[-1].startswith(_COMMENT):
            named = split(above[-1].lstrip("#%/ \t"), delimiter)
            if len(named) == width and not any(map(is_number, named)):
                return named, layout  # numpy.savetxt writes the names as a comment
        return None, layout
    named, body = fields[first - 1], fields[first:]
    words = all(_kind(f) is False for f in named)
    if words and len(named) == width - 1:
        if not any(row[-1] for row in body if len(row) == width):
            return [*named, ""], Layout(first - 1, None, first)
        if delimiter in (r"\s+", "\t"):  # as R writes row names
            return ["", *named], Layout(first - 1, None, first)
    adjacent = rows[first][0] - rows[first - 1][0] == 1
    if words and adjacent and (len(named) > 1 or not re.search("[ :]", named[0])):
        found = "one field" if len(named) == 1 else f"{len(named)} fields"
        raise DataError(
            f"{path.name}, line {rows[first - 1][0]} has {found}, {', '.join(named)!r}, and the "
            f"rows below have {width}; expected a name for each column. If the comma is a decimal "
            "sign, say so with decimal=','; lines above the table are skipped with skip_rows=."
        )
    return None, layout


def split(line: str, delimiter: str) -> list[str]:
    """The fields of a line, without the quotes around them."""
    if delimiter == r"\s+":
        return [field.strip('"') for field in line.split()]
    try:
        fields = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:  # a long line without this delimiter is more than it takes for a field
        fields = line.split(delimiter)
    return [field.strip() for field in fields]


def _delimiter(lines: list[str], decimal: str | None) -> str:
    """The separator that leaves the most numbers, in the longest run of lines of one width."""
    best, most = ",", 0.0
    for candidate in _SEPARATORS:
        rows = [split(line, candidate) for line in lines]
        runs: list[list[list[str]]] = [[]]
        for row in rows:
            if runs[-1] and len(runs[-1][-1]) != len(row):
                runs.append([])
            runs[-1].append(row)
        run = max((run for run in runs if len(run[0]) > 1), key=len, default=None)
        if run is None or candidate == decimal:
            continue
        fields = [field for row in (run[1:] or run)[:SNIFFED] for field in row]
        good = sum(_kind(field) is not False for field in fields) / len(fields)
        score = round((good + 0.01) * len(run) / len(rows), 3)
        if score > most:
            best, most = candidate, score
    return best


def read_columns(
    path: Path, dialect: Dialect, wanted: Sequence[int], texts: Sequence[int], na: Sequence[str]
) -> Any:
    """Chosen columns as a pandas frame, in chunks, so that a large file needs little memory.

    `texts` are positions of those that must stay text (names of series), `na` additional markers of
    missing values.

    Raises:
        DataError: A row has too many fields, or there is more than can be kept.
    """
    pd = require("pandas", "read tables")
    last, short = dialect.width - 1, False
    names = [str(i) for i in range(dialect.width + 1)]
    beyond = names[-1]  # pandas drops fields beyond the last name silently
    # From version 3 on the default is exact.
    exact = {"float_precision": "round_trip"} if int(pd.__version__.split(".")[0]) < 3 else {}
    missing = [*_MISSING, *na]
    kept, total = [pd.DataFrame({str(i): [] for i in wanted})], 0
    try:
        with _readable(path), _open(path, dialect) as file:
            for _ in range(dialect.skip):
                file.readline()
            between = " " if dialect.delimiter == r"\s+" else dialect.delimiter
            reader = pd.read_csv(
                _Headed(between.join(names) + "\n", file), sep=dialect.delimiter, index_col=False,
                usecols=sorted({*wanted, last, dialect.width}), decimal=dialect.decimal or ".",
                comment=dialect.comment, skipinitialspace=True, keep_default_na=False, **exact,
                chunksize=max(1000, CHUNK_CELLS // max(1, len(wanted))),
                na_values={names[i]: missing for i in wanted if i not in texts} | {beyond: ""},
                dtype={names[i]: str for i in texts},
            )  # fmt: skip
            for chunk in reader:
                if chunk.pop(beyond).notna().any():
                    raise _too_wide(path, dialect)
                ends = chunk[names[last]] if last in wanted else chunk.pop(names[last])
                short = short or bool(ends.isna().any())
                kept.append(chunk)
                total += chunk.size
                if total > MAX_CELLS:
                    raise DataError(
                        f"{path.name} has more than {MAX_CELLS:,} values; expected fewer. Name the "
                        "columns that are needed (columns=), or thin the rows out first."
                    )
    except pd.errors.EmptyDataError:
        pass
    except (pd.errors.ParserError, csv.Error) as error:
        why = str(error).strip().splitlines()[0]
        raise DataError(f"{path.name} cannot be read as a table: {why}.") from None
    if short:
        _check_short_rows(path, dialect)
    frame = kept[-1] if len(kept) < 3 else pd.concat(kept[1:], ignore_index=True)
    return frame.rename(columns=int)[list(wanted)]


def _open(path: Path, dialect: Dialect) -> IO[str]:
    return io.TextIOWrapper(open_bounded(path), dialect.encoding, "replace")


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise errors about a damaged archive as a `DataError`."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{path.name} ends in .gz but is not a gzip file, or not all of it: {error}."
        ) from None


class _Headed:
    """A file with our own first line, so that pandas knows how many columns there are."""

    def __init__(self, head: str, file: IO[str]) -> None:
        self.head, self.file = head, file

    def read(self, size: int = -1) -> str:
        head, self.head = self.head, ""
        return head or self.file.read(size)

    def __iter__(self) -> Iterator[str]:
        yield self.head
        yield from self.file


def _data_lines(path: Path, dialect: Dialect) -> Iterator[tuple[int, str]]:
    """Lines of the table with their numbers, without comments."""
    with _open(path, dialect) as file:
        for number, line in enumerate(file, 1):
            row = line.split(dialect.comment)[0] if dialect.comment else line
            if number > dialect.skip and row.strip() and not row.lstrip().startswith(_COMMENT):
                yield number, row.rstrip("\r\n")


def line_of(
    path: Path, dialect: Dialect, column: int, bad: Callable[[str], bool]
) -> tuple[int, str] | None:
    """Line number and text of the first bad entry of a column."""
    for number, line in _data_lines(path, dialect):
        fields = split(line, dialect.delimiter)
        if column < len(fields) and bad(fields[column]):
            return number, fields[column]
    return None


def _check_short_rows(path: Path, dialect: Dialect) -> None:
    """Note rows with too few fields; between white space, nobody knows which are missing."""
    blank = dialect.delimiter == r"\s+"
    found = [
        number for number, row in _data_lines(path, dialect)
        if not row.count('"') % 2
        and (len(row.split()) if blank else row.count(dialect.delimiter) + 1) < dialect.width
    ]  # fmt: skip
    if found and blank:
        raise DataError(
            f"{path.name}, line {found[0]}: got fewer than {dialect.width} fields between white "
            "space; expected one for each name. Mark missing values, as with NA."
        )
    if found:
        many = "1 row has" if len(found) == 1 else f"{len(found):,} rows have"
        dialect.notes.append(
            f"{path.name}: {many} fewer fields than names (the first is line {found[0]}); what is "
            "not there is read as missing."
        )


def _too_wide(path: Path, dialect: Dialect) -> DataError:
    found = line_of(path, dialect, dialect.width, bool)
    where = "" if found is None else f", line {found[0]}"
    return DataError(
        f"{path.name}{where}: got more than {dialect.width} fields; expected one for each name. "
        f"Fields are separated by {_SEPARATORS[dialect.delimiter]}; is there one too many, or a "
        "text without quotes? If lines above the table are to be skipped, give their number as "
        "skip_rows=."
    )


def _decoded(path: Path, sample: bytes, encoding: str | None, notes: list[str]) -> tuple[str, str]:
    if encoding is not None:
        try:
            whole = len(sample) < SAMPLE  # a character may be cut at the end of the sample
            return encoding, codecs.getincrementaldecoder(encoding)().decode(sample, whole)
        except (LookupError, UnicodeError) as error:
            raise DataError(
                f"encoding: got {encoding!r}, with which {path.name} cannot be read ({error}); "
                "expected its encoding, such as 'utf-8', 'utf-16' or 'latin-1'."
            ) from None
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if sample.startswith(mark):
            return encoding, sample.decode(encoding, "replace")
    head = sample[:4096]
    for start, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        if len(head) > 3 and not any(head[start::2]) and all(head[1 - start :: 2]):
            return encoding, sample.decode(encoding, "replace")
    if any(byte < 32 and byte not in (9, 10, 11, 12, 13, 26) for byte in head):
        raise DataError(
            f"{path.name} is not text: it begins with {sample[:8]!r}. Expected a table as CSV or "
            "TSV, plain or .gz, or a file ending in .npy, .npz, .json, .nc, .parquet, .feather or "
            ".xlsx."
        )
    if re.match(rb"\s*<(!doctype|html|\?xml|table)", head, re.IGNORECASE):
        raise DataError(f"{path.name} is a web page or XML; expected a table as CSV or TSV.")
    if re.match(rb'\s*\[?\s*\{\s*"', head):
        raise DataError(f"{path.name} holds JSON; expected a table. End its name in .json.")
    try:
        # A character may be cut at the end of the sample.
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=len(sample) < SAMPLE)
        return "utf-8", sample.decode("utf-8", "ignore")
    except UnicodeDecodeError:
        notes.append(f"{path.name} is not UTF-8; it is read as Windows-1252.")
        return "cp1252", sample.decode("cp1252", "replace")
