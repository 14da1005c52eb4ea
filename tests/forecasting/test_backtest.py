"""Back-tests: scores of known errors, comparison with references, ragged panels."""

import warnings

import numpy as np
import pytest

from smnn.forecasting import Backtest, Forecaster, SeriesError, backtest


def known() -> Backtest:
    """Two origins, two series, two leads; the forecaster's errors are half of climatology's."""
    theirs = np.array([[[1.0, 4.0], [2.0, 8.0]], [[1.0, 4.0], [2.0, np.nan]]])
    ours = theirs * [0.5, 0.75]
    inside = np.array([[[1.0, 0.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, np.nan]]])
    errors = {"forecaster": ours, "climatology": theirs, "last value": 3 * theirs}
    return Backtest((10, 8), ("a", "b"), errors, inside, 0.9, np.ones(2))


def test_scores_of_known_errors() -> None:
    found = known()
    square = 0.25 * np.array([1, 1, 4, 4]).mean(), 0.5625 * np.array([16, 16, 64]).mean()
    total = (0.25 * 10 + 0.5625 * 96) / 7
    assert found.rmse() == pytest.approx(np.sqrt(total))
    np.testing.assert_allclose(found.by_lead(), np.sqrt(square))
    np.testing.assert_allclose(found.by_series() ** 2, [4.625, (0.25 * 8 + 36) / 3])
    assert found.coverage == pytest.approx(4 / 7)
    np.testing.assert_allclose(found.coverage_by_lead(), [3 / 4, 1 / 3])
    np.testing.assert_allclose(found.coverage_by_series(), [1 / 2, 2 / 3])
    assert found.methods == ["forecaster", "climatology", "last value"]
    assert found.best_reference == "climatology"


def test_skill_is_a_ratio_of_mean_squares_at_the_same_leads() -> None:
    found = known()
    assert found.skill(leads=slice(0, 1)) == pytest.approx(1 - 0.25)
    assert found.skill(leads=slice(1, 2)) == pytest.approx(1 - 0.5625)
    assert found.skill() == pytest.approx(1 - (0.25 * 10 + 0.5625 * 96) / 106)
    assert found.skill("last value", slice(0, 1)) == pytest.approx(1 - 0.25 / 9)


def test_results_by_series_name_the_worst() -> None:
    found = known()
    errors = {**found.errors, "forecaster": found.errors["climatology"] * [[[0.5], [3.0]]]}
    found = Backtest((10, 8), ("good", "bad"), errors, found.inside, 0.9, np.ones(2))
    np.testing.assert_allclose(found.ratio_by_series(), [0.5, 3.0])
    assert found.worst_series() == [1, 0]
    record = found.record()["by_series"]
    assert list(record) == ["bad", "good"]
    assert record["bad"]["ratio_to_best_reference"] == pytest.approx(3.0)
    assert record["good"]["rmse"] == pytest.approx(found.by_series()[0])
    assert list(found.record(1)["by_series"]) == ["bad"]
    assert any("'bad' with 300 %" in text for text in found.warnings())


def test_without_any_scored_value() -> None:
    nothing = np.full((1, 1, 2), np.nan)
    errors = {"forecaster": nothing, "climatology": nothing}
    found = Backtest((5,), ("a",), errors, nothing, 0.9, np.ones(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan([found.rmse(), found.skill(), found.coverage, found.ratio]).all()
        assert found.worst_series() == []


def test_limits_of_the_coverage_depend_on_the_level() -> None:
    """4 of 7 observations are inside: too few for 90 %, plausible for 50 %."""
    found = known()
    half = Backtest(found.origins, found.names, found.errors, found.inside, 0.5, found.scale)
    assert any("the 90 % intervals contained 57 %" in text for text in found.warnings())
    assert not any("intervals contained" in text for text in half.warnings())


def test_damped_persistence_counts_from_the_last_value() -> None:
    """Missing values before the origin are like a longer way to forecast."""
    y = 5 * np.random.default_rng(0).standard_normal(60).cumsum() + 100
    gap = np.where((np.arange(60) >= 37) & (np.arange(60) < 40), np.nan, y)
    plain = Forecaster(season=None, log=False)
    found = []
    for x, origin, horizon in ((gap, 40, 4), (y, 37, 7)):
        result = backtest(x, horizon=horizon, origins=[origin], forecaster=plain)
        found.append((result.errors["damped persistence"] * result.scale)[0, 0, -4:])
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_a_seasonal_series() -> None:
    t = np.arange(160)
    y = 10 + 3 * np.sin(2 * np.pi * t / 12) + 0.3 * np.random.default_rng(0).normal(size=160)
    found = backtest(y, horizon=12, origins=4, forecaster=Forecaster(season=12))
    assert len(found.origins) == 4
    assert found.rmse() < 0.5 * found.rmse("last value")
    assert found.rmse() <= 1.1 * found.rmse(found.best_reference)
    assert 0.7 <= found.coverage <= 1.0


@pytest.mark.parametrize(("season", "count"), [(12.0, 108), (7.0, 120), (5.5, 96)])
def test_origins_cover_the_phases_of_the_season(season: float, count: int) -> None:
    """Evenly spaced origins a whole season apart would all test the same part of it."""
    y = np.random.default_rng(3).standard_normal(count)
    plain = Forecaster(season=season, log=False, origins=1)
    origins = np.array(backtest(y, horizon=6, origins=5, forecaster=plain).origins)
    phases = np.sort(origins / season % 1)
    assert np.diff(phases, append=phases[0] + 1).max() <= 2 / 5 + 1e-9
    assert count / 2 <= origins.min() <= count / 2 + 24
    assert origins.max() == count - 6


@pytest.mark.parametrize(("level", "low", "high"), [(0.9, 0.87, 0.935), (0.5, 0.44, 0.56)])
def test_intervals_have_their_nominal_coverage(level: float, low: float, high: float) -> None:
    """White noise, so the standard error of the coverage is below 1 %."""
    noise = np.random.default_rng(1).standard_normal((120, 64))
    forecaster = Forecaster(season=None, level=level, log=False)
    found = backtest(noise, horizon=10, origins=3, forecaster=forecaster)
    assert found.level == level
    assert low <= found.coverage <= high


def ragged(count: int = 40, times: int = 150) -> np.ndarray:
    """Random walks at levels from 500 to 8000, most of which start late."""
    rng = np.random.default_rng(2)
    level = rng.uniform(500, 8000, count)
    x = level + (0.02 * level * rng.standard_normal((times, count))).cumsum(0)
    for i, start in enumerate(rng.integers(0, times - 14, count)):
        x[: start * (i > 3), i] = np.nan
    return x


@pytest.mark.filterwarnings("error")
def test_intervals_of_a_ragged_panel_are_moderate() -> None:
    y = ragged()
    forecast = Forecaster(season=None).fit(y, horizon=10).predict()
    step = np.sqrt(np.nanmean(np.diff(y, axis=0) ** 2, axis=0))
    width = (forecast.upper - forecast.lower) / step
    # Those of a random walk are 3.3 sqrt(lead) steps wide.
    assert (width < 4 * 3.3 * np.sqrt(10)).all()
    assert (width[0] > 1).all()


@pytest.mark.filterwarnings("error")
def test_series_without_history_are_not_scored() -> None:
    y = ragged()
    found = backtest(y, horizon=10, origins=2, forecaster=Forecaster(season=None))
    few = np.stack([np.isfinite(y[:o]).sum(0) < 4 for o in found.origins])
    used = [int(name[1:]) for name in found.names]
    assert few[:, used].any()
    for errors in found.errors.values():
        np.testing.assert_array_equal(np.isnan(errors).all(2), few[:, used])
    np.testing.assert_array_equal(np.isnan(found.inside), np.isnan(found.errors["forecaster"]))
    assert found.rmse("last value") < 2


def test_no_series_with_enough_history() -> None:
    y = np.full(60, np.nan)
    y[50:] = np.arange(10.0)
    with pytest.raises(SeriesError, match=r"no series has 4 values before the first origin"):
        backtest(y, horizon=5, origins=4)
