"""`smnn discover`: what it finds, writes and prints, and how it ends when it cannot."""

import csv
import json
import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from smnn.cli import _discover_run, _discover_view
from smnn.cli._discover_run import FEWEST_FITTED, Found, Trial, run, split
from smnn.cli.discover import discover
from smnn.discovery import Discovery, libraries
from smnn.discovery._equations import format_equations
from smnn.discovery._tables import Table, read_table

runner = CliRunner()
app = typer.Typer()
app.command("discover")(discover)
app.callback()(lambda: None)
FILES = [
    "coefficients.csv", "equations.tex", "equations.txt", "model.json", "report.html", "states.csv",
]  # fmt: skip
EVIL = "<script>alert(1)</script>"


def oscillator(path: Path, n: int = 160, **columns: Any) -> Path:
    """x' = y, y' = -4 x - 0.2 y, with a little noise."""
    t = 0.05 * np.arange(n)
    w, decay = np.sqrt(3.99), np.exp(-0.1 * t)
    x = decay * (np.cos(w * t) + 0.1 / w * np.sin(w * t))
    y = -4 / w * decay * np.sin(w * t)
    noise = 0.002 * np.random.default_rng(0).standard_normal((2, n))
    data = {"t": t, "x": x + noise[0], "y": y + noise[1]} | columns
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(data)
        writer.writerows(zip(*data.values()))
    return path


def invoke(*words: object) -> Any:
    return runner.invoke(app, ["discover", *map(str, words)])


# ---------------------------------------------------------------- the real estimator


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("discover")
    data = oscillator(folder / "swing.csv")
    result = invoke(data, "--library", "poly:1", "--out", folder / "out")
    return SimpleNamespace(result=result, data=data, out=folder / "out")


def test_it_finds_the_equations(done: Any) -> None:
    assert done.result.exit_code == 0, done.result.output
    with (done.out / "coefficients.csv").open() as file:
        rows = {(r["target"], r["term"]): r for r in csv.DictReader(file)}
    truth = {("x'", "y"): 1.0, ("y'", "x"): -4.0, ("y'", "y"): -0.2}
    for place, row in rows.items():
        assert float(row["coefficient"]) == pytest.approx(truth.get(place, 0.0), abs=0.05)
        if place in truth:
            assert float(row["low_90"]) < float(row["coefficient"]) < float(row["high_90"])
            assert 0.5 < float(row["chosen"]) <= 1


def test_it_writes_everything_and_says_where(done: Any) -> None:
    assert sorted(os.listdir(done.out)) == FILES
    assert str(done.out / "report.html") in done.result.stdout.replace("\n", "")
    command = f"smnn discover {done.data} --library poly:1 --out {done.out}"
    text = (done.out / "equations.txt").read_text()
    assert command in text
    assert "With 90 % intervals" in text
    latex = (done.out / "equations.tex").read_text()
    assert latex.startswith("\\begin{align*}\n{x'} &= ")
    model = Discovery.load(done.out / "model.json")
    assert text.splitlines()[1:3] == model.equations()
    assert f"{model.coefficients_[1, 1]:.2f}" in text.split("intervals:")[1]
    states = np.genfromtxt(done.out / "states.csv", delimiter=",", names=True)
    assert states.dtype.names == ("t", "x", "y")
    assert len(states) == 128  # four fifths were fitted
    truth = np.exp(-0.1 * states["t"]) * np.cos(np.sqrt(3.99) * states["t"])
    assert np.abs(states["x"] - truth).max() < 0.1


def test_the_terminal_shows_equations_and_trust(done: Any) -> None:
    out = done.result.stdout
    assert "  x' = " in out
    assert "  y' = " in out
    assert "± half of a 90 % interval" in out
    assert "terms  in 2 equations, out of 6 candidates" in out
    assert "error on the data held out" in out
    assert "of the time held out (1.60 in t) is followed" in out
    assert "noise relative to the spread" in out


def test_the_report_is_one_file_with_everything(done: Any) -> None:
    page = (done.out / "report.html").read_text()
    check_page(page)
    for heading in ("Coefficients", "Data and fit", "Held out", "Phase portrait", "What is left",
                    "How it was made", "Machine"):  # fmt: skip
        assert f"<h2>{heading}" in page
    assert "smnn discover" in page
    assert "swing.csv: 160 rows, 128 fitted, the others held out." in page
    assert "sympy" in page
    assert page.count('class="plot"') == 2 + 3 + 2 * 2  # data; held out and error; residuals
    assert page.count('class="plot square"') == 1


def test_json_is_all_that_is_printed(tmp_path: Path) -> None:
    data = oscillator(tmp_path / "swing.csv", n=80, u=np.linspace(0, 1, 80) ** 2)
    result = invoke(
        data, "--json", "--out", tmp_path / "out", "--library", "poly:1", "--ensemble", 0,
        "--fix", "x' : y", "--forbid", "x' : x, u", "--inputs", "u", "--holdout", 0, "--seed", 3,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["equations"][0] == "x' = y"
    assert record["held_out"] is None
    assert record["data"]["inputs"] == ["u"]
    assert record["data"]["fitted"] == 80
    known = next(c for c in record["coefficients"] if c["target"] == "x'")
    assert (known["term"], known["coefficient"], known["chosen"]) == ("y", 1.0, None)
    assert record["command"].endswith(f"--holdout 0.0 --seed 3 --out {tmp_path / 'out'}")
    assert "--fix 'x'\"'\"' : y'" in record["command"]
    assert "Held out" not in (tmp_path / "out" / "report.html").read_text()


def test_results_go_beside_other_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    oscillator(tmp_path / "swing.csv", n=60)
    result = invoke("swing.csv", "--library", "poly:1", "--ensemble", 0)
    assert result.exit_code == 0, result.output
    assert sorted(os.listdir(tmp_path / "smnn-results" / "swing")) == FILES


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--columns", "x,q"], "columns: swing.csv has no column 'q'"),
        (["--time", "when"], "time: swing.csv has no column 'when'"),
        (["--library", "ploy:2"], "unknown library 'ploy'"),
        (["--library", "x*sn(y)"], "unknown function 'sn'; did you mean 'sin'?"),
        (["--fix", "x'"], '--fix: got "x\'"; expected "x\' : terms"'),
        (["--fix", "x' : 2*q"], "--fix \"x' : 2*q\": unknown name 'q'"),
        (["--fix", "w' : x"], '"w\'" is not the left-hand side of an equation'),
        (["--forbid", ": x"], "--forbid: got ': x'; expected"),
        (["--forbid", "x' : y^7"], "'y^7' is not a term of the library"),
        (["--method", "magic"], "method='magic'; expected one of auto"),
        (["--link", "relu"], "link='relu'; expected one of tanh"),
        (["--penalty", "-1"], "penalty=-1.0; expected a positive number"),
    ],
)
def test_wrong_options(tmp_path: Path, words: list[str], message: str) -> None:
    data = oscillator(tmp_path / "swing.csv", n=40)
    result = invoke(data, "--out", tmp_path / "out", *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "out" / "report.html").exists()


def test_an_expression_is_shown_with_its_caret(tmp_path: Path) -> None:
    data = oscillator(tmp_path / "swing.csv", n=40)
    result = invoke(data, "--out", tmp_path / "out", "--library", "x*sn(y)")
    lines = result.stderr.splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip() == "x*sn(y)")
    assert lines[at][lines[at + 1].index("^")] == "s"


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    missing = invoke(tmp_path / "none.csv")
    assert missing.exit_code == 2
    assert "there is no file" in missing.stderr
    wide = tmp_path / "wide.csv"
    n = 40
    names = ["t", *(f"c{i}" for i in range(n))]
    values = np.random.default_rng(0).random((9, n))
    lines = [",".join(map(str, [i, *row])) for i, row in enumerate(values)]
    wide.write_text("\n".join([",".join(names), *lines]))
    result = invoke(wide, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert (
        "has 40 columns of numbers; expected at most 30 variables. Choose some with"
        in result.stderr
    )


def test_warnings_are_said_before_the_work(tmp_path: Path) -> None:
    data = oscillator(tmp_path / "swing.csv", n=40, c=np.ones(40))
    result = invoke(data, "--out", tmp_path / "out", "--library", "poly:1", "--method", "magic")
    assert "note: the column 'c' is 1 everywhere and was left out." in result.stderr


def test_out_that_is_a_file(tmp_path: Path) -> None:
    data = oscillator(tmp_path / "swing.csv", n=40)
    (tmp_path / "out").write_text("mine")
    result = invoke(data, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "give a folder" in result.stderr
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize(
    ("module", "package"), [("pandas", "pandas"), ("sympy", "sympy"), ("sklearn", "scikit-learn")]
)
def test_missing_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    result = invoke(tmp_path / "none.csv")
    assert result.exit_code == 2
    expected = f"{package} is needed to discover equations; pip install 'smnn[discovery]'."
    assert expected in result.stderr


def test_debug_shows_where(tmp_path: Path) -> None:
    result = invoke(tmp_path / "none.csv", "--debug")
    assert isinstance(result.exception, ValueError)


def test_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_discover_run, "run", interrupt)
    data = oscillator(tmp_path / "swing.csv", n=40)
    result = invoke(data, "--out", tmp_path / "out")
    assert result.exit_code == 130
    assert os.listdir(tmp_path / "out") == []


# ---------------------------------------------------------------- with a model made by hand


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts = 0
        self.texts: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href")]
        assert not [k for k, _ in attrs if k.startswith("on")]
        if tag not in ("meta", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "path":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def check_page(text: str) -> Page:
    """Well formed, one script of our own, nothing from elsewhere."""
    found = Page(text)
    assert found.open == []
    assert found.scripts == 1
    assert found.addresses == []
    assert not any("nan" in path for path in re.findall(r' d="[^"]*"', text))
    return found


class Made:
    """A fitted model by hand: x' = -x (given), and a name that is an attack."""

    link = None
    order = 1
    report_ = {"seconds": {"all": 1.0}}  # noqa: RUF012

    def __init__(
        self, series: int = 1, resampled: bool = True, names: tuple[str, ...] = ("x", EVIL)
    ):
        self.variables_ = list(names)
        self.state_names_ = list(names)
        self.targets_ = [f"{name}'" for name in names]
        self.terms_ = libraries.Polynomial(2).terms(names)
        P, V = len(self.terms_), len(names)
        self.coefficients_ = np.zeros((V, P))
        self.coefficients_[0, 1] = -1.0
        self.coefficients_[-1, :2] = 3.0, -2.5
        half = np.where(self.coefficients_ == -1, 0.0, 0.3)
        self.intervals_ = np.stack([self.coefficients_ - half, self.coefficients_ + half], -1)
        self.inclusion_ = np.full((V, P), 0.2) if resampled else None
        self.noise_ = np.full(V, 0.1)
        self.times_ = [np.arange(12.0) for _ in range(series)]
        self.states_ = [np.cumsum(np.ones((12, V)), 0) for _ in range(series)]

    def equations(self, format: str = "text") -> list[str]:
        return format_equations(self.targets_, self.terms_, self.coefficients_, format=format)

    def simulate(self, x0: np.ndarray, t: np.ndarray, inputs: Any = None) -> np.ndarray:
        return np.vstack([x0 + 0.1 * i for i in range(len(t))])

    def fit(self, X: Any, **given: Any) -> "Made":
        self.given = given | {"X": X}
        return self


def made_table(series: int = 1, names: tuple[str, ...] = ("x", EVIL)) -> Table:
    rng = np.random.default_rng(0)
    return Table(
        list(names), [np.arange(15.0) for _ in range(series)],
        [rng.random((15, len(names))) for _ in range(series)],
        series=[f"{EVIL}{i}" for i in range(series)] if series > 1 else [""],
        time_name=EVIL, time_unit=EVIL, units={names[0]: EVIL}, notes=[EVIL], warnings=[EVIL],
    )  # fmt: skip


def made(series: int = 1, **changes: Any) -> Found:
    table = made_table(series)
    model = Made(series, **changes)
    found = run(EVIL, table, {}, 0.2, EVIL, lambda: model)  # type: ignore[arg-type]
    assert model.given["feature_names"] == table.names
    assert [len(x) for x in model.given["X"]] == [12] * series
    return found


@pytest.mark.parametrize("series", [1, 2, 5])
@pytest.mark.parametrize("resampled", [True, False])
def test_names_from_data_are_only_text(series: int, resampled: bool) -> None:
    page = check_page(_discover_view.report(made(series, resampled=resampled)))
    assert any(EVIL in text for text in page.texts)


def test_given_and_rare_terms_are_told_apart() -> None:
    text = _discover_view.report(made())
    assert "−1.000 (given)" in text
    assert "−2.5 ± 0.3" in text
    assert text.count('<tr class="quiet">') == 9  # chosen now and then, not in the equations


def test_the_terminal_table_of_an_empty_equation() -> None:
    found = made()
    found.model.coefficients_[:] = 0
    table = _discover_view.coefficient_table(found)
    assert [(row.label, row.quiet) for row in table.rows] == [("0", True), ("0", True)]
    check_page(_discover_view.report(found))


def test_what_the_trial_measures() -> None:
    """The simulation starts at the last fitted state; errors are in standard deviations."""
    table = made_table(names=("x",))
    t, data = table.times[0], table.values[0]
    model = Made(names=("x",))
    found = run("f", table, {}, 0.2, "c", lambda: model)  # type: ignore[arg-type]
    (trial,) = found.trials
    assert trial.start == 11.0
    assert trial.t.tolist() == t[12:].tolist()
    path = 12 + 0.1 * np.arange(1, 4)
    expected = np.abs(path - data[12:, 0]) / data.std()
    np.testing.assert_allclose(trial.error, expected, rtol=1e-12)
    assert found.error == pytest.approx(np.sqrt(np.mean(expected**2)))
    assert trial.until == 1.0
    assert found.followed == pytest.approx(1 / 3)


def trial_with(error: list[float]) -> Trial:
    n = len(error)
    empty = np.zeros((n, 1))
    return Trial("", 0.0, np.arange(1.0, n + 1), empty, empty, np.array(error))


@pytest.mark.parametrize(
    ("error", "until"),
    [([0.1, 0.2, 0.3], None), ([0.1, 0.5, 0.1], 2.0), ([0.1, np.inf, 9.0], 2.0),
     ([np.nan, 0.1, 0.1], None), ([0.41, 0.1, 0.1], 1.0)],
)  # fmt: skip
def test_how_long_a_simulation_follows(error: list[float], until: float | None) -> None:
    assert trial_with(error).until == until


def test_a_simulation_that_runs_away() -> None:
    table = made_table(names=("x",))

    class Escapes(Made):
        def simulate(self, x0: np.ndarray, t: np.ndarray, inputs: Any = None) -> np.ndarray:
            return np.where(np.arange(len(t))[:, None] < 2, 0.5, np.nan)

    model = Escapes(names=("x",))
    found = run("f", table, {}, 0.2, "c", lambda: model)  # type: ignore[arg-type]
    assert np.isinf(found.trials[0].error[-1])
    assert found.error == np.inf
    assert "error on the data held out" not in str(_discover_view.summary(found))
    check_page(_discover_view.report(found))


def test_warnings_of_the_fit_are_kept() -> None:
    class Warns(Made):
        def fit(self, X: Any, **given: Any) -> "Made":
            import warnings

            warnings.warn("terms left out", stacklevel=2)
            warnings.warn("of no interest", DeprecationWarning, stacklevel=2)
            return super().fit(X, **given)

    found = run("f", made_table(), {}, 0.2, "c", Warns)
    assert found.warnings == [EVIL, "terms left out"]


@pytest.mark.parametrize(
    ("rows", "share", "fitted"),
    [
        (100, 0.2, 80),
        (100, 0.0, 100),
        (10, 0.2, FEWEST_FITTED),
        (9, 0.9, FEWEST_FITTED),
        (3, 0.5, 3),
    ],
)
def test_split(rows: int, share: float, fitted: int) -> None:
    table = Table(["x"], [np.arange(float(rows))], [np.zeros((rows, 1))])
    assert split(table, share) == [fitted]


def test_inputs_reach_the_estimator_by_name(tmp_path: Path) -> None:
    data = oscillator(tmp_path / "swing.csv", n=20, u=np.linspace(0, 1, 20) ** 2)
    table = read_table(data, inputs=["u"])
    seen: dict[str, Any] = {}

    class Driven(Made):
        def __init__(self) -> None:
            super().__init__(names=("x", "y"))
            self.times_, self.states_ = [table.times[0][:16]], [table.values[0][:16]]

        def simulate(self, x0: np.ndarray, t: np.ndarray, inputs: Any = None) -> np.ndarray:
            seen["inputs"], seen["t"], seen["x0"] = inputs, t, x0
            return np.zeros((len(t), 2))

    found = run("f", table, {}, 0.2, "c", Driven)
    assert list(found.model.given["inputs"][0].columns) == ["u"]
    assert len(found.model.given["inputs"][0]) == 16
    np.testing.assert_array_equal(seen["inputs"], table.inputs[0][15:])
    np.testing.assert_array_equal(seen["t"], table.times[0][15:])
    np.testing.assert_array_equal(seen["x0"], table.values[0][15])


def test_a_column_that_begins_in_the_part_held_out(tmp_path: Path) -> None:
    t = 0.05 * np.arange(200)
    late = np.where(np.arange(200) < 190, np.nan, np.sin(t))
    rows = [f"{a},{b},{'' if np.isnan(c) else c}" for a, b, c in zip(t, np.cos(t), late)]
    (tmp_path / "late.csv").write_text("\n".join(["t,x,late", *rows]))
    words = ["discover", str(tmp_path / "late.csv"), "--out", str(tmp_path / "out")]
    done = runner.invoke(app, words)
    assert done.exit_code == 2
    assert "late has values only in the part that is held out" in done.stderr
