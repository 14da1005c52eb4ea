"""The systems, each defined by a right-hand side and by coefficients of terms.

Tests check that both agree. Parameters are the usual ones of the references; steps and lengths
correspond to typical measurements with 30 to 300 samples per cycle.
"""

from __future__ import annotations

from math import cos, sin

from smnn.datasets.dynamics._system import System
from smnn.datasets.dynamics._terms import Basis

_BRUNTON = "Brunton, Proctor and Kutz, PNAS 113 (2016) 3932"
_SPROTT = "Sprott, Chaos and Time-Series Analysis (2003), appendix A"

LORENZ = System(
    "Lorenz", ("x", "y", "z"), Basis(2), "Lorenz, J. Atmos. Sci. 20 (1963) 130",
    lambda t, s: (10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]),
    {"x'": {"x": -10, "y": 10}, "y'": {"x": 28, "y": -1, "x z": -1},
     "z'": {"z": -8 / 3, "x y": 1}},
    ((-8, 8, 27),), dt=0.01, n=10_000,
)  # fmt: skip

ROSSLER = System(
    "Rössler", ("x", "y", "z"), Basis(2), "Rössler, Phys. Lett. A 57 (1976) 397",
    lambda t, s: (-s[1] - s[2], s[0] + 0.2 * s[1], 0.2 + s[2] * (s[0] - 5.7)),
    {"x'": {"y": -1, "z": -1}, "y'": {"x": 1, "y": 0.2}, "z'": {"1": 0.2, "z": -5.7, "x z": 1}},
    ((3, 5, 0),), dt=0.02, n=5000,
)  # fmt: skip

LOTKA_VOLTERRA = System(
    "Lotka-Volterra", ("x", "y"), Basis(2), "Lotka (1925); Volterra (1926)",
    lambda t, s: (2 / 3 * s[0] - 4 / 3 * s[0] * s[1], s[0] * s[1] - s[1]),
    {"x'": {"x": 2 / 3, "x y": -4 / 3}, "y'": {"y": -1, "x y": 1}},
    ((1.8, 1.8),), dt=0.05, n=1000,
)  # fmt: skip

VAN_DER_POL = System(
    "van der Pol", ("x", "y"), Basis(3), "van der Pol, Phil. Mag. 2 (1926) 978",
    lambda t, s: (s[1], 2 * (1 - s[0] ** 2) * s[1] - s[0]),
    {"x'": {"y": 1}, "y'": {"x": -1, "y": 2, "x^2 y": -2}},
    ((0.5, 0.0),), dt=0.02, n=2000,
)  # fmt: skip

DUFFING = System(
    "Duffing (positions)", ("x",), Basis(3), "Duffing (1918), unforced double well",
    lambda t, s: (s[0] - s[0] ** 3 - 0.1 * s[1],),
    {"x''": {"x": 1, "x'": -0.1, "x^3": -1}},
    ((2.0, 0.0), (-1.7, 1.0), (0.2, -1.5)), dt=0.05, n=600, order=2,
)  # fmt: skip

PENDULUM = System(
    "Pendulum (angles)", ("x",), Basis(2, (1,)), "with friction; swinging and turning over",
    lambda t, s: (-9.81 * sin(s[0]) - 0.25 * s[1],),
    {"x''": {"x'": -0.25, "sin(x)": -9.81}},
    ((2.8, 0.0), (-1.5, 0.0), (0.0, 8.0)), dt=0.02, n=600, order=2,
)  # fmt: skip

FITZHUGH_NAGUMO = System(
    "FitzHugh-Nagumo", ("v", "w"), Basis(3), "FitzHugh, Biophys. J. 1 (1961) 445",
    lambda t, s: (s[0] - s[0] ** 3 / 3 - s[1] + 0.5, 0.08 * (s[0] + 0.7 - 0.8 * s[1])),
    {"v'": {"1": 0.5, "v": 1, "w": -1, "v^3": -1 / 3}, "w'": {"1": 0.056, "v": 0.08, "w": -0.064}},
    ((0.0, 0.0),), dt=0.1, n=2000,
)  # fmt: skip

SIR = System(
    "SIR epidemic", ("S", "I"), Basis(2), "Kermack and McKendrick, Proc. R. Soc. A 115 (1927) 700",
    lambda t, s: (-0.5 * s[0] * s[1], 0.5 * s[0] * s[1] - 0.12 * s[1]),
    {"S'": {"S I": -0.5}, "I'": {"I": -0.12, "S I": 0.5}},
    ((0.99, 0.01), (0.8, 0.02), (0.6, 0.1)), dt=0.2, n=400,
)  # fmt: skip

LOGISTIC = System(
    "Logistic (short series)", ("x",), Basis(3), "Verhulst (1838); 40 runs of 25 samples",
    lambda t, s: (0.8 * s[0] * (1 - s[0] / 2),),
    {"x'": {"x": 0.8, "x^2": -0.4}},
    tuple((0.05 + 0.08 * k,) for k in range(40)), dt=0.2, n=25,
)  # fmt: skip

_FIVE = ("a", "b", "c", "d", "e")


def _lorenz_96_truth() -> dict[str, dict[str, float]]:
    truth: dict[str, dict[str, float]] = {}
    for i, v in enumerate(_FIVE):
        before, two_before, after = _FIVE[i - 1], _FIVE[i - 2], _FIVE[(i + 1) % 5]
        gain, loss = (" ".join(sorted(pair)) for pair in ((after, before), (two_before, before)))
        truth[v + "'"] = {"1": 8, v: -1, gain: 1, loss: -1}
    return truth


LORENZ_96 = System(
    "Lorenz 96 (five)", _FIVE, Basis(2), "Lorenz, ECMWF Seminar on Predictability (1996)",
    lambda t, s: [(s[(i + 1) % 5] - s[i - 2]) * s[i - 1] - s[i] + 8 for i in range(5)],
    _lorenz_96_truth(),
    ((8.01, 8.0, 7.5, 9.0, 8.0),), dt=0.01, n=5000,
)  # fmt: skip

JERK = System(
    "Sprott jerk (positions)", ("x",), Basis(2), "Sprott, Phys. Lett. A 228 (1997) 271",
    lambda t, s: (-2.017 * s[2] + s[1] ** 2 - s[0],),
    {"x'''": {"x": -1, "x''": -2.017, "x'^2": 1}},
    ((3.3, 2.5, -2.5),), dt=0.05, n=4000, order=3,
)  # fmt: skip

LINEAR = System(
    "Damped oscillator", ("x", "y"), Basis(3), _BRUNTON,
    lambda t, s: (-0.1 * s[0] + 2 * s[1], -2 * s[0] - 0.1 * s[1]),
    {"x'": {"x": -0.1, "y": 2}, "y'": {"x": -2, "y": -0.1}},
    ((2.0, 0.0),), dt=0.02, n=1250,
)  # fmt: skip

CUBIC = System(
    "Cubic oscillator", ("x", "y"), Basis(3), _BRUNTON,
    lambda t, s: (-0.1 * s[0] ** 3 + 2 * s[1] ** 3, -2 * s[0] ** 3 - 0.1 * s[1] ** 3),
    {"x'": {"x^3": -0.1, "y^3": 2}, "y'": {"x^3": -2, "y^3": -0.1}},
    ((2.0, 0.0),), dt=0.01, n=2500,
)  # fmt: skip

SELKOV = System(
    "Selkov glycolysis", ("x", "y"), Basis(3), "Selkov, Eur. J. Biochem. 4 (1968) 79",
    lambda t, s: (-s[0] + 0.08 * s[1] + s[0] ** 2 * s[1], 0.6 - 0.08 * s[1] - s[0] ** 2 * s[1]),
    {"x'": {"x": -1, "y": 0.08, "x^2 y": 1}, "y'": {"1": 0.6, "y": -0.08, "x^2 y": -1}},
    ((1.0, 1.0), (0.2, 2.5)), dt=0.05, n=1000,
)  # fmt: skip

BRUSSELATOR = System(
    "Brusselator", ("x", "y"), Basis(3), "Prigogine and Lefever, J. Chem. Phys. 48 (1968) 1695",
    lambda t, s: (1 - 4 * s[0] + s[0] ** 2 * s[1], 3 * s[0] - s[0] ** 2 * s[1]),
    {"x'": {"1": 1, "x": -4, "x^2 y": 1}, "y'": {"x": 3, "x^2 y": -1}},
    ((1.0, 1.0), (2.5, 2.0)), dt=0.02, n=1500,
)  # fmt: skip

HOPF = System(
    "Hopf normal form", ("x", "y"), Basis(3), _BRUNTON,
    lambda t, s: (
        0.5 * s[0] - s[1] - s[0] * (s[0] ** 2 + s[1] ** 2),
        s[0] + 0.5 * s[1] - s[1] * (s[0] ** 2 + s[1] ** 2),
    ),
    {"x'": {"x": 0.5, "y": -1, "x^3": -1, "x y^2": -1},
     "y'": {"x": 1, "y": 0.5, "x^2 y": -1, "y^3": -1}},
    ((2.0, 0.0), (0.05, 0.0), (0.0, -1.4)), dt=0.02, n=1000,
)  # fmt: skip

CHUA = System(
    "Chua (cubic)", ("x", "y", "z"), Basis(3), "Zhong, IEEE Trans. Circuits Syst. I 41 (1994) 934",
    lambda t, s: (10 * (s[1] - s[0] ** 3 + 0.143 * s[0]), s[0] - s[1] + s[2], -16 * s[1]),
    {"x'": {"x": 1.43, "y": 10, "x^3": -10}, "y'": {"x": 1, "y": -1, "z": 1}, "z'": {"y": -16}},
    ((0.1, 0.0, 0.0),), dt=0.02, n=5000,
)  # fmt: skip

THOMAS = System(
    "Thomas (sines)", ("x", "y", "z"), Basis(1, (1,)),
    "Thomas, Int. J. Bifurcation Chaos 9 (1999) 1889",
    lambda t, s: (sin(s[1]) - 0.2 * s[0], sin(s[2]) - 0.2 * s[1], sin(s[0]) - 0.2 * s[2]),
    {"x'": {"x": -0.2, "sin(y)": 1}, "y'": {"y": -0.2, "sin(z)": 1},
     "z'": {"z": -0.2, "sin(x)": 1}},
    ((1.1, 1.1, -0.01),), dt=0.1, n=4000,
)  # fmt: skip

MEAN_FIELD = System(
    "Vortex mean field", ("x", "y", "z"), Basis(2), "Noack et al., J. Fluid Mech. 497 (2003) 335",
    lambda t, s: (
        0.1 * s[0] - s[1] - 0.1 * s[0] * s[2],
        s[0] + 0.1 * s[1] - 0.1 * s[1] * s[2],
        -10 * (s[2] - s[0] ** 2 - s[1] ** 2),
    ),
    {"x'": {"x": 0.1, "y": -1, "x z": -0.1}, "y'": {"x": 1, "y": 0.1, "y z": -0.1},
     "z'": {"z": -10, "x^2": 10, "y^2": 10}},
    ((0.01, 0.01, 0.0), (2.2, 0.0, 4.0), (0.5, -0.5, 3.0)), dt=0.03, n=1500,
)  # fmt: skip

HENON_HEILES = System(
    "Hénon-Heiles (positions)", ("x", "y"), Basis(2),
    "Hénon and Heiles, Astron. J. 69 (1964) 73",
    lambda t, s: (-s[0] - 2 * s[0] * s[1], -s[1] - s[0] ** 2 + s[1] ** 2),
    {"x''": {"x": -1, "x y": -2}, "y''": {"y": -1, "x^2": -1, "y^2": 1}},
    ((0.3, -0.2, 0.3, 0.2),), dt=0.05, n=4000, order=2,
)  # fmt: skip

HALVORSEN = System(
    "Halvorsen", ("x", "y", "z"), Basis(2), _SPROTT,
    lambda t, s: (
        -1.27 * s[0] - 4 * s[1] - 4 * s[2] - s[1] ** 2,
        -1.27 * s[1] - 4 * s[2] - 4 * s[0] - s[2] ** 2,
        -1.27 * s[2] - 4 * s[0] - 4 * s[1] - s[0] ** 2,
    ),
    {"x'": {"x": -1.27, "y": -4, "z": -4, "y^2": -1},
     "y'": {"y": -1.27, "z": -4, "x": -4, "z^2": -1},
     "z'": {"z": -1.27, "x": -4, "y": -4, "x^2": -1}},
    ((-5.0, 0.0, 0.0),), dt=0.01, n=5000,
)  # fmt: skip

COMPETITION = System(
    "Three species", ("x", "y", "z"), Basis(2),
    "May and Leonard, SIAM J. Appl. Math. 29 (1975) 243",
    lambda t, s: (
        s[0] * (1 - s[0] - 0.8 * s[1] - 1.3 * s[2]),
        s[1] * (1 - 1.3 * s[0] - s[1] - 0.8 * s[2]),
        s[2] * (1 - 0.8 * s[0] - 1.3 * s[1] - s[2]),
    ),
    {"x'": {"x": 1, "x^2": -1, "x y": -0.8, "x z": -1.3},
     "y'": {"y": 1, "x y": -1.3, "y^2": -1, "y z": -0.8},
     "z'": {"z": 1, "x z": -0.8, "y z": -1.3, "z^2": -1}},
    ((0.6, 0.2, 0.1), (0.05, 0.4, 0.7), (0.9, 0.1, 0.6), (0.1, 0.05, 0.1)), dt=0.1, n=600,
)  # fmt: skip


def _sweep(t: float) -> tuple[float]:
    """A sum of sines without common period."""
    return (2.0 * sin(0.9 * t) + 1.5 * sin(1.7 * t + 0.4) + cos(0.37 * t),)


DRIVEN = System(
    "Driven oscillator", ("x", "v"), Basis(3), "Duffing oscillator with a measured force u",
    lambda t, s: (s[1], -s[0] - 0.4 * s[1] - 0.5 * s[0] ** 3 + s[2]),
    {"x'": {"v": 1}, "v'": {"x": -1, "v": -0.4, "x^3": -0.5, "u": 1}},
    ((0.5, 0.0),), dt=0.02, n=4000, inputs=("u",), drive=_sweep,
)  # fmt: skip

SYSTEMS: tuple[System, ...] = (
    LORENZ, ROSSLER, LOTKA_VOLTERRA, VAN_DER_POL, DUFFING, PENDULUM, FITZHUGH_NAGUMO, SIR, LOGISTIC,
    LORENZ_96, JERK, LINEAR, CUBIC, SELKOV, BRUSSELATOR, HOPF, CHUA, THOMAS, MEAN_FIELD,
    HENON_HEILES, HALVORSEN, COMPETITION, DRIVEN,
)  # fmt: skip
"""All systems with known equations."""
