"""The console script `smnn`. One file per command."""

from smnn.cli._app import app, main

__all__ = ["app", "main"]
