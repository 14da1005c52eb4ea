"""Index arithmetic: which sequence and times a lane processes.

A lane processes a piece of a sequence from its first to its last time, or a pair of neighbouring
lanes processes a whole sequence from both ends and meets at time `T // 2`, in half as many steps.
Under time reversal, derivatives of odd order change sign and the equations keep their form, so both
lanes run the same code. They exchange their results where they meet. Pairs of teams
(`team/columns.py`) work in the same way.
"""

from __future__ import annotations

from smnn._solver.gpu.emit import Row, Source

WARP = 32  # Lanes whose numbers of a step are adjacent in memory

ALL = """
program = tl.program_id(0).to(tl.int64)
thread = tl.arange(0, LANES)
lane = program * LANES + thread
line = program * L
zero = tl.zeros([LANES], dtype=tl.float64)
""".strip().splitlines()

PIECES = """
valid = lane < B * P
safe = tl.where(valid, lane, 0)
b = safe // P
p = safe % P
t0 = p * (T // P) + tl.minimum(p, T % P)
pad = L - T // P - tl.where(p < T % P, 1, 0)
first = valid
""".strip().splitlines()

PAIRS = """
partner = thread ^ 1
valid = lane < 2 * B
safe = tl.where(valid, lane, 0)
b = safe // 2
p = safe % 2
first = valid & (p == 0)
""".strip().splitlines()

ENDS = """
back = p == 1
pad = p * (L - T + T // 2)
flip = tl.where(back, zero - 1.0, 1.0)
""".strip().splitlines()


def scratch_place(out: Source, time: str, lanes: int) -> tuple[str, str]:
    """Lane that has processed a time of sequence `b`, and the line of its step in scratch memory.

    Args:
        out: Source under construction.
        time: Expression.
        lanes: Lanes per sequence, 1 or 2.
    """
    if lanes == 1:
        return "b", f"b // {WARP} * T + {time}"
    out(f"later_half = ({time}) > T // 2")
    lane = out.new("2 * b + later_half.to(tl.int64)")
    step = f"tl.where(later_half, T // 2 * 2 - ({time}), {time})"
    return lane, out.new(f"{lane} // {WARP} * (T // 2 + 1) + {step}")


class TimeIndex:
    """Writes the index arithmetic of a lane.

    Args:
        out: Source under construction; the header is written at once.
        orders: Orders per variable if lanes work in pairs, else 0.
    """

    def __init__(self, out: Source, orders: int = 0) -> None:
        self.out, self.orders = out, orders
        self.write_header()

    def write_header(self) -> None:
        for line in [*ALL, *([*PAIRS, *ENDS] if self.orders else PIECES)]:
            self.out(line)

    def set_time(self, step: str) -> None:
        """Set `t`, the time before it in the lane's direction (`prior`), and their masks."""
        out = self.out
        if not self.orders:
            for line in (
                f"t = t0 + ({step}) - pad", "prior = t - 1", "here = t >= t0", "own = here",
                "inner = t > t0", "linked = here & (t > 0)", "before = tl.maximum(t - 1, 0)",
            ):  # fmt: skip
                out(line)
        else:
            for line in (
                f"place = ({step}) - pad", "t = tl.where(back, T - 1 - place, place)",
                "prior = tl.where(back, t + 1, t - 1)", "here = place >= 0",
                "own = here & (place < L - pad - p)",  # the first lane owns the meeting time
                "linked = place > 0", "before = tl.maximum(tl.minimum(t, prior), 0)",
            ):  # fmt: skip
                out(line)
        out("now = tl.maximum(t, 0)")

    def time_of(self, step: str) -> tuple[str, str]:
        """Expressions for the time of a step, and for its mask."""
        if not self.orders:
            return f"(t0 + {step} - pad)", f"({step} >= pad)"
        return f"tl.where(back, T - 1 - {step} + pad, {step} - pad)", f"({step} >= pad)"

    def prefetch_time(self, step: str) -> None:
        """Set the time of a later step (`coming`), and its mask (`wanted`)."""
        self._coming(step, "(at >= 0) & (at < L - pad - p)", "(coming >= t0) & (coming < T)")
        self.out("coming = tl.maximum(coming, 0)")

    def prefetch_link(self, step: str) -> None:
        """Set the index of the link to a later step's time (`coming`), and its mask (`wanted`)."""
        inside = "(coming > 0) & (coming >= t0) & (coming < T)"
        self._coming(step, "(at > 0) & (at < L - pad)", inside)
        shift = "tl.where(back, 0, 1)" if self.orders else "1"
        self.out(f"coming = tl.maximum(coming - {shift}, 0)")

    def _coming(self, step: str, pairs: str, pieces: str) -> None:
        out = self.out
        if self.orders:
            out(f"at = ({step}) - pad")
            out("coming = tl.where(back, T - 1 - at, at)")
        else:
            out(f"coming = t0 + ({step}) - pad")
        out(f"wanted = {pairs if self.orders else pieces}")

    def may_be_initial(self) -> str:
        """Condition under which a lane may be at a time with initial values."""
        alone = "step <= T_init"
        return f"({alone}) | (T - 1 - step < T_init)" if self.orders else alone

    def directed(self, value: str, column: int) -> str:
        """Value of an unknown in the lane's direction of time: odd orders change sign."""
        return f"({value}) * flip" if self.orders and column % self.orders % 2 else value

    def partner(self, value: str, column: int = 0) -> str:
        """Value of the partner lane, in this lane's direction of time."""
        sign = "-" if column % self.orders % 2 else ""
        return self.out.new(f"{sign}tl.gather({value}, partner, 0)")

    def merge_pivots(self) -> None:
        """Combine the smallest pivots of both partners."""
        least, least_of, weakest = (self.partner(x) for x in ("least", "least_of", "weakest"))
        less = self.out.new(f"{least} * least_of < least * {least_of}")
        for name, value in (("least", least), ("least_of", least_of), ("weakest", weakest)):
            self.out(f"{name} = tl.where({less}, {value}, {name})")

    def partner_row(self, row: Row, letter: str) -> Row:
        """Row of the partner lane over columns `letter` and the right-hand side."""
        return {c: self.partner(x, int(c[1:]) if c[0] == letter else 0) for c, x in row.items()}
