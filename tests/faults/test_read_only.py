"""A folder without write permission gives a clear error before any computation."""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from limits import limited
from typer.testing import CliRunner

OVERRIDE = 1
"""CAP_DAC_OVERRIDE: lets the superuser ignore permissions."""


class Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def obey_permissions() -> None:
    """Make this (forked) process obey file permissions even as the superuser."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = Header(0x20080522, 0), (ctypes.c_uint32 * 6)()  # effective, permitted, inherited
    assert libc.capget(ctypes.byref(header), sets) == 0
    sets[0] &= ~(1 << OVERRIDE)
    assert libc.capset(ctypes.byref(header), sets) == 0


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A folder without permission to write."""
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)


def test_locked_folder_refuses_writes(locked: Path) -> None:
    """Otherwise the tests below would show nothing."""

    def write() -> None:
        obey_permissions()
        (locked / "x").write_text("x")

    code, said = limited(write)
    assert code == 1
    assert said.startswith("PermissionError")


COMMANDS = (
    ["solve", "x.ode"],
    ["discover", "x.csv"],
    ["forecast", "x.csv", "--horizon", "3"],
    ["reproduce", "standalone", "--repeats", "1"],
    ["train", "damping", "--set", "max_steps=1"],
    ["bench", "--repeats", "1"],
    ["data", "make", "lorenz"],
)


def with_input(words: list[str], folder: Path) -> list[str]:
    """The words of a command, with the file that it reads."""
    (folder / "x.ode").write_text("y' + y = sin(t)\ny(0) = 1\nt = 0 .. 1 step 0.1\n")
    rows = "\n".join(f"{0.1 * i},{1 / (1 + i)}" for i in range(40))
    (folder / "x.csv").write_text(f"t,x\n{rows}\n")
    return [str(folder / word) if word.startswith("x.") else word for word in words]


@pytest.mark.parametrize("words", COMMANDS[:4], ids=lambda words: words[0])
def test_commands_do_not_replace_a_page_of_others(words: list[str], tmp_path: Path) -> None:
    from internals import app

    page = tmp_path / "out" / "report.html"
    page.parent.mkdir()
    page.write_text("<!doctype html><title>mine</title>")
    result = CliRunner().invoke(app, [*with_input(words, tmp_path), "--out", str(page.parent)])
    assert result.exit_code == 2
    assert "contains report.html, not written by smnn." in " ".join(result.output.split())
    assert "Give another folder" in " ".join(result.output.split())
    assert page.read_text().endswith("mine</title>")
    assert list(page.parent.iterdir()) == [page]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_commands_report_a_locked_folder_first(
    words: list[str], locked: Path, tmp_path: Path
) -> None:
    """They fail before computing, with the exit status of a usage error."""
    full = with_input(words, tmp_path)

    def work() -> None:
        from internals import app

        obey_permissions()
        result = CliRunner().invoke(app, [*full, "--out", str(locked / "out")])
        print(result.exit_code, " ".join(result.output.split()))

    code, said = limited(work)
    assert code == 0, said
    assert said.startswith("2 "), said
    assert " error: cannot write into " in said
    assert "Permission denied. Give a folder that you may write to" in said
    assert list(locked.iterdir()) == []
