"""The estimator `FieldDiscovery`."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sympy
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from smnn._util.names import explained
from smnn.datasets.fields import IMAGINARY, Columns
from smnn.discovery import _storage
from smnn.discovery._equations import format_equations
from smnn.discovery._evaluate import DiscoveryWarning, VerdictWarning
from smnn.discovery._field import view
from smnn.discovery._field.data import AXES, FieldSet, gather_fields
from smnn.discovery._field.judge import judge, rivals_of
from smnn.discovery._field.pipeline import Options, find
from smnn.discovery._field.read import read_field
from smnn.discovery._field.refine import Found
from smnn.discovery._field.simulation import FieldSimulation, simulate_field
from smnn.discovery._field.terms import default_terms, finished, library_terms, right_hand_sides
from smnn.discovery._terms import HALF_WIDTH, Term, find_term
from smnn.discovery._verdict.verdict import RivalEquation, Verdict
from smnn.discovery._view.report import frame
from smnn.discovery.libraries import Library, parse_library
from smnn.equations import ExpressionError, Tape, parse_expression
from smnn.errors import DataError
from smnn.report.charts import Chart
from smnn.report.display import Displayable, Overview

Field = np.ndarray[Any, np.dtype[Any]]


def _evaluated(tape: Tape, slot: int, *coordinates: Any) -> Any:
    return tape.run(coordinates)[slot]


class FieldDiscovery(Displayable, BaseEstimator):
    """Partial differential equations from fields on a grid.

    The law is `u_t = sum_j xi_j phi_j(u, u_x, u_xx, ..., x)` with few terms. Noise is removed by a
    Wiener filter; terms are compared in the weak form; on periodic domains in one direction,
    coefficients and the modes of the initial field are then fitted to the data by maximum
    likelihood, and terms are selected again. Complex fields have complex laws: `i` is the imaginary
    unit and `ubar` the conjugate of `u`.

    Args:
        degree: Highest total degree of a candidate in fields and derivatives.
        order: Highest derivative; by default 4 in one direction and 2 in two.
        library: Candidate terms as a library in the names of the fields and their derivatives,
            such as `Expressions(["u*u_x", "u_xx", "sin(u)"])`, or its text form
            `"u*u_x,u_xx,sin(u)"`; replaces `degree`.
        functions: Coefficient functions by name, each a function of the coordinates or an
            expression in them such as `"x^2"`; every candidate is also multiplied by each of them.
        periodic: Whether the domain is periodic, or a list for each direction; `None` to detect it.
        forbidden: Terms to exclude, `{"u_t": ["u_xxx"]}`.
        threshold: Smallest contribution of a term, as a fraction of its right-hand side.
        penalty: Sparsity penalty relative to the information criterion; larger values keep fewer
            terms.
        refine: Whether to maximise the likelihood where that is possible.
        random_state: Seed of the resamples.
        verbose: Print progress to standard error, or pass it to this function.

    Attributes:
        verdict_: `Verdict`: whether the data support the law, overall and for each field.
        candidates_: `RivalEquation` list: other equations that explain the data about as well.
        fields_: Names of the F fields.
        targets_: Left-hand sides of the equations.
        terms_: The P candidate terms, each with a `name`.
        coefficients_: (F, P) coefficients, zero for terms that were not selected.
        deviation_: (F, P) standard deviations.
        intervals_: (F, P, 2) 90 % confidence intervals.
        inclusion_: (F, P) fraction of the resamples of the weak form that selected a term.
        noise_: (F,) standard deviation of the measurement noise.
        periodic_: Whether each direction is periodic.
        denoised_: Filtered runs (T, X[, Y], F); with a likelihood, solutions of the law.
        report_: Diagnostics: the method, why it was not the likelihood, misfit, seconds.
        warnings_: Text of the warnings that `fit` issued.

    Examples:
        >>> from smnn.datasets.fields import simulate_law
        >>> from smnn.discovery import FieldDiscovery
        >>> data = simulate_law("burgers")
        >>> found = FieldDiscovery().fit(data.noisy(0.1), t=data.t, x=data.x[0])
        >>> found.verdict_.level
        'established'
    """

    @explained
    def __init__(
        self,
        degree: int = 3,
        order: int | None = None,
        library: Library | str | None = None,
        functions: Mapping[str, Callable[..., Any] | str] | None = None,
        periodic: bool | Sequence[bool] | None = None,
        forbidden: Mapping[str, Sequence[str]] | None = None,
        threshold: float = 1e-3,
        penalty: float = 1.0,
        refine: bool = True,
        random_state: int = 0,
        verbose: bool | Callable[[str], None] = False,
    ) -> None:
        self.degree = degree
        self.order = order
        self.library = library
        self.functions = functions
        self.periodic = periodic
        self.forbidden = forbidden
        self.threshold = threshold
        self.penalty = penalty
        self.refine = refine
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        u: Any,
        *,
        t: Any = None,
        x: Any = None,
        y: Any = None,
        names: Sequence[str] | None = None,
    ) -> FieldDiscovery:
        """Find the law.

        Args:
            u: (T, X), (T, X, F), (T, X, Y) or (T, X, Y, F) values, real or complex; or a list of
                such arrays for several runs on the same grid. NaN marks missing values. With `y`,
                three axes are (T, X, Y). Or anything that `read_field` accepts, such as a path or
                an xarray object, its result, or a frame with times as index and places as columns.
            t: Times (T,), a step, or a list of either; by default 0, 1, 2 and so on.
            x: Coordinates (X,) or a step.
            y: Coordinates (Y,) or a step, for fields with two directions.
            names: Names of the fields; by default u, v, w.

        Raises:
            DataError: The arrays are inconsistent, too small, or have no finite values.
            ValueError: An option is invalid.

        Warns:
            VerdictWarning: The verdict is below `"tentative"`: the data do not support the law.
            DiscoveryWarning: Axes were reordered or points were left out.
        """
        self._check_options()
        data = self._gather(u, t, [x, y], names)
        self._set_terms(data.names, len(data.axes), np.iscomplexobj(data.runs[0]))
        excluded = self._excluded()
        options = Options(
            float(self.threshold), float(self.penalty), self.refine, self.random_state
        )
        from threadpoolctl import threadpool_limits

        with threadpool_limits(limits=1, user_api="blas"), np.errstate(all="ignore"):
            found = find(
                data, self.terms_, self._columns, lambda pair: pair not in excluded, options,
                self._progress,
            )  # fmt: skip
        self._set_result(data, found)
        self.warnings_ = [note for note in data.notes if "was found to be" not in note]
        for text in self.warnings_:
            warnings.warn(text, DiscoveryWarning, stacklevel=2)
        if self.verdict_.doubtful:
            self.warnings_.append(str(self.verdict_))
            warnings.warn(str(self.verdict_), VerdictWarning, stacklevel=2)
        return self

    def _gather(self, u: Any, t: Any, axes: list[Any], names: Sequence[str] | None) -> FieldSet:
        given = [t, *axes, names]
        if isinstance(u, str | Path | Mapping) or (
            hasattr(u, "dims") and all(one is None for one in given)
        ):
            u = read_field(u, periodic=self.periodic)
        if hasattr(u, "columns") and hasattr(u, "index"):  # a frame of times and places
            t = u.index.to_numpy() if t is None else t
            axes[0] = u.columns.to_numpy() if axes[0] is None else axes[0]
            u = u.to_numpy()
        if isinstance(u, FieldSet):
            if any(one is not None for one in given):
                raise DataError("t, x, y and names were given, but the data have their own.")
        else:
            planes = any(np.ndim(one) == 4 for one in (u if isinstance(u, list | tuple) else [u]))
            axes = axes if axes[1] is not None or planes else axes[:1]
            u = gather_fields(u, t, axes, names, self.periodic)
        return u.with_functions(self._functions(len(u.axes)))

    def _check_options(self) -> None:
        if not isinstance(self.degree, int) or not 1 <= self.degree <= 5:
            raise ValueError(f"degree={self.degree!r}; expected a whole number from 1 to 5.")
        if self.order is not None and not (isinstance(self.order, int) and 1 <= self.order <= 6):
            raise ValueError(f"order={self.order!r}; expected a whole number from 1 to 6, or None.")
        if self.library is not None and not isinstance(self.library, Library | str):
            raise ValueError(
                f"library={self.library!r}; expected a library such as "
                'Expressions(["u*u_x", "u_xx"]).'
            )
        if not 0 <= float(self.threshold) < 1:
            raise ValueError(f"threshold={self.threshold!r}; expected a fraction below 1.")
        if not float(self.penalty) > 0:
            raise ValueError(f"penalty={self.penalty!r}; expected a positive number.")

    def _functions(self, directions: int) -> dict[str, Callable[..., Any]]:
        """Coefficient functions as functions of the coordinates."""
        found: dict[str, Callable[..., Any]] = {}
        for name, given in (self.functions or {}).items():
            if callable(given):
                found[name] = given
                continue
            tape = Tape(AXES[:directions])
            slot = tape.add(parse_expression(given, AXES[:directions]))
            found[name] = functools.partial(_evaluated, tape, slot)
        return found

    def _set_terms(self, names: list[str], directions: int, is_complex: bool) -> None:
        self.fields_ = list(names)
        self._columns = Columns(tuple(names), AXES[:directions], is_complex)
        self.targets_ = self._columns.left_hand_sides()
        order = self.order or (4 if directions == 1 else 2)
        extra = [*AXES[:directions], *(self.functions or {})]
        if self.library is not None:
            library = parse_library(self.library) if isinstance(self.library, str) else self.library
            self.terms_: list[Term] = library_terms(library, self._columns, order, extra)
        else:
            factors = [sympy.Symbol(name) for name in (self.functions or {})]
            self.terms_ = default_terms(self._columns, self.degree, order, factors)

    def _excluded(self) -> set[tuple[int, int]]:
        found = set()
        for target, texts in (self.forbidden or {}).items():
            if target not in self.targets_:
                raise ValueError(
                    f"forbidden: got {target!r}; expected one of {', '.join(self.targets_)}."
                )
            for text in texts:
                term = find_term(text, self.terms_, self._names)
                found.add((self.targets_.index(target), term))
        return found

    @property
    def _names(self) -> list[str]:
        order = max(6, self.order or 0)
        return [IMAGINARY, *self._columns.axes, *(self.functions or {}), *self._columns.upto(order)]

    def _set_result(self, data: FieldSet, found: Found) -> None:
        F, P = len(self.fields_), len(self.terms_)
        self.coefficients_, self.deviation_ = np.zeros((F, P)), np.zeros((F, P))
        self.inclusion_ = np.zeros((F, P))
        self.verdict_: Verdict = judge(found, self.fields_)
        for pair, share in found.weak.inclusion.items():
            self.inclusion_[pair] = share
        nothing = [e.level == "nothing found" for e in self.verdict_.equations.values()]
        if found.likely is not None:
            triples = zip(found.likely.pairs, found.likely.xi, found.likely.deviation)
        else:
            weak = found.weak
            triples = ((pair, a, weak.deviation[pair]) for pair, a in weak.xi.items())  # type: ignore[assignment]
        for pair, a, s in triples:
            if not nothing[pair[0]]:
                self.coefficients_[pair], self.deviation_[pair] = a, s
        half = HALF_WIDTH * self.deviation_
        self.intervals_ = np.stack([self.coefficients_ - half, self.coefficients_ + half], -1)
        self.noise_, self.periodic_ = found.noise, list(data.periodic)
        self.axes_, self.times_ = data.axes, data.times
        self.data_ = [np.moveaxis(u, 0, -1) for u in data.runs]
        self.denoised_ = [np.moveaxis(u, 0, -1) for u in found.denoised]
        self.report_: dict[str, Any] = dict(found.diagnostics)
        self.report_["notes"] = data.notes
        if found.likely is not None and found.residuals:
            likely = found.likely
            self.denoised_ = view.solutions(data, found)
            self.report_ |= {
                "misfit": float(np.sqrt(likely.cost / likely.values)),
                "parts": len(likely.segments), "substeps": likely.substeps,
            }  # fmt: skip
        self.candidates_: list[RivalEquation] = rivals_of(found, self.fields_, self._equation_of)

    def _equation_of(self, terms: Mapping[int, float], f: int) -> str:
        row = np.zeros((1, len(self.terms_)))
        row[0, list(terms)] = list(terms.values())
        return str(format_equations([self.targets_[f]], self.terms_, row)[0])

    def _progress(self, text: str) -> None:
        if callable(self.verbose):
            self.verbose(text)
        elif self.verbose:
            print(text, file=sys.stderr, flush=True)

    def equations(self, format: str = "text", precision: int = 4) -> list[Any]:
        """Equations, one for each field.

        Args:
            format: `"text"`, `"latex"` or `"sympy"`.
            precision: Significant digits of the coefficients.
        """
        check_is_fitted(self, "coefficients_")
        if format == "sympy":
            right = self._right_hand_sides()
            return [sympy.Eq(sympy.Symbol(t), e) for t, e in zip(self.targets_, right)]
        found = format_equations(
            self.targets_, self.terms_, self.coefficients_, format=format, precision=precision
        )
        return [view.conjugates(text) for text in found] if format == "latex" else found

    def _right_hand_sides(self) -> list[sympy.Expr]:
        return right_hand_sides(
            self.terms_,
            [{int(p): float(row[p]) for p in np.flatnonzero(row)} for row in self.coefficients_],
        )

    def simulate(self, u0: Any, t: Any, *, rtol: float = 1e-7) -> FieldSimulation:
        """Solve the law on the periodic grid of the data.

        Args:
            u0: `(X[, Y][, F])` initial values on the grid of the fit.
            t: (T,) increasing times, the first of which is that of `u0`.
            rtol: Accuracy relative to the size of the solution.

        Returns:
            Values at the times that were reached, with a status.

        Raises:
            DataError: The domain is not periodic, or an argument has the wrong shape.
        """
        check_is_fitted(self, "coefficients_")
        functions = self._functions(len(self.axes_))
        return simulate_field(
            self._columns, self._right_hand_sides(), self.axes_, self.periodic_, functions, u0, t,
            rtol,
        )  # fmt: skip

    @explained
    def plot(self, ax: Any = None, *, names: str | Sequence[str] | None = None) -> Any:
        """Draw data, fit and residual over time and space with matplotlib.

        Args:
            ax: Three `Axes` for each field; by default a new figure.
            names: Names of the fields; by default all.

        Returns:
            The array of `Axes`.
        """
        check_is_fitted(self, "coefficients_")
        return view.plot(self, ax, [names] if isinstance(names, str) else names)

    def _overview(self) -> Overview:
        check_is_fitted(self, "coefficients_")
        return view.overview(self)

    def _charts(self, names: Sequence[str] | None) -> list[Chart]:
        return []

    def to_frame(self) -> Any:
        """The terms of the equations as a pandas `DataFrame`: coefficients and 90 % intervals."""
        check_is_fitted(self, "coefficients_")
        return frame(self)

    def report(self, path: str | Path, *, source: str = "") -> Path:
        """Write an HTML report: equations, verdict, data, fit and residuals.

        Args:
            path: File to write.
            source: Name of the data, for the title.
        """
        check_is_fitted(self, "coefficients_")
        return view.write_report(view.FieldReport(self, source), Path(path))

    def save(self, path: str | Path) -> Path:
        """Save the law as JSON, without the data.

        Raises:
            ValueError: A coefficient function is a Python function, which JSON cannot hold.
        """
        check_is_fitted(self, "coefficients_")
        for name, given in (self.functions or {}).items():
            if callable(given):
                raise ValueError(
                    f"functions: {name!r} is a Python function, which is not saved; expected an "
                    'expression such as "x^2".'
                )
        used = [int(p) for p in np.flatnonzero((self.coefficients_ != 0).any(0))]
        return _storage.write_model(
            path,
            {
                "kind": "field", "fields": self.fields_, "complex": self._columns.is_complex,
                "functions": dict(self.functions or {}), "periodic": self.periodic_,
                "axes": list(self.axes_), "equations": self.equations(precision=6),
                "terms": [str(self.terms_[p].symbolic) for p in used],
                "coefficients": self.coefficients_[:, used], "deviation": self.deviation_[:, used],
                "inclusion": self.inclusion_[:, used], "noise": self.noise_,
                "verdict": self.verdict_.to_dict(), "report": self.report_,
            },
        )  # fmt: skip

    @classmethod
    def load(cls, path: str | Path) -> FieldDiscovery:
        """Load a saved law, for simulation; it has the selected terms only.

        Raises:
            ModelFileError: The file is not a saved law.
        """
        record = _storage.read_model(path)
        if record.get("kind") != "field":
            raise _storage.ModelFileError(f"{path} is not a law that FieldDiscovery.save wrote.")
        try:
            names = _storage.texts(record, "fields")
            axes = [np.asarray(x, float) for x in record["axes"]]
            functions = {str(k): str(v) for k, v in (record.get("functions") or {}).items()}
            self = cls(functions=functions or None)
            self.fields_ = names
            self._columns = Columns(tuple(names), AXES[: len(axes)], bool(record["complex"]))
            self.targets_ = self._columns.left_hand_sides()
            texts = _storage.texts(record, "terms")
            known = self._names
            self.terms_ = finished([parse_expression(x, known) for x in texts], self._columns, ())
            self.verdict_ = Verdict.from_dict(record["verdict"])
            self.periodic_, self.axes_ = [bool(p) for p in record["periodic"]], axes
        except (KeyError, TypeError, ValueError, ExpressionError) as error:
            raise _storage.ModelFileError(f"{path} cannot be used: {error}") from None
        size = len(names), len(self.terms_)
        self.coefficients_ = _storage.matrix(record, "coefficients", size)
        self.deviation_ = _storage.matrix(record, "deviation", size)
        self.inclusion_ = _storage.matrix(record, "inclusion", size)
        self.noise_ = _storage.matrix(record, "noise", size[:1])
        half = HALF_WIDTH * self.deviation_
        self.intervals_ = np.stack([self.coefficients_ - half, self.coefficients_ + half], -1)
        self.report_, self.candidates_, self.warnings_ = record.get("report") or {}, [], []
        self.data_, self.denoised_, self.times_ = [], [], []
        return self
