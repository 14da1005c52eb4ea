"""`smnn discover`: results, files and output."""

import csv
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cli.discover_runs import check_page, invoke, oscillator
from smnn.discovery import Discovery

FILES = [
    "coefficients.csv", "equations.tex", "equations.txt", "model.json", "report.html", "states.csv",
]  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("discover")
    data = oscillator(folder / "swing.csv")
    result = invoke(data, "--library", "poly:1", "--out", folder / "out")
    return SimpleNamespace(result=result, data=data, out=folder / "out")


def test_coefficients(done: Any) -> None:
    assert done.result.exit_code == 0, done.result.output
    with (done.out / "coefficients.csv").open() as file:
        rows = {(r["target"], r["term"]): r for r in csv.DictReader(file)}
    truth = {("x'", "y"): 1.0, ("y'", "x"): -4.0, ("y'", "y"): -0.2}
    for place, row in rows.items():
        assert float(row["coefficient"]) == pytest.approx(truth.get(place, 0.0), abs=0.05)
        if place in truth:
            assert float(row["low_90"]) < float(row["coefficient"]) < float(row["high_90"])
            assert 0.5 < float(row["chosen"]) <= 1


def test_files(done: Any) -> None:
    assert sorted(os.listdir(done.out)) == FILES
    assert str(done.out / "report.html") in done.result.stdout.replace("\n", "")
    command = f"smnn discover {done.data} --library poly:1 --out {done.out}"
    text = (done.out / "equations.txt").read_text()
    assert command in text
    assert "With 90 % intervals" in text
    latex = (done.out / "equations.tex").read_text()
    assert latex.startswith("\\begin{align*}\n{x'} &= ")
    model = Discovery.load(done.out / "model.json")
    assert text.splitlines()[1:3] == model.equations()
    assert f"{model.coefficients_[1, 1]:.2f}" in text.split("intervals:")[1]
    states = np.genfromtxt(done.out / "states.csv", delimiter=",", names=True)
    assert states.dtype.names == ("t", "x", "y")
    assert len(states) == 128  # four fifths were fitted
    truth = np.exp(-0.1 * states["t"]) * np.cos(np.sqrt(3.99) * states["t"])
    assert np.abs(states["x"] - truth).max() < 0.1


def test_terminal_output(done: Any) -> None:
    out = done.result.stdout
    assert "  x' = " in out
    assert "  y' = " in out
    assert "± half a 90 % interval" in out
    assert "terms in 2 equations, out of 6 candidates" in out
    assert "hold-out error, relative to the spread" in out
    assert "of the held-out time (1.60 in t) is followed" in out
    assert "noise relative to the spread" in out


def test_report_page(done: Any) -> None:
    page = (done.out / "report.html").read_text()
    check_page(page)
    for heading in ("Coefficients", "Data and fit", "Held out", "Phase portrait", "Residuals",
                    "How it was made", "Machine"):  # fmt: skip
        assert f"<h2>{heading}" in page
    assert "smnn discover" in page
    assert "swing.csv: 160 rows, 128 fitted, the others held out." in page
    assert "sympy" in page
    assert page.count('class="plot"') == 2 + 3 + 2 * 2  # data; held out and error; residuals
    assert page.count('class="plot square"') == 1


def test_json_output(tmp_path: Path) -> None:
    data = oscillator(tmp_path / "swing.csv", n=80, u=np.linspace(0, 1, 80) ** 2)
    result = invoke(
        data, "--json", "--out", tmp_path / "out", "--library", "poly:1", "--ensemble", 0,
        "--fix", "x' : y", "--forbid", "x' : x, u", "--inputs", "u", "--holdout", 0, "--seed", 3,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["equations"][0] == "x' = y"
    assert record["held_out"] is None
    assert record["data"]["inputs"] == ["u"]
    assert record["data"]["fitted"] == 80
    known = next(c for c in record["coefficients"] if c["target"] == "x'")
    assert (known["term"], known["coefficient"], known["chosen"]) == ("y", 1.0, None)
    assert record["command"].endswith(f"--holdout 0.0 --seed 3 --out {tmp_path / 'out'}")
    assert "--fix 'x'\"'\"' : y'" in record["command"]
    assert "Held out" not in (tmp_path / "out" / "report.html").read_text()


def test_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    oscillator(tmp_path / "swing.csv", n=60)
    result = invoke("swing.csv", "--library", "poly:1", "--ensemble", 0)
    assert result.exit_code == 0, result.output
    assert sorted(os.listdir(tmp_path / "smnn-results" / "discover-swing")) == FILES


def test_second_order_for_a_position(tmp_path: Path) -> None:
    t = np.arange(0, 20, 0.05)
    data = tmp_path / "position.csv"
    table = np.column_stack([t, np.exp(-0.1 * t) * np.cos(2 * t)])
    np.savetxt(data, table, delimiter=",", header="t,x", comments="")
    found = invoke(data, "--out", tmp_path / "out")
    assert "x'' = -4.010 x - 0.2000 x'" in found.stdout
    assert "the equations are of second order, because those of first order do not" in found.stderr
    assert "of second order" in (tmp_path / "out/report.html").read_text()
    kept = invoke(data, "--out", tmp_path / "out", "--order", "1")
    assert "x'' =" not in kept.stdout
    assert "Verdict: not supported: x': a plain curve describes the data better" in kept.stdout


def test_no_notes_if_the_equations_hold(done: Any) -> None:
    assert "hold" not in done.result.stderr
    assert "explained" not in done.result.stderr
