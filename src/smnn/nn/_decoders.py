"""Decoders: from trajectories to observed quantities."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from smnn.nn._encoders import MLP


class TakeOrder(nn.Module):
    """One derivative of every variable: `y (*B, T, V, R+1)` to `(*B, T, V)`.

    Args:
        order: Order of the derivative; 0 for the trajectory itself.
    """

    def __init__(self, order: int = 0) -> None:
        super().__init__()
        self.order = order

    def forward(self, y: Tensor) -> Tensor:
        """Return `y[..., order]`."""
        return y[..., self.order]

    def extra_repr(self) -> str:
        """Return the order."""
        return str(self.order)


class StateDecoder(nn.Module):
    """A network on the state at each time: `y (*B, T, V, R+1)` to `(*B, T, out_features)`.

    Args:
        variables: `V`.
        orders: Number of derivative orders in the input: 0 to `orders - 1` of each variable.
        out_features: Number of outputs at each time.
        hidden: Sizes of the hidden layers; by default the decoder is linear.
        activation: Activation between layers: a class or a function without arguments.
    """

    def __init__(
        self, variables: int, orders: int, out_features: int, hidden: Sequence[int] = (),
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:  # fmt: skip
        super().__init__()
        self.orders = orders
        self.network = MLP(variables * orders, hidden, out_features, activation)

    def forward(self, y: Tensor) -> Tensor:
        """Return the outputs `(*B, T, out_features)` for `y (*B, T, V, R+1)`."""
        out: Tensor = self.network(y[..., : self.orders].flatten(-2))
        return out
