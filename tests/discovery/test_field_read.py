"""Fields from files and labelled objects; a table stays a table."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smnn.discovery import read_field
from smnn.discovery._field.read import holds_field
from smnn.errors import DataError

T, X, Y = 20, 30, 25
RNG = np.random.default_rng(0)
U, V = RNG.normal(size=(2, T, X))
U += np.linspace(0, 20, X)  # not periodic
t, x, y = np.linspace(0, 2, T), np.linspace(-1, 1, X), np.linspace(5, 0, Y)


def saved(folder: Path, name: str, **arrays: Any) -> Path:
    path = folder / name
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".mat":
        pytest.importorskip("scipy.io").savemat(path, arrays)
    else:
        with pytest.importorskip("h5py").File(path, "w") as file:
            for key, values in arrays.items():
                file[key] = values
    return path


@pytest.mark.parametrize("name", ["a.npz", "a.mat", "a.h5"])
def test_arrays_are_matched_by_length(name: str, tmp_path: Path) -> None:
    path = saved(tmp_path, name, usol=U.T, t=t, x=x)
    assert holds_field(path)
    field = read_field(path)
    assert field.names == ["usol"]
    assert np.array_equal(field.runs[0][0], U)
    assert np.array_equal(field.times[0], t)
    assert np.array_equal(field.axes[0], x)
    assert field.summary().startswith(f"{name}: field usol; t 20 points from 0 to 2, step 0.1053; ")
    assert field.summary().endswith("not periodic; 0 % of the values missing.")


def test_meshes_complex_numbers_and_two_fields(tmp_path: Path) -> None:
    tt, xx = np.meshgrid(t, x)
    field = read_field(saved(tmp_path, "a.mat", u=U.T, v=V.T, T=tt, X=xx, dt=0.1, note="text"))
    assert field.names == ["u", "v"]
    assert np.array_equal(field.runs[0], [U, V])
    assert field.axes[0] == pytest.approx(x)
    real = read_field({"u": U + 1e-9j, "t": t, "x": x})
    assert real.runs[0].dtype == float
    assert any("imaginary" in note for note in real.notes)
    assert read_field({"u": U + 1j * V, "t": t, "x": x}).runs[0].dtype == complex


def test_matlab_7_3(tmp_path: Path) -> None:
    """Its arrays have the axes in reverse order, and complex numbers in two parts."""
    h5py = pytest.importorskip("h5py")
    square = np.zeros((T, T), [("real", "f8"), ("imag", "f8")])
    square["real"], square["imag"] = RNG.normal(size=(2, T, T))
    path = tmp_path / "a.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["u"], file["t"], file["x"] = square.T, t[:, None], np.arange(T)[None]
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file")
    field = read_field(path)
    assert np.array_equal(field.runs[0][0], square["real"] + 1j * square["imag"])
    assert np.array_equal(field.times[0], t)


def test_equal_lengths_are_noted() -> None:
    square = RNG.normal(size=(20, 20))
    field = read_field({"x": t, "u": square, "t": t})
    assert np.array_equal(field.runs[0][0], square)
    assert "taken to be (t, x)" in field.notes[0]


def test_netcdf(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    days = np.datetime64("2020-01-01") + np.arange(T)
    values = RNG.normal(size=(T, Y, X))
    data = xr.Dataset(
        {"sst": (("time", "lat", "lon"), values), "time_bnds": (("time", "nv"), U[:, :2]),
         "index": ("time", U[:, 0])},
        {"time": days, "lat": y, "lon": x},
    )  # fmt: skip
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    assert not holds_field(tmp_path / "a.nc")  # a series along time makes it a table
    assert holds_field(tmp_path / "a.nc", ["sst"])
    field = read_field(tmp_path / "a.nc")
    assert field.time_unit == "days since 2020-01-01"
    assert np.array_equal(field.times[0], np.arange(T))
    assert np.array_equal(field.runs[0][0], np.moveaxis(values, 1, 2)[..., ::-1])
    assert field.notes[:3] == ["left out: index.", "x is lon, y is lat.", "y was sorted."]
    data.drop_vars(["index"]).to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    assert holds_field(tmp_path / "b.nc")


def test_dimensions_of_runs_and_fields() -> None:
    xr = pytest.importorskip("xarray")
    values = RNG.normal(size=(2, X, T, 3))
    data = xr.DataArray(values, dims=("run", "x", "t", "component"), coords={"t": t, "x": x})
    field = read_field(data)
    assert len(field.runs) == 2
    assert field.names == ["u", "v", "w"]
    assert np.array_equal(field.runs[1], np.moveaxis(values[1], (2, 1), (0, 1)))


def test_tables_stay_tables(tmp_path: Path) -> None:
    assert not holds_field(saved(tmp_path, "a.npz", t=t, x=U[:, :3]))
    assert not holds_field(saved(tmp_path, "b.npz", a=t, b=t))
    assert not holds_field(tmp_path / "missing.npz")
    assert not holds_field(tmp_path / "table.csv")


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ({"u": U}, {}, r"no field was found; it has u \(20, 30\)"),
        ({"u": U, "a": t, "x": x}, {}, "none of the axes a, x is called t or time"),
        ({"u": U, "t": t, "x": x}, {"columns": ["v"]}, "there is no field 'v'"),
        ({"u": U, "t": t, "x": x}, {"time": "z"}, "there is no axis 'z'; expected one of t, x"),
        ({"u": RNG.normal(size=(9, 8, 10, 11)), "t": np.arange(9), "x": np.arange(8)}, {},
         "time and one or two directions"),
    ],
)  # fmt: skip
def test_refused(given: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_field(given, **options)


@pytest.mark.parametrize("name", ["a.npz", "a.mat", "a.h5", "a.nc"])
def test_damaged_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(DataError, match=name):
        read_field(tmp_path / name)
    with pytest.raises(DataError, match=f"there is no file .*; did you mean '{name}'"):
        read_field(tmp_path / f"b{name[1:]}")
    with pytest.raises(DataError, match="expected a file ending in"):
        read_field(saved(tmp_path, "c.npz", u=U).rename(tmp_path / "c.csv"))
