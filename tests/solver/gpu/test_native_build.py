"""Compiling the C++ launcher in the background, and failing without consequences."""

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from solver.internals import Extension, launcher

pytestmark = pytest.mark.slow


def test_switched_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SMNN_NATIVE", "0")
    extension = Extension("some", tmp_path / "some.cpp")
    assert extension.wait() == "SMNN_NATIVE=0"
    assert extension.native() is None


def script(folder: Path, name: str, lines: str) -> Path:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{lines}\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Extension:
    monkeypatch.setenv("SMNN_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "some.cpp"
    source.write_text("int nothing;\n")
    made = Extension("_some", source)
    if made.compile_command(tmp_path / "x") is None:
        pytest.skip("there are no headers of Python or torch")
    return made


def test_without_a_compiler(extension: Extension, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert extension.wait() == "no C++ compiler, or no headers of Python or torch"


def test_compiler_that_fails(
    extension: Extension, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = script(tmp_path, "broken", "echo 'some.cpp:1: error: no' >&2; exit 1")
    monkeypatch.setenv("CXX", str(broken))
    assert extension.wait() == "the C++ compiler failed: some.cpp:1: error: no"
    assert list((tmp_path / "cache").rglob("*.so")) == []


def test_compiler_whose_output_cannot_be_loaded(
    extension: Extension, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrong = script(tmp_path, "wrong", 'for last; do :; done; echo nonsense > "$last"')
    monkeypatch.setenv("CXX", str(wrong))
    assert str(extension.wait()).startswith("ImportError")


def test_concurrent_builds_compile_once(
    extension: Extension, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Programs that start together share one build."""
    log = tmp_path / "log"
    lines = f'for last; do :; done; echo one >> {log}; sleep 0.2; echo made > "$last"'
    copy = script(tmp_path, "copy", lines)
    monkeypatch.setenv("CXX", str(copy))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: extension._compile(extension.compiled_file()), range(4)))
    assert found == [None] * 4
    assert log.read_text().split() == ["one"]
    assert [p.name for p in extension.compiled_file().parent.iterdir() if p.is_dir()] == []


ENDS = """
import pathlib, sys, time
from smnn._solver.gpu.native import launcher
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


def test_compiler_ends_with_the_program(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    slow = script(tmp_path, "slow", f"echo $$ > {note}.part; mv {note}.part {note}; sleep 300")
    environment = {"SMNN_CACHE": str(tmp_path / "cache"), "SMNN_NATIVE": "1", "CXX": str(slow)}
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
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_dir() and "tmp" in p.name] == []


def test_description(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SMNN_CACHE", str(tmp_path))
    monkeypatch.setenv("SMNN_NATIVE", "0")
    assert "SMNN_NATIVE=0" in launcher.described()
    monkeypatch.delenv("SMNN_NATIVE")
    monkeypatch.delenv("CXX", raising=False)
    file = launcher.compiled_file()
    assert "from Python" in launcher.described()
    file.parent.mkdir(parents=True)
    file.touch()
    assert launcher.described() == "launched from C++"
