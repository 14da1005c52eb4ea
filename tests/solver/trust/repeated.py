"""Compute every result that must be reproducible, and write it to a file.

python repeated.py THREADS OUT.npz [cpu | gpu]
"""

import sys
from typing import Any

import numpy as np
import torch

import smnn

ARRAYS = dict[str, Any]


def solver(backend: str) -> ARRAYS:
    """One long sequence, which is cut into as many pieces as there are threads; and a batch."""
    out = {}
    V, device = (1, "cuda") if backend == "gpu" else (2, "cpu")
    for name, B, T in (("one sequence", 1, 900), ("batch", 40, 100)):
        g = torch.Generator().manual_seed(0)

        def random(*shape: int, g: torch.Generator = g) -> torch.Tensor:
            return torch.randn(*shape, generator=g, dtype=torch.float64).to(device)

        c, d, u = random(B, T, V, V, 3), random(B, T, V), random(B, 1, V, 2)
        s = 0.5 + random(B, T - 1).sigmoid()
        inputs = [x.requires_grad_() for x in (c, d, u, s)]
        for scheme in ("smnn", "central"):
            y = smnn.solve(*inputs, scheme=scheme, backend=backend)
            grads = torch.autograd.grad(y.square().sum(), inputs)
            kept = smnn.factorize(c, s, init_shape=(1, 2), scheme=scheme, backend=backend)
            found = [y, *grads, kept.solve(d, u), kept.condition()]
            labels = ("y", "c", "d", "u", "s", "kept", "condition")
            for label, x in zip(labels, found, strict=True):
                out[f"{backend}, {name}, {scheme}, {label}"] = x.detach().cpu().numpy()
    return out


def discovery() -> ARRAYS:
    from smnn.discovery import Discovery

    t = np.arange(600) * 0.02
    x = np.stack([np.cos(2 * t) * np.exp(-0.1 * t), np.sin(2 * t) * np.exp(-0.1 * t)], 1)
    x += 0.01 * np.random.default_rng(0).normal(size=x.shape)
    found = Discovery(ensemble=5).fit(x, t=t)
    return {"discovery": found.coefficients_}


def forecast() -> ARRAYS:
    from smnn.forecasting import Forecaster

    t = np.arange(96)
    y = 10 + 0.1 * t + 3 * np.sin(2 * np.pi * t / 12)
    y += 0.2 * np.random.default_rng(0).normal(size=len(t))
    found = Forecaster(season=12).fit(y, horizon=12).predict()
    return {"forecast": np.stack([found.mean, found.lower, found.upper])}


def training() -> ARRAYS:
    from smnn.training import fit
    from training.training_cases import encoder, small_config, small_data

    task = encoder()
    fit(task, small_data(), small_config(max_steps=12), None, progress=False)
    return {f"training, {k}": x.detach().numpy() for k, x in task.state_dict().items()
            if isinstance(x, torch.Tensor)}  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    if sys.argv[3:] == ["gpu"]:
        arrays = solver("gpu")
    elif sys.argv[3:] == ["cpu"]:
        arrays = solver("cpu")
    else:
        arrays = solver("cpu") | solver("torch") | discovery() | forecast() | training()
    np.savez(sys.argv[2], **arrays)
