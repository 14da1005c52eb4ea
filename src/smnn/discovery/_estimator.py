"""The estimator `Discovery`."""

from __future__ import annotations

import functools
import inspect
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from smnn._util.names import check_arguments, explained
from smnn.data import Table, read
from smnn.discovery import _storage
from smnn.discovery._arrays import Array
from smnn.discovery._candidates import affordable, best_library, best_order, libraries_for
from smnn.discovery._constraints import Constraint, make_rules
from smnn.discovery._equations import EquationModule, format_equations
from smnn.discovery._evaluate import DiscoveryWarning, VerdictWarning
from smnn.discovery._fit.data import DataError, FitInput, FitResult, Nodes, gather, opened
from smnn.discovery._fit.model import LINKS, OdeModel, simulate
from smnn.discovery._fit.pipeline import discover
from smnn.discovery._fit.smoothing import smooth
from smnn.discovery._forecast import EquationForecast, continue_equations, simulate_draws
from smnn.discovery._open.system import discover_open
from smnn.discovery._terms import HALF_WIDTH, CompiledTerms, Constant, Term, compile_terms
from smnn.discovery._verdict.verdict import ESTABLISHED, LEVELS, RivalEquation, Verdict, judge
from smnn.discovery._view import report as view
from smnn.discovery._view.charts import fit_charts, time_axis
from smnn.discovery.libraries import TIME, Library, Polynomial, library_of, open_library
from smnn.equations import OverBudget, budget
from smnn.report.charts import Chart
from smnn.report.display import Displayable, Overview

if TYPE_CHECKING:
    from smnn.discovery._evaluate import HoldOutResult
    from smnn.discovery._fit.neural import Neural

CLEARLY = 6.0  # Gain in evidence, in nats, of constants inside terms that is required
MOST_COLUMNS = 4  # Largest number of states and inputs for which they are tried by default
FEWEST_VALUES = 40  # Smallest number of values of each variable for that
METHODS = ("auto", "regression", "refine", "neural")


@dataclass
class Fitted:
    """A fit of equations of an order with a library, and its verdict."""

    library: Library
    order: int
    result: FitResult

    def __post_init__(self) -> None:
        began = time.perf_counter()
        self.verdict, self.rivals = judge(self.result)
        seconds = self.result.diagnostics.setdefault("seconds", {})
        seconds["verdict"] = round(time.perf_counter() - began, 4)

    def record(self) -> dict[str, Any]:
        """What was tried, as plain data."""
        return {
            "library": str(self.library), "order": self.order, "verdict": self.verdict.level,
            "terms": int(np.count_nonzero(self.result.Xi)),
            "evidence": self.result.diagnostics.get("evidence"),
        }  # fmt: skip


def better_of(first: Fitted, other: Fitted) -> Fitted:
    """The other fit, if its evidence and its verdict are better."""
    gain = other.result.diagnostics["evidence"] - first.result.diagnostics["evidence"]
    ranks = [LEVELS.index(one.verdict.level) for one in (other, first)]
    return other if gain > CLEARLY and ranks[0] <= ranks[1] else first


def open_terms_suit(nodes: Nodes, order: int) -> bool:
    """Whether data are few enough columns, and enough rows, for constants inside terms."""
    columns = order * len(nodes.names) + len(nodes.inputs)
    return columns <= MOST_COLUMNS and int(nodes.seen.sum(0).min()) >= FEWEST_VALUES


class Discovery(Displayable, BaseEstimator):
    """Sparse identification of differential equations from time series.

    The equations are `x^(order) = g(sum_j xi_j phi_j(x, x', ..., inputs))` with few terms.

    Args:
        library: Candidate terms: a library, its text form such as `"poly:2,trig"`, or `None` for
            polynomials of degree 2 (degree 3 for a single variable or an order above one). If their
            equations do not hold, degree 3 and degree 2 with sines and cosines are tried, and if
            the verdict is not `"established"`, terms with constants inside (`"open"`).
        order: Order of the equations, 1 to 4. Above one, only positions need to be measured.
            `"auto"` or `None` tries second order if first-order equations do not hold.
        method: `"refine"` fits states and coefficients jointly, `"regression"` is faster and less
            accurate, `"neural"` trains networks, `"auto"` is `"refine"`.
        threshold: Smallest contribution of a term, as a fraction of its right-hand side.
        penalty: Sparsity penalty relative to the extended Bayesian information criterion; larger
            values keep fewer terms.
        ensemble: Number of bootstrap resamples for `inclusion_` and the intervals; 0 to skip.
        fixed: Known coefficients, `{"x'": {"y": 10.0}}` or `{"x'": "10*y"}`.
        forbidden: Terms to exclude, `{"x'": ["z", "x^2"]}`.
        constraints: `Positive`, `Negative` and `Equal` constraints on coefficients.
        link: Link function around the sum of terms: tanh, exp, sigmoid, softplus, sin; or `None`.
        neural: Options of `method="neural"`: a `Neural`, or a dictionary of its arguments.
        random_state: Seed of the random number generator.
        verbose: Print progress to standard error, or pass it to this function.

    Attributes:
        verdict_: `Verdict`: whether the data support the equations, overall and for each variable.
        candidates_: `RivalEquation` list: other equations that explain the data about as well.
        variables_: Names of the V variables.
        state_names_: Names of the states: variables, and their derivatives below the order.
        targets_: Left-hand sides of the equations.
        order_: Order of the equations.
        library_: Library of the candidate terms.
        terms_: The P candidate terms, each with a `name`.
        constants_: `Constant` by name: the fitted constants inside the terms.
        coefficients_: (V, P) coefficients, zero for terms that were not selected.
        deviation_: (V, P) standard deviations.
        intervals_: (V, P, 2) 90 % confidence intervals.
        inclusion_: (V, P) fraction of the resamples that selected a term, or `None`: the stability
            of the selection, not the probability that the term is right.
        noise_: (V,) standard deviation of the measurement noise.
        states_: Fitted states (T, V order) of every series.
        times_: Times of every series.
        table_: The data that were fitted, as a `Table`; `None` for a loaded model.
        report_: Diagnostics: seconds per stage, levels of the joint fit, whether equations hold,
            and significant terms whose share is below `threshold` (`"weak_terms"`).
        warnings_: Text of the warnings that `fit` issued.
    """

    @explained
    def __init__(
        self,
        library: Library | str | None = None,
        order: int | str | None = 1,
        method: str = "auto",
        threshold: float | None = None,
        penalty: float = 1.0,
        ensemble: int = 20,
        fixed: Mapping[str, Mapping[str, float] | str] | None = None,
        forbidden: Mapping[str, Sequence[str]] | None = None,
        constraints: Sequence[Constraint] | None = None,
        link: str | None = None,
        neural: Neural | Mapping[str, Any] | None = None,
        random_state: int | None = 0,
        verbose: bool | Callable[[str], None] = False,
    ) -> None:
        self.library = library
        self.order = order
        self.method = method
        self.threshold = threshold
        self.penalty = penalty
        self.ensemble = ensemble
        self.fixed = fixed
        self.forbidden = forbidden
        self.constraints = constraints
        self.link = link
        self.neural = neural
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        t: Any = None,
        inputs: Any = None,
        feature_names: Sequence[str] | None = None,
        **reading: Any,
    ) -> Discovery:
        """Find the equations.

        Args:
            X: (T, V) array or tensor, or a list of these for several series; a `Table`, which
                includes the following arguments; a data frame, a path, or anything else that
                `smnn.data.read` accepts. NaN marks missing values.
            y: Ignored; present for scikit-learn compatibility.
            t: Times (T,), a step, or a list of either; or the name of a column of X. The default is
                the time of the frame or file, otherwise a step of one.
            inputs: (T, inputs) external inputs without missing values, or a list of these; or names
                of columns of X.
            feature_names: Names of the variables.
            **reading: How to read a file or frame: `time`, `series`, `columns`, `dayfirst`, `na`
                and the other arguments of `smnn.data.read`.

        Raises:
            DataError: If the data are inconsistent or too few.
            ValueError: If an option is invalid.

        Warns:
            VerdictWarning: If the verdict is below `"tentative"`: the data do not support the
                equations.
            DiscoveryWarning: If outliers or candidate terms were left out, the order was changed,
                or the data contradict a fixed coefficient.
        """
        self._check_options()
        _check_kind(X)
        known = [name for name in inspect.signature(read).parameters if name != "source"]
        check_arguments("Discovery.fit", reading, ["X", "t", "inputs", "feature_names", *known])
        X, t, inputs, feature_names = opened(X, t, inputs, feature_names, **reading)
        nodes = gather(X, t, inputs, feature_names)
        _check_distinct(nodes.names, nodes.inputs)
        with _one_blas_thread():
            if isinstance(self.order, int):
                order, (library, result) = self.order, self._fit_order(nodes, self.order)
            else:
                second = not self._names_terms
                order, library, result = best_order(nodes, self._fit_order, second)
            found = self._escalated(nodes, Fitted(library, order, result))
        result = found.result
        self._set_equations(found.library, found.order, nodes.names, nodes.inputs, result.terms)
        self._set_result(nodes, result)
        self.table_: Table | None = X if isinstance(X, Table) else _table_of(nodes, t is not None)
        self.verdict_, self.candidates_ = found.verdict, found.rivals
        self.warnings_ = list(result.warnings)
        for text in result.warnings:
            warnings.warn(text, DiscoveryWarning, stacklevel=2)
        if self.verdict_.doubtful:
            self.warnings_.append(str(self.verdict_))
            warnings.warn(str(self.verdict_), VerdictWarning, stacklevel=2)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _escalated(self, nodes: Nodes, found: Fitted) -> Fitted:
        """The fit, or a better one with constants inside terms if its equations are in doubt."""
        tried = [found]
        suited = (
            self.library is None and self.method in ("auto", "refine") and not self._names_terms
        )
        if suited and found.verdict.level != ESTABLISHED and open_terms_suit(nodes, found.order):
            orders = [found.order]
            if not isinstance(self.order, int) and found.order == 1 and len(nodes.names) <= 2:
                orders.append(2)
            for order in orders:
                library = Polynomial(2) + open_library()
                self._progress("constants inside terms")
                try:
                    other = self._fit_library(order, nodes, library, True)
                except DataError:
                    continue
                tried.append(Fitted(library, order, other))
                found = better_of(found, tried[-1])
                if found.verdict.level == ESTABLISHED:
                    break
        found.result.diagnostics["tried"] = [one.record() for one in tried]
        return found

    @property
    def _names_terms(self) -> bool:
        """Whether options refer to terms of the default library."""
        return bool(self.fixed or self.forbidden or self.constraints)

    def _fit_order(self, nodes: Nodes, order: int) -> tuple[Library, FitResult]:
        """Fit equations of an order with the best of the candidate libraries."""
        V = len(nodes.names)
        columns = order * V + len(nodes.inputs)
        libraries = libraries_for(self.library, columns, order)
        if self._names_terms or self.method not in ("auto", "refine"):
            libraries = libraries[:1]
        libraries = affordable(libraries, columns, V, int(nodes.seen.sum()))
        return best_library(libraries, nodes, functools.partial(self._fit_library, order))

    def _fit_library(self, order: int, nodes: Nodes, library: Library, thorough: bool) -> FitResult:
        """Fit equations of an order with a library."""
        columns = [*_state_names(nodes.names, order), *nodes.inputs]
        terms = library.terms(columns)
        if _explicit_time(terms, columns):
            nodes, columns = nodes.with_time(), [*columns, TIME]
        rules, fixed = make_rules(
            [v + "'" * order for v in nodes.names],
            terms,
            columns,
            fixed=self.fixed,
            forbidden=self.forbidden,
            constraints=self.constraints,
            threshold=1e-3 if self.threshold is None else float(self.threshold),
            strength=float(self.penalty),
        )
        link = LINKS[self.link] if self.link else None
        data = FitInput(nodes, compile_terms(terms, columns), order, rules, fixed, link)
        rng = np.random.default_rng(self.random_state)
        if any(term.constants for term in terms):
            if self.method not in ("auto", "refine"):
                raise ValueError(
                    f"method={self.method!r} does not fit constants inside terms; expected "
                    "method='refine'."
                )
            return discover_open(data, ensemble=self.ensemble, rng=rng, progress=self._progress)
        if self.method == "neural":
            from smnn.discovery._fit.neural import discover_neurally

            settings = _neural_settings(self.neural)
            return discover_neurally(data, settings=settings, rng=rng, progress=self._progress)
        return discover(
            data, method=self.method, ensemble=self.ensemble, rng=rng, progress=self._progress,
            thorough=thorough,
        )  # fmt: skip

    def _check_options(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method={self.method!r}; expected one of {', '.join(METHODS)}.")
        automatic = self.order is None or self.order == "auto"
        if not automatic and not (isinstance(self.order, int) and 1 <= self.order <= 4):
            raise ValueError(
                f"order={self.order!r}; expected a whole number from 1 to 4, or 'auto'."
            )
        if self.link is not None and self.link not in LINKS:
            raise ValueError(f"link={self.link!r}; expected one of {', '.join(LINKS)}, or None.")
        if self.threshold is not None and not 0.0 <= float(self.threshold) < 1.0:
            raise ValueError(
                f"threshold={self.threshold!r}; expected a fraction from 0 to below 1."
            )
        if not float(self.penalty) > 0.0:
            raise ValueError(f"penalty={self.penalty!r}; expected a positive number.")
        if not isinstance(self.ensemble, int) or self.ensemble < 0:
            raise ValueError(f"ensemble={self.ensemble!r}; expected the number of resamples, or 0.")
        if self.method == "neural":
            _neural_settings(self.neural)

    def _set_equations(
        self, library: Library, order: int, variables: list[str], inputs: list[str],
        terms: list[Term] | None = None,
    ) -> None:  # fmt: skip
        """Set the attributes that describe the form of the equations."""
        self.order_ = order
        self.variables_, self.inputs_ = list(variables), list(inputs)
        self.n_features_in_ = len(variables)
        self.state_names_ = _state_names(variables, order)
        self.targets_ = [v + "'" * order for v in variables]
        columns = [*self.state_names_, *inputs]
        self.library_ = library if terms is None else library_of(library, columns, terms)
        self.terms_: list[Term] = library.terms(columns) if terms is None else terms
        columns += [TIME] * _explicit_time(self.terms_, columns)
        self._compiled: CompiledTerms = compile_terms(self.terms_, columns)

    @property
    def constants_(self) -> dict[str, Constant]:
        """The constants inside the terms, by name."""
        return {c.name[1:]: c for term in self.terms_ for c in term.constants}

    @property
    def _timed(self) -> bool:
        """Whether terms contain the time."""
        return len(self._compiled.variables) > len(self.state_names_) + len(self.inputs_)

    def _set_result(self, nodes: Nodes, result: FitResult) -> None:
        """Set the attributes that hold the result of a fit."""
        self.coefficients_, self.deviation_ = result.Xi, result.deviation
        self.intervals_ = _intervals(result.Xi, result.deviation)
        self.inclusion_ = result.inclusion
        self.noise_ = result.noise
        self.states_ = nodes.split(result.Z)
        self.times_ = nodes.split(nodes.t)
        self.step_ = float(np.median(nodes.h[nodes.follows]))
        self.scale_ = np.maximum(np.sqrt((result.Z**2).mean(0)), 1e-300)
        self.report_ = result.diagnostics

    def _progress(self, text: str) -> None:
        if callable(self.verbose):
            self.verbose(text)
        elif self.verbose:
            print(text, file=sys.stderr, flush=True)

    def _model(self) -> OdeModel:
        check_is_fitted(self, "coefficients_")
        link = LINKS[self.link] if self.link else None
        used = (self.coefficients_ != 0).any(0)  # other terms may not be finite everywhere
        terms = [term for term, u in zip(self.terms_, used) if u]
        compiled = compile_terms(terms, self._compiled.variables)
        return OdeModel(compiled, self.coefficients_[:, used], self.order_, link)

    def equations(self, format: str = "text", precision: int = 4) -> list[Any]:
        """Equations, one per variable.

        Args:
            format: `"text"`, `"latex"` or `"sympy"`.
            precision: Significant digits of the coefficients.
        """
        check_is_fitted(self, "coefficients_")
        return format_equations(
            self.targets_,
            self.terms_,
            self.coefficients_,
            format=format,
            precision=precision,
            link=self.link,
        )

    def summary(self, precision: int = 4) -> str:
        """The verdict, and the equations with their own verdicts where these are lower."""
        lines = [f"Verdict: {self.verdict_}"]
        for name, text in zip(self.variables_, self.equations(precision=precision)):
            lines.append(_with_level(name, text, self.verdict_))
        return "\n".join([*lines, *view.constants(self)])

    def print(self, precision: int = 4) -> None:
        """Print the summary."""
        print(self.summary(precision))

    def predict(self, X: Any, *, t: Any = None, inputs: Any = None) -> Any:
        """Highest derivative at given states.

        Args:
            X: (T, V order) states or, if the order is above one, (T, V) positions over time, whose
                derivatives are estimated by smoothing; or a list of these.
            t: Times of the positions, as in `fit`; by default the step of the fitted data.
            inputs: External inputs, as in `fit`.

        Returns:
            (T, V) array, or a list of these if X is a list.
        """
        model = self._model()
        V = len(self.variables_)
        if isinstance(X, list | tuple):
            nodes, Z = self._states_of(X, t, inputs)
            return nodes.split(model.rate(Z, self._columns_of(nodes))[:, -V:])
        given = np.asarray(X, float)
        self._check_width(given)
        if self.order_ == 1 or (given.ndim == 2 and given.shape[1] == len(self.state_names_)):
            Z = given.reshape(-1, len(self.state_names_))
            return model.rate(Z, self._driving(inputs, t, len(Z)))[:, -V:]
        nodes, Z = self._states_of(X, t, inputs)
        return model.rate(Z, self._columns_of(nodes))[:, -V:]

    def score(self, X: Any, y: Any = None, *, t: Any = None, inputs: Any = None) -> float:
        """Coefficient of determination (R²) of the highest derivative.

        The derivative of the data is estimated by smoothing. Without `t`, the step is that of the
        fitted data.
        """
        model = self._model()
        self._check_width(X)
        nodes = gather(X, t, inputs, self.variables_, self.step_)
        curves, _ = smooth(nodes, self.order_, np.random.default_rng(self.random_state))
        Z = np.concatenate([curves[..., r] for r in range(self.order_)], -1)
        top = model.rate(Z, self._columns_of(nodes))[:, -len(self.variables_) :]
        measured = curves[..., self.order_]
        error = ((top - measured) ** 2).sum(0)
        spread = ((measured - measured.mean(0)) ** 2).sum(0)
        return float(np.mean(1.0 - error / np.maximum(spread, 1e-300)))

    def forecast(
        self,
        h: int,
        *,
        level: float | Sequence[float] = 0.9,
        series: str | int | None = None,
        inputs: Any = None,
    ) -> EquationForecast:
        """Continue the equations from the last fitted state, with prediction intervals.

        The intervals hold the measured values. They come from 500 simulations with random last
        states, coefficients and measurement noise. States and coefficients are normally
        distributed around the estimates, with the covariance that a Kalman filter along the fitted
        states has at the end of the series, scaled to the standard deviations of the coefficients.
        The form of the equations is taken to be right: if `warnings_` says that they do not hold,
        the intervals are too narrow.

        Args:
            h: Number of steps, each the median step of the data.
            level: Nominal coverage of the intervals: probabilities, or per cent as in `[80, 95]`.
            series: Name or index of the series to continue, if several were fitted.
            inputs: (h, inputs) future external inputs.

        Raises:
            DataError: If the model was loaded from a file, or an argument cannot be used.
        """
        check_is_fitted(self, "coefficients_")
        return continue_equations(self, h, level, series, inputs, time_axis)

    def _draws(self, series: int, t: Array, U: Array | None) -> Array:
        """Sorted simulations at `t[1:]` from the last fitted state, for prediction intervals."""
        return simulate_draws(self, series, t, U)

    def to_function(
        self, inputs: Callable[[float], Any] | None = None
    ) -> Callable[[float, Any], Array]:
        """The equations as a function `f(t, x)`, such as `scipy.integrate.solve_ivp` integrates.

        Args:
            inputs: Function of time that returns the external inputs, if there are any.

        Returns:
            Function of a time and a state (V order,), or (V order, n) for n states, that returns
            the derivative of the state in the same shape.
        """
        model, columns = self._model(), len(self.inputs_)
        if columns and inputs is None:
            raise DataError(
                f"the model has inputs ({', '.join(self.inputs_)}); give them as a function of "
                "time."
            )

        def rate(t: float, x: Any) -> Array:
            Z = np.asarray(x, float).T
            u = np.asarray(inputs(t), float).ravel() if inputs is not None else np.empty(0)
            u = np.append(u, t) if self._timed else u
            return model.rate(Z, np.broadcast_to(u, (*Z.shape[:-1], len(u)))).T

        return rate

    def to_torch(self) -> EquationModule:
        """The equations as a differentiable module with the coefficients as parameters."""
        model = self._model()
        return EquationModule(self.targets_, model.terms, model.Xi, self.link, self._timed)

    def to_frame(self) -> Any:
        """The terms of the equations as a pandas `DataFrame`: coefficients and 90 % intervals."""
        check_is_fitted(self, "coefficients_")
        return view.frame(self)

    def _overview(self) -> Overview:
        check_is_fitted(self, "coefficients_")
        return view.overview(self)

    def _charts(self, names: Sequence[str] | None) -> list[Chart]:
        check_is_fitted(self, "coefficients_")
        return [] if self.table_ is None else fit_charts(self, self.table_, names=names)

    def _html_repr(self) -> str:
        """HTML in notebooks: the result; parameters as for other estimators before `fit`."""
        fitted = hasattr(self, "coefficients_")
        return Displayable._repr_html_(self) if fitted else estimator_html_repr(self)

    _repr_html_ = _html_repr

    def simulate(self, x0: Any, t: Any, inputs: Any = None) -> Array:
        """Integrate the equations.

        Args:
            x0: (V order,) initial state: values, then derivatives.
            t: (T,) increasing times.
            inputs: (T, inputs) inputs at these times.

        Returns:
            (T, V order) trajectory; NaN after it has diverged.
        """
        model = self._model()
        z0, at = np.asarray(x0, float).ravel(), np.asarray(t, float).ravel()
        if z0.shape != (len(self.state_names_),):
            raise DataError(
                f"x0 has {z0.size} values; expected {len(self.state_names_)}: "
                f"{', '.join(self.state_names_)}."
            )
        if not np.isfinite(z0).all():
            raise DataError("x0 has values that are not finite.")
        if len(at) < 1 or not np.isfinite(at).all() or (np.diff(at) <= 0).any():
            raise DataError("t must be finite and increasing.")
        return simulate(model, z0, at, self._driving(inputs, at, len(at)), self.scale_)

    def _check_width(self, X: Any) -> None:
        """Check the number of columns of an array: variables, or states."""
        shape: tuple[int, ...] = getattr(X, "shape", ())
        V = len(self.variables_)
        if len(shape) == 2 and shape[1] not in (V, len(self.state_names_)):
            raise DataError(
                f"X has {shape[1]} features, but Discovery is expecting {V} features as input: "
                f"{', '.join(self.variables_)}."
            )

    def _driving(self, inputs: Any, t: Any, rows: int) -> Array:
        """Columns (rows, inputs) beside the states: the inputs, and the time if terms use it."""
        U = self._input_rows(inputs, rows) if self.inputs_ else np.empty((rows, 0))
        if not self._timed:
            return U
        at = np.asarray(np.nan if t is None else t, float).ravel()
        if len(at) != rows:
            raise DataError(f"the equations depend on the time; give `t` with {rows} times.")
        return np.column_stack([U, at])

    def _columns_of(self, nodes: Nodes) -> Array:
        return nodes.with_time().U if self._timed else nodes.U

    def _input_rows(self, inputs: Any, rows: int) -> Array:
        """Validated inputs (rows, inputs)."""
        if inputs is None:
            raise DataError(f"the model has inputs ({', '.join(self.inputs_)}); give `inputs`.")
        U = np.asarray(inputs, float).reshape(-1, len(self.inputs_))
        if len(U) != rows or not np.isfinite(U).all():
            raise DataError(f"inputs has {len(U)} rows; expected {rows} without missing values.")
        return U

    def _states_of(self, X: Any, t: Any, inputs: Any) -> tuple[Nodes, Array]:
        """States (N, D) from states or positions."""
        first = np.asarray(X[0] if isinstance(X, list | tuple) else X)
        width = first.shape[1] if first.ndim == 2 else 1
        if width == len(self.state_names_):
            nodes = gather(X, t, inputs, self.state_names_, self.step_)
            return nodes, nodes.Y
        nodes = gather(X, t, inputs, self.variables_, self.step_)
        curves, _ = smooth(nodes, self.order_, np.random.default_rng(self.random_state))
        return nodes, np.concatenate([curves[..., r] for r in range(self.order_)], -1)

    def report(
        self, path: str | Path, evaluation: HoldOutResult | None = None, *, source: str = ""
    ) -> Path:
        """Write an HTML report: equations, intervals, charts, residuals, hold-out results.

        Args:
            path: File to write.
            evaluation: Result of `evaluate` on data that were not fitted.
            source: Name of the data, for the title.
        """
        return view.Report(self, evaluation, source=source).write_page(path)

    def save(self, path: str | Path) -> Path:
        """Save the model as JSON."""
        check_is_fitted(self, "coefficients_")
        return _storage.write_model(
            path,
            {
                "library": self.library_.to_json(),
                "constants": [vars(constant) for constant in self.constants_.values()],
                "order": self.order_,
                "link": self.link,
                "variables": self.variables_,
                "inputs": self.inputs_,
                "terms": [term.name for term in self.terms_],
                "equations": self.equations(precision=6),
                "coefficients": self.coefficients_,
                "deviation": self.deviation_,
                "inclusion": self.inclusion_,
                "noise": self.noise_,
                "step": self.step_,
                "scale": self.scale_,
                "verdict": self.verdict_.to_dict(),
                "candidates": [vars(rival) for rival in self.candidates_],
                "report": self.report_,
            },
        )

    @classmethod
    def load(cls, path: str | Path) -> Discovery:
        """Load a saved model, for prediction and simulation.

        Raises:
            ModelFileError: If the file is not a saved model.
        """
        record = _storage.read_model(path)
        try:
            library = Library.from_json(record.get("library"))  # type: ignore[arg-type]
            self = cls(library=library, order=record.get("order", 1), link=record.get("link"))
            self._check_options()
            if not isinstance(self.order, int):
                raise ValueError(f"order={self.order!r}; expected a whole number from 1 to 4.")
            names = _storage.texts(record, "variables"), _storage.texts(record, "inputs")
            _check_distinct(*names)
            with budget(_storage.MAX_CALLS):
                columns = [*_state_names(names[0], self.order), *names[1]]
                terms = _storage.with_constants(library.terms(columns), record)
                self._set_equations(library, self.order, *names, terms)
        except _storage.ModelFileError:
            raise
        except OverBudget:
            raise _storage.ModelFileError(
                f"{path} has terms that cannot be built in reasonable time; expected a file that "
                "Discovery.save wrote."
            ) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _storage.ModelFileError(f"{path} cannot be used: {error}") from None
        if _storage.texts(record, "terms") != [term.name for term in self.terms_]:
            raise _storage.ModelFileError(f"the terms in {path} do not match its library.")
        V, P, D = len(self.targets_), len(self.terms_), len(self.state_names_)
        self.coefficients_ = _storage.matrix(record, "coefficients", (V, P))
        self.deviation_ = _storage.matrix(record, "deviation", (V, P))
        self.intervals_ = _intervals(self.coefficients_, self.deviation_)
        known = record.get("inclusion") is not None
        self.inclusion_ = _storage.matrix(record, "inclusion", (V, P)) if known else None
        self.noise_ = _storage.matrix(record, "noise", (V,))
        self.scale_ = _storage.matrix(record, "scale", (D,))
        self.step_ = float(_storage.matrix(record, "step", ()))
        self.states_, self.times_, self.table_, self.warnings_ = [], [], None, []
        self.report_ = record.get("report") or {}
        self.verdict_ = _stored_verdict(record, self.variables_)
        self.candidates_ = _stored_candidates(record)
        return self


def _check_kind(X: Any) -> None:
    """Refuse what NumPy would convert into something else."""
    if hasattr(X, "tocsr"):
        raise DataError("X is sparse; sparse data are not supported. Use X.toarray().")
    if getattr(getattr(X, "dtype", None), "kind", "") == "c":
        raise DataError("Complex data not supported: X has complex values; use its real part.")


def _with_level(name: str, text: str, verdict: Verdict) -> str:
    """An equation with its level; the level alone if there is no equation to show."""
    one = verdict.equations.get(name)
    if one is None or one.level == "established":
        return text
    if one.terms == 0 or one.withheld:
        return f"{text.split(' = ')[0]}: {one.level} ({one.reason.rstrip('.')})"
    return f"{text}   ({one.level})"


def _explicit_time(terms: Sequence[Term], columns: Sequence[str]) -> bool:
    """Whether terms contain the time, which is not one of the columns."""
    named = {s.name for term in terms for s in term.symbolic.free_symbols}
    return TIME in named and TIME not in columns


def _state_names(variables: Sequence[str], order: int) -> list[str]:
    return [v + "'" * r for r in range(order) for v in variables]


def _intervals(coefficients: Array, deviation: Array) -> Array:
    half = HALF_WIDTH * deviation
    return np.stack([coefficients - half, coefficients + half], -1)


def _check_distinct(variables: Sequence[str], inputs: Sequence[str]) -> None:
    clash = set(inputs) & set(variables)
    if clash:
        raise DataError(f"inputs and variables share a name: {', '.join(sorted(clash))}.")


def _neural_settings(given: Any) -> Neural:
    from smnn.discovery._fit.neural import Neural

    if given is None or isinstance(given, Neural):
        return given or Neural()
    try:
        return Neural(**given)
    except TypeError:
        names = ", ".join(Neural.__dataclass_fields__)
        raise ValueError(
            f"neural={given!r}; expected a Neural, or a dictionary with keys out of {names}."
        ) from None


def _stored_verdict(record: Mapping[str, Any], variables: Sequence[str]) -> Verdict:
    """The verdict of a model file; files of earlier versions have none."""
    if record.get("verdict") is None:
        return Verdict("not determined", "the file was written without a verdict.", {})
    try:
        verdict = Verdict.from_dict(record["verdict"])
    except ValueError as error:
        raise _storage.ModelFileError(f"'verdict' in the model file: {error}") from None
    if list(verdict.equations) != list(variables):
        raise _storage.ModelFileError("'verdict' in the model file names other variables.")
    return verdict


def _stored_candidates(record: Mapping[str, Any]) -> list[RivalEquation]:
    entries = record.get("candidates") or []
    try:
        return [RivalEquation.from_dict(entry) for entry in entries]
    except (TypeError, ValueError) as error:
        raise _storage.ModelFileError(f"'candidates' in the model file: {error}") from None


def _table_of(nodes: Nodes, timed: bool) -> Table:
    """The data as a table."""
    times = nodes.split(nodes.t)
    return Table(
        names=list(nodes.names),
        times=times,
        values=nodes.split(nodes.Y),
        input_names=list(nodes.inputs),
        inputs=nodes.split(nodes.U),
        series=[""] if len(times) == 1 else [str(i) for i in range(len(times))],
        time_name="t" if timed else None,
    )


def _one_blas_thread() -> Any:
    """Limit BLAS to one thread: the matrices are small, and more threads are slower."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="blas")
