"""Sizes of a call, and the list of integers ("notes") that tells the kernels about it."""

from __future__ import annotations

W = 16  # Lanes per group: two AVX-512 registers, enough independent work to hide most latencies

TENSORS = {
    "c": 5, "d": 3, "u": 4, "s": 3, "w_gov": 3, "w_init": 4, "w_smooth": 4, "scale": 3, "K": 5,
    "KF": 5, "w_top": 3, "y": 4, "g": 4, "gc": 5, "gd": 3, "gu": 4, "gs": 3, "gw_gov": 3,
    "gw_init": 4, "gw_smooth": 4,
}  # fmt: skip
"""Tensors and their numbers of axes."""
FIXED = ("w_gov", "w_init", "w_smooth", "scale", "K", "KF", "w_top", "taylor", "lanes")
"""Arrays that are the same in all calls of a plan."""
OTHERS = ("lam", "factor", "z", "coupling", "chain", "separators", "found", "multipliers", "cov",
          "lag")  # fmt: skip
SIZES = (
    "T", "P", "L", "V", "m", "Q", "reach", "k", "T_init", "m_init", "top", "high", "unit", "given",
    "open", "parts_of_sums", "T_all", "T_init_all", "parts",
)  # fmt: skip
PLACES = {
    name: i
    for i, name in enumerate((
        *SIZES, *(f"@{name}" for name in dict.fromkeys((*TENSORS, *FIXED, *OTHERS))),
        *(f"{name}.{axis}" for name, axes in TENSORS.items() for axis in range(axes)),
    ))
}  # fmt: skip
"""Where each number is: `@c` the address of `c` (0: there is no such array), `c.1` its stride over
time in bytes."""

WORDS = len(TENSORS) + 8
"""Cells in front of the working memory, for addresses of lanes."""

ELIMINATE, SUBSTITUTE, LOAD, ROWS, CHAIN, CHAIN_AGAIN, SWEEP, ADJOINT, COVARIANCES = (
    2**i for i in range(9)
)
"""Kernels: parts of a solve or derivative."""


class Sizes:
    """Sizes of one call, derived from the problem and the number of pieces."""

    def __init__(self, shape: tuple[int, int, int, int, int], reach: int, pieces: int) -> None:
        B, T, Q, V, m = shape
        n = V * m
        self.B, self.T, self.P, self.n = B, T, pieces, n
        self.k = reach * n if pieces > 1 else 0  # Unknowns of a separator
        self.L = -(-T // pieces)  # Times of the longest piece
        self.groups = -(-B * pieces // W)
        self.group_factor = self.L * row_cells(n, reach, self.k) * W
        self.z = self.L * n * W
        """Numbers of a right-hand side of one group."""
        self.coupling = B * pieces * coupling_cells(self.k)
        self.work = self.groups * self.L * W * n**3
        """Floating-point operations of the elimination, up to a constant."""
        self.factor = self.groups * self.group_factor + B * pieces * chain_cells(self.k)
        """Length of the factor: of the lanes, then of the chain of separators."""
        self.room = (WORDS + sum(room_cells(V, m, Q, reach, self.k).values())) * W


def row_cells(n: int, reach: int, k: int) -> int:
    """Cells of a stored factor block: triangle, coupling to later blocks, left columns."""
    return n * (n + 1) // 2 + n * (n * reach + k)


def row_start(n: int, reach: int, k: int, j: int) -> int:
    """First cell of row `j` of a stored factor block, its inverse pivot."""
    return j * (n * (reach + 1) + k) - (j * (j - 1)) // 2


def swept_cells(n: int, rows: int) -> int:
    """Cells of a time of the covariance sweep: `P`, `x`, and `k` and `nu / sigma` of each row."""
    return n * (n + 1) // 2 + n + rows * (n + 1)


def chain_cells(k: int) -> int:
    """Numbers of the factor of one separator."""
    return k * (k + 1) // 2 + k * k


def coupling_cells(k: int) -> int:
    """Numbers that a piece contributes to the chain: rows of its two separators, and norms."""
    return (k * 2) * (k * 2 + 1) + k * 2


def room_cells(V: int, m: int, Q: int, reach: int, k: int) -> dict[str, int]:
    """Cells of working memory of the kernels, for known sizes and for `Value`s alike."""
    n = V * m
    width = n * (reach + 1) + k + 1
    return {
        "oldest": n * width, "old": n * width, "new": n * width, "row": width,
        "left": k * (k + 1), "oldest_norms": n, "old_norms": n, "new_norms": n, "left_norms": k,
        "equations": Q * (n + 1), "links": n * m * 2, "powers": n, "window": width,
        "x": n * 2, "mu": n * 2, "near": m * 2, "far": m * 2, "changes": 8,
        "step_powers": m, "gc_sum": Q * n, "gd_sum": Q, "gs_sum": V, "own_cov": n * n, "cross_cov": n * k, "left_cov": k * k,
        "gain": n * (n + k), "product": n * (n + k), "inverse": n * n, "dummy": Q * n + n * n,
    }  # fmt: skip
