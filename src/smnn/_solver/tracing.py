"""State of PyTorch that decides how a call is executed, and marks for `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

F = TypeVar("F", bound=Callable[..., object])


def constant(function: F) -> F:
    """Mark a function whose result `torch.compile` may treat as a constant.

    Like `torch.compiler.assume_constant_result`, which imports the whole compiler to set this mark
    and would add a second to `import smnn`.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def transforms_active() -> bool:
    """Whether a transform of `torch.func` is active."""
    return torch._C._are_functorch_transforms_active()


def in_forward_mode() -> bool:
    """Whether a level of `torch.autograd.forward_ad` is active."""
    return torch.autograd.forward_ad._current_level >= 0
