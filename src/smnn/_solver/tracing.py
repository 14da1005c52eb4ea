"""What `torch.compile` should know of a function, without loading it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])


def constant(function: F) -> F:
    """Mark a function whose result `torch.compile` may take for a constant.

    As `torch.compiler.assume_constant_result`, which imports the whole compiler to set this mark:
    a second at every `import smnn`.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
