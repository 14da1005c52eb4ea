"""Removal of noise in a basis of smooth functions, and derivatives of the result.

Along a periodic direction the basis is that of Fourier; along time and other directions it
consists of the singular vectors of the fourth differences: polynomials and oscillations that need
no conditions at the ends. In both, coefficients of smooth fields decay quickly, while those of
noise have the same size everywhere, so that a Wiener filter separates them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Field = np.ndarray[Any, np.dtype[Any]]
ORDER = 4
"""Order of the differences."""
STENCIL = 9
"""Points of the difference formulas."""
CAUTION = 1.5


def differences(x: Field, order: int) -> Field:
    """Matrix of divided differences on a grid that may be uneven, scaled to a step of one."""
    x = (x - x[0]) / np.median(np.diff(x))
    out = np.eye(len(x))
    for j in range(1, order + 1):
        out = j * np.diff(out, axis=0) / (x[j:] - x[:-j])[:, None]
    return out


def smooth_basis(x: Field) -> Field:
    """Orthonormal columns on a grid, from smooth to rough."""
    if len(x) <= ORDER + 1:
        return np.linalg.qr(np.vander(x - x.mean(), len(x), increasing=True))[0]
    # Singular vectors of the differences: eigenvectors of their square lose half of the digits,
    # which mixes the smoothest ones from some 200 points.
    vectors: Field = np.linalg.svd(differences(x, ORDER))[2][::-1].T
    # The null space comes out as any basis of the polynomials: take them by degree.
    s = 2 * (x - x[0]) / (x[-1] - x[0]) - 1
    vectors[:, :ORDER] = np.linalg.qr(np.vander(s, ORDER, increasing=True))[0]
    return vectors


class Filter:
    """Wiener filter of fields `(T, *grid)`.

    Args:
        coordinates: Times, and coordinates of each direction.
        periodic: Whether each of these is periodic.
        caution: Multiple of the variance of the noise that is subtracted from the power.
    """

    def __init__(
        self, coordinates: Sequence[Field], periodic: Sequence[bool], caution: float = CAUTION
    ) -> None:
        self.caution = caution
        self.bases = [None if p else smooth_basis(x) for x, p in zip(coordinates, periodic)]

    def transform(self, u: Field) -> Field:
        """Coefficients; orthonormal."""
        for a, basis in enumerate(self.bases):
            if basis is None:
                u = np.fft.fft(u, axis=a, norm="ortho")
            else:
                u = np.moveaxis(np.tensordot(u, basis, (a, 0)), -1, a)
        return u

    def inverse(self, c: Field) -> Field:
        """Values."""
        for a, basis in enumerate(self.bases):
            if basis is None:
                c = np.fft.ifft(c, axis=a, norm="ortho")
            else:
                c = np.moveaxis(np.tensordot(c, basis, (a, 1)), -1, a)
        return c

    def noise(self, c: Field) -> float:
        """Variance of the noise, from the coefficients of the roughest functions."""
        power = np.abs(c) ** 2
        spectral = np.iscomplexobj(c)
        for a, basis in enumerate(self.bases):
            n = c.shape[a]
            rough = slice(n // 2, None) if basis is not None else slice(n // 4, n - n // 4)
            power = power[(*[slice(None)] * a, rough)]
        # The power of a complex coefficient is exponential, that of a real one is chi squared.
        return float(np.median(power)) / (np.log(2.0) if spectral else 0.4549)

    def __call__(self, u: Field) -> tuple[Field, float, float]:
        """Filtered values, standard deviation of the noise, and number of coefficients kept."""
        c = self.transform(u)
        variance = self.noise(c)
        gain = self._gain(np.abs(c) ** 2, variance)
        found = self.inverse(gain * c)
        real = found if np.iscomplexobj(u) else found.real
        kept = float(gain.sum()) * (2.0 if np.iscomplexobj(u) else 1.0)
        return real, float(np.sqrt(variance)), kept

    def _gain(self, power: Field, variance: float) -> Field:
        """Factor of each coefficient, from the mean power of its neighbours."""
        near = power
        for a, basis in enumerate(self.bases):
            near = mean_of_neighbours(near, a, basis is None)
        return np.asarray(np.clip(1 - self.caution * variance / np.maximum(near, 1e-300), 0, 1))


def mean_of_neighbours(x: Field, axis: int, wraps: bool) -> Field:
    """Mean of each entry and the two next to it."""
    pad = [(0, 0)] * x.ndim
    pad[axis] = (1, 1)
    y = np.pad(x, pad, mode="wrap" if wraps else "edge")
    n = x.shape[axis]
    parts = [np.take(y, range(i, i + n), axis) for i in range(3)]
    return np.asarray(sum(parts) / 3)


class Derivatives:
    """Spatial derivatives of fields `(..., *grid)`: by Fourier, or by differences."""

    def __init__(self, coordinates: Sequence[Field], periodic: Sequence[bool], order: int) -> None:
        self.periodic, self.d = tuple(periodic), len(coordinates)
        self.matrices = []
        for x, wraps in zip(coordinates, periodic):
            if wraps:
                k = 2j * np.pi * np.fft.fftfreq(len(x), x[1] - x[0])
                if len(x) % 2 == 0:
                    k[len(x) // 2] = 0
                self.matrices.append([k**r for r in range(order + 1)])
            else:
                self.matrices.append([_stencils(x, r) for r in range(order + 1)])

    def __call__(self, u: Field, orders: Sequence[int]) -> Field:
        """The derivative of an order in each direction."""
        real = not np.iscomplexobj(u)
        for a, order in enumerate(orders):
            if order == 0:
                continue
            axis, factor = a - self.d, self.matrices[a][order]
            if self.periodic[a]:
                shape = [1] * self.d
                shape[a] = -1
                u = np.fft.ifft(np.fft.fft(u, axis=axis) * factor.reshape(shape), axis=axis)
                u = u.real if real else u
            else:
                u = np.moveaxis(np.tensordot(u, factor, (axis, 1)), -1, axis)
        return u


def _stencils(x: Field, order: int) -> Field:
    """Matrix of difference formulas on a grid that may be uneven."""
    n, width = len(x), min(STENCIL, len(x))
    out = np.zeros((n, n))
    if order == 0:
        return np.eye(n)
    for i in range(n):
        first = min(max(i - width // 2, 0), n - width)
        near = x[first : first + width] - x[i]
        scale = np.abs(near).max()
        powers = np.vander(near / scale, width, increasing=True).T
        right = np.zeros(width)
        right[order] = math.factorial(order) / scale**order
        out[i, first : first + width] = np.linalg.solve(powers, right)
    return out
