"""Charts for a page: drawn as SVG that stretches, with labels that do not.

The drawing area is an SVG of 1000 by 1000 units stretched to the width there is; strokes keep their
width. Titles, ticks and legends are HTML beside it, so they have one size on a phone and on a
screen. Colours are variables of the page, so a chart follows light and dark. Values of `x` may be
dates (`datetime64`), which are shown on a calendar axis. A few lines of script
(`SCRIPT`) show values under the pointer; without script the chart is complete.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from smnn.report._ticks import calendar_ticks, log_tick_text, log_ticks
from smnn.report._ticks import tick_text as tick_text
from smnn.report._ticks import ticks as ticks

MOST_POINTS = 1500
"""Maximum number of points per line; extremes are kept."""
PATH_POINTS = 5000
"""Maximum number of points of a curve that is not a function, as in a phase portrait."""
FEW_DOTS = 150
"""Number of points up to which the dots are large."""
PALETTE = (
    "#0b5fa5", "#c2500a", "#12805c", "#8e3f91", "#9a7400", "#b5305f", "#3f6f80", "#6a5acd",
)  # fmt: skip
"""Colours on a light page; those on a dark page are part of `STYLE`."""
COLOURS = len(PALETTE)

STYLE = (
    f"""
:root {{ {" ".join(f"--c{i}: {c};" for i, c in enumerate(PALETTE))} --grid: #e6eaf0; }}
"""
    + """@media (prefers-color-scheme: dark) { :root { --c0: #6cb2f2; --c1: #f79a5b; --c2: #55c99b;
  --c3: #d79be0; --c4: #e0bd4a; --c5: #f28bab; --c6: #8ec3d4; --c7: #b0a6ff; --grid: #2a313c; } }
.charts { display: grid; gap: 1.2rem 1.6rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, var(--least, 19rem)), 1fr)); }
.chart { margin: 1.2rem 0 0; min-width: 0; }
.chart figcaption { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; align-items: baseline;
  margin: 0 0 .35rem; color: var(--soft); font-size: .9rem; }
.chart figcaption b { color: var(--ink); font-weight: 600; margin-right: auto; }
.key { white-space: nowrap; } .key svg { width: 1.5rem; height: .7rem; vertical-align: -.02rem;
  margin-right: .35rem; overflow: visible; }
.plot { position: relative; margin: 1.15rem .7rem 0 3.5rem; height: var(--height, 13rem); }
.plot.square { height: auto; aspect-ratio: 1; } .chart.square { max-width: 26rem; }
.plot > svg { position: absolute; inset: 0; width: 100%; height: 100%; overflow: hidden; }
.plot path, .plot line, .key path { fill: none; vector-effect: non-scaling-stroke; }
.plot .grid { stroke: var(--grid); stroke-width: 1; } .plot .zero { stroke: var(--soft);
  stroke-width: 1; } .plot .frame { stroke: var(--soft); stroke-width: 1; }
.plot .area, .key .area { stroke: none; fill-opacity: .2; }
.plot .shade { fill: var(--soft); fill-opacity: .09; }
.line { stroke-width: 1.5; stroke-linejoin: round; } .dashed { stroke-width: 1.7;
  stroke-dasharray: 5 4; } .dots { stroke-width: 3.6; stroke-linecap: round; stroke-opacity: .5; }
.dots.few { stroke-width: 5.5; stroke-opacity: .8; }
.key .dots { stroke-width: 6; stroke-opacity: .8; }
.mark { stroke: var(--bad); stroke-width: 1.3; stroke-dasharray: 2 3; }
.k0 { stroke: var(--c0); } .k1 { stroke: var(--c1); } .k2 { stroke: var(--c2); }
.k3 { stroke: var(--c3); } .k4 { stroke: var(--c4); } .k5 { stroke: var(--c5); }
.k6 { stroke: var(--c6); } .k7 { stroke: var(--c7); } .ink { stroke: var(--ink); }
.area.f0 { fill: var(--c0); } .area.f1 { fill: var(--c1); } .area.f2 { fill: var(--c2); }
.area.f3 { fill: var(--c3); } .area.f4 { fill: var(--c4); } .area.f5 { fill: var(--c5); }
.area.f6 { fill: var(--c6); } .area.f7 { fill: var(--c7); }
.tick { position: absolute; color: var(--soft); font-size: .76rem; line-height: 1;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
.tick.y { right: calc(100% + .45rem); transform: translateY(-50%); }
.tick.x { top: calc(100% + .4rem); transform: translateX(-50%); text-align: center; }
.dated .tick.x { line-height: 1.25; top: calc(100% + .25rem); }
.dated .axis.x { margin-top: 2.1rem; }
.axis { color: var(--soft); font-size: .8rem; line-height: 1.2; }
.axis.y { position: absolute; left: -3.4rem; bottom: calc(100% + .4rem); }
.axis.x { text-align: right; margin: 1.45rem .7rem 0 0; }
.flag { position: absolute; top: .2rem; color: var(--bad); font-size: .76rem; line-height: 1;
  white-space: nowrap; padding: .1rem .35rem; background: var(--paper); opacity: .92;
  border-radius: 3px; }
.flag.left { transform: translateX(-100%); }
.cross { position: absolute; top: 0; bottom: 0; width: 1px; background: var(--soft);
  pointer-events: none; display: none; }
.tip { position: absolute; top: .3rem; z-index: 2; pointer-events: none; display: none;
  background: var(--paper); border: 1px solid var(--line); border-radius: 6px; font-size: .78rem;
  line-height: 1.35; padding: .3rem .5rem; white-space: pre-wrap; max-width: 100%;
  font-variant-numeric: tabular-nums; box-shadow: 0 2px 10px rgb(0 0 0 / .14); }
@media print { .tip, .cross { display: none !important; } }
"""
)

# Reads the values of the tooltip back from the drawn points.
SCRIPT = """
for (const plot of document.querySelectorAll('.plot[data-x]')) {
  const [x0, x1] = plot.dataset.x.split(' ').map(Number), log = plot.dataset.log === '1';
  const [y0, y1] = plot.dataset.y.split(' ').map(Number), both = plot.dataset.both === '1';
  const lines = [...plot.querySelectorAll('path[data-label]')].map(path => ({
    label: path.dataset.label,
    points: [...path.getAttribute('d').matchAll(/([\\d.-]+) ([\\d.-]+)/g)].map(m => [+m[1], +m[2]])
  })).filter(line => line.points.length);
  if (!lines.length) continue;
  const add = name => plot.appendChild(Object.assign(document.createElement('div'),
    { className: name }));
  const cross = add('cross'), tip = add('tip');
  const show = v => { const a = Math.abs(v);
    return a !== 0 && (a < 1e-3 || a >= 1e6) ? v.toExponential(3) : String(+v.toPrecision(5)); };
  const span = x1 - x0, left = span > 864e3 ? 10 : span > 7200 ? 16 : 19;
  const half = [43200, 30, 0.5][[10, 16, 19].indexOf(left)];
  const showX = v => plot.dataset.dated === '1' ?
    new Date(1e3 * (v + half)).toISOString().slice(0, left).replace('T', ' ') : show(v);
  const real = ([x, y]) => [x0 + x / 1000 * (x1 - x0), (y => log ? 10 ** y : y)(
    y1 - y / 1000 * (y1 - y0))];
  plot.addEventListener('pointermove', event => {
    const box = plot.getBoundingClientRect();
    const px = (event.clientX - box.left) / box.width * 1000;
    const py = (event.clientY - box.top) / box.height * 1000;
    const far = p => both ? Math.hypot(p[0] - px, p[1] - py) : Math.abs(p[0] - px);
    const near = lines.map(line => ({ label: line.label,
      point: line.points.reduce((a, b) => far(b) < far(a) ? b : a) }));
    const best = near.reduce((a, b) => far(b.point) < far(a.point) ? b : a).point;
    const told = near.filter(n => both ? n.point === best : Math.abs(n.point[0] - best[0]) < 15);
    tip.textContent = [plot.dataset.name + ' = ' + showX(real(best)[0]),
      ...told.map(n => n.label + ': ' + show(real(n.point)[1]))].join('\\n');
    cross.style.left = best[0] / 10 + '%';
    cross.style.display = tip.style.display = 'block';
    const at = best[0] / 1000 * box.width, w = tip.offsetWidth;
    const beside = best[0] < 500 ? at + 11 : at - 11 - w;
    tip.style.left = Math.max(0, Math.min(beside, box.width - w)) + 'px';
  });
  plot.addEventListener('pointerleave', () => cross.style.display = tip.style.display = 'none');
}
"""


@dataclass(frozen=True)
class Line:
    """Points of one colour. NaN interrupts a line; `x` are numbers or dates."""

    x: np.ndarray
    y: np.ndarray
    label: str
    colour: int = 0
    kind: str = "line"
    """`line`, `dashed` or `dots`."""
    keyed: bool = True
    """Whether it is in the legend; the tooltip shows its values in any case."""


@dataclass(frozen=True)
class Band:
    """The area between two curves."""

    x: np.ndarray
    low: np.ndarray
    high: np.ndarray
    label: str
    colour: int = 0


@dataclass(frozen=True)
class Mark:
    """A labelled vertical line."""

    x: Any
    label: str


@dataclass(frozen=True)
class Chart:
    """A line chart: `html` writes it for a page, `figures.draw` draws it with matplotlib.

    The fields are the arguments of `chart`.
    """

    title: str
    lines: Sequence[Line]
    x_label: str
    y_label: str = ""
    bands: Sequence[Band] = ()
    marks: Sequence[Mark] = ()
    shade: tuple[Any, Any] | None = None
    x_range: tuple[Any, Any] | None = None
    log_y: bool = False
    square: bool = False
    height: str = "13rem"

    def html(self) -> str:
        """The chart as HTML."""
        return chart(**vars(self))


def chart(
    title: str, lines: Sequence[Line], *, x_label: str, y_label: str = "",
    bands: Sequence[Band] = (), marks: Sequence[Mark] = (), shade: tuple[Any, Any] | None = None,
    x_range: tuple[Any, Any] | None = None, log_y: bool = False, square: bool = False,
    height: str = "13rem",
) -> str:  # fmt: skip
    """Return a line chart as HTML.

    `shade` is a range of x that stands out, such as data held out, and `x_range` are the ends of
    the axis if not those of the data. With `log_y`, values that are not positive are left out. A
    `square` chart shows one variable against another; `height` is that of the others, in CSS.
    """
    curves = [_plain(line.x, line.y, log_y) for line in lines]
    areas = [(_plain(b.x, b.low, log_y), _plain(b.x, b.high, log_y)) for b in bands]
    points = [*curves, *(side for area in areas for side in area)]
    xs = np.concatenate([p[0] for p in points] or [np.empty(0)])
    ys = np.concatenate([p[1] for p in points] or [np.empty(0)])
    x0, x1 = map(float, _seconds(x_range) if x_range else _ends(xs, 0.0))
    dated = any(_is_dated(line.x) for line in lines)
    y0, y1 = _ends(ys, 0.05)
    scale = _Scale(x0, x1, y0, y1)
    x_ticks = [] if dated else ticks(x0, x1, 5 if square else 6)
    across = calendar_ticks(x0, x1) if dated else (x_ticks, tick_text(x_ticks))
    y_ticks = log_ticks(y0, y1) if log_y else ticks(y0, y1, 5)
    drawn = [f'<path class="grid" d="M0 {scale.v(y):.1f}H1000"/>' for y in y_ticks]
    if y0 < 0 < y1 and not log_y:
        drawn.append(f'<path class="zero" d="M0 {scale.v(0.0):.1f}H1000"/>')
    if shade is not None:
        a, b = (min(max(scale.h(x), 0.0), 1000.0) for x in _seconds(shade))
        drawn.append(f'<path class="shade" d="M{a:.1f} 0H{b:.1f}V1000H{a:.1f}z"/>')
    for band, (low, high) in zip(bands, areas):
        drawn.append(_area(low, high, scale, band.colour))
    for line, (x, y) in zip(lines, curves):
        drawn.append(_stroke(line, x, y, scale))
    drawn += [f'<path class="mark" d="M{scale.h(*_seconds([m.x])):.1f} 0V1000"/>' for m in marks]
    drawn.append('<path class="frame" d="M0 0V1000H1000"/>')
    write = log_tick_text if log_y else tick_text
    labels = [
        f'<span class="tick y" style="top:{scale.v(y) / 10:.2f}%">{text}</span>'
        for y, text in zip(y_ticks, write(y_ticks))
    ] + [
        f'<span class="tick x" style="left:{scale.h(x) / 10:.2f}%">{text}</span>'
        for x, text in zip(*across)
    ]
    labels += [_flag(mark, scale) for mark in marks]
    if y_label:
        labels.append(f'<span class="axis y">{escape(y_label)}</span>')
    keys = [_key(f"{x.kind} k{x.colour % COLOURS}", x.label) for x in lines if x.label and x.keyed]
    keys += [_key(f"area f{b.colour % COLOURS}", b.label) for b in bands]
    shape = " square" * square + " dated" * dated
    reading = (
        f'data-x="{x0!r} {x1!r}" data-y="{y0!r} {y1!r}" data-log="{int(log_y)}" data-both='
        f'"{int(square)}" data-dated="{int(dated)}" data-name="{escape(x_label, quote=True)}"'
    )
    svg = (
        f'<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(title, quote=True)}">{"".join(drawn)}</svg>'
    )
    return (
        f'<figure class="chart{shape}"><figcaption><b>{escape(title)}</b>{"".join(keys)}'
        f'</figcaption><div class="plot{shape}" style="--height:{escape(height, quote=True)}" '
        f"{reading}>{svg}{''.join(labels)}</div>"
        f'<div class="axis x">{escape(x_label)}</div></figure>'
    )


def histogram(
    title: str, values: np.ndarray, *, x_label: str, colour: int = 0,
    deviation: float | None = None, height: str = "13rem",
) -> str:  # fmt: skip
    """Return a histogram as HTML, with a normal density if a standard deviation is given."""
    values = np.asarray(values, np.float64)
    values = values[np.isfinite(values)]
    bins = int(np.clip(2 * len(values) ** (1 / 3), 8, 60))
    count, edges = np.histogram(values, bins) if len(values) else (np.zeros(1), np.array([0.0, 1]))
    share = count / max(1, count.sum()) / np.diff(edges)
    x = np.repeat(edges, 2)
    y = np.concatenate([[0.0], np.repeat(share, 2), [0.0]])
    bars = [Band(x, np.zeros_like(y), y, "density", colour)]
    lines = [Line(x, y, "", colour)]
    if deviation is not None and deviation > 0:
        grid = np.linspace(edges[0], edges[-1], 200)
        bell = np.exp(-0.5 * (grid / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi))
        lines.append(Line(grid, bell, "normal noise", colour + 1, "dashed"))
    return chart(title, lines, x_label=x_label, bands=bars, height=height)


def grid(charts: Sequence[str], least: str = "19rem") -> str:
    """Arrange charts side by side, each at least as wide as given (CSS)."""
    return f'<div class="charts" style="--least:{least}">{"".join(charts)}</div>'


def thin(x: np.ndarray, y: np.ndarray, most: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Reduce the number of points: keep first, last, lowest and highest of each interval.

    A path that turns back, as in a phase portrait, would lose its curves that way; of such a path
    up to `PATH_POINTS` are kept, evenly.
    """
    if len(x) <= most:
        return x, y
    if (np.diff(x) < 0).any():
        every = np.linspace(0, len(x) - 1, min(len(x), PATH_POINTS)).round().astype(int)
        return x[every], y[every]
    kept = []
    for rows in np.array_split(np.arange(len(x)), most // 4):
        part = y[rows]
        if np.isnan(part).all():
            kept += [rows[0]]
            continue
        kept += [rows[0], rows[np.nanargmin(part)], rows[np.nanargmax(part)], rows[-1]]
    chosen = np.unique(kept)
    return x[chosen], y[chosen]


class _Scale:
    """Transform from values to drawing units."""

    def __init__(self, x0: float, x1: float, y0: float, y1: float) -> None:
        self.x0, self.y1 = x0, y1
        self.across, self.up = 1000.0 / (x1 - x0), 1000.0 / (y1 - y0)

    def h(self, x: float) -> float:
        return (x - self.x0) * self.across

    def v(self, y: float) -> float:
        return (self.y1 - y) * self.up


def _plain(x: np.ndarray, y: np.ndarray, log: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the points to draw, with NaN as gaps."""
    x, y = np.ravel(_seconds(x)), np.asarray(y, np.float64).ravel()
    if log:
        y = np.log10(np.where(y > 0, y, np.nan))
    y = np.where(np.isfinite(y) & np.isfinite(x), y, np.nan)
    return thin(x, y)


def _is_dated(x: Any) -> bool:
    return np.asarray(x).dtype.kind == "M"


def _seconds(x: Any) -> np.ndarray:
    """Return numbers as they are, and dates in seconds since 1970."""
    if _is_dated(x):
        return (np.asarray(x, "M8[us]") - np.datetime64(0, "us")) / np.timedelta64(1, "s")
    return np.asarray(x, np.float64)


def _ends(values: np.ndarray, margin: float) -> tuple[float, float]:
    """Return axis limits that contain the values, never of length zero."""
    known = values[np.isfinite(values)]
    if len(known) == 0:
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        pad = 0.5 * abs(low) or 0.5
        return low - pad, high + pad
    return low - margin * (high - low), high + margin * (high - low)


def _stroke(line: Line, x: np.ndarray, y: np.ndarray, scale: _Scale) -> str:
    parts, pen = [], False
    for a, b in zip(x, y):
        if not (np.isfinite(a) and np.isfinite(b)):
            pen = False
            continue
        at = f"{scale.h(a):.1f} {scale.v(b):.1f}"
        parts.append(f"M{at}h0" if line.kind == "dots" else f"{'L' if pen else 'M'}{at}")
        pen = True
    label = f' data-label="{escape(line.label, quote=True)}"' if line.label else ""
    few = " few" if line.kind == "dots" and len(parts) <= FEW_DOTS else ""
    return f'<path class="{line.kind}{few} k{line.colour % COLOURS}"{label} d="{"".join(parts)}"/>'


def _area(
    low: tuple[np.ndarray, np.ndarray], high: tuple[np.ndarray, np.ndarray], scale: _Scale,
    colour: int,
) -> str:  # fmt: skip
    there = [(scale.h(x), scale.v(y)) for x, y in zip(*high) if np.isfinite(y)]
    back = [(scale.h(x), scale.v(y)) for x, y in zip(*low) if np.isfinite(y)]
    path = "L".join(f"{a:.1f} {b:.1f}" for a, b in [*there, *reversed(back)])
    return f'<path class="area f{colour % COLOURS}" d="M{path}z"/>' if path else ""


def _key(kind: str, label: str) -> str:
    path = "M0 0H24V10H0z" if kind.startswith("area") else "M0 6H24"
    path = "M12 6h0" if kind.startswith("dots") else path
    sample = f'<svg viewBox="0 0 24 10"><path class="{kind}" d="{path}"/></svg>'
    return f'<span class="key">{sample}{escape(label)}</span>'


def _flag(mark: Mark, scale: _Scale) -> str:
    left = scale.h(*_seconds([mark.x])) / 10
    side = " left" if left > 55 else ""
    return f'<span class="flag{side}" style="left:{left:.2f}%">{escape(mark.label)}</span>'
