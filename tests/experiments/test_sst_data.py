"""Sea surface temperatures as they are shipped, and files in the same layout."""

from pathlib import Path

import numpy as np
import pytest

from smnn.datasets.sst import DataFormatError, monthly, nino, read_grid, read_nino, write_grid


def test_monthly_grid() -> None:
    grid = monthly()
    series = grid.series
    assert series.shape[1] == 6981  # cells that are always valid
    assert series.shape[0] == len(grid.time)
    assert np.isfinite(series).all()
    assert -2.5 < series.min() < 0
    assert 30 < series.max() < 40


def test_written_and_read_again(tmp_path: Path) -> None:
    grid = monthly()
    write_grid(grid, tmp_path / "grid.nc")
    again = read_grid(tmp_path / "grid.nc")
    np.testing.assert_allclose(again.series, grid.series, atol=0.006)
    np.testing.assert_array_equal(again.time, grid.time)


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
