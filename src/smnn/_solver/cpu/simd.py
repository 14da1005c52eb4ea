"""LLVM phrases for the vector instructions of the CPU kernels (`lanes.py`)."""

# mypy: ignore-errors
from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types

from smnn._solver.cpu.layout import W

F64, I64 = ir.DoubleType(), ir.IntType(64)
VEC, _INTS = ir.VectorType(F64, W), ir.VectorType(I64, W)
_BITS, _I32 = ir.IntType(W), ir.IntType(32)


class Emit:
    """The phrases that an instruction is made of."""

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
        """A register that starts, here and now, at zero."""
        place = cgutils.alloca_once(self.b, VEC)
        self.b.store(splat(0.0), place)
        return place

    def add_to(self, total, a, b) -> None:
        """`total += a b`."""
        self.b.store(self.fma(a, b, self.b.load(total)), total)

    def spread(self, number):
        """The same number in every lane."""
        first = self.b.insert_element(ir.Constant(VEC, ir.Undefined), number, nth(0))
        return self.b.shuffle_vector(first, first, ir.Constant(ir.VectorType(_I32, W), [0] * W))

    def inverse_root(self, x):
        """`1 / sqrt(x)` by Newton's method: a root and a quotient take three times as long."""
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
        """What the processor knows of `1 / sqrt(x)`, one register after the other."""
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
        """Ask for the cache line at an address, to read it soon and often."""
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
    """A constant, the same in every lane."""
    return ir.Constant(VEC, [number] * W)


def nth(index: int):
    """The name of one lane."""
    return ir.Constant(_I32, index)


def _run(first: int, count: int):
    return ir.Constant(ir.VectorType(_I32, count), list(range(first, first + count)))


def instruction(kinds, body, returns=types.void):
    """Type and code of an intrinsic: arrays as they come, everything else a 64-bit integer."""
    kinds = [k if isinstance(k, types.Array) else types.int64 for k in kinds]

    def codegen(context, builder, signature, values):
        out = body(Emit(context, builder, signature.args, values), *values)
        return context.get_dummy_value() if out is None else out

    return returns(*kinds), codegen
