"""Numbers in text: decimal signs, thousands separators, units, missing values, and sentinels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from smnn.errors import DataError

MISSING = frozenset(
    {"", "na", "n/a", "#n/a", "nan", "-nan", "null", "nil", "none", "-", "--", "?", ".", "<na>",
     "nat", "–", "—", "..", "...", "…", "\x1a"}
)  # fmt: skip
"""Missing values in lower case that need no mention."""
MARKERS = frozenset(
    {"n.d.", "n.d", "nd", "n.a.", "n.a", "missing", "*", "lod", "loq", "bdl", "k.a.", "#div/0!",
     "#value!", "#num!", "1.#qnan", "-1.#ind", "nan(ind)", "-nan(ind)"}
)  # fmt: skip
"""Missing values in lower case that are counted and reported."""
UNIT = re.compile(
    r"\[.*\]|\(.*\)|1|%|‰|-|°[CF]?|[Dd]eg ?[CF]?|TS|RN|ppm|ppb"
    r"|[µμnmkMGcdhp]?(s|m|g|A|K|mol|M|Hz|N|Pa|J|W|C|V|F|L|l|rad|eV|bar|cd|Ohm|Ω|S|T|b|B)|min|h|hr|d|days?|yr|years?|sec|seconds?|hours?|minutes?"
    r"|lx|psi|rpm|psu|[Cc]elsius|[Ff]ahrenheit|[Kk]elvin|percent|pct|degrees?|counts?|unitless|dimensionless"
    r"|(?=.*[/*^·])[\w°µμ%/*^·().-]+"
)
_CENSORED = re.compile(r"[<>≤≥]\s*(lo[dq]|m?dl|b[dq]l|\d[\d.,eE+-]*)", re.IGNORECASE)
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_WITH_UNIT = re.compile(
    r"(?P<sign>[+-]?)(?P<before>[€$£¥]?)\s*(?P<body>[+-]?(?:\d.*[\d.,]|\d|[.,]\d+))"
    r"(?:\s*(?P<after>[%‰€$£¥]|°[CF]?)|\s(?P<word>[^\W\d_]\S{0,9}))?"
)
_NUMBER = {
    d: re.compile(rf"[+-]?(?:\d+(?:{re.escape(d)}\d*)?|{re.escape(d)}\d+)(?:[eEdD][+-]?\d+)?")
    for d in ".,"
}
_GROUPED = {
    d: re.compile(
        rf"[+-]?\d{{1,3}}(?P<s>[{other}'’\u00a0\u202f\u2009 ])\d{{3}}(?:(?P=s)\d{{3}})*"
        rf"(?:{re.escape(d)}\d*)?"
    )
    for d, other in ((".", ","), (",", "."))
}
EITHER = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
"""A decimal comma or a thousands separator: only other numbers can tell."""
CERTAIN = {
    d: re.compile(
        rf"[+-]?(0?{a}\d+|\d+{a}(\d{{1,2}}|\d{{4,}})|\d{{4,}}{a}\d+|\d{{1,3}}([{b} \u00a0\u202f]"
        rf"\d{{3}})+{a}\d*)([eE][+-]?\d+)?|[+-]?\d{{1,3}}([{b}]\d{{3}}){{2,}}"
    )
    for d, a, b in ((",", ",", "."), (".", r"\.", ","))
}
_NINES = [float("9" * n) for n in range(2, 8)] + [99.9, 999.9, 9999.9, 99.99, 999.99]
SENTINELS = {s * v for v in _NINES for s in (1.0, -1.0)} - {99.0, 99.9, 99.99} | {
    -888.0, -888.8, -888.88, -999.25, -6999.0, 6999.0, -8888.0, -32767.0, -32768.0, 32767.0,
    65535.0,
}  # fmt: skip
HUGE = 1e20
"""Size from which any isolated number stands for a missing value, as those of NetCDF."""


def is_missing(text: str) -> bool:
    """Whether a field stands for a missing value."""
    low = text.strip().lower()
    return low in MISSING or low in MARKERS or bool(_CENSORED.fullmatch(low))


def is_number(text: str) -> bool:
    """Whether a field is a number with either decimal sign."""
    text = split_unit(text.strip())[0]
    return bool(_INFINITE.fullmatch(text)) or any(parse(text, d) is not None for d in ".,")


def split_unit(text: str) -> tuple[str, str]:
    """A number and the unit beside it: `45 %`, `$1,200`, `1.5 kg`."""
    found = _WITH_UNIT.fullmatch(text) if not text[-1:].isdigit() or text[:1] in "$€£¥-+" else None
    if found is None or (found["word"] and not UNIT.fullmatch(found["word"])):
        return text, ""
    unit = found["before"] or found["after"] or found["word"] or ""
    return (found["sign"] + found["body"], unit) if unit else (text, "")


def decimal_sign(fields: Iterable[str], delimiter: str) -> str:
    """`.` or `,`, or nothing where fields such as `1,234` leave it open."""
    counts: Counter[str] = Counter()
    for field in (split_unit(field)[0] for field in fields):
        counts.update(d for d, pattern in CERTAIN.items() if pattern.fullmatch(field))
        counts["?"] += bool(EITHER.fullmatch(field))
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
) -> tuple[np.ndarray, np.ndarray, Counter[str], dict[str, str]]:
    """Text as floats.

    Returns:
        The values, NaN where missing; where an entry is not a number; markers of missing values
        that deserve a note, with their counts; the units beside the numbers, each with an entry.

    Raises:
        DataError: Commas may be decimal signs or thousands separators.
    """
    known: dict[str, float] = {}
    markers: Counter[str] = Counter()
    units: dict[str, str] = {}
    for text, count in Counter(texts).items():
        entry = text.strip()
        known[text] = np.nan
        if entry.lower() in MISSING or entry.lower() in na:
            continue
        if is_missing(entry):
            markers[entry] += count
            continue
        body, unit = split_unit(entry)
        if not decimal and EITHER.fullmatch(body):
            plain = body.replace(",", ".")
            raise DataError(
                f"got {entry!r}, which may be {plain} (decimal comma) or "
                f"{plain.replace('.', '')} (thousands separator). State which with decimal=',' or "
                "decimal='.'."
            )
        value = parse(body, decimal or ".")
        known[text] = np.inf if value is None else value
        if value is not None:
            units.setdefault(unit, entry)
    values = np.fromiter((known[text] for text in texts), np.float64, len(texts))
    return values, np.isinf(values), markers, units


def sentinels(values: np.ndarray) -> dict[float, int]:
    """Numbers such as -999 that stand for missing values: far from all the others."""
    found: dict[float, int] = {}
    rest = values[np.isfinite(values)]
    while len(rest):
        for v, sign in ((float(rest.min()), -1), (float(rest.max()), 1)):
            if not (v in SENTINELS or abs(v) >= HUGE) or v * sign < 0:
                continue
            count, others = int((rest == v).sum()), rest[rest != v]
            if len(np.unique(others[:1000])) < 2:
                continue
            gap = float(np.abs(others - v).min())
            if gap > 2.0 * np.ptp(others) or (v < 0 <= others.min() and count > 1):
                found[v], rest = count, others
                break
        else:
            break
    return found


def repeated_outlier(values: np.ndarray) -> tuple[float, int] | None:
    """A number that occurs again and again, far from all others, and how often; `None` if none."""
    rest = values[np.isfinite(values)]
    for v in (rest.min(), rest.max()) if len(rest) > 5 else ():
        at, others = rest == v, rest[rest != v]
        if at.sum() < 3 or 2 * at.sum() > len(rest) or len(np.unique(others[:1000])) < 3:
            continue
        if np.abs(others - v).min() > 2.0 * np.ptp(others):
            return float(v), int(at.sum())
    return None


def times_text(count: int) -> str:
    """`once`, `2 times`."""
    return "once" if count == 1 else f"{count:,} times"
