"""From a table of numbers to the equations behind it."""

from smnn.discovery._estimator import Discovery as Discovery
from smnn.discovery._expressions import ExpressionError as ExpressionError
from smnn.discovery._neural import Neural as Neural
from smnn.discovery._rules import Equal as Equal
from smnn.discovery._rules import Negative as Negative
from smnn.discovery._rules import Positive as Positive
from smnn.discovery._series import DataError as DataError
from smnn.discovery._storage import ModelFileError as ModelFileError
from smnn.discovery._tables import Table as Table
from smnn.discovery._tables import TableError as TableError
from smnn.discovery._tables import read_table as read_table
from smnn.discovery.libraries import Custom as Custom
from smnn.discovery.libraries import Expressions as Expressions
from smnn.discovery.libraries import Library as Library
from smnn.discovery.libraries import LibraryError as LibraryError
from smnn.discovery.libraries import Polynomial as Polynomial
from smnn.discovery.libraries import Rational as Rational
from smnn.discovery.libraries import Trigonometric as Trigonometric
from smnn.discovery.libraries import parse_library as parse_library

__all__ = [
    "Custom",
    "DataError",
    "Discovery",
    "Equal",
    "ExpressionError",
    "Expressions",
    "Library",
    "LibraryError",
    "ModelFileError",
    "Negative",
    "Neural",
    "Polynomial",
    "Positive",
    "Rational",
    "Table",
    "TableError",
    "Trigonometric",
    "parse_library",
    "read_table",
]
