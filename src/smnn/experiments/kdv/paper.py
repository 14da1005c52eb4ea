"""The network of the paper, which predicts an ODE in time for every point.

The ODEs have `V = Q = 1`, four derivatives and ten times, of which the first is that of the last
known frame.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from smnn.experiments.solvers import SMNN, Solver
from smnn.nn import LinearODE

HISTORY, TIMES, ORDER = 10, 10, 4


class Convolution(nn.Conv1d):
    """A 1-D convolution with optional channels-last layout.

    Tensor cores of a GPU need that layout; with the default one each call transposes its tensors.
    Values and weights are the same.
    """

    channels_last = False

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, C, X)` to another number of channels and, with strides, of points."""
        if not self.channels_last:
            return super().forward(x)
        side = int(self.padding[0])
        rows = x.mT
        if self.padding_mode == "circular" and side:
            rows, side = torch.cat([rows[:, -side:], rows, rows[:, :side]], 1), 0
        picture = rows.contiguous().mT.unsqueeze(2)  # of height 1
        return nn.functional.conv2d(
            picture, self.weight.unsqueeze(2), self.bias, (1, *self.stride), (0, side)
        ).squeeze(2)


def circular(n_in: int, n_out: int, kernel: int, stride: int = 1) -> Convolution:
    """A circular convolution without shift."""
    return Convolution(n_in, n_out, kernel, stride, kernel // 2, padding_mode="circular")


class PaperModel(nn.Module):
    """The network of the paper: four networks on ten frames, one ODE for every point.

    Two residual networks with zero padding for coefficients and right-hand sides, one network for
    the initial slopes of all points, and one for the step, which is the same for all points and
    times. The last two require a fixed number of points. Neither `dx` nor `dt` is an input.
    """

    horizon = TIMES - 1

    def __init__(
        self,
        points: int = 256,
        blocks: tuple[int, ...] = (64, 64, 64, 64, 128, 128, 128, 128, 256, 256),
        solver: str = SMNN,
    ) -> None:
        super().__init__()
        self.solver = Solver(solver)
        self.coefficients = _Residual(blocks, TIMES * (ORDER + 1))
        self.right = _Residual(blocks, TIMES)
        top = blocks[-1]
        narrow = (top // 4, top // 2, top, top, top // 2, top // 4, top // 8)
        self.slopes = _flat(narrow, (1, 1, 1, 1, 2, 2, 1), 7, points, (ORDER - 1) * points)
        self.step = _flat(narrow, (1, 2, 1, 1, 1, 2, 1), 5, points, 1)
        nn.init.zeros_(self.step[-1].weight)  # type: ignore[arg-type]
        nn.init.constant_(self.step[-1].bias, math.log(0.05 / 0.95))  # type: ignore[arg-type]

    def ode(self, u: Tensor, dx: Tensor, dt: Tensor) -> LinearODE:
        """The predicted equations `(B, X, ...)`; the time unit is not a frame."""
        c = self.coefficients(u).unflatten(-1, (TIMES, 1, 1, ORDER + 1))
        d = self.right(u)[..., None]
        slopes = self.slopes(u).unflatten(-1, (u.shape[2], ORDER - 1))
        initial = torch.cat([u[:, -1, :, None], slopes.to(u.dtype)], -1)[..., None, None, :]
        s = torch.sigmoid(self.step(u).float()).clamp(min=1e-3)
        return LinearODE(c, d, initial, s[:, None].expand(-1, u.shape[2], 1))

    def forward(self, u: Tensor, dx: Tensor, dt: Tensor) -> Tensor:
        """The last known frame and the 9 next, `(B, 10, X)`; `dx` and `dt` are ignored."""
        return self.solver(self.ode(u, dx, dt))[0][..., 0, 0].mT.to(u.dtype)


class _Residual(nn.Module):
    """Residual convolutions with zero padding, and a circular head."""

    def __init__(self, blocks: tuple[int, ...], features: int) -> None:
        super().__init__()

        def same(n_in: int, n_out: int) -> Convolution:
            return Convolution(n_in, n_out, 9, padding=4)

        self.first = same(HISTORY, blocks[0])
        self.blocks = nn.ModuleList()
        for i, (n_in, n_out) in enumerate(zip((blocks[0], *blocks), blocks)):
            parts: list[nn.Module] = [nn.ReLU()] if i else []
            parts += [same(n_in, n_out), nn.ReLU(), same(n_out, n_out)]
            self.blocks.append(nn.Sequential(*parts))
        self.head = circular(blocks[-1], features, 7)

    def forward(self, u: Tensor) -> Tensor:
        """`(B, 10, X)` to `(B, X, features)`."""
        h = nn.functional.relu(self.first(u))
        for block in self.blocks:
            more = block(h)
            grown = more.shape[1] - h.shape[1]
            past = nn.functional.pad(h, (0, 0, grown // 2, grown - grown // 2)) if grown else h
            h = past + more
        return self.head(h).mT


def _flat(
    widths: tuple[int, ...], strides: tuple[int, ...], kernel: int, points: int, features: int
) -> nn.Sequential:
    """Circular convolutions followed by a linear layer."""
    layers: list[nn.Module] = []
    for i, (n_in, n_out, stride) in enumerate(zip((HISTORY, *widths), widths, strides)):
        layers += [nn.ReLU()] if i else []
        layers.append(circular(n_in, n_out, kernel, stride=stride))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(widths[-1] * points // 4, features))
