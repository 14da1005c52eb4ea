"""The estimator `Discovery`."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.interpolate import PchipInterpolator
from sklearn.base import BaseEstimator
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from smnn._util.names import check_arguments, explained
from smnn.data import Table, read
from smnn.discovery import _storage
from smnn.discovery._arrays import Array, Indices
from smnn.discovery._candidates import (
    affordable,
    best_library,
    best_order,
    libraries_for,
    open_terms_suit,
)
from smnn.discovery._constraints import Constraint, make_rules
from smnn.discovery._equations import EquationModule, format_equations
from smnn.discovery._evaluate import DiscoveryWarning, VerdictWarning
from smnn.discovery._fit.data import (
    DataError,
    FitInput,
    FitResult,
    Nodes,
    check_distinct,
    gather,
    read_nodes,
)
from smnn.discovery._fit.model import LINKS, OdeModel, simulate, state_names, target_names
from smnn.discovery._fit.pipeline import discover
from smnn.discovery._fit.smoothing import smooth
from smnn.discovery._forecast import EquationForecast, continue_equations, index_of, simulate_draws
from smnn.discovery._models.delays import DelaySearch, Past, delayed_names, simulate_delayed
from smnn.discovery._models.hidden import Gauge, check_hidden_library, find_hidden
from smnn.discovery._models.options import check_kind, check_options, neural_settings
from smnn.discovery._models.varying import in_series, indicator, split_terms, with_indicators
from smnn.discovery._open.system import discover_open
from smnn.discovery._terms import Constant, Term, compile_terms, intervals_of
from smnn.discovery._verdict.fitted import Fitted, better_of, judged_delay, stored
from smnn.discovery._verdict.hidden import judged_hidden, without_hidden
from smnn.discovery._verdict.verdict import ESTABLISHED
from smnn.discovery._view import report as view
from smnn.discovery._view.charts import fit_charts, time_axis
from smnn.discovery.libraries import (
    TIME,
    Expressions,
    Library,
    Polynomial,
    feedback_library,
    library_of,
    open_library,
)
from smnn.report.charts import Chart
from smnn.report.display import Displayable, Overview

if TYPE_CHECKING:
    from smnn.discovery._evaluate import HoldOutResult
    from smnn.discovery._fit.neural import Neural


LAG_ROUNDS, LAG_SETTLED = 5, 0.5
"""Largest number of fits with a lag, and the change of the lag, in standard deviations, that is not
followed by another one."""


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
        kind: `"ode"`, or `"map"` for equations `x_next = sum_j xi_j phi_j(x, inputs)` between
            consecutive rows.
        varies: What differs between the series: names of constants, `["K"]` with the library
            `"x/(?K + x)"`, or terms whose coefficients vary, `["x"]` or by equation
            `{"x'": ["x"]}`.
        delay: Terms may contain values at an earlier time, `x_lag(t) = x(t - lag)`: the lag, a pair
            of its smallest and largest value, or `True` (`"auto"`) for a lag from two steps to a
            tenth of the shortest series or, if none stands out there, to a quarter.
        hidden: 1 adds a variable that is not measured, such as a recovery variable. It is defined
            up to functions of the measured ones; `hidden_` says how this freedom is fixed.
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
        noise_: (V,) standard deviation of the measurement noise; zero for a hidden variable.
        states_: Fitted states (T, V order) of every series.
        times_: Times of every series.
        lag_: The lag, with its standard deviation; `None` without `delay`.
        hidden_: Definition of the hidden variable, by name; it is the last of `variables_`.
        series_: Names of the series, if parameters vary between them.
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
        kind: str = "ode",
        varies: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        delay: float | Sequence[float] | bool | str | None = None,
        hidden: int = 0,
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
        self.kind = kind
        self.varies = varies
        self.delay = delay
        self.hidden = hidden
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
        sample_weight: Any = None,
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
            sample_weight: Weights (T,) or (T, V) of squared errors, or a list of these; or the name
                of a column of X. Only their ratios matter; a weight of zero leaves a value out.
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
        check_options(self)
        check_kind(X)
        known = [name for name in inspect.signature(read).parameters if name != "source"]
        own = ["X", "t", "inputs", "feature_names", "sample_weight"]
        check_arguments("Discovery.fit", reading, [*own, *known])
        self.lag_: tuple[float, float] | None = None
        self._delayed: list[str] = []
        self.hidden_: dict[str, str] = {}
        nodes, X, timed = read_nodes(X, t, inputs, feature_names, sample_weight, reading)
        nodes = nodes.as_map() if self.kind == "map" else nodes
        table = X if isinstance(X, Table) else nodes.table(timed)
        self.series_ = list(table.series) if self.varies else []
        check_distinct(nodes.names, nodes.inputs)
        with _one_blas_thread():
            if self.hidden:
                found, nodes = self._fitted_with_hidden(nodes)
            else:
                found = (
                    self._fitted(nodes) if self.delay is None else self._fitted_with_delay(nodes)
                )
        result = found.result
        self._set_equations(found.library, found.order, nodes.names, nodes.inputs, result.terms)
        self._set_result(nodes, result)
        self.table_: Table | None = table
        self.verdict_, self.candidates_ = found.verdict, found.rivals
        self.warnings_ = list(result.warnings)
        for text in result.warnings:
            warnings.warn(text, DiscoveryWarning, stacklevel=2)
        if self.verdict_.doubtful:
            self.warnings_.append(str(self.verdict_))
            warnings.warn(str(self.verdict_), VerdictWarning, stacklevel=2)
        return self

    def _fitted(self, nodes: Nodes) -> Fitted:
        """The best equations."""
        if isinstance(self.order, int) or nodes.discrete or self.delay is not None:
            order = self.order if isinstance(self.order, int) else 1
            library, result = self._fit_order(nodes, order)
        else:
            second = not self._names_terms
            order, library, result = best_order(nodes, self._fit_order, second)
        return self._escalated(nodes, Fitted(library, order, result))

    def _fitted_with_hidden(self, nodes: Nodes) -> tuple[Fitted, Nodes]:
        """The best equations with a hidden variable, and the nodes with this variable."""
        given = None if self.library is None else libraries_for(self.library, 1, 1)[0]
        check_hidden_library(given, [*nodes.names, *nodes.inputs])
        library, result = self._fit_order(nodes, 1)
        plain = Fitted(library, 1, result)
        if plain.verdict.level == ESTABLISHED:
            return without_hidden(plain), nodes
        fit, rng = functools.partial(self._fit_library, 1), np.random.default_rng(self.random_state)
        best = find_hidden(nodes, given, fit, rng, self._progress)
        self.hidden_ = {best.gauge.name: best.gauge.definition}
        found = Fitted(best.library, 1, best.result)
        return judged_hidden(found, plain, best.trained, best.rival), best.gauge.nodes

    def _fitted_with_delay(self, nodes: Nodes) -> Fitted:
        """The best equations with delayed values."""
        search = DelaySearch(nodes, self.delay, np.random.default_rng(self.random_state))
        self._delayed = delayed_names(nodes.names)
        for k in range(LAG_ROUNDS):
            self._progress(f"lag {search.lag:.4g}")
            lag, found = search.lag, self._fitted(search.data())
            result = search.refine(found.result)
            if k and abs(search.lag - lag) <= LAG_SETTLED * search.deviation:
                break
        self.lag_ = search.lag, search.deviation
        terms = result.terms or found.library.terms([*nodes.names, *nodes.inputs, *self._delayed])
        names = {*self._delayed}
        delayed = [bool(names & {s.name for s in term.symbolic.free_symbols}) for term in terms]
        used = ((result.Xi != 0) & delayed).any(1)
        found.verdict = judged_delay(found.verdict, result, used, search)
        found.result = replace(result, Z=search.all_states(result.Z))
        return found

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
            larger = Polynomial(2) + open_library()
            choices = [(found.order, larger)]
            if self._delayed:
                choices.insert(0, (1, feedback_library(self._delayed)))
            elif not isinstance(self.order, int) and found.order == 1 and len(nodes.names) <= 2:
                choices.append((2, larger))
            for order, library in choices:
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
        return bool(self.fixed or self.forbidden or self.constraints or self.varies)

    def _fit_order(self, nodes: Nodes, order: int) -> tuple[Library, FitResult]:
        """Fit equations of an order with the best of the candidate libraries."""
        V = len(nodes.names)
        columns = order * V + len(nodes.inputs)
        libraries = libraries_for(self.library, columns, order)
        if self._names_terms or self.method not in ("auto", "refine"):
            libraries = libraries[:1]
        libraries = affordable(libraries, columns, V, int(nodes.seen.sum()))
        return best_library(libraries, nodes, functools.partial(self._fit_library, order))

    def _fit_library(
        self, order: int, nodes: Nodes, library: Library, thorough: bool, gauge: Gauge | None = None
    ) -> FitResult:
        """Fit equations of an order with a library."""
        columns = [*state_names(nodes.names, order), *nodes.inputs]
        terms, targets = library.terms(columns), target_names(nodes.names, order, nodes.discrete)
        if self.varies:
            terms, varying = split_terms(terms, self.varies, self.series_, targets, columns)
            nodes = with_indicators(nodes, self.series_)
        if _explicit_time(terms, columns):
            nodes = nodes.with_columns([TIME], nodes.t)
        columns = [*columns, *nodes.inputs[len(columns) - order * len(nodes.names) :]]
        rules, fixed = make_rules(
            targets,
            terms,
            columns,
            fixed=self.fixed,
            forbidden=self.forbidden,
            constraints=self.constraints,
            threshold=1e-3 if self.threshold is None else float(self.threshold),
            strength=float(self.penalty),
        )
        if self.varies:
            rules = replace(rules, allowed=rules.allowed & varying)
        if gauge is not None:
            rules, fixed = gauge.apply(terms, rules, fixed)
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
            if nodes.weights is not None:
                raise ValueError("method='neural' does not support sample_weight.")
            from smnn.discovery._fit.neural import discover_neurally

            settings = neural_settings(self.neural)
            return discover_neurally(data, settings=settings, rng=rng, progress=self._progress)
        found = discover(
            data, method=self.method, ensemble=self.ensemble, rng=rng, progress=self._progress,
            thorough=thorough, smoothed=None if gauge is None else (gauge.curves, gauge.sigma),
        )  # fmt: skip
        return replace(found, terms=terms) if self.varies else found

    def _set_equations(
        self, library: Library, order: int, variables: list[str], inputs: list[str],
        terms: list[Term] | None = None,
    ) -> None:  # fmt: skip
        """Set the attributes that describe the form of the equations."""
        self.order_ = order
        self.variables_, self.inputs_ = list(variables), list(inputs)
        self.n_features_in_ = len(variables) - len(self.hidden_)
        self.state_names_ = state_names(variables, order)
        self.targets_ = target_names(variables, order, self.kind == "map")
        columns = [*self.state_names_, *inputs, *self._delayed]
        self.library_ = library
        if terms is not None:
            given = Expressions(("1",)) if self.series_ else library
            self.library_ = library_of(given, columns, terms, every=bool(self.series_))
        every = [*columns, *map(indicator, self.series_)]
        self.terms_: list[Term] = library.terms(every) if terms is None else terms
        self._columns = [*columns, *[TIME] * _explicit_time(self.terms_, columns)]

    def _check(self) -> None:
        check_options(self)

    def _more_columns(
        self, series: list[str], lag: tuple[float, float] | None, hidden: dict[str, str]
    ) -> list[str]:
        """Set what a file adds to the variables; the columns besides states and inputs."""
        self.series_, self.lag_, self.hidden_ = series, lag, hidden
        self._delayed = [] if lag is None else delayed_names(self.variables_)
        return [*self._delayed, *map(indicator, series)]

    @property
    def constants_(self) -> dict[str, Constant]:
        """The constants inside the terms, by name."""
        return {c.name[1:]: c for term in self.terms_ for c in term.constants}

    @property
    def _timed(self) -> bool:
        """Whether terms contain the time."""
        return TIME in self._columns[len(self.state_names_) + len(self.inputs_) :]

    def _set_result(self, nodes: Nodes, result: FitResult) -> None:
        """Set the attributes that hold the result of a fit."""
        self.coefficients_, self.deviation_ = result.Xi, result.deviation
        self.intervals_ = intervals_of(result.Xi, result.deviation)
        self.inclusion_ = result.inclusion
        self.noise_ = np.where(nodes.hidden, 0.0, result.noise)
        self.states_ = nodes.split(result.Z)
        self.times_ = nodes.split(nodes.t)
        self.step_ = float(np.median(np.diff(nodes.t)[nodes.follows[:-1]]))
        self.scale_ = np.maximum(np.sqrt((result.Z**2).mean(0)), 1e-300)
        self.report_ = result.diagnostics

    def _progress(self, text: str) -> None:
        if callable(self.verbose):
            self.verbose(text)
        elif self.verbose:
            print(text, file=sys.stderr, flush=True)

    def _model(self, series: str | int | None = None) -> OdeModel:
        link = LINKS[self.link] if self.link else None
        terms, used = self._used_terms(series)
        compiled = compile_terms(terms, self._columns)
        return OdeModel(compiled, self.coefficients_[:, used], self.order_, link)

    def _used_terms(self, series: str | int | None = None) -> tuple[list[Term], Indices]:
        """The terms with coefficients, in a series if parameters vary, and their indices."""
        check_is_fitted(self, "coefficients_")
        used = np.flatnonzero((self.coefficients_ != 0).any(0))
        terms = [self.terms_[p] for p in used]  # others may not be finite everywhere
        if not self.series_:
            return terms, used
        if series is None:
            raise DataError(
                f"parameters vary between the series; give series= one of "
                f"{', '.join(self.series_)}."
            )
        chosen = index_of(self.series_, series)
        terms = [in_series(term, self.series_, chosen) for term in terms]
        there = [i for i, term in enumerate(terms) if term.symbolic != 0]
        return [terms[i] for i in there], used[there]

    def equations(
        self, format: str = "text", precision: int = 4, series: str | int | None = None
    ) -> list[Any]:
        """Equations, one per variable.

        Args:
            format: `"text"`, `"latex"` or `"sympy"`.
            precision: Significant digits of the coefficients.
            series: The series whose equations to give, if parameters vary. By default factors such
                as `[a]` mark the terms of the series `a`.
        """
        check_is_fitted(self, "coefficients_")
        terms, coefficients = self.terms_, self.coefficients_
        if self.series_ and series is not None:
            terms, used = self._used_terms(series)
            coefficients = coefficients[:, used]
        return format_equations(
            self.targets_,
            terms,
            coefficients,
            format=format,
            precision=precision,
            link=self.link,
        )

    def summary(self, precision: int = 4) -> str:
        """The verdict, and the equations with their own verdicts where these are lower."""
        return view.summary(self, precision)

    def _source(self, term: Term, constant: Constant) -> str:
        """The term as text, in the series that a constant belongs to."""
        for i in range(len(self.series_)):
            one = in_series(term, self.series_, i)
            if constant in one.constants:
                return one.source
        return term.source

    def print(self, precision: int = 4) -> None:
        """Print the summary."""
        print(self.summary(precision))

    def predict(
        self, X: Any, *, t: Any = None, inputs: Any = None, series: str | int | None = None
    ) -> Any:
        """Highest derivative at given states; for a map the next states.

        Args:
            X: (T, V order) states or, if the order is above one, (T, V) positions over time, whose
                derivatives are estimated by smoothing; or a list of these.
            t: Times of the positions, as in `fit`; by default the step of the fitted data.
            inputs: External inputs, as in `fit`.
            series: The series, if parameters vary; by default those of a list in their order.

        Returns:
            (T, V) array, or a list of these if X is a list.
        """
        check_is_fitted(self, "coefficients_")
        V = len(self.variables_)
        if isinstance(X, list | tuple):
            nodes, Z = self._states_of(X, t, inputs)
            return nodes.split(self._rates(nodes, Z, series))
        model = self._model(series)
        given = np.asarray(X, float)
        self._check_width(given)
        if self.order_ == 1 or (given.ndim == 2 and given.shape[1] == len(self.state_names_)):
            Z = given.reshape(-1, len(self.state_names_))
            return model.rate(Z, self._driving(inputs, t, len(Z)))[:, -V:]
        nodes, Z = self._states_of(X, t, inputs)
        return model.rate(Z, self._columns_of(nodes))[:, -V:]

    def _rates(self, nodes: Nodes, Z: Array, series: str | int | None) -> Array:
        """(N, V) right-hand side; with the parameters of each series if there are as many."""
        U, V = self._columns_of(nodes), len(self.variables_)
        if series is not None or len(nodes.bounds) != len(self.series_):
            return self._model(series).rate(Z, U)[:, -V:]
        return np.concatenate(
            [self._model(i).rate(Z[a:b], U[a:b])[:, -V:] for i, (a, b) in enumerate(nodes.bounds)]
        )

    def score(
        self, X: Any, y: Any = None, *, t: Any = None, inputs: Any = None,
        series: str | int | None = None,
    ) -> float:  # fmt: skip
        """Coefficient of determination (R²) of the highest derivative, or of a map's next values.

        The derivative of the data is estimated by smoothing. Without `t`, the step is that of the
        fitted data.
        """
        check_is_fitted(self, "coefficients_")
        self._check_width(X)
        nodes = gather(X, t, inputs, self.variables_, self.step_)
        nodes = nodes.as_map() if self.kind == "map" else nodes
        curves, _ = smooth(nodes, self.order_, np.random.default_rng(self.random_state))
        Z = np.concatenate([curves[..., r] for r in range(self.order_)], -1)
        top = self._rates(nodes, Z, series)
        measured = curves[..., self.order_]
        used = nodes.follows if nodes.discrete else slice(None)
        error = ((top - measured)[used] ** 2).sum(0)
        spread = ((measured - measured.mean(0))[used] ** 2).sum(0)
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
        self, inputs: Callable[[float], Any] | None = None, series: str | int | None = None
    ) -> Callable[[float, Any], Array]:
        """The equations as a function `f(t, x)`, such as `scipy.integrate.solve_ivp` integrates.

        Args:
            inputs: Function of time that returns the external inputs, if there are any.
            series: The series, if parameters vary.

        Returns:
            Function of a time and a state (V order,), or (V order, n) for n states, that returns
            the derivative of the state, or the next state of a map, in the same shape.
        """
        model, driving = self._model(series), [*self.inputs_, *self._delayed]
        if driving and inputs is None:
            raise DataError(
                f"the model has inputs ({', '.join(driving)}); give them as a function of time."
            )

        def rate(t: float, x: Any) -> Array:
            Z = np.asarray(x, float).T
            u = np.asarray(inputs(t), float).ravel() if inputs is not None else np.empty(0)
            u = np.append(u, t) if self._timed else u
            return model.rate(Z, np.broadcast_to(u, (*Z.shape[:-1], len(u)))).T

        return rate

    def to_torch(self, series: str | int | None = None) -> EquationModule:
        """The equations as a differentiable module with the coefficients as parameters."""
        model = self._model(series)
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

    def simulate(
        self, x0: Any, t: Any, inputs: Any = None, series: str | int | None = None
    ) -> Array:
        """Integrate the equations.

        Args:
            x0: (V order,) initial state: values, then derivatives. With a delay, the values before
                `t[0]` are constant, or those of `x0` if it is a function of time.
            t: (T,) increasing times.
            inputs: (T, inputs) inputs at these times.
            series: The series, if parameters vary.

        Returns:
            (T, V order) trajectory; NaN after it has diverged.
        """
        model = self._model(series)
        at = np.asarray(t, float).ravel()
        if len(at) < 1 or not np.isfinite(at).all() or (np.diff(at) <= 0).any():
            raise DataError("t must be finite and increasing.")
        if self.lag_ is not None:
            driven = self._driven(inputs, at)
            past = Past(x0, len(self.variables_))
            lag, step = self.lag_[0], self.step_
            return simulate_delayed(model, past, at, driven, lag, step, self.scale_)
        z0 = np.asarray(x0, float).ravel()
        if z0.shape != (len(self.state_names_),):
            raise DataError(
                f"x0 has {z0.size} values; expected {len(self.state_names_)}: "
                f"{', '.join(self.state_names_)}."
            )
        if not np.isfinite(z0).all():
            raise DataError("x0 has values that are not finite.")
        steps = np.diff(at) / self.step_
        if self.kind == "map" and not np.allclose(steps, 1.0, rtol=1e-6):
            raise DataError(f"t must have steps of {self.step_:g}, as the data of the map.")
        U = self._driving(inputs, at, len(at))
        return simulate(model, z0, at, U, self.scale_, discrete=self.kind == "map")

    def _driven(self, inputs: Any, at: Array) -> Callable[[float], Array]:
        """External inputs as a function of time."""
        if not self.inputs_:
            return lambda time: np.empty(0)
        curve = PchipInterpolator(at, self._input_rows(inputs, len(at)), axis=0)
        return lambda time: np.asarray(curve(time))

    def _past(self, series: int) -> Any:
        """What a simulation from the end of a series starts from."""
        if self.lag_ is None:
            return self.states_[series][-1]
        return PchipInterpolator(self.times_[series], self.states_[series], axis=0)

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
        driving = [*self.inputs_, *self._delayed]
        U = self._input_rows(inputs, rows) if driving else np.empty((rows, 0))
        if not self._timed:
            return U
        at = np.asarray(np.nan if t is None else t, float).ravel()
        if len(at) != rows:
            raise DataError(f"the equations depend on the time; give `t` with {rows} times.")
        return np.column_stack([U, at])

    def _columns_of(self, nodes: Nodes) -> Array:
        return np.column_stack([nodes.U, nodes.t]) if self._timed else nodes.U

    def _input_rows(self, inputs: Any, rows: int) -> Array:
        """Validated inputs (rows, inputs), with a delay followed by the delayed values."""
        names = [*self.inputs_, *self._delayed]
        if inputs is None:
            raise DataError(f"the model has inputs ({', '.join(names)}); give `inputs`.")
        U = np.asarray(inputs, float).reshape(-1, len(names))
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
        return _storage.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Discovery:
        """Load a saved model, for prediction and simulation.

        Raises:
            ModelFileError: If the file is not a saved model.
        """
        return _storage.load(cls, path, stored)


def _explicit_time(terms: Sequence[Term], columns: Sequence[str]) -> bool:
    """Whether terms contain the time, which is not one of the columns."""
    named = {s.name for term in terms for s in term.symbolic.free_symbols}
    return TIME in named and TIME not in columns


def _one_blas_thread() -> Any:
    """Limit BLAS to one thread: the matrices are small, and more threads are slower."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="blas")
