"""The derivative of a noisy signal.

Without equations (`Q = 0`), the solver is a smoothing spline with data rows and smoothness rows,
and its solution includes the derivatives. The only parameter is the weight of the data. Here the
noise level is known, so the weight is raised until the residual equals the noise.
"""

import sys

import numpy as np
import torch

import smnn

torch.set_default_dtype(torch.float64)
NOISE, ORDER = 0.1, 4


def curves(data, step, weights):
    """Curves for several weights of the data, of shape `(len(weights), T, ORDER + 1)`."""
    B, T = len(weights), len(data)
    c = torch.zeros(1, T, 0, 1, ORDER + 1)  # no equation
    u = torch.as_tensor(data).reshape(1, T, 1, 1).expand(B, T, 1, 1)
    w = torch.as_tensor(weights).reshape(B, 1, 1, 1)
    s = torch.full((1, T - 1), step)
    return smnn.solve(c, torch.zeros(1, T, 0), u, s, w_init=w)[:, :, 0].numpy()


def run():
    t = np.linspace(0, 6, 601)
    clean, slope = np.sin(t**2 / 2), t * np.cos(t**2 / 2)
    data = clean + NOISE * np.random.default_rng(0).standard_normal(len(t))
    weights = 10.0 ** np.arange(-6, -0.9, 0.25)
    every = curves(data, t[1], weights)
    miss = np.sqrt(((every[..., 0] - data) ** 2).mean(1))
    curve = every[np.abs(miss - NOISE).argmin()]

    naive = np.gradient(data, t)
    rms = lambda x: np.sqrt(np.mean(x**2))  # noqa: E731
    ours, theirs = rms(curve[:, 1] - slope), rms(naive - slope)
    print(f"RMS error: curve {rms(curve[:, 0] - clean):.3f}, data {rms(data - clean):.3f}")
    print(f"derivative {ours:.2f}, from differences {theirs:.2f}; its size {rms(slope):.2f}")
    return {"t": t, "data": data, "slope": slope, "curve": curve, "naive": naive,
            "ours": ours, "theirs": theirs, "size": rms(slope)}  # fmt: skip


def draw(r):
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    left.plot(r["t"], r["data"], ".", ms=2, color="0.6")
    left.plot(r["t"], r["curve"][:, 0])
    left.set(xlabel="t", title="data and curve")
    right.plot(r["t"], r["naive"], color="0.8", lw=0.5, label="differences of the data")
    right.plot(r["t"], r["slope"], color="k", lw=2.5, alpha=0.4, label="exact")
    right.plot(r["t"], r["curve"][:, 1], label="solver")
    right.set(xlabel="t", title="derivative", ylim=(-15, 15))
    right.legend(fontsize="small", loc="lower left")
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
