"""The experiment on verdicts: its data, its counts, and resuming."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smnn._util.files import InputError
from smnn.experiments.honesty import run as honesty
from smnn.experiments.honesty import view
from smnn.experiments.honesty.run import Case, Config, Honesty, do_case, run
from smnn.experiments.honesty.trials import GROUPS, MISSING, TRUE, UNRELATED, Trial, draw


@pytest.fixture(name="result")
def _result(runs: Any) -> Honesty:
    return runs["honesty"]  # type: ignore[no-any-return]


def equation(right: bool, level: str = "established", **changes: Any) -> dict[str, Any]:
    plain = {"variable": "x", "text": "x' = x", "level": level, "reason": "", "evidence": 9.0}
    terms = {"right": right, "stability": [1.0, 0.6], "true": [True, right]}
    return plain | terms | {"coefficients": 2 * right, "within": int(right)} | changes


class TestTrials:
    @pytest.mark.parametrize("group", GROUPS)
    def test_every_kind_can_be_drawn(self, group: str) -> None:
        kinds = set()
        for seed in range(30 if group != TRUE else 6):
            trial = draw(group, seed)
            kinds.add(trial.kind)
            assert all(np.isfinite(x).all() for x in trial.series)
            assert [x.shape for x in trial.series] == [
                (len(t), len(trial.names)) for t in trial.times
            ]
            assert set(trial.truth) <= set(trial.names)
        assert len(kinds) == {UNRELATED: 11, TRUE: 6, MISSING: 14}[group]

    def test_a_seed_determines_the_data(self) -> None:
        one, same, other = (draw(UNRELATED, seed) for seed in (4, 4, 15))
        np.testing.assert_array_equal(one.series[0], same.series[0])
        assert one.kind == other.kind
        assert one.series[0].shape != other.series[0].shape or (
            np.abs(one.series[0] - other.series[0]).max() > 0.1
        )

    def test_columns_of_unrelated_tables_are_independent(self) -> None:
        """Correlations of white columns are as small as chance allows."""
        tables = [draw(UNRELATED, 11 * k).series[0] for k in range(60)]
        pairs = [np.corrcoef(x.T)[0, 1] * np.sqrt(len(x)) for x in tables if x.shape[1] > 1]
        assert 0.6 < np.std(pairs) < 1.5

    def test_benchmark_systems_and_measured_data(self) -> None:
        found = {draw(TRUE, seed).kind: draw(TRUE, seed) for seed in (8, 29)}
        assert len(found["Lotka-Volterra"].series[0]) == 1000
        assert found["Hare and lynx"].truth.keys() == {"hare", "lynx"}


class TestCases:
    def test_known_systems(self, result: Honesty) -> None:
        assert all(c.level in ("established", "tentative") for c in result.of(TRUE))
        assert all(e["right"] for e in result.equations(TRUE))
        number, within = result.coverage()
        assert number >= within > 0

    def test_other_data(self, result: Honesty) -> None:
        assert all(c.level != "established" for c in result.of(UNRELATED))
        assert not any(e["right"] for e in result.equations(UNRELATED))
        assert 0 < (result.cost() or 0) < 2

    def test_data_that_are_refused(self) -> None:
        trial = Trial(MISSING, "short", 0, [np.zeros((2, 1))], [np.arange(2.0)], ("x",), {})
        case = do_case(trial)
        assert case.level == "no fit"
        assert "2 rows" in case.reason

    def test_terms_and_intervals_are_compared_with_the_truth(self) -> None:
        trial = draw(TRUE, 5)
        (right,) = do_case(trial).equations
        assert right["right"]
        assert (right["coefficients"], right["true"]) == (2, [True, True])
        doubled = {"x": {k: 2 * v for k, v in trial.truth["x"].items()}}
        (other,) = do_case(replace(trial, truth=doubled)).equations
        assert (other["right"], other["within"]) == (True, 0)
        (wrong,) = do_case(replace(trial, truth={"x": {"x": 1.0}})).equations
        assert (wrong["right"], wrong["coefficients"], sum(wrong["true"])) == (False, 0, 1)


class TestCounts:
    RESULT = Honesty(Config(2, 1, 0), {}, [
        Case(UNRELATED, "a", 0, 20, None, "established", "", [equation(False)]),
        Case(UNRELATED, "a", 1, 20, None, "nothing found", ""),
        Case(TRUE, "b", 0, 20, 0.1, "tentative", "", [equation(True), equation(False, "tentative")],
             {"refinement": 2.0, "verdict": 0.1}),
        Case(TRUE, "b", 1, 20, 0.0, "established", "", [equation(True)],
             {"verdict": 1.0, "x": 2.0}),
    ])  # fmt: skip

    def test_levels(self) -> None:
        (levels, stability, kinds) = view.tables(self.RESULT)
        rows = {(r.group, r.label): [c.text for c in r.cells] for r in levels.rows}
        assert rows["unrelated columns", "data sets"] == ["50.0", "0", "0", "0", "50.0", "0", "2"]
        assert rows["terms in the library", "equations, right terms"][0] == "100.0"
        assert [c.text for c in stability.rows[1].cells] == ["0 of 0", "2 of 3", "0 of 0", "3 of 3"]
        assert [c.text for c in kinds.rows[0].cells] == ["1", "", "", "", "1", "2"]

    def test_coverage_counts_noisy_data_only(self) -> None:
        assert self.RESULT.coverage() == (2, 1)
        assert self.RESULT.cost() == pytest.approx((0.05 + 0.5) / 2)
        assert ("50 %", "of 2 true coefficients are within their 90 % intervals") in view.summary(
            self.RESULT
        )


class TestStore:
    def test_stored_cases_are_not_computed_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fits = []

        def fake(trial: Trial) -> Case:
            fits.append(trial.seed)
            return Case(trial.group, trial.kind, trial.seed, 1)

        monkeypatch.setattr(honesty, "do_case", fake)
        small = Config(unrelated=2, known=0, missing=0, seed=7)
        run(small, out=tmp_path)
        assert fits == [7, 8]
        more = run(replace(small, unrelated=3), out=tmp_path)
        assert fits == [7, 8, 9]
        stored = json.loads((tmp_path / "honesty.json").read_text("utf-8"))
        assert stored["cases"] == [asdict(case) for case in more.cases]

    def test_other_entries(self, tmp_path: Path) -> None:
        path = tmp_path / "honesty.json"
        path.write_text('{"experiment": "honesty", "cases": [{"no": 1}]}')
        with pytest.raises(InputError, match="entries that are not cases"):
            run(Config(1, 0, 0), out=tmp_path)
