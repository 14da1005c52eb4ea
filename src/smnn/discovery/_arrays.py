"""Array types, and small helpers for least squares."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Indices = np.ndarray[Any, np.dtype[np.int64]]


def triangle_of(rows: Array) -> Array:
    """Square triangular factor R of a QR decomposition, padded with zero rows."""
    width = rows.shape[1]
    R: Any = np.linalg.qr(rows, mode="r")
    return np.vstack([R, np.zeros((max(width - len(R), 0), width))])


def root_mean_square(values: Array) -> Array:
    """Root mean square over the first axis, bounded away from zero."""
    return np.asarray(np.maximum(np.sqrt((values**2).mean(0)), 1e-300))
