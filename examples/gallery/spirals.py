r"""Rotating waves in two dimensions.

Two chemicals that react and diffuse, the lambda-omega system $u_t = 0.1\,\Delta u + \lambda u -
\omega v$, $v_t = 0.1\,\Delta v + \omega u + \lambda v$ with $\lambda = 1 - u^2 - v^2$ and
$\omega = -(u^2 + v^2)$, with noise of 10 %. Each of the two equations has seven of 80 candidate
terms.
"""

import sys

import numpy as np

from smnn.datasets.fields import simulate_law
from smnn.discovery import FieldDiscovery


def run():
    data = simulate_law("lambda-omega", seed=2)
    noisy = data.noisy(0.1, seed=1)
    model = FieldDiscovery().fit(noisy, t=data.t, x=data.x[0], y=data.x[1])
    print(f"Verdict: {model.verdict_.level}")
    print(*model.equations(), sep="\n")

    start = model.denoised_[0][0]
    path = model.simulate(start, data.t)
    error = np.sqrt(np.mean((path.u - data.u) ** 2)) / data.u.std()
    print(f"Simulation: {path.status}, RMS error {100 * error:.1f} % of the standard deviation")
    names = [term.name for term in model.terms_]
    found = [{n: c for n, c in zip(names, row) if c} for row in model.coefficients_]
    return {"data": data, "noisy": noisy, "model": model, "path": path, "error": error,
            "found": found}  # fmt: skip


def draw(r):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(8.6, 3.4), layout="constrained", sharey=True)
    x, y = r["data"].x
    panels = [("data, last time", r["noisy"]), ("simulation of the law", r["path"].u)]
    panels.append(("simulation − field without noise", r["path"].u - r["data"].u))
    for ax, (title, u) in zip(axes, panels):
        image = ax.pcolormesh(y, x, u[-1, ..., 0], cmap="RdBu_r", vmin=-1.2, vmax=1.2)
        ax.set_title(title, fontsize=10)
        ax.set(xlabel="y", aspect="equal")
    axes[0].set_ylabel("x")
    figure.colorbar(image, ax=axes)
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
