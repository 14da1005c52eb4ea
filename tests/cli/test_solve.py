"""`smnn solve`: its options, exit codes, output and files."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from smnn.cli import app

runner = CliRunner()
FILES = ["report.html", "solution.csv", "solution.json", "solution.png"]
GRID = "t = 0 .. 1 step 0.1"


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def invoke(*words: object) -> Any:
    return runner.invoke(app, ["solve", *map(str, words)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"y' = y - y^2\ny(0)=1\n{GRID}", "error: a.txt, line 1: the term 'y^2' in"),
        (f"y'' = -y\ny(0) = 1\n{GRID}", "error: got 1 value, and the equations need 2"),
        ("y' = 400*y\ny(0) = 1\nt = 0 .. 10 step 0.001", "error: solutions grow by a factor of"),
    ],
)
def test_rejected_equations(tmp_path: Path, text: str, message: str) -> None:
    done = invoke(written(tmp_path / "a.txt", text), "--out", tmp_path / "out")
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out" / "report.html").exists()


def test_warnings_are_notes(tmp_path: Path) -> None:
    file = written(tmp_path / "a.txt", f"y' = y, y(0) = 1, y(1) = 1\n{GRID}")
    done = invoke(file, "--out", tmp_path / "out")
    assert done.exit_code == 0
    assert "note: the prescribed values do not hold" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--order", "1"], "order: got 1; expected at least 2, the order of the equations"),
        (["--set", "q=1"], "there is no parameter 'q'; the parameters are: k."),
        (["--set", "k"], "--set: got 'k'; expected NAME=VALUE"),
        (["--set", "k=y"], "unknown name 'y'"),
        (["--backend", "magic"], "error: backend: got 'magic'; expected one of"),
        (["--device", "tpu"], "--device: got 'tpu'; expected cpu or cuda"),
    ],
)
def test_wrong_options(tmp_path: Path, words: list[str], message: str) -> None:
    text = f"k = 1\ny'' = -k*y\ny(0) = 1, y'(0) = 0\n{GRID}"
    done = invoke(written(tmp_path / "a.txt", text), "--out", tmp_path / "out", *words)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("solve")
    text = "k = 2.1\ny'' + k*y = sin(t)\ny(0) = 1, y'(0) = 0\nt = 0 .. 10 step 0.05"
    file = written(folder / "swing.txt", text)
    words = ["solve", str(file), "--order", "6", "--set", "k=2.1", "--out", str(folder / "out")]
    return file, folder / "out", runner.invoke(app, words)


def test_files_and_summary(done: Any) -> None:
    file, out, result = done
    assert result.exit_code == 0, result.output
    assert sorted(os.listdir(out)) == FILES
    with (out / "solution.csv").open() as text:
        rows = list(csv.DictReader(text))
    assert list(rows[0]) == ["t", "y", "y'", "y''"]
    t, y = (np.array([float(row[name]) for row in rows]) for name in ("t", "y"))
    w = np.sqrt(2.1)
    exact = np.cos(w * t) + (np.sin(t) - np.sin(w * t) / w) / 1.1
    assert np.abs(y - exact).max() < 1e-6
    assert (out / "solution.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    for words in ("y'' + k*y = sin(t)", "order 6", "residual of the equations", "solution.csv"):
        assert words in result.stdout
    record = json.loads((out / "solution.json").read_text())
    assert record["command"] == f"smnn solve {file} --order 6 --set k=2.1 --out {out}"
    assert record["residuals"].keys() == {"governing", "initial", "smoothness"}
    assert record["end_state"]["y"] == pytest.approx(exact[-1], abs=1e-6)
    page = (out / "report.html").read_text()
    assert "<math>" in page
    assert page.count('class="plot"') == 1
    assert "smnn solve" in page


def test_json_is_all_that_is_printed(tmp_path: Path) -> None:
    file = written(tmp_path / "a.txt", f"y' = -y\ny(0) = 1\n{GRID}")
    result = invoke(file, "--json", "--out", tmp_path / "out")
    assert json.loads(result.stdout)["variables"] == ["y"]
    assert result.stderr == ""


def test_names_from_a_file_cannot_act_in_the_page(tmp_path: Path) -> None:
    file = written(tmp_path / "<b>x.txt", f"_x' = -_x\n_x(0) = 1\n{GRID}")
    result = invoke(file, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "<b>x" not in (tmp_path / "out" / "report.html").read_text()
