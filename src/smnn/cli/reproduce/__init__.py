"""`smnn reproduce`: one command for each experiment, made from the fields of its `Config`."""

from smnn.cli.reproduce.command import app as app

__all__ = ["app"]
