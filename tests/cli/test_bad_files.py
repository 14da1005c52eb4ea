"""Every command that reads a file, with every file that people bring: a clear word or a result."""

import codecs
import os
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from smnn.cli._app import app

runner = CliRunner()
N = 64
SCREEN = 24
"""Lines of an error that fit on one screen."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ---------------------------------------------------------------- the files


def rows(n: int = N) -> list[list[str]]:
    """A circle, slowly damped: x' = y, y' = -x, nearly."""
    t = 0.1 * np.arange(n)
    x, y = np.exp(-0.02 * t) * np.cos(t), -np.exp(-0.02 * t) * np.sin(t)
    return [[f"{v:.6f}" for v in row] for row in zip(t, x, y)]


def text(body: list[list[str]], between: str = ",", names: bool = True) -> str:
    head = [["t", "x", "y"]] if names else []
    return "\n".join(between.join(row) for row in [*head, *body]) + "\n"


def changed(column: int, value: str, every: int = 1) -> str:
    body = rows()
    for i in range(5, len(body), every):
        body[i][column] = value
    return text(body)


def shuffled() -> str:
    body = rows()
    random.Random(0).shuffle(body)
    return text(body)


def write(content: str | bytes) -> Callable[[Path], None]:
    raw = content.encode() if isinstance(content, str) else content
    return lambda path: path.write_bytes(raw) and None  # type: ignore[func-returns-value]


COMMAS = text([[v.replace(".", ",") for v in row] for row in rows()], ";")
FILES: dict[str, Callable[[Path], None]] = {
    "missing": lambda path: None,
    "folder": lambda path: path.mkdir(),
    "empty": write(""),
    "blank": write("\n \n\n"),
    "header only": write("t,x,y\n"),
    "text among numbers": write(changed(1, "broken", 20)),
    "a column of text": write(changed(1, "word").replace("\n0.", "\n0.", 1)),
    "one row": write(text(rows(1))),
    "two rows": write(text(rows(2))),
    "constant column": write(text([[t, "5", y] for t, _, y in rows()])),
    "all constant": write(text([[t, "5", "7"] for t, _, _ in rows()])),
    "some times twice": write(text(sorted(rows() + rows(4), key=lambda row: float(row[0])))),
    "every time twice": write(text(sorted(rows() * 2, key=lambda row: float(row[0])))),
    "unsorted": write(shuffled()),
    "nan only": write(text([[t, "nan", "NaN"] for t, _, _ in rows()])),
    "times nan only": write(text([["nan", x, y] for _, x, y in rows()])),
    "some nan": write(changed(1, "nan", 9)),
    "inf": write(changed(1, "inf", 30)),
    "negative inf": write(changed(2, "-Infinity", 30)),
    "binary": write(random.Random(0).randbytes(4000)),
    "zeros": write(b"\0" * 1000),
    "utf-16": write(text(rows()).encode("utf-16")),
    "bom": write(codecs.BOM_UTF8 + text(rows()).encode()),
    "latin-1": write(text(rows()).replace("y", "é").encode("latin-1")),
    "decimal commas": write(COMMAS),
    "semicolons": write(text(rows(), ";")),
    "no names": write(text(rows(), names=False)),
    "ragged": write(text(rows()) + "6.4,1.0,2.0,3.0\n"),
    "short row": write(text(rows()) + "6.4\n"),
    "same name twice": write(text(rows()).replace("t,x,y", "t,x,x")),
    "prose": write("This is a letter.\nIt has, here and there, commas.\n" * 5),
    "html": write("<!doctype html><html><body><p>404</p></body></html>\n"),
    "terminal codes": write(text(rows()).replace("x", "\x1b[31mx\x1b[0m")),
}

OK = None
"""A result is expected."""
NOT_TEXT = r"is not text|not a table|cannot be read|not UTF|no column|holds? (no|neither)|has no"

# What each command has to say; `OK` where it has to go on. A pattern that is not listed for a file
# is taken from "*".
TABLES: dict[str, str | None] = {
    "missing": r"there is no file|no such file",
    "folder": r"is a folder|Is a directory|directory|folder",
    "empty": r"is empty|no columns|there are no rows",
    "blank": r"is empty|no columns|there are no rows",
    "header only": r"no rows",
    "text among numbers": r"line 7: got 'broken'; expected a number|broken",
    "a column of text": OK,
    "one row": r"1 row|few|at least|short",
    "two rows": r"2 rows|few|at least|short",
    "constant column": OK,
    "all constant": r"no column of numbers that changes in time|constant",
    "some times twice": OK,
    "every time twice": r"64 of 128 rows have the time of another row|times repeat",
    "unsorted": OK,
    "nan only": r"no column of numbers that changes in time|no column holds numbers",
    "times nan only": r"got no times|time",
    "some nan": OK,
    "inf": r"line 7: got 'inf'; expected a number|infinite|inf",
    "negative inf": r"line 7: got '-Infinity'; expected a number|infinite|inf",
    "binary": NOT_TEXT,
    "zeros": NOT_TEXT,
    "utf-16": OK,
    "bom": OK,
    "latin-1": OK,
    "decimal commas": OK,
    "semicolons": OK,
    "no names": OK,
    "ragged": r"line 66: got more than 3 fields|66",
    "short row": OK,
    "same name twice": r"'x' 2 times; expected each name once",
    "prose": r".",
    "html": r".",
    "terminal codes": r"is not text",
}
DISCOVER = ["discover", "--library", "poly:1", "--ensemble", "0", "--holdout", "0"]


def run(words: list[str], path: Path, out: Path | None) -> Any:
    where = ["--out", str(out)] if out is not None else []
    return runner.invoke(app, [*words[:1], *_target(words, path), *where])


def _target(words: list[str], path: Path) -> list[str]:
    rest = words[1:]
    return [w.replace("FILE", str(path)) for w in rest] if any("FILE" in w for w in rest) else [
        str(path), *rest,
    ]  # fmt: skip


def judge(done: Any, expected: str | None, what: str) -> None:
    """Either a result, or an error that fits on a screen and says what it should."""
    shown = f"{what}: code {done.exit_code}\n{done.output}"
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    assert "Traceback" not in done.output, shown
    assert "(--debug shows where)" not in done.output, shown  # nobody thought of it
    assert "\x1b" not in done.output, shown
    if expected is OK:
        assert done.exit_code == 0, shown
        return
    assert done.exit_code == 2, shown
    assert "error: " in done.stderr, shown
    assert len(done.stderr.splitlines()) <= SCREEN, shown
    assert re.search(expected, " ".join(done.stderr.split())), shown


@pytest.mark.parametrize("kind", FILES)
def test_discover(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data.csv"
    FILES[kind](path)
    done = run(DISCOVER, path, tmp_path / "out")
    expected = TABLES[kind]
    judge(done, expected, f"discover, {kind}")
    made = (tmp_path / "out" / "report.html").exists()
    assert made == (expected is OK)


@pytest.mark.parametrize("kind", FILES)
def test_check(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data.csv"
    FILES[kind](path)
    done = run(["data", "check", "FILE"], path, None)
    expected = TABLES[kind]
    judge(done, expected, f"data check, {kind}")
    if expected is OK:
        assert "smnn discover" in done.stdout


# `smnn solve` wants equations: every table is refused.
EQUATIONS = {
    "missing": r"there is no file .*data\.csv",
    "folder": r"is a folder; expected a text file of equations",
    "empty": r"is empty\. Expected lines such as",
    "blank": r"is empty\. Expected lines such as",
    "binary": r"is not text: it begins with",
    "zeros": r"is not text: it begins with",
    "terminal codes": r"is not text",
    "*": r"line 1: got '.*'; expected one = with something on both sides",
}


@pytest.mark.parametrize("kind", FILES)
def test_solve(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data.csv"
    FILES[kind](path)
    judge(run(["solve"], path, tmp_path / "out"), EQUATIONS.get(kind, EQUATIONS["*"]), kind)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_solve_reads_equations_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "system.txt"
    path.write_bytes(
        "# gedämpft\r\ny' = -y\r\ny(0) = 1\r\nt = 0 .. 1 step 0.1\r\n".encode(encoding)
    )
    judge(run(["solve"], path, tmp_path / "out"), OK, encoding)


# ---------------------------------------------------------------- settings, HDF5, NetCDF

OTHERS = [kind for kind in FILES if kind in (
    "missing", "folder", "empty", "blank", "header only", "binary", "zeros", "utf-16", "prose",
)]  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_train(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config.json"
    FILES[kind](path)
    expected = r"cannot read .*: (No such file|Is a directory)|is not JSON"
    judge(run(["train"], path, tmp_path / "out"), expected, kind)


@pytest.mark.parametrize("content", ["[]", "3", "{}", '{"task": 3}', '{"task": "none"}'])
def test_train_with_json_that_is_no_run(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    expected = r'does not name a task; it needs "task"|no task|none'
    judge(run(["train"], path, tmp_path / "out"), expected, content)


@pytest.mark.parametrize("kind", OTHERS)
def test_reproduce_kdv(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("h5py")
    path = tmp_path / "waves.h5"
    FILES[kind](path)
    words = ["reproduce", "kdv", "--pretrained", "--data", "FILE"]
    judge(run(words, path, tmp_path / "out"), r"there is no file|is a folder|HDF5|empty", kind)


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("name", ["sst", "scaling"])
def test_reproduce_with_a_grid(tmp_path: Path, name: str, kind: str) -> None:
    pytest.importorskip("h5netcdf")
    path = tmp_path / "grid.nc"
    FILES[kind](path)
    words = ["reproduce", name, "--data", "FILE"]
    expected = r"not a NetCDF file|No such file|there is no file|folder|[Dd]irectory|empty"
    judge(run(words, path, tmp_path / "out"), expected, kind)


@pytest.mark.parametrize("suffix", [".nc", ".npy", ".npz", ".json", ".parquet", ".xlsx", ".gz"])
@pytest.mark.parametrize("kind", ["empty", "binary", "header only"])
def test_names_that_promise_something_else(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"data{suffix}"
    FILES[kind](path)
    expected = r"is empty|cannot be read as|is not a gzip|not a NetCDF|is needed to read|no rows"
    judge(run(DISCOVER, path, tmp_path / "out"), expected, f"{kind} {suffix}")
    judge(run(["data", "check", "FILE"], path, None), expected, f"{kind} {suffix}")


def test_check_of_hdf5_that_is_no_wave(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["numbers"] = [1, 2, 3]
    done = run(["data", "check", "FILE"], tmp_path / "a.h5", None)
    judge(done, r"expected one of 'train'.*Only HDF5 files of KdV waves are known", "h5")


# ---------------------------------------------------------------- columns


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--time", "when"], r"time: data\.csv has no column 'when'.*Its columns: t, x, y"),
        (["--columns", "x,z"], r"columns: data\.csv has no column 'z'"),
        (["--series", "X"], r"series: data\.csv has no column 'X'; did you mean 'x'\?"),
        (["--columns", "x", "--time", "x"], r"'x' is named in columns and in time"),
    ],
)
@pytest.mark.parametrize("command", [["discover"], ["data", "check", "FILE"]], ids=["dis", "chk"])
def test_wrong_columns(tmp_path: Path, command: list[str], words: list[str], expected: str) -> None:
    path = tmp_path / "data.csv"
    path.write_text(text(rows()))
    judge(run([*command, *words], path, None), expected, str(words))


# ---------------------------------------------------------------- forecast


FORECAST = [kind for kind in FILES if TABLES[kind] is not OK]
FORECAST += ["utf-16", "bom", "decimal commas", "unsorted", "some nan"]


@pytest.mark.parametrize("kind", FORECAST)
def test_forecast(tmp_path: Path, kind: str) -> None:
    """It has readers of its own and may go on where `discover` stops; never without a word."""
    path = tmp_path / "data.csv"
    FILES[kind](path)
    words = ["forecast", "--horizon", "3", "--origins", "0", "--season", "none"]
    done = run(words, path, tmp_path / "out")
    if done.exit_code == 0:
        assert (tmp_path / "out" / "report.html").exists()
        assert "\x1b" not in done.stdout  # names from a file must not speak to the terminal
        judge(done, OK, kind)
        assert kind not in ("missing", "folder", "empty", "header only", "binary", "zeros", "prose")
    else:
        judge(done, r".", kind)


# ---------------------------------------------------------------- permissions and size


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
    judge(done, r"may not be read; change its permissions|Permission denied", words[0])


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
    from smnn.discovery import _tables_text

    path = tmp_path / "data.csv"
    path.write_text(text([[f"{i / 10}", f"{i % 7}", f"{i % 5}"] for i in range(20_000)]))
    monkeypatch.setattr(_tables_text, "MAX_CELLS", 10_000)
    monkeypatch.setattr(_tables_text, "CHUNK_CELLS", 3_000)
    expected = r"has more than 10,000 values; expected fewer\. Name the columns"
    judge(run(DISCOVER, path, tmp_path / "out"), expected, "limit")
    judge(run(["data", "check", "FILE"], path, None), expected, "limit")


def test_many_rows_are_thinned_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from smnn.cli import _discover_run

    monkeypatch.setattr(_discover_run, "MOST_VALUES", 100)
    path = tmp_path / "data.csv"
    path.write_text(text(rows()))
    done = run(DISCOVER, path, tmp_path / "out")
    judge(done, OK, "thinned")
    assert "the first 50 of 64 rows are used" in done.stderr
    assert "the first 50 of 64 rows are used" in (tmp_path / "out" / "report.html").read_text()
