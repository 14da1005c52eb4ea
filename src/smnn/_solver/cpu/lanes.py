"""SIMD intrinsics of the CPU kernels: one scalar operation on `W` problems at once.

Every buffer is a flat float64 array of *cells*; a cell holds one number for each of `W` independent
problems (lanes), side by side. Offsets count cells. The loops over columns are written as LLVM
vector code because LLVM cannot prove that two NumPy buffers do not overlap, and would fall back to
scalar code. `gather` and `scatter` move numbers between tensors of any layout and cells; their
offsets count bytes.
"""

# mypy: ignore-errors
from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from smnn._solver.cpu.layout import W

F64, I64 = ir.DoubleType(), ir.IntType(64)
VEC, _INTS = ir.VectorType(F64, W), ir.VectorType(I64, W)
_BITS, _I32 = ir.IntType(W), ir.IntType(32)


class Emit:
    """LLVM builder for the body of an intrinsic."""

    def __init__(self, context, builder, kinds, values) -> None:
        self.context, self.b = context, builder
        self.kinds, self.values = kinds, values

    def data(self, index):
        array = self.context.make_array(self.kinds[index])
        return array(self.context, self.b, self.values[index]).data

    def at(self, index):
        """Address of the cell given by arguments `index` (buffer) and `index + 1` (cell)."""
        return self.on(self.data(index), self.values[index + 1])

    def on(self, pointer, cells):
        return self.b.gep(pointer, [self.b.mul(cells, ir.Constant(I64, W))])

    def load(self, pointer):
        return self.b.load(self.b.bitcast(pointer, VEC.as_pointer()), align=8)

    def store(self, value, pointer) -> None:
        self.b.store(value, self.b.bitcast(pointer, VEC.as_pointer()), align=8)

    def each(self, count):
        return cgutils.for_range(self.b, count)

    def fma(self, a, b, c):
        kind = ir.FunctionType(VEC, [VEC] * 3)
        function = cgutils.get_or_insert_function(self.b.module, kind, f"llvm.fma.v{W}f64")
        return self.b.call(function, [a, b, c])

    def variable(self):
        """A vector register, initialized to zero."""
        place = cgutils.alloca_once(self.b, VEC)
        self.b.store(splat(0.0), place)
        return place

    def add_to(self, total, a, b) -> None:
        self.b.store(self.fma(a, b, self.b.load(total)), total)

    def spread(self, number):
        """Broadcast a number to all lanes."""
        first = self.b.insert_element(ir.Constant(VEC, ir.Undefined), number, nth(0))
        return self.b.shuffle_vector(first, first, ir.Constant(ir.VectorType(_I32, W), [0] * W))

    def inverse_root(self, x):
        """`1 / sqrt(x)` by Newton's method, three times as fast as square root and division."""
        if "+avx512f" in getattr(self.context.codegen(), "_tm_features", ""):
            y, rounds = self._estimate(x), 2  # 14 bits are right
        else:  # halve and negate the exponent: within 4 %
            bits = self.b.lshr(self.b.bitcast(x, _INTS), ir.Constant(_INTS, [1] * W))
            guess = self.b.sub(ir.Constant(_INTS, [0x5FE6EB50C7B537A9] * W), bits)
            y, rounds = self.b.bitcast(guess, VEC), 4
        half = self.b.fmul(x, splat(-0.5))
        for _ in range(rounds):
            y = self.fma(y, self.fma(self.b.fmul(half, y), y, splat(0.5)), y)
        return y

    def _estimate(self, x):
        """Hardware estimate of `1 / sqrt(x)`, register by register."""
        eight, none = ir.VectorType(F64, 8), ir.Constant(VEC, ir.Undefined)
        zeros = ir.Constant(eight, [0.0] * 8)
        name, mask = "llvm.x86.avx512.rsqrt14.pd.512", ir.IntType(8)
        kind = ir.FunctionType(eight, [eight, eight, mask])
        function = cgutils.get_or_insert_function(self.b.module, kind, name)
        parts = []
        for first in range(0, W, 8):
            part = self.b.shuffle_vector(x, none, _run(first, 8))
            parts.append(self.b.call(function, [part, zeros, ir.Constant(mask, 255)]))
        while len(parts) > 1:
            width = 2 * parts[0].type.count
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [self.b.shuffle_vector(p, q, _run(0, width)) for p, q in pairs]
        return parts[0]

    def prefetch(self, address) -> None:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(self.b.module, kind, "llvm.prefetch.p0")
        self.b.call(function, [self.b.bitcast(address, byte), nth(0), nth(3), nth(1)])

    def any(self, mask):
        bits = self.b.bitcast(mask, _BITS)
        return self.b.icmp_unsigned("!=", bits, ir.Constant(_BITS, 0))

    def number(self, tensor, offsets, extra, lane):
        """Address of one lane's number in a tensor, and that lane's offset."""
        own = self.b.load(self.b.gep(self.data(offsets), [ir.Constant(I64, lane)]))
        base = self.b.bitcast(self.data(tensor), ir.IntType(8).as_pointer())
        address = self.b.gep(base, [self.b.add(own, self.values[extra])])
        return self.b.bitcast(address, F64.as_pointer()), own


def splat(number: float):
    return ir.Constant(VEC, [number] * W)


def nth(index: int):
    return ir.Constant(_I32, index)


def _run(first: int, count: int):
    return ir.Constant(ir.VectorType(_I32, count), list(range(first, first + count)))


def instruction(kinds, body, returns=types.void):
    """Type and code of an intrinsic: arrays as they are, all other arguments 64-bit integers."""
    kinds = [k if isinstance(k, types.Array) else types.int64 for k in kinds]

    def codegen(context, builder, signature, values):
        out = body(Emit(context, builder, signature.args, values), *values)
        return context.get_dummy_value() if out is None else out

    return returns(*kinds), codegen


def _rotate(e, top, source, row, runs, copies) -> None:
    """Rotate the first cell of `source` into that of `top`, over every run of columns.

    A run is an offset from `top`, one from `source` and `row`, and a number of columns.
    """
    b = e.load(source)
    nonzero = e.any(e.b.fcmp_unordered("!=", b, splat(0.0)))
    with e.b.if_else(nonzero) as (rotated, kept):
        with rotated:
            a = e.load(top)
            square = e.fma(a, a, e.b.fmul(b, b))
            empty = e.b.fcmp_ordered("==", square, splat(0.0))
            inverse = e.inverse_root(square)
            cosine = e.b.select(empty, splat(1.0), e.b.fmul(a, inverse))
            sine = e.b.select(empty, splat(0.0), e.b.fmul(b, inverse))
            for above, below, count in runs:
                p, q, out = e.on(top, above), e.on(source, below), e.on(row, below)
                with e.each(count) as loop:
                    here = e.on(p, loop.index)
                    x, y = e.load(here), e.load(e.on(q, loop.index))
                    e.store(e.fma(cosine, x, e.b.fmul(sine, y)), here)
                    turned = e.fma(cosine, y, e.b.fneg(e.b.fmul(sine, x)))
                    e.store(turned, e.on(out, loop.index))
        with kept:
            for _, below, count in runs if copies else ():
                q, out = e.on(source, below), e.on(row, below)
                with e.each(count) as loop:
                    e.store(e.load(e.on(q, loop.index)), e.on(out, loop.index))


@intrinsic
def givens(typingctx, top, i, row, j, columns, above, below, more):
    """Rotate cell `row[j]` into `top[i]`, over `columns`, and over `more` with other offsets.

    A cell that is zero in every lane costs one comparison.
    """

    def body(e, top, i, row, j, columns, above, below, more):
        runs = [(ir.Constant(I64, 0), ir.Constant(I64, 0), columns), (above, below, more)]
        _rotate(e, e.at(0), e.at(2), e.at(2), runs, False)

    return instruction([top, i, row, j, columns, above, below, more], body)


@intrinsic
def givens_from(typingctx, top, i, source, k, row, j, columns, above, below, more):
    """As `givens` for a row at `source[k]` that is not modified; the result goes to `row`."""

    def body(e, top, i, source, k, row, j, columns, above, below, more):
        runs = [(ir.Constant(I64, 0), ir.Constant(I64, 0), columns), (above, below, more)]
        _rotate(e, e.at(0), e.at(2), e.at(4), runs, True)

    return instruction([top, i, source, k, row, j, columns, above, below, more], body)


@intrinsic
def subtract_dot(typingctx, out, o, a, i, b, j, columns):
    """`out[o] -= sum_k a[i + k] b[j + k]`, from the last term to the first.

    A back substitution traverses memory downwards. Changing direction within a row would defeat the
    hardware prefetcher, and take three times as long.
    """

    def body(e, out, o, a, i, b, j, columns):
        p, q = e.at(2), e.at(4)
        total = cgutils.alloca_once_value(e.b, e.load(e.at(0)))
        with e.each(columns) as loop:
            k = e.b.sub(e.b.sub(columns, loop.index), ir.Constant(I64, 1))
            x, y = e.load(e.on(p, k)), e.load(e.on(q, k))
            e.b.store(e.fma(e.b.fneg(x), y, e.b.load(total)), total)
        e.store(e.b.load(total), e.at(0))

    return instruction([out, o, a, i, b, j, columns], body)


@intrinsic
def dot(typingctx, out, o, a, i, b, j, columns):
    """`out[o] = sum_k a[i + k] b[j + k]`."""

    def body(e, out, o, a, i, b, j, columns):
        p, q = e.at(2), e.at(4)
        total = e.variable()
        with e.each(columns) as loop:
            e.add_to(total, e.load(e.on(p, loop.index)), e.load(e.on(q, loop.index)))
        e.store(e.b.load(total), e.at(0))

    return instruction([out, o, a, i, b, j, columns], body)


@intrinsic
def taylor_change(typingctx, total, both, weights, near, far, taylor, m):
    """Derivative by `log s` of `sum_r w_r^2 (e_r e'_r + f_r f'_r)` over the Taylor rows of a step.

    `near` and `far` hold `s^r x_r` at the two ends of the step for `r < m`, then the same of `x'`;
    `taylor` the negative Taylor matrix and its inverse. With the predictions `p = F near` and
    `q = F^-1 far`, the rows are `e = far - p` and `f = near - q`, and their derivatives
    `r e_r - p_{r+1}` and `r f_r + q_{r+1}`. Leaves `e_r e'_r + f_r f'_r` in `both`.
    """

    def body(e, total, both, weights, near, far, taylor, m):
        ends = [e.data(3), e.data(4)]
        numbers, one = e.data(5), ir.Constant(I64, 1)
        sums, upper = e.variable(), [e.variable() for _ in range(4)]
        with e.each(m) as outer:
            r = e.b.sub(e.b.sub(m, outer.index), one)
            found = [e.variable() for _ in range(4)]  # -p, -p', -q, -q'
            with e.each(e.b.sub(m, r)) as inner:
                j = e.b.add(r, inner.index)
                for side in range(2):
                    row = e.b.mul(e.b.add(r, m) if side else r, m)
                    number = e.spread(e.b.load(e.b.gep(numbers, [e.b.add(row, j)])))
                    for which in range(2):
                        cell = e.load(e.on(ends[side], e.b.add(j, m) if which else j))
                        e.add_to(found[2 * side + which], number, cell)
            rows = []
            for k, value in enumerate(found):
                own = e.on(ends[1 - k // 2], e.b.add(r, m) if k % 2 else r)
                rows.append(e.b.fadd(e.load(own), e.b.load(value)))
            product = e.fma(rows[0], rows[1], e.b.fmul(rows[2], rows[3]))
            e.store(product, e.on(e.data(1), r))
            twice = e.spread(e.b.sitofp(e.b.add(r, r), F64))
            above = [e.b.load(x) for x in upper]
            change = e.fma(twice, product, e.b.fmul(above[0], rows[1]))
            change = e.fma(above[1], rows[0], change)
            change = e.fma(e.b.fneg(above[2]), rows[3], change)
            change = e.fma(e.b.fneg(above[3]), rows[2], change)
            weight = e.load(e.on(e.data(2), r))
            e.add_to(sums, e.b.fmul(weight, weight), change)
            for kept, value in zip(upper, found, strict=True):
                e.b.store(e.b.load(value), kept)
        e.store(e.b.load(sums), e.data(0))

    return instruction([total, both, weights, near, far, taylor, m], body)


@intrinsic
def subtract_multiple(typingctx, out, o, a, i, b, j, columns):
    """`out[o + k] -= a[i + k] b[j]`."""

    def body(e, out, o, a, i, b, j, columns):
        target, p = e.at(0), e.at(2)
        factor = e.b.fneg(e.load(e.at(4)))
        with e.each(columns) as loop:
            here = e.on(target, loop.index)
            e.store(e.fma(e.load(e.on(p, loop.index)), factor, e.load(here)), here)

    return instruction([out, o, a, i, b, j, columns], body)


def _cellwise(combine):
    """Intrinsic for `out[o] = combine(a[i], b[j])`."""

    @intrinsic
    def operation(typingctx, out, o, a, i, b, j):
        def body(e, out, o, a, i, b, j):
            e.store(combine(e, e.load(e.at(2)), e.load(e.at(4))), e.at(0))

        return instruction([out, o, a, i, b, j], body)

    return operation


product = _cellwise(lambda e, a, b: e.b.fmul(a, b))
quotient = _cellwise(lambda e, a, b: e.b.fdiv(a, b))
add_product = _cellwise(lambda e, a, b: e.fma(a, b, e.load(e.at(0))))


def _columnwise(combine):
    """Intrinsic for `out[o + k] = combine(a[i + k], out[o + k])`, from the first column on."""

    @intrinsic
    def operation(typingctx, out, o, a, i, columns):
        def body(e, out, o, a, i, columns):
            target, p = e.at(0), e.at(2)
            with e.each(columns) as loop:
                x, here = e.load(e.on(p, loop.index)), e.on(target, loop.index)
                e.store(combine(e, x, here), here)

        return instruction([out, o, a, i, columns], body)

    return operation


copy = _columnwise(lambda e, x, here: x)
add = _columnwise(lambda e, x, here: e.b.fadd(e.load(here), x))
add_squares = _columnwise(lambda e, x, here: e.fma(x, x, e.load(here)))


@intrinsic
def clear(typingctx, out, o, columns):
    """`out[o + k] = 0`."""

    def body(e, out, o, columns):
        target = e.at(0)
        with e.each(columns) as loop:
            e.store(splat(0.0), e.on(target, loop.index))

    return instruction([out, o, columns], body)


@intrinsic
def keep_weakest(typingctx, best, where, pivot, i, squares, j, index):
    """Update `best` and `where` with `pivot^2 / squares` and `index` in the lanes where it is less.

    Zero for an empty column. The quotient is computed only where it may be needed.
    """

    def body(e, best, where, pivot, i, squares, j, index):
        x, norm, old = e.load(e.at(2)), e.load(e.at(4)), e.load(e.data(0))
        x = e.b.fmul(x, x)
        empty = e.b.fcmp_ordered("==", norm, splat(0.0))
        less = e.b.fcmp_unordered("<", x, e.b.fmul(old, norm))
        with e.b.if_then(e.any(e.b.or_(less, empty)), likely=False):
            ratio = e.b.select(empty, splat(0.0), e.b.fdiv(x, norm))
            less = e.b.fcmp_unordered("<", ratio, old)
            e.store(e.b.select(less, ratio, old), e.data(0))
            number = e.spread(e.b.sitofp(index, F64))
            e.store(e.b.select(less, number, e.load(e.data(1))), e.data(1))

    return instruction([best, where, pivot, i, squares, j, index], body)


@intrinsic
def differs(typingctx, a, i, b, j):
    """Whether two cells differ in any lane."""

    def body(e, a, i, b, j):
        return e.any(e.b.fcmp_unordered("!=", e.load(e.at(0)), e.load(e.at(2))))

    return instruction([a, i, b, j], body, types.boolean)


@intrinsic
def gather(typingctx, out, o, tensor, offsets, extra):
    """Read one number per lane: `out[o] = tensor[offsets + extra]`, in bytes."""

    def body(e, out, o, tensor, offsets, extra):
        vector = ir.Constant(VEC, ir.Undefined)
        for lane in range(W):
            address, _ = e.number(2, 3, 4, lane)
            vector = e.b.insert_element(vector, e.b.load(address), nth(lane))
        e.store(vector, e.at(0))

    return instruction([out, o, tensor, offsets, extra], body)


@intrinsic
def scatter(typingctx, tensor, offsets, extra, a, i, partly):
    """Write one number per lane: `tensor[offsets + extra] = a[i]`.

    If only `partly`, negative offsets are skipped.
    """

    def body(e, tensor, offsets, extra, a, i, partly):
        vector = e.load(e.at(3))

        def write(skips):
            for lane in range(W):
                address, own = e.number(0, 1, 2, lane)
                x = e.b.extract_element(vector, nth(lane))
                if skips:
                    with e.b.if_then(e.b.icmp_signed(">=", own, ir.Constant(I64, 0))):
                        e.b.store(x, address)
                else:
                    e.b.store(x, address)

        skips = e.b.icmp_signed("!=", partly, ir.Constant(I64, 0))
        with e.b.if_else(skips, likely=False) as (some, every):
            with some:
                write(True)
            with every:
                write(False)

    return instruction([tensor, offsets, extra, a, i, partly], body)


@intrinsic
def prefetch(typingctx, tensor, offsets, extra):
    """Prefetch what `gather` will read there; any address is valid."""

    def body(e, tensor, offsets, extra):
        for lane in range(W):
            address, _ = e.number(0, 1, 2, lane)
            e.prefetch(address)

    return instruction([tensor, offsets, extra], body)
