"""The SST experiment: record, parameters and errors."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.sst_grids import small_grid, weekly_grid
from smnn.cli._app import app
from smnn.experiments.sst import run as sst
from smnn.experiments.sst.train import NETWORKS


@pytest.fixture(name="result")
def _result(runs: Any) -> sst.Result:
    return runs["sst"]  # type: ignore[no-any-return]


class TestExperiment:
    def test_record(self, result: sst.Result) -> None:
        record = result.record()
        assert len(record["holdouts"]) == 2
        assert record["holdouts"][0]["history_ends"] == "2004-08"
        assert record["holdouts"][1]["target_ends"] == "2004-08"
        assert len(record["networks"]) == len(sst.RUNS) * 2
        assert {e["protocol"] for e in record["networks"]} == {sst.HISTORY, sst.PEEK}

    def test_the_network_of_the_paper_is_drawn(self, result: sst.Result) -> None:
        scores = result.scorer.score(result.forecasts[sst.DRAWN.name])
        first = result.of_networks(sst.PEEK)[sst.DRAWN.name][0]
        assert scores["rmse"] == first["scores"]["rmse"]

    def test_refusals(self) -> None:
        with pytest.raises(ValueError, match="expected at least 288"):
            sst.run(sst.Config(holdouts=3), grid=small_grid())
        grid = small_grid()
        days = grid.time[0] + np.arange(200) * np.timedelta64(1, "D")
        with pytest.raises(ValueError, match="1 to 1 days apart; expected one value for each"):
            sst.run(sst.Config(), grid=replace(grid, time=days))
        with pytest.raises(ValueError, match="nothing to forecast"):
            sst.run(sst.Config(), grid=replace(grid, ocean=np.zeros_like(grid.ocean)))
        with pytest.raises(ValueError, match="'small' or 'full'"):
            sst.Config(scale="large")
        with pytest.raises(ValueError, match="0 seeds"):
            sst.Config(seeds=0)


def test_a_weekly_file_passes_through_the_command(tmp_path: Path) -> None:
    """400 weeks in the layout of the paper's file, with values over land and a land mask."""
    xarray = pytest.importorskip("xarray")
    weeks = weekly_grid(400)
    rng = np.random.default_rng(0)
    weeks = replace(weeks, values=np.rint(100 * weeks.values) / np.float32(100))
    ocean = np.ones((2, 6), bool)
    ocean[0, 2] = False
    about = {"scale_factor": np.float32(0.01), "add_offset": np.float32(0), "units": "degC"}
    packed = np.rint(100 * weeks.values).astype(np.int16)
    packed[:, ~ocean] = rng.integers(-180, 3000, (400, 1))
    days = (weeks.time - np.datetime64("1800-01-01")) / np.timedelta64(1, "D")
    axes = {"lat": ("lat", weeks.lat), "lon": ("lon", weeks.lon)}
    file, mask = tmp_path / "sst.wkmean.nc", tmp_path / "lsmask.nc"
    time = ("time", days, {"units": "days since 1800-01-01 00:00:00"})
    xarray.Dataset(
        {"sst": (("time", "lat", "lon"), packed, about)}, coords={**axes, "time": time}
    ).to_netcdf(file, engine="h5netcdf")
    once = ("time", [0.0], {"units": "days since 1-1-1 00:00:00"})  # as in NOAA's mask
    xarray.Dataset(
        {"mask": (("time", "lat", "lon"), ocean[None].astype(np.int16))},
        coords={**axes, "time": once},
    ).to_netcdf(mask, engine="h5netcdf")
    out = tmp_path / "out"
    words = ["reproduce", "sst", "--quick", "--data", file, "--mask", mask, "--horizon", "52",
             "--steps", "2", "--device", "cpu", "--out", out]  # fmt: skip
    found = CliRunner().invoke(app, [*map(str, words)])
    assert found.exit_code == 0, found.output
    assert "52 weeks to 1997-08" in found.output
    record = json.loads((out / "sst.json").read_text())
    assert record["data"]["cells"] == 11
    assert record["data"]["steps_in_a_year"] == pytest.approx(52.18, abs=0.01)
    scores = record["holdouts"][0]["scores"]
    assert scores["climatology"]["rmse"] == pytest.approx(0.1, rel=0.1)  # the noise
    assert len(scores["coupled"]["rmse_by_lead"]) == 52
    assert {e["kind"] for e in record["networks"]} == set(NETWORKS)
    assert "52 weeks" in (out / "report.html").read_text()
    assert (out / "sst-leads.png").stat().st_size > 10_000
