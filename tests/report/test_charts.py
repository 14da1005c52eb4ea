"""Charts: the points that are drawn are those of the data, and labels are only ever text."""

import re
import xml.etree.ElementTree as tree

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from smnn.report import charts
from smnn.report._ticks import log_ticks
from smnn.report.charts import Band, Line, Mark, chart, grid, histogram, thin, tick_text, ticks

EVIL = '"><script>alert("x")</script>&\'`'


def parsed(html: str) -> tree.Element:
    return tree.fromstring(html)


def strokes(html: str, kind: str) -> list[str]:
    found = [e for e in parsed(html).iter("path") if (e.get("class") or "").split(" ")[0] == kind]
    return [e.get("d") or "" for e in found if e.get("data-label")]


def coordinates(path: str) -> np.ndarray:
    return np.array([[float(v) for v in p] for p in re.findall(r"([\d.-]+) ([\d.-]+)", path)])


def test_points_can_be_read_back() -> None:
    """The scale written for the script inverts the drawing."""
    t = np.linspace(3, 7, 50)
    y = np.cos(t) * 40 - 3
    html = chart("title", [Line(t, y, "curve")], x_label="t", y_label="y")
    (path,) = strokes(html, "line")
    plot = next(e for e in parsed(html).iter("div") if "plot" in (e.get("class") or ""))
    x0, x1 = map(float, (plot.get("data-x") or "").split())
    y0, y1 = map(float, (plot.get("data-y") or "").split())
    at = coordinates(path)
    np.testing.assert_allclose(x0 + at[:, 0] / 1000 * (x1 - x0), t, atol=1e-3 * (x1 - x0))
    np.testing.assert_allclose(y1 - at[:, 1] / 1000 * (y1 - y0), y, atol=1e-3 * (y1 - y0))


def test_gaps_interrupt_a_line() -> None:
    y = np.array([0.0, 1, np.nan, 3, np.inf, 2, 1])
    (path,) = strokes(chart("", [Line(np.arange(7.0), y, "a")], x_label="t"), "line")
    assert re.sub(r"[^ML]", "", path) == "MLMML"


def test_dots_are_single_points() -> None:
    (path,) = strokes(
        chart("", [Line(np.arange(4.0), np.ones(4), "a", 0, "dots")], x_label=""), "dots"
    )
    assert path.count("M") == path.count("h0") == 4


def test_logarithmic_axis() -> None:
    t = np.arange(5.0)
    html = chart("", [Line(t, np.array([1e-3, 1e-1, 0, -5, 10]), "a")], x_label="t", log_y=True)
    (path,) = strokes(html, "line")
    heights = coordinates(path)[:, 1]
    assert len(heights) == 3
    np.testing.assert_allclose((heights[0] - heights[1]) / (heights[1] - heights[2]), 1, rtol=1e-2)
    assert ">0.01</span>" in html
    far = chart("", [Line(t, 10.0 ** (-9 - t), "a")], x_label="t", log_y=True)
    assert "10<sup>−12</sup>" in far


def test_ticks_of_a_logarithmic_axis_are_round() -> None:
    for low, high in ((-0.1, 2.1), (0.2, 0.65), (0.31, 0.45), (-30.0, 4.0), (-3.3, 1.2)):
        found = log_ticks(low, high)
        assert 3 <= len(found) <= 9
        assert all(low - 1e-9 <= x <= high + 1e-9 for x in found)
        assert all(f"{10.0**x:.5e}"[3:7] == "0000" for x in found)  # two digits at most
        assert found == sorted(found)


def test_everything_else_that_is_drawn() -> None:
    t = np.arange(4.0)
    html = chart(
        "title", [Line(t, t, "a", 1, "dashed"), Line(t, -t, "hidden", keyed=False)], x_label="time",
        y_label="value", bands=[Band(t, t - 1, t + 1, "band", 2)], marks=[Mark(3.0, "here")],
        shade=(1.0, 9.0), x_range=(0.0, 4.0), square=True,
    )  # fmt: skip
    classes = [e.get("class") for e in parsed(html).iter("path")]
    assert {"dashed k1", "area f2", "mark", "shade", "zero", "grid", "frame"} <= set(classes)
    assert ">here</span>" in html
    assert ">band</span>" in html
    assert 'data-label="hidden"' in html
    assert ">hidden</span>" not in html
    assert "H1000" in next(
        e.get("d") or "" for e in parsed(html).iter("path") if e.get("class") == "shade"
    )


@pytest.mark.parametrize(
    "values",
    [[], [np.nan], [3.0], [3.0, 3.0], [0.0, 0.0], [1e-300, 2e-300], [-1e300, 1e300], [1.0, np.inf]],
)
def test_degenerate_data(values: list[float]) -> None:
    y = np.array(values)
    html = chart("", [Line(np.arange(float(len(y))), y, "a")], x_label="t")
    assert "nan" not in html
    assert "inf" not in html
    parsed(html)
    parsed(histogram("", y[np.isfinite(y)][:2], x_label="v"))


@settings(max_examples=40, deadline=None)
@example(EVIL)
@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])))
def test_labels_are_text(label: str) -> None:
    t = np.arange(3.0)
    html = chart(
        label, [Line(t, t, label)], x_label=label, y_label=label, marks=[Mark(1.0, label)],
        bands=[Band(t, t, t, label)],
    )  # fmt: skip
    root = parsed(html)
    assert {e.tag for e in root.iter()} <= {
        "figure",
        "figcaption",
        "b",
        "span",
        "svg",
        "path",
        "div",
    }
    assert next(root.iter("b")).text == (label or None)
    told = [e.get("data-label") for e in root.iter("path") if e.get("data-label")]
    assert told == ([label] if label else [])


@settings(deadline=None)
@given(st.integers(1, 5000), st.integers(0, 99), st.booleans())
def test_thinning_keeps_ends_and_extremes(n: int, seed: int, gaps: bool) -> None:
    rng = np.random.default_rng(seed)
    x, y = np.arange(float(n)), rng.standard_normal(n).cumsum()
    if gaps:
        y[rng.random(n) < 0.2] = np.nan
    a, b = thin(x, y, 400)
    assert len(a) <= 400
    assert np.isin(a, x).all()
    assert (np.diff(a) > 0).all()
    assert a[0] == 0
    if np.isfinite(y).any():
        assert np.nanmin(b) == np.nanmin(y)
        assert np.nanmax(b) == np.nanmax(y)
        np.testing.assert_array_equal(b, y[a.astype(int)])


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(2, 9))
def test_ticks_are_round_and_inside(low: float, size: float, count: int) -> None:
    high = low + size
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        return
    found = ticks(low, high, count)
    assert 1 <= len(found) <= count + 1
    slack = 1e-6 * (high - low)
    assert all(low - slack <= v <= high + slack for v in found)
    if len(found) > 1:
        step = found[1] - found[0]
        assert f"{step:.3e}"[:5] in ("1.000", "2.000", "5.000")


def test_text_of_ticks() -> None:
    assert tick_text([-0.5, 0.0, 0.5]) == ["−0.5", "0.0", "0.5"]
    assert tick_text([0.0, 20.0]) == ["0", "20"]
    assert tick_text([0.0, 2e-6]) == ["0", "2e−06"]
    assert tick_text([1e6, 2e6]) == ["1e+06", "2e+06"]
    assert tick_text([]) == []


def test_histogram_has_area_one() -> None:
    values = np.random.default_rng(0).standard_normal(2000)
    html = histogram("h", values, x_label="v", deviation=1.0)
    plot = next(e for e in parsed(html).iter("div") if "plot" in (e.get("class") or ""))
    x0, x1 = map(float, (plot.get("data-x") or "").split())
    y0, y1 = map(float, (plot.get("data-y") or "").split())
    bell = coordinates(strokes(html, "dashed")[0])
    bars = next(e.get("d") or "" for e in parsed(html).iter("path") if e.get("class") == "line k0")
    for path in (bell, coordinates(bars)):
        x, y = x0 + path[:, 0] / 1000 * (x1 - x0), y1 - path[:, 1] / 1000 * (y1 - y0)
        area = np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2)
        np.testing.assert_allclose(area, 1.0, atol=0.01)


def test_grid_and_assets() -> None:
    assert grid(["<i></i>"], "9rem") == '<div class="charts" style="--least:9rem"><i></i></div>'
    for text in (charts.STYLE, charts.SCRIPT):
        assert "http" not in text
        assert "@import" not in text
        assert "url(" not in text
    assert "innerHTML" not in charts.SCRIPT  # names reach the page as text only


@pytest.mark.parametrize("low", [3.2944, -1e6, 0.0, 5e8])
@pytest.mark.parametrize("spread", [1e-5, 1e-3, 0.7, 40.0])
def test_no_two_marks_have_one_label(low: float, spread: float) -> None:
    texts = tick_text(ticks(low, low + spread, 5))
    assert len(set(texts)) == len(texts) >= 2
