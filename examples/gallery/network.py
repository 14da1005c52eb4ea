r"""A network that writes equations: how fast does a pendulum swing?

For small swings a pendulum is a spring; for large ones it is slower. A network is shown the
initial angle of each swing and may only write down $y'' + c_0\,y = 0$. Trained on the angles of
half a swing, it learns the frequency as a function of the height: the equation inside can be
read, and compared with the exact period, an elliptic integral.
"""

import math
import sys

import numpy as np
import torch
from scipy.integrate import solve_ivp
from scipy.special import ellipk
from torch import nn

import smnn.nn as mech


def swings(heights):
    """Angles `(N, T)` of pendulums let go at these heights, x'' = -sin(x), 40 steps of 0.1."""
    rate = lambda t, s: (s[1], -math.sin(s[0]))  # noqa: E731
    t = [0.1 * i for i in range(40)]
    rows = [solve_ivp(rate, (0, 4), (h, 0), t_eval=t, rtol=1e-8).y[0] for h in heights.tolist()]
    return torch.tensor(np.array(rows), dtype=torch.float32)


def run():
    torch.manual_seed(0)
    heights = torch.linspace(0.1, 2.5, 49)
    data = swings(heights)
    heads = mech.ODEHeads(
        c=mech.Coefficients(16, [[[mech.Positive(1.0), 0.0, 1.0]]], gain=0.1),  # c0 y + y''
        d=mech.RightHandSide(None, [0.0]),
        u=mech.InitialValues(None, [[[mech.OBSERVED, 0.0]]]),  # the height is given, at rest
        s=mech.Steps(None, 0.1),
    )
    model = mech.MechanisticModel(
        mech.MLP(1, (32,), 16, nn.Tanh), heads, mech.MechanisticLayer(order=4, n_steps=40)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(300):
        z = model(heights[:, None], observed=heights.view(-1, 1, 1, 1)).z[..., 0]
        loss = ((z - data) / heights[:, None]).square().mean()  # low swings count as well
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    asked = torch.tensor([[0.5], [1.0], [1.5], [2.0]])
    ode = model.ode(asked, observed=asked.view(-1, 1, 1, 1))
    found = mech.read_out(ode).modes()[:, 0, -1].imag
    exact = [math.pi / (2 * ellipk(math.sin(h / 2) ** 2)) for h in asked[:, 0].tolist()]
    for h, a, b in zip(asked[:, 0].tolist(), found, exact):
        print(f"height {h:.1f}: frequency {a:.2f}, exact {b:.2f}")
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
