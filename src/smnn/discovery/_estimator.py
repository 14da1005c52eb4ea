"""The estimator `Discovery`."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from smnn.data import Table
from smnn.discovery import _storage
from smnn.discovery._arrays import Array
from smnn.discovery._candidates import affordable, best_library, best_order, libraries_for
from smnn.discovery._constraints import Constraint, make_rules
from smnn.discovery._equations import format_equations
from smnn.discovery._evaluate import DiscoveryWarning, ModelMisfitWarning, misfit_warnings
from smnn.discovery._fit.data import DataError, FitInput, FitResult, Nodes, gather, opened
from smnn.discovery._fit.model import LINKS, OdeModel, simulate
from smnn.discovery._fit.pipeline import discover
from smnn.discovery._fit.smoothing import smooth
from smnn.discovery._report import Report
from smnn.discovery._terms import CompiledTerms, Term, compile_terms
from smnn.discovery.libraries import Library
from smnn.equations import OverBudget, budget

if TYPE_CHECKING:
    from smnn.discovery._evaluate import HoldOutResult
    from smnn.discovery._fit.neural import Neural

METHODS = ("auto", "regression", "refine", "neural")
HALF_WIDTH = 1.6448536269514722  # Half width of a 90 % interval in standard deviations


class Discovery(BaseEstimator):
    """Sparse identification of differential equations from time series.

    The equations are `x^(order) = g(sum_j xi_j phi_j(x, x', ..., inputs))` with few terms.

    Args:
        library: Candidate terms: a library, its text form such as `"poly:2,trig"`, or `None` for
            polynomials of degree 2 (degree 3 for a single variable or an order above one). If their
            equations do not hold, degree 3 and degree 2 with sines and cosines are tried.
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
        variables_: Names of the V variables.
        state_names_: Names of the states: variables, and their derivatives below the order.
        targets_: Left-hand sides of the equations.
        order_: Order of the equations.
        library_: Library of the candidate terms.
        terms_: The P candidate terms, each with a `name`.
        coefficients_: (V, P) coefficients, zero for terms that were not selected.
        deviation_: (V, P) standard deviations.
        intervals_: (V, P, 2) 90 % confidence intervals.
        inclusion_: (V, P) fraction of the resamples that selected a term, or `None`.
        noise_: (V,) standard deviation of the measurement noise.
        states_: Fitted states (T, V order) of every series.
        times_: Times of every series.
        table_: The data that were fitted, as a `Table`; `None` for a loaded model.
        report_: Diagnostics: seconds per stage, levels of the joint fit, whether equations hold,
            and significant terms whose share is below `threshold` (`"weak_terms"`).
        warnings_: Text of the warnings that `fit` issued.
    """

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
    ) -> Discovery:
        """Find the equations.

        Args:
            X: (T, V) array or tensor, or a list of these for several series; a `Table`, which
                includes the following arguments; a data frame, a path, or anything else that
                `smnn.data.read` accepts. NaN marks missing values.
            y: Ignored; present for scikit-learn compatibility.
            t: Times (T,), a step, or a list of either; or the name of a column of X. The default is
                the time of the frame or file, otherwise a step of one.
            inputs: (T, inputs) external inputs without missing values, or a list of these.
            feature_names: Names of the variables.

        Raises:
            DataError: If the data are inconsistent or too few.
            ValueError: If an option is invalid.

        Warns:
            ModelMisfitWarning: If the equations do not hold.
            DiscoveryWarning: If outliers or candidate terms were left out, the order was changed,
                or the data contradict a fixed coefficient.
        """
        self._check_options()
        X, t, names = opened(X, t, inputs)
        nodes = gather(X, t, inputs, names if feature_names is None else feature_names)
        _check_distinct(nodes.names, nodes.inputs)
        with _one_blas_thread():
            if isinstance(self.order, int):
                order, (library, result) = self.order, self._fit_order(nodes, self.order)
            else:
                second = not self._names_terms
                order, library, result = best_order(nodes, self._fit_order, second)
        self._set_equations(library, order, nodes.names, nodes.inputs)
        self._set_result(nodes, result)
        self.table_: Table | None = X if isinstance(X, Table) else _table_of(nodes, t is not None)
        misfit = misfit_warnings(self)
        self.warnings_ = [*result.warnings, *misfit]
        for text in result.warnings:
            warnings.warn(text, DiscoveryWarning, stacklevel=2)
        for text in misfit:
            warnings.warn(text, ModelMisfitWarning, stacklevel=2)
        return self

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
        self, library: Library, order: int, variables: list[str], inputs: list[str]
    ) -> None:
        """Set the attributes that describe the form of the equations."""
        self.library_, self.order_ = library, order
        self.variables_, self.inputs_ = list(variables), list(inputs)
        self.n_features_in_ = len(variables)
        self.state_names_ = _state_names(variables, order)
        self.targets_ = [v + "'" * order for v in variables]
        columns = [*self.state_names_, *inputs]
        self.terms_: list[Term] = library.terms(columns)
        self._compiled: CompiledTerms = compile_terms(self.terms_, columns)

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

    def print(self, precision: int = 4) -> None:
        """Print the equations."""
        print("\n".join(self.equations(precision=precision)))

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
            return nodes.split(model.rate(Z, nodes.U)[:, -V:])
        given = np.asarray(X, float)
        if self.order_ == 1 or (given.ndim == 2 and given.shape[1] == len(self.state_names_)):
            Z = given.reshape(-1, len(self.state_names_))
            U = np.empty((len(Z), 0)) if not self.inputs_ else self._input_rows(inputs, len(Z))
            return model.rate(Z, U)[:, -V:]
        nodes, Z = self._states_of(X, t, inputs)
        return model.rate(Z, nodes.U)[:, -V:]

    def score(self, X: Any, y: Any = None, *, t: Any = None, inputs: Any = None) -> float:
        """Coefficient of determination (R²) of the highest derivative.

        The derivative of the data is estimated by smoothing. Without `t`, the step is that of the
        fitted data.
        """
        model = self._model()
        nodes = gather(X, t, inputs, self.variables_, self.step_)
        curves, _ = smooth(nodes, self.order_, np.random.default_rng(self.random_state))
        Z = np.concatenate([curves[..., r] for r in range(self.order_)], -1)
        top = model.rate(Z, nodes.U)[:, -len(self.variables_) :]
        measured = curves[..., self.order_]
        error = ((top - measured) ** 2).sum(0)
        spread = ((measured - measured.mean(0)) ** 2).sum(0)
        return float(np.mean(1.0 - error / np.maximum(spread, 1e-300)))

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
        U = self._input_rows(inputs, len(at)) if self.inputs_ else None
        return simulate(model, z0, at, U, self.scale_)

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
        return Report(self, evaluation, source=source).write_page(path)

    def save(self, path: str | Path) -> Path:
        """Save the model as JSON."""
        check_is_fitted(self, "coefficients_")
        return _storage.write_model(
            path,
            {
                "library": self.library_.to_json(),
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
                self._set_equations(library, self.order, *names)
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
        return self


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
