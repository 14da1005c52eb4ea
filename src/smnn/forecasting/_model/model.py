"""The fitted model: a blend of equations per series, shared modes, and calibrated intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from smnn._util.optional import require
from smnn.forecasting._model.intervals import Calibration, calibrate
from smnn.forecasting._model.modes import (
    Anomalies,
    ModeChoice,
    Modes,
    anomalies_of,
    concatenate,
    evenly_spaced,
    find_modes,
)
from smnn.forecasting._model.panel import Member, Panel, Repeat
from smnn.forecasting._model.search import (
    Search,
    choose_origins,
    find_cycle,
    limit_origins,
    solution_count,
)
from smnn.forecasting._model.spec import Spec
from smnn.forecasting._time import Clock

ONE_BY_ONE = 16
"""Up to this many series, each has a search of its own."""
SHORT = Spec(trend="none", decay=1.0, ratio=1.0)
"""Equation for a history that is too short for cross-validation: exponential smoothing."""
MORE_ORIGINS = 3.0
"""Largest factor by which the number of origins is increased for few series."""
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
MODE_GAIN = 0.999
"""Shared modes are used if they reduce the mean square error below this fraction."""
RIDGE = 0.1
"""Shrinkage of blend weights towards equal weights, relative to the mean error of a member."""
MIN_WEIGHT = 0.01
"""Members of a grid's blend with a smaller weight are dropped."""
MIN_MODE_SHARE = 0.02
"""Smallest weight of the shared modes of a grid."""


@dataclass(frozen=True)
class Group:
    """Series whose equations were chosen together."""

    rows: np.ndarray
    """Indices of the series in the panel."""
    panel: Panel
    lead: Spec
    """The leading equation."""
    weights: dict[Member, np.ndarray]
    """`(S,)` blend weights of each member."""
    tested: np.ndarray
    """Indices into `rows` of the series that were cross-validated."""
    held_out: np.ndarray | None = None
    """`(O, H)` forecasts of a single series, each with weights from the other origins only."""

    @property
    def log(self) -> np.ndarray:
        """`(S,)` which series are modelled by their logarithms."""
        return sum(
            (w * float(m.log) for m, w in self.weights.items()), np.zeros(len(self.rows))
        ) > 0.5  # fmt: skip

    def ahead(self, past: slice, future: Clock, inputs: np.ndarray | None) -> np.ndarray:
        """`(S, H)` blended forecast on the modelled scale."""
        out = np.zeros((len(self.rows), len(future)))
        members = list(self.weights)
        for member, ahead in zip(members, self.panel.ahead(members, past, future, inputs)):
            out += np.where(self.weights[member] > 0, self.weights[member], 0.0)[:, None] * ahead
        return out

    def parts(self, past: slice, future: Clock, inputs: np.ndarray | None) -> dict[str, np.ndarray]:
        """`(S, H)` contribution of each kind of term to the blend."""
        out: dict[str, np.ndarray] = {}

        def add(name: str, part: np.ndarray) -> None:
            out[name] = out[name] + part if name in out else part

        specs = [m for m in self.weights if isinstance(m, Spec)]
        for spec, solved in zip(specs, self.panel.states(specs, past, future, inputs)):
            system, centre, states = solved
            weight = self.weights[spec][:, None]
            add("trend", weight * np.repeat(centre, len(future), axis=1))
            for name in dict.fromkeys(term.part for term in system.terms):
                own = [j for j, term in enumerate(system.terms) if term.part == name]
                add(name, weight * (states[:, own] @ system.ahead[:, own].T))
        for member, weight in self.weights.items():
            if isinstance(member, Repeat):
                (repeated,) = self.panel.ahead([member], past, future, inputs)
                add("last season", weight[:, None] * repeated)
        return out


@dataclass(frozen=True)
class Model:
    """Result of `fit_model`."""

    panel: Panel
    groups: Sequence[Group]
    window: int
    origins: Sequence[int]
    modes: ModeChoice | None
    calibration: Calibration

    @property
    def log(self) -> np.ndarray:
        """`(S,)` which series are modelled by their logarithms."""
        out = np.zeros(len(self.panel.values), dtype=bool)
        for group in self.groups:
            out[group.rows] = group.log
        return out

    def base(self, count: int, future: Clock, inputs: np.ndarray | None) -> np.ndarray:
        """`(S, H)` forecast without shared modes."""
        out = np.empty((len(self.panel.values), len(future)))
        for group in self.groups:
            past = self.panel.history(count, self.window)
            out[group.rows] = group.ahead(past, future, inputs)
        return out

    def anomalies(self, count: int, future: Clock, inputs: np.ndarray | None) -> Anomalies:
        """Anomalies of all series, in the order of the panel."""
        past = self.panel.history(count, self.window)
        parts = [anomalies_of(g.panel, g.lead, past, future, inputs) for g in self.groups]
        joined = concatenate(parts)
        order = np.argsort(np.concatenate([g.rows for g in self.groups]))
        return Anomalies(joined.past[order], joined.alone[order], joined.scale[order], joined.pairs)

    def parts(
        self, count: int, future: Clock, inputs: np.ndarray | None
    ) -> tuple[dict[str, np.ndarray], Modes | None]:
        """Contribution `(S, H)` of each kind of term, and the shared modes if there are any."""
        past = self.panel.history(count, self.window)
        shape = (len(self.panel.values), len(future))
        out: dict[str, np.ndarray] = {}
        for group in self.groups:
            for name, part in group.parts(past, future, inputs).items():
                out.setdefault(name, np.zeros(shape))[group.rows] = part
        if self.modes is None:
            return out, None
        modes, change = self._coupled(self.modes, count, future, inputs)
        return out | {"shared modes": change}, modes

    def ahead(self, count: int, future: Clock, inputs: np.ndarray | None) -> np.ndarray:
        """`(S, H)` forecast from origin `count`."""
        base = self.base(count, future, inputs)
        if self.modes is None:
            return base
        return base + self._coupled(self.modes, count, future, inputs)[1]

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
    horizon = panel.horizon
    window = int(max(WINDOW, 6 * panel.longest, 8 * horizon))
    # With few series or steps ahead, each origin has few errors: use more origins.
    factor = 64 / (horizon * origins)
    more = MORE_ORIGINS if S <= ONE_BY_ONE else min(MORE_ORIGINS, max(1.0, factor))
    chosen = choose_origins(N, horizon, panel.longest, round(more * origins))
    rows = [np.array([i]) for i in range(S)] if S <= ONE_BY_ONE else [np.arange(S)]
    solutions = min(solution_count(np.isfinite(panel.values)), 4 * SAMPLE)
    chosen = limit_origins(panel, chosen, window, solutions if len(rows) == 1 else S)
    if panel.same_units and S > ONE_BY_ONE and chosen and not log:
        return _fit_grid(panel, chosen, window, trend, modes)
    groups = [_fit_group(panel, r, chosen, window, trend, log) for r in rows]
    model = _uncalibrated(panel, groups, window, chosen)
    return _calibrated(replace(model, modes=_choose_modes(model, modes)))


def _fit_grid(
    panel: Panel, origins: Sequence[int], window: int, trend: str, modes: int | str
) -> Model:
    """Fit series with the same unit: one set of equations and one blend for all."""
    tested = _sample(panel)
    search = Search(panel.part(tested), origins, window)
    search.run(find_cycle(search.panel, window), trend, False)
    members = search.best_of_each_kind()[:MAX_KINDS]
    lead = next(m for m in members if isinstance(m, Spec))
    S = len(panel.values)
    if _gaps_shared(panel):
        tested = np.arange(S)
    found = _stack(panel.part(tested), members, lead, origins, window, modes)
    weights = {m: np.full(S, w) for m, w in found.weights.items()}
    if len(tested) < S:
        weights = _mean_weights(weights, S)
    group = Group(np.arange(S), panel, lead, weights, tested)
    model = _uncalibrated(panel, [group], window, origins)
    return _calibrated(replace(model, modes=found.modes))


def _uncalibrated(
    panel: Panel, groups: Sequence[Group], window: int, origins: Sequence[int]
) -> Model:
    S, H = len(panel.values), panel.horizon
    empty = Calibration(np.zeros((S, H)), np.zeros(0), 0.0)
    return Model(panel, groups, window, origins, None, empty)


def _calibrated(model: Model) -> Model:
    """Add the calibration of the intervals."""
    if not model.origins:
        return replace(model, calibration=_random_walk(model))
    tested, part = _tested(model)
    ahead = [part.ahead(o, *part.panel.after(o)) for o in part.origins]
    for group in part.groups:
        if group.held_out is not None:
            # Replace the blend by the one chosen without this origin; keep the shared modes.
            for i, (origin, x) in enumerate(zip(part.origins, ahead)):
                past = part.panel.history(origin, part.window)
                own = group.ahead(past, *part.panel.after(origin))
                x[group.rows] += group.held_out[i, : x.shape[1]] - own
    changes = _changes(model)
    calibration = calibrate(_errors(part, ahead), changes[tested])
    if len(tested) < len(changes):
        calibration = calibration.extend(tested, changes)
    return replace(model, calibration=calibration)


def _tested(model: Model) -> tuple[np.ndarray, Model]:
    """The cross-validated series and the model restricted to them."""
    if all(len(g.tested) == len(g.rows) for g in model.groups):
        return np.arange(len(model.panel.values)), model
    (group,) = model.groups  # only a single group is sampled
    weights = {m: w[group.tested] for m, w in group.weights.items()}
    count = np.arange(len(group.tested))
    part = Group(count, group.panel.part(group.tested), group.lead, weights, count)
    return group.tested, replace(model, panel=part.panel, groups=[part])


def _fit_group(
    panel: Panel, rows: np.ndarray, origins: Sequence[int], window: int, trend: str,
    log: bool | None,
) -> Group:  # fmt: skip
    part = panel.part(rows)
    if log is None and not part.positive:
        log = False
    if not origins:
        lead = replace(SHORT, log=bool(log), trend="none" if trend == "auto" else trend)
        return Group(rows, part, lead, {lead: np.ones(len(rows))}, np.arange(len(rows)))
    tested = _sample(part)
    search = Search(part.part(tested), origins, window)
    lead = search.run(find_cycle(search.panel, window), trend, log)
    if len(tested) < len(rows) and _gaps_shared(part):
        members = search.best_of_each_kind()[:MAX_KINDS]
        search = Search(part, origins, window)
        search.test(members)
        tested = np.arange(len(rows))
    weights: dict[Member, np.ndarray] = {lead: np.ones(len(tested))}
    held_out = None
    if np.isfinite(search.score(lead)):
        weights = search.weights()
        if len(rows) == 1 and len(origins) > 1:
            held_out = search.held_out(next(iter(weights)).log)
    if len(tested) < len(rows):
        weights = _mean_weights(weights, len(rows))
    return Group(rows, part, _lead(weights, lead), weights, tested, held_out)


def _mean_weights(weights: dict[Member, np.ndarray], count: int) -> dict[Member, np.ndarray]:
    """The members with the largest mean weights, with equal weights for all `count` series."""
    mean = {m: float(w.mean()) for m, w in weights.items()}
    ranked = sorted(mean, key=lambda m: -mean[m])
    kept = [m for m in ranked if m.log == ranked[0].log][:MAX_MEMBERS]
    total = sum(mean[m] for m in kept)
    return {m: np.full(count, mean[m] / total) for m in kept}


def _lead(weights: dict[Member, np.ndarray], fallback: Spec) -> Spec:
    """The equation with the largest total weight."""
    specs = {m: float(w.sum()) for m, w in weights.items() if isinstance(m, Spec)}
    return max(specs, key=lambda m: specs[m]) if specs else fallback


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
    sampled = any(len(g.tested) < len(g.rows) for g in model.groups)
    if modes == 0 or S < 2 or not model.origins or sampled:
        return None
    if not evenly_spaced(panel.clock):
        return None
    # Short histories do not determine the matrix of the modes: use the later origins.
    late = [o for o in model.origins if o >= len(panel.clock) / 2] or model.origins[:1]
    count = None if modes == "auto" else int(modes)
    score: dict[float, list[float]] = {share: [] for share in (0.0, *MODE_SHARES)}
    for origin in late:
        own = model.base(origin, *panel.after(origin))
        counts = ModeChoice(count, 1.0).counts(S, min(origin, model.window))
        found = find_modes(model.anomalies(origin, *panel.after(origin)), counts)
        change = found.change(counts)
        enough = panel.scorable(panel.history(origin, model.window))
        for share, errors in score.items():
            error = panel.errors(own + share * change, origin, enough, model.log[:, None])
            if np.isfinite(error).any():
                errors.append(float(np.nanmean(error**2)))
    if not score[0.0]:
        return None if modes == "auto" else ModeChoice(count, MODE_SHARES[0])
    mean = {share: float(np.mean(errors)) for share, errors in score.items()}
    best = min(MODE_SHARES, key=lambda share: mean[share])
    if modes == "auto" and not mean[best] < MODE_GAIN * mean[0.0]:
        return None
    return ModeChoice(count, best)


def _errors(model: Model, ahead: Sequence[np.ndarray]) -> np.ndarray:
    """`(S, O, H)` cross-validation errors on the modelled scale; NaN where not scored."""
    panel = model.panel
    out = np.full((len(panel.values), len(ahead), panel.horizon), np.nan)
    log = model.log[:, None]
    for i, (origin, forecast) in enumerate(zip(model.origins, ahead)):
        truth = panel.raw[:, origin : origin + panel.horizon]
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


def _random_walk(model: Model) -> Calibration:
    """Calibration of a random walk, for a history without origins."""
    panel = model.panel
    spread = _changes(model)[:, None] * np.sqrt(np.arange(1, panel.horizon + 1))
    count = float(np.isfinite(panel.values).sum(1).max(initial=0))
    return Calibration(spread, np.zeros(0), max(count - 1.0, 1.0))


class Stack(NamedTuple):
    """Blend weights of a grid, and its shared modes."""

    weights: dict[Member, float]
    modes: ModeChoice | None


def _stack(
    panel: Panel, members: Sequence[Member], lead: Spec, origins: Sequence[int], window: int,
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
