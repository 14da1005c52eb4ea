"""From a table of numbers to the equations behind it."""

from smnn.discovery._estimator import Discovery as Discovery
from smnn.discovery._neural import Neural as Neural
from smnn.discovery._rules import Equal as Equal
from smnn.discovery._rules import Negative as Negative
from smnn.discovery._rules import Positive as Positive
from smnn.discovery._series import DataError as DataError
from smnn.discovery._storage import ModelFileError as ModelFileError
from smnn.discovery.libraries import Custom as Custom
from smnn.discovery.libraries import Expressions as Expressions
from smnn.discovery.libraries import Polynomial as Polynomial
from smnn.discovery.libraries import Rational as Rational
from smnn.discovery.libraries import Trigonometric as Trigonometric
from smnn.discovery.libraries import parse_library as parse_library

__all__ = [
    "Custom",
    "DataError",
    "Discovery",
    "Equal",
    "Expressions",
    "ModelFileError",
    "Negative",
    "Neural",
    "Polynomial",
    "Positive",
    "Rational",
    "Trigonometric",
    "parse_library",
]
