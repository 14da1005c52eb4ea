"""Forecasts of many series, in several processes or on a cluster."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from smnn._util.groups import check_columns, is_number, map_groups
from smnn._util.names import explained
from smnn._util.optional import require
from smnn.forecasting._forecaster import MIN_OBSERVATIONS, Forecaster
from smnn.forecasting._time import SeriesError
from smnn.report.numbers import probabilities


@explained
def forecast_groups(
    frame: Any,
    h: int,
    *,
    engine: Any = None,
    workers: int = 1,
    forecaster: Forecaster | None = None,
    level: float | Sequence[float] | None = None,
    batch: int = 256,
    series: str = "unique_id",
    time: str = "ds",
    value: str = "y",
) -> Any:
    """Forecast many series in batches, each a separate fit.

    The batches depend only on the names and the number of the series, so the result is the same
    on every engine, up to rounding. Series of one batch with the same end and step are fitted
    together as one panel; each series is forecast from its own end.

    Args:
        frame: A long table with one row per series and time: a pandas `DataFrame`, or with an
            engine one of its frames.
        h: Number of steps to forecast.
        engine: What fugue runs the batches on: `"dask"`, `"ray"`, `"spark"`, or a client or session
            of these. By default processes of this machine.
        workers: Number of processes without an engine.
        forecaster: The forecaster to fit; a default one if `None`.
        level: Nominal coverage of the intervals; that of the forecaster by default.
        batch: Mean number of series per batch. 1 fits every series on its own, which is slower and
            often more accurate.
        series: Name of the column that names the series.
        time: Name of the column of times: numbers or dates.
        value: Name of the column of values.

    Returns:
        A pandas `DataFrame` with the columns `unique_id`, `ds`, `smnn`, two for every level such as
        `smnn-lo-90` and `smnn-hi-90`, and `note`, which is empty or says why a series has no
        forecast; such a series has a single row without values.

    Raises:
        DataError: If a column is missing.
    """
    check_columns(frame, (series, time, value))
    if batch < 1:
        raise SeriesError(f"batch: got {batch}; expected at least 1.")
    forecaster = Forecaster() if forecaster is None else forecaster
    forecaster._check()
    levels = probabilities(forecaster.level if level is None else level)
    dated = not is_number(frame, time, engine)
    columns = [("unique_id", "str"), ("ds", "datetime" if dated else "double"), ("smnn", "double")]
    for share in levels:
        columns += [(f"smnn-{end}-{100 * share:.10g}", "double") for end in ("lo", "hi")]
    columns.append(("note", "str"))
    function = functools.partial(
        _forecast_batch, names=(series, time, value), h=h, parameters=forecaster.get_params(),
        levels=levels, columns=[name for name, _ in columns],
    )  # fmt: skip
    return map_groups(frame, series, function, columns, batch=batch, engine=engine, workers=workers)


def _forecast_batch(
    rows: Any, *, names: tuple[str, str, str], h: int, parameters: dict[str, Any],
    levels: tuple[float, ...], columns: list[str],
) -> Any:  # fmt: skip
    """Forecasts of one batch; one panel for all series with the same times."""
    pandas = require("pandas", "read frames")
    series, time, value = names
    t = rows[time] if rows[time].dtype.kind in "iufM" else pandas.to_datetime(rows[time])
    table = pandas.DataFrame({"unique_id": rows[series].astype(str), "ds": t, "y": rows[value]})
    table = table.sort_values(["unique_id", "ds"], ignore_index=True)
    ends: dict[Any, list[str]] = {}
    for label, own in table.groupby("unique_id"):
        step = own["ds"].diff().median()
        ends.setdefault((own["ds"].iloc[-1], step), []).append(str(label))
    parts = []
    for labels in ends.values():
        panel = table[table["unique_id"].isin(labels)]
        try:
            wide = panel.pivot(index="ds", columns="unique_id", values="y")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # said in the column of notes
                fitted = Forecaster(**parameters).fit(wide, horizon=h)
            found = fitted.predict(level=levels).to_frame()
            note = f"fewer than {MIN_OBSERVATIONS} values"
            found["note"] = np.where(found["smnn"].isna(), note, "")
        except ValueError as error:
            found = panel.groupby("unique_id", as_index=False)["ds"].last()
            found["note"] = str(error)
        parts.append(found.reindex(columns=columns))
    return pandas.concat(parts, ignore_index=True)
