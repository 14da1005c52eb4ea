"""Error, time and memory against length: what is measured, what stops, what is drawn."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from smnn.cli.reproduce.scaling import scaling as command
from smnn.datasets.sst import Grid, monthly
from smnn.experiments.scaling import run as scaling
from smnn.experiments.scaling import view
from smnn.experiments.sst.identifier import DENSE, SMNN, SPARSE

SMALL = scaling.Config(
    lengths=(12, 24, 900), pairs=2, hidden=8, steps=3, seconds=0.5, cells=6, device="cpu"
)


def weekly_grid(weeks: int = scaling.WEEKS) -> Grid:
    """A year's wave on a few cells."""
    time = np.datetime64("1990-01-03", "ns") + np.arange(weeks) * np.timedelta64(7, "D")
    wave = np.cos(2 * np.pi * np.arange(weeks) / scaling.YEAR)[:, None, None]
    values = (10 + wave * np.ones((1, 2, 6))).astype(np.float32)
    values += 0.1 * np.random.default_rng(0).normal(size=values.shape).astype(np.float32)
    return Grid(values, time, np.array([-10.0, 10]), np.arange(6) * 60.0, np.ones((2, 6), bool))


@pytest.fixture(scope="module")
def result() -> scaling.Scaling:
    return scaling.run(SMALL, weekly_grid())


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
    assert len(result.points) == scaling.ticks(SMALL) == 12
    for point in result.points:
        if point["method"] == DENSE and point["length"] == 900:
            continue
        assert point["ms"] > 0
        assert (point["test_mse"] is None) == (point["length"] == 900)  # nothing left to test
    assert [r["length"] for r in result.references] == [12, 24]
    json.dumps(result.record(), allow_nan=False)


def test_solvers_start_alike(result: scaling.Scaling) -> None:
    """The same network and batches, other solvers: nearly the same error."""
    at = {p["method"]: p["test_mse"] for p in result.points if p["length"] == 12}
    assert at[DENSE] == pytest.approx(at[SPARSE], rel=1e-3)
    assert at[SMNN] == pytest.approx(at[DENSE], rel=0.5)


def test_what_is_too_large_is_told() -> None:
    config = scaling.Config(
        lengths=(12, 832, 1727), methods=(DENSE,), pairs=64, hidden=8, steps=1, cells=2,
        seconds=0.1, device="cpu",
    )  # fmt: skip
    found = scaling.run(config, weekly_grid())
    assert "ms" in found.points[0]
    assert found.points[1]["not_run"].startswith("would need")
    assert found.points[2]["not_run"].startswith("stopped at 832: would need")
    assert view.stops(found) == {DENSE: f"832: {found.points[1]['not_run']}"}


def test_what_is_too_slow_is_told() -> None:
    config = scaling.Config(
        lengths=(12, 24), methods=(SMNN,), pairs=2, hidden=8, limit=1e-9, device="cpu"
    )
    found = scaling.run(config, weekly_grid())
    assert "a step takes" in found.points[0]["not_run"]
    assert "stopped at 12" in found.points[1]["not_run"]


def test_running_out_of_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(scaling, "_measure", full)
    found = scaling.run(SMALL, weekly_grid())
    assert all(p["not_run"] for p in found.points)
    assert "out of memory" in found.points[0]["not_run"]


def test_line() -> None:
    points = [{"method": SMNN, "length": T, "ms": 5 + 0.1 * T} for T in (208, 416, 832)]
    made = scaling.Scaling(SMALL, {}, "", 0, points=points)
    found = scaling.line(made, SMNN, "ms")
    assert found is not None
    assert found == pytest.approx((5, 0.1, 0), abs=1e-9)
    points[1]["ms"] *= 1.1
    bent = scaling.line(made, SMNN, "ms")
    assert bent is not None
    assert 0.02 < bent.off < 0.1
    assert scaling.line(made, SMNN, "gib") is None


def test_views_and_back(result: scaling.Scaling) -> None:
    again = scaling.from_record(json.loads(json.dumps(result.record())))
    assert again.record() == result.record()
    assert view.table(again).columns == ["12", "24", "900"]
    image = view.figure(again)
    assert image.startswith(b"\x89PNG")
    page = view.report(again, image, "smnn reproduce scaling")
    assert "weekly means" in page
    with pytest.raises(ValueError, match="no record"):
        scaling.from_record({"experiment": "sst"})


def test_settings() -> None:
    with pytest.raises(ValueError, match="rising numbers from 12 to 1727"):
        scaling.Config(lengths=(52, 26))
    with pytest.raises(ValueError, match="expected some of S-MNN"):
        scaling.Config(methods=("euler",))


def test_command_draws_a_record(result: scaling.Scaling, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(command)
    (tmp_path / "there.json").write_text(json.dumps(result.record()))
    out = tmp_path / "out"
    found = CliRunner().invoke(app, ["--record", str(tmp_path / "there.json"), "--out", str(out)])
    assert found.exit_code == 0, found.output
    assert {p.name for p in out.iterdir()} == {"scaling.json", "scaling.png", "report.html"}
    (tmp_path / "there.json").write_text('{"experiment": "other"}')
    found = CliRunner().invoke(app, ["--record", str(tmp_path / "there.json"), "--out", str(out)])
    assert found.exit_code == 2
    assert "no record" in found.output
    found = CliRunner().invoke(app, ["--lengths", "52,26", "--out", str(out)])
    assert found.exit_code == 2
    assert "rising numbers" in found.output


def test_script_writes_after_every_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "bench_scaling.py"
    spec = importlib.util.spec_from_file_location("bench_scaling", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    seen: list[int] = []
    out = tmp_path / "new" / "scaling.json"

    def run(config: scaling.Config, grid: object, tick: object) -> None:
        assert config.lengths == (26, 52, 104)
        assert grid is None
        made = scaling.Scaling(config, {}, "", 0)
        made.points.append({"method": SMNN, "length": 26, "ms": 1.0, "gib": 2.0, "test_mse": 0.1,
                            "steps": 3})  # fmt: skip
        tick("first", made)  # type: ignore[operator]
        seen.append(len(json.loads(out.read_text())["points"]))
        made.points.append({"method": SMNN, "length": 52, "not_run": "too large"})
        tick("second", made)  # type: ignore[operator]
        seen.append(len(json.loads(out.read_text())["points"]))

    monkeypatch.setattr(script, "run", run)
    monkeypatch.setattr("sys.argv", ["bench_scaling.py", "--quick", "--out", str(out)])
    assert script.main() == 0
    assert seen == [1, 2]
    told = capsys.readouterr().out
    assert "first: 1.0 ms, 2.00 GiB, test 0.10000 (3 steps)" in told
    assert "second: too large" in told
    monkeypatch.setattr("sys.argv", ["bench_scaling.py", "--data", str(tmp_path / "none.nc")])
    assert script.main() == 1
    assert "none.nc" in capsys.readouterr().err
