"""Which candidates are tried where none are named."""

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from smnn.discovery import DataError, Discovery, Polynomial, Trigonometric
from smnn.discovery._defaults import affordable, climb, libraries_for
from smnn.discovery._fit.pipeline import Outcome

SWING = Polynomial(2) + Trigonometric()


def integrate(f: Any, x0: list[float], t: np.ndarray) -> np.ndarray:
    return solve_ivp(f, (t[0], t[-1]), x0, t_eval=t, rtol=1e-9, atol=1e-9).y.T


def terms_of(found: Discovery) -> list[set[str]]:
    return [{t.name for t, c in zip(found.terms_, row) if c} for row in found.coefficients_]


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
        assert found.library_ == SWING
        assert terms_of(found) == [{"y"}, {"y", "sin(x)"}]
        again = Discovery.load(found.save(tmp_path / "model.json"))
        assert again.library_ == SWING
        assert again.equations() == found.equations()

    def test_who_names_terms_means_degree_two(self) -> None:
        found = Discovery(ensemble=0, fixed={"x'": {"y": 1.0}}).fit(VAN_DER_POL[:200], t=T[:200])
        assert found.library_ == Polynomial(2)
        assert not found.report_["holds"]


def test_libraries_by_size() -> None:
    assert libraries_for(None, 3, 1) == [Polynomial(2), Polynomial(3), SWING]
    assert libraries_for(None, 1, 1) == [Polynomial(3), SWING]
    assert libraries_for(None, 2, 2) == [Polynomial(3), SWING]
    assert libraries_for("poly:1", 3, 1) == [Polynomial(1)]
    with pytest.raises(ValueError, match=r"library=7; expected a library"):
        libraries_for(7, 3, 1)  # type: ignore[arg-type]


def test_few_data_are_no_ground_for_many_terms() -> None:
    three = libraries_for(None, 2, 1)
    assert affordable(three, 2, 2, 100) == [Polynomial(2)]
    assert affordable(three, 2, 2, 200) == three
    assert affordable(libraries_for(None, 8, 1), 8, 8, 10**6) == [Polynomial(2)]


def outcome(evidence: float, holds: bool = False) -> Outcome:
    none = np.zeros((1, 1))
    told = {"evidence": 100.0 * evidence, "values": 100, "holds": holds, "settled": holds}
    return Outcome(none, none, None, none, np.zeros(1), told)


class TestClimb:
    """With fits that are made up: what each library would come to."""

    LIBRARIES = (Polynomial(2), Polynomial(3), SWING)

    def climb(self, *found: Outcome | DataError) -> tuple[Any, Outcome, list[Any]]:
        made = dict(zip(self.LIBRARIES, found))
        asked: list[Any] = []

        def attempt(nodes: Any, library: Any, thorough: bool) -> Outcome:
            asked.append((library, thorough))
            warnings.warn(f"of {library}", stacklevel=1)
            if isinstance(made[library], DataError):
                raise made[library]
            return made[library]

        nodes = SimpleNamespace(stretches=lambda most, length: (nodes, None))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            library, best = climb(self.LIBRARIES, nodes, attempt)
        assert [str(w.message) for w in caught] == [f"of {library}"]  # not those of the others
        return library, best, asked

    def test_the_first_that_holds(self) -> None:
        library, _, asked = self.climb(outcome(1, True), outcome(9, True), outcome(9, True))
        assert library == Polynomial(2)
        assert asked == [(Polynomial(2), False)]
        library, _, asked = self.climb(outcome(1), outcome(2, True), outcome(9, True))
        assert library == Polynomial(3)
        assert (SWING, False) not in asked

    def test_one_that_holds_needs_to_be_more_likely(self) -> None:
        assert self.climb(outcome(1), outcome(0.9, True), outcome(0))[0] == Polynomial(2)
        assert self.climb(outcome(1), outcome(1.1, True), outcome(0))[0] == Polynomial(3)

    def test_one_that_does_not_hold_needs_to_be_far_better(self) -> None:
        assert self.climb(outcome(1), outcome(1.4), outcome(1.2))[0] == Polynomial(2)
        library, _, asked = self.climb(outcome(1), outcome(1.4), outcome(1.6))
        assert library == SWING
        assert asked[-1] == (SWING, True)  # once more, with everything

    def test_fits_that_break_down(self) -> None:
        assert self.climb(outcome(1), DataError("no"), DataError("no"))[0] == Polynomial(2)
        assert self.climb(DataError("no"), outcome(1), DataError("no"))[0] == Polynomial(3)
        with pytest.raises(DataError, match="first"):
            self.climb(DataError("first"), DataError("no"), DataError("no"))
