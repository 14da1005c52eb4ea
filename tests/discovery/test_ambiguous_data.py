"""Collinear terms, outliers, and wrong fixed coefficients."""

import warnings

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from discovery.systems import integrate, noisy, terms_of
from smnn.discovery import Discovery, DiscoveryWarning
from smnn.discovery._arrays import triangle_of
from smnn.discovery._fit.selection import select

T = np.arange(0, 20, 0.1)
PREY = integrate(
    lambda t, u: [1.1 * u[0] - 0.4 * u[0] * u[1], -0.4 * u[1] + 0.1 * u[0] * u[1]], [10, 5], T
)
LOTKA_VOLTERRA = [{"a", "a b"}, {"b", "a b"}]


class TestSelection:
    def test_dependent_columns(self) -> None:
        """Four columns add up to a fifth, so the target has many representations."""
        rng = np.random.default_rng(0)
        A = rng.random((60, 4))
        columns = np.column_stack([A.sum(1), A, A * A.sum(1)[:, None]])
        b = 2.0 * A[:, 1] - 3.0 * A[:, 2] + 1e-6 * rng.standard_normal(60)
        R = triangle_of(np.column_stack([columns, b]))
        found = select(R[:, :9], R[:, 9], 10.0 * 1e-12)
        np.testing.assert_array_equal(np.flatnonzero(found.support), [2, 3])

    def test_simpler_one_of_equal_terms(self) -> None:
        rng = np.random.default_rng(1)
        x = rng.standard_normal(50)
        R = triangle_of(np.column_stack([20 * x, x, rng.standard_normal(50), x]))
        found = select(R[:, :3], R[:, 3], 1.0, complexity=np.array([3.0, 1.0, 1.0]))
        np.testing.assert_array_equal(found.support, [False, True, False])
        found = select(R[:, :3], R[:, 3], 1.0, complexity=np.array([1.0, 3.0, 1.0]))
        np.testing.assert_array_equal(found.support, [True, False, False])


def test_conserved_total_in_clean_data() -> None:
    """S + I + R = 1 gives every equation many forms; the shortest ones are expected."""
    t = np.arange(0, 60, 1.0)
    X = integrate(
        lambda t, u: [-0.5 * u[0] * u[1], 0.5 * u[0] * u[1] - 0.15 * u[1], 0.15 * u[1]],
        [0.99, 0.01, 0.0], t,
    )  # fmt: skip
    found = Discovery(ensemble=0).fit(X, t=t, feature_names=["S", "I", "R"])
    assert terms_of(found) == [{"S I"}, {"I", "S I"}, {"I"}]
    assert np.abs(found.coefficients_[found.coefficients_ != 0]) == pytest.approx(
        [0.5, 0.15, 0.5, 0.15], rel=1e-6
    )


def test_reversible_reaction() -> None:
    """A + B = 1 exactly, so any multiple of 1 - (A + B)^2 could be added."""
    t = np.linspace(0, 10, 80)
    A = 0.3 + 0.7 * np.exp(-0.9 * t)
    found = Discovery(ensemble=0).fit(np.c_[A, 1 - A], t=t, feature_names=["A", "B"])
    assert all(len(terms) <= 2 for terms in terms_of(found))
    assert np.abs(found.coefficients_).max() < 2.0
    slopes = found.predict(np.c_[A, 1 - A])
    np.testing.assert_allclose(slopes, np.c_[-0.63 * A / 0.7 + 0.27, 0.9 * A - 0.27], atol=1e-6)


def test_epidemic_counts() -> None:
    """Integer counts in a constant population."""

    def rate(t: float, u: np.ndarray) -> list[float]:
        caught = 0.5e-6 * u[0] * u[1]
        return [-caught, caught - 0.1 * u[1], 0.1 * u[1]]

    t = np.arange(81.0)
    X = integrate(rate, [999000, 1000, 0], t)
    found = Discovery(ensemble=0).fit(X.round(), t=t, feature_names=["S", "I", "R"])
    assert terms_of(found) == [{"S I"}, {"I", "S I"}, {"I"}]


def test_small_variation_on_a_large_offset() -> None:
    """1, T and T^2 agree to many digits, but all of them are needed."""
    t = np.linspace(0, 10, 80)
    T = 1000 + 1 / (1 + 9 * np.exp(-t))  # T' = x - x^2 with x = T - 1000
    found = Discovery(library="poly:2", ensemble=0).fit(T[:, None], t=t, feature_names=["T"])
    np.testing.assert_allclose(found.coefficients_[0], [-1.001e6, 2001.0, -1.0], rtol=1e-3)


@pytest.mark.parametrize("seed", [0, 4])
def test_short_decay_with_two_compartments(seed: int) -> None:
    """Sixty points that quadratic terms fit as well."""
    t = 0.2 * np.arange(60)
    X = integrate(lambda t, u: [-0.9 * u[0] + 0.3 * u[1], 0.5 * u[0] - 0.3 * u[1]], [10.0, 0.0], t)
    found = Discovery(ensemble=0).fit(noisy(X, 0.03, seed), t=t, feature_names=["c", "p"])
    assert terms_of(found) == [{"c", "p"}, {"c", "p"}]


def test_pure_noise_column() -> None:
    rng = np.random.default_rng(3)
    X = np.column_stack([noisy(PREY, 0.01), 20 + rng.standard_normal(len(T))])
    found = Discovery(ensemble=0).fit(X, t=T, feature_names=["a", "b", "temperature"])
    assert terms_of(found) == [*LOTKA_VOLTERRA, set()]


class TestOutliers:
    def test_are_treated_as_missing(self) -> None:
        X = noisy(PREY, 0.01)
        for row, column in ((20, 0), (77, 1), (150, 0)):
            X[row, column] += 8.0
        with pytest.warns(
            DiscoveryWarning, match=r"outliers were treated as missing; the first is a ="
        ):
            found = Discovery(ensemble=0).fit(X, t=T, feature_names=["a", "b"])
        assert terms_of(found) == LOTKA_VOLTERRA
        values = found.coefficients_[found.coefficients_ != 0]
        np.testing.assert_allclose(values, [1.1, -0.4, -0.4, 0.1], rtol=0.01)
        assert (found.noise_ < 0.015 * PREY.std(0)).all()

    def test_ordinary_noise_has_none(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Discovery(ensemble=0).fit(noisy(PREY, 0.05), t=T, feature_names=["a", "b"])

    def test_wrong_equations_have_none(self) -> None:
        """x = sin t has no first-order equation without the time; its values are no outliers."""
        t = np.arange(0, 20, 0.1)
        with pytest.warns(DiscoveryWarning):
            found = Discovery("poly:3", ensemble=0).fit(np.sin(t), t=t)
        assert not any("outlier" in text for text in found.warnings_)

    def test_clean_peaks_are_kept(self) -> None:
        """Half of the rows of a Chen-Lee attractor, where some peaks have no close neighbour."""

        def rate(t: float, u: np.ndarray) -> list[float]:
            x, y, z = u
            return [5 * x - y * z, x * z - 10 * y, x * y / 3 - 3.8 * z]

        t = np.linspace(0, 10, 512)
        tolerances = {"rtol": 1e-5, "atol": 1e-7}
        start = [15.0, -15.0, -15.0]
        X = solve_ivp(rate, (0, 10), start, method="LSODA", t_eval=t, **tolerances).y.T
        kept = np.sort(np.random.default_rng(0).choice(512, 256, replace=False))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = Discovery(library="poly:2", ensemble=0).fit(X[kept], t=t[kept])
        assert terms_of(found) == [{"x", "y z"}, {"y", "x z"}, {"z", "x y"}]

    def test_several_rounds_warn_once(self) -> None:
        X = noisy(PREY, 0.01)
        X[20, 0] += 8.0
        found = Discovery(ensemble=0)
        with pytest.warns(DiscoveryWarning, match="one outlier was treated as missing; the first"):
            found.fit(X, t=T)
        assert len(found.warnings_) == 1
        assert found.table_ is not None
        np.testing.assert_array_equal(found.table_.values[0], X)


def test_weak_terms_are_reported() -> None:
    """A term of 0.05 % of the right-hand side, below the threshold of 0.1 %."""
    t = np.linspace(0, 5, 200)
    X = integrate(lambda t, x: [-x[0] + 0.0007 * x[0] ** 2], [1.0], t)
    found = Discovery(library="poly:2", ensemble=0).fit(X, t=t)
    assert terms_of(found) == [{"x"}]
    (weak,) = found.report_["weak_terms"]
    assert (weak["equation"], weak["term"]) == ("x", "x^2")
    assert 0.0 < weak["share"] < 1e-3
    kept = Discovery(library="poly:2", threshold=0.0, ensemble=0).fit(X, t=t)
    assert terms_of(kept) == [{"x", "x^2"}]
    assert kept.report_["weak_terms"] == []


class TestFixedCoefficients:
    @pytest.mark.parametrize("value", [1.12, -1.0])
    def test_wrong_values_are_reported(self, value: float) -> None:
        with pytest.warns(
            UserWarning, match=rf"a is fixed at {value:g}; its estimate is about 1\.1"
        ):
            Discovery(fixed={"a'": {"a": value}}, ensemble=0).fit(
                noisy(PREY, 0.01), t=T, feature_names=["a", "b"]
            )

    @pytest.mark.parametrize("noise", [0.0, 0.01, 0.05])
    def test_right_values_are_not(self, noise: float) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = Discovery(fixed={"a'": {"a": 1.1}}, ensemble=0).fit(
                noisy(PREY, noise), t=T, feature_names=["a", "b"]
            )
        assert terms_of(found) == LOTKA_VOLTERRA


def test_networks_train_for_a_single_step() -> None:
    found = Discovery(
        method="neural", neural={"cycles": 1, "steps": 1, "batch": 4, "width": 8, "window": 10}
    ).fit(PREY, t=T)
    assert len(found.report_["losses"]) == 1


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_very_few_rows_cause_no_warning_of_numpy() -> None:
    """The model that is fitted first may overflow at every row."""
    t = np.linspace(0, 10, 60)
    X = np.c_[np.cos(t), np.sin(t)] + 0.01 * np.random.default_rng(0).standard_normal((60, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DiscoveryWarning)
        Discovery(ensemble=0).fit(X[:8], t[:8])
