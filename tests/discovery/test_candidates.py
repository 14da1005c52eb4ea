"""Automatic choice of the library and the order."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from discovery.systems import integrate, noisy, terms_of
from smnn.discovery import (
    DataError,
    Discovery,
    DiscoveryWarning,
    Polynomial,
    Trigonometric,
    VerdictWarning,
)
from smnn.discovery._candidates import affordable, best_library, libraries_for
from smnn.discovery._fit.data import FitResult

SINES = Polynomial(2) + Trigonometric()
PRODUCTS = Polynomial(1) + Polynomial(1) * Trigonometric() + Trigonometric() * Trigonometric()


T = np.arange(0, 20, 0.05)
VAN_DER_POL = integrate(lambda t, u: [u[1], (1 - u[0] ** 2) * u[1] - u[0]], [2.0, 0.0], T)
PENDULUM = integrate(lambda t, u: [u[1], -9.8 * np.sin(u[0]) - 0.2 * u[1]], [2.0, 0.0], T)
SPIRAL = integrate(lambda t, u: [-0.1 * u[0] + u[1], -u[0] - 0.1 * u[1]], [2.0, 0.0], T)


class TestFits:
    def test_degree_two_where_it_holds(self) -> None:
        found = Discovery(ensemble=0).fit(SPIRAL, t=T)
        assert found.library_ == Polynomial(2)
        assert found.report_["holds"]
        assert max(found.report_["missed"]) < 1e-6

    @pytest.mark.parametrize("noise", [0.0, 0.02])
    def test_degree_three(self, noise: float) -> None:
        rough = noise * np.random.default_rng(0).standard_normal(VAN_DER_POL.shape)
        found = Discovery(ensemble=0).fit(VAN_DER_POL + rough, t=T)
        assert found.library_ == Polynomial(3)
        assert terms_of(found) == [{"y"}, {"x", "y", "x^2 y"}]

    def test_sines(self, tmp_path: Any) -> None:
        found = Discovery(ensemble=0).fit(PENDULUM, t=T)
        assert found.library_ == SINES
        assert terms_of(found) == [{"y"}, {"y", "sin(x)"}]
        again = Discovery.load(found.save(tmp_path / "model.json"))
        assert again.library_ == SINES
        assert again.equations() == found.equations()

    def test_sines_where_a_cubic_holds_as_well(self) -> None:
        t = np.linspace(0, 10, 200)
        X = integrate(lambda t, u: [u[1], -0.9 * np.sin(u[0])], [-1.9, 0.0], t)
        found = Discovery(ensemble=0).fit(noisy(X, 0.01), t=t)
        assert terms_of(found) == [{"y"}, {"sin(x)"}]

    def test_constraints_refer_to_degree_two(self) -> None:
        found = Discovery(ensemble=0, fixed={"x'": {"y": 1.0}})
        with pytest.warns(VerdictWarning, match="not supported: "):
            found.fit(VAN_DER_POL[:200], t=T[:200])
        assert found.library_ == Polynomial(2)
        assert not found.report_["holds"]


def test_libraries_by_size() -> None:
    assert libraries_for(None, 3, 1) == [Polynomial(2), Polynomial(3), SINES, PRODUCTS]
    assert libraries_for(None, 1, 1) == [Polynomial(3), SINES, PRODUCTS]
    assert libraries_for(None, 2, 2) == [Polynomial(3), SINES, PRODUCTS]
    assert libraries_for("poly:1", 3, 1) == [Polynomial(1)]
    with pytest.raises(ValueError, match=r"library=7; expected a library"):
        libraries_for(7, 3, 1)  # type: ignore[arg-type]


def test_large_libraries_need_more_data() -> None:
    four = libraries_for(None, 2, 1)
    assert affordable(four, 2, 2, 100) == [Polynomial(2)]
    assert affordable(four, 2, 2, 200) == four[:3]
    assert affordable(four, 2, 2, 1000) == four
    assert affordable(libraries_for(None, 8, 1), 8, 8, 10**6) == [Polynomial(2)]


def result(evidence: float, holds: bool = False) -> FitResult:
    none = np.zeros((1, 1))
    diagnostics = {"evidence": 100.0 * evidence, "values": 100, "holds": holds, "settled": holds}
    return FitResult(none, none, None, none, np.zeros(1), diagnostics)


class TestBestLibrary:
    """With given results for every library."""

    LIBRARIES = (Polynomial(2), Polynomial(3), SINES)

    def best(self, *found: FitResult | DataError) -> tuple[Any, list[Any]]:
        results = dict(zip(self.LIBRARIES, found))
        fits: list[Any] = []

        def fit(nodes: Any, library: Any, thorough: bool) -> FitResult:
            fits.append((library, thorough))
            given = results[library]
            if isinstance(given, DataError):
                raise given
            return given

        nodes: Any = SimpleNamespace(segments=lambda most, length: (nodes, None))
        library, chosen = best_library(self.LIBRARIES, nodes, fit)
        assert chosen is results[library]
        return library, fits

    def test_smallest_library_if_it_holds(self) -> None:
        library, fits = self.best(result(1, True), result(9, True), result(9, True))
        assert library == Polynomial(2)
        assert fits == [(Polynomial(2), False)]

    def test_more_likely_of_the_larger_libraries_that_hold(self) -> None:
        assert self.best(result(1), result(2, True), result(9, True))[0] == SINES
        assert self.best(result(1), result(3, True), result(2.9, True))[0] == Polynomial(3)

    def test_larger_library_that_holds_must_be_more_likely(self) -> None:
        assert self.best(result(1), result(0.9, True), result(0))[0] == Polynomial(2)
        assert self.best(result(1), result(1.1, True), result(0))[0] == Polynomial(3)

    def test_larger_library_that_does_not_hold_must_be_far_better(self) -> None:
        assert self.best(result(1), result(1.4), result(1.2))[0] == Polynomial(2)
        library, fits = self.best(result(1), result(1.4), result(1.6))
        assert library == SINES
        assert fits[-1] == (SINES, True)  # repeated with the thorough search

    def test_failed_fits(self) -> None:
        assert self.best(result(1), DataError("no"), DataError("no"))[0] == Polynomial(2)
        assert self.best(DataError("no"), result(1), DataError("no"))[0] == Polynomial(3)
        with pytest.raises(DataError, match="first"):
            self.best(DataError("first"), DataError("no"), DataError("no"))


class TestOrder:
    POSITION = np.exp(-0.1 * T) * np.cos(2 * T)

    @pytest.mark.parametrize("order", ["auto", None])
    def test_second_order_where_first_order_fails(self, order: str | None) -> None:
        with pytest.warns(DiscoveryWarning, match="are of second order, because those of first"):
            found = Discovery(order=order, ensemble=0).fit(self.POSITION, t=T)
        assert found.order_ == 2
        assert terms_of(found) == [{"x", "x'"}]
        assert found.predict(np.array([[1.0, 0.0]]))[0, 0] == pytest.approx(-4.01, abs=0.01)

    def test_first_order_where_it_holds_or_terms_are_named(self) -> None:
        assert Discovery(order="auto", ensemble=0).fit(SPIRAL, t=T).order_ == 1
        found = Discovery(order="auto", fixed={"x'": {"1": 0.0}}, ensemble=0)
        with pytest.warns(VerdictWarning, match="not supported: x': a plain curve"):
            found.fit(self.POSITION, t=T)
        assert found.order_ == 1

    def test_saved(self, tmp_path: Path) -> None:
        found = Discovery(order="auto", method="regression").fit(SPIRAL, t=T)
        assert Discovery.load(found.save(tmp_path / "model.json")).order == 1
