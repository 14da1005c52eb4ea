"""Commands with a file that may not be read, or that is very large: a clear word or a result."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cli.brought_files import DISCOVER, OK, judge, rows, run, text

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def locked() -> Iterator[Path]:
    """A file that this process may not read, while the test runs."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    paths = folder / "data.csv", folder / "config.json"
    for path in paths:
        path.write_text(text(rows()))
        path.chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)  # root may read anything
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        shutil.rmtree(folder)


READERS = [["discover"], ["solve"], ["data", "check", "FILE"], ["train"]]


@pytest.mark.parametrize("words", READERS, ids=lambda words: words[0])
def test_no_permission(locked: Path, words: list[str]) -> None:
    name = "config.json" if words[0] == "train" else "data.csv"
    done = run(words, locked / name, None)
    judge(done, r"cannot be read: permission denied|Permission denied", words[0])


@pytest.mark.slow
def test_a_file_of_a_hundred_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    block = [f"{x:.12f},{y:.12f}" for x, y in zip(np.cos(0.01 * np.arange(50_000)),
                                                  -np.sin(0.01 * np.arange(50_000)))]  # fmt: skip
    with path.open("w") as file:
        file.write("t,x,y\n")
        for i in range(48):
            file.writelines(f"{i * 500 + 0.01 * k:.2f},{v}\n" for k, v in enumerate(block))
    assert path.stat().st_size > 80e6
    done = run(DISCOVER, path, tmp_path / "out")
    judge(done, OK, "large")
    assert "of 2,400,000 rows are used" in done.stderr


def test_too_many_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit holds while reading, in pieces: the rest of the file is never looked at."""
    from smnn.data import _text

    path = tmp_path / "data.csv"
    path.write_text(text([[f"{i / 10}", f"{i % 7}", f"{i % 5}"] for i in range(20_000)]))
    monkeypatch.setattr(_text, "MAX_CELLS", 10_000)
    monkeypatch.setattr(_text, "CHUNK_CELLS", 3_000)
    expected = r"has more than 10,000 values; expected fewer\. Name the columns"
    judge(run(DISCOVER, path, tmp_path / "out"), expected, "limit")
    judge(run(["data", "check", "FILE"], path, None), expected, "limit")


def test_many_rows_are_thinned_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["smnn.cli.discover.command"], "MOST_VALUES", 100)
    path = tmp_path / "data.csv"
    path.write_text(text(rows()))
    done = run(DISCOVER, path, tmp_path / "out")
    judge(done, OK, "thinned")
    assert "the first 50 of 64 rows are used" in done.stderr
    assert "the first 50 of 64 rows are used" in (tmp_path / "out" / "report.html").read_text()
