"""CPU kernels: the chain that couples the separators of a sequence's pieces.

Piece `p` contributes `2k` rows over `[own separator k | left separator k | rhs]`, upper triangular.
The chain is eliminated in the same way as a sequence: left rows first, then the coupling rows
from the bottom up. A factor row is `[own, from the pivot on | next k]` with the pivot inverted.
"""

# mypy: ignore-errors
from __future__ import annotations

import numpy as np

from smnn._solver.cpu.layout import FINE, STARTED
from smnn._solver.cpu.pieces import inner, small


@small
def own(x, axis):
    """Size of an axis, 1 if it is broadcast."""
    return x.shape[axis] if x.strides[axis] != 0 else min(x.shape[axis], 1)


@small
def rotate(a, i, b, j, top, bottom, columns):
    """Rotate `b[j]` into `a[i]`, over `columns` cells from `top` and `bottom`."""
    length = np.sqrt(a[i] * a[i] + b[j] * b[j])
    if length > 0.0:
        cosine, sine = a[i] / length, b[j] / length
        for x in range(columns):
            p, q = a[top + x], b[bottom + x]
            a[top + x] = cosine * p + sine * q
            b[bottom + x] = cosine * q - sine * p


@small
def keep_separator(current, k, n, T, P, b, p, factor, cells, work, rcond, weakest):
    """Store the finished rows of separator `p`, its right-hand side, and its weakest pivot."""
    size = 2 * k + 1
    at = (b * P + p) * cells
    reach = k // n
    end = (p + 1) * (T // P) + min(p + 1, T % P)
    for j in range(k):
        pivot = current[j * size + j]
        ratio = pivot * pivot / work[j] if work[j] != 0.0 else 0.0
        if not (ratio >= rcond[b * P + p]):
            rcond[b * P + p] = ratio
            weakest[b * P + p] = (end - reach) * n + j
        factor[at] = 1.0 / pivot
        for x in range(j + 1, 2 * k):
            factor[at + x - j] = current[j * size + x]
        at += 2 * k - j
        work[k + p * k + j] = current[j * size + 2 * k]


@small
def back_chain(factor, b, k, P, cells, y):
    """Solve `R y = y` in place, last separator first."""
    for p in range(P - 1, -1, -1):
        at = (b * P + p + 1) * cells
        for j in range(k - 1, -1, -1):
            at -= 2 * k - j
            total = y[b, p, j]
            for x in range(j + 1, k):
                total -= factor[at + x - j] * y[b, p, x]
            if p + 1 < P:
                for x in range(k):
                    total -= factor[at + k - j + x] * y[b, p + 1, x]
            y[b, p, j] = total * factor[at]


@inner
def eliminate_chain(coupling, k, n, T, P, first, last, factor, y, rcond, weakest):
    """Factor and solve the chain of sequences `first..last`; `rcond`, `weakest` per piece."""
    size = 2 * k + 1
    stride = 2 * k * size + 2 * k
    cells = k * (k + 1) // 2 + k * k
    current = np.zeros(k * size)  # rows over [own k | next k | rhs]
    row, work = np.zeros(size), np.empty(k + P * k)
    for b in range(first, last):
        current[:] = 0.0
        for p in range(P):
            rows = (b * P + p) * stride
            norms = rows + 2 * k * size
            following = np.zeros(k * size)
            if p > 0:
                for i in range(k):  # rows over the left separator only
                    row[:] = 0.0
                    start = rows + (k + i) * size
                    row[:k] = coupling[start + k : start + 2 * k]
                    row[2 * k] = coupling[start + 2 * k]
                    for j in range(i, k):
                        rotate(current, j * size + j, row, j, j * size, 0, size)
            for i in range(k - 1, -1, -1):
                start = rows + i * size
                row[:k] = coupling[start + k : start + 2 * k]
                row[k : 2 * k] = coupling[start : start + k]
                row[2 * k] = coupling[start + 2 * k]
                if p > 0:
                    for j in range(k):
                        rotate(current, j * size + j, row, j, j * size, 0, size)
                following[i * size : i * size + k] = row[k : 2 * k]
                following[i * size + 2 * k] = row[2 * k]
            if p > 0:
                keep_separator(current, k, n, T, P, b, p - 1, factor, cells, work, rcond, weakest)
            for j in range(k):  # norms of this separator's columns, from this piece and the next
                work[j] = coupling[norms + j]
                if p + 1 < P:
                    work[j] += coupling[norms + stride + k + j]
            current[:] = following
        keep_separator(current, k, n, T, P, b, P - 1, factor, cells, work, rcond, weakest)
        for p in range(P):
            for j in range(k):
                y[b, p, j] = work[k + p * k + j]
        back_chain(factor, b, k, P, cells, y)


@inner
def solve_chain(factor, g, y, first, last):
    """Solve `R^T R y = g` for the separators, `g[b, p, 0 | 1]` from `substitute_forward`."""
    P, k = y.shape[1], y.shape[2]
    cells = k * (k + 1) // 2 + k * k
    for b in range(first, last):
        for p in range(P):
            for j in range(k):
                y[b, p, j] = g[b, p, 0, j] + (g[b, p + 1, 1, j] if p + 1 < P else 0.0)
        for p in range(P):
            at = (b * P + p) * cells
            for j in range(k):
                y[b, p, j] *= factor[at]
                for x in range(j + 1, k):
                    y[b, p, x] -= factor[at + x - j] * y[b, p, j]
                if p + 1 < P:
                    for x in range(k):
                        y[b, p + 1, x] -= factor[at + k - j + x] * y[b, p, j]
                at += 2 * k - j
        back_chain(factor, b, k, P, cells, y)


@inner
def all_positive(s):
    least, noise = np.inf, 0.0
    for b in range(own(s, 0)):
        for v in range(own(s, 2)):
            for t in range(own(s, 1)):
                h = s[b, t, v]
                least = h if h < least else least
                noise += h - h  # NaN, if it is not finite
    return least > 0.0 and noise == 0.0


@inner
def all_zero(c, first):
    """Whether all coefficients of order `first` or above are zero."""
    for r in range(first, c.shape[4]):
        for b in range(own(c, 0)):
            for q in range(own(c, 2)):
                for v in range(own(c, 3)):
                    for t in range(own(c, 1)):
                        if c[b, t, q, v, r] != 0.0:
                            return False
    return True


@inner
def check_pivots(ratio, where, P, c, s, y, given, doubtful, rcond, weakest):
    """Weakest pivot of each sequence among its pieces; returns `FINE | STARTED` flags.

    Non-finite values propagate along the whole sequence in the substitution, back to time 0. Up to
    `given` derivatives have an initial value; a pivot below `doubtful` is small.
    """
    fine = True
    for b in range(len(rcond)):
        worst = b * P
        for p in range(b * P, b * P + P):
            if not (ratio[p] >= ratio[worst]):
                worst = p
        rcond[b], weakest[b] = np.sqrt(ratio[worst]), int(where[worst])
        fine = fine and rcond[b] > doubtful
        for v in range(y.shape[2]):
            for r in range(y.shape[3]):
                fine = fine and np.isfinite(y[b, 0, v, r])
    fine = fine and all_positive(s)
    return (FINE if fine else 0) | (STARTED if all_zero(c, given + 1) else 0)
