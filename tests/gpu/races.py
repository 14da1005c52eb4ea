"""Finds what a device may do in another order than Triton's interpreter does.

Programs of a launch run in any order, and so do the warps of a program between two barriers. The
interpreter takes all one after the other, and would never show that a kernel depends on it. Here
every access is noted with the warp that makes it on a device, by the layouts of `_gpu_launch.py`.
What a program writes, no other may touch in the same launch, and no other warp before the next
barrier. Lanes of a warp go in step. Imported with the interpreter on.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from triton.runtime.interpreter import InterpreterBuilder, ReduceOps

WARP = 32
ADDRESS, PROGRAM, EPOCH, WRITTEN, LOW, HIGH, SITE = range(7)
"""Columns of what is noted: `LOW` to `HIGH` are warps, `EPOCH` counts barriers."""


class Layout(NamedTuple):
    """Which warps have an element of a tensor."""

    width: int
    """Threads of a program."""
    rows: int = 0
    columns: int = 0
    """Of a tile; none where each thread has one element of everything."""

    def warps(self, shape: tuple[int, ...], *, written: bool) -> tuple[np.ndarray, np.ndarray]:
        """The first and the last. What several have, the first of them stores."""
        size, last = int(np.prod(shape)), self.width // WARP - 1
        first, every = np.zeros(size, np.int64), np.full(size, last)
        if size == 1:
            return first, first if written else every
        if not self.rows:
            assert shape == (self.width,), (shape, self)
            return (np.arange(size) // WARP,) * 2
        of_row = np.arange(self.rows) // (self.rows // (last + 1))
        if shape == (self.rows, self.columns):
            return (np.repeat(of_row, self.columns),) * 2
        if self.rows == self.columns:  # rows or columns, who knows
            return first, every
        if shape == (self.rows,):
            return of_row, of_row
        assert shape == (self.columns,), (shape, self)
        return first, first if written else every


def _layout(kernel: FrameType) -> Layout:
    """As its text and the width of its launch say."""
    text = "".join(linecache.getlines(kernel.f_code.co_filename))
    found = (re.search(rf"\b{name}: tl.constexpr = (\d+)", text) for name in ("ROWS", "COLUMNS"))
    sizes = [int(x.group(1)) if x else 0 for x in found]
    assert not (sizes[0] and "tl.arange(0, LANES)" in text)
    return Layout(kernel.f_locals["LANES"], *sizes)


class Races:
    """Notes the accesses of one launch at a time, and remembers what it has found."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}
        """Kernel, what meets, and the lines that do, with the number of addresses."""
        self._forget()

    def _forget(self) -> None:
        self._noted: list[np.ndarray] = []
        self._sites: list[str] = []
        self._numbers: dict[tuple[Any, int], int] = {}
        self._layout: Layout | None = None
        self._program = self._epoch = 0

    def _site(self) -> int:
        """Number of the line that is being interpreted; learns the kernel's layout on the way."""
        frame: FrameType | None = sys._getframe(3)
        line = None
        while frame:
            if frame.f_code.co_filename.startswith("<smnn "):
                line = line or frame
                if self._layout is None and "LANES" in frame.f_locals:
                    self._layout, self._kernel = _layout(frame), frame.f_code.co_name
            frame = frame.f_back
        assert line is not None
        key = line.f_code, line.f_lineno
        if key not in self._numbers:
            self._numbers[key] = len(self._sites)
            self._sites.append(linecache.getline(line.f_code.co_filename, line.f_lineno).strip())
        return self._numbers[key]

    def note(self, pointers: np.ndarray, mask: np.ndarray, *, written: bool) -> None:
        """An access, where the mask lets it."""
        site = self._site()
        assert self._layout is not None
        low, high = self._layout.warps(pointers.shape, written=written)
        made = np.broadcast_to(mask, pointers.shape).reshape(-1)
        out = np.empty((np.count_nonzero(made), 7), np.int64)
        out[:, ADDRESS] = pointers.reshape(-1)[made]
        out[:, PROGRAM], out[:, EPOCH], out[:, WRITTEN] = self._program, self._epoch, written
        out[:, LOW], out[:, HIGH], out[:, SITE] = low[made], high[made], site
        self._noted.append(out)

    def program(self, number: int) -> None:
        """A program begins."""
        self._program, self._epoch = number, 0

    def barrier(self) -> None:
        """Nothing behind it happens before all that is ahead of it."""
        self._epoch += 1

    def reduced(self, shape: tuple[int, ...], axis: int | None) -> None:
        """Warps that add up what they have together go through memory, and wait for each other."""
        several = self._layout is not None and self._layout.width > WARP
        if several and (len(shape) == 1) == (not self._layout.rows) and not axis:
            self.barrier()

    def end(self) -> None:
        """Look through all accesses of a launch."""
        if self._noted:
            noted = np.concatenate(self._noted)
            self._meet("programs", noted, [ADDRESS], PROGRAM, PROGRAM)
            self._meet("warps", noted, [PROGRAM, EPOCH, ADDRESS], LOW, HIGH)
        self._forget()

    def _meet(self, who: str, noted: np.ndarray, key: list[int], low: int, high: int) -> None:
        """Accesses with the same `key`, one of which writes, that several make."""
        noted = noted[np.lexsort(noted[:, key].T)]
        same = (noted[1:][:, key] == noted[:-1][:, key]).all(1)
        starts = np.flatnonzero(np.r_[True, ~same])
        ends = np.r_[starts[1:], len(noted)]
        first = np.minimum.reduceat(noted[:, low], starts)
        last = np.maximum.reduceat(noted[:, high], starts)
        written = np.maximum.reduceat(noted[:, WRITTEN], starts) > 0
        meet = written & (first < last) & (ends > starts + 1)  # an access never meets itself
        for start, end in zip(starts[meet], ends[meet], strict=True):
            sites = sorted(set(noted[start:end, SITE].tolist()))
            lines = " | ".join(self._sites[site] for site in sites)
            name = f"{self._kernel}: {who} meet: {lines}"
            self.found[name] = self.found.get(name, 0) + 1


@contextmanager
def watched() -> Iterator[Races]:
    """All that is interpreted is looked at."""
    races, builder = Races(), InterpreterBuilder
    load, store = builder.create_masked_load, builder.create_masked_store
    to_grid, to_program = builder.set_grid_dim, builder.set_grid_idx
    reduce = ReduceOps.apply_impl

    def loads(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        races.note(pointers.data, mask.data, written=False)
        return load(self, pointers, mask, *rest)

    def stores(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        races.note(pointers.data, mask.data, written=True)
        return store(self, pointers, value, mask, *rest)

    def starts(self: Any, *sizes: int) -> None:
        races.end()  # of the launch before
        to_grid(self, *sizes)

    def goes_on(self: Any, x: int, y: int, z: int) -> None:
        races.program(x)
        to_program(self, x, y, z)

    def reduces(self: Any, given: Any) -> Any:
        races.reduced(given[0].handle.data.shape, self.axis)
        return reduce(self, given)

    replaced = {
        "create_masked_load": loads, "create_masked_store": stores, "set_grid_dim": starts,
        "set_grid_idx": goes_on, "create_barrier": lambda self: races.barrier(),
    }  # fmt: skip
    with (
        mock.patch.multiple(InterpreterBuilder, **replaced),
        mock.patch.object(ReduceOps, "apply_impl", reduces),
    ):
        yield races
        races.end()
