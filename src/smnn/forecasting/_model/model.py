"""The fitted model: a blend of equations per series, shared modes, and calibrated intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from smnn._util.optional import require
from smnn.forecasting._model.blend import Scores, blend, mean_known, windows
from smnn.forecasting._model.intervals import Calibration, calibrate
from smnn.forecasting._model.modes import ModeChoice, Modes, coupled, evenly_spaced
from smnn.forecasting._model.panel import Panel, cleaned
from smnn.forecasting._model.search import Search, choose_origins
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
"""Origins of the cross-validation relative to the argument `origins`."""
WINDOW = 2000
"""Times used by a fit, unless seasons or horizon require more."""
SAMPLE = 256
"""Series in the sample that the equations are chosen from."""
MAX_KINDS = 8
"""Kinds of equations that are then tested on all series."""
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
    weights: dict[Spec, np.ndarray]
    """`(S,)` blend weights of each equation."""
    log: np.ndarray
    """`(S,)` which series are modelled by their logarithms."""
    window: int
    """Largest number of times that an equation is fitted to."""
    origins: Sequence[int]
    table: np.ndarray | None = None
    """`(S, M, P)` exponential smoothings of each series, as in `smoothing`."""
    shares: np.ndarray | None = None
    """`(S, M)` their blend weights."""
    modes: ModeChoice | None = None
    calibration: Calibration | None = None

    @property
    def lead(self) -> Spec:
        """The equation with the largest total weight."""
        return max(self.weights, key=lambda spec: self.weights[spec].sum())

    def parts(
        self, future: Clock, inputs: np.ndarray | None
    ) -> tuple[dict[str, np.ndarray], Modes | None]:
        """Contribution `(S, H)` of each kind of term, and the shared modes if there are any."""
        panel, count = self.panel, len(self.panel.clock)
        out = {"trend": np.zeros((len(self.log), len(future)))}
        rows = np.flatnonzero(sum(self.weights.values()))
        some = panel if len(rows) == len(self.log) else panel.part(rows)
        used = [spec for spec, weight in self.weights.items() if weight.any()] if len(rows) else []
        for fit in some.fit(used, [count], self.window):
            weight = self.weights[fit.spec][rows, None]
            for name, part in some.components(fit, count, future, inputs).items():
                out.setdefault(name, np.zeros_like(out["trend"]))[rows] += weight * part
        if self.table is not None and self.shares is not None:
            grid = panel.grid(future)
            assert grid is not None
            y = panel.on_grid(grid, self.log)
            found = components(y, self.table, grid, [grid.size], len(future))
            for name, (part,) in found.items():
                total = out.setdefault(name, np.zeros_like(out["trend"]))
                total += (self.shares[..., None] * part).sum(1)
        if self.modes is None:
            return out, None
        (fit,) = panel.fit([self.lead], [count], self.window)
        modes, change = coupled(panel, fit, 0, count, future, self.modes, self.window)
        return out | {"shared modes": self.modes.share * change}, modes

    def mode_counts(self) -> tuple[int, ...]:
        """Numbers of modes that a forecast averages over."""
        assert self.modes is not None
        return self.modes.counts(len(self.log), min(len(self.panel.clock), self.window))


def fit_model(
    panel: Panel, *, origins: int, trend: str, log: bool | None, modes: int | str
) -> Model:
    """Choose the equations of every series and the shared modes, and calibrate the intervals."""
    S, N = panel.values.shape
    horizon, longest = panel.horizon, panel.longest
    window = int(max(WINDOW, 6 * longest, 8 * horizon))
    seasons = [season.length for season in panel.seasons]
    chosen = choose_origins(N, horizon, longest, round(MORE_ORIGINS * origins), seasons)
    if not chosen:
        lead = replace(SHORT, log=bool(log), trend="none" if trend == "auto" else trend)
        return _calibrated(Model(panel, {lead: np.ones(S)}, np.full(S, lead.log), window, []), None)
    grid = panel.same_units and S > SAMPLE_GRID and not log
    sample = panel if S <= SAMPLE else panel.part(_sample(panel))
    search = Search(sample, chosen, window)
    both = log is None and not grid and panel.positive.all()
    members = search.run(trend, (False, True) if both else (bool(log),))[:MAX_KINDS]
    if S > SAMPLE:
        search = Search(panel, chosen, window)
        search.test(members)
    if grid:
        return _calibrated(*_stacked(search, members, modes))
    logs = (False, True) if log is None and panel.positive.any() else (bool(log),)
    short = find_shortlist(panel, chosen, trend, logs)
    model, held_out = _blended(search, members, short)
    choice, held_out = _with_modes(model, held_out, modes)
    return _calibrated(replace(model, modes=choice), held_out)


def _sample(panel: Panel) -> np.ndarray:
    """Indices of an even sample of the series that are not much shorter than most."""
    counts = np.isfinite(panel.values).sum(1)
    usable = np.flatnonzero(counts >= np.median(counts) / 2)
    return usable[np.linspace(0, len(usable) - 1, SAMPLE).astype(int)]


def _calibrated(model: Model, held_out: np.ndarray | None) -> Model:
    """Add the calibration of the intervals from the forecasts `(O, S, H)` from the origins."""
    panel, changes = model.panel, _changes(model)
    seen = np.isfinite(panel.values)
    age = seen[:, ::-1].argmax(1)
    if held_out is None:
        spread = changes[:, None] * np.sqrt(np.arange(1, panel.horizon + 1))
        count = float(seen.sum(1).max(initial=0))
        walk = Calibration(spread, np.zeros(0), max(count - 1.0, 1.0), age)
        return replace(model, calibration=walk)
    typical, errors = (_errors(model, held_out, y) for y in (panel.values, panel.raw))
    covered = windows(model.origins, panel.horizon)
    calibration = calibrate(typical, changes, errors, covered)
    return replace(model, calibration=replace(calibration, age=age))


def _blended(
    search: Search, members: Sequence[Spec], short: Shortlist | None
) -> tuple[Model, np.ndarray]:
    """Weights of equations and smoothings.

    Returns:
        The model, and forecasts `(O, S, H)` from the origins with weights from the others only.
    """
    panel, J = search.panel, len(members)
    S, O = len(panel.values), len(search.origins)
    errors = np.stack([search.errors[m] for m in members])
    forecasts = np.stack([search.forecasts(m) for m in members])
    log = np.full((J, S), members[0].log)
    complexity = np.repeat([[m.complexity] for m in members], S, axis=1)
    kinds: list[object] = [m.kind for m in members]
    chosen = None
    if short is not None:
        M, chosen = short.table.shape[1], short.log
        kinds += [None] * M
        errors = np.concatenate([errors, short.errors])
        forecasts = np.concatenate([forecasts, short.forecasts])
        log = np.concatenate([log, np.repeat(chosen[None], M, axis=0)])
        complexity = np.concatenate([complexity, complexities(short.table).T])
    scores = Scores(errors, complexity, windows(search.origins, panel.horizon)).settled()
    weights = blend(scores.values(), log, kinds, chosen)
    chosen = (weights * log).sum(0) > 0.5 if chosen is None else chosen
    held_out = np.empty((O, S, panel.horizon))
    for i in range(O):
        w = blend(scores.values(i if O > 1 else None), log, kinds, chosen)
        held_out[i] = np.einsum("ms,msh->sh", w, forecasts[:, i])
    unknown = weights.sum(0) == 0  # not scored at any origin
    if unknown.any():
        total = weights[:J].sum(1) if weights[:J].any() else np.ones(J)
        weights[:J, unknown], chosen[unknown] = (total / total.sum())[:, None], members[0].log
    model = Model(
        panel, dict(zip(members, weights)), chosen, search.window, search.origins,
        None if short is None else short.table, None if short is None else weights[J:].T,
    )  # fmt: skip
    return model, held_out


def _with_modes(
    model: Model, held_out: np.ndarray, modes: int | str
) -> tuple[ModeChoice | None, np.ndarray]:
    """Choose the weight of the shared modes by cross-validation; `None` if they do not help.

    Returns:
        The choice, and the forecasts `(O, S, H)` from the origins with it.
    """
    panel, origins = model.panel, model.origins
    S = len(panel.values)
    if modes == 0 or S < 2 or not evenly_spaced(panel.clock):
        return None, held_out
    choice = ModeChoice(None if modes == "auto" else int(modes), 1.0)
    changes = _changes_by_modes(panel, model.lead, origins, model.window, choice)
    # Short histories do not determine the matrix of the modes: use the later origins.
    late = [i for i, o in enumerate(origins) if o >= len(panel.clock) / 2] or [0]
    square = np.full((1 + len(MODE_SHARES), len(late), S), np.nan)
    for i, place in enumerate(late):
        enough = panel.scorable(panel.history(origins[place], model.window))
        for j, share in enumerate((0.0, *MODE_SHARES)):
            ahead = held_out[place] + share * changes[place]
            error = panel.errors(ahead, origins[place], enough, model.log[:, None])
            square[j, i] = mean_known(error**2)
    mean = mean_known(square.transpose(0, 2, 1))
    # Relative to each series: otherwise the choice would follow the least predictable of them.
    known = mean[0] > 0
    ratio = (mean[1:, known] / mean[0, known]).mean(1) if known.any() else np.ones(len(MODE_SHARES))
    best = int(ratio.argmin())
    if modes == "auto" and not ratio[best] < MODE_GAIN:
        return None, held_out
    share = MODE_SHARES[best]
    return ModeChoice(choice.number, share), held_out + share * changes


def _changes_by_modes(
    panel: Panel, lead: Spec, origins: Sequence[int], window: int, choice: ModeChoice
) -> np.ndarray:
    """`(O, S, H)` change of the forecasts from the origins due to shared modes."""
    (fit,) = panel.fit([lead], origins, window)
    return np.stack([
        coupled(panel, fit, i, origin, panel.after(origin)[0], choice, window)[1]
        for i, origin in enumerate(origins)
    ])  # fmt: skip


def _errors(model: Model, held_out: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """`(S, O, H)` cross-validation errors on the modelled scale; NaN where not scored."""
    panel = model.panel
    out = np.full(held_out.shape, np.nan)
    for i, (origin, forecast) in enumerate(zip(model.origins, held_out)):
        truth = observed[:, origin : origin + panel.horizon]
        # An outlier at or below zero has no logarithm, even if the cleaned series has.
        logarithm = np.log(np.where(truth > 0, truth, np.nan))
        out[i] = np.where(model.log[:, None], logarithm, truth) - forecast
        out[i, ~panel.scorable(panel.history(origin, model.window))] = np.nan
    return out.swapaxes(0, 1)


def _changes(model: Model) -> np.ndarray:
    """`(S,)` root mean square change between consecutive observations; NaN for fewer than two."""
    panel = model.panel
    out = np.full(len(panel.values), np.nan)
    for i, (row, log) in enumerate(zip(panel.values, model.log)):
        seen = row[np.isfinite(row)]
        if len(seen) > 1:
            out[i] = np.sqrt(np.mean(np.diff(np.log(seen) if log else seen) ** 2))
    return out


def _stacked(search: Search, members: Sequence[Spec], modes: int | str) -> tuple[Model, np.ndarray]:
    """One blend for all cells of a grid, by stacked regression.

    The weights minimize the pooled cross-validation error and take the correlation between the
    errors of the members into account. The last column is the leading equation with shared modes.

    Returns:
        The model, and its forecasts `(O, S, H)` from the origins.
    """
    panel, origins, window = search.panel, search.origins, search.window
    S, lead = len(panel.values), members[0]
    forecasts = [search.forecasts(m) for m in members]
    choice = None
    if modes != 0 and evenly_spaced(panel.clock):
        choice = ModeChoice(None if modes == "auto" else int(modes), 1.0)
        changes = _changes_by_modes(panel, lead, origins, window, choice)
        forecasts.append(forecasts[0] + changes)
    total: np.ndarray | float = 0.0
    for i, origin in enumerate(origins):
        truth = panel.raw[:, origin : origin + panel.horizon]
        scored = np.isfinite(truth) & panel.scorable(panel.history(origin, window))[:, None]
        errors = np.stack([np.where(scored, x[i] - truth, 0.0).ravel() for x in forecasts])
        products = errors @ errors.T
        total = total + products / max(np.trace(products), 1e-300)  # equal weight of all origins
    w = _simplex_weights(np.asarray(total))
    weights = dict(zip(members, w))
    if choice is not None:
        share = float(w[-1]) if modes == "auto" else 1.0
        weights[lead] += w[-1]
        choice = ModeChoice(choice.number, share) if share > MIN_MODE_SHARE else None
    kept = {m: x for m, x in weights.items() if x > MIN_WEIGHT or m == lead}
    kept = {m: x / sum(kept.values()) for m, x in kept.items()}
    held_out = sum(x * search.forecasts(m) for m, x in kept.items())
    if choice is not None:
        held_out = held_out + choice.share * changes
    model = Model(
        panel, {m: np.full(S, x) for m, x in kept.items()}, np.zeros(S, dtype=bool), window,
        origins, modes=choice,
    )  # fmt: skip
    return model, np.asarray(held_out)


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
