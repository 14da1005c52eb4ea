r"""A network that outputs an equation: the period of a pendulum.

The frequency of a pendulum decreases with its amplitude. A network receives the initial angle and
outputs the coefficient of $y'' + c_0\,y = 0$. Trained on the angles of half a swing, it learns the
frequency as a function of the amplitude, which is read from the equation and compared with the
exact value, an elliptic integral.
"""

import math
import sys

import numpy as np
import torch
from scipy.integrate import solve_ivp
from scipy.special import ellipk
from torch import nn

import smnn.nn as mech


def swings(amplitudes):
    """Angles `(N, T)` of x'' = -sin(x), released at rest, at 40 times with step 0.1."""
    rate = lambda t, s: (s[1], -math.sin(s[0]))  # noqa: E731
    t = [0.1 * i for i in range(40)]
    rows = [solve_ivp(rate, (0, 4), (h, 0), t_eval=t, rtol=1e-8).y[0] for h in amplitudes.tolist()]
    return torch.tensor(np.array(rows), dtype=torch.float32)


def run():
    torch.manual_seed(0)
    amplitudes = torch.linspace(0.1, 2.5, 49)
    data = swings(amplitudes)
    heads = mech.ODEHeads(
        c=mech.Coefficients(16, [[[mech.Positive(1.0), 0.0, 1.0]]], gain=0.1),  # c0 y + y''
        d=mech.RightHandSide(None, [0.0]),
        u=mech.InitialValues(None, [[[mech.OBSERVED, 0.0]]]),  # observed amplitude, at rest
        s=mech.Steps(None, 0.1),
    )
    model = mech.MechanisticModel(
        mech.MLP(1, (32,), 16, nn.Tanh), heads, mech.MechanisticLayer(order=4, n_steps=40)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(300):
        z = model(amplitudes[:, None], observed=amplitudes.view(-1, 1, 1, 1)).z[..., 0]
        loss = ((z - data) / amplitudes[:, None]).square().mean()  # relative error
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    asked = torch.tensor([[0.5], [1.0], [1.5], [2.0]])
    ode = model.ode(asked, observed=asked.view(-1, 1, 1, 1))
    found = mech.read_out(ode).modes()[:, 0, -1].imag
    exact = [math.pi / (2 * ellipk(math.sin(h / 2) ** 2)) for h in asked[:, 0].tolist()]
    for h, a, b in zip(asked[:, 0].tolist(), found, exact):
        print(f"amplitude {h:.1f}: frequency {a:.2f}, exact {b:.2f}")
    return {"model": model, "found": found, "exact": exact}


def draw(r):
    import matplotlib.pyplot as plt

    h = torch.linspace(0.1, 2.5, 100)
    ode = r["model"].ode(h[:, None], observed=h.view(-1, 1, 1, 1))
    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    exact = [math.pi / (2 * ellipk(math.sin(x / 2) ** 2)) for x in h.tolist()]
    axes.plot(h, exact, color="0.6", lw=3, label="exact")
    found = mech.read_out(ode).modes()[:, 0, -1].imag
    axes.plot(h, found, label="read from the network's equations")
    axes.set(xlabel="initial angle", ylabel="angular frequency")
    axes.legend()
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
