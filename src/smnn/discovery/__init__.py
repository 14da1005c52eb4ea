"""From a table of numbers to the equations behind it."""

from smnn.data._tables import Table as Table
from smnn.data._tables import TableError as TableError
from smnn.data._tables import read_table as read_table
from smnn.discovery._estimator import Discovery as Discovery
from smnn.discovery._fit.neural import Neural as Neural
from smnn.discovery._fit.series import DataError as DataError
from smnn.discovery._storage import ModelFileError as ModelFileError
from smnn.discovery._terms.rules import Equal as Equal
from smnn.discovery._terms.rules import Negative as Negative
from smnn.discovery._terms.rules import Positive as Positive
from smnn.discovery.libraries import Custom as Custom
from smnn.discovery.libraries import Expressions as Expressions
from smnn.discovery.libraries import Library as Library
from smnn.discovery.libraries import LibraryError as LibraryError
from smnn.discovery.libraries import Polynomial as Polynomial
from smnn.discovery.libraries import Rational as Rational
from smnn.discovery.libraries import Trigonometric as Trigonometric
from smnn.discovery.libraries import parse_library as parse_library
from smnn.equations import ExpressionError as ExpressionError

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
