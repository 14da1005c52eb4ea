"""Hares and lynxes, 1900 to 1920.

The numbers of hare and lynx pelts traded by the Hudson's Bay Company, 21 for each species, are the
standard example of predator-prey dynamics. The candidate terms are all polynomials up to degree 2.
The result is the Lotka-Volterra model, and its period agrees with that of the data.
"""

import sys

import numpy as np

from smnn.datasets.dynamics import HARE_LYNX
from smnn.discovery import Discovery


def run():
    (record,) = HARE_LYNX.series
    model = Discovery().fit(record.x, t=record.t, feature_names=["hare", "lynx"])
    model.print()
    for row, deviation, target in zip(model.coefficients_, model.deviation_, model.targets_):
        for term, c, d in zip(model.terms_, row, deviation):
            if c:
                print(f"{target:6} {term.name:10} {c:8.4f} +- {d:.4f}")

    t = np.arange(0, 80, 0.02)
    path = model.simulate(model.states_[0][0], t)
    hare = path[:, 0]
    peaks = t[1:-1][(hare[1:-1] > hare[:-2]) & (hare[1:-1] > hare[2:])]
    period = np.diff(peaks).mean()
    print(f"period of the model {period:.1f} years")
    return {"record": record, "model": model, "t": t, "path": path, "period": period}


def draw(r):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    shown = r["t"] <= 20
    for i, name in enumerate(r["model"].variables_):
        axes.plot(1900 + r["record"].t, r["record"].x[:, i], "o", color=f"C{i}", label=name)
        axes.plot(1900 + r["t"][shown], r["path"][shown, i], color=f"C{i}")
    axes.set(
        xlabel="year", ylabel="thousands of pelts", ylim=(0, None), xticks=range(1900, 1921, 4)
    )
    axes.set_title("data (points) and simulation of the fitted equations (lines)")
    axes.legend()
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
