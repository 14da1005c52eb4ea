"""Lorenz equations from noisy data.

Three variables are recorded with noise of 10 % of their standard deviation. The candidate terms
are all polynomials up to degree 2, with 30 coefficients of which 7 are nonzero. The fitted states
are far less noisy than the data.
"""

import sys

import numpy as np

from smnn.datasets.dynamics import find_system, simulate
from smnn.discovery import Discovery


def run():
    lorenz = find_system("Lorenz")
    (clean,) = simulate(lorenz, n=2500)
    (noisy,) = simulate(lorenz, n=2500, noise=0.1, seed=1)

    model = Discovery().fit(noisy.x, t=noisy.t, feature_names=["x", "y", "z"])
    model.print()

    names = [term.name for term in model.terms_]
    errors, found = [], 0
    for row, target in zip(model.coefficients_, model.targets_):
        truth = np.array([lorenz.truth[target].get(name, 0.0) for name in names])
        errors.append(np.abs(row - truth).max())
        found += int(((row != 0) == (truth != 0)).all())
    noise = np.sqrt(np.mean((noisy.x - clean.x) ** 2))
    left = np.sqrt(np.mean((model.states_[0] - clean.x) ** 2))
    print(f"{found} of 3 equations have exactly the right terms")
    print(f"RMS error of the states {left:.2f}, of the data {noise:.2f}")
    return {"clean": clean, "noisy": noisy, "model": model, "errors": errors, "found": found,
            "noise": noise, "left": left}  # fmt: skip


def draw(r):
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(8, 3.6), layout="constrained")
    data, fit = r["noisy"].x, r["model"].states_[0]
    for i, (x, title) in enumerate([(data, "data"), (fit, "fitted states")], 1):
        axes = figure.add_subplot(1, 2, i, projection="3d")
        axes.plot(*x.T, lw=0.6, color="C0" if i == 2 else "0.4")
        axes.set_title(title)
        axes.set(xlabel="x", ylabel="y", zlabel="z")
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
