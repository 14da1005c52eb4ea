"""Levels of an odd-even reduction (`solve.py`) and the sizes of their matrices."""

from __future__ import annotations

import functools
from typing import NamedTuple

from smnn._solver.gpu.reduction.blocks import Kind
from smnn._solver.gpu.reduction.level import form_for
from smnn._solver.problem import Problem


class Shape(NamedTuple):
    """Chain of blocks of all sequences."""

    B: int
    N: int  # Blocks per sequence
    M: int  # Unknowns per block
    wanted: int  # Unknowns per sequence; a last block of two times may have more

    @property
    def factor_size(self) -> int:
        """`M x 3M` numbers per block."""
        return self.B * self.N * 3 * self.M**2


def chain_of(B: int, T: int, V: int, m: int, reach: int) -> Shape:
    """Blocks of one time each, or of two if rows span three."""
    n = V * m
    return Shape(B, (T + reach - 1) // reach, reach * n, T * n)


class Sizes(NamedTuple):
    """Sizes of a problem."""

    B: int
    T: int
    Q: int
    V: int
    m: int
    T_init: int
    m_init: int
    reach: int
    varying: bool = False  # Whether the weights of the steps depend on the order

    @property
    def kind(self) -> Kind:
        return Kind(self.V, self.m, self.m_init if self.T_init else 0, self.reach, self.varying)

    @property
    def shape(self) -> Shape:
        return chain_of(self.B, self.T, self.V, self.m, self.reach)

    @property
    def slots(self) -> int:
        """Rows per link."""
        return self.kind.slots

    @property
    def extra(self) -> int:
        """Initial-value rows per time, unless only the first time has some."""
        return self.V * self.m if self.T_init > 1 else 0

    @property
    def per(self) -> int:
        """Rows per time."""
        return self.Q + self.extra + self.T % self.reach * self.V * self.m

    @property
    def own(self) -> int:
        return self.reach * self.per + (self.reach - 1) * self.V * self.m

    @property
    def levels(self) -> tuple[Level, ...]:
        return levels(self.shape, self.slots, self.own)

    @property
    def at_once(self) -> bool:
        """Whether the matrices of all levels fit into registers."""
        return all(form_for(x.M, x.rows) is not None for x in self.levels)


def shape_of(problem: Problem) -> Shape:
    """Chain of blocks of a problem; `d` and `u` are not used."""
    return chain_of(*problem.y_shape, problem.reach)


def sizes_of(problem: Problem) -> Sizes:
    B, T, Q, V, m = problem.c.shape
    T_init, m_init = problem.u.shape[1], problem.u.shape[3]
    varying = m > 1 and problem.w_smooth.stride(-1) != 0
    return Sizes(B, T, Q, V, m, T_init, m_init, problem.reach, varying)


class Level(NamedTuple):
    """Blocks that are eliminated in parallel, and the origin of their rows."""

    step: int  # Distance between remaining blocks
    left: int
    blocks: int  # Number of blocks to eliminate
    links: int  # Links stored by the previous level; one more may be stored separately
    slots: int  # Rows per link
    apart: int  # Rows of the separate link
    height: int  # Rows of the matrices of the previous level
    own: int  # Rows over one block
    M: int

    @property
    def about(self) -> int:
        """Rows that involve a block."""
        return 2 * max(self.slots, self.apart) + self.own

    @property
    def rows(self) -> int:
        """Rows of a matrix."""
        return max(self.M, self.about)

    @property
    def last(self) -> bool:
        return self.left == 1

    @property
    def columns(self) -> int:
        """Columns to eliminate.

        Rows beyond the block's own may be few enough to remain unreduced, or are not needed.
        """
        return self.M if self.rows <= 3 * self.M or self.last else 3 * self.M

    @property
    def rest(self) -> int:
        """Remaining rows per matrix."""
        return min(self.rows, 3 * self.M) - self.M


@functools.lru_cache(maxsize=1024)
def levels(shape: Shape, slots: int, own: int) -> tuple[Level, ...]:
    """All levels, starting from `slots` rows per link and `own` rows per block."""
    _, left, M, _ = shape
    out, step, links, apart, height = [], 1, left + 1, 0, slots
    while left:
        level = Level(step, left, (left + 1) // 2, links, slots, apart, height, own, M)
        out.append(level)
        # The link after the last block remains if that block does. Initially it is empty.
        if left % 2:
            apart = 0
        elif step > 1 and not apart and links > left:
            apart = slots
        step, left, links = 2 * step, left // 2, level.blocks
        slots, height = level.rest, level.rows
    return tuple(out)


def words(B: int, T: int, n: int, reach: int) -> int:
    """Approximate memory of a solve in words: factor, links, and matrices of two levels."""
    return 5 * 3 * B * T * n * n * reach
