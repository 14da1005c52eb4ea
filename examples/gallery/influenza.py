r"""An epidemic: parameter estimation by gradients through the solver.

Influenza in an English boarding school of 763 boys, 1978: the number confined to bed on each of 14
days. The SIR model $S' = -\beta S I / N$, $I' = \beta S I / N - \gamma I$ is nonlinear. It is
linearized around the previous iterate and solved repeatedly (Newton's method), starting from the
data. Gradients with respect to $\beta$, $\gamma$ and the initial number of cases propagate through
all iterations, and the parameters are fitted with `torch.optim`. (Data: British Medical Journal, 4
March 1978, p. 587.)
"""

import sys

import numpy as np
import torch

import smnn

torch.set_default_dtype(torch.float64)
BOYS = 763.0
IN_BED = torch.tensor([3, 8, 26, 76, 225, 298, 258, 233, 189, 128, 68, 29, 14, 4.0])
EVERY = 10  # steps in a day


def epidemic(beta, gamma, first):
    """S and I of shape `(T, 2)`, by repeated linear solves."""
    T = EVERY * (len(IN_BED) - 1) + 1
    start = torch.stack([BOYS - first, first])
    sick = torch.as_tensor(np.interp(np.arange(T) / EVERY, np.arange(14), IN_BED.numpy()))
    curve = torch.stack([BOYS * (1 - sick.cumsum(0) / sick.sum()), sick], -1)  # initial guess
    linear = torch.zeros(2, 2, 2)  # equation, variable, order
    linear[0, 0, 1] = linear[1, 1, 1] = 1.0  # S', I'
    recovery = torch.zeros(2, 2, 2)
    recovery[1, 1, 0] = 1.0
    for _ in range(30):
        S, I = curve.unbind(-1)
        # Newton's method: S I = I_old S + S_old I - S_old I_old
        by = beta / BOYS * torch.stack([I, S], -1)[..., None] * torch.tensor([1.0, 0.0])
        c = linear + gamma * recovery + torch.stack([by, -by], -3)
        d = beta / BOYS * torch.stack([S * I, -S * I], -1)
        step = torch.full((T - 1,), 1 / EVERY)
        new = smnn.solve(c, d, start.reshape(1, 2, 1), step, order=6)[..., 0]
        change, curve = (new - curve).abs().max(), new
        if change < 1e-9 * BOYS:
            break
    return curve


def run():
    most = torch.tensor([4.0, 2.0, 10.0])  # beta, gamma, first
    raw = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([raw], max_iter=60, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        I = epidemic(*(most * raw.sigmoid()))[::EVERY, 1]
        value = (
            (I.clamp(min=1e-3).sqrt() - IN_BED.sqrt()).square().mean()
        )  # of counts: equal spread
        value.backward()
        return value

    optimizer.step(loss)
    beta, gamma, first = most * raw.detach().sigmoid()
    curve = epidemic(beta, gamma, first)
    miss = (curve[::EVERY, 1] - IN_BED).square().mean().sqrt()
    print(f"beta = {beta:.2f} per day, gamma = {gamma:.2f} per day")
    print(f"basic reproduction number {beta / gamma:.1f}")
    print(f"{BOYS - curve[-1, 0]:.0f} of {BOYS:.0f} fell ill; RMS error {miss:.0f} boys")
    return {"beta": beta.item(), "gamma": gamma.item(), "curve": curve, "miss": miss.item()}


def draw(r):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    t = torch.arange(len(r["curve"])) / EVERY
    axes.plot(t, r["curve"][:, 1], label="I, in bed")
    axes.plot(t, r["curve"][:, 0], label="S, not yet ill", color="0.6")
    axes.plot(range(len(IN_BED)), IN_BED, "o", color="C0")
    axes.set(xlabel="day", ylabel="boys", title="SIR model fitted through the solver")
    axes.legend()
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
