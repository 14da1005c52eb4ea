"""What all kernels share: sizes, lanes, working memory, rotations.

One lane processes one *piece*: a run of consecutive times of one sequence. All pieces of a call end
at the same step, `L`; pieces that are a time shorter begin a step later. Surplus lanes of the last
group repeat the last piece, and write the same numbers to the same addresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from smnn._solver.cpu.kernels.emit import Cells, Code, Number, Value, has_estimates
from smnn._solver.cpu.kernels.layout import (
    PLACES,
    TENSORS,
    WORDS,
    W,
    room_cells,
    row_cells,
    row_start,
)


class Frame:
    """A kernel `void name(notes, room, group)` for one group of lanes.

    Args:
        name: Of the function.
        known: Notes known when the code is written; without any, the code is for all sizes.
        lanes: `W`, or 1 for a kernel that processes one sequence.
    """

    def __init__(self, name: str, known: Mapping[str, int], lanes: int = W) -> None:
        self.code = Code(name, lanes, 3, has_estimates())
        self.known, self.straight = known, bool(known)
        self._notes, self._room, self.group = self.code.arguments
        self._loaded: dict[str, Value] = {}
        self.V, self.m, self.Q = self["V"], self["m"], self["Q"]
        self.reach, self.k, self.n = self["reach"], self["k"], self["V"] * self["m"]
        self.span = self.n * (self.reach + 1)
        self.width = self.span + self.k + 1
        self.cut = isinstance(self["P"], Value)
        """Whether sequences may be cut into pieces."""
        self._words = 0
        self.at = {name: self.word() for name in (*TENSORS, "lam")}
        """Where each lane accesses a tensor."""
        if not self.straight and lanes > 1:
            self.code.transfer = self.word(self.code.vec)

    def __getitem__(self, name: str) -> Number:
        """A note: a Python number if it is known."""
        if name in self.known:
            return self.known[name]
        if name not in self._loaded:
            self._loaded[name] = self.code.at_entry(self._notes, PLACES[name])
        return self._loaded[name]

    # ------------------------------------------------------------ memory

    def array(self, name: str) -> Cells:
        """Working memory, zeros at first: in registers if its size is known."""
        size = room_cells(self.V, self.m, self.Q, self.reach, self.k)[name]
        if self.straight:
            return self.code.local(size)
        out = self.code.memory(self.place(name))
        clear(self, out, size)
        return out

    def place(self, name: str = "") -> Value:
        """Address of some working memory, or of what follows it all."""
        before: Number = WORDS
        for other, size in room_cells(self.V, self.m, self.Q, self.reach, self.k).items():
            if other == name:
                break
            before = before + size
        return self._room + before * (8 * W)

    def factor(self) -> tuple[Cells, Cells]:
        """Factor and right-hand side of the group: of the call, or in the working memory."""
        factor, z, L = self["@factor"], self["@z"], self["L"]
        factor_bytes = L * (row_cells(self.n, self.reach, self.k) * (8 * W))
        z_bytes = L * (self.n * (8 * W))
        own, e = self.place(), self.code
        factor = e.select(factor == 0, own + z_bytes, factor + self.group * factor_bytes)
        z = e.select(z == 0, own, z + self.group * z_bytes)
        return e.memory(factor), e.memory(z)

    def factor_row(self, step: Number, j: Number) -> Number:
        """Cell of the inverse pivot of an unknown, in front of the rest of its row."""
        sizes = self.n, self.reach, self.k
        return row_start(*sizes, j) + step * row_cells(*sizes)

    def word(self, kind: str = "") -> Cells:
        """Memory for one integer per lane, or one cell of another kind."""
        self._words += 1
        assert self._words <= WORDS
        return self.code.memory(self._room, kind or self.code.ints).at(self._words - 1)

    # ------------------------------------------------------------ lanes

    def find_lanes(self) -> None:
        """Number `b` of the sequence and `p` of the piece, its first time and its end."""
        table = self.code.memory(self["@lanes"], self.code.ints).at(self.group * 4)
        self.b = table[0]
        whole: tuple[Number, ...] = (0, 0, self["T"])
        self.p, self.t0, self.end = (table[1], table[2], table[3]) if self.cut else whole
        self.start = self.end - self["L"]
        self.inner = self["L"] - (self.code.select(self.k > 0, self.reach, 0) if self.cut else 0)
        """Number of steps before the own separator."""

    def begun(self, t: Number) -> Number:
        """Whether the piece has begun at time `t`; pieces that are shorter begin a step later."""
        return t >= self.t0 if self.cut else True

    def look(self, name: str, t: Number, strides: str = "") -> None:
        """Let the lanes access a tensor at time `t`; `strides` names one of the same layout."""
        like = strides or name
        self.at[name][0] = self.b * self[f"{like}.0"] + self[f"@{name}"] + t * self[f"{like}.1"]

    def moves(self, name: str, step: Number, first: int = 0) -> Number:
        """Whether a tensor has to be read at this step: the first ones, or if it varies in time."""
        stride = self[f"{name}.1"]
        return (step <= first) | (stride != 0 if isinstance(stride, Value) else bool(stride))

    def number(self, name: str, *index: Number) -> Value:
        """Entry of a tensor per lane, behind the batch and time axes."""
        return self.code.gather(self.at[name], self.offset(name, *index))

    def put(self, name: str, x: Value, *index: Number) -> None:
        self.code.scatter(self.at[name], self.offset(name, *index), x)

    def offset(self, name: str, *index: Number) -> Number:
        out: Number = 0
        for axis, i in enumerate(index):
            out = self[f"{name}.{axis + 2}"] * i + out
        return out


def clear(f: Frame, cells: Cells, count: Number) -> None:
    for i in f.code.range(0, count):
        cells[i] = 0.0


def copy(f: Frame, to: Cells, of: Cells, count: Number) -> None:
    for i in f.code.range(0, count):
        to[i] = of[i]


def rotate(f: Frame, top: Cells, row: Cells, *runs: tuple[Number, Number, Number]) -> None:
    """Rotate `row[0]` into `top[0]`, over runs of columns: offset in `top`, in `row`, and count."""
    if f.straight:
        _rotate(f.code, top, row, runs)
        return
    first, second = (*runs, (0, 0, 0))[:2]
    f.code.run("rotate" if f.code.lanes > 1 else "rotate_one", top, row, first[2], *second)


def rotating_functions() -> list[Code]:
    """`rotate` as functions; a cell that is zero in every lane costs one comparison."""
    codes = []
    for name, lanes in (("rotate", W), ("rotate_one", 1)):
        e = Code(name, lanes, 6, has_estimates())
        top, row, count, above, below, more = e.arguments
        cells = e.memory(top), e.memory(row)
        for _ in e.when(cells[1][0] != 0.0):
            _rotate(e, *cells, ((0, 0, count), (above, below, more)))
        codes.append(e)
    return codes


def _rotate(e: Code, top: Cells, row: Cells, runs: Sequence[tuple[Number, Number, Number]]) -> None:
    a, b = top[0], row[0]
    square = a * a + b * b
    empty = square == 0.0
    inverse = e.inverse_root(square)
    cosine, sine = e.select(empty, 1.0, a * inverse), e.select(empty, 0.0, b * inverse)
    for above, below, count in runs:
        for i in e.range(0, count):
            x, y = top[above + i], row[below + i]
            top[above + i] = cosine * x + sine * y
            row[below + i] = cosine * y - sine * x
