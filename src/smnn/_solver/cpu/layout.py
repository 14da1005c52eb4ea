"""Sizes that the CPU kernels and their caller agree on."""

from __future__ import annotations

from collections.abc import Sequence

W = 16  # Lanes per group: two AVX-512 registers, enough independent work to hide most latencies


class Sizes:
    """Sizes of one call, derived from the problem and the number of pieces."""

    def __init__(self, y_shape: tuple[int, int, int, int], reach: int, pieces: int) -> None:
        B, T, V, m = y_shape
        n = V * m
        self.B, self.T, self.P, self.n = B, T, pieces, n
        self.reach = reach  # How many later times a row of the factor refers to
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

    @property
    def factor(self) -> int:
        """Numbers to keep for a derivative: of the lanes, then of the chain of separators."""
        return self.lane_factor + self.chain_factor

    @property
    def scratch(self) -> int:
        """Working memory of a solve or of its derivative.

        Right-hand sides; then couplings, pivots and separators, or loads and separators.
        """
        pieces = self.B * self.P
        return self.z_size + max(self.coupling + pieces * (2 + self.k), pieces * 3 * self.k)

    def notes(self) -> list[int]:
        """For the kernels, in this order."""
        return [
            self.B, self.T, self.P, self.n, self.reach, self.k, self.groups, self.z_size,
            self.lane_factor, self.chain_factor, self.coupling,
        ]  # fmt: skip


# What a call hands to the kernels, besides addresses, is noted beforehand in an array of integers:
# the sizes of the plan, then a record for each tensor.

SIZES = 11
AXES = 5
RECORD = 1 + 2 * AXES
"""Integers of a record: an address, or 0 if that comes with the call; sizes; strides in bytes."""

C, D, U, S, W_GOV, W_INIT, W_SMOOTH, Y, SCALE, K, KF, W_TOP = range(
    SIZES, SIZES + 12 * RECORD, RECORD
)
"""Where the record of each tensor begins. What follows from `w_smooth` comes last: derivatives do
not need it."""
NOTES = SIZES + 12 * RECORD

ELIMINATE, CHAIN, SUBSTITUTE, JUDGE, LOOK = 1, 2, 4, 8, 16
"""Phases of a solve; the last looks for a lack of initial values."""
SOLVE = ELIMINATE | CHAIN | SUBSTITUTE | JUDGE | LOOK
FINE, STARTED = 1, 2  # What a solve finds: all is well beyond doubt; no lack of initial values
LOAD, SEPARATE, ADJOINT, ROWS, CENTRAL = 1, 2, 4, 8, 16  # Phases of its derivative


def record(shape: Sequence[int], strides: Sequence[int], address: int = 0) -> list[int]:
    """Notes on a float64 tensor; strides count elements."""
    rest = [0] * (AXES - len(shape))
    return [address, *shape, *rest, *(8 * i for i in strides), *rest]
