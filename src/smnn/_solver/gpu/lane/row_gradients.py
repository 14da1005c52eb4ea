"""Row gradients (derivation in `rows.py`), by one lane per (sequence, time) or per variable of it."""

from __future__ import annotations

import math

from smnn._solver.gpu.emit import Source
from smnn._solver.gpu.lane.time_index import WARP, scratch_place

TILE = 16, 8  # Sequences and times per program if `lam` is in the layout of `z`
TENSORS = ("c", "d", "u", "s", "wg", "wi", "ws")


Ends = tuple[list[str], list[str]]
"""Orders of a variable at both ends of a step."""


def _taylor(out: Source, before: list[str], after: list[str], r: int, sign: int) -> str:
    """Forward (`sign` 1) or backward row `r` of a step, from `s^j x_j` at both ends."""
    here, there = (before, after) if sign > 0 else (after, before)
    terms = [
        f"{sign ** (j - r) / math.factorial(j - r)!r} * {here[j]}" for j in range(r, len(here))
    ]
    return out.new(f"{there[r]} - ({' + '.join(terms)})")


class RowGradients:
    """Writes the stores of the requested gradients.

    Args:
        out: Source under construction.
        V: Variables.
        m: Orders per variable.
        Q: Equations.
        m_init: Orders with initial values.
        scheme: Smoothness scheme.
        wanted: Which gradients to compute, in the order of `TENSORS`.
        adjoint_lanes: Lanes per sequence if `lam` is in the layout of `z`; 0 for the layout of a
            solution.
    """

    def __init__(
        self, out: Source, V: int, m: int, Q: int, m_init: int, scheme: str,
        wanted: tuple[bool, ...], adjoint_lanes: int = 0,
    ) -> None:  # fmt: skip
        self.out, self.scheme, self._adjoint_lanes = out, scheme, adjoint_lanes
        self._lines: dict[int, tuple[str, str]] = {}
        self.V, self.m, self.n, self.Q, self.m_init = V, m, V * m, Q, m_init
        self.want = dict(zip(TENSORS, wanted, strict=True))

    @property
    def of_equations(self) -> bool:
        """Whether gradients of the equations are requested."""
        return self.want["c"] or self.want["d"] or self.want["wg"]

    @property
    def of_steps(self) -> bool:
        """Whether gradients of the steps are requested."""
        return self.want["s"] or self.want["ws"]

    def equation(self, q: int, c: list[str], d: str, y: list[str], lam: list[str]) -> None:
        out, n, Q = self.out, self.n, self.Q
        where = f"wg_ptr + b * wg_sb + t * wg_st + {q} * wg_sq"
        w = out.new(f"tl.load({where}, mask=valid, other=0.0)")
        a = out.new(" + ".join(f"{x} * {z}" for x, z in zip(c, lam, strict=True)))
        rho = out.new(" + ".join(f"{x} * {z}" for x, z in zip(c, y, strict=True)) + f" - {d}")
        # Not the square of the weight, which may overflow.
        wa, wr = out.new(f"{w} * ({w} * {a})"), out.new(f"{w} * ({w} * {rho})")
        if self.want["wg"]:
            out(f"tl.store(gwg_ptr + lane * {Q} + {q}, -2.0 * {w} * {a} * {rho}, mask=valid)")
        if self.want["d"]:
            out(f"tl.store(gd_ptr + lane * {Q} + {q}, {wa}, mask=valid)")
        if self.want["c"]:
            for i in range(n):
                value = f"-({wa} * {y[i]} + {wr} * {lam[i]})"
                out(f"tl.store(gc_ptr + lane * {Q * n} + {q * n + i}, {value}, mask=valid)")

    def initial(self, v: str, y: list[str], lam: list[str]) -> None:
        """Gradients of the initial values of a variable and their weights."""
        out, m_init = self.out, self.m_init
        if not (self.want["u"] or self.want["wi"]) or not m_init:
            return
        early = out.new("valid & (t < T_init)")
        at = out.new(f"(b * T_init + t) * {self.V * m_init} + {v} * {m_init}")
        for r in range(m_init):
            where = f"b * wi_sb + t * wi_st + {v} * wi_sv + {r} * wi_sr"
            w = out.new(f"tl.load(wi_ptr + {where}, mask={early}, other=0.0)")
            if self.want["u"]:
                out(f"tl.store(gu_ptr + {at} + {r}, {w} * ({w} * {lam[r]}), mask={early})")
            if self.want["wi"]:
                where = f"b * u_sb + t * u_st + {v} * {m_init} + {r}"
                u = out.new(f"tl.load(u_ptr + {where}, mask={early}, other=0.0)")
                value = f"-2.0 * {w} * {lam[r]} * ({y[r]} - {u})"
                out(f"tl.store(gwi_ptr + {at} + {r}, {value}, mask={early})")

    def step(self, v: str, s: str, y: Ends, lam: Ends) -> None:
        out, V, m = self.out, self.V, self.m
        top = m - 1 if self.scheme == "central" else m
        powers = ["1.0"]
        for _ in range(1, m):
            powers.append(out.new(f"{powers[-1]} * {s}"))
        # Both ends scaled by powers of s, and their derivatives with respect to log s.
        scaled = []
        for both_ends in (lam, y):
            x = [[out.new(f"{powers[j]} * {end[j]}") for j in range(m)] for end in both_ends]
            slopes = [[out.new(f"{float(j)!r} * {end[j]}") for j in range(m)] for end in x]
            scaled.append((*x, *slopes))
        (la, lb, dla, dlb), (ya, yb, dya, dyb) = scaled
        total = "0.0"
        for r in range(m):
            where = f"b * ws_sb + t * ws_st + {v} * ws_sv + {r} * ws_sr"
            weight = out.new(f"tl.load(ws_ptr + {where}, mask=linked, other=0.0)")
            both = "0.0"
            if r < top:
                change = "0.0"
                for sign in (1, -1):
                    f, df = _taylor(out, la, lb, r, sign), _taylor(out, dla, dlb, r, sign)
                    g, dg = _taylor(out, ya, yb, r, sign), _taylor(out, dya, dyb, r, sign)
                    both = out.new(f"{both} + {f} * {g}")
                    change = out.new(f"{change} + {df} * {g} + {f} * {dg}")
                total = out.new(f"{total} + {weight} * {weight} * {change}")
            if self.want["ws"] and (r < top or self.scheme != "central"):
                where = f"((b * (T - 1) + t) * {V} + {v}) * {m} + {r}"
                out(f"tl.store(gws_ptr + {where}, -2.0 * {weight} * {both}, mask=linked)")
        total = out.new(f"{total} / {s}")
        if self.scheme == "central":
            total = self._central(v, total)
        if self.want["s"]:
            where = f"(b * (T - 1) + t) * {V} + {v}"
            out(f"tl.store(gs_ptr + {where}, -({total}), mask=linked)")

    def _central(self, v: str, total: str) -> str:
        """Add the two central rows that contain step `t`: around times `t + 1` and `t`."""
        out, V, m, R = self.out, self.V, self.m, self.m - 1
        for shift in (0, 1):
            known = out.new(f"linked & (t >= {shift}) & (t - {shift} + 2 < T)")
            steps = [
                f"tl.load(s_ptr + b * s_sb + (t - {shift} + {i}) * s_st + {v} * s_sv,"
                f" mask={known}, other=1.0)"
                for i in (0, 1)
            ]
            H = out.new(" + ".join(steps))
            where = f"b * ws_sb + (t - {shift}) * ws_st + {v} * ws_sv + {R} * ws_sr"
            w = out.new(f"tl.load(ws_ptr + {where}, mask={known}, other=0.0)")
            power = out.new(
                f"1.0 / {H}" if R == 1 else " * ".join(["1.0", *[H] * (R - 2)]) + f" + 0.0 * {H}"
            )
            values = []
            for x in ("lam", "y"):
                first, top, last = (
                    out.new(
                        f"tl.load({self._at(x, step - shift, f'{v} * {m} + {column}')},"
                        f" mask={known}, other=0.0)"
                    )
                    for step, column in ((0, R - 1), (1, R), (2, R - 1))
                )
                value = out.new(f"{power} * ({last} - {first} - {H} * {top})")
                slope = out.new(f"{float(R - 2)!r} * {value} / {H} - {power} * {top}")
                values.append((value, slope))
            (a, da), (rho, drho) = values
            total = out.new(f"{total} + {w} * {w} * ({da} * {rho} + {a} * {drho})")
            if shift == 0 and self.want["ws"]:
                where = f"((b * (T - 1) + t) * {V} + {v}) * {m} + {R}"
                value = f"tl.where({known}, -2.0 * {w} * {a} * {rho}, 0.0)"
                out(f"tl.store(gws_ptr + {where}, {value}, mask=linked)")
        return total

    def variable(self, v: str, y: list[str], lam: list[str]) -> None:
        """Gradients of a variable's initial values and step."""
        self.initial(v, y, lam)
        if self.of_steps:
            out = self.out
            where = f"s_ptr + b * s_sb + t * s_st + {v} * s_sv"
            s = out.new(f"tl.load({where}, mask=linked, other=1.0)")
            after = [self.loaded(x, v, 1, "linked") for x in ("y", "lam")]
            self.step(v, s, (y, after[0]), (lam, after[1]))

    def loaded(self, x: str, v: str, later: int, mask: str) -> list[str]:
        """Load the orders of a variable, `later` times later."""
        places = [self._at(x, later, f"{v} * {self.m} + {j}") for j in range(self.m)]
        return [self.out.new(f"tl.load({where}, mask={mask}, other=0.0)") for where in places]

    def _at(self, x: str, later: int, column: str) -> str:
        """Address of an unknown of the (adjoint) solution, `later` times later."""
        if x == "y" or not self._adjoint_lanes:
            return f"{x}_ptr + (lane + {later}) * {self.n} + {column}"
        if later not in self._lines:
            lane, line = scratch_place(self.out, f"t + {later}", self._adjoint_lanes)
            self._lines[later] = f"({line}) * {self.n}", f"{lane} % {WARP}"
        line, lane = self._lines[later]
        return f"lam_ptr + ({line} + {column}) * {WARP} + {lane}"


def rows_body(
    out: Source, V: int, m: int, Q: int, m_init: int, scheme: str, wanted: tuple[bool, ...],
    adjoint_lanes: int,
) -> None:  # fmt: skip
    """All gradients, one lane per (sequence, time).

    Times are adjacent in the layout of a solution, sequences in that of `z`; with `adjoint_lanes`, a program
    therefore processes a tile of both.
    """
    n, rows = V * m, RowGradients(out, V, m, Q, m_init, scheme, wanted, adjoint_lanes)
    if adjoint_lanes:
        sequences, times = TILE
        out("program = tl.program_id(0).to(tl.int64)")
        out("thread = tl.arange(0, LANES)")
        out(f"tiles = (T + {times - 1}) // {times}")
        out(f"b = program // tiles * {sequences} + thread // {times}")
        out(f"t = program % tiles * {times} + thread % {times}")
        out("valid = (b < B) & (t < T)")
        out("lane = b * T + t")
        out("linked = valid & (t < T - 1)")
    else:
        out("lane = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)")
        out("valid = lane < B * T")
        _where(out)
    y, lam = (
        [x for v in range(V) for x in rows.loaded(name, str(v), 0, "valid")]
        for name in ("y", "lam")
    )
    for q in range(Q if rows.of_equations else 0):
        where = f"c_ptr + b * c_sb + t * c_st + {q * n}"
        c = [out.new(f"tl.load({where} + {i}, mask=valid, other=0.0)") for i in range(n)]
        d = out.new(f"tl.load(d_ptr + b * d_sb + t * d_st + {q}, mask=valid, other=0.0)")
        rows.equation(q, c, d, y, lam)
    for v in range(V):
        own = slice(v * m, v * m + m)
        rows.variable(str(v), y[own], lam[own])


def variables_body(
    out: Source, V: int, m: int, m_init: int, scheme: str, wanted: tuple[bool, ...]
) -> None:
    """Gradients except those of the equations, one lane per (sequence, time, variable)."""
    out("which = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)")
    out(f"valid = which < B * T * {V}")
    out(f"lane = which // {V}")
    out(f"v = which % {V}")
    _where(out)
    rows = RowGradients(out, V, m, 0, m_init, scheme, wanted)
    rows.variable("v", *(rows.loaded(x, "v", 0, "valid") for x in ("y", "lam")))


def _where(out: Source) -> None:
    out("b = lane // T")
    out("t = lane % T")
    out("linked = valid & (t < T - 1)")
