"""A driven RC circuit.

The voltage of a capacitor behind a resistor, driven by a switch that is toggled at random. The
input is given as `inputs=` and may appear in any term, but has no equation of its own. The
coefficients determine the time constant, and the equation predicts the response to a different
input.
"""

import sys

import numpy as np

from smnn.discovery import Discovery

STEP, TIME_CONSTANT = 0.02, 0.35


def respond(switch):
    """The exact voltage for an input that is constant within each step."""
    v = np.zeros(len(switch))
    decay = np.exp(-STEP / TIME_CONSTANT)
    for i in range(len(switch) - 1):
        v[i + 1] = switch[i] + (v[i] - switch[i]) * decay
    return v


def run():
    rng = np.random.default_rng(0)
    t = STEP * np.arange(600)
    slow = np.convolve(np.repeat(rng.uniform(0, 5, 24), 25), np.ones(8) / 8, mode="same")
    voltage = respond(slow)
    measured = voltage + 0.05 * rng.standard_normal(len(t))

    model = Discovery(library="poly:2").fit(
        measured[:, None], t=t, inputs=slow[:, None], feature_names=["v"]
    )
    model.print()
    found = {term.name: c for term, c in zip(model.terms_, model.coefficients_[0]) if c}
    print(f"time constant {-1 / found['v']:.3f} s (true: 0.350)")

    sine = 2.5 + 2 * np.sin(2 * np.pi * 0.7 * t)
    predicted = model.simulate([0.0], t, inputs=sine[:, None])[:, 0]
    error = np.abs(predicted - respond(sine)).max()
    print(f"largest error of the predicted response to a sine: {error:.2f} V")
    return {"t": t, "input": slow, "measured": measured, "model": model, "found": found,
            "sine": sine, "predicted": predicted, "error": error}  # fmt: skip


def draw(r):
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained", sharey=True)
    left.plot(r["t"], r["input"], color="0.6", lw=0.8, label="input")
    left.plot(r["t"], r["measured"], ".", ms=2, label="measured")
    left.plot(r["t"], r["model"].states_[0][:, 0], color="C1", lw=0.8, label="fitted")
    left.set(xlabel="time, s", ylabel="volt", title="training data")
    right.plot(r["t"], r["sine"], color="0.6", lw=0.8, label="input")
    right.plot(r["t"], r["predicted"], color="C1", label="predicted")
    right.plot(r["t"], respond(r["sine"]), "k:", lw=1, label="exact")
    right.set(xlabel="time, s", title="another input", xlim=(0, 6))
    for axes in (left, right):
        axes.legend(fontsize="small", loc="upper right", markerscale=3)
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
