"""The Lorenz experiment: the printed table, the network of the paper, and runs."""

import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from smnn.datasets.dynamics import LORENZ, paper_lorenz, simulate
from smnn.experiments.lorenz import model, view
from smnn.experiments.lorenz import run as experiment
from smnn.experiments.lorenz.run import COEFFICIENTS, OURS, PAPER, PRINTED, PYSINDY, Config, Lorenz
from smnn.experiments.solvers import SMNN, Solver

pytest.importorskip("scipy")
pytest.importorskip("sklearn")

TRUTH = [LORENZ.truth[target][term] for target, term in COEFFICIENTS]


@pytest.fixture(name="result")
def _result(runs: Any) -> Lorenz:
    return runs["lorenz"]  # type: ignore[no-any-return]


class TestTable:
    def test_printed_rows_have_the_errors_of_the_paper(self, result: Lorenz) -> None:
        errors = {name: result.find(PAPER, name).max_abs for name in PRINTED}
        expected = {"SINDy": 0.002, "MNN dense": 0.024, "MNN sparse": 0.2835, "S-MNN": 0.0085}
        assert errors == pytest.approx(expected, abs=1e-9)

    def test_a1_to_a7_are_all_of_the_equations(self) -> None:
        assert pytest.approx([-10, 10, 28, -1, -1, -8 / 3, 1]) == TRUTH
        assert len(COEFFICIENTS) == sum(len(e) for e in LORENZ.truth.values())

    def test_ours_is_right_on_the_papers_data(self, result: Lorenz) -> None:
        answer = result.find(OURS, "regression")
        assert answer.wrong == 0
        assert answer.max_abs < 1e-4
        np.testing.assert_allclose(np.array(answer.values, dtype=float), TRUTH, atol=1e-4)

    @pytest.mark.peers
    def test_pysindy_on_the_papers_data(self) -> None:
        """Its second-order differences give 27.8 at this step."""
        pytest.importorskip("pysindy")
        config = Config(samples=10_050, methods=("pysindy-default",), steps=0)
        answer = experiment.run(config).find(PYSINDY, "default")
        assert answer.values[2] == pytest.approx(27.806, abs=2e-3)
        assert answer.wrong == 0

    def test_printed_sindy_row_belongs_to_samples_ten_times_as_dense(self) -> None:
        """Checked with the regression that PySINDy's default is: all printed digits agree."""
        n = 40_000
        (series,) = simulate(LORENZ, n=n, dt=0.001)
        slope = np.gradient(series.x, 0.001, axis=0, edge_order=2)
        features = LORENZ.basis.features(series.x, LORENZ.variables)
        for v, target in enumerate(LORENZ.targets):
            names = list(LORENZ.truth[target])
            columns = features[:, [LORENZ.terms.index(name) for name in names]]
            found = np.linalg.lstsq(columns, slope[:, v], rcond=None)[0]
            for name, value in zip(names, found):
                k = COEFFICIENTS.index((target, name))
                assert f"{value:.3f}" == PRINTED["SINDy"][k]

    def test_equations_of_a_printed_row(self, result: Lorenz) -> None:
        found = result.find(PAPER, "S-MNN").equations()
        assert found["y'"] == {"x": 27.9915, "y": -0.9968, "x z": -0.9997}

    def test_unknown_method(self) -> None:
        with pytest.raises(ValueError, match="methods: got 'sindy'; expected some of smnn"):
            experiment.run(Config(samples=100, methods=("sindy",), steps=0))


class Fixed(nn.Module):
    """Always the true coefficients."""

    def forward(self, source: Tensor) -> Tensor:
        columns = [[LORENZ.truth[t].get(n, 0.0) for t in LORENZ.targets] for n in LORENZ.terms]
        return torch.tensor(columns, dtype=torch.float64).view(1, 30)


class TestNetwork:
    def test_size_of_the_paper(self) -> None:
        assert sum(p.numel() for p in model.LorenzNet().parameters()) == 2_504_948

    def test_monomials_are_the_candidate_terms(self) -> None:
        x = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        expected = LORENZ.basis.features(x.numpy(), LORENZ.variables)
        np.testing.assert_allclose(model.monomials(x), expected)

    @pytest.mark.parametrize("name", model.SOLVERS)
    def test_true_coefficients_give_the_trajectory_back(self, name: str) -> None:
        net = model.LorenzNet(50, hidden=4)
        net.states, net.coefficients = nn.Identity(), Fixed()  # type: ignore[assignment]
        x = torch.as_tensor(simulate(LORENZ, n=50)[0].x)[None]
        solution, states, _ = net(x, Solver(name))
        assert torch.equal(states, x)
        assert (solution - x).abs().max() < 0.2
        assert (solution[0, 0] - x[0, 0]).abs().max() < 0.01

    def test_all_solvers_get_the_same_data(self) -> None:
        x = torch.as_tensor(paper_lorenz(300).x)
        runs = [
            model.train(name, x, steps=2, batch=4, window=20, hidden=16) for name in model.SOLVERS
        ]
        first = [t.losses[0] for t in runs]
        np.testing.assert_allclose(first, first[0], rtol=0.02)
        assert runs[0].converged == 1.0
        assert all(t.ms > 0 for t in runs)

    def test_the_loss_falls(self) -> None:
        x = torch.as_tensor(paper_lorenz(300).x)
        losses = model.train(SMNN, x, steps=40, batch=8, window=10, hidden=64).losses
        assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])

    def test_results_follow_from_the_seed_without_changing_global_state(self) -> None:
        x = torch.as_tensor(paper_lorenz(300).x)

        def train(seed: int) -> list[float]:
            return model.train(SMNN, x, steps=2, batch=2, window=10, hidden=8, seed=seed).losses

        before = torch.random.get_rng_state()
        assert train(0) == train(0) != train(1)
        assert torch.equal(torch.random.get_rng_state(), before)

    def test_a_loss_that_is_not_finite_is_reported(self) -> None:
        x = torch.full((60, 3), float("nan"), dtype=torch.float64)
        with pytest.raises(ArithmeticError, match="S-MNN: the loss is nan after 0 steps"):
            model.train(SMNN, x, steps=3, batch=2, window=10, hidden=4)

    def test_moving_average(self) -> None:
        assert model.Training("", [10.0, 0.0, 20.0]).average() == pytest.approx([10, 9, 10.1])
        assert model.Training("").average() == []


class TestSimulation:
    def test_true_equations_give_the_lorenz_system(self) -> None:
        found = experiment.trajectory({t: dict(e) for t, e in LORENZ.truth.items()}, n=200)
        assert found is not None
        np.testing.assert_allclose(found, paper_lorenz(10_050).x[:200], rtol=0, atol=0.1)
        np.testing.assert_array_equal(found[0], 1.0)

    def test_diverging_equations(self) -> None:
        assert experiment.trajectory({"x'": {"x^2": 1.0}, "y'": {}, "z'": {}}, n=300) is None


class TestRun:
    def test_without_pysindy_the_rest_is_done(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pysindy", None)
        config = Config(samples=600, methods=("pysindy-weak", "smnn-regression"), steps=0)
        found = experiment.run(config)
        assert [a.group for a in found.answers] == [PAPER] * 4 + [OURS]
        assert found.skipped == {
            "pysindy-weak": "pysindy is needed to compare with PySINDy; pip install pysindy."
        }
        assert "Skipped: pysindy-weak; pysindy is needed" in view.report(
            found, {"lorenz.png": b""}, ""
        )

    def test_sizes_by_device(self) -> None:
        assert Config(device="cpu").resolved().batch == 32
        assert Config(device="cuda").resolved().batch == 512
        assert Config(device="cuda", batch=7).resolved().batch == 7

    def test_networks_in_cycles(self) -> None:
        tiny = Config(
            samples=400, methods=(), steps=0, batch=4, window=12, width=8, device="cpu",
            neural=True, neural_cycles=2, neural_steps=10,
        )  # fmt: skip
        found = experiment.run(tiny)
        answer = found.find(OURS, "networks")
        assert answer.note == "2 cycles of 10 steps, batch 4, width 8"
        assert len(found.cycle_losses) == 2
        assert "Cycle 2" in view.report(found, view.figures(found), "")


class TestView:
    def test_table_shows_what_was_printed(self, result: Lorenz) -> None:
        table, training = view.tables(result)
        texts = {(r.group, r.label): [c.text for c in r.cells] for r in table.rows}
        for name, printed in PRINTED.items():
            assert tuple(texts[PAPER, name][:7]) == printed
        assert texts[OURS, "regression"][:3] == ["-10.0000", "10.0000", "28.0000"]
        best = [r.label for r in table.rows for c in r.cells if c.best]
        assert best == ["regression"]
        assert training.columns == ["step 1", "step 3", "ms", "solved"]
        assert all(row.cells[-1].text.endswith("%") for row in training.rows)

    def test_halves_make_the_whole(self, result: Lorenz) -> None:
        whole = view.tables(result)[0]
        left, right, _ = view.terminal_tables(result)
        assert [*left.columns, *right.columns] == list(whole.columns)
        for row, a, b in zip(whole.rows, left.rows, right.rows):
            assert [*a.cells, *b.cells] == list(row.cells)
