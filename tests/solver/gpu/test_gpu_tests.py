"""The tool that runs tests in many processes tells what became of each of them."""

import json
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[3] / "tools" / "gpu_tests.py"
FILES = {
    "pytest.ini": "[pytest]\n",
    "conftest.py": """
def pytest_addoption(parser):
    parser.addoption("--told", action="store_true")
""",
    "test_a.py": """
import pytest

@pytest.mark.parametrize("name", ["two words", "[x]"])
def test_fine(name): pass
def test_wrong(): assert 1 == 2
def test_left_out(): pytest.skip("why")
def test_options(request): assert request.config.getoption("--told")
""",
    "test_b.py": """
import os

def test_before(): pass
def test_dies(): os._exit(9)
def test_behind(): pass
""",
    "test_c.py": """
import time

def test_short(): pass
def test_endless(): time.sleep(600)
""",
}


def run(folder: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(TOOL), "--out", "found.json", *words],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_every_verdict(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    code, said = run(tmp_path, "--seconds", "25", "--processes", "3", "--", ".", "--told")
    assert code == 1
    assert "5 passed, 2 failed, 2 not run of 10" in said
    assert "assert 1 == 2" in said
    assert json.loads((tmp_path / "found.json").read_text())["tests"] == {
        "test_a.py::test_fine[two words]": "passed", "test_a.py::test_fine[[x]]": "passed",
        "test_a.py::test_wrong": "failed", "test_a.py::test_left_out": "skipped",
        "test_a.py::test_options": "passed",
        "test_b.py::test_before": "passed", "test_b.py::test_dies": "crashed",
        "test_b.py::test_behind": "not run",
        "test_c.py::test_short": "passed", "test_c.py::test_endless": "not run",
    }  # fmt: skip


def test_all_is_well(tmp_path: Path) -> None:
    (tmp_path / "test_d.py").write_text("def test_one(): pass\n")
    code, said = run(tmp_path, "--", "test_d.py")
    assert (code, said.splitlines()[-1]) == (0, "1 passed, 0 failed, 0 not run of 1")


def test_nothing_selected(tmp_path: Path) -> None:
    code, said = run(tmp_path, "--", "-k", "nothing")
    assert code == 1
    assert "pytest selects no test with ['-k', 'nothing']" in said
