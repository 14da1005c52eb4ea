"""Numbers and tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table; all columns except the first are right-aligned."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def filled(head: list[str], rows: list[list[str]]) -> str:
    """A table without empty columns."""
    kept = [i for i in range(len(head)) if any(row[i] for row in rows)]
    return table([head[i] for i in kept], [[row[i] for i in kept] for row in rows])


def error(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"


def milliseconds(value: float | None) -> str:
    """Three significant digits, without an exponent."""
    if value is None:
        return ""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def mebibytes(value: dict[str, float] | None) -> str:
    return "" if value is None else f"{value['extra'] / 2**20:.1f}"


def machine(record: dict[str, Any]) -> str:
    m = record["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in m["versions"].items() if v and k != "smnn")
    threads = f"{m['threads']} thread{'s' if m['threads'] != 1 else ''}"
    return f"{m['processor']}, {threads}, {versions}; {m['utc'][:10]}."


def ratio(value: float | None) -> str:
    """A speedup factor."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
