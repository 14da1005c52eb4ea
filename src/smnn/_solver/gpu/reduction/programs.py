"""Kernels of odd-even reduction, and its launch sequences (`solve.py`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from smnn._solver.gpu.launch import Kernel, Launch, Program, Slot, kernel_from, slots_of
from smnn._solver.gpu.reduction import blocks, refine, triangle
from smnn._solver.gpu.reduction import level as matrices
from smnn._solver.gpu.reduction import substitute as source
from smnn._solver.gpu.reduction.blocks import LANES
from smnn._solver.gpu.reduction.levels import Level, Shape, Sizes, levels
from smnn._solver.gpu.strategy import INPUT_ARGUMENTS, VARYING_ARGUMENTS, Scratch, stride_arguments

LARGEST_OF_A_WARP = 64  # Largest block that one warp substitutes
Place = Callable[[str], Slot]  # Location of a tensor by name


# ---------------------------------------------------------------- kernels


@functools.cache
def block_kernels(kind: blocks.Kind) -> tuple[Kernel, Kernel]:
    """Rows of blocks, and of the links between them."""
    given = [*INPUT_ARGUMENTS, *(VARYING_ARGUMENTS if kind.varying else [])]
    return (
        kernel_from("block_rows", [*blocks.LOCAL_ARGUMENTS, *given], blocks.local_body, kind),
        kernel_from("link_rows", [*blocks.LINK_ARGUMENTS, *given], blocks.link_body, kind),
    )


@functools.cache
def level_kernel(form: matrices.Form) -> Kernel:
    return kernel_from("reduction_level", matrices.arguments(form), matrices.level_body, form)


@functools.cache
def row_kernels() -> tuple[Kernel, Kernel]:
    """Magnitudes of the rows; and the sorted rows."""
    arguments = source.ROW_ARGUMENTS
    return (
        kernel_from("reduction_sizes", arguments, source.rows_body, False),
        kernel_from("reduction_rows", [*arguments, "a_ptr"], source.rows_body, True),
    )


@functools.cache
def substitution_kernels(warps: int) -> tuple[Kernel, Kernel]:
    """Forward and back substitution of a level."""
    return (
        kernel_from("reduction_forward", source.FORWARD_ARGUMENTS, source.forward_body, warps),
        kernel_from("reduction_back", source.BACK_ARGUMENTS, source.back_body, warps),
    )


@functools.cache
def small_substitution_kernels(M: int) -> tuple[Kernel, Kernel]:
    """The same for at most 32 unknowns, one lane each."""
    return (
        kernel_from("small_forward", source.SMALL_FORWARD_ARGUMENTS, source.small_forward_body, M),
        kernel_from("small_back", source.SMALL_BACK_ARGUMENTS, source.small_back_body, M),
    )


@functools.cache
def triangle_kernel(form: triangle.Form) -> Kernel:
    return kernel_from("triangle", triangle.ARGUMENTS, triangle.triangle_body, form)


@functools.cache
def residual_kernel() -> Kernel:
    """Residual of a solution.

    Without fused multiply-adds: terms that cancel do so only if all products are rounded alike.
    """
    arguments, write = refine.RESIDUAL_ARGUMENTS, refine.residual_body
    return kernel_from("reduction_residual", arguments, write, fused=False)


@functools.cache
def status_kernels() -> tuple[Kernel, Kernel, Kernel]:
    """Smallest pivot ratio per block; status per sequence; refined solution."""
    return (
        kernel_from("reduction_ratios", refine.RATIO_ARGUMENTS, refine.ratio_body),
        kernel_from("reduction_judge", refine.STATUS_ARGUMENTS, refine.status_body),
        kernel_from("reduction_final", refine.FINAL_ARGUMENTS, refine.final_body),
    )


# ---------------------------------------------------------------- launches


def _parts(x: int, size: int = LANES) -> int:
    return -(-x // size)


def _block_launches(sizes: Sizes, strides: Any, place: Place) -> list[Launch]:

    B, N, M, _ = sizes.shape
    values = stride_arguments(strides) | slots_of(
        "c", "d", "u", "s", "wg", "wi", "scale", "wt", "K", "KF"
    )
    values |= {"B": B, "N": N, "T": sizes.T, "Q": sizes.Q, "per": sizes.per, "own": sizes.own}
    values |= {"extra": sizes.extra, "start": int(sizes.T_init == 1)}
    values |= {"local_ptr": place("local"), "link_ptr": place("link")}
    local, link = block_kernels(sizes.kind)
    out = []
    for kernel, count, rows, width in (
        (local, N, sizes.own, M + 1),
        (link, N + 1, sizes.slots, 2 * M + 1),
    ):
        lanes = 128 * B * count * _parts(rows)
        if lanes:
            out.append(Launch(kernel, lanes, 128, values | {"high": _parts(width)}))
    return out


def _sources(shape: Shape, level: Level, local: Slot) -> dict[str, int | Slot]:
    line = shape.M + 2
    per_block = shape.B * level.own * line
    return {
        "B": shape.B, "slots": max(level.slots, level.apart), "own": level.own,
        "links": level.links, "link_rows": level.slots, "outer_rows": level.apart,
        "local_ptr": local._replace(offset=local.offset + (level.step - 1) * per_block),
        "local_sb": level.own * line, "local_sk": 2 * level.step * per_block, "local_sr": line,
    }  # fmt: skip


def _level_launches(sizes: Sizes, place: Place) -> list[Launch]:
    shape, every = sizes.shape, sizes.levels
    B, _, M, _ = shape
    line, here, out = 2 * M + 2, 0, []
    link = outer = place("link")
    outer_rows = 0
    for i, level in enumerate(every):
        form = matrices.form_for(M, level.rows)
        assert form is not None
        values = _sources(shape, level, place("local")) | matrices.stops(form, level.columns)
        values |= {
            "link_ptr": link, "link_sb": level.slots * line, "link_sk": B * level.slots * line,
            "link_sr": line, "outer_ptr": outer, "outer_sb": outer_rows * line, "outer_sr": line,
            "count": level.about,
            "made_rows": level.rest if level.columns > M and not level.last else 0,
            "kept_rows": level.rest if level.columns == M and not level.last else 0,
            "factor_ptr": place("factor"), "z_ptr": place("z"), "rest_ptr": place(f"rest{i}"),
            "here": here,
        }  # fmt: skip
        width = LANES * form.warps
        out.append(Launch(level_kernel(form), width * B * level.blocks, width, values))
        if not level.apart and i + 1 < len(every) and every[i + 1].apart:
            outer_rows = level.slots
            outer = link._replace(offset=link.offset + level.left * B * level.slots * line)
        link = place(f"rest{i}")
        here += B * level.blocks
    return out


def _rest_size(shape: Shape, level: Level) -> int:
    return 0 if level.last else level.blocks * shape.B * level.rest * (2 * shape.M + 2)


def _substitution(shape: Shape, place: Place, y: Slot, g: Slot | None = None) -> list[Launch]:
    """`R y = z` from the last level to the first; with `g`, preceded by `R^T z = g`."""
    B, N, M, wanted = shape
    warps = 1 if M <= LARGEST_OF_A_WARP else 4
    lanes, small = LANES * warps, M <= LANES
    forward, back = small_substitution_kernels(M) if small else substitution_kernels(warps)
    up: list[Launch] = []
    down: list[Launch] = []
    first = 0
    for i, level in enumerate(levels(shape, 0, 0)):
        values: dict[str, int | Slot] = {
            "B": B, "N": N, "M": M, "wanted": wanted, "high": _parts(M), "few": _parts(M, lanes),
            "first": first, "step": level.step, "below": i,
            "stop": _parts(2 * i, source.SMALL_ROWS if small else lanes),
            "factor_ptr": place("factor"), "z_ptr": place("z"), "y_ptr": y,
        }  # fmt: skip
        total = lanes * B * level.blocks
        if g is not None:
            values |= {"g_ptr": g, "spill_ptr": place("spill")}
            up.append(Launch(forward, total, lanes, values))
        down.append(Launch(back, total, lanes, values))
        first += level.blocks
    return [*up, *down[::-1]]


def _refinement(sizes: Sizes, strides: Any, place: Place) -> list[Launch]:
    """Substitution, one step of refinement with the residual, and status."""
    shape = sizes.shape
    B, N, M, wanted = shape
    y, better, g = (place(name) for name in ("y", "better", "residual"))
    values = stride_arguments(strides) | {
        "B": B, "N": N, "M": M, "wanted": wanted, "slots": sizes.slots, "own": sizes.own,
        "high": _parts(M), "few": _parts(sizes.slots), "stop": _parts(sizes.own), "T": sizes.T,
        "V": sizes.V, "reach": sizes.reach, "y_ptr": y, "g_ptr": g, "better_ptr": better,
        "ratio_ptr": place("ratio"), "where_ptr": place("where"), "size": B * wanted,
    }  # fmt: skip
    for name in ("link", "local", "factor", "rcond", "weakest", "status"):
        values[f"{name}_ptr"] = place(name)
    values |= slots_of("s")
    n = wanted // sizes.T
    ratios, status, final = status_kernels()
    lanes = 128 if N <= 1024 else 1024  # one program per sequence
    per_sequence = values | {"n": n, "few": _parts(N, lanes), "high": _parts(n, lanes)}
    return [
        *_substitution(shape, place, y),
        Launch(residual_kernel(), 128 * B * N, 128, values),
        *_substitution(shape, place, better, g),
        Launch(ratios, 128 * B * N, 128, values),
        Launch(status, lanes * B, lanes, per_sequence),
        Launch(final, B * wanted, 128, values),
    ]


# ---------------------------------------------------------------- programs


def _rests(sizes: Sizes, links: tuple[int, int]) -> list[tuple[int, int]]:
    """Memory ranges of the levels' remainders: next to that of the previous level, which is read.

    Older remainders, initially the `links`, are overwritten. A separate link is at the end of an
    older remainder; later ones do not reach it, because each is half as large.
    """
    out = [links]
    for level in sizes.levels:
        (low, high), size = out[-1], _rest_size(sizes.shape, level)
        start = links[0] if links[0] + size <= low else high
        out.append((start, start + size))
    return out[1:]


def _layout(sizes: Sizes) -> tuple[Place, int, bool]:
    """Layout of the scratch memory of a solve, its size, and whether links are overwritten."""
    shape, scratch = sizes.shape, Scratch()
    B, N, M, wanted = shape
    at = {"local": scratch.take(N * B * sizes.own * (M + 2)), "z": scratch.take(N * B * M)}
    at["link"] = scratch.take((N + 1) * B * sizes.slots * (2 * M + 2))
    links, later = (at["link"], scratch.size), Scratch(scratch.size)
    rests = _rests(sizes, links)
    at |= {f"rest{i}": low for i, (low, _) in enumerate(rests)}
    for name, size in final_sizes(shape).items():  # may overlap the remainders
        at[name] = later.take(size)

    def place(name: str) -> Slot:
        return Slot("scratch", at[name]) if name in at else Slot(name)

    most = max(later.size, *(high for _, high in rests))
    return place, most, any(low < min(links[1], high) for low, high in rests)


def final_sizes(shape: Shape) -> dict[str, int]:
    """Words required after the last level, by name."""
    B, N, M, wanted = shape
    each = {"better": wanted, "residual": wanted, "spill": 2 * N * M, "ratio": N, "where": N}
    return {name: B * size for name, size in each.items()}


@functools.lru_cache(maxsize=256)
def solve_program(sizes: Sizes, strides: Any) -> tuple[Program, int]:
    """Launches of a solve whose matrices fit into registers, and its scratch memory."""
    place, scratch, again = _layout(sizes)
    blocks = _block_launches(sizes, strides, place)
    launches = [*blocks, *_level_launches(sizes, place)]
    if again:
        launches.append(blocks[-1])  # the residual reads the links again
    return Program([*launches, *_refinement(sizes, strides, place)]), scratch


@functools.lru_cache(maxsize=256)
def blocks_program(sizes: Sizes, strides: Any) -> Program:
    return Program(_block_launches(sizes, strides, Slot))


@functools.lru_cache(maxsize=256)
def refine_program(sizes: Sizes, strides: Any) -> Program:
    return Program(_refinement(sizes, strides, Slot))


@functools.lru_cache(maxsize=256)
def adjoint_program(shape: Shape) -> tuple[Program, int]:
    """Launches of an adjoint solve, and its scratch memory."""
    scratch = Scratch()
    at = {"z": scratch.take(shape.N * shape.B * shape.M)}
    at["spill"] = scratch.take(2 * shape.N * shape.B * shape.M)

    def place(name: str) -> Slot:
        return Slot("scratch", at[name]) if name in at else Slot(name)

    return Program(_substitution(shape, place, Slot("y"), Slot("g"))), scratch.size


# ---------------------------------------------------------------- matrices larger than registers


@functools.lru_cache(maxsize=512)
def rows_program(shape: Shape, level: Level) -> Program:
    """Gather the rows of a level, largest first."""
    B, M = shape.B, shape.M
    width, count = 3 * M + 1, level.rows
    if level.step == 1:
        at, per_row, per_sequence = 0, 2 * M + 2, level.slots * (2 * M + 2)
    else:
        at, per_row, per_sequence = M * width + M, width, level.height * width
    values = _sources(shape, level, Slot("local")) | {
        "M": M, "high": _parts(width), "stop": _parts(count), "count": count, "width": width,
        "link_ptr": Slot("link", at), "link_sb": per_sequence, "link_sk": B * per_sequence,
        "link_sr": per_row, "outer_ptr": Slot("outer"), "outer_sb": level.apart * (2 * M + 1),
        "outer_sr": 2 * M + 1, "sizes_ptr": Slot("sizes"), "a_ptr": Slot("a"),
    }  # fmt: skip
    lanes = 128 * B * level.blocks * _parts(count)
    return Program([Launch(kernel, lanes, 128, values) for kernel in row_kernels()])


def kept(alone: bool) -> int:
    """Number of stored reflections: of a block, and of the next one in progress."""
    return triangle.WIDE_BLOCK if alone else 2 * triangle.BLOCK


@functools.lru_cache(maxsize=512)
def triangle_programs(
    count_of: int, count: int, width: int, columns: int, alone: bool
) -> list[tuple[int, int, Program]]:
    """Launches per block of columns, with its first and last column; `alone` as in `turns`."""
    block = triangle.WIDE_BLOCK if alone else columns
    found: dict[int, list[Launch]] = {}
    values: dict[str, int | Slot] = {
        "count": count, "width": width, "kept": kept(alone),
        "a_ptr": Slot("a"), "v_ptr": Slot("normals"), "w_ptr": Slot("scales"),
    }  # fmt: skip
    for turn in triangle.turns(count, width, columns, alone=alone):
        lanes = LANES * turn.form.warps
        own = values | dict(zip(turn._fields[1:], turn[1:], strict=True))
        start = min(turn.high, columns - 1) // block * block
        found.setdefault(start, []).append(
            Launch(triangle_kernel(turn.form), lanes * count_of * turn.chunks, lanes, own)
        )
    return [(x, min(x + block, columns), Program(launches)) for x, launches in found.items()]
