"""Panels of series of different lengths, seasons and quality, and histories with flaws."""

import pickle

import numpy as np
import pandas as pd
import pytest

from smnn.forecasting import Forecaster, backtest
from smnn.forecasting._model.periods import find_periods, group_by_periods

T = np.arange(120)


def monthly(rng: np.random.Generator, n: int = 132) -> np.ndarray:
    t = np.arange(n)
    wave = 50 * np.sin(2 * np.pi * t / 12 + rng.uniform(0, 6))
    return 1000 * rng.uniform(1, 5) + wave + 5 * rng.standard_normal(n).cumsum()


def test_intervals_of_series_that_start_and_end_at_different_times() -> None:
    """No interval is much wider than that of the series on its own."""
    rng = np.random.default_rng(0)
    y = np.stack([monthly(rng) for _ in range(60)], axis=1)
    truth, y = y[120:], y[:120]
    for i in range(60):
        y[: rng.integers(0, 108), i] = np.nan
        if i % 5 == 0:
            y[120 - rng.integers(1, 6) :, i] = np.nan
    panel = Forecaster(level=0.95).fit(y, horizon=12).predict()
    inside = (panel.lower <= truth) & (truth <= panel.upper)
    assert inside.mean() > 0.85
    for i in range(0, 60, 5):
        own = y[:, i][np.isfinite(y[:, i])]
        ahead = 12 + int(np.isnan(y[60:, i]).sum())
        alone = Forecaster(level=0.95).fit(own, horizon=min(12, len(own))).predict(ahead)
        width = (alone.upper - alone.lower).max()
        assert (panel.upper - panel.lower)[:, i].max() < 5 * width


def test_weak_season_of_a_panel() -> None:
    """It is significant in few of the series, but in all of them together."""
    rng = np.random.default_rng(1)
    phases = rng.uniform(0, 6, (20, 1))
    y = 0.5 * np.sin(2 * np.pi * T / 12 + phases) + rng.standard_normal((20, 120))
    assert sum(find_periods(row[None]) == (12,) for row in y) < 10
    assert [s.length for s in Forecaster().fit(y.T, horizon=12).seasons_] == [12]


def test_correlated_series_are_not_independent_evidence() -> None:
    rng = np.random.default_rng(2)
    found = []
    for _ in range(100):
        common = rng.standard_normal(120)
        found.append(find_periods(common + 0.1 * rng.standard_normal((30, 120))))
    assert sum(map(bool, found)) <= 5


def day_and_week(rng: np.random.Generator, n: int) -> np.ndarray:
    t = np.arange(n)
    day = 10 * np.sin(2 * np.pi * t / 24 + 0.3) + 3 * np.cos(4 * np.pi * t / 24)
    return 100 + day + 8.0 * (t // 24 % 7 >= 5) + rng.standard_normal(n)


def test_a_day_and_a_week_without_dates() -> None:
    rng = np.random.default_rng(3)
    y = day_and_week(rng, 24 * 7 * 6)
    past, truth = y[: -24 * 7], y[-24 * 7 :]
    undated = Forecaster().fit(past, horizon=168)
    assert [s.length for s in undated.seasons_] == [24, 168]
    assert np.abs(undated.predict().mean - truth).mean() < 1.3


def test_series_with_seasons_of_their_own() -> None:
    rng = np.random.default_rng(4)
    lengths = np.repeat([7, 12, 0], [8, 12, 5])
    rows = [
        (5 * np.sin(2 * np.pi * T / m + i) if m else 0 * T) + rng.standard_normal(120)
        for i, m in enumerate(lengths)
    ]
    y = np.array(rows)
    groups = {periods: len(own) for own, periods in group_by_periods(y)}
    assert groups == {(7,): 8, (12,): 12, (): 5}
    forecast = Forecaster().fit(y[:, :108].T, horizon=12).predict()
    assert np.abs(forecast.mean - y[:, 108:].T).mean() < 1.1
    tested = backtest(y.T, horizon=12, origins=2)
    assert tested.errors["forecaster"].shape == (2, 25, 12)
    assert tested.rmse() < tested.rmse("last value")


@pytest.mark.parametrize("count", [15, 18])
def test_a_panel_is_as_accurate_as_its_series(count: int) -> None:
    rng = np.random.default_rng(5)
    y = np.stack([day_and_week(rng, 24 * 7 * 4) for _ in range(count)], axis=1)
    past, truth = y[:-48], y[-48:]
    panel = np.abs(Forecaster(season=[24, 168]).fit(past, horizon=48).predict().mean - truth)
    for i in range(0, count, 6):
        own = Forecaster(season=[24, 168]).fit(past[:, i], horizon=48).predict()
        assert panel[:, i].mean() < 1.15 * np.abs(own.mean - truth[:, i]).mean()


def test_runs_of_a_sentinel() -> None:
    rng = np.random.default_rng(6)
    y = 20 + 3 * np.sin(2 * np.pi * np.arange(400) / 7) + rng.standard_normal(400)
    dates = pd.date_range("2020-01-01", periods=400)
    clean = Forecaster().fit(pd.Series(y, dates), horizon=14).predict()
    y[200:230] = -999
    with pytest.warns(UserWarning, match=r"-999 \(30 of 400 values\), far from all other values"):
        forecast = Forecaster().fit(pd.Series(y, dates), horizon=14).predict()
    assert np.abs(forecast.mean - clean.mean).max() < 1
    assert (forecast.upper - forecast.lower).max() < 2 * (clean.upper - clean.lower).max()


def test_the_worst_series_is_named() -> None:
    rng = np.random.default_rng(7)
    rows = [10 + np.sin(2 * np.pi * T / 12 + i) + 0.2 * rng.standard_normal(120) for i in range(4)]
    rows.append(np.r_[np.zeros(100), 3 * rng.standard_normal(20).cumsum()])
    frame = pd.DataFrame(np.array(rows).T, columns=[*"abcd", "bad"])
    tested = backtest(frame, horizon=6, origins=5)
    worst = frame.columns[tested.worst_series(1)[0]]
    record = tested.record()
    assert next(iter(record["by_series"])) == worst
    assert set(record["by_series"]) == set(frame.columns)
    assert tested.to_frame().groupby("unique_id").ngroups == 5
    if tested.ratio_by_series().max() > 1.02:
        assert any(f"the worst is '{worst}'" in text for text in tested.warnings())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("log", [None, True])
def test_exponential_growth_has_no_outliers(log: bool | None) -> None:
    y = np.exp(0.1 * np.arange(92))
    forecast = Forecaster(log=log).fit(y[:80], horizon=12).predict()
    np.testing.assert_allclose(forecast.mean, y[80:], rtol=0.01)


@pytest.mark.filterwarnings("error")
def test_growth_with_an_outlier() -> None:
    rng = np.random.default_rng(8)
    y = np.exp(0.05 * np.arange(100) + 0.02 * rng.standard_normal(100))
    given = y[:90].copy()
    given[60] *= 20
    forecast = Forecaster().fit(given, horizon=10).predict()
    np.testing.assert_allclose(forecast.mean, y[90:], rtol=0.15)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_forecast_follows_a_change_of_level(sign: int) -> None:
    rng = np.random.default_rng(9)
    y = 100.0 * sign + rng.standard_normal(100) + 30.0 * (np.arange(100) >= 94)
    fitted = Forecaster().fit(y, horizon=8)
    forecast = fitted.predict()
    assert np.abs(forecast.mean - (100 * sign + 30)).max() < 3
    assert (forecast.upper - forecast.lower).max() < 10
    assert np.abs(fitted.history() - y).max() < 5  # on the level of the data


def test_steps_of_a_random_walk_are_no_changes_of_level() -> None:
    rng = np.random.default_rng(10)
    steps = rng.standard_t(2, 300)
    y = 100 + steps.cumsum()
    forecast = Forecaster(season=None).fit(y, horizon=10).predict()
    typical = 1.645 * np.sqrt(10) * np.median(np.abs(steps)) / 0.675
    assert 0.5 * typical < (forecast.upper - forecast.lower)[-1] / 2 < 8 * typical


def test_results_can_be_pickled() -> None:
    y = monthly(np.random.default_rng(11))
    fitted = Forecaster().fit(y, horizon=6)
    forecast = fitted.predict()
    for result in (fitted, forecast, backtest(y, horizon=6, origins=2)):
        again = pickle.loads(pickle.dumps(result))
        assert type(again) is type(result)
    again = pickle.loads(pickle.dumps(forecast))
    np.testing.assert_array_equal(again.interval(0.5)[0], forecast.interval(0.5)[0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1.0, 1e100, 1e-100])
def test_no_warnings_of_numpy(scale: float) -> None:
    rng = np.random.default_rng(12)
    y = np.exp(rng.standard_normal((90, 3)).cumsum(0) / 5)
    y[::7, 0] = 0.0
    forecast = Forecaster().fit(scale * y, horizon=8).predict()
    assert np.isfinite(forecast.upper).all()


def test_frame_with_years_and_quarters() -> None:
    year, quarter = np.repeat(np.arange(1990, 2010), 4), np.tile([1, 2, 3, 4], 20)
    y = 100 + np.arange(80) + 5.0 * quarter
    frame = pd.DataFrame({"year": year, "quarter": quarter, "gdp": y})
    forecast = Forecaster().fit(frame, horizon=4).predict()
    assert forecast.names == ("gdp",)
    assert str(forecast.t[0])[:10] == "2010-01-01"


def test_time_zones() -> None:
    """Local times, and UTC if clocks are set back within the history."""
    rng = np.random.default_rng(13)
    for start, zone in (("2024-03-25", "local"), ("2024-10-20", "UTC")):
        times = pd.date_range(start, periods=24 * 10, freq="h", tz="Europe/Berlin")
        y = pd.Series(10 + np.sin(2 * np.pi * times.hour / 24) + rng.random(240), times)
        last = times[-1].tz_localize(None) if zone == "local" else times[-1].tz_convert(None)
        forecast = Forecaster().fit(y, horizon=24).predict()
        assert forecast.t[0] == np.datetime64(last + pd.Timedelta("1h"))


def test_frames_are_read_as_by_the_command() -> None:
    """Several runs under one index of dates, and rows in another order."""
    days = pd.date_range("2024-01-01", periods=60)
    x = np.sin(np.arange(60.0))
    one = pd.DataFrame({"x": x}, index=days)
    runs = pd.concat([one.assign(run=1), one.assign(run=2)])
    assert Forecaster().fit(runs, horizon=3).predict().mean.shape == (3, 2)
    levels = pd.concat({"a": one, "b": 2 * one})
    assert Forecaster().fit(levels, horizon=3).predict().mean.shape == (3, 2)
    with pytest.warns(UserWarning, match="not in the order of time"):
        turned = Forecaster().fit(one[::-1], horizon=3).predict().mean
    np.testing.assert_allclose(
        turned.ravel(), Forecaster().fit(one, horizon=3).predict().mean.ravel()
    )
