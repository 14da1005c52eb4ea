"""Terms with constants inside, and explicit time."""

from __future__ import annotations

import copy
import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
import torch
from tests.discovery.systems import integrate, noisy

from smnn.discovery import (
    Discovery,
    Exponential,
    Expressions,
    Harmonic,
    Hill,
    Library,
    LibraryError,
    Logarithm,
    ModelFileError,
    Polynomial,
    Power,
    parse_library,
)
from smnn.discovery._equations import python_source
from smnn.discovery._fit.data import gather
from smnn.discovery._fit.model import CLASSICAL, OdeModel, StepGrid, flow, flow_with_derivatives
from smnn.discovery._fit.regression import operators, regress
from smnn.discovery._open.equation import EquationSearch, Form
from smnn.discovery._open.ranges import place_of, starts, with_ranges
from smnn.discovery._terms import CompiledTerms, Constant, compile_terms
from smnn.equations import ExpressionError, parse_expression

XY = ["x", "y"]


def valued(texts: list[str], **values: float) -> CompiledTerms:
    """Terms of x, y and t with values of their constants."""
    constants = {f"?{k}": Constant(f"?{k}", value=v) for k, v in values.items()}
    terms = [term.at(constants) for term in Expressions(texts).terms(XY)]
    return compile_terms(terms, [*XY, "t"])


def check_constant(found: Discovery, name: str, truth: float, sigmas: float = 3.0) -> None:
    constant = found.constants_[name]
    assert constant.deviation > 0
    assert abs(constant.value - truth) < sigmas * constant.deviation


def terms_of(found: Discovery) -> list[set[str]]:
    """Terms of every equation, with the constants as letters."""
    return [
        {term.source.replace("?", "") for term, c in zip(found.terms_, row) if c}
        for row in found.coefficients_
    ]


class TestTerms:
    def test_text(self) -> None:
        with pytest.raises(ExpressionError, match="constant to be fitted"):
            parse_expression("x/(?K + x)", ["x"])
        (term,) = Expressions(["3*?V*x/(?K + x)"]).terms(["x"])  # coefficients are dropped
        assert term.name == "x/(?K + x)"
        assert [c.name for c in term.constants] == ["?K"]
        fitted = term.at({"?K": Constant("?K", value=0.312345678)})
        assert fitted.name == "x/(x + 0.3123)"
        assert fitted.expr.subs("x", 1) == pytest.approx(1 / 1.312345678, rel=1e-14)
        assert fitted.source == "x/(?K + x)"
        assert fitted.latex == r"\frac{x}{x + 0.3123}"

    @pytest.mark.parametrize(
        "text", ["x/(?K + x)", "y*x^?p", "exp(-?k*t)*x", "cos(?w*t + ?p)", "x^2/(?K^2 + x^2)"]
    )
    def test_derivatives(self, text: str) -> None:
        compiled = valued([text, "x*y"], K=0.7, p=1.3, k=0.4, w=2.1)
        X = np.random.default_rng(0).uniform(0.5, 2.0, (7, 3))
        for k in range(len(compiled.constants)):
            step = 1e-6 * np.eye(len(compiled.constants))[k]
            up = compiled.at(compiled.theta + step).evaluate(X)
            down = compiled.at(compiled.theta - step).evaluate(X)
            slope = (up - down) / 2e-6
            assert np.allclose(compiled.tangents(X)[..., k], slope, rtol=1e-7, atol=1e-9)
        for j in range(3):
            up, down = (compiled.evaluate(X + s * np.eye(3)[j]) for s in (1e-6, -1e-6))
            assert np.allclose(compiled.jacobian(X)[..., j], (up - down) / 2e-6, atol=1e-7)
        theta = torch.tensor(compiled.theta, requires_grad=True)
        values = compiled.evaluate_torch(torch.tensor(X), theta)
        assert np.allclose(values.detach(), compiled.evaluate(X), rtol=1e-14)
        (gradient,) = torch.autograd.grad(values.sum(), theta)
        assert np.allclose(gradient, compiled.tangents(X).sum((0, 1)))

    def test_steps(self) -> None:
        terms = valued(["x", "y/(?K + x)", "cos(?w*t)"], K=0.7, w=2.0)
        model = OdeModel(terms, np.array([[-0.5, 1.0, 0.3], [0.2, -0.4, 0.0]]))
        Z = np.array([[1.0, 0.5], [0.3, 2.0]])
        U = np.linspace(0, 1, 2 * 3 * 4).reshape(2, 3, 4, 1)
        steps = StepGrid(np.array([0.1, 0.2]), U, CLASSICAL)
        free = np.array([[True, False, True], [False, True, False]])
        B = flow_with_derivatives(model, Z, steps, free, True)[2]
        assert B.shape == (2, 2, 5)
        for k, e in enumerate(1e-6 * np.eye(2)):
            up, down = (
                flow(model._replace(terms=terms.at(terms.theta + s * e)), Z, steps) for s in (1, -1)
            )
            assert np.allclose(B[..., 3 + k], (up - down) / 2e-6, atol=1e-9)

    def test_operators_are_the_regression(self) -> None:
        t = np.linspace(0, 5, 130)
        Y = np.stack([np.sin(t), np.cos(t)], 1)
        Y[7, 0] = np.nan
        nodes = gather(Y, t)
        phi = np.stack([np.ones_like(t), np.cos(t), t**2], 1)
        whole = regress(nodes, phi, 1)
        for (operator, y), R, b in zip(operators(nodes, 1), whole.R, whole.b):
            A = operator @ phi
            assert np.allclose(A.T @ A, R.T @ R, atol=1e-8)
            assert np.allclose(A.T @ y, R.T @ b, atol=1e-8)


class TestLibraries:
    def test_classes(self) -> None:
        def sources(library: Library, names: list[str]) -> list[str]:
            return [term.source for term in library.terms(names)]

        assert sources(Hill(powers=(1,)), ["x"]) == ["x/(?K_0_x + x)", "1/(?K_1_x + x)"]
        assert len(Hill(powers=(2,)).terms(XY)) == 12  # three forms, alone and times the other
        assert sources(Exponential("t", interaction=False), ["x"]) == [
            "exp(-?k_0_t*t)", "exp(?k_1_t*t)",
        ]  # fmt: skip
        assert sources(Power(interaction=False), ["x"]) == ["x^?p_0_x"]
        assert sources(Logarithm(interaction=False), ["x"]) == ["log(x)", "log(?c_1_x + x)"]
        assert len(Harmonic(of=["x"]).terms(XY)) == 6
        names = [c.name for t in parse_library("open").terms(XY) for c in t.constants]
        assert len(set(names)) == len(names)  # nothing is shared by accident

    def test_json_and_text(self) -> None:
        text = "poly:2,hill:1:2,harmonic:t,x/(?K + x)"
        library = parse_library(text)
        assert library == Polynomial(2) + Hill(powers=(1, 2)) + Harmonic(("t",)) + Expressions(
            ["x/(?K + x)"]
        )
        for one in (library, Expressions(["x^?p"], {"p": (0.5, 3)}), parse_library("open")):
            assert Library.from_json(json.dumps(one.to_json())) == one
        assert parse_library("poly:1*hill:1").terms(["x"])[1].constants

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Expressions(["x/(?K + x)"], {"L": (0, 1)}), "not a constant"),
            (lambda: Expressions(["x/(?K + x)"], {"K": (2, 1)}), "increasing"),
            (lambda: Hill(powers=()), "powers"),
            (lambda: Hill("z").terms(XY), "expected variables out of x, y, or t"),
            (lambda: parse_library("hil:1"), "hill"),
        ],
    )
    def test_errors(self, make: Any, message: str) -> None:
        with pytest.raises(LibraryError, match=message):
            make()

    def test_ranges(self) -> None:
        def place(text: str, name: str) -> tuple[str, str]:
            (term,) = Expressions([text]).terms(XY)
            found = place_of(f"?{name}", term.formula)
            return found.role, found.variable

        assert place("y*x/(?K + x)", "K") == ("level", "x")
        assert place("x^2/(?K^2 + x^2)", "K") == ("level", "x")
        assert place("exp(-?k*t)*x", "k") == ("rate", "t")
        assert place("cos(?w*t + ?p)", "w") == ("frequency", "t")
        assert place("cos(?w*t + ?p)", "p") == ("phase", "t")
        assert place("1/(1 + exp(?a - ?b*y))", "a") == ("shift", "y")
        assert place("x^?p", "p") == ("exponent", "x")
        X = np.column_stack([np.linspace(0, 4, 50), np.ones(50)])
        (term,) = Expressions(["x/(?K + x)"], {"K": (0.5, 0.9)}).terms(XY)
        ranged = with_ranges(term, XY, X, 0.1)
        assert ranged.constants[0].low == 0.5
        assert ((starts(ranged, XY, X) >= 0.5) & (starts(ranged, XY, X) <= 0.9)).all()


T = np.linspace(0, 3, 300)
UPTAKE = integrate(lambda t, u: [-1.5 * u[0] / (0.3 + u[0])], [2.0], T)


class TestDiscovery:
    def test_michaelis_menten_by_default(self, tmp_path: Path) -> None:
        found = Discovery().fit(noisy(UPTAKE, 0.01), t=T)
        assert terms_of(found) == [{"x/(K + x)"}]
        check_constant(found, "K", 0.3)
        assert found.coefficients_[found.coefficients_ != 0] == pytest.approx(-1.5, rel=0.01)
        assert found.verdict_.level == "established"
        tried = found.report_["tried"]
        assert [one["verdict"] for one in tried] == ["not supported", "established"]
        assert "K = 0.296" in found.summary()
        doubtful = replace(found.verdict_.equations["x"], level="not determined", chosen=0.0)
        hidden = copy.copy(found)
        hidden.verdict_ = replace(found.verdict_, equations={"x": doubtful})
        assert not re.search(r"-1\.5|K = ", hidden.summary())
        value = found.constants_["K"].value
        equation = found.equations("sympy")[0].rhs
        assert equation.atoms(sympy.Float) & {sympy.Float(value, 17)}
        loaded = Discovery.load(found.save(tmp_path / "model.json"))
        assert loaded.equations() == found.equations()
        assert loaded.constants_ == found.constants_
        ends = [m.simulate([2.0], T)[-1, 0] for m in (found, loaded)]
        assert ends[0] == ends[1] == pytest.approx(UPTAKE[-1, 0], abs=0.02)
        record = json.loads((tmp_path / "model.json").read_text())
        for bad in ([], [{"name": "?K"}], [{"name": "?K", "value": "x"}]):
            (tmp_path / "bad.json").write_text(json.dumps(record | {"constants": bad}))
            with pytest.raises(ModelFileError, match="constants"):
                Discovery.load(tmp_path / "bad.json")

    def test_polynomials_stay_polynomials(self) -> None:
        data = [
            integrate(lambda t, u: [0.8 * u[0] * (1 - u[0] / 10) * (u[0] / 2 - 1)], [x], T * 2)
            for x in (2.3, 1.8, 14.0)
        ]
        found = Discovery().fit([noisy(x, 0.01, i) for i, x in enumerate(data)], t=[T * 2] * 3)
        assert terms_of(found) == [{"x", "x^2", "x^3"}]
        assert len(found.report_["tried"]) == 1  # established, so nothing else was tried

    def test_equal_terms_are_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The quotient replaces `1` and `1/(K + x)` also if the regression has not found it."""
        search = EquationSearch.search

        def without(self: EquationSearch) -> list[Form]:
            return [f for f in search(self) if {t.name[:2] for t in f.terms} != {"x/"}]

        monkeypatch.setattr(EquationSearch, "search", without)
        library = Polynomial(1) + Hill(powers=(1,))
        found = Discovery(library, ensemble=0).fit(noisy(UPTAKE, 0.01), t=T)
        assert terms_of(found) == [{"x/(K + x)"}]
        check_constant(found, "K", 0.3)

    def test_disguised_polynomials_are_replaced(self) -> None:
        """`a*exp(k*a)` with a small `k` and a polynomial take the place of `a` in the search."""
        t = np.linspace(0, 10, 200)
        runs = [
            integrate(lambda t, u: [4 / (1 + u[1] ** 2) - u[0], 4 / (1 + u[0] ** 2) - u[1]], z, t)
            for z in ([0.5, 2.0], [3.0, 1.0], [2.0, 2.2])
        ]
        scale, rng = np.concatenate(runs).std(0), np.random.default_rng(1)
        data = [x + 0.01 * scale * rng.standard_normal(x.shape) for x in runs]
        found = Discovery("poly:2,open", ensemble=0).fit(data, t=[t] * 3, feature_names=XY)
        assert terms_of(found) == [{"x", "1/(K^2 + y^2)"}, {"y", "1/(K2^2 + x^2)"}]

    def test_given_constants_are_shared(self) -> None:
        t = np.linspace(0, 40, 400)
        X = integrate(
            lambda t, u: [
                u[0] * (1 - u[0] / 3) - 1.2 * u[0] * u[1] / (0.5 + u[0]),
                0.9 * u[0] * u[1] / (0.5 + u[0]) - 0.4 * u[1],
            ],
            [1.0, 0.5], t,
        )  # fmt: skip
        library = Polynomial(2) + Expressions(["x*y/(?K + x)"], {"K": (0.05, 5)})
        found = Discovery(library).fit(noisy(X, 0.01), t=t)
        assert terms_of(found) == [{"x", "x^2", "x*y/(K + x)"}, {"y", "x*y/(K + x)"}]
        check_constant(found, "K", 0.5)
        assert list(found.constants_) == ["K"]
        assert (found.constants_["K"].low, found.constants_["K"].high) == (0.05, 5)

    def test_forced_oscillator_by_default(self) -> None:
        t = np.linspace(0, 30, 400)
        X = integrate(
            lambda t, u: [u[1], -u[0] - 0.2 * u[1] + 0.8 * np.cos(1.7 * t)], [1.0, 0.0], t
        )
        found = Discovery().fit(noisy(X, 0.01), t=t)
        assert terms_of(found) == [{"y"}, {"x", "y", "cos(w*t)"}]
        check_constant(found, "w", 1.7)
        assert found.verdict_.level == "established"
        # the time is part of every use of the equations
        z, at = X[40], float(t[40])
        slope = found.predict(X[40:41], t=t[40:41])[0]
        assert slope[1] == pytest.approx(-z[0] - 0.2 * z[1] + 0.8 * np.cos(1.7 * at), abs=0.02)
        assert np.allclose(found.to_function()(at, z), slope)
        module = found.to_torch()
        assert np.allclose(module(at, torch.tensor(X[40:41])).detach(), slope)
        module(at, torch.tensor(X[40:41])).sum().backward()
        expected = -0.8 * at * np.sin(1.7 * at)
        assert float(module.constants.grad) == pytest.approx(expected, rel=0.02)
        assert np.abs(found.simulate(X[0], t) - X).max() < 0.05
        assert np.abs(found.forecast(3).mean[0] - X[-1]).max() < 0.2
        source = python_source(found.state_names_, [], found.terms_, found.coefficients_)
        assert source is not None
        scope: dict[str, Any] = {}
        exec(source, scope)
        assert np.allclose(scope["f"](at, z), slope)
        symbol = sympy.Symbol("t")
        assert found.equations("sympy")[1].rhs.subs({symbol: 0.0}).has(sympy.Function("x")(0.0))
        with pytest.raises(ValueError, match="depend on the time"):
            found.predict(X[:5])

    def test_several_experiments_determine_a_decaying_input(self) -> None:
        t = np.linspace(0, 15, 150)
        runs = [
            noisy(integrate(lambda t, u: [-0.5 * u[0] + 2 * np.exp(-0.25 * t)], [x], t), 0.01)
            for x in (0.2, 5.0)
        ]
        found = Discovery(Polynomial(2) + Exponential("t")).fit(runs, t=[t, t])
        assert terms_of(found) == [{"x", "exp(-k*t)"}]
        check_constant(found, "k", 0.25)

    def test_time_without_constants(self) -> None:
        t = np.linspace(0, 10, 200)
        X = integrate(lambda t, u: [-0.5 * u[0] + np.sin(2 * t)], [1.0], t)
        found = Discovery("poly:1,sin(2*t)", ensemble=0).fit(X, t=t)
        assert terms_of(found) == [{"x", "sin(2*t)"}]
        assert found.coefficients_[0] == pytest.approx([0.0, -0.5, 1.0], abs=1e-5)

    def test_other_methods(self) -> None:
        with pytest.raises(ValueError, match="expected method='refine'"):
            Discovery("x/(?K + x)", method="regression").fit(UPTAKE, t=T)

    def test_unrelated_data_are_not_established(self) -> None:
        rng = np.random.default_rng(3)
        X = np.cumsum(rng.standard_normal((60, 2)), 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = Discovery().fit(X)
        assert found.verdict_.doubtful
