"""`Discovery` on known systems, with all kinds of input and options."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit

from discovery.systems import integrate, lorenz, noisy, terms_of
from smnn.discovery import Discovery, Equal, Expressions, Negative, Neural, Polynomial, Positive
from smnn.discovery._fit import pipeline
from smnn.discovery._terms import find_term

LORENZ = {
    "x'": {"x": -10.0, "y": 10.0},
    "y'": {"x": 28.0, "y": -1.0, "x z": -1.0},
    "z'": {"z": -8 / 3, "x y": 1.0},
}


def error(found: Discovery, truth: dict[str, dict[str, float]]) -> float:
    """Largest error of a coefficient; infinite if the terms are not the true ones."""
    true = np.zeros_like(found.coefficients_)
    columns = [*found.state_names_, *found.inputs_]
    for v, target in enumerate(found.targets_):
        for term, value in truth[target].items():
            true[v, find_term(term, found.terms_, columns)] = value
    if ((true != 0) != (found.coefficients_ != 0)).any():
        return np.inf
    return float(np.abs(found.coefficients_ - true).max())


T = np.arange(2000) * 0.01
X = integrate(lorenz, (1.0, 1.0, 1.0), T)


@pytest.mark.parametrize(("noise", "limit"), [(0.0, 1e-5), (0.01, 0.05), (0.05, 0.25), (0.1, 0.5)])
def test_lorenz(noise: float, limit: float) -> None:
    found = Discovery(ensemble=10).fit(noisy(X, noise), t=T)
    assert error(found, LORENZ) < limit
    np.testing.assert_allclose(found.noise_, noise * X.std(0), rtol=0.1, atol=1e-4)
    states = found.states_[0]
    assert np.sqrt(((states - X) ** 2).mean(0) / X.var(0)).max() <= max(0.2 * noise, 1e-6)
    assert found.inclusion_ is not None
    assert (found.inclusion_[found.coefficients_ != 0] > 0.8).all()


def test_resamples_differ() -> None:
    """A weak term is in some of them: x' = -x - 0.1 x^2."""
    t = np.linspace(0, 4, 80)
    x = 1 / (1.1 * np.exp(t) - 0.1)
    found = Discovery(Polynomial(2), ensemble=40).fit(noisy(x[:, None], 0.1), t=t)
    assert found.inclusion_ is not None
    assert 0.1 < found.inclusion_[0, 2] < 0.95


def test_intervals_cover() -> None:
    """Coverage of the 90 % intervals over several noise realizations."""
    hits = []
    for seed in range(8):
        found = Discovery(ensemble=0).fit(noisy(X[:1000], 0.02, seed), t=T[:1000])
        assert error(found, LORENZ) < np.inf
        for v, target in enumerate(found.targets_):
            for term, value in LORENZ[target].items():
                low, high = found.intervals_[v, find_term(term, found.terms_, found.state_names_)]
                hits.append(low <= value <= high)
    assert 0.75 <= np.mean(hits) <= 1.0


def test_missing_entries_and_uneven_steps() -> None:
    rng = np.random.default_rng(2)
    t = np.sort(rng.uniform(0, 25, 2500))
    Y = noisy(integrate(lorenz, (1.0, 1.0, 1.0), t), 0.01)
    Y[rng.random(Y.shape) < 0.3] = np.nan
    assert error(Discovery(ensemble=0).fit(Y, t=t), LORENZ) < 0.1


def test_missing_rows() -> None:
    Y = noisy(X, 0.01)
    Y[500:520] = np.nan
    assert error(Discovery(ensemble=0).fit(Y, t=T), LORENZ) < 0.05


@pytest.mark.parametrize("kind", ["pandas", "torch", "list"])
def test_kinds_of_input(kind: str) -> None:
    Y = noisy(X[:800], 0.01)
    if kind == "pandas":
        found = Discovery(ensemble=0).fit(pd.DataFrame(Y, columns=["a", "b", "c"]), t=T[:800])
        assert found.variables_ == ["a", "b", "c"]
        assert found.targets_ == ["a'", "b'", "c'"]
        return
    given = torch.as_tensor(Y) if kind == "torch" else [Y[:400], Y[400:]]
    at = T[:800] if kind == "torch" else [T[:400], T[400:800]]
    assert error(Discovery(ensemble=0).fit(given, t=at), LORENZ) < 0.2


def test_units_do_not_matter() -> None:
    """Rescaling variables and time leaves the terms unchanged and rescales coefficients."""
    Y = noisy(X[:1000], 0.01)
    plain = Discovery(ensemble=0).fit(Y, t=T[:1000])
    units = np.array([1e-3, 1e4, 7.0])
    unit_of = dict(zip(plain.state_names_, units))
    scaled = Discovery(ensemble=0).fit(Y * units, t=T[:1000] * 60.0)
    np.testing.assert_array_equal(plain.coefficients_ != 0, scaled.coefficients_ != 0)
    for v in range(3):
        for p, term in enumerate(plain.terms_):
            size = float(
                term.symbolic.subs({x: unit_of[x.name] for x in term.symbolic.free_symbols})
            )
            expected = plain.coefficients_[v, p] * units[v] / size / 60.0
            assert scaled.coefficients_[v, p] == pytest.approx(expected, rel=1e-3)


def test_second_order_from_positions() -> None:
    """Duffing: x'' = -0.1 x' + x - x^3."""
    t = np.arange(0, 40, 0.05)
    x = integrate(lambda _, z: [z[1], -0.1 * z[1] + z[0] - z[0] ** 3], [2.0, 0.0], t)[:, :1]
    found = Discovery(order=2, ensemble=0).fit(noisy(x, 0.02), t=t)
    assert found.state_names_ == ["x", "x'"]
    assert error(found, {"x''": {"x'": -0.1, "x": 1.0, "x^3": -1.0}}) < 0.05
    assert found.predict(np.array([[1.0, 0.5]])).shape == (1, 1)
    assert found.score(noisy(x, 0.02, 1), t=t) > 0.9


def test_third_order_from_positions() -> None:
    t = np.arange(0, 60, 0.05)
    jerk = integrate(lambda _, z: [z[1], z[2], -2.017 * z[2] + z[1] ** 2 - z[0]], [0, 0.0, 1.0], t)
    found = Discovery(library="poly:2", order=3, ensemble=0).fit(noisy(jerk[:, :1], 0.01), t=t)
    assert error(found, {"x'''": {"x''": -2.017, "x'^2": 1.0, "x": -1.0}}) < 0.05


def test_many_short_series() -> None:
    """Logistic growth from 30 runs of 12 points."""
    t = np.linspace(0, 6, 12)
    runs = [
        1 / (1 + (1 / x0 - 1) * np.exp(-1.3 * t))
        for x0 in np.random.default_rng(0).uniform(0.02, 1.6, 30)
    ]
    runs = [x + 0.01 * np.random.default_rng(i).normal(size=12) for i, x in enumerate(runs)]
    found = Discovery(ensemble=0).fit(runs, t=[t] * 30)
    assert error(found, {"x'": {"x": 1.3, "x^2": -1.3}}) < 0.1


def test_external_input() -> None:
    """A driven oscillator."""
    t = np.arange(0, 40, 0.05)
    u = np.sin(1.7 * t) + 0.5 * np.sin(0.4 * t + 1)
    x = integrate(
        lambda s, z: [
            z[1],
            -z[0] - 0.3 * z[1] + 0.8 * (np.sin(1.7 * s) + 0.5 * np.sin(0.4 * s + 1)),
        ],
        [1.0, 0.0],
        t,
    )
    found = Discovery(ensemble=0).fit(noisy(x, 0.02), t=t, inputs=u, feature_names=["x", "v"])
    truth = {"x'": {"v": 1.0}, "v'": {"x": -1.0, "v": -0.3, "u": 0.8}}
    assert error(found, truth) < 0.05
    path = found.simulate(x[0], t, inputs=u)
    assert np.abs(path - x).max() < 0.1
    with pytest.raises(ValueError, match=r"the model has inputs \(u\); give `inputs`"):
        found.simulate(x[0], t)


def test_link() -> None:
    """x' = tanh(2 y), y' = tanh(-x - y/2)."""
    t = np.arange(0, 30, 0.05)
    x = integrate(lambda _, z: [np.tanh(2 * z[1]), np.tanh(-z[0] - 0.5 * z[1])], [2.0, 0.0], t)
    found = Discovery(link="tanh", ensemble=0).fit(noisy(x, 0.005), t=t)
    assert error(found, {"x'": {"y": 2.0}, "y'": {"x": -1.0, "y": -0.5}}) < 0.05
    assert found.equations()[0].startswith("x' = tanh(")


def test_fixed_and_forbidden_terms() -> None:
    Y = noisy(X[:1000], 0.02)
    found = Discovery(fixed={"x'": {"x": -10.0}}, forbidden={"y'": ["y"]}, ensemble=5).fit(
        Y, t=T[:1000]
    )
    x, y = (find_term(n, found.terms_, found.state_names_) for n in ("x", "y"))
    assert found.coefficients_[0, x] == -10.0
    assert found.deviation_[0, x] == 0.0
    assert found.coefficients_[1, y] == 0.0
    text = Discovery(fixed={"x'": "-10*x"}, forbidden={"y'": ["y"]}, ensemble=5)
    np.testing.assert_array_equal(text.fit(Y, t=T[:1000]).coefficients_, found.coefficients_)


def test_signs_and_equalities() -> None:
    Y = noisy(X[:1000], 0.02)
    tie = Equal({("x'", "x"): 1.0, ("x'", "y"): 1.0})
    found = Discovery(
        constraints=[tie, Positive("z'", "x y"), Negative("y'", "x")], ensemble=0
    ).fit(Y, t=T[:1000])
    x, y, xy = (find_term(n, found.terms_, found.state_names_) for n in ("x", "y", "x y"))
    assert found.coefficients_[0, x] == pytest.approx(-found.coefficients_[0, y], abs=1e-6)
    assert found.coefficients_[0, y] == pytest.approx(10.0, abs=0.2)
    assert found.coefficients_[2, xy] > 0
    assert found.coefficients_[1, x] <= 0


def test_regression_alone() -> None:
    found = Discovery(method="regression").fit(X, t=T)
    assert error(found, LORENZ) < 1e-3
    assert (found.deviation_[found.coefficients_ != 0] > 0).all()


def test_real_record() -> None:
    """Twenty-one years of hares and lynxes: Lotka-Volterra equations."""
    from smnn.datasets.dynamics import HARE_LYNX

    (series,) = HARE_LYNX.series
    found = Discovery(ensemble=0).fit(series.x, t=series.t, feature_names=["hare", "lynx"])
    assert terms_of(found) == [{"hare", "hare lynx"}, {"lynx", "hare lynx"}]


def test_same_seed_gives_same_result() -> None:
    Y = noisy(X[:600], 0.05)
    a, b = (Discovery(ensemble=5).fit(Y, t=T[:600]) for _ in range(2))
    np.testing.assert_array_equal(a.coefficients_, b.coefficients_)
    np.testing.assert_array_equal(a.inclusion_, b.inclusion_)


def test_save_and_load(tmp_path: Path) -> None:
    found = Discovery(library=Polynomial(2) + Expressions(["sin(x)"])).fit(X[:600], t=T[:600])
    path = found.save(tmp_path / "model.json")
    again = Discovery.load(path)
    assert again.equations() == found.equations()
    np.testing.assert_array_equal(again.intervals_, found.intervals_)
    np.testing.assert_array_equal(again.simulate(X[0], T[:100]), found.simulate(X[0], T[:100]))
    np.testing.assert_array_equal(again.predict(X[:5]), found.predict(X[:5]))


def test_simulation_follows_the_truth() -> None:
    found = Discovery(ensemble=0).fit(X, t=T)
    np.testing.assert_allclose(found.simulate(X[0], T[:500]), X[:500], atol=1e-3)
    runaway = Discovery(library="poly:2", ensemble=0).fit(np.exp(T[:100]), t=T[:100])
    path = runaway.simulate([1.0], np.linspace(0, 100, 50))
    assert np.isnan(path[-1]).all()
    assert np.isfinite(path[0]).all()


def test_scikit_learn() -> None:
    estimator = Discovery(library="poly:2", ensemble=0, penalty=2.0)
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    search = GridSearchCV(
        Discovery(ensemble=0, method="regression"),
        {"library": [Polynomial(1), Polynomial(2)]},
        cv=TimeSeriesSplit(2),
    )
    search.fit(X[:900], t=T[:900])
    assert search.best_params_ == {"library": Polynomial(2)}


def test_neural() -> None:
    found = Discovery(
        method="neural",
        neural=Neural(cycles=3, steps=150, batch=32, width=64, window=20),
    ).fit(X[:1000], t=T[:1000])
    x, y = (find_term(n, found.terms_, found.state_names_) for n in ("x", "y"))
    assert found.coefficients_[0, x] == pytest.approx(-10, abs=1.0)
    assert found.coefficients_[0, y] == pytest.approx(10, abs=1.0)
    assert found.report_["losses"][-1] < found.report_["losses"][0]
    assert (found.coefficients_ == 0).sum() > 10


def test_long_data_are_fitted_in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "LARGEST", 3 * 33 * 1000)
    t = np.arange(6000) * 0.01
    found = Discovery(ensemble=0).fit(noisy(integrate(lorenz, (1.0, 1.0, 1.0), t), 0.02), t=t)
    assert error(found, LORENZ) < 0.2
    assert found.states_[0].shape == (6000, 3)
