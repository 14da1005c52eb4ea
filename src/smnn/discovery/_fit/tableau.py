"""Explicit Runge-Kutta methods as data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from smnn.discovery._fit.arrays import Array


class Tableau(NamedTuple):
    """`k_i = f(t + c_i h, x + h sum_j a_ij k_j)`, next `x + h sum_i b_i k_i`."""

    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]

    @property
    def c(self) -> Array:
        """Where in a step the stages are."""
        return np.array([sum(row) for row in self.a])


CLASSICAL = Tableau(((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6))
"""Order 4."""

_q = 21.0**0.5
COOPER_VERNER = Tableau(
    (
        (),
        (1 / 2,),
        (1 / 4, 1 / 4),
        (1 / 7, (-7 - 3 * _q) / 98, (21 + 5 * _q) / 49),
        ((11 + _q) / 84, 0, (18 + 4 * _q) / 63, (21 - _q) / 252),
        ((5 + _q) / 48, 0, (9 + _q) / 36, (-231 + 14 * _q) / 360, (63 - 7 * _q) / 80),
        (
            (10 - _q) / 42, 0, (-432 + 92 * _q) / 315, (633 - 145 * _q) / 90,
            (-504 + 115 * _q) / 70, (63 - 13 * _q) / 35,
        ),
        (1 / 14, 0, 0, 0, (14 - 3 * _q) / 126, (13 - 3 * _q) / 63, 1 / 9),
        (
            1 / 32, 0, 0, 0, (91 - 21 * _q) / 576, 11 / 72, (-385 - 75 * _q) / 1152,
            (63 + 13 * _q) / 128,
        ),
        (
            1 / 14, 0, 0, 0, 1 / 9, (-733 - 147 * _q) / 2205, (515 + 111 * _q) / 504,
            (-51 - 11 * _q) / 56, (132 + 28 * _q) / 245,
        ),
        (
            0, 0, 0, 0, (-42 + 7 * _q) / 18, (-18 + 28 * _q) / 45, (-273 - 53 * _q) / 72,
            (301 + 53 * _q) / 72, (28 - 28 * _q) / 45, (49 - 7 * _q) / 18,
        ),
    ),
    (1 / 20, 0, 0, 0, 0, 0, 0, 49 / 180, 16 / 45, 49 / 180, 1 / 20),
)  # fmt: skip
"""Order 8 in eleven stages (Cooper and Verner 1972)."""
