"""The "easy" data set of Brandstetter, Welling and Worrall (2022).

The initial values are sums of ten waves with one or two periods on the circle; the period `L` and
the duration `T` vary by 10 %. Of 250 frames the last 140 are kept, on 256 points. The published
generator has no seed, so there are no reference trajectories. Here trajectory `i` of a split
depends only on the seed, the split and `i`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from smnn.datasets.kdv._solver import Form, evolve

Array = NDArray[np.float64]
Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
LENGTH, DURATION, SPREAD = 128.0, 50.0, 0.1
POINTS, FRAMES, KEPT, WAVES = 256, 250, 140, 10
CHUNK = 64
"""Trajectories per batch on a CPU, chosen for its caches; a GPU computes all at once."""
DRIFT = 0.02
"""Largest accepted relative change of the energy; aliasing alone causes about 0.1 %."""


class Waves(NamedTuple):
    """Random parameters of the initial values of each trajectory."""

    length: Array
    """`(N,)` period."""
    duration: Array
    """`(N,)` time of the last frame."""
    amplitude: Array
    """`(N, 10)`."""
    phase: Array
    """`(N, 10)`."""
    number: NDArray[np.int64]
    """`(N, 10)` number of periods of each wave on the circle."""

    def values(self, x: Array) -> Array:
        """The waves `(N, X)` at the points `x (N, X)`."""
        angle = 2 * np.pi * self.number[:, :, None] * x[:, None] / self.length[:, None, None]
        found: Array = np.sum(
            self.amplitude[:, :, None] * np.sin(angle + self.phase[:, :, None]), axis=1
        )
        return found


@dataclass(frozen=True)
class Trajectories:
    """Solutions on their grids, as in the published files."""

    u: Array
    """`(N, frames, X)`."""
    x: Array
    """`(N, X)` points, from 0."""
    t: Array
    """`(N, frames)` times since the initial values."""
    dx: Array
    """`(N,)` spacing of the points."""
    dt: Array
    """`(N,)` time between frames."""

    def __len__(self) -> int:
        return len(self.u)

    def take(self, index: slice | NDArray[np.int64]) -> Trajectories:
        """Some of the trajectories."""
        return Trajectories(
            self.u[index], self.x[index], self.t[index], self.dx[index], self.dt[index]
        )


def draw(split: Split, indices: Sequence[int], seed: int = 0) -> Waves:
    """Draw the random parameters of trajectories, in the order of the published generator.

    Args:
        split: `"train"`, `"valid"` or `"test"`.
        indices: Trajectories of the split; each has its own random stream.
        seed: Random seed of the data set.
    """
    if split not in SPLITS:
        raise ValueError(f"split: got {split!r}; expected one of {', '.join(map(repr, SPLITS))}.")
    rows = []
    for i in indices:
        random = np.random.default_rng([seed, SPLITS.index(split), i])
        duration, length = (
            random.uniform(1 - SPREAD, 1 + SPREAD) * mean for mean in (DURATION, LENGTH)
        )
        amplitude = random.uniform(-0.5, 0.5, WAVES)
        phase = random.uniform(0, 2 * np.pi, WAVES)
        rows.append((length, duration, amplitude, phase, random.integers(1, 3, WAVES)))
    if not rows:
        none = np.zeros((0, WAVES))
        return Waves(np.zeros(0), np.zeros(0), none, none, none.astype(np.int64))
    return Waves(*(np.array(column) for column in zip(*rows)))


def simulate(
    waves: Waves, *, form: Form = "advective", substeps: int | None = None,
    device: str | torch.device = "cpu", tick: Callable[[int], None] = lambda count: None,
) -> Trajectories:  # fmt: skip
    """Solve the equation for initial values.

    Args:
        waves: The initial values.
        form: `"advective"` agrees with the published generator to 1e-6; `"conservative"` is closer
            to the equation. See `evolve`.
        substeps: Integration steps per frame; by default 8 to 64 depending on the height of the
            initial values, for errors below 1e-6.
        device: Device of the computation.
        tick: Called with the number of trajectories solved since the last call.

    Raises:
        ArithmeticError: A solution did not conserve its energy: the steps were too long.
    """
    n = len(waves.length)
    dx, dt = waves.length / POINTS, waves.duration / (FRAMES - 1)
    x = np.arange(POINTS) * dx[:, None]
    initial = waves.values(x)
    steps = _substeps(initial) if substeps is None else np.full(n, substeps)
    u = np.empty((n, KEPT, POINTS))
    chunk = CHUNK
    if torch.device(device).type != "cpu":  # the time depends only on the number of steps
        chunk, steps = n, np.full(n, steps.max(initial=1))
    for size in np.unique(steps):
        group = np.flatnonzero(steps == size)
        for part in np.array_split(group, max(1, -(-len(group) // chunk))):
            found = evolve(
                torch.from_numpy(initial[part]).to(device),
                torch.from_numpy(waves.length[part]).to(device),
                torch.from_numpy(dt[part]).to(device),
                frames=FRAMES, skip=FRAMES - KEPT, form=form, substeps=int(size),
            )  # fmt: skip
            u[part] = found.cpu().numpy()
            tick(len(part))
    _check_energy(initial, u, steps)
    t = np.arange(FRAMES - KEPT, FRAMES) * dt[:, None]
    return Trajectories(u, x, t, dx, dt)


def _substeps(initial: Array) -> NDArray[np.int64]:
    """Number of steps by height, because high waves become steep and fast."""
    height = np.abs(initial).max(1)
    return np.select([height <= 1.2, height <= 1.7, height <= 2.3], [8, 16, 32], 64)


def _check_energy(initial: Array, u: Array, steps: NDArray[np.int64]) -> None:
    """Check the conservation of energy."""
    before, after = np.mean(initial**2, 1), np.mean(u[:, -1] ** 2, 1)
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(after / before - 1) < DRIFT)
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        raise ArithmeticError(
            f"{bad.sum()} of {len(u)} trajectories did not conserve their energy (trajectory {i}: "
            f"{before[i]:.6g} became {after[i]:.6g}, {steps[i]} substeps); use more substeps."
        )


def easy(
    split: Split, count: int = 512, *, seed: int = 0, form: Form = "advective",
    device: str | torch.device = "cpu", tick: Callable[[int], None] = lambda count: None,
) -> Trajectories:  # fmt: skip
    """The first `count` trajectories of a split of the "easy" data set.

    Examples:
        >>> from smnn.datasets.kdv import easy
        >>> data = easy("test", 2)
        >>> data.u.shape, f"{data.dt[0]:.4f}"
        ((2, 140, 256), '0.1840')
    """
    return simulate(draw(split, range(count), seed), form=form, device=device, tick=tick)
