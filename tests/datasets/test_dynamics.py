"""The systems: equations and right-hand sides agree, and data satisfy them; measured data."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smnn.datasets.dynamics import (
    HARE_LYNX,
    LORENZ,
    SYSTEMS,
    Basis,
    Series,
    System,
    add_noise,
    canonical,
    evaluate,
    find_system,
    paper_lorenz,
    simulate,
)

pytest.importorskip("scipy")
systems = pytest.mark.parametrize("system", SYSTEMS, ids=lambda s: s.name)


@systems
def test_true_coefficients_are_the_right_hand_side(system: System) -> None:
    generator = np.random.default_rng(0)
    states = 3 * generator.standard_normal((200, len(system.states)))
    u = generator.standard_normal((200, len(system.inputs)))
    rows = np.hstack([states, u]).tolist()
    expected = np.array([system.rhs(0.0, row) for row in rows])
    values = dict(zip((*system.states, *system.inputs), np.hstack([states, u]).T, strict=True))
    for target, want in zip(system.targets, expected.T, strict=True):
        got = sum(a * evaluate(name, values) for name, a in system.truth[target].items())
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-11)


@systems
def test_truth_is_written_in_the_terms_of_the_library(system: System) -> None:
    names = (*system.states, *system.inputs)
    assert set(system.truth) == set(system.targets)
    for equation in system.truth.values():
        assert set(equation) <= set(system.terms)
        assert all(name == canonical(name, names) and a != 0 for name, a in equation.items())
    assert len(set(system.terms)) == len(system.terms)
    assert all(len(start) == len(system.states) for start in system.starts)


def test_all_kinds_of_systems_are_included() -> None:
    assert len(SYSTEMS) >= 18
    assert len({s.name for s in SYSTEMS}) == len(SYSTEMS)
    assert {s.order for s in SYSTEMS} == {1, 2, 3}
    assert any(s.inputs for s in SYSTEMS)
    assert any(s.basis.frequencies for s in SYSTEMS)
    assert max(len(s.starts) for s in SYSTEMS) >= 20


@systems
def test_samples_follow_from_each_other(system: System) -> None:
    """Comparison with an independent method with much smaller steps."""
    n = 12
    series = simulate(system, n=n)[-1]
    start = np.array(system.starts[-1], dtype=float)
    states, V = [start], len(system.variables)

    def slope(t: float, s: np.ndarray) -> np.ndarray:
        u = [] if system.drive is None else list(system.drive(t))
        return np.concatenate([s[V:], system.rhs(t, [*s.tolist(), *u])])

    for k in range(n - 1):
        x, parts = states[-1], 120
        h = system.dt / parts
        for j in range(parts):  # Runge and Kutta of order four
            t = k * system.dt + j * h
            a = slope(t, x)
            b = slope(t + h / 2, x + h / 2 * a)
            c = slope(t + h / 2, x + h / 2 * b)
            x = x + h / 6 * (a + 2 * b + 2 * c + slope(t + h, x + h * c))
        states.append(x)
    expected = np.stack(states)[:, :V]
    np.testing.assert_allclose(series.x, expected, rtol=0, atol=2e-10 * np.abs(expected).max())
    np.testing.assert_allclose(series.t, np.arange(n) * system.dt, rtol=1e-14)


def test_lorenz_by_its_taylor_series() -> None:
    """Each sample follows from the previous one to 1e-12 of the size of the attractor."""
    (series,) = simulate(LORENZ, n=2000)
    now = series.x[:-1].astype(np.longdouble)
    c = [[now[:, i]] for i in range(3)]
    for k in range(24):
        x, y, z = c
        xz, xy = (sum(x[i] * q[k - i] for i in range(k + 1)) for q in (z, y))
        slopes = 10 * (y[k] - x[k]), 28 * x[k] - xz - y[k], xy - np.longdouble(8) / 3 * z[k]
        for column, value in zip(c, slopes):
            column.append(value / (k + 1))
    h = np.longdouble(LORENZ.dt)
    after = np.stack([sum(a * h**k for k, a in enumerate(q)) for q in c], axis=-1)
    assert np.abs(after - series.x[1:]).max() < 1e-12 * np.abs(series.x).max()


def constant(system: System, invariant: Callable[..., np.ndarray]) -> float:
    """Largest relative change of an invariant."""
    states = _all_states(system)
    value = invariant(*states.T)
    return float(np.abs(value / value[0] - 1).max())


def _all_states(system: System) -> np.ndarray:
    """All states along a run; derivatives by high-order differences of dense samples."""
    if system.order == 1:
        return simulate(system)[0].x
    fine = simulate(system, n=2000, dt=system.dt / 40)[0]
    w = np.array([-1 / 60, 3 / 20, -3 / 4, 0, 3 / 4, -3 / 20, 1 / 60]) / (system.dt / 40)
    v = np.stack([np.convolve(q, w[::-1], mode="valid") for q in fine.x.T], axis=-1)
    return np.hstack([fine.x[3:-3], v])


def test_lotka_volterra_conserves_its_constant() -> None:
    system = find_system("Lotka")
    assert constant(
        system, lambda x, y: x - np.log(x) + 4 / 3 * y - 2 / 3 * np.log(y)
    ) < 1e-11  # fmt: skip


def test_henon_heiles_conserves_energy() -> None:
    def energy(x: np.ndarray, y: np.ndarray, v: np.ndarray, w: np.ndarray) -> np.ndarray:
        return (v**2 + w**2 + x**2 + y**2) / 2 + x**2 * y - y**3 / 3

    assert constant(find_system("henon"), energy) < 1e-8


def test_epidemic_conserves_its_constant() -> None:
    assert constant(find_system("SIR"), lambda s, i: s + i - 0.12 / 0.5 * np.log(s)) < 1e-11


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("Lorenz", (np.sqrt(72), np.sqrt(72), 27.0)),
        ("Lotka-Volterra", (1.0, 0.5)),
        ("Selkov", (0.6, 0.6 / (0.08 + 0.36))),
        ("Brusselator", (1.0, 3.0)),
        ("Duffing", (1.0, 0.0)),
        ("Pendulum", (np.pi, 0.0)),
        ("Lorenz 96", (8.0,) * 5),
        ("Logistic", (2.0,)),
        ("Three species", (1 / 3.1,) * 3),
        ("Vortex", (0.0, 0.0, 0.0)),
    ],
)
def test_fixed_points(name: str, state: tuple[float, ...]) -> None:
    np.testing.assert_allclose(find_system(name).rhs(0.0, state), 0, atol=1e-12)


def test_logistic_has_its_closed_form() -> None:
    for start, series in zip(find_system("Logistic").starts, simulate(find_system("Logistic"))):
        expected = 2 / (1 + (2 / start[0] - 1) * np.exp(-0.8 * series.t))
        np.testing.assert_allclose(series.x[:, 0], expected, rtol=1e-11)


def test_hopf_ends_on_its_circle() -> None:
    for series in simulate(find_system("Hopf")):
        radius = np.hypot(*series.x[-1])
        assert abs(radius - np.sqrt(0.5)) < 1e-3


def test_noise_is_relative_to_the_standard_deviation() -> None:
    clean = simulate(LORENZ, n=4000)
    noisy = simulate(LORENZ, n=4000, noise=0.1, seed=3)
    size = (noisy[0].x - clean[0].x).std(axis=0) / clean[0].x.std(axis=0)
    np.testing.assert_allclose(size, 0.1, rtol=0.05)
    again = add_noise(clean, 0.1, 3)
    np.testing.assert_array_equal(again[0].x, noisy[0].x)
    assert not np.array_equal(add_noise(clean, 0.1, 4)[0].x, noisy[0].x)
    np.testing.assert_array_equal(add_noise(clean, 0.0, 3)[0].x, clean[0].x)


def test_noise_of_many_series_has_one_size_and_many_draws() -> None:
    clean = [Series(np.arange(500.0), np.full((500, 1), level)) for level in (0.0, 10.0)]
    noisy = add_noise(clean, 0.1, 0)
    residuals = [a.x - b.x for a, b in zip(noisy, clean)]
    assert all(abs(r.std() - 0.5) < 0.06 for r in residuals)  # the standard deviation of all is 5
    assert not np.array_equal(*residuals)


def test_inputs_are_known_exactly() -> None:
    system = find_system("Driven")
    (series,) = simulate(system, n=50, noise=0.2)
    assert series.u is not None
    assert system.drive is not None
    np.testing.assert_array_equal(series.u, [system.drive(t) for t in series.t])


def test_diverging_systems_are_named() -> None:
    grows = System(
        "Explosion", ("x",), Basis(2), "none", lambda t, s: (s[0] ** 2,), {"x'": {"x^2": 1.0}},
        ((1.0,),), 0.1, 30,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match=r"Explosion from \(1.0,\) could not .* beyond t = 1"):
        simulate(grows)


class TestPaperLorenz:
    def test_grid_and_size(self) -> None:
        series = paper_lorenz()
        assert series.x.shape == (10_050, 3)
        np.testing.assert_array_equal(series.x[0], 1.0)
        np.testing.assert_allclose(np.diff(series.t), 0.01 * 10_050 / 10_049, rtol=1e-9)

    def test_early_part_is_the_lorenz_system(self) -> None:
        """Default tolerances: right to some 1e-6, and wrong by more than 1e-3 before t = 15."""
        series = paper_lorenz(10_050)
        exact = System(
            "from ones", LORENZ.variables, LORENZ.basis, "", LORENZ.rhs, LORENZ.truth,
            ((1.0, 1.0, 1.0),), float(series.t[1]), 1600,
        )  # fmt: skip
        error = np.abs(simulate(exact)[0].x - series.x[:1600]).max(axis=1)
        assert error[:300].max() < 1e-4
        assert error[:1500].max() > 1e-3


class TestRecord:
    def test_shape_and_sums(self) -> None:
        (series,) = HARE_LYNX.series
        assert series.x.shape == (21, 2)
        np.testing.assert_array_equal(series.t, np.arange(21.0))
        np.testing.assert_allclose(series.x.sum(axis=0), [715.7, 423.5])

    def test_known_points(self) -> None:
        (series,) = HARE_LYNX.series
        hare, lynx = series.x.T
        assert (hare.argmax(), hare.max()) == (3, 77.4)
        assert (lynx.argmax(), lynx.max()) == (4, 59.4)
        assert (hare.argmin(), hare.min()) == (17, 7.6)
        assert tuple(series.x[-1]) == (24.7, 8.6)

    def test_textbook_terms_are_candidates(self) -> None:
        assert set(HARE_LYNX.expected) == set(HARE_LYNX.targets) == {"hare'", "lynx'"}
        assert all(terms <= set(HARE_LYNX.terms) for terms in HARE_LYNX.expected.values())


class TestTerms:
    def test_basis_counts_and_order(self) -> None:
        assert Basis(2).terms(("x", "y")) == ["1", "x", "y", "x^2", "x y", "y^2"]
        assert Basis(1, (1, 2)).terms(("x",)) == [
            "1", "x", "sin(x)", "cos(x)", "sin(2 x)", "cos(2 x)",
        ]  # fmt: skip
        assert len(Basis(3).terms(("x", "y", "z"))) == 20

    @pytest.mark.parametrize(
        "spelling", ["x^2 y'", "y' x x", "x**2*y'", "y'*x^2", "  x x y' ", "x ^ 2 y'"]
    )
    def test_canonical_names(self, spelling: str) -> None:
        assert canonical(spelling, ("x", "y'")) == "x^2 y'"

    def test_canonical_waves(self) -> None:
        assert canonical("sin(1 x)", ("x",)) == canonical("sin(x)", ("x",)) == "sin(x)"
        assert canonical("cos(2*x')", ("x", "x'")) == "cos(2 x')"
        assert canonical("1", ("x",)) == "1"

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("x w", "uses 'w'; expected variables out of x, y"),
            ("x/y", "cannot read the term"),
            ("2 x", "cannot read the term"),
            ("x^-1", "cannot read"),
            ("x 1", "cannot read"),
        ],
    )
    def test_invalid_terms(self, name: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            canonical(name, ("x", "y"))

    @given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=5))
    def test_products_mean_the_same_in_any_order(self, factors: list[str]) -> None:
        names, values = ("a", "b", "c"), {"a": 2.0, "b": 3.0, "c": -5.0}
        arrays = {k: np.array([v]) for k, v in values.items()}
        name = canonical(" ".join(factors) or "1", names)
        assert canonical(" ".join(reversed(factors)) or "1", names) == name
        assert evaluate(name, arrays)[0] == np.prod([values[f] for f in factors])

    def test_features_are_the_terms(self) -> None:
        x = np.array([[0.5, -2.0]])
        got = Basis(2, (3,)).features(x, ("x", "y"))[0]
        waves = [np.sin(1.5), np.cos(1.5), np.sin(-6), np.cos(-6)]
        np.testing.assert_allclose(got, [1, 0.5, -2, 0.25, -1, 4, *waves])


class TestFinding:
    def test_by_beginning_without_accents(self) -> None:
        assert find_system("rossler").name == "Rössler"
        assert find_system("LORENZ") is LORENZ
        assert find_system("henon").order == 2

    @pytest.mark.parametrize(
        ("name", "message"),
        [("", "there is no system ''"), ("Lorens", "did you mean 'lorenz'"),
         ("l", "several systems fit 'l': Lorenz, Lotka-Volterra")],
    )  # fmt: skip
    def test_unknown_names(self, name: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            find_system(name)
