"""`smnn forecast`: output files, terminal output and errors."""

import csv
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from smnn.cli.forecast import forecast
from smnn.forecasting import read_series

xarray = pytest.importorskip("xarray")
pytest.importorskip("pandas")

runner = CliRunner()
app = typer.Typer()
app.command("forecast")(forecast)
app.callback()(lambda: None)
OUTSIDE = r"""(?:src|href)=(?!["']?(?:data:|#))"""
"""A link to anything outside of the page."""
EVIL = "<script>alert(1)</script>"


def invoke(*words: object) -> Any:
    return runner.invoke(app, ["forecast", *map(str, words)])


def table(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def monthly(path: Path, count: int = 72, **columns: Any) -> Path:
    """Annual cycle of amplitude 3 and trend of 0.1 per month, with little noise."""
    t = np.arange(count)
    noise = 0.05 * np.random.default_rng(0).standard_normal(count)
    data: dict[str, Any] = {
        "date": [str(np.datetime64("2015-01") + i) + "-01" for i in t],
        "y": 20 + 0.1 * t + 3 * np.sin(2 * np.pi * t / 12) + noise,
    } | columns
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(data)
        writer.writerows(zip(*data.values()))
    return path


# ---------------------------------------------------------------- a table


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("forecast")
    data = monthly(folder / "sales.csv")
    result = invoke(data, "--horizon", 6, "--origins", 2, "--out", folder / "out")
    return SimpleNamespace(result=result, data=data, out=folder / "out")


def test_the_forecast_is_right(done: Any) -> None:
    assert done.result.exit_code == 0, done.result.output
    with (done.out / "forecast.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["series", "t", "mean", "lower", "upper"]
    assert [r["t"] for r in rows] == [f"2021-{m:02d}-01" for m in range(1, 7)]
    t = np.arange(72, 78)
    truth = 20 + 0.1 * t + 3 * np.sin(2 * np.pi * t / 12)
    for row, expected in zip(rows, truth):
        assert float(row["mean"]) == pytest.approx(expected, abs=0.25)
        assert float(row["lower"]) < expected < float(row["upper"])


def test_all_files_are_written_and_the_report_is_named(done: Any) -> None:
    assert sorted(os.listdir(done.out)) == ["forecast.csv", "forecast.json", "report.html"]
    assert str(done.out / "report.html") in done.result.stdout.replace("\n", "")


def test_the_terminal_shows_equation_and_back_test(done: Any) -> None:
    text = done.result.stdout
    assert "trend:" in text
    assert "+0.1 per month" in text or "+0.10" in text or "+0.09" in text
    assert "season 'year': 12 months" in text
    for reference in ("climatology", "last season", "last value", "trend + season"):
        assert reference in text
    assert "damped persistence" in text


def test_the_record(done: Any) -> None:
    found = json.loads((done.out / "forecast.json").read_text())
    assert found["data"]["step"] == "month"
    assert found["data"]["series"] == 1
    assert found["seasons"] == [{"name": "year", "steps": 12.0, "harmonics": 6}]
    assert len(found["forecast"]["y"]["mean"]) == len(found["times"]) == 6
    assert len(found["backtest"]["origins"]) == 2
    assert found["backtest"]["rmse"]["forecaster"] < found["backtest"]["rmse"]["last value"]
    assert found["equations"]["y"]["numbers"]["unit"] == "month"
    assert found["command"].startswith("smnn forecast")
    assert "the back-test has only 2 origins" in " ".join(found["warnings"])


def test_the_report_is_self_contained(done: Any) -> None:
    page = (done.out / "report.html").read_text()
    assert not re.search(OUTSIDE, page)
    assert "http" not in re.sub(r"http://www.w3.org/\S+", "", page)
    for title in ("Forecast", "Back-test", "Equations", "Reproduction"):
        assert f"<h2>{title}</h2>" in page
    for chart in ("Error by lead", "Coverage by lead", "Past forecasts", "trend"):
        assert chart in page
    assert page.count("<figure") >= 6


def test_the_command_can_be_repeated(done: Any) -> None:
    found = json.loads((done.out / "forecast.json").read_text())
    words = found["command"].split()
    assert words[:2] == ["smnn", "forecast"]
    again = invoke(*words[2:])
    assert again.exit_code == 0
    second = json.loads((done.out / "forecast.json").read_text())
    assert second["forecast"] == found["forecast"]


def test_json_on_standard_output(tmp_path: Path) -> None:
    data = monthly(tmp_path / "a.csv", 40)
    result = invoke(data, "--horizon", 3, "--origins", 0, "--json", "--out", tmp_path / "out")
    found = json.loads(result.stdout)
    assert found["backtest"] is None
    assert any("not back-tested" in w for w in found["warnings"])


def test_several_columns_with_gaps_text_and_markup(tmp_path: Path) -> None:
    y = np.sin(np.arange(48.0))
    gappy = [f"{v:.3f}" if i % 5 else "NA" for i, v in enumerate(y)]
    data = monthly(
        tmp_path / "b.csv", 48, **{EVIL: gappy, "remark": ["fine"] * 48, "none": [""] * 48}
    )
    result = invoke(data, "--horizon", 2, "--origins", 0, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "column 'remark' is text, such as" in result.stderr.replace("\n", " ")
    assert "column 'none' has no values and was left out" in result.stderr.replace("\n", " ")
    found = json.loads((tmp_path / "out" / "forecast.json").read_text())
    assert set(found["forecast"]) == {"y", EVIL}
    assert found["data"]["missing"] == 10
    page = (tmp_path / "out" / "report.html").read_text()
    assert EVIL not in page
    assert "&lt;script&gt;" in page


def test_several_series_are_compared(tmp_path: Path) -> None:
    walk = np.random.default_rng(3).standard_normal(72).cumsum()
    data = monthly(tmp_path / "c.csv", walk=walk)
    result = invoke(data, "--horizon", 6, "--origins", 4, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "out" / "forecast.json").read_text())["backtest"]
    by_series = found["by_series"]
    assert set(by_series) == {"y", "walk"}
    worst, best = by_series
    ratio = "ratio_to_best_reference"
    assert by_series[worst][ratio] > by_series[best][ratio]
    text = f"of that error for the worst series, '{worst}'"
    assert text in " ".join(result.stdout.split())
    page = (tmp_path / "out" / "report.html").read_text()
    assert text.replace("'", "&#x27;") in page
    assert "the worst first" in page


def test_uneven_times_and_options(tmp_path: Path) -> None:
    t = np.sort(np.random.default_rng(1).uniform(0, 60, 80))
    rows = "".join(f"{a:.4f},{5 + np.sin(2 * np.pi * a / 6):.4f}\n" for a in t)
    data = table(tmp_path / "uneven.csv", "when,level\n" + rows)
    result = invoke(
        data, "--time", "when", "--column", "level", "--season", "6", "--trend", "none",
        "--no-log", "--harmonics", 1, "--level", 0.8, "--horizon", 4, "--origins", 0,
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "out" / "forecast.json").read_text())
    assert found["level"] == 0.8
    step = float(np.median(np.diff(t)))
    ahead = t[-1] + step * np.arange(1, 5)
    expected = 5 + np.sin(2 * np.pi * ahead / 6)
    np.testing.assert_allclose(found["forecast"]["level"]["mean"], expected, atol=0.1)
    assert "--no-log" in found["command"]


# ---------------------------------------------------------------- a grid


def grid(path: Path, count: int = 60) -> Path:
    rng = np.random.default_rng(2)
    time = np.array(["2010-01"], "datetime64[M]") + np.arange(count)
    t = np.arange(count)[:, None, None]
    size = np.arange(1.0, 13.0).reshape(3, 4)
    values = 10 + size * np.sin(2 * np.pi * t / 12) + 0.05 * rng.standard_normal((count, 3, 4))
    values[:, 1, 2] = np.nan
    coords = {"time": time.astype("datetime64[ns]"), "lat": [-5.0, 0, 5], "lon": [0.0, 10, 20, 30]}
    dims = ("time", "lat", "lon")
    data = {"sst": (dims, values.astype(np.float32), {"units": "degC"})}
    xarray.Dataset(data, coords).to_netcdf(path, engine="scipy")
    return path


def test_a_grid(tmp_path: Path) -> None:
    data = grid(tmp_path / "cells.nc")
    plain = "--season", "year", "--trend", "none"
    result = invoke(data, "--horizon", 6, "--origins", 1, *plain, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    with xarray.open_dataset(tmp_path / "out" / "forecast.nc", engine="scipy") as found:
        assert found["mean"].dims == ("time", "lat", "lon")
        assert str(found.time.values[0])[:10] == "2015-01-01"
        np.testing.assert_array_equal(found.lon, [0, 10, 20, 30])
        mean = found["mean"].values
        assert found["mean"].attrs["units"] == "degC"
    assert np.isnan(mean[:, 1, 2]).all()
    size = np.arange(1.0, 13.0).reshape(3, 4)
    expected = 10 + size * np.sin(2 * np.pi * np.arange(60, 66) / 12)[:, None, None]
    np.testing.assert_allclose(mean, np.where(np.isnan(mean), np.nan, expected), atol=0.4)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<h2>Maps</h2>" in page
    assert "data:image/png;base64," in page
    assert not re.search(OUTSIDE, page)


# ---------------------------------------------------------------- errors


COUNT = "".join(f"{i},{(7 * i) % 5}\n" for i in range(40))
WRONG: dict[str, tuple[str, tuple[str, ...], str]] = {
    "empty": ("", (), r"is empty; expected a table"),
    "header only": ("t,y\n", (), r"has names but no rows"),
    "one row": ("t,y\n1,2\n", (), r"got 1 observation; expected at least 4"),
    "two rows": ("t,y\n1,2\n2,3\n", (), r"got 2 observations; expected at least 4"),
    "text in numbers": (f"t,y\n{COUNT}40,abc\n", (), r"column 'y', line 42: got 'abc'"),
    "only text": ("a,b\nx,y\nz,w\n", (), r"no column of numbers beside the time"),
    "no column": (f"t,y\n{COUNT}", ("--column", "z"), r"no column 'z'. Its columns: t, y"),
    "no time": (f"t,y\n{COUNT}", ("--time", "z"), r"time: data.csv has no column 'z'"),
    "text as times": (f"t,y\na,1\n{COUNT}", ("--time", "t"), r"'t' has 'a' in line 2; expected"),
    "longer than the header": ("t,y\n1,2,3\n2,3,4\n3,4,5\n", (), r"2 fields, .* below have 3"),
    "times repeat": (f"t,y\n{COUNT}39,4\n", (), r"1 of 41 rows have the time of another row but"),
    "all missing": ("t,y\n" + "".join(f"{i},\n" for i in range(40)), (), r"no column of numbers"),
    "horizon": (f"t,y\n{COUNT}", ("--horizon", "1000"), r"got 1000; expected from 1 to 40"),
    "season": (f"t,y\n{COUNT}", ("--season", "fortnight"), r"--season: got 'fortnight'; expected"),
    "year without dates": (f"t,y\n{COUNT}", ("--season", "year"), r"the times are not dates"),
    "long season": (f"t,y\n{COUNT}", ("--season", "100"), r"no more than the 40 steps"),
    "trend": (f"t,y\n{COUNT}", ("--trend", "cubic"), r"trend: got 'cubic'; expected one of auto"),
    "series repeat": (
        "t,shop,y\n1,a,2\n1,a,3\n2,a,4\n", (), r"rows 1 and 2 at time 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_files_that_cannot_be_forecast(name: str, tmp_path: Path) -> None:
    text, words, message = WRONG[name]
    data = table(tmp_path / "data.csv", text)
    result = invoke(data, *words, "--out", tmp_path / "out")
    assert result.exit_code == 2, result.output
    shown = " ".join(result.stderr.split())
    assert re.search(message, shown), shown
    assert "error:" in shown
    assert "Traceback" not in result.output
    assert not (tmp_path / "out" / "report.html").exists()


def test_paths_that_are_not_tables(tmp_path: Path) -> None:
    for path, content, message in (
        (tmp_path / "none.csv", None, "there is no file"),
        (tmp_path, None, "is a folder; expected a file"),
        (tmp_path / "noise.csv", b"\0\1\2\xff" * 50, "is not text"),
        (tmp_path / "fake.nc", b"hello", "not a NetCDF file"),
    ):
        if content is not None:
            path.write_bytes(content)
        result = invoke(path, "--out", tmp_path / "out")
        assert result.exit_code == 2, result.output
        assert message in " ".join(result.stderr.split())


def test_variables_of_a_grid(tmp_path: Path) -> None:
    t = np.arange(20.0)
    cells = np.stack([t, t], 1)
    both = {"a": (("time", "y"), cells), "b": (("time", "y"), cells), "c": ("x", t)}
    path = tmp_path / "two.nc"
    xarray.Dataset(both).to_netcdf(path, engine="scipy")
    for words, message in (
        ((), r"2 variables have a dimension 'time' \(a, b\).*--columns"),
        (("--column", "c"), "no variable c over 'time'; it has a, b"),
        (("--time", "when"), "no dimension 'when'; it has.*--time"),
    ):
        result = invoke(path, *words, "--out", tmp_path / "out")
        assert result.exit_code == 2, result.output
        assert re.search(message, " ".join(result.stderr.split()))


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    result = invoke(tmp_path / "none.csv", "--debug")
    assert result.exit_code == 1
    assert isinstance(result.exception, ValueError)


def test_an_output_that_is_a_file(tmp_path: Path) -> None:
    data = monthly(tmp_path / "a.csv", 30)
    taken = table(tmp_path / "taken", "")
    result = invoke(data, "--out", taken)
    assert result.exit_code == 2
    assert "is, or lies below, a file" in " ".join(result.stderr.split())


# ---------------------------------------------------------------- the reader


def lines(*rows: str) -> str:
    return "\n".join(rows) + "\n"


READ: dict[str, tuple[str, list[str], list[float]]] = {
    "comma": (lines("date,y", "2020-01-01,1.5", "2020-01-02,2"), ["y"], [1.5, 2]),
    "semicolon and decimal comma": (
        lines("Datum;a;b", "01.02.2020;1,5;3", "02.02.2020;2,25;4"), ["a", "b"], [1.5, 2.25],
    ),
    "tab": (lines("t\ty", "1\t5", "2\t6"), ["y"], [5, 6]),
    "spaces": (lines("t  y", "1  5", "2  6"), ["y"], [5, 6]),
    "comment and byte order mark": (lines("\ufeff# from NOAA", "t,y", "1,5", "2,6"), ["y"], [5, 6]),
    "thousands": (lines("t,y", '1,"1,234.5"', '2,"12,000"'), ["y"], [1234.5, 12000]),
    "no header": (lines("1,5", "2,6", "3,7"), ["x2"], [5, 6, 7]),
    "one column": (lines("y", "5", "6", "-1e3"), ["y"], [5, 6, -1000]),
    "missing in many ways": (lines("t,y", "1,5", "2,NA", "3,", "4,-"), ["y"], [5] + 3 * [np.nan]),
    "quarters": (lines("quarter,y", "2020Q4,2", "2021Q1,3"), ["y"], [2, 3]),
    "year and month": (lines("year,month,y", "2020,11,2", "2020,12,3"), ["y"], [2, 3]),
    "long": (lines("t,shop,y", "1,a,2", "1,b,3", "2,a,4"), ["a", "b"], [2, 4]),
    "two numbers per series": (
        lines("t,shop,x,y", "1,a,2,3", "1,b,3,4", "2,a,4,5"), ["a x", "a y", "b x", "b y"], [2, 4],
    ),
    "a row without a time": (lines("t,y", "1,5", ",7", "2,6"), ["y"], [5, 6]),
    "unsorted": (lines("t,y", "2,6", "1,5", "4,8", "3,7"), ["y"], [5, 6, 7, 8]),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_table_formats(name: str, tmp_path: Path) -> None:
    text, names, first = READ[name]
    frame = read_series(table(tmp_path / "a.csv", text))
    assert [str(c) for c in frame.columns] == names
    np.testing.assert_array_equal(frame.iloc[:, 0].to_numpy(), first)
    if name == "unsorted":
        assert frame.attrs["notes"] == ["rows were not in the order of time and have been sorted."]
    if name == "semicolon and decimal comma":
        assert str(frame.index[1])[:10] == "2020-02-02"
    if name == "year and month":
        assert str(frame.index[1])[:10] == "2020-12-01"
    if name == "quarters":
        assert str(frame.index[0])[:10] == "2020-10-01"


def test_compressed_tables_are_read(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"t,y\n1,5\n2,6\n"))
    assert list(read_series(path)["y"]) == [5, 6]
