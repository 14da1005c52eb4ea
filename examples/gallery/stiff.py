r"""A stiff equation on a nonuniform grid.

The solution of $y' = -1000\,(y - \cos t) - \sin t$ with $y(0) = 0$ rises to $\cos t$ within a few
thousandths and then follows it. An explicit time-stepping method needs small steps over the whole
interval. Here the steps are small in the transient and grow by 15 % each. All rows are solved at
once, so there is no stability limit.
"""

import sys

import numpy as np
import torch
from scipy.integrate import solve_ivp

import smnn

RATE = 1000.0


def run():
    steps = np.minimum(1e-4 * 1.15 ** np.arange(400), 0.05)
    steps = steps[: int(np.searchsorted(np.cumsum(steps), 10.0)) + 1]
    t = np.concatenate([[0.0], np.cumsum(steps)])
    c = torch.tensor([RATE, 1.0], dtype=torch.float64).reshape(1, 1, 1, 2)
    d = torch.as_tensor(RATE * np.cos(t) - np.sin(t))[:, None]
    u = torch.zeros(1, 1, 1, dtype=torch.float64)
    y = smnn.solve(c, d, u, torch.as_tensor(steps), order=5)[:, 0, 0].numpy()
    exact = np.cos(t) - np.exp(-RATE * t)
    error = np.abs(y - exact).max()
    print(f"{len(t)} times, steps from {steps[0]:g} to {steps[-1]:g}: largest error {error:.0e}")

    rate = lambda t, y: -RATE * (y - np.cos(t)) - np.sin(t)  # noqa: E731
    other = solve_ivp(rate, (0, t[-1]), [0.0], rtol=1e-5, atol=1e-7)
    print(f"explicit RK45 takes {other.t.size:,} steps")
    return {"t": t, "y": y, "exact": exact, "error": error, "others": other.t.size}


def draw(r):
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.0), layout="constrained")
    for axes, end in [(left, 0.01), (right, 10)]:
        shown = r["t"] <= end
        dense = np.linspace(0, end, 1000)
        axes.plot(dense, np.cos(dense) - np.exp(-RATE * dense), color="0.7")
        axes.plot(r["t"][shown], r["y"][shown], ".", ms=4)
        axes.set(xlabel="t")
    left.set_title("transient")
    right.set_title("whole interval")
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
