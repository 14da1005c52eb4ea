"""Small files that require huge resources: refused in bounded time and memory."""

import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from internals import files, formats
from limits import limited

from smnn.data import TableError, read_table
from smnn.datasets.kdv import KdVFileError, read_file
from smnn.datasets.sst import DataFormatError, read_grid
from smnn.discovery import Discovery, ModelFileError
from smnn.discovery.libraries import Library, LibraryError
from smnn.equations import ExpressionError, parse_expression
from smnn.training import CheckpointError, load_task

MEMORY = 600 << 20


def refused(call: Callable[[], object], error: str, words: str) -> None:
    """Check that a call raises this error within the memory limit."""
    code, said = limited(call, memory=MEMORY)
    assert code == 1, said
    assert said.startswith(f"{error}: "), said
    assert words in said.splitlines()[0], said


def header_only(shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    return buffer.getvalue()


def test_array_header_larger_than_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(header_only((10**12, 3)) + bytes(240))
    refused(lambda: read_table(path), "DataError", "cannot be read as .npy")


def test_archive_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MAX_UNPACKED", 8 << 20)  # so that the test is short
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header_only((2_000_000,)) + bytes(16_000_000))
    assert path.stat().st_size < 1 << 20
    refused(lambda: read_table(path), "DataError", "bytes unpacked; expected at most")


def test_gzipped_line_without_end(tmp_path: Path) -> None:
    path = tmp_path / "x.csv.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b"t,x\n0,1\n1,2\n2,")
        for _ in range(300):
            file.write(b"1" * (1 << 20))
    refused(lambda: read_table(path), "DataError", "bytes in one line; expected fewer")


def test_gzipped_lines_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST", 32 << 20)  # so that the test is short
    path = tmp_path / "x.csv.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b"t,x\n0,1\n1,2\n2,4\n")
        for _ in range(64):
            file.write(b"# nothing\n" * 100_000)
    refused(lambda: read_table(path), "DataError", "bytes unpacked; expected fewer")


def test_too_many_columns(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({f"x{i}": [i] for i in range(100_000)}))
    refused(lambda: read_table(path), "DataError", "has 100,000 columns; expected at most")
    path = tmp_path / "x.csv"
    path.write_text(",".join(f"x{i}" for i in range(25_000)) + "\n" + "1," * 24_999 + "1\n")
    refused(lambda: read_table(path), "DataError", "columns; expected at most 10,000")


def test_one_series_per_row_takes_linear_time(tmp_path: Path) -> None:
    """Compared pair by pair, these labels would take minutes."""
    path = tmp_path / "x.csv"
    rows = [f"{i},{i % 7},a{i}" for i in range(40_000)]
    path.write_text("t,x,id\n" + "\n".join(rows) + "\n")
    with pytest.raises(TableError, match="no series with 3"):
        read_table(path, series="id")


def huge_dataset(path: Path, name: str, shape: tuple[int, ...]) -> None:
    """A dataset that is declared and compressed but never written: some kilobytes."""
    with h5py.File(path, "a") as file:
        file.create_dataset(name, shape, "f8", chunks=(1,) * len(shape), compression="gzip")


def test_netcdf_header_too_large_for_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    huge_dataset(path, "time", (10**12,))
    huge_dataset(path, "sst", (10**6, 10**3, 10**3))
    assert path.stat().st_size < 1 << 20
    for call, error in ((read_grid, "DataFormatError"), (read_table, "DataFormatError")):
        refused(lambda call=call: call(path), error, "values; expected at most")


def test_hdf5_header_too_large_for_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    huge_dataset(path, "train/pde_140-256", (10**6, 140, 256))
    for name in ("x", "t", "dx", "dt"):
        huge_dataset(path, f"train/{name}", (10**9,))
    refused(lambda: read_file(path), "KdVFileError", "values; expected at most")


def test_links_to_other_files_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(np.arange(1024.0).tobytes())
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("train")
        group.create_dataset("pde_2-2", (1, 2, 2), "f8", external=[(str(secret), 0, 32)])
        for name, shape in {"x": (1, 2), "t": (1, 2), "dx": (1,), "dt": (1,)}.items():
            group[name] = np.ones(shape)
    with pytest.raises(KdVFileError, match="lies in another file"):
        read_file(path)
    with h5py.File(tmp_path / "y.h5", "w") as file:
        file["train"] = h5py.ExternalLink(str(path), "train")
    with pytest.raises(KdVFileError, match="lies in another file"):
        read_file(tmp_path / "y.h5")
    with h5py.File(tmp_path / "z.nc", "w") as file:
        file.create_dataset("sst", (2, 2), "f8", external=[(str(secret), 0, 32)])
    with pytest.raises(DataFormatError, match="lies in another file"):
        read_grid(tmp_path / "z.nc")


def test_devices_and_pipes_are_refused(tmp_path: Path) -> None:
    """Reading them might not terminate."""
    zero, pipe = tmp_path / "zero.json", tmp_path / "pipe.json"
    zero.symlink_to("/dev/zero")
    os.mkfifo(pipe)
    for path in (zero, pipe):
        with pytest.raises(ModelFileError, match="is a device or a pipe; expected a file"):
            Discovery.load(path)
        with pytest.raises(TableError, match=r"empty|device or a pipe"):
            read_table(path)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "x.safetensors").symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match="is a device or a pipe"):
        load_task(folder / "x.safetensors")


@pytest.mark.parametrize(
    "text",
    [
        "10**10**10", "10^10^10", "9^9^9^9", "1e999", "x^1e9", "(" * 400 + "x" + ")" * 400,
        "-" * 400 + "x", "sin(" * 200 + "x" + ")" * 200, "x" * 1001, "((x^31)^31)^31",
        "2^2^2^2^2^2",
        "(" * 20 + "x+y" + ")^1.1" * 20, "1/(x-x)", "log(0)", "factorial(9)", "9!",
    ],
)  # fmt: skip
def test_expressions_of_unbounded_size(text: str) -> None:
    refused(lambda: parse_expression(text, ["x", "y"]), "ExpressionError", "")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("320.33333333332**0.333333333", 320.33333333332**0.333333333),
        ("(320.33333333332*x)**0.333333333", 640.66666666664**0.333333333),
        ("(" * 9 + "320.33*x" + ")^(11/12)" * 9, 640.66 ** ((11 / 12) ** 9)),
        ("(2^(1/3)*x)^(1/2)", (2 ** (4 / 3)) ** 0.5),
    ],
)
def test_roots_of_numbers(text: str, value: float) -> None:
    """Found by fuzzing: sympy wrote the first with integers of a billion digits, for minutes."""

    def work() -> None:
        found = parse_expression(text, ["x"]).subs("x", 2)
        assert abs(float(found) / value - 1) < 1e-12

    assert limited(work, memory=256 << 20) == (0, "")


def test_number_below_every_other_is_zero() -> None:
    """Its exact fraction would have as many digits as its exponent."""
    code, said = limited(lambda: parse_expression("1e-99999999 + x", ["x"]), memory=MEMORY)
    assert (code, said) == (0, "")


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "x.__class__", "().__class__", "lambda: x",
        "x if x else y",
        "f'{x}'", "eval('x')", "exec('x')", "open('x')", "x[0]", "x:=1", "x;y", "x and y", "{x}",
        "x@y", "x for x in y", "`x`.real", "import os", "sympify('x')", "Symbol('x')", "x\\ny",
        "ѕin(x)", "х", "ｘ", "𝑥", "１+x", "٣", "x²", "½", "∞", "sin（x）", "I", "oo", "nan", "E",
        "globals()", "x.y", "0x10", "1_000", "1j", "x!", "%x", "x//y", "~x", "x<y", "x==y",
    ],
)  # fmt: skip
def test_expressions_are_mathematics_only(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse_expression(text, ["x", "y"])


@pytest.mark.parametrize(
    "library",
    [
        {"kind": "polynomial", "degree": 20},
        {"kind": "product", "libraries": [{"kind": "polynomial", "degree": 20},
                                          {"kind": "union", "libraries": []}]},
        {"kind": "product", "libraries": [{"kind": "polynomial", "degree": 9}] * 9},
        {"kind": "trigonometric", "frequencies": list(range(1, 10_000))},
    ],
)  # fmt: skip
def test_libraries_of_unbounded_size(library: dict) -> None:
    made = Library.from_json(library)
    with pytest.raises(LibraryError, match="terms in 12 variables; expected at most"):
        made.terms([f"x{i}" for i in range(12)])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("id", "column 'id' names a series in 5 of 6 rows"),
        ("where", r"3 of 6 rows .* another row .* as series"),
    ],
)
def test_rows_without_a_series_label(tmp_path: Path, column: str, message: str) -> None:
    """Found by fuzzing: times repeat, and the column that could label series has gaps."""
    path = tmp_path / "x.csv"
    path.write_text(f"t,{column},x\n0,a,1\n1,a,2\n2,a,3\n0,b,4\n1,,5\n2,b,6\n")
    with pytest.raises(TableError, match=message):
        read_table(path)
    with pytest.raises(TableError, match=rf"column '{column}' has rows without a name"):
        read_table(path, series=column)
