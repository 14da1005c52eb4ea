"""A pendulum from angles only.

Only the angle is measured, in three swings of different amplitude, one of which goes over the top.
The equation is of second order, and second differences of noisy angles are useless, so the
derivatives are estimated together with the equation (`order=2`). The library contains polynomials
and sines, so the small-angle approximation competes with the exact equation.
"""

import sys

import numpy as np

from smnn.datasets.dynamics import find_system, simulate
from smnn.discovery import Discovery

VELOCITY = "x'"


def run():
    swings = simulate(find_system("Pendulum"), noise=0.02, seed=0)  # x'' = -9.81 sin(x) - 0.25 x'
    model = Discovery(order=2, library="poly:2,trig:1").fit(
        [s.x for s in swings], t=[s.t for s in swings], feature_names=["x"]
    )
    model.print()
    found = {term.name: c for term, c in zip(model.terms_, model.coefficients_[0]) if c}
    print(f"g / l = {-found['sin(x)']:.2f}, friction {-found[VELOCITY]:.3f}")

    naive = np.gradient(np.gradient(swings[0].x[:, 0], 0.02), 0.02)
    states = model.states_[0]
    acceleration = model.predict(states)[:, 0]
    true = -9.81 * np.sin(states[:, 0]) - 0.25 * states[:, 1]
    spread = [np.sqrt(np.mean((a - true) ** 2)) for a in (naive, acceleration)]
    print(f"RMS error of x'' from differences {spread[0]:.1f}, from the equation {spread[1]:.2f}")
    return {"swings": swings, "model": model, "found": found, "naive": naive,
            "acceleration": acceleration, "spread": spread}  # fmt: skip


def draw(r):
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for i, swing in enumerate(r["swings"]):
        left.plot(swing.t, swing.x[:, 0], ".", ms=2, color=f"C{i}")
        left.plot(swing.t, r["model"].states_[i][:, 0], lw=0.8, color=f"C{i}")
    left.set(xlabel="time, s", ylabel="angle", title="angles and fitted states")
    t = r["swings"][0].t
    right.plot(t, r["naive"], color="0.75", lw=0.5, label="differences of the data")
    right.plot(t, r["acceleration"], color="C0", label="from the equation")
    right.set(xlabel="time, s", title="acceleration, first swing", ylim=(-40, 40), xlim=(0, 4))
    right.legend(loc="upper right")
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
