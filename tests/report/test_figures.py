"""Charts drawn with matplotlib, and the representation of results in notebooks."""

import re

import matplotlib
import numpy as np
import pytest

from smnn import equations
from smnn.report.charts import Band, Chart, Line, Mark
from smnn.report.figures import draw, png

matplotlib.use("Agg")
X = np.arange(5.0)
LINES = [Line(X, X**2, "data", 0, "dots"), Line(X, X, "$fit$", 1)]
CHART = Chart(
    "squares", LINES, "_t", "y", bands=[Band(X, X - 1, X + 1, "band", 1)],
    marks=[Mark(2.0, "here")], shade=(3.0, 4.0),
)  # fmt: skip


def close() -> None:
    matplotlib.pyplot.close("all")


def test_a_chart_becomes_axes_with_the_same_lines() -> None:
    ax = draw([CHART])
    assert ax.get_title(loc="left") == "squares"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("t", "y")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "band", "data", r"\$fit\$", "here",
    ]  # fmt: skip
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), X**2)
    close()


def test_given_axes_are_used_and_counted() -> None:
    figure, axes = matplotlib.pyplot.subplots(2)
    assert draw([CHART, CHART], axes)[0] is axes[0]
    assert draw([CHART], axes[1]) is axes[1]
    with pytest.raises(ValueError, match=r"ax: got 1 Axes; expected 2, one for each of squares"):
        draw([CHART, CHART], axes[0])
    with pytest.raises(ValueError, match="nothing to draw"):
        draw([])
    close()


def test_dates_stay_dates() -> None:
    dates = np.arange("2024-01", "2024-06", dtype="M8[M]").astype("M8[ns]")
    ax = draw([Chart("", [Line(dates, X, "")], "time")])
    assert "Date" in type(ax.xaxis.get_major_formatter()).__name__
    close()


def test_png_opens_no_window() -> None:
    before = matplotlib.pyplot.get_fignums()
    assert png([CHART] * 5)[:4] == b"\x89PNG"
    assert matplotlib.pyplot.get_fignums() == before


@pytest.fixture(scope="module")
def solution() -> equations.Solution:
    return equations.solve("y'' = -y, z' = -z, y(0)=1, y'(0)=0, z(0)=2, t = 0 .. 1 step 0.1")


def test_solution(solution: equations.Solution, tmp_path_factory: pytest.TempPathFactory) -> None:
    frame = solution.to_frame()
    assert list(frame.columns) == ["y", "y'", "y''", "z", "z'"]
    assert frame.index.name == "t"
    np.testing.assert_allclose(frame["z"], 2 * np.exp(-frame.index), rtol=1e-6)
    assert solution.summary().splitlines()[:3] == ["Solution for y, z", "  y'' = -y", "  z' = -z"]
    axes = solution.plot()
    assert [ax.get_title(loc="left") for ax in axes] == ["y", "z"]
    assert solution.plot(names="z").get_title(loc="left") == "z"
    with pytest.raises(ValueError, match="names: got 'q'; expected names of variables: y, z"):
        solution.plot(names="q")
    path = solution.report(tmp_path_factory.mktemp("solution") / "page.html")
    assert "Solution for y, z" in path.read_text("utf-8")
    close()


def test_notebook_html_is_self_contained(solution: equations.Solution) -> None:
    shown = solution._repr_html_()
    assert "<math>" in shown
    assert "data:image/png;base64," in shown
    assert not re.search(r"(src|href)=.(?!data:)", shown)


def test_unknown_arguments_of_plot_are_explained(solution: equations.Solution) -> None:
    wanted = r"Solution\.plot: got an unknown argument 'color'.*Its arguments: ax, names"
    with pytest.raises(TypeError, match=wanted):
        solution.plot(color="red")
