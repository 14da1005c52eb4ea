"""What `Prepared` launches, in Triton's interpreter, with guards around all memory.

Launches take addresses. On a device one that leads beyond its tensor is an error at best; here the
words before and behind each tensor must stay what they were. Imported with the interpreter on.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from torch import Tensor

import smnn._backends.gpu as gpu
from smnn._backends import _gpu_prepared as prepared
from smnn._backends._gpu_launch import INTEGERS, Launch, Program
from smnn._backends.registry import backend_named
from smnn._problem import make_problem

GUARD = 1 << 14
"""Words on either side."""
MARK = 7.25e77

CASES = {  # B, T, V, R, pieces, scheme
    "one launch": (3, 7, 1, 2, 1, "smnn"),
    "one launch, several warps": (37, 6, 1, 1, 1, "smnn"),
    "two launches": (19, 9, 2, 2, 1, "smnn"),
    "two launches, even": (5, 6, 2, 2, 1, "smnn"),
    "a lane": (33, 5, 1, 2, 1, "central"),
    "pieces": (3, 12, 1, 2, 4, "smnn"),
    "pieces of pieces": (2, 30, 1, 1, 9, "smnn"),
    "pieces, central": (2, 13, 1, 1, 3, "central"),
    "teams": (6, 4, 2, 1, 0, "smnn"),
    "tiles": (1, 2, 9, 1, 0, "smnn"),
    "panels": (1, 2, 17, 1, 0, "smnn"),
    "reduction": (2, 9, 1, 1, gpu.REDUCED, "smnn"),
    "reduction, eight warps": (1, 3, 11, 1, gpu.REDUCED, "smnn"),
    "reduction, central": (2, 5, 1, 1, gpu.REDUCED, "central"),
}


class Memory:
    """Stands in for `torch` where memory is asked for, and knows what lies where."""

    def __init__(self) -> None:
        self._whole: list[Tensor] = []
        self._known: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, *shape: Any, dtype: torch.dtype, device: Any) -> Tensor:
        """With guards; what is inside is no number."""
        size = torch.Size(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        whole = torch.full((size.numel() + 2 * GUARD,), MARK, dtype=torch.float64, device=device)
        self._whole.append(whole)
        inside = whole[GUARD:-GUARD]
        inside.fill_(torch.nan)
        return inside.view(dtype).view(size)

    def empty_like(self, x: Tensor) -> Tensor:
        return self.empty(x.shape, dtype=x.dtype, device=x.device)

    def lend(self, *tensors: Tensor) -> None:
        """Memory that was there before."""
        self._known += tensors

    def at(self, address: int) -> Tensor:
        """All words from there to the end of what was asked for, guards included."""
        for x in (*self._whole, *self._known):
            storage = x.untyped_storage()
            start, words = storage.data_ptr(), storage.nbytes() // 8
            if start <= address <= start + 8 * words:
                flat = x.new_empty(0).set_(storage, 0, (words,), (1,))
                return flat[(address - start) // 8 :]
        raise AssertionError("a launch has an address that belongs to nothing")

    def touched(self) -> int:
        """Guards that are not what they were."""
        ends = [part for x in self._whole for part in (x[:GUARD], x[-GUARD:])]
        return sum(int((part != MARK).sum()) for part in ends)


def interpret(launch: Launch, bases: dict[str, int], memory: Memory) -> None:
    """A launch with addresses, as a device would see it."""
    *values, width = launch.template
    for i, tensor, offset in launch.slots:
        values[i] = bases[tensor] + 8 * offset
    for i, name in enumerate(launch.kernel.arguments):
        if name.endswith("_ptr"):
            words = memory.at(values[i]) if values[i] else torch.empty(0, dtype=torch.float64)
            values[i] = words.view(torch.int64) if name in INTEGERS else words
    launch.kernel.jit[(launch.grid,)](*values, LANES=width, num_warps=1)


def guarded(B: int, T: int, V: int, R: int, pieces: int, scheme: str) -> dict[str, float]:
    """Largest errors of a solve and its gradients, all and by what two of them want alone."""
    f64: dict[str, Any] = {"dtype": torch.float64}
    c, d = torch.randn(B, T, V, V, R + 1, **f64), torch.randn(B, T, V, **f64)
    u, s = torch.randn(B, 1, V, R, **f64), torch.rand(B, T - 1, **f64) + 0.3
    problem, _ = make_problem(c, d, u, s, scheme=scheme)
    memory = Memory()
    memory.lend(*problem.tensors, *gpu._unit_link(R, scheme, c.device))

    def launch(self: Program, bases: dict[str, int], device: int | None) -> None:
        for one in self.launches:
            interpret(one, bases, memory)

    judge = backend_named("cpu")
    theirs = judge.solve(problem, 1)
    g = torch.randn_like(theirs.y)
    memory.lend(g)
    want = judge.gradients(problem, theirs.factor, theirs.y, g, 1, [True] * 7)[:4]
    short = gpu.prepared(problem, pieces)
    errors = []
    with mock.patch.object(prepared, "torch", memory), mock.patch.object(Program, "launch", launch):
        four = [*problem.tensors[:4]]
        solved = short.solve(*four)
        y = solved.y
        for wanted in ([True] * 4, [True, False, False, True], [False, True, True, False]):
            found = short.gradients(four, y, solved.factor, g, wanted)
            assert [x is not None for x in found] == wanted
            errors += [_relative(x, w) for x, w in zip(found, want, strict=True) if x is not None]
    assert solved.status.tolist() == [0] * B
    error = max(_relative(y, theirs.y), *errors)
    return {"error": error, "touched": memory.touched()}


def _relative(x: Tensor, y: Tensor) -> float:
    return float((x.reshape(y.shape) - y).abs().max() / y.abs().max())


def run() -> dict[str, object]:
    """All cases."""
    return {name: guarded(*case) for name, case in CASES.items()}
