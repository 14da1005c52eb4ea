"""Discovery of differential equations from time series."""

from smnn.data import Table as Table
from smnn.data import TableError as TableError
from smnn.data import read_table as read_table
from smnn.discovery._constraints import Bounds as Bounds
from smnn.discovery._constraints import Equal as Equal
from smnn.discovery._constraints import Negative as Negative
from smnn.discovery._constraints import Positive as Positive
from smnn.discovery._equations import EquationModule as EquationModule
from smnn.discovery._estimator import Discovery as Discovery
from smnn.discovery._evaluate import DiscoveryWarning as DiscoveryWarning
from smnn.discovery._evaluate import HeldOutSeries as HeldOutSeries
from smnn.discovery._evaluate import HoldOutResult as HoldOutResult
from smnn.discovery._evaluate import ModelMisfitWarning as ModelMisfitWarning
from smnn.discovery._evaluate import VerdictWarning as VerdictWarning
from smnn.discovery._evaluate import evaluate as evaluate
from smnn.discovery._evaluate import first_rows as first_rows
from smnn.discovery._evaluate import hold_out as hold_out
from smnn.discovery._field.estimator import FieldDiscovery as FieldDiscovery
from smnn.discovery._field.read import holds_field as holds_field
from smnn.discovery._field.read import read_field as read_field
from smnn.discovery._field.shooting import FieldSimulation as FieldSimulation
from smnn.discovery._field.view import FieldReport as FieldReport
from smnn.discovery._fit.data import DataError as DataError
from smnn.discovery._fit.neural import Neural as Neural
from smnn.discovery._forecast import EquationForecast as EquationForecast
from smnn.discovery._groups import discover_groups as discover_groups
from smnn.discovery._storage import ModelFileError as ModelFileError
from smnn.discovery._terms import Constant as Constant
from smnn.discovery._verdict.verdict import EquationVerdict as EquationVerdict
from smnn.discovery._verdict.verdict import RivalEquation as RivalEquation
from smnn.discovery._verdict.verdict import Verdict as Verdict
from smnn.discovery._view.report import Report as Report
from smnn.discovery.libraries import Custom as Custom
from smnn.discovery.libraries import Exponential as Exponential
from smnn.discovery.libraries import Expressions as Expressions
from smnn.discovery.libraries import Harmonic as Harmonic
from smnn.discovery.libraries import Hill as Hill
from smnn.discovery.libraries import Library as Library
from smnn.discovery.libraries import LibraryError as LibraryError
from smnn.discovery.libraries import Logarithm as Logarithm
from smnn.discovery.libraries import Polynomial as Polynomial
from smnn.discovery.libraries import Power as Power
from smnn.discovery.libraries import Rational as Rational
from smnn.discovery.libraries import Trigonometric as Trigonometric
from smnn.discovery.libraries import parse_library as parse_library
from smnn.equations import ExpressionError as ExpressionError

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
