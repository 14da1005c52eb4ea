"""Every command that reads a file, with every file that people bring: a clear word or a result."""

from pathlib import Path

import pytest

from cli.brought_files import DISCOVER, FILES, OK, TABLES, judge, rows, run, text

pytestmark = pytest.mark.usefixtures("one_thread")


# ---------------------------------------------------------------- tables and equations


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
    readable = kind in ("one row", "two rows", "all constant")  # not enough for `smnn discover`
    judge(done, OK if readable else TABLES[kind], f"data check, {kind}")
    if done.exit_code == 0:
        assert ("smnn discover" in done.stdout.split("Next:")[1]) != readable


# `smnn solve` wants equations: every table is refused.
EQUATIONS = {
    "missing": r"cannot read .*data\.csv: No such file or directory; expected a text file of",
    "folder": r"data\.csv is a folder; expected a file\. It should contain equations",
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
