"""Series, benchmark and scores of the M4 competition, by its official definitions."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from smnn._util.files import InputError

LEVEL = 0.95
"""Nominal coverage of the prediction intervals."""
SOURCE = "https://github.com/Mcompetitions/M4-methods"


@dataclass(frozen=True)
class Group:
    """Series of one sampling frequency."""

    season: int
    """Season of the official scores."""
    horizon: int
    cycles: tuple[float, ...]
    """Seasons that the forecasters are given."""


GROUPS = {
    "Yearly": Group(1, 6, ()),
    "Quarterly": Group(4, 8, (4,)),
    "Monthly": Group(12, 18, (12,)),
    "Weekly": Group(1, 13, (365.2425 / 7,)),
    "Daily": Group(1, 14, (7,)),
    "Hourly": Group(24, 48, (24, 168)),
}


@dataclass(frozen=True)
class Series:
    """One series."""

    name: str
    place: int
    """Row in the official file."""
    past: np.ndarray
    future: np.ndarray


def read_group(folder: Path, name: str) -> list[Series]:
    """Read `NAME-train.csv` and `NAME-test.csv`, in `Train` and `Test` below the folder or in it.

    Raises:
        InputError: If a file is missing or damaged.
    """
    past, future = (_read(folder, name, part) for part in ("Train", "Test"))
    horizon = GROUPS[name].horizon
    wrong = [key for key in past if len(future.get(key, ())) != horizon]
    if wrong:
        raise InputError(
            f"{name}-test.csv: expected {horizon} values of each of the {len(past)} series in "
            f"{name}-train.csv; {wrong[0]} has {len(future.get(wrong[0], ()))}."
        )
    return [Series(key, i, y, future[key]) for i, (key, y) in enumerate(past.items())]


def _read(folder: Path, name: str, part: str) -> Mapping[str, np.ndarray]:
    file = f"{name}-{part.lower()}.csv"
    path = next((p for p in (folder / part / file, folder / file) if p.exists()), None)
    if path is None:
        raise InputError(f"{folder} has no {part}/{file}; expected the folder Dataset of {SOURCE}.")
    found = {}
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = csv.reader(stream)
            next(rows, None)
            for row in rows:
                found[row[0]] = np.array([float(x) for x in row[1:] if x not in ("", "NA")])
    except (OSError, ValueError, IndexError) as error:
        raise InputError(f"{path} is not a file of the competition ({error}).") from error
    return found


def naive2(y: np.ndarray, season: int, horizon: int) -> np.ndarray:
    """Last value of the series, seasonally adjusted if its season is significant."""
    index = np.ones(season)
    if season > 1 and _is_seasonal(y, season):
        index = _seasonal_indices(y, season)
    phase = (len(y) + np.arange(horizon)) % season
    out: np.ndarray = y[-1] / index[(len(y) - 1) % season] * index[phase]
    return out


def _is_seasonal(y: np.ndarray, season: int) -> bool:
    """Test of the autocorrelation at one season, at a level of 90 %."""
    if len(y) < 3 * season:
        return False
    x = y - y.mean()
    total = float((x**2).sum())
    if total <= 0:
        return False
    acf = np.array([(x[k:] * x[:-k]).sum() for k in range(1, season + 1)]) / total
    limit = 1.645 * np.sqrt((1 + 2 * (acf[:-1] ** 2).sum()) / len(y))
    return bool(abs(acf[-1]) > limit)


def _seasonal_indices(y: np.ndarray, season: int) -> np.ndarray:
    """Multiplicative indices of a classical decomposition."""
    weights = np.ones(season) / season
    if season % 2 == 0:
        weights = np.r_[0.5, np.ones(season - 1), 0.5] / season
    side = len(weights) // 2
    ratio = y[side : len(y) - side] / np.convolve(y, weights, "valid")
    phase = (side + np.arange(len(ratio))) % season
    index = np.array([ratio[phase == j].mean() for j in range(season)])
    out: np.ndarray = index / index.mean()
    return out


def scores(
    series: Series, group: Group, mean: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> dict[str, float]:
    """SMAPE in per cent, MASE, covered fraction and MSIS; negative values become zero."""
    mean, lower, upper = (np.maximum(x, 0.0) for x in (mean, lower, upper))
    y, m = series.future, group.season
    scale = float(np.abs(series.past[m:] - series.past[:-m]).mean())
    beyond = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    size = np.abs(mean) + np.abs(y)
    return {
        "smape": float((200 * np.abs(mean - y) / np.where(size > 0, size, 1.0)).mean()),
        "mase": float(np.abs(mean - y).mean()) / scale,
        "covered": float((beyond == 0).mean()),
        "msis": float((upper - lower + 2 / (1 - LEVEL) * beyond).mean()) / scale,
    }
