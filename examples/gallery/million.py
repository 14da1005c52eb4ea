r"""A million time steps.

A damped oscillator driven by two sines, $y'' + 0.02\,y' + y = \cos 0.3t + \cos 0.9t$, over a
million steps, or 16,000 periods. Time and memory are linear in the number of steps. The error does
not accumulate, because all rows are solved simultaneously.
"""

import sys
import time

import numpy as np
import torch

import smnn

STEP, TIMES, DAMPING = 0.1, 1_000_000, 0.02
DRIVES = (0.3, 0.9)


def exact(t):
    """The stationary solution, from which the initial values are taken."""
    return sum((np.exp(1j * w * t) / (1 - w * w + 1j * DAMPING * w)).real for w in DRIVES)


def run():
    t = STEP * np.arange(TIMES)
    c = torch.tensor([1.0, DAMPING, 1.0], dtype=torch.float64).reshape(1, 1, 1, 3)
    d = torch.as_tensor(sum(np.cos(w * t) for w in DRIVES))[:, None]
    speed = sum((1j * w / (1 - w * w + 1j * DAMPING * w)).real for w in DRIVES)
    u = torch.tensor([exact(0.0), speed], dtype=torch.float64).reshape(1, 1, 2)
    s = torch.tensor([STEP], dtype=torch.float64)
    smnn.solve(c, d[:1000], u, s, order=5)  # compiles, once per machine
    start = time.perf_counter()
    y = smnn.solve(c, d, u, s, order=5)[:, 0, 0].numpy()
    seconds = time.perf_counter() - start
    error = np.abs(y - exact(t))
    print(f"{TIMES:,} time steps solved")
    print(f"largest error {error.max():.0e}, in the last thousand {error[-1000:].max():.0e}")
    return {"t": t, "y": y, "error": error, "seconds": seconds}


def draw(r):
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.0), layout="constrained")
    left.plot(r["t"][-1500:], r["y"][-1500:])
    left.set(xlabel="t", title="last 1,500 of a million steps")
    largest = r["error"].reshape(1000, -1).max(1)
    right.semilogy(r["t"][::1000], largest)
    right.set(xlabel="t", title="largest error per thousand steps", ylim=(1e-6, 1e-3))
    left.locator_params(nbins=4)
    right.locator_params(axis="x", nbins=4)
    return figure


if __name__ == "__main__":
    result = run()
    print(f"in {result['seconds']:.1f} s")
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
