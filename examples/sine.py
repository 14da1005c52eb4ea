"""Fit one second-order ODE to noisy recordings of a damped sine and plot the result.

    python examples/sine.py [FILE.png]

The parameters, fitted by gradient descent through the solver, are two coefficients of the ODE, the
initial values of each recording, the time steps, and the level and decay of the noise.
"""

import sys

import torch

from smnn.datasets.sine import damped_sine, strongest_frequency
from smnn.nn import (
    Coefficients,
    Free,
    InitialValues,
    MechanisticLayer,
    MechanisticModel,
    ODEHeads,
    Positive,
    RightHandSide,
    Share,
    Steps,
    read_out,
)

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
data = damped_sine(recordings=16)  # (sin 2t + 0.5 noise) exp(-0.1 t), 500 points on [0, 50]
target = torch.from_numpy(data.noisy)
N, T = target.shape
duration = float(data.t[-1])
start = float(strongest_frequency(data.noisy, duration / (T - 1)).mean())

heads = ODEHeads(
    c=Coefficients(None, [[[Positive(start**2), Free(), 1.0]]], batch=(1,)),  # y'' + c1 y' + c0 y
    d=RightHandSide(None, [0.0], batch=(1,)),
    u=InitialValues(None, [[[Free(), Free()]]], batch=(N,)),
    s=Steps(None, Share(duration), times=T - 1, batch=(1,)),
)
model = MechanisticModel(None, heads, MechanisticLayer(order=5))
noise = torch.nn.Parameter(torch.tensor([target.std().log(), 0.0]))
part = torch.linspace(0, 1, T)

steps = 400
optimizer = torch.optim.Adam([*model.parameters(), noise], lr=0.05)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=steps)
for step in range(steps):
    optimizer.zero_grad()
    z, _, ode = model()
    log_noise = noise[0] + noise[1] * part
    likelihood = (0.5 * ((z[..., 0] - target) * torch.exp(-log_noise)) ** 2 + log_noise).mean()
    uneven = (ode.s * (T - 1) / duration).log() / 0.02  # prior: steps vary by 2 %
    loss = likelihood + 0.5 * uneven.square().sum() / target.numel()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 100 == 0 or step == steps - 1:
        print(f"step {step + 1:4d}  loss {loss.item():8.4f}  {read_out(ode)}")

rate = read_out(model.ode()).modes()[0, 0, -1]
print(f"angular frequency {rate.imag:.4f} (true 2), damping {-rate.real:.4f} (true 0.1)")

if len(sys.argv) > 1:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
    axes.plot(data.t, data.noisy[0], ".", color="0.6", markersize=3)
    axes.plot(data.t, model().z[0, :, 0].detach())
    axes.set_xlabel("time")
    figure.savefig(sys.argv[1], dpi=150)
