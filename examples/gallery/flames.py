r"""Chaos of a flame front.

The Kuramoto-Sivashinsky equation $u_t = -u\,u_x - u_{xx} - u_{xxxx}$ describes flame fronts and
thin films; its solutions are chaotic. From data with 20 % noise, the three terms are found, with
coefficients right to a fraction of a percent. A simulation from the fitted first field shows how
long such a law can predict: errors grow with the Lyapunov exponents of the equation.
"""

import sys

import numpy as np

from smnn.datasets.fields import simulate_law
from smnn.discovery import FieldDiscovery


def run():
    data = simulate_law("ks", seed=1)
    noisy = data.noisy(0.2, seed=1)[..., 0]
    model = FieldDiscovery().fit(noisy, t=data.t, x=data.x[0])
    print(f"Verdict: {model.verdict_.level}")
    print(*model.equations(), sep="\n")

    truth = data.u[..., 0]
    fit = model.denoised_[0][..., 0]
    path = model.simulate(fit[0], data.t)
    error = np.sqrt(np.mean((path.u[..., 0] - truth) ** 2, 1)) / truth.std()
    follows = data.t[np.append(np.flatnonzero(error > 0.2), len(data.t) - 1)[0]]
    print(f"Simulation: {path.status}, within 20 % of the truth up to t = {follows:.0f}")
    found = dict(zip((term.name for term in model.terms_), model.coefficients_[0]))
    return {"data": data, "noisy": noisy, "model": model, "path": path, "error": error,
            "follows": follows, "fit": fit,
            "found": {name: c for name, c in found.items() if c}}  # fmt: skip


def draw(r):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(9, 2.8), layout="constrained", sharey=True)
    t, x, truth = r["data"].t, r["data"].x[0], r["data"].u[..., 0]
    path = r["path"].u[..., 0]
    panels = [("data", r["noisy"]), ("simulation of the law", path)]
    panels.append(("simulation − field without noise", path - truth))
    for ax, (title, u) in zip(axes, panels):
        image = ax.pcolormesh(t, x, u.T, cmap="RdBu_r", vmin=-3, vmax=3, rasterized=True)
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("t")
    axes[0].set_ylabel("x")
    figure.colorbar(image, ax=axes)
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
