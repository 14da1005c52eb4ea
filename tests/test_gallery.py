"""Every script of the gallery runs, gives the known results, and has an up-to-date page."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import gallery as tool  # noqa: E402

NUMBER = re.compile(r"[-+]?\d[\d,.]*(?:e[-+]?\d+)?")
Result = dict[str, Any]


def names_of(model: Any, equation: int) -> set[str]:
    return {t.name for t, c in zip(model.terms_, model.coefficients_[equation]) if c}


# ---------------------------------------------------------------- expected results


def lorenz(r: Result) -> None:
    assert r["found"] == 3
    assert max(r["errors"]) < 0.15  # coefficients up to 28
    assert r["left"] < 0.1 * r["noise"]


def hare_lynx(r: Result) -> None:
    model = r["model"]
    assert names_of(model, 0) == {"hare", "hare lynx"}
    assert names_of(model, 1) == {"lynx", "hare lynx"}
    names = [t.name for t in model.terms_]
    # Posterior means of Carpenter (Stan case study, 2018): 0.55, 0.028, 0.80, 0.024.
    found = [abs(model.coefficients_[i, names.index(n)]) for i, n in
             ((0, "hare"), (0, "hare lynx"), (1, "lynx"), (1, "hare lynx"))]  # fmt: skip
    assert found == pytest.approx([0.55, 0.028, 0.80, 0.024], rel=0.3)
    assert 9 < r["period"] < 11  # the peaks of the data are ten years apart


def pendulum(r: Result) -> None:
    assert set(r["found"]) == {"sin(x)", "x'"}
    assert r["found"]["sin(x)"] == pytest.approx(-9.81, abs=0.03)
    assert r["found"]["x'"] == pytest.approx(-0.25, abs=0.01)
    by_differences, by_equation = r["spread"]
    assert by_equation < 0.1 < 10 < by_differences


def van_der_pol(r: Result) -> None:
    assert names_of(r["model"], 0) == {"y"}
    assert names_of(r["model"], 1) == {"x", "y", "x^2 y"}
    assert 0.3 < np.isnan(r["data"]).mean() < 0.5
    assert r["filled"] < 0.01


def colonies(r: Result) -> None:
    assert set(r["found"]) == {"n", "n^2"}
    assert r["r"] == pytest.approx(0.8, rel=0.05)
    assert r["K"] == pytest.approx(5.0, rel=0.02)


def rc_circuit(r: Result) -> None:
    assert set(r["found"]) == {"v", "u"}
    assert -1 / r["found"]["v"] == pytest.approx(0.35, rel=0.05)
    assert r["found"]["u"] == pytest.approx(-r["found"]["v"], rel=0.02)
    assert r["error"] < 0.1


def intervals(r: Result) -> None:
    assert r["right"] >= 19
    # 80 intervals with coverage 0.9: 5 standard deviations.
    assert 0.73 <= r["covered"].mean() <= 1.0
    scatter = r["values"].std(0) / ((r["high"] - r["low"]).mean(0) / 2 / 1.645)
    assert ((scatter > 0.4) & (scatter < 1.6)).all()


def burgers(r: Result) -> None:
    assert set(r["found"]) == {"u_xx", "u u_x"}
    assert r["found"]["u_xx"] == pytest.approx(0.1, rel=0.15)
    assert r["found"]["u u_x"] == pytest.approx(-1, rel=0.05)
    assert r["path"].status == "ok"
    assert r["error"] < 0.1  # the data have errors of 50 %


def flames(r: Result) -> None:
    assert set(r["found"]) == {"u_xx", "u_xxxx", "u u_x"}
    assert [*r["found"].values()] == pytest.approx([-1, -1, -1], rel=0.01)
    assert r["follows"] > 20


def spirals(r: Result) -> None:
    u, v = r["found"]
    assert set(u) == {"u_xx", "u_yy", "u", "u^3", "u v^2", "u^2 v", "v^3"}
    assert set(v) == {"v_xx", "v_yy", "v", "v^3", "u^2 v", "u v^2", "u^3"}
    assert u["u_xx"] == pytest.approx(0.1, rel=0.1)
    assert v["u^3"] == pytest.approx(-1, rel=0.1)
    assert r["error"] < 0.1


def pacific(r: Result) -> None:
    assert r["model"].verdict_.doubtful
    assert r["explained"] < 0.3


def nino(r: Result) -> None:
    assert len(r["forecast"].mean) == 12
    assert r["error"] < 0.8 * r["reference"]
    assert 5 <= r["inside"] < 12  # stronger than all events in the training data


def ocean(r: Result) -> None:
    assert np.std(r["y"]) > 2
    assert r["error"] < 0.45 * np.std(r["truth"])
    assert r["inside"] >= 0.75
    (season,) = (line for line in r["equation"].lines if line.startswith("season"))
    assert "12 months" in season


def beam(r: Result) -> None:
    assert r["error"] < 1e-8
    assert r["moment"] == pytest.approx(1 / 8, rel=1e-7)
    x, w = r["x"], r["supported"]
    residual = w[:, 4] + torch.where(x >= 0.5, 2000.0, 0.0) * w[:, 0] - 1
    assert residual.abs().max() < 1e-3
    assert w[[0, 0, -1, -1], [0, 1, 0, 2]].abs().max() < 1e-6
    assert w[:, 0].max() < r["free"][:, 0].max() / 3


def stiff(r: Result) -> None:
    assert r["error"] < 2e-4
    assert len(r["t"]) < 0.1 * r["others"]


def million(r: Result) -> None:
    assert len(r["y"]) == 1_000_000
    assert r["error"].max() < 1e-4
    assert r["error"][-1000:].max() < 2 * r["error"][:1000].max()


def smoothing(r: Result) -> None:
    assert r["ours"] < 0.1 * r["theirs"]
    assert r["ours"] < 0.2 * r["size"]
    # The second derivative of the solution is the derivative of the first.
    inner = slice(50, -50)
    slope = np.gradient(r["curve"][:, 1], r["t"])[inner]
    assert np.abs(slope - r["curve"][inner, 2]).max() < 0.02 * np.abs(slope).max()


def influenza(r: Result) -> None:
    beta, gamma = r["beta"], r["gamma"]

    def rate(t: float, y: np.ndarray) -> tuple[float, float]:
        new = beta * y[0] * y[1] / 763
        return -new, new - gamma * y[1]

    curve = r["curve"].numpy()
    t = np.linspace(0, 13, len(curve))
    exact = solve_ivp(rate, (0, 13), curve[0], t_eval=t, rtol=1e-10, atol=1e-10).y.T
    assert np.abs(curve - exact).max() < 0.01
    # Published values for this outbreak: R0 of 3.4 to 4, about two days of illness.
    assert 3.2 < beta / gamma < 4.2
    assert 1.8 < 1 / gamma < 2.4
    assert r["miss"] < 25


def ageing_spring(r: Result) -> None:
    assert r["error"].max() < 0.6
    assert np.median(r["error"]) < 0.1
    assert r["found"][0] > 8.3
    assert r["found"][-1] < 4.3


def network(r: Result) -> None:
    assert r["found"] == pytest.approx(r["exact"], rel=0.03)


CHECKS: dict[str, Callable[[Result], None]] = {
    f.__name__: f for f in (
        lorenz, hare_lynx, pendulum, van_der_pol, colonies, rc_circuit, intervals, burgers,
        flames, spirals, pacific, nino, ocean,
        beam, stiff, million, smoothing, influenza, ageing_spring, network,
    )
}  # fmt: skip

# ---------------------------------------------------------------- running the scripts


@pytest.fixture(autouse=True)
def _own_settings() -> Iterator[None]:
    """Restore the default dtype, which some scripts change."""
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


def words(text: str) -> list[str]:
    """Printed words, without numbers and signs, which depend on rounding."""
    return [re.sub(r"\s+|[-+]", " ", NUMBER.sub("#", line)).split() for line in text.splitlines()]  # type: ignore[misc]


@pytest.mark.parametrize("name", tool.NAMES)
def test_script(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    result = tool.load(name).run()
    CHECKS[name](result)
    assert words(capsys.readouterr().out) == words(tool.printed_on(name)), "python tools/gallery.py"


def test_pictures_are_drawn(tmp_path: Path) -> None:
    """Run a script as a program, with a path for the figure."""
    import runpy

    import matplotlib

    matplotlib.use("Agg")
    path = tmp_path / "beam.png"
    argv, sys.argv = sys.argv, ["beam.py", str(path)]
    try:
        runpy.run_path(str(tool.SCRIPTS / "beam.py"), run_name="__main__")
    finally:
        sys.argv = argv
    assert path.read_bytes().startswith(b"\x89PNG")


def test_every_script_has_its_place_and_a_check() -> None:
    scripts = {p.stem for p in tool.SCRIPTS.glob("*.py")}
    assert scripts == set(tool.NAMES) == set(CHECKS)
    assert len(tool.NAMES) == len(set(tool.NAMES)) >= 12
    assert {p.stem for p in tool.PAGES.glob("*.md")} == scripts | {"index"}
    assert {p.stem for p in tool.PICTURES.glob("*.png")} == scripts


@pytest.mark.parametrize("name", tool.NAMES)
def test_page_is_that_of_the_script(name: str) -> None:
    written = (tool.PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert written == tool.page(name, tool.printed_on(name)), "run python tools/gallery.py"
    assert written.replace("\n", "").isprintable()  # a backslash needs a raw docstring
    assert (tool.PICTURES / f"{name}.png").stat().st_size < 80_000


def test_overview_is_that_of_the_scripts() -> None:
    assert (tool.PAGES / "index.md").read_text(encoding="utf-8") == tool.index()


@pytest.mark.parametrize("name", tool.NAMES)
def test_scripts_are_short_and_use_public_names(name: str) -> None:
    source = (tool.SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
    assert 30 <= len(source.splitlines()) <= 95
    assert not re.search(r"smnn\.(?:\w+\.)*_(?!_)", source)
    assert not re.search(r"from smnn[\w.]* import (?:\w+, )*_", source)
