"""Model files: JSON with plain numbers and names, safe to load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.files import InputError, read_bounded, write_json
from smnn.discovery._terms import Constant, Term
from smnn.errors import DataError

FORMAT = "smnn-discovery"
VERSION = 1
LARGEST = 64 * 2**20  # Maximum size of a model file in bytes
MAX_CALLS = 30_000_000
"""Budget of function calls for building the terms of a model: some seconds, seven times what the
largest library needs."""
MOST_TEXTS, LONGEST_TEXT = 10_000, 1000
"""Maximum number of names in a list, and of characters in a name."""


class ModelFileError(DataError):
    """File that is not a saved model."""


def write_model(path: str | Path, record: Mapping[str, Any]) -> Path:
    """Write a record atomically."""
    return write_json(Path(path), {"format": FORMAT, "version": VERSION, **_plain(record)})


def read_model(path: str | Path) -> dict[str, Any]:
    """Read a record and check its format.

    Raises:
        ModelFileError: If the file is not a saved model.
    """
    path = Path(path)
    try:
        record = json.loads(read_bounded(path, LARGEST).decode("utf-8"))
    except InputError as error:
        raise ModelFileError(f"{error} Files written by Discovery.save are far smaller.") from None
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror or error}.") from None
    except (ValueError, RecursionError):
        raise ModelFileError(f"{path} is not JSON; expected a model file.") from None
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
        ModelFileError: If it is missing, not finite, or has another shape.
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


def with_constants(terms: list[Term], record: Mapping[str, Any]) -> list[Term]:
    """Terms with the constants of a record.

    Raises:
        ModelFileError: If one is missing, not finite, or not a constant.
    """
    try:
        found = {entry["name"]: Constant(**entry) for entry in record.get("constants") or []}
        numbers = [float(x) for c in found.values() for x in (c.value, c.deviation)]
        if not np.isfinite(numbers).all():
            raise ValueError("not finite")
        return [term.at(found) for term in terms]
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"'constants' in the model file cannot be used: {error}.") from None


def texts(record: Mapping[str, Any], key: str) -> list[str]:
    """A list of strings of a record.

    Raises:
        ModelFileError: If it is missing or not a list of strings.
    """
    value = record.get(key)
    if not isinstance(value, list) or not all(isinstance(x, str) for x in value):
        raise ModelFileError(f"{key!r} in the model file is not a list of strings.")
    if len(value) > MOST_TEXTS or any(len(x) > LONGEST_TEXT for x in value):
        raise ModelFileError(
            f"{key!r} in the model file has {len(value):,} strings of up to "
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
