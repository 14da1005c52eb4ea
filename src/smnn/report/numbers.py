"""Formatting of numbers with a suitable number of digits."""

from __future__ import annotations

import math
from collections.abc import Sequence


def significant(value: float, digits: int = 4) -> str:
    """Format a number with a given number of significant digits: `28.00`, `-9.998`, `1.235e-5`."""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value == 0:
        return "0"
    exponent = _exponent(value, digits)
    if -4 <= exponent < max(digits, 6):
        return f"{value:.{max(0, digits - 1 - exponent)}f}"
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa}e{int(power)}"


def with_uncertainty(value: float, half: float) -> tuple[str, str, int]:
    """Round a value and the half width of its interval to the digits that the interval supports.

    The half width keeps one significant digit, or two if it begins with 1; the value keeps the
    same decimals, ten significant digits at most.

    Returns:
        Both as text, and the power of ten that multiplies both.
    """
    if not (math.isfinite(value) and math.isfinite(half)) or half <= 0:
        return significant(value), significant(half, 2), 0
    kept = 2 if f"{half:.1e}"[0] == "1" else 1
    top = _exponent(max(abs(value), half), 6)
    power = 0 if -4 <= top < 6 else top
    scaled = half / 10.0**power
    decimals = kept - 1 - _exponent(scaled, kept)
    largest = 9 - (top - power)
    if decimals > largest:
        return f"{value / 10.0**power:.{max(0, largest)}f}", significant(scaled, kept), power
    if decimals < 0:
        scale = 10.0 ** (-decimals)
        return (
            f"{round(value / 10.0**power / scale) * scale + 0.0:.0f}",
            f"{round(scaled / scale) * scale:.0f}",
            power,
        )
    middle = round(value / 10.0**power, decimals) + 0.0  # no minus before zero
    return f"{middle:.{decimals}f}", f"{scaled:.{decimals}f}", power


def plus_minus(value: float, half: float) -> str:
    """`9.998 ± 0.004`, or `(1.23 ± 0.05)e-7`."""
    middle, width, power = with_uncertainty(value, half)
    return f"{middle} ± {width}" if power == 0 else f"({middle} ± {width})e{power}"


def percent(share: float) -> str:
    """Format a fraction as a percentage; `0 %` and `100 %` are exact."""
    if 0 < share < 0.01:
        return "< 1 %"
    if 0.99 < share < 1:
        return "> 99 %"
    return f"{100 * share:.0f} %"


def _exponent(value: float, digits: int) -> int:
    """Return the exponent of the first digit after rounding."""
    return int(f"{abs(value):.{max(0, digits - 1)}e}".split("e")[1])


def probabilities(level: float | Sequence[float]) -> tuple[float, ...]:
    """Levels of intervals as probabilities, increasing; numbers from 10 to 100 are per cent.

    Raises:
        ValueError: One is neither.
    """
    levels = [level] if isinstance(level, int | float) else list(level)
    shares = sorted({float(x) / 100 if x >= 10 else float(x) for x in levels})
    if not shares or not 0 < shares[0] <= shares[-1] < 1:
        raise ValueError(
            f"level: got {level}; expected a probability such as 0.9, or per cent such as [80, 95]."
        )
    return tuple(shares)
