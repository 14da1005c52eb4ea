"""A fitted model: for every series a blend of equations, modes between them, and past errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from smnn.forecasting._model.intervals import Calibration, calibrate
from smnn.forecasting._model.modes import (
    GAIN,
    SHARES,
    Anomalies,
    ModeChoice,
    Modes,
    anomalies_of,
    find_modes,
    steady,
    together,
)
from smnn.forecasting._model.panel import Member, Panel, Repeat
from smnn.forecasting._model.search import Search, affordable, choose_origins, distinct, find_cycle
from smnn.forecasting._model.spec import Spec
from smnn.forecasting._model.stack import stack
from smnn.forecasting._time import Clock

ONE_BY_ONE = 16
"""Up to this many series, each is searched for by itself."""
SHORT = Spec(trend="none", decay=1.0, ratio=1.0)
"""For a history that is too short to be tested on: recent values count most."""
THRICE = 3.0
"""Origins are at most so many times those asked for."""
WINDOW = 2000
"""Times to learn from, if seasons and horizon do not ask for more."""
SAMPLE = 64
"""Series that speak for all, where testing every one would take too long."""
CROWD = 512
"""The same, where all series are missing at the same times."""
TRIED = 8
"""Kinds of equations that are then tried on all of them."""
FEW_MEMBERS = 3
"""Members of the blend in that case."""


@dataclass(frozen=True)
class Group:
    """Series whose equations were chosen together."""

    rows: np.ndarray
    """Places of the series in the panel."""
    panel: Panel
    lead: Spec
    """The best single equation."""
    weights: dict[Member, np.ndarray]
    """`(S,)` share of each member in the forecast of each series."""
    tested: np.ndarray
    """Places in `rows` of the series that were tested."""
    held_out: np.ndarray | None = None
    """`(O, H)` forecasts of a single series, from each origin by a blend chosen without it."""

    @property
    def log(self) -> np.ndarray:
        """`(S,)` which series are modelled as logarithms."""
        return sum(
            (w * float(m.log) for m, w in self.weights.items()), np.zeros(len(self.rows))
        ) > 0.5  # fmt: skip

    def ahead(self, past: slice, future: Clock, inputs: np.ndarray | None) -> np.ndarray:
        """`(S, H)` blended forecast, of logarithms where these are modelled."""
        out = np.zeros((len(self.rows), len(future)))
        members = list(self.weights)
        for member, ahead in zip(members, self.panel.ahead(members, past, future, inputs)):
            out += np.where(self.weights[member] > 0, self.weights[member], 0.0)[:, None] * ahead
        return out

    def parts(self, past: slice, future: Clock, inputs: np.ndarray | None) -> dict[str, np.ndarray]:
        """`(S, H)` what each kind of term adds to the blend."""
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
                (again,) = self.panel.ahead([member], past, future, inputs)
                add("last season", weight[:, None] * again)
        return out


@dataclass(frozen=True)
class Model:
    """Everything that forecasting needs, from `fit_model`."""

    panel: Panel
    groups: Sequence[Group]
    window: int
    origins: Sequence[int]
    modes: ModeChoice | None
    calibration: Calibration
    errors: np.ndarray
    """`(S, O, H)` of forecasts from the origins, on the modelled scale."""

    @property
    def log(self) -> np.ndarray:
        """`(S,)` which series are modelled as logarithms."""
        out = np.zeros(len(self.panel.values), dtype=bool)
        for group in self.groups:
            out[group.rows] = group.log
        return out

    def base(self, count: int, future: Clock, inputs: np.ndarray | None) -> np.ndarray:
        """`(S, H)` every series by its own equations."""
        out = np.empty((len(self.panel.values), len(future)))
        for group in self.groups:
            past = self.panel.history(count, self.window)
            out[group.rows] = group.ahead(past, future, inputs)
        return out

    def anomalies(self, count: int, future: Clock, inputs: np.ndarray | None) -> Anomalies:
        """Of all series, in the order of the panel."""
        past = self.panel.history(count, self.window)
        parts = [anomalies_of(g.panel, g.lead, past, future, inputs) for g in self.groups]
        joined = together(parts)
        back = np.argsort(np.concatenate([g.rows for g in self.groups]))
        return Anomalies(joined.past[back], joined.alone[back], joined.scale[back], joined.pairs)

    def parts(
        self, count: int, future: Clock, inputs: np.ndarray | None
    ) -> tuple[dict[str, np.ndarray], Modes | None]:
        """What each kind of term adds to the forecast `(S, H)`, and the modes if they take part."""
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
    """Choose equations for every series, modes between them, and learn their errors."""
    S, N = panel.values.shape
    horizon = panel.horizon
    window = int(max(WINDOW, 6 * panel.longest, 8 * horizon))
    # Few series, or few steps ahead, tell little at each origin: look from more of them.
    more = THRICE if S <= ONE_BY_ONE else min(THRICE, max(1.0, 64 / (horizon * origins)))
    wanted = choose_origins(N, horizon, panel.longest, round(more * origins))
    rows = [np.array([i]) for i in range(S)] if S <= ONE_BY_ONE else [np.arange(S)]
    solutions = min(distinct(np.isfinite(panel.values)), 4 * SAMPLE)
    wanted = affordable(panel, wanted, window, solutions if len(rows) == 1 else S)
    if panel.same_units and S > ONE_BY_ONE and wanted and not log:
        return _grid(panel, wanted, window, trend, modes)
    groups = [_group(panel, r, wanted, window, trend, log) for r in rows]
    model = _uncalibrated(panel, groups, window, wanted)
    return _calibrated(replace(model, modes=_choose_modes(model, modes)))


def _grid(panel: Panel, origins: Sequence[int], window: int, trend: str, modes: int | str) -> Model:
    """Cells measured alike: one choice and one blend for all."""
    heard = _heard(panel)
    search = Search(panel.part(heard), panel.horizon, origins, window)
    search.run(find_cycle(search.panel, window), trend, False)
    members = search.best_of_each_kind()[:TRIED]
    lead = next(m for m in members if isinstance(m, Spec))
    S = len(panel.values)
    if _alike(panel):
        heard = np.arange(S)
    found = stack(panel.part(heard), members, lead, origins, window, modes)
    weights = {m: np.full(S, w) for m, w in found.weights.items()}
    if len(heard) < S:
        weights = _for_all(weights, S)
    group = Group(np.arange(S), panel, lead, weights, heard)
    model = _uncalibrated(panel, [group], window, origins)
    return _calibrated(replace(model, modes=found.modes))


def _uncalibrated(
    panel: Panel, groups: Sequence[Group], window: int, origins: Sequence[int]
) -> Model:
    S, H = len(panel.values), panel.horizon
    nothing = Calibration(np.zeros((S, H)), np.zeros(0), 0.0)
    return Model(panel, groups, window, origins, None, nothing, np.zeros((S, 0, H)))


def _calibrated(model: Model) -> Model:
    """The same with the errors it made in the past."""
    if not model.origins:
        return replace(model, calibration=_untested(model))
    tested, part = _tested(model)
    ahead = [part.ahead(o, *_future(part.panel, o)) for o in part.origins]
    for group in part.groups:
        if group.held_out is not None:
            # What modes add stays; the rest is by a blend that has not seen what came.
            for i, (origin, x) in enumerate(zip(part.origins, ahead)):
                past = part.panel.history(origin, part.window)
                own = group.ahead(past, *_future(part.panel, origin))
                x[group.rows] += group.held_out[i, : x.shape[1]] - own
    errors, changes = _errors(part, ahead), _changes(model)
    calibration = calibrate(errors, changes[tested])
    if len(tested) < len(changes):
        calibration = calibration.extend(tested, changes)
    return replace(model, errors=errors, calibration=calibration)


def _tested(model: Model) -> tuple[np.ndarray, Model]:
    """The series that were tested, and the model of them alone."""
    if all(len(g.tested) == len(g.rows) for g in model.groups):
        return np.arange(len(model.panel.values)), model
    (group,) = model.groups  # only series that were chosen together are sampled
    weights = {m: w[group.tested] for m, w in group.weights.items()}
    count = np.arange(len(group.tested))
    few = Group(count, group.panel.part(group.tested), group.lead, weights, count)
    return group.tested, replace(model, panel=few.panel, groups=[few])


def _future(panel: Panel, origin: int) -> tuple[Clock, np.ndarray | None]:
    part = slice(origin, origin + panel.horizon)
    return panel.clock[part], None if panel.inputs is None else panel.inputs[part]


def _group(
    panel: Panel, rows: np.ndarray, origins: Sequence[int], window: int, trend: str,
    log: bool | None,
) -> Group:  # fmt: skip
    part = panel.part(rows)
    if log is None and not part.positive:
        log = False
    if not origins:
        lead = replace(SHORT, log=bool(log), trend=_fixed(trend))
        return Group(rows, part, lead, {lead: np.ones(len(rows))}, np.arange(len(rows)))
    heard = _heard(part)
    search = Search(part.part(heard), panel.horizon, origins, window)
    lead = search.run(find_cycle(search.panel, window), trend, log)
    if len(heard) < len(rows) and _alike(part):
        members = search.best_of_each_kind()[:TRIED]
        search = Search(part, panel.horizon, origins, window)
        search.test(members)
        heard = np.arange(len(rows))
    weights: dict[Member, np.ndarray] = {lead: np.ones(len(heard))}
    held_out = None
    if np.isfinite(search.score(lead)):
        weights = search.weights()
        if len(rows) == 1 and len(origins) > 1:
            held_out = search.held_out(next(iter(weights)).log)
    if len(heard) < len(rows):
        weights = _for_all(weights, len(rows))
    return Group(rows, part, _lead(weights, lead), weights, heard, held_out)


def _for_all(weights: dict[Member, np.ndarray], count: int) -> dict[Member, np.ndarray]:
    """The few members that matter most to those that were tested, for every series."""
    mean = {m: float(w.mean()) for m, w in weights.items()}
    ranked = sorted(mean, key=lambda m: -mean[m])
    kept = [m for m in ranked if m.log == ranked[0].log][:FEW_MEMBERS]
    total = sum(mean[m] for m in kept)
    return {m: np.full(count, mean[m] / total) for m in kept}


def _fixed(trend: str) -> str:
    return "none" if trend == "auto" else trend


def _lead(weights: dict[Member, np.ndarray], fallback: Spec) -> Spec:
    """The equation with the largest share over all series."""
    specs = {m: float(w.sum()) for m, w in weights.items() if isinstance(m, Spec)}
    return max(specs, key=lambda m: specs[m]) if specs else fallback


def _alike(part: Panel) -> bool:
    """Whether so many series share their gaps that all of them can be tested."""
    return distinct(np.isfinite(part.values)) <= 4 * SAMPLE


def _heard(part: Panel) -> np.ndarray:
    """Series to choose equations by: all of them, or a sample of many."""
    most = CROWD if _alike(part) else SAMPLE
    if len(part.values) <= most:
        return np.arange(len(part.values))
    enough = np.isfinite(part.values).sum(1)
    usable = np.flatnonzero(enough >= np.median(enough) / 2)
    return usable[np.linspace(0, len(usable) - 1, most).astype(int)]


def _choose_modes(model: Model, modes: int | str) -> ModeChoice | None:
    """The share of the modes that forecasts the past best, if they help at all."""
    panel = model.panel
    S = len(panel.values)
    sampled = any(len(g.tested) < len(g.rows) for g in model.groups)
    if modes == 0 or S < 2 or not model.origins or sampled:
        return None
    # The matrix between modes needs data: origins with little history say nothing about it.
    late = [o for o in model.origins if o >= len(panel.clock) / 2] or model.origins[:1]
    if not steady(panel.clock):
        return None
    count = None if modes == "auto" else int(modes)
    score: dict[float, list[float]] = {share: [] for share in (0.0, *SHARES)}
    for origin in late:
        own = model.base(origin, *_future(panel, origin))
        counts = ModeChoice(count, 1.0).counts(S, min(origin, model.window))
        found = find_modes(model.anomalies(origin, *_future(panel, origin)), counts)
        change = found.change(counts)
        for share, errors in score.items():
            errors.append(_relative(model, own + share * change, origin))
    mean = {share: float(np.nanmean(errors)) for share, errors in score.items()}
    best = min(SHARES, key=lambda share: mean[share])
    if modes == "auto" and not mean[best] < GAIN * mean[0.0]:
        return None
    return ModeChoice(count, best)


def _relative(model: Model, ahead: np.ndarray, origin: int) -> float:
    """Mean square error of one origin in units of the scale, over all series."""
    panel = model.panel
    log = model.log[:, None]
    ahead = np.where(log, np.exp(np.where(log, np.minimum(ahead, 700.0), 0.0)), ahead)
    miss = (ahead - panel.raw[:, origin : origin + panel.horizon]) / panel.scale
    return float(np.nanmean(miss**2)) if np.isfinite(miss).any() else float("nan")


def _errors(model: Model, ahead: Sequence[np.ndarray]) -> np.ndarray:
    """`(S, O, H)` on the modelled scale."""
    panel = model.panel
    out = np.full((len(panel.values), len(ahead), panel.horizon), np.nan)
    log = model.log[:, None]
    for i, (origin, forecast) in enumerate(zip(model.origins, ahead)):
        seen = panel.raw[:, origin : origin + panel.horizon]
        seen = np.where(log, np.log(np.where(log, seen, 1.0)), seen)
        out[:, i, : seen.shape[1]] = seen - forecast
    return out


def _changes(model: Model) -> np.ndarray:
    """`(S,)` spread of the change from one observation to the next; NaN for fewer than two."""
    panel = model.panel
    out = np.full(len(panel.values), np.nan)
    for i, (row, log) in enumerate(zip(panel.values, model.log)):
        seen = row[np.isfinite(row)]
        if len(seen) > 1:
            out[i] = np.sqrt(np.mean(np.diff(np.log(seen) if log else seen) ** 2))
    return out


def _untested(model: Model) -> Calibration:
    """As if the series were a random walk: the cautious view of a short history."""
    panel = model.panel
    spread = _changes(model)[:, None] * np.sqrt(np.arange(1, panel.horizon + 1))
    count = float(np.isfinite(panel.values).sum(1).max(initial=0))
    return Calibration(spread, np.zeros(0), max(count - 1.0, 1.0))
