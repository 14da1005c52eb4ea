"""From fields to a law: denoising, regression in the weak form, maximum likelihood."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from smnn.datasets.fields import Columns, Compiled, PeriodicGrid
from smnn.discovery._field.data import FieldSet
from smnn.discovery._field.denoise import CAUTION, Derivatives, Filter
from smnn.discovery._field.refine import (
    Found,
    Likely,
    Rules,
    maximise,
    residual_field,
)
from smnn.discovery._field.settle import Settling, visible
from smnn.discovery._field.shooting import Segment, Shooting
from smnn.discovery._field.weak import (
    Pair,
    Quadratic,
    Weak,
    WeakForm,
    choose,
    half_widths,
    swaps,
)
from smnn.discovery._terms import HALF_WIDTH, Term

Field = np.ndarray[Any, np.dtype[Any]]
WIDTHS = (4.0, 6.0)
"""Half widths of test functions, in lengths over which the field changes."""
MOST_FREE = 400
"""Most free real numbers of the beginning of a segment; larger problems end with the weak form."""
MOST_VALUES = 400_000
"""Most values of which the likelihood is computed."""
GENEROUS = 4.0
"""Power that a mode may have at the beginning, relative to its mean."""
STRONGER = 2.0
"""Strength of the filter that shows its bias, relative to the usual one."""
EXTRA = 12
"""Further terms that the likelihood may add to those of the weak form."""
CLEAN = 1e-4
"""Noise relative to the spread below which the beginnings are known well enough."""
MOST_ATTEMPTS = 2
"""Numbers of parts for which the likelihood is maximised in vain."""
GOOD = 1.1
"""Mean square of the residuals in units of the noise that is about one."""
PARTS, SHORT = 4, 16
"""Parts of clean data that are fitted, and their times."""
DOUBTFUL = 10.0
"""Ratio of a coefficient to its deviation below which the law is also fitted without its term."""
MOST_DROPPED = 3
"""Terms that are left out after the first fit."""
RESAMPLES = 20
FILLS = 10
WINDOWS = (1, 2, 4, 8, 16, 32)
BLOCKS = 400


@dataclass(frozen=True)
class Options:
    """How to search.

    Attributes:
        threshold: Smallest contribution of a term to its equation.
        penalty: Sparsity penalty relative to the criterion.
        refine: Whether the likelihood is maximised where that is possible.
        seed: Seed of the resamples.
    """

    threshold: float = 1e-3
    penalty: float = 1.0
    refine: bool = True
    seed: int = 0


def denoise(data: FieldSet, caution: float = CAUTION) -> tuple[list[Field], Field, Field, Field]:
    """Filtered runs `(F, T, *grid)`, noise, fraction of the power that is signal, and size."""
    found, noise, kept, total = [], [], [], []
    for u, t in zip(data.runs, data.times):
        fields, sigmas, sizes = [], [], []
        for one in u:
            clean, sigma, size = _filtered(one, t, data, caution)
            fields.append(clean)
            sigmas.append(sigma)
            sizes.append(size)
        found.append(np.stack(fields))
        noise.append(sigmas)
        kept.append(sizes)
        total.append([float(np.nanvar(one)) for one in u])
    signal = np.mean([[np.var(one) for one in u] for u in found], 0)
    share = signal / np.maximum(np.mean(total, 0), 1e-300)
    sigma = np.sqrt(np.mean(np.square(noise), 0))
    spread = np.sqrt(np.maximum(signal, 1e-300))
    return found, np.maximum(sigma, 1e-9 * spread), share, np.sum(kept, 0)


def _filtered(u: Field, t: Field, data: FieldSet, caution: float) -> tuple[Field, float, float]:
    """A filtered field; long ones in overlapping blocks of time."""
    if len(t) <= BLOCKS:
        return _filled(u, Filter([t, *data.axes], [False, *data.periodic], caution), data.periodic)
    count = -(-len(t) // (BLOCKS // 2))
    edges = np.linspace(0, len(t), count + 1).astype(int)
    out, weight = np.zeros_like(u), np.zeros(len(t))
    noises, kept = [], 0.0
    for a, b in zip(edges[:-2], edges[2:]):
        wiener = Filter([t[a:b], *data.axes], [False, *data.periodic], caution)
        part, noise, size = _filled(u[a:b], wiener, data.periodic)
        s = np.sin(np.pi * (np.arange(b - a) + 0.5) / (b - a)) ** 2
        out[a:b] += s.reshape(-1, *[1] * (u.ndim - 1)) * part
        weight[a:b] += s
        noises.append(noise)
        kept += size / 2
    out /= weight.reshape(-1, *[1] * (u.ndim - 1))
    return out, float(np.sqrt(np.mean(np.square(noises)))), kept


def _filled(u: Field, wiener: Filter, periodic: Sequence[bool]) -> tuple[Field, float, float]:
    """A filtered field; missing values are filled in by the filter itself."""
    gone = np.isnan(u)
    if not gone.any():
        return wiener(u)
    known = max(float(1 - gone.mean()), 1e-3)
    v = _interpolated(u, periodic)
    for _ in range(FILLS):
        smooth, sigma, kept = wiener(v)
        v = np.where(gone, smooth, u)
    # Values that were filled in have no noise of their own.
    return smooth, sigma / np.sqrt(known), kept


def _interpolated(u: Field, periodic: Sequence[bool]) -> Field:
    """Missing values interpolated in time; where there is none at any time, in space."""
    for axis, wraps in enumerate((False, *periodic)):
        lines = np.moveaxis(u, axis, -1).copy()
        places, n = np.arange(lines.shape[-1]), lines.shape[-1]
        for line in lines.reshape(-1, n):
            bad = np.isnan(line)
            if bad.any() and not bad.all():
                line[bad] = np.interp(
                    places[bad], places[~bad], line[~bad], period=n if wraps else None
                )
        u = np.moveaxis(lines, -1, axis)
    return u


def weak_form(
    data: FieldSet, u: Sequence[Field], terms: Sequence[Term], columns: Columns,
    values: Mapping[str, Field], allowed: Callable[[Pair], bool], options: Options,
) -> Weak:  # fmt: skip
    """Regression of the rates of change on the terms, averaged over boxes."""
    F, P = len(columns.fields), len(terms)
    compiled = Compiled(columns, [t.symbolic for t in terms], values)
    highest = max((sum(c.orders) for c in compiled.used.values()), default=0)
    slopes = Derivatives(data.axes, data.periodic, highest)
    rows: list[Field] = []
    rights: list[Field] = []
    groups: list[Field] = []
    boxes = 0.0
    for factor in WIDTHS:
        boxes_here = 0.0
        for r, (one, t, measured) in enumerate(zip(u, data.times, data.runs)):
            coordinates = [t, *data.axes]
            halves = half_widths(one, coordinates, factor)
            weak = WeakForm(coordinates, [False, *data.periodic], halves)
            keep = weak.measured(np.asarray(np.isfinite(measured).all(0)))
            boxes_here += weak.boxes * float(keep.mean())
            rows.append(_design(weak, one, compiled, slopes)[keep])
            rights.append(np.stack([weak.rate(v) for v in one], 1)[keep])
            groups.append((weak.parts() + 8 * r)[keep])
        boxes = max(boxes, boxes_here)
    A, Y, part = np.concatenate(rows), np.concatenate(rights), np.concatenate(groups)
    bad = ~np.isfinite(A).all(0)
    A[:, bad] = 0.0
    if np.iscomplexobj(A) or np.iscomplexobj(Y):
        A, Y = np.concatenate([A.real, A.imag]), np.concatenate([Y.real, Y.imag])
        part, boxes = np.concatenate([part, part]), 2 * boxes
    weak_found = Weak({}, {}, {}, np.zeros(F), np.zeros((F, P)), [])
    rng = np.random.default_rng(options.seed)
    for f in range(F):
        pool = [p for p in range(P) if not bad[p] and allowed((f, p)) and A[:, p].any()]
        _equation(weak_found, f, A, Y[:, f], part, boxes, pool, options, rng)
    return weak_found


def _design(weak: WeakForm, u: Field, compiled: Compiled, slopes: Derivatives) -> Field:
    columns = []
    for column in compiled.used.values():
        v = slopes(u[column.field], column.orders)
        columns.append(v.conj() if column.conjugate else v)
    out = [weak.average(np.broadcast_to(v, u.shape[1:])) for v in compiled(columns)]
    return np.stack(out, 1)


def _equation(
    weak: Weak, f: int, A: Field, y: Field, part: Field, boxes: float, pool: list[int],
    options: Options, rng: np.random.Generator,
) -> None:  # fmt: skip
    """Select the terms of one equation, and resample the boxes."""
    size = float(np.sqrt((y**2).mean()))
    if size == 0 or not pool:
        return
    A, y = A / size, y / size
    weak.shares[f] = np.sqrt((A**2).mean(0))
    price = options.penalty * (np.log(max(boxes, 2.0)) + 2 * np.log(max(len(pool), 2)))

    def chosen(q: Quadratic) -> tuple[list[int], list[list[int]]]:
        return choose(q, pool, weak.shares[f], options.threshold, price, boxes, 1e-8 * q.yy)

    labels = np.unique(part)
    each = [Quadratic.of(A[part == g], y[part == g]) for g in labels]
    whole = Quadratic.total(each)
    best, subsets = chosen(whole)
    x = whole.solve(best)[0]
    count, draws = np.zeros(A.shape[1]), []
    for _ in range(RESAMPLES):
        weights = rng.multinomial(len(each), np.full(len(each), 1 / len(each)))
        q = Quadratic.total(each, weights)
        count[chosen(q)[0]] += 1
        draws.append(q.solve(best)[0])
    # Few parts: a quantile of Student's distribution, relative to that of the normal one.
    more = max(len(each) - 1, 1)
    wider = np.sqrt(len(each) / more) * (1 + (HALF_WIDTH**2 + 1) / (4 * more))
    spread = wider * np.std(draws, 0) if best else []
    left = total = 0.0
    for half in (range(0, len(each), 2), range(1, len(each), 2)):
        fit = [each[i] for i in range(len(each)) if i not in half]
        if not fit:
            continue
        q = Quadratic.total(fit)
        z = np.zeros(A.shape[1])
        z[best] = q.solve(best)[0]
        left += sum(float(e.yy - 2 * e.b @ z + z @ e.A @ z) for e in (each[i] for i in half))
        total += sum(each[i].yy for i in half)
    weak.explained[f] = 1 - left / max(total, 1e-300)
    for p, a, s in zip(best, x, spread):
        weak.xi[f, p], weak.deviation[f, p] = float(a), float(s)
        weak.inclusion[f, p] = float(count[p] / RESAMPLES)
    weak.path.append([
        {(f, p): float(a) for p, a in zip(s, whole.solve(s)[0])} for s in subsets[1 : len(best)]
    ])  # fmt: skip
    weak.path[-1].append({(f, p): float(a) for p, a in zip(best, x)})
    others = [s[-1] for s in swaps(whole, best, pool)]
    later = [p for s in subsets[len(best) : len(best) + 4] for p in s]
    often = sorted((p for p in pool if count[p]), key=lambda p: -count[p])
    ranked = [p for p in dict.fromkeys([*others, *later, *often]) if p not in best]
    weak.ranking += [(f, p) for p in ranked[: max(EXTRA // max(len(weak.explained), 1), 4)]]


def find(
    data: FieldSet, terms: Sequence[Term], columns: Columns, allowed: Callable[[Pair], bool],
    options: Options, progress: Callable[[str], None],
) -> Found:  # fmt: skip
    """Find the law of fields."""
    began = time.perf_counter()
    seconds: dict[str, float] = {}
    progress("removing the noise")
    clean, noise, signal, kept = denoise(data)
    seconds["denoise"], began = time.perf_counter() - began, time.perf_counter()
    progress("comparing terms in the weak form")
    weak = weak_form(data, clean, terms, columns, data.values, allowed, options)
    seconds["weak"], began = time.perf_counter() - began, time.perf_counter()
    found = Found(clean, noise, signal, kept, weak, None, None, None)
    reason = _why_not(data, weak, options)
    if reason is None:
        _likelihood(data, found, terms, columns, options, progress)
        reason = (
            "the solution of the equations does not follow the data" if not found.likely else None
        )
    if found.likely is None and weak.xi:
        _widen(data, weak, terms, columns, options)
    seconds["likelihood"] = time.perf_counter() - began
    found.diagnostics = {
        "method": "likelihood" if found.likely else "weak form",
        "why_not_likelihood": reason,
        "seconds": {k: round(v, 3) for k, v in seconds.items()},
        "explained": weak.explained.tolist(),
        "signal": signal.tolist(),
    }
    return found


def _widen(
    data: FieldSet, weak: Weak, terms: Sequence[Term], columns: Columns, options: Options
) -> None:
    """Add to the deviations how much the coefficients change with a stronger filter.

    Resampled boxes tell how much the coefficients scatter, but not how much the filter biases them.
    """
    fewer = [
        p for p in range(len(terms)) if any((f, p) in weak.xi for f in range(len(columns.fields)))
    ]
    place = {p: k for k, p in enumerate(fewer)}
    chosen = {(f, place[p]): a for (f, p), a in weak.xi.items()}
    clean = denoise(data, STRONGER * CAUTION)[0]
    free = replace(options, penalty=1e-9, threshold=0.0)
    other = weak_form(data, clean, [terms[p] for p in fewer], columns, data.values,
                      chosen.__contains__, free)  # fmt: skip
    for f, p in weak.xi:
        change = other.xi.get((f, place[p]), 0.0) - weak.xi[f, p]
        weak.deviation[f, p] = float(np.hypot(weak.deviation[f, p], change))


def _why_not(data: FieldSet, weak: Weak, options: Options) -> str | None:
    """Why the likelihood is not maximised."""
    if not options.refine:
        return "it was not asked for"
    if len(data.axes) > 1:
        return "the fields have two directions"
    if not all(data.periodic):
        return "the domain is not periodic"
    if not weak.xi:
        return "no term was found"
    if sum(u.size for u in data.runs) > MOST_VALUES * (1 if len(data.runs) == 1 else 2):
        return f"there are more than {MOST_VALUES:,} values"
    return None


def _grid(data: FieldSet, clean: Sequence[Field], noise: Field) -> tuple[PeriodicGrid, int]:
    """Grid of the simulation, and the largest mode of the beginnings that is free."""
    n = len(data.axes[0])
    is_complex = np.iscomplexobj(clean[0])
    top = int(_highest(clean, noise)[1].max())
    free = min(max(int(1.7 * top) + 4, 8), n // 2 - 1)
    kept = min(max(int(2.2 * top) + 8, 16), n // 2 - 1)
    size = next(m for m in range(3 * kept + 1, 7 * kept + 9) if m % 2 == 0 and _smooth(m))
    return PeriodicGrid((size,), (data.lengths[0],), is_complex, (kept,)), min(free, kept)


def _highest(clean: Sequence[Field], noise: Field) -> tuple[Field, Field]:
    """Mean power `(F, modes)` of the modes of each field, and the highest that is visible."""
    n = clean[0].shape[-1]
    power = sum((np.abs(np.fft.fft(u, norm="forward")) ** 2).mean(1) for u in clean) / len(clean)
    power = np.maximum(power, np.roll(power[:, ::-1], 1, 1))[:, : n // 2]
    limit = np.maximum(0.05 * noise**2 / n, 1e-18 * power.max(1))
    above = [np.flatnonzero(p > b) for p, b in zip(power, limit)]
    return power, np.array([int(a[-1]) if len(a) else 1 for a in above])


def _expected(clean: Sequence[Field], noise: Field) -> Field:
    """Power `(F, modes)` that a mode of a frame may have: an envelope of the mean power.

    Above the highest visible mode it decays as it does below, since fields are smooth.
    """
    power, tops = _highest(clean, noise)
    out = np.maximum.accumulate(power[:, ::-1], 1)[:, ::-1]
    k = np.arange(power.shape[1])
    for p, top in zip(out, tops):
        few = k[top // 2 : top + 1]
        decay = np.polyfit(few, np.log(np.maximum(p[few], 1e-300)), 1)[0] if top > 4 else -1.0
        p[top:] = p[top] * np.exp(np.clip(decay, -2.0, -1 / max(top, 1)) * (k[top:] - top))
    return np.asarray(GENEROUS * np.maximum(out, 1e-12 * out.max(1, keepdims=True)))


def _precision(found: Found, grid: PeriodicGrid) -> Field:
    """Reciprocal of the expected power of the modes of a grid."""
    power = _expected(found.denoised, found.noise)
    each = np.abs(grid.numbers[0]).astype(int)
    shared = np.where((each == 0) & (not grid.is_complex), 1.0, 2.0)
    return np.asarray(grid.mask * shared / power[:, np.minimum(each, power.shape[1] - 1)])


def _smooth(m: int) -> bool:
    for p in (2, 3, 5):
        while m % p == 0:
            m //= p
    return m == 1


def _likelihood(
    data: FieldSet, found: Found, terms: Sequence[Term], columns: Columns, options: Options,
    progress: Callable[[str], None],
) -> None:  # fmt: skip
    """Maximise the likelihood, and keep the result if it follows the data."""
    grid, free = _grid(data, found.denoised, found.noise)
    fields = len(columns.fields)
    clean = float(np.max(found.noise / _spread(found.denoised))) < CLEAN
    parts = 2 * fields * (2 if grid.is_complex else 1)
    free = min(free, MOST_FREE // (8 if clean else 1) // parts)
    values = data.values_on(grid.shape)
    noise = found.noise / (np.sqrt(2.0) if grid.is_complex else 1.0)  # of real and imaginary part
    precision = 0.0 if clean else _precision(found, grid)
    shooting = Shooting(columns, terms, grid, free, noise, values, len(data.axes[0]), precision)
    weak = found.weak
    rules = Rules(
        fields * len(terms), _spread(found.denoised) / found.noise,
        lambda pair: float(weak.shares[pair]), options.threshold, options.penalty,
    )  # fmt: skip
    ranking = list(dict.fromkeys([*weak.xi, *weak.ranking]))

    def climb(
        segments: list[Segment], start: Mapping[Pair, float], without: Pair | None = None
    ) -> Likely | None:
        progress(f"following the data in {len(segments)} part{'s' * (len(segments) > 1)}")
        xi = np.array([*start.values()])
        extra = [pair for pair in ranking if pair != without]
        likely = maximise(shooting, segments, list(start), xi, extra, rules, progress)
        return likely if likely is not None and likely.converged and likely.pairs else None

    if clean:
        found.likely = _by_parts(data, found, shooting, climb)
    else:
        projects = [visible(u, found.noise, t, data.axes[0])
                    for u, t in zip(found.denoised, data.times)]  # fmt: skip
        settling = Settling(shooting, projects, options.seed)
        found.likely = _by_windows(data, found, shooting, climb, settling)
    if found.likely is not None:
        found.shooting = shooting
        final = shooting.law(found.likely.pairs, found.likely.xi)
        rest = [
            residual_field(shooting, final, s, found.likely.substeps) for s in found.likely.segments
        ]
        found.residuals = [r for r in rest if r is not None]


Climb = Callable[..., Likely | None]


def _by_windows(
    data: FieldSet, found: Found, shooting: Shooting, climb: Climb, settling: Settling
) -> Likely | None:
    """Start with the longest parts of the data that a law follows, and join them."""
    likely: Likely | None = None
    attempts = 0
    for count in WINDOWS:
        short = count > 1 and min(len(t) for t in data.times) // count < 6
        if attempts == MOST_ATTEMPTS or short:
            break
        segments = _segments(data, found.denoised, shooting, count)
        start = _start(shooting, segments, found, count == WINDOWS[-1])
        if start is None:
            continue
        attempts += 1
        other = climb(segments, start)
        if other is not None and (likely is None or other.excess < likely.excess):
            likely = other
        if likely is not None and likely.excess < GOOD:
            break
    if likely is None:
        return None
    likely = settling(_whole(data, found, shooting, climb, likely))
    for _ in range(MOST_DROPPED):
        simpler = _simpler(data, found, shooting, climb, settling, likely)
        if simpler is likely:
            break
        likely = simpler
    return likely


def _whole(
    data: FieldSet, found: Found, shooting: Shooting, climb: Climb, likely: Likely
) -> Likely:
    """Join the parts of the time as long as the law follows the data."""
    while len(likely.segments) > len(data.runs) and len(likely.segments) % 2 == 0:
        segments = _joined(likely.segments)
        law = shooting.law(likely.pairs, likely.xi)
        if not _follows(shooting, law, segments, found, 0.8):
            break
        joined = climb(segments, dict(zip(likely.pairs, map(float, likely.xi))))
        if joined is None or joined.excess > max(GOOD, 1.1 * likely.excess):
            break
        likely = joined
    return likely


def _simpler(
    data: FieldSet, found: Found, shooting: Shooting, climb: Climb, settling: Settling,
    likely: Likely,
) -> Likely:  # fmt: skip
    """The law without its weakest term, fitted anew, if the criterion prefers that.

    The likelihood of long parts has several maxima, and at one of the lower ones a further term
    may make up for coefficients that are not the best. Shorter parts have fewer maxima. A term
    that its settled deviation does not support is left out also if the likelihood wants it.
    """
    ratio = np.abs(likely.xi) / np.maximum(likely.deviation, 1e-300)
    count = 4 * len(likely.segments) // len(data.runs)
    short = min(len(t) for t in data.times) // count < 6
    if len(ratio) < 2 or ratio.min() > DOUBTFUL or short:
        return likely
    weakest = int(np.argmin(ratio))
    rest = [j for j in range(len(ratio)) if j != weakest]
    climb = partial(climb, without=likely.pairs[weakest])
    start = {likely.pairs[j]: float(likely.xi[j]) for j in rest}
    segments = _segments(data, found.denoised, shooting, count)
    other = climb(segments, start)
    other = None if other is None else _whole(data, found, shooting, climb, other)
    if other is None or len(other.segments) > len(likely.segments):
        return likely
    other = settling(other)
    unsupported = ratio.min() ** 2 < likely.price and other.excess < max(GOOD, likely.excess)
    return other if unsupported else min(likely, other, key=lambda one: one.score)


def _by_parts(data: FieldSet, found: Found, shooting: Shooting, climb: Climb) -> Likely | None:
    """Fit a few short parts, which suffice where there is hardly any noise; then follow all."""
    segments = []
    for u, v, t in zip(data.runs, found.denoised, data.times):
        for i in np.unique(np.linspace(0, max(len(t) - SHORT, 0), PARTS).astype(int)):
            part = slice(i, i + SHORT)
            segments.append(Segment(t[part], u[:, part], shooting.from_data(v[:, i])))
    start = _start(shooting, segments, found, last=True)
    likely = None if start is None else climb(segments, start)
    if likely is None:
        return None
    law = shooting.law(likely.pairs, likely.xi)
    for count in WINDOWS:
        segments = _segments(data, found.denoised, shooting, count)
        cost = shooting.cost(law, segments, likely.substeps)
        if np.isfinite(cost) and _follows(shooting, law, segments, found, 0.1):
            each = 2 if shooting.grid.is_complex else 1
            values = each * sum(int(np.isfinite(u).sum()) for u in data.runs)
            return replace(likely, segments=segments, cost=cost, values=values)
    return None


def _start(
    shooting: Shooting, segments: list[Segment], found: Found, last: bool
) -> dict[Pair, float] | None:
    """The first law of the weak form whose solutions stay near the data."""
    starts = found.weak.starts()
    for i, start in enumerate(starts):
        law = shooting.law(list(start), np.array([*start.values()]))
        if start and _follows(shooting, law, segments, found, finest=64 if i == 0 else 16):
            return start
    return starts[0] if last else None


def _spread(clean: Sequence[Field]) -> Field:
    return np.sqrt(np.mean([[np.var(v) for v in u] for u in clean], 0))


def _segments(
    data: FieldSet, clean: Sequence[Field], shooting: Shooting, count: int
) -> list[Segment]:
    out = []
    for u, v, t in zip(data.runs, clean, data.times):
        for part in np.array_split(np.arange(len(t)), count):
            out.append(Segment(t[part], u[:, part], shooting.beginning(v[:, part[0]])))
    return out


def _joined(segments: Sequence[Segment]) -> list[Segment]:
    """Pairs of successive segments as one; their number is even in every run."""
    return [
        Segment(np.concatenate([a.t, b.t]), np.concatenate([a.u, b.u], 1), a.start)
        for a, b in zip(segments[::2], segments[1::2])
    ]


def _follows(
    shooting: Shooting, law: Any, segments: Sequence[Segment], found: Found, limit: float = 0.4,
    finest: int = 64,
) -> bool:  # fmt: skip
    """Whether solutions from the filtered beginnings stay near the data."""
    spread = _spread(found.denoised)
    for number in (n for n in (4, 16, 64) if n <= finest):
        errors = []
        for segment in segments:
            r = residual_field(shooting, law, segment, number)
            if r is None:
                break
            last = r[:, -max(1, r.shape[1] // 4) :]
            error = np.nanmean(np.abs(last) ** 2, tuple(range(1, r.ndim))) - found.noise**2
            errors.append(np.maximum(error, 0) / spread**2)
        if len(errors) == len(segments):
            return bool(np.sqrt(np.mean(errors, 0)).max() < limit)
    return False
