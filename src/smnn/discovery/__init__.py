"""Discovery of differential equations from time series."""

from smnn.data import Table, TableError, read_table
from smnn.discovery._constraints import Bounds, Equal, Negative, Positive
from smnn.discovery._equations import EquationModule
from smnn.discovery._estimator import Discovery
from smnn.discovery._evaluate import (
    DiscoveryWarning,
    HeldOutSeries,
    HoldOutResult,
    ModelMisfitWarning,
    VerdictWarning,
    evaluate,
    first_rows,
    hold_out,
)
from smnn.discovery._field.estimator import FieldDiscovery
from smnn.discovery._field.read import holds_field, read_field
from smnn.discovery._field.shooting import FieldSimulation
from smnn.discovery._field.view import FieldReport
from smnn.discovery._fit.data import DataError
from smnn.discovery._fit.neural import Neural
from smnn.discovery._forecast import EquationForecast
from smnn.discovery._groups import discover_groups
from smnn.discovery._storage import ModelFileError
from smnn.discovery._terms import Constant
from smnn.discovery._verdict.verdict import EquationVerdict, RivalEquation, Verdict
from smnn.discovery._view.report import Report
from smnn.discovery.libraries import (
    Custom,
    Exponential,
    Expressions,
    Harmonic,
    Hill,
    Library,
    LibraryError,
    Logarithm,
    Polynomial,
    Power,
    Rational,
    Trigonometric,
    parse_library,
)
from smnn.equations import ExpressionError

__all__ = [
    "Bounds",
    "Constant",
    "Custom",
    "DataError",
    "Discovery",
    "DiscoveryWarning",
    "Equal",
    "EquationForecast",
    "EquationModule",
    "EquationVerdict",
    "Exponential",
    "ExpressionError",
    "Expressions",
    "FieldDiscovery",
    "FieldReport",
    "FieldSimulation",
    "Harmonic",
    "HeldOutSeries",
    "Hill",
    "HoldOutResult",
    "Library",
    "LibraryError",
    "Logarithm",
    "ModelFileError",
    "ModelMisfitWarning",
    "Negative",
    "Neural",
    "Polynomial",
    "Positive",
    "Power",
    "Rational",
    "Report",
    "RivalEquation",
    "Table",
    "TableError",
    "Trigonometric",
    "Verdict",
    "VerdictWarning",
    "discover_groups",
    "evaluate",
    "first_rows",
    "hold_out",
    "holds_field",
    "parse_library",
    "read_field",
    "read_table",
]
