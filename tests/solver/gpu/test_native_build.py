"""Compiling the C++ launcher in the background, and failing without consequences."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from solver.internals import launcher

pytestmark = pytest.mark.slow


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SMNN_CACHE", str(tmp_path / "cache"))
    if launcher.compile_command(tmp_path / "x") is None:
        pytest.skip(launcher.NO_COMPILER)
    return tmp_path / "cache"


def script(folder: Path, lines: str) -> Path:
    file = folder / "compiler"
    file.write_text(f"#!/bin/sh\n{lines}\n")
    file.chmod(0o755)
    return file


def test_switched_off(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMNN_NATIVE", "0")
    assert launcher._Build().wait() == "SMNN_NATIVE=0"
    assert "SMNN_NATIVE=0" in launcher.described()
    assert not cache.exists()


def test_without_a_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    build = launcher._Build()
    assert build.wait() == launcher.NO_COMPILER
    assert build.native() is None
    assert launcher.NO_COMPILER in launcher.described()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("echo 'a.cpp:1: error: no' >&2; exit 1", "the C++ compiler failed: a.cpp:1: error: no"),
        ('for last; do :; done; echo nonsense > "$last"', "ImportError"),
    ],
)
def test_compiler_that_fails(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, reason: str
) -> None:
    monkeypatch.setenv("CXX", str(script(tmp_path, lines)))
    assert str(launcher._Build().wait()).startswith(reason)
    assert [p for p in cache.rglob("*") if p.is_dir() and p.parent != cache] == []


ENDS = """
import pathlib, sys, time
from smnn._solver.gpu import launcher
assert launcher.native() is None
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_compiler_ends_with_the_program(cache: Path, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    slow = script(tmp_path, f"echo $$ > {note}.part; mv {note}.part {note}; sleep 300")
    environment = {"SMNN_CACHE": str(cache), "SMNN_NATIVE": "1", "CXX": str(slow)}
    run = subprocess.run(
        [sys.executable, "-c", ENDS, str(note)],
        capture_output=True, text=True, check=False, timeout=300, env=os.environ | environment,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    pid, rounds = int(note.read_text()), 0
    while alive(pid) and rounds < 100:
        time.sleep(0.1)
        rounds += 1
    assert not alive(pid)
