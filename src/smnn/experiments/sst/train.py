"""Training of the SST networks on pairs of neighbours."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from smnn import training
from smnn.datasets.sst import Neighbours
from smnn.experiments.solvers import SMNN
from smnn.experiments.sst.networks import AdaGVAE, MechanisticIdentifier, Size, Window, misalignment

IDENTIFIER, GVAE = "identifier", "ada-gvae"
PUBLISHED = "identifier as published"
NETWORKS = (IDENTIFIER, PUBLISHED, GVAE)
ALIGNMENT, PUBLISHED_ALIGNMENT = 1.0, 10.0
"""Weight of the distance between the shared codes of neighbours."""
DRAWS = 65_537
"""Number of random draws of neighbours; a prime, to avoid correlation with cells or times."""
Batch = tuple[Tensor, Tensor, Tensor]
"""History, given values and target, each `(B, 2, ...)`."""


SMALL = Size(hidden=96, depth=2, head_depth=1, order=3)
"""Trains on a CPU in a minute."""
FULL = Size(order=3)
"""Published widths and depths, but order 3 (published: 2); needs a GPU."""


class SSTTask(training.Task):
    """A network and its loss; `window` and `size` are fields of `Window` and `Size`."""

    def __init__(
        self, kind: str, window: dict[str, Any], size: dict[str, Any], solver: str = SMNN
    ) -> None:
        super().__init__()
        if kind not in NETWORKS:
            raise ValueError(f"kind: got {kind!r}; expected one of {', '.join(NETWORKS)}.")
        self.kind, self.solver = kind, solver
        self.window, self.size = Window(**window), Size(**size)
        self.model: MechanisticIdentifier | AdaGVAE
        if kind == GVAE:
            self.model = AdaGVAE(self.window, self.size)
        else:
            published = kind == PUBLISHED
            self.model = MechanisticIdentifier(
                self.window, self.size, solver=solver, published=published
            )

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Losses of pairs of neighbours."""
        history, start, target = batch
        if isinstance(self.model, AdaGVAE):
            return self.model.losses(history, start, target)
        found = self.model(history, start, pairs=True)
        wrong, weight = found.target - target, ALIGNMENT
        if self.kind == PUBLISHED:  # compares the encoded frequencies only
            wrong, weight = self.model.spectrum(wrong), PUBLISHED_ALIGNMENT
        mse = wrong.square().mean()
        apart = misalignment(found.code, self.size.shared)
        return {"loss": mse + weight * apart, "mse": mse.detach(), "apart": apart.detach()}

    def forecast(self, history: Tensor, start: Tensor) -> Tensor:
        """`(N, length)` for histories `(N, length)` and given values `(N, given)`."""
        found = self.model(history, start)
        out: Tensor = found if isinstance(self.model, AdaGVAE) else found.target
        return out

    def config(self) -> dict[str, Any]:
        """Constructor arguments."""
        return {
            "kind": self.kind, "window": asdict(self.window), "size": asdict(self.size),
            "solver": self.solver,
        }  # fmt: skip


class Pairs(Dataset[Batch]):
    """Every cell at every time, each with a random neighbour on its circle of latitude.

    Sample `i` of the standardized series `(T, N)` is always the same, so that training can be
    resumed.
    """

    def __init__(self, series: np.ndarray, near: Neighbours, window: Window, seed: int = 0) -> None:
        self.span = window.length if window.peek else 2 * window.length
        if len(series) < self.span:
            raise ValueError(
                f"series: got {len(series)} times; expected at least {self.span}, the length of a "
                "sample. Use shorter chunks."
            )
        self.series = torch.as_tensor(series.T.copy(), dtype=torch.float32)  # (N, T)
        self.near, self.window = near, window
        self.cells = near.paired
        self.starts = len(series) - self.span + 1
        self.draws = np.random.default_rng(seed).random(DRAWS)

    def to(self, device: torch.device) -> Pairs:
        """Move the series, and thereby the batches, to a device."""
        self.series = self.series.to(device)
        return self

    def __len__(self) -> int:
        return len(self.cells) * self.starts

    def __getitem__(self, index: int) -> Batch:
        history, start, target = self.batch(torch.tensor([index]))
        return history[0], start[0], target[0]

    def batch(self, indices: Tensor) -> Batch:
        """Samples for indices `(B,)`."""
        i = indices.cpu().numpy()
        cell, begin = self.cells[i // self.starts], i % self.starts
        first = self.near.start[cell]
        count = self.near.start[cell + 1] - first
        partner = self.near.partner[first + (self.draws[i % DRAWS] * count).astype(int)]
        both = torch.as_tensor(np.stack([cell, partner], 1)).to(self.series.device)[..., None]
        first_time = torch.as_tensor(begin).to(both.device)[:, None, None]
        x = self.series[both, first_time + torch.arange(self.span, device=both.device)]
        L = self.window.length
        history, target = x[..., :L], x[..., -L:]
        return history, self.window.start(history, target), target


def train(
    kind: str, data: Pairs, size: Size, *, steps: int, batch: int, seed: int, device: str = "auto"
) -> tuple[SSTTask, dict[str, Any]]:
    """Train a network; returns its task, on its device, and a record of the training."""
    torch.manual_seed(seed)
    task = SSTTask(kind, asdict(data.window), asdict(size))
    config = training.TrainConfig(
        max_steps=steps, batch_size=batch, lr=1e-3, schedule="one-cycle", clip=1.0, seed=seed,
        precision="float32", evaluate_every=10**6, log_every=max(1, steps // 25),
        accelerator="cuda" if device.startswith("cuda") else "cpu" if device == "cpu" else "auto",
        tensorboard=False,
    )  # fmt: skip
    found = training.fit(task, data, config, progress=False)
    history = [{k: row[k] for k in ("step", "loss", "mse") if k in row} for row in found.history]
    return task, {
        "steps": found.steps, "batch": batch, "seed": seed,
        "parameters": sum(p.numel() for p in task.parameters()), "history": history,
    }  # fmt: skip


@torch.no_grad()
def predict(
    task: SSTTask, history: np.ndarray, target: np.ndarray, batch: int = 2048
) -> np.ndarray:
    """`(length, N)` forecasts from standardized `(length, N)` histories.

    Of the target only the given values are used, and only if `window.peek`.
    """
    task.eval()
    anchor = next(task.parameters())
    x, y = (torch.as_tensor(v.T.copy()).to(anchor) for v in (history, target))
    parts = [
        task.forecast(a, task.window.start(a, b)) for a, b in zip(x.split(batch), y.split(batch))
    ]
    return torch.cat(parts).T.double().cpu().numpy()
