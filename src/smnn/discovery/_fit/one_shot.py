"""Terms and coefficients by regression alone, for themselves or to begin a joint fit with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from smnn.discovery._fit.arrays import Array, root_mean_square, triangle_of
from smnn.discovery._fit.question import Question
from smnn.discovery._fit.refine import Rules
from smnn.discovery._fit.regression import Regression, regress
from smnn.discovery._fit.selection import Selected, penalty_for, select

MOST_CANDIDATES = 160
"""More candidates than this are thinned out before the joint fit."""


def regression_of(question: Question, phi: Array, top: Array) -> Regression:
    """The regression; with a link, of its inverse at the smoothed highest derivatives."""
    if question.link is None:
        return regress(question.nodes, phi, question.order)
    P = phi.shape[1]
    out = Regression([], [], np.empty(top.shape[1]), np.full(top.shape[1], float(len(phi))))
    for v in range(top.shape[1]):
        triangle = triangle_of(np.column_stack([phi, question.link.inverse(top[:, v])]))
        out.R.append(triangle[:P, :P])
        out.b.append(triangle[:P, P])
        out.cost[v] = triangle[P, P] ** 2
    return out


def one_shot(
    question: Question, regression: Regression, phi: Array, top: Array
) -> tuple[Array, Array]:
    """Coefficients of all terms, and of chosen ones. Both (V, P)."""
    rules, held = question.rules, question.held
    every, chosen = held.copy(), held.copy()
    for v in range(len(held)):
        allowed = rules.allowed[v]
        k = int(allowed.sum())
        if k == 0:
            continue
        R, b = regression.R[v][:, allowed], regression.b[v] - regression.R[v] @ held[v]
        full = select(R, b, 0.0, required=np.ones(k, bool))
        rows = regression.rows[v]
        spread = max((regression.cost[v] + full.cost) / max(rows - k, 1.0), 1e-300)
        penalty = spread * penalty_for(int(rows), k, rules.strength)
        size = root_mean_square(phi[:, allowed]) / root_mean_square(top[:, v])
        signs = {"positive": rules.positive[v, allowed], "negative": rules.negative[v, allowed]}
        every[v, allowed] = full.p
        chosen[v, allowed] = _big_enough(R, b, penalty, signs, size, rules.threshold).p
    return every, chosen


def _big_enough(
    R: Array, b: Array, penalty: float, signs: dict[str, Any], size: Array, threshold: float
) -> Selected:
    """Chosen terms without those that make no difference."""
    found = select(R, b, penalty, **signs)
    while (small := found.support & (np.abs(found.p) * size < threshold)).any():
        support = found.support.copy()
        support[np.argmin(np.where(small, np.abs(found.p) * size, np.inf))] = False
        found = select(R, b, np.inf, start=support, required=support)
    return found


def thinned(question: Question, regression: Regression, chosen: Array) -> Rules:
    """With very many candidates, those that the regression finds most useful."""
    rules, held = question.rules, question.held
    if rules.allowed.sum() <= MOST_CANDIDATES:
        return rules
    each = max(MOST_CANDIDATES // len(held), 4)
    kept = np.zeros_like(rules.allowed)
    for v in range(len(held)):
        where = np.flatnonzero(rules.allowed[v])
        R = regression.R[v][:, where]
        b = regression.b[v] - regression.R[v] @ held[v]
        length = np.maximum(np.sqrt((R**2).sum(0)), 1e-300)
        support = chosen[v, where] != 0
        residual = b - R @ np.where(support, chosen[v, where], 0.0)
        while support.sum() < min(each, len(where)):  # orthogonal matching pursuit
            gain = np.where(support, -1.0, np.abs(R.T @ residual) / length)
            support[np.argmax(gain)] = True
            p = np.linalg.lstsq(R[:, support], b, rcond=None)[0]
            residual = b - R[:, support] @ p
        kept[v, where[support]] = True
    return replace(rules, allowed=kept)


def regression_deviation(regression: Regression, Xi: Array, rules: Rules) -> Array:
    """(V, P) standard deviations of the coefficients of a regression with given terms."""
    out = np.zeros_like(Xi)
    for v in range(len(Xi)):
        support = (Xi[v] != 0) & rules.allowed[v]
        if support.any():
            R = regression.R[v][:, support]
            found = select(R, regression.b[v], 0.0, required=np.ones(int(support.sum()), bool))
            rows = max(regression.rows[v] - support.sum(), 1.0)
            out[v, support] = found.deviation * np.sqrt((regression.cost[v] + found.cost) / rows)
    return out
