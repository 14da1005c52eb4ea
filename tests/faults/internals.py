"""Private parts of the package that these tests need, in one place."""

# ruff: noqa: F401
from smnn._util import files
from smnn._util.files import (
    STALE,
    UNFINISHED,
    OutputError,
    prepare_output,
    write_atomically,
    writing,
)
from smnn._util.machine import usable_device
from smnn.cli import app
from smnn.data import _formats as formats
from smnn.data import _hdf5_probe as hdf5_probe
from smnn.data import _netcdf as netcdf
from smnn.datasets.kdv import _easy as kdv_easy
from smnn.datasets.kdv import _files as kdv_files
from smnn.discovery import _storage as storage
from smnn.training import _checkpoint as checkpoint
from smnn.training import _data as sampling
from smnn.training import _processes as processes
from smnn.training._config import digest_of
