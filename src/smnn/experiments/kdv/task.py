"""The learning task on KdV data: windows of frames, loss, roll-outs and errors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from smnn.datasets.kdv import Frames, Symmetries, Trajectories, easy
from smnn.experiments.kdv.baselines import FNO, ResNet
from smnn.experiments.kdv.paper import PaperModel
from smnn.experiments.kdv.spectral import ModesModel, OperatorModel, SpectralModel
from smnn.training import Data, Task, register_task

HISTORY = 10
"""Number of frames given to every model."""
SCORED = (20, 40, 100)
"""Lead times, in frames, over which errors are averaged."""
MODELS: dict[str, type[nn.Module]] = {
    "modes": ModesModel, "operator": OperatorModel, "paper": PaperModel, "resnet": ResNet,
    "fno": FNO,
}  # fmt: skip


class Windows(Dataset[Frames]):
    """All windows of a length in a set of trajectories, or those that start at a given frame."""

    def __init__(
        self, data: Trajectories, length: int, *, start: int | None = None,
        device: str | torch.device = "cpu", dtype: torch.dtype = torch.float64,
    ) -> None:  # fmt: skip
        frames = data.u.shape[1]
        if not 1 <= length + (start or 0) <= frames:
            raise ValueError(
                f"length: got {length} frames from frame {start or 0} on; the trajectories have "
                f"{frames}. Use shorter windows."
            )
        self.u, self.dx, self.dt = (
            torch.from_numpy(np.ascontiguousarray(x)).to(device, dtype)
            for x in (data.u, data.dx, data.dt)
        )
        self.length, self.start = length, start
        self.starts = 1 if start is not None else frames - length + 1
        self._offsets = torch.arange(length, device=device)

    def __len__(self) -> int:
        return len(self.u) * self.starts

    def __getitem__(self, index: int) -> Frames:
        return Frames(*(x[0] for x in self.batch(torch.tensor([index]))))

    def batch(self, indices: Tensor) -> Frames:
        """Windows `(B, length, X)` with their grids."""
        indices = indices.to(self.u.device, non_blocking=True)
        which = indices // self.starts
        first = indices % self.starts if self.start is None else indices * 0 + self.start
        rows = first[:, None] + self._offsets
        return Frames(self.u[which[:, None], rows], self.dx[which], self.dt[which])


def rollout(model: nn.Module, u: Tensor, dx: Tensor, dt: Tensor, frames: int) -> Tensor:
    """The next frames `(B, frames, X)`; each call of the model continues the previous output."""
    if isinstance(model, SpectralModel):  # continues from its own state
        found: Tensor = model(u, dx, dt, frames)
        return found[:, 1:]
    out = u
    while out.shape[1] < u.shape[1] + frames:
        new = model(out[:, -u.shape[1] :], dx, dt)[:, 1:]
        out = torch.cat([out, new], 1)
    return out[:, u.shape[1] : u.shape[1] + frames]


class Errors(NamedTuple):
    """Normalised mean squared errors of each trajectory and lead time, `(N, frames)`."""

    by_prediction: Tensor
    """Normalized by the energy of the prediction, as in the paper."""
    by_truth: Tensor
    """Normalized by the energy of the truth, as usual."""


def errors(prediction: Tensor, truth: Tensor) -> Errors:
    """Errors of frames `(N, frames, X)`."""
    prediction, truth = prediction.double(), truth.double()
    wrong = (prediction - truth).square().sum(-1)
    return Errors(wrong / prediction.square().sum(-1), wrong / truth.square().sum(-1))


def _data(
    train: int = 512, valid: int = 64, seed: int = 0, passes: int = 1, horizon: int = 9
) -> Data:
    """Generated data for `smnn train kdv`."""
    return Data(
        Windows(easy("train", train, seed=seed), HISTORY + passes * horizon),
        Windows(easy("valid", valid, seed=seed), HISTORY + SCORED[1], start=0),
    )


@register_task("kdv", data=_data)
class KdVTask(Task):
    """Predict the next frames of a wave on a circle from the last ten.

    The loss is the root of the relative squared error of a window, so that no trajectory dominates.
    With several passes the model also continues its own frames, without gradients through them.

    Args:
        model: One of `MODELS`.
        options: Arguments of the model.
        passes: Number of consecutive calls of the model in training.
        symmetries: Arguments of `Symmetries` for data augmentation; none by default.
        relative_to: Normalization by the `"energy"` of the frames, or by their `"change"` since
            the last known frame.
    """

    capturable = True

    def __init__(
        self, model: str = "modes", options: dict[str, Any] | None = None, passes: int = 1,
        symmetries: dict[str, Any] | None = None, relative_to: str = "energy",
    ) -> None:  # fmt: skip
        super().__init__()
        if model not in MODELS:
            raise ValueError(f"model: got {model!r}; expected one of {', '.join(MODELS)}.")
        if relative_to not in ("energy", "change"):
            raise ValueError(f"relative_to: got {relative_to!r}; expected 'energy' or 'change'.")
        self._config = {
            "model": model, "options": options or {}, "passes": passes, "symmetries": symmetries,
            "relative_to": relative_to,
        }  # fmt: skip
        self.model = MODELS[model](**(options or {}))
        self.passes, self.relative_to = passes, relative_to
        self.symmetries = None if symmetries is None else Symmetries(**symmetries)

    @property
    def length(self) -> int:
        """Number of frames of a training window."""
        return HISTORY + self.passes * int(self.model.horizon)  # type: ignore[arg-type]

    def losses(self, batch: Frames) -> dict[str, Tensor]:
        """Losses of windows `(B, length, X)`."""
        if self.symmetries is not None and self.training:
            batch = self.symmetries(Frames(*batch))
        u, dx, dt = batch
        known, total = u[:, :HISTORY], u.new_zeros(())
        for i in range(self.passes):
            new = self.model(known, dx, dt)[:, 1:]
            first = HISTORY + i * new.shape[1]
            truth = u[:, first : first + new.shape[1]]
            base = truth - u[:, first - 1 : first] if self.relative_to == "change" else truth
            wrong = (new - truth).square().sum((1, 2))
            total = total + (wrong / base.square().sum((1, 2)) + TINY).sqrt().mean()
            known = torch.cat([known, new.detach()], 1)[:, -HISTORY:]
        return {"loss": total / self.passes}

    def evaluate(self, batch: Frames) -> dict[str, Tensor]:
        """Errors over 20 frames and, if available, 40, normalized by the energy of the truth."""
        u, dx, dt = batch
        truth = u[:, HISTORY:]
        found = errors(rollout(self.model, u[:, :HISTORY], dx, dt, truth.shape[1]), truth)
        # Divergence early in training must not abort it.
        curve = torch.nan_to_num(found.by_truth, nan=LOST, posinf=LOST).clamp(max=LOST)
        return {
            "loss": curve[:, : SCORED[0]].mean(),
            **{f"nmse_{n}": curve[:, :n].mean() for n in SCORED[:2] if truth.shape[1] >= n},
        }

    def config(self) -> dict[str, Any]:
        """Constructor arguments."""
        return dict(self._config)


TINY = 1e-20
"""Keeps the root differentiable for exact predictions."""
LOST = 1e3
"""Error assigned by `evaluate` to predictions that are not finite."""
