"""Scores of the discovery benchmark, and the method of smnn."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from smnn.datasets.dynamics import find_system, simulate
from smnn.experiments.discovery_bench.methods import Found, Score, Smnn, in_hindsight, score

pytest.importorskip("scipy")
LOTKA = find_system("Lotka")
RIGHT = {t: dict(e) for t, e in LOTKA.truth.items()}


class TestScore:
    def test_the_truth_is_exact(self) -> None:
        assert score(RIGHT, LOTKA) == Score(True, 0, 0, 0.0, 0.0)

    def test_missing_and_extra_terms(self) -> None:
        got = {"x'": {"x": 2 / 3, "y^2": 0.25}, "y'": {"y": -1.0, "x y": 1.1}}
        marks = score(got, LOTKA)
        assert (marks.exact, marks.missing, marks.extra) == (False, 1, 1)
        assert marks.max_abs == pytest.approx(4 / 3)
        assert marks.max_rel == 1.0

    def test_extra_terms_count_in_the_absolute_error_only(self) -> None:
        marks = score({**RIGHT, "x'": {**RIGHT["x'"], "1": 7.0}}, LOTKA)
        assert (marks.max_abs, marks.max_rel) == (7.0, 0.0)

    def test_missing_equations(self) -> None:
        assert score({"x'": RIGHT["x'"]}, LOTKA).missing == 2

    def test_hindsight_takes_the_best_of_every_target(self) -> None:
        near, far = {"x": 0.7, "x y": -1.3}, {"x": 0.9, "x y": -1.3}
        wrong = {"x": 2 / 3, "x y": -4 / 3, "1": 1e-9}
        found = Found(
            {"x'": far, "y'": {}}, 0.0, candidates={"x'": [wrong, near], "y'": [RIGHT["y'"]]}
        )
        assert in_hindsight(found, LOTKA) == {"x'": near, "y'": RIGHT["y'"]}


@pytest.mark.parametrize("name", ["Lotka", "Duffing", "Driven"])
def test_smnn_recovers_the_equations(name: str) -> None:
    pytest.importorskip("sklearn")
    system = find_system(name)
    for method in (Smnn("regression"), Smnn()):
        marks = score(method.fit(simulate(system, n=400), system).coefficients, system)
        assert marks.exact
        assert marks.max_rel < 1e-3


def test_smnn_does_not_use_the_truth() -> None:
    pytest.importorskip("sklearn")
    series = simulate(LOTKA, n=150, noise=0.05)
    found = Smnn().fit(series, LOTKA).coefficients
    assert found == Smnn().fit(series, replace(LOTKA, truth={}, rhs=_forbidden)).coefficients


def _forbidden(t: float, s: Sequence[float]) -> Sequence[float]:
    raise AssertionError("a method asked for the right-hand side")
