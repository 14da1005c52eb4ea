"""Models: encoder, heads, solver and decoder."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from smnn.nn._decoders import TakeOrder
from smnn.nn._layer import MechanisticLayer
from smnn.nn._ode import LinearODE


class ODEHeads(nn.Module):
    """The four heads of an ODE, applied to the same features.

    Args:
        c: Features `(*B, F)` to coefficients `(*B, T, Q, V, R+1)`: `Coefficients`, or any module.
        d: Features to right-hand sides `(*B, T, Q)`.
        u: Features and observed values to initial values `(*B, T_init, V, R_init+1)`.
        s: Features to steps `(*B, T-1)` or `(*B, T-1, V)`.
    """

    def __init__(self, c: nn.Module, d: nn.Module, u: nn.Module, s: nn.Module) -> None:
        super().__init__()
        self.c, self.d, self.u, self.s = c, d, u, s

    def forward(self, features: Tensor | None = None, observed: Tensor | None = None) -> LinearODE:
        """Return the ODEs of a batch.

        Args:
            features: `(*B, F)`; `None` if no head uses features.
            observed: Observed initial values `(*B, T_init, V, k)`, if `u` uses them.
        """
        u = self.u(features) if observed is None else self.u(features, observed)
        return LinearODE(self.c(features), self.d(features), u, self.s(features))


class MechanisticOutput(NamedTuple):
    """Output of a mechanistic model."""

    z: Tensor
    """Output of the decoder."""
    y: Tensor
    """`(*B, T, V, R+1)` trajectories with their derivatives."""
    ode: LinearODE
    """The equations of the trajectories."""


class MechanisticModel(nn.Module):
    """Encoder, heads, solver and decoder: a network with an ODE inside.

    Args:
        encoder: Data to features `(*B, F)`; `None` if the input is features already or absent.
        heads: Features (and observed initial values) to a `LinearODE`: `ODEHeads`, or any module.
        layer: Solver; by default `MechanisticLayer()`.
        decoder: Trajectories `(*B, T, V, R+1)` to observed quantities; by default the trajectories
            themselves, `(*B, T, V)`.
    """

    def __init__(
        self, encoder: nn.Module | None, heads: nn.Module, layer: MechanisticLayer | None = None,
        decoder: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.encoder, self.heads = encoder, heads
        self.layer = MechanisticLayer() if layer is None else layer
        self.decoder = TakeOrder(0) if decoder is None else decoder

    def ode(self, x: Tensor | None = None, observed: Tensor | None = None) -> LinearODE:
        """Return the equations for the data `x` without solving them."""
        features = x if self.encoder is None else self.encoder(x)
        ode: LinearODE = (
            self.heads(features) if observed is None else self.heads(features, observed)
        )
        return ode

    def forward(self, x: Tensor | None = None, observed: Tensor | None = None) -> MechanisticOutput:
        """Compute the equations, solve them, and decode the trajectories.

        Args:
            x: Data for the encoder.
            observed: Observed initial values for the heads, `(*B, T_init, V, k)`.
        """
        ode = self.ode(x, observed)
        y = self.layer(ode)
        return MechanisticOutput(self.decoder(y), y, ode)
