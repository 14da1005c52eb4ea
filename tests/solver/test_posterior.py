"""`posterior` and `fit_weights`: the dense Gaussian, a Kalman smoother, coverage."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import smnn
from helpers import Case, random_problem, relative, rows_of
from solver.internals import unit_link

f64 = torch.float64
BACKENDS = ("cpu", "torch", "reference")
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch": {"batch": (2, 3), "shared": "cs"},
    "one unknown": {"V": 1, "Q": 1, "R": 0, "T_init": 3},
    "two times": {"T": 2},
    "steps per variable": {"per_variable": True},
    "weights": {"weights": "tensor", "T_init": 4},
    "observed everywhere": {"V": 1, "Q": 1, "R": 2, "T": 9, "T_init": 9},
    "pieces": {"V": 1, "Q": 1, "R": 1, "T": 130, "T_init": 130, "constant": "cds"},
    "pieces of several sequences": {
        "V": 1, "Q": 1, "R": 1, "T": 130, "T_init": 130, "constant": "cds", "batch": (3,)
    },
}  # fmt: skip


def posterior(case: Case, backend: str = "auto") -> smnn.Posterior:
    return smnn.posterior(*case.args, **case.kw, backend=backend)


def dense(case: Case) -> tuple[np.ndarray, list[np.ndarray]]:
    """Inverse normal matrix of each sample, `(B, T, n, T, n)`, and all weighted rows."""
    _, shape, As, _ = rows_of(*case.args, **case.kw)
    T, n = shape[0], math.prod(shape[1:])
    inverses = []
    for A in As:
        scale = np.linalg.norm(A, axis=0)
        _, sizes, axes = np.linalg.svd(A / scale, full_matrices=False)
        inverses.append((axes.T / sizes**2) @ axes / np.outer(scale, scale))
    return np.stack(inverses).reshape(-1, T, n, T, n), As


@pytest.mark.parametrize("name", OPTIONS)
def test_blocks_of_the_dense_inverse(name: str) -> None:
    """Every covariance that is offered, within 1e-10, and the determinant."""
    case = random_problem(3, limit=1e3 if "pieces" not in name else None, **OPTIONS[name])
    inverse, As = dense(case)
    T, V, m = case.solve().shape[-3:]
    for backend in BACKENDS:
        found = posterior(case, backend)
        for lag in (0, 1):
            expected = np.stack([inverse[:, t, :, t + lag] for t in range(T - lag)], 1)
            ours = found.covariance(lag).reshape(-1, T - lag, V * m, V * m)
            sd = np.sqrt(np.einsum("btiti->bti", inverse))
            units = sd[:, : T - lag, :, None] * sd[:, lag:, None]
            assert (np.abs(ours.numpy() - expected) / units).max() < 1e-10, (backend, lag)
        variance = found.variance().reshape(-1, T * V * m).numpy()
        assert relative(found.mean, case.solve(backend)) < 1e-12
        assert np.allclose(variance, np.stack([np.diag(x.reshape(T * V * m, -1)) for x in inverse]))
        logdet = [2 * np.log(np.abs(np.diag(np.linalg.qr(A, mode="r")))).sum() for A in As]
        assert np.allclose(found.logdet().flatten(), logdet, rtol=1e-10, atol=1e-9)
        shares = [x.flatten(len(case.args[0].shape) - 4).sum(-1) for x in found.leverage()]
        assert relative(torch.stack(shares).sum(0), torch.full_like(shares[0], T * V * m)) < 1e-9


def test_samples_have_the_mean_and_the_covariance() -> None:
    case = random_problem(1, T=4, V=1, Q=1, R=1, limit=1e2)
    found = posterior(case)
    draws = found.sample(4000, torch.Generator().manual_seed(0))
    sd = found.variance().sqrt()
    assert ((draws.mean(0) - found.mean).abs() < 5 * sd / math.sqrt(4000)).all()
    assert ((draws.std(0) / sd - 1).abs() < 0.06).all()
    errors = (draws - found.mean) / sd
    across = (errors[:, :-1, 0, 0] * errors[:, 1:, 0, 0]).mean(0)
    expected = found.covariance(1)[:, 0, 0, 0, 0] / (sd[:-1, 0, 0] * sd[1:, 0, 0])
    assert (across - expected).abs().max() < 0.08


def test_evidence_is_the_density_of_the_data() -> None:
    """A normal distribution whose covariance is that of the trajectory without data, plus noise."""
    case = random_problem(2, T=6, V=1, Q=1, R=1, T_init=6, limit=1e3)
    case = case.replace(w_init=3.0, w_gov=5.0)
    c, d, u, s = case.args
    prior = 1e4  # standard deviation of the first jet, where order r is scaled by s^r
    _, shape, (A,), (b,) = rows_of(*case.args, **case.kw)
    data = np.isclose(np.abs(A).sum(1), 3.0) & (np.count_nonzero(A, axis=1) == 1)
    assert data.sum() == 6
    start = np.zeros((2, A.shape[1]))
    start[[0, 1], [0, 1]] = s[0].item() ** np.arange(2) / prior
    rows, right = np.vstack([A[~data], start]), np.concatenate([b[~data], [0, 0]])
    S = np.linalg.inv(rows.T @ rows)
    seen = A[data] / 3.0
    spread = seen @ S @ seen.T + np.eye(6) / 9
    error = b[data] / 3.0 - seen @ (S @ rows.T @ right)
    expected = -0.5 * (
        error @ np.linalg.solve(spread, error) + np.linalg.slogdet(2 * np.pi * spread)[1]
    )
    found = posterior(case).log_evidence(diffuse_sd=prior)
    assert found.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("method", ["variance", "covariance", "logdet", "leverage", "log_evidence"])
def test_gradients(method: str) -> None:
    """By coefficients, steps and weights."""
    case = random_problem(4, T=4, V=1, Q=1, R=1, T_init=3, limit=1e2)
    c, d, u, s = case.args
    leaves = [c, s, *torch.tensor([1.5, 0.8, 1.2], dtype=f64)]
    leaves = [x.clone().requires_grad_() for x in leaves]

    def call(c: Tensor, s: Tensor, a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        found = smnn.posterior(c, d, u, s, w_gov=a, w_init=b, w_smooth=w)
        if method == "log_evidence":
            return found.log_evidence(diffuse_sd=10.0)
        if method == "covariance":
            return found.covariance(1)
        if method == "leverage":
            return torch.cat([x.flatten() for x in found.leverage()])
        result: Tensor = getattr(found, method)()
        return result

    torch.autograd.gradcheck(call, leaves, atol=1e-6, rtol=1e-4)


def test_same_numbers_as_a_kalman_smoother() -> None:
    """An integrated Wiener process with a proper prior and noisy data at every time."""
    T, m, h, sigma = 40, 3, 0.1, 0.2
    draw = np.random.default_rng(0)
    data = np.sin(h * np.arange(T)) + sigma * draw.normal(size=T)
    c = torch.zeros(1, 1, 1, m, dtype=f64)
    u = torch.zeros(T, 1, m, dtype=f64)
    u[:, 0, 0] = torch.from_numpy(data)
    w = torch.zeros(T, 1, m, dtype=f64)
    w[:, 0, 0] = 1 / sigma
    w[0, 0] = torch.tensor([1 / sigma, 0.5, 0.25], dtype=f64)  # the prior of y' and y''
    found = smnn.posterior(
        c, torch.zeros(1, 1, dtype=f64), u, torch.full((T - 1,), h, dtype=f64), w_init=w,
        w_gov=0.0, w_smooth=2.0, scheme="iwp",
    )  # fmt: skip
    # Transition and noise of the jet: x = (h^r y_r) moves by Taylor's matrix with noise Q(1) / 4.
    r = np.arange(m)
    order = np.maximum(r[None] - r[:, None], 0)
    factorial = np.vectorize(math.factorial)
    F = np.triu(1.0 / factorial(order)) * h ** np.triu(order)
    p, q = m - 1 - r[:, None], m - 1 - r[None]
    unit = 1.0 / ((p + q + 1) * factorial(p) * factorial(q))
    Q = unit / unit[-1, -1] * _size_of_last(m) / 4 / np.outer(h**r, h**r)
    mean, P = np.array([0.0, 0.0, 0.0]), np.diag([1e6, 4.0, 16.0])
    means, covs, ahead = [], [], []
    for t in range(T):
        if t:
            mean, P = F @ mean, F @ P @ F.T + Q
        ahead.append((mean, P))
        gain = P[:, 0] / (P[0, 0] + sigma**2)
        mean, P = mean + gain * (data[t] - mean[0]), P - np.outer(gain, P[0])
        means.append(mean)
        covs.append(P)
    for t in range(T - 2, -1, -1):
        G = np.linalg.solve(ahead[t + 1][1], F @ covs[t]).T
        means[t] = means[t] + G @ (means[t + 1] - ahead[t + 1][0])
        covs[t] = covs[t] + G @ (covs[t + 1] - ahead[t + 1][1]) @ G.T
    assert relative(found.mean[:, 0], torch.from_numpy(np.stack(means))) < 1e-6
    variances = torch.from_numpy(np.stack([np.diag(P) for P in covs]))
    assert (found.variance()[:, 0] / variances - 1).abs().max() < 1e-5


def _size_of_last(m: int) -> float:
    """Variance of the top order of a link of weight one."""
    K = unit_link(m - 1, "iwp")[0]
    return float(np.linalg.inv(K.T @ K)[-1, -1])


# ---------------------------------------------------------------- learning weights


def noisy_oscillator(seed: int, forcing: float, T: int = 400, sigma: float = 0.1) -> Any:
    """`y'' + 0.2 y' + y = noise` seen with noise; the equation is known without its forcing."""
    draw, h = np.random.default_rng(seed), 0.1
    x, path = np.array([1.0, 0.0]), []
    for _ in range(T):
        path.append(x[0])
        for _ in range(10):
            x = x + h / 10 * np.array([x[1], -x[0] - 0.2 * x[1]])
            x[1] += forcing * draw.normal() * math.sqrt(h / 10)
    truth = torch.tensor(path, dtype=f64)
    u = (truth + sigma * torch.from_numpy(draw.normal(size=T))).view(T, 1, 1)
    c = torch.tensor([1.0, 0.2, 1.0], dtype=f64).view(1, 1, 1, 3)
    s = torch.full((T - 1,), h, dtype=f64)
    return truth, (c, torch.zeros(1, 1, dtype=f64), u, s)


@pytest.mark.parametrize("forcing", [0.0, 0.3])
def test_learned_weights_cover_the_truth(forcing: float) -> None:
    """The noise within 10 %, and 95 % bands that cover 93 to 97 %, over several series."""
    covered, sigmas = [], []
    for seed in range(6):
        truth, args = noisy_oscillator(seed, forcing)
        start: dict[str, Any] = {"w_gov": 3.0, "w_init": 5.0, "w_smooth": 30.0}
        found = smnn.fit_weights(*args, learn=tuple(start), diffuse_sd=100.0, **start)
        assert found.message == "" or "w_gov" in found.message  # no forcing: as large as you like
        weights = dict(zip(("w_gov", "w_init", "w_smooth"), found[:3]))
        best = smnn.posterior(*args, **weights)
        sd = best.variance()[:, 0, 0].sqrt()
        covered.append(((best.mean[:, 0, 0] - truth).abs() < 1.96 * sd).double().mean().item())
        sigmas.append(1 / float(weights["w_init"]))
    assert np.abs(np.array(sigmas) / 0.1 - 1).max() < 0.1
    if forcing:
        assert 0.93 <= np.mean(covered) <= 0.97


def test_errors() -> None:
    case = random_problem(0)
    with pytest.raises(ValueError, match="couple three times"):
        posterior(case.replace(scheme="central"))
    with pytest.raises(ValueError, match="lag: got 2"):
        posterior(case).covariance(2)
    with pytest.raises(ValueError, match="learn: got"):
        smnn.fit_weights(*case.args, learn=("sigma",))
    _, (c, d, u, s) = noisy_oscillator(0, 0.0, T=20)
    c = torch.tensor([0.0, 1.0], dtype=f64).view(1, 1, 1, 2)  # y' = 0: any constant
    with pytest.raises(smnn.SolveError, match="pass diffuse_sd"):
        smnn.posterior(c, d, u, s).log_evidence()
