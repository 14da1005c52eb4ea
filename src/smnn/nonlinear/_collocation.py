r"""Radau collocation of $y' = f(t, y, p)$ on a mesh, and its linearization.

On every step, a polynomial of degree `S` through the value at its start satisfies the equation at
`S` points, of which the last is the end of the step (Radau IIA: order `2S - 1`, L-stable). Unknown
are the values at the nodes, with the parameters as further states that do not change,
`x (B, K+1, M)`, and the values at the collocation points, `Z (B, K, S, V)`. The latter are
eliminated step by step, which leaves a chain of nodes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad


class Radau(NamedTuple):
    """Collocation points in [0, 1] and the integrals of their Lagrange polynomials."""

    c: np.ndarray
    A: np.ndarray

    @classmethod
    @functools.cache
    def of(cls, stages: int) -> Radau:
        """The method with a number of stages."""
        P = np.polynomial.Polynomial
        base = P([0, 1]) ** (stages - 1) * P([-1, 1]) ** stages
        c = np.sort((base.deriv(stages - 1) if stages > 1 else base).roots().real)
        c[-1] = 1.0
        k = np.arange(stages)
        return cls(c, (c[:, None] ** (k + 1) / (k + 1)) @ np.linalg.inv(c[:, None] ** k))

    def values_at(self, theta: np.ndarray) -> np.ndarray:
        """Weights of the start and the collocation values, for the values at `theta` in [0, 1]."""
        nodes = np.concatenate([[0.0], self.c])
        k = np.arange(len(nodes))
        weights: np.ndarray = theta[:, None] ** k @ np.linalg.inv(nodes[:, None] ** k)
        return weights


class Linear(NamedTuple):
    """Linearization: `dZ = slope dx + shift` on every step, where `dx` belongs to its start."""

    slope: Tensor
    """`(B, K, S, V, M)`"""
    shift: Tensor
    """`(B, K, S, V)`"""
    defects: Tensor
    """`(B, K, S, V)` what is left of the equations of the collocation values."""
    inverse: Tensor
    """`(B, K, S V, S V)` inverse Jacobian of the equations of the collocation values."""


@dataclasses.dataclass(frozen=True)
class Collocation:
    """An equation on a mesh.

    Args:
        f: `f(t, y)`, or `f(t, y, p)` if there are parameters, for one state `y (V,)`.
        V: Number of variables.
        names: Of the parameters, which follow the variables in `x`.
        t: `(B, K+1)` nodes.
        stages: Number of collocation points per step.
    """

    f: Callable[..., Tensor]
    V: int
    names: Sequence[str]
    t: Tensor
    stages: int

    @property
    def h(self) -> Tensor:
        """Steps, `(B, K)`."""
        return self.t[:, 1:] - self.t[:, :-1]

    def on(self, t: Tensor) -> Collocation:
        """The same on another mesh."""
        return dataclasses.replace(self, t=t)

    def _constants(self, stages: int) -> tuple[Radau, Tensor, Tensor]:
        radau = Radau.of(stages)
        c, A = (torch.from_numpy(x).to(self.t.device) for x in radau)
        return radau, c, A

    def _call(self, w: Tensor, t: Tensor) -> Tensor:
        """`f` at one point, of the variables and parameters in one vector."""
        args = [t, w[: self.V]]
        if self.names:
            args.append({x: w[self.V + i] for i, x in enumerate(self.names)})  # type: ignore[arg-type]
        return self.f(*args)

    def _arguments(self, x: Tensor, Z: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Variables with parameters, and times, of all collocation points in one axis."""
        B, K, S, _ = Z.shape
        constant = x[:, :-1, None, self.V :].expand(B, K, S, x.shape[2] - self.V)
        w = torch.cat([Z, constant], -1).reshape(B * K * S, -1)
        t = self.t[:, :-1, None] + self.h[:, :, None] * c
        return w, t.reshape(-1)

    def rates(self, x: Tensor, Z: Tensor) -> Tensor:
        """`f` at the collocation points, `(B, K, S, V)`; differentiable."""
        _, c, _ = self._constants(Z.shape[2])
        return torch.func.vmap(self._call)(*self._arguments(x, Z, c)).reshape(Z.shape)

    def defects(self, x: Tensor, Z: Tensor) -> Tensor:
        """What is left of `Z = y + h A f(Z)`; differentiable."""
        _, _, A = self._constants(Z.shape[2])
        change = torch.einsum("ij,bkjv->bkiv", A, self.rates(x, Z))
        return Z - x[:, :-1, None, : self.V] - self.h[:, :, None, None] * change

    def linear(self, x: Tensor, Z: Tensor) -> Linear:
        """Linearize at `x` and `Z`."""
        B, K, S, V = Z.shape
        M = x.shape[2]
        _, c, A = self._constants(S)
        F, J = with_jacobian(self._call, *self._arguments(x, Z, c))
        F, J, h = F.reshape(Z.shape), J.reshape(B, K, S, V, M), self.h
        hA = h[:, :, None, None] * A
        matrix = -torch.einsum("bkij,bkjvw->bkivjw", hA, J[..., :V]).reshape(B, K, S * V, S * V)
        matrix.diagonal(dim1=2, dim2=3).add_(1.0)
        defects = Z - x[:, :-1, None, :V] - torch.einsum("bkij,bkjv->bkiv", hA, F)
        start = torch.eye(V, dtype=Z.dtype, device=Z.device).expand(B, K, S, V, V)
        by_constant = torch.einsum("bkij,bkjvp->bkivp", hA, J[..., V:])
        right = torch.cat([start, by_constant, -defects.unsqueeze(-1)], -1)
        eye = torch.eye(S * V, dtype=Z.dtype, device=Z.device).expand_as(matrix)
        inverse = torch.linalg.solve_ex(matrix, eye)[0]
        solved = (inverse @ right.reshape(B, K, S * V, M + 1)).view(B, K, S, V, M + 1)
        return Linear(solved[..., :M], solved[..., M], defects, inverse)

    def links(self, x: Tensor, Z: Tensor, linear: Linear, weight: Tensor) -> Tensor:
        """Rows of the chain: the end of each step is the start of the next, `(B, K+2, M, 2M+1)`.

        Args:
            x: Nodes.
            Z: Collocation values.
            linear: Linearization there.
            weight: `(B, M)` or `(B, K, M)` weights of the rows.
        """
        B, K, _, V = Z.shape
        M = x.shape[2]
        rows = x.new_zeros(B, K, M, 2 * M + 1)
        rows[:, :, :V, :M] = -linear.slope[:, :, -1]
        index = torch.arange(M, device=x.device)
        rows[:, :, index[V:], index[V:]] = -1.0
        rows[:, :, index, M + index] = 1.0
        rows[:, :, :V, -1] = Z[:, :, -1] + linear.shift[:, :, -1] - x[:, 1:, :V]
        rows[:, :, V:, -1] = x[:, :-1, V:] - x[:, 1:, V:]
        weight = weight if weight.ndim == 3 else weight[:, None]
        return pad(rows * weight.unsqueeze(-1), (0, 0, 0, 0, 1, 1))

    def flat(self, x: Tensor) -> Tensor:
        """Collocation values on straight lines between the nodes: a first guess."""
        _, c, _ = self._constants(self.stages)
        y = x[..., : self.V]
        return y[:, :-1, None] + c[:, None] * (y[:, 1:] - y[:, :-1])[:, :, None]

    def ends(self, x: Tensor, Z: Tensor, linear: Linear) -> Tensor:
        """Ends of the steps as a function of `x` and of tensors in `f`, twice differentiable.

        Two steps with a constant Jacobian from a solution `Z` have the right derivatives up to
        the second order.
        """
        Z = Z.detach()
        for _ in range(2):
            defects = self.defects(x, Z).flatten(2).unsqueeze(-1)
            Z = Z - (linear.inverse @ defects).reshape(Z.shape)
        return Z[:, :, -1]

    # ------------------------------------------------------------ error and mesh

    def local_errors(self, x: Tensor, Z: Tensor) -> Tensor:
        """Estimated error of each step, `(B, K, V)`: one iteration with one more stage."""
        radau, more = Radau.of(Z.shape[2]), Radau.of(Z.shape[2] + 1)
        weights = torch.from_numpy(radau.values_at(more.c)).to(Z)
        every = torch.cat([x[:, :-1, None, : self.V], Z], 2)
        guess = torch.einsum("ij,bkjv->bkiv", weights, every)
        return self.linear(x, guess).shift[:, :, -1]

    def resampled(self, x: Tensor, Z: Tensor, parts: Tensor) -> tuple[Collocation, Tensor, Tensor]:
        """Cut step `k` into `parts[k]` equal ones, and evaluate the solution there."""
        step = torch.repeat_interleave(parts)
        first = parts.cumsum(0) - parts
        number = torch.arange(len(step), device=step.device) - first[step]
        low = (number / parts[step]).to(Z)
        t = self.t[:, step] + low * self.h[:, step]
        radau, c, _ = self._constants(Z.shape[2])
        theta = torch.cat([low[:, None], low[:, None] + c / parts[step, None]], 1)
        weights = torch.from_numpy(radau.values_at(theta.flatten().cpu().numpy())).to(Z)
        every = torch.cat([x[:, :-1, None, : self.V], Z], 2)[:, step]
        values = torch.einsum("kij,bkjv->bkiv", weights.view(*theta.shape, -1), every)
        nodes = torch.cat([values[:, :, 0], x[:, step, self.V :]], -1)
        system = self.on(torch.cat([t, self.t[:, -1:]], 1))
        return system, torch.cat([nodes, x[:, -1:]], 1), values[:, :, 1:]

    def at(self, x: Tensor, Z: Tensor, times: Tensor) -> Tensor:
        """The solution at times `(N,)` within the mesh, `(B, N, V)`; not differentiable."""
        radau = Radau.of(Z.shape[2])
        out = []
        for t, y, values in zip(self.t, x[..., : self.V], Z):
            step = (torch.searchsorted(t, times, right=True) - 1).clamp(0, len(t) - 2)
            theta = (times - t[step]) / (t[step + 1] - t[step])
            weights = torch.from_numpy(radau.values_at(theta.cpu().numpy())).to(Z)
            every = torch.cat([y[:-1, None], values], 1)[step]
            out.append(torch.einsum("nj,njv->nv", weights, every))
        return torch.stack(out)


def with_jacobian(f: Callable[..., Tensor], x: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
    """Values `(N, V)` of a function of one point at all points `x (N, M)`, and `(N, V, M)`.

    By one backward pass for each value, which for small systems is several times faster than
    `torch.func.jacfwd`.
    """
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        value = torch.func.vmap(f)(leaf, *others)
        rows: list[Tensor | None] = [None] * value.shape[1]
        if value.requires_grad:
            for v, column in enumerate(value.sum(0)):
                rows[v] = torch.autograd.grad(column, leaf, retain_graph=True, allow_unused=True)[0]
    zero = torch.zeros_like(x)
    return value.detach(), torch.stack([zero if row is None else row for row in rows], 1)


def named(values: dict[str, Any] | None, batch: tuple[int, ...], like: Tensor) -> Tensor:
    """Parameters as `(B, P)`: each is a number, or a tensor with the batch axes."""
    count = int(np.prod(batch))
    columns = []
    for name, value in (values or {}).items():
        x = torch.as_tensor(value, dtype=like.dtype, device=like.device)
        if x.ndim and tuple(x.shape) != batch:
            raise ValueError(
                f"params[{name!r}]: got shape {tuple(x.shape)}; expected a number or {batch}, one "
                "for each sample."
            )
        columns.append(x.expand(batch).reshape(count))
    return torch.stack(columns, -1) if columns else like.new_zeros(count, 0)
