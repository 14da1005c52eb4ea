"""Fields that follow known laws."""

import numpy as np
import pytest

from smnn.datasets.fields import LAWS, simulate_law
from smnn.errors import DataError


def test_linear_laws_have_their_closed_solutions() -> None:
    heat, moved = simulate_law("heat", 3), simulate_law("advection", 3)
    k = np.fft.rfftfreq(len(heat.x[0]), 1 / len(heat.x[0]))
    modes = np.fft.rfft(heat.u[..., 0])
    assert np.abs(modes - modes[0] * np.exp(-0.1 * k**2 * heat.t[:, None])).max() < 1e-9
    modes = np.fft.rfft(moved.u[..., 0])
    assert np.abs(modes - modes[0] * np.exp(-1j * k * moved.t[:, None])).max() < 1e-6


@pytest.mark.parametrize("name", ["burgers", "fisher-kpp", "nls"])
def test_the_equation_holds(name: str) -> None:
    """The rate of change, by differences in time, is the right-hand side."""
    data = simulate_law(name, 1)
    u, x = data.u[..., 0], data.x[0]
    k = 2j * np.pi * np.fft.fftfreq(len(x), x[1] - x[0])
    slopes = {f"u_{'x' * r}": np.fft.ifft(k**r * np.fft.fft(u)) for r in (1, 2, 3)}
    values = {"u": u, "ubar": u.conj(), "i": 1j, **slopes}
    right = eval(data.law["u"].replace("^", "**"), {}, values)
    step = data.t[1] - data.t[0]
    rate = (u[:-4] - 8 * u[1:-3] + 8 * u[3:-1] - u[4:]) / (12 * step)
    assert np.abs(rate - right[2:-2]).max() < 0.02 * np.abs(rate).max()


def test_noise_and_gaps() -> None:
    data = simulate_law("heat")
    noisy = data.noisy(0.5, missing=0.3, seed=1)
    known = np.isfinite(noisy)
    assert 0.28 < 1 - known.mean() < 0.32
    assert (noisy - data.u)[known].std() == pytest.approx(0.5 * data.u.std(), rel=0.03)
    assert np.array_equal(noisy, data.noisy(0.5, missing=0.3, seed=1), equal_nan=True)
    assert not np.array_equal(simulate_law("heat", 1).u, data.u)


def test_unknown_laws_are_refused() -> None:
    with pytest.raises(DataError, match="expected one of advection, heat"):
        simulate_law("wave")
    assert {len(law.points) for law in LAWS.values()} == {1, 2}
