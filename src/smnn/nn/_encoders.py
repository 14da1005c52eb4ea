"""Encoders: from data to features, which are always in the last axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


class MLP(nn.Sequential):
    """Linear layers with an activation between them, on the last axis.

    Args:
        in_features: Size of the last axis of the input, `(*B, in_features)`.
        hidden: Sizes of the hidden layers.
        out_features: Size of the last axis of the output.
        activation: Activation between layers: a class or a function without arguments.
    """

    def __init__(
        self, in_features: int, hidden: Sequence[int], out_features: int,
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:  # fmt: skip
        sizes = [in_features, *hidden, out_features]
        layers: list[nn.Module] = []
        for i in range(len(sizes) - 1):
            layers += [activation()] if i else []
            layers.append(nn.Linear(sizes[i], sizes[i + 1]))
        super().__init__(*layers)


class ResNet1d(nn.Module):
    """Residual 1-d convolutional network: `(*B, channels, X)` to `(*B, X, features)`.

    The resolution is kept, so that every point can have its own ODE: the batch axes of the solver
    are then `(*B, X)`. For features of the whole line, take the mean over `X`.

    Args:
        in_channels: Channels of the input.
        out_features: Features of each point.
        widths: Channels of the residual blocks, two convolutions each. Where the number of channels
            changes, the skip connection is a convolution of size 1.
        kernel: Kernel size of the convolutions; odd.
        periodic: Use circular padding, as for a PDE with periodic boundary conditions; otherwise
            zero padding.
        activation: Activation before each convolution except the first: a class or a function
            without arguments.
    """

    def __init__(
        self, in_channels: int, out_features: int, widths: Sequence[int] = (64, 64, 128, 128), *,
        kernel: int = 9, periodic: bool = False, activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:  # fmt: skip
        super().__init__()
        if kernel % 2 == 0 or kernel < 1:
            raise ValueError(f"kernel: got {kernel}; expected an odd number above 0.")
        if not widths:
            raise ValueError("widths: got none; expected at least one block.")

        def convolution(n_in: int, n_out: int) -> nn.Conv1d:
            return nn.Conv1d(
                n_in, n_out, kernel, padding=kernel // 2,
                padding_mode="circular" if periodic else "zeros",
            )  # fmt: skip

        self.first = convolution(in_channels, widths[0])
        # `ways_past` are the skip connections; the name is part of saved state dicts.
        self.blocks, self.ways_past = nn.ModuleList(), nn.ModuleList()
        for n_in, n_out in zip([widths[0], *widths], widths):
            self.blocks.append(
                nn.Sequential(
                    activation(), convolution(n_in, n_out), activation(), convolution(n_out, n_out)
                )
            )
            self.ways_past.append(nn.Identity() if n_in == n_out else nn.Conv1d(n_in, n_out, 1))
        self.last = nn.Sequential(activation(), convolution(widths[-1], out_features))

    def forward(self, x: Tensor) -> Tensor:
        """Return features `(*B, X, out_features)` of `x (*B, in_channels, X)`."""
        batch = x.shape[:-2]
        h = self.first(x.reshape(-1, *x.shape[-2:]))
        for block, shortcut in zip(self.blocks, self.ways_past, strict=True):
            h = shortcut(h) + block(h)
        h = self.last(h)
        return h.mT.reshape(*batch, h.shape[-1], h.shape[-2])


class SpectralInput(nn.Module):
    r"""The lowest coefficients of the orthonormal discrete cosine transform (DCT-II) in time.

    $X_k = \sqrt{(2 - \delta_{k0})/L}\,\sum_{t=0}^{L-1} x_t \cos\bigl(\pi k (t + 1/2)/L\bigr)$,
    $k < \text{keep}$. Coefficient $k$ has a period of $2L/k$ samples. The
    transform preserves the sum of squares.

    Args:
        length: Number of samples `L` of the input `(*B, L)`.
        keep: Number of coefficients of the output `(*B, keep)`.
    """

    matrix: Tensor

    def __init__(self, length: int, keep: int) -> None:
        super().__init__()
        if not 1 <= keep <= length:
            raise ValueError(f"keep: got {keep}; expected 1 to {length}, the number of samples.")
        k = torch.arange(keep, dtype=torch.float64)[:, None]
        t = torch.arange(length, dtype=torch.float64)
        matrix = torch.cos(math.pi / length * k * (t + 0.5)) * math.sqrt(2 / length)
        matrix[0] /= math.sqrt(2)
        self.register_buffer("matrix", matrix, persistent=False)  # determined by the sizes

    def forward(self, x: Tensor) -> Tensor:
        """Return coefficients `(*B, keep)` of `x (*B, length)`, in the precision of `x`."""
        with torch.autocast(x.device.type, enabled=False):
            return x @ self.matrix.to(x.dtype).T

    def inverse(self, coefficients: Tensor) -> Tensor:
        """Return the series `(*B, length)` with these coefficients; all higher ones are zero."""
        with torch.autocast(coefficients.device.type, enabled=False):
            return coefficients @ self.matrix.to(coefficients.dtype)
