"""Variants of PySINDy, tuned without knowledge of the true equations.

A variant converts data to rows (candidate terms, derivative) by PySINDy's differentiation or weak
form, and fits them by PySINDy's optimizers at every threshold of a grid. The threshold of each
equation is chosen by an information criterion; smoothing windows and test functions are chosen by
the error of short simulations (`sindy_choice`). All fitted equations are kept, so that the best
choice in hindsight can be reported too.

Equations of higher order: PySINDy fits first-order systems, so the lower derivatives are computed
by repeated application of the variant's differentiation, and are treated as states. The weak form
integrates by parts only once and takes its lower derivatives from smoothed differences.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from smnn._util.optional import require
from smnn.datasets.dynamics import Array, Problem, Series, canonical
from smnn.experiments.discovery_bench.methods import Equation, Found
from smnn.experiments.discovery_bench.sindy_choice import (
    Path,
    Rows,
    SimulationError,
    best,
    choose,
    derivatives,
    smoothed,
)

DEFAULT_THRESHOLD = 0.1
THRESHOLDS = tuple(np.geomspace(0.005, 5, 19))
"""Thresholds of coefficients in the units of the data."""
SHARES = tuple(np.geomspace(1e-3, 0.5, 19))
"""Thresholds of coefficients of normalized columns, relative to the norm of the largest target."""
TEST_FUNCTIONS = 500
"""Number of test functions of the weak form, over all series."""


class Setting(NamedTuple):
    """A way to convert series to rows."""

    label: str
    make: Callable[[Any, Sequence[Series], Problem], Rows]


@dataclass(frozen=True)
class Sindy:
    """A variant of PySINDy."""

    name: str
    settings: Callable[[Sequence[Series], Problem], list[Setting]]
    ensemble: int = 0
    """Number of models fitted to resampled rows and combined by the median; 0 for none."""
    tuned: bool = True
    """Whether the threshold is chosen; otherwise it is PySINDy's default."""

    def fit(self, series: Sequence[Series], problem: Problem) -> Found:
        """Fit with every setting and threshold, then choose."""
        ps = require("pysindy", "compare with PySINDy")
        sklearn = require("sklearn", "compare with PySINDy")
        # In thousands of small regressions, validating arguments takes longer than solving.
        plain = sklearn.config_context(assume_finite=True, skip_parameter_validation=True)
        start = time.process_time()
        with _quiet(), _seeded(0), plain:
            names = _names(ps, problem)
            paths = []
            for label, make in self.settings(series, problem):
                rows = make(ps, series, problem)
                fits = list(self._path(ps, rows))
                paths.append(Path(label, choose(rows, fits) if self.tuned else fits[0], fits))
            answer = best(paths, SimulationError(series, problem, names))
        seconds = time.process_time() - start
        candidates = {
            target: [_equation(fit[v], names) for one in paths for fit in one.fits]
            for v, target in enumerate(problem.targets)
        }
        coefficients = {
            t: _equation(answer.chosen[v], names) for v, t in enumerate(problem.targets)
        }
        return Found(coefficients, seconds, answer.label, candidates)

    def _path(self, ps: Any, rows: Rows) -> Iterator[Array]:
        """Coefficients `(V, P)` at every threshold; PySINDy's default is always the first."""
        terms, targets, _ = rows
        # An ensemble takes twenty fits per threshold: half of the grid suffices.
        grid = THRESHOLDS[::2] if self.ensemble else THRESHOLDS
        for threshold in (DEFAULT_THRESHOLD, *grid):
            yield self._optimizer(ps, threshold=threshold).fit(terms, targets).coef_
        if self.ensemble:
            return
        size = np.linalg.norm(targets, axis=0).max()
        for share in SHARES:
            # For columns of norm one the default ridge of 0.05 is far too strong.
            optimizer = ps.STLSQ(threshold=share * size, alpha=1e-8, normalize_columns=True)
            yield optimizer.fit(terms, targets).coef_

    def _optimizer(self, ps: Any, **options: float) -> Any:
        optimizer = ps.STLSQ(**options)
        if not self.ensemble:
            return optimizer
        return ps.EnsembleOptimizer(optimizer, bagging=True, n_models=self.ensemble)


def _differences(order: int) -> Callable[[Sequence[Series], Problem], list[Setting]]:
    def make(ps: Any, series: Sequence[Series], problem: Problem) -> Rows:
        difference = ps.FiniteDifference(order=order)
        return _difference_rows(ps, difference, series, problem, width=order + 1)

    return lambda series, problem: [Setting(f"differences of order {order}", make)]


def _smoothing(*windows: tuple[int, int]) -> Callable[[Sequence[Series], Problem], list[Setting]]:
    """Savitzky-Golay filters of several lengths and degrees, then fourth-order differences."""

    def setting(window: int, degree: int) -> Setting:
        def make(ps: Any, series: Sequence[Series], problem: Problem) -> Rows:
            smooth = smoothed(ps, window, degree)
            return _difference_rows(ps, smooth, series, problem, width=window)

        return Setting(f"window {window}, degree {degree}", make)

    def settings(series: Sequence[Series], problem: Problem) -> list[Setting]:
        shortest = min(len(s.t) for s in series)
        return [setting(w, d) for w, d in windows if w <= shortest / 2]

    return settings


def _weak(series: Sequence[Series], problem: Problem) -> list[Setting]:
    """Test functions of several widths."""

    def setting(half: int, window: int, degree: int) -> Setting:
        def make(ps: Any, series: Sequence[Series], problem: Problem) -> Rows:
            smooth = smoothed(ps, window, degree) if problem.order > 1 else None
            return _weak_rows(ps, smooth, series, problem, half)

        label = f"test functions over {2 * half} steps"
        return Setting(label if problem.order == 1 else f"{label}, window {window}", make)

    shortest = min(len(s.t) for s in series)
    windows = ((11, 3), (41, 5)) if problem.order > 1 else ((0, 0),)
    return [
        setting(half, *w) for half in (5, 10, 20, 50, 100) if half <= shortest / 3
        for w in windows if w[0] <= shortest / 2
    ]  # fmt: skip


def _with_inputs(states: Array, s: Series) -> Array:
    return states if s.u is None else np.hstack([states, s.u])


def _difference_rows(
    ps: Any, difference: Any, series: Sequence[Series], problem: Problem, width: int
) -> Rows:
    terms, targets = [], []
    for s in series:
        states, top = derivatives(difference, s, problem.order)
        terms.append(np.asarray(_library(ps, problem).fit_transform(_with_inputs(states, s))))
        targets.append(top)
    return _stacked(terms, targets, width)


def _weak_rows(ps: Any, smooth: Any, series: Sequence[Series], problem: Problem, half: int) -> Rows:
    """Integrals with test functions, whose number is proportional to the length of each series."""
    from pysindy.utils import AxesArray

    samples = sum(len(s.t) for s in series)
    V, terms, targets = len(problem.variables), [], []
    for s in series:
        states = s.x
        if smooth is not None:  # the weak form differentiates the highest of them
            states, _ = derivatives(smooth, s, problem.order)
        columns = AxesArray(_with_inputs(states, s), {"ax_time": 0, "ax_coord": 1})
        weak = ps.WeakPDELibrary(
            function_library=_library(ps, problem, bias=False), include_bias=True,
            spatiotemporal_grid=s.t, K=max(8, TEST_FUNCTIONS * len(s.t) // samples),
            # Half a step is added, so that rounding cannot place the ends on samples.
            H_xt=(half + 0.5) * float(np.diff(s.t).mean()),
        )  # fmt: skip
        terms.append(np.asarray(weak.fit_transform([columns])[0]))
        slopes = np.asarray(weak.convert_u_dot_integral(columns))
        targets.append(slopes[:, V * (problem.order - 1) : V * problem.order])
    return _stacked(terms, targets, 2 * half)


def _stacked(terms: list[Array], targets: list[Array], width: int) -> Rows:
    """Stack rows; neighbouring ones share samples, so at least a tenth counts as independent."""
    x, y = np.concatenate(terms), np.concatenate(targets)
    return Rows(x, y, max(len(y) / min(width, 10), 3.0))


def _library(ps: Any, problem: Problem, bias: bool = True) -> Any:
    polynomials = ps.PolynomialLibrary(degree=problem.basis.degree, include_bias=bias)
    if not problem.basis.frequencies:
        return polynomials
    waves = ps.FourierLibrary(n_frequencies=max(problem.basis.frequencies))
    return ps.ConcatLibrary([polynomials, waves])


def _names(ps: Any, problem: Problem) -> list[str]:
    """Canonical names of the terms, in PySINDy's order."""
    states = (*problem.states, *problem.inputs)
    library = _library(ps, problem).fit(np.zeros((2, len(states))))
    names = [canonical(name, states) for name in library.get_feature_names(list(states))]
    if sorted(names) != sorted(problem.terms):
        raise ValueError(
            f"{problem.name}: PySINDy offers the terms {names}, expected {problem.terms}; the "
            "frequencies of its sines and cosines are 1, 2, ... without gaps."
        )
    return names


def _equation(row: Array, names: list[str]) -> Equation:
    return {name: float(value) for name, value in zip(names, row, strict=True) if value != 0}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress warnings, such as those about thresholds that remove all terms."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed NumPy's global generator, which PySINDy uses, and restore it afterwards."""
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before)


VARIANTS: tuple[Sindy, ...] = (
    Sindy("pysindy-default", _differences(2), tuned=False),
    Sindy("pysindy-fd2", _differences(2)),
    Sindy("pysindy-fd4", _differences(4)),
    Sindy("pysindy-smoothed", _smoothing((7, 3), (11, 3), (21, 5), (41, 5), (81, 5))),
    Sindy("pysindy-ensemble", _smoothing((11, 3), (21, 5), (41, 5)), ensemble=20),
    Sindy("pysindy-weak", _weak),
    Sindy("pysindy-weak-ensemble", _weak, ensemble=20),
)
"""Untuned PySINDy, then tuned variants: differences of second and fourth order, smoothed
differences without and with an ensemble, and the weak form without and with an ensemble."""
