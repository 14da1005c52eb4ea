"""Tables that are not text: JSON, NumPy, NetCDF, and what pandas reads."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.written_tables import FEW, curve, written
from smnn.data import Table, TableError, read_table
from smnn.errors import MissingPackageError

pd = pytest.importorskip("pandas")


def same(table: Table) -> None:
    assert table.names in (["x", "y"], ["x2", "x3"])
    assert (table.times[0] / table.times[0][1]).tolist() == [0, 1, 2, 3, 4, 5]
    np.testing.assert_array_equal(table.values[0][:, 0], curve())


@pytest.mark.parametrize(
    "record",
    [
        {"t": list(range(FEW)), "x": curve(), "y": [1, 2, None, 4, 5, 7]},
        [{"t": i, "x": v, "y": i * i} for i, v in enumerate(curve())],
        {"columns": ["t", "x", "y"], "data": [[i, v, i * i] for i, v in enumerate(curve())]},
        {
            "columns": ["x", "y"],
            "index": [10 * i for i in range(FEW)],
            "data": [[v, i * i] for i, v in enumerate(curve())],
        },
        {
            c: dict(zip(map(str, range(FEW)), x))
            for c, x in {"t": range(FEW), "x": curve(), "y": range(FEW)}.items()
        },
        {str(10 * i): {"x": v, "y": i * i} for i, v in enumerate(curve())},
        {"by": "me", "data": [{"t": i, "x": v, "y": i * i} for i, v in enumerate(curve())]},
        {"by": "me", "t": list(range(FEW)), "x": curve(), "y": [1, 2, 3, 4, 5, 7]},
        [[i, v, i * i] for i, v in enumerate(curve())],
    ],
)
def test_json(tmp_path: Path, record: Any) -> None:
    same(read_table(written(tmp_path, json.dumps(record), "data.json")))


def test_json_lines_and_series(tmp_path: Path) -> None:
    rows = [{"t": i, "x": v, "y": i * i} for i, v in enumerate(curve())]
    same(read_table(written(tmp_path, "\n".join(map(json.dumps, rows)), "data.jsonl")))
    table = read_table(written(tmp_path, json.dumps({"a": rows, "b": rows}), "data.json"))
    assert table.series == ["a", "b"]


@pytest.mark.parametrize("form", [2, 3])
def test_zarr(tmp_path: Path, form: Any) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    path = tmp_path / "data.zarr"
    when = pd.date_range("2000-01-01", periods=FEW, freq="D")
    data = {"x": ("time", curve(), {"units": "K"}), "map": (("time", "lat"), np.zeros((FEW, 2)))}
    xarray.Dataset(data, coords={"time": when}).to_zarr(path, zarr_format=form, consolidated=False)
    table = read_table(path)
    assert (table.names, table.units, table.time_unit) == (
        ["x"], {"x": "K"}, "days since 2000-01-01"
    )  # fmt: skip
    np.testing.assert_array_equal(table.values[0][:, 0], curve())
    meta = path / "x" / (".zarray" if form == 2 else "zarr.json")
    record = json.loads(meta.read_text())
    record["filters" if form == 2 else "codecs"] = [{"id": "pickle", "name": "pickle"}]
    meta.write_text(json.dumps(record))
    with pytest.raises(TableError, match="holds pickled Python objects; expected numbers"):
        read_table(path)
    meta.write_text("{")
    with pytest.raises(TableError, match="is not JSON; is the Zarr store damaged"):
        read_table(path)


def test_zarr_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xarray")
    (tmp_path / "a.zarr").mkdir()
    with pytest.raises(TableError, match="is a folder; expected a file or a Zarr store"):
        read_table(tmp_path / "a.zarr")
    written(tmp_path / "a.zarr", '{"zarr_format": 2}', ".zgroup")
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(MissingPackageError, match="zarr is needed to read Zarr stores; pip inst"):
        read_table(tmp_path / "a.zarr")


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, t=np.arange(FEW), x=curve(), y=np.arange(FEW) ** 2)
    same(read_table(path))
    np.savez(path, t=np.arange(FEW), x=curve(), y=np.arange(FEW) ** 2, dt=0.1, about="run")
    same(read_table(path))
    np.savez(path, t=np.arange(FEW), X=np.random.default_rng(0).random((FEW, 2)))
    assert read_table(path).names == ["X1", "X2"]


def test_npy(tmp_path: Path) -> None:
    path = tmp_path / "data.npy"
    values = np.random.default_rng(0).random((2, FEW, 3))
    np.save(path, values)
    table = read_table(path)
    assert table.names == ["x1", "x2", "x3"]
    np.testing.assert_array_equal(table.values[1], values[1])
    np.save(path, values[0])
    np.testing.assert_array_equal(read_table(path).values[0], values[0])
    np.save(path, values[0, :, 0])
    assert read_table(path).values[0].shape == (FEW, 1)


def test_netcdf(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    path = tmp_path / "data.nc"
    when = pd.date_range("2000-01-01", periods=FEW, freq="D")
    data = {"x": ("time", curve()), "map": (("time", "lat"), np.zeros((FEW, 2)))}
    xarray.Dataset(data, coords={"time": when}).to_netcdf(path, engine="h5netcdf")
    table = read_table(path)
    assert table.names == ["x"]
    assert table.time_unit == "days since 2000-01-01"
    assert table.notes == ["left out, not a series along 'time': map ('time', 'lat')."]
    del data["x"]
    xarray.Dataset(data, coords={"time": when}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(
        TableError, match=r"expected variables along 'time' alone\. Select one place"
    ):
        read_table(path)


def save(path: Path, **arrays: Any) -> None:
    np.savez(path, **arrays) if path.suffix == ".npz" else np.save(path, arrays["a"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.json", "{", "cannot be read as .json: JSONDecodeError"),
        ("data.json", "3", "got JSON that is no table"),
        ("data.json", '{"t": [1, 2], "x": [1]}', r"got columns of different lengths \(t 2, x 1\)"),
        ("data.json", "[]", "got JSON that is no table"),
        ("data.npy", "junk", "cannot be read as .npy: ValueError"),
        ("data.npz", "junk", "cannot be read as .npz"),
        ("data.nc", "junk", r"data\.nc: not a NetCDF file"),
        ("data.npy", {"a": np.array(["a", "b"])}, "got an array of <U1 with shape"),
        ("data.npy", {"a": np.zeros((2, 2, 2, 2))}, r"with shape \(2, 2, 2, 2\); expected numbers"),
        (
            "data.npy",
            {"a": np.array([{}], object)},
            "data.npy holds Python objects; expected numbers",
        ),
        ("data.npz", {"a": np.zeros(3), "b": np.zeros((2, 2, 2))}, "got 'b' with shape"),
        ("data.npz", {"a": np.zeros(3), "b": np.zeros(4)}, r"different lengths \(a 3, b 4\)"),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, content: Any, message: str) -> None:
    path = tmp_path / name
    if isinstance(content, dict):
        save(path, **content)
    else:
        path.write_text(content)
    with pytest.raises(TableError, match=message):
        read_table(path)


@pytest.mark.parametrize(
    ("name", "package"),
    [("a.parquet", "pyarrow"), ("a.feather", "pyarrow"), ("a.xlsx", "openpyxl")],
)
def test_formats_that_need_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    for module in (package, "pyarrow.parquet", "pyarrow.feather"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPackageError, match=rf"{package} is needed to read \.\w+ files"):
        read_table(written(tmp_path, "PK", name))
