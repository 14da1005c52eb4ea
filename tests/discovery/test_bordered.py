"""Bordered elimination against dense least squares."""

import numpy as np
import pytest

from smnn.discovery._fit.bordered import Chain, eliminate, states_for


def dense(chain: Chain) -> tuple[np.ndarray, np.ndarray]:
    N, D, m = chain.B.shape
    rows, values = [], []
    for k in range(N):
        for i in range(D):
            row = np.zeros(N * D + m)
            row[k * D + i] = chain.wd[k, i]
            rows.append(row)
            values.append(chain.wd[k, i] * chain.e[k, i])
            if chain.follows[k]:
                row = np.zeros(N * D + m)
                row[k * D : (k + 1) * D] = -chain.A[k, i]
                row[(k + 1) * D + i] = 1.0
                row[N * D :] = -chain.B[k, i]
                rows.append(chain.wq[k, i] * row)
                values.append(-chain.wq[k, i] * chain.r[k, i])
    return np.array(rows), np.array(values)


def chain_of(seed: int, N: int, D: int, m: int, weight: float) -> Chain:
    rng = np.random.default_rng(seed)
    follows = rng.random(N) > 0.15
    follows[-1] = False
    wd = (rng.random((N, D)) > 0.2) * rng.uniform(0.5, 2.0, (N, D))
    wd[~follows] = np.maximum(wd[~follows], 0.5)  # every segment is determined
    return Chain(
        np.eye(D) + 0.3 * rng.normal(size=(N, D, D)),
        rng.normal(size=(N, D, m)),
        rng.normal(size=(N, D)),
        np.full((N, D), weight) * rng.uniform(0.5, 2.0, (N, D)),
        wd,
        rng.normal(size=(N, D)),
        follows,
    )


@pytest.mark.parametrize("weight", [0.1, 1.0, 1e3, 1e7])
@pytest.mark.parametrize(("D", "m"), [(1, 1), (2, 5), (3, 0), (4, 7)])
def test_agrees_with_dense_least_squares(D: int, m: int, weight: float) -> None:
    chain = chain_of(D + m, 17, D, m, weight)
    eliminated = eliminate(chain, np.full(D, 1e-12))
    left = eliminated.left.reshape(-1, m + 1)
    dp = np.linalg.lstsq(left[:, :m], left[:, m], rcond=None)[0]
    dx = states_for(eliminated, chain, dp)
    A, b = dense(chain)
    scale = np.linalg.norm(A, axis=0)
    expected = np.linalg.lstsq(A / scale, b, rcond=None)[0] / scale
    np.testing.assert_allclose(dx.ravel(), expected[: dx.size], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(dp, expected[dx.size :], rtol=1e-6, atol=1e-8)


def test_remaining_rows_give_the_cost() -> None:
    """With optimal states for given parameters, the remaining rows are the whole cost."""
    chain = chain_of(3, 12, 2, 3, 2.0)
    eliminated = eliminate(chain, np.full(2, 1e-12))
    A, b = dense(chain)
    for seed in range(3):
        dp = np.random.default_rng(seed).normal(size=3)
        dx = states_for(eliminated, chain, dp)
        left = eliminated.left.reshape(-1, 4)
        cost = ((A @ np.concatenate([dx.ravel(), dp]) - b) ** 2).sum()
        assert cost == pytest.approx(((left[:, :3] @ dp - left[:, 3]) ** 2).sum(), rel=1e-9)


def test_determinant() -> None:
    chain = chain_of(5, 9, 2, 0, 3.0)
    A, _ = dense(chain)
    expected = 0.5 * np.linalg.slogdet(A.T @ A)[1]
    assert eliminate(chain, np.full(2, 1e-12)).log_determinant == pytest.approx(expected, rel=1e-9)
