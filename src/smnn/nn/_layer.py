"""The solver as a PyTorch module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from smnn._solver.api import solve, solve_ex
from smnn._solver.diagnostics import SolveInfo
from smnn._solver.posterior import Posterior, posterior
from smnn.nn._ode import LinearODE

Weight = float | Tensor
WEIGHTS = ("w_gov", "w_init", "w_smooth")


class MechanisticLayer(nn.Module):
    """Solve the linear ODEs that a network has computed.

    The solution is computed in float64, also under `torch.autocast`, and returned in the widest
    dtype of `c, d, u, s`, at least float32. All four and the weights are differentiable.

    A weight is a number, a tensor that broadcasts against its rows (registered as a buffer), or an
    `nn.Parameter` (learned; weights are squared, so their sign does not matter). Arguments of
    `forward` override the weights of the layer.

    Args:
        order: Highest derivative order of the solution, which determines the accuracy; by default
            that of `c`.
        scheme: As in `smnn.solve`. The hermite schemes differentiate the equations in time: their
            order is the last axis of `c`, which must not be padded with zeros.
        w_gov: Weight of the governing rows, `(*B, T, Q)`.
        w_init: Weight of the initial rows, `(*B, T_init, V, R_init+1)`.
        w_smooth: Weight of the smoothness rows, `(*B, T-1, V, R+1)`.
        n_steps: Number of times; required if `c`, `d` and `s` are all constant in time.
        backend: `"auto"` or a name in `smnn.available_backends()`.
        check: Raise if a sample has no unique finite solution. On a GPU this synchronizes with the
            device: turn it off for CUDA graphs, and call `solve_ex` occasionally instead.

    Examples:
        >>> import torch
        >>> from smnn.nn import LinearODE, MechanisticLayer
        >>> decay = LinearODE(
        ...     c=torch.tensor([[[[1.0, 1.0]]]]),  # y + y' = 0
        ...     d=torch.tensor([[0.0]]),
        ...     u=torch.tensor([[[1.0]]]),  # y(0) = 1
        ...     s=torch.full((100,), 0.01),
        ... )
        >>> y = MechanisticLayer(order=4)(decay)
        >>> tuple(y.shape), f"{y[-1, 0, 0]:.6f}"
        ((101, 1, 5), '0.367879')
    """

    w_gov: Weight
    w_init: Weight
    w_smooth: Weight

    def __init__(
        self, order: int | None = None, scheme: str = "smnn", *, w_gov: Weight = 1.0,
        w_init: Weight = 1.0, w_smooth: Weight = 1.0, n_steps: int | None = None,
        backend: str = "auto", check: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.order, self.scheme, self.n_steps = order, scheme, n_steps
        self.backend, self.check = backend, check
        for name, w in zip(WEIGHTS, (w_gov, w_init, w_smooth), strict=True):
            if isinstance(w, Tensor) and not isinstance(w, nn.Parameter):
                self.register_buffer(name, w)
            else:
                setattr(self, name, w if isinstance(w, Tensor) else float(w))

    def forward(
        self, ode: LinearODE, *, n_steps: int | None = None, w_gov: Weight | None = None,
        w_init: Weight | None = None, w_smooth: Weight | None = None,
    ) -> Tensor:  # fmt: skip
        """Return the trajectories and their derivatives, `y (*B, T, V, R+1)`.

        Args:
            ode: The equations, of any floating-point dtype.
            n_steps: Overrides that of the layer.
            w_gov: Overrides that of the layer.
            w_init: Overrides that of the layer.
            w_smooth: Overrides that of the layer.
        """
        checked = self.check and ode.c.is_cuda and not torch.compiler.is_compiling()
        if checked and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "check: got True while a CUDA graph is being captured; expected False, because the "
                "check waits for the device. Create the layer with check=False."
            )
        with torch.autocast(ode.c.device.type, enabled=False):
            args, options = self._arguments(ode, n_steps, (w_gov, w_init, w_smooth))
            y = solve(*args, **options, check=self.check)
        return y.to(_result_dtype(ode))

    def solve_ex(
        self, ode: LinearODE, *, n_steps: int | None = None, w_gov: Weight | None = None,
        w_init: Weight | None = None, w_smooth: Weight | None = None,
    ) -> tuple[Tensor, SolveInfo]:  # fmt: skip
        """As `forward`, but return the status of each sample instead of raising."""
        with torch.autocast(ode.c.device.type, enabled=False):
            args, options = self._arguments(ode, n_steps, (w_gov, w_init, w_smooth))
            y, info = solve_ex(*args, **options)
        return y.to(_result_dtype(ode)), info

    def posterior(
        self,
        ode: LinearODE,
        *,
        n_steps: int | None = None,
        w_gov: Weight | None = None,
        w_init: Weight | None = None,
        w_smooth: Weight | None = None,
    ) -> Posterior:
        """The distribution of the trajectories, with the weights as inverse standard deviations.

        Returns:
            As `smnn.posterior`, in float64: `mean` is the solution, and `variance()` is
            differentiable in `c`, `s` and the weights, so that a network can be trained with a
            Gaussian likelihood.
        """
        with torch.autocast(ode.c.device.type, enabled=False):
            args, options = self._arguments(ode, n_steps, (w_gov, w_init, w_smooth))
            return posterior(*args, **options)

    def _arguments(
        self, ode: LinearODE, n_steps: int | None, weights: tuple[Weight | None, ...]
    ) -> tuple[LinearODE, dict[str, Any]]:
        ode = ode.apply(torch.Tensor.double)
        options: dict[str, Any] = {"order": self.order, "scheme": self.scheme}
        options["backend"] = self.backend
        options["n_steps"] = self.n_steps if n_steps is None else n_steps
        for name, w in zip(WEIGHTS, weights, strict=True):
            own: Weight = getattr(self, name) if w is None else w
            options[name] = own.double() if isinstance(own, Tensor) else float(own)
        return ode, options

    def extra_repr(self) -> str:
        """Return the options that differ from their defaults."""
        shown: dict[str, tuple[Any, Any]] = {
            "order": (self.order, None), "scheme": (self.scheme, "smnn"),
            "n_steps": (self.n_steps, None), "backend": (self.backend, "auto"),
            "check": (self.check, True),
        }  # fmt: skip
        shown |= {name: (getattr(self, name), 1.0) for name in WEIGHTS}
        return ", ".join(
            f"{name}={tuple(value.shape) if isinstance(value, Tensor) else value!r}"
            for name, (value, default) in shown.items()
            if isinstance(value, Tensor) or value != default
        )


def _result_dtype(ode: LinearODE) -> torch.dtype:
    dtype = torch.float32
    for x in ode:
        dtype = torch.promote_types(dtype, x.dtype)
    return dtype
