r"""Burgers' equation from half noise.

A field that follows $u_t = -u\,u_x + 0.1\,u_{xx}$, with noise of half its standard deviation and
30 % of the values missing. Terms are compared in the weak form; their coefficients are those whose
solution fits the whole field best. The law, simulated from the fitted first field, follows the
field without noise over the whole time.
"""

import sys

import numpy as np

from smnn.datasets.fields import simulate_law
from smnn.discovery import FieldDiscovery


def run():
    data = simulate_law("burgers", seed=4)
    noisy = data.noisy(0.5, missing=0.3, seed=1)[..., 0]
    model = FieldDiscovery().fit(noisy, t=data.t, x=data.x[0])
    print(f"Verdict: {model.verdict_.level}")
    print(*model.equations(), sep="\n")

    path = model.simulate(model.denoised_[0][0], data.t)
    truth = data.u[..., 0]
    error = np.sqrt(np.mean((path.u[..., 0] - truth) ** 2)) / truth.std()
    print(f"Simulation: {path.status}, RMS error {100 * error:.1f} % of the standard deviation")
    found = dict(zip((term.name for term in model.terms_), model.coefficients_[0]))
    return {"data": data, "noisy": noisy, "model": model, "path": path, "error": error,
            "found": {name: c for name, c in found.items() if c}}  # fmt: skip


def draw(r):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(9, 2.8), layout="constrained", sharey=True)
    t, x, truth = r["data"].t, r["data"].x[0], r["data"].u[..., 0]
    panels = [("data", r["noisy"]), ("simulation of the law", r["path"].u[..., 0])]
    panels.append(("simulation − field without noise", r["path"].u[..., 0] - truth))
    for ax, (title, u) in zip(axes, panels):
        image = ax.pcolormesh(t, x, u.T, cmap="RdBu_r", vmin=-2, vmax=2, rasterized=True)
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("t")
    axes[0].set_ylabel("x")
    figure.colorbar(image, ax=axes)
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
