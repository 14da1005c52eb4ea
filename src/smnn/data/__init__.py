"""Read tables, frames, arrays and grids as time series."""

from smnn.data._check import describe as describe
from smnn.data._check import describe_grid as describe_grid
from smnn.data._dataset import TimeSeriesData as TimeSeriesData
from smnn.data._netcdf import DataFormatError as DataFormatError
from smnn.data._netcdf import check_dataset as check_dataset
from smnn.data._netcdf import check_library as check_library
from smnn.data._netcdf import open_netcdf as open_netcdf
from smnn.data._read import read as read
from smnn.data._read import read_table as read_table
from smnn.data._read import read_times as read_times
from smnn.data._values import sentinels as sentinels
from smnn.errors import DataError as DataError

Table = TimeSeriesData
TableError = DataError

__all__ = [
    "DataError",
    "DataFormatError",
    "Table",
    "TableError",
    "TimeSeriesData",
    "check_dataset",
    "check_library",
    "describe",
    "describe_grid",
    "open_netcdf",
    "read",
    "read_table",
    "read_times",
]
