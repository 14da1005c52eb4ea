"""`smnn discover`: equations of tables, and of fields on a grid."""

from smnn.cli.discover.command import discover as discover

__all__ = ["discover"]
