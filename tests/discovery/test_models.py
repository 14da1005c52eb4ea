"""Maps, delays, varying parameters, bounds and weights."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.discovery.systems import integrate, noisy

from smnn.discovery import (
    Bounds,
    Constant,
    DataError,
    Discovery,
    Expressions,
    ModelFileError,
    VerdictWarning,
    evaluate,
    hold_out,
)
from smnn.discovery._fit.data import FitResult, gather
from smnn.discovery._fit.model import OdeModel
from smnn.discovery._fit.selection import select
from smnn.discovery._models.delays import DelaySearch, simulate_delayed
from smnn.discovery._terms import compile_terms
from smnn.discovery._verdict.fitted import different_states
from smnn.equations import ExpressionError


def fitted(*args: Any, data: Any, ensemble: int = 0, **options: Any) -> Discovery:
    """A fit without warnings about the verdict."""
    X, given = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VerdictWarning)
        return Discovery(*args, ensemble=ensemble, **options).fit(X, **given)


def coefficients(found: Discovery, v: int = 0) -> dict[str, float]:
    """Coefficients of an equation by term."""
    row = found.coefficients_[v]
    return {term.name: float(c) for term, c in zip(found.terms_, row) if c}


def henon(n: int) -> np.ndarray:
    out = [(0.1, 0.2)]
    for _ in range(n - 1):
        x, y = out[-1]
        out.append((1 - 1.4 * x * x + y, 0.3 * x))
    return np.array(out)


@pytest.fixture(scope="module")
def map_found() -> Discovery:
    X = noisy(henon(200), 0.01)
    X[50, 0] = np.nan
    return fitted(kind="map", data=(X, {"t": 0.5}), ensemble=10)


class TestMaps:
    def test_equations(self, map_found: Discovery) -> None:
        found = map_found
        assert found.verdict_.level == "established"
        assert found.targets_ == ["x_next", "y_next"]
        truth = ({"1": 1.0, "y": 1.0, "x^2": -1.4}, {"x": 0.3})
        for v, terms in enumerate(truth):
            row = coefficients(found, v)
            assert row.keys() == terms.keys()
            for p, term in enumerate(found.terms_):
                if term.name in terms:
                    error = abs(row[term.name] - terms[term.name])
                    assert error < 3.5 * found.deviation_[v, p]

    def test_use(self, map_found: Discovery, tmp_path: Path) -> None:
        found = map_found
        path = found.simulate([0.1, 0.2], 0.5 * np.arange(4))
        state = np.array([0.1, 0.2])
        for row in path[1:]:
            state = found.predict(state[None])[0]
            assert np.allclose(row, state)
        assert np.allclose(found.to_function()(0.0, path[0]), path[1])
        again = Discovery.load(found.save(tmp_path / "m.json"))
        assert np.array_equal(again.simulate([0.1, 0.2], 0.5 * np.arange(4)), path)
        assert found.equations("latex")[0].startswith(r"{x_{\mathrm{next}}} = ")
        ahead = found.forecast(2)
        assert (ahead.lower <= ahead.mean).all()
        assert (ahead.mean <= ahead.upper).all()
        assert found.score(henon(100)) > 0.99
        with pytest.raises(DataError, match="must have steps of"):
            found.simulate([0.1, 0.2], [0.0, 1.0])

    def test_hold_out(self) -> None:
        found = fitted(kind="map", data=(henon(150), {}))
        first, rest = hold_out(found.table_, 0.05)
        model = fitted(kind="map", data=(first, {}))
        assert evaluate(model, rest).error < 0.05

    def test_doubts(self) -> None:
        rng = np.random.default_rng(0)
        noise = fitted(kind="map", data=(rng.standard_normal(200), {}))
        assert noise.verdict_.doubtful
        walk = fitted(kind="map", data=(np.cumsum(rng.standard_normal(200)), {}))
        assert walk.verdict_.doubtful
        cycle = np.tile([0.8, 0.3, 0.55], 60) + 0.01 * rng.standard_normal(180)
        periodic = fitted(kind="map", data=(cycle, {}))
        assert periodic.verdict_.doubtful
        assert different_states(cycle[:, None], np.array([0.01]), np.array([0.2])) <= 6

    @pytest.mark.parametrize(
        ("options", "t", "message"),
        [
            ({"kind": "step"}, 1.0, "kind='step'"),
            ({"kind": "map", "order": 2}, 1.0, "a map has order 1"),
            ({"kind": "map", "method": "neural"}, 1.0, "does not support"),
            ({"kind": "map"}, [0.0, 1.0, 2.0, *range(4, 11)], "equal steps"),
        ],
    )
    def test_errors(self, options: dict[str, Any], t: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Discovery(**options).fit(henon(10), t=t)


class TestVarying:
    RATES = (0.2, 0.6, 1.2)

    def data(self, saturated: bool = False) -> tuple[list[np.ndarray], dict[str, Any]]:
        def rate(k: float) -> Any:
            if saturated:
                return lambda t, u: [-1.5 * u[0] / (k + u[0])]
            return lambda t, u: [k - 0.8 * u[0]]

        t = np.linspace(0, 5, 80)
        clean = [integrate(rate(k), [2.5], t) for k in self.RATES]
        given = {"t": [t] * 3, "feature_names": ["x"]}
        return [noisy(x, 0.01, i) for i, x in enumerate(clean)], given

    def test_coefficient(self, tmp_path: Path) -> None:
        data = self.data()
        found = fitted(varies=["1"], data=data, ensemble=5)
        assert found.verdict_.level == "established"
        truth = {"x": -0.8, "[0]": 0.2, "[1]": 0.6, "[2]": 1.2}
        assert coefficients(found) == pytest.approx(truth, rel=0.03)
        assert "[" not in found.equations(series=1)[0]
        again = Discovery.load(found.save(tmp_path / "m.json"))
        t = np.linspace(0, 3, 20)
        for i, k in enumerate(self.RATES):
            path = again.simulate([2.0], t, series=str(i))
            assert np.allclose(path[:, 0], k / 0.8 + (2 - k / 0.8) * np.exp(-0.8 * t), atol=0.03)
            assert again.to_torch(series=i).names == [("x'", "x"), ("x'", "1")]
        assert found.score(data[0], t=data[1]["t"]) > 0.9
        assert found.forecast(3, series=2).mean.shape == (3, 1)
        with pytest.raises(DataError, match="give series= one of 0, 1, 2"):
            again.simulate([2.0], t)

    def test_constant(self, tmp_path: Path) -> None:
        found = fitted("poly:1,x/(?K + x)", varies=["K"], data=self.data(True))
        assert len(coefficients(found)) == 1
        for i, k in enumerate(self.RATES):
            constant = found.constants_[f"K_{i}"]
            assert abs(constant.value - k) < 3.5 * constant.deviation
            assert f"K_{i}" in found.summary()
        again = Discovery.load(found.save(tmp_path / "m.json"))
        assert again.equations(series=2) == found.equations(series=2)

    def test_names_of_coefficients_and_equations(self) -> None:
        data = self.data()
        found = fitted("1,?r*x", varies=["r"], data=data)
        assert {"x [0]", "x [1]", "x [2]"} >= coefficients(found).keys() - {"1"}
        by_equation = fitted("poly:1", varies={"x'": ["1"]}, data=data)
        assert "[2]" in coefficients(by_equation)

    def test_errors(self) -> None:
        X, given = self.data()
        with pytest.raises(ExpressionError, match="varies"):
            Discovery("poly:1", varies=["K"]).fit(X, **given)
        with pytest.raises(ValueError, match="lists of terms by equation"):
            Discovery("poly:1", varies={"y'": ["x"]}).fit(X, **given)
        with pytest.raises(DataError, match="1 series"):
            Discovery("poly:1", varies=["x"]).fit(X[0], t=given["t"][0])


def solved(texts: list[str], row: list[float], past: float, t: Any, lag: float) -> np.ndarray:
    """Solution of an equation with a delay."""
    terms = compile_terms(Expressions(texts).terms(["x", "x_lag"]), ["x", "x_lag"])
    model, none = OdeModel(terms, np.array([row])), np.empty(0)
    before = np.array([past])
    return simulate_delayed(model, lambda s: before, t, lambda s: none, lag, t[1], np.ones(1))


@pytest.fixture(scope="module")
def delay_found() -> Discovery:
    return fitted("x,x*x_lag,x_lag", delay=(0.5, 4.0), data=TestDelays().data(), ensemble=5)


class TestDelays:
    LAG = 1.7

    def data(self, noise: float = 0.01) -> tuple[np.ndarray, dict[str, Any]]:
        t = np.linspace(0, 40, 500)
        clean = solved(["x", "x*x_lag"], [0.85, -0.85], 0.3, t, self.LAG)
        return noisy(clean, noise), {"t": t, "feature_names": ["x"]}

    def test_method_of_steps(self) -> None:
        """`x' = -x(t - 1)` with `x = 1` before zero has a polynomial solution."""
        t = np.linspace(0, 2, 41)
        found = solved(["x_lag"], [-1.0], 1.0, t, 1.0)[:, 0]
        truth = np.where(t <= 1, 1 - t, 1 - t + (t - 1) ** 2 / 2)
        assert np.allclose(found, truth, atol=1e-9)

    def test_lag_and_equations(self, delay_found: Discovery) -> None:
        found = delay_found
        assert found.verdict_.level == "established"
        lag, deviation = found.lag_
        assert 0 < deviation < 0.02
        assert abs(lag - self.LAG) < 5 * deviation
        row = coefficients(found)
        assert row["x"] == pytest.approx(0.85, rel=0.02)
        assert row["x x_lag"] == pytest.approx(-0.85, rel=0.02)
        assert f"lag = {lag:.3f}" in found.summary()

    def test_use(self, delay_found: Discovery, tmp_path: Path) -> None:
        found = delay_found
        t = np.linspace(0, 10, 100)
        again = Discovery.load(found.save(tmp_path / "m.json"))
        path = again.simulate([0.3], t)
        X, given = self.data(0.0)
        clean = np.interp(t, given["t"], X[:, 0])
        assert np.abs(path[:, 0] - clean).max() < 0.1
        assert np.allclose(path, again.simulate(lambda s: [0.3], t))
        assert np.allclose(
            again.to_function(lambda s: [0.5])(0.0, [0.8]),
            again.predict(np.array([[0.8]]), inputs=[[0.5]]),
        )
        with pytest.raises(DataError, match="no forecast"):
            found.forecast(3)
        record = (tmp_path / "m.json").read_text().replace('"lag": [', '"lag": [-1, ')
        (tmp_path / "bad.json").write_text(record)
        with pytest.raises(ModelFileError, match="lag"):
            Discovery.load(tmp_path / "bad.json")

    def test_any_lag_of_a_wave(self) -> None:
        t = np.linspace(0, 30, 300)
        X = noisy(np.sin(t)[:, None], 0.01)
        found = fitted("poly:1", delay=(0.3, 5.0), data=(X, {"t": t}))
        assert found.verdict_.doubtful
        curve = np.cumsum(np.cumsum(np.random.default_rng(0).standard_normal((300, 1)), 0), 0)
        for delay in ((0.3, 5.0), 0.3):
            assert fitted("poly:2", delay=delay, data=(curve, {"t": t})).verdict_.doubtful

    def test_range_from_the_data(self) -> None:
        X, given = self.data()
        search = DelaySearch(gather(X, given["t"]), True, np.random.default_rng(0))
        assert search.lag == pytest.approx(self.LAG, abs=0.15)
        assert search.high < 3.0  # rows that only longer lags need as history are fitted

    def test_uncertainty_includes_the_lag(self) -> None:
        """The change of a coefficient with the lag adds to its standard deviation."""
        one, none = np.array([[0.3, 0.4]]), np.zeros((1, 2))
        terms = Expressions(["x", "x/(?K + x)"]).terms(["x"])
        terms = [term.at({"?K": Constant("?K", value=1.0, deviation=0.6)}) for term in terms]
        found = FitResult(none, one, None, none, np.zeros(1), {}, terms=terms)
        wider = found.among(np.array([True, False, True])).widened(
            np.array([[0.4, 0.3]]), np.array([0.8])
        )
        assert np.allclose(wider.deviation, [[0.5, 0.0, 0.5]])
        assert wider.terms[1].constants[0].deviation == pytest.approx(1.0)

    @pytest.mark.slow
    def test_mackey_glass_by_default(self) -> None:
        t = np.arange(0.0, 400.0, 0.25)
        texts = ["x", "x_lag/(1 + x_lag^10)"]
        clean = solved(texts, [-0.1, 0.2], 1.2, t, 17.0)[::4]
        found = fitted(delay=True, data=(noisy(clean, 0.01), {"t": t[::4], "feature_names": ["x"]}))
        assert found.verdict_.level == "established"
        assert found.lag_[0] == pytest.approx(17.0, abs=0.1)
        assert sorted(coefficients(found).values()) == pytest.approx([-0.1, 0.2], rel=0.02)
        (exponent,) = (c for name, c in found.constants_.items() if name.startswith("n"))
        assert abs(exponent.value - 10) < 3.5 * exponent.deviation

    def test_errors(self) -> None:
        X, given = self.data()
        for delay in (-1.0, (3, 1), "long"):
            with pytest.raises(ValueError, match="delay"):
                Discovery(delay=delay).fit(X, **given)
        with pytest.raises(ValueError, match="delay needs"):
            Discovery(delay=1.0, kind="map").fit(X, **given)
        with pytest.raises(DataError, match="longer series"):
            DelaySearch(gather(X[:30], 1.0), 25.0, np.random.default_rng(0))


class TestBounds:
    def test_selection(self) -> None:
        rng = np.random.default_rng(0)
        R, p = rng.standard_normal((60, 4)), np.array([2.0, -1.0, 0.0, 0.5])
        b = R @ p + 0.01 * rng.standard_normal(60)
        low, high = np.full(4, -np.inf), np.array([1.5, np.inf, np.inf, np.inf])
        found = select(R, b, 1.0, low=low, high=high)
        assert found.p[0] == 1.5
        others = np.linalg.lstsq(R[:, 1:], b - 1.5 * R[:, 0], rcond=None)[0]
        assert np.allclose(found.p[1:][found.support[1:]], others[found.support[1:]], atol=0.2)

    def test_fit(self) -> None:
        t = np.linspace(0, 5, 100)
        X = noisy(integrate(lambda t, u: [1.0 - 0.8 * u[0]], [3.0], t), 0.01)
        given = {"t": t, "feature_names": ["x"]}
        active = fitted("poly:1", constraints=[Bounds("x'", "x", -0.7, -0.1)], data=(X, given))
        assert coefficients(active)["x"] == -0.7
        idle = fitted("poly:1", constraints=[Bounds("x'", "x", -1, 0)], data=(X, given))
        free = fitted("poly:1", data=(X, given))
        assert coefficients(idle) == pytest.approx(coefficients(free), rel=1e-6)
        kept = fitted("poly:2", constraints=[Bounds("x'", "x^2", 1e-4, 1)], data=(X, given))
        assert coefficients(kept)["x^2"] >= 1e-4

    def test_text(self) -> None:
        assert Bounds.parse("x' : 0 <= x y <= 2") == Bounds("x'", "x y", 0, 2)
        assert Bounds.parse("x': x < 3") == Bounds("x'", "x", high=3)
        assert Bounds.parse("x': 1e-3 <= x^2") == Bounds("x'", "x^2", low=1e-3)
        with pytest.raises(ValueError, match="expected bounds as in"):
            Bounds.parse("x' : x")
        with pytest.raises(ValueError, match="low < high"):
            Discovery(constraints=[Bounds("x'", "x", 2, 1)]).fit(np.arange(30.0))


class TestWeights:
    def test_bad_part(self) -> None:
        t = np.linspace(0, 8, 300)
        clean = integrate(lambda t, u: [u[1], -u[0]], [1.0, 0.0], t)
        rng = np.random.default_rng(0)
        sigma = np.where(np.arange(300) % 2, 0.3, 0.005)[:, None]
        X = clean + sigma * rng.standard_normal(clean.shape)
        given = {"t": t, "feature_names": ["x", "y"]}
        weighted = fitted("poly:1", data=(X, {**given, "sample_weight": 1 / sigma[:, 0] ** 2}))
        plain = fitted("poly:1", data=(X, given))
        truth = np.array([[0, 0, 1], [0, -1, 0]])
        error = np.abs(weighted.coefficients_ - truth).max()
        assert error < 0.01
        assert error < 0.5 * np.abs(plain.coefficients_ - truth).max()

    def test_zero_is_missing(self) -> None:
        t = np.linspace(0, 5, 80)
        X = noisy(integrate(lambda t, u: [-u[0]], [1.0], t), 0.01)
        gone, w = X.copy(), np.ones(80)
        gone[10:20], w[10:20] = np.nan, 0.0
        one = fitted("poly:1", data=(gone, {"t": t}))
        two = fitted("poly:1", data=(X, {"t": t, "sample_weight": 7 * w}))
        assert np.allclose(one.coefficients_, two.coefficients_, rtol=1e-8)

    def test_column(self) -> None:
        pandas = pytest.importorskip("pandas")
        t = np.linspace(0, 5, 80)
        x = np.exp(-t)
        frame = pandas.DataFrame({"t": t, "x": x, "w": 1 + t})
        found = fitted(
            "poly:1", data=(frame, {"time": "t", "columns": ["x"], "sample_weight": "w"})
        )
        assert found.inputs_ == []
        assert coefficients(found) == pytest.approx({"x": -1.0}, rel=1e-6)

    def test_errors(self) -> None:
        X = np.exp(-np.linspace(0, 2, 30))
        with pytest.raises(DataError, match="sample_weight has shapes"):
            Discovery().fit(X, sample_weight=np.ones(29))
        with pytest.raises(DataError, match="negative"):
            Discovery().fit(X, sample_weight=-np.ones(30))
        with pytest.raises(DataError, match="sample_weight is zero for all values of x"):
            Discovery().fit(X, sample_weight=np.zeros(30), feature_names=["x"])
        with pytest.raises(ValueError, match="sample_weight"):
            Discovery(method="neural").fit(X, sample_weight=np.ones(30))
