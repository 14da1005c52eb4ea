"""What `smnn discover` computes: a fit on the first part of each series, tried on the rest."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from smnn.data import Table

FEWEST_FITTED = 8
"""Times that each series keeps for the fit, whatever share is held out."""
MOST_VALUES = 600_000
"""Rows times variables that are looked at; of more, the first rows of every series."""
MOST_POSITIONS = 3
"""Variables up to which equations of second order are tried unasked."""
MOST_TERMS = 8
"""Terms of an equation that somebody may have meant."""
BEGINNING = 1000
"""Rows with which equations of second order are tried first."""
SMALL = 0.02
"""Share of the change from row to row that may be errors of a computation."""
TOLERATED = 0.4
"""Error, in standard deviations of the data, up to which a simulation follows them."""


@dataclass(frozen=True)
class Trial:
    """A simulation from the end of the fitted part of a series, beside the data held out."""

    series: str
    start: float
    """Time of the last fitted row, where the simulation starts."""
    t: np.ndarray
    """`(T,)` times held out."""
    data: np.ndarray
    """`(T, V)`, NaN where missing."""
    simulated: np.ndarray
    """`(T, V)`, NaN where the simulation has run away."""
    error: np.ndarray
    """`(T,)` root mean square over the variables, in standard deviations; infinite if run away."""

    @property
    def until(self) -> float | None:
        """How long it follows the data; `None` if it does to the end."""
        beyond = np.flatnonzero(self.error > TOLERATED)
        return float(self.t[beyond[0]] - self.start) if len(beyond) else None

    @property
    def length(self) -> float:
        """How long the part held out is."""
        return float(self.t[-1] - self.start)


@dataclass(frozen=True)
class Found:
    """Everything that the command shows."""

    source: str
    """Name of the file."""
    table: Table
    model: Any
    """A fitted `Discovery`."""
    fitted: list[np.ndarray]
    """`(T_i, V)` the data that were fitted."""
    trials: list[Trial]
    seconds: float
    command: str
    machine: dict[str, Any]
    warnings: list[str] = field(default_factory=list)

    @property
    def error(self) -> float | None:
        """Error over everything held out, in standard deviations; `None` if nothing was."""
        squares = np.concatenate([t.error**2 for t in self.trials]) if self.trials else np.empty(0)
        squares = squares[~np.isnan(squares)]
        return float(np.sqrt(squares.mean())) if len(squares) else None

    @property
    def followed(self) -> float | None:
        """Share of the time held out over which the simulations follow the data."""
        if not self.trials:
            return None
        lasted = [t.length if t.until is None else t.until for t in self.trials]
        return float(sum(lasted) / sum(t.length for t in self.trials))

    @property
    def terms(self) -> int:
        """Terms in all equations together."""
        return int(np.count_nonzero(self.model.coefficients_))

    @property
    def spread(self) -> np.ndarray:
        """`(V,)` standard deviation of the data."""
        return _spread(self.table.values)


def shortened(table: Table) -> Table:
    """The table itself, or its beginning with a warning that says so.

    Rows are not left out in between: whether the rest still follows the motion is not known.
    """
    most = MOST_VALUES // max(1, len(table.names))
    if table.rows <= most:
        return table
    share = most / table.rows
    sizes = [max(FEWEST_FITTED, int(share * len(t))) for t in table.times]
    warning = (
        f"the first {sum(min(n, len(t)) for n, t in zip(sizes, table.times)):,} of {table.rows:,} "
        "rows are used: that is enough to learn from. Cut the file to use others."
    )
    return replace(
        table,
        times=[t[:n].copy() for t, n in zip(table.times, sizes)],
        values=[x[:n].copy() for x, n in zip(table.values, sizes)],
        inputs=[x[:n].copy() for x, n in zip(table.inputs, sizes)],
        warnings=[*table.warnings, warning],
    )


def _check_columns(table: Table, fitted: Sequence[np.ndarray]) -> None:
    """A column that begins in the part held out is not an empty one."""
    from smnn.discovery import DataError

    for i, name in enumerate(table.names):
        if any(np.isfinite(x[:, i]).any() for x in fitted):
            continue
        if any(np.isfinite(x[:, i]).any() for x in table.values):
            raise DataError(
                f"{name} has values only in the part that is held out; leave the column out with "
                "--columns, or hold out less with --holdout."
            )


def split(table: Table, holdout: float) -> list[int]:
    """How many rows of each series are fitted; the rest is held out."""
    sizes = []
    for t in table.times:
        kept = len(t) - round(holdout * len(t))
        sizes.append(max(kept, min(FEWEST_FITTED, len(t))))
    return sizes


def run(
    source: str,
    table: Table,
    options: dict[str, Any],
    holdout: float,
    command: str,
    estimator: Any = None,
) -> Found:
    """Fit and try.

    Args:
        source: Name of the file that they came from.
        table: The data.
        options: Arguments of `Discovery`; with the order `None`, the first or the second.
        holdout: Share of the end of each series that the fit does not see.
        command: How this was called, for the record.
        estimator: The class to use; `Discovery`.
    """
    from smnn._util.machine import describe_machine, package_versions
    from smnn.discovery import DataError

    if estimator is None:
        from smnn.discovery import Discovery as estimator

    sizes = split(table, holdout)
    X = [x[:n] for x, n in zip(table.values, sizes)]
    _check_columns(table, X)
    U = _inputs(table, sizes)
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        times = [t[:n] for t, n in zip(table.times, sizes)]

        def fitted(order: int, most: int | None = None) -> Any:
            model = estimator(**(options | ({"order": order} if "order" in options else {})))
            inputs = None if U is None else [u[:most] for u in U]
            return model.fit(
                [x[:most] for x in X],
                t=[t[:most] for t in times],
                inputs=inputs,
                feature_names=table.names,
            )

        asked = options.get("order", 1)
        model = fitted(asked or 1)
        if asked is None and _may_be_second(model, options):
            with contextlib.suppress(DataError):  # then it is no better
                few = max(BEGINNING // len(X), FEWEST_FITTED)
                if fitted(2, few).report_["holds"]:
                    model = _better(model, fitted(2))
        trials = _try(table, model, sizes)
        _doubt(model)
    said = dict.fromkeys(str(w.message) for w in caught if w.category is UserWarning)
    machine = describe_machine()
    machine["versions"] |= package_versions(("pandas", "scikit-learn", "sympy"))
    seconds = time.perf_counter() - began
    return Found(
        source, table, model, X, trials, seconds, command, machine, [*table.warnings, *said]
    )  # fmt: skip


def _may_be_second(model: Any, options: dict[str, Any]) -> bool:
    """Whether equations of second order are worth a try: those of first order do not hold.

    That is how a position looks whose velocity was not measured. Terms that were named belong to
    first-order equations.
    """
    if options.get("fixed") or options.get("forbidden") or len(model.targets_) > MOST_POSITIONS:
        return False
    return max((model.report_ or {}).get("missed", [0.0])) > SMALL


def _better(first: Any, second: Any) -> Any:
    """The model of second order if it holds and explains the data better."""
    if second.report_["holds"] and _merit(second) > _merit(first):
        warnings.warn(
            "the equations are of second order: those of first order do not hold. --order 1 keeps "
            "to the first.",
            stacklevel=3,
        )
        return second
    return first


def _merit(model: Any) -> float:
    """Logarithm of the likelihood for every value."""
    return float(model.report_["evidence"] / max(model.report_["values"], 1))


def _doubt(model: Any) -> None:
    """Say so if equations made of the candidates do not hold."""
    report = model.report_ or {}
    counts = np.count_nonzero(model.coefficients_, axis=1)
    if counts.max() > MOST_TERMS:
        warnings.warn(
            f"the equation of {model.variables_[int(counts.argmax())]} has {counts.max()} terms: "
            "such sums imitate something that is not among the candidates, a quotient say. Do not "
            "read a meaning into their terms.",
            stacklevel=3,
        )
    shares = report.get("missed")
    if report.get("holds", True) or not shares:
        return
    bad = [i for i, share in enumerate(shares) if share > 0.5 * max(shares)]
    if max(shares) <= SMALL:
        spread = np.maximum(_spread([x[:, : len(shares)] for x in model.states_]), 1e-300)
        if (np.asarray(model.noise_) / spread).max() > max(shares):
            return  # noise hides as much
        warnings.warn(
            f"{_percent(max(shares))} of the change from row to row is not explained: errors of a "
            "computation, or something small that no candidate term has.",
            stacklevel=3,
        )
        return
    names = [model.variables_[i] for i in bad]
    several = len(bad) > 1
    inputs = "" if len(bad) == len(shares) else f", inputs (--inputs {','.join(names)})"
    warnings.warn(
        f"the equation{'s' * several} of {', '.join(names)} {'do' if several else 'does'} not "
        f"hold: {_percent(max(shares))} of the change from row to row is not explained. Take "
        f"{'them' if several else 'it'} for a rough substitute, whatever the intervals say. Other "
        f"candidate terms (--library){inputs} or another order (--order) may be missing.",
        stacklevel=3,
    )


def _percent(share: float) -> str:
    return "most" if share > 0.6 else f"{100 * share:.2g} %"


def _inputs(table: Table, sizes: Sequence[int]) -> list[Any] | None:
    if not table.input_names:
        return None
    import pandas as pd

    return [pd.DataFrame(u[:n], columns=table.input_names) for u, n in zip(table.inputs, sizes)]


def _try(table: Table, model: Any, sizes: Sequence[int]) -> list[Trial]:
    spread = _spread(table.values)
    V = len(table.names)
    trials = []
    for i, n in enumerate(sizes):
        t, data = table.times[i], table.values[i]
        if n >= len(t):
            continue
        U = table.inputs[i][n - 1 :] if table.input_names else None
        path = model.simulate(model.states_[i][-1], t[n - 1 :], inputs=U)[1:, :V]
        off = (path - data[n:]) / spread
        known = np.isfinite(data[n:])
        squares = np.where(known, np.where(np.isfinite(off), off**2, np.inf), 0.0).sum(1)
        count = known.sum(1)
        with np.errstate(invalid="ignore", divide="ignore"):
            error = np.where(count > 0, np.sqrt(squares / count), np.nan)
        trials.append(Trial(table.series[i], float(t[n - 1]), t[n:], data[n:], path, error))
    return trials


def _spread(values: Sequence[np.ndarray]) -> np.ndarray:
    return np.nanstd(np.concatenate(list(values)), axis=0)
