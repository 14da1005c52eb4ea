"""Maximum likelihood on periodic domains in one dimension.

The unknowns are the coefficients of the law and the Fourier modes of the field at the beginning of
every segment of the data. A Gauss-Newton step linearises the solution in all of them, eliminates
the modes of each segment, and leaves a quadratic model of the likelihood in the coefficients of
all candidates, from which terms are selected as in a regression.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from smnn.datasets.fields import Columns, Compiled, Etdrk4, PeriodicGrid, SpectralLaw, march
from smnn.discovery._field.terms import right_hand_sides
from smnn.discovery._field.weak import Quadratic
from smnn.discovery._terms import Term

Field = np.ndarray[Any, np.dtype[Any]]
MOST_STEPS = 512
"""Most steps of the integrator between two times of the data."""
CHUNK = 20_000_000
"""Numbers of the derivative of the solution that are held at a time."""
COARSE = 1e-3
"""Accuracy of the derivative of the solution."""


@dataclass(frozen=True)
class Segment:
    """A part of the data that is predicted from its beginning.

    Attributes:
        t: `(T,)` times.
        u: `(F, T, X)` values; NaN where missing.
        start: `(F, modes)` first guess of the modes at the first time.
    """

    t: Field
    u: Field
    start: Field


@dataclass
class Normal:
    """Normal equations of one segment: of its modes, of the coefficients, and between them."""

    modes: Field
    cross: Field
    coefficients: Field
    right_modes: Field
    right_coefficients: Field


@dataclass(frozen=True)
class Step:
    """A linearisation: what is left for the coefficients, and the moves of the modes."""

    quadratic: Quadratic
    normals: list[Normal] = field(repr=False)


class Shooting:
    """The likelihood of the data under a law.

    Args:
        columns: Names of fields and derivatives.
        terms: All candidate terms.
        grid: Grid of the simulation.
        free: Largest mode of the beginnings that is free.
        noise: `(F,)` standard deviation of the noise.
        values: Values of coordinates and coefficient functions on the grid, by name.
        points: Number of points of the data.
        precision: `(F, modes)` reciprocal of the expected power of each mode of a beginning, twice
            that where real and imaginary part share it; zero where nothing is known. Modes below
            the noise would otherwise fit it, with a phase that depends steeply on the coefficients.
    """

    def __init__(
        self,
        columns: Columns,
        terms: Sequence[Term],
        grid: PeriodicGrid,
        free: int,
        noise: Field,
        values: dict[str, Field],
        points: int,
        precision: Field | float = 0.0,
    ) -> None:
        self.columns, self.terms, self.grid, self.values = columns, terms, grid, values
        self.free, self.noise, self.points = free, noise, points
        self.precision = np.broadcast_to(precision, (len(columns.fields), *grid.spectrum))
        self.kept = int(np.abs(grid.numbers[0][grid.mask > 0]).max())

    def law(self, chosen: Sequence[tuple[int, int]], xi: Field) -> SpectralLaw:
        """The law with coefficients `xi` of the chosen pairs of equation and term."""
        parts: list[dict[int, float]] = [{} for _ in self.columns.fields]
        for (f, p), a in zip(chosen, xi):
            parts[f][p] = float(a)
        return SpectralLaw(
            self.columns, right_hand_sides(self.terms, parts), self.grid, self.values
        )

    # ---------------------------------------------------------------- comparison with the data

    def observed(self, u: Field) -> list[tuple[Field | None, Field]]:
        """For each frame of `u (F, T, X)`: which values are missing, and the data to compare.

        Frames without missing values are compared by their modes, which are fewer.
        """
        found: list[tuple[Field | None, Field]] = []
        scale = self.noise[:, None]
        for frame in np.moveaxis(u, 1, 0):
            gone = np.isnan(frame)
            if gone.any():
                found.append((~gone, _real((frame / scale)[~gone])))
            else:
                transform = np.fft.fft if self.grid.is_complex else np.fft.rfft
                found.append((None, self._packed(transform(frame, norm="forward"))))
        return found

    def _packed(self, v: Field) -> Field:
        """Modes `(..., F, modes)` as real numbers of unit noise."""
        K = self.kept
        if self.grid.is_complex:
            w = np.concatenate([v[..., : K + 1], v[..., v.shape[-1] - K :]], -1)
            weight = np.ones(2 * K + 1)
        else:
            w, weight = v[..., : K + 1], np.full(K + 1, np.sqrt(2.0))
            weight[0] = 1.0
        w = w * (weight * np.sqrt(self.points) / self.noise[:, None])
        return _real(w.reshape(*w.shape[:-2], -1))

    def predicted(self, v: Field, seen: Field | None) -> Field:
        """What `observed` has of a frame, from modes `(..., F, modes)`."""
        if seen is None:
            return self._packed(v)
        u = self._on_data(v) / self.noise[:, None]
        return _real(u[..., seen])

    def _on_data(self, v: Field) -> Field:
        K, n = self.kept, self.points
        if not self.grid.is_complex:
            return np.fft.irfft(v[..., : K + 1], n=n, norm="forward")
        full = np.zeros((*v.shape[:-1], n), complex)
        full[..., : K + 1] = v[..., : K + 1]
        full[..., n - K :] = v[..., v.shape[-1] - K :]
        return np.fft.ifft(full, norm="forward")

    def values_on_data(self, v: Field) -> Field:
        """Values `(F, T, X)` at the points of the data of modes `(T, F, modes)`."""
        return np.moveaxis(self._on_data(v), 0, 1)

    def from_data(self, u: Field) -> Field:
        """Modes `(F, modes)` of a complete frame `(F, X)`."""
        out = np.zeros((len(u), *self.grid.spectrum), complex)
        transform = np.fft.fft if self.grid.is_complex else np.fft.rfft
        v = transform(u, norm="forward")
        K = self.kept
        out[:, : K + 1] = v[:, : K + 1]
        if self.grid.is_complex:
            out[:, out.shape[1] - K :] = v[:, v.shape[1] - K :]
        return out

    def beginning(self, u: Field) -> Field:
        """Modes of a filtered frame, less those in which noise is expected to prevail."""
        noise = self.noise[:, None] ** 2 / self.points
        return self.from_data(u) / (1 + self.precision * noise)

    # ---------------------------------------------------------------- the solution

    def residuals(self, segment: Segment, path: Field) -> Field | None:
        """Data minus solution in units of the noise; `None` if the solution ends early."""
        if len(path) < len(segment.t):
            return None
        pairs = zip(self.observed(segment.u), path)
        return np.concatenate([data - self.predicted(v, seen) for (seen, data), v in pairs])

    def cost(self, law: SpectralLaw, segments: Sequence[Segment], substeps: int) -> float:
        """Sum of squares in units of the noise and of the expected power of the beginnings.

        Infinite if a solution diverges.
        """
        total = sum(self._unlikely(s) for s in segments)
        for segment in segments:
            r = self.residuals(segment, march(law, segment.start, segment.t, substeps))
            total += np.inf if r is None else float(r @ r)
        return total if np.isfinite(total) else np.inf

    def _unlikely(self, segment: Segment) -> float:
        return float((self.precision * np.abs(segment.start) ** 2).sum())

    def substeps(self, law: SpectralLaw, segments: Sequence[Segment], accuracy: float) -> int:
        """Steps between times with which the solutions are accurate."""
        number, before = 1, None
        while number < MOST_STEPS:
            paths = [march(law, s.start, s.t, number) for s in segments]
            if all(len(p) == len(s.t) for p, s in zip(paths, segments)):
                if before is not None:
                    change = sum(float((np.abs(a - b) ** 2).sum()) for a, b in zip(paths, before))
                    size = sum(float((np.abs(a) ** 2).sum()) for a in paths)
                    if change <= (15 * accuracy) ** 2 * size:  # the finer one is 16 times better
                        return number
                before = paths
            number *= 2
        return number

    def linearise(
        self,
        law: SpectralLaw,
        segments: Sequence[Segment],
        pairs: Sequence[tuple[int, int]],
        xi: Field,
        substeps: tuple[int, int],
    ) -> Step | None:
        """The quadratic model at a law.

        Args:
            law: The law.
            segments: The data.
            pairs: All pairs of equation and term with which the model is made.
            xi: Their coefficients, zero if they are not in the law.
            substeps: Steps for the solution and for its derivative.
        """
        normals, cost = [], 0.0
        for segment in segments:
            r = self.residuals(segment, march(law, segment.start, segment.t, substeps[0]))
            if r is None:
                return None
            normals.append(self._normal(law, segment, pairs, r, substeps[1]))
            cost += float(r @ r) + self._unlikely(segment)
        A, g = np.zeros((len(pairs),) * 2), np.zeros(len(pairs))
        for n in normals:
            solved = _solve(n.modes, np.column_stack([n.cross, n.right_modes]))
            A += n.coefficients - n.cross.T @ solved[:, :-1]
            g += n.right_coefficients - n.cross.T @ solved[:, -1]
            cost -= float(n.right_modes @ solved[:, -1])
        A = (A + A.T) / 2
        b = g + A @ xi
        return Step(Quadratic(A, b, cost + float(xi @ A @ xi) + 2 * float(g @ xi)), normals)

    def _normal(
        self,
        law: SpectralLaw,
        segment: Segment,
        pairs: Sequence[tuple[int, int]],
        r: Field,
        substeps: int,
    ) -> Normal:
        """Normal equations of a segment, gathered along the solution."""
        basis = self.basis()
        M, S = len(basis), len(basis) + len(pairs)
        state = np.zeros((1 + S, *segment.start.shape), complex)
        state[0], state[1 : 1 + M] = segment.start, basis
        states = self._march(law, segment, pairs, state, substeps)
        A, g = np.zeros((S, S)), np.zeros(S)
        rows: list[Field] = []
        at = used = 0
        for i, (state, (seen, data)) in enumerate(zip(states, self.observed(segment.u))):
            rows.append(self.predicted(state[1:], seen))
            at += len(data)
            if (at - used) * S > CHUNK or i == len(segment.t) - 1:
                J = np.concatenate(rows, -1)
                A += J @ J.T
                g += J @ r[used:at]
                used, rows = at, []
        weight = (np.abs(basis) ** 2 * self.precision).sum((1, 2))
        A[np.arange(M), np.arange(M)] += weight
        g[:M] -= weight * (basis.conj() * segment.start).real.sum((1, 2))
        return Normal(A[:M, :M], A[:M, M:], A[M:, M:], g[:M], g[M:])

    def _march(
        self, law: SpectralLaw, segment: Segment, pairs: Sequence[tuple[int, int]], state: Field,
        substeps: int,
    ) -> Iterator[Field]:  # fmt: skip
        """The solution with its derivatives at each time; those in `pairs` come last."""
        rate = self._tangent_rate(law, pairs, len(state) - 1 - len(pairs))
        schemes: dict[float, Etdrk4] = {}
        yield state
        for h in np.diff(segment.t) / substeps:
            key = round(float(h) / float(segment.t[-1] - segment.t[0]), 12)
            if key not in schemes:
                schemes[key] = Etdrk4(law.linear, float(h))
            for _ in range(substeps):
                state = schemes[key](state, rate)
            yield state

    def slopes(
        self, law: SpectralLaw, segment: Segment, normal: Normal, pairs: Sequence[tuple[int, int]],
        substeps: int,
    ) -> tuple[Field, Field]:  # fmt: skip
        """Derivatives `(k, F, T, X)` in the coefficients, and residuals `(F, T, X)`.

        The modes of the beginning follow each coefficient as the likelihood wants.
        """
        follow = np.tensordot(-_solve(normal.modes, normal.cross).T, self.basis(), 1)
        state = np.concatenate([segment.start[None], follow]).astype(complex)
        found = [self._on_data(v) for v in self._march(law, segment, pairs, state, substeps)]
        path = np.moveaxis(np.stack(found), 0, 2)
        return path[1:], segment.u - path[0]

    def _tangent_rate(self, law: SpectralLaw, pairs: Sequence[tuple[int, int]], modes: int) -> Any:
        """Rate of the solution with its derivatives, as the integrator needs it."""
        used = sorted({p for _, p in pairs})
        compiled = Compiled(self.columns, [self.terms[p].symbolic for p in used], self.values)
        factors = [self.grid.multiplier(c.orders) for c in compiled.used.values()]

        def forcing(v: Field) -> Field:
            columns = []
            for column, factor in zip(compiled.used.values(), factors):
                x = self.grid.inverse(factor * v[column.field])
                columns.append(x.conj() if column.conjugate else x)
            values = compiled(columns)
            out = np.empty((len(used), *self.grid.spectrum), complex)
            for k, value in enumerate(values):
                full = np.broadcast_to(value, self.grid.shape)
                out[k] = self.grid.forward(full) * self.grid.mask
            return out

        rows = [(1 + modes + j, f, used.index(p)) for j, (f, p) in enumerate(pairs)]

        def rate(state: Field) -> Field:
            v = state[0]
            out = np.empty_like(state)
            out[:1] = law.rate(state[:1])
            out[1:] = law.tangent(v, state[1:])
            force = forcing(v)
            for row, f, k in rows:
                out[row, f] += force[k]
            return out

        return rate

    def basis(self) -> Field:
        """`(M, F, modes)` directions in which a beginning may move."""
        shape = (len(self.columns.fields), *self.grid.spectrum)
        n = shape[-1]
        found = []
        for f in range(shape[0]):
            places = range(self.free + 1)
            if self.grid.is_complex:
                places = [*range(self.free + 1), *range(n - self.free, n)]  # type: ignore[assignment]
            for k in places:
                for unit in (1.0, 1j):
                    if unit == 1j and k == 0 and not self.grid.is_complex:
                        continue
                    one = np.zeros(shape, complex)
                    one[f, k] = unit
                    found.append(one)
        return np.stack(found)

    def moved(
        self, segments: Sequence[Segment], normals: Sequence[Normal], change: Field, damping: float
    ) -> list[Segment]:
        """Segments whose beginnings follow a change of the coefficients."""
        basis = self.basis()
        out = []
        for s, n in zip(segments, normals):
            A = n.modes + damping * np.diag(np.diag(n.modes))
            z = _solve(A, (n.right_modes - n.cross @ change)[:, None])[:, 0]
            out.append(Segment(s.t, s.u, s.start + np.tensordot(z, basis, 1)))
        return out


def _real(z: Field) -> Field:
    return np.concatenate([z.real, z.imag], -1) if np.iscomplexobj(z) else z


def _solve(A: Field, B: Field) -> Field:
    scale = 1 / np.sqrt(np.maximum(np.diag(A), 1e-300))
    M = A * scale * scale[:, None] + 1e-12 * np.eye(len(A))
    out: Field = scale[:, None] * np.linalg.solve(M, scale[:, None] * B)
    return out
