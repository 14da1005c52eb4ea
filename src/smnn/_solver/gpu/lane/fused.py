"""Fused backward: row gradients inside the back substitution of the adjoint solve.

One launch instead of two, and the adjoint solution is not written to memory. For small blocks of
whole sequences, where launch overhead dominates.
"""

from __future__ import annotations

from smnn._solver.gpu.emit import prefetching_load
from smnn._solver.gpu.lane.row_gradients import Ends, Location, RowGradients
from smnn._solver.gpu.lane.time_index import TimeIndex


class FusedRowGradients:
    """Row gradients inside the loop of a back substitution (schemes with `reach` 1).

    A lane that starts from the end of a sequence sees reversed time: the rows of a step are the
    same, with the opposite sign of odd derivatives.

    Args:
        index: Index arithmetic.
        V: Variables.
        m: Orders per variable.
        Q: Equations.
        m_init: Orders with initial values.
        scheme: Not `"central"`, whose rows span two steps.
        wanted: Which gradients to compute, in the order of `TENSORS`.
    """

    def __init__(
        self, index: TimeIndex, V: int, m: int, Q: int, m_init: int, scheme: str,
        wanted: tuple[bool, ...],
    ) -> None:  # fmt: skip
        self._index, self._out = index, index.out
        location = Location(row="spot", here="mine", link="link", linked="follows")
        self._rows = RowGradients(index.out, V, m, Q, m_init, scheme, wanted, location)

    def reads(self) -> list[str]:
        """Loads of the solution and the inputs for a step (placeholder `STEP`)."""
        rows, n = self._rows, self._rows.n
        t, here = self._index.time_of("STEP")
        found = [prefetching_load(f"y_ptr + (b * T + {t}) * {n} + {j}", here) for j in range(n)]
        if rows.of_equations:
            for i in range(rows.Q * n):
                found.append(prefetching_load(f"c_ptr + b * c_sb + {t} * c_st + {i}", here))
            for q in range(rows.Q):
                found.append(prefetching_load(f"d_ptr + b * d_sb + {t} * d_st + {q}", here))
        if rows.of_steps:
            link = f"({t} - p)" if self._index.orders else t
            for v in range(rows.V):
                where = f"s_ptr + b * s_sb + {link} * s_st + {v} * s_sv"
                found.append(prefetching_load(where, f"({here} & (lane * 0 + STEP < L - 1))", 1.0))
        return found

    def start(self) -> None:
        """Initialize the adjoint solution of the next time before the loop."""
        for j in range(self._rows.n):
            self._out(f"next{j} = zero")

    def write(self, read: list[str]) -> None:
        """Store the gradients of a step; `y0...` is its adjoint solution and that of the next time."""
        index, out, rows = self._index, self._out, self._rows
        n, m, Q = rows.n, rows.m, rows.Q
        out("spot = b * T + now")
        out("mine = valid & own")
        y, lam = read[:n], [out.new(index.directed(f"y{j}", j)) for j in range(n)]
        if rows.of_equations:
            c, d = read[n : n + Q * n], read[n + Q * n :]
            for q in range(Q):
                rows.equation(q, c[q * n : q * n + n], d[q], y, lam)
        for v in range(rows.V):
            own = slice(v * m, v * m + m)
            rows.initial(str(v), y[own], lam[own])
        if not rows.of_steps:
            return
        out(f"link = {'t - p' if index.orders else 't'}")
        out("follows = valid & here & (lane * 0 + step < L - 1)")
        y = [out.new(index.directed(x, j)) for j, x in enumerate(y)]
        for v in range(rows.V):
            columns = range(v * m, v * m + m)
            solution = [y[j] for j in columns], [f"next{j}" for j in columns]
            adjoint = [f"y{j}" for j in columns], [f"y{n + j}" for j in columns]
            rows.step(str(v), read[len(read) - rows.V + v], Ends(solution, adjoint))
        for j, x in enumerate(y):
            out(f"next{j} = {x}")
