"""Maps and curves of the SST experiment, as PNG; coastlines follow the mask of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from smnn.datasets.sst import Grid
from smnn.experiments import views

LAND = "0.78"


class Map(NamedTuple):
    """A map of the globe."""

    values: np.ndarray
    """`(N,)` values of the ocean cells; NaN is white."""
    title: str
    units: str
    colours: str
    low: float
    high: float


def maps(grid: Grid, pictures: Sequence[Map], columns: int = 2) -> bytes:
    """Several maps, each with a colour bar."""
    rows = -(-len(pictures) // columns)

    def draw(canvas: Any) -> None:
        axes = canvas.subplots(rows, columns, squeeze=False)
        for one, picture in zip(axes.flat, pictures):
            _map(canvas, one, grid, picture)
        for one in axes.flat[len(pictures) :]:
            one.set_visible(False)

    return views.png((5.2 * columns, 2.75 * rows), draw)


def _map(canvas: Any, axes: Any, grid: Grid, picture: Map) -> None:
    lat, lon, ocean, field = _centred(grid, grid.on_grid(picture.values))
    axes.set_facecolor("white")
    land = np.where(ocean, np.nan, 1.0)
    axes.pcolormesh(lon, lat, land, cmap="gray", vmin=0, vmax=1 / float(LAND), shading="nearest")
    image = axes.pcolormesh(
        lon, lat, field, cmap=picture.colours, vmin=picture.low, vmax=picture.high,
        shading="nearest", rasterized=True,
    )  # fmt: skip
    axes.contour(lon, lat, ocean.astype(float), levels=[0.5], colors="0.15", linewidths=0.5)
    axes.set_title(picture.title, loc="left")
    axes.spines[:].set_visible(True)
    axes.set_xticks([-120, -60, 0, 60, 120], ["120°W", "60°W", "0°", "60°E", "120°E"])
    axes.set_yticks([-60, -30, 0, 30, 60], ["60°S", "30°S", "0°", "30°N", "60°N"])
    axes.tick_params(labelsize=7.5, length=2)
    finite = field[np.isfinite(field)]
    below = bool((finite < picture.low).any())
    above = bool((finite > picture.high).any())
    extend = ("neither", "min", "max", "both")[below + 2 * above]
    bar = canvas.colorbar(image, ax=axes, fraction=0.035, pad=0.02, extend=extend)
    bar.set_label(picture.units, fontsize=8.5)
    bar.ax.tick_params(labelsize=7.5)


def _centred(
    grid: Grid, field: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Latitudes, longitudes from -180 to 180, mask and field in this order, both increasing."""
    lon = (grid.lon + 180) % 360 - 180
    across, along = np.argsort(lon), np.argsort(grid.lat)
    turned = [x[along][:, across] for x in (grid.ocean, field)]
    return grid.lat[along], lon[across], turned[0], turned[1]


class Curve(NamedTuple):
    """A curve by lead time."""

    name: str
    values: Sequence[float]
    colour: str
    style: str = "-"
    width: float = 1.4


def curves(
    panels: Sequence[tuple[str, str, Sequence[Curve]]], unit: str = "month", year: int = 12
) -> bytes:
    """Panels (title, label of the vertical axis, curves) by lead time, with one legend."""

    def draw(canvas: Any) -> None:
        axes = canvas.subplots(1, len(panels), squeeze=False)[0]
        for one, (title, label, lines) in zip(axes, panels):
            for line in lines:
                lead = np.arange(1, len(line.values) + 1)
                one.plot(lead, line.values, line.style, color=line.colour, lw=line.width,
                         label=line.name)  # fmt: skip
            one.set_title(title, loc="left")
            one.set_xlabel(f"lead time, {unit}s")
            one.set_ylabel(label)
            one.grid(axis="y", lw=0.4, color="0.88")
            one.set_xlim(0.5, None)
            one.set_xticks(range(year, len(lines[0].values) + 1, year))
        handles, names = axes[0].get_legend_handles_labels()
        canvas.legend(handles, names, loc="outside lower center", ncols=3, fontsize=9)

    return views.png((5.0 * len(panels), 3.9), draw)
