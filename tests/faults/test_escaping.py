"""Names from data are escaped in every report: terminal, HTML, SVG, JSON."""

import csv
import json
import math
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

EVIL = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</script><b>", "[/red]",
    "[bold]x", "'onload='alert", "</title></style>", "$x^2$", "{{7*7}}", "&lt;", "x\u202ey",
    "=cmd|' /C calc'!A0",
]  # fmt: skip
PLAIN = ("--horizon", "3", "--season", "none", "--trend", "none")
"""Options of a forecast that takes little time."""
pytestmark = pytest.mark.slow
VOID = {"meta", "img", "link", "br", "hr", "input"}


class Page(HTMLParser):
    """Elements, attributes and text of a page, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        else:
            self.text.append(data)


def checked(path: Path, names: list[str]) -> None:
    """Check that a page has only the package's scripts, no handlers, and the names as text."""
    from smnn.report import charts
    from smnn.report import page as html

    page = Page(path.read_text(encoding="utf-8"))
    assert page.open == []
    assert set(page.scripts) <= {html.SCRIPT, html.SCRIPT + charts.SCRIPT}
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    links = [v for name, v in page.attributes if name in ("src", "href", "xlink:href", "action")]
    assert all(
        link.startswith(("data:image/", "data:text/plain;base64,", "#")) for link in links
    ), links
    assert page.tags.count("img") == sum(
        1 for name, v in page.attributes if name == "src" and v.startswith("data:image/")
    )
    for tag in ("b", "title", "iframe", "object", "base", "form"):
        allowed = {"title": 1, "b": None}.get(tag, 0)
        if allowed is not None:
            assert page.tags.count(tag) <= allowed, tag
    everything = "".join(page.text) + "".join(value for _, value in page.attributes)
    for name in names:
        assert name in everything, name


def no_formula(out: Path) -> None:
    """Check that a spreadsheet would not execute a cell of a written table."""
    for path in out.glob("*.csv"):
        with path.open(newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert cells
        assert not [cell for cell in cells if cell.startswith(("=", "@"))]


def run(*words: str) -> str:
    from internals import app

    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output[-2000:]
    return result.output


def table(path: Path, names: list[str], rows: int = 60) -> Path:
    """Decays and oscillations under hostile names; time is the first column."""
    columns = [[math.exp(-0.05 * i), math.sin(0.2 * i), math.cos(0.2 * i)] * 4 for i in range(rows)]
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    head = ",".join(["t", *quoted])
    lines = [",".join(map(str, [0.1 * i, *c[: len(names)]])) for i, c in enumerate(columns)]
    path.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("names", [EVIL[:3], EVIL[3:6], EVIL[6:9], EVIL[9:]])
def test_discovery(tmp_path: Path, names: list[str]) -> None:
    data = table(tmp_path / "<img src=x onerror=alert(1)>.csv", names)
    out = tmp_path / "out"
    said = run(
        "discover", str(data), "--out", str(out), "--library", "poly:1", "--ensemble", "0",
        "--method", "regression",
    )  # fmt: skip
    checked(out / "report.html", names)
    assert "onerror=alert(1)&gt;.csv" in (out / "report.html").read_text()
    assert json.loads((out / "model.json").read_text())["variables"] == names
    no_formula(out)
    for name in names:
        if "\u202e" not in name:
            assert name in said.replace("\n", "")


def test_forecast(tmp_path: Path) -> None:
    data = table(tmp_path / "x.csv", EVIL, rows=40)
    out = tmp_path / "out"
    run("forecast", str(data), "--out", str(out), "--origins", "1", "--no-log", *PLAIN)
    checked(out / "report.html", EVIL)
    no_formula(out)


def test_forecast_of_a_grid(tmp_path: Path) -> None:
    """Name, unit and title of a NetCDF variable appear as text or not at all."""
    netcdf = pytest.importorskip("scipy.io").netcdf_file
    path, name = tmp_path / "x.nc", '"><img src=x onerror=alert(1)>'
    with netcdf(path, "w") as file:
        axes = {"time": np.arange(60.0), "lat": np.array([0.0, 1.0]), "lon": np.array([5.0, 6.0])}
        for axis, values in axes.items():
            file.createDimension(axis, len(values))
            file.createVariable(axis, "d", (axis,))[:] = values
        file.variables["time"].units = "days since 2000-01-01"
        value = file.createVariable(name, "d", tuple(axes))
        value[:] = np.sin(np.arange(60.0) / 6)[:, None, None] + np.ones((2, 2))
        value.units = value.long_name = file.title = "<script>alert(1)</script>"
    out = tmp_path / "out"
    run("forecast", str(path), "--out", str(out), "--origins", "0", *PLAIN)
    checked(out / "report.html", [])


EQUATIONS = "y' + y = sin(t)\ny(0) = 1\nt = 0 .. 1 step 0.1\n"


def test_solution(tmp_path: Path) -> None:
    path = tmp_path / "<img src=x onerror=alert(1)>.ode"
    path.write_text(EQUATIONS)
    run("solve", str(path), "--out", str(tmp_path / "out"))
    checked(tmp_path / "out" / "report.html", ["<img src=x onerror=alert(1)>.ode"])


@pytest.mark.parametrize("command", ["solve", "discover", "forecast", "train", "reproduce"])
def test_folder_names_are_printed_literally(tmp_path: Path, command: str) -> None:
    """Brackets are markup for rich: names in them vanished or caused an error."""
    (tmp_path / "x.ode").write_text(EQUATIONS)
    data = table(tmp_path / "x.csv", ["a"], rows=40)
    words = {
        "solve": [str(tmp_path / "x.ode")],
        "discover": [str(data), "--library", "poly:1", "--ensemble", "0"],
        "forecast": [str(data), "--origins", "0", *PLAIN],
        "train": ["damping", "--set", "max_steps=1", "--set", "accelerator=cpu"],
        "reproduce": ["standalone", "--repeats", "1"],
    }[command]
    out = str(tmp_path / "[/red][red]" / "out")
    assert out in run(command, *words, "--out", out).replace("\n", "")


def test_name_of_a_missing_file_is_printed_literally(tmp_path: Path) -> None:
    from internals import app

    name = str(tmp_path / "[/red]none")
    for words in (["reproduce", "kdv", "--data"], ["reproduce", "sst", "--data"]):
        result = CliRunner().invoke(app, [*words, name, "--out", str(tmp_path / "out")])
        assert result.exit_code == 2
        assert name in result.output.replace("\n", ""), result.output


def test_page_check_detects_injections(tmp_path: Path) -> None:
    path = tmp_path / "x.html"
    for evil in (
        "<script>alert(1)</script>", "<img src=http://x>", "<p onclick=x>a</p>",
        "<iframe></iframe>", "<a href='javascript:x'>a</a>",
    ):  # fmt: skip
        path.write_text(f"<html><body>{evil}</body></html>")
        with pytest.raises(AssertionError):
            checked(path, [])
    path.write_text("<html><body><p title='a'>b</p></body></html>")
    checked(path, ["a", "b"])
    with pytest.raises(AssertionError):
        checked(path, ["c"])
