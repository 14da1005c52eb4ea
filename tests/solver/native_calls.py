"""Calls of the CPU solver that can go through C++ or past it, and how their results compare."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import smnn
from helpers import Case
from smnn._solver import eager

Switch = Callable[[bool], None]


def used() -> bool:
    """Whether some call since the last switch went through C++."""
    return any(signature.direct for signature in eager._signatures.values())


def leaves_of(case: Case, wanted: str = "cdus") -> list[Tensor]:
    return [
        x.detach().requires_grad_(name in wanted) for name, x in zip("cdus", case.args, strict=True)
    ]


def results(case: Case, wanted: str = "cdus", gy: Tensor | None = None) -> list[Tensor]:
    """Of the second call: the first is from the start."""
    for _ in range(2):
        x = leaves_of(case, wanted)
        y = smnn.solve(*x, **case.kw, backend="cpu")
        leaves = [leaf for leaf in x if leaf.requires_grad]
        g = 2 * y.detach() if gy is None else gy
        found = [y, *torch.autograd.grad(y, leaves, g)]
    with torch.no_grad():
        found.append(smnn.solve(*case.args, **case.kw, backend="cpu"))
    y, info = smnn.solve_ex(*case.args, **case.kw, backend="cpu")
    return [*found, y, *(t for t in info if t is not None)]


def both(switch: Switch, *args: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Results with and without C++."""
    switch(True)
    ours = results(*args)
    assert used()
    switch(False)
    theirs = results(*args)
    assert not used()
    return ours, theirs


def identical(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return len(ours) == len(theirs) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
        for a, b in zip(ours, theirs, strict=True)
    )
