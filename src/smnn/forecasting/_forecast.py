"""What a forecast is: means, intervals, and the parts they are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from smnn._util.optional import require

Interval = Callable[[float], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Forecast:
    """A forecast of one or many series. Arrays are `(H, *shape)`, time first."""

    t: np.ndarray
    """`(H,)` future times: dates or numbers, as the history has them."""
    mean: np.ndarray
    """Expected value; the median of a series that is modelled by its logarithm."""
    lower: np.ndarray
    """Lower end of the prediction interval."""
    upper: np.ndarray
    """Upper end of the prediction interval."""
    level: float
    """Probability that the interval is meant to hold."""
    components: dict[str, np.ndarray]
    """Parts that add up to the mean (to its logarithm where `log` says so)."""
    log: np.ndarray
    """`shape`, which series are modelled by their logarithms."""
    names: tuple[str, ...]
    """One for each series."""
    _interval: Interval = field(repr=False, compare=False)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends at another level, `(H, *shape)` each."""
        if not 0 < level < 1:
            raise ValueError(f"level: got {level}; expected a probability between 0 and 1.")
        return self._interval(level)

    def frame(self) -> Any:
        """A pandas table: one row for each series and time."""
        pandas = require("pandas", "make a table of a forecast")
        H, S = len(self.t), len(self.names)
        flat = {
            name: getattr(self, name).reshape(H, S).T.ravel() for name in ("mean", "lower", "upper")
        }
        index = {"series": np.repeat(self.names, H), "t": np.tile(self.t, S)}
        return pandas.DataFrame({**index, **flat})
