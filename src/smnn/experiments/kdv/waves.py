"""Test waves unlike those of the training data: bumps, waves with a mean, and short waves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from smnn.datasets.kdv import Trajectories, evolve

POINTS, FRAMES, KEPT, SUBSTEPS = 256, 250, 140, 64
KINDS = ("bumps", "mean", "high")


def new_waves(
    count: int, seed: int = 0, tick: Callable[[int], None] = lambda count: None
) -> Trajectories:
    """`count` trajectories on the grids of the "easy" data; their kinds alternate.

    "bumps" are three Gaussians of height 0.3 to 2, "mean" the easy waves plus a constant between -3
    and 3, and "high" sums of ten waves with 3 to 8 periods instead of 1 or 2.
    """
    x = np.arange(POINTS) / POINTS
    fields, sizes = [], []
    for i in range(count):
        random, kind = np.random.default_rng([seed, i]), KINDS[i % len(KINDS)]
        L, duration = 128 * random.uniform(0.9, 1.1), 50 * random.uniform(0.9, 1.1)
        if kind == "bumps":
            height, width = random.uniform(0.3, 2, (3, 1)), random.uniform(3, 10, (3, 1))
            apart = (x - random.uniform(0, 1, (3, 1)) + 0.5) % 1 - 0.5
            u = (height * np.exp(-((apart * L / width) ** 2) / 2)).sum(0)
        else:
            periods = random.integers(1, 3, 10) if kind == "mean" else random.integers(3, 9, 10)
            phase = random.uniform(0, 2 * np.pi, (10, 1))
            u = random.uniform(-0.5, 0.5, 10) @ np.sin(2 * np.pi * periods[:, None] * x + phase)
            u += random.uniform(-3, 3) if kind == "mean" else 0.0
        fields.append(u)
        sizes.append((L / POINTS, duration / (FRAMES - 1)))
    dx, dt = np.array(sizes).T
    found = []
    for part in np.array_split(np.arange(count), -(-count // 32)):
        u0, length, step = (torch.from_numpy(v[part]) for v in (np.array(fields), dx * POINTS, dt))
        found.append(evolve(u0, length, step, frames=FRAMES, skip=FRAMES - KEPT, substeps=SUBSTEPS))
        tick(len(part))
    times = np.arange(FRAMES - KEPT, FRAMES) * dt[:, None]
    return Trajectories(torch.cat(found).numpy(), x * dx[:, None] * POINTS, times, dx, dt)
