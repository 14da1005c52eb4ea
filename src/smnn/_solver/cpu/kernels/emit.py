"""LLVM code written from Python: one scalar operation is one vector instruction on all lanes.

A kernel is a Python function that computes with `Value`s, which stand for numbers known when the
kernel runs; integers that are known earlier stay Python integers. `Code.range` and `Code.when` are
`for` statements of both: with known bounds the body is written once per iteration, otherwise it is
written once, inside a loop or a branch. So the same source gives straight-line code for a known
block size and loops for any other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

I64, BIT = "i64", "i1"
COMPARISONS = {
    "lt": ("icmp slt", "fcmp olt"), "le": ("icmp sle", "fcmp ole"), "gt": ("icmp sgt", "fcmp ogt"),
    "ge": ("icmp sge", "fcmp oge"), "eq": ("icmp eq", "fcmp oeq"), "ne": ("icmp ne", "fcmp une"),
    "ult": ("", "fcmp ult"),
}  # fmt: skip
"""Instructions for integers and for floating-point numbers."""
NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "sdiv": 1}
Number = Any
"""A `Value`, or a Python number known when the code is written."""


def _operator(name: str, swapped: bool = False) -> Any:
    """A method of `Value`: an instruction with another number."""

    def operate(self: Value, other: Number) -> Number:
        return self.code.operation(name, *((other, self) if swapped else (self, other)))

    return operate


class Value:
    """A number known when the kernel runs: an integer, one bit, or a vector of one of them.

    Operators write instructions; so do comparisons, of which `!=` is true for NaN.
    """

    __slots__ = ("code", "kind", "name")

    def __init__(self, code: Code, kind: str, name: str) -> None:
        self.code, self.kind, self.name = code, kind, name

    __add__ = __radd__ = _operator("add")
    __mul__ = __rmul__ = _operator("mul")
    __sub__, __rsub__ = _operator("sub"), _operator("sub", swapped=True)
    __truediv__, __rtruediv__ = _operator("div"), _operator("div", swapped=True)
    __floordiv__, __mod__ = _operator("sdiv"), _operator("srem")
    __and__ = __rand__ = _operator("and")
    __or__ = __ror__ = _operator("or")
    __lt__, __le__, __gt__, __ge__ = (_operator(x) for x in ("lt", "le", "gt", "ge"))
    __eq__, __ne__ = _operator("eq"), _operator("ne")
    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> Value:
        return self.code.value(f"fneg {self.kind} {self.name}", self.kind)

    def __bool__(self) -> bool:
        raise TypeError("a Value is not known when the code is written; use Code.when or select")

    def below_or_nan(self, other: Number) -> Value:
        """Whether it is less, or one of both is NaN."""
        return self.code.operation("ult", self, other)


class Cells:
    """Memory of lanes: `cells[i]` is one number per lane. `kind` is that of the numbers."""

    def __init__(self, code: Code, pointer: str, kind: str, at: Number = 0) -> None:
        self.code, self.pointer, self.kind, self.first = code, pointer, kind, at

    def at(self, cell: Number) -> Cells:
        """The same memory from a cell on."""
        return Cells(self.code, self.pointer, self.kind, self.first + cell)

    def address(self, cell: Number) -> str:
        index = self.code.text(self.first + cell, I64)
        return self.code.name(f"getelementptr {self.kind}, ptr {self.pointer}, i64 {index}")

    def __getitem__(self, cell: Number) -> Value:
        return self.code.value(f"load {self.kind}, ptr {self.address(cell)}, align 8", self.kind)

    def __setitem__(self, cell: Number, value: Number) -> None:
        text = self.code.text(value, self.kind)
        self.code.line(f"store {self.kind} {text}, ptr {self.address(cell)}, align 8")


class Code:
    """The body of one function `void name(ptr, ...)` with `lanes` numbers per vector."""

    def __init__(self, name: str, lanes: int, arguments: int, estimates: bool) -> None:
        self.lanes, self.estimates = lanes, estimates
        self.vec = self._vector("double")
        self.ints, self.bits = self._vector(I64), self._vector(BIT)
        self.title = name
        self.arguments = [Value(self, I64, f"%a{i}") for i in range(arguments)]
        self._entry: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self.used: set[str] = set()
        self.transfer: Cells | None = None
        """If there is such memory, numbers are moved to and from lanes by functions."""

    def _vector(self, kind: str) -> str:
        return kind if self.lanes == 1 else f"<{self.lanes} x {kind}>"

    # ------------------------------------------------------------ text

    def line(self, text: str) -> None:
        self._lines.append(text)

    def name(self, text: str) -> str:
        """Append an instruction; the name of its result."""
        self._count += 1
        self._lines.append(f"%v{self._count} = {text}")
        return f"%v{self._count}"

    def value(self, text: str, kind: str) -> Value:
        return Value(self, kind, self.name(text))

    def text(self, x: Number, kind: str) -> str:
        """A value, or a constant, as an operand of this kind."""
        if isinstance(x, Value):
            if x.kind != kind and kind == self._vector(x.kind):
                return self.spread(x).name
            return x.name
        scalar = kind[kind.index(" x ") + 3 : -1] if kind[0] == "<" else kind
        if scalar == "double":
            shown = f"0x{struct.unpack('<Q', struct.pack('<d', float(x)))[0]:016X}"
        else:
            shown = str(int(x))
        return shown if scalar == kind else f"splat ({scalar} {shown})"

    def finished(self) -> str:
        """The text of the function."""
        body = ["entry:", *self._entry, "br label %body", "body:", *self._lines, "ret void"]
        arguments = ", ".join(f"i64 {x.name}" for x in self.arguments)
        return "\n".join([f"define void @{self.title}({arguments}) #0 {{", *body, "}", ""])

    def run(self, name: str, *arguments: Number | Cells) -> None:
        """Call another function; memory is passed by address."""
        given = []
        for x in arguments:
            if isinstance(x, Cells):
                x = self.value(f"ptrtoint ptr {x.address(0)} to i64", I64)
            given.append(f"i64 {self.text(x, I64)}")
        self.line(f"call void @{name}({', '.join(given)})")

    def at_entry(self, address: Value, index: int) -> Value:
        """An integer of an array, loaded before everything else."""
        self._lines, body = self._entry, self._lines
        found = self.memory(address, I64)[index]
        self._lines = body
        return found

    def call(self, name: str, kind: str, kinds: Sequence[str], *values: Number) -> Value:
        """A call of an intrinsic, declared on its first use."""
        self.used.add(f"declare {kind} @{name}({', '.join(kinds)})")
        given = ", ".join(f"{k} {self.text(x, k)}" for k, x in zip(kinds, values, strict=True))
        return self.value(f"call {kind} @{name}({given})", kind)

    # ------------------------------------------------------------ arithmetic

    def operation(self, name: str, a: Number, b: Number) -> Number:
        """An arithmetic instruction or comparison; a number with a vector applies to all lanes."""
        kind = max((x.kind for x in (a, b) if isinstance(x, Value)), key=len)
        known, other = (a, b) if isinstance(b, Value) else (b, a)
        known = None if isinstance(known, Value) else known
        real, result = "double" in kind, kind
        if name in ("and", "or") and isinstance(known, bool):
            return known if known == (name == "or") else other
        if name in COMPARISONS:
            result = self.bits if kind[0] == "<" or real else BIT
            name = COMPARISONS[name][real]
        elif real:
            name = f"f{name} contract"
        elif known is b and b == NEUTRAL.get(name):
            return a
        elif name == "mul" and known == 0:
            return 0
        return self.value(f"{name} {kind} {self.text(a, kind)}, {self.text(b, kind)}", result)

    def select(self, condition: Number, a: Number, b: Number) -> Number:
        if not isinstance(condition, Value):
            return a if condition else b
        kinds = [x.kind for x in (a, b) if isinstance(x, Value)]
        kind = max(kinds, key=len) if kinds else self.vec
        texts = f"{kind} {self.text(a, kind)}, {kind} {self.text(b, kind)}"
        return self.value(f"select {condition.kind} {condition.name}, {texts}", kind)

    def least(self, a: Number, b: Number) -> Number:
        return self.select(a < b, a, b)

    def most(self, a: Number, b: Number) -> Number:
        return self.select(a > b, a, b)

    def any(self, mask: Number) -> Number:
        """Whether a condition holds in any lane."""
        if not isinstance(mask, Value) or mask.kind == BIT:
            return mask
        kind = f"i{self.lanes}"
        bits = self.name(f"bitcast {self.bits} {mask.name} to {kind}")
        return self.value(f"icmp ne {kind} {bits}, 0", BIT)

    def spread(self, number: Value) -> Value:
        """One number in all lanes."""
        if self.lanes == 1:
            return number
        kind = self._vector(number.kind)
        first = self.name(f"insertelement {kind} poison, {number.kind} {number.name}, i32 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.value(f"shufflevector {kind} {first}, {kind} poison, {zeros}", kind)

    def gathered(self, numbers: Sequence[Value]) -> Value:
        """A vector of one number per lane."""
        if self.lanes == 1:
            return numbers[0]
        kind, out = self._vector(numbers[0].kind), "poison"
        for lane, x in enumerate(numbers):
            out = self.name(f"insertelement {kind} {out}, {x.kind} {x.name}, i32 {lane}")
        return Value(self, kind, out)

    def lane(self, x: Value, lane: int) -> Value:
        """The number of one lane."""
        if self.lanes == 1:
            return x
        scalar = x.kind[x.kind.index(" x ") + 3 : -1]
        return self.value(f"extractelement {x.kind} {x.name}, i32 {lane}", scalar)

    def as_float(self, x: Number) -> Number:
        if not isinstance(x, Value):
            return float(x)
        kind = self.vec if x.kind == self.ints else "double"
        return self.value(f"sitofp {x.kind} {x.name} to {kind}", kind)

    def absolute(self, x: Value) -> Value:
        suffix = "f64" if self.lanes == 1 else f"v{self.lanes}f64"
        return self.call(f"llvm.fabs.{suffix}", self.vec, [self.vec], x)

    def inverse_root(self, x: Value) -> Value:
        """`1 / sqrt(x)`; of vectors by Newton's method, three times as fast as the instructions."""
        if self.lanes == 1:
            return 1.0 / self.call("llvm.sqrt.f64", "double", ["double"], x)
        if self.estimates and self.lanes % 8 == 0:
            y, rounds = self._estimate(x), 2  # 14 bits are right
        else:  # halve and negate the exponent: within 4 %
            bits = Value(self, self.ints, self.name(f"bitcast {x.kind} {x.name} to {self.ints}"))
            half = self.value(f"lshr {self.ints} {bits.name}, {self.text(1, self.ints)}", self.ints)
            guess = 0x5FE6EB50C7B537A9 - half
            y = self.value(f"bitcast {self.ints} {guess.name} to {self.vec}", self.vec)
            rounds = 4
        half = x * -0.5
        for _ in range(rounds):
            y = y + y * (half * y * y + 0.5)
        return y

    def _estimate(self, x: Value) -> Value:
        """Hardware estimate of `1 / sqrt(x)`, register by register."""
        eight, name = "<8 x double>", "llvm.x86.avx512.rsqrt14.pd.512"
        parts = [self._shuffled(x, x, first, 8) for first in range(0, self.lanes, 8)]
        parts = [self.call(name, eight, (eight, eight, "i8"), p, 0.0, -1) for p in parts]
        return parts[0] if len(parts) == 1 else self._shuffled(*parts, 0, self.lanes)

    def _shuffled(self, p: Value, q: Value, first: int, count: int) -> Value:
        order = ", ".join(f"i32 {i}" for i in range(first, first + count))
        text = f"shufflevector {p.kind} {p.name}, {q.kind} {q.name}, <{count} x i32> <{order}>"
        return self.value(text, f"<{count} x double>")

    # ------------------------------------------------------------ memory

    def local(self, size: int, kind: str = "") -> Cells:
        """Memory of the function for a known number of cells, zeros at first."""
        kind = kind or self.vec
        self._lines, body = self._entry, self._lines
        cells = Cells(self, self.name(f"alloca {kind}, i64 {max(size, 1)}, align 64"), kind)
        for i in range(size):
            cells[i] = 0.0 if "double" in kind else 0
        self._lines = body
        return cells

    def memory(self, address: Value, kind: str = "") -> Cells:
        """Cells at an address."""
        return Cells(self, self.name(f"inttoptr i64 {address.name} to ptr"), kind or self.vec)

    def gather(self, addresses: Cells, extra: Number) -> Value:
        """One number per lane, each from an address of its own."""
        return self._by_lanes("gather", addresses, extra, None)

    def scatter(self, addresses: Cells, extra: Number, x: Value) -> None:
        """Write one number per lane, each to an address of its own."""
        self._by_lanes("scatter", addresses, extra, x)

    def _by_lanes(self, name: str, addresses: Cells, extra: Number, x: Value | None) -> Any:
        if self.transfer is None:
            return move_lanes(self, addresses, extra, x)
        if x is not None:
            self.transfer[0] = x
        self.run(name, self.transfer, addresses, extra)
        return self.transfer[0] if x is None else None

    # ------------------------------------------------------------ control

    def range(
        self, start: Number, stop: Number, step: int = 1, unrolled: bool = True
    ) -> Iterator[Number]:
        """The loop over `range(start, stop, step)`, unrolled if both bounds are known."""
        if unrolled and not isinstance(start, Value) and not isinstance(stop, Value):
            yield from range(start, stop, step)
            return
        index = self.local(1, I64)
        index[0] = start
        self._count += 1
        mark = self._count
        self.line(f"br label %head{mark}")
        self.line(f"head{mark}:")
        here = index[0]
        inside = here < stop if step > 0 else here > stop
        self.line(f"br i1 {inside.name}, label %loop{mark}, label %end{mark}")
        self.line(f"loop{mark}:")
        yield here
        index[0] = here + step
        self.line(f"br label %head{mark}")
        self.line(f"end{mark}:")

    def when(self, condition: Number) -> Iterator[None]:
        """A loop of one iteration if the condition holds in any lane, and of none otherwise."""
        condition = self.any(condition)
        if not isinstance(condition, Value):
            if condition:
                yield
            return
        self._count += 1
        mark = self._count
        self.line(f"br i1 {condition.name}, label %then{mark}, label %after{mark}")
        self.line(f"then{mark}:")
        yield
        self.line(f"br label %after{mark}")
        self.line(f"after{mark}:")


def move_lanes(e: Code, addresses: Cells, extra: Number, x: Value | None) -> Value | None:
    """Read one number per lane, each from an address of its own, or write one to there."""
    found = []
    for lane in range(e.lanes):
        word = Cells(e, addresses.pointer, I64, addresses.first * e.lanes + lane)
        place = e.memory(word[0] + extra, "double")
        if x is None:
            found.append(place[0])
        else:
            place[0] = e.lane(x, lane)
    return e.gathered(found) if x is None else None


def moving_functions(lanes: int) -> list[Code]:
    """The functions `gather` and `scatter`."""
    codes = []
    for name in ("gather", "scatter"):
        e = Code(name, lanes, 3, False)
        cell, addresses, extra = e.arguments
        vector, words = e.memory(cell), e.memory(addresses, e.ints)
        if name == "gather":
            vector[0] = move_lanes(e, words, extra, None)
        else:
            move_lanes(e, words, extra, vector[0])
        codes.append(e)
    return codes


# ---------------------------------------------------------------- compilation


def has_estimates() -> bool:
    """Whether the processor has the estimates of AVX-512."""
    from llvmlite import binding as llvm

    return bool(llvm.get_host_cpu_features().get("avx512f"))


def compiled(codes: Sequence[Code]) -> tuple[Any, Any, int]:
    """Compile functions, of which the last may call the others.

    Returns the owner of their memory, the last one as a Python function, and its address.
    """
    import ctypes

    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    texts = [code.finished() for code in codes]
    texts = [
        x for x, code in zip(texts, codes) if code is codes[-1] or f"@{code.title}(" in texts[-1]
    ]
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), jit=True, opt=1
    )
    declared = sorted(set().union(*(code.used for code in codes)))
    attributes = 'attributes #0 = { nounwind "prefer-vector-width"="512" }'
    text = "\n".join([*declared, *texts, attributes])
    module = llvm.parse_assembly(text)
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_function_pass_manager()  # standard ones take four times as long
    passes.add_sroa_pass()
    passes.add_new_gvn_pass()
    passes.add_instruction_combine_pass()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    last = codes[-1]
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(last.arguments))
    address = engine.get_function_address(last.title)
    return engine, kind(address), address
