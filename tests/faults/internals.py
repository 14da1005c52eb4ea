"""Private parts of the package that these tests need, in one place."""

# ruff: noqa: F401
from smnn._util import files
from smnn._util.files import OutputError, prepare_output, write_atomically, writing
from smnn._util.machine import usable_device
from smnn.cli import app
from smnn.data import _formats as formats
from smnn.training import _checkpoint as checkpoint
from smnn.training import _data as sampling
from smnn.training import _processes as processes
