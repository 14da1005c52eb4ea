"""Equations with a variable that is not measured."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter1d
from tests.discovery.systems import integrate, lorenz, noisy

from smnn.discovery import (
    DataError,
    Discovery,
    ModelFileError,
    Report,
    VerdictWarning,
    evaluate,
    hold_out,
)
from smnn.discovery._fit.data import gather
from smnn.discovery._models.hidden import gauges

T = np.arange(0, 30, 0.1)


def prey_and_predator(t: float, u: np.ndarray) -> list[float]:
    return [1.1 * u[0] - 0.4 * u[0] * u[1], -0.4 * u[1] + 0.1 * u[0] * u[1]]


def neuron(t: float, u: np.ndarray) -> list[float]:
    return [u[0] - u[0] ** 3 / 3 - u[1] + 0.5, 0.08 * (u[0] + 0.7 - 0.8 * u[1])]


def fitted(X: Any, t: Any, **options: Any) -> Discovery:
    """A fit without warnings about the verdict."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VerdictWarning)
        return Discovery(hidden=1, **options).fit(X, t=t)


def coefficients(found: Discovery, v: int) -> dict[str, float]:
    row = found.coefficients_[v]
    return {term.name: float(c) for term, c in zip(found.terms_, row) if c}


def agree(found: dict[str, float], expected: dict[str, float], tolerance: float) -> bool:
    """Whether terms are the same, and coefficients differ little."""
    return found.keys() == expected.keys() and all(
        abs(found[name] / expected[name] - 1) < tolerance for name in expected
    )


@pytest.fixture(scope="module")
def both() -> np.ndarray:
    return integrate(prey_and_predator, [10, 5], T)


@pytest.fixture(scope="module")
def prey(both: np.ndarray) -> Discovery:
    return fitted(noisy(both[:, :1], 0.01, seed=1), T)


class TestLaws:
    def test_lotka_volterra_from_the_prey(self, prey: Discovery, both: np.ndarray) -> None:
        # With h1 = 1.1 - 0.4 y: h1' = (1.1 - h1) (0.4 - 0.1 x).
        assert prey.verdict_.level == "established"
        assert coefficients(prey, 0) == {"x h1": 1.0}
        expected = {"1": 0.44, "x": -0.11, "h1": -0.4, "x h1": 0.1}
        assert agree(coefficients(prey, 1), expected, 0.05)
        assert np.abs(prey.states_[0][:, 1] - (1.1 - 0.4 * both[:, 1])).max() < 0.05
        assert prey.hidden_["h1"].startswith("its term x h1 in x'")
        assert "h1 is not measured" in prey.summary()
        assert prey.n_features_in_ == 1
        assert prey.warnings_ == []

    def test_lienard_form_of_a_neuron(self) -> None:
        t = np.arange(0, 150, 0.25)
        found = fitted(noisy(integrate(neuron, [-1, 0.5], t)[:, :1], 0.01, seed=2), t, ensemble=0)
        expected = {"1": -0.024, "x": -0.016, "h1": 0.936, "x^3": -0.064 / 3, "x^2 h1": -1.0}
        assert found.verdict_.level == "established"
        assert agree(coefficients(found, 1), expected, 0.1)

    def test_lorenz_from_two_variables(self) -> None:
        t = np.arange(0, 6, 0.01)
        X = noisy(integrate(lorenz, [1, 2, 20], t)[:, :2], 0.01, seed=3)
        found = fitted(X, t, ensemble=0)
        # With h1 = 28 - z.
        assert found.verdict_.level == "established"
        assert agree(coefficients(found, 0), {"x": -10.0, "y": 10.0}, 0.05)
        assert agree(coefficients(found, 1), {"y": -1.0, "x h1": 1.0}, 0.1)
        assert agree(coefficients(found, 2), {"1": 224 / 3, "h1": -8 / 3, "x y": -1.0}, 0.05)

    def test_inputs_gaps_and_several_series(self) -> None:
        t = np.arange(0, 20, 0.1)
        drive = np.sin(0.7 * t) + np.cos(0.23 * t)

        def rate(s: float, u: np.ndarray) -> list[float]:  # the first tank is not measured
            return [np.sin(0.7 * s) + np.cos(0.23 * s) - u[0], u[0] - 0.5 * u[1]]

        runs = [integrate(rate, x0, t)[:, 1:] for x0 in ([2, 0], [0, 3])]
        runs = [noisy(run, 0.01, seed=k) for k, run in enumerate(runs)]
        runs[0][50:55] = np.nan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VerdictWarning)
            found = Discovery("poly:1", hidden=1, ensemble=0).fit(
                runs, t=[t, t], inputs=[drive, drive]
            )
        assert agree(coefficients(found, 1), {"x": -0.5, "h1": -1.5, "u": 1.0}, 0.1)


class TestDoubts:
    def test_not_needed(self, both: np.ndarray) -> None:
        found = fitted(noisy(both, 0.01), T, ensemble=0)
        assert found.verdict_.level == "not determined"
        assert "do not need a hidden variable" in found.verdict_.reason
        assert found.variables_ == ["x", "y"]
        assert found.hidden_ == {}

    @pytest.mark.parametrize("kind", ["walk", "smooth", "two frequencies"])
    def test_unrelated_curves(self, kind: str) -> None:
        rng, k = np.random.default_rng(5), np.arange(200)
        if kind == "walk":
            x = np.cumsum(rng.standard_normal(200))
        elif kind == "smooth":
            x = gaussian_filter1d(rng.standard_normal(300), 12)[50:-50]
        else:
            x = np.sin(0.13 * k) + 0.7 * np.sin(0.21 * k + 1)
        found = fitted(noisy(x[:, None], 0.01), 0.1)
        assert found.verdict_.level == "not determined"

    def test_a_second_hidden_variable(self) -> None:
        t = np.arange(0, 10, 0.02)
        found = fitted(noisy(integrate(lorenz, [1, 2, 20], t)[:, :1], 0.01), t)
        assert found.verdict_.level == "not determined"
        with pytest.warns(VerdictWarning):
            Discovery("poly:2", hidden=1).fit(np.random.default_rng(0).standard_normal(100))


class TestUse:
    def test_simulation_and_forecast(self, prey: Discovery, both: np.ndarray) -> None:
        path = prey.simulate(prey.states_[0][0], T)
        assert np.abs(path[:, 0] - both[:, 0]).max() < 0.2 * both[:, 0].std()
        assert prey.predict(path).shape == path.shape
        ahead = prey.forecast(20)
        assert ahead.names == ("x",)
        later = integrate(prey_and_predator, [10, 5], np.arange(0, 32, 0.1))[300:, 0]
        assert np.abs(ahead.mean[:, 0] - later).max() < 0.2 * both[:, 0].std()
        assert (ahead.lower < ahead.mean).all()
        assert prey.noise_[1] == 0.0
        assert 0.005 < prey.noise_[0] / both[:, 0].std() < 0.015
        assert ("h1'", "x h1") in prey.to_torch().names

    def test_hold_out_and_report(self, prey: Discovery, tmp_path: Path) -> None:
        first, rest = hold_out(prey.table_, 0.2)
        model = Discovery(hidden=1, ensemble=0).fit(first)
        result = evaluate(model, rest)
        assert result.error is not None
        assert result.error < 0.2
        report = Report(model, result, "prey.csv")
        page = report.write(tmp_path)
        assert "h1 is not measured: its term" in page.read_text(encoding="utf-8")
        record = json.loads(json.dumps(report.record()))
        assert record["hidden"] == model.hidden_
        assert (tmp_path / "states.csv").read_text().splitlines()[0].endswith(",x,h1")

    def test_model_files(self, prey: Discovery, tmp_path: Path) -> None:
        path = prey.save(tmp_path / "m.json")
        again = Discovery.load(path)
        assert again.hidden_ == prey.hidden_
        assert again.n_features_in_ == 1
        state = prey.states_[0][0]
        assert np.array_equal(again.simulate(state, T[:9]), prey.simulate(state, T[:9]))
        record = json.loads(path.read_text())
        for wrong in ([1], {"x": "the first"}, {"h1": 3}):
            path.write_text(json.dumps(record | {"hidden": wrong}))
            with pytest.raises(ModelFileError, match="hidden"):
                Discovery.load(path)

    def test_names(self, both: np.ndarray) -> None:
        nodes = gather(both[:, :1], T, None, ["h1"])
        every = gauges(nodes, np.random.default_rng(0))
        assert {gauge.name for gauge in every} == {"h2"}
        assert len(every) == 3


class TestErrors:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"hidden": 2}, "hidden=2; expected 0"),
            ({"kind": "map"}, "does not support kind='map'"),
            ({"delay": 3.0}, "does not support delay=3.0"),
            ({"varies": ["x"]}, "does not support varies"),
            ({"order": 2}, "does not support order=2"),
            ({"method": "neural"}, "does not support method='neural'"),
            ({"method": "regression"}, "does not support method='regression'"),
            ({"link": "tanh"}, "does not support link"),
            ({"fixed": {"x'": {"x": 1.0}}}, "does not support fixed"),
            ({"library": "poly:1,x/(?K + x)"}, "does not support constants inside terms"),
        ],
    )
    def test_options(self, options: dict[str, Any], message: str) -> None:
        model = Discovery(**({"hidden": 1} | options))
        with pytest.raises(ValueError, match=message):
            model.fit(np.arange(50.0))

    def test_data(self) -> None:
        rng = np.random.default_rng(0)
        with pytest.raises(DataError, match="a hidden variable needs at most"):
            fitted(rng.standard_normal(20_000), 1.0)
        with pytest.raises(DataError, match="a library that includes polynomials"):
            fitted(rng.standard_normal(60), 1.0, library="sin(x)")
        with pytest.raises(DataError, match="expecting 2 features"):
            fitted(np.sin(0.1 * np.arange(200.0)), 1.0).predict(np.zeros((3, 1)))
