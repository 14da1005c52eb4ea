"""Candidate terms: canonical names and values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_WAVE = re.compile(r"(sin|cos)\(\s*(?:([0-9.]+)\s*\*?\s*)?([^\W\d][\w']*)\s*\)")
_FACTOR = re.compile(r"([^\W\d][\w']*)(?:\^([0-9]+))?")


def canonical(name: str, variables: Sequence[str]) -> str:
    """The canonical name of a term: `y*x**2`, `x x y` and `x^2 y` are all `x^2 y`.

    Args:
        name: A product of integer powers of variables, `1`, or `sin` or `cos` of a multiple of a
            variable.
        variables: Names of the variables, in the order of factors.

    Raises:
        ValueError: The name is not of this form, or contains an unknown variable.
    """
    if wave := _WAVE.fullmatch(name.strip()):
        function, frequency, variable = wave[1], float(wave[2] or 1), wave[3]
        _known(variable, variables, name)
        return f"{function}({_multiple(frequency)}{variable})"
    text = re.sub(r"\s*\^\s*", "^", name.replace("**", "^").replace("*", " ")).strip()
    powers = dict.fromkeys(variables, 0)
    for part in () if text == "1" else text.split() or ("",):
        factor = _FACTOR.fullmatch(part)
        if factor is None:
            raise ValueError(
                f"cannot read the term {name!r}; expected a product such as 'x^2 y', '1', or "
                "'sin(2 x)'."
            )
        _known(factor[1], variables, name)
        powers[factor[1]] += int(factor[2] or 1)
    return monomial(powers)


def monomial(powers: Mapping[str, int]) -> str:
    """The name of a product of powers."""
    factors = (v if p == 1 else f"{v}^{p}" for v, p in powers.items() if p)
    return " ".join(factors) or "1"


def evaluate(name: str, values: Mapping[str, Array]) -> Array:
    """Values of a term with canonical name, for arrays of equal shape."""
    if wave := _WAVE.fullmatch(name):
        function = np.sin if wave[1] == "sin" else np.cos
        return np.asarray(function(float(wave[2] or 1) * values[wave[3]]), dtype=np.float64)
    out = np.ones_like(next(iter(values.values())))
    if name != "1":
        for factor in name.split(" "):
            variable, _, power = factor.partition("^")
            out = out * values[variable] ** int(power or 1)
    return out


@dataclass(frozen=True)
class Basis:
    """The candidate terms of a problem: monomials up to a degree, and sines and cosines."""

    degree: int
    frequencies: tuple[int, ...] = ()
    """`sin(k x)` and `cos(k x)` of every variable for every `k`."""

    def terms(self, variables: Sequence[str]) -> list[str]:
        """Names of the terms: monomials by degree, then sines and cosines by frequency."""
        found = []
        for degree in range(self.degree + 1):
            for choice in itertools.combinations_with_replacement(variables, degree):
                found.append(monomial({v: choice.count(v) for v in variables}))
        for k in self.frequencies:
            for v in variables:
                found += [f"sin({_multiple(k)}{v})", f"cos({_multiple(k)}{v})"]
        return found

    def features(self, x: Array, variables: Sequence[str]) -> Array:
        """Values of the terms, `(N, P)`, at the states `x (N, len(variables))`."""
        values = dict(zip(variables, x.T, strict=True))
        return np.stack([evaluate(name, values) for name in self.terms(variables)], axis=-1)


def _multiple(frequency: float) -> str:
    return "" if frequency == 1 else f"{frequency:g} "


def _known(variable: str, variables: Sequence[str], name: str) -> None:
    if variable not in variables:
        raise ValueError(
            f"the term {name!r} uses {variable!r}; expected variables out of "
            f"{', '.join(variables)}."
        )
