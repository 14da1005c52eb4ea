"""Triton source of the row gradients: one lane per (sequence, time). See `_rows.py` for the maths."""

from __future__ import annotations

import math

from smnn._backends._gpu_emit import Source

TENSORS = ("c", "d", "u", "s", "wg", "wi", "ws")


def _taylor(out: Source, before: list[str], after: list[str], r: int, sign: int) -> str:
    """Forward (`sign` 1) or backward row `r` from `s^j x_j` at both ends of a step."""
    here, there = (before, after) if sign > 0 else (after, before)
    terms = [
        f"{sign ** (j - r) / math.factorial(j - r)!r} * {here[j]}" for j in range(r, len(here))
    ]
    return out.new(f"{there[r]} - ({' + '.join(terms)})")


def rows_body(
    out: Source, V: int, m: int, Q: int, m_init: int, scheme: str, wanted: tuple[bool, ...]
) -> None:
    """Gradients of every kind that is wanted, in the order of `TENSORS`."""
    n = V * m
    want = dict(zip(TENSORS, wanted, strict=True))
    out("lane = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)")
    out("valid = lane < B * T")
    out("b = lane // T")
    out("t = lane % T")
    y = [out.new(f"tl.load(y_ptr + lane * {n} + {i}, mask=valid, other=0.0)") for i in range(n)]
    lam = [out.new(f"tl.load(lam_ptr + lane * {n} + {i}, mask=valid, other=0.0)") for i in range(n)]
    if want["c"] or want["d"] or want["wg"]:
        for q in range(Q):
            w = out.new(
                f"tl.load(wg_ptr + b * wg_sb + t * wg_st + {q} * wg_sq, mask=valid, other=0.0)"
            )
            c = [
                out.new(
                    f"tl.load(c_ptr + b * c_sb + t * c_st + {q * n + i}, mask=valid, other=0.0)"
                )
                for i in range(n)
            ]
            d = out.new(f"tl.load(d_ptr + b * d_sb + t * d_st + {q}, mask=valid, other=0.0)")
            a = out.new(" + ".join(f"{x} * {z}" for x, z in zip(c, lam, strict=True)))
            rho = out.new(" + ".join(f"{x} * {z}" for x, z in zip(c, y, strict=True)) + f" - {d}")
            wa, wr = out.new(f"{w} * {w} * {a}"), out.new(f"{w} * {w} * {rho}")
            if want["wg"]:
                out(f"tl.store(gwg_ptr + lane * {Q} + {q}, -2.0 * {w} * {a} * {rho}, mask=valid)")
            if want["d"]:
                out(f"tl.store(gd_ptr + lane * {Q} + {q}, {wa}, mask=valid)")
            if want["c"]:
                for i in range(n):
                    value = f"-({wa} * {y[i]} + {wr} * {lam[i]})"
                    out(f"tl.store(gc_ptr + lane * {Q * n} + {q * n + i}, {value}, mask=valid)")
    for v in range(V):
        own = slice(v * m, v * m + m)
        _of_variable(out, y[own], lam[own], str(v), V, m, m_init, scheme, want)


def variables_body(
    out: Source, V: int, m: int, m_init: int, scheme: str, wanted: tuple[bool, ...]
) -> None:
    """All gradients but those by the equations, with a lane per (sequence, time, variable)."""
    n = V * m
    out("which = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)")
    out(f"valid = which < B * T * {V}")
    out(f"lane = which // {V}")
    out(f"v = which % {V}")
    out("b = lane // T")
    out("t = lane % T")
    y, lam = (
        [
            out.new(f"tl.load({x}_ptr + lane * {n} + v * {m} + {i}, mask=valid, other=0.0)")
            for i in range(m)
        ]
        for x in ("y", "lam")
    )
    want = dict(zip(TENSORS, wanted, strict=True))
    _of_variable(out, y, lam, "v", V, m, m_init, scheme, want)


def _of_variable(
    out: Source,
    y: list[str],
    lam: list[str],
    v: str,
    V: int,
    m: int,
    m_init: int,
    scheme: str,
    want: dict[str, bool],
) -> None:
    """Initial values, steps, and the weights of their rows; `y` and `lam` of this variable."""
    if (want["u"] or want["wi"]) and m_init:
        out("early = valid & (t < T_init)")
        out(f"first = (b * T_init + t) * {V * m_init} + {v} * {m_init}")
        for r in range(m_init):
            where = f"b * wi_sb + t * wi_st + {v} * wi_sv + {r} * wi_sr"
            w = out.new(f"tl.load(wi_ptr + {where}, mask=early, other=0.0)")
            if want["u"]:
                out(f"tl.store(gu_ptr + first + {r}, {w} * {w} * {lam[r]}, mask=early)")
            if want["wi"]:
                where = f"b * u_sb + t * u_st + {v} * {m_init} + {r}"
                u = out.new(f"tl.load(u_ptr + {where}, mask=early, other=0.0)")
                value = f"-2.0 * {w} * {lam[r]} * ({y[r]} - {u})"
                out(f"tl.store(gwi_ptr + first + {r}, {value}, mask=early)")
    if want["s"] or want["ws"]:
        out("step = valid & (t < T - 1)")
        _smooth(out, y, lam, v, V, m, scheme, want)


def _smooth(
    out: Source,
    y: list[str],
    lam: list[str],
    v: str,
    V: int,
    m: int,
    scheme: str,
    want: dict[str, bool],
) -> None:
    n, R, top = V * m, m - 1, m - 1 if scheme == "central" else m
    s = out.new(f"tl.load(s_ptr + b * s_sb + t * s_st + {v} * s_sv, mask=step, other=1.0)")
    powers = ["1.0"]
    for _ in range(1, m):
        powers.append(out.new(f"{powers[-1]} * {s}"))
    scaled = {}
    for name, pointer, here in (("y", "y_ptr", y), ("lam", "lam_ptr", lam)):
        before = [out.new(f"{powers[j]} * {here[j]}") for j in range(m)]
        after = []
        for j in range(m):
            x = out.new(
                f"tl.load({pointer} + (lane + 1) * {n} + {v} * {m} + {j}, mask=step, other=0.0)"
            )
            after.append(out.new(f"{powers[j]} * {x}"))
        slopes = [[out.new(f"{float(j)!r} * {x[j]}") for j in range(m)] for x in (before, after)]
        scaled[name] = before, after, slopes[0], slopes[1]
    total = "0.0"
    for r in range(m):
        weight = out.new(
            f"tl.load(ws_ptr + b * ws_sb + t * ws_st + {v} * ws_sv + {r} * ws_sr, mask=step, other=0.0)"
        )
        both = "0.0"
        if r < top:
            change = "0.0"
            for sign in (1, -1):
                (la, lb, dla, dlb), (ya, yb, dya, dyb) = scaled["lam"], scaled["y"]
                f, df = _taylor(out, la, lb, r, sign), _taylor(out, dla, dlb, r, sign)
                g, dg = _taylor(out, ya, yb, r, sign), _taylor(out, dya, dyb, r, sign)
                both = out.new(f"{both} + {f} * {g}")
                change = out.new(f"{change} + {df} * {g} + {f} * {dg}")
            total = out.new(f"{total} + {weight} * {weight} * {change}")
        if want["ws"] and (r < top or scheme != "central"):
            where = f"((b * (T - 1) + t) * {V} + {v}) * {m} + {r}"
            out(f"tl.store(gws_ptr + {where}, -2.0 * {weight} * {both}, mask=step)")
    total = out.new(f"{total} / {s}")
    if scheme == "central":
        total = _central(out, v, V, m, R, total, want)
    if want["s"]:
        out(f"tl.store(gs_ptr + (b * (T - 1) + t) * {V} + {v}, -({total}), mask=step)")


def _central(out: Source, v: str, V: int, m: int, R: int, total: str, want: dict[str, bool]) -> str:
    """Add the two central rows that contain step `t`: around time `t + 1` and around time `t`."""
    n = V * m
    for shift in (0, 1):
        out(f"row = step & (t >= {shift}) & (t - {shift} + 2 < T)")
        H = out.new(
            f"tl.load(s_ptr + b * s_sb + (t - {shift}) * s_st + {v} * s_sv, mask=row, other=1.0)"
            f" + tl.load(s_ptr + b * s_sb + (t - {shift} + 1) * s_st + {v} * s_sv, mask=row, other=1.0)"
        )
        where = f"b * ws_sb + (t - {shift}) * ws_st + {v} * ws_sv + {R} * ws_sr"
        w = out.new(f"tl.load(ws_ptr + {where}, mask=row, other=0.0)")
        power = out.new(
            f"1.0 / {H}" if R == 1 else " * ".join(["1.0", *[H] * (R - 2)]) + f" + 0.0 * {H}"
        )
        values = []
        for pointer in ("lam_ptr", "y_ptr"):
            first, top, last = (
                out.new(
                    f"tl.load({pointer} + (lane - {shift} + {step}) * {n} + {v} * {m} + {column}, mask=row, other=0.0)"
                )
                for step, column in ((0, R - 1), (1, R), (2, R - 1))
            )
            value = out.new(f"{power} * ({last} - {first} - {H} * {top})")
            values.append((value, out.new(f"{float(R - 2)!r} * {value} / {H} - {power} * {top}")))
        (a, da), (rho, drho) = values
        total = out.new(f"{total} + {w} * {w} * ({da} * {rho} + {a} * {drho})")
        if shift == 0 and want["ws"]:
            where = f"((b * (T - 1) + t) * {V} + {v}) * {m} + {R}"
            out(
                f"tl.store(gws_ptr + {where}, tl.where(row, -2.0 * {w} * {a} * {rho}, 0.0), mask=step)"
            )
    return total
