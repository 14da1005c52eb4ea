"""Input as frames, and what can be done with forecasters, forecasts and back-tests."""

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
import sklearn.utils.estimator_checks as checks

from smnn.forecasting import Backtest, Forecaster, SeriesError, backtest

matplotlib.use("Agg")
N = 60
DATES = pd.date_range("2019-01-01", periods=N, freq="MS")
WIDE = pd.DataFrame(
    {
        name: 20 + 0.1 * np.arange(N) + np.sin(2 * np.pi * (np.arange(N) + i) / 12)
        + 0.2 * np.random.default_rng(i).normal(size=N)
        for i, name in enumerate(["a", "b"])
    },
    index=DATES,
)  # fmt: skip
LONG = pd.concat(
    [pd.DataFrame({"unique_id": c, "ds": DATES, "y": WIDE[c].to_numpy()}) for c in WIDE]
)
SMALL = {"modes": 0, "origins": 2}


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    return Forecaster(**SMALL, level=[80, 95]).fit(WIDE, h=6)


@pytest.fixture(scope="module")
def tested() -> Backtest:
    return backtest(WIDE, horizon=6, origins=2, forecaster=Forecaster(**SMALL))


def same(made: Forecaster, fitted: Forecaster) -> None:
    assert made.predict().names == ("a", "b")
    pd.testing.assert_frame_equal(made.to_frame(), fitted.to_frame())


@pytest.mark.parametrize("kind", ["long", "polars", "wide with a column of dates"])
def test_frames(kind: str, fitted: Forecaster) -> None:
    made = Forecaster(**SMALL, level=[80, 95])
    if kind == "long":
        made.fit(LONG, h=6)
    elif kind == "polars":
        polars = pytest.importorskip("polars")
        made.fit(polars.from_pandas(LONG.reset_index(drop=True)), h=6)
    else:
        made.fit(WIDE.rename_axis("month").reset_index(), time="month", h=6)
    same(made, fitted)


def test_files(fitted: Forecaster, tmp_path: Path) -> None:
    LONG.rename(columns={"unique_id": "shop"}).to_csv(tmp_path / "long.csv", index=False)
    made = Forecaster(**SMALL, level=[80, 95])
    same(made.fit(tmp_path / "long.csv", h=6, series="shop"), fitted)


def test_whole_numbers_name_series() -> None:
    frame = LONG.assign(unique_id=LONG.unique_id.map({"a": 1, "b": 2}))
    assert Forecaster(**SMALL).fit(frame, h=3).predict().names == ("1", "2")


def test_series_that_end_early_are_named() -> None:
    frame = LONG.reset_index(drop=True).drop(index=[N - 2, N - 1])
    with pytest.warns(UserWarning, match=r"series 'a' ends at 2023-10-01.*others later"):
        Forecaster(**SMALL).fit(frame, h=3)


def test_layout_of_the_frame(fitted: Forecaster) -> None:
    forecast = fitted.predict(h=3, level=[95, 0.8])
    frame = forecast.to_frame()
    assert list(frame.columns) == [
        "unique_id", "ds", "smnn", "smnn-lo-80", "smnn-hi-80", "smnn-lo-95", "smnn-hi-95",
    ]  # fmt: skip
    assert list(frame["unique_id"]) == ["a"] * 3 + ["b"] * 3
    assert frame["ds"].iloc[0] == pd.Timestamp("2024-01-01")
    assert forecast.level == 0.95
    np.testing.assert_array_equal(frame["smnn-hi-95"], forecast.upper.T.ravel())
    np.testing.assert_array_equal(frame["smnn-lo-80"], forecast.interval(80)[0].T.ravel())
    assert list(forecast.frame().columns) == ["series", "t", "mean", "lower", "upper"]


def test_one_horizon(fitted: Forecaster) -> None:
    assert len(fitted.predict(h=4).t) == len(fitted.predict(4).t) == 4
    with pytest.raises(SeriesError, match="horizon: got 3 and h=4"):
        fitted.predict(3, h=4)


def test_saved_and_loaded(fitted: Forecaster, tmp_path: Path) -> None:
    path = fitted.save(tmp_path / "model.safetensors")
    loaded = Forecaster.load(path)
    assert loaded.get_params() == fitted.get_params()
    pd.testing.assert_frame_equal(loaded.predict(9).to_frame(), fitted.predict(9).to_frame())
    np.testing.assert_array_equal(loaded.history(), fitted.history())
    assert loaded.equation("b") == fitted.equation("b")


def test_saved_with_inputs_and_numbers(tmp_path: Path) -> None:
    t = np.arange(80.0)
    u = (t % 5 == 0).astype(float)
    y = 3 + 2 * u + 0.1 * np.random.default_rng(0).normal(size=80)
    made = Forecaster(season=None, **SMALL).fit(y, t, horizon=5, inputs=u)
    loaded = Forecaster.load(made.save(tmp_path / "a"))
    ahead = np.ones(5)
    np.testing.assert_array_equal(
        loaded.predict(inputs=ahead).mean, made.predict(inputs=ahead).mean
    )


def test_damaged_files(fitted: Forecaster, tmp_path: Path) -> None:
    path = fitted.save(tmp_path / "model")
    data = path.read_bytes()
    for name, wrong in {
        "cut": data[: len(data) // 2],
        "array": data[:-1] + bytes([data[-1] ^ 1]),
        "record": data.replace(b"trend", b"trond", 1),
        "class": data.replace(b"Calibration", b"Calibratiom", 1),
        "empty": b"",
    }.items():
        (tmp_path / name).write_bytes(wrong)
        with pytest.raises(SeriesError, match=name):
            Forecaster.load(tmp_path / name)
    with pytest.raises(SeriesError, match="cannot read"):
        Forecaster.load(tmp_path / "missing")


def test_display(fitted: Forecaster, tested: Backtest, tmp_path: Path) -> None:
    forecast = fitted.predict()
    for result, title in (
        (fitted, "Forecaster of 2 series"), (forecast, "Forecast of 2 series"),
        (tested, "Back-test"),
    ):  # fmt: skip
        assert result.summary().startswith(title)
        shown = result._repr_html_()
        assert "data:image/png;base64," in shown
        assert len(result.plot()) == 2
        assert "<figure" in result.report(tmp_path / "page.html").read_text("utf-8")
    ax = forecast.plot(names="b")
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), forecast.mean[:, 1])
    assert repr(Forecaster(season=12)) == "Forecaster(season=12)"
    assert "season=12" in Forecaster(season=12)._repr_html_()
    matplotlib.pyplot.close("all")


def test_frame_of_a_back_test(tested: Backtest) -> None:
    frame = tested.to_frame().set_index(["method", "unique_id"])
    np.testing.assert_array_equal(frame.loc["forecaster", "rmse"], tested.by_series())
    np.testing.assert_array_equal(frame.loc["forecaster", "ratio"], tested.ratio_by_series())
    assert (frame.loc[tested.best_reference, "ratio"] == 1).all()


def test_unknown_arguments(fitted: Forecaster) -> None:
    with pytest.raises(TypeError, match=r"Forecaster: .* 'sesaon'; did you mean 'season'\?"):
        Forecaster(sesaon=12)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Forecaster.fit: .* 'serie'; did you mean 'series'\?"):
        Forecaster().fit(LONG, serie="unique_id")
    with pytest.raises(TypeError, match=r"predict: .* 'levels'; did you mean 'level'\?"):
        fitted.predict(levels=0.9)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "check",
    ["check_no_attributes_set_in_init", "check_get_params_invariance", "check_set_params",
     "check_parameters_default_constructible", "check_estimator_cloneable",
     "check_estimator_repr"],
)  # fmt: skip
def test_parameter_checks_of_scikit_learn(check: str) -> None:
    """The other checks need estimator tags, and with them scikit-learn as a dependency."""
    getattr(checks, check)("Forecaster", Forecaster())
