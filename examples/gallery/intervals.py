"""Coverage of the intervals.

Every coefficient comes with a 90 % interval. To check the coverage, a predator-prey system is
simulated twenty times with different noise, the equations are identified in each case, and the
intervals of all true coefficients are compared with the true values.
"""

import sys

import numpy as np

from smnn.datasets.dynamics import find_system, simulate
from smnn.discovery import Discovery

REPEATS = 20


def run():
    system = find_system("Lotka-Volterra")
    values, low, high, right = [], [], [], 0
    for seed in range(REPEATS):
        (series,) = simulate(system, noise=0.05, seed=seed, n=250, dt=0.1)
        model = Discovery().fit(series.x, t=series.t, feature_names=["x", "y"])
        names = [term.name for term in model.terms_]
        true = np.array([[system.truth[t].get(n, 0.0) for n in names] for t in model.targets_])
        right += int(((model.coefficients_ != 0) == (true != 0)).all())
        values.append(model.coefficients_[true != 0])
        low.append(model.intervals_[true != 0, 0])
        high.append(model.intervals_[true != 0, 1])
    truth, values, low, high = true[true != 0], *map(np.array, (values, low, high))
    covered = (low <= truth) & (truth <= high)
    print(f"exactly the right terms in {right} of {REPEATS} repetitions")
    print(f"{covered.sum()} of {covered.size} intervals contain the truth: {covered.mean():.0%}")
    ratio = values.std(0) / ((high - low).mean(0) / 2 / 1.645)
    print("standard deviation of the estimates relative to the intervals:", np.round(ratio, 1))
    return {"values": values, "low": low, "high": high, "truth": truth, "right": right,
            "covered": covered}  # fmt: skip


def draw(r):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(8, 3.0), layout="constrained", sharey=True)
    titles = ["x in x'", "x y in x'", "y in y'", "x y in y'"]
    for i, ax in enumerate(axes):
        for k in range(len(r["values"])):
            color = "C0" if r["covered"][k, i] else "C3"
            ax.plot([r["low"][k, i], r["high"][k, i]], [k, k], color=color, lw=1.2)
            ax.plot(r["values"][k, i], k, ".", ms=4, color=color)
        ax.axvline(r["truth"][i], color="0.4", lw=0.8)
        ax.set_title(titles[i], fontsize="medium")
    axes[0].set_ylabel("repetition")
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
