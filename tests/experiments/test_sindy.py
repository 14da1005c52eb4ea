"""PySINDy in the discovery benchmark: equivalence with direct use, and choice of settings."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from smnn.datasets.dynamics import HARE_LYNX, LORENZ, SYSTEMS, Basis, System, find_system, simulate
from smnn.experiments.discovery_bench import run as bench
from smnn.experiments.discovery_bench.methods import Score, in_hindsight, score

pytest.importorskip("scipy")
LOTKA = find_system("Lotka")


@pytest.mark.peers
class TestSindy:
    """The variants agree with PySINDy."""

    ps = pytest.importorskip("pysindy")

    @pytest.fixture(autouse=True)
    def fewer_test_functions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("smnn.experiments.discovery_bench.sindy.TEST_FUNCTIONS", 80)

    @staticmethod
    def variant(name: str) -> Any:
        return bench.METHODS[f"pysindy-{name}"]

    def test_default_is_untuned_pysindy(self) -> None:
        (series,) = simulate(LORENZ, n=600, noise=0.02)
        model = self.ps.SINDy(feature_library=self.ps.PolynomialLibrary(degree=2))
        model.fit(series.x, t=series.t)
        found = self.variant("default").fit([series], LORENZ)
        got = [[found.coefficients[t].get(n, 0.0) for n in LORENZ.terms] for t in LORENZ.targets]
        np.testing.assert_allclose(got, model.coefficients(), rtol=1e-12)

    def test_candidates_are_pysindys_at_other_thresholds(self) -> None:
        (series,) = simulate(LOTKA, n=300, noise=0.02)
        model = self.ps.SINDy(
            self.ps.STLSQ(threshold=5.0),
            self.ps.PolynomialLibrary(degree=2),
            self.ps.FiniteDifference(order=4),
        )
        model.fit(series.x, t=series.t)
        candidates = self.variant("fd4").fit([series], LOTKA).candidates
        assert len(candidates["x'"]) == 39
        for row, target in zip(model.coefficients(), LOTKA.targets):
            expected = {n: pytest.approx(a) for n, a in zip(LOTKA.terms, row) if a}
            assert expected in candidates[target]

    def test_weak_form_is_pysindys(self) -> None:
        from smnn.experiments.discovery_bench.sindy import _weak_rows

        (series,) = simulate(LOTKA, n=400)
        np.random.seed(5)
        rows = _weak_rows(self.ps, None, [series], LOTKA, half=10)
        np.random.seed(5)
        library = self.ps.WeakPDELibrary(
            self.ps.PolynomialLibrary(degree=2, include_bias=False), include_bias=True,
            spatiotemporal_grid=series.t, K=80, H_xt=10.5 * LOTKA.dt,
        )  # fmt: skip
        model = self.ps.SINDy(self.ps.STLSQ(threshold=0.3), library)
        model.fit(series.x, t=series.t)
        ours = self.ps.STLSQ(threshold=0.3).fit(rows.terms, rows.targets).coef_
        np.testing.assert_allclose(ours, model.coefficients(), rtol=1e-10)
        assert score_of(ours, LOTKA).exact

    @pytest.mark.parametrize(
        "name", ["fd2", "fd4", "smoothed", "ensemble", "weak", "weak-ensemble"]
    )
    def test_every_variant_finds_easy_equations(self, name: str) -> None:
        series = simulate(LOTKA, n=200, noise=0.001)
        found = self.variant(name).fit(series, LOTKA)
        marks = score(found.coefficients, LOTKA)
        assert marks.exact, found.coefficients
        assert marks.max_rel < 0.02
        assert score(in_hindsight(found, LOTKA), LOTKA).max_rel <= marks.max_rel
        assert found.seconds > 0

    @pytest.mark.parametrize(
        ("name", "system"),
        [
            *(("fd4", s) for s in ("Duffing", "Hénon", "Driven", "Thomas", "Logistic", "Sprott")),
            *(("smoothed", s) for s in ("Duffing", "Driven")),
            *(("weak", s) for s in ("Duffing", "Driven", "Logistic")),
        ],
    )
    def test_positions_inputs_waves_and_short_series(self, name: str, system: str) -> None:
        problem = find_system(system)
        series = simulate(problem, n=None if system == "Logistic" else 400)
        marks = score(self.variant(name).fit(series, problem).coefficients, problem)
        assert marks.exact
        assert marks.max_rel < 0.01

    def test_the_same_terms_in_any_order(self) -> None:
        from smnn.experiments.discovery_bench.sindy import _names

        for system in (*SYSTEMS, HARE_LYNX):
            assert sorted(_names(self.ps, system)) == sorted(system.terms)

    def test_frequencies_with_gaps_are_refused(self) -> None:
        from smnn.experiments.discovery_bench.sindy import _names

        with pytest.raises(ValueError, match=r"Thomas .*without gaps"):
            _names(self.ps, replace(find_system("Thomas"), basis=Basis(1, (2,))))

    def test_the_global_generator_is_restored(self) -> None:
        np.random.seed(1)
        expected = np.random.random(3)
        np.random.seed(1)
        a = self.variant("weak").fit(simulate(LOTKA, n=80), LOTKA)
        np.testing.assert_array_equal(np.random.random(3), expected)
        assert a.coefficients == self.variant("weak").fit(simulate(LOTKA, n=80), LOTKA).coefficients

    def test_the_truth_is_not_used(self) -> None:
        series = simulate(LOTKA, n=100, noise=0.05)
        blind = replace(LOTKA, truth={})
        for name in ("smoothed", "weak"):
            with_truth = self.variant(name).fit(series, LOTKA)
            assert with_truth.coefficients == self.variant(name).fit(series, blind).coefficients


@pytest.mark.peers
class TestChoice:
    """Choice of settings without the truth."""

    pytest.importorskip("pysindy")

    def test_terms_must_reduce_the_criterion(self) -> None:
        from smnn.experiments.discovery_bench.sindy_choice import Rows, choose

        generator = np.random.default_rng(0)
        terms = generator.standard_normal((400, 3))
        noise = generator.standard_normal(400)
        y = terms @ [2.0, 0.0, 0.0] + 0.5 * noise
        full = np.linalg.lstsq(terms, y, rcond=None)[0]
        sparse = np.array([full[0], 0.0, 0.0])
        fits = [full[None], sparse[None], np.zeros((1, 3))]
        rows = Rows(terms, y[:, None], 400.0)
        np.testing.assert_array_equal(choose(rows, fits)[0], sparse)
        needed = Rows(terms, (y + terms[:, 1])[:, None], 400.0)
        fits[0] = np.linalg.lstsq(terms, needed.targets[:, 0], rcond=None)[0][None]
        np.testing.assert_array_equal(choose(needed, fits), fits[0])

    @pytest.mark.parametrize("name", ["Lorenz", "Duffing", "Driven"])
    def test_true_equations_simulate_best(self, name: str) -> None:
        from smnn.experiments.discovery_bench.sindy_choice import SimulationError

        system = find_system(name)
        truth = coefficients(system)
        for noise in (0.0, 0.02):
            error = SimulationError(simulate(system, n=500, noise=noise), system, system.terms)
            right = error(truth).min()
            assert right < (1e-6 if noise == 0 else 0.05)
            assert error(0.7 * truth).min() > 2 * right
            assert error(1e6 * np.ones_like(truth)).min() == np.inf

    def test_the_sparser_of_equally_good_results(self) -> None:
        from smnn.experiments.discovery_bench.sindy_choice import Path, best

        many, few, bad = (Path(str(k), np.ones((1, k)), []) for k in (3, 2, 1))
        errors = {3: 1.0, 2: 1.04, 1: 2.0}

        def simulated(c: np.ndarray) -> np.ndarray:
            return np.array([9.0, errors[c.size]])

        assert best([many, few, bad], simulated) is few
        assert best([bad], simulated) is bad


def coefficients(system: System) -> np.ndarray:
    return np.array(
        [[system.truth[t].get(name, 0.0) for name in system.terms] for t in system.targets]
    )


def score_of(rows: np.ndarray, system: System) -> Score:
    found = {
        target: {n: float(a) for n, a in zip(system.terms, row) if a}
        for target, row in zip(system.targets, rows)
    }
    return score(found, system)
