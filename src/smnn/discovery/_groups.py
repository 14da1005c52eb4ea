"""Equations of many experiments, in several processes or on a cluster."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sklearn.base import clone

from smnn._util.groups import check_columns, map_groups
from smnn._util.names import explained
from smnn._util.optional import require
from smnn.discovery._view.report import COLUMNS

if TYPE_CHECKING:
    from smnn.discovery._estimator import Discovery


@explained
def discover_groups(
    frame: Any, discovery: Discovery, *, series: str = "unique_id", time: str | None = "ds",
    columns: Sequence[str], inputs: Sequence[str] | None = None, engine: Any = None,
    workers: int = 1,
) -> Any:  # fmt: skip
    """Find the equations of every experiment on its own.

    Args:
        frame: A table with one row per experiment and time: a pandas `DataFrame`, or with an
            engine one of its frames.
        discovery: The estimator, whose settings every fit has.
        series: Name of the column that names the experiment.
        time: Name of the column of times; `None` if rows are one apart.
        columns: Names of the variables.
        inputs: Names of external inputs.
        engine: What fugue runs the fits on: `"dask"`, `"ray"`, `"spark"`, or a client or session of
            these. By default processes of this machine.
        workers: Number of processes without an engine.

    Returns:
        A pandas `DataFrame` with a row for every term of every equation: `series`, the columns of
        `Discovery.to_frame`, the level of the `verdict` on the equation, and `note`: warnings, or
        why there is no equation. An experiment without any term has a single row.

    Raises:
        DataError: If a column is missing.
    """
    wanted = [series, *([] if time is None else [time]), *columns, *(inputs or ())]
    check_columns(frame, wanted)
    texts = ("target", "term", "verdict", "note")
    names = ["series", *COLUMNS, "verdict", "note"]
    schema = [(name, "str" if name in ("series", *texts) else "double") for name in names]
    function = functools.partial(
        _discover_one, series=series, time=time, columns=list(columns),
        inputs=None if inputs is None else list(inputs), discovery=clone(discovery),
    )  # fmt: skip
    return map_groups(frame, series, function, schema, engine=engine, workers=workers)


def _discover_one(
    rows: Any, *, series: str, time: str | None, columns: list[str], inputs: list[str] | None,
    discovery: Discovery,
) -> Any:  # fmt: skip
    """The terms of the equations of one experiment."""
    pandas = require("pandas", "read frames")
    label = str(rows[series].iloc[0])
    table = rows[[*([] if time is None else [time]), *columns, *(inputs or [])]]
    found, notes = pandas.DataFrame(columns=COLUMNS), ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said in the column of notes
            model = clone(discovery).fit(
                table.reset_index(drop=True), time=False if time is None else time,
                series=False, columns=columns, inputs=inputs,
            )  # fmt: skip
        found, notes = model.to_frame(), " ".join(model.warnings_)
        levels = dict(zip(model.targets_, (e.level for e in model.verdict_.equations.values())))
        verdicts = [levels[target] for target in found["target"]]
        verdicts = verdicts or [model.verdict_.level]
    except ValueError as error:
        verdicts, notes = [""], str(error)
    if found.empty:
        found = pandas.DataFrame([["", "", *[float("nan")] * 4]], columns=COLUMNS)
    found = found.assign(verdict=verdicts, note=notes)
    found.insert(0, "series", label)
    return found.astype({name: float for name in COLUMNS[2:]})
