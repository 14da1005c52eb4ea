"""The console script: what it writes, what it prints, how it ends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import smnn
from smnn.cli._app import app
from smnn.experiments import standalone as experiment

runner = CliRunner()
STANDALONE = ["reproduce", "standalone", "--repeats", "1"]


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def fail(*_: object) -> None:
    raise ArithmeticError("first line\nsecond line")


def test_standalone_writes_everything_and_says_where(tmp_path: Path) -> None:
    out = tmp_path / "results"
    done = runner.invoke(app, [*STANDALONE, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert sorted(os.listdir(out)) == ["report.html", "standalone.json", "standalone.png"]
    record = json.loads((out / "standalone.json").read_text())
    assert record["command"] == f"smnn reproduce standalone --out {out} --repeats 1"
    assert all(all(e["agrees"]) for e in record["paper_setting"] if e["solver"] == "S-MNN")
    assert (out / "standalone.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert (out / "standalone.png").stat().st_size > 100_000
    assert "18 of 18" in done.stdout
    assert "4.8e-12 ✓" in done.stdout
    assert str(out / "report.html") in done.stdout.replace("\n", "")


def test_tables_fit_a_terminal_of_eighty_columns(tmp_path: Path) -> None:
    done = runner.invoke(app, [*STANDALONE, "--out", str(tmp_path)], env={"COLUMNS": "80"})
    assert "…" not in done.stdout


def test_json_is_all_that_is_printed(tmp_path: Path) -> None:
    done = runner.invoke(app, [*STANDALONE, "--json", "--out", str(tmp_path)])
    assert json.loads(done.stdout)["experiment"] == "standalone"


@pytest.mark.parametrize("below", ["", "deeper"])
def test_out_that_is_a_file(tmp_path: Path, below: str) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    done = runner.invoke(app, [*STANDALONE, "--out", str(taken / below)])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert taken.read_text() == "mine"


def test_out_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(
        **_: object,
    ) -> None:  # root may write anywhere, so a folder cannot be made to refuse
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    done = runner.invoke(app, [*STANDALONE, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert done.stderr.endswith(": Permission denied.\n")
    assert "Traceback" not in done.stderr


def test_debug_shows_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "run", fail)
    command = [*STANDALONE, "--out", str(tmp_path)]
    quiet = runner.invoke(app, command)
    assert quiet.exit_code == 1
    assert quiet.stderr.endswith("error: ArithmeticError: first line (--debug shows where)\n")
    loud = runner.invoke(app, [*command, "--debug"])
    assert isinstance(loud.exception, ArithmeticError)


def test_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "run", interrupt)
    done = runner.invoke(app, [*STANDALONE, "--out", str(tmp_path)])
    assert done.exit_code == 130
    assert "Interrupted" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == []


def test_missing_scipy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("scipy", "scipy.integrate"):
        monkeypatch.setitem(sys.modules, module, None)
    done = runner.invoke(app, [*STANDALONE, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "pip install scipy" in done.stderr


def test_wrong_use() -> None:
    assert runner.invoke(app, ["reproduce", "nothing"]).exit_code == 2
    assert runner.invoke(app, [*STANDALONE[:2], "--repeats", "0"]).exit_code == 2


def test_version() -> None:
    done = runner.invoke(app, ["--version"])
    assert done.exit_code == 0
    assert done.stdout == f"smnn {smnn.__version__}\n"


def test_info_names_every_backend() -> None:
    done = runner.invoke(app, ["info"])
    assert done.exit_code == 0
    for name, reason in smnn.available_backends().items():
        assert name in done.stdout
        assert reason is None or reason.split()[0] in done.stdout


def test_info_as_json() -> None:
    found = json.loads(runner.invoke(app, ["info", "--json"]).stdout)
    assert {n: b["reason"] for n, b in found["backends"].items()} == smnn.available_backends()
    assert found["machine"]["versions"]["torch"]


def test_console_script_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "smnn.cli", "--version"],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout == f"smnn {smnn.__version__}\n"
