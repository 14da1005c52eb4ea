"""The solver as a module: no parameters of its own, no state, any batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from smnn._solver.api import solve, solve_ex
from smnn._solver.diagnostics import SolveInfo
from smnn.nn._ode import LinearODE

Weight = float | Tensor
WEIGHTS = ("w_gov", "w_init", "w_smooth")


class MechanisticLayer(nn.Module):
    """Solve the ODEs that a network has written down.

    The solution is computed in float64 whatever the precision of the network, also under
    `torch.autocast`, and comes back in the widest dtype of `c, d, u, s`, at least float32.
    Gradients reach all four and the weights.

    A weight is a number, a tensor that broadcasts against its rows (kept as a buffer), or an
    `nn.Parameter` (learned; weights enter squared, so their sign is free). `forward` may be given
    others for one call.

    Args:
        order: Carry derivatives up to this order, beyond those of `c`: accuracy.
        scheme: `"smnn"` or `"central"`, as in `smnn.solve`.
        w_gov: Weight of the governing rows, `(*B, T, Q)`.
        w_init: Weight of the initial rows, `(*B, T_init, V, R_init+1)`.
        w_smooth: Weight of the smoothness rows, `(*B, T-1, V, R+1)`.
        n_steps: Number of times, needed when `c`, `d` and `s` are all constant in time.
        backend: `"auto"` or a name in `smnn.available_backends()`.
        check: Raise if a sample has no unique finite solution. On a GPU this waits for the device:
            turn it off for CUDA graphs, and read `solve_ex` from time to time.

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
        self,
        order: int | None = None,
        scheme: str = "smnn",
        *,
        w_gov: Weight = 1.0,
        w_init: Weight = 1.0,
        w_smooth: Weight = 1.0,
        n_steps: int | None = None,
        backend: str = "auto",
        check: bool = True,
    ) -> None:
        super().__init__()
        self.order, self.scheme, self.n_steps = order, scheme, n_steps
        self.backend, self.check = backend, check
        for name, w in zip(WEIGHTS, (w_gov, w_init, w_smooth), strict=True):
            if isinstance(w, Tensor) and not isinstance(w, nn.Parameter):
                self.register_buffer(name, w)
            else:
                setattr(self, name, w if isinstance(w, Tensor) else float(w))

    def forward(
        self,
        ode: LinearODE,
        *,
        n_steps: int | None = None,
        w_gov: Weight | None = None,
        w_init: Weight | None = None,
        w_smooth: Weight | None = None,
    ) -> Tensor:
        """The trajectories `y (*B, T, V, R+1)` with their derivatives.

        Args:
            ode: What is to be solved; dtypes and devices as the network left them.
            n_steps: Instead of the layer's own.
            w_gov: Instead of the layer's own.
            w_init: Instead of the layer's own.
            w_smooth: Instead of the layer's own.
        """
        if self.check and ode.c.is_cuda and not torch.compiler.is_compiling():
            _refuse_to_wait()
        with torch.autocast(ode.c.device.type, enabled=False):
            args, options = self._arguments(ode, n_steps, (w_gov, w_init, w_smooth))
            y = solve(*args, **options, check=self.check)
        return y.to(_result_dtype(ode))

    def solve_ex(
        self,
        ode: LinearODE,
        *,
        n_steps: int | None = None,
        w_gov: Weight | None = None,
        w_init: Weight | None = None,
        w_smooth: Weight | None = None,
    ) -> tuple[Tensor, SolveInfo]:
        """As `forward`, with a status for each sample, never raising for a failed one."""
        with torch.autocast(ode.c.device.type, enabled=False):
            args, options = self._arguments(ode, n_steps, (w_gov, w_init, w_smooth))
            y, info = solve_ex(*args, **options)
        return y.to(_result_dtype(ode)), info

    def _arguments(
        self, ode: LinearODE, n_steps: int | None, weights: tuple[Weight | None, ...]
    ) -> tuple[LinearODE, dict[str, Any]]:
        ode, order = ode.apply(torch.Tensor.double), self.order
        missing = 0 if order is None else order + 1 - ode.c.shape[-1]
        if missing >= 0:  # padded here, a call may use what the solver remembers of one like it
            order = None
            ode = ode._replace(c=nn.functional.pad(ode.c, (0, missing))) if missing else ode
        options: dict[str, Any] = {"order": order, "scheme": self.scheme, "backend": self.backend}
        options["n_steps"] = self.n_steps if n_steps is None else n_steps
        for name, w in zip(WEIGHTS, weights, strict=True):
            own: Weight = getattr(self, name) if w is None else w
            options[name] = own.double() if isinstance(own, Tensor) else float(own)
        return ode, options

    def extra_repr(self) -> str:
        """The options that differ from their defaults."""
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


def _refuse_to_wait() -> None:
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "check: got True while a CUDA graph is being captured; expected False, because the "
            "check waits for the device. Build the layer with check=False."
        )
