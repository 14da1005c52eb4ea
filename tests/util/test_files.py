"""Atomic writes, output folders, machine description and optional packages."""

import json
import os
import sys
from pathlib import Path

import pytest

from smnn._util import files
from smnn._util.files import (
    GENERATOR,
    OutputError,
    csv_text,
    prepare_output,
    write_atomically,
    write_json,
)
from smnn._util.machine import describe_machine
from smnn._util.optional import MissingPackageError, require
from smnn.experiments.timing import time_in_turns


def test_json_replaces_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("old")
    assert write_json(path, {"a": [1.5, None]}) == path
    assert json.loads(path.read_text()) == {"a": [1.5, None]}
    assert os.listdir(tmp_path) == ["x.json"]


def test_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    path.write_text("old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", refuse)
    with pytest.raises(OutputError, match=r"cannot write .*x\.json: No space left on device"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.json"]


def test_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "x", b"data")
    assert os.listdir(tmp_path) == []


def test_nan_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", {"a": float("nan")})
    assert os.listdir(tmp_path) == []


def test_output_folder_is_created_empty(tmp_path: Path) -> None:
    folder = prepare_output(tmp_path / "a" / "b")
    assert folder.is_dir()
    assert os.listdir(folder) == []


def test_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(OutputError, match="file"):
        prepare_output(tmp_path / "taken")
    with pytest.raises(OutputError, match="file"):
        prepare_output(tmp_path / "taken" / "below")


@pytest.mark.parametrize("name", ["report.html", "states.csv"])
def test_files_of_others_are_not_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("<!doctype html><title>mine</title>")
    with pytest.raises(OutputError, match=f"contains {name}, not written by smnn"):
        prepare_output(tmp_path, ["report.html", "states.csv"])
    assert os.listdir(tmp_path) == [name]
    (tmp_path / "report.html").write_text(f"<!doctype html>{GENERATOR}")
    assert prepare_output(tmp_path, ["report.html", "states.csv"]) == tmp_path


def test_temporary_files_of_others_are_kept(tmp_path: Path) -> None:
    """Only names that `write_atomically` gives to its own are removed when they are old."""
    ours, others = tmp_path / ".a.csv.12345678.smnn-unfinished", tmp_path / ".thesis.unfinished"
    for path in (ours, others):
        path.write_text("half")
        os.utime(path, (0, 0))
    prepare_output(tmp_path)
    assert os.listdir(tmp_path) == [others.name]


def test_cells_are_not_executed_by_a_spreadsheet() -> None:
    rows = [
        ["=cmd()", "+x", "-x", "@x", "\tx", "x=1", ""],
        [-1.5, "-2e3", "+3", "-inf", 0, None, "y"],
    ]
    lines = csv_text(rows).splitlines()
    assert lines == ["'=cmd(),'+x,'-x,'@x,'\tx,x=1,", "-1.5,-2e3,+3,-inf,0,,y"]


def test_machine_description_is_anonymous() -> None:
    machine = describe_machine()
    assert machine["versions"]["torch"].startswith("2.")
    assert machine["cores"] >= 1
    assert os.uname().nodename not in json.dumps(machine).split('"')


def test_missing_package_error_has_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("scipy", "scipy.integrate"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        MissingPackageError, match=r"scipy is needed to integrate; pip install scipy"
    ):
        require("scipy.integrate", "integrate")


def test_package_names_that_differ_from_the_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingPackageError, match="pip install scikit-learn"):
        require("sklearn", "cross-validate")


def test_turns_are_taken_after_warming_up() -> None:
    order: list[str] = []
    calls = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    rounds: list[int] = []
    times = time_in_turns(calls, repeats=2, warm_up=1, tick=lambda: rounds.append(len(order)))
    assert "".join(order) == "ab" + "aabb" + "aabb"
    assert rounds == [6, 10]
    assert times["a"].repeats == 2
    assert times["a"].fastest <= times["a"].median
