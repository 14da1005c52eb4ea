"""Numbers as text: rounding that neither hides nor invents digits."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smnn.report.numbers import percent, plus_minus, significant, with_uncertainty


@pytest.mark.parametrize(
    ("value", "text"),
    [(28, "28.00"), (9.9996, "10.00"), (-9.998, "-9.998"), (0, "0"), (123456.7, "123457"),
     (1234567, "1.235e6"), (1.234567e-5, "1.235e-5"), (0.00012, "0.0001200"), (9.9999e5, "1.000e6"),
     (math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan"), (1e-300, "1.000e-300")],
)  # fmt: skip
def test_significant(value: float, text: str) -> None:
    assert significant(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 10))
def test_significant_is_near(value: float, digits: int) -> None:
    if abs(value) > 1e307:
        return
    assert abs(float(significant(value, digits)) - value) <= 0.5001 * 10.0 ** (1 - digits) * abs(
        value
    )


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [(9.99984, 0.0031, "10.000 ± 0.003"), (1e-7, 3e-9, "(1.00 ± 0.03)e-7"),
     (0.02, 0.3, "0.0 ± 0.3"), (1, 0.15, "1.00 ± 0.15"), (1, 0.196, "1.0 ± 0.2"),
     (-0.02, 0.3, "0.0 ± 0.3"), (123456, 3000, "123000 ± 3000"), (1234567, 3e4, "(1.23 ± 0.03)e6"),
     (5, 0.00996, "5.000 ± 0.010"), (5, 0.0996, "5.00 ± 0.10"), (1, 0.14, "1.00 ± 0.14"),
     (-30, 200, "0 ± 200"), (1.5, 0.0, "1.500 ± 0"), (1.5, math.inf, "1.500 ± inf"),
     (2.0000000001, 3e-14, "2.000000000 ± 3e-14")],
)  # fmt: skip
def test_plus_minus(value: float, half: float, text: str) -> None:
    assert plus_minus(value, half) == text


@given(st.floats(1e-30, 1e30), st.floats(1e-8, 1e8), st.sampled_from([-1.0, 1.0]))
def test_the_interval_survives_rounding(size: float, share: float, sign: float) -> None:
    """What is printed lies within half a digit of the half width."""
    value, half = sign * size, size * share
    middle, width, power = with_uncertainty(value, half)
    factor = 10.0**power
    assert abs(float(width) * factor - half) <= 0.26 * half
    assert abs(float(middle) * factor - value) <= max(0.51 * half, 1e-9 * abs(value))
    assert not re.fullmatch(r"-0(\.0*)?", middle)


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (0.004, "< 1 %"), (0.5, "50 %"), (0.996, "> 99 %"), (1, "100 %")],
)
def test_percent(share: float, text: str) -> None:
    assert percent(share) == text
