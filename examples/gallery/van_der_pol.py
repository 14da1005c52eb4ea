"""Van der Pol with missing values and irregular sampling.

The samples are irregularly spaced, 40 % of the values are missing independently for each variable,
and the rest has 2 % noise. Nothing is interpolated: a missing value is a row of weight zero, and
steps may have any length.
"""

import sys

import numpy as np
from scipy.integrate import solve_ivp

from smnn.discovery import Discovery


def run():
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0, 25, 1200))
    rate = lambda t, s: (s[1], 2 * (1 - s[0] ** 2) * s[1] - s[0])  # noqa: E731
    clean = solve_ivp(rate, (0, 25), (0.5, 0.0), t_eval=t, rtol=1e-9, atol=1e-9).y.T
    data = clean + 0.02 * clean.std(0) * rng.standard_normal(clean.shape)
    data[rng.random(data.shape) < 0.4] = np.nan

    model = Discovery(library="poly:3").fit(data, t=t, feature_names=["x", "y"])
    model.print()
    gaps = np.isnan(data)
    filled = np.sqrt(np.mean((model.states_[0] - clean)[gaps] ** 2)) / clean.std()
    print(f"{gaps.mean():.0%} of the values are missing")
    print(f"RMS error of the states at missing values: {filled:.1%} of the standard deviation")
    return {"t": t, "data": data, "clean": clean, "model": model, "filled": filled}


def draw(r):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    shown = r["t"] < 12
    for i, name in enumerate(["x", "y"]):
        axes.plot(r["t"][shown], r["data"][shown, i], ".", ms=3, color=f"C{i}", label=name)
        axes.plot(r["t"][shown], r["model"].states_[0][shown, i], lw=0.9, color=f"C{i}")
    axes.set(xlabel="time", title="data (points) and fitted states (lines)")
    axes.legend(loc="upper right", markerscale=3)
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
