"""Logistic growth from many short series.

Forty cultures follow logistic growth; each is counted nine times, at its own times, with 5 %
noise. No single series covers the whole curve, but all of them together determine one equation.
Series are passed as lists and are not connected to each other.
"""

import sys

import numpy as np

from smnn.discovery import Discovery


def run():
    rng = np.random.default_rng(3)
    growth, capacity = 0.8, 5.0
    times, counts = [], []
    for _ in range(40):
        start = rng.uniform(0.2, 7.0)
        t = np.sort(rng.uniform(0, 4, 9))
        x = capacity / (1 + (capacity / start - 1) * np.exp(-growth * t))
        times.append(t)
        counts.append((x * (1 + 0.05 * rng.standard_normal(9)))[:, None])

    model = Discovery(library="poly:3").fit(counts, t=times, feature_names=["n"])
    model.print()
    found = {term.name: c for term, c in zip(model.terms_, model.coefficients_[0]) if c}
    r, K = found["n"], -found["n"] / found["n^2"]
    print(f"growth rate {r:.2f} (true: 0.80), capacity {K:.2f} (true: 5.00)")
    return {"times": times, "counts": counts, "model": model, "found": found, "r": r, "K": K}


def draw(r):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    for t, x, states in zip(r["times"], r["counts"], r["model"].states_):
        (line,) = axes.plot(t, states[:, 0], lw=0.8)
        axes.plot(t, x[:, 0], ".", ms=4, color=line.get_color())
    axes.axhline(r["K"], color="0.5", ls=":")
    axes.set(xlabel="hours", ylabel="count", title="counts, and one equation for all of them")
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
