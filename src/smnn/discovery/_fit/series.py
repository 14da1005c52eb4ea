"""Somebody's data brought to one form: nodes of all series, one after another."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smnn.data import TableError, read
from smnn.discovery._fit.arrays import Array, Flags, Indices

FEWEST = 3
"""Values of a variable, in all series together."""
SHORTEST = 3
"""Fewest times that a series must have."""
GAP = 50.0
"""A step so many times the usual one is a gap: nothing is said about what happened in it."""
CLOSE = 0.1
"""Nodes nearer than this share of the usual step are one for the smooth curve."""


class DataError(ValueError):
    """The data cannot be used as they are."""


@dataclass(frozen=True)
class Nodes:
    """All series on one axis of N nodes."""

    t: Array
    """(N,)."""
    Y: Array
    """(N, V) measured values, NaN where nothing was measured."""
    U: Array
    """(N, inputs)."""
    starts: Indices
    """(series + 1,) where every series starts, and N."""
    names: list[str]
    inputs: list[str]

    @property
    def follows(self) -> Flags:
        """(N,) whether a step leads to the next node: same series, no gap between them."""
        out = np.ones(len(self.t), dtype=bool)
        out[self.starts[1:] - 1] = False
        steps = np.append(np.diff(self.t), 0.0)
        out[out] = steps[out] <= GAP * np.median(steps[out])
        return out

    @property
    def h(self) -> Array:
        """(N,) length of the step that begins at a node; 1 where none does."""
        return np.where(self.follows, np.append(np.diff(self.t), 1.0), 1.0)

    @property
    def seen(self) -> Flags:
        """(N, V) where something was measured."""
        return np.isfinite(self.Y)

    @property
    def scale(self) -> Array:
        """(V,) standard deviation of every variable over all series."""
        spread = np.nanstd(self.Y, axis=0)
        size = np.nanmax(np.abs(self.Y), axis=0)
        return np.where(spread > 1e-12 * size, spread, np.where(size > 0, size, 1.0))

    def split(self, values: Array) -> list[Array]:
        """Values at the nodes, one array for every series."""
        return [values[a:b] for a, b in zip(self.starts[:-1], self.starts[1:])]

    @property
    def pieces(self) -> int:
        """How many stretches of nodes there are that steps hold together."""
        return int((~self.follows).sum())

    def merged(self) -> tuple[Nodes, Indices]:
        """The same with nodes that are almost at one time replaced by their mean.

        Returns:
            The nodes, and for every node of these the one that it went into (N,).
        """
        follows, h = self.follows, self.h
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
        return Nodes(t, mean(self.Y, self.seen), U, starts, self.names, self.inputs), into

    def stretches(self, most: int, length: int = 2000) -> tuple[Nodes, Indices]:
        """Evenly spread stretches of the series with about so many nodes in all, or everything.

        Returns:
            The nodes, each stretch a series of its own, and where they are among these (N,).
        """
        if len(self.t) <= most:
            return self, np.arange(len(self.t))
        edges: list[tuple[int, int]] = []
        for a, b in zip(self.starts[:-1], self.starts[1:]):
            cuts = np.linspace(a, b, max(round((b - a) / length), 1) + 1).astype(int)
            edges += list(itertools.pairwise(cuts.tolist()))
        count = max(round(len(edges) * most / len(self.t)), 1)
        chosen = [edges[i] for i in np.linspace(0, len(edges) - 1, count).round().astype(int)]
        at = np.concatenate([np.arange(a, b) for a, b in chosen])
        starts = np.cumsum([0, *(b - a for a, b in chosen)])
        return Nodes(self.t[at], self.Y[at], self.U[at], starts, self.names, self.inputs), at

    def part(self, first: int, last: int) -> Nodes:
        """The series `first` to `last - 1`."""
        a, b = self.starts[first], self.starts[last]
        return Nodes(
            self.t[a:b],
            self.Y[a:b],
            self.U[a:b],
            self.starts[first : last + 1] - a,
            self.names,
            self.inputs,
        )


def opened(X: Any, t: Any, inputs: Any) -> tuple[Any, Any, list[str] | None]:
    """Files and tables as arrays, times and names; arrays as they are.

    Raises:
        DataError: They cannot be read.
    """
    first = X[0] if isinstance(X, list | tuple) and len(X) else X
    table = isinstance(first, str | Path | Mapping) or hasattr(first, "dims")
    table = table or hasattr(first, "columns") or hasattr(first, "iloc")
    when = t[0] if isinstance(t, list | tuple) and len(t) else t
    dated = isinstance(t, str)
    if when is not None and not hasattr(when, "detach"):
        dated = dated or np.asarray(when).dtype.kind in "mMO"
    if not (table or dated):
        return X, t, None
    try:
        data = read(X, time=t)
    except TableError as error:
        raise DataError(str(error)) from None
    if inputs is not None and any("sorted" in text for text in data.warnings):
        raise DataError("X is not in the order of time; sort X and the inputs first.")
    for text in data.warnings:
        if data.time_name is not None or "looks like time" not in text:
            warnings.warn(text, stacklevel=4)
    times = None if data.time_name is None else data.times
    many = isinstance(X, list | tuple) or len(data.times) > 1
    named = table and data.names != [f"x{i + 1}" for i in range(len(data.names))]
    if not many:
        return data.values[0], None if times is None else times[0], data.names if named else None
    return data.values, times, data.names if named else None


def gather(
    X: Any,
    t: Any = None,
    inputs: Any = None,
    feature_names: Sequence[str] | None = None,
    step: float = 1.0,
) -> Nodes:
    """Check one series or a list of them and put them one after another.

    Args:
        X: (T, V) array or tensor, or a list of such; a frame, a path, or anything else that
            `smnn.data.read` accepts. NaN is a missing value.
        t: Times (T,), a step, or a list of either; the name of a column of a table. By default the
            times that a table has, otherwise `step`.
        inputs: (T, inputs) like X, without missing values.
        feature_names: Names of the variables; those of a table by default, else x, y, z or
            x0, x1, ...
        step: Step of data without times.

    Raises:
        DataError: If something does not fit, with what was found and what to do.
    """
    if isinstance(X, list | tuple) and not len(X):
        raise DataError("X is an empty list; give at least one series.")
    X, t, found = opened(X, t, inputs)
    t = step if t is None else t
    many = isinstance(X, list | tuple)
    tables = list(X) if many else [X]
    names = _names(tables[0], feature_names) or found
    values = [_matrix(x, f"X[{i}]" if many else "X") for i, x in enumerate(tables)]
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
        raise DataError(f"feature_names has a name twice: {', '.join(names)}.")
    times = _times(t, [len(x) for x in values], many)
    driven, input_names = _inputs(inputs, values, many)
    for i, (x, at) in enumerate(zip(values, times)):
        _check(x, at, f"X[{i}]" if many else "X", f"t[{i}]" if many else "t")
    Y = np.concatenate(values)
    for v, name in enumerate(names):
        count = int(np.isfinite(Y[:, v]).sum())
        if not count:
            raise DataError(f"{name} has no value at all; leave the column out.")
        if count < FEWEST:
            raise DataError(
                f"{name} has {count} of the {FEWEST} values that a curve needs at the least; give "
                "more, some dozens to learn from, or leave the column out."
            )
    starts = np.cumsum([0, *(len(x) for x in values)])
    return Nodes(np.concatenate(times), Y, np.concatenate(driven), starts, names, input_names)


def _names(table: Any, given: Sequence[str] | None) -> list[str] | None:
    if given is not None:
        return [str(name) for name in given]
    columns = getattr(table, "columns", None)
    return None if columns is None else [str(name) for name in columns]


def _matrix(x: Any, what: str) -> Array:
    if hasattr(x, "detach"):
        x = x.detach().cpu().numpy()
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
        raise DataError(f"{what} holds infinite values; mark missing values as NaN.")
    return out


def _times(t: Any, lengths: list[int], many: bool) -> list[Array]:
    if t is None:
        t = 1.0
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
    out = [_matrix(u, f"inputs[{i}]" if many else "inputs") for i, u in enumerate(tables)]
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
