"""Packaged sea surface temperatures, files in the same layout, standardization, neighbours."""

from pathlib import Path

import numpy as np
import pytest
import xarray
from hypothesis import given, settings
from hypothesis import strategies as st

from smnn.datasets.sst import (
    DataFormatError,
    monthly,
    neighbours,
    nino,
    read_grid,
    read_nino,
    standard,
)


def test_monthly_grid() -> None:
    grid = monthly()
    series = grid.series
    assert series.shape[1] == 6981  # cells that are always valid
    assert series.shape[0] == len(grid.time)
    assert np.isfinite(series).all()
    assert -2.5 < series.min() < 0
    assert 30 < series.max() < 40


def test_nino() -> None:
    record = nino()
    assert len(record.time) > 1500
    assert (np.diff(record.time.astype("datetime64[D]")).astype(int) == 7).all()


def test_wrong_files(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    path.write_text("no grid")
    with pytest.raises(DataFormatError):
        read_grid(path)
    with pytest.raises(DataFormatError):
        read_nino(path)


def weekly_file(folder: Path, *, engine: str, counts: np.ndarray) -> Path:
    """A file like `sst.wkmean.1990-present.nc`: int16 in hundredths, offset, days since 1800."""
    T = len(counts)
    about = {
        "units": "degC", "scale_factor": np.float32(0.01), "add_offset": np.float32(5.0),
        "missing_value": np.int16(32767), "dataset": "NOAA Optimum Interpolation (OI) SST V2",
    }  # fmt: skip
    lat, lon = np.arange(89.5, -90, -60), np.arange(0.5, 360, 90)
    data = xarray.Dataset(
        {"sst": (("time", "lat", "lon"), counts, about)},
        coords={
            "time": ("time", 69395.0 + 7 * np.arange(T), {"units": "days since 1800-1-1 00:00:00"}),
            "lat": ("lat", lat.astype(np.float32), {"units": "degrees_north"}),
            "lon": ("lon", lon.astype(np.float32), {"units": "degrees_east"}),
        },
    )
    path = folder / "sst.wkmean.1990-present.nc"
    data.to_netcdf(path, engine=engine, encoding={"sst": {"_FillValue": None}})
    return path


def mask_file(folder: Path, mask: np.ndarray, lat: np.ndarray, lon: np.ndarray) -> Path:
    """A file like `lsmask.nc`: 1 over ocean, with one time."""
    data = xarray.Dataset(
        {"mask": (("time", "lat", "lon"), mask[None].astype(np.int16))},
        coords={"time": [0], "lat": lat, "lon": lon},
    )
    path = folder / "lsmask.nc"
    data.to_netcdf(path, engine="scipy")
    return path


@pytest.mark.parametrize("engine", ["scipy", "h5netcdf"])
def test_weekly_layout_is_read_exactly(tmp_path: Path, engine: str) -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(-180, 3200, (5, 3, 4)).astype(np.int16)
    path = weekly_file(tmp_path, engine=engine, counts=counts)
    grid = read_grid(path)
    np.testing.assert_array_equal(
        np.rint((grid.values - 5) * 100).astype(np.int16), counts
    )  # all counts are recovered
    assert grid.values.dtype == np.float32
    assert str(grid.time[0])[:10] == "1989-12-31"
    assert (np.diff(grid.time) == np.timedelta64(7, "D")).all()
    assert grid.ocean.all()  # values over land cannot be recognized without the mask
    mask = np.ones((3, 4), bool)
    mask[1, 2] = False
    masked = read_grid(path, mask_file(tmp_path, mask, grid.lat, grid.lon))
    np.testing.assert_array_equal(masked.ocean, mask)
    assert np.isnan(masked.values[:, 1, 2]).all()
    assert masked.series.shape == (5, 11)


def test_missing_value_is_no_ocean(tmp_path: Path) -> None:
    counts = np.full((4, 3, 4), 1234, np.int16)
    counts[2, 0, 1] = 32767
    grid = read_grid(weekly_file(tmp_path, engine="scipy", counts=counts))
    assert not grid.ocean[0, 1]
    assert grid.ocean.sum() == 11
    assert np.isnan(grid.values[2, 0, 1])


def test_mask_of_another_grid(tmp_path: Path) -> None:
    path = weekly_file(tmp_path, engine="scipy", counts=np.zeros((2, 3, 4), np.int16))
    other = mask_file(tmp_path, np.ones((2, 2), bool), np.array([0.0, 1]), np.array([0.0, 1]))
    with pytest.raises(DataFormatError, match="not that of the temperatures"):
        read_grid(path, other)


def test_variable_that_is_not_there(tmp_path: Path) -> None:
    path = weekly_file(tmp_path, engine="scipy", counts=np.zeros((2, 3, 4), np.int16))
    with pytest.raises(DataFormatError, match="no variable 'ice'; it has sst"):
        read_grid(path, variable="ice")


class TestStandards:
    time = (np.datetime64("2000-01") + np.arange(120)).astype("datetime64[ns]")

    def test_future_values_are_not_used(self) -> None:
        x = np.random.default_rng(0).normal(size=(120, 5)) + 3
        for how in ("global", "anomaly"):
            spoiled = x.copy()
            spoiled[96:] = np.nan
            a, b = (standard(v, self.time, 96, how) for v in (x, spoiled))
            np.testing.assert_array_equal(a.offset, b.offset)
            np.testing.assert_array_equal(a.scale, b.scale)
            np.testing.assert_allclose(a.undo(a.apply(x)), x)

    def test_global_standardization(self) -> None:
        x = np.random.default_rng(0).normal(size=(120, 5)) * np.arange(1, 6)
        done = standard(x, self.time, 96).apply(x)[:96]
        assert done.mean() == pytest.approx(0)
        assert done.std() == pytest.approx(1)

    def test_anomalies_have_no_season(self) -> None:
        season = np.cos(2 * np.pi * np.arange(120) / 12)[:, None]
        x = season * [3.0, 5.0] + np.random.default_rng(1).normal(size=(120, 2))
        done = standard(x, self.time, 120, "anomaly").apply(x)
        assert abs((done * season).mean(0)).max() < 0.02
        np.testing.assert_allclose(done.std(0), 1)

    def test_constant_series(self) -> None:
        x = np.stack([np.full(120, -1.8), np.random.default_rng(1).normal(size=120)], 1)
        done = standard(x, self.time, 120, "anomaly").apply(x)
        assert np.isfinite(done).all()
        assert abs(done[:, 0]).max() < 1e-6

    def test_refusals(self) -> None:
        x = np.zeros((120, 2))
        with pytest.raises(ValueError, match="expected 2 to 120"):
            standard(x, self.time, 1)
        with pytest.raises(ValueError, match="'global' or 'anomaly'"):
            standard(x, self.time, 96, "local")


@given(
    st.integers(1, 6).flatmap(lambda A: st.tuples(st.just(A), st.integers(3, 9))),
    st.integers(0, 2**32 - 1),
    st.integers(1, 8),
)
@settings(max_examples=60, deadline=None)
def test_neighbours(shape: tuple[int, int], seed: int, reach: int) -> None:
    """Comparison with all pairs: ocean, same row, close on the circle, not the same cell."""
    reach = min(reach, shape[1] - 1)
    rng = np.random.default_rng(seed)
    ocean = rng.random(shape) < 0.7
    found = neighbours(ocean, reach)
    places = np.argwhere(ocean)
    for i, (a, o) in enumerate(places):
        expected = {
            j
            for j, (b, p) in enumerate(places)
            if a == b and j != i and min((o - p) % shape[1], (p - o) % shape[1]) <= reach
        }
        partners = found.partner[found.start[i] : found.start[i + 1]].tolist()
        assert sorted(partners) == sorted(expected)
        assert (i in found.paired) == bool(expected)


def test_reach() -> None:
    with pytest.raises(ValueError, match="less than a full circle"):
        neighbours(np.ones((2, 4), bool), 4)


def test_maps_keep_places() -> None:
    grid = monthly()
    back = grid.on_grid(grid.series[0])
    np.testing.assert_array_equal(back[grid.ocean], grid.series[0])
    assert np.isnan(back[~grid.ocean]).all()
    with pytest.raises(ValueError, match="expected 6981, the ocean cells"):
        grid.on_grid(np.zeros(5))
