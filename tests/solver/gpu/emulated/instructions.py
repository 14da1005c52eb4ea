"""The PTX instructions that the kernels use (`device.py`).

A register is an array of its 32 lanes' words; an instruction says what type they have. Steps are
bound to the arrays of one warp.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from solver.gpu.emulated.code import Instruction

LANES = 32
BARRIER, END, APART = -1, -2, -3
"""Returned instead of the position of the next instruction."""
Step = Callable[[], int | None]
WORDS = {"%p": np.bool_, "%rs": np.uint16, "%r": np.uint32, "%rd": np.uint64, "p": np.bool_}
TYPES = {
    "f64": np.float64, "s64": np.int64, "u64": np.uint64, "b64": np.uint64, "s32": np.int32,
    "u32": np.uint32, "b32": np.uint32, "s16": np.int16, "u16": np.uint16, "b16": np.uint16,
    "s8": np.int8, "pred": np.bool_,
}  # fmt: skip


class Registers:
    """Registers of a warp by name."""

    def __init__(self, warp: int) -> None:
        self._words: dict[str, np.ndarray] = {
            "%tid.x": np.arange(LANES, dtype=np.uint32) + np.uint32(LANES * warp)
        }
        self.active = np.ones(LANES, bool)
        """Lanes that do what is done now. The others' registers are of no meaning (`kept`)."""

    def kept(self) -> dict[str, np.ndarray]:
        """Copy all registers."""
        return {name: words.copy() for name, words in self._words.items()}

    def put_back(self, kept: dict[str, np.ndarray], lanes: np.ndarray) -> None:
        """Restore the registers of some lanes."""
        for name, words in kept.items():
            self._words[name][lanes] = words[lanes]

    def words(self, name: str) -> np.ndarray:
        """Words of a register."""
        if name not in self._words:
            kind = re.match(r"%?[a-z]+", name)
            assert kind, name
            self._words[name] = np.zeros(LANES, WORDS[kind.group()])
        return self._words[name]

    def read(self, text: str, kind: Any) -> np.ndarray:
        """An operand as a given type: a number, or the lowest bytes of a register."""
        if text[0] == "%" or text == "p":
            words = self.words(text)
            size = np.dtype(kind).itemsize
            if words.dtype.itemsize == size:
                return words.view(kind)
            assert words.dtype.itemsize > size, (text, kind)
            return words.view(kind)[:: words.dtype.itemsize // size]
        if text == "global_smem":
            return np.zeros(LANES, kind)
        value = int(text[2:], 16) if text.startswith("0d") else int(text.rstrip("U"), 0)
        if kind is np.bool_:
            return np.full(LANES, value != 0)
        size = np.dtype(kind).itemsize
        return np.full(LANES, value & ((1 << 8 * size) - 1), f"u{size}").view(kind)

    def follow(self, condition: str) -> Callable[[], np.ndarray]:
        """Active lanes whose predicate is true."""
        active = self.active
        if not condition:
            return lambda: active
        words = self.words(condition.lstrip("!"))
        return lambda: (~words if condition[0] == "!" else words) & active

    def result(self, name: str, kind: Any) -> np.ndarray:
        """A register as an output of a type."""
        return self.words(name).view(kind)


def _shift_left(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bits = 8 * a.dtype.itemsize
    return np.where(b < bits, a << np.minimum(b, bits - 1).astype(a.dtype), 0)


def _shift_right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bits = 8 * a.dtype.itemsize
    shifted = a >> np.minimum(b, bits - 1).astype(a.dtype)
    return shifted if a.dtype.kind == "i" else np.where(b < bits, shifted, 0)


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rounds towards zero; the result of a division by zero is not used."""
    b = np.where(b == 0, b.dtype.type(1), b)
    found = a // b
    return found + ((found < 0) & (found * b != a)) if a.dtype.kind == "i" else found


def _high(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Upper half of a product."""
    bits = 8 * a.dtype.itemsize
    products = a.astype(object) * b.astype(object)
    return np.array([int(x) >> bits for x in products], dtype=object).astype(a.dtype)


def _inserted(a: np.ndarray, b: np.ndarray, start: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Insert the lowest bits of the first operand into the second."""
    places = _shift_left(~_shift_left(~(a ^ a), count), start)
    return b & ~places | _shift_left(a, start) & places


def _coarse(x: np.ndarray) -> np.ndarray:
    """Like the approximate functions of a device: the lower word is zero."""
    return (x.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)


def _fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Fused multiply-add with (almost) one rounding, in extended precision."""
    return (a.astype(np.longdouble) * b + c).astype(np.float64)


def _bytes(a: np.ndarray, b: np.ndarray, how: np.ndarray) -> np.ndarray:
    """Select four of eight bytes by number; 8 more replicates the sign of the byte."""
    both = np.stack([a, b], 1).view(np.int8)
    out = np.empty((LANES, 4), np.int8)
    for i in range(4):
        chosen = both[np.arange(LANES), how >> (4 * i) & 7]
        out[:, i] = np.where(how >> (4 * i) & 8, chosen >> 7, chosen)
    return out.view(np.uint32)[:, 0]


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "mul.lo": operator.mul,
    "mul.hi": _high, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "max": np.fmax, "min": np.fmin, "shl": _shift_left, "shr": _shift_right,
    "div": _quotient, "div.rn": operator.truediv,
    "rem": lambda a, b: a - _quotient(a, b) * b,
    "add.rn": operator.add, "sub.rn": operator.sub, "mul.rn": operator.mul,
}  # fmt: skip
UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg, "abs": np.abs, "not": np.invert, "mov": lambda a: a, "sqrt.rn": np.sqrt,
    "rsqrt.approx.ftz": lambda a: _coarse(1.0 / np.sqrt(a)),
    "rcp.approx.ftz": lambda a: _coarse(1.0 / a),
}  # fmt: skip
ORDERED: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq, "ne": lambda a, b: (a < b) | (a > b), "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge, "num": lambda a, b: (a == a) & (b == b),
    "nan": lambda a, b: (a != a) | (b != b),
}  # fmt: skip
"""Comparisons. The variants with suffix `u` are true for NaN."""
REDUCED = {"add": lambda a: np.sum(a, dtype=a.dtype), "max": np.max, "min": np.min}


def _compared(how: str, kind: Any) -> Callable[[Any, Any], Any]:
    if how in ORDERED:
        return operator.ne if how == "ne" and kind is not np.float64 else ORDERED[how]
    ordered = ORDERED[how.removesuffix("u")]
    return lambda a, b: ordered(a, b) | (a != a) | (b != b)


def _wide(a: np.ndarray) -> np.ndarray:
    """Convert to the type of twice the size."""
    return a.astype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")


def translated(
    one: Instruction, labels: dict[str, int], registers: Registers, block: Any, warp: int
) -> Step:
    """Bind an instruction to the registers of a warp."""
    operation, operands = one.operation, one.operands
    kind = TYPES.get(operation.rpartition(".")[2])
    if operation == "ret":
        return lambda: END
    if operation == "bar.sync":
        return lambda: BARRIER
    if operation in ("bra", "bra.uni"):
        return _branch(registers, one.condition, labels[operands[0]])
    if operation.startswith(("ld.global", "st.global")):
        return _in_memory(one, registers, block, warp)
    if operation.startswith(("ld.shared", "st.shared")):
        return _in_shared(one, registers, block, kind)
    assert not one.condition, one
    if operation.startswith("ld.param"):
        return _argument(registers, block, operands, kind)
    if operands[1:] == ["%ctaid.x"]:
        out = registers.words(operands[0])
        return lambda: out.fill(block.number)
    return _computed(registers, operation, operands, kind)


def _branch(registers: Registers, condition: str, target: int) -> Step:
    if not condition:
        return lambda: target
    following, active = registers.follow(condition), registers.active

    def step() -> int | None:
        lanes = following()
        if not lanes.any():
            return None
        return target if (lanes == active).all() else APART

    return step


def _argument(registers: Registers, block: Any, operands: list[str], kind: Any) -> Step:
    out, number = registers.result(operands[0], kind), int(operands[1].rstrip("]").split("_")[-1])
    return lambda: out.fill(block.arguments[number] & ((1 << 64) - 1))


def _address(registers: Registers, text: str, kind: Any) -> Callable[[], np.ndarray]:
    base, _, shift = text.strip("[]").partition("+")
    start, more = registers.read(base, kind), kind(int(shift or 0))
    return lambda: start + more


def _in_memory(one: Instruction, registers: Registers, block: Any, warp: int) -> Step:
    """Load or store of a word by each lane whose predicate is true."""
    loads, (first, second) = one.operation.startswith("ld"), one.operands
    place, value = (second, first) if loads else (first, second)
    at, words = _address(registers, place, np.uint64), registers.words(value.strip("{}"))
    assert words.dtype.itemsize == 8, one
    following = registers.follow(one.condition)

    def step() -> None:
        mask = following()
        if not mask.any():
            return
        where, who = at()[mask], (block.number, block.epoch, warp, one.line)
        if loads:
            words[mask] = block.memory.load(where, *who)
        else:
            block.memory.store(where, words[mask], *who)

    return step


def _in_shared(one: Instruction, registers: Registers, block: Any, kind: Any) -> Step:
    """Load or store of one or several words of shared memory."""
    loads, (first, second) = one.operation.startswith("ld"), one.operands
    place, values = (second, first) if loads else (first, second)
    at, size = _address(registers, place, np.uint32), np.dtype(kind).itemsize
    found = re.findall(r"[^{},]+", values)
    words = [registers.words(x) if loads else registers.read(x, kind) for x in found]
    each, following = np.arange(size), registers.follow(one.condition)

    def step() -> None:
        mask = following()
        start = at().astype(np.int64)[mask]
        for i, x in enumerate(words):
            places = (start + i * size)[:, None] + each
            if loads:
                x[mask] = np.ascontiguousarray(block.shared[places]).view(kind)[:, 0]
            else:
                block.shared[places] = x[mask].view(np.uint8).reshape(-1, size)

    return step


def _computed(registers: Registers, operation: str, operands: list[str], kind: Any) -> Step:
    """Instructions that use registers only."""
    name, (first, *rest) = operation.rpartition(".")[0], operands
    if name == "mov" and "{" in first + rest[0]:
        return _packed(registers, first, rest[0])
    if name.startswith("setp"):
        return _assign(
            registers.words(first), _compared(name.removeprefix("setp."), kind),
            [registers.read(x, kind) for x in rest],
        )  # fmt: skip
    if name == "selp":
        a, b = (registers.read(x, kind) for x in rest[:2])
        return _assign(
            registers.result(first, kind), lambda p: np.where(p, a, b), [registers.words(rest[2])]
        )
    if name.startswith("cvt"):
        return _converted(registers, name, first, rest[0], kind)
    if name.startswith("shfl.sync"):
        return _shuffled(registers, name, first, rest)
    if name.startswith("redux.sync"):
        reduce = REDUCED[name.rpartition(".")[2]]
        return _assign(registers.result(first, kind), reduce, [registers.read(rest[0], kind)])
    return _arithmetic(registers, operation, name, first, rest, kind)


def _assign(out: np.ndarray, function: Callable[..., Any], given: list[np.ndarray]) -> Step:
    def step() -> None:
        out[:] = function(*given)

    return step


def _arithmetic(
    registers: Registers, operation: str, name: str, first: str, rest: list[str], kind: Any
) -> Step:
    if operation == "add.s16x2":
        out, *given = (registers.words(x).view(np.uint16) for x in (first, *rest))
        return _assign(out, operator.add, given)
    if operation == "prmt.b32":
        a, b, how = (registers.read(x, np.uint32) for x in rest)
        return _assign(registers.words(first), lambda: _bytes(a, b, how), [])
    if name == "bfe":
        a, start, count = (registers.read(x, t) for x, t in zip(rest, (kind, np.uint32, np.uint32)))
        bits = np.uint32(8 * a.dtype.itemsize)
        return _assign(
            registers.result(first, kind),
            lambda: _shift_right(_shift_left(a, bits - start - count), bits - count), [],
        )  # fmt: skip
    if name == "bfi":
        given = [registers.read(x, t) for x, t in zip(rest, (kind, kind, np.uint32, np.uint32))]
        return _assign(registers.words(first), _inserted, given)
    if operation == "popc.b32":
        return _assign(registers.words(first), np.bitwise_count, [registers.read(rest[0], kind)])
    wide = name.endswith(".wide")
    target = np.dtype(f"{np.dtype(kind).kind}{2 * np.dtype(kind).itemsize}").type if wide else kind
    out = registers.result(first, target)
    if name in ("shl", "shr"):
        given = [registers.read(rest[0], kind), registers.read(rest[1], np.uint32)]
        return _assign(out, BINARY[name], given)
    given = [registers.read(x, kind) for x in rest[:2]]
    if name in ("mad.lo", "mad.wide", "fma.rn"):
        given.append(registers.read(rest[2], target))
        if wide:
            return _assign(out, lambda a, b, c: _wide(a) * _wide(b) + c, given)
        return _assign(out, _fused if kind is np.float64 else lambda a, b, c: a * b + c, given)
    if name == "mul.wide":
        return _assign(out, lambda a, b: _wide(a) * _wide(b), given)
    return _assign(out, BINARY[name] if len(given) == 2 else UNARY[name], given)


def _packed(registers: Registers, first: str, second: str) -> Step:
    """Split a word into halves, or join two halves."""
    apart, whole = (first, second) if "{" in first else (second, first)
    words = registers.words(whole)
    half = f"u{words.dtype.itemsize // 2}"
    pairs = list(enumerate(x.strip() for x in apart.strip("{}").split(",")))
    views = [(words.view(half)[i::2], registers.words(x)) for i, x in pairs if x != "_"]
    taken = [view if apart is first else view[::-1] for view in views]

    def step() -> None:
        for given, out in taken:
            out[:] = given

    return step


def _converted(registers: Registers, name: str, first: str, second: str, source: Any) -> Step:
    """Conversion; the target type is part of the name."""
    kind = TYPES[name.split(".")[-1]]
    given, words = registers.read(second, source), registers.words(first)
    wide = f"{np.dtype(kind).kind}{words.dtype.itemsize}"
    if kind is np.float64:
        return _assign(words.view(np.float64), lambda a: a.astype(np.float64), [given])
    return _assign(words.view(wide), lambda a: a.astype(kind).astype(wide), [given])


def _shuffled(registers: Registers, name: str, first: str, rest: list[str]) -> Step:
    """Exchange words between lanes."""
    given, by = (registers.read(x, np.uint32) for x in rest[:2])
    assert rest[2:] == ["31", "-1"], rest
    lane = np.arange(LANES, dtype=np.uint32)
    out = registers.words(first)
    if name.endswith("idx"):
        return _assign(out, lambda a, b: a[b & 31], [given, by])
    assert name.endswith("bfly"), name
    return _assign(out, lambda a, b: a[lane ^ b], [given, by])
