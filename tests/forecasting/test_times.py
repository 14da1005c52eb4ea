"""Time axes and seasons."""

import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smnn.forecasting import SeriesError
from smnn.forecasting._seasons import choose_seasons
from smnn.forecasting._time import make_clock, years

pd = pytest.importorskip("pandas")
NOTHING = np.zeros((1, 40))


def dates(start: str, count: int, freq: str) -> np.ndarray:
    return np.asarray(pd.date_range(start, periods=count, freq=freq))


@pytest.mark.parametrize(
    ("start", "freq", "unit", "following"),
    [
        ("2020-01-01", "MS", "month", ["2022-01-01", "2022-02-01"]),
        ("2020-01-31", "ME", "month", ["2022-01-31", "2022-02-28"]),
        ("2020-01-15 06:00", "D", "day", ["2020-02-08T06:00", "2020-02-09T06:00"]),
        ("2020-01-01", "W", "week", ["2020-06-21", "2020-06-28"]),
        ("2020-01-01", "QS", "quarter", ["2026-01-01", "2026-04-01"]),
        ("2000-01-01", "YS", "year", ["2024-01-01", "2025-01-01"]),
        ("2020-01-01", "h", "hour", ["2020-01-02T00:00", "2020-01-02T01:00"]),
    ],
)
def test_dates_are_continued(start: str, freq: str, unit: str, following: list[str]) -> None:
    clock = make_clock(dates(start, 24, freq), 24)
    assert clock.unit() == unit
    assert list(clock.after(2).stamps) == [np.datetime64(x, "ns") for x in following]
    np.testing.assert_allclose(clock.after(3).steps, clock.steps[-1] + np.arange(1, 4))


def test_working_days_skip_weekends() -> None:
    t = dates("2024-01-01 17:30", 30, "B")
    clock = make_clock(np.delete(t, 7), 29)  # a holiday
    assert clock.unit() == "working day"
    np.testing.assert_array_equal(np.diff(clock.steps), [1] * 6 + [2] + [1] * 21)
    assert str(clock.stamps[-1])[:16] == "2024-02-09T17:30"  # a Friday
    assert str(clock.after(1).stamps[0])[:16] == "2024-02-12T17:30"
    ((_, (season,)),) = choose_seasons("week", clock, NOTHING, None)
    assert (season.length, season.harmonics) == (5.0, 2)
    assert make_clock(dates("2024-01-01", 30, "D"), 30).unit() == "day"


def test_months_are_equal_steps() -> None:
    clock = make_clock(np.delete(dates("2019-11-01", 30, "MS"), [4, 5]), 28)
    np.testing.assert_array_equal(np.diff(clock.steps), [1] * 3 + [3] + [1] * 23)


@pytest.mark.parametrize(
    ("t", "steps"),
    [
        ([1700, 1701, 1702, 1704], [0, 1, 2, 4]),
        ([0.0, 0.5, 1.0, 2.5], [0, 1, 2, 5]),
        (["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-05"], [0, 1, 2, 4]),
        ([datetime.datetime(2020, 1, day) for day in (1, 2, 3, 6)], [0, 1, 2, 5]),
        (None, [0, 1, 2, 3]),
    ],
)
def test_types_of_times(t: object, steps: list[float]) -> None:
    np.testing.assert_allclose(make_clock(t, 4).steps, steps)


def test_periods_and_other_calendars() -> None:
    assert make_clock(pd.period_range("2020-01", periods=5, freq="M"), 5).unit() == "month"
    cftime = pytest.importorskip("cftime")
    model = [cftime.DatetimeNoLeap(2000 + m // 12, 1 + m % 12, 1) for m in range(36)]
    clock = make_clock(np.array(model), 36)
    assert not clock.dated
    np.testing.assert_allclose(clock.stamps[12] - clock.stamps[0], 1.0)


@pytest.mark.parametrize(
    ("t", "message"),
    [
        ([0, 1, 1, 2], r"repeats entry 2.*Sort the rows"),
        ([0, 2, 1, 3], r"goes back at entry 2"),
        ([0, 1, np.nan, 3], r"entry 2 is not a time"),
        ([0, 1, 2], r"got shape \(3,\); expected \(4,\)"),
        (["a", "b", "c", "d"], r"expected a number, or a date"),
        (np.array(["2020-01-01", "NaT", "2020-01-03", "2020-01-04"], "datetime64[D]"), "entry 1"),
    ],
)
def test_invalid_times(t: object, message: str) -> None:
    with pytest.raises(SeriesError, match=message):
        make_clock(t, 4)


@given(st.integers(1900, 2099), st.integers(1, 12), st.integers(1, 28))
def test_a_day_of_the_year_keeps_its_phase(year: int, month: int, day: int) -> None:
    """The same date has the same phase in every year, up to the leap day."""
    stamps = np.array([f"{y:04d}-{month:02d}-{day:02d}" for y in (year, year + 1, year + 4)])
    phase = years(stamps.astype("datetime64[ns]")) % 1
    assert np.ptp(phase) < 1.01 / 365
    assert years(np.array([f"{year}-01-01"], "datetime64[ns]"))[0] == year


@pytest.mark.parametrize(
    ("freq", "count", "found"),
    [
        ("MS", 60, {"year": 12}),
        ("MS", 20, {}),
        ("QS", 20, {"year": 4}),
        ("YS", 30, {}),
        ("W", 200, {"year": 52.177}),
        ("D", 60, {"week": 7}),
        ("B", 60, {"week": 5}),
        ("D", 800, {"week": 7, "year": 365.2425}),
        ("h", 100, {"day": 24}),
        ("h", 24 * 20, {"day": 24, "week": 168}),
    ],
)
def test_calendar_seasons(freq: str, count: int, found: dict[str, float]) -> None:
    clock = make_clock(dates("2015-01-01", count, freq), count)
    ((_, seasons),) = choose_seasons("auto", clock, np.zeros((1, count)), None)
    assert {s.name: pytest.approx(s.length, rel=1e-3) for s in seasons} == found
    assert sum(s.harmonics for s in seasons) <= 8
    for season in seasons:
        waves = season.waves(clock)
        assert waves.shape[1] in (2 * season.harmonics, 2 * season.harmonics - 1)


def test_waves_are_orthonormal_over_whole_cycles() -> None:
    clock = make_clock(None, 48)
    ((_, (season,)),) = choose_seasons(12, clock, NOTHING, None)
    waves = season.waves(clock)
    assert waves.shape == (48, 11)  # the sixth harmonic has no sine
    gram = waves.T @ waves / 48
    expected = np.diag([1.0] * 10 + [2.0])
    np.testing.assert_allclose(gram, expected, atol=1e-12)


def test_season_in_numbers_and_dates_agree() -> None:
    t = dates("2001-01-01", 48, "MS")
    clock = make_clock(t, 48)
    assert (
        choose_seasons(12, clock, NOTHING, None)[0][1]
        == choose_seasons("year", clock, NOTHING, None)[0][1]
    )


@pytest.mark.parametrize(
    ("season", "message"),
    [
        ("fortnight", "expected 'auto', 'year', 'week', 'day' or a number"),
        ("year", "not dates"),
        (1.5, "at least 2 steps"),
        (-3, "positive length"),
        (500, "no more than the 40 steps"),
    ],
)
def test_invalid_seasons(season: object, message: str) -> None:
    with pytest.raises(SeriesError, match=message):
        choose_seasons(season, make_clock(None, 40), NOTHING, None)  # type: ignore[arg-type]
