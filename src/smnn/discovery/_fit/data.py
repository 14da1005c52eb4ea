"""Data, candidate terms and rules of a fit, and its result.

All series are concatenated along one axis of nodes, so that the fit works on flat arrays.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smnn.data import Table, read
from smnn.discovery._arrays import Array, Flags, Indices
from smnn.discovery._constraints import Rules
from smnn.discovery._fit.model import Link
from smnn.discovery._terms import CompiledTerms, Term, compile_terms
from smnn.errors import DataError as DataError

if TYPE_CHECKING:
    from smnn.discovery._fit.refine import JointFit, Refiner

FEWEST = 3  # Fewest values of a variable, over all series
SHORTEST = 3  # Fewest times of a series
GAP = 50.0  # A step longer than this multiple of the median step is a gap that splits the series
RANGE = 1e50
"""Largest magnitude of values and steps, and inverse of the smallest; powers of them must not
overflow."""
CLOSE = 0.1  # Nodes closer than this fraction of the median step are merged before smoothing


@dataclass(frozen=True)
class Nodes:
    """Measurements of all series, concatenated along one axis of N nodes."""

    t: Array  # (N,) times
    Y: Array  # (N, V) measured values, NaN where missing
    U: Array  # (N, inputs) external inputs
    starts: Indices  # (series + 1,) index of the first node of every series, and N
    names: list[str]
    inputs: list[str]
    weights: Array | None = None  # (N, V) relative weights of squared errors, with a mean of one
    discrete: bool = False  # Whether the equations are a map from one node to the next
    sizes: Array | None = None  # (V,) standard deviations, used for variables without any value

    @property
    def roots(self) -> Array:
        """(N, V) square roots of the weights; zero where values are missing."""
        return np.where(self.seen, 1.0 if self.weights is None else np.sqrt(self.weights), 0.0)

    @property
    def follows(self) -> Flags:
        """(N,) whether the next node belongs to the same series, without a gap between them."""
        out = np.ones(len(self.t), dtype=bool)
        out[self.starts[1:] - 1] = False
        steps = np.append(np.diff(self.t), 0.0)
        out[out] = steps[out] <= GAP * np.median(steps[out])
        return out

    @property
    def h(self) -> Array:
        """(N,) length of the step that starts at a node; 1 where there is none."""
        if self.discrete:
            return np.ones(len(self.t))
        return np.where(self.follows, np.append(np.diff(self.t), 1.0), 1.0)

    @property
    def seen(self) -> Flags:
        """(N, V) mask of the measured values."""
        return np.isfinite(self.Y)

    @property
    def scale(self) -> Array:
        """(V,) standard deviation of each variable over all series, never zero."""
        measured = self.seen.any(0)
        Y = np.where(measured, self.Y, 0.0)
        spread = np.nanstd(Y, axis=0)
        size = np.nanmax(np.abs(Y), axis=0)
        found = np.where(spread > 1e-12 * size, spread, np.where(size > 0, size, 1.0))
        return found if self.sizes is None else np.where(measured, found, self.sizes)

    @property
    def hidden(self) -> Flags:
        """(V,) mask of the variables without any value."""
        return np.logical_not(self.seen.any(0))

    def with_columns(self, names: Sequence[str], columns: Array) -> Nodes:
        """The nodes with further inputs (N,) or (N, n)."""
        U = np.column_stack([self.U, columns])
        return replace(self, U=U, inputs=[*self.inputs, *names])

    def split(self, values: Array) -> list[Array]:
        """Split an array over the nodes into one array per series."""
        return [values[a:b] for a, b in self.bounds]

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """First node of every series, and one past its last."""
        return list(itertools.pairwise(self.starts.tolist()))

    @property
    def pieces(self) -> int:
        """Number of contiguous segments, counting series and gaps."""
        return int((~self.follows).sum())

    def merged(self) -> tuple[Nodes, Indices]:
        """Replace nodes at almost equal times by their mean.

        Returns:
            The merged nodes, and the index of the merged node of every original node (N,).
        """
        follows, h, weights = self.follows, self.h, self.weights
        apart = np.ones(len(self.t), dtype=bool)
        apart[1:] = ~follows[:-1] | (h[:-1] >= CLOSE * np.median(h[follows]))
        into = np.cumsum(apart) - 1
        if apart.all():
            return self, into
        count = np.bincount(into)

        def mean(values: Array, weight: Array | Flags) -> Array:
            total = np.stack([np.bincount(into, v) for v in np.where(weight, values, 0.0).T], -1)
            number = np.stack([np.bincount(into, w) for w in weight.T.astype(float)], -1)
            return np.where(number > 0, total / np.maximum(number, 1.0), np.nan)

        everything = np.ones_like(self.U, dtype=float)
        t = np.bincount(into, self.t) / count
        U = mean(self.U, everything) if self.U.shape[1] else np.empty((len(t), 0))
        starts = np.append(into[self.starts[:-1]], len(t))
        if weights is not None:
            weights = mean(weights, np.ones(weights.shape))
        few = replace(self, t=t, Y=mean(self.Y, self.seen), U=U, starts=starts, weights=weights)
        return few, into

    def segments(self, most: int, length: int = 2000) -> tuple[Nodes, Indices]:
        """Evenly spread segments with about `most` nodes in total; everything if that is fewer.

        Returns:
            The nodes, each segment a series of its own, and their indices among all nodes.
        """
        if len(self.t) <= most:
            return self, np.arange(len(self.t))
        edges: list[tuple[int, int]] = []
        for a, b in self.bounds:
            cuts = np.linspace(a, b, max(round((b - a) / length), 1) + 1).astype(int)
            edges += list(itertools.pairwise(cuts.tolist()))
        count = max(round(len(edges) * most / len(self.t)), 1)
        return self.take(
            [edges[i] for i in np.linspace(0, len(edges) - 1, count).round().astype(int)]
        )

    def take(self, bounds: Sequence[tuple[int, int]]) -> tuple[Nodes, Indices]:
        """Ranges of nodes, each as a series of its own, and their indices."""
        at = np.concatenate([np.arange(a, b) for a, b in bounds])
        starts = np.cumsum([0, *(b - a for a, b in bounds)])
        weights = None if self.weights is None else self.weights[at]
        t, Y, U = self.t[at], self.Y[at], self.U[at]
        return replace(self, t=t, Y=Y, U=U, starts=starts, weights=weights), at

    def head(self, rows: int) -> Nodes:
        """At most the first `rows` nodes of every series.

        Raises:
            DataError: If a variable has too few values among them.
        """
        return self.take([(a, min(a + rows, b)) for a, b in self.bounds])[0].checked()

    def table(self, timed: bool) -> Table:
        """The data as a table."""
        times = self.split(self.t)
        return Table(
            names=list(self.names),
            times=times,
            values=self.split(self.Y),
            input_names=list(self.inputs),
            inputs=self.split(self.U),
            series=[""] if len(times) == 1 else [str(i) for i in range(len(times))],
            time_name="t" if timed else None,
        )

    def weighted(self, given: Sequence[Any]) -> Nodes:
        """The nodes with weights (T,) or (T, V) of every series; zero leaves a value out.

        Raises:
            DataError: If there are not as many weights as values, or some are negative.
        """
        series = [as_matrix(w, "sample_weight") for w in given]
        V = self.Y.shape[1]
        shapes = [w.shape for w in series]
        rows = [b - a for a, b in self.bounds]
        if [len(w) for w in series] != rows or any(w.shape[1] not in (1, V) for w in series):
            raise DataError(
                f"sample_weight has shapes {shapes}; expected {rows} rows of one column or {V}."
            )
        W = np.concatenate([np.broadcast_to(w, (len(w), V)) for w in series])
        if not (W >= 0.0).all():
            raise DataError("sample_weight has negative or missing values; expected zero or more.")
        for name, largest in zip(self.names, W.max(0)):
            if largest == 0.0:
                raise DataError(f"sample_weight is zero for all values of {name}.")
        found = replace(self, Y=np.where(W > 0.0, self.Y, np.nan)).checked()
        mean = np.where(found.seen, W, 0.0).sum(0) / found.seen.sum(0)
        return replace(found, weights=W / mean)

    def as_map(self) -> Nodes:
        """The nodes as iterates of a map.

        Raises:
            DataError: If steps differ.
        """
        steps = np.diff(self.t)[self.follows[:-1]]
        if np.ptp(steps) > 1e-6 * steps[0]:
            raise DataError(
                f"the steps of t are between {steps.min():g} and {steps.max():g}; a map needs "
                "equal steps. Insert the missing rows, with NaN."
            )
        return replace(self, discrete=True)

    def checked(self) -> Nodes:
        """The nodes themselves.

        Raises:
            DataError: If a variable has too few values, or numbers are too large or too small.
        """
        steps = self.t[1:][self.follows[:-1]] - self.t[:-1][self.follows[:-1]]
        largest = np.nanmax(np.abs(self.Y), axis=0, initial=0.0).tolist()
        for name, size in [*zip(self.names, largest), ("the time step", float(np.median(steps)))]:
            if size > 0 and not 1.0 / RANGE <= size <= RANGE:
                raise DataError(
                    f"{name} is about {size:.0e}; expected a magnitude between {1 / RANGE:.0e} and "
                    f"{RANGE:.0e}. Choose other units, for example by dividing by {size:.0e}."
                )
        for name, count in zip(self.names, np.isfinite(self.Y).sum(0).tolist()):
            if not count:
                raise DataError(f"{name} has no values; leave the column out.")
            if count < FEWEST:
                raise DataError(
                    f"{name} has {count} values; expected at least {FEWEST}, and some dozens for a "
                    "useful fit. Give more data, or leave the column out."
                )
        return self


@dataclass(frozen=True)
class FitInput:
    """Data, candidate terms, and constraints of one fit."""

    nodes: Nodes
    terms: CompiledTerms
    order: int
    rules: Rules
    fixed: Array  # (V, P) coefficients of the terms that are not selected but fixed, zero elsewhere
    link: Link | None

    @property
    def names(self) -> list[str]:
        """Names of the terms."""
        return [term.name for term in self.terms.terms]

    def usable(self, phi: Array) -> tuple[FitInput, Flags, list[str]]:
        """Remove terms that are not finite on the data, and those excluded from every equation.

        Returns:
            The reduced input, the mask of the terms kept (P,), and the names of non-finite terms.

        Raises:
            DataError: If no term is left, or a fixed term is not finite.
        """
        good: Flags = np.asarray(np.isfinite(phi).all(0))
        bad = [name for name, g in zip(self.names, good) if not g]
        if (self.fixed[:, ~good] != 0).any():
            raise DataError(f"fixed terms that are not finite on the data: {', '.join(bad)}.")
        keep = good & (self.rules.allowed.any(0) | (self.fixed != 0).any(0))
        if not keep.any():
            raise DataError(
                "no candidate term of the library is finite on the data. Choose another library."
            )
        terms = [term for term, k in zip(self.terms.terms, keep) if k]
        reduced = replace(
            self, terms=compile_terms(terms, self.terms.variables), rules=self.rules.only(keep),
            fixed=self.fixed[:, keep],
        )  # fmt: skip
        return reduced, keep, bad


@dataclass(frozen=True)
class FitResult:
    """Coefficients, states and diagnostics of a fit."""

    Xi: Array  # (V, P) coefficients
    deviation: Array  # (V, P) standard deviations
    inclusion: Array | None  # (V, P) fraction of the resamples that selected a term
    Z: Array  # (N, V order) states
    noise: Array  # (V,) standard deviation of the measurement noise
    diagnostics: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    joint: tuple[Refiner, JointFit] | None = None
    """The joint fit, for the verdict."""
    terms: list[Term] | None = None
    """The terms, if they contain fitted constants; otherwise those of the library."""
    kept: Flags | None = None
    """(P,) mask of the terms in the joint fit; `None` for all."""

    def among(self, keep: Flags) -> FitResult:
        """Expand to all terms (P,); terms outside the mask get zeros."""

        def wide(values: Array) -> Array:
            out = np.zeros((len(values), len(keep)))
            out[:, keep] = values
            return out

        inclusion = None if self.inclusion is None else wide(self.inclusion)
        Xi, deviation = wide(self.Xi), wide(self.deviation)
        return replace(self, Xi=Xi, deviation=deviation, inclusion=inclusion, kept=keep)

    def widened(self, Xi: Array, theta: Array) -> FitResult:
        """Add independent errors of the coefficients and constants of the joint fit."""
        deviation = self.deviation.copy()
        kept = slice(None) if self.kept is None else self.kept
        deviation[:, kept] = np.hypot(deviation[:, kept], Xi)
        if self.terms is None:
            return replace(self, deviation=deviation)
        known = {c.name: c for term in self.terms for c in term.constants}
        wider = {
            name: replace(c, deviation=float(np.hypot(c.deviation, error)))
            for (name, c), error in zip(known.items(), theta)
        }
        return replace(self, deviation=deviation, terms=[term.at(wider) for term in self.terms])


def left_out(terms: Sequence[str]) -> list[str]:
    """Warning about terms that are not finite, if there are any."""
    text = "terms left out because they are not finite on the data"
    return [f"{text}: {', '.join(terms)}"] if terms else []


def opened(X: Any, t: Any, inputs: Any, names: Any = None, **reading: Any) -> tuple[Any, ...]:
    """Read files, data frames and dates; leave arrays and numeric times as they are.

    Returns:
        Values or a `Table`, times, inputs, and names of the variables; the last three are `None`
        with a table, which has them.

    Raises:
        DataError: If they cannot be read.
    """
    first = X[0] if isinstance(X, list | tuple) and len(X) else X
    tabular = isinstance(first, str | Path | Mapping) or any(
        hasattr(first, name) for name in ("dims", "columns", "iloc")
    )
    when = t[0] if isinstance(t, list | tuple) and len(t) else t
    dated = isinstance(t, str)
    if when is not None and not hasattr(when, "detach"):
        dated = dated or np.asarray(when).dtype.kind in "mMO"
    driving = [inputs] if isinstance(inputs, str) else inputs
    named_inputs = isinstance(driving, list | tuple) and any(isinstance(x, str) for x in driving)
    if isinstance(X, Table) or not (tabular or dated or reading or named_inputs):
        if reading:
            raise DataError(f"got {', '.join(reading)} with a table that was read before.")
        return X, t, inputs, names
    if "time" in reading and t is not None:
        raise DataError("got both t and time, which mean the same; leave one out.")
    arguments = {"time": t, "inputs": driving if named_inputs else None} | reading
    data = read(X, **arguments)
    if inputs is not None and not named_inputs and any("sorted" in text for text in data.warnings):
        raise DataError("the rows of X are not in order of time; sort X and the inputs first.")
    for text in data.warnings:
        if data.time_name is not None or "looks like time" not in text:
            warnings.warn(text, stacklevel=3)
    named = tabular and data.names != [f"x{i + 1}" for i in range(len(data.names))]
    if named and (inputs is None or named_inputs):
        if names is not None and len(names) != len(data.names):
            raise DataError(f"feature_names has {len(names)} names for {len(data.names)} columns.")
        return replace(data, names=list(map(str, names or data.names))), None, None, None
    many = isinstance(X, list | tuple) or len(data.times) > 1
    times = None if data.time_name is None else data.times if many else data.times[0]
    return (
        data.values if many else data.values[0],
        times,
        inputs,
        names or data.names * named or None,
    )


def read_nodes(
    X: Any, t: Any, inputs: Any, names: Any, weights: Any, reading: Mapping[str, Any]
) -> tuple[Nodes, Any, bool]:
    """The arguments of a fit as nodes; the values or `Table` that were read; whether times are."""
    column = weights if isinstance(weights, str) else None
    if column is not None:
        driving = [] if inputs is None else [inputs] if isinstance(inputs, str) else inputs
        if isinstance(X, Table) or not isinstance(driving, list | tuple):
            raise DataError("sample_weight is a name; it needs a frame or file with this column.")
        inputs = [*driving, column]
    X, t, inputs, names = opened(X, t, inputs, names, **reading)
    nodes = gather(X, t, inputs, names)
    if column is not None:
        X, weights = X.without_input(column)
        nodes = replace(nodes, U=nodes.U[:, :-1], inputs=X.input_names)
    if weights is not None:
        listed = isinstance(weights, list | tuple) and len(weights) and np.ndim(weights[0]) > 0
        nodes = nodes.weighted(list(weights) if listed else [weights])
    return nodes, X, t is not None


def check_distinct(variables: Sequence[str], inputs: Sequence[str]) -> None:
    """Refuse inputs that have the name of a variable."""
    clash = set(inputs) & set(variables)
    if clash:
        raise DataError(f"inputs and variables share a name: {', '.join(sorted(clash))}.")


def gather(
    X: Any,
    t: Any = None,
    inputs: Any = None,
    feature_names: Sequence[str] | None = None,
    step: float = 1.0,
) -> Nodes:
    """Validate one series or a list of series and concatenate them.

    Args:
        X: (T, V) array or tensor, a list of these, a `Table`, a data frame, a path, or anything
            else that `smnn.data.read` accepts; NaN marks missing values.
        t: Times (T,), a step, a list of either, or the name of a column of X; by default the times
            of the table, or `step`.
        inputs: (T, inputs) external inputs, without missing values.
        feature_names: Names of the variables; by default those of the DataFrame or table, or x, y,
            z, or x0, x1, ...
        step: Step of data without times.

    Raises:
        DataError: If shapes, times or values do not fit; the message states what was found.
    """
    input_names: list[str] | None = None
    if isinstance(X, Table):
        t, inputs, feature_names = _columns_of(X, t, inputs, feature_names)
        X, input_names = X.values, X.input_names or None
    if isinstance(X, list | tuple) and not len(X):
        raise DataError("X is an empty list; give at least one series.")
    X, t, inputs, feature_names = opened(X, t, inputs, feature_names)
    if isinstance(X, Table):
        return gather(X)
    t = step if t is None else t
    many = isinstance(X, list | tuple)
    tables = list(X) if many else [X]
    names = _names(tables[0], feature_names)
    values = [as_matrix(x, f"X[{i}]" if many else "X") for i, x in enumerate(tables)]
    V = values[0].shape[1]
    for i, x in enumerate(values):
        if x.shape[1] != V:
            raise DataError(
                f"X[{i}] has {x.shape[1]} columns and X[0] has {V}; every series needs the same."
            )
    if names is None:
        names = ["x", "y", "z"][:V] if V <= 3 else [f"x{i}" for i in range(V)]
    if len(names) != V:
        raise DataError(f"feature_names has {len(names)} names for {V} columns.")
    if len(set(names)) != V:
        raise DataError(f"feature_names contains a name twice: {', '.join(names)}.")
    times = _times(t, [len(x) for x in values], many)
    driven, found_names = _inputs(inputs, values, many)
    for i, (x, at) in enumerate(zip(values, times)):
        _check(x, at, f"X[{i}]" if many else "X", f"t[{i}]" if many else "t")
    starts = np.cumsum([0, *(len(x) for x in values)])
    return Nodes(
        np.concatenate(times), np.concatenate(values), np.concatenate(driven), starts, names,
        input_names or found_names,
    ).checked()  # fmt: skip


def _columns_of(
    table: Table, t: Any, inputs: Any, names: Sequence[str] | None
) -> tuple[Any, Any, list[str]]:
    """Times, inputs and names of a table."""
    if t is not None or inputs is not None or (names is not None and list(names) != table.names):
        raise DataError(
            "t, inputs and feature_names are taken from the table; leave these arguments out."
        )
    return table.times, table.inputs if table.input_names else None, table.names


def _names(table: Any, given: Sequence[str] | None) -> list[str] | None:
    if given is not None:
        return [str(name) for name in given]
    columns = getattr(table, "columns", None)
    return None if columns is None else [str(name) for name in columns]


def as_matrix(x: Any, what: str) -> Array:
    """A series as a (T, V) float array."""
    if hasattr(x, "detach"):
        if x.is_complex():
            raise DataError(f"{what} is complex; give real and imaginary part as two variables.")
        x = x.detach().cpu().double().numpy()  # NumPy has no bfloat16
    try:
        out = np.array(x, dtype=float)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} is not a table of numbers: {error}.") from None
    if out.ndim == 1:
        out = out[:, None]
    if out.ndim != 2 or out.shape[1] == 0:
        raise DataError(
            f"{what} has shape {out.shape}; expected (times, variables), or a list of such arrays."
        )
    if np.isinf(out).any():
        raise DataError(f"{what} contains infinite values; mark missing values as NaN.")
    return out


def _times(t: Any, lengths: list[int], many: bool) -> list[Array]:
    if np.isscalar(t):
        step = float(t)  # type: ignore[arg-type]
        if not (np.isfinite(step) and step > 0):
            raise DataError(f"t = {step}; a step must be positive.")
        return [step * np.arange(n, dtype=float) for n in lengths]
    given = list(t) if many else [t]
    if many and len(given) == lengths[0] != len(lengths) and all(np.isscalar(a) for a in given):
        given = [t] * len(lengths)  # one time axis for series of one length
    if len(given) != len(lengths):
        raise DataError(f"t has {len(given)} entries for {len(lengths)} series; give one for each.")
    out: list[Array] = []
    for i, (at, n) in enumerate(zip(given, lengths)):
        what = f"t[{i}]" if many else "t"
        if np.isscalar(at):
            out.append(float(at) * np.arange(n, dtype=float))  # type: ignore[arg-type]
            continue
        axis = np.asarray(at.detach().cpu() if hasattr(at, "detach") else at, dtype=float).ravel()
        if len(axis) != n:
            raise DataError(f"{what} has {len(axis)} times for {n} rows of X.")
        out.append(axis)
    return out


def _inputs(inputs: Any, values: list[Array], many: bool) -> tuple[list[Array], list[str]]:
    if inputs is None:
        return [np.empty((len(x), 0)) for x in values], []
    tables = list(inputs) if many else [inputs]
    if len(tables) != len(values):
        raise DataError(f"inputs has {len(tables)} entries for {len(values)} series.")
    names = _names(tables[0], None)
    out = [as_matrix(u, f"inputs[{i}]" if many else "inputs") for i, u in enumerate(tables)]
    for i, (u, x) in enumerate(zip(out, values)):
        what = f"inputs[{i}]" if many else "inputs"
        if len(u) != len(x):
            raise DataError(f"{what} has {len(u)} rows for {len(x)} rows of X.")
        if not np.isfinite(u).all():
            raise DataError(f"{what} has missing values; fill them in, inputs must be known.")
    if names is None:
        n = out[0].shape[1]
        names = ["u"] if n == 1 else [f"u{i}" for i in range(n)]
    return out, names


def _check(x: Array, t: Array, what: str, when: str) -> None:
    if len(x) < SHORTEST:
        raise DataError(f"{what} has {len(x)} rows; a series needs at least {SHORTEST}.")
    if not np.isfinite(t).all():
        raise DataError(f"{when} has times that are not finite.")
    steps = np.diff(t)
    if (steps <= 0).any():
        k = int(np.argmax(steps <= 0))
        raise DataError(
            f"{when} must increase; it goes from {t[k]:g} to {t[k + 1]:g} at row {k + 1}. "
            "Sort the rows by time and merge equal times."
        )
