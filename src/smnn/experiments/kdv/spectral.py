r"""Mechanistic networks for evolution laws on a circle: an ODE for every Fourier mode.

The modes $v_k$ of the field satisfy linear ODEs

$$ v_k' - \lambda(k)\, v_k = F_k(t), $$

two real ones for each mode, which are solved over a short window. Because $F$ depends on the
solution, the window is solved several times, each time with the right-hand side of the previous
solution; the first is extrapolated from known frames. Few iterations suffice, because the solver
treats the stiff linear part exactly. Fast waves need more than slow ones, so the iteration ends
when the solution no longer changes; only training uses a fixed number.

`ModesModel` has the law $u_t = \sum_p \alpha_p\,\partial_x^p u + \sum_{p \le q} \beta_{pq}\,
\partial_x^p u\,\partial_x^q u$ with learned coefficients. In `OperatorModel` $\lambda$ and the
convolutions in $F$ are free functions of the wave number, tabulated by cubic splines, and $F$ is a
residual network with SiLU and multiplicative units. No derivative, product or degree is given; its
only assumption is that the present field determines its rate of change in the same way at all
places and times.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from smnn.nn import LinearODE, MechanisticLayer

ORDERS = 5
"""Highest derivative in the linear part."""
FEATURES = 3
"""Highest derivative in the products."""
PAIRS = [(p, q) for p in range(FEATURES + 1) for q in range(p, FEATURES + 1)]
"""Products of derivatives in the law."""
TERMS = ORDERS + 1 + len(PAIRS)
HISTORY = 4
"""Number of known frames used for extrapolation."""
JITTER = 1e-9
"""Regularization of directions that the data barely determine."""
MAX_SWEEPS = 30
"""Largest number of solves of a window."""
SHOWN = 1e-4
"""Smaller coefficients are not printed."""
KNOT = 0.2
"""Distance of the knots of the splines, in wave numbers."""
REACH = 8.0
"""Largest wave number; that of the finest grid of the data is 7."""


class Law(NamedTuple):
    """A learned evolution law, in the units of the data."""

    linear: Tensor
    """`(6,)` coefficients $\\alpha_p$ of the derivatives 0 to 5 of `u`."""
    products: Tensor
    """`(4, 4)` upper triangular: coefficients of the products of the derivatives 0 to 3."""

    def __str__(self) -> str:
        names = ["u", "u_x", "u_xx", "u_xxx", "u_xxxx", "u_xxxxx"]
        terms = [(a, names[p]) for p, a in enumerate(self.linear.tolist())]
        for p, q in PAIRS:
            name = f"{names[p]}^2" if p == q else f"{names[p]} {names[q]}"
            terms.append((self.products[p, q].item(), name))
        terms.sort(key=lambda term: -abs(term[0]))
        shown = [f"{a:+.5f} {name}" for a, name in terms if abs(a) >= SHOWN]
        return "u_t = " + " ".join(shown)


class SpectralModel(nn.Module):
    """Predicts frames by an ODE for every Fourier mode.

    In evaluation mode, trajectories whose iteration does not converge are NaN from there on.

    Args:
        frames: Number of frames that one window advances.
        substeps: Steps of the solver between frames.
        order: Highest time derivative that the solver carries; `frames * substeps >= order`.
        sweeps: Number of times that a window is solved in training; otherwise it is solved until
            the solution has converged.
        horizon: Number of new frames that one call returns.
        tolerance: Relative change of a window between two solves at which it has converged.
        backend: Backend of the solver.
    """

    guess: Tensor

    def __init__(
        self, frames: int = 1, substeps: int = 4, order: int = 4, sweeps: int = 4, horizon: int = 1,
        tolerance: float = 1e-7, backend: str = "auto",
    ) -> None:  # fmt: skip
        super().__init__()
        if frames * substeps < order:
            raise ValueError(
                f"frames * substeps: got {frames} * {substeps}; expected at least order, which is "
                f"{order}: with fewer steps the derivatives are not determined."
            )
        self.frames, self.substeps, self.order, self.sweeps = frames, substeps, order, sweeps
        self.horizon, self.tolerance = horizon, tolerance
        self.layer = MechanisticLayer(n_steps=frames * substeps + 1, backend=backend, check=False)
        times = torch.arange(frames * substeps + 1, dtype=torch.float64) / substeps
        self.register_buffer("guess", _lagrange(HISTORY, times), persistent=False)

    def prepare(self, u: Tensor, dx: Tensor, dt: Tensor) -> None:
        """Scale parameters to successive frames `(B, frames, X)` of training data."""
        raise NotImplementedError

    def symbol(self, grid: Grid) -> Tensor:
        """Rates `(B, K)` of the linear part, per unit of time."""
        raise NotImplementedError

    def rate(self, v: Tensor, grid: Grid) -> Tensor:
        """Modes `(B, T, K)` of the rest of the law, per unit of time."""
        raise NotImplementedError

    def forward(self, u: Tensor, dx: Tensor, dt: Tensor, horizon: int | None = None) -> Tensor:
        """The last known frame and the `horizon` next, `(B, 1 + horizon, X)`.

        At least 4 frames `u (B, frames, X)` are needed; `dx (B,)` is the spacing of the points, and
        `dt (B,)` that of the frames.
        """
        horizon = horizon or self.horizon
        grid = Grid(u.shape[-1], dx, dt)
        known = torch.fft.rfft(u[:, -HISTORY:].double())
        current, rates = known[:, -1], self._rate(known, grid)
        ode = self._left_hand_side(grid)
        out = [u[:, -1:].double()]
        windows = -(-horizon // self.frames)
        for i in range(windows):
            v = self._window(current, rates, grid, ode)
            current = v[:, -1]
            out.append(torch.fft.irfft(v, n=u.shape[-1]))
            if i < windows - 1:
                rates = torch.cat([rates, self._rate(v, grid)], 1)[:, -HISTORY:]
        return torch.cat(out, 1)[:, : 1 + horizon].to(u.dtype)

    def _rate(self, v: Tensor, grid: Grid) -> Tensor:
        """Modes of the rest of the law, per frame."""
        return self.rate(v, grid) * grid.dt[:, None, None]

    def _left_hand_side(self, grid: Grid) -> tuple[Tensor, Tensor, Tensor]:
        """Coefficients `c`, steps `s` and the scale of each row."""
        rate = self.symbol(grid) * grid.dt[:, None]
        # Rows are normalized, so that fast modes do not outweigh the others.
        scale = 1 / (1 + rate.abs())
        a, b, zero = -rate.real * scale, rate.imag * scale, torch.zeros_like(scale)
        values = torch.stack([torch.stack([a, b], -1), torch.stack([-b, a], -1)], -2)
        slopes = torch.stack([torch.stack([scale, zero], -1), torch.stack([zero, scale], -1)], -2)
        c = nn.functional.pad(torch.stack([values, slopes], -1), (0, self.order - 1)).unsqueeze(2)
        return c, c.new_full((*c.shape[:2], 1), 1 / self.substeps), scale

    def _window(
        self, current: Tensor, rates: Tensor, grid: Grid, ode: tuple[Tensor, Tensor, Tensor]
    ) -> Tensor:
        """Frames of a window `(B, frames, K)`."""
        c, s, scale = ode
        force = torch.einsum("th,bhk->btk", self.guess.to(rates), rates)
        u = torch.view_as_real(current)[:, :, None, :, None]
        limit = self.sweeps if self.training else MAX_SWEEPS
        v = current[:, None]
        for sweep in range(limit):
            d = torch.view_as_real((force * scale[:, None]).mT.contiguous())
            y = self.layer(LinearODE(c, d, u, s))
            before, v = v, torch.view_as_complex(y[..., 0].contiguous()).mT
            if not self.training:
                change, size = (_energy(x) for x in (v - before, v))
                converged = (change <= self.tolerance**2 * size) & size.isfinite()
                if bool((converged | ~change.isfinite()).all()):
                    break
            if sweep < limit - 1:
                force = torch.cat([force[:, :1], self._rate(v[:, 1:], grid)], 1)
        if not self.training:
            v = torch.where(converged[:, None, None], v, torch.nan)
        return v[:, self.substeps :: self.substeps]


class ModesModel(SpectralModel):
    """A law with learned coefficients of derivatives and products of derivatives."""

    mixing: Tensor
    places: Tensor

    def __init__(self, **options: float | str) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.raw = nn.Parameter(torch.zeros(TERMS))
        self.register_buffer("mixing", torch.eye(TERMS, dtype=torch.float64))
        places = torch.tensor([p * (FEATURES + 1) + q for p, q in PAIRS])
        self.register_buffer("places", places, persistent=False)

    @torch.no_grad()
    def prepare(self, u: Tensor, dx: Tensor, dt: Tensor) -> None:
        """Precondition the learned coefficients.

        The terms of the law are strongly correlated in the data: where a wave is steep, all its
        derivatives are large. Training uses decorrelated combinations, scaled so that the rate of
        change of the data is one.
        """
        u = u.to(torch.float64)
        grid = Grid(u.shape[-1], dx, dt)
        v = torch.fft.rfft(u)
        z = torch.fft.irfft(grid.powers[:, None] * v[:, :, None], n=u.shape[-1])
        products = torch.stack([z[:, :, p] * z[:, :, q] for p, q in PAIRS], 2)
        change = (u[:, 1:] - u[:, :-1]).square().mean((1, 2)).sqrt() / dt.double()
        terms = torch.cat([z, products], 2) / change[:, None, None, None]
        rows = terms.transpose(2, 3).reshape(-1, TERMS)
        size = rows.square().mean(0).sqrt()
        gram = (rows / size).T @ (rows / size) / len(rows)
        gram += JITTER * torch.eye(TERMS, dtype=gram.dtype, device=gram.device)
        self.mixing.copy_(torch.linalg.inv(torch.linalg.cholesky(gram)).T / size[:, None])

    def law(self) -> Law:
        """The learned law."""
        numbers = self.mixing @ self.raw.to(self.mixing.dtype)
        linear, pairs = numbers.split([ORDERS + 1, len(PAIRS)])
        products = pairs.new_zeros((FEATURES + 1) ** 2).index_copy(0, self.places, pairs)
        return Law(linear, products.view(FEATURES + 1, FEATURES + 1))

    def symbol(self, grid: Grid) -> Tensor:
        """Rates `(B, K)` of the linear part, per unit of time."""
        linear = self.law().linear
        numbers = torch.complex(linear, torch.zeros_like(linear))
        return torch.einsum("p,bpk->bk", numbers, grid.powers[:, : ORDERS + 1])

    def rate(self, v: Tensor, grid: Grid) -> Tensor:
        """Modes `(B, T, K)` of the products, per unit of time."""
        z = torch.fft.irfft(grid.powers[:, None, : FEATURES + 1] * v[:, :, None], n=grid.points)
        return torch.fft.rfft((torch.einsum("pq,btqx->btpx", self.law().products, z) * z).sum(2))


class Spline(nn.Module):
    """Free complex functions of the wave number: cubic splines with learned coefficients."""

    def __init__(self, features: int, size: float) -> None:
        super().__init__()
        self.table = nn.Parameter(size * torch.randn(int(REACH / KNOT) + 3, 2 * features))

    def forward(self, k: Tensor) -> Tensor:
        """`(B, K)` wave numbers to complex values `(B, K, features)`."""
        centers = torch.arange(-1, len(self.table) - 1, device=k.device)
        x = (k[..., None] / KNOT - centers).abs()
        basis = ((2 - x).clamp(min=0) ** 3 - 4 * (1 - x).clamp(min=0) ** 3) / 6
        return torch.view_as_complex((basis.to(self.table) @ self.table).unflatten(-1, (-1, 2)))


class Gated(nn.Module):
    """Residual layer at every point, with products of two linear units beside SiLU units."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.left, self.right, self.curved = (nn.Linear(width, hidden) for _ in range(3))
        self.product, self.curve = (nn.Linear(hidden, width, bias=False) for _ in range(2))
        for layer in (self.product, self.curve):
            nn.init.normal_(layer.weight, std=0.1 / hidden**0.5)

    def forward(self, h: Tensor) -> Tensor:
        """`(..., width)` to the same."""
        curved = self.curve(nn.functional.silu(self.curved(h)))
        change: Tensor = self.product(self.left(h) * self.right(h)) + curved
        return h + change


class OperatorModel(SpectralModel):
    """Predicts frames by an ODE for every Fourier mode, whose law is a network."""

    sizes: Tensor

    def __init__(
        self, width: int = 32, hidden: int = 32, layers: int = 2, **options: float | str
    ) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.linear, self.encode = Spline(1, 0.0), Spline(width, 1.0)
        self.layers = nn.Sequential(*(Gated(width, hidden) for _ in range(layers)))
        self.decode = Spline(width, 0.1 / width**0.5)
        self.register_buffer("sizes", torch.ones(width + 1))

    @torch.no_grad()
    def prepare(self, u: Tensor, dx: Tensor, dt: Tensor) -> None:
        """Scale features and rates to the size of training data `(B, frames, X)`."""
        grid = Grid(u.shape[-1], dx, dt)
        v = torch.fft.rfft(u.double())
        self.sizes.fill_(1.0)
        features = self._features(v, grid)
        rate = (u[:, 1:] - u[:, :-1]).double() / dt.double()[:, None, None]
        self.sizes[:-1] = features.square().mean((0, 1, 2)).sqrt()
        self.sizes[-1] = rate.square().mean().sqrt()

    def _features(self, v: Tensor, grid: Grid) -> Tensor:
        """Normalized features `(B, T, X, width)`."""
        modes = v[..., None, :-1].to(torch.complex64) * self.encode(grid.k[:, :-1]).mT[:, None]
        return torch.fft.irfft(modes, n=grid.points).mT / self.sizes[:-1]

    def symbol(self, grid: Grid) -> Tensor:
        """Rates `(B, K)` of the linear part, per unit of time."""
        return (self.linear(grid.k)[..., 0] * (1 + grid.k**2)).to(torch.complex128)

    def rate(self, v: Tensor, grid: Grid) -> Tensor:
        """Modes `(B, T, K)` of the rest, per unit of time."""
        h = self.layers(self._features(v, grid))
        modes = torch.fft.rfft(h.mT)[..., :-1] * self.decode(grid.k[:, :-1]).mT[:, None]
        whole = nn.functional.pad(modes.sum(2), (0, 1))  # the last mode has no sign
        return whole.to(torch.complex128) * self.sizes[-1]


def _energy(v: Tensor) -> Tensor:
    """`(B,)` sum of squares of modes `(B, T, K)`."""
    return torch.view_as_real(v.detach()).square().sum((1, 2, 3))


class Grid:
    """Quantities that depend only on the grid."""

    def __init__(self, points: int, dx: Tensor, dt: Tensor) -> None:
        m = torch.arange(points // 2 + 1, device=dx.device, dtype=torch.float64)
        m[-1] = 0  # odd derivatives of the last mode are not defined
        k = 2 * math.pi / points * m / dx.double()[:, None]
        self.points, self.dt, self.k = points, dt.double(), k
        ik = torch.complex(torch.zeros_like(k), k)
        powers = [torch.ones_like(ik)]
        for _ in range(max(ORDERS, FEATURES)):
            powers.append(powers[-1] * ik)
        self.powers = torch.stack(powers, 1)
        """`(B, orders, K)` of `ik`."""


def _lagrange(known: int, times: Tensor) -> Tensor:
    """`(T, known)` weights of polynomial interpolation through the frames `1 - known, ..., 0`."""
    nodes = torch.arange(1 - known, 1, dtype=torch.float64)
    rows = []
    for i in range(known):
        others = torch.cat([nodes[:i], nodes[i + 1 :]])
        rows.append(((times[:, None] - others) / (nodes[i] - others)).prod(1))
    return torch.stack(rows, 1)
