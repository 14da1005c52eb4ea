"""Errors with respect to exact least squares and to exact solutions of the ODE."""

import functools
import math

import numpy as np
import pytest
import torch

import smnn
from helpers import relative
from odes import ODES, Ode, relative_mse

WIDE = np.longdouble
EXTENDED = np.finfo(WIDE).eps < 1e-18
needs_extended_precision = pytest.mark.skipif(not EXTENDED, reason="long double is not extended")
ROUNDING = 1e-22
"""Relative MSE due to rounding over 10^4 small steps in float64: 1e-11 in y."""
OSCILLATOR = Ode("unit oscillator", (1.0, 0.0, 1.0), 0.0, (0.0, 1.0))


def times(T: int, s: float) -> np.ndarray:
    return np.arange(T) * WIDE(s)


def mse(y: torch.Tensor, ode: Ode, s: float, r: int = 0, v: int = 0) -> float:
    return relative_mse(y[:, v, r], ode.exact(times(len(y), s), r))


# ---------------------------------------------------------------- extended precision


def reduce(rows: np.ndarray, count: int) -> np.ndarray:
    """Householder triangle of the first `count` columns, largest entry of each column on top."""
    for k in range(min(count, len(rows))):
        top = k + int(np.argmax(np.abs(rows[k:, k])))
        rows[[k, top]] = rows[[top, k]]
        x = rows[k:, k].copy()
        length = np.sqrt((x * x).sum())
        if length == 0:
            continue
        x[0] += np.copysign(length, x[0])
        rows[k:, k:] -= np.outer(x, (x @ rows[k:, k:]) / (length * abs(x[0])))
        rows[k + 1 :, k] = 0
    return rows


def exact_least_squares(
    ode: Ode,
    T: int,
    s: float,
    R: int,
    w_gov: float = 1.0,
    w_init: float = 1.0,
    w_smooth: float = 1.0,
) -> np.ndarray:
    """The rows of the paper for one constant equation, in 80-bit arithmetic: `(T, R+1)`."""
    n, s = R + 1, WIDE(s)
    links = np.zeros((2 * n, 2 * n + 1), WIDE)
    for r in range(n):
        w = WIDE(w_smooth) * s**r
        links[r, n + r], links[n + r, r] = -w, -w
        for j in range(r, n):
            links[r, j] += w * s ** (j - r) / math.factorial(j - r)
            links[n + r, n + j] += w * (-s) ** (j - r) / math.factorial(j - r)
    here = np.zeros((1, 2 * n + 1), WIDE)
    here[0, : len(ode.c)], here[0, -1] = ode.c, ode.d
    here *= WIDE(w_gov)
    start = np.zeros((len(ode.u), 2 * n + 1), WIDE)
    start[:, : len(ode.u)] = np.eye(len(ode.u)) * w_init
    start[:, -1] = np.array(ode.u, WIDE) * w_init

    known, triangles = start, []
    for t in range(T):
        rows = reduce(np.vstack([known, here, *([links] if t < T - 1 else [])]), n)
        triangles.append(rows[:n])
        known = np.zeros((n, 2 * n + 1), WIDE)
        rest = reduce(rows[n:, n:].copy(), n)[:n]
        known[: len(rest), :n], known[: len(rest), -1] = rest[:, :n], rest[:, -1]
    y = np.zeros((T + 1, n), WIDE)
    for t in range(T - 1, -1, -1):
        rows = triangles[t]
        right = rows[:, -1] - rows[:, n:-1] @ y[t + 1]
        for i in range(n - 1, -1, -1):
            y[t, i] = (right[i] - rows[i, i + 1 : n] @ y[t, i + 1 :]) / rows[i, i]
    return y[:T]


@functools.cache
def fine_grid(name: str, R: int) -> np.ndarray:
    """Extended precision takes seconds: once for all backends."""
    return exact_least_squares(ODES[name], 10_000, 0.001, R)


@needs_extended_precision
@pytest.mark.slow
@pytest.mark.parametrize("R", [3, 4, 5])
@pytest.mark.parametrize("name", ["harmonic", "third order"])
def test_ten_thousand_small_steps(name: str, R: int, fast_backend: str, device: str) -> None:
    """Within a factor ten of the exact least-squares solution, where normal equations stall."""
    T, s = 10_000, 0.001
    y = smnn.solve(*ODES[name].native(T, s, device=device), order=R, backend=fast_backend).cpu()
    exact = ODES[name].exact(times(T, s))
    reachable = relative_mse(fine_grid(name, R)[:, 0], exact)
    assert relative_mse(y[:, 0, 0], exact) < max(10 * reachable, ROUNDING)
    assert relative_mse(y[:, 0, 0], fine_grid(name, R)[:, 0]) < ROUNDING


UNEVEN = {
    "stiff equation": (Ode("", (1e8, 0.0, 1.0), 0.0, (1.0, 0.0)), {}),
    "small equation": (Ode("", (2e-6, 0.0, 1e-6), 0.0, (0.4, 0.1)), {}),
    "large equation": (Ode("", (2e6, 0.0, 1e6), 0.0, (0.4, 0.1)), {}),
    "heavy initial values": (ODES["harmonic"], {"w_init": 1e6}),
    "heavy equation": (ODES["damped"], {"w_gov": 1e6}),
    "heavy smoothness": (ODES["third order"], {"w_smooth": 1e4}),
    "light smoothness": (ODES["third order"], {"w_smooth": 1e-4}),
}


@needs_extended_precision
@pytest.mark.parametrize("name", UNEVEN)
@pytest.mark.parametrize(("s", "R"), [(0.01, 3), (0.01, 5), (1.0, 4)])
def test_rows_of_very_different_size(
    name: str, s: float, R: int, fast_backend: str, device: str
) -> None:
    ode, weights = UNEVEN[name]
    y = smnn.solve(*ode.native(200, s, device=device), order=R, backend=fast_backend, **weights)
    expected = exact_least_squares(ode, 200, s, R, **weights).astype(float)
    assert relative(y[:, 0, 0], expected[:, 0]) < 1e-11
    scale = s ** np.arange(R + 1.0)  # what the smoothness rows weigh the derivatives with
    assert relative(y[:, 0].cpu().numpy() * scale, expected * scale) < 1e-11


# ---------------------------------------------------------------- float32


@pytest.mark.parametrize("T", [1000, 10_000])
@pytest.mark.parametrize(
    ("name", "R"),
    [(name, 2) for name in ODES if name != "third order"]
    + [("harmonic", 3), ("harmonic", 4), ("third order", 3), ("third order", 4)],
)
def test_float32(name: str, R: int, T: int, fast_backend: str, device: str) -> None:
    """The published solver has a relative error of 0.88 here, and NaN for the third order."""
    low, high = (
        smnn.solve(
            *ODES[name].native(T, 0.01, dtype=dtype, device=device), order=R, backend=fast_backend
        )
        for dtype in (torch.float32, torch.float64)
    )
    for r in range(R + 1):
        assert relative(low[:, 0, r], high[:, 0, r]) < 1e-5


# ---------------------------------------------------------------- the method


PAPER = {
    "RC circuit": ("4.8e-12", "4.8e-12", "2.2e-07"),
    "population": ("9.4e-12", "9.4e-12", "9.6e-08"),
    "language death": ("2.6e-11", "2.6e-11", "7.1e-07"),
    "harmonic": ("9.5e-08", "7.7e-08", "5.1e-07"),
    "damped": ("2.1e-07", "2.3e-07", "4.0e-07"),
    "third order": ("1.0e-09", "6.8e-10", "4.3e-09"),
}


@pytest.mark.parametrize("name", PAPER)
def test_table_of_the_paper(name: str, fast_backend: str, device: str) -> None:
    """First-order systems at R = 2, as the paper solves them, at the digits it prints."""
    args = [x.to(device) for x in ODES[name].system(1000, 0.01, 2)]
    y = smnn.solve(*args, backend=fast_backend)
    assert tuple(f"{mse(y, ODES[name], 0.01, r):.1e}" for r in range(3)) == PAPER[name]


@pytest.mark.parametrize("name", ODES)
def test_raised_order(name: str, fast_backend: str, device: str) -> None:
    """With derivatives up to order 6: far more accurate than RK45 and LSODA at 1e-5."""
    args = ODES[name].native(1000, 0.01, device=device)
    y = smnn.solve(*args, order=6, backend=fast_backend)
    assert max(mse(y, ODES[name], 0.01, r) for r in range(3)) < 1e-14


def slope(ode: Ode, R: int, scheme: str, backend: str, device: str) -> float:
    """Order of convergence: slope of the error over the step in a log-log plot."""
    counts = np.array([32, 64, 128, 256])
    errors = []
    for N in counts:
        y = smnn.solve(
            *ode.native(N + 1, 2.0 / N, device=device), order=R, scheme=scheme, backend=backend
        )
        errors.append(relative(y[:, 0, 0], ode.exact(times(N + 1, 2.0 / N)).astype(float)))
    return -np.polyfit(np.log(counts), np.log(errors), 1)[0]


ORDERS = [("smnn", R) for R in (1, 2, 3, 4, 5)] + [("central", R) for R in (1, 2, 3, 4)]


@pytest.mark.parametrize(("scheme", "R"), ORDERS)
def test_order_of_convergence_first_order(
    scheme: str, R: int, fast_backend: str, device: str
) -> None:
    ode = Ode("", (1.0, 0.5), 0.0, (1.0,))
    expected = 2 * ((R + 1) // 2)
    assert slope(ode, R, scheme, fast_backend, device) == pytest.approx(expected, abs=0.4)


@pytest.mark.parametrize(("scheme", "R"), [x for x in ORDERS if x[1] > 1])
def test_order_of_convergence_second_order(
    scheme: str, R: int, fast_backend: str, device: str
) -> None:
    measured = slope(OSCILLATOR, R, scheme, fast_backend, device)
    assert measured == pytest.approx(2 * (R // 2), abs=0.4)


FIGURES = [("central", 2, 3.5e-5), ("smnn", 2, 1.5e-2), ("smnn", 3, 7.5e-6), ("smnn", 4, 4.5e-11)]


@pytest.mark.parametrize(("scheme", "R", "expected"), FIGURES)
def test_oscillator_of_the_original(
    scheme: str, R: int, expected: float, fast_backend: str, device: str
) -> None:
    """u'' + u = 0, step 0.05, 500 times: `central` is as accurate as the original network."""
    args = OSCILLATOR.native(500, 0.05, device=device)
    y = smnn.solve(*args, order=R, scheme=scheme, backend=fast_backend)
    assert mse(y, OSCILLATOR, 0.05) == pytest.approx(expected, rel=0.05)


def test_long_sequence(fast_backend: str, device: str) -> None:
    """The error does not grow over a hundred thousand steps."""
    ode = ODES["RC circuit"]
    y = smnn.solve(*ode.native(100_001, 1e-4, device=device), order=4, backend=fast_backend)
    assert mse(y, ode, 1e-4) < 1e-18
