"""Sizes that the CPU kernels and their caller agree on."""

from __future__ import annotations

W = 16
"""Lanes per group: two AVX-512 registers, enough independent work to hide most latencies."""


class Plan:
    """Sizes of one call, derived from the problem and the number of pieces."""

    def __init__(self, y_shape: tuple[int, int, int, int], scheme: str, pieces: int) -> None:
        B, T, V, m = y_shape
        n = V * m
        self.B, self.T, self.P, self.n = B, T, pieces, n
        self.reach = 2 if scheme == "central" else 1
        """How many later times a row of the factor refers to."""
        self.k = self.reach * n if pieces > 1 else 0
        """Unknowns of a separator."""
        self.L = -(-T // pieces)
        """Times of the longest piece."""
        self.groups = -(-B * pieces // W)
        self.z_size = self.groups * self.L * n * W
        cells = n * (n + 1) // 2 + n * (self.reach * n + self.k)
        self.lane_factor = self.groups * self.L * cells * W
        self.chain_factor = B * pieces * (self.k * (self.k + 1) // 2 + self.k**2)
        self.coupling = B * pieces * (2 * self.k * (2 * self.k + 1) + 2 * self.k)
        self.work = self.groups * self.L * W * n**3
        """Floating-point operations of the elimination, up to a constant."""
