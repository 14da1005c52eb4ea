"""The whole SST experiment, small: record, views, refusals, and the command."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.sst_grids import small_grid
from smnn.datasets.sst import write_grid
from smnn.experiments.sst import run as sst
from smnn.experiments.sst import view


@pytest.fixture(scope="module")
def result() -> sst.Result:
    """A small experiment, once."""
    config = sst.Config(
        horizon=24, given=6, holdouts=2, seeds=(0, 1), steps=3, forecaster=False, device="cpu"
    )
    return sst.run(config, small_grid())


class TestExperiment:
    def test_record(self, result: sst.Result) -> None:
        record = json.loads(json.dumps(result.record(), allow_nan=False))
        assert len(record["holdouts"]) == 2
        assert record["holdouts"][0]["history_ends"] == "2004-08"
        assert record["holdouts"][1]["target_ends"] == "2004-08"
        assert len(record["networks"]) == len(sst.RUNS) * 2
        assert {e["protocol"] for e in record["networks"]} == {sst.HISTORY, sst.PEEK}
        assert record["probes"]["effects"]["last chunk against first"]["believable"]

    def test_views(self, result: sst.Result) -> None:
        main, peeking, holdouts = view.tables(result)
        assert len(peeking.rows) == 4
        assert {row.group for row in main.rows} == {"simple", "smnn", "network"}
        images = view.pictures(result)
        assert set(images) == {"sst", "sst-skill", "sst-leads", "sst-parameters", "sst-overlap"}
        assert all(png.startswith(b"\x89PNG") for png in images.values())
        page = view.report(result, images, "smnn reproduce sst")
        assert page.count("<img ") == 5
        assert "history only" in page

    def test_parameters(self, result: sst.Result) -> None:
        p = result.parameters
        assert p is not None
        N = int(result.grid.ocean.sum())
        assert p.values.shape == (7, N, 6)  # 176 months of history hold seven chunks
        c0, c1 = p.values[-1, :, 0], p.values[-1, :, 1]
        # The characteristic roots, by another way.
        roots = np.array([np.roots([1, b, a]) for a, b in zip(c0, c1)])
        slow = -1 / roots.real.max(1) * 12 / (2 * np.pi)
        np.testing.assert_allclose(p.damping, slow, rtol=1e-6)
        turning = np.abs(roots[:, 0].imag) > 1e-9
        np.testing.assert_allclose(
            p.period[turning], 12 / np.abs(roots[turning, 0].imag), rtol=1e-6
        )

    def test_refusals(self) -> None:
        with pytest.raises(ValueError, match="expected at least 288"):
            sst.run(sst.Config(holdouts=3), small_grid())
        grid = small_grid()
        weeks = grid.time[0] + 7 * np.arange(200) * np.timedelta64(1, "D")
        weekly = replace(grid, time=weeks)
        with pytest.raises(ValueError, match="7 to 7 days apart; expected one value for each"):
            sst.run(sst.Config(), weekly)
        with pytest.raises(ValueError, match="nothing to forecast"):
            sst.run(sst.Config(), replace(grid, ocean=np.zeros_like(grid.ocean)))
        with pytest.raises(ValueError, match="'small' or 'full'"):
            sst.Config(scale="large")
        with pytest.raises(ValueError, match="0 seeds"):
            sst.Config(seeds=())


def test_a_region_is_not_probed() -> None:
    """A sea without polar cells: all but the probes."""
    grid = small_grid(120)
    part = slice(2, 7)
    region = replace(grid, values=grid.values[:, part, :4], lat=grid.lat[part], lon=grid.lon[:4],
                     ocean=grid.ocean[part, :4])  # fmt: skip
    config = sst.Config(
        horizon=24, given=6, holdouts=1, seeds=(0,), steps=1, forecaster=False, device="cpu"
    )
    found = sst.run(config, region)
    assert found.probes == {}
    assert found.no_probes is not None
    assert "no polar cells" in found.no_probes
    images = view.pictures(found)
    assert "sst-overlap" not in images
    assert "no polar cells" in view.report(found, images, "")


class TestCommand:
    def app(self) -> object:
        import typer

        from smnn.cli.reproduce.sst import sst as command

        app = typer.Typer()
        app.command()(command)
        return app

    def test_files(self, tmp_path: Path) -> None:
        write_grid(small_grid(260), tmp_path / "grid.nc")
        out = tmp_path / "out"
        found = CliRunner().invoke(
            self.app(),  # type: ignore[arg-type]
            ["--quick", "--steps", "2", "--data", str(tmp_path / "grid.nc"), "--out", str(out),
             "--device", "cpu"],
        )  # fmt: skip
        assert found.exit_code == 0, found.output
        record = json.loads((out / "sst.json").read_text())
        assert record["experiment"] == "sst"
        assert "--quick --seed 0 --steps 2" in record["command"]
        assert {p.name for p in out.iterdir()} == {
            "sst.json", "sst.png", "sst-skill.png", "sst-leads.png", "sst-parameters.png",
            "sst-overlap.png", "report.html",
        }  # fmt: skip
        assert "history only" in found.output

    def test_wrong_file(self, tmp_path: Path) -> None:
        (tmp_path / "grid.nc").write_text("no grid")
        found = CliRunner().invoke(
            self.app(),  # type: ignore[arg-type]
            ["--data", str(tmp_path / "grid.nc"), "--out", str(tmp_path / "out")],
        )
        assert found.exit_code == 2
        assert "not a NetCDF file" in found.output
