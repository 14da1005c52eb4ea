"""Sizes and argument layout shared by the CPU kernels and their caller."""

from __future__ import annotations

from collections.abc import Sequence

W = 16  # Lanes per group: two AVX-512 registers, enough independent work to hide most latencies


class Sizes:
    """Sizes of one call, derived from the problem and the number of pieces."""

    def __init__(self, y_shape: tuple[int, int, int, int], reach: int, pieces: int) -> None:
        B, T, V, m = y_shape
        n = V * m
        self.B, self.T, self.P, self.n = B, T, pieces, n
        self.reach = reach  # Later times coupled by a row of the factor
        self.k = self.reach * n if pieces > 1 else 0  # Unknowns of a separator
        self.L = -(-T // pieces)  # Times of the longest piece
        self.groups = -(-B * pieces // W)
        self.z_size = self.groups * self.L * n * W
        cells = n * (n + 1) // 2 + n * (self.reach * n + self.k)
        self.lane_factor = self.groups * self.L * cells * W
        self.chain_factor = B * pieces * (self.k * (self.k + 1) // 2 + self.k**2)
        self.coupling = B * pieces * (2 * self.k * (2 * self.k + 1) + 2 * self.k)
        self.work = self.groups * self.L * W * n**3
        """Floating-point operations of the elimination, up to a constant."""
        self.factor = self.lane_factor + self.chain_factor
        """Length of the factor: of the lanes, then of the chain of separators."""
        couplings = self.coupling + B * pieces * (2 + self.k)
        self.scratch = self.z_size + max(couplings, B * pieces * 3 * self.k)
        """Length of the scratch memory of a solve or its derivative: right-hand sides; then
        couplings, pivots and separators, or loads and separators."""

    def notes(self) -> list[int]:
        """Sizes in the order expected by the kernels."""
        return [
            self.B, self.T, self.P, self.n, self.reach, self.k, self.groups, self.z_size,
            self.lane_factor, self.chain_factor, self.coupling,
        ]  # fmt: skip


# Besides addresses, the kernels read an array of integers prepared by the plan: its sizes, then a
# record for each tensor.

SIZES = 11
AXES = 5
RECORD = 1 + 2 * AXES
"""Integers per record: address, or 0 if passed with the call; sizes; strides in bytes."""

C, D, U, S, W_GOV, W_INIT, W_SMOOTH, Y, SCALE, K, KF, W_TOP = range(
    SIZES, SIZES + 12 * RECORD, RECORD
)
"""Offset of the record of each tensor; the last four are not used by derivatives."""
NOTES = SIZES + 12 * RECORD

ELIMINATE, CHAIN, SUBSTITUTE, CHECK, CHECK_INITIAL = 1, 2, 4, 8, 16
"""Phases of a solve; the last one checks for missing initial values."""
SOLVE = ELIMINATE | CHAIN | SUBSTITUTE | CHECK | CHECK_INITIAL
FINE, STARTED = 1, 2  # Results of a solve: surely no failure; no missing initial values
LOAD, SEPARATE, ADJOINT, ROWS, CENTRAL = 1, 2, 4, 8, 16  # Phases of the derivative


def record(shape: Sequence[int], strides: Sequence[int], address: int = 0) -> list[int]:
    """Record of a float64 tensor; strides count elements."""
    rest = [0] * (AXES - len(shape))
    return [address, *shape, *rest, *(8 * i for i in strides), *rest]
