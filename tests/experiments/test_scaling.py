"""Error, time and memory against length: data, measurements and failures."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments.sst_grids import weekly_grid
from smnn.datasets.sst import monthly
from smnn.experiments.scaling import run as scaling
from smnn.experiments.scaling import view
from smnn.experiments.solvers import DENSE, SMNN, SPARSE


@pytest.fixture(name="result")
def _result(runs: Any) -> scaling.Scaling:
    return runs["scaling"]  # type: ignore[no-any-return]


def test_weeks_are_taken_as_they_are() -> None:
    grid = weekly_grid(scaling.WEEKS + 5)
    series, dates, words = scaling.weekly(grid)
    np.testing.assert_array_equal(series, grid.series[5:])
    assert dates[0] == grid.time[5]
    assert words == "weekly means"


def test_months_are_interpolated() -> None:
    grid = monthly()
    series, dates, words = scaling.weekly(grid)
    assert series.shape == (1727, 6981)
    assert dates[-1] == grid.time[-1]
    np.testing.assert_allclose(series[-1], grid.series[-1])
    assert (np.diff(dates) == np.timedelta64(7, "D")).all()
    assert "interpolated" in words
    k = 1000  # between two months, by hand
    after = int(np.searchsorted(grid.time, dates[k]))
    part = (dates[k] - grid.time[after - 1]) / (grid.time[after] - grid.time[after - 1])
    by_hand = (1 - part) * grid.series[after - 1] + part * grid.series[after]
    np.testing.assert_allclose(series[k], by_hand)


def test_too_few_weeks() -> None:
    with pytest.raises(ValueError, match="expected at least 1727 weeks"):
        scaling.weekly(weekly_grid(1000))


def test_every_method_at_every_length(result: scaling.Scaling) -> None:
    assert len(result.points) == 12
    for point in result.points:
        if point["method"] == DENSE and point["length"] == 900:
            continue
        assert point["ms"] > 0
        assert (point["test_mse"] is None) == (point["length"] == 900)  # no test data left
    assert [r["length"] for r in result.references] == [12, 24]


def test_solvers_start_alike(result: scaling.Scaling) -> None:
    """With the same network and batches, all solvers give nearly the same error."""
    at = {p["method"]: p["test_mse"] for p in result.points if p["length"] == 12}
    assert at[DENSE] == pytest.approx(at[SPARSE], rel=1e-3)
    assert at[SMNN] == pytest.approx(at[DENSE], rel=0.5)


def test_problems_that_are_too_large() -> None:
    config = scaling.Config(
        lengths=(12, 832, 1727), methods=(DENSE,), pairs=64, hidden=8, steps=1, cells=2,
        seconds=0.1, device="cpu",
    )  # fmt: skip
    found = scaling.run(config, grid=weekly_grid())
    assert "ms" in found.points[0]
    assert found.points[1]["not_run"].startswith("would need")
    assert found.points[2]["not_run"].startswith("stopped at 832: would need")
    assert view.stops(found) == {DENSE: f"832: {found.points[1]['not_run']}"}


def test_methods_that_are_too_slow() -> None:
    config = scaling.Config(
        lengths=(12, 24), methods=(SMNN,), pairs=2, hidden=8, limit=1e-9, device="cpu"
    )
    found = scaling.run(config, grid=weekly_grid())
    assert "a step takes" in found.points[0]["not_run"]
    assert "stopped at 12" in found.points[1]["not_run"]


def test_running_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(scaling, "_measure", full)
    config = scaling.Config(lengths=(12,), pairs=2, hidden=8, device="cpu")
    found = scaling.run(config, grid=weekly_grid())
    assert all(p["not_run"] for p in found.points)
    assert "out of memory" in found.points[0]["not_run"]


def test_line() -> None:
    points = [{"method": SMNN, "length": T, "ms": 5 + 0.1 * T} for T in (208, 416, 832)]
    made = scaling.Scaling(scaling.Config(), {}, "", 0, points=points)
    found = scaling.line(made, SMNN, "ms")
    assert found is not None
    assert found == pytest.approx((5, 0.1, 0), abs=1e-9)
    points[1]["ms"] *= 1.1
    bent = scaling.line(made, SMNN, "ms")
    assert bent is not None
    assert 0.02 < bent.deviation < 0.1
    assert scaling.line(made, SMNN, "gib") is None


def test_points_are_written_as_they_are_measured(tmp_path: Path) -> None:
    config = scaling.Config(
        lengths=(12, 24), methods=(SMNN,), pairs=2, hidden=8, limit=1e-9, device="cpu"
    )
    seen: list[int] = []

    def tick(name: str) -> None:
        seen.append(len(json.loads((tmp_path / "scaling.json").read_text())["points"]))

    scaling.run(config, tick, tmp_path, grid=weekly_grid())
    assert seen == [1, 2]


def test_settings() -> None:
    with pytest.raises(ValueError, match="increasing numbers from 12 to 1727"):
        scaling.Config(lengths=(52, 26))
    with pytest.raises(ValueError, match="expected some of S-MNN"):
        scaling.Config(methods=("euler",))
