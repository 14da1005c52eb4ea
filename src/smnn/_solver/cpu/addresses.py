"""Arrays in CPU kernels from addresses and notes: see `layout.py`.

To make an array of a tensor and to take it apart again costs Python more than a short sequence
costs the kernels. And what takes numbers alone can be called from C++: `native.cpp`.
"""

# mypy: ignore-errors
from __future__ import annotations

from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from smnn._solver.cpu.layout import AXES
from smnn._solver.cpu.pieces import I, flat, strided, whole
from smnn._solver.cpu.simd import I64


def _array(context, builder, kind, address, shape, strides):
    """An array without an owner; strides in bytes."""
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
    """A function that reads the notes `values[0]` from `values[1]` on."""
    data = context.make_array(signature.args[0])(context, builder, values[0]).data

    def note(k):
        return builder.load(builder.gep(data, [builder.add(values[1], I64(k))]))

    return note


def _viewer(ndim):
    kind = strided(ndim)

    @intrinsic
    def view(typingctx, notes, at, address):
        """The tensor of a record, at an address, or at that in the record if none is given."""

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
        """A contiguous tensor of the size of a record; without an address, an empty one."""

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
    """A tensor of the size of a record, with strides of its own; these count numbers."""
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
        """So many numbers in a row."""

        def codegen(context, builder, signature, values):
            strides = [context.get_constant(types.intp, 8)]
            return _array(context, builder, kind, values[0], [values[1]], strides)

        return kind(I, I), codegen

    return run


run, run_of_integers = _runner(flat()), _runner(whole())
