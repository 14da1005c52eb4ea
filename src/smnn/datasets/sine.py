r"""Noisy recordings of a damped sine, as in the first example of the original MNN and of S-MNN.

$x(t) = e^{-\delta t}(\sin\omega t + \sigma\,\varepsilon(t))$ with $\omega = 2$, $\delta = 0.1$,
$\sigma = 0.5$ and independent standard normal $\varepsilon$, at 500 times from 0 to 50. Signal and
noise decay alike, so their ratio stays the same. The curve without noise solves
$y'' + 2\delta\, y' + (\omega^2 + \delta^2)\, y = 0$.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class DampedSine:
    """Recordings of one oscillator."""

    t: Array
    """`(T,)` times."""
    noisy: Array
    """`(N, T)` recordings."""
    clean: Array
    """`(T,)` the curve without noise."""
    frequency: float
    """Angular frequency."""
    damping: float
    noise: float
    """Standard deviation relative to the amplitude."""

    def smallest_deviations(self, recordings: int = 1) -> tuple[float, float]:
        r"""Cramér-Rao bounds of frequency and damping.

        These are the smallest standard deviations, relative to the true values, of unbiased
        estimates if amplitude, phase, noise level and decay of the noise are unknown too, and the
        equal decay of noise and signal is not used. For times spread evenly over a duration $D$
        both absolute deviations are about $\sigma\sqrt{24/(D^2 T)}$.

        Args:
            recordings: Number of recordings that are used together.

        Returns:
            Bounds for the frequency and for the damping.
        """
        t, w = self.t, self.frequency
        sin, cos = np.sin(w * t), np.cos(w * t)
        # Derivatives by frequency, damping, log amplitude and phase, over the noise.
        J = np.stack([t * cos, -t * sin, sin, cos]) / self.noise
        covariance = np.linalg.inv(recordings * J @ J.T)
        deviation = np.sqrt(np.diag(covariance))
        return float(deviation[0] / self.frequency), float(deviation[1] / self.damping)


def damped_sine(
    recordings: int = 16, times: int = 500, duration: float = 50.0, *, frequency: float = 2.0,
    damping: float = 0.1, noise: float = 0.5, seed: int = 0,
) -> DampedSine:  # fmt: skip
    """Generate recordings. Recording `i` of a seed does not depend on their number.

    Args:
        recordings: Number of recordings, `N`.
        times: Number of times in each, `T`; evenly spaced, both ends included.
        duration: Last time.
        frequency: Angular frequency.
        damping: Rate at which the amplitude, 1 at time 0, decays.
        noise: Standard deviation of the noise relative to the amplitude.
        seed: Random seed of the noise.
    """
    t = np.linspace(0.0, duration, times)
    envelope = np.exp(-damping * t)
    wave = np.sin(frequency * t)
    draws = [np.random.default_rng([seed, i]).standard_normal(times) for i in range(recordings)]
    noisy = envelope * (wave + noise * np.stack(draws))
    return DampedSine(t, noisy, envelope * wave, frequency, damping, noise)


def strongest_frequency(noisy: Array, step: float, fineness: int = 8) -> Array:
    """Angular frequency at the maximum of the periodogram of each recording, `(N,)`.

    Args:
        noisy: `(N, T)` recordings.
        step: Time between two samples.
        fineness: Oversampling of the periodogram; its natural spacing is `2 pi / (T step)`.
    """
    size = fineness * noisy.shape[-1]
    power = np.abs(np.fft.rfft(noisy - noisy.mean(-1, keepdims=True), size)) ** 2
    peak = power[..., 1:].argmax(-1) + 1
    return 2 * np.pi * peak / (size * step)
