"""The console script `smnn`. One file per command."""

from smnn.cli._app import app as app
from smnn.cli._app import main as main

__all__ = ["app", "main"]
