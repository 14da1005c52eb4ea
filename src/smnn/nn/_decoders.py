"""Decoders: from trajectories to what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from smnn.nn._encoders import MLP


class TakeOrder(nn.Module):
    """One derivative of every variable: `y (*B, T, V, R+1)` to `(*B, T, V)`.

    Args:
        order: Which; 0 is the trajectory itself.
    """

    def __init__(self, order: int = 0) -> None:
        super().__init__()
        self.order = order

    def forward(self, y: Tensor) -> Tensor:
        """`y[..., order]`."""
        return y[..., self.order]

    def extra_repr(self) -> str:
        """Which."""
        return str(self.order)


class StateDecoder(nn.Module):
    """A network on the state at each time: `y (*B, T, V, R+1)` to `(*B, T, out_features)`.

    Args:
        variables: `V`.
        orders: How many orders it sees: the first `orders` of each variable.
        out_features: What it gives at each time.
        hidden: Sizes of the hidden layers; none makes it linear.
        activation: Makes the module between two layers.
    """

    def __init__(
        self,
        variables: int,
        orders: int,
        out_features: int,
        hidden: Sequence[int] = (),
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        self.orders = orders
        self.network = MLP(variables * orders, hidden, out_features, activation)

    def forward(self, y: Tensor) -> Tensor:
        """Measured values at each time."""
        out: Tensor = self.network(y[..., : self.orders].flatten(-2))
        return out
