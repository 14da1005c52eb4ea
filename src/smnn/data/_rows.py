"""What comes out of a data file; rows of a series sorted, each time once, inputs without gaps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class Table:
    """A data file as series of numbers."""

    names: list[str]
    """Variables, `V` of them."""
    times: list[np.ndarray]
    """One increasing array `(T_i,)` for each series."""
    values: list[np.ndarray]
    """`(T_i, V)` for each series, NaN where there is no value."""
    input_names: list[str] = field(default_factory=list)
    """External inputs, `U` of them."""
    inputs: list[np.ndarray] = field(default_factory=list)
    """`(T_i, U)` for each series, without gaps."""
    series: list[str] = field(default_factory=list)
    """What each series is called; `""` for a single one."""
    time_name: str | None = None
    """Heading of the time column; `None` if rows were counted."""
    time_unit: str | None = None
    units: dict[str, str] = field(default_factory=dict)
    """Units by name, where the headings gave them."""
    notes: list[str] = field(default_factory=list)
    """What was decided without being asked."""
    warnings: list[str] = field(default_factory=list)
    """What may be wrong with the data."""

    @property
    def rows(self) -> int:
        """Times in all series together."""
        return sum(len(t) for t in self.times)

    @property
    def missing(self) -> int:
        """Values that are absent."""
        return int(sum(np.isnan(x).sum() for x in self.values))


class Rows(NamedTuple):
    """One series; `t` may be in any order."""

    t: np.ndarray
    """`(T,)`."""
    Y: np.ndarray
    """`(T, V)` variables, NaN where missing."""
    U: np.ndarray
    """`(T, U)` inputs, NaN where missing."""


def rows_of(labels: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Each label once, in the order of its first row, with the positions of its rows."""
    if len(labels) == 0:
        return []
    import pandas as pd

    # Compared one label at a time, a label for each row would take quadratic time.
    codes, names = pd.factorize(labels)
    order = np.argsort(codes, kind="stable")
    return list(zip(names.tolist(), np.split(order, np.cumsum(np.bincount(codes))[:-1])))


def sort_rows(rows: Rows) -> tuple[Rows, bool]:
    """In the order of time; whether anything had to move."""
    if (np.diff(rows.t) >= 0).all():
        return rows, False
    order = np.argsort(rows.t, kind="stable")
    return Rows(*(x[order] for x in rows)), True


def merge_rows(rows: Rows) -> tuple[Rows, int]:
    """Sorted rows with each time once, the values there averaged; how many rows went away."""
    t, first, count = np.unique(rows.t, return_index=True, return_counts=True)
    lost = len(rows.t) - len(t)
    if lost == 0:
        return rows, 0
    return Rows(t, *(_means(x, first, count) for x in rows[1:])), lost


def fill_inputs(rows: Rows) -> tuple[Rows, int]:
    """Inputs interpolated linearly where they are missing, constant beyond the ends; how many.

    Raises:
        ValueError: An input has no value at all in this series.
    """
    gaps = np.isnan(rows.U)
    if not gaps.any():
        return rows, 0
    U = rows.U.copy()
    for u in range(U.shape[1]):
        known = ~gaps[:, u]
        if not known.any():
            raise ValueError(u)
        U[:, u] = np.interp(rows.t, rows.t[known], U[known, u])
    return rows._replace(U=U), int(gaps.sum())


def _means(x: np.ndarray, first: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Means of the values that there are, over runs of rows."""
    if x.shape[1] == 0:
        return x[first]
    known = ~np.isnan(x)
    total = np.add.reduceat(np.where(known, x, 0.0), first)
    number = np.add.reduceat(known.astype(np.int64), first)
    with np.errstate(invalid="ignore"):
        return total / np.where(number == 0, np.nan, number)
