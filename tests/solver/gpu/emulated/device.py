"""Runs compiled kernels without a GPU: the PTX that Triton makes, instruction by instruction.

Triton's interpreter runs the source of a kernel in a fixed order, and some of it differently from
a device. The emulated device runs the compiler's output: layouts, shuffles, shared memory and
barriers. Warps and blocks run in random order. An access outside of all tensors is an error
(`memory.py`), and so is an unknown instruction (`instructions.py`).
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from torch import Tensor

from solver.gpu.emulated.code import Code, parsed
from solver.gpu.emulated.instructions import APART, BARRIER, END, LANES, Registers, Step, translated
from solver.gpu.emulated.memory import Memory
from solver.internals import Kernel, Program

TURNS = 3, 40, 1 << 60
"""Numbers of instructions after which another warp may run."""


class Lanes(NamedTuple):
    """Lanes of a divergent warp that wait for the others."""

    at: int
    lanes: np.ndarray
    kept: dict[str, np.ndarray]


class Warp:
    """Thirty-two threads in lockstep, except where they diverge."""

    def __init__(self, code: Code, number: int, block: Any) -> None:
        self.registers = Registers(number)
        self._code = code
        self._steps: list[Step] = [
            translated(one, code.labels, self.registers, block, number) for one in code.instructions
        ]

    def start(self) -> None:
        """From the first instruction."""
        self._at, self.waiting, self.finished = 0, False, False
        self._apart: list[Lanes] = []
        self.registers.active[:] = True

    def run(self, most: int) -> None:
        """Run up to the next barrier, the end, or a number of steps."""
        steps, at = self._steps, self._at
        while most:
            most -= 1
            if self._apart:
                at = self._furthest_behind(at)
            following = steps[at]()
            if following is None:
                at += 1
            elif following == BARRIER:
                self.waiting = True
                at += 1
                break
            elif following == END:
                self.finished = True
                break
            elif following == APART:
                at = self._divided(at)
            else:
                at = following
        self._at = at

    def _wait(self, at: int, lanes: np.ndarray) -> None:
        self._apart.append(Lanes(at, lanes.copy(), self.registers.kept()))

    def _divided(self, at: int) -> int:
        """Diverge at a branch: lanes that do not take it wait. Returns the target of the others."""
        branch, active = self._code.instructions[at], self.registers.active
        taken = self.registers.follow(branch.condition)()
        self._wait(at + 1, active & ~taken)
        active[:] = taken
        return self._code.labels[branch.operands[0]]

    def _furthest_behind(self, at: int) -> int:
        """Continue with the lanes at the earliest instruction; returns its position."""
        active = self.registers.active
        if min(x.at for x in self._apart) < at:
            self._wait(at, active)
            active[:] = False
            at = min(x.at for x in self._apart)
        for one in [x for x in self._apart if x.at == at]:
            self.registers.put_back(one.kept, one.lanes)
            active |= one.lanes
        self._apart = [x for x in self._apart if x.at != at]
        together = self._code.instructions[at].operation
        assert not (self._apart and (".sync" in together or together == "ret")), (
            "lanes of a warp diverge before an instruction of the whole warp"
        )
        return at


class Block:
    """The warps of a block; reused for all blocks of a kernel, one after another."""

    memory: Memory
    arguments: list[int]

    def __init__(self, kernel: Kernel, width: int) -> None:
        made = kernel.compiled_for(90, width)
        self.shared = np.empty(made.metadata.shared, np.uint8)
        self.number = self.epoch = 0
        """Number of the block, and of the barriers it has passed."""
        code = parsed(made.asm["ptx"])
        self._warps = [Warp(code, i, self) for i in range(width // LANES)]

    def run(self, number: int, turn: random.Random) -> None:
        """Run one block with its warps in random order."""
        self.number, self.epoch = number, 0
        self.shared[:] = 0xFF  # NaN
        for warp in self._warps:
            warp.start()
        left = self._warps
        while left:
            ready = [warp for warp in left if not warp.waiting]
            if ready:
                turn.choice(ready).run(turn.choice(TURNS))
            else:
                self.epoch += 1
                for warp in left:
                    warp.waiting = False
            left = [warp for warp in left if not warp.finished]


_block = functools.lru_cache(maxsize=32)(Block)


def run(kernel: Kernel, width: int, grid: int, arguments: list[int], memory: Memory) -> None:
    """Run all blocks of a launch."""
    block, turn = _block(kernel, width), random.Random(grid)
    block.arguments, block.memory = arguments, memory
    with np.errstate(all="ignore"):
        for number in turn.sample(range(grid), grid):
            block.run(number, turn)
    memory.end(kernel.name, kernel.text)


@contextmanager
def emulated(memory: Memory | None = None) -> Iterator[Memory]:
    """Run all launched kernels on tensors of the CPU."""
    memory = memory or Memory()

    def launch(self: Program, tensors: dict[str, Tensor]) -> None:
        memory.lend(*tensors.values())
        for one in self.launches:
            *arguments, width = one.template
            for i, name, offset in one.slots:
                arguments[i] = tensors[name].data_ptr() + 8 * offset
            run(one.kernel, width, one.grid, arguments, memory)

    with mock.patch.object(Program, "run", launch):
        yield memory
