"""`ODEINDLayer` and `ODESYSLayer` of mech-nn."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from smnn._solver.api import solve
from smnn.baselines import mnn_dense, mnn_exact, mnn_sparse
from smnn.compat._config import ODEConfig, SolverType, solver_named
from smnn.errors import ShapeError

Jets = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


class ODESYSLayer(nn.Module):
    """`n_ind_dim` independent systems of `n_dim` coupled variables for each item of a batch.

    Args:
        bs: Batch size.
        order: Highest derivative `R`, at least 2.
        n_ind_dim: Independent systems per item of the batch.
        n_dim: Variables `V` of a system.
        n_equations: Equations `Q` of a system.
        n_iv: Number of orders with initial values, `R_init + 1`; 0 for none.
        n_iv_steps: Number of times with initial values.
        n_step: Number of times `T`.
        periodic_boundary: Couple both ends of the series for the orders below `order`.
        solver_dbl: Return float64 if `double_ret` is true as well. The arithmetic is float64 in
            any case.
        gamma: Weight of the slack term; only the product with `alpha` matters.
        alpha: As `gamma`.
        double_ret: Return float64 instead of float32.
        device: Ignored: tensors keep their device.
        solver: A `SolverType` or its name; `ODEConfig.linear_solver` if `None`.
    """

    def __init__(
        self, bs: int, order: int, n_ind_dim: int, n_dim: int, n_equations: int, n_iv: int,
        n_iv_steps: int, n_step: int, periodic_boundary: bool = False, solver_dbl: bool = True,
        gamma: float = 0.5, alpha: float = 0.1, double_ret: bool = True, device: object = None, *,
        solver: str | SolverType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if order < 2:
            raise ValueError(
                f"order: got {order}; expected at least 2, because the second derivative is "
                "returned. Pad the coefficients of a first-order equation with zeros."
            )
        self.bs, self.n_ind_dim, self.n_dim, self.n_equations = bs, n_ind_dim, n_dim, n_equations
        self.order, self.n_step, self.n_iv, self.n_iv_steps = order, n_step, n_iv, n_iv_steps
        self.n_coeff = n_step * (order + 1)
        self.step_size = 0.1
        self.device, self.solver_dbl, self.double_ret = device, solver_dbl, double_ret
        self.periodic_boundary, self.gamma, self.alpha = periodic_boundary, gamma, alpha
        self.solver = solver_named(ODEConfig.linear_solver if solver is None else solver)
        if periodic_boundary and self.solver is SolverType.LEAST_SQUARES:
            raise ValueError(
                "periodic_boundary: got True; expected False with LEAST_SQUARES, because S-MNN has "
                "no periodic rows. Use solver='exact'."
            )

    def extra_repr(self) -> str:
        """Return the settings for `print`."""
        return (
            f"bs={self.bs}, order={self.order}, n_ind_dim={self.n_ind_dim}, n_dim={self.n_dim}, "
            f"n_equations={self.n_equations}, n_step={self.n_step}, solver={self.solver.name}"
        )

    def _fit(self, name: str, x: Tensor, *shape: int) -> Tensor:
        """Reshape; only the number of elements and their order matter."""
        full = (self.bs * self.n_ind_dim, *shape)
        if x.numel() != torch.Size(full).numel():
            raise ShapeError(
                f"{name}: got shape {tuple(x.shape)}, {x.numel()} elements; expected "
                f"{torch.Size(full).numel()}, for {full} with bs * n_ind_dim = {full[0]} samples. "
                f"The layer was created for bs = {self.bs}."
            )
        return x.reshape(full)

    def _initial(self, iv_rhs: Tensor | None, like: Tensor) -> tuple[Tensor, Tensor | None]:
        """Initial values `(samples, n_iv_steps, n_dim, n_iv)` and periodic differences."""
        values = self.n_iv_steps * self.n_dim * self.n_iv
        ends = self.n_dim * self.order if self.periodic_boundary else 0
        if iv_rhs is None:
            if self.n_iv:
                raise ShapeError(
                    f"iv_rhs: got None; expected {values + ends} values for each sample, because "
                    f"n_iv = {self.n_iv}. Create the layer with n_iv=0 if there are none."
                )
            iv_rhs = like.new_zeros(like.shape[0], ends)
        flat = self._fit("iv_rhs", iv_rhs, values + ends).double()
        u = flat[:, :values].reshape(len(flat), self.n_iv_steps, self.n_dim, self.n_iv)
        if not self.periodic_boundary:
            return u, None
        return u, flat[:, values:].reshape(len(flat), self.n_dim, self.order)

    def _solve(
        self, c: Tensor, d: Tensor, iv_rhs: Tensor | None, s: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`u (samples, T, V, order+1)` and `eps (samples,)` in the output dtype."""
        c, d, s = c.double(), d.double(), s.double()
        u, periodic = self._initial(iv_rhs, c)
        match self.solver:
            case SolverType.LEAST_SQUARES:
                y, eps = solve(c, d, u, s), c.new_zeros(c.shape[0])
            case SolverType.DENSE_CHOLESKY:
                y, eps, *_ = mnn_dense(
                    c, d, u, s, gamma=self.gamma, alpha=self.alpha, periodic=periodic
                )
            case SolverType.SPARSE_INDIRECT_CG | SolverType.SPARSE_INDIRECT_BLOCK_CG:
                y, eps = self._iterate(c, d, u, s, periodic)
            case _:
                y, eps, *_ = mnn_exact(
                    c, d, u, s, gamma=self.gamma, alpha=self.alpha, periodic=periodic
                )
        dtype = torch.float64 if self.solver_dbl and self.double_ret else torch.float32
        return y.to(dtype), eps.to(dtype)

    def _iterate(
        self, c: Tensor, d: Tensor, u: Tensor, s: Tensor, periodic: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Warn if conjugate gradients did not converge; as in the published code it is no error."""
        found = mnn_sparse(
            c, d, u, s, gamma=self.gamma, alpha=self.alpha, periodic=periodic,
            max_iter=ODEConfig.cg_max_iter, check=False,
        )  # fmt: skip
        if bad := int((~found.converged).sum()):
            warnings.warn(
                f"conjugate gradients did not converge for {bad} of {len(found.converged)} samples "
                f"within {ODEConfig.cg_max_iter} iterations (largest relative residual "
                f"{found.residual.max().item():.1e}). ODEConfig.linear_solver = SolverType.EXACT "
                "solves the same problem directly.",
                RuntimeWarning,
                stacklevel=4,
            )
        return found.y, found.eps

    def forward(self, coeffs: Tensor, rhs: Tensor, iv_rhs: Tensor | None, steps: Tensor) -> Jets:
        """Solve; only the number of elements and their order matter.

        Args:
            coeffs: `(bs, n_ind_dim, Q, T, V, order+1)`: equations before times.
            rhs: `(bs, n_ind_dim, Q, T)`.
            iv_rhs: `(bs, n_ind_dim, n_iv_steps * V * n_iv)`, ordered (time, variable, derivative),
                with a periodic boundary followed by `V * order` differences between the ends; or
                `None` with `n_iv=0`.
            steps: `(bs, n_ind_dim, T-1, V)`.

        Returns:
            `u0, u1, u2 (bs, n_ind_dim, T, V)`, `eps (bs * n_ind_dim,)`, and all derivatives as
            `(bs, n_ind_dim, T, V, order+1)`.
        """
        T, Q, V = self.n_step, self.n_equations, self.n_dim
        c = self._fit("coeffs", coeffs, Q, T, V, self.order + 1).movedim(1, 2)
        d = self._fit("rhs", rhs, Q, T).mT
        y, eps = self._solve(c, d, iv_rhs, self._fit("steps", steps, T - 1, V))
        u = y.reshape(self.bs, self.n_ind_dim, T, V, self.order + 1)
        return u[..., 0], u[..., 1], u[..., 2], eps, u


class ODEINDLayer(ODESYSLayer):
    """`n_ind_dim` independent scalar ODEs for each item of a batch.

    Arguments as those of `ODESYSLayer`; `central_diff` is ignored, as in the published code.
    """

    def __init__(
        self, bs: int, order: int, n_ind_dim: int, n_iv: int, n_step: int, n_iv_steps: int,
        solver_dbl: bool = True, gamma: float = 0.5, alpha: float = 0.1, central_diff: bool = True,
        double_ret: bool = False, device: object = None, *,
        solver: str | SolverType | None = None,
    ) -> None:  # fmt: skip
        del central_diff
        super().__init__(
            bs=bs, order=order, n_ind_dim=n_ind_dim, n_dim=1, n_equations=1, n_iv=n_iv,
            n_iv_steps=n_iv_steps, n_step=n_step, periodic_boundary=False, solver_dbl=solver_dbl,
            gamma=gamma, alpha=alpha, double_ret=double_ret, device=device, solver=solver,
        )  # fmt: skip

    def forward(self, coeffs: Tensor, rhs: Tensor, iv_rhs: Tensor | None, steps: Tensor) -> Jets:
        """Solve; only the number of elements and their order matter.

        Args:
            coeffs: `(bs, n_ind_dim, T, order+1)`.
            rhs: `(bs, n_ind_dim, T)`.
            iv_rhs: `(bs, n_ind_dim, n_iv_steps, n_iv)`, or `None` with `n_iv=0`.
            steps: `(bs, n_ind_dim, T-1)`.

        Returns:
            `u0, u1, u2 (bs, n_ind_dim, T)`, `eps (bs * n_ind_dim,)`, and the steps as
            `(bs * n_ind_dim, T-1, 1)`.
        """
        u0, u1, u2, eps, _ = super().forward(coeffs, rhs, iv_rhs, steps)
        s = self._fit("steps", steps, self.n_step - 1, 1)
        return u0[..., 0], u1[..., 0], u2[..., 0], eps, s.double() if self.solver_dbl else s
