"""The original MNN of one sample written out with loops, and solved by QR in NumPy.

Shares no code with the package: rows, signs and scalings are those of the published formulation.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


def mnn_rows(
    c: np.ndarray, d: np.ndarray, u: np.ndarray, s: np.ndarray, p: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """`A'` and `b'` with the slack as unknown 0.

    Sizes: c (T,Q,V,R+1), d (T,Q), u (T_init,V,R_init+1), s (T-1,V), p (V,R).
    """
    T, Q, V, orders = c.shape
    R = orders - 1
    A: list[np.ndarray] = []
    b: list[float] = []

    def row(right: float, slack: float, *terms: tuple[int, int, int, float]) -> None:
        a = np.zeros((T, V, orders))
        for t, v, r, value in terms:
            a[t, v, r] += value
        A.append(np.concatenate([[slack], a.ravel()]))
        b.append(right)

    for q in range(Q):
        for t in range(T):
            row(d[t, q], 0, *((t, v, r, c[t, q, v, r]) for v in range(V) for r in range(orders)))
    for t, v, r in np.ndindex(*u.shape):
        row(u[t, v, r], 0, (t, v, r, 1.0))
    if p is not None:
        for v, r in np.ndindex(V, R):
            row(p[v, r], 0, (0, v, r, 1.0), (T - 1, v, r, -1.0))
    for t in range(T - 1):
        for v in range(V):
            for h, here, there in ((s[t, v], t, t + 1), (-s[t, v], t + 1, t)):
                for r in range(R):
                    terms = [(here, v, j, h**j / math.factorial(j - r)) for j in range(r, orders)]
                    row(0, 1, *terms, (there, v, r, -(h**r)))
    for t in range(1, T - 1):
        for v in range(V):
            H = s[t - 1, v] + s[t, v]
            m = H ** (R - 1)
            ends = (t + 1, v, R - 1, m / H), (t - 1, v, R - 1, -m / H)
            row(0, 1, *ends, (t, v, R, -m))
    return np.array(A), np.array(b)


class Solution(NamedTuple):
    y: np.ndarray
    eps: float
    x: np.ndarray
    A: np.ndarray
    b: np.ndarray
    R: np.ndarray
    """Triangle of `A'`."""
    condition: float


def mnn_oracle(c: Any, d: Any, u: Any, s: Any, load: float, p: Any = None) -> Solution:
    """Minimise half the squares of the rows minus `load * eps`."""
    arrays = [
        x.detach().cpu().double().numpy() if isinstance(x, Tensor) else x for x in (c, d, u, s, p)
    ]
    c, d, u, s, p = arrays
    s = np.broadcast_to(s if s.ndim == 2 else s[:, None], (c.shape[0] - 1, c.shape[2]))
    A, b = mnn_rows(c, d, u, s, p)
    norms = np.linalg.norm(A, axis=0)
    Q, R = np.linalg.qr(A / norms)
    first = np.zeros(A.shape[1])
    first[0] = load / norms[0]
    x = np.linalg.solve(R, Q.T @ b + np.linalg.solve(R.T, first)) / norms
    return Solution(
        x[1:].reshape(c.shape[0], *c.shape[2:]), x[0], x, A, b, R * norms, np.linalg.cond(R)
    )


class Problem(NamedTuple):
    """Arguments of the functions under test."""

    c: Tensor
    d: Tensor
    u: Tensor
    s: Tensor
    periodic: Tensor | None
    gamma: float = 0.5
    alpha: float = 0.1

    def kw(self) -> dict[str, Any]:
        return {"gamma": self.gamma, "alpha": self.alpha, "periodic": self.periodic}

    def oracle(self, *index: int) -> Solution:
        """Of one sample."""
        load = self.gamma * self.alpha
        p = None if self.periodic is None else self.periodic[index]
        return mnn_oracle(*(x[index] for x in self[:4]), load, p)


def random_mnn(
    seed: int = 0, *, T: int = 8, V: int = 2, Q: int = 2, R: int = 2, T_init: int = 2,
    R_init: int = 0, batch: tuple[int, ...] = (), periodic: bool = False, step: float = 1.0,
    per_variable: bool = True, limit: float = 1e6, **extra: float,
) -> Problem:  # fmt: skip
    """A random problem, drawn again until the condition number of every sample is below `limit`."""
    for attempt in range(100):
        rng = np.random.default_rng([seed, attempt])

        def draw(*shape: int, rng: np.random.Generator = rng) -> Tensor:
            return torch.as_tensor(rng.standard_normal((*batch, *shape)))

        steps = step * rng.uniform(
            0.5, 1.5, (*batch, T - 1, V) if per_variable else (*batch, T - 1)
        )
        problem = Problem(
            draw(T, Q, V, R + 1), draw(T, Q), draw(T_init, V, R_init + 1),
            torch.as_tensor(steps), draw(V, R) if periodic else None, **extra,
        )  # fmt: skip
        if max(problem.oracle(*i).condition for i in np.ndindex(*batch)) < limit:
            return problem
    raise AssertionError("no well-posed problem found")
