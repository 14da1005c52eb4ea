"""A program: kernels, compiled as they are needed, and the notes that they read."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smnn._solver.cpu.kernels import layout
from smnn._solver.cpu.kernels.chain import eliminate_chain, solve_chain
from smnn._solver.cpu.kernels.covariances import covariances
from smnn._solver.cpu.kernels.eliminate import eliminate
from smnn._solver.cpu.kernels.emit import Code, compiled, moving_functions
from smnn._solver.cpu.kernels.frame import rotating_functions
from smnn._solver.cpu.kernels.layout import PLACES, Sizes, W
from smnn._solver.cpu.kernels.row_gradients import row_gradients
from smnn._solver.cpu.kernels.substitute import substitute_back, substitute_forward
from smnn._solver.cpu.kernels.sweep import adjoint_sweep, sweep
from smnn._solver.tracing import constant

LEAST_WORK = 4e4  # Operations below which threading does not pay off

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


@constant
def _threads() -> int:
    return torch.get_num_threads()


def _in_threads(kernel: Callable[[int, int], Any], count: int, work: float) -> None:
    """Run `kernel(first, last)` over `0..count`, threaded if there is enough work."""
    threads = 1 if work < LEAST_WORK else min(_threads(), count, int(2 * work / LEAST_WORK))
    if threads <= 1:
        kernel(0, count)
        return
    key = os.getpid(), threads  # a forked process has no threads of its parent
    if key not in _pools:
        _pools[key] = ThreadPoolExecutor(threads, thread_name_prefix="smnn")
    bounds = [count * i // threads for i in range(threads + 1)]
    jobs = [_pools[key].submit(kernel, a, b) for a, b in itertools.pairwise(bounds[1:])]
    kernel(bounds[0], bounds[1])
    for job in jobs:
        job.result()


_KERNELS = {
    layout.ELIMINATE: eliminate, layout.CHAIN: eliminate_chain, layout.LOAD: substitute_forward,
    layout.CHAIN_AGAIN: solve_chain, layout.SWEEP: sweep, layout.ADJOINT: adjoint_sweep,
    layout.SUBSTITUTE: substitute_back, layout.ROWS: row_gradients,
    layout.COVARIANCES: covariances,
}  # fmt: skip


def _loop() -> Code:
    """`run(notes, room, table, count, first, last)`: kernels one after the other for each group."""
    e = Code("run", 1, 6, False)
    notes, room, table, count, first, last = e.arguments
    for group in e.range(first, last):
        for i in e.range(0, count):
            kernel = e.memory(e.memory(table, "i64")[i]).pointer
            e.line(f"call void {kernel}(i64 {notes.name}, i64 {room.name}, i64 {group.name})")
    return e


_compiled: dict[Any, tuple[Any, Any, int]] = {}
"""Compiled kernels of this process."""


def _kernel(key: Any, write: Callable[[], Code], lanes: int = W) -> tuple[Any, Any, int]:
    if key not in _compiled:
        _compiled[key] = compiled([*moving_functions(lanes), *rotating_functions(), write()])
    return _compiled[key]


class Program:
    """Kernels with the sizes, strides and constants of one layout.

    Args:
        sizes: Of the elimination.
        counts: Further notes.
        straight: Whether to write kernels for this block size, without loops over its unknowns.
    """

    def __init__(self, sizes: Sizes, counts: Mapping[str, int], straight: bool) -> None:
        self.sizes, self.straight = sizes, straight
        self.notes: np.ndarray = np.zeros(len(PLACES), np.int64)
        self.grad_shapes: list[tuple[int, ...]] = []
        """Of the memory for gradients, once they have been requested."""
        self.lanes = lanes_of(sizes)
        self.note(counts)
        self.note({"@lanes": self.lanes.ctypes.data})

    def note(self, numbers: Mapping[str, int]) -> None:
        for name, number in numbers.items():
            self.notes[PLACES[name]] = number
        self._tables: dict[int, np.ndarray] = {}

    def known(self, part: int, lanes: int) -> dict[str, int]:
        """What a kernel is written for; nothing if it is the one for all sizes."""
        swept = part in (layout.SWEEP, layout.ADJOINT)
        if not (self.straight or swept):
            return {}
        names = ["V", "m", "Q", "reach", "k", "m_init", "top", "high", "unit", "given", "open"]
        names += [x for x in PLACES if x.endswith(".1") and x not in ("g.1", "u.1", "w_init.1")]
        if part not in (layout.ROWS, layout.ADJOINT):
            names = [x for x in names if not x.startswith("g") or x == "given"]
        if not self.notes[PLACES["given"]]:
            names.append("P")
        known = {x: int(self.notes[PLACES[x]]) for x in names}
        if swept:
            more = self.notes[PLACES["T_init_all"]] > self.notes[PLACES["L"]]
            known |= {"lanes": lanes, "observed": int(more)}
        return known

    def _table(self, parts: int, lanes: int) -> np.ndarray:
        """Addresses of kernels, compiled if they are new."""
        table = []
        for part, write in _KERNELS.items():
            if parts & part:
                known = self.known(part, lanes)
                code = functools.partial(write, known)
                table.append(_kernel((part, *known.items()), code, known.get("lanes", W))[2])
        return np.array(table, np.int64)

    def run(
        self, parts: int, count: int, work: float, addresses: Mapping[str, int], own: int = 0,
        lanes: int = W,
    ) -> None:  # fmt: skip
        """Execute kernels for groups of lanes; `own` is how much each thread needs of its own."""
        if parts not in self._tables:
            self._tables[parts] = self._table(parts, lanes)
        table, run = self._tables[parts], _kernel((), _loop)[1]
        notes = self.notes.copy()
        for name, address in addresses.items():
            notes[PLACES[name]] = address
        size = self.sizes.room + own

        def work_on(first: int, last: int) -> None:
            room = torch.empty(size, dtype=torch.float64)
            where = notes.ctypes.data, room.data_ptr(), table.ctypes.data
            run(*where, len(table), first, last)

        _in_threads(work_on, count, work)


def lanes_of(sizes: Sizes) -> np.ndarray:
    """For every group and lane: sequence, number of the piece, its first time, and its end."""
    B, T, P = sizes.B, sizes.T, sizes.P
    b, p = np.divmod(np.minimum(np.arange(sizes.groups * W), max(B * P - 1, 0)), P)
    first, end = (x * (T // P) + np.minimum(x, T % P) for x in (p, p + 1))
    table = np.stack([b, p, first, end]).reshape(4, sizes.groups, W).transpose(1, 0, 2)
    return np.ascontiguousarray(table, np.int64)


def strides_of(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Strides of tensors in bytes."""
    pairs = [(name, axis, x.stride(axis)) for name, x in tensors.items() for axis in range(x.ndim)]
    return {f"{name}.{axis}": 8 * stride for name, axis, stride in pairs}
