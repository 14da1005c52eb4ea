"""Numbers in text: decimal signs, thousands separators, missing values, and sentinels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from smnn.errors import DataError

MISSING = frozenset(
    ["", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "-", "--", "?", ".", "<na>", "nat"]
)
"""Missing values in lower case that need no mention."""
MARKERS = frozenset(
    ["n.d.", "n.d", "nd", "n.a.", "n.a", "missing", "*", "lod", "loq", "bdl", "#div/0!", "#value!"]
)
"""Missing values in lower case that are counted and reported."""
_CENSORED = re.compile(r"[<>≤≥]\s*(lo[dq]|m?dl|b[dq]l|\d[\d.,eE+-]*)", re.IGNORECASE)
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_NUMBER = {
    d: re.compile(rf"[+-]?(?:\d+(?:{re.escape(d)}\d*)?|{re.escape(d)}\d+)(?:[eEdD][+-]?\d+)?")
    for d in ".,"
}
_GROUPED = {
    d: re.compile(
        rf"[+-]?\d{{1,3}}(?P<s>[{other}'\u00a0\u202f\u2009 ])\d{{3}}(?:(?P=s)\d{{3}})*"
        rf"(?:{re.escape(d)}\d*)?"
    )
    for d, other in ((".", ","), (",", "."))
}
_EITHER = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
"""A decimal comma or a thousands separator: only other numbers can tell."""
_CERTAIN = {
    d: re.compile(
        rf"[+-]?(0?{a}\d+|\d+{a}(\d{{1,2}}|\d{{4,}})|\d{{4,}}{a}\d+|\d{{1,3}}({b}\d{{3}})+{a}\d*)"
        r"([eE][+-]?\d+)?"
    )
    for d, a, b in ((",", ",", "[. \u00a0\u202f]"), (".", r"\.", "[, \u00a0\u202f]"))
}
_NINES = [float("9" * n) for n in range(2, 8)] + [99.9, 999.9, 9999.9, 99.99, 999.99]
SENTINELS = {s * v for v in (*_NINES, 1e20, 1e30) for s in (1.0, -1.0)} - {99.0, 99.9, 99.99}


def is_missing(text: str) -> bool:
    """Whether a field stands for a missing value."""
    low = text.strip().lower()
    return low in MISSING or low in MARKERS or _is_censored(low)


def _is_censored(text: str) -> bool:
    return text[:1] in "<>≤≥" and bool(_CENSORED.fullmatch(text))


def is_number(text: str) -> bool:
    """Whether a field is a number with either decimal sign."""
    text = text.strip()
    return bool(_INFINITE.fullmatch(text)) or any(parse(text, d) is not None for d in ".,")


def decimal_sign(fields: Iterable[str], delimiter: str) -> str:
    """`.` or `,`, or nothing where fields such as `1,234` leave it open."""
    counts: Counter[str] = Counter()
    for field in fields:
        counts.update(d for d, pattern in _CERTAIN.items() if pattern.fullmatch(field))
        counts["?"] += bool(_EITHER.fullmatch(field))
    if counts[","] > counts["."]:
        return ","
    return "" if counts["?"] and not counts["."] and delimiter != "," else "."


def parse(text: str, decimal: str) -> float | None:
    """A finite number, or `None`."""
    text = text.replace("−", "-")
    if _NUMBER[decimal].fullmatch(text):
        found = float(text.replace(decimal, ".").replace("d", "e").replace("D", "e"))
        return found if np.isfinite(found) else None
    if match := _GROUPED[decimal].fullmatch(text):
        return float(text.replace(match["s"], "").replace(decimal, "."))
    return None


def numbers(
    texts: Sequence[str], decimal: str, na: frozenset[str]
) -> tuple[np.ndarray, np.ndarray, Counter[str]]:
    """Text as floats.

    Returns:
        The values, NaN where missing; where an entry is not a number; markers of missing values
        that deserve a note, with their counts.

    Raises:
        DataError: Commas may be decimal signs or thousands separators.
    """
    counts = Counter(texts)
    known: dict[str, float] = {}
    markers: Counter[str] = Counter()
    for text, count in counts.items():
        low = text.strip().lower()
        if low in MISSING or low in na:
            known[text] = np.nan
        elif low in MARKERS or _is_censored(low):
            known[text] = np.nan
            markers[text.strip()] += count
        else:
            if not decimal and _EITHER.fullmatch(text.strip()):
                plain = text.strip().replace(",", ".")
                raise DataError(
                    f"got {text.strip()!r}, which may be {plain} (decimal comma) or "
                    f"{plain.replace('.', '')} (thousands separator). State which sign precedes "
                    "the decimals: decimal=',' or decimal='.'."
                )
            value = parse(text.strip(), decimal or ".")
            known[text] = np.inf if value is None else value
    values = np.fromiter((known[text] for text in texts), np.float64, len(texts))
    bad = np.isinf(values)
    return values, bad, markers


def sentinels(values: np.ndarray) -> dict[float, int]:
    """Numbers such as -999 that stand for missing values: far from all the others."""
    found: dict[float, int] = {}
    rest = values[np.isfinite(values)]
    while len(rest):
        low, high = float(rest.min()), float(rest.max())
        for v in (low, high):
            count = int((rest == v).sum())
            others = rest[rest != v]
            if v not in SENTINELS or len(np.unique(others[:1000])) < 2:
                continue
            gap = float(np.abs(others - v).min())
            if gap > 2.0 * np.ptp(others) or (v < 0 <= others.min() and count > 1):
                found[v], rest = count, others
                break
        else:
            break
    return found
