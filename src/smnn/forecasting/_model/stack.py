"""One blend for all cells of a grid: the weights that forecast the past best, modes included.

Cells that are measured alike can be judged together, by the mean square error over all of them. The
best weights then follow from how the errors of the members go together: a member that errs where
the others do not is worth more than its own error says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from smnn._util.optional import require
from smnn.forecasting._model.modes import ModeChoice, anomalies_of, find_modes, steady
from smnn.forecasting._model.panel import Member, Panel
from smnn.forecasting._model.spec import Spec

SHRINKAGE = 0.1
"""Towards equal weights, relative to the mean error of a member."""
LEAST_SHARE = 0.02


class Stack(NamedTuple):
    """The blend of a grid."""

    weights: dict[Member, float]
    modes: ModeChoice | None


def stack(
    panel: Panel, members: Sequence[Member], lead: Spec, origins: Sequence[int], window: int,
    modes: int | str,
) -> Stack:  # fmt: skip
    """Find the weights.

    Args:
        panel: The grid.
        members: Candidates, the best of each kind.
        lead: The best equation: the one that modes are added to.
        origins: To forecast from.
        window: Times to learn from.
        modes: `"auto"`, 0 for none, or how many.
    """
    choice = None if modes == 0 else ModeChoice(None if modes == "auto" else int(modes), 1.0)
    if not steady(panel.clock):
        choice = None
    total: np.ndarray | float = 0.0
    for origin in origins:
        past, ahead = panel.history(origin, window), slice(origin, origin + panel.horizon)
        future = panel.clock[ahead]
        inputs = None if panel.inputs is None else panel.inputs[ahead]
        truth = panel.raw[:, ahead]
        errors = [x - truth for x in panel.ahead(members, past, future, inputs)]
        if choice is not None:
            counts = choice.counts(len(truth), min(origin, window))
            found = find_modes(anomalies_of(panel, lead, past, future, inputs), counts)
            errors.append(errors[members.index(lead)] + found.change(counts))
        flat = np.where(np.isfinite(truth), np.stack(errors), 0.0).reshape(len(errors), -1)
        products = flat @ flat.T
        total = total + products / max(np.trace(products), 1e-300)  # every origin counts alike
    w = simplex_weights(np.asarray(total))
    weights = {m: float(x) for m, x in zip(members, w)}
    if choice is not None:
        share = float(w[-1]) if modes == "auto" else 1.0
        weights[lead] += float(w[-1])
        choice = ModeChoice(choice.number, share) if share > LEAST_SHARE else None
    kept = {m: x for m, x in weights.items() if x > LEAST_SHARE / 2} or {lead: 1.0}
    kept.setdefault(lead, 0.0)
    scale = sum(kept.values())
    return Stack({m: x / scale for m, x in kept.items()}, choice)


def simplex_weights(products: np.ndarray) -> np.ndarray:
    """Weights that add up to one, none negative, with the least square error.

    Args:
        products: `(M, M)` mean products of the members' errors.
    """
    optimize = require("scipy.optimize", "blend forecasts")
    M = len(products)
    unit = max(float(np.trace(products)) / M, 1e-300)
    G = products / unit + SHRINKAGE * np.eye(M)
    root = np.linalg.cholesky(G).T
    heavy = 1e3  # the row that makes the weights add up to one
    w = optimize.nnls(np.vstack([root, np.full((1, M), heavy)]), np.append(np.zeros(M), heavy))[0]
    out: np.ndarray = w / w.sum()
    return out
