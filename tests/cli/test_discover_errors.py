"""`smnn discover`: errors, missing packages and interruption."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from cli.discover_runs import app, invoke, oscillator, runner
from smnn.discovery import Discovery


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--columns", "x,q"], "columns: swing.csv has no column 'q'"),
        (["--time", "when"], "time: swing.csv has no column 'when'"),
        (["--library", "ploy:2"], "unknown library 'ploy'"),
        (["--library", "x*sn(y)"], "unknown function 'sn'; did you mean 'sin'?"),
        (["--fix", "x'"], '--fix: got "x\'"; expected "x\' : terms"'),
        (["--fix", "x' : 2*q"], "fixed terms of \"x'\", '2*q': unknown name 'q'"),
        (["--fix", "w' : x"], '"w\'" is not the left-hand side of an equation'),
        (["--forbid", ": x"], "--forbid: got ': x'; expected"),
        (["--forbid", "x' : y^7"], "'y^7' is not a term of the library"),
        (["--method", "magic"], "method='magic'; expected one of auto"),
        (["--link", "relu"], "link='relu'; expected one of tanh"),
        (["--penalty", "-1"], "penalty=-1.0; expected a positive number"),
    ],
)
def test_wrong_options(tmp_path: Path, words: list[str], message: str) -> None:
    data = oscillator(tmp_path / "swing.csv", n=40)
    result = invoke(data, "--out", tmp_path / "out", *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "out" / "report.html").exists()


def test_expression_errors_show_the_position(tmp_path: Path) -> None:
    data = oscillator(tmp_path / "swing.csv", n=40)
    result = invoke(data, "--out", tmp_path / "out", "--library", "x*sn(y)")
    lines = result.stderr.splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip() == "x*sn(y)")
    assert lines[at][lines[at + 1].index("^")] == "s"


def test_missing_and_wide_files(tmp_path: Path) -> None:
    missing = invoke(tmp_path / "none.csv")
    assert missing.exit_code == 2
    assert "there is no file" in missing.stderr
    wide = tmp_path / "wide.csv"
    n = 40
    names = ["t", *(f"c{i}" for i in range(n))]
    values = np.random.default_rng(0).random((9, n))
    lines = [",".join(map(str, [i, *row])) for i, row in enumerate(values)]
    wide.write_text("\n".join([",".join(names), *lines]))
    result = invoke(wide, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert (
        "has 40 columns of numbers; expected at most 30 variables. Choose some with"
        in result.stderr
    )


def test_warnings_come_before_the_fit(tmp_path: Path) -> None:
    data = oscillator(tmp_path / "swing.csv", n=40, c=np.ones(40))
    result = invoke(data, "--out", tmp_path / "out", "--library", "poly:1", "--method", "magic")
    assert "note: the column 'c' is 1 everywhere and was left out." in result.stderr


def test_output_path_that_is_a_file(tmp_path: Path) -> None:
    data = oscillator(tmp_path / "swing.csv", n=40)
    (tmp_path / "out").write_text("mine")
    result = invoke(data, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "expected a folder" in result.stderr
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize(
    ("module", "package"), [("pandas", "pandas"), ("sympy", "sympy"), ("sklearn", "scikit-learn")]
)
def test_missing_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    result = invoke(tmp_path / "none.csv")
    assert result.exit_code == 2
    expected = f"{package} is needed to discover equations; pip install 'smnn[discovery]'."
    assert expected in result.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    result = invoke(tmp_path / "none.csv", "--debug")
    assert isinstance(result.exception, ValueError)


def test_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Discovery, "fit", interrupt)
    data = oscillator(tmp_path / "swing.csv", n=40)
    result = invoke(data, "--out", tmp_path / "out")
    assert result.exit_code == 130
    assert os.listdir(tmp_path / "out") == []


def test_a_column_that_begins_in_the_part_held_out(tmp_path: Path) -> None:
    t = 0.05 * np.arange(200)
    late = np.where(np.arange(200) < 190, np.nan, np.sin(t))
    rows = [f"{a},{b},{'' if np.isnan(c) else c}" for a, b, c in zip(t, np.cos(t), late)]
    (tmp_path / "late.csv").write_text("\n".join(["t,x,late", *rows]))
    words = ["discover", str(tmp_path / "late.csv"), "--out", str(tmp_path / "out")]
    done = runner.invoke(app, words)
    assert done.exit_code == 2
    assert "late has values only in the part that is held out" in done.stderr
