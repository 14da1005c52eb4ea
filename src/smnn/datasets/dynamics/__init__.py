"""Dynamical systems with known equations for equation discovery, and a measured data set.

>>> from smnn.datasets.dynamics import find_system, simulate
>>> system = find_system("Lorenz")
>>> (series,) = simulate(system, noise=0.01, seed=0)
>>> series.x.shape, system.truth["z'"]
((10000, 3), {'z': -2.6666666666666665, 'x y': 1})
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smnn._util.names import find
from smnn._util.optional import require
from smnn.datasets.dynamics._records import HARE_LYNX as HARE_LYNX
from smnn.datasets.dynamics._system import Problem as Problem
from smnn.datasets.dynamics._system import Record as Record
from smnn.datasets.dynamics._system import Series as Series
from smnn.datasets.dynamics._system import System as System
from smnn.datasets.dynamics._system import add_noise as add_noise
from smnn.datasets.dynamics._system import simulate as simulate
from smnn.datasets.dynamics._systems import LORENZ as LORENZ
from smnn.datasets.dynamics._systems import SYSTEMS as SYSTEMS
from smnn.datasets.dynamics._table import DYSTS as DYSTS
from smnn.datasets.dynamics._table import NOISE_MAPS as NOISE_MAPS
from smnn.datasets.dynamics._terms import Array as Array
from smnn.datasets.dynamics._terms import Basis as Basis
from smnn.datasets.dynamics._terms import canonical as canonical
from smnn.datasets.dynamics._terms import evaluate as evaluate


def find_system(name: str, among: Sequence[System] = SYSTEMS) -> System:
    """Find a system by its name or a unique beginning of it, ignoring case and accents.

    Raises:
        DataError: No system or several systems match; the message lists candidates.
    """
    return find(name, {system.name: system for system in among}, "system")


def paper_lorenz(n: int = 10_050) -> Series:
    """The exact Lorenz data of the paper and of the original MNN.

    They are computed by `scipy.integrate.odeint` with default tolerances from (1, 1, 1) on
    `linspace(0, 0.01 n, n)`. The spacing is therefore 0.01 n / (n - 1), slightly more than the 0.01
    that the experiment assumes, and the trajectory leaves the exact one after about 13 time units.

    Args:
        n: Number of samples; 10,050 give 10,000 windows of 50 samples.
    """
    odeint = require("scipy.integrate", "make the data of the paper").odeint

    def derivative(s: np.ndarray, t: float) -> tuple[float, ...]:
        x, y, z = s
        return 10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z

    t = np.linspace(0.0, 0.01 * n, n)
    return Series(t, odeint(derivative, (1.0, 1.0, 1.0), t))
