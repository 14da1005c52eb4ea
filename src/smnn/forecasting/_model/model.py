"""The fitted model: a blend of equations per series, shared modes, and calibrated intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from smnn._util.optional import require
from smnn.forecasting._model.blend import Scores, blend, mean_known, windows
from smnn.forecasting._model.intervals import Calibration, calibrate
from smnn.forecasting._model.modes import (
    Anomalies,
    ModeChoice,
    Modes,
    anomalies_of,
    evenly_spaced,
    find_modes,
)
from smnn.forecasting._model.panel import Panel, cleaned
from smnn.forecasting._model.search import (
    Search,
    choose_origins,
    find_cycle,
    kind,
    limit_origins,
    solution_count,
)
from smnn.forecasting._model.seasons import Season
from smnn.forecasting._model.shortlist import Shortlist, complexities, find_shortlist
from smnn.forecasting._model.smoothing import components
from smnn.forecasting._model.spec import Spec
from smnn.forecasting._time import Clock

SAMPLE_GRID = 16
"""From more series with the same unit than this, one blend for all is found."""
SHORT = Spec(trend="none", decay=1.0, ratio=1.0)
"""Equation for a history that is too short for cross-validation: exponential smoothing."""
MORE_ORIGINS = 1.5
"""Origins of the blend relative to the argument `origins`."""
SEARCH_ORIGINS = 6
"""Origins of the search for equations, of which the best are tested at all origins."""
WINDOW = 2000
"""Times used by a fit, unless seasons or horizon require more."""
SAMPLE = 64
"""Series in the sample that the equations are chosen from."""
SAMPLE_SHARED = 512
"""The same where series share their gaps, which makes them cheap."""
MAX_KINDS = 8
"""Kinds of equations that are then tested on all series."""
MAX_MEMBERS = 3
"""Members of the blend of series that were not tested."""
MODE_SHARES = (0.5, 1.0)
"""Weights of the shared modes that are tested."""
MODE_GAIN = 0.99
"""Shared modes are used if they reduce the mean square error of a series below this fraction on
average."""
RIDGE = 0.1
"""Shrinkage of blend weights towards equal weights, relative to the mean error of a member."""
MIN_WEIGHT = 0.01
"""Members of a grid's blend with a smaller weight are dropped."""
MIN_MODE_SHARE = 0.02
"""Smallest weight of the shared modes of a grid."""


LENGTHS = 1.5
"""Series are fitted together if their lengths differ by less than this factor."""
MAX_TOGETHER = 10_000
"""Largest number of series that are fitted together; bounds the memory."""


@dataclass(frozen=True)
class Part:
    """Series of a panel that are fitted together."""

    rows: np.ndarray
    """Their indices in the panel."""
    model: Model


def fit_parts(
    panel: Panel, groups: Sequence[tuple[np.ndarray, Sequence[Season]]], **options: Any
) -> list[Part]:
    """Fit the series with the same seasons and similar lengths together.

    Args:
        panel: All series.
        groups: Indices of series and their seasons.
        options: Arguments of `fit_model`.
    """
    out = []
    N = panel.values.shape[1]
    for rows, seasons in groups:
        lengths = N - np.isfinite(panel.values[rows]).argmax(1)
        bins = np.zeros(len(rows), dtype=int)
        if not panel.same_units:
            bins = (np.log(N / lengths) / np.log(LENGTHS)).astype(int)
        for each in np.unique(bins):
            own = np.flatnonzero(bins == each)
            count = 1 if panel.same_units else -(-len(own) // MAX_TOGETHER)
            for some in np.array_split(own, count):
                part = panel.part(rows[some], N - int(lengths[some].max()), seasons)
                out.append(Part(rows[some], fit_model(cleaned(part), **options)))
    return out


@dataclass(frozen=True)
class Model:
    """Result of `fit_model`: a blend for every series, shared modes, calibrated intervals."""

    panel: Panel
    lead: Spec
    """The equation with the largest total weight."""
    weights: dict[Spec, np.ndarray]
    """`(S,)` blend weights of each equation."""
    log: np.ndarray
    """`(S,)` which series are modelled by their logarithms."""
    tested: np.ndarray
    """Indices of the series that were cross-validated."""
    window: int
    """Largest number of times that an equation is fitted to."""
    origins: Sequence[int]
    table: np.ndarray | None = None
    """`(S, M, P)` exponential smoothings of each series, as in `smoothing`."""
    shares: np.ndarray | None = None
    """`(S, M)` their blend weights."""
    held_out: np.ndarray | None = None
    """`(S, O, H)` forecasts from the origins, each with weights from the other origins only."""
    modes: ModeChoice | None = None
    calibration: Calibration | None = None

    def base(self, past: slice, future: Clock, inputs: np.ndarray | None) -> dict[str, np.ndarray]:
        """`(S, H)` contribution of each kind of term to the blend, without shared modes."""
        out = {"trend": np.zeros((len(self.log), len(future)))}

        def add(name: str, rows: np.ndarray | slice, part: np.ndarray) -> None:
            out.setdefault(name, np.zeros_like(out["trend"]))[rows] += part

        for spec, weight in self.weights.items():
            rows = np.flatnonzero(weight > 0)
            if not len(rows):
                continue
            panel = self.panel if len(rows) == len(weight) else self.panel.part(rows)
            ((system, centre, states),) = panel.states([spec], past, future, inputs)
            share = weight[rows, None]
            add("trend", rows, share * centre)
            for name in dict.fromkeys(term.part for term in system.terms):
                own = [j for j, term in enumerate(system.terms) if term.part == name]
                add(name, rows, share * (states[:, own] @ system.ahead[:, own].T))
        if self.table is not None and self.shares is not None:
            past = slice(0, past.stop)
            grid = self.panel.grid(past, future)
            assert grid is not None
            y = self.panel.on_grid(past, grid, self.log)
            for name, part in components(y, self.table, grid, len(future)).items():
                add(name, slice(None), (self.shares[..., None] * part).sum(1))
        return out

    def parts(
        self, count: int, future: Clock, inputs: np.ndarray | None
    ) -> tuple[dict[str, np.ndarray], Modes | None]:
        """Contribution `(S, H)` of each kind of term, and the shared modes if there are any."""
        out = self.base(self.panel.history(count, self.window), future, inputs)
        if self.modes is None:
            return out, None
        modes, change = self._coupled(self.modes, count, future, inputs)
        return out | {"shared modes": change}, modes

    def base_from(self, place: int) -> np.ndarray:
        """`(S, H)` forecast from an origin without shared modes."""
        if self.held_out is not None:
            return self.held_out[:, place].copy()
        origin = self.origins[place]
        past = self.panel.history(origin, self.window)
        out: np.ndarray = np.sum([*self.base(past, *self.panel.after(origin)).values()], axis=0)
        return out

    def ahead_from(self, place: int) -> np.ndarray:
        """`(S, H)` forecast from an origin."""
        base, origin = self.base_from(place), self.origins[place]
        if self.modes is None:
            return base
        return base + self._coupled(self.modes, origin, *self.panel.after(origin))[1]

    def anomalies(self, count: int, future: Clock, inputs: np.ndarray | None) -> Anomalies:
        """Anomalies of all series."""
        past = self.panel.history(count, self.window)
        return anomalies_of(self.panel, self.lead, past, future, inputs)

    def _coupled(
        self, choice: ModeChoice, count: int, future: Clock, inputs: np.ndarray | None
    ) -> tuple[Modes, np.ndarray]:
        counts = self.mode_counts(count)
        modes = find_modes(self.anomalies(count, future, inputs), counts)
        return modes, choice.share * modes.change(counts)

    def mode_counts(self, count: int) -> tuple[int, ...]:
        """Numbers of modes that a forecast from origin `count` averages over."""
        assert self.modes is not None
        return self.modes.counts(len(self.panel.values), min(count, self.window))


def fit_model(
    panel: Panel, *, origins: int, trend: str, log: bool | None, modes: int | str
) -> Model:
    """Choose the equations of every series and the shared modes, and calibrate the intervals."""
    S, N = panel.values.shape
    horizon, longest = panel.horizon, panel.longest
    window = int(max(WINDOW, 6 * longest, 8 * horizon))
    seasons = [season.length for season in panel.seasons]
    chosen = choose_origins(N, horizon, longest, round(MORE_ORIGINS * origins), seasons)
    if panel.same_units and S > SAMPLE_GRID and chosen and not log:
        return _calibrated(_fit_grid(panel, chosen, window, trend, modes))
    if chosen:
        model = _fit_series(panel, chosen, window, trend, log)
        return _calibrated(replace(model, modes=_choose_modes(model, modes)))
    lead = replace(SHORT, log=bool(log), trend="none" if trend == "auto" else trend)
    logs = np.full(S, lead.log)
    return _calibrated(Model(panel, lead, {lead: np.ones(S)}, logs, np.arange(S), window, chosen))


def _fit_grid(
    panel: Panel, origins: Sequence[int], window: int, trend: str, modes: int | str
) -> Model:
    """Fit series with the same unit: one set of equations and one blend for all."""
    tested = _sample(panel)
    solutions = min(solution_count(np.isfinite(panel.values)), 4 * SAMPLE)
    origins = limit_origins(panel, origins, window, solutions)
    search = Search(panel.part(tested), origins, window)
    search.run(find_cycle(search.panel, window), trend, False)
    members = search.best_of_each_kind()[:MAX_KINDS]
    lead, S = members[0], len(panel.values)
    if _gaps_shared(panel):
        tested = np.arange(S)
    found = _stack(panel.part(tested), members, lead, origins, window, modes)
    share = np.array([*found.weights.values()])
    if len(tested) < S:
        share = _mean_weights(share, [*found.weights])
    weights = {m: np.full(S, w) for m, w in zip(found.weights, share)}
    log = np.zeros(S, dtype=bool)
    return Model(panel, lead, weights, log, tested, window, origins, modes=found.modes)


def _calibrated(model: Model) -> Model:
    """Add the calibration of the intervals."""
    panel, changes = model.panel, _changes(model)
    seen = np.isfinite(panel.values)
    age = seen[:, ::-1].argmax(1)
    if not model.origins:
        spread = changes[:, None] * np.sqrt(np.arange(1, panel.horizon + 1))
        count = float(seen.sum(1).max(initial=0))
        walk = Calibration(spread, np.zeros(0), max(count - 1.0, 1.0), age)
        return replace(model, calibration=walk)
    tested = model.tested
    part = model
    if len(tested) < len(changes):
        past = None if model.held_out is None else model.held_out[tested]
        part = replace(
            model, panel=panel.part(tested), log=model.log[tested], held_out=past, table=None,
            weights={m: w[tested] for m, w in model.weights.items()},
        )  # fmt: skip
    ahead = [part.ahead_from(i) for i in range(len(part.origins))]
    typical, errors = (_errors(part, ahead, y) for y in (part.panel.values, part.panel.raw))
    calibration = calibrate(typical, changes[tested], errors)
    if len(tested) < len(changes):
        calibration = calibration.extend(tested, changes)
    return replace(model, calibration=replace(calibration, age=age))


def _fit_series(
    panel: Panel, origins: Sequence[int], window: int, trend: str, log: bool | None
) -> Model:
    """Choose equations that all series can use, and smoothings of their own."""
    S, positive = len(panel.values), panel.positive
    tested = _sample(panel)
    solutions = min(solution_count(np.isfinite(panel.values[tested])), SAMPLE)
    some = origins[:: max(1, round(len(origins) / SEARCH_ORIGINS))]
    search = Search(panel.part(tested), limit_origins(panel, some, window, solutions), window)
    choice = log if log is not None or positive.all() else False
    search.run(find_cycle(search.panel, window), trend, choice)
    members = search.best_of_each_kind()[:MAX_KINDS]
    logs = (False, True) if log is None and positive.any() else (bool(log),)
    short = find_shortlist(panel, origins, trend, logs)
    if _gaps_shared(panel):
        tested = np.arange(S)
    search = Search(panel.part(tested), origins, window)
    search.test(members)
    return _blended(panel, search, members, tested, short)


def _blended(
    panel: Panel, search: Search, members: Sequence[Spec], tested: np.ndarray,
    short: Shortlist | None,
) -> Model:  # fmt: skip
    """Weights of equations, known for the series `tested`, and smoothings, known for all."""
    S, O, H = len(panel.values), len(search.origins), panel.horizon
    J, M = len(members), 0 if short is None else short.table.shape[1]
    own = tested if short is None else np.arange(S)
    errors, forecasts = np.full((J + M, S, O), np.nan), np.zeros((J + M, S, O, H))
    for j, member in enumerate(members):
        errors[j, tested] = search.errors[member]
        forecasts[j, tested] = np.stack(search.forecasts[member], axis=1)
    log = np.repeat([[m.log] for m in members], S, axis=1)
    complexity = np.repeat([[m.complexity] for m in members], S, axis=1)
    kinds: list[object] = [*map(kind, members), *[None] * M]
    chosen = None
    if short is not None:
        errors[J:], forecasts[J:], chosen = short.errors, short.forecasts, short.log
        log = np.concatenate([log, np.repeat(chosen[None], M, axis=0)])
        complexity = np.concatenate([complexity, complexities(short.table).T])
    scores = Scores(errors[:, own], complexity[:, own], windows(search.origins, H)).settled()
    weights = np.zeros((J + M, S))
    weights[:, own] = blend(scores.values(), log[:, own], kinds, chosen)
    chosen = (weights * log).sum(0) > 0.5 if chosen is None else chosen
    held_out = np.zeros((S, O, H))
    for i in range(O):
        w = blend(scores.values(i if O > 1 else None), log[:, own], kinds, chosen[own])
        held_out[own, i] = np.einsum("ms,msh->sh", w, forecasts[:, own, i])
    unknown = weights.sum(0) == 0
    if unknown.any():
        mean = _mean_weights(weights[:J].sum(1), members)
        weights[:J, unknown], chosen[unknown] = mean[:, None], members[int(mean.argmax())].log
    return Model(
        panel, members[int(weights[:J].sum(1).argmax())],
        {m: w for m, w in zip(members, weights) if w.any()}, chosen, own, search.window,
        search.origins, None if short is None else short.table,
        None if short is None else weights[J:].T, held_out,
    )  # fmt: skip


def _mean_weights(total: np.ndarray, members: Sequence[Spec]) -> np.ndarray:
    """`(J,)` weights of the members with the largest totals, all logarithmic or none."""
    log = np.array([m.log for m in members])
    if not total.any():
        total = np.arange(len(members)) == 0
    usable = np.where(log == log[total.argmax()], total, 0.0)
    usable[np.argsort(-usable, kind="stable")[MAX_MEMBERS:]] = 0.0
    out: np.ndarray = usable / usable.sum()
    return out


def _gaps_shared(part: Panel) -> bool:
    """Whether enough series share their gaps that all can be tested."""
    return solution_count(np.isfinite(part.values)) <= 4 * SAMPLE


def _sample(part: Panel) -> np.ndarray:
    """Indices of the series that the equations are chosen from: all, or an even sample."""
    most = SAMPLE_SHARED if _gaps_shared(part) else SAMPLE
    if len(part.values) <= most:
        return np.arange(len(part.values))
    counts = np.isfinite(part.values).sum(1)
    usable = np.flatnonzero(counts >= np.median(counts) / 2)
    return usable[np.linspace(0, len(usable) - 1, most).astype(int)]


def _choose_modes(model: Model, modes: int | str) -> ModeChoice | None:
    """Choose the weight of the shared modes by cross-validation; `None` if they do not help."""
    panel = model.panel
    S = len(panel.values)
    if modes == 0 or S < 2 or not model.origins or len(model.tested) < S:
        return None
    if not evenly_spaced(panel.clock):
        return None
    # Short histories do not determine the matrix of the modes: use the later origins.
    late = [o for o in model.origins if o >= len(panel.clock) / 2] or model.origins[:1]
    count = None if modes == "auto" else int(modes)
    square = np.full((1 + len(MODE_SHARES), len(late), S), np.nan)
    for i, origin in enumerate(late):
        own = model.base_from(list(model.origins).index(origin))
        counts = ModeChoice(count, 1.0).counts(S, min(origin, model.window))
        found = find_modes(model.anomalies(origin, *panel.after(origin)), counts)
        change = found.change(counts)
        enough = panel.scorable(panel.history(origin, model.window))
        for j, share in enumerate((0.0, *MODE_SHARES)):
            error = panel.errors(own + share * change, origin, enough, model.log[:, None])
            square[j, i] = mean_known(error**2)
    mean = mean_known(square.transpose(0, 2, 1))
    # Relative to each series: otherwise the choice would follow the least predictable of them.
    known = mean[0] > 0
    if not known.any():
        return None if modes == "auto" else ModeChoice(count, MODE_SHARES[0])
    ratio = (mean[1:, known] / mean[0, known]).mean(1)
    best = int(ratio.argmin())
    if modes == "auto" and not ratio[best] < MODE_GAIN:
        return None
    return ModeChoice(count, MODE_SHARES[best])


def _errors(model: Model, ahead: Sequence[np.ndarray], observed: np.ndarray) -> np.ndarray:
    """`(S, O, H)` cross-validation errors on the modelled scale; NaN where not scored."""
    panel = model.panel
    out = np.full((len(panel.values), len(ahead), panel.horizon), np.nan)
    log = model.log[:, None]
    for i, (origin, forecast) in enumerate(zip(model.origins, ahead)):
        truth = observed[:, origin : origin + panel.horizon]
        # An outlier at or below zero has no logarithm, even if the cleaned series has.
        logarithm = np.log(np.where(truth > 0, truth, np.nan))
        error = np.where(log, logarithm, truth) - forecast
        error[~panel.scorable(panel.history(origin, model.window))] = np.nan
        out[:, i, : truth.shape[1]] = error
    return out


def _changes(model: Model) -> np.ndarray:
    """`(S,)` root mean square change between consecutive observations; NaN for fewer than two."""
    panel = model.panel
    out = np.full(len(panel.values), np.nan)
    for i, (row, log) in enumerate(zip(panel.values, model.log)):
        seen = row[np.isfinite(row)]
        if len(seen) > 1:
            out[i] = np.sqrt(np.mean(np.diff(np.log(seen) if log else seen) ** 2))
    return out


class Stack(NamedTuple):
    """Blend weights of a grid, and its shared modes."""

    weights: dict[Spec, float]
    modes: ModeChoice | None


def _stack(
    panel: Panel, members: Sequence[Spec], lead: Spec, origins: Sequence[int], window: int,
    modes: int | str,
) -> Stack:  # fmt: skip
    """Stacked regression: weights that minimize the pooled cross-validation error.

    The weights take the correlation between the errors of the members into account. The last column
    is the leading equation with shared modes.
    """
    choice = None if modes == 0 else ModeChoice(None if modes == "auto" else int(modes), 1.0)
    if not evenly_spaced(panel.clock):
        choice = None
    total: np.ndarray | float = 0.0
    for origin in origins:
        past, (future, inputs) = panel.history(origin, window), panel.after(origin)
        truth = panel.raw[:, origin : origin + panel.horizon]
        errors = [x - truth for x in panel.ahead(members, past, future, inputs)]
        if choice is not None:
            counts = choice.counts(len(truth), min(origin, window))
            found = find_modes(anomalies_of(panel, lead, past, future, inputs), counts)
            errors.append(errors[members.index(lead)] + found.change(counts))
        scored = np.isfinite(truth) & panel.scorable(past)[:, None]
        flat = np.where(scored, np.stack(errors), 0.0).reshape(len(errors), -1)
        products = flat @ flat.T
        total = total + products / max(np.trace(products), 1e-300)  # equal weight of all origins
    w = _simplex_weights(np.asarray(total))
    weights = {m: float(x) for m, x in zip(members, w)}
    if choice is not None:
        share = float(w[-1]) if modes == "auto" else 1.0
        weights[lead] += float(w[-1])
        choice = ModeChoice(choice.number, share) if share > MIN_MODE_SHARE else None
    kept = {m: x for m, x in weights.items() if x > MIN_WEIGHT} or {lead: 1.0}
    kept.setdefault(lead, 0.0)
    scale = sum(kept.values())
    return Stack({m: x / scale for m, x in kept.items()}, choice)


def _simplex_weights(products: np.ndarray) -> np.ndarray:
    """Non-negative weights with unit sum that minimize `w @ products @ w`, with shrinkage."""
    optimize = require("scipy.optimize", "blend forecasts")
    M = len(products)
    unit = max(float(np.trace(products)) / M, 1e-300)
    G = products / unit + RIDGE * np.eye(M)
    root = np.linalg.cholesky(G).T
    heavy = 1e3  # weight of the row for the unit sum
    w = optimize.nnls(np.vstack([root, np.full((1, M), heavy)]), np.append(np.zeros(M), heavy))[0]
    out: np.ndarray = w / w.sum()
    return out
