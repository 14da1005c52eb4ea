r"""Constants of the smoothness rows.

With $D = \mathrm{diag}(s^r)$ and the Taylor matrix $F_{ij} = 1/(j-i)!$, the forward rows of a step
are $e = D y_{t+1} - F D y_t$ and the backward rows $D y_t - F^{-1} D y_{t+1} = -F^{-1} e$.
Both together are one triangular set of rows $K e$ with $K^\top K = I + F^{-\top} F^{-1}$.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor


def _entries(R: int, sign: int) -> list[list[float]]:
    """The numbers of `taylor`, in Python, where `torch.compile` can follow."""
    return [
        [sign ** (j - i) / math.factorial(j - i) if j >= i else 0.0 for j in range(R + 1)]
        for i in range(R + 1)
    ]


_kept_entries = functools.cache(_entries)


def taylor(R: int, sign: int = 1) -> Tensor:
    """The matrix `F` (or its inverse, `sign=-1`), float64 on the CPU.

    Made anew each time, because a tensor remembers the mode it was made in.
    """
    entries = _entries if torch.compiler.is_compiling() else _kept_entries
    return torch.tensor(entries(int(R), sign), dtype=torch.float64)


def smoothness_top(R: int, scheme: str) -> int:
    """How many orders have forward and backward rows."""
    return R if scheme == "central" else R + 1


def _triangle(weights: Tensor, scheme: str) -> Tensor:
    """`K` for row weights `(..., R+1)`: the triangle of the stacked weighted rows."""
    R = weights.shape[-1] - 1
    top = smoothness_top(R, scheme)
    inverse = taylor(R, -1).to(weights.device)
    w = weights[..., :top, None]
    rows = torch.cat(
        [w * torch.eye(R + 1, dtype=w.dtype, device=w.device)[:top], w * inverse[:top]], -2
    )
    if rows.shape[-2] < R + 1:
        rows = torch.nn.functional.pad(rows, (0, 0, 0, R + 1 - rows.shape[-2]))
    return torch.linalg.qr(rows, mode="r")[1]


@functools.cache
def unit_link(R: int, scheme: str) -> tuple[np.ndarray, np.ndarray]:
    """`K` and `K F` for weights of one."""
    top = smoothness_top(R, scheme)
    rows = np.concatenate([np.eye(R + 1)[:top], np.array(_entries(R, -1))[:top]])
    rows = np.pad(rows, ((0, max(0, R + 1 - len(rows))), (0, 0)))
    K: np.ndarray = np.linalg.qr(rows)[1]
    return K, K @ np.array(_entries(R, 1))


def link_rows(w_smooth: Tensor, scheme: str) -> tuple[Tensor, Tensor, Tensor]:
    """Rows `scale * (K D y_{t+1} - K F D y_t)` of every step and variable.

    Args:
        w_smooth: `(B, T-1, V, R+1)`. If its last axis is broadcast, one constant `K` serves all.
        scheme: `"smnn"` or `"central"`.

    Returns:
        `scale (B, T-1, V)`, and `K` and `K F`, each `(B, T-1, V, R+1, R+1)`, possibly broadcast.
    """
    R = w_smooth.shape[-1] - 1
    shape = (*w_smooth.shape, R + 1)
    if w_smooth.stride(-1) == 0 or R == 0:
        K, KF = (torch.from_numpy(x).to(w_smooth.device) for x in unit_link(R, scheme))
        return w_smooth[..., 0], K.expand(shape), KF.expand(shape)
    sizes = [1 if w_smooth.stride(i) == 0 else w_smooth.shape[i] for i in range(3)]
    K = _triangle(w_smooth[: sizes[0], : sizes[1], : sizes[2]], scheme)
    scale = torch.ones((), dtype=K.dtype, device=K.device).expand(w_smooth.shape[:-1])
    return scale, K.expand(shape), (K @ taylor(R).to(K.device)).expand(shape)
