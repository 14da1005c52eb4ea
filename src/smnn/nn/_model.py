"""Encoder, heads, solver and decoder in a row."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from smnn.nn._decoders import TakeOrder
from smnn.nn._layer import MechanisticLayer
from smnn.nn._ode import LinearODE


class ODEHeads(nn.Module):
    """The four heads of an ODE, on the same features.

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
        """The ODEs of a batch.

        Args:
            features: `(*B, F)`; may be `None` where no head needs them.
            observed: Initial values from data, `(*B, T_init, V, k)`, where `u` needs them.
        """
        u = self.u(features) if observed is None else self.u(features, observed)
        return LinearODE(self.c(features), self.d(features), u, self.s(features))


class MechanisticOutput(NamedTuple):
    """What a mechanistic model gives."""

    z: Tensor
    """What the decoder makes of the trajectories."""
    y: Tensor
    """`(*B, T, V, R+1)` trajectories with their derivatives."""
    ode: LinearODE
    """The equations behind them."""


class MechanisticModel(nn.Module):
    """Encoder, heads, solver, decoder: a network with an ODE in its middle.

    Args:
        encoder: Data to features `(*B, F)`; `None` where the data are features, or there are none.
        heads: Features (and observed initial values) to a `LinearODE`: `ODEHeads`, or any module.
        layer: Solves it; `MechanisticLayer()` if not given.
        decoder: Trajectories `(*B, T, V, R+1)` to what is compared with data; the trajectories
            themselves, `(*B, T, V)`, if not given.
    """

    def __init__(
        self,
        encoder: nn.Module | None,
        heads: nn.Module,
        layer: MechanisticLayer | None = None,
        decoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.heads = encoder, heads
        self.layer = MechanisticLayer() if layer is None else layer
        self.decoder = TakeOrder(0) if decoder is None else decoder

    def ode(self, x: Tensor | None = None, observed: Tensor | None = None) -> LinearODE:
        """The equations that the network writes down for the data `x`, without solving them."""
        features = x if self.encoder is None else self.encoder(x)
        ode: LinearODE = (
            self.heads(features) if observed is None else self.heads(features, observed)
        )
        return ode

    def forward(self, x: Tensor | None = None, observed: Tensor | None = None) -> MechanisticOutput:
        """Write down the equations, solve them, decode.

        Args:
            x: Data for the encoder.
            observed: Initial values from data for the heads, `(*B, T_init, V, k)`.
        """
        ode = self.ode(x, observed)
        y = self.layer(ode)
        return MechanisticOutput(self.decoder(y), y, ode)
