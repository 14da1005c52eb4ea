"""The 63 systems of ODEBench: equations with their constants, and two initial states each.

The definitions are those of d'Ascoli et al., "ODEFormer" (ICLR 2024), file `strogatz_equations.py`
of the repository sdascoli/odeformer; most are from Strogatz, "Nonlinear Dynamics and Chaos".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from smnn.equations import Tape, parse_expression

Array = NDArray[np.float64]
DURATION, POINTS = 10.0, 512
"""Time span and number of points of a trajectory."""


@dataclass(frozen=True)
class OdeSystem:
    """Autonomous equations with two initial states."""

    number: int
    equations: tuple[str, ...]
    starts: tuple[tuple[float, ...], ...]

    @property
    def names(self) -> list[str]:
        """Names of the variables: x0, x1, ..."""
        return [f"x{i}" for i in range(len(self.equations))]

    def rate(self) -> Callable[[Array], Array]:
        """The right-hand side for states (V, N)."""
        tape = Tape(self.names)
        slots = [tape.add(parse_expression(text, self.names)) for text in self.equations]

        def rate(x: Array) -> Array:
            values: list[Any] = tape.run(x)
            return np.array([np.broadcast_to(values[slot], x.shape[1:]) for slot in slots])

        return rate

    def trajectory(self, start: int) -> tuple[Array, Array]:
        """Times (POINTS,) and states (POINTS, V) from one of the initial states."""
        t, rate = np.linspace(0, DURATION, POINTS), self.rate()
        found = solve_ivp(
            lambda _, x: rate(x), (0, DURATION), self.starts[start], t_eval=t, method="LSODA",
            rtol=1e-9, atol=1e-11,
        )  # fmt: skip
        return t, found.y.T


_DEFINITIONS = """
(0.7 - x0 / 1.2) / 2.31 @ 10; 3.54
0.23 * x0 @ 4.78; 0.87
0.79 * x0 * (1 - x0 / 74.3) @ 7.3; 21
1 / (1 + exp(0.5 - x0 / 0.96)) - 0.5 @ 0.8; 0.02
9.81 - 0.0021175 * x0^2 @ 0.5; 73
2.1 * x0 - 0.5 * x0^2 @ 0.13; 2.24
0.032 * x0 * log(2.29 * x0) @ 1.73; 9.5
0.14 * x0 * (1 - x0 / 130) * (x0 / 4.4 - 1) @ 6.123; 2.1
(1 - x0) * 0.32 - x0 * 0.28 @ 0.14; 0.55
(1 - x0) * 0.2 * x0^1.2 - x0 * (1 - 0.2) * (1 - x0)^1.2 @ 0.83; 0.34
- x0^3 @ 3.4; 1.6
1.8 * x0 - 0.1107 * x0^2 @ 11; 1.3
0.0981 * sin(x0) * (9.7 * cos(x0) - 1) @ 3.1; 2.4
0.78 * x0 * (1 - x0 / 81) - 0.9 * x0^2 / (21.2^2 + x0^2) @ 2.76; 23.3
0.4 * x0 * (1 - x0 / 95) - x0^2 / (1 + x0^2) @ 44.3; 4.5
0.1 * x0 - (-0.04) * x0^3 - 0.001 * x0^5 @ 0.94; 1.65
0.4 * x0 * (1 - x0 / 100) - 0.3 @ 14.3; 34.2
0.4 * x0 * (1 - x0 / 100) - 0.24 * x0 / (50 + x0) @ 21.1; 44.1
x0 * (1 - x0) - 0.08 * x0 / (0.8 + x0) @ 0.13; 0.03
0.1 - 0.55 * x0 + x0^2 / (1 + x0^2) @ 0.002; 0.25
1.2 - 0.2 * x0 - exp(-x0) @ 0; 0.8
1.4 + 0.4 * x0^5 / (123 + x0^5) - 0.89 * x0 @ 3.1; 6.3
0.21 - sin(x0) @ -2.74; 1.65
x1 | - 2.1 * x0 @ 0.4 -0.03; 0 0.2
x1 | - 4.5 * x0 - 0.43 * x1 @ 0.12 0.043; 0 -0.3
x0 * (3 - x0 - 2 * x1) | x1 * (2 - x0 - x1) @ 5 4.3; 2.3 3.6
x0 * (1.84 - 1.45 * x1) | - x1 * (3 - 1.62 * x0) @ 8.3 3.4; 0.4 0.65
x1 | - 0.9 * sin(x0) @ -1.9 0; 0.3 0.8
0.65 * x0 * x1 | x1^2 - x0^2 @ 3.2 1.4; 1.3 0.2
x0 * (x1 - 1.61 * x0 * x1) | x1 * (x0 - 1.61 * x0 * x1) @ 0.3 0.04; 0.1 0.21
- 0.4 * x0 * x1 | 0.4 * x0 * x1 - 0.314 * x1 @ 7.2 0.98; 20 12.4
x1 | - 0.18 * x1 + x0 - x0^3 @ -1.8 -1.8; 5.8 0
- sin(x1) - 0.08 * x0^2 | x0 - cos(x1) / x0 @ 5 0.7; 9.81 -0.8
x1 | sin(x0) * (cos(x0) - 0.93) @ 2.1 0; -1.2 -0.2
cos(x1)/sin(x1) * cos(x0) | sin(x0) * (cos(x1)^2 + 4.2 * sin(x1)^2) @ 1.13 -0.3; 2.4 1.7
x1 | - sin(x0) - x1 - 0.07 * cos(x0) * x1 @ 0.45 0.9; 1.34 -0.8
x1 | - x0 - 0.43 * (x0^2 - 1) * x1 @ 2.2 0; 0.1 3.2
3.37 * (x1 - x0^3 / 3 + x0) | - x0 / 3.37 @ 0.7 0; -1.1 -0.7
- x0 + 2.4 * x1 + x0^2 * x1 | 0.07 - 2.4 * x0 - x0^2 * x1 @ 0.4 0.31; 0.2 -0.7
x1 | - x0 + 0.886 * x1 * (1 - x0^2) @ 0.63 -0.03; 0.2 0.2
15.3 * (x1 - x0) * (0.001 + x0^2) - x0 | 0.3 - x0 @ 0.8 0.3; 0.02 1.2
8.9 - x0 - 4 * x0 * x1 / (1 + x0^2) | 1.4 * x0 * (1 - x1 / (1 + x0^2)) @ 0.2 0.35; 3 7.8
x1 | 1.67 - sin(x0) - 0.64 * x1 @ 1.47 -0.2; -1.9 0.03
x1 | 1.67 - sin(x0) - 0.64 * x1 * abs(x1) @ 1.47 -0.2; -1.9 0.03
0.5 * (1 - x0) - x0 * x1^2 | x0 * x1^2 - 0.02 * x1 @ 1.4 0.2; 0.32 0.64
0.33 * sin(x0 - x1) - sin(x0) | 0.33 * sin(x1 - x0) - sin(x1) @ 0.54 -0.1; 0.43 1.21
- x0 + 1 / (1 + exp(4.89 * x1 - 1.4)) | - x1 + 1 / (1 + exp(4.89 * x0 - 1.4)) @ 0.65 0.59; 3.2 \
10.3
18.3 - x0 - x0 * x1 / (1 + 0.48 * x0^2) | 11.23 - x0 * x1 / (1 + 0.48 * x0^2) @ 0.1 30.4; 13.2 \
5.21
1 - (3.03 + 1) * x0 + 3.1 * x0^2 * x1 | 3.03 * x0 - 3.1 * x0^2 * x1 @ 0.7 -1.4; 2.1 1.3
0.24 - x0 + x0^2 * x1 | 1.43 - x0^2 * x1 @ 0.14 0.6; 1.5 0.9
1.432 + sin(x1) * cos(x0) | 0.972 + sin(x1) * cos(x0) @ 2.2 0.67; 0.03 -0.12
0.1 * (x1 - x0) | 0.21 * (x0 * x2 - x1) | 0.34 * (3.1 + 1 - x2 - 3.1 * x0 * x1) @ 1.3 1.1 0.89; \
0.89 1.3 1.1
0.1 - 0.4 * x1 * x0 / (0.1 + x0) - 0.05 * x0 | 0.6 * x2 * (0.1 + x1) - 0.2 * x1 / (0.1 + x1) - \
7.95 * x0 * x1 / (2 + x1) | - 0.6 * x2 * (0.1 + x1) + 0.2 * x1 / (0.1 + x1) + 7.95 * x0 * x1 / \
(2 + x1) @ 0.005 0.26 2.15; 0.248 0.0973 0.0027
5.1 * (x1 - x0) | 12 * x0 - x1 - x0 * x2 | x0 * x1 - 1.67 * x2 @ 2.3 8.1 12.4; 10 20 30
10 * (x1 - x0) | 99.96 * x0 - x1 - x0 * x2 | x0 * x1 - 2.6666666666666665 * x2 @ 2.3 8.1 12.4; \
10 20 30
10 * (x1 - x0) | 28 * x0 - x1 - x0 * x2 | x0 * x1 - 2.6666666666666665 * x2 @ 2.3 8.1 12.4; 10 \
20 30
5 * (- x1 - x2) | 5 * (x0  + (-0.2) * x1) | 5 * (0.2 + x2 * (x0 - 5.7)) @ 2.3 1.1 0.8; -0.1 4.1 \
-2.1
5 * (- x1 - x2) | 5 * (x0  + 0.1 * x1) | 5 * (0.2 + x2 * (x0 - 5.7)) @ 2.3 1.1 0.8; -0.1 4.1 \
-2.1
5 * (- x1 - x2) | 5 * (x0  + 0.2 * x1) | 5 * (0.2 + x2 * (x0 - 5.7)) @ 2.3 1.1 0.8; -0.1 4.1 \
-2.1
x0 * (x2 - 0.7) - 3.5 * x1 | 3.5 * x0 + x1 * (x2 - 0.7) | 0.65 + 0.95 * x2 - x2^3 / 3 - (x0^2 + \
x1^2) * (1 + 0.25 * x2) + 0.1 * x2 * x0^3 @ 0.1 0.05 0.05; -0.3 0.2 0.1
5 * x0 - x1 * x2 | (-10) * x1 + x0 * x2 | (-3.8) * x2 + x0 * x1 / 3 @ 15 -15 -15; 8 14 -10
- x0 + 1 / (1 + exp(0.89 * x2 + 0.4 * x1 - 1.4)) | 1 * (x0 - x1) | - x2 + 1 / (1 + exp(0.89 * x0 \
+ 0.4 * x3 - 1.4)) | 1 * (x2 - x3) @ 2.25 -0.5 -1.13 0.4; 0.342 -0.431 -0.86 0.041
- 0.28 * x0 * x2 | 0.28 * x0 * x2 - 0.47 * x1 | 0.47 * x1 - 0.3 * x2 | 0.3 * x2 @ 0.6 0.3 0.09 \
0.01; 0.4 0.3 0.25 0.05
"""


def _system(number: int, line: str) -> OdeSystem:
    text, states = line.split("@")
    starts = tuple(tuple(map(float, part.split())) for part in states.split(";"))
    return OdeSystem(number, tuple(part.strip() for part in text.split("|")), starts)


SYSTEMS = tuple(
    _system(i, line) for i, line in enumerate(_DEFINITIONS.strip().splitlines(), start=1)
)
