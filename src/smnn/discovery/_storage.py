"""Model files: JSON with plain numbers and names, safe to load."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smnn._util.files import InputError, read_bounded, write_json
from smnn.discovery._fit.data import check_distinct
from smnn.discovery._fit.model import state_names
from smnn.discovery._terms import Constant, Term, intervals_of
from smnn.discovery.libraries import Library
from smnn.errors import DataError

if TYPE_CHECKING:
    from smnn.discovery._estimator import Discovery

FORMAT = "smnn-discovery"
VERSION = 1
LARGEST = 64 * 2**20  # Maximum size of a model file in bytes
MOST_TEXTS, LONGEST_TEXT = 10_000, 1000
"""Maximum number of names in a list, and of characters in a name."""


class ModelFileError(DataError):
    """File that is not a saved model."""


def write_model(path: str | Path, record: Mapping[str, Any]) -> Path:
    """Write a record atomically."""
    return write_json(Path(path), {"format": FORMAT, "version": VERSION, **_plain(record)})


def save(model: Discovery, path: str | Path) -> Path:
    """Write a fitted model."""
    record = {
        "library": model.library_.to_json(),
        "constants": [vars(constant) for constant in model.constants_.values()],
        "order": model.order_,
        "link": model.link,
        "kind": model.kind,
        "variables": model.variables_,
        "inputs": model.inputs_,
        "series": model.series_,
        "lag": model.lag_,
        "hidden": model.hidden_,
        "terms": [term.name for term in model.terms_],
        "equations": model.equations(precision=6),
        "coefficients": model.coefficients_,
        "deviation": model.deviation_,
        "inclusion": model.inclusion_,
        "noise": model.noise_,
        "step": model.step_,
        "scale": model.scale_,
        "verdict": model.verdict_.to_dict(),
        "candidates": [vars(rival) for rival in model.candidates_],
        "report": model.report_,
    }
    return write_model(path, record)


def load(
    make: Callable[..., Discovery], path: str | Path, verdicts: Callable[..., tuple[Any, Any]]
) -> Discovery:
    """Read a fitted model.

    Args:
        make: Creates an estimator.
        path: A file that `save` has written.
        verdicts: Reads verdict and rivals from the record, given the variables.

    Raises:
        ModelFileError: If the file is not a saved model.
    """
    record = read_model(path)
    try:
        library = Library.from_json(record.get("library"))  # type: ignore[arg-type]
        options = {"order": record.get("order", 1), "link": record.get("link")}
        model = make(library=library, kind=record.get("kind", "ode"), **options)
        model._check()
        if not isinstance(model.order, int):
            raise ValueError(f"order={model.order!r}; expected a whole number from 1 to 4.")
        names = texts(record, "variables"), texts(record, "inputs")
        check_distinct(*names)
        model.variables_ = names[0]
        series = texts(record, "series") if record.get("series") else []
        more = model._more_columns(series, _lag(record), _hidden(record))
        columns = [*state_names(names[0], model.order), *names[1], *more]
        terms = with_constants(library.terms(columns), record)
        model._set_equations(library, model.order, *names, terms)
    except ModelFileError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelFileError(f"{path} cannot be used: {error}") from None
    if texts(record, "terms") != [term.name for term in model.terms_]:
        raise ModelFileError(f"the terms in {path} do not match its library.")
    _restore(model, record)
    try:
        model.verdict_, model.candidates_ = verdicts(record, model.variables_)
    except ValueError as error:
        raise ModelFileError(str(error)) from None
    return model


def _lag(record: Mapping[str, Any]) -> tuple[float, float] | None:
    """The lag and its standard deviation."""
    if record.get("lag") is None:
        return None
    lag, deviation = matrix(record, "lag", (2,)).tolist()
    if not lag > 0.0:
        raise ModelFileError(f"'lag' in the model file is {lag}; expected a positive number.")
    return lag, deviation


def _hidden(record: Mapping[str, Any]) -> dict[str, str]:
    """The definition of the hidden variable, which is the last one, by name."""
    given = record.get("hidden") or {}
    if given and (
        not isinstance(given, dict)
        or [*given] != texts(record, "variables")[-1:]
        or not all(isinstance(text, str) and len(text) <= LONGEST_TEXT for text in given.values())
    ):
        raise ModelFileError("'hidden' in the model file does not define its last variable.")
    return given


def _restore(model: Discovery, record: Mapping[str, Any]) -> None:
    """Set the results of a fit."""
    V, P, D = len(model.targets_), len(model.terms_), len(model.state_names_)
    model.coefficients_ = matrix(record, "coefficients", (V, P))
    model.deviation_ = matrix(record, "deviation", (V, P))
    model.intervals_ = intervals_of(model.coefficients_, model.deviation_)
    known = record.get("inclusion") is not None
    model.inclusion_ = matrix(record, "inclusion", (V, P)) if known else None
    model.noise_ = matrix(record, "noise", (V,))
    model.scale_ = matrix(record, "scale", (D,))
    model.step_ = float(matrix(record, "step", ()))
    model.states_, model.times_, model.table_, model.warnings_ = [], [], None, []
    model.report_ = record.get("report") or {}


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
