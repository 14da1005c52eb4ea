"""Least squares in 120 digits, for problems that float64 may not solve."""

from typing import Any

import mpmath
import numpy as np

from helpers import expand
from solver.trust import oracle

DIGITS = 120


def solve(*args: Any, **kw: Any) -> tuple[np.ndarray, np.ndarray]:
    """`y` of one problem, `(T, V, R+1)`, and the norms of its columns.

    Normal equations by Cholesky, in 120 digits: squaring a condition number of 1e30 leaves 60.
    """
    with mpmath.workdps(DIGITS):
        batch, full = expand(*args, **kw)
        assert batch == ()
        exactly = np.vectorize(mpmath.mpf, otypes=[object])
        wide = [(exactly(x) if x.size else x.astype(object))[None] for x in full]
        A, b = oracle.rows(*wide, kw.get("scheme", "smnn"))
        A, b = A[0], b[0]
        n = A.shape[1]
        rows = [np.flatnonzero(row != 0) for row in A]
        M = np.full((n, n + 1), mpmath.mpf(0), object)
        for row, right, at in zip(A, b, rows):
            M[np.ix_(at, at)] += np.outer(row[at], row[at])
            M[at, n] += row[at] * right
        norms = np.array([float(mpmath.sqrt(M[j, j])) for j in range(n)])
        reach = max(int(at[-1] - at[0]) for at in rows if len(at))
        for j in range(n):  # what is right of the band stays zero
            last = min(j + reach + 1, n)
            for k in range(j + 1, last):
                if M[j, k] != 0:
                    factor = M[j, k] / M[j, j]
                    M[k, k:last] -= factor * M[j, k:last]
                    M[k, n] -= factor * M[j, n]
        x = np.full(n, mpmath.mpf(0), object)
        for j in range(n - 1, -1, -1):
            last = min(j + reach + 1, n)
            x[j] = (M[j, n] - (M[j, j + 1 : last] * x[j + 1 : last]).sum()) / M[j, j]
        shape = full[0].shape[0], full[0].shape[2], full[0].shape[3]
        return np.array([float(value) for value in x]).reshape(shape), norms.reshape(shape)


def errors(y: Any, exact: np.ndarray, norms: np.ndarray) -> tuple[float, float]:
    """Largest error of the values; and of all derivatives, in units of their columns: relative."""
    y = np.asarray(y)
    values = np.abs(y[..., 0] - exact[..., 0]).max() / np.abs(exact[..., 0]).max()
    scaled = norms * np.abs(y - exact)
    return float(values), float(scaled.max() / (norms * np.abs(exact)).max())
