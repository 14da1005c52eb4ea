"""Tables for the tests of what is read: their text, and the files that hold it."""

from pathlib import Path
from typing import Any

import numpy as np

FEW = 6


def written(folder: Path, text: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows(columns: dict[str, Any], separator: str = ",") -> str:
    head = separator.join(columns)
    lines = [separator.join(map(str, row)) for row in zip(*columns.values())]
    return "\n".join([head, *lines]) + "\n"


def curve(n: int = FEW) -> list[float]:
    return [float(v) for v in np.round(np.sin(np.arange(n)) + 2, 4)]
