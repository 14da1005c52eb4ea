"""Many series and experiments: in this process, in several, and on a Dask cluster."""

import functools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from killed_workers import kill_at_first_batch, killed_once
from smnn._util.groups import map_groups
from smnn.discovery import DataError, Discovery, discover_groups
from smnn.forecasting import Forecaster, forecast_groups

N = 48
DATES = pd.date_range("2020-01-01", periods=N, freq="MS")
RNG = np.random.default_rng(0)
SERIES = {
    f"s{i}": 20 + i + 3 * np.sin(2 * np.pi * (np.arange(N) + i) / 12) + 0.3 * RNG.normal(size=N)
    for i in range(6)
}
FRAME = pd.concat(
    [pd.DataFrame({"unique_id": k, "ds": DATES, "y": y}) for k, y in SERIES.items()],
    ignore_index=True,
)
FAST = Forecaster(season=12, modes=0, origins=2)
OPTIONS = {"forecaster": FAST, "level": [80, 95], "batch": 3}
T = 0.1 * np.arange(60)
EXPERIMENTS = pd.concat(
    [
        pd.DataFrame({"run": f"k={k}", "t": T, "x": np.exp(-k * T) + 0.005 * RNG.normal(size=60)})
        for k in (1, 2)
    ]
)
SEARCH = {
    "series": "run", "time": "t", "columns": ["x"], "discovery": Discovery("poly:1", ensemble=0)
}  # fmt: skip


@pytest.fixture(scope="module")
def expected() -> pd.DataFrame:
    return forecast_groups(FRAME, 6, **OPTIONS)


def test_a_series_alone_is_forecast_as_by_the_forecaster() -> None:
    found = forecast_groups(FRAME[:N], 6, forecaster=FAST, batch=1)
    alone = FAST.fit(pd.Series(SERIES["s0"], DATES), horizon=6).predict().to_frame()
    assert list(found.columns) == [*alone.columns, "note"]
    np.testing.assert_allclose(found["smnn-hi-90"], alone["smnn-hi-90"])
    assert (found["unique_id"] == "s0").all()
    assert found["ds"].iloc[0] == pd.Timestamp("2024-01-01")


def test_every_series_is_forecast(expected: pd.DataFrame) -> None:
    assert expected.groupby("unique_id").size().to_dict() == dict.fromkeys(SERIES, 6)
    assert (expected["note"] == "").all()
    truth = 20 + 3 * np.sin(2 * np.pi * (N + np.arange(6)) / 12)
    found = expected.loc[expected["unique_id"] == "s0", "smnn"]
    assert np.abs(found - truth).max() < 1.0


def test_order_of_rows_and_series_does_not_matter(expected: pd.DataFrame) -> None:
    shuffled = FRAME.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(forecast_groups(shuffled, 6, **OPTIONS), expected)


def test_ends_of_their_own_and_short_series() -> None:
    few = pd.DataFrame({"unique_id": "few", "ds": DATES[:2], "y": [1.0, 2.0]})
    early = FRAME[: 2 * N].drop(index=range(N - 10, N))
    found = forecast_groups(pd.concat([early, few]), 3, forecaster=FAST).set_index("unique_id")
    assert found.loc["s0", "ds"].iloc[0] == pd.Timestamp("2023-03-01")
    assert found.loc["s1", "ds"].iloc[0] == pd.Timestamp("2024-01-01")
    assert "a forecast needs a longer history" in found.loc["few", "note"].lower()
    assert np.isnan(found.loc["few", "smnn"])


def test_numbers_as_times_and_other_names() -> None:
    frame = pd.DataFrame({"shop": 7, "step": np.arange(40), "sales": SERIES["s0"][:40]})
    names = {"series": "shop", "time": "step", "value": "sales"}
    found = forecast_groups(frame, 2, forecaster=FAST, **names)
    assert found["ds"].tolist() == [40.0, 41.0]
    assert found["unique_id"].tolist() == ["7", "7"]


def test_wrong_frames() -> None:
    with pytest.raises(DataError, match=r"no column 'y'; expected a long table .*unique_id, ds, y"):
        forecast_groups(FRAME[["unique_id", "ds"]], 3)
    with pytest.raises(DataError, match=r"no column 'z'"):
        discover_groups(EXPERIMENTS, Discovery(), series="run", time="t", columns=["z"])


def test_equations_of_every_experiment() -> None:
    bad = pd.DataFrame({"run": ["short"], "t": [0.0], "x": [1.0]})
    found = discover_groups(pd.concat([EXPERIMENTS, bad]), **SEARCH).set_index("series")
    np.testing.assert_allclose(found.loc[["k=1", "k=2"], "coefficient"], [-1, -2], rtol=0.05)
    assert found.loc["k=1", "term"] == "x"
    assert found.loc["k=1", "verdict"] in ("established", "tentative")
    assert "1 rows; a series needs at least 3" in found.loc["short", "note"]


def test_processes(expected: pd.DataFrame, tmp_path: Path) -> None:
    """Batches of a process that is killed run again in another one."""
    found = forecast_groups(FRAME, 6, workers=2, **OPTIONS)
    pd.testing.assert_frame_equal(found, expected, rtol=1e-9)
    schema = [("unique_id", "str"), ("ds", "datetime"), ("y", "double")]
    once = functools.partial(killed_once, marker=str(tmp_path / "killed"))
    same = map_groups(FRAME, "unique_id", once, schema, workers=2)
    assert (tmp_path / "killed").exists()
    pd.testing.assert_frame_equal(same[list(FRAME)], FRAME, check_dtype=False)


@pytest.mark.filterwarnings("ignore")
def test_dask_with_a_worker_that_is_killed(expected: pd.DataFrame, tmp_path: Path) -> None:
    pytest.importorskip("fugue")
    distributed = pytest.importorskip("distributed")
    marker = tmp_path / "killed"
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        before = set(client.scheduler_info()["workers"])
        client.run(kill_at_first_batch, str(marker))
        found = forecast_groups(FRAME, 6, engine=client, **OPTIONS)
        assert marker.exists()
        client.wait_for_workers(2)
        assert set(client.scheduler_info()["workers"]) != before
        pd.testing.assert_frame_equal(found, expected, rtol=1e-9)
        equations = discover_groups(EXPERIMENTS, engine=client, **SEARCH)
    local = discover_groups(EXPERIMENTS, **SEARCH)
    pd.testing.assert_frame_equal(equations, local, rtol=1e-9)
