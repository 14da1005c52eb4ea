"""Files: written whole or not at all into a folder that was tried first, and read within bounds."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

UNFINISHED = ".unfinished"
"""Ending of a file that is being written; its name begins with a point."""
STALE = 600.0
"""Seconds after which such a file was left by a process that was killed: contents are complete
before writing begins, so that writing itself takes seconds."""
LARGEST = 4 << 30
"""Bytes that are taken from one text file, unpacked."""
LONGEST = 1 << 26
"""Bytes of one line of it."""


class OutputError(RuntimeError):
    """Results cannot be written to the place that was asked for."""


class InputError(ValueError):
    """A file is not one that can be read here: too large, or no file at all."""


# ---------------------------------------------------------------- writing


def prepare_output(folder: Path) -> Path:
    """Make the folder and make sure that files can be written there, before any computing.

    What a process that was killed left unfinished is removed.

    Raises:
        OutputError: If it is a file, or nothing can be written into it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
            file.flush()
    except (FileExistsError, NotADirectoryError):
        raise OutputError(f"{folder} is, or lies below, a file; give a folder.") from None
    except OSError as error:
        raise _unwritable(folder, error, into=True) from error
    remove_unfinished(folder)
    return folder


def remove_unfinished(folder: Path) -> None:
    """Remove files that processes left behind which were killed while writing."""
    for path in folder.glob(f".*{UNFINISHED}"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE:
                path.unlink()


def write_atomically(path: Path, content: str | bytes) -> Path:
    """Write a file so that a reader sees the old content or the new, never a part.

    Raises:
        OutputError: If it cannot be written; nothing is left behind.
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
    """Write a record as JSON, atomically. NaN and infinity are refused: JSON has none."""
    return write_atomically(path, json.dumps(record, indent=2, allow_nan=False) + "\n")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the system refuses inside is told as an `OutputError` about the path."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError, *, into: bool = False) -> OutputError:
    return OutputError(
        f"cannot write {'into ' * into}{path}: {error.strerror or error}."
        + _ADVICE.get(error.errno or 0, "")
    )


_FULL = " Free some space or write elsewhere, and run the same again."
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
    """Make sure that a path is a file: reading a device or a pipe may never end.

    Raises:
        InputError: It is something else.
        OSError: There is nothing, or it cannot be looked at.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a device or a pipe"
        raise InputError(f"{path} is {kind}; expected a file.")
    return found


def read_bounded(path: Path, most: int) -> bytes:
    """A whole file, if it is not larger than it can reasonably be.

    Raises:
        InputError: It has more than `most` bytes, or is no file.
        OSError: It cannot be read.
    """
    size = check_file(path).st_size
    if size > most:
        raise InputError(f"{path} has {size:,} bytes; expected at most {most:,}.")
    return path.read_bytes()


def open_bounded(path: Path, most: int | None = None, line: int | None = None) -> IO[bytes]:
    """A text file as bytes, unpacked if its name ends in `.gz`, within bounds.

    A packed file of some kilobytes can hold more than any memory, in a single line or in many.

    Args:
        path: The file.
        most: Bytes that may be read from it; `LARGEST` by default.
        line: Bytes that may pass without the end of a line; `LONGEST` by default.

    Raises:
        InputError: It is no file. Reading raises it, too, beyond the bounds.
    """
    check_file(path)
    bounds = LARGEST if most is None else most, LONGEST if line is None else line
    return io.BufferedReader(_Bounded(path, *bounds), 1 << 18)


class _Bounded(io.RawIOBase):
    """A file that counts what is read from it."""

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
                    f"{self._path.name} has more than {most:,} bytes {what}; expected fewer. Is "
                    "it a table? Keep the rows and columns that are needed."
                )
        return count

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()
