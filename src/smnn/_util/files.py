"""Atomic writes into folders that were checked for access, and reads with a size limit."""

from __future__ import annotations

import contextlib
import csv
import errno
import gzip
import io
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from smnn.errors import InputError as InputError
from smnn.errors import OutputError as OutputError

UNFINISHED = ".smnn-unfinished"
"""Suffix of temporary files during a write; their names begin with a dot."""
STALE = 600.0
"""Age in seconds at which a temporary file counts as left over from a killed process. A write takes
seconds, because the content is complete before it starts."""
GENERATOR = '<meta name="generator" content="smnn">'
"""In the head of every page, which shows that a folder holds results of smnn."""
LARGEST = 4 << 30
"""Maximum number of bytes read from one text file, after decompression."""
LONGEST = 1 << 26
"""Maximum number of bytes in one line of a text file."""


# ---------------------------------------------------------------- writing


def prepare_output(folder: Path, names: Iterable[str] = ()) -> Path:
    """Create a folder and check that files can be written into it, before any computation.

    Temporary files left over from killed processes are removed.

    Raises:
        OutputError: The path is a file, the folder is not writable, or a file of these names is
            not a result of smnn.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
            file.flush()
    except (FileExistsError, NotADirectoryError):
        raise OutputError(f"{folder} is, or lies below, a file; expected a folder.") from None
    except OSError as error:
        raise _unwritable(folder, error, into=True) from error
    check_replaceable(folder, names)
    remove_unfinished(folder)
    return folder


def check_replaceable(folder: Path, names: Iterable[str]) -> None:
    """Check that writing would not replace files of others.

    Files beside a report of smnn are taken to be results of smnn.

    Raises:
        OutputError: A file of these names exists, and there is no report of smnn beside it.
    """
    with contextlib.suppress(OSError), (folder / "report.html").open("rb") as file:
        if GENERATOR.encode() in file.read(1024):
            return
    if taken := [name for name in names if (folder / name).exists()]:
        raise OutputError(
            f"{folder} contains {', '.join(taken)}, not written by smnn. Give another folder, or "
            "move what is there."
        )


def remove_unfinished(folder: Path) -> None:
    """Remove temporary files left over from processes that were killed during a write."""
    for path in folder.glob(f".*{UNFINISHED}"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE:
                path.unlink()


def write_atomically(path: Path, content: str | bytes) -> Path:
    """Write a file atomically: readers see either the old or the new content.

    Raises:
        OutputError: The file cannot be written; no temporary file is left behind.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED
        )
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            raise _unwritable(path, error) from error
        raise
    return path


def write_json(path: Path, record: Mapping[str, Any]) -> Path:
    """Write a record as JSON, atomically. Raises `ValueError` for NaN and infinity."""
    return write_atomically(path, json.dumps(record, indent=2, allow_nan=False) + "\n")


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV; an apostrophe precedes text that a spreadsheet would execute as a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([inert(cell) for cell in row] for row in rows)
    return text.getvalue()


def inert(cell: Any) -> Any:
    """A cell of a table: text that begins like a formula and is not a number gets an apostrophe."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert an `OSError` inside the block to an `OutputError` that names the path."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError, *, into: bool = False) -> OutputError:
    return OutputError(
        f"cannot write {'into ' * into}{path}: {error.strerror or error}."
        + _ADVICE.get(error.errno or 0, "")
    )


_FULL = " Free some space or write elsewhere, then try again."
_REFUSED = " Give a folder that you may write to."
_ADVICE = {
    errno.ENOSPC: _FULL, errno.EDQUOT: _FULL, errno.EFBIG: _FULL,
    errno.EACCES: _REFUSED, errno.EPERM: _REFUSED, errno.EROFS: _REFUSED,
}  # fmt: skip


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# ---------------------------------------------------------------- reading


def check_file(path: Path) -> os.stat_result:
    """Check that a path is a regular file: reading from a device or a pipe may block forever.

    Raises:
        InputError: It is a folder, a device or a pipe.
        OSError: It does not exist or is not accessible.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a device or a pipe"
        raise InputError(f"{path} is {kind}; expected a file.")
    return found


def read_bounded(path: Path, most: int) -> bytes:
    """Read a whole file of at most `most` bytes.

    Raises:
        InputError: It is larger, or not a regular file.
        OSError: It cannot be read.
    """
    size = check_file(path).st_size
    if size > most:
        raise InputError(f"{path} has {size:,} bytes; expected at most {most:,}.")
    return path.read_bytes()


def open_bounded(path: Path, most: int | None = None, line: int | None = None) -> IO[bytes]:
    """Open a text file for reading bytes; `.gz` files are decompressed.

    At most `most` bytes in total (by default `LARGEST`), and `line` in one line (`LONGEST`), are
    read: compressed files can expand beyond the available memory.

    Raises:
        InputError: It is not a regular file. Also raised while reading beyond a limit.
    """
    check_file(path)
    bounds = LARGEST if most is None else most, LONGEST if line is None else line
    return io.BufferedReader(_Bounded(path, *bounds), 1 << 18)


class _Bounded(io.RawIOBase):
    """A file that enforces limits on the bytes read from it."""

    def __init__(self, path: Path, most: int, line: int) -> None:
        super().__init__()
        packed = path.suffix == ".gz"
        self._raw: Any = gzip.GzipFile(path, "rb") if packed else path.open("rb", buffering=0)
        self._path, self._most, self._line = path, most, line
        self._total = self._run = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._raw.read(len(buffer))
        count = len(data)
        buffer[:count] = data
        self._total += count
        ends = data.rfind(b"\n") if b"\n" in data else data.rfind(b"\r")
        self._run = count - 1 - ends if ends >= 0 else self._run + count
        for found, most, what in (
            (self._total, self._most, "unpacked"), (self._run, self._line, "in one line"),
        ):  # fmt: skip
            if found > most:
                raise InputError(
                    f"{self._path.name} has more than {most:,} bytes {what}; expected fewer. Check "
                    "that it is a table, and remove rows and columns that are not needed."
                )
        return count

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()
