"""Rows of a problem as tiles."""

from __future__ import annotations

from collections.abc import Iterator

from smnn._solver.gpu.tile.tiles import Tile, Tiles


def link_rows(tiles: Tiles) -> Iterator[Tile]:
    """Rows `scale (K D y_t - K F D y_{t-1})` over `b` and `c`."""
    out, spec, n, m = tiles.out, tiles.spec, tiles.n, tiles.spec.m
    out("ends = lane * 0 + t")
    out("linked = (ends > 0) & (ends < L)")
    out("before = t - 1")
    for _, k in tiles.own:
        out(f"var{k} = tl.where(col{k} < {n}, col{k} // {m}, {spec.V})")
        mask = f"mask=(col{k} < {n}) & linked"
        for name, table, other in (("s", "s", "1.0"), ("power", "scale", "0.0")):
            where = f"{table}_ptr + b * {table}_sb + before * {table}_st + var{k} * {table}_sv"
            out(f"{name}{k} = tl.load({where}, {mask}, other={other})")
        out(f"bad = bad | (s{k} <= 0.0) | ~(s{k} < float('inf'))")
        for r in range(1, m):
            out(f"power{k} = tl.where(col{k} % {m} >= {r}, power{k} * s{k}, power{k})")
    for g in range(tiles.groups(n)):
        tile = {key: f"link{g}_{key[0]}{key[1]}" for block in "bc" for key in tiles.block(block)}
        out(f"which = row + {g * tiles.form.rows}")
        out(f"of = tl.where(which < {n}, which // {m}, -1)")
        for _, k in tiles.own:
            order = f"(col{k} % {m})"
            mask = out.new(
                f"(of[:, None] == var{k}[None, :]) & ((which % {m})[:, None] <= {order}[None, :])"
                " & linked[None, :]"
            )
            place = f"(before * k_st + b * k_sb + var{k} * k_sv + {order})[None, :]"
            place = out.new(f"{place} + (which % {m} * {m})[:, None]")
            for block, table, sign in (("b", "KF_ptr", "-"), ("c", "K_ptr", "")):
                value = f"tl.load({table} + {place}, mask={mask}, other=0.0)"
                out(f"{tile[block, k]} = {value} * ({sign}power{k})[None, :]")
        if ("c", len(tiles.own)) in tile:  # separate chunk for the right-hand side
            out(f"{tile['c', len(tiles.own)]} = blank")
        yield tile


def central_rows(tiles: Tiles) -> Iterator[Tile]:
    """Rows `w H^(R-2) (y_t - y_{t-2} - H y'_{t-1})` at the top order, for `t >= 2`."""
    out, spec, R = tiles.out, tiles.spec, tiles.spec.m - 1
    out("far = t - 2")
    for g in range(tiles.groups(spec.V)):
        out(f"which = row + {g * tiles.form.rows}")
        out(f"known = (which < {spec.V}) & (which * 0 + t > 1) & (which * 0 + t < L)")
        load = "s_ptr + b * s_sb + which * s_sv"
        out(f"H = tl.load({load} + far * s_st, mask=known, other=1.0)")
        out(f"H = H + tl.load({load} + (far + 1) * s_st, mask=known, other=1.0)")
        where = "wt_ptr + b * wt_sb + far * wt_st + which * wt_sv"
        out(f"w = tl.load({where}, mask=known, other=0.0)")
        for _ in range(R - 2):
            out("w = w * H")
        if R == 1:
            out("w = w / H")
        out(f"low = which * {spec.m} + {R - 1}")
        tile = {key: f"tie{g}_{key[0]}{key[1]}" for block in "abc" for key in tiles.block(block)}
        for (block, k), name in tile.items():
            value, shift = {"a": ("(-w)", 0), "b": ("(-w * H)", 1), "c": ("w", 0)}[block]
            # Surplus rows have weight zero.
            mask = f"column{k} == low[:, None] + {shift}"
            out(f"{name} = tl.where({mask}, blank + {value}[:, None], 0.0)")
        yield tile


def governing_rows(tiles: Tiles, first: str, count: int) -> Iterator[Tile]:
    """`count` equations at time `t` over `c`, starting with number `first`."""
    out, n = tiles.out, tiles.n
    for g in range(tiles.groups(count)):
        out(f"which = row + {first} + {g * tiles.form.rows}")
        out(f"known = which < {tiles.spec.Q}")
        out("w = tl.load(wg_ptr + b * wg_sb + t * wg_st + which * wg_sq, mask=known, other=0.0)")
        out("d = tl.load(d_ptr + b * d_sb + t * d_st + which, mask=known, other=0.0)")
        tile = {key: f"law{g}_{key[0]}{key[1]}" for key in tiles.block("c")}
        for (_, k), name in tile.items():
            where = f"c_ptr + b * c_sb + t * c_st + which[:, None] * {n} + column{k}"
            mask = f"known[:, None] & (column{k} < {n})"
            value = f"tl.load({where}, mask={mask}, other=0.0)"
            if k == tiles.right:
                value = f"tl.where(column{k} == {n}, blank + d[:, None], {value})"
            out(f"{name} = {value} * w[:, None]")
        yield tile


def initial_rows(tiles: Tiles) -> Iterator[Tile]:
    out, spec = tiles.out, tiles.spec
    count = spec.V * spec.m_init
    for g in range(tiles.groups(count)):
        out(f"which = row + {g * tiles.form.rows}")
        out(f"known = which < {count}")
        out(f"v = which // {spec.m_init}")
        out(f"r = which % {spec.m_init}")
        where = "wi_ptr + b * wi_sb + t * wi_st + v * wi_sv + r * wi_sr"
        out(f"w = tl.load({where}, mask=known, other=0.0)")
        out("u = tl.load(u_ptr + b * u_sb + t * u_st + which, mask=known, other=0.0)")
        tile = {key: f"start{g}_{key[0]}{key[1]}" for key in tiles.block("c")}
        for (_, k), name in tile.items():
            own = f"(column{k} == (v * {spec.m} + r)[:, None]) & known[:, None]"
            value = f"tl.where({own}, 1.0, tl.where(column{k} == {tiles.n}, u[:, None], 0.0))"
            out(f"{name} = {value} * w[:, None]")
        yield tile
