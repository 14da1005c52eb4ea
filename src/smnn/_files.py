"""Writing results: into a folder that was tried first, each file whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class OutputError(RuntimeError):
    """Results cannot be written to the place that was asked for."""


def prepare_output(folder: Path) -> Path:
    """Make the folder and make sure that files can be written there, before any computing.

    Raises:
        OutputError: If it is a file, or nothing can be written into it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (FileExistsError, NotADirectoryError):
        raise OutputError(f"{folder} is, or lies below, a file; give a folder.") from None
    except OSError as error:
        raise OutputError(f"cannot write into {folder}: {error.strerror or error}.") from error
    return folder


def write_atomically(path: Path, content: str | bytes) -> Path:
    """Write a file so that a reader sees the old content or the new, never a part.

    Raises:
        OutputError: If it cannot be written; nothing is left behind.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
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
            raise OutputError(f"cannot write {path}: {error.strerror or error}.") from error
        raise
    return path


def write_json(path: Path, record: Mapping[str, Any]) -> Path:
    """Write a record as JSON, atomically. NaN and infinity are refused: JSON has none."""
    return write_atomically(path, json.dumps(record, indent=2, allow_nan=False) + "\n")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
