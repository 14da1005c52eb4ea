"""Compilation of the CPU kernels, index arithmetic of the lanes, and array arguments.

One lane processes one *piece*: a run of consecutive times of one sequence. All pieces of a call end
at the same step, `L`; pieces that are a time shorter begin a step later. Surplus lanes of the last
group repeat the last piece, and write the same numbers to the same addresses.
"""

# mypy: ignore-errors
from __future__ import annotations

import hashlib
import pkgutil

import numba as nb
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from smnn._solver.cpu.lanes import I64, W, copy, prefetch, product, subtract_dot
from smnn._solver.cpu.layout import AXES
from smnn._util.jit import jit

F = nb.float64
I = nb.int64
FILES = (
    "layout", "lanes", "pieces", "eliminate", "substitute", "row_gradients", "separators",
    "kernels",
)  # fmt: skip
AHEAD = 8  # Prefetch distance in steps: some microseconds


def strided(ndim: int) -> nb.types.Array:
    """Array type of any layout: one compiled version serves all strides."""
    return nb.types.Array(F, ndim, "A")


def flat() -> nb.types.Array:
    return nb.types.Array(F, 1, "C")


def whole() -> nb.types.Array:
    return nb.types.Array(I, 1, "C")


def compiled(*arguments: nb.types.Type, returns: nb.types.Type = nb.void):
    """Compile ahead of time for one signature, cached on disk, without the GIL."""
    return jit(returns(*arguments), nogil=True, error_model="numpy")


def sources() -> int:
    """Hash of all kernel sources.

    Numba's disk cache depends on the text of one file and on closure variables only. Kernels
    therefore close over this number, or a new version of the package would use stale code.
    """
    digest = hashlib.sha256()
    for name in FILES:
        digest.update(pkgutil.get_data(__package__, f"{name}.py"))
    return int.from_bytes(digest.digest()[:7], "big")


small = nb.njit(inline="always", error_model="numpy")
inner = nb.njit(nogil=True, error_model="numpy")  # A function called by kernels


@intrinsic
def unowned(typingctx, arrays):
    """The same tuple of arrays without reference counting.

    Passing owned arrays to `small` functions counts references in the innermost loop, which takes
    longer than the arithmetic. The owners must outlive the result: arguments of a kernel do, and
    local arrays do up to `release`.
    """

    def codegen(context, builder, signature, values):
        (kind,) = signature.args
        out = []
        for i, each in enumerate(kind):
            make = context.make_array(each)
            array = make(context, builder, builder.extract_value(values[0], i))
            array.meminfo = cgutils.get_null_value(array.meminfo.type)
            array.parent = cgutils.get_null_value(array.parent.type)
            out.append(array._getvalue())
        return context.make_tuple(builder, kind, out)

    return arrays(arrays), codegen


@intrinsic
def release(typingctx, arrays):
    """Keeps local arrays alive up to here."""

    def codegen(context, builder, signature, values):
        return context.get_dummy_value()

    return types.void(arrays), codegen


@small
def cells(sizes):
    """Zeroed scratch memory for all of these sizes."""
    total = 0
    for size in sizes:
        total += size
    return np.zeros(total * W)


@small
def lane_integers(count):
    return np.empty(count * W, np.int64)


@intrinsic
def split(typingctx, room, sizes):
    """Split scratch memory into arrays without reference counting.

    Separate allocations take as long as solving a short sequence. As with `unowned`, the memory
    must outlive the result.
    """
    kind = types.Array(room.dtype, 1, "C")

    def codegen(context, builder, signature, values):
        whole = context.make_array(room)(context, builder, values[0])
        word = context.get_constant(types.intp, 8)
        at, out = context.get_constant(types.intp, 0), []
        for i in range(len(sizes)):
            size = builder.extract_value(values[1], i)
            size = builder.mul(size, context.get_constant(types.intp, W))
            share = context.make_array(kind)(context, builder)
            populate_array(
                share, data=builder.gep(whole.data, [at]), shape=[size], strides=[word],
                itemsize=word, meminfo=None,
            )  # fmt: skip
            out.append(share._getvalue())
            at = builder.add(at, size)
        return context.make_tuple(builder, signature.return_type, out)

    return types.UniTuple(kind, len(sizes))(room, sizes), codegen


@small
def piece_start(p, T, P):
    """First time of piece `p` when `T` times are cut into `P` pieces as evenly as possible."""
    return p * (T // P) + min(p, T % P)


@small
def longest_piece(T, P):
    """Times of the longest piece, which is the number of steps of every lane."""
    return T // P + (1 if T % P else 0)


@small
def row_cells(n, reach, k):
    """Cells of a stored factor block: triangle, coupling to later blocks, left columns."""
    return n * (n + 1) // 2 + n * (reach * n + k)


@small
def find_pieces(group, B, T, P, lane_b, lane_p, lane_t0, lane_end):
    """Sequence, number, first time and end of every lane's piece."""
    for l in range(W):
        lane = min(group * W + l, B * P - 1)
        lane_b[l], lane_p[l] = lane // P, lane % P
        lane_t0[l], lane_end[l] = piece_start(lane % P, T, P), piece_start(lane % P + 1, T, P)


@small
def set_times(lane_t, lane_end, L, step):
    for l in range(W):
        lane_t[l] = lane_end[l] - L + step


@small
def find(offsets, tensor, lane_b, lane_t):
    """Byte offset of every lane's sequence and time (clamped) in a tensor."""
    last = tensor.shape[1] - 1
    for l in range(W):
        t = min(max(lane_t[l], 0), last)
        offsets[l] = lane_b[l] * tensor.strides[0] + t * tensor.strides[1]


@small
def find_present(offsets, tensor, lane_b, lane_t, lane_t0):
    """As `find`, but negative for times before the piece."""
    find(offsets, tensor, lane_b, lane_t)
    for l in range(W):
        if lane_t[l] < lane_t0[l]:
            offsets[l] = -1


@small
def prefetch_steps(tensor, offsets, on, ahead):
    """Prefetch what the lanes need `ahead` steps later, once per cache line.

    The hardware prefetcher does not track so many streams.
    """
    stride = tensor.strides[1]
    if stride > 8 or (stride == 8 and on % 8 == 0):
        for line in range(0, stride, 64):
            prefetch(tensor, offsets, (on + ahead) * stride + line)


@small
def constant(x):
    """Whether a tensor is the same for every sequence and time."""
    return x.strides[0] == 0 and x.strides[1] == 0


@small
def put_left(window, separators, lane_b, lane_p, span, k):
    """Fill the last `k` cells of a window with the left separators of the pieces."""
    for l in range(W):
        for j in range(k):
            b, p = lane_b[l], lane_p[l]
            window[(span + j) * W + l] = separators[b, p - 1, j] if p > 0 else 0.0


@small
def back_step(window, factor, z, separators, lane_b, lane_p, step, base, end, n, span, k, size):
    """Shift the window of `R x = z` back by one step: substitute, or from `end` on load."""
    for j in range(span - n - 1, -1, -1):
        copy(window, n + j, window, j, 1)
    if step >= end:
        for l in range(W):
            for j in range(n):
                window[j * W + l] = separators[lane_b[l], lane_p[l], (step - end) * n + j]
    else:
        at = (base + step + 1) * size
        for j in range(n - 1, -1, -1):
            at -= span - j + k
            copy(window, j, z, (base + step) * n + j, 1)
            subtract_dot(window, j, factor, at + 1, window, j + 1, span - j - 1 + k)
            product(window, j, window, j, factor, at)


# Arrays from addresses and records (`layout.py`): converting tensors to arrays in Python takes
# longer than the kernels need for a short sequence.


def _array(context, builder, kind, address, shape, strides):
    array = context.make_array(kind)(context, builder)
    cell = context.get_data_type(kind.dtype)
    populate_array(
        array,
        data=builder.inttoptr(address, cell.as_pointer()),
        shape=shape,
        strides=strides,
        itemsize=context.get_constant(types.intp, 8),
        meminfo=None,
    )
    return array._getvalue()


def _reader(context, builder, signature, values):
    """Function that reads entries of the notes `values[0]`, starting at `values[1]`."""
    data = context.make_array(signature.args[0])(context, builder, values[0]).data

    def note(k):
        return builder.load(builder.gep(data, [builder.add(values[1], I64(k))]))

    return note


def _viewer(ndim):
    kind = strided(ndim)

    @intrinsic
    def view(typingctx, notes, at, address):
        """Tensor of a record, at an address, or at that in the record if it is 0."""

        def codegen(context, builder, signature, values):
            note = _reader(context, builder, signature, values)
            given = builder.icmp_signed("!=", values[2], I64(0))
            address = builder.select(given, values[2], note(0))
            shape = [note(1 + i) for i in range(ndim)]
            strides = [note(1 + AXES + i) for i in range(ndim)]
            return _array(context, builder, kind, address, shape, strides)

        return kind(whole(), I, I), codegen

    return view


def _maker(ndim):
    kind = strided(ndim)

    @intrinsic
    def dense(typingctx, notes, at, address):
        """Contiguous tensor with the sizes of a record; empty if the address is 0."""

        def codegen(context, builder, signature, values):
            note = _reader(context, builder, signature, values)
            given = builder.icmp_signed("!=", values[2], I64(0))
            shape = [builder.select(given, note(1 + i), I64(0)) for i in range(ndim)]
            strides = [I64(8)]
            for size in shape[:0:-1]:
                strides.insert(0, builder.mul(strides[0], size))
            return _array(context, builder, kind, values[2], shape, strides)

        return kind(whole(), I, I), codegen

    return dense


@intrinsic
def spread4(typingctx, notes, at, address, step0, step1, step2, step3):
    """Tensor with the sizes of a record, and strides given in elements."""
    kind = strided(4)

    def codegen(context, builder, signature, values):
        note = _reader(context, builder, signature, values)
        shape = [note(1 + i) for i in range(4)]
        strides = [builder.mul(step, I64(8)) for step in values[3:]]
        return _array(context, builder, kind, values[2], shape, strides)

    return kind(whole(), I, I, I, I, I, I), codegen


view3, view4, view5 = _viewer(3), _viewer(4), _viewer(5)
dense3, dense4, dense5 = _maker(3), _maker(4), _maker(5)


def _runner(kind):
    @intrinsic
    def run(typingctx, address, size):
        """Flat array at an address."""

        def codegen(context, builder, signature, values):
            strides = [context.get_constant(types.intp, 8)]
            return _array(context, builder, kind, values[0], [values[1]], strides)

        return kind(I, I), codegen

    return run


run, run_of_integers = _runner(flat()), _runner(whole())
