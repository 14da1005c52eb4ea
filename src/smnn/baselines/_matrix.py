"""Explicit matrix of the original MNN, for the dense and the sparse baseline.

The unknowns are ordered `(eps, y)` with `y (T, V, R+1)` flattened; the rows are the equations, the
initial values, the ends of a periodic series, and forward, backward and central smoothness rows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from smnn.baselines._system import System


class Entries(NamedTuple):
    """A batch of sparse matrices with a common pattern, and a right-hand side."""

    row: Tensor
    """`(nnz,)` int64."""
    column: Tensor
    """`(nnz,)` int64."""
    value: Tensor
    """`(B, nnz)`."""
    right: Tensor
    """`(B, rows)`."""
    columns: int
    """Number of unknowns, including the slack."""


class _Writer:
    """Builder that collects groups of rows with the same structure."""

    def __init__(self, batch: int) -> None:
        self.batch, self.rows = batch, 0
        self.parts: list[tuple[Tensor, Tensor, Tensor]] = []
        self.right: list[Tensor] = []

    def add(self, terms: list[tuple[Tensor, Tensor]], right: Tensor) -> None:
        """Append the rows of `right (B, rows)`; a term is a column `(rows,)` with values."""
        count = right.shape[1]
        index = self.rows + torch.arange(count, device=right.device)
        for column, value in terms:
            self.parts.append((index, column, value.expand(self.batch, count)))
        self.right.append(right)
        self.rows += count


def entries(system: System) -> Entries:
    """Return the matrix of a system."""
    (c, d, u, s, *_), p, _ = system
    B, T, Q, V, m = c.shape
    R = m - 1
    place = 1 + torch.arange(T * V * m, device=c.device).view(T, V, m)
    writer = _Writer(B)
    one, slack = c.new_ones(1, 1), place.new_zeros(1)

    for q in range(Q):
        terms = [(place[:, v, r], c[:, :, q, v, r]) for v in range(V) for r in range(m)]
        writer.add(terms, d[:, :, q])
    if u.numel():
        first = place[: u.shape[1], :, : u.shape[3]].flatten()
        writer.add([(first, one)], u.flatten(1))
    if k := p.shape[-1]:
        ends = place[0, :, :k].flatten(), place[-1, :, :k].flatten()
        writer.add([(ends[0], one), (ends[1], -one)], p.flatten(1))
    for sign, here, there in ((1, place[:-1], place[1:]), (-1, place[1:], place[:-1])):
        h = sign * s.flatten(1)
        for r in range(R):
            terms = [(here[..., j].flatten(), h**j / math.factorial(j - r)) for j in range(r, m)]
            terms += [(there[..., r].flatten(), -(h**r)), (slack.expand(h.shape[1]), one)]
            writer.add(terms, torch.zeros_like(h))
    if T > 2:
        H = (s[:, :-1] + s[:, 1:]).flatten(1)
        slope = H ** (R - 2)
        terms = [
            (place[2:, :, R - 1].flatten(), slope), (place[:-2, :, R - 1].flatten(), -slope),
            (place[1:-1, :, R].flatten(), -slope * H), (slack.expand(H.shape[1]), one),
        ]  # fmt: skip
        writer.add(terms, torch.zeros_like(H))
    row, column, value = (torch.cat(x, -1) for x in zip(*writer.parts))
    return Entries(row, column, value, torch.cat(writer.right, 1), 1 + T * V * m)
