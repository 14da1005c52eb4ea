"""Forecasts of SST without networks, and their scores."""

import numpy as np
import pytest
from scipy.linalg import expm

from experiments.sst_grids import small_grid
from smnn.datasets.sst import monthly
from smnn.experiments.sst import references as simple
from smnn.experiments.sst.modes import fit_modes, logarithm
from smnn.experiments.sst.scores import Scorer


class TestModes:
    def test_a_known_system_is_continued(self) -> None:
        """A damped rotation in three cells, compared with the matrix exponential."""
        L = np.array([[-0.01, 0.3, 0.0], [-0.3, -0.01, 0.0], [0.0, 0.0, -0.02]])
        x = np.stack([expm(L * t) @ [1.0, 0.0, 2.0] for t in range(120)])
        found = fit_modes(x, count=3, ridge=0.0)
        future = np.stack([expm(L * t) @ [1.0, 0.0, 2.0] for t in range(120, 140)])
        np.testing.assert_allclose(found.forecast(20), future, atol=1e-4)
        assert found.explained == pytest.approx(1.0)
        rates = sorted(np.linalg.eigvals(found.matrix), key=lambda rate: (rate.real, rate.imag))
        np.testing.assert_allclose(rates, [-0.02, -0.01 - 0.3j, -0.01 + 0.3j], rtol=1e-4)

    def test_shrinkage_only_damps(self) -> None:
        x = np.random.default_rng(0).normal(size=(200, 6)).cumsum(0)
        sizes = [np.abs(fit_modes(x, 4, ridge).amplitudes(12)).max() for ridge in (0.0, 0.5)]
        assert sizes[1] < sizes[0]

    def test_the_solver_gives_the_exponential(self) -> None:
        rng = np.random.default_rng(3)
        found = fit_modes(rng.normal(size=(80, 30)).cumsum(0), count=5)
        exact = np.stack([expm(found.matrix * t) @ found.last for t in range(1, 13)])
        np.testing.assert_allclose(found.amplitudes(12), exact, atol=1e-3 * abs(exact).max())

    def test_logarithm(self) -> None:
        M = expm(np.array([[-0.1, 0.4], [-0.4, -0.2]]))
        np.testing.assert_allclose(expm(logarithm(M)), M, atol=1e-12)
        grows = logarithm(np.diag([1.5, -0.3]))
        assert (np.linalg.eigvals(grows).real < 0).all()

    def test_too_short(self) -> None:
        with pytest.raises(ValueError, match="expected at least 4"):
            fit_modes(np.zeros((3, 5)))


class TestReferences:
    def test_values_after_the_history_are_not_used(self) -> None:
        grid = small_grid()
        spoiled = grid.series.copy()
        spoiled[152:] = np.nan
        for make in (simple.references, simple.coupled):
            clean, other = make(grid.series, grid.time, 152, 48), make(spoiled, grid.time, 152, 48)
            for name in clean:
                np.testing.assert_array_equal(clean[name], other[name])

    def test_a_line_with_seasons_is_continued_exactly(self) -> None:
        time = (np.datetime64("1990-01") + np.arange(120)).astype("datetime64[ns]")
        waves = simple.seasonal_waves(time, 3)
        rng = np.random.default_rng(0)
        y = waves @ rng.normal(size=(7, 4)) + 0.5 * simple._decades(time)[:, None]
        found = simple.references(y, time, 96, 24)
        np.testing.assert_allclose(found[simple.TREND], y[96:], atol=1e-9)
        np.testing.assert_allclose(found[simple.DAMPED], y[96:], atol=1e-9)
        np.testing.assert_allclose(simple.coupled(y, time, 96, 24)["coupled"], y[96:], atol=1e-6)
        np.testing.assert_array_equal(found["last year"], np.tile(y[84:96], (2, 1)))
        np.testing.assert_array_equal(found["previous chunk"], y[72:96])


class TestScores:
    @pytest.fixture
    def scorer(self) -> Scorer:
        rng = np.random.default_rng(0)
        truth, usual = rng.normal(size=(2, 24, 10))
        return Scorer(truth, usual, 2.0, np.linspace(0.1, 1, 10))

    def test_a_perfect_forecast(self, scorer: Scorer) -> None:
        found = scorer.score(scorer.truth)
        assert found["relative_mse"] == 0
        assert found["of_climatology"] == 0
        assert found["anomaly_correlation"] == pytest.approx(1)
        assert scorer.skill_map(scorer.truth) == pytest.approx(1)

    def test_climatology(self, scorer: Scorer) -> None:
        found = scorer.score(scorer.climatology)
        assert found["of_climatology"] == pytest.approx(1)
        assert found["anomaly_correlation"] == 0
        assert scorer.skill_map(scorer.climatology) == pytest.approx(0)

    def test_a_constant_error(self, scorer: Scorer) -> None:
        found = scorer.score(scorer.truth + 3)
        assert found["relative_mse"] == pytest.approx(9 / 4)
        assert found["rmse"] == pytest.approx(3)
        assert found["rmse_by_lead"] == pytest.approx([3] * 24)
        pole = scorer.truth + 3 * (np.arange(10) == 0)
        assert scorer.score(pole)["rmse"] == pytest.approx(3 * np.sqrt(0.1 / scorer.area.sum()))

    def test_given_steps_are_left_out(self, scorer: Scorer) -> None:
        late = scorer.truth.copy()
        late[10:] += 1
        assert scorer.score(late)["relative_mse"] == pytest.approx(14 / 24 / 4)
        found = scorer.score(late, skip=10)
        assert found["relative_mse"] == pytest.approx(1 / 4)
        usual = np.square(scorer.climatology - scorer.truth)
        assert found["of_climatology"] == pytest.approx(1 / usual[10:].mean())
        assert found["of_climatology_first_year"] == pytest.approx(1 / usual[10:12].mean())

    def test_refusals(self, scorer: Scorer) -> None:
        with pytest.raises(ValueError, match="as the truth"):
            scorer.score(scorer.truth[1:])
        with pytest.raises(ValueError, match="not finite"):
            scorer.score(scorer.truth * np.nan)


def test_coupled_forecast_beats_every_reference_on_the_packaged_grid() -> None:
    """The last 48 months from the history only, and three hold-outs before."""
    grid = monthly()
    series, horizon = grid.series, 48
    for k in range(4):
        until = len(series) - (k + 1) * horizon
        truth = series[until : until + horizon]
        found = simple.references(series, grid.time, until, horizon)
        ours = simple.coupled(series, grid.time, until, horizon)[simple.COUPLED]
        errors = {name: np.square(x - truth).mean() for name, x in found.items()}
        assert np.square(ours - truth).mean() < min(errors.values())
        if k == 0:
            variance = series[:until].var()
            assert errors[simple.CLIMATOLOGY] / variance == pytest.approx(0.00312, abs=1e-5)
            assert errors[simple.DAMPED] / variance == pytest.approx(0.00240, abs=1e-5)
            first = np.square(ours - truth)[:12].mean()
            usual = np.square(found[simple.CLIMATOLOGY] - truth)[:12].mean()
            fading = np.square(found[simple.DAMPED] - truth)[:12].mean()
            assert first / usual < 0.72 < 0.77 < fading / usual
