"""Vector instructions for the CPU kernels: one scalar operation on `W` problems at once.

Every buffer is a flat float64 array of *cells*; a cell holds one number for each of `W`
independent problems (lanes), side by side. Offsets count cells. The loops over columns are
written in LLVM vectors because LLVM cannot prove that two NumPy buffers do not overlap, and would
fall back to scalar code. `gather` and `scatter` move numbers between tensors of any layout and
cells; their offsets count bytes.
"""

# mypy: ignore-errors
from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from smnn._backends._layout import W

_F64, _I64 = ir.DoubleType(), ir.IntType(64)
_VEC = ir.VectorType(_F64, W)
_BITS = ir.IntType(W)


class _Emit:
    """The few LLVM phrases that the instructions below are made of."""

    def __init__(self, context, builder, kinds, values) -> None:
        self.context, self.b = context, builder
        self.kinds, self.values = kinds, values

    def data(self, index):
        """First element of the array argument `index`."""
        array = self.context.make_array(self.kinds[index])
        return array(self.context, self.b, self.values[index]).data

    def at(self, index):
        """Address of the cell that arguments `index` (buffer) and `index + 1` (cell) name."""
        return self.on(self.data(index), self.values[index + 1])

    def on(self, pointer, cells):
        """Address `cells` further on."""
        return self.b.gep(pointer, [self.b.mul(cells, ir.Constant(_I64, W))])

    def load(self, pointer):
        return self.b.load(self.b.bitcast(pointer, _VEC.as_pointer()), align=8)

    def store(self, value, pointer) -> None:
        self.b.store(value, self.b.bitcast(pointer, _VEC.as_pointer()), align=8)

    def each(self, count):
        return cgutils.for_range(self.b, count)

    def call(self, name, *arguments):
        kind = ir.FunctionType(_VEC, [_VEC] * len(arguments))
        function = cgutils.get_or_insert_function(self.b.module, kind, f"llvm.{name}.v{W}f64")
        return self.b.call(function, arguments)

    def fma(self, a, b, c):
        return self.call("fma", a, b, c)

    def any(self, mask):
        bits = self.b.bitcast(mask, _BITS)
        return self.b.icmp_unsigned("!=", bits, ir.Constant(_BITS, 0))

    def number(self, tensor, offsets, extra, lane):
        """Address of one lane's number in a tensor, and that lane's offset."""
        own = self.b.load(self.b.gep(self.data(offsets), [ir.Constant(_I64, lane)]))
        base = self.b.bitcast(self.data(tensor), ir.IntType(8).as_pointer())
        address = self.b.gep(base, [self.b.add(own, self.values[extra])])
        return self.b.bitcast(address, _F64.as_pointer()), own


def _splat(number: float):
    return ir.Constant(_VEC, [number] * W)


def _instruction(kinds, body, returns=types.void):
    """Type and code of an intrinsic: arrays as they come, everything else a 64-bit integer."""
    kinds = [k if isinstance(k, types.Array) else types.int64 for k in kinds]

    def codegen(context, builder, signature, values):
        out = body(_Emit(context, builder, signature.args, values), *values)
        return context.get_dummy_value() if out is None else out

    return returns(*kinds), codegen


@intrinsic
def givens(typingctx, top, i, bottom, j, columns, tail_i, tail_j, tail_columns):
    """Rotate cell `bottom[j]` into `top[i]`, over `columns` from there and over a second run.

    A bottom cell that is zero in every lane costs one comparison.
    """

    def body(e, top, i, bottom, j, columns, tail_i, tail_j, tail_columns):
        def rotate(p, q, count, cosine, sine):
            with e.each(count) as loop:
                here, there = e.on(p, loop.index), e.on(q, loop.index)
                a, b = e.load(here), e.load(there)
                e.store(e.fma(cosine, a, e.b.fmul(sine, b)), here)
                e.store(e.fma(cosine, b, e.b.fneg(e.b.fmul(sine, a))), there)

        p, q = e.at(0), e.at(2)
        b = e.load(q)
        with e.b.if_then(e.any(e.b.fcmp_unordered("!=", b, _splat(0.0)))):
            a = e.load(p)
            square = e.fma(a, a, e.b.fmul(b, b))
            empty = e.b.fcmp_ordered("==", square, _splat(0.0))
            inverse = e.b.fdiv(_splat(1.0), e.call("sqrt", square))
            cosine = e.b.select(empty, _splat(1.0), e.b.fmul(a, inverse))
            sine = e.b.select(empty, _splat(0.0), e.b.fmul(b, inverse))
            rotate(p, q, columns, cosine, sine)
            rotate(e.on(e.data(0), tail_i), e.on(e.data(2), tail_j), tail_columns, cosine, sine)

    return _instruction([top, i, bottom, j, columns, tail_i, tail_j, tail_columns], body)


@intrinsic
def subtract_dot(typingctx, out, o, a, i, b, j, columns):
    """`out[o] -= sum_k a[i + k] b[j + k]`."""

    def body(e, out, o, a, i, b, j, columns):
        p, q = e.at(2), e.at(4)
        total = cgutils.alloca_once_value(e.b, e.load(e.at(0)))
        with e.each(columns) as loop:
            x, y = e.load(e.on(p, loop.index)), e.load(e.on(q, loop.index))
            e.b.store(e.fma(e.b.fneg(x), y, e.b.load(total)), total)
        e.store(e.b.load(total), e.at(0))

    return _instruction([out, o, a, i, b, j, columns], body)


@intrinsic
def subtract_multiple(typingctx, out, o, a, i, b, j, columns):
    """`out[o + k] -= a[i + k] b[j]`."""

    def body(e, out, o, a, i, b, j, columns):
        target, p = e.at(0), e.at(2)
        factor = e.b.fneg(e.load(e.at(4)))
        with e.each(columns) as loop:
            here = e.on(target, loop.index)
            e.store(e.fma(e.load(e.on(p, loop.index)), factor, e.load(here)), here)

    return _instruction([out, o, a, i, b, j, columns], body)


@intrinsic
def add_product(typingctx, out, o, a, i, b, j):
    """`out[o] += a[i] b[j]`."""

    def body(e, out, o, a, i, b, j):
        e.store(e.fma(e.load(e.at(2)), e.load(e.at(4)), e.load(e.at(0))), e.at(0))

    return _instruction([out, o, a, i, b, j], body)


@intrinsic
def product(typingctx, out, o, a, i, b, j):
    """`out[o] = a[i] b[j]`."""

    def body(e, out, o, a, i, b, j):
        e.store(e.b.fmul(e.load(e.at(2)), e.load(e.at(4))), e.at(0))

    return _instruction([out, o, a, i, b, j], body)


@intrinsic
def reciprocal(typingctx, out, o, a, i):
    """`out[o] = 1 / a[i]`."""

    def body(e, out, o, a, i):
        e.store(e.b.fdiv(_splat(1.0), e.load(e.at(2))), e.at(0))

    return _instruction([out, o, a, i], body)


@intrinsic
def copy(typingctx, out, o, a, i, columns):
    """`out[o + k] = a[i + k]`, from the first column on."""

    def body(e, out, o, a, i, columns):
        target, p = e.at(0), e.at(2)
        with e.each(columns) as loop:
            e.store(e.load(e.on(p, loop.index)), e.on(target, loop.index))

    return _instruction([out, o, a, i, columns], body)


@intrinsic
def clear(typingctx, out, o, columns):
    """`out[o + k] = 0`."""

    def body(e, out, o, columns):
        target = e.at(0)
        with e.each(columns) as loop:
            e.store(_splat(0.0), e.on(target, loop.index))

    return _instruction([out, o, columns], body)


@intrinsic
def add_squares(typingctx, out, o, a, i, columns):
    """`out[o + k] += a[i + k]^2`."""

    def body(e, out, o, a, i, columns):
        target, p = e.at(0), e.at(2)
        with e.each(columns) as loop:
            x, here = e.load(e.on(p, loop.index)), e.on(target, loop.index)
            e.store(e.fma(x, x, e.load(here)), here)

    return _instruction([out, o, a, i, columns], body)


@intrinsic
def keep_weakest(typingctx, best, where, pivot, i, squares, j, index, k):
    """Put `pivot^2 / squares` and `index` into `best` and `where` in the lanes where it is less."""

    def body(e, best, where, pivot, i, squares, j, index, k):
        x = e.load(e.at(2))
        ratio = e.b.fdiv(e.b.fmul(x, x), e.load(e.at(4)))
        old = e.load(e.data(0))
        less = e.b.fcmp_unordered("<", ratio, old)
        e.store(e.b.select(less, ratio, old), e.data(0))
        e.store(e.b.select(less, e.load(e.at(6)), e.load(e.data(1))), e.data(1))

    return _instruction([best, where, pivot, i, squares, j, index, k], body)


@intrinsic
def differs(typingctx, a, i, b, j):
    """Whether two cells differ in any lane."""

    def body(e, a, i, b, j):
        return e.any(e.b.fcmp_unordered("!=", e.load(e.at(0)), e.load(e.at(2))))

    return _instruction([a, i, b, j], body, types.boolean)


@intrinsic
def gather(typingctx, out, o, tensor, offsets, extra):
    """Read one number per lane: `out[o] = tensor[offsets + extra]`, in bytes."""

    def body(e, out, o, tensor, offsets, extra):
        vector = ir.Constant(_VEC, ir.Undefined)
        for lane in range(W):
            address, _ = e.number(2, 3, 4, lane)
            vector = e.b.insert_element(
                vector, e.b.load(address), ir.Constant(ir.IntType(32), lane)
            )
        e.store(vector, e.at(0))

    return _instruction([out, o, tensor, offsets, extra], body)


@intrinsic
def scatter(typingctx, tensor, offsets, extra, a, i):
    """Write one number per lane: `tensor[offsets + extra] = a[i]`; negative offsets are skipped."""

    def body(e, tensor, offsets, extra, a, i):
        vector = e.load(e.at(3))
        for lane in range(W):
            address, own = e.number(0, 1, 2, lane)
            with e.b.if_then(e.b.icmp_signed(">=", own, ir.Constant(_I64, 0)), likely=True):
                x = e.b.extract_element(vector, ir.Constant(ir.IntType(32), lane))
                e.b.store(x, address)

    return _instruction([tensor, offsets, extra, a, i], body)
