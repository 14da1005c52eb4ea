"""The discovery benchmark: resumable runs, views, and the command."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from smnn.cli import app
from smnn.datasets.dynamics import (
    HARE_LYNX,
    Problem,
    Series,
    System,
    add_noise,
    find_system,
    simulate,
)
from smnn.errors import InputError, MissingPackageError
from smnn.experiments.discovery_bench import run as bench
from smnn.experiments.discovery_bench import view
from smnn.experiments.discovery_bench.methods import Found
from smnn.experiments.discovery_bench.run import Case, Config, load, run

pytest.importorskip("scipy")
LOTKA = find_system("Lotka")


class Fake:
    """A method that is right without noise, wrong otherwise, and can be made to stop or fail."""

    def __init__(self, name: str, stop_after: int | None = None, fails: str = "") -> None:
        self.name, self.calls, self.stop_after, self.fails = name, 0, stop_after, fails

    def fit(self, series: Sequence[Series], problem: Problem) -> Found:
        if self.stop_after is not None and self.calls >= self.stop_after:
            raise KeyboardInterrupt
        self.calls += 1
        if self.fails == "package":
            raise MissingPackageError("none is needed to fail; pip install none.")
        if self.fails == "value":
            raise ValueError("cannot do this\nat all")
        if not isinstance(problem, System):
            return Found({t: {n: 1.0 for n in problem.terms[1:3]} for t in problem.targets}, 0.1)
        truth = {t: dict(e) for t, e in problem.truth.items()}
        if self.fails == "nan":
            return Found({t: {"1": float("nan")} for t in truth}, 0.1)
        clean = simulate(problem, n=len(series[0].t))
        right = np.array_equal(series[0].x, clean[0].x)
        answer = truth if right else {t: {} for t in truth}
        return Found(answer, 0.5, "fake", {t: [e] for t, e in truth.items()})


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> dict[str, Fake]:
    made = {name: Fake(name) for name in ("smnn", "pysindy-a")}
    for name, fake in made.items():
        monkeypatch.setitem(bench.METHODS, name, fake)
    return made


SMALL = {"systems": ("Lotka", "SIR"), "noise": (0.0, 0.1), "seeds": 2, "samples": 30}


def small(**options: Any) -> Config:
    return Config(methods=("smnn", "pysindy-a"), **{**SMALL, **options})


class TestRun:
    def test_cases_without_noise_have_one_draw(self, fakes: dict[str, Fake]) -> None:
        cases = small().cases()
        assert len(cases) == len(set(cases)) == 2 * (1 + 2) * 2 + 2
        assert cases[-1] == (HARE_LYNX.name, 0.0, 0, "pysindy-a", None)

    def test_every_case_is_scored(self, fakes: dict[str, Fake]) -> None:
        result = run(small())
        assert result.share("smnn", 0.0) == 1.0
        assert result.share("smnn", 0.1) == 0.0
        assert result.share("smnn", 0.1, hindsight=True) == 1.0
        assert result.error("smnn", 0.1) == 1.0
        assert result.seconds("smnn") == 0.5
        assert result.share("smnn", 0.3) is None
        record = json.loads(json.dumps(result.record(), allow_nan=False))
        assert record["summary"]["smnn"]["0.1"] == {
            "exact": 0.0, "exact_in_hindsight": 1.0, "median_max_rel": 1.0,
        }  # fmt: skip

    def test_a_stopped_run_continues(self, fakes: dict[str, Fake], tmp_path: Path) -> None:
        store = tmp_path / "discovery-bench.json"
        fakes["smnn"].stop_after = 3
        with pytest.raises(KeyboardInterrupt):
            run(small(), out=tmp_path)
        assert len(load(store)) == 6
        fakes["smnn"].stop_after = None
        result = run(small(), out=tmp_path)
        assert fakes["smnn"].calls == 7
        assert [c.key for c in result.cases] == small().cases()
        run(small(), out=tmp_path)
        assert fakes["smnn"].calls == 7

    def test_methods_can_be_done_again(self, fakes: dict[str, Fake], tmp_path: Path) -> None:
        run(small(), out=tmp_path)
        run(small(again=("smnn",)), out=tmp_path)
        assert (fakes["smnn"].calls, fakes["pysindy-a"].calls) == (14, 7)

    def test_other_cases_in_the_file_are_kept(self, fakes: dict[str, Fake], tmp_path: Path) -> None:
        store = tmp_path / "discovery-bench.json"
        run(small(), out=tmp_path)
        result = run(small(systems=("SIR",), noise=(0.2,)), out=tmp_path)
        assert len(result.cases) == 6
        assert len(result.others) == 12
        assert len(load(store)) == 18
        assert result.share("smnn", 0.0) is None

    def test_other_samples_are_other_cases(self, fakes: dict[str, Fake], tmp_path: Path) -> None:
        run(small(), out=tmp_path)
        run(small(samples=40, record=False), out=tmp_path)
        assert fakes["smnn"].calls == 13

    @pytest.mark.parametrize(
        ("fails", "message"),
        [("value", "ValueError: cannot do this"), ("nan", "ArithmeticError: the coefficients")],
    )
    def test_failures_count_as_wrong(
        self, fakes: dict[str, Fake], fails: str, message: str
    ) -> None:
        fakes["smnn"].fails = fails
        result = run(small(record=False))
        case = result.select("smnn")[0]
        assert case.error is not None
        assert case.error.startswith(message)
        assert (result.share("smnn", 0.0), result.error("smnn", 0.0)) == (0.0, 1.0)
        assert result.seconds("smnn") is None

    def test_a_missing_package_stops_the_run(self, fakes: dict[str, Fake]) -> None:
        fakes["smnn"].fails = "package"
        with pytest.raises(MissingPackageError):
            run(small())

    @pytest.mark.parametrize("content", ["{", "[]", '{"experiment": "standalone", "cases": []}'])
    def test_a_file_of_something_else(
        self, fakes: dict[str, Fake], tmp_path: Path, content: str
    ) -> None:
        store = tmp_path / "discovery-bench.json"
        store.write_text(content)
        with pytest.raises(InputError, match=r"bench\.json holds no results of the experiment"):
            run(small(), out=tmp_path)
        assert store.read_text() == content

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"methods": ("sindy",)}, "methods: got 'sindy'; expected some of smnn"),
            ({"systems": ("Lorens",)}, "there is no system 'Lorens'"),
            ({"noise": (-0.1,)}, "expected fractions such as 0.05"),
        ],
    )
    def test_wrong_settings(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Config(**options)

    def test_quick_is_a_part(self) -> None:
        quick, whole = Config.quick(), Config()
        assert set(quick.systems) < set(whole.systems)
        assert len(quick.cases()) < len(whole.cases()) / 10
        assert set(whole.methods) == set(bench.METHODS)


def test_every_default_method_gets_the_same_series(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Spy(Fake):
        def fit(self, series: Sequence[Series], problem: Problem) -> Found:
            seen.append(series[0].x.copy())
            return super().fit(series, problem)

    for name in ("smnn", "pysindy-weak"):
        monkeypatch.setitem(bench.METHODS, name, Spy(name))
    run(Config(("Lotka",), (0.1,), 1, ("smnn", "pysindy-weak"), 50, record=False))
    np.testing.assert_array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(seen[0], add_noise(simulate(LOTKA, n=50), 0.1, 0)[0].x)


class TestView:
    def test_tables(self, fakes: dict[str, Fake]) -> None:
        shares, errors, systems = view.tables(run(small()))
        assert [row.label for row in shares.rows] == ["smnn", "pysindy-a"] * 2
        assert [cell.text for cell in shares.rows[0].cells] == ["100 %", "0 %"]
        assert [cell.text for cell in shares.rows[2].cells] == ["100 %", "100 %"]
        assert [cell.text for cell in errors.rows[0].cells] == ["0.0e+00", "1.0e+00", "0.5"]
        assert [row.group for row in systems.rows] == ["Lotka-Volterra", "SIR epidemic"]
        assert [cell.text for cell in systems.rows[0].cells] == ["1/3", "1/3"]

    def test_summary_compares_with_the_best_peer(self, fakes: dict[str, Fake]) -> None:
        fakes["pysindy-a"].fails = "value"
        assert view.summary(run(small()))[0] == (
            "100 %",
            "of the systems recovered exactly at 0 % noise; PySINDy at best 0 %",
        )

    def test_measured_data_are_shown_separately(self, fakes: dict[str, Fake]) -> None:
        result = run(small())
        lines = view.hare_lynx(result)
        assert lines[0] == ("smnn", ["hare' = 1 hare +1 lynx", "lynx' = 1 hare +1 lynx"], False)
        textbook = Case(HARE_LYNX.name, 0.0, 0, "smnn", None)
        textbook.coefficients = {
            t: dict.fromkeys(sorted(terms), -0.5) for t, terms in HARE_LYNX.expected.items()
        }
        same = view.hare_lynx(replace(result, cases=[textbook]))
        assert same == [
            ("smnn", ["hare' = -0.5 hare -0.5 hare lynx", "lynx' = -0.5 hare lynx -0.5 lynx"], True)
        ]


class TestCommand:
    runner = CliRunner()
    SMALL = ("--systems", "lotka,SIR", "--noise", "0,0.1", "--seeds", "1", "--samples", "30",
             "--methods", "smnn,pysindy-a")  # fmt: skip

    def test_writes_everything_and_continues(self, fakes: dict[str, Fake], tmp_path: Path) -> None:
        command = ["reproduce", "discovery-bench", *self.SMALL, "--out", str(tmp_path / "out")]
        done = self.runner.invoke(app, command, env={"COLUMNS": "80"})
        assert done.exit_code == 0, done.output
        names = ["discovery-bench.json", "discovery-bench.png", "report.html"]
        assert sorted(os.listdir(tmp_path / "out")) == names
        assert "…" not in done.stdout
        assert "Hare and lynx, smnn" in done.stdout
        record = json.loads((tmp_path / "out" / names[0]).read_text())
        assert "--systems 'Lotka-Volterra,SIR epidemic' --noise 0,0.1" in record["command"]
        assert len(record["cases"]) == 10
        again = self.runner.invoke(app, [*command, "--again", "pysindy-a", "--json"])
        assert json.loads(again.stdout)["settings"]["samples"] == 30
        assert (fakes["smnn"].calls, fakes["pysindy-a"].calls) == (5, 10)
