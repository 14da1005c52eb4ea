"""Reading data: tables, grids and their times."""

from smnn.data._netcdf import DataFormatError as DataFormatError
from smnn.data._netcdf import open_netcdf as open_netcdf
from smnn.data._tables import Table as Table
from smnn.data._tables import TableError as TableError
from smnn.data._tables import read_table as read_table

__all__ = ["DataFormatError", "Table", "TableError", "open_netcdf", "read_table"]
