"""The estimator: `fit` on somebody's data, then equations, predictions and simulations."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from smnn.discovery import _storage
from smnn.discovery._defaults import affordable, climb, libraries_for
from smnn.discovery._equations import format_equations
from smnn.discovery._fit.arrays import Array
from smnn.discovery._fit.flow import LINKS, Model
from smnn.discovery._fit.pipeline import Outcome, discover
from smnn.discovery._fit.question import Question
from smnn.discovery._fit.series import DataError, Nodes, gather
from smnn.discovery._fit.smoothing import smooth
from smnn.discovery._simulate import simulate
from smnn.discovery._terms.library import Library
from smnn.discovery._terms.rules import Constraint, make_rules
from smnn.discovery._terms.terms import CompiledTerms, Term, compile_terms
from smnn.equations import OverBudget, budget

METHODS = ("auto", "regression", "refine", "neural")
LEVEL = 1.6448536269514722
"""Standard deviations on either side of a 90 % interval."""


class Discovery(BaseEstimator):
    """Finds the differential equations behind time series.

    The equations are `x^(order) = g(sum_j xi_j phi_j(x, x', ..., inputs))` with few terms.

    Args:
        library: Candidate terms; a library, its text form such as `"poly:2,trig"`, or `None` for
            polynomials of degree 2 (degree 3 for a single variable or an order above one) and,
            where their equations do not hold, of degree 3, and with sines and cosines.
        order: Order of the equations; above one, only positions need to be measured.
        method: `"refine"` fits states and coefficients together, `"regression"` is one shot,
            `"neural"` trains networks for both, `"auto"` is `"refine"`.
        threshold: Smallest share of its right-hand side that a term must have to be kept.
        penalty: Strength of the penalty for a term; 1 is that of the extended Bayesian information
            criterion, more gives fewer terms.
        ensemble: Resamples of the data behind `inclusion_` and the intervals; 0 for none.
        fixed: Known coefficients, `{"x'": {"y": 10.0}}`.
        forbidden: Terms that may not appear, `{"x'": ["z", "x^2"]}`.
        constraints: `Positive`, `Negative` and `Equal` conditions on coefficients.
        link: A function around the sum of terms: tanh, exp, sigmoid, softplus, sin; or `None`.
        neural: Options of `method="neural"` by name, as `Neural` has them.
        random_state: Seed of everything random.
        verbose: Whether to print progress to standard error.

    Attributes:
        variables_: Names of the V variables.
        state_names_: Names of the states: variables, and their derivatives below the order.
        targets_: Left-hand sides.
        library_: The library that the terms come from.
        terms_: The P candidate terms, each with a `name`.
        coefficients_: (V, P), zero for terms that are not there.
        deviation_: (V, P) standard deviations.
        intervals_: (V, P, 2) with 90 % confidence.
        inclusion_: (V, P) share of the resamples that chose a term, or `None`.
        noise_: (V,) standard deviation of the measurement noise.
        states_: For every series, its states without noise (T, V order).
        times_: For every series, its times.
        report_: Diagnostics: seconds of every stage, levels of the joint fit.
    """

    def __init__(
        self,
        library: Library | str | None = None,
        order: int = 1,
        method: str = "auto",
        threshold: float | None = None,
        penalty: float = 1.0,
        ensemble: int = 20,
        fixed: Mapping[str, Mapping[str, float]] | None = None,
        forbidden: Mapping[str, Sequence[str]] | None = None,
        constraints: Sequence[Constraint] | None = None,
        link: str | None = None,
        neural: Mapping[str, Any] | None = None,
        random_state: int | None = 0,
        verbose: bool = False,
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
            X: (T, V) array, DataFrame or tensor, or a list of such for several series; NaN where
                nothing was measured.
            y: Not used; there because scikit-learn passes it.
            t: Times (T,), a step, or a list of either; a step of one by default.
            inputs: (T, inputs) external inputs, known at every time.
            feature_names: Names of the variables.

        Raises:
            DataError: If the data do not fit together.
            ValueError: If an option is not what it should be.
        """
        self._check_options()
        nodes = gather(X, t, inputs, feature_names)
        columns = self.order * len(nodes.names) + len(nodes.inputs)
        libraries = libraries_for(self.library, columns, self.order)
        named = self.fixed or self.forbidden or self.constraints
        if named or self.method not in ("auto", "refine"):
            libraries = libraries[:1]  # who names terms means this library
        libraries = affordable(libraries, columns, len(nodes.names), int(nodes.seen.sum()))
        with _one_blas_thread():
            self.library_, outcome = climb(libraries, nodes, self._attempt)
        self._set_names(nodes.names, nodes.inputs)
        self._keep(nodes, outcome)
        return self

    def _attempt(self, nodes: Nodes, library: Library, thorough: bool) -> Outcome:
        """The outcome with one library."""
        self.library_ = library
        self._set_names(nodes.names, nodes.inputs)
        rules, held = make_rules(
            self.targets_,
            self.terms_,
            self._compiled.variables,
            fixed=self.fixed,
            forbidden=self.forbidden,
            constraints=self.constraints,
            threshold=1e-3 if self.threshold is None else float(self.threshold),
            strength=float(self.penalty),
        )
        link = LINKS[self.link] if self.link else None
        question = Question(nodes, self._compiled, self.order, rules, held, link)
        rng = np.random.default_rng(self.random_state)
        if self.method == "neural":
            from smnn.discovery._fit.neural import Neural, discover_neurally

            settings = Neural(**(self.neural or {}))
            return discover_neurally(question, settings=settings, rng=rng, say=self._say)
        return discover(
            question, method=self.method, ensemble=self.ensemble, rng=rng, say=self._say,
            thorough=thorough,
        )  # fmt: skip

    def _check_options(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method={self.method!r}; expected one of {', '.join(METHODS)}.")
        if not isinstance(self.order, int) or not 1 <= self.order <= 4:
            raise ValueError(f"order={self.order!r}; expected a whole number from 1 to 4.")
        if self.link is not None and self.link not in LINKS:
            raise ValueError(f"link={self.link!r}; expected one of {', '.join(LINKS)}, or None.")
        if self.threshold is not None and not 0.0 <= float(self.threshold) < 1.0:
            raise ValueError(f"threshold={self.threshold!r}; expected a share from 0 to below 1.")
        if not float(self.penalty) > 0.0:
            raise ValueError(f"penalty={self.penalty!r}; expected a positive number.")
        if not isinstance(self.ensemble, int) or self.ensemble < 0:
            raise ValueError(f"ensemble={self.ensemble!r}; expected how many resamples, or 0.")

    def _set_names(self, variables: list[str], inputs: list[str]) -> None:
        clash = set(inputs) & set(variables)
        if clash:
            raise DataError(f"inputs and variables share a name: {', '.join(sorted(clash))}.")
        self.variables_, self.inputs_ = list(variables), list(inputs)
        self.n_features_in_ = len(variables)
        self.state_names_ = [v + "'" * r for r in range(self.order) for v in variables]
        self.targets_ = [v + "'" * self.order for v in variables]
        columns = [*self.state_names_, *inputs]
        self.terms_: list[Term] = self.library_.terms(columns)
        self._compiled: CompiledTerms = compile_terms(self.terms_, columns)

    def _say(self, text: str) -> None:
        if self.verbose:
            print(text, file=sys.stderr, flush=True)

    def _keep(self, nodes: Nodes, outcome: Outcome) -> None:
        self.coefficients_ = outcome.Xi
        self.deviation_ = outcome.deviation
        half = LEVEL * outcome.deviation
        self.intervals_ = np.stack([outcome.Xi - half, outcome.Xi + half], -1)
        self.inclusion_ = outcome.inclusion
        self.noise_ = outcome.noise
        self.states_ = nodes.split(outcome.Z)
        self.times_ = nodes.split(nodes.t)
        self.step_ = float(np.median(nodes.h[nodes.follows]))
        self.scale_ = np.maximum(np.sqrt((outcome.Z**2).mean(0)), 1e-300)
        self.report_ = outcome.diagnostics

    def _model(self) -> Model:
        check_is_fitted(self, "coefficients_")
        link = LINKS[self.link] if self.link else None
        used = (self.coefficients_ != 0).any(0)  # the others may not be finite everywhere
        terms = [term for term, u in zip(self.terms_, used) if u]
        compiled = compile_terms(terms, self._compiled.variables)
        return Model(compiled, self.coefficients_[:, used], self.order, link)

    def equations(self, format: str = "text", precision: int = 4) -> list[Any]:
        """The equations, one for every variable.

        Args:
            format: `"text"`, `"latex"` or `"sympy"`.
            precision: Digits of the coefficients.
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
        """The highest derivative at given states.

        Args:
            X: (T, V order) states, or with an order above one (T, V) positions along time, whose
                derivatives are then taken from a smooth curve; or a list of such.
            t: Times of positions along time, as in `fit`; the step of the data by default.
            inputs: External inputs, as in `fit`.

        Returns:
            (T, V), or a list of such if X is a list.
        """
        model = self._model()
        V = len(self.variables_)
        if isinstance(X, list | tuple):
            nodes, Z = self._states_of(X, t, inputs)
            return nodes.split(model.rate(Z, nodes.U)[:, -V:])
        given = np.asarray(X, float)
        if self.order == 1 or (given.ndim == 2 and given.shape[1] == len(self.state_names_)):
            Z = given.reshape(-1, len(self.state_names_))
            U = np.empty((len(Z), 0)) if not self.inputs_ else self._input_rows(inputs, len(Z))
            return model.rate(Z, U)[:, -V:]
        nodes, Z = self._states_of(X, t, inputs)
        return model.rate(Z, nodes.U)[:, -V:]

    def score(self, X: Any, y: Any = None, *, t: Any = None, inputs: Any = None) -> float:
        """Share of the variance of the measured highest derivative that the model explains (R²).

        The measured derivative comes from a smooth curve through the data; 1 is perfect. Without
        `t` the step of the data that were fitted is taken.
        """
        model = self._model()
        nodes = gather(X, self.step_ if t is None else t, inputs, self.variables_)
        curves, _ = smooth(nodes, self.order, np.random.default_rng(self.random_state))
        Z = np.concatenate([curves[..., r] for r in range(self.order)], -1)
        top = model.rate(Z, nodes.U)[:, -len(self.variables_) :]
        measured = curves[..., self.order]
        error = ((top - measured) ** 2).sum(0)
        spread = ((measured - measured.mean(0)) ** 2).sum(0)
        return float(np.mean(1.0 - error / np.maximum(spread, 1e-300)))

    def simulate(self, x0: Any, t: Any, inputs: Any = None) -> Array:
        """A trajectory of the equations.

        Args:
            x0: (V order,) initial state: values, then derivatives.
            t: (T,) increasing times.
            inputs: (T, inputs) inputs at these times.

        Returns:
            (T, V order); NaN from where the trajectory runs away.
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
            raise DataError("t must be finite and increase.")
        U = self._input_rows(inputs, len(at)) if self.inputs_ else None
        return simulate(model, z0, at, U, self.scale_)

    def _input_rows(self, inputs: Any, rows: int) -> Array:
        """(rows, inputs), checked."""
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
            nodes = gather(X, self.step_ if t is None else t, inputs, self.state_names_)
            return nodes, nodes.Y
        nodes = gather(X, self.step_ if t is None else t, inputs, self.variables_)
        curves, _ = smooth(nodes, self.order, np.random.default_rng(self.random_state))
        return nodes, np.concatenate([curves[..., r] for r in range(self.order)], -1)

    def save(self, path: str | Path) -> Path:
        """Write the model as JSON."""
        check_is_fitted(self, "coefficients_")
        return _storage.write_model(
            path,
            {
                "library": self.library_.to_json(),
                "order": self.order,
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
        """Read a model that `save` wrote; it predicts and simulates as the one that was fitted.

        Raises:
            ModelFileError: If the file holds something else.
        """
        record = _storage.read_model(path)
        try:
            library = Library.from_json(record.get("library"))  # type: ignore[arg-type]
            self = cls(library=library, order=record.get("order", 1), link=record.get("link"))
            self._check_options()
            self.library_ = library
            with budget(_storage.MAX_CALLS):
                self._set_names(
                    _storage.texts(record, "variables"), _storage.texts(record, "inputs")
                )
        except _storage.ModelFileError:
            raise
        except OverBudget:
            raise _storage.ModelFileError(
                f"{path} has terms that cannot be made in reasonable time; not one that Discovery."
                "save wrote."
            ) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _storage.ModelFileError(f"{path} cannot be used: {error}") from None
        if _storage.texts(record, "terms") != [term.name for term in self.terms_]:
            raise _storage.ModelFileError(f"{path} lists other terms than its library has.")
        V, P, D = len(self.targets_), len(self.terms_), len(self.state_names_)
        self.coefficients_ = _storage.matrix(record, "coefficients", (V, P))
        self.deviation_ = _storage.matrix(record, "deviation", (V, P))
        half = LEVEL * self.deviation_
        self.intervals_ = np.stack([self.coefficients_ - half, self.coefficients_ + half], -1)
        known = record.get("inclusion") is not None
        self.inclusion_ = _storage.matrix(record, "inclusion", (V, P)) if known else None
        self.noise_ = _storage.matrix(record, "noise", (V,))
        self.scale_ = _storage.matrix(record, "scale", (D,))
        self.step_ = float(_storage.matrix(record, "step", ()))
        self.states_, self.times_ = [], []
        self.report_ = record.get("report") or {}
        return self


def _one_blas_thread() -> Any:
    """Small matrices: threads of the linear algebra library would only wait for each other."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="blas")
