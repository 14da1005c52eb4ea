"""When the compiler is started, and that nobody notices if it fails."""

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from smnn._solver.cpu import native as cpu_native
from smnn._solver.gpu.native.extension import NOT_YET, Extension


class Counted(Extension):
    """Counts how often it is asked to compile."""

    def __init__(self, there: Path) -> None:
        super().__init__("counted", there)
        self.started = 0

    def compiled_file(self) -> Path:
        return self.source

    def native(self) -> Any:
        self.started += 1
        self.reason = "being compiled"
        return None


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counted:
    made = Counted(tmp_path / "compiled")
    monkeypatch.setattr(cpu_native, "extension", made)
    monkeypatch.setattr(cpu_native, "_Asked", type("_Asked", (), {"count": 0, "since": 0.0}))
    monkeypatch.setattr(cpu_native, "SECONDS", 20.0)
    monkeypatch.delenv("SMNN_NATIVE", raising=False)
    return made


class TestWhenToCompile:
    def test_not_for_a_short_program(self, counted: Counted) -> None:
        for _ in range(10 * cpu_native.CALLS):
            assert not cpu_native.ready()
        assert counted.started == 0

    def test_not_for_few_calls(self, counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = iter(range(0, 10**9, 1000))
        monkeypatch.setattr(cpu_native.time, "monotonic", lambda: next(clock))
        for _ in range(cpu_native.CALLS):
            assert not cpu_native.ready()
        assert counted.started == 0
        for _ in range(3):
            assert not cpu_native.ready()
        assert counted.started == 1

    def test_at_once_if_compiled_before(self, counted: Counted) -> None:
        counted.source.touch()
        cpu_native.ready()
        assert counted.started == 1

    @pytest.mark.parametrize("wish", ["wait", "0"])
    def test_at_once_if_wished(
        self, counted: Counted, wish: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SMNN_NATIVE", wish)
        cpu_native.ready()
        assert counted.started == 1

    def test_never_if_not_wished(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def test_a_compiler_that_fails(
    extension: Extension, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = script(tmp_path, "broken", "echo 'some.cpp:1: error: no' >&2; exit 1")
    monkeypatch.setenv("CXX", str(broken))
    assert extension.wait() == "the C++ compiler failed: some.cpp:1: error: no"
    assert list((tmp_path / "cache").rglob("*.so")) == []


def test_a_compiler_that_makes_nonsense(
    extension: Extension, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrong = script(tmp_path, "wrong", 'for last; do :; done; echo nonsense > "$last"')
    monkeypatch.setenv("CXX", str(wrong))
    assert str(extension.wait()).startswith("ImportError")


def test_several_at_once_compile_once(
    extension: Extension, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Programs that start together share what the first of them makes."""
    log = tmp_path / "log"
    lines = f'for last; do :; done; echo one >> {log}; sleep 0.2; echo made > "$last"'
    copy = script(tmp_path, "copy", lines)
    monkeypatch.setenv("CXX", str(copy))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: extension._compile(extension.compiled_file()), range(4)))
    assert found == [None] * 4
    assert log.read_text().split() == ["one"]
    assert [p.name for p in extension.compiled_file().parent.iterdir() if p.is_dir()] == []


SOLVES = """
import torch, smnn
from smnn._backends import cpu_native
c = torch.tensor([2.0, 0.5, 1.0], dtype=torch.float64).view(1, 1, 1, 3)
args = [c, c.new_ones(1, 1), c.new_ones(1, 1, 2), c.new_full((9,), 0.1)]
for x in args:
    x.requires_grad_()
for _ in range(3):
    y = smnn.solve(*args, backend="cpu")
    y.sum().backward()
assert cpu_native.extension.module is None
assert "the C++ compiler failed" in cpu_native.extension.reason
"""


def test_a_broken_compiler_is_no_news(tmp_path: Path) -> None:
    broken = script(tmp_path, "broken", "echo error >&2; exit 1")
    environment = {"SMNN_CACHE": str(tmp_path), "SMNN_NATIVE": "wait", "CXX": str(broken)}
    run = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", SOLVES],
        capture_output=True, text=True, check=False, timeout=300, env=os.environ | environment,
    )  # fmt: skip
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


ENDS = """
import pathlib, sys, time
from smnn._backends import cpu_native
assert cpu_native.extension.native() is None
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


def test_a_program_that_ends_takes_the_compiler_along(tmp_path: Path) -> None:
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


def test_the_state_at_first() -> None:
    assert Extension("some", Path("some.cpp")).reason == NOT_YET
