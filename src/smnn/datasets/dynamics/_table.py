"""Systems with polynomial right-hand sides, given as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources

from smnn.datasets.dynamics._system import RightHandSide, System
from smnn.datasets.dynamics._terms import Basis, canonical

_TERM = re.compile(r"\s*([+-]?)\s*([0-9.]+(?:e-?[0-9]+)?)?\s*([^+-]*)")
_STATES = {2: "xy", 3: "xyz", 4: "xyzw", 6: "xyzuvw"}
_GILPIN = "Gilpin, NeurIPS Datasets (2021), which names the source"
_FUNG = "Fung, Fasel and Juniper, Proc. R. Soc. A 481 (2025)"
PER_PERIOD, PERIODS = 100, 15
"""Samples per period, and periods, of the systems of dysts."""


def polynomial_system(
    name: str, start: Sequence[float], equations: Sequence[str], reference: str, dt: float, n: int,
) -> System:  # fmt: skip
    """A system whose equations are sums such as `10 y - 10 x`."""
    variables = tuple(_STATES[len(equations)])
    parsed = [_polynomial(text, variables) for text in equations]
    truth = dict(zip((f"{v}'" for v in variables), parsed, strict=True))
    degree = max(sum(_powers(term, variables)) for terms in parsed for term in terms)
    basis = Basis(max(degree, 2))
    return System(
        name, variables, basis, reference, _rate(parsed, variables), truth, (tuple(start),), dt, n
    )


def _polynomial(text: str, variables: Sequence[str]) -> dict[str, float]:
    terms = {}
    for sign, number, name in _TERM.findall(text):
        if number or name.strip():
            value = float(number or 1) * (-1 if sign == "-" else 1)
            terms[canonical(name.strip() or "1", variables)] = value
    return terms


def _powers(term: str, variables: Sequence[str]) -> list[int]:
    factors = dict(factor.partition("^")[::2] for factor in term.split()) if term != "1" else {}
    return [int(factors[v] or 1) if v in factors else 0 for v in variables]


def _rate(equations: Sequence[dict[str, float]], variables: Sequence[str]) -> RightHandSide:
    rows = [
        [(a, [i for i, p in enumerate(_powers(term, variables)) for _ in range(p)])
         for term, a in terms.items()]
        for terms in equations
    ]  # fmt: skip

    def rate(t: float, s: Sequence[float]) -> list[float]:
        out = []
        for row in rows:
            total = 0.0
            for value, factors in row:
                for i in factors:
                    value *= s[i]
                total += value
            out.append(total)
        return out

    return rate


def _dysts() -> tuple[System, ...]:
    text = (resources.files("smnn.datasets") / "data" / "dysts.txt").read_text("utf-8")
    found = []
    for line in text.splitlines():
        if not line.startswith("#"):
            name, period, start, equations = line.split("; ")
            found.append(
                polynomial_system(
                    name, [float(x) for x in start.split()], equations.split(" | "), _GILPIN,
                    float(period) / PER_PERIOD, PER_PERIOD * PERIODS,
                )
            )  # fmt: skip
    return tuple(found)


DYSTS = _dysts()
"""The polynomial systems of the collection dysts, sampled 100 times per period over 15 periods."""

NOISE_MAPS = (
    polynomial_system(
        "Lorenz", (-8, 8, 27), ("-10 x + 10 y", "28 x - y - x z", "-2.6666666666666665 z + x y"),
        _FUNG, 0.01, 1000,
    ),
    polynomial_system(
        "van der Pol", (-2, 1), ("y", "-x + 0.5 y - 0.5 x^2 y"), _FUNG, 0.01, 1200
    ),
    polynomial_system(
        "Rössler", (-6, 5, 0), ("-y - z", "x + 0.2 y", "0.2 - 5.7 z + x z"), _FUNG, 0.05, 600
    ),
)  # fmt: skip
"""Systems and initial states for which ODR-BINDy was published."""
