"""Head for the time steps, which are always positive."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from smnn.errors import mismatch
from smnn.nn._entries import Between, Free, Positive
from smnn.nn._heads import Head


@dataclass(frozen=True)
class Share:
    r"""Steps as fractions of a known duration: $s_t = D\,(f/n + (1-f)\,\mathrm{softmax}(z)_t)$.

    The $n$ steps are positive and sum to $D$, so that the unit of time is fixed while the network
    moves the times in between. Initially they are equal.
    """

    total: float
    """The duration `D`."""
    floor: float = 0.01
    """Smallest step `f`, as a fraction of the mean step."""

    def __post_init__(self) -> None:
        if not (0 < self.total < math.inf and 0 < self.floor < 1):
            raise ValueError(f"{self!r}: expected total > 0 and floor between 0 and 1.")


class Steps(Head):
    """The steps `s (*B, T-1)`, or `(*B, T-1, V)` for a grid per variable.

    Arguments as those of `Coefficients`; with `gain=0`, all samples start with the same steps.

    Args:
        entry: Fixed steps as a number or a tensor `(T-1,)` or `(T-1, V)`; learned steps as
            `Positive` or `Between` with `low > 0`, which keeps them positive, or `Share`.
        times: `T - 1` for separate steps; `None` for one constant step.
        variables: `V` for a grid per variable; `None` for one grid.
    """

    known: Tensor | None

    def __init__(
        self, in_features: int | None, entry: float | Positive | Between | Share | Tensor, *,
        times: int | None = None, variables: int | None = None, batch: tuple[int, ...] = (),
        hidden: Sequence[int] = (), activation: Callable[[], nn.Module] = nn.ReLU,
        gain: float = 0.0,
    ) -> None:  # fmt: skip
        known: Tensor | None = None
        each: float | Free | Positive | Between
        if isinstance(entry, Tensor):
            _check_known(entry, times, variables)
            known, times, each = entry.detach().clone(), entry.shape[0], 1.0
        elif isinstance(entry, Share):
            if times is None:
                raise ValueError("times: got None with Share; expected the number of steps T - 1.")
            each = Free()
        else:
            _check_positive(entry)
            each = entry
        super().__init__(
            in_features, [each] * (variables or 1), ("variable",), times=times or 1, batch=batch,
            hidden=hidden, activation=activation, gain=gain,
        )  # fmt: skip
        self.share = entry if isinstance(entry, Share) else None
        self.variables = variables
        self.register_buffer("known", known, persistent=False)

    def forward(self, features: Tensor | None = None) -> Tensor:
        """Return `s` for features `(*B, F)`; time size 1 if the step is constant."""
        s = self.values(features)
        if self.share is not None:
            total, floor, n = self.share.total, self.share.floor, s.shape[-2]
            s = total * (floor / n + (1 - floor) * torch.softmax(s, -2))
        if self.known is not None:
            s = s * self.known.view(s.shape[-2:]).to(s.dtype)
        return s if self.variables is not None else s.squeeze(-1)

    def start_at(self, values: Tensor) -> None:
        """Initialize the learned steps with given ones, in the shape that the head returns."""
        s = values.double() if self.variables is not None else values.double().unsqueeze(-1)
        if self.share is not None:
            total, floor, n = self.share.total, self.share.floor, s.shape[-2]
            part = (s / total - floor / n) / (1 - floor)
            if not bool((part > 0).all() and torch.allclose(part.sum(-2), part.new_tensor(1.0))):
                raise ValueError(
                    f"values: got steps of {s.min().item():g} and more that add up to "
                    f"{s.sum(-2).flatten()[0].item():g}; expected more than {floor * total / n:g} "
                    f"each and {total:g} in all."
                )
            s = part.log()
        super().start_at(s)


def _check_positive(entry: float | Positive | Between) -> None:
    low = entry.low if isinstance(entry, (Positive, Between)) else entry
    if not isinstance(low, (float, int)) or not 0 < low < math.inf:
        raise ValueError(
            f"entry: got {entry!r}; expected a positive number, Share, or Positive or Between with "
            "low > 0. Steps must stay positive; low=1e-3 of the usual step is a common choice."
        )


def _check_known(known: Tensor, times: int | None, variables: int | None) -> None:
    shape = ("T-1",) if variables is None else ("T-1", variables)
    if known.ndim != len(shape) or (variables is not None and known.shape[1] != variables):
        raise mismatch("entry", f"shape {tuple(known.shape)}", shape, "One step per interval.")
    if times is not None and times != known.shape[0]:
        raise mismatch("times", times, f"{known.shape[0]} as entry has", "Omit it.")
    if not bool((known > 0).all() and known.isfinite().all()):
        raise ValueError(
            "entry: got steps that are not positive and finite; expected only such steps."
        )
