"""The emulated device detects known faults of kernels."""

from __future__ import annotations

import importlib.util
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
pytest.importorskip("triton.experimental.gluon._runtime")

from solver.gpu.emulated.code import Instruction, parsed
from solver.gpu.emulated.device import Warp, emulated
from solver.gpu.emulated.instructions import LANES, Registers, translated
from solver.gpu.emulated.memory import Memory
from solver.internals import Kernel, Launch, Program, Slot, Source

FLAT = ["lane = tl.arange(0, LANES)", "start = tl.program_id(0) * LANES", "place = start + lane"]
TILE = [
    "ROWS: tl.constexpr = 8", "COLUMNS: tl.constexpr = 32",
    "row = tl.arange(0, ROWS)", "lane = tl.arange(0, COLUMNS)",
    "tile = row[:, None].to(tl.float64) + lane[None, :].to(tl.float64)",
]  # fmt: skip
BARRIER, SUM = "tl.debug_barrier()", "x = x + tl.sum(tile, axis=0)"
MINE = "tl.store(x_ptr + place, place.to(tl.float64))"
OTHERS = ["x = tl.load(x_ptr + (start + (LANES - 1 - lane)))", "tl.store(y_ptr + place, x)"]
FIRST = ["x = tl.load(x_ptr + lane)", "tl.store(y_ptr + place, x)"]
READ, REPLACE = "x = tl.load(x_ptr + lane)", "tl.store(x_ptr + lane, x)"
BLOCKS, WARPS = "blocks meet", "warps meet"
KERNELS: dict[str, tuple[list[str], int, int, list[str]]] = {  # lines, threads, blocks, races
    "other warps read": ([*FLAT, MINE, *OTHERS], 64, 2, [WARPS]),
    "other warps read behind a barrier": ([*FLAT, MINE, BARRIER, *OTHERS], 64, 2, []),
    "other lanes of a warp read": ([*FLAT, MINE, *OTHERS], 32, 2, []),
    "other blocks read": ([*FLAT, MINE, BARRIER, *FIRST], 32, 2, [BLOCKS]),
    "a single block reads": ([*FLAT, MINE, BARRIER, *FIRST], 32, 1, []),
    "blocks write the same": ([*FLAT, *FIRST[:1], REPLACE], 32, 2, [BLOCKS]),
    "all warps read, one writes": ([*TILE, READ, REPLACE], 128, 1, [WARPS]),
    "all warps read, then one writes": ([*TILE, READ, BARRIER, REPLACE], 128, 1, []),
    "all warps add up, then one writes": ([*TILE, READ, SUM, REPLACE], 128, 1, []),
    "a warp reads and writes": ([*TILE, READ, REPLACE], 32, 1, []),
}  # fmt: skip


def launched(lines: list[str], threads: int, blocks: int) -> tuple[dict[str, torch.Tensor], Memory]:
    """Run a kernel on two tensors of 512 numbers."""
    out = Source()
    for line in lines:
        out(line)
    kernel = Kernel("known", out, ["x_ptr", "y_ptr"])
    places: dict[str, Any] = {"x_ptr": Slot("x"), "y_ptr": Slot("y")}
    tensors = {name: torch.zeros(512, dtype=torch.float64) for name in "xy"}
    with emulated() as memory:
        Program([Launch(kernel, threads * blocks, threads, places)]).run(tensors)
    return tensors, memory


@pytest.mark.parametrize("name", KERNELS)
def test_races_are_detected(name: str) -> None:
    lines, threads, blocks, wanted = KERNELS[name]
    _, memory = launched(lines, threads, blocks)
    assert sorted({said.split(": ")[1] for said in memory.races}) == wanted
    for said in memory.races:  # with the lines of the source
        assert said.startswith("known: ")
        assert "gl.store(x_ptr + " in said


def test_barriers_and_sums_of_warps() -> None:
    """Through shared memory, in any order of the warps."""
    found, _ = launched([*FLAT, MINE, BARRIER, *OTHERS], 64, 2)
    assert found["y"][:128].tolist() == [*range(63, -1, -1), *range(127, 63, -1)]
    found, _ = launched([*TILE, READ, SUM, REPLACE], 128, 1)
    assert found["x"][:LANES].tolist() == [28.0 + 8 * i for i in range(LANES)]


@pytest.mark.parametrize("place", ["place + 481", "place - 1"])
def test_access_outside_of_tensors(place: str) -> None:
    with pytest.raises(AssertionError, match="outside of all tensors"):
        launched([*FLAT, f"tl.store(x_ptr + ({place}), place.to(tl.float64))"], 32, 1)


def test_masked_lanes_access_no_memory() -> None:
    lines = [*FLAT, "tl.store(x_ptr + place * 99, place.to(tl.float64), mask=lane < 2)"]
    found, _ = launched(lines, 32, 1)
    assert found["x"].nonzero().tolist() == [[99]]


LOOP = """.entry k()
{
	mov.b32 %r1, %tid.x;
	and.b32 %r2, %r1, 3;
$again:
	add.s32 %r3, %r3, %r1;
	{INSIDE}
	setp.eq.s32 %p1, %r2, 0;
	@%p1 bra $done;
	sub.s32 %r2, %r2, 1;
	bra.uni $again;
$done:
	shfl.sync.idx.b32 %r4, %r3, 30, 31, -1;
	ret;
}
"""
"""Each lane adds its number one to four times, and reads the sum of lane 30."""


def test_divergent_lanes() -> None:
    warp = Warp(parsed(LOOP.replace("{INSIDE}", "mov.b32 %r5, %r1;")), 0, SimpleNamespace())
    warp.start()
    while not warp.finished:
        warp.run(5)
    lane = np.arange(LANES)
    assert (warp.registers.words("%r3") == lane * (lane % 4 + 1)).all()
    assert (warp.registers.words("%r4") == 30 * 3).all()


@pytest.mark.parametrize("inside", ["shfl.sync.idx.b32 %r5, %r3, 30, 31, -1;", "bar.sync 0;"])
def test_divergent_lanes_at_a_warp_instruction(inside: str) -> None:
    warp = Warp(parsed(LOOP.replace("{INSIDE}", inside)), 0, SimpleNamespace())
    warp.start()
    warp.run(5)
    with pytest.raises(AssertionError, match="diverge before an instruction of the whole warp"):
        warp.run(50)


def test_unknown_instruction() -> None:
    with pytest.raises((KeyError, AssertionError)):
        translated(Instruction("", "sin.approx.f32", ["%r1", "%r2"], 0), {}, Registers(0), None, 0)


def bits(x: float) -> int:
    """Bits of a number in double precision."""
    return int(np.float64(x).view(np.uint64))


def computed(text: str, *values: int) -> int:
    """First register after an instruction, given the values of the others."""
    one = parsed(f".entry k()\n{{\n\t{text};\n}}\n").instructions[0]
    registers, (out, *given) = Registers(0), re.findall(r"%\w+", text)
    for name, value in zip(given, values, strict=True):
        words = registers.words(name)
        words[:] = value & ((1 << 8 * words.dtype.itemsize) - 1)
    translated(one, {}, registers, None, 0)()
    return int(registers.words(out)[5])


FAR, LOW32 = (1 << 63) - 1, (1 << 32) - 1


@pytest.mark.parametrize(
    ("text", "values", "wanted"),
    [
        ("div.s64 %rd1, %rd2, %rd3", (-7, 2), -3 & (1 << 64) - 1),
        ("rem.s64 %rd1, %rd2, %rd3", (-7, 2), -1 & (1 << 64) - 1),
        ("div.u32 %r1, %r2, %r3", (LOW32, 2), FAR >> 32),
        ("mul.hi.s32 %r1, %r2, 1431655766", (-9,), -3 - 1 & LOW32),
        ("mul.hi.u64 %rd1, %rd2, %rd3", (1 << 63, 6), 3),
        ("mul.wide.s32 %rd1, %r2, 8", (-2,), -16 & (1 << 64) - 1),
        ("mul.wide.u32 %rd1, %r2, 8", (LOW32,), 8 * LOW32),
        ("mad.wide.u32 %rd1, %r2, 8, %rd3", (LOW32, 5), 8 * LOW32 + 5),
        ("mad.lo.s32 %r1, %r2, 17, %r3", (1 << 31, 3), (1 << 31) + 3),
        ("shl.b32 %r1, %r2, 32", (1,), 0),
        ("shr.u32 %r1, %r2, 31", (1 << 31,), 1),
        ("shr.s32 %r1, %r2, 40", (1 << 31,), LOW32),
        ("bfe.u32 %r1, %r2, 5, 1", (0b100000,), 1),
        ("bfe.s32 %r1, %r2, 0, 4", (0b1010,), -6 & LOW32),
        ("bfi.b32 %r1, %r2, %r3, 4, 8", (0xFAB, 0x12345678), 0x12345AB8),
        ("bfi.b32 %r1, %r2, %r3, 8, 24", (0xFFFFFFFF, 0x11), 0xFFFFFF11),
        ("bfi.b32 %r1, %r2, %r3, 0, 32", (0x12345678, 0x11), 0x12345678),
        ("bfi.b64 %rd1, %rd2, %rd3, 32, 32", (7, 9), 7 << 32 | 9),
        ("cvt.s64.s8 %rd1, %rd2", (0x1FF,), (1 << 64) - 1),
        ("cvt.s8.s32 %rs1, %r2", (0x180,), 0xFF80),
        ("cvt.u32.u64 %r1, %rd2", (FAR,), LOW32),
        ("cvt.rzi.s64.f64 %rd1, %rd2", (bits(-2.5),), -2 & (1 << 64) - 1),
        ("cvt.rn.f64.s64 %rd1, %rd2", (-3,), bits(-3.0)),
        ("max.f64 %rd1, %rd2, %rd3", (bits(float("nan")), bits(2.0)), bits(2.0)),
        ("mov.b64 {_, %r1}, %rd2", (5 << 32 | 9,), 5),
        ("prmt.b32 %r1, %r2, %r3, 0x3340U", (0x11223344, 0x55667788), 0x11118844),
        ("prmt.b32 %r1, %r2, 0, 0x9991U", (0x1234F556,), 0xFFFFFFF5),
        ("prmt.b32 %r1, %r2, 0, 0xBBB3U", (0x1234F556,), 0x12),
        ("popc.b32 %r1, %r2", (0xF0F,), 8),
        ("add.s16x2 %r1, %r2, %r3", (0x0001FFFF, 0x00010001), 0x00020000),
        ("min.s32 %r1, %r2, %r3", (-1, 1), LOW32),
        ("min.u32 %r1, %r2, %r3", (-1, 1), 1),
        ("redux.sync.add.s32 %r1, %r2, -1", (3,), 96),
        ("selp.b32 %r1, 1, 2, %p3", (0,), 2),
    ],
)  # fmt: skip
def test_instructions(text: str, values: tuple[int, ...], wanted: int) -> None:
    """Results of kernels would hardly reveal errors of rare instructions."""
    assert computed(text, *values) == wanted


@pytest.mark.parametrize("how", ["eq", "ne", "lt", "ge", "equ", "neu", "ltu", "num", "nan"])
def test_comparisons_with_nan(how: str) -> None:
    wanted = how in ("equ", "neu", "ltu", "nan")
    assert computed(f"setp.{how}.f64 %p1, %rd2, %rd3", bits(float("nan")), 0) == wanted


def test_warps_run_in_random_order() -> None:
    """Without a barrier, the result depends on the order of the warps."""
    found = [launched([*FLAT, MINE, *OTHERS], 64, blocks)[0]["y"] for blocks in range(1, 9)]
    assert len({tuple(y[:64].tolist()) for y in found}) > 1
