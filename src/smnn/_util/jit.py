"""Compilation by Numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def jit(*signature: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit`, cached on disk where Numba finds a folder that it may write to.

    There is none in a read-only installation if the home directory cannot be written either.
    """
    compiler: Any = numba.njit

    def compile_(function: Callable[..., Any]) -> Any:
        try:
            return compiler(*signature, cache=True, **options)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            return compiler(*signature, **options)(function)

    return compile_
