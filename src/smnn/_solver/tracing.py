"""State of PyTorch that decides how a call is executed, and marks for `torch.compile`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

F = TypeVar("F", bound=Callable[..., Any])


def constant(function: F) -> F:
    """Mark a function whose result `torch.compile` may treat as a constant.

    Like `torch.compiler.assume_constant_result`, which imports the whole compiler to set this mark
    and would add a second to `import smnn`.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def untraced(function: F) -> F:
    """Make a function, and what it calls, opaque to `torch.compile` and compiled autograd.

    Traced code sees stand-ins for arrays, whose addresses must not reach a kernel. Like
    `torch.compiler.disable`, which imports the whole compiler.
    """
    set_code_exec_strategy(
        function.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
    )
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function


def transforms_active() -> bool:
    """Whether a transform of `torch.func` is active."""
    return torch._C._are_functorch_transforms_active()


def in_forward_mode() -> bool:
    """Whether a level of `torch.autograd.forward_ad` is active."""
    return torch.autograd.forward_ad._current_level >= 0


_HOME = os.getpid()


@contextlib.contextmanager
def safe_threads() -> Iterator[None]:
    """Use one thread in a forked process, where PyTorch's own parallel loops hang."""
    threads = torch.get_num_threads()
    if os.getpid() == _HOME or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
