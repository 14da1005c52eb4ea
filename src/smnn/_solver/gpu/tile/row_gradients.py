"""Gradients of the equations of large blocks, one warp per (sequence, time)."""

from __future__ import annotations

from smnn._solver.gpu.emit import Source
from smnn._solver.gpu.lane.eliminate import Spec
from smnn._solver.gpu.lane.row_gradients import TENSORS
from smnn._solver.gpu.tile.tiles import Shape, Tiles

ROWS = 8  # Equations per tile


def equations_body(out: Source, V: int, m: int, Q: int, wanted: tuple[bool, ...]) -> None:
    """Requested gradients of `c`, `d` and `w_gov`."""
    want = dict(zip(TENSORS, wanted, strict=True))
    tiles = Tiles(out, Spec(V, m, Q, 0, "smnn", left=False, varying=False), Shape(1, ROWS))
    n, own = tiles.n, [k for _, k in tiles.own]
    out("place = b")
    out("t = place % T")
    out("b = place // T")
    for k in own:
        for x in ("y", "lam"):
            where = f"{x}_ptr + place * {n} + col{k}"
            out(f"{x}{k} = tl.load({where}, mask=col{k} < {n}, other=0.0)")
    with out.block(f"for group in range(0, {tiles.groups(Q)}):"):
        out(f"which = row + group * {ROWS}")
        out(f"known = which < {Q}")
        out("w = tl.load(wg_ptr + b * wg_sb + t * wg_st + which * wg_sq, mask=known, other=0.0)")
        out("d = tl.load(d_ptr + b * d_sb + t * d_st + which, mask=known, other=0.0)")
        for k in own:
            out(f"inside{k} = known[:, None] & (column{k} < {n})")
            where = f"c_ptr + b * c_sb + t * c_st + which[:, None] * {n} + column{k}"
            out(f"c{k} = tl.load({where}, mask=inside{k}, other=0.0)")
        for name, x in (("a", "lam"), ("rho", "y")):
            total = " + ".join(f"c{k} * {x}{k}[None, :]" for k in own)
            out(f"{name} = tl.sum({total}, axis=1)")
        out("rho = rho - d")
        out("wa = w * (w * a)")
        out("wr = w * (w * rho)")
        if want["wg"]:
            out(f"tl.store(gwg_ptr + place * {Q} + which, -2.0 * w * a * rho, mask=known)")
        if want["d"]:
            out(f"tl.store(gd_ptr + place * {Q} + which, wa, mask=known)")
        for k in own if want["c"] else []:
            where = f"gc_ptr + place * {Q * n} + which[:, None] * {n} + column{k}"
            value = f"-(wa[:, None] * y{k}[None, :] + wr[:, None] * lam{k}[None, :])"
            out(f"tl.store({where}, {value}, mask=inside{k})")
