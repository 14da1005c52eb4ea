"""Which sequence and which times a lane works on.

A lane goes through a piece of a sequence from its first time to its last, or two neighbouring
lanes go through a whole one from both its ends and meet at time `T // 2`, in half as many steps.
Seen backwards in time, derivatives of odd order change their sign and the equations stay what they
are, so both lanes run the same code. The pair shares what it has found when it meets. So do two
teams of lanes (`team/columns.py`).
"""

from __future__ import annotations

from smnn._solver.gpu.emit import Row, Source

WARP = 32
"""Lanes whose numbers of a step lie side by side."""

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


def holder(out: Source, time: str, lanes: int) -> tuple[str, str]:
    """The lane that has worked on a time of the whole sequence `b`, and the line of its step.

    Args:
        out: The kernel.
        time: An expression.
        lanes: One, or two of a pair.
    """
    if lanes == 1:
        return "b", f"b // {WARP} * T + {time}"
    out(f"later_half = ({time}) > T // 2")
    lane = out.new("2 * b + later_half.to(tl.int64)")
    step = f"tl.where(later_half, T // 2 * 2 - ({time}), {time})"
    return lane, out.new(f"{lane} // {WARP} * (T // 2 + 1) + {step}")


class Clock:
    """Writes the lines that tell a lane where it is.

    Args:
        out: The kernel, to which the lines at its head are written.
        orders: Orders per variable, where lanes work in pairs; zero where each is alone.
    """

    def __init__(self, out: Source, orders: int = 0) -> None:
        self.out, self.orders = out, orders
        self.begin()

    def begin(self) -> None:
        """Who a lane is."""
        for line in [*ALL, *([*PAIRS, *ENDS] if self.orders else PIECES)]:
            self.out(line)

    def read(self, step: str) -> None:
        """What time it is: `t`, `prior` before it, whether it is there and what is known of it."""
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
                "own = here & (place < L - pad - p)",  # where both meet, the first lane is at home
                "linked = place > 0", "before = tl.maximum(tl.minimum(t, prior), 0)",
            ):  # fmt: skip
                out(line)
        out("now = tl.maximum(t, 0)")

    def when(self, step: str) -> tuple[str, str]:
        """The time of a step, and whether it is there, as expressions."""
        if not self.orders:
            return f"(t0 + {step} - pad)", f"({step} >= pad)"
        return f"tl.where(back, T - 1 - {step} + pad, {step} - pad)", f"({step} >= pad)"

    def coming_time(self, step: str) -> None:
        """A later step's time, `coming`, and whether its own rows are `wanted`."""
        self._coming(step, "(at >= 0) & (at < L - pad - p)", "(coming >= t0) & (coming < T)")
        self.out("coming = tl.maximum(coming, 0)")

    def coming_link(self, step: str) -> None:
        """The number, `coming`, of the link to a later step's time, and whether it is `wanted`."""
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

    def early(self) -> str:
        """Whether a lane can be at a time with initial values."""
        alone = "step <= T_init"
        return f"({alone}) | (T - 1 - step < T_init)" if self.orders else alone

    def turned(self, value: str, column: int) -> str:
        """A number by or of an unknown, as it is in the lane's direction of time."""
        return f"({value}) * flip" if self.orders and column % self.orders % 2 else value

    def other(self, value: str, column: int = 0) -> str:
        """The partner's, in this lane's direction of time."""
        sign = "-" if column % self.orders % 2 else ""
        return self.out.new(f"{sign}tl.gather({value}, partner, 0)")

    def share_verdict(self) -> None:
        """Both take the smaller of their smallest pivots, and where it is."""
        least, least_of, weakest = (self.other(x) for x in ("least", "least_of", "weakest"))
        less = self.out.new(f"{least} * least_of < least * {least_of}")
        for name, value in (("least", least), ("least_of", least_of), ("weakest", weakest)):
            self.out(f"{name} = tl.where({less}, {value}, {name})")

    def other_row(self, row: Row, letter: str) -> Row:
        """A row of the partner's, over columns `letter` and the right-hand side."""
        return {c: self.other(x, int(c[1:]) if c[0] == letter else 0) for c, x in row.items()}
