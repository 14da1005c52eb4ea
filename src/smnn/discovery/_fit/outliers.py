"""Single values far from everything around them: slips of an instrument, not of the equations.

They are told by the residuals of a joint fit, not by the data alone, which may well be steep.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from smnn.discovery._fit.arrays import Flags, Indices
from smnn.discovery._fit.refine import Fit, Refiner
from smnn.discovery._fit.series import Nodes

FAR = 8.0
"""Typical residuals (by their median) beyond which a value is wild."""
MOST = 0.05
"""Share of the values of a variable that can be wild."""
TOGETHER = 2
"""Wild values in a row, at most: more of them are something that happened."""
SMALLEST = 1e-4
"""A residual below this share of the spread of its variable is not wild."""


def wild_values(refiner: Refiner, fit: Fit, strict: float) -> Flags:
    """(N, V) which measured values are wild.

    Args:
        refiner: The data.
        fit: The best fit. Where wild values have kept it from being strict, a stricter one is made.
        strict: `rho` below which states do not follow every point.
    """
    if fit.rho > strict:
        fit = refiner.improve(replace(fit, rho=0.2 * strict))
    V, seen = refiner.V, refiner.seen[:, : refiner.V]
    residual = np.abs(np.where(seen, (refiner.data - fit.Z)[:, :V], 0.0))
    out = np.zeros_like(seen)
    for v in range(V):
        mine = residual[seen[:, v], v]
        limit = max(FAR * 1.4826 * float(np.median(mine)), SMALLEST * refiner.nodes.scale[v])
        wild = residual[:, v] > limit
        if 0 < wild.sum() <= MOST * len(mine) and _longest(wild[seen[:, v]]) <= TOGETHER:
            out[:, v] = wild
    return out


def _longest(flags: Flags) -> int:
    """The longest run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(int)))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def without(nodes: Nodes, wild: Flags, used: Indices) -> tuple[Nodes, str]:
    """The nodes without those values, and what to say about it.

    Args:
        nodes: The data.
        wild: (n, V) at some of the nodes.
        used: (n,) which nodes these are.
    """
    Y = nodes.Y.copy()
    rows, columns = np.nonzero(wild)
    Y[used[rows], columns] = np.nan
    row, column = int(used[rows[0]]), int(columns[0])
    many = len(rows) > 1
    count = f"{len(rows)} values lie" if many else "one value lies"
    text = (
        f"{count} far from everything around and {'count' if many else 'counts'} as missing; the "
        f"first is {nodes.names[column]} = {nodes.Y[row, column]:.4g} at time {nodes.t[row]:.4g}"
    )
    return Nodes(nodes.t, Y, nodes.U, nodes.starts, nodes.names, nodes.inputs), text
