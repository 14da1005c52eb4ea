"""What is eliminated when in an odd-even reduction (`solve.py`), and from which rows."""

from __future__ import annotations

import functools
from typing import NamedTuple

from smnn._solver.gpu.reduction.blocks import Kind
from smnn._solver.gpu.reduction.level import form_for
from smnn._solver.problem import Problem


class Shape(NamedTuple):
    """The chain of blocks of all sequences."""

    B: int
    N: int
    """Blocks."""
    M: int
    """Unknowns of a block."""
    wanted: int
    """Unknowns of a sequence: a last block of two times may have more."""

    @property
    def factor_size(self) -> int:
        """`M x 3M` numbers per block."""
        return self.B * self.N * 3 * self.M**2


def chain_of(B: int, T: int, V: int, m: int, reach: int) -> Shape:
    """Blocks of a time each, or of two where rows reach over three."""
    n = V * m
    return Shape(B, (T + reach - 1) // reach, reach * n, T * n)


class Sizes(NamedTuple):
    """Of a problem."""

    B: int
    T: int
    Q: int
    V: int
    m: int
    T_init: int
    m_init: int
    reach: int
    varying: bool = False
    """Whether weights of the steps depend on the order."""

    @property
    def kind(self) -> Kind:
        """What its rows are like."""
        return Kind(self.V, self.m, self.m_init if self.T_init else 0, self.reach, self.varying)

    @property
    def shape(self) -> Shape:
        """Its chain of blocks."""
        return chain_of(self.B, self.T, self.V, self.m, self.reach)

    @property
    def slots(self) -> int:
        """Rows of a link."""
        return self.kind.slots

    @property
    def extra(self) -> int:
        """Rows of each time for initial values, if not the first time alone has some."""
        return self.V * self.m if self.T_init > 1 else 0

    @property
    def per(self) -> int:
        """Rows of each time."""
        return self.Q + self.extra + self.T % self.reach * self.V * self.m

    @property
    def own(self) -> int:
        """Rows of each block."""
        return self.reach * self.per + (self.reach - 1) * self.V * self.m

    @property
    def levels(self) -> tuple[Level, ...]:
        """All levels."""
        return levels(self.shape, self.slots, self.own)

    @property
    def at_once(self) -> bool:
        """Whether a program has room for a matrix of every level."""
        return all(form_for(x.M, x.rows) is not None for x in self.levels)


def shape_of(problem: Problem) -> Shape:
    """The chain of blocks of a problem; `d` and `u` are not used."""
    return chain_of(*problem.y_shape, problem.reach)


def sizes_of(problem: Problem) -> Sizes:
    """What the launches for a problem depend on."""
    B, T, Q, V, m = problem.c.shape
    T_init, m_init = problem.u.shape[1], problem.u.shape[3]
    varying = m > 1 and problem.w_smooth.stride(-1) != 0
    return Sizes(B, T, Q, V, m, T_init, m_init, problem.reach, varying)


class Level(NamedTuple):
    """Blocks that are eliminated at once, and where the rows of their matrices come from."""

    step: int
    """Blocks from one that is left to the next."""
    left: int
    blocks: int
    """How many of those that are left go."""
    links: int
    """Links whose rows lie where the level before has left them; one more may be apart."""
    slots: int
    """Rows of each of these."""
    apart: int
    """Rows of that one."""
    height: int
    """Rows of the matrices that the level before has left them in."""
    own: int
    """Rows on a block alone."""
    M: int

    @property
    def about(self) -> int:
        """Rows that speak of a block."""
        return 2 * max(self.slots, self.apart) + self.own

    @property
    def rows(self) -> int:
        """Of a matrix."""
        return max(self.M, self.about)

    @property
    def last(self) -> bool:
        """Whether nothing is left after it."""
        return self.left == 1

    @property
    def columns(self) -> int:
        """Columns to be taken to a triangle.

        Rows beyond the block's own may be few enough as they are, or nobody wants them.
        """
        return self.M if self.rows <= 3 * self.M or self.last else 3 * self.M

    @property
    def rest(self) -> int:
        """Rows that are left of a matrix for the blocks beside it."""
        return min(self.rows, 3 * self.M) - self.M


@functools.lru_cache(maxsize=1024)
def levels(shape: Shape, slots: int, own: int) -> tuple[Level, ...]:
    """All levels; `slots` rows of each link and `own` rows of each block are there to begin with."""
    _, left, M, _ = shape
    out, step, links, apart, height = [], 1, left + 1, 0, slots
    while left:
        level = Level(step, left, (left + 1) // 2, links, slots, apart, height, own, M)
        out.append(level)
        # The link behind the last block stays if that block does. At first it is empty.
        if left % 2:
            apart = 0
        elif step > 1 and not apart and links > left:
            apart = slots
        step, left, links = 2 * step, left // 2, level.blocks
        slots, height = level.rest, level.rows
    return tuple(out)


def words(B: int, T: int, n: int, reach: int) -> int:
    """Of memory that a solve takes, roughly: the factor, links, and the matrices of two levels."""
    return 5 * 3 * B * T * n * n * reach
