r"""Patterns: which numbers of an ODE are fixed, observed or learned.

A learned number is a function of an unbounded raw value $z$ that the network produces:

| entry | value | initial value |
|---|---|---|
| `Free(init)` | $z$ | $z_0 = \text{init}$ |
| `Positive(init, low)` | $\text{low} + \log(1 + e^z)$ | $z_0$ such that the value is `init` |
| `Between(low, high, init)` | $\text{low} + (\text{high}-\text{low})/(1+e^{-z})$ | as above |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Free:
    """A learned number without bounds."""

    init: float = 0.0
    """Initial value."""

    def __post_init__(self) -> None:
        _check(math.isfinite(self.init), self, "init finite")


@dataclass(frozen=True)
class Positive:
    """A learned number above `low`."""

    init: float = 1.0
    """Initial value."""
    low: float = 0.0
    """Lower bound."""

    def __post_init__(self) -> None:
        _check(-math.inf < self.low < self.init < math.inf, self, "low < init")


@dataclass(frozen=True)
class Between:
    """A learned number between two bounds."""

    low: float
    high: float
    init: float | None = None
    """Initial value; by default the midpoint."""

    def __post_init__(self) -> None:
        _check(-math.inf < self.low < self.start < self.high < math.inf, self, "low < init < high")

    @property
    def start(self) -> float:
        """Initial value."""
        return 0.5 * (self.low + self.high) if self.init is None else self.init


class Observed(Enum):
    """Marker for initial values that are taken from data."""

    OBSERVED = "observed"

    def __repr__(self) -> str:
        return "OBSERVED"


OBSERVED = Observed.OBSERVED
Entry = float | Free | Positive | Between | Observed
KINDS = (Free, Positive, Between)
"""Kinds of learned entries, in the order of their raw values."""


def _check(holds: bool, entry: Any, expected: str) -> None:
    if not holds:
        raise ValueError(f"{entry!r}: expected {expected}.")


class Parametrisation(nn.Module):
    """Map from raw network outputs to the numbers of a pattern.

    Args:
        pattern: Nested sequences of entries; one level per name in `axes`.
        axes: Names of the axes, for messages.
        observed: Whether `OBSERVED` entries are allowed.
    """

    fixed: Tensor
    place: Tensor
    read: Tensor
    low: Tensor
    width: Tensor
    floor: Tensor

    def __init__(self, pattern: Any, axes: Sequence[str], *, observed: bool = False) -> None:
        super().__init__()
        nested = np.array(pattern, dtype=object)  # fewer axes where lengths differ
        if nested.ndim < len(axes):
            raise ValueError(
                f"pattern: got {pattern!r}; expected lists nested as ({', '.join(axes)}), of equal "
                f"lengths: axis {nested.ndim} ({axes[nested.ndim]}) has none, or several lengths."
            )
        self.shape = nested.shape[: len(axes)]
        entries: list[Any] = [nested[i] for i in np.ndindex(self.shape)]
        for entry in entries:
            known = KINDS + ((Observed,) if observed else ())
            if not isinstance(entry, (*known, float, int)) or isinstance(entry, bool):
                names = ", ".join(k.__name__ for k in KINDS) + (", OBSERVED" if observed else "")
                raise TypeError(f"pattern: got {entry!r}; expected a number, {names}.")
        kinds: list[list[int]] = [
            [i for i, e in enumerate(entries) if isinstance(e, kind)]
            for kind in (*KINDS, Observed, (float, int))
        ]
        free, positive, between, observed_at, fixed_at = kinds
        self.learned = [entries[i] for i in free + positive + between]
        self.sizes = len(free), len(positive), len(between)
        self.n_learned, self.n_observed = len(self.learned), len(observed_at)
        last = self.shape[-1]
        self.highest_observed = max((i % last for i in observed_at), default=-1)
        # Values are concatenated as learned, observed, fixed; `place` permutes them to the pattern.
        order = free + positive + between + observed_at + fixed_at
        self.in_place = order == list(range(len(entries)))
        self._constant("place", torch.tensor(order, dtype=torch.int64).argsort())
        self._constant("read", torch.tensor(observed_at, dtype=torch.int64))
        self._constant("fixed", _doubles(entries[i] for i in fixed_at))
        self._constant("floor", _doubles(entries[i].low for i in positive))
        self._constant("low", _doubles(entries[i].low for i in between))
        self._constant("width", _doubles(entries[i].high - entries[i].low for i in between))

    def _constant(self, name: str, x: Tensor) -> None:
        """Register a buffer that is not saved, because the pattern determines it."""
        self.register_buffer(name, x, persistent=False)

    def start(self) -> Tensor:
        """Return the raw values `(n_learned,)` for which every entry equals its `init`."""
        inits = [e.start if isinstance(e, Between) else e.init for e in self.learned]
        return self.inverse(torch.tensor(inits, dtype=torch.float64))

    def inverse(self, values: Tensor) -> Tensor:
        """Return the raw values for learned values `(..., n_learned)`, in the same order."""
        free, positive, between = values.split(self.sizes, -1)
        x = positive - self.floor.to(values)
        p = (between - self.low.to(values)) / self.width.to(values)
        raw = torch.cat([free, x + torch.log(-torch.expm1(-x)), torch.logit(p)], -1)
        if not bool(raw.isfinite().all()):
            raise ValueError(
                f"values: got numbers outside {self.learned}; expected numbers inside the bounds."
            )
        return raw

    def learned_part(self, full: Tensor) -> Tensor:
        """Return the learned values `(..., n_learned)` of a tensor `(..., *shape)`."""
        flat = full.flatten(-len(self.shape))
        return flat[..., self.place.argsort()[: self.n_learned].to(flat.device)]

    def forward(
        self, raw: Tensor | None, observed: Tensor | None, lead: tuple[int, ...],
        dtype: torch.dtype,
    ) -> Tensor:  # fmt: skip
        """Return the numbers, `(..., *shape)`.

        Args:
            raw: `(..., n_learned)`, or `None` if nothing is learned.
            observed: `(..., n_observed)`, or `None` if nothing is observed.
            lead: Leading axes of the result, to which those of the inputs broadcast.
            dtype: Dtype of the result.
        """
        parts = [] if raw is None else self._transform(raw.to(dtype))
        if observed is not None:
            parts.append(observed.to(dtype))
        if len(self.fixed):
            parts.append(self.fixed.to(dtype))
        parts = [x.expand(*lead, x.shape[-1]) for x in parts]
        values = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        if not self.in_place:
            values = values.index_select(-1, self.place)
        return values.reshape(*lead, *self.shape)

    def _transform(self, raw: Tensor) -> list[Tensor]:
        free, positive, between = raw.split(self.sizes, -1)
        parts = []
        if self.sizes[0]:
            parts.append(free)
        if self.sizes[1]:
            parts.append(self.floor.to(raw) + nn.functional.softplus(positive))
        if self.sizes[2]:
            parts.append(self.low.to(raw) + self.width.to(raw) * torch.sigmoid(between))
        return parts


def _doubles(numbers: Iterable[float]) -> Tensor:
    """In float64, so that a module created in float32 and moved to float64 is exact."""
    return torch.tensor([float(x) for x in numbers], dtype=torch.float64)
