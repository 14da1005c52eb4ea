"""Read tables, frames, arrays and grids as time series."""

from smnn.data._check import describe, describe_grid
from smnn.data._dataset import TimeSeriesData
from smnn.data._netcdf import DataFormatError, check_dataset, open_netcdf
from smnn.data._read import read, read_table, read_times
from smnn.data._values import sentinels as sentinels
from smnn.errors import DataError

Table = TimeSeriesData
TableError = DataError

__all__ = [
    "DataError", "DataFormatError", "Table", "TableError", "TimeSeriesData", "check_dataset",
    "describe", "describe_grid", "open_netcdf", "read", "read_table", "read_times",
]  # fmt: skip
