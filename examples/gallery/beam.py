r"""A boundary value problem: the bending of a beam.

A beam of length 1 under a uniform load, $w'''' = 1$, clamped on the left ($w = w' = 0$) and simply
supported on the right ($w = w'' = 0$). Values can be prescribed at any time, so boundary
conditions are treated like initial conditions: all times are prescribed, with weight zero in
between. The same code solves a beam on an elastic foundation, $w'''' + k(x)\,w = 1$, here under
the right half only.
"""

import sys

import torch

import smnn

torch.set_default_dtype(torch.float64)


def bend(foundation, steps=200):
    """Deflection and its derivatives, of shape `(T, 1, 7)`."""
    T = steps + 1
    c = torch.zeros(T, 1, 1, 5)
    c[:, 0, 0, 4], c[:, 0, 0, 0] = 1.0, foundation
    ends = torch.zeros(T, 1, 3)
    ends[0, 0, :2] = 1.0  # w(0), w'(0)
    ends[-1, 0, 0] = ends[-1, 0, 2] = 1.0  # w(1), w''(1)
    step = torch.full((steps,), 1 / steps)
    return smnn.solve(c, torch.ones(1, 1), torch.zeros(T, 1, 3), step, w_init=ends, order=6)


def run():
    x = torch.linspace(0, 1, 201)
    free = bend(torch.zeros(201))[:, 0]
    exact = x**2 * (3 - 5 * x + 2 * x**2) / 48
    error = (free[:, 0] - exact).abs().max() / exact.max()
    moment = free[0, 2]
    print(f"largest deflection {free[:, 0].max():.6f} at x = {x[free[:, 0].argmax()]:.3f}")
    print(f"moment at the clamped end {moment:.6f} (exact: 1/8)")
    print("relative error of the deflection below 1e-8:", bool(error < 1e-8))
    supported = bend(torch.where(x >= 0.5, 2000.0, 0.0))[:, 0]
    print(f"largest deflection with a foundation under the right half {supported[:, 0].max():.6f}")
    return {"x": x, "free": free, "supported": supported, "error": error.item(),
            "moment": moment.item()}  # fmt: skip


def draw(r):
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.0), layout="constrained")
    for key, label in [("free", "free"), ("supported", "foundation under the right half")]:
        left.plot(r["x"], -r[key][:, 0], label=label)
        right.plot(r["x"], r[key][:, 2], label=label)
    left.set(xlabel="x", title="deflection")
    right.set(xlabel="x", title="bending moment, w''")
    left.legend(fontsize="small")
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
