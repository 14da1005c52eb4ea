"""CPU kernel: row gradients of a loss.

With `lam = M^-1 dl/dy`, each row `a . y = b` of weight `w` contributes to
`J = sum w^2 (a . lam)(a . y - b)`, and `dl/dtheta = -dJ/dtheta` with `lam` and `y` held fixed.
Whole sequences are traversed from the last time to the first together with the back substitution
for `lam`; for pieces of sequences, `lam` is given.

Gradients by tensors that are constant in time are summed over each piece.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from smnn._solver.cpu.kernels.emit import Cells, Code, Number, Value
from smnn._solver.cpu.kernels.frame import copy
from smnn._solver.cpu.kernels.layout import W
from smnn._solver.cpu.kernels.substitute import Substitution

SUMMED = ("gc", "gd", "gs")
"""Gradients that are summed over time if their stride is given as 0."""


class Gradients(Substitution):
    """Solution `x` and adjoint `mu` at a time and the next, and sums over time."""

    def __init__(
        self, known: Mapping[str, int], name: str = "row_gradients", lanes: int = W
    ) -> None:
        super().__init__(name, known, lanes)
        self.x, self.mu = self.array("x"), self.array("mu")
        self.near, self.far = self.array("near"), self.array("far")
        self.changes, self.step_powers = self.array("changes"), self.array("step_powers")
        self.sums = {name: self.array(f"{name}_sum") for name in SUMMED}

    def wanted(self, *names: str) -> Number:
        found: Number = False
        for name in names:
            found = found | (self[f"@{name}"] != 0)
        return found

    def look_out(self, name: str, t: Number, valid: Number) -> None:
        """Let the lanes write a gradient at time `t`, those that are not valid anywhere else."""
        for _ in self.code.when(self.wanted(name)):
            self.look(name, t)
            here = self.at[name]
            if isinstance(valid, Value):
                here[0] = self.code.select(valid, here[0], self.place("dummy"))

    def give(self, name: str, x: Value, valid: Number, *index: Number) -> None:
        """Write a gradient, or add it to the sum over time."""
        e, total, cell = self.code, self.sums[name], index[0]
        if name == "gc":
            cell = (cell * self.V + index[1]) * self.m + index[2]
        for _ in e.when(self[f"{name}.1"] == 0):
            total[cell] = total[cell] + e.select(valid, x, 0.0)
        for _ in e.when(self[f"{name}.1"] != 0):
            self.put(name, x, *index)

    def read(self, name: str, cells: Cells, t: Number) -> None:
        """Read the solution or the adjoint at time `t`."""
        self.look(name, t, "y")
        for j in self.code.range(0, self.n):
            cells[j] = self.code.gather(self.at[name], self.offset("y", j // self.m, j % self.m))


def row_gradients(known: Mapping[str, int]) -> Code:
    """Gradients of one group of lanes; those with address 0 are not computed."""
    f = Gradients(known)
    e, n, T, given = f.code, f.n, f["T"], f["given"]
    for _ in e.when(given == 0):
        f.put_left()
    for step in e.range(f["L"] - 1, -1, -1):
        t = f.start + step
        valid = f.begun(t)
        copy(f, f.x.at(n), f.x, n)
        copy(f, f.mu.at(n), f.mu, n)
        for _ in e.when(given == 0):
            f.back(step)
            copy(f, f.mu, f.window, n)
            for _ in e.when(f.wanted("lam")):
                f.look("lam", t, "y")
                for j in e.range(0, n):
                    e.scatter(f.at["lam"], f.offset("y", j // f.m, j % f.m), f.mu[j])
        # The time after the last step may belong to another piece.
        following = step == f["L"] - 1 if f.cut else False
        for name, cells, needed in (("y", f.x, True), ("lam", f.mu, given != 0)):
            for _ in e.when(needed):
                f.read(name, cells, t)
                for _ in e.when(following):
                    f.read(name, cells.at(n), e.least(t + 1, T - 1))
        for _ in e.when(f.wanted("gc", "gd", "gw_gov")):
            _governing(f, t, valid)
        for _ in e.when(f.wanted("gs", "gw_smooth") & (T > 1)):
            for _ in e.when(True if f.cut else step < f["L"] - 1):
                smoothness(f, t, valid & (t + 1 < T) if f.cut else True)
        _initial(f, t)
    write_sums(f, f.p, f["parts_of_sums"])
    return e


def _governing(f: Gradients, t: Number, valid: Number) -> None:
    e, n, m, x, mu = f.code, f.n, f.m, f.x, f.mu
    for name in ("c", "d", "w_gov"):
        f.look(name, t)
        f.look_out(f"g{name}", t, valid)
    a, rho = f.near, f.far
    for q in e.range(0, f.Q):
        a[0], rho[0] = 0.0, f.number("d", q)
        for j in e.range(0, n):
            c = f.number("c", q, j // m, j % m)
            a[0], rho[0] = a[0] + c * mu[j], rho[0] - c * x[j]
        w = f.number("w_gov", q)
        weighted = a[0] * w
        for _ in e.when(f.wanted("gw_gov")):
            f.put("gw_gov", weighted * rho[0] * 2.0, q)
        gd = weighted * w
        for _ in e.when(f.wanted("gd")):
            f.give("gd", gd, valid, q)
        for _ in e.when(f.wanted("gc")):
            residual = rho[0] * w * w
            for j in e.range(0, n):
                f.give("gc", residual * mu[j] - gd * x[j], valid, q, j // m, j % m)


def smoothness(f: Gradients, t: Number, valid: Number) -> None:
    """Gradients of the steps and their weights, from `x` and `mu` at both ends.

    With the predictions `p = F near` and `q = F^-1 far`, the rows are `e = far - p` and
    `f = near - q`, and their derivatives by `log s` are `r e_r - p_{r+1}` and `r f_r + q_{r+1}`.
    """
    e, n, m = f.code, f.n, f.m
    here = e.most(e.least(t, f["T"] - 2), 0) if f.cut else t
    for name in ("s", "w_smooth"):
        f.look(name, here)
        f.look_out(f"g{name}", t, valid)
    near, far, powers, up = f.near, f.far, f.step_powers, f.changes
    for v in e.range(0, f.V):
        h = f.number("s", v)
        powers[0] = 1.0
        for j in e.range(1, m):
            powers[j] = powers[j - 1] * h
        for j in e.range(0, m):
            cell = v * m + j
            near[j], near[m + j] = f.x[cell] * powers[j], f.mu[cell] * powers[j]
            far[j], far[m + j] = f.x[n + cell] * powers[j], f.mu[n + cell] * powers[j]
        change = f.window.at(f.span + f.k)  # a cell that the substitution does not use
        change[0] = 0.0
        for i in e.range(0, 4):
            up[i] = 0.0
        for r in e.range(m - 1, -1, -1):
            _taylor_row(f, v, r, change)
        for _ in e.when(f.wanted("gs")):
            f.give("gs", -change[0] / h, valid, v)


def _taylor_row(f: Gradients, v: Number, r: Number, change: Cells) -> None:
    """Add order `r` to the derivative of J by `log s`."""
    e, m, near, far, up = f.code, f.m, f.near, f.far, f.changes
    p = [up.at(i + 4) for i in range(4)]  # F near of x and mu, then F^-1 far
    for cell in p:
        cell[0] = 0.0
    for j in e.range(r, m):
        for side, ends in enumerate((near, far)):
            number = taylor_number(f, j - r, side)
            for which in range(2):
                cell = p[2 * side + which]
                cell[0] = cell[0] + ends[m * which + j] * number
    for _ in e.when(r < f["top"]):
        row = [far[r] - p[0][0], far[m + r] - p[1][0], near[r] - p[2][0], near[m + r] - p[3][0]]
        product = row[0] * row[1] + row[2] * row[3]
        twice = product * e.as_float(r * 2)
        twice = twice - up[0] * row[1] - up[1] * row[0] + up[2] * row[3] + up[3] * row[2]
        w = f.number("w_smooth", v, r)
        change[0] = change[0] + w * w * twice
        for _ in e.when(f.wanted("gw_smooth")):
            f.put("gw_smooth", product * w * -2.0, v, r)
    for i in range(4):
        up[i] = p[i][0]


def taylor_number(f: Gradients, order: Number, side: int) -> Number:
    """`1 / order!`, with alternating sign for the inverse."""
    if isinstance(order, Value):
        table = f.code.memory(f["@taylor"], "double")
        return table[order + f.m if side else order]
    return (-1) ** (order * side) / math.factorial(order)


def _initial(f: Gradients, t: Number) -> None:
    e, T_init = f.code, f["T_init"]
    inside = (t < T_init) & f.begun(t)
    for _ in e.when(f.wanted("gu", "gw_init") & e.any(inside)):
        here = e.most(e.least(t, T_init - 1), 0)
        for name in ("u", "w_init"):
            f.look(name, here)
            f.look_out(f"g{name}", t, inside if f.cut else True)
        for v in e.range(0, f.V):
            for r in e.range(0, f["m_init"]):
                w = f.number("w_init", v, r)
                a = f.mu[v * f.m + r] * w
                for _ in e.when(f.wanted("gu")):
                    f.put("gu", a * w, v, r)
                for _ in e.when(f.wanted("gw_init")):
                    rho = f.number("u", v, r) - f.x[v * f.m + r]
                    f.put("gw_init", a * rho * 2.0, v, r)


def write_sums(f: Gradients, part: Number, parts: Number) -> None:
    """Write the sums over the times of a part of the sequence."""
    e = f.code
    for name, size in (("gc", f.Q * f.n), ("gd", f.Q), ("gs", f.V)):
        for _ in e.when((f[f"{name}.1"] == 0) & f.wanted(name)):
            stride = f[f"{name}.0"]
            f.at[name][0] = f.b * stride + f[f"@{name}"] + stride // parts * part
            for i in e.range(0, size):
                index = (i // f.n, i % f.n // f.m, i % f.m) if name == "gc" else (i,)
                f.put(name, f.sums[name][i], *index)
