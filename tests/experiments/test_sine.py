"""The noisy damped sine: data, Cramér-Rao bounds, and recovery of the rates."""

import io
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from smnn.datasets.sine import damped_sine, strongest_frequency
from smnn.experiments.sine import run as sine
from smnn.experiments.sine import view
from smnn.experiments.sine.run import TOLERANCE, Config, Fit, Frame, Sine, SineModel, rms

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def full() -> Sine:
    """The experiment with default settings: noise 0.5, 500 points."""
    return sine.run(Config())


# ---------------------------------------------------------------- data


def test_recordings_are_those_of_the_paper() -> None:
    data = damped_sine(200)
    assert data.t[0] == 0
    assert data.t[-1] == 50
    assert data.noisy.shape == (200, 500)
    np.testing.assert_allclose(data.clean, np.exp(-0.1 * data.t) * np.sin(2 * data.t))
    noise = (data.noisy - data.clean) * np.exp(0.1 * data.t)  # signal and noise decay alike
    assert noise.mean() == pytest.approx(0, abs=0.01)
    assert noise.std() == pytest.approx(0.5, rel=0.01)
    assert noise[:, :100].std() == pytest.approx(noise[:, -100:].std(), rel=0.02)


def test_recordings_follow_from_the_seed_and_their_number_alone() -> None:
    one, many = damped_sine(2, seed=3), damped_sine(5, seed=3)
    np.testing.assert_array_equal(one.noisy, many.noisy[:2])
    assert not np.array_equal(one.noisy[0], one.noisy[1])
    assert not np.array_equal(one.noisy, damped_sine(2, seed=4).noisy)


def test_the_curve_without_noise_solves_the_ode() -> None:
    data = damped_sine(1, 5000, 10.0)
    h = data.t[1]
    y, first = data.clean, np.gradient(data.clean, h, edge_order=2)
    second = np.gradient(first, h, edge_order=2)
    inside = slice(5, -5)
    np.testing.assert_allclose((second + 0.2 * first + 4.01 * y)[inside], 0, atol=1e-4)


def test_the_bound_is_that_of_the_fisher_information() -> None:
    """Compared with finite differences of the curve."""
    data = damped_sine(1)

    def curve(w: float, damping: float, a: float, phase: float) -> Any:
        return a * np.exp(-damping * data.t) * np.sin(w * data.t + phase)

    truth = np.array([2.0, 0.1, 1.0, 0.0])
    J = []
    for step in 1e-6 * np.eye(4):
        J.append((curve(*(truth + step)) - curve(*(truth - step))) / 2e-6)
    K = np.array(J) / (0.5 * np.exp(-0.1 * data.t))
    deviation = np.sqrt(np.diag(np.linalg.inv(K @ K.T)))
    frequency, damping = data.smallest_deviations()
    assert frequency == pytest.approx(deviation[0] / 2.0, rel=1e-5)
    assert damping == pytest.approx(deviation[1] / 0.1, rel=1e-5)
    assert damping == pytest.approx(0.5 * np.sqrt(24 / (50**2 * 500)) / 0.1, rel=0.02)
    np.testing.assert_allclose(
        data.smallest_deviations(16), np.array(data.smallest_deviations()) / 4
    )


def test_one_recording_does_not_determine_the_damping_within_the_tolerance() -> None:
    frequency, damping = Config().data().smallest_deviations()
    assert frequency < TOLERANCE / 10
    assert damping > TOLERANCE


@given(w=st.floats(0.5, 20), phase=st.floats(0, 6))
def test_periodogram_finds_the_frequency(w: float, phase: float) -> None:
    t = 0.1 * np.arange(500)
    found = strongest_frequency((5 + np.sin(w * t + phase))[None], 0.1)
    assert found[0] == pytest.approx(w, abs=0.05)


# ---------------------------------------------------------------- the fit


def test_frequency_and_damping_are_recovered(full: Sine) -> None:
    assert full.recovered() == {
        "frequency of every recording": True,
        "frequency of all together": True,
        "damping of all together": True,
    }


def test_errors_are_close_to_the_cramer_rao_bound(full: Sine) -> None:
    for found, bound in zip(full.own.errors(full.config), full.bounds()["own"]):
        assert 0.6 * bound < rms(found) < 1.5 * bound
    for found, bound in zip(full.shared.errors(full.config), full.bounds()["shared"]):
        assert np.abs(found).max() < 4 * bound


def test_noise_level_is_recovered(full: Sine) -> None:
    expected = 0.5 * np.exp(-0.1 * full.data.t)
    np.testing.assert_allclose(full.shared.noise[0], expected, rtol=0.05)


def test_steps_are_learned_but_stay_close_to_even(full: Sine) -> None:
    for fit in (full.own, full.shared):
        assert 1e-5 < fit.unevenness() < 0.02
        np.testing.assert_allclose(fit.grid[:, -1], 50.0)


@pytest.mark.parametrize("seed", [1, 2])
def test_other_noise(seed: int) -> None:
    result = sine.run(Config(recordings=8, times=250, duration=25.0, seed=seed, steps=250, order=5))
    for errors, bound in (
        (result.own.errors(result.config), result.bounds()["own"]),
        (result.shared.errors(result.config), result.bounds()["shared"]),
    ):
        assert all(np.abs(e).max() < 4 * b for e, b in zip(errors, bound))


def test_a_low_order_hides_the_damping() -> None:
    """The numerical damping at order 2 is as large as the true damping."""
    result = sine.run(Config(recordings=4, steps=250, order=2))
    assert np.abs(result.shared.errors(result.config)[1]).max() > 0.5


def test_discretization_errors_of_the_schemes() -> None:
    config = Config()
    errors = {key: sine.discretization(config, *key) for key in sine.COMPARED}
    assert 1e-4 < errors["smnn", 5][1] < 3e-4  # the 0.02 % of the documentation
    for order, bound in ((3, 1e-5), (5, 1e-11)):
        assert max(map(abs, errors["hermite", order])) < bound
        assert abs(errors["iwp", order][1]) < abs(errors["smnn", order][1]) / 100


@pytest.mark.parametrize("shared", [True, False])
def test_loss_is_the_likelihood(shared: bool) -> None:
    torch.manual_seed(0)
    config = Config(recordings=3, times=30, duration=6.0, order=4)
    model = SineModel(config, np.array([2.0] if shared else [1.9, 2.0, 2.1]), 0.3)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    values = torch.randn(3, 30, dtype=torch.float64)
    out, log_noise = model()
    noise = torch.distributions.Normal(out.z[..., 0], log_noise.exp())
    expected = -noise.log_prob(values).mean() - 0.5 * np.log(2 * np.pi)
    part = (out.ode.s * 29 / 6.0).log() / 0.02
    penalty = 0.5 * part.square().sum() / 90
    assert model.loss(out, log_noise, values).item() == pytest.approx((expected + penalty).item())


# ---------------------------------------------------------------- view


def made_up(own: list[float], shared: float, frequency: float = 2.0) -> Sine:
    """A result with these dampings."""

    def fit(values: list[float]) -> Fit:
        n = len(values)
        curves, grid = np.zeros((n, 500)), np.tile(np.linspace(0, 50, 500), (n, 1))
        frames = [Frame(1, curves[0], frequency, values[0])]
        damping = np.array(values)
        return Fit(np.full(n, frequency), damping, "", "", curves, grid, curves, frames, 1.0)

    config = Config(recordings=len(own))
    return Sine(config, {}, config.data(), fit(own), fit([shared]))


def test_the_table_of_the_documentation_is_that_of_a_run(full: Sine) -> None:
    page = (ROOT / "docs" / "examples" / "sine.md").read_text(encoding="utf-8")
    shown = [line for line in page.splitlines() if line.startswith(("| frequency", "| damping"))]
    rows = view.tables(full)[0].rows
    assert shown == [
        "| " + " | ".join([row.group, row.label, *(c.text for c in row.cells)]) + " |"
        for row in rows
    ]
    for bound in (*full.bounds()["own"], full.bounds()["shared"][1]):
        assert f"{100 * bound:.2f} %" in page


def test_wrong_results_are_recognized() -> None:
    right = made_up([0.1, 0.13], 0.1015)
    assert all(right.recovered().values())  # single recordings need not determine the damping
    wrong = made_up([0.1, 0.1], 0.103, frequency=2.05)
    assert not any(wrong.recovered().values())
    table, _ = view.tables(right)
    rows = {(row.group, row.label): [c.text for c in row.cells] for row in table.rows}
    assert rows["damping", "2 ODEs"][-1] == "1 of 2"
    assert rows["damping", "one ODE"][1:3] == ["0.1015", "1.50%"]
    assert rows["damping", "2 ODEs"][2] == "21.21%"  # root mean square of 0 and 30 %


def test_animation_moves_and_is_small(runs: Any) -> None:
    from PIL import Image

    gif = view.animation(runs["sine"], frames=6, width=320)
    picture = Image.open(io.BytesIO(gif))
    assert 3 <= picture.n_frames <= 6  # equal pictures are stored once
    assert picture.size[0] == 320
    pixels = []
    for i in (0, picture.n_frames - 1):
        picture.seek(i)
        pixels.append(np.asarray(picture.convert("RGB")).astype(int))
    assert (pixels[0] != pixels[1]).any()
    assert (ROOT / "docs" / "assets" / "sine.gif").stat().st_size < 1_500_000


def test_example_script_finds_the_equation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sine.py", str(tmp_path / "fit.png")])
    dtype = torch.get_default_dtype()
    try:
        found = runpy.run_path(str(ROOT / "examples" / "sine.py"))
    finally:
        torch.set_default_dtype(dtype)
    assert found["rate"].imag == pytest.approx(2, rel=TOLERANCE)
    assert -found["rate"].real == pytest.approx(0.1, rel=TOLERANCE)
    assert f"damping {-found['rate'].real:.4f} (true 0.1)" in capsys.readouterr().out
    assert (tmp_path / "fit.png").stat().st_size > 10_000
