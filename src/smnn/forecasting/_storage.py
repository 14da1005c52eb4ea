"""Files of fitted forecasters: arrays in safetensors, everything else as JSON in its header.

Only the data classes in `CLASSES` are stored and built again, so that loading a file executes no
code from it. Arrays are named by their digests, and the JSON has one of its own: a damaged file is
refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.files import InputError, read_bounded, write_atomically
from smnn._util.optional import require
from smnn.forecasting._history import History
from smnn.forecasting._model.intervals import Calibration, Scale
from smnn.forecasting._model.model import Model, Part
from smnn.forecasting._model.modes import ModeChoice
from smnn.forecasting._model.panel import Panel
from smnn.forecasting._model.seasons import Season
from smnn.forecasting._model.spec import Spec
from smnn.forecasting._time import Clock, SeriesError

FORMAT, VERSION = "smnn-forecaster", "3"
LARGEST = 16 * 2**30
"""Maximum size of a file in bytes."""
CLASSES: dict[str, Any] = {
    x.__name__: x
    for x in (Calibration, Clock, History, ModeChoice, Model, Panel, Part, Scale, Season,
              Spec)
}  # fmt: skip


def write(path: str | Path, record: Mapping[str, Any]) -> Path:
    """Write a record atomically."""
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps(_encoded(record, arrays))
    header = {"format": FORMAT, "version": VERSION, "record": text, "digest": _digest(text)}
    safetensors = require("safetensors.numpy", "save a forecaster")
    return write_atomically(Path(path), safetensors.save(arrays, header))


def read(path: str | Path) -> dict[str, Any]:
    """Read a record.

    Raises:
        SeriesError: The file is damaged or not one of this kind.
    """
    safetensors = require("safetensors.numpy", "load a forecaster")
    path = Path(path)
    try:
        data = read_bounded(path, LARGEST)
        arrays = safetensors.load(data)
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size]).get("__metadata__") or {}
    except OSError as error:
        raise SeriesError(f"cannot read {path}: {error.strerror or error}.") from None
    except InputError as error:
        raise SeriesError(str(error)) from None
    except Exception as error:  # safetensors has its own class of errors
        raise SeriesError(f"{path} is not a safetensors file: {error}.") from None
    if header.get("format") != FORMAT:
        raise SeriesError(f"{path} is not a forecaster that Forecaster.save wrote.")
    if header.get("version") != VERSION:
        raise SeriesError(
            f"{path} has version {header.get('version')!r}; this smnn reads version {VERSION}."
        )
    text = header.get("record", "")
    if _digest(text) != header.get("digest") or any(_key(x) != k for k, x in arrays.items()):
        raise SeriesError(f"{path} is damaged: a digest does not match its contents.")
    try:
        record = _decoded(json.loads(text), arrays)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise SeriesError(f"{path} cannot be used: {error!r}.") from None
    if not isinstance(record, dict):
        raise SeriesError(f"{path} has no record of a forecaster.")
    return record


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _key(array: np.ndarray) -> str:
    head = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(head + np.ascontiguousarray(array).tobytes()).hexdigest()


def _encoded(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A value as JSON; arrays are moved to `arrays`."""
    if isinstance(value, np.ndarray | np.datetime64):
        array = np.ascontiguousarray(value)  # a single value becomes an array of length 1
        dated = array.dtype.kind == "M"
        plain = array.astype("M8[ns]").view("i8") if dated else array
        arrays[_key(plain)] = plain
        return {"array": _key(plain), "dated": dated, "scalar": isinstance(value, np.datetime64)}
    if isinstance(value, np.generic):
        return value.item()
    if is_dataclass(value) or hasattr(value, "_asdict"):
        names = value._fields if hasattr(value, "_fields") else [f.name for f in fields(value)]
        parts = {n: getattr(value, n) for n in names if not n.startswith("_")}
        return {"class": type(value).__name__, "fields": _encoded(parts, arrays)}
    if isinstance(value, Mapping):
        pairs = [[_encoded(k, arrays), _encoded(v, arrays)] for k, v in value.items()]
        return {"pairs": pairs}
    if isinstance(value, list | tuple | range):
        return {"items": [_encoded(x, arrays) for x in value], "tuple": isinstance(value, tuple)}
    if isinstance(value, str | int | float | None):
        return value
    raise TypeError(f"cannot store a {type(value).__name__}.")


def _decoded(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        array = arrays[value["array"]]
        array = array.view("M8[ns]") if value["dated"] else array
        return array[0] if value["scalar"] else array
    if "class" in value:
        return CLASSES[value["class"]](**_decoded(value["fields"], arrays))
    if "pairs" in value:
        return {_decoded(k, arrays): _decoded(v, arrays) for k, v in value["pairs"]}
    items = [_decoded(x, arrays) for x in value["items"]]
    return tuple(items) if value["tuple"] else items
