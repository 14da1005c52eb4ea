"""Validation: `c, d, u, s` and the weights, checked once and brought to one form."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from smnn.errors import ShapeError, mismatch

if TYPE_CHECKING:
    from smnn._solver.diagnostics import Diagnostics

HERMITE = ("hermite", "hermite-l")
SCHEMES = ("smnn", "central", "iwp", *HERMITE)
Weight = float | Tensor


def check_scheme(scheme: str) -> None:
    """Raise an error for the name of a scheme that does not exist."""
    name, slash, count = str(scheme).partition("/")
    if name not in SCHEMES or (slash and not (name in HERMITE and count.isdecimal())):
        raise ValueError(
            f"scheme: got {scheme!r}; expected one of {', '.join(map(repr, SCHEMES))}, 'auto'."
        )


def number_of(scheme: str) -> int:
    """A positive integer that identifies the scheme."""
    name, _, count = scheme.partition("/")
    return 1 + SCHEMES.index(name) + len(SCHEMES) * int(count or 1)


def scheme_of(number: int) -> str:
    """The inverse of `number_of`."""
    count, index = divmod(number - 1, len(SCHEMES))
    return f"{SCHEMES[index]}/{count}" if SCHEMES[index] in HERMITE else SCHEMES[index]


class Problem(NamedTuple):
    """A batch of linear ODEs with one batch axis and every broadcast axis expanded (stride 0)."""

    c: Tensor
    """`(B, T, Q, V, R+1)` coefficients."""
    d: Tensor
    """`(B, T, Q)` right-hand side."""
    u: Tensor
    """`(B, T_init, V, R_init+1)` initial values."""
    s: Tensor
    """`(B, T-1, V)` steps."""
    w_gov: Tensor
    """`(B, T, Q)` weights of the governing rows."""
    w_init: Tensor
    """`(B, T_init, V, R_init+1)` weights of the initial rows."""
    w_smooth: Tensor
    """`(B, T-1, V, R+1)` weights of the smoothness rows."""
    scheme: str

    @classmethod
    def of(cls, tensors: Sequence[Tensor], scheme: str) -> Problem:
        """Make a problem of seven tensors."""
        c, d, u, s, w_gov, w_init, w_smooth = tensors
        return cls(c, d, u, s, w_gov, w_init, w_smooth, scheme)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All seven tensors."""
        return self.c, self.d, self.u, self.s, self.w_gov, self.w_init, self.w_smooth

    @property
    def y_shape(self) -> tuple[int, int, int, int]:
        """Shape of the solution, `(B, T, V, R+1)`."""
        B, T, _, V, m = self.c.shape
        return B, T, V, m

    @property
    def block(self) -> int:
        """Unknowns per time, `V (R+1)`."""
        return self.c.shape[3] * self.c.shape[4]

    @property
    def reach(self) -> int:
        """Number of later times that a row refers to."""
        return 2 if self.scheme == "central" else 1

    def part(self, samples: slice) -> Problem:
        """The problem of some of the samples."""
        return Problem.of([x[samples] for x in self.tensors], self.scheme)


def require_tensors(tensors: dict[str, Tensor]) -> None:
    """Raise an error if one is not a floating-point tensor like `c`."""
    for name, x in tensors.items():
        if not isinstance(x, Tensor):
            raise TypeError(
                f"{name}: got {type(x).__name__}; expected a torch.Tensor. "
                f"Wrap it with torch.as_tensor({name}, dtype=torch.float64)."
            )
    c = tensors["c"]
    for name, x in tensors.items():
        if x.dtype not in (torch.float64, torch.float32):
            raise mismatch(
                name,
                f"dtype {x.dtype}",
                "torch.float64 or torch.float32",
                "Convert with .double().",
            )
        if x.dtype != c.dtype:
            raise mismatch(
                name,
                f"dtype {x.dtype}",
                f"{c.dtype} as c has",
                "Mixed precision is not converted silently: convert one of them.",
            )
        if x.device != c.device:
            raise mismatch(
                name,
                f"device {x.device}",
                f"{c.device} as c has",
                f"Move it with .to({str(c.device)!r}).",
            )


def _batch_shape(tensors: dict[str, tuple[Tensor, int]], batch_dims: int) -> tuple[int, ...]:
    batch = [1] * batch_dims
    owner = ["c"] * batch_dims
    for name, (x, _) in tensors.items():
        for i in range(batch_dims):
            if x.shape[i] != 1 and batch[i] == 1:
                batch[i], owner[i] = x.shape[i], name
            elif x.shape[i] not in (1, batch[i]):
                raise mismatch(
                    name,
                    f"size {x.shape[i]} in batch axis {i} (shape {tuple(x.shape)})",
                    f"{batch[i]} as {owner[i]} has, or 1",
                    "Only axes of size 1 broadcast.",
                )
    return tuple(batch)


def _number_of_times(c: Tensor, d: Tensor, s: Tensor, nb: int, n_steps: int | None) -> int:
    sizes = {"c": c.shape[nb], "d": d.shape[nb], "s": s.shape[nb] + 1}
    given = {k: n for k, n in sizes.items() if n != (2 if k == "s" else 1)}
    if n_steps is not None:
        if not isinstance(n_steps, (int, torch.SymInt)):
            raise TypeError(f"n_steps: got {n_steps!r}; expected an integer, or None.")
        if n_steps < 1:
            raise ShapeError(f"n_steps: got {n_steps}; expected at least 1.")
        T = n_steps
    elif given:
        T = next(iter(given.values()))
    else:
        raise ShapeError(
            "n_steps: got None; expected a number of times, because c, d and s all have time size "
            "1 and broadcast. Pass n_steps=T."
        )
    for name, n in given.items():
        if n != T:
            have = f"{n - 1} steps" if name == "s" else f"{n} times"
            want = f"{T - 1} steps" if name == "s" else f"{T} times"
            raise mismatch(name, have, f"{want}, or 1 that broadcasts", "T times have T - 1 steps.")
    return T


def _weight(name: str, w: Weight, shape: tuple[int, ...], rows: str, like: Tensor) -> Tensor:
    if not isinstance(w, Tensor):
        if not isinstance(w, (numbers.Real, torch.SymInt, torch.SymFloat)):
            raise TypeError(f"{name}: got {w!r}; expected a number or a torch.Tensor.")
        return torch.full((1,) * len(shape), float(w), dtype=torch.float64, device=like.device)
    if w.dtype != like.dtype or w.device != like.device:
        raise mismatch(
            name,
            f"dtype {w.dtype} on {w.device}",
            f"{like.dtype} on {like.device} as c has",
            "Convert it, or pass a Python float.",
        )
    if w.ndim == 0:
        return _plain(w).reshape((1,) * len(shape))
    if w.ndim != len(shape) or any(a not in (1, b) for a, b in zip(w.shape, shape, strict=True)):
        raise mismatch(
            name,
            f"shape {tuple(w.shape)}",
            f"{shape} (its rows: {rows}), with 1 where it broadcasts",
            "A number, or a tensor without axes, weighs all rows alike.",
        )
    return _plain(w)


def _without_noise(x: Tensor, w: Tensor) -> Tensor:
    """Replace NaN and infinity by 0 in rows of weight zero, which may hold anything."""
    return x.masked_fill((w == 0) & ~x.isfinite(), 0.0)


def fit(
    name: str, x: Tensor, batch: tuple[int, ...], tail: tuple[int, ...], dtype: torch.dtype,
    device: torch.device, *, time: int,
) -> Tensor:  # fmt: skip
    """Check a right-hand side against a known problem and bring it to its form.

    Args:
        name: For messages.
        x: `(*batch, *tail)` with 1 where a batch axis broadcasts, and in the first `time` axes of
            the tail.
        batch: Batch shape of the problem.
        tail: Shape behind the batch axes.
        dtype: What the problem was given in.
        device: Where the problem lives.
        time: Number of leading axes of the tail that may broadcast.
    """
    if not isinstance(x, Tensor) or x.dtype != dtype or x.device != device:
        got = f"{x.dtype} on {x.device}" if isinstance(x, Tensor) else type(x).__name__
        raise mismatch(name, got, f"a tensor of {dtype} on {device}", "As the factorized c has.")
    full = batch + tuple(tail)
    free = len(batch) + time
    if x.ndim != len(full) or any(
        a != b and not (a == 1 and i < free)
        for i, (a, b) in enumerate(zip(x.shape, full, strict=True))
    ):
        raise mismatch(
            name,
            f"shape {tuple(x.shape)}",
            f"{full}",
            "Only batch and time axes of size 1 broadcast.",
        )
    return _flatten(_plain(x), batch, tail)


def _plain(x: Tensor) -> Tensor:
    """Convert to double precision, and resolve lazily negated views."""
    return x.double().resolve_neg()


def _flatten(x: Tensor, batch: tuple[int, ...], tail: tuple[int, ...]) -> Tensor:
    size = 1
    for b in batch:
        size *= b
    return x.expand(batch + tail).reshape((size, *tail))


def _check_ranks(c: Tensor, d: Tensor, u: Tensor, s: Tensor, nb: int) -> None:
    ranks = {"d": (d, (2,), "(*B, T, Q)"), "u": (u, (3,), "(*B, T_init, V, R_init+1)"),
             "s": (s, (1, 2), "(*B, T-1) or (*B, T-1, V)")}  # fmt: skip
    for name, (x, tails, form) in ranks.items():
        if x.ndim - nb not in tails:
            raise mismatch(
                name,
                f"shape {tuple(x.shape)}",
                f"{form} with {nb} batch axes, as c {tuple(c.shape)} has",
                "Every tensor has the same number of batch axes; use size 1 to broadcast.",
            )


def _check_sizes(c: Tensor, d: Tensor, u: Tensor, s: Tensor, scheme: str, T: int) -> None:
    nb = c.ndim - 4
    Q, V, m = c.shape[-3:]
    if m < 1 or V < 1 or Q < 0:
        raise mismatch(
            "c", f"shape {tuple(c.shape)}", "V >= 1 and R+1 >= 1", "See (*B, T, Q, V, R+1)."
        )
    if d.shape[-1] != Q:
        raise mismatch("d", f"{d.shape[-1]} equations", f"Q = {Q} as c has", "d is (*B, T, Q).")
    if u.shape[-2] != V:
        raise mismatch(
            "u", f"{u.shape[-2]} variables", f"V = {V} as c has", "u is (*B, T_init, V, R_init+1)."
        )
    if s.ndim == nb + 2 and s.shape[-1] not in (1, V):
        raise mismatch(
            "s", f"{s.shape[-1]} variables", f"V = {V} as c has, or 1", "s is (*B, T-1, V)."
        )
    if scheme == "central" and m < 2:
        raise ShapeError(
            "scheme: 'central' ties the top derivative to the order below it, so R must be at "
            "least 1; got R = 0. Raise order= or use scheme='smnn'."
        )
    T_init, m_init = u.shape[nb], u.shape[-1]
    if T_init > T:
        raise mismatch(
            "u", f"T_init = {T_init}", f"at most T = {T}", "Initial values lie on the first times."
        )
    if m_init > m:
        raise mismatch(
            "u",
            f"{m_init} orders",
            f"at most R+1 = {m}",
            "Raise order= to give higher derivatives.",
        )


def make_problem(
    c: Tensor,
    d: Tensor,
    u: Tensor,
    s: Tensor,
    *,
    w_gov: Weight = 1.0,
    w_init: Weight = 1.0,
    w_smooth: Weight = 1.0,
    scheme: str = "smnn",
    n_steps: int | None = None,
) -> tuple[Problem, tuple[int, ...]]:
    """Check every argument and return the problem with its batch shape.

    Raises:
        ShapeError: An argument has the wrong shape; the message suggests a correction.
        TypeError: If an argument is not a tensor.
    """
    require_tensors({"c": c, "d": d, "u": u, "s": s})
    check_scheme(scheme)
    if c.ndim < 4:
        raise mismatch(
            "c",
            f"shape {tuple(c.shape)}",
            "(*B, T, Q, V, R+1)",
            "Add axes of size 1 where one is missing.",
        )
    nb = c.ndim - 4
    _check_ranks(c, d, u, s, nb)
    T = _number_of_times(c, d, s, nb, n_steps)
    _check_sizes(c, d, u, s, scheme, T)
    Q, V, m = c.shape[-3:]
    T_init, m_init = u.shape[nb], u.shape[-1]
    if s.ndim == nb + 1:
        s = s.unsqueeze(-1)
    given = c
    c, d, u, s = (_plain(x) for x in (c, d, u, s))
    named = {"c": (c, 4), "d": (d, 2), "u": (u, 3), "s": (s, 2)}
    batch = _batch_shape(named, nb)
    rows_gov, rows_init, rows_smooth = (T, Q), (T_init, V, m_init), (T - 1, V, m)
    some_absent = [isinstance(w, Tensor) or w == 0 for w in (w_gov, w_init)]
    w_gov = _weight("w_gov", w_gov, batch + rows_gov, "(*B, T, Q)", given)
    w_init = _weight("w_init", w_init, batch + rows_init, "(*B, T_init, V, R_init+1)", given)
    w_smooth = _weight("w_smooth", w_smooth, batch + rows_smooth, "(*B, T-1, V, R+1)", given)
    if some_absent[0]:
        c, d = _without_noise(c, w_gov[..., None, None]), _without_noise(d, w_gov)
    if some_absent[1]:
        u = _without_noise(u, w_init)
    s = s[..., : T - 1, :] if T == 1 else s
    problem = Problem(
        c=_flatten(c, batch, (T, Q, V, m)), d=_flatten(d, batch, rows_gov),
        u=_flatten(u, batch, rows_init), s=_flatten(s, batch, (T - 1, V)),
        w_gov=_flatten(w_gov, batch, rows_gov), w_init=_flatten(w_init, batch, rows_init),
        w_smooth=_flatten(w_smooth, batch, rows_smooth), scheme=scheme,
    )  # fmt: skip
    return problem, batch


class Solved(NamedTuple):
    """Result of a factorization with one right-hand side."""

    y: Tensor
    """`(B, T, V, R+1)` the solution, float64; NaN for a failed sample."""
    factor: Tensor
    """`(size,)` what the backend needs to solve again, in a format of its own."""
    diagnostics: Diagnostics
