"""Heads: from features to the four tensors of an ODE.

A head maps features `(*B, F)` to one of `c, d, u, s` for the same batch `*B`. With
`in_features=None` its numbers are parameters: the same for all samples, or one set for each sample
of a fixed `batch`. The projection and everything after it run in the precision of the parameters of
the head, also under `torch.autocast`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from smnn.errors import mismatch
from smnn.nn._encoders import MLP
from smnn.nn._entries import Parametrisation


class Head(nn.Module):
    """Base class of heads: a pattern of numbers, repeated over time, computed from features.

    Args:
        in_features: Size of the last axis of the features; `None` if there are no features.
        pattern: Nested sequences of entries; one level per name in `axes`.
        axes: Names of the axes of the pattern.
        times: Number of times with separate numbers; `None` for no time axis.
        batch: Without features: batch shape, with one set of numbers per sample.
        hidden: Sizes of hidden layers before the projection.
        activation: Activation between layers: a class or a function without arguments.
        gain: Factor on the initial weights of the projection; with 0 all samples start with
            the same numbers.
        observed: Whether `OBSERVED` entries are allowed.
    """

    anchor: Tensor

    def __init__(
        self, in_features: int | None, pattern: Any, axes: Sequence[str], *,
        times: int | None = None, batch: tuple[int, ...] = (), hidden: Sequence[int] = (),
        activation: Callable[[], nn.Module] = nn.ReLU, gain: float = 1.0, observed: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.entries = Parametrisation(pattern, axes, observed=observed)
        self.in_features, self.times, self.batch = in_features, times, tuple(batch)
        repeats, n = times or 1, self.entries.n_learned
        start = self.entries.start().repeat(repeats).to(torch.get_default_dtype())
        if in_features is None and hidden:
            raise ValueError(f"hidden: got {tuple(hidden)} without in_features; expected none.")
        if in_features is not None and batch:
            raise ValueError(
                f"batch: got {self.batch} with in_features; expected none: features define it."
            )
        # Records the precision of the module, also if it has no parameters.
        self.register_buffer("anchor", torch.empty(0), persistent=False)
        self.trunk: nn.Module | None = None
        self.project: nn.Linear | None = None
        self.raw: nn.Parameter | None = None
        if n == 0:
            return
        if in_features is None:
            self.raw = nn.Parameter(start.expand(*self.batch, repeats * n).clone())
            return
        if hidden:
            self.trunk = nn.Sequential(MLP(in_features, hidden[:-1], hidden[-1], activation))
            self.trunk.append(activation())
        self.project = nn.Linear(hidden[-1] if hidden else in_features, repeats * n)
        with torch.no_grad():
            self.project.weight.mul_(gain)
            self.project.bias.copy_(start)

    def start_at(self, values: Tensor) -> None:
        """Initialize the learned numbers with given values, which must be inside their bounds.

        Args:
            values: As returned by the head, `(*batch, times, *pattern)`; only the learned entries
                are used. With features: without batch axes, the same for all samples.
        """
        target = self.raw if self.project is None else self.project.bias
        if target is None:
            raise ValueError("start_at: this head learns nothing; add a learned entry.")
        lead = (*self.batch, *(() if self.times is None else (self.times,)))
        full = lead + self.entries.shape
        if values.shape != full:
            raise mismatch(
                "values", f"shape {tuple(values.shape)}", full, "The shape that the head returns."
            )
        raw = self.entries.inverse(self.entries.learned_part(values.double()))
        with torch.no_grad():
            target.copy_(raw.reshape(target.shape))

    def values(self, features: Tensor | None, observed: Tensor | None = None) -> Tensor:
        """Return the numbers, `(*B, times, *pattern)`; without time axis if `times` is `None`."""
        raw, batch = self._raw(features)
        dtype = self._dtype(features, raw, observed)
        repeated = () if self.times is None else (self.times,)
        if raw is not None:
            raw = raw.reshape(*batch, *repeated, self.entries.n_learned)
        flat = self._observed(observed, len(batch))
        if flat is not None:
            batch = torch.broadcast_shapes(batch, flat.shape[: len(batch)])
        return self.entries(raw, flat, (*batch, *repeated), dtype)

    def _raw(self, features: Tensor | None) -> tuple[Tensor | None, tuple[int, ...]]:
        """Return raw values `(*B, times * n)` and the batch shape."""
        if self.project is not None:
            if features is None or features.shape[-1:] != (self.in_features,):
                got = "None" if features is None else f"shape {tuple(features.shape)}"
                raise mismatch(
                    "features", got, f"(*B, {self.in_features})", "Features are in the last axis."
                )
            h = features if self.trunk is None else self.trunk(features)
            with torch.autocast(h.device.type, enabled=False):
                raw = self.project(h.to(self.project.weight.dtype))
            return raw, raw.shape[:-1]
        if features is None or self.batch:
            if features is not None and features.ndim - 1 != len(self.batch):
                raise mismatch(
                    "features",
                    f"shape {tuple(features.shape)}",
                    f"{len(self.batch)} batch axes, as the head's own {self.batch}",
                    "Every tensor of an ODE has the same number of batch axes.",
                )
            return self.raw, self.batch
        ones = (1,) * (features.ndim - 1)
        return None if self.raw is None else self.raw.view(*ones, -1), ones

    def _dtype(
        self, features: Tensor | None, raw: Tensor | None, observed: Tensor | None
    ) -> torch.dtype:
        """Return the widest dtype of the inputs and of the module, at least float32."""
        dtype = torch.float32
        for x in (self.anchor, features, raw, observed):
            dtype = dtype if x is None else torch.promote_types(dtype, x.dtype)
        return dtype

    def _observed(self, observed: Tensor | None, nb: int) -> Tensor | None:
        """Return the observed entries, `(*B, n_observed)`."""
        entries = self.entries
        if not entries.n_observed:
            return None
        T, V, orders = entries.shape
        if observed is None or observed.shape[nb:-1] != (T, V) or observed.shape[-1] > orders:
            got = "None" if observed is None else f"shape {tuple(observed.shape)}"
            raise mismatch(
                "observed", got, f"(*B, {T}, {V}, k) with {nb} batch axes and k <= {orders} orders",
                "The pattern has OBSERVED entries.",
            )  # fmt: skip
        missing = orders - observed.shape[-1]
        if missing and entries.highest_observed >= observed.shape[-1]:
            raise mismatch(
                "observed",
                f"orders 0 to {observed.shape[-1] - 1}",
                f"order {entries.highest_observed} too, which is OBSERVED in the pattern",
                "Pass more orders, or make that entry learned.",
            )
        full = nn.functional.pad(observed, (0, missing)) if missing else observed
        return full.flatten(-3).index_select(-1, entries.read)


class _EquationHead(Head):
    """Numbers of equations, constant or varying in time."""

    axes: ClassVar[tuple[str, ...]]

    def __init__(
        self, in_features: int | None, pattern: Any = (0.0,), *, times: int | None = None,
        batch: tuple[int, ...] = (), hidden: Sequence[int] = (),
        activation: Callable[[], nn.Module] = nn.ReLU, gain: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__(
            in_features, pattern, self.axes, times=times or 1, batch=batch, hidden=hidden,
            activation=activation, gain=gain,
        )  # fmt: skip

    def forward(self, features: Tensor | None = None) -> Tensor:
        """Return the numbers for features `(*B, F)`; time size 1 if they are constant."""
        return self.values(features)


class Coefficients(_EquationHead):
    """The coefficients `c (*B, T, Q, V, R+1)`.

    Args:
        in_features: Size of the last axis of the features; `None` for no features.
        pattern: `(Q, V, R+1)` nested lists: a number fixes the coefficient, `Free`, `Positive` and
            `Between` learn it. `[[[Free(), Free(), 1.0]]]` is `c_0 y + c_1 y' + y'' = d`.
        times: `T` for coefficients that vary in time; `None` for constant ones.
        batch: Without features: batch shape, with one set of coefficients per sample.
        hidden: Sizes of hidden layers before the projection.
        activation: Activation between layers: a class or a function without arguments.
        gain: Factor on the initial weights of the projection.
    """

    axes = ("equation", "variable", "order")


class RightHandSide(_EquationHead):
    """The right-hand side `d (*B, T, Q)`; arguments as those of `Coefficients`.

    Args:
        pattern: `(Q,)` list of entries; `[0.0]` is a homogeneous equation.
    """

    axes = ("equation",)


class InitialValues(Head):
    """The initial values `u (*B, T_init, V, R_init+1)`; arguments as those of `Coefficients`.

    Args:
        pattern: `(T_init, V, R_init+1)` nested lists of entries; `OBSERVED` entries are
            taken from data. `[[[OBSERVED, Free()]]]` takes `y(0)` from data and learns `y'(0)`.
    """

    def __init__(
        self, in_features: int | None, pattern: Any, *, batch: tuple[int, ...] = (),
        hidden: Sequence[int] = (), activation: Callable[[], nn.Module] = nn.ReLU,
        gain: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__(
            in_features, pattern, ("time", "variable", "order"), batch=batch,
            hidden=hidden, activation=activation, gain=gain, observed=True,
        )  # fmt: skip

    def forward(self, features: Tensor | None = None, observed: Tensor | None = None) -> Tensor:
        """Return `u` for features `(*B, F)` and observed values `(*B, T_init, V, k)`."""
        return self.values(features, observed)
