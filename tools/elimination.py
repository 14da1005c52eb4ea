r"""Compare the rounding errors of the paper's Algorithms 1 to 4 with those of `smnn.solve`.

    python tools/elimination.py      # writes docs/generated/elimination.md, in a minute

Both solve the same least-squares problem in float64; the exact solution is computed by the same
algorithms in 60 digits. M, N and beta are assembled as in the paper's appendix A.2.
"""

from __future__ import annotations

from math import factorial
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import torch

import smnn
from table_text import table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "generated" / "elimination.md"
T = 200
EQUATIONS = {
    "y'' + 2.1 y = 0": ((2.1, 0.0, 1.0), (0.4, -0.03)),
    "y' + y'' + y''' = 0": ((0.0, 1.0, 1.0, 1.0), (0.0, -1.0, 1.0)),
}
STEPS = (0.1, 0.01, 0.001)
Array = np.ndarray


def blocks(c: Array, u: Array, s: Any) -> tuple[list[Array], Array, list[Array]]:
    """Diagonal blocks M, the subdiagonal block N and right-hand sides beta, all weights one."""
    n = len(c)
    F = np.array([[c[0] * 0 + 1 / (s * 0 + factorial(j - i)) if j >= i else c[0] * 0
                   for j in range(n)] for i in range(n)])  # fmt: skip
    plus, minus = (np.diag([(sign * s) ** r for r in range(n)]) for sign in (1, -1))
    square = np.diag([s ** (2 * r) for r in range(n)])
    ahead = plus @ F.T @ F @ plus + square
    behind = minus @ F.T @ F @ minus + square
    N = -plus @ F @ plus - minus @ F.T @ minus
    U = np.diag([c[0] * 0 + (r < len(u)) for r in range(n)])
    M = [np.outer(c, c) + ahead * (t < T - 1) + behind * (t > 0) + U * (t == 0) for t in range(T)]
    start = np.concatenate([u, c[len(u) :] * 0])
    return M, N, [start * (t == 0) for t in range(T)]


def cholesky(A: Array) -> Array:
    L = A * 0
    for j in range(len(A)):
        for i in range(j, len(A)):
            rest = A[i, j] - (L[i, :j] * L[j, :j]).sum()
            L[i, j] = rest**0.5 if i == j else rest / L[j, j]
    return L


def lower(L: Array, B: Array) -> Array:
    """`L^-1 B`."""
    X = B * 0
    for i in range(len(L)):
        X[i] = (B[i] - L[i, :i] @ X[:i]) / L[i, i]
    return X


def upper(L: Array, B: Array) -> Array:
    """`L^-T B`."""
    return lower(L[::-1, ::-1].T, B[::-1])[::-1]


def algorithms(M: list[Array], N: Array, beta: list[Array]) -> Array:
    """Decompose (Algorithm 3) and Substitute (Algorithm 4), which Algorithm 1 calls in turn."""
    L, P = [cholesky(M[0])], []
    for t in range(1, T):
        P.append(lower(L[-1], N.T).T)
        L.append(cholesky(M[t] - P[-1] @ P[-1].T))
    P = [upper(L[t], P[t].T).T for t in range(T - 1)]
    a = list(beta)
    for t in range(1, T):
        a[t] = a[t] - P[t - 1] @ a[t - 1]
    a = [upper(L[t], lower(L[t], a[t])) for t in range(T)]
    for t in range(T - 2, -1, -1):
        a[t] = a[t] - P[t].T @ a[t + 1]
    return np.array(a)


def condition(M: list[Array], N: Array) -> float:
    n = len(N)
    whole = np.zeros((T * n, T * n))
    for t in range(T):
        here = slice(t * n, t * n + n)
        whole[here, here] = M[t]
        if t:
            whole[here, (t - 1) * n : t * n] = N
            whole[(t - 1) * n : t * n, here] = N.T
    return float(np.linalg.cond(whole))


def main() -> None:
    mpmath.mp.dps = 60
    rows = []
    for name, (c, u) in EQUATIONS.items():
        for s in STEPS:
            exact = [np.array([mpmath.mpf(x) for x in v]) for v in (c, u)]
            truth = algorithms(*blocks(*exact, mpmath.mpf(s)))[:, 0].astype(float)
            parts = blocks(np.array(c), np.array(u), s)
            d = torch.float64
            y = smnn.solve(
                torch.tensor(c, dtype=d).expand(T, 1, 1, -1), torch.zeros(T, 1, dtype=d),
                torch.tensor(u, dtype=d)[None, None], torch.full((T - 1,), s, dtype=d),
            )[:, 0, 0].numpy()  # fmt: skip
            size = np.abs(truth).max()
            try:
                found = algorithms(*parts)[:, 0]
                theirs = f"{np.abs(found - truth).max() / size:.1e}"
            except FloatingPointError:
                theirs = "fails: not positive definite"
            ours = np.abs(y - truth).max() / size
            rows.append([name, f"{s:g}", f"{condition(*parts[:2]):.0e}", theirs, f"{ours:.1e}"])
    head = ["equation", "step", "condition of $M$", "Algorithms 1 to 4", "`smnn.solve`"]
    text = (
        f"Largest error of $y$ relative to its largest value, {T} times, float64, against 60 "
        f"digits.\n\n{table(head, rows)}\n\nWritten by `python tools/elimination.py`.\n"
    )
    PAGE.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    with np.errstate(invalid="raise"):
        main()
