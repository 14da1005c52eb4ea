r"""A time-varying coefficient.

A spring that softens while it oscillates: $y'' + k(t)\,y = 0$ with a stiffness that decreases from
9 to 4, observed by 200 noisy positions. The stiffness is interpolated between eight knots. The
coefficients of the solver may vary in time and are differentiable, so the knots are fitted like
any other parameters.
"""

import sys

import numpy as np
import torch
from scipy.integrate import solve_ivp

import smnn

torch.set_default_dtype(torch.float64)
T, STEP, KNOTS = 401, 0.05, 8


def stiffness(t):
    return 6.5 - 2.5 * np.tanh((t - 10) / 4)


def run():
    t = STEP * np.arange(T)
    rate = lambda t, s: (s[1], -stiffness(t) * s[0])  # noqa: E731
    clean = solve_ivp(rate, (0, t[-1]), (1, 0), t_eval=t, rtol=1e-9, atol=1e-9).y[0]
    data = torch.as_tensor(clean + 0.05 * np.random.default_rng(0).standard_normal(T))[::2]

    knots = torch.full((KNOTS,), 7.0, requires_grad=True)
    start = torch.tensor([1.0, 0.0], requires_grad=True)
    place = torch.linspace(0, KNOTS - 1, T)
    hats = (1 - (place[:, None] - torch.arange(KNOTS)).abs()).clamp(min=0)  # (T, KNOTS)
    step, right = torch.tensor([STEP]), torch.zeros(1, 1)
    optimizer = torch.optim.LBFGS([knots, start], max_iter=200, line_search_fn="strong_wolfe")

    def solve():
        c = torch.stack([hats @ knots, torch.zeros(T), torch.ones(T)], -1).reshape(T, 1, 1, 3)
        return smnn.solve(c, right, start.reshape(1, 1, 2), step, order=5)[:, 0, 0]

    for end in (4.0, 8.0, 12.0, 16.0, 20.0):  # extend the time window gradually
        seen = torch.arange(0, T, 2) * STEP <= end

        def loss(seen=seen):
            optimizer.zero_grad()
            value = (solve()[::2] - data)[seen].square().mean()
            bend = knots.diff(n=2).square().mean()
            total = value + 1e-4 * bend
            total.backward()
            return total

        optimizer.step(loss)
    found = (hats @ knots).detach().numpy()
    error = np.abs(found - stiffness(t))
    print(f"stiffness from {found[0]:.1f} to {found[-1]:.1f} (true: 8.96 and 4.03)")
    print(f"largest error {error.max():.2f}, median {np.median(error):.2f}")
    return {"t": t, "data": data, "curve": solve().detach(), "found": found, "error": error}


def draw(r):
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.0), layout="constrained")
    left.plot(r["t"][::2], r["data"], ".", ms=3)
    left.plot(r["t"], r["curve"], lw=0.8)
    left.set(xlabel="time", title="positions and fit")
    right.plot(r["t"], stiffness(r["t"]), color="0.6", lw=3, label="true")
    right.plot(r["t"], r["found"], label="found")
    right.set(xlabel="time", title="stiffness")
    right.legend()
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
