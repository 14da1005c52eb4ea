"""`smnn data`: what is listed, made and seen in files."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from smnn._util.names import slug
from smnn.cli import app
from smnn.data import read_table
from smnn.datasets.catalogue import all_sets, find_set
from smnn.datasets.dynamics import HARE_LYNX, SYSTEMS, find_system, simulate

runner = CliRunner()


def invoke(*words: object) -> Any:
    return runner.invoke(app, ["data", *map(str, words)])


def columns(path: Path) -> dict[str, np.ndarray]:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


# ---------------------------------------------------------------- list


def test_list_has_every_set_with_its_size_and_source() -> None:
    listed = json.loads(invoke("list", "--json").stdout)
    names = [data["name"] for data in listed]
    assert len(set(names)) == len(names) == len(SYSTEMS) + 5
    assert {slug(s.name) for s in SYSTEMS} | {"sst", "nino", "kdv", "sine", "hare-lynx"} == {*names}
    assert all(d["size"] and d["source"] and d["formats"] for d in listed)
    shown = invoke("list")
    assert shown.exit_code == 0
    assert all(name in shown.stdout for name in names)


def test_sizes_are_those_of_the_data() -> None:
    from smnn.datasets.sst import monthly, nino

    sets = all_sets()
    T, A, O = monthly().values.shape
    assert sets["sst"].size == f"{T} times, {A} x {O} cells"
    assert sets["nino"].size == "{:,} times, {} variables".format(*nino().sst.shape)
    assert sets["hare-lynx"].size == f"{len(HARE_LYNX.series[0].t)} times, 2 variables"
    driven = find_system("Driven")
    assert sets[slug(driven.name)].size == f"{driven.n:,} times, 2 variables, 1 input"


def test_names_are_forgiving() -> None:
    assert slug("Hénon-Heiles (positions)") == "henon-heiles-positions"
    assert find_set("Lotka").name == "lotka-volterra"
    assert find_set("LORENZ").name == "lorenz"  # although lorenz-96 begins so, too


# ---------------------------------------------------------------- make


def test_a_system_number_for_number(tmp_path: Path) -> None:
    done = invoke("make", "lorenz", "--noise", 0.1, "--seed", 7, "--samples", 50, "--step", 0.02,
                  "--out", tmp_path)  # fmt: skip
    assert done.exit_code == 0, done.output
    assert os.listdir(tmp_path) == ["lorenz.csv"]
    found = columns(tmp_path / "lorenz.csv")
    (series,) = simulate(find_system("Lorenz"), noise=0.1, seed=7, n=50, dt=0.02)
    np.testing.assert_array_equal(found["t"], series.t)
    np.testing.assert_array_equal(np.stack([found[v] for v in "xyz"], 1), series.x)


def test_several_series_and_inputs(tmp_path: Path) -> None:
    invoke("make", "sir", "--samples", 20, "--out", tmp_path / "sir.csv")
    table = read_table(tmp_path / "sir.csv")
    series = simulate(find_system("SIR"), n=20)
    assert len(table.times) == len(series) == 3
    for got, expected in zip(table.values, series):
        np.testing.assert_allclose(got, expected.x)
    invoke("make", "driven", "--samples", 20, "--out", tmp_path)
    found = columns(tmp_path / "driven-oscillator.csv")
    (driven,) = simulate(find_system("Driven"), n=20)
    assert driven.u is not None
    np.testing.assert_array_equal(found[find_system("Driven").inputs[0]], driven.u[:, 0])


@pytest.mark.parametrize("name", ["lotka-volterra", "sir-epidemic", "nino", "sine"])
def test_netcdf_and_csv_hold_the_same(tmp_path: Path, name: str) -> None:
    pytest.importorskip("xarray")
    words = ["--samples", 10] if "samples" in find_set(name).options else []
    for form in ("csv", "nc"):
        done = invoke("make", name, *words, "--format", form, "--out", tmp_path)
        assert done.exit_code == 0, done.output
    a, b = (read_table(tmp_path / f"{name}.{form}") for form in ("csv", "nc"))
    assert a.names == b.names
    assert len(a.times) == len(b.times)
    for x, y in zip([*a.times, *a.values], [*b.times, *b.values]):
        np.testing.assert_allclose(x, y)


def test_records(tmp_path: Path) -> None:
    assert invoke("make", "hare", "--out", tmp_path).exit_code == 0
    found = columns(tmp_path / "hare-lynx.csv")
    assert found["year"][[0, -1]].tolist() == [1900, 1920]
    assert found["lynx"].max() == 59.4
    invoke("make", "nino", "--out", tmp_path)
    with (tmp_path / "nino.csv").open() as file:
        first = next(csv.DictReader(file))
    assert first["date"] == "1990-01-03"


def test_the_grid_is_that_of_the_package(tmp_path: Path) -> None:
    pytest.importorskip("h5netcdf")
    from smnn.datasets.sst import monthly, read_grid

    invoke("make", "sst", "--out", tmp_path)
    np.testing.assert_array_equal(read_grid(tmp_path / "sst.nc").values, monthly().values)


def test_waves(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    from smnn.datasets.kdv import easy, read_file

    words = ["make", "kdv", "--samples", 3, "--split", "test", "--seed", 2, "--device", "cpu"]
    done = invoke(*words, "--out", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)
    assert record["file"] == str(tmp_path / "kdv.h5")
    assert record["content"].startswith("test/pde_140-256 (3, 140, 256)")
    found = read_file(tmp_path / "kdv.h5")
    np.testing.assert_allclose(found.u, easy("test", 3, seed=2).u)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lorentz"], "there is no data set 'lorentz'; did you mean 'lorenz'?"),
        (["lo"], "several data sets fit 'lo': lorenz, lotka-volterra, logistic-short-series, "),
        ([""], "there is no data set ''"),
        (["hare", "--noise", "0.1"], "--noise has no effect for hare-lynx"),
        (["sst", "--seed", "1"], "--seed has no effect for sst, which takes no options of its own"),
        (["kdv", "--noise", "0.1"], "which takes --device, --samples, --seed, --split"),
        (["kdv", "--split", "all"], "--split: got 'all'; expected train, valid or test"),
        (["kdv", "--format", "csv"], "kdv cannot be written as csv; expected h5"),
        (["lorenz", "--format", "h5"], "lorenz cannot be written as h5; expected csv or nc"),
        (["lorenz", "--step", "-1"], "--step: got -1.0; expected a positive number"),
        (["lorenz", "--samples", "9", "--step", "1e9"], "could not be integrated"),
        (["kdv", "--device", "tpu"], "--device: got 'tpu'; expected cpu or cuda"),
    ],
)
def test_wrong_wishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke("make", *words)
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert os.listdir(tmp_path) == []


def test_a_file_is_not_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("precious")
    done = invoke("make", "hare", "--out", path)
    assert done.exit_code == 2
    assert "exists; give another --out, or --force to replace it" in done.stderr
    assert path.read_text() == "precious"
    assert invoke("make", "hare", "--out", path, "--force").exit_code == 0
    assert path.read_text().startswith("year,hare,lynx\n")
    other = invoke("make", "hare", "--out", path, "--format", "nc", "--force")
    assert "--format nc does not fit the name mine.csv" in other.stderr


def test_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    done = invoke("make", "hare", "--out", tmp_path / "a.csv")
    assert done.exit_code == 2
    assert "No space left on device" in done.stderr
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------- check


def check(path: Path, *words: str) -> Any:
    done = invoke("check", path, "--json", *words)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_what_is_seen_in_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a b.csv"
    lines = [f"{0.5 * i},{i % 7},{'' if i == 3 else i**2},{5}" for i in range(40)]
    path.write_text("\n".join(["time,x [m],y,c", *lines[:20], *lines[25:]]))
    found = check(path)
    assert found["rows"] == 35
    assert found["missing"] == 1
    assert [c["name"] for c in found["columns"]] == ["x", "y", "c"]
    assert found["columns"][0]["unit"] == "m"
    assert found["columns"][1] == {
        "name": "y", "unit": None, "missing": 1, "smallest": 0.0, "largest": 39.0**2,
        "mean": pytest.approx(np.mean([i**2 for i in range(40) if i != 3 and not 20 <= i < 25])),
    }  # fmt: skip
    time = found["time"]
    assert (time["column"], time["start"], time["end"], time["step"]) == ("time", 0.0, 19.5, 0.5)
    assert time["even"] is False
    assert time["gaps"] == 1
    assert time["longest_step"] == 3.0
    assert any("1 of 34 steps are longer" in text for text in found["problems"])
    assert any("'c' is 5 everywhere" in text for text in found["problems"])
    assert found["next"][0] == f"smnn discover '{path}'"
    shown = invoke("check", path).stdout
    assert "from 0 to 19.5, median step 0.5, unit unknown" in shown
    assert "problem: 1 of 34 steps" in shown
    assert f"Next: smnn discover '{path}'" in shown.replace("\n", "")


def test_options_go_on_to_the_next_command(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b,k\n" + "\n".join(f"{i},{i % 5},{i % 2}" for i in range(40)))
    found = check(path, "--time", "a", "--columns", "b", "--series", "k")
    assert found["series"] == 2
    assert found["next"] == [
        f"smnn discover {path} --time=a --columns=b --series=k",
        f"smnn forecast {path} --time=a --columns=b --series=k",
    ]


def test_options_of_reading(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [f"01/{m:02d}/2024,{m % 5},{'bad' if m == 3 else m * m}" for m in range(1, 13)]
    path.write_text("\n".join(["from logger 7", "date,x,y", *rows]))
    refused = invoke("check", path)
    assert refused.exit_code == 2
    assert "may be 2024-02-01 (--dayfirst)" in " ".join(refused.stderr.split())
    words = ["--dayfirst", "--na", "bad", "--skip-rows", "1"]
    found = check(path, *words)
    assert found["time"]["unit"] == "days since 2024-01-01"
    assert found["missing"] == 1
    assert found["next"][0] == f"smnn discover {path} --skip-rows=1 --na=bad --dayfirst"
    for command, more in (("discover", ["--ensemble", "0", "--library", "poly:1"]),
                          ("forecast", ["--origins", "0", "--horizon", "2"])):  # fmt: skip
        out = tmp_path / command
        done = runner.invoke(app, [command, str(path), *words, *more, "--out", str(out)])
        assert done.exit_code == 0, done.output
        assert "time 'date' from 2024-01-01 to 2024-12-01" in " ".join(done.stderr.split())


def test_few_rows_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,x\n0,1\n1,2\n2,1\n")
    assert any("3 rows are few" in text for text in check(tmp_path / "a.csv")["problems"])


def test_grids(tmp_path: Path) -> None:
    pytest.importorskip("h5netcdf")
    invoke("make", "sst", "--out", tmp_path)
    grid = check(tmp_path / "sst.nc")
    assert grid["kind"] == "grid"
    assert grid["columns"][0]["shape"] == [494, 73, 144]
    assert (grid["time"]["start"], grid["time"]["end"]) == ("1981-12-01", "2023-01-01")
    assert grid["next"] == [f"smnn forecast {tmp_path / 'sst.nc'} --columns=sst"]
    assert "from 1981-12-01 to 2023-01-01" in invoke("check", tmp_path / "sst.nc").stdout


@pytest.mark.parametrize("name", ["lorenz", "sir", "sine", "driven", "hare"])
def test_what_is_made_is_found_fit(tmp_path: Path, name: str) -> None:
    words = ["--samples", "40"] if name != "hare" else []
    invoke("make", name, *words, "--out", tmp_path / "a.csv")
    found = check(tmp_path / "a.csv")
    assert found["time"]["even"]
    assert found["missing"] == 0
    assert [p for p in found["problems"] if "few" not in p] == []
