"""Period detection: false-positive rate and power.

Rates are estimated from 200 draws with a fixed seed.
"""

from collections.abc import Callable

import numpy as np
import pytest

from smnn.forecasting import Forecaster
from smnn.forecasting._model.periods import LEVEL, find_periods

Draw = Callable[[np.random.Generator, int], np.ndarray]


def damped(decay: float) -> Draw:
    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        x = np.zeros(n + 100)
        for i, e in enumerate(rng.standard_normal(n + 99), 1):
            x[i] = decay * x[i - 1] + e
        return x[100:]

    return draw


WITHOUT: dict[str, Draw] = {
    "white noise": lambda rng, n: rng.standard_normal(n),
    "random walk": lambda rng, n: rng.standard_normal(n).cumsum(),
    "damped 0.5": damped(0.5),
    "damped 0.95": damped(0.95),
    "alternating": damped(-0.5),
    "wandering slope": lambda rng, n: rng.standard_normal(n).cumsum().cumsum(),
    "heavy tails": lambda rng, n: rng.standard_t(2, n),
    "mostly zero": lambda rng, n: (rng.random(n) < 0.2) * rng.poisson(3.0, n).astype(float),
    "change of level": lambda rng, n: rng.standard_normal(n) + 6.0 * (np.arange(n) > n // 2),
}


@pytest.mark.parametrize("name", WITHOUT)
@pytest.mark.parametrize("n", [30, 120])
def test_false_positive_rate(name: str, n: int) -> None:
    """At a level of 1 %, 8 or more of 200 have a probability of 0.1 %."""
    rng = np.random.default_rng([n, *name.encode()])
    found = sum(bool(find_periods(WITHOUT[name](rng, n)[None])) for _ in range(200))
    assert LEVEL == 0.01
    assert found <= 7


def with_season(period: int, kind: str) -> Draw:
    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        t = np.arange(n)
        wave = np.sin(2 * np.pi * t / period + rng.uniform(0, 6))
        if kind == "wave":
            return 2 * wave + 0.7 * rng.standard_normal(n)
        if kind == "spike":
            return 4.0 * (t % period == 2) + 0.5 * rng.standard_normal(n)
        if kind == "on a random walk":
            walk = 0.2 * rng.standard_normal(n).cumsum()
            return walk + 2 * wave + rng.standard_normal(period)[t % period]
        return np.exp(0.005 * t) * (5 + wave) + 0.2 * rng.standard_normal(n)

    return draw


@pytest.mark.parametrize("kind", ["wave", "spike", "on a random walk", "growing"])
@pytest.mark.parametrize(("period", "n"), [(12, 96), (7, 100), (24, 240), (4, 60)])
def test_clear_seasons_are_found(kind: str, period: int, n: int) -> None:
    rng = np.random.default_rng([period, n, *kind.encode()])
    draw = with_season(period, kind)
    found = [find_periods(draw(rng, n)[None]) for _ in range(20)]
    assert sum(p == (period,) for p in found) >= 16


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_scale_and_offset_do_not_matter(scale: float) -> None:
    t = np.arange(96)
    y = np.sin(2 * np.pi * t / 12) + 0.3 * np.random.default_rng(1).standard_normal(96)
    assert find_periods(scale * (y + 50)[None]) == (12,)


def test_series_without_a_period() -> None:
    t = np.arange(80.0)
    for row in (np.full(80, 3.0), 0.1 * t, np.full(80, np.nan), np.where(t < 70, np.nan, t % 3)):
        assert find_periods(row[None]) == ()
    assert find_periods(np.sin(np.arange(12.0))[None]) == ()  # too short


def test_gaps_are_interpolated() -> None:
    t = np.arange(120)
    y = 3 * np.sin(2 * np.pi * t / 12) + 0.3 * np.random.default_rng(2).standard_normal(120)
    y[np.random.default_rng(3).random(120) < 0.15] = np.nan
    assert find_periods(y[None]) == (12,)


def test_forecaster_uses_the_detected_period() -> None:
    rng = np.random.default_rng(4)
    t = np.arange(90)
    y = 3 * np.sin(2 * np.pi * t / 9) + 0.3 * rng.standard_normal(90)
    assert [s.length for s in Forecaster().fit(y, horizon=5).seasons_] == [9.0]
    assert Forecaster().fit(rng.standard_normal(90).cumsum(), horizon=5).seasons_ == []
