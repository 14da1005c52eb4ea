"""Laws of evolution from fields: what is found, what is refused, and how sure the verdict is."""

import json
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from smnn.datasets.fields import simulate_law
from smnn.discovery import (
    Expressions,
    FieldDiscovery,
    FieldReport,
    ModelFileError,
    VerdictWarning,
)
from smnn.discovery._field.denoise import Filter, smooth_basis
from smnn.discovery._field.judge import judge
from smnn.discovery._field.pipeline import _expected
from smnn.discovery._field.refine import Found, Likely
from smnn.discovery._field.settle import visible
from smnn.errors import DataError

pytest.importorskip("threadpoolctl")


def law_of(model: FieldDiscovery, f: int = 0) -> dict[str, float]:
    row = model.coefficients_[f]
    return {model.terms_[p].name: float(row[p]) for p in np.flatnonzero(row)}


def fitted(u: Any, **given: Any) -> FieldDiscovery:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VerdictWarning)
        known = FieldDiscovery().get_params()
        options = {k: given.pop(k) for k in list(given) if k in known}
        return FieldDiscovery(**options).fit(u, **given)


@pytest.fixture(scope="module")
def burgers() -> Any:
    return simulate_law("burgers", 3)


@pytest.fixture(scope="module")
def model(burgers: Any) -> FieldDiscovery:
    noisy = burgers.noisy(0.2, missing=0.3, seed=5)[:, ::2]
    return FieldDiscovery().fit(noisy, t=burgers.t, x=burgers.x[0][::2])


def test_burgers(model: FieldDiscovery, burgers: Any) -> None:
    assert law_of(model) == {
        "u_xx": pytest.approx(0.1, rel=0.05), "u u_x": pytest.approx(-1.0, rel=0.03)
    }  # fmt: skip
    assert model.verdict_.level == "established"
    assert model.periodic_ == [True]
    assert model.report_["misfit"] == pytest.approx(1, abs=0.05)
    assert model.noise_[0] == pytest.approx(0.2 * burgers.u.std(), rel=0.05)
    error = np.abs(model.coefficients_ - [[{"u_xx": 0.1, "u u_x": -1.0}.get(t.name, 0.0)
                                           for t in model.terms_]])  # fmt: skip
    assert (error[model.coefficients_ != 0] < 5 * model.deviation_[model.coefficients_ != 0]).all()


def test_the_law_follows_the_field(model: FieldDiscovery, burgers: Any) -> None:
    path = model.simulate(model.denoised_[0][0], burgers.t)
    assert path.status == "ok"
    assert np.sqrt(np.mean((path.u - burgers.u[:, ::2]) ** 2)) < 0.06 * burgers.u.std()
    assert np.abs(path.u - model.denoised_[0]).max() < 0.01 * burgers.u.std()


def test_solutions_that_diverge_have_a_status(model: FieldDiscovery) -> None:
    unstable = fitted(simulate_law("heat").u, t=0.04, x=0.05, library="u_xx")
    unstable.coefficients_ = -unstable.coefficients_
    path = unstable.simulate(
        1 + 1e-3 * np.random.default_rng(0).normal(size=128), [0.0, 50.0, 99.0]
    )
    assert path.status == "diverged"
    assert len(path.u) == len(path.t) < 3
    assert np.isfinite(path.u).all()
    with pytest.raises(DataError, match=r"u0 has shape \(3,\); expected \(128, 1\)"):
        model.simulate(np.zeros(3), [0, 1])


def test_saved_laws_are_the_same(model: FieldDiscovery, burgers: Any, tmp_path: Path) -> None:
    again = FieldDiscovery.load(model.save(tmp_path / "law.json"))
    assert again.equations(precision=8) == model.equations(precision=8)
    assert again.verdict_.level == model.verdict_.level
    start = burgers.u[0, ::2]
    times = burgers.t[:5]
    assert np.array_equal(again.simulate(start, times).u, model.simulate(start, times).u)
    (tmp_path / "other.json").write_text('{"kind": "field"}')
    with pytest.raises(ModelFileError):
        FieldDiscovery.load(tmp_path / "other.json")


def test_results(model: FieldDiscovery, tmp_path: Path) -> None:
    report = FieldReport(model, "field.npz", "smnn discover field.npz")
    page = report.write(tmp_path).read_text(encoding="utf-8")
    assert {p.name for p in tmp_path.iterdir()} == set(FieldReport.FILES)
    assert page.count("data:image/png") == 1
    assert "Established" in page
    record = json.loads(json.dumps(report.record(), allow_nan=False))
    assert [c["term"] for c in record["coefficients"]] == ["u_xx", "u u_x"]
    assert model.equations("latex")[0].count("mathrm") == 1
    assert list(model.to_frame()["term"]) == ["u_xx", "u u_x"]
    assert "u_xx" in model.summary()


def test_other_forms_of_the_same_data(burgers: Any) -> None:
    """Reversed, shuffled, transposed or labelled fields give the same law."""
    pd, xr = pytest.importorskip("pandas"), pytest.importorskip("xarray")
    u, t, x = burgers.noisy(0.1, seed=5)[::2, ::2, 0], burgers.t[::2], burgers.x[0][::2]
    forms: list[tuple[Any, dict[str, Any]]] = [
        (u, {"t": t, "x": x}),
        (u[:, ::-1], {"t": t, "x": x[::-1]}),
        (u.T, {"t": t, "x": x}),
        (u.tolist(), {"t": t[1] - t[0], "x": x[1] - x[0]}),
        (np.append(u, u[:, :1], 1), {"t": t, "x": np.append(x, 16.0)}),
        (xr.DataArray(u, dims=("time", "x"), coords={"time": t, "x": x}, name="u"), {}),
        (pd.DataFrame(u, index=t, columns=x), {}),
        ({"u": u.T, "t": t, "x": x}, {}),
    ]
    options: dict[str, Any] = {"library": "u*u_x,u_xx,u,u_x", "refine": False}
    laws = [law_of(fitted(one, **options, **given)) for one, given in forms]
    assert set(laws[0]) == {"u u_x", "u_xx"}
    for law in laws[1:]:
        assert law == pytest.approx(laws[0], rel=1e-3)


def test_blocks_without_values(burgers: Any) -> None:
    u = burgers.noisy(0.05, seed=2)[..., 0]
    u[30:50, 60:120] = np.nan
    u[:, 200:215] = np.nan
    u[70] = np.nan
    found = fitted(u, t=burgers.t, x=burgers.x[0])
    assert law_of(found) == {
        "u_xx": pytest.approx(0.1, rel=0.03), "u u_x": pytest.approx(-1.0, rel=0.03)
    }  # fmt: skip


def test_cut_domains_are_not_assumed_to_be_periodic(burgers: Any) -> None:
    u = burgers.noisy(0.02, seed=2)[:, 30:190, 0]
    found = fitted(u, t=burgers.t, x=burgers.x[0][30:190])
    assert found.periodic_ == [False]
    assert law_of(found) == {
        "u_xx": pytest.approx(0.1, rel=0.05), "u u_x": pytest.approx(-1.0, rel=0.05)
    }  # fmt: skip
    errors = found.coefficients_[0] - [{"u_xx": 0.1, "u u_x": -1.0}.get(term.name, 0.0)
                                       for term in found.terms_]  # fmt: skip
    assert (np.abs(errors) <= 3 * found.deviation_[0]).all()
    with pytest.raises(DataError, match="not periodic, and its boundary conditions"):
        found.simulate(u[0], [0.0, 1.0])


def test_complex_fields_and_functions_of_x() -> None:
    """A linear Schrödinger equation with a potential, from its exact eigenfunctions."""
    x, t = np.linspace(-8, 8, 128, endpoint=False), np.linspace(0, 3, 80)
    ground, first = np.exp(-(x**2) / 2), 1.5 * x * np.exp(-(x**2) / 2)
    u = np.exp(-0.5j * t)[:, None] * ground + np.exp(-1.5j * t)[:, None] * first
    found = fitted(u, t=t, x=x, functions={"w": "x^2"}, degree=1, order=2)
    law = law_of(found)
    assert len(law) == 2
    assert law["i u_xx"] == pytest.approx(0.5, rel=1e-3)
    assert law["i w u"] == pytest.approx(-0.5, rel=1e-3)


def test_fields_without_a_law() -> None:
    from scipy.ndimage import gaussian_filter

    white = np.random.default_rng(1).standard_normal((60, 80))
    found = fitted(white, t=0.1, x=0.1)
    assert found.verdict_.level == "nothing found"
    assert found.equations() == ["u_t = 0"]
    smooth = gaussian_filter(white, 4, mode=("reflect", "wrap"))
    assert fitted(smooth, t=0.1, x=0.1).verdict_.doubtful
    with pytest.warns(VerdictWarning):
        FieldDiscovery().fit(white, t=0.1, x=0.1)


@pytest.mark.parametrize(
    ("u", "given", "message"),
    [
        (np.ones((20, 30)), {}, "u is constant"),
        (np.full((20, 30), np.nan), {}, "no finite values"),
        (np.eye(7, 30), {}, "t has 7 points; expected at least 8"),
        (np.eye(20), {"t": np.arange(19)}, r"u has shape \(20, 20\)"),
        (np.eye(20, 30), {"x": np.zeros(30)}, "the same value more than once"),
        (np.eye(20, 30), {"x": -1.0}, "positive step"),
        (np.eye(20, 30).astype(str), {}, "expected numbers"),
        (np.zeros(20), {}, "expected 2 to 4"),
        (np.eye(20, 30), {"names": ["a_b"]}, "without an underscore"),
        ([np.eye(20, 30), np.eye(20, 31)], {"t": [1.0, 1.0], "x": 1.0}, "different grids"),
        (np.eye(20, 30), {"periodic": True, "x": np.arange(30) ** 1.5}, "needs an even grid"),
    ],
)
def test_refused(u: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        fitted(u, **given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"degree": 0}, "degree=0"), ({"order": 9}, "order=9"), ({"library": 3}, "library=3"),
        ({"threshold": 2.0}, "threshold=2.0"), ({"penalty": 0}, "penalty=0"),
        ({"forbidden": {"v_t": ["u"]}}, "expected one of u_t"),
    ],
)  # fmt: skip
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FieldDiscovery(**options).fit(np.random.default_rng(0).normal(size=(20, 30)))


def test_forbidden_terms_and_libraries(burgers: Any) -> None:
    u, t, x = burgers.u[::2, ::2, 0], burgers.t[::2], burgers.x[0][::2]
    library = Expressions(["u*u_x", "u_xx", "u_x"])
    found = FieldDiscovery(library=library, forbidden={"u_t": ["u_x"]}, refine=False)
    assert set(law_of(found.fit(u, t=t, x=x))) == {"u u_x", "u_xx"}
    assert len(found.terms_) == 3


@pytest.mark.parametrize("n", [50, 400])
def test_basis_of_the_filter_is_orthonormal(n: int) -> None:
    basis = smooth_basis(np.sort(np.random.default_rng(n).uniform(0, 1, n) + np.arange(n)))
    assert np.abs(basis.T @ basis - np.eye(n)).max() < 1e-6


def test_what_is_visible_is_a_projection() -> None:
    x, t = np.linspace(0, 2 * np.pi, 64, endpoint=False), np.linspace(0, 3, 90)
    u = np.cos(x - t[:, None])[None]
    project = visible(u, np.array([0.1]), t, x)
    white = np.random.default_rng(0).standard_normal((2, *u.shape))
    once = project(white)
    assert project(once) == pytest.approx(once, abs=1e-9)
    assert np.abs(once).max() < 0.2 * np.abs(white).max()
    assert project(u) == pytest.approx(u, abs=0.05)


def test_filter_keeps_smooth_fields() -> None:
    """Also with several hundred times, where the basis is sensitive to rounding."""
    t, x = np.linspace(0, 3, 380), np.linspace(0, 2 * np.pi, 64, endpoint=False)
    u = np.exp(1j * t**2)[:, None] * np.sin(x) + 2
    noisy = u + 0.1 * np.random.default_rng(0).standard_normal((*u.shape, 2)) @ [1, 1j]
    clean, sigma, _ = Filter([t, x], [False, True])(noisy)
    assert sigma == pytest.approx(0.1 * np.sqrt(2), rel=0.05)
    assert np.sqrt(np.mean(np.abs(clean - u) ** 2)) < 0.02


@pytest.mark.slow
def test_weak_modes_of_the_beginning_do_not_fit_the_noise() -> None:
    """Solitons of KdV: with free phases of noise, `u u_xxx` made up for wrong coefficients."""
    solitons = simulate_law("kdv")
    library = "u*u_x,u_xxx,u*u_xxx,u^2*u_x,u_xx,u_x"
    found = fitted(solitons.noisy(0.1), t=solitons.t, x=solitons.x[0], library=library)
    assert law_of(found) == {
        "u_xxx": pytest.approx(-1.0, rel=0.01), "u u_x": pytest.approx(-6.0, rel=0.01)
    }  # fmt: skip
    assert found.verdict_.level == "established"


def test_the_expected_power_of_a_mode_decays() -> None:
    solitons = simulate_law("kdv")
    u = np.moveaxis(solitons.u, -1, 0)
    truth = (np.abs(np.fft.fft(u, norm="forward")) ** 2).mean(1)[0]
    noisy = np.moveaxis(solitons.noisy(0.1), -1, 0)
    clean, sigma, _ = Filter([solitons.t, solitons.x[0]], [False, True])(noisy[0])
    expected = _expected([clean[None]], np.array([sigma]))[0]
    assert (np.diff(expected) <= 0).all()
    assert (expected[:45] > truth[:45]).all()
    assert (expected[5:45] < 10 * truth[5:45]).all()
    assert expected[60] < 1e-3 * sigma**2 / 256


def test_a_term_that_hardly_helps_makes_the_verdict_tentative() -> None:
    u = np.random.default_rng(0).standard_normal((1, 20, 30))
    shooting = SimpleNamespace(free=5)
    for ratio, level in ((4.9, "tentative"), (6.0, "established")):
        likely = Likely(
            [(0, 0), (0, 1)], np.array([1.0, ratio]), np.array([1e-3, 1.0]), [SimpleNamespace()],  # type: ignore[list-item]
            600.0, 600, True, 4, 4, price=17.0,
        )  # fmt: skip
        one = np.ones(1)
        found = Found([10 * u], one, one, 100 * one, None, likely, shooting, [u])  # type: ignore[arg-type]
        assert judge(found, ["u"]).level == level
