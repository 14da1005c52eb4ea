"""Reports in a real browser: they load without errors and without a network, on a phone too."""

import html
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from smnn.cli import app
from smnn.report import page

BROWSER = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome", "chrome")
        if (found := shutil.which(name))
    ),
    None,
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium was found")
runner = CliRunner()

# Opens a page in frames of two widths and writes down what it finds there.
PROBE = """<!doctype html><meta charset="utf-8"><pre id="found"></pre>
<iframe id="phone" style="width:390px;height:900px;border:0"></iframe>
<iframe id="desk" style="width:1200px;height:900px;border:0"></iframe>
<script>
const found = {}, frames = ['phone', 'desk'].map(id => document.getElementById(id));
let left = frames.length;
for (const frame of frames) {
  frame.onload = () => {
    const page = frame.contentDocument, root = page.documentElement;
    for (const part of page.querySelectorAll('details')) part.open = true;
    const plots = [...page.querySelectorAll('.plot[data-x]')];
    const tips = plots.map(plot => {
      const box = plot.getBoundingClientRect();
      plot.dispatchEvent(new frame.contentWindow.PointerEvent('pointermove', {
        clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 }));
      return plot.querySelector('.tip')?.textContent ?? null; });
    const wide = [...page.querySelectorAll('body *')].filter(e => {
      const over = e.getBoundingClientRect().right > root.clientWidth + 1;
      return over && !e.closest('.scroll, pre, .equations, svg'); });
    const visible = () => [...page.querySelectorAll('[data-series]')].filter(
      e => e.offsetHeight).map(e => e.dataset.series);
    const choice = page.querySelector('.pick select'), before = visible();
    if (choice) {
      choice.selectedIndex = 1;
      choice.dispatchEvent(new frame.contentWindow.Event('change')); }
    found[frame.id] = {
      series: [before, visible()],
      options: choice ? [...choice.options].map(o => o.text) : [],
      downloads: Object.fromEntries([...page.querySelectorAll('a[download]')].map(
        a => [a.download, atob(a.href.split(',')[1])])),
      contents: [...page.querySelectorAll('.contents a')].filter(
        a => page.querySelector(a.hash)).map(a => a.textContent),
      buttons: page.querySelectorAll('.copy:not([hidden])').length,
      ticks: [...page.querySelectorAll('.tick.x')].map(e => e.innerHTML),
      title: page.title, charts: plots.length, pictures: page.querySelectorAll('img').length,
      broken: [...page.images].filter(i => !i.complete || !i.naturalWidth).length,
      paths: page.querySelectorAll('.plot path[data-label]').length,
      maths: page.querySelectorAll('math').length, tables: page.querySelectorAll('table').length,
      across: root.scrollWidth, room: root.clientWidth,
      wide: wide.map(e => e.outerHTML.slice(0, 99)),
      tips, text: page.body.innerText, ink: frame.contentWindow.getComputedStyle(page.body).color,
      paper: frame.contentWindow.getComputedStyle(page.body).backgroundColor,
      loads: frame.contentWindow.performance.getEntriesByType('resource').map(r => r.name) };
    if (--left === 0) document.getElementById('found').textContent = JSON.stringify(found);
  };
  frame.src = 'report.html';
}
</script>"""


def visit(folder: Path, *flags: str, probe: str = PROBE) -> tuple[dict[str, Any], str]:
    """What the probe finds in `report.html` of a folder, and what the console says."""
    assert BROWSER is not None
    opened = folder / "probe.html"
    opened.write_text(probe, encoding="utf-8")
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--allow-file-access-from-files", "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr",
            "--virtual-time-budget=8000", *flags, "--dump-dom", opened.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match is not None, done.stderr[-2000:]
    assert match[1], f"the page did not load: {done.stderr[-2000:]}"
    console = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return json.loads(html.unescape(match[1])), console


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def table(path: Path, n: int = 120) -> Path:
    t = 0.05 * np.arange(n)
    noise = 0.01 * np.random.default_rng(0).standard_normal((2, n))
    x, y = np.cos(2 * t) + noise[0], -2 * np.sin(2 * t) + noise[1]
    lines = [",".join(f"{v:.5f}" for v in row) for row in zip(t, x, y)]
    path.write_text("t,x,a_rather_long_name_of_a_variable\n" + "\n".join(lines))
    return path


def dated_series(path: Path) -> Path:
    """Three series with calendar dates and units."""
    days = np.arange("2021-03-01", "2021-05-30", dtype="datetime64[D]")
    lines = ["tank,date,algae_density [g/L],light"]
    for k, name in enumerate(("north", "south", "east")):
        x, y = np.cos(0.2 * np.arange(90) + k), np.sin(0.2 * np.arange(90) + k)
        lines += [f"{name},{d},{a:.4f},{b:.4f}" for d, a, b in zip(days, x, y)]
    path.write_text("\n".join(lines))
    return path


def make(kind: str, folder: Path) -> Path:
    """The folder with a report in it."""
    if kind == "discover":
        words = ["discover", str(table(folder / "swing.csv")), "--ensemble", "3"]
        words += ["--library", "poly:2"]
    elif kind == "dated":
        words = ["discover", str(dated_series(folder / "tanks.csv")), "--ensemble", "3"]
        words += ["--library", "poly:2"]
    elif kind == "solve":
        file = folder / "swing.txt"
        file.write_text(
            "k = 2.1\ny'' + k*y/(1 + t^2) = sqrt(t + 1)*sin(t)\nz' = -z\ny(0) = 1, y'(0) = 0\n"
            "z(0) = 1\nt = 0 .. 10 step 0.05"
        )
        words = ["solve", str(file)]
    elif kind == "forecast":
        words = ["forecast", str(table(folder / "swing.csv")), "--horizon", "4", "--origins", "0"]
        words += ["--season", "none"]
    else:
        words = ["reproduce", "standalone", "--repeats", "1"]
    done = runner.invoke(app, [*words, "--out", str(folder / "out")])
    assert done.exit_code == 0, done.output
    return folder / "out"


EXPECTED = {
    # charts, pictures, tables, formulas: at least so many
    "discover": (2 + 3 + 1 + 4, 0, 2, 6),
    "solve": (2, 0, 0, 2),
    "standalone": (0, 1, 2, 0),
    "forecast": (1, 0, 1, 0),
}


@pytest.mark.parametrize("kind", EXPECTED)
def test_reports(tmp_path: Path, kind: str) -> None:
    folder = make(kind, tmp_path)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert not re.search(r"url\(\s*['\"]?(https?:)?//|@import|\bfetch\(|XMLHttpRequest", page)
    found, console = visit(folder)
    assert console == ""
    charts, pictures, tables, formulas = EXPECTED[kind]
    for width in ("phone", "desk"):
        seen = found[width]
        assert seen["charts"] >= charts
        assert seen["pictures"] >= pictures
        assert seen["broken"] == 0
        assert seen["tables"] >= tables
        assert seen["maths"] >= formulas
        assert [name for name in seen["loads"] if not name.startswith("data:")] == []
        assert seen["across"] <= seen["room"], seen["wide"]
        assert seen["wide"] == []
        assert all(tip and " = " in tip and ":" in tip for tip in seen["tips"])
        # how to repeat it
        name = "reproduce standalone" if kind == "standalone" else kind
        assert f"smnn {name}" in seen["text"]
        assert f"torch {torch.__version__}" in seen["text"]
    assert found["phone"]["room"] == 390


def test_series_dates_and_downloads(tmp_path: Path) -> None:
    found, console = visit(make("dated", tmp_path))
    assert console == ""
    for width in ("phone", "desk"):
        seen = found[width]
        assert seen["across"] <= seen["room"], seen["wide"]
        assert seen["options"] == ["all", "north", "south", "east"]
        assert [set(names) for names in seen["series"]] == [{"all"}, {"0"}]
        assert {"Coefficients", "Held out", "Residuals"} < set(seen["contents"])
        assert {"Mar 8<br>2021", "Mar 22", "Apr 5"} < set(seen["ticks"])
        assert any("date = 2021-04-" in tip for tip in seen["tips"])
        assert "algae_density in g/L" in seen["text"]
        assert seen["buttons"] >= 3
        saved = seen["downloads"]
        assert saved["coefficients.csv"].startswith("target,term,coefficient,")
        assert saved["states.csv"].startswith("series,date,algae_density,light\nnorth,0.0,")
        assert saved["states.csv"].count("\n") == 1 + 3 * 72


def test_copy_buttons(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page.page("t", "l", [page.code_block("x' = -x < 1")]))
    press = """
    Object.defineProperty(frame.contentWindow.navigator, 'clipboard',
      { value: { writeText: async text => { found.copied = text; } } });
    const button = page.querySelector('.copy');
    button.click();
    await new Promise(done => frame.contentWindow.setTimeout(done, 200));
    found.label = button.textContent;
    if (choice) {"""
    probe = PROBE.replace("if (choice) {", press).replace("onload = ()", "onload = async ()")
    found, console = visit(tmp_path, probe=probe)
    assert console == ""
    assert found["copied"] == "x' = -x < 1"
    assert found["label"] == "Copied"


def test_light_and_dark(tmp_path: Path) -> None:
    folder = make("solve", tmp_path)
    light, _ = visit(folder)
    dark, _ = visit(folder, "--blink-settings=preferredColorScheme=0")
    assert light["desk"]["paper"] == "rgb(255, 255, 255)"
    assert dark["desk"]["paper"] != light["desk"]["paper"]
    for seen in (light, dark):
        ink, paper = (
            sum(map(int, re.findall(r"\d+", seen["desk"][key])[:3])) for key in ("ink", "paper")
        )
        assert abs(ink - paper) > 3 * 150  # readable
    assert dark["desk"]["charts"] == light["desk"]["charts"]


def test_the_probe_sees_what_is_wrong(tmp_path: Path) -> None:
    """An error in a script, a picture from elsewhere and something too wide are all noticed."""
    (tmp_path / "report.html").write_text(
        '<!doctype html><title>x</title><body><div style="width:900px">wide</div>'
        '<img src="http://example.invalid/a.png"><script>nothing.there()</script></body>'
    )
    found, console = visit(tmp_path)
    assert "nothing is not defined" in console
    assert found["phone"]["across"] > found["phone"]["room"]
    assert found["phone"]["wide"]
    assert found["phone"]["broken"] == 1
    assert found["phone"]["loads"] == ["http://example.invalid/a.png"]
