"""Laws of evolution on periodic domains, integrated by ETDRK4 in Fourier space.

The linear terms with constant coefficients that a field has in itself are integrated exactly, all
others by the fourth-order scheme of Cox and Matthews with the coefficients of Kassam and
Trefethen. Products are computed on the grid; modes above two thirds of the largest are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy
from scipy import fft

from smnn.datasets.fields._columns import IMAGINARY, Columns
from smnn.equations import Tape

Field = np.ndarray[Any, np.dtype[Any]]
MOST_SUBSTEPS = 4096
CIRCLE = 32
"""Points of the contour on which the coefficients of the scheme are computed."""


class PeriodicGrid:
    """Fourier transform on a periodic grid.

    Args:
        shape: Number of points in each direction.
        lengths: Period in each direction.
        is_complex: Whether fields are complex; real ones have half of the modes.
        kept: Largest mode that is kept in each direction; by default two thirds of all.
    """

    def __init__(
        self, shape: Sequence[int], lengths: Sequence[float], is_complex: bool = False,
        kept: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        self.shape, self.lengths, self.is_complex = tuple(shape), tuple(lengths), is_complex
        self.axes = tuple(range(-len(self.shape), 0))
        last = len(self.shape) - 1
        numbers = []
        for a, n in enumerate(self.shape):
            half = a == last and not is_complex
            m = np.fft.rfftfreq(n, 1 / n) if half else np.fft.fftfreq(n, 1 / n)
            numbers.append(np.rint(m).reshape([-1 if b == a else 1 for b in range(last + 1)]))
        self.numbers = numbers
        limits = [n // 3 for n in self.shape] if kept is None else kept
        self.mask = np.ones([m.size for m in numbers])
        for m, limit in zip(numbers, limits):
            self.mask = self.mask * (np.abs(m) <= limit)

    @property
    def spectrum(self) -> tuple[int, ...]:
        """Shape of a transformed field."""
        return tuple(self.mask.shape)

    def forward(self, u: Field) -> Field:
        """Amplitudes of the modes."""
        if len(self.axes) == 1:  # much less overhead than the general one
            one = fft.fft if self.is_complex else fft.rfft
            return np.asarray(one(u, norm="forward"))
        transform = fft.fftn if self.is_complex else fft.rfftn
        return np.asarray(transform(u, axes=self.axes, norm="forward"))

    def inverse(self, v: Field) -> Field:
        """Values on the grid."""
        if len(self.axes) == 1:
            one = fft.ifft if self.is_complex else fft.irfft
            return np.asarray(one(v, self.shape[0], norm="forward"))
        if self.is_complex:
            return np.asarray(fft.ifftn(v, axes=self.axes, norm="forward"))
        return np.asarray(fft.irfftn(v, s=self.shape, axes=self.axes, norm="forward"))

    def multiplier(self, orders: Sequence[int]) -> Field:
        """Factor of each mode that differentiates; odd derivatives of the highest mode are zero."""
        out: Field = np.ones(self.spectrum, complex)
        for m, n, length, order in zip(self.numbers, self.shape, self.lengths, orders):
            k = 2j * np.pi * m / length
            if order % 2 and n % 2 == 0:
                k = np.where(np.abs(m) == n // 2, 0, k)
            if order:
                out = out * k**order
        return out

    def conjugate(self, v: Field) -> Field:
        """Transform of the conjugate of a field."""
        out = v.conj()
        for a in self.axes:
            out = np.roll(np.flip(out, a), 1, a)
        return out


class SpectralLaw:
    """A law `u_t = L u + N(u, u_x, ...)` on a periodic grid.

    Args:
        columns: Names of fields and derivatives.
        expressions: Right-hand side of each field, in these names, in those of `values`, and in
            the imaginary unit `i`.
        grid: The grid.
        values: Values on the grid of coordinates and coefficient functions, by name.
    """

    def __init__(
        self, columns: Columns, expressions: Sequence[sympy.Expr], grid: PeriodicGrid,
        values: Mapping[str, Field] | None = None,
    ) -> None:  # fmt: skip
        self.columns, self.grid, self.values = columns, grid, dict(values or {})
        self.linear = np.zeros((len(expressions), *grid.spectrum), complex)
        rest = [self._split(f, sympy.expand(e)) for f, e in enumerate(expressions)]
        self.nonlinear = Compiled(columns, rest, self.values)
        slopes = [[e.diff(sympy.Symbol(c)) for c in self.nonlinear.used] for e in rest]
        self.places = [(f, c) for f, row in enumerate(slopes) for c, e in enumerate(row) if e != 0]
        self.slopes = Compiled(columns, [slopes[f][c] for f, c in self.places], self.values,
                               self.nonlinear.used)  # fmt: skip
        self.factors = [grid.multiplier(c.orders) for c in self.nonlinear.used.values()]

    def _split(self, field: int, expression: sympy.Expr) -> sympy.Expr:
        """Add the linear terms of a field in itself to `linear`, and return the others."""
        rest = []
        for term in sympy.Add.make_args(expression):
            names = [s.name for s in term.free_symbols if s.name != IMAGINARY]
            column = self.columns.find(names[0]) if len(names) == 1 else None
            if column is None or column.field != field or column.conjugate:
                rest.append(term)
                continue
            factor = term.subs(sympy.Symbol(IMAGINARY), sympy.I) / sympy.Symbol(names[0])
            if factor.free_symbols:
                rest.append(term)
            else:
                self.linear[field] += complex(factor) * self.grid.multiplier(column.orders)
        return sympy.Add(*rest)

    def derivatives(self, v: Field) -> list[Field]:
        """Values of the columns of the nonlinear part; `v` has shape `(..., F, modes)`."""
        d = len(self.grid.shape)
        found = []
        for column, factor in zip(self.nonlinear.used.values(), self.factors):
            values = self.grid.inverse(factor * v[(..., column.field, *[slice(None)] * d)])
            found.append(values.conj() if column.conjugate else values)
        return found

    def rate(self, v: Field) -> Field:
        """Modes of the nonlinear part."""
        return self._modes(self.nonlinear(self.derivatives(v)), v.shape)

    def _modes(self, values: Sequence[Any], shape: tuple[int, ...]) -> Field:
        out = np.empty(shape, complex)
        first: tuple[Any, ...] = (slice(None),) * (len(shape) - len(self.grid.shape) - 1)
        for f, value in enumerate(values):
            full = np.broadcast_to(value, (*shape[: len(first)], *self.grid.shape))
            out[(*first, f)] = self.grid.forward(full) * self.grid.mask
        return out

    def tangent(self, v: Field, dv: Field) -> Field:
        """Derivative of `rate` at `v (F, modes)` in directions `dv (S, F, modes)`."""
        slopes = self.slopes(self.derivatives(v))
        moved = self.derivatives(dv)
        values: list[Any] = [0.0] * len(self.linear)
        for (f, c), slope in zip(self.places, slopes):
            values[f] = values[f] + slope * moved[c]
        return self._modes(values, dv.shape)


class Compiled:
    """Expressions in columns, compiled for arrays.

    Args:
        columns: Names of fields and derivatives.
        expressions: The expressions.
        values: Values of further names.
        used: The columns that are arguments; by default those that occur.
    """

    def __init__(
        self, columns: Columns, expressions: Sequence[sympy.Expr], values: Mapping[str, Field],
        used: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.used = dict(columns.used(expressions) if used is None else used)
        names = {s.name for e in expressions for s in e.free_symbols} - set(self.used)
        self.extra = sorted(names)
        self.values = [1j if n == IMAGINARY else values[n] for n in self.extra]
        self._tape = Tape([*self.used, *self.extra])
        self._slots = [self._tape.add(e) for e in expressions]

    def __call__(self, columns: Sequence[Field]) -> list[Any]:
        """Value of each expression; constants are numbers."""
        with np.errstate(all="ignore"):
            found = self._tape.run([*columns, *self.values])
        return [found[slot] for slot in self._slots]


class Etdrk4:
    """One step of the scheme, for `v' = linear v + rate(v)`.

    Args:
        linear: Factor of each mode.
        step: Length of a step.
    """

    def __init__(self, linear: Field, step: float) -> None:
        lh = linear * step
        self.whole, self.half = np.exp(lh), np.exp(lh / 2)
        q, a, b, c = (np.zeros_like(lh) for _ in range(4))
        for point in np.exp(2j * np.pi * (np.arange(CIRCLE) + 0.5) / CIRCLE):
            r = lh + point
            e = np.exp(r)
            q += (np.exp(r / 2) - 1) / r
            a += (-4 - r + e * (4 - 3 * r + r**2)) / r**3
            b += (2 + r + e * (r - 2)) / r**3
            c += (-4 - 3 * r - r**2 + e * (4 - r)) / r**3
        self.q, self.a, self.b, self.c = (x * step / CIRCLE for x in (q, a, b, c))

    def __call__(self, v: Field, rate: Callable[[Field], Field]) -> Field:
        """The state after a step."""
        n0 = rate(v)
        first = self.half * v + self.q * n0
        n1 = rate(first)
        n2 = rate(self.half * v + self.q * n1)
        n3 = rate(self.half * first + self.q * (2 * n2 - n0))
        out: Field = self.whole * v + self.a * n0 + 2 * self.b * (n1 + n2) + self.c * n3
        return out


@dataclass(frozen=True)
class Integration:
    """Result of `integrate`.

    Attributes:
        modes: `(T, F, modes)` states at the times that were reached.
        status: `"ok"`, `"diverged"`, or `"inaccurate"` if shorter steps change the solution by
            more than the tolerance.
        error: Largest relative change by halving the steps; infinite if it diverged.
        substeps: Number of steps between two times.
    """

    modes: Field
    status: str
    error: float
    substeps: int


def march(law: SpectralLaw, v0: Field, times: Field, substeps: int) -> Field:
    """States at the times with a fixed number of steps between; shorter if it diverges."""
    out, schemes = [v0], {}
    limit = 1e6 * max(float(np.abs(v0).max()), 1e-300)
    with np.errstate(all="ignore"):
        for step in np.diff(times) / substeps:
            key = round(float(step) / float(times[-1] - times[0]), 12)
            if key not in schemes:
                schemes[key] = Etdrk4(law.linear, float(step))
            v = out[-1]
            for _ in range(substeps):
                v = schemes[key](v, law.rate)
            if not np.abs(v).max() < limit:
                break
            out.append(v)
    return np.stack(out)


def integrate(
    law: SpectralLaw, u0: Field, times: Field, *, rtol: float = 1e-8, most: int = MOST_SUBSTEPS
) -> Integration:
    """Solve a law from an initial field.

    Args:
        law: The law.
        u0: `(F, *grid)` initial values.
        times: `(T,)` increasing times, the first of which is that of `u0`.
        rtol: Accepted change of the solution by halving the steps, relative to its size.
        most: Largest number of steps between two times.
    """
    v0, substeps = law.grid.forward(u0) * law.grid.mask, 1
    times = np.asarray(times, float)
    before = march(law, v0, times, substeps)
    while True:
        substeps *= 2
        v = march(law, v0, times, substeps)
        error = np.inf
        if len(v) == len(before) == len(times):
            size = np.sqrt((np.abs(v) ** 2).sum())
            error = float(np.sqrt((np.abs(v - before) ** 2).sum()) / max(size, 1e-300))
        if error <= rtol or substeps >= most or len(times) < 2:
            break
        if len(v) == len(before) < len(times) and substeps >= 64:
            break  # the solution itself grows without bound
        before = v
    status = "ok" if error <= rtol or len(times) < 2 else "inaccurate"
    return Integration(v, status if len(v) == len(times) else "diverged", error, substeps)
