"""Networks that predict an ODE in time for every point; one call gives a window of frames.

Both have `V = Q = 1`, four derivatives and ten times, of which the first is that of the last known
frame. `PaperModel` is the network of the paper. `WindowModel` has the same form, but a single
trunk, circular convolutions whose receptive field covers the distance that the fastest waves travel
in a window, and dimensionless units in which the equation depends on one parameter only.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from smnn.baselines import mnn_dense, mnn_sparse
from smnn.nn import LinearODE, MechanisticLayer

HISTORY, TIMES, ORDER = 10, 10, 4
SOLVERS = ("smnn", "mnn-dense", "mnn-sparse")


def make_solver(name: str) -> Callable[[LinearODE], Tensor]:
    """A function that solves ODEs by one of `SOLVERS`, without device synchronization."""
    if name == "smnn":
        return MechanisticLayer(check=False)
    if name not in SOLVERS:
        raise ValueError(f"solver: got {name!r}; expected one of {', '.join(SOLVERS)}.")
    published = mnn_dense if name == "mnn-dense" else mnn_sparse

    def solve(ode: LinearODE) -> Tensor:
        nb, T = ode.batch_dims, ode.n_steps()
        assert T is not None
        c, d, u, s = ode.apply(torch.Tensor.double)
        s = s.expand(*c.shape[:nb], T - 1)
        y: Tensor = published(c, d, u, s, check=False).y
        return y.to(ode.u.dtype)

    return solve


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
            picture, self.weight.unsqueeze(2), self.bias, (1, *self.stride), (0, side),
            (1, *self.dilation),
        ).squeeze(2)  # fmt: skip


def circular(n_in: int, n_out: int, kernel: int, dilation: int = 1, stride: int = 1) -> Convolution:
    """A circular convolution without shift."""
    return Convolution(
        n_in, n_out, kernel, stride, padding=dilation * (kernel // 2), dilation=dilation,
        padding_mode="circular",
    )  # fmt: skip


class WindowModel(nn.Module):
    r"""One trunk, one head, one ODE for every point.

    With $U = u\,\Delta t/\Delta x$ and time in frames the equation of the data has one parameter,
    $\nu = \Delta t/\Delta x^3$; the inputs are $U$ and $\log \nu$. The network is therefore
    equivariant to scaling and, due to circular convolutions, to translation. The head is
    initialized to zero, the ODE of a constant field.

    Args:
        width: Number of channels.
        blocks: Number of residual blocks of two convolutions.
        kernel: Odd size of the convolutions.
        reach: Dilations, used cyclically.
        solver: One of `SOLVERS`.
    """

    horizon = TIMES - 1

    def __init__(
        self,
        width: int = 128,
        blocks: int = 8,
        kernel: int = 7,
        reach: tuple[int, ...] = (1, 2, 4, 8),
        solver: str = "smnn",
    ) -> None:
        super().__init__()
        self.solver = make_solver(solver)
        self.first = circular(HISTORY + 1, width, kernel)
        self.inner, self.outer = nn.ModuleList(), nn.ModuleList()
        self.modulation = nn.Sequential(
            nn.Linear(1, width), nn.GELU(), nn.Linear(width, 2 * width * blocks)
        )
        for i in range(blocks):
            dilation = reach[i % len(reach)]
            self.inner.append(circular(width, width, kernel, dilation))
            last = circular(width, width, kernel, dilation)
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)  # type: ignore[arg-type]
            self.outer.append(last)
        self.head = nn.Conv1d(width, TIMES * (ORDER + 1) + TIMES + ORDER - 1, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)  # type: ignore[arg-type]

    def ode(self, u: Tensor, dx: Tensor, dt: Tensor) -> LinearODE:
        """The predicted equations `(B, X, ...)`, in dimensionless units."""
        U = u * (dt / dx)[:, None, None]
        log_nu = (dt / dx**3).log()[:, None]
        with torch.autocast(u.device.type, enabled=False):  # full precision
            h = self.first(torch.cat([U, log_nu[..., None].expand(-1, 1, u.shape[2])], 1))
        factors = self.modulation(log_nu)[..., None].chunk(2 * len(self.inner), 1)
        for i, (inner, outer) in enumerate(zip(self.inner, self.outer)):
            gain, bias = factors[2 * i], factors[2 * i + 1]
            h = h + outer(nn.functional.gelu(inner(nn.functional.gelu(h)) * (1 + gain) + bias))
        with torch.autocast(u.device.type, enabled=False):
            raw = self.head(nn.functional.gelu(h.to(u.dtype))).mT
        c, d, slopes = raw.split([TIMES * (ORDER + 1), TIMES, ORDER - 1], -1)
        now = U[:, -1, :, None]
        c = c.unflatten(-1, (TIMES, ORDER + 1))
        # Bounded, so that every equation is well-posed for any input.
        c = torch.cat(
            [1 + START * torch.exp(2 * torch.tanh(c[..., :1])), torch.tanh(c[..., 1:])], -1
        )
        d = d + c[..., 0] * now
        initial = torch.cat([now, slopes], -1)
        return LinearODE(
            c[..., None, None, :], d[..., None], initial[..., None, None, :],
            torch.ones_like(initial[:, :, :1]),
        )  # fmt: skip

    def forward(self, u: Tensor, dx: Tensor, dt: Tensor) -> Tensor:
        """The last known frame and the 9 next, `(B, 10, X)`.

        Args:
            u: `(B, 10, X)` known frames.
            dx: `(B,)` spacing of the points.
            dt: `(B,)` time between frames.
        """
        y = self.solver(self.ode(u, dx, dt))
        return y[..., 0, 0].mT.to(u.dtype) * (dx / dt)[:, None, None]


START = 2.0
"""The coefficient of the field is initialized to this plus one; smoothness rows have weight 1."""


class PaperModel(nn.Module):
    """The network of the paper: four networks on ten frames, one ODE for every point.

    Two residual networks with zero padding for coefficients and right-hand sides, one network for
    the initial slopes of all points, and one for the step, which is the same for all points and
    times. Neither `dx` nor `dt` is an input.

    Args:
        points: `X`; the networks for slopes and step require a fixed number of points.
        blocks: Channels of the residual blocks.
        solver: One of `SOLVERS`.
    """

    horizon = TIMES - 1

    def __init__(
        self,
        points: int = 256,
        blocks: tuple[int, ...] = (64, 64, 64, 64, 128, 128, 128, 128, 256, 256),
        solver: str = "smnn",
    ) -> None:
        super().__init__()
        self.solver = make_solver(solver)
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
        """As `WindowModel`; `dx` and `dt` are ignored."""
        return self.solver(self.ode(u, dx, dt))[..., 0, 0].mT.to(u.dtype)


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
