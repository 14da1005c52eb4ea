"""A model as JSON: plain numbers and names, nothing that is executed when it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.files import InputError, read_bounded, write_json

FORMAT = "smnn-discovery"
VERSION = 1
LARGEST = 64 * 2**20
"""Bytes of a model file that is read."""
MAX_CALLS = 30_000_000
"""Calls and returns of functions that making the terms of a model may take: some seconds, and
seven times what the largest library takes."""
MOST_TEXTS, LONGEST_TEXT = 10_000, 1000
"""Names in a list of them, and characters of one."""


class ModelFileError(ValueError):
    """A file that does not hold a model of ours."""


def write_model(path: str | Path, record: Mapping[str, Any]) -> Path:
    """Write a record, whole or not at all."""
    return write_json(Path(path), {"format": FORMAT, "version": VERSION, **_plain(record)})


def read_model(path: str | Path) -> dict[str, Any]:
    """Read a record and check what kind it is.

    Raises:
        ModelFileError: If it is something else, with what was found.
    """
    path = Path(path)
    try:
        record = json.loads(read_bounded(path, LARGEST).decode("utf-8"))
    except InputError as error:
        raise ModelFileError(f"{error} A model of Discovery.save is far smaller.") from None
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror or error}.") from None
    except (ValueError, RecursionError):
        raise ModelFileError(f"{path} is not JSON, nothing that Discovery.save wrote.") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ModelFileError(f"{path} is not a model that Discovery.save wrote.")
    if record.get("version") != VERSION:
        raise ModelFileError(
            f"{path} has version {record.get('version')!r}; this smnn reads version {VERSION}."
        )
    if not isinstance(record.get("report") or {}, dict):
        raise ModelFileError(f"'report' in {path} is not a dictionary.")
    return record


def matrix(record: Mapping[str, Any], key: str, shape: tuple[int, ...]) -> np.ndarray:
    """An array of a record.

    Raises:
        ModelFileError: If it is missing or has another shape.
    """
    try:
        value = np.array(record[key], dtype=float)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ModelFileError(f"the model file has no numbers under {key!r}.") from None
    if value.shape != shape:
        raise ModelFileError(f"{key!r} in the model file has shape {value.shape}, not {shape}.")
    if not np.isfinite(value).all():
        raise ModelFileError(f"{key!r} in the model file has values that are not finite.")
    return value


def texts(record: Mapping[str, Any], key: str) -> list[str]:
    """A list of texts of a record.

    Raises:
        ModelFileError: If it is something else.
    """
    value = record.get(key)
    if not isinstance(value, list) or not all(isinstance(x, str) for x in value):
        raise ModelFileError(f"{key!r} in the model file is not a list of texts.")
    if len(value) > MOST_TEXTS or any(len(x) > LONGEST_TEXT for x in value):
        raise ModelFileError(
            f"{key!r} in the model file has {len(value):,} texts of up to "
            f"{max(map(len, value)):,} characters; expected at most {MOST_TEXTS:,} of "
            f"{LONGEST_TEXT:,}."
        )
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
