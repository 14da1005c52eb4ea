"""Compare GPU kernels in Triton's interpreter with the `torch` backend; prints JSON.

A script and not a test, because Triton must be imported with its interpreter switched on.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from torch import Tensor

import smnn
from solver.internals import (
    Problem,
    backend_named,
    dense_rows,
    final_status,
    make_problem,
    normal_residual,
    reduction,
    reduction_levels,
    reduction_substitute,
    reduction_triangle,
    strategy,
)
from solver.internals import gpu as gpu_backend

strategy.SHORTEST_PIECE = 2  # so that short sequences have several levels of pieces
strategy.WARPS_FOR_TEAMS = WARPS = 5  # so that a few sequences share one

CASES = [  # B, T, Q, V, R, T_init, orders given, pieces (0: a team per sequence), weights
    (2, 7, 1, 1, 2, 1, 2, 1, "one"),
    (3, 1, 3, 1, 2, 1, 3, 1, "one"),
    (2, 2, 1, 2, 1, 2, 2, 1, "rows"),
    (3, 6, 4, 2, 1, 0, 1, 1, "orders"),
    (3, 13, 2, 1, 1, 2, 1, 3, "orders"),
    (2, 9, 1, 1, 1, 9, 1, 2, "rows"),
    (2, 13, 2, 1, 1, 0, 1, 3, "one"),
    (1, 30, 1, 1, 2, 1, 2, 7, "one"),
    (2, 40, 1, 1, 1, 1, 2, 9, "one"),
    (40, 5, 1, 1, 2, 1, 1, 1, "one"),
    (17, 8, 2, 2, 1, 8, 1, 1, "orders"),
    (2, 1, 2, 1, 1, 1, 2, 1, "orders"),
    (2, 7, 1, 1, 2, 1, 2, 0, "one"),
    (2, 8, 2, 2, 1, 8, 1, 0, "orders"),
    (1, 3, 1, 3, 1, 1, 2, 0, "rows"),
    (2, 1, 3, 1, 2, 1, 3, 0, "one"),
    (2, 2, 1, 2, 1, 2, 2, 0, "rows"),
    (2, 6, 7, 2, 1, 0, 1, 0, "orders"),
    (1, 5, 2, 3, 2, 4, 2, 0, "rows"),
    (1, 4, 5, 5, 2, 1, 1, 0, "orders"),
    (5, 6, 1, 1, 2, 1, 2, 0, "one"),
    (5, 1, 3, 1, 2, 1, 3, 0, "one"),
    (6, 3, 7, 2, 1, 2, 1, 0, "orders"),
    (5, 4, 3, 3, 2, 1, 1, 0, "rows"),
    (3, 3, 2, 5, 2, 3, 2, 0, "one"),
]
CENTRAL = (1, 2, 4, 6, 9, 11, 13, 17, 22, 24)
"""Cases that are repeated with central differences: every kind of weights, and a single time."""
LARGE = {  # more than 15 unknowns per time: tiles of rows, and more equations than fit at once
    "smnn, 27 unknowns": (1, 2, 34, 9, 2, 2, 1, 0, "orders"),
    "smnn, 32 unknowns": (1, 3, 8, 8, 3, 1, 2, 0, "rows"),
    "central, 27 unknowns": (1, 3, 9, 9, 2, 1, 1, 0, "rows"),
    "central, 33 unknowns": (1, 3, 11, 11, 2, 1, 1, 0, "orders"),
}
PANELS = {  # rows that lie in memory, here for smaller blocks too; more equations than unknowns
    "smnn, 34 unknowns": (1, 3, 70, 17, 1, 2, 1, 0, "rows"),
    "central, 18 unknowns": (1, 3, 6, 6, 2, 1, 1, 0, "orders"),
}
REDUCED = {  # odd-even reduction; lengths that leave one block over at several levels, or none
    "smnn, 1 time": (2, 1, 3, 1, 2, 1, 3, -1, "one"),
    "smnn, 7 times": (2, 7, 1, 1, 2, 1, 2, -1, "rows"),
    "smnn, 9 times": (2, 9, 2, 2, 1, 2, 2, -1, "orders"),
    "smnn, no equation": (2, 7, 0, 2, 1, 1, 2, -1, "one"),
    "smnn, 12 unknowns": (1, 5, 4, 4, 2, 1, 2, -1, "rows"),
    "smnn, 18 unknowns": (1, 5, 20, 6, 2, 1, 2, -1, "one"),
    "smnn, 33 unknowns": (1, 3, 11, 11, 2, 1, 1, -1, "rows"),
    "central, 2 times": (2, 2, 1, 2, 1, 2, 2, -1, "rows"),
    "central, 13 times": (2, 13, 2, 1, 1, 0, 1, -1, "orders"),
    "central, 18 times": (1, 18, 1, 1, 1, 3, 1, -1, "orders"),
    "central, 6 unknowns": (1, 8, 1, 2, 2, 1, 2, -1, "one"),
}
BY_LAUNCHES = ["smnn, 9 times", "central, 18 times", "smnn, 33 unknowns"]
"""Cases that are repeated with several launches per level."""
WAYS = {  # variables and times of the smallest problems that go this way; pieces
    "teams": (1, 12, 0), "warps": (1, 11, 0), "whole": (1, 12, 1), "pieces": (1, 12, 3),
    "tiles": (6, 2, 0), "panels": (6, 2, 0), "reduced": (1, 5, -1),
}  # fmt: skip


def relative(a: Tensor, b: Tensor) -> float:
    """Largest difference relative to the largest value; 0 for empty tensors."""
    return float((a - b).abs().max() / b.abs().max()) if b.numel() else 0.0


def eliminated(levels: tuple[strategy.Level, ...]) -> list[int]:
    """Times in the order of elimination: inside of pieces first, then separators."""
    first = levels[0]
    if first.bidirectional:
        T = first.N
        return [*range(T // 2), *range(T - 1, T // 2, -1), T // 2]
    nodes, order = [[t] for t in range(first.N)], []
    for level in levels:
        between = []
        for p in range(level.P):
            start = p * (level.N // level.P) + min(p, level.N % level.P)
            piece = nodes[start : start + level.N // level.P + (p < level.N % level.P)]
            inner = len(piece) - (level.reach if level.P > 1 else 0)
            order += [t for node in piece[:inner] for t in node]
            between.append([t for node in piece[inner:] for t in node])
        nodes = between
    return order


def judged(problem: Problem, times: list[int]) -> tuple[Tensor, Tensor]:
    """Smallest pivot relative to its column and its position, for this order of times."""
    _, _, V, m = problem.y_shape
    order = torch.tensor([t * V * m + i for t in times for i in range(V * m)])
    rows, _, weights = dense_rows(problem)
    A = (rows * weights[..., None])[..., order]
    pivots = torch.linalg.qr(A).R.diagonal(dim1=-2, dim2=-1).abs()
    rcond, at = (pivots / A.norm(dim=-2)).min(-1)
    return rcond, order[at]


def problem_of(scheme: str, case: tuple) -> Problem:
    """A random problem."""
    B, T, Q, V, R, T_init, m_init, _, kind = case
    f64 = {"dtype": torch.float64}
    c, d = torch.randn(B, T, Q, V, R + 1, **f64), torch.randn(B, T, Q, **f64)
    u, s = torch.randn(B, T_init, V, m_init, **f64), torch.rand(B, T - 1, V, **f64) + 0.3
    weights: dict[str, Tensor | float] = {}
    if kind == "rows":
        weights["w_gov"] = torch.rand(B, T, Q, **f64) + 0.5
        weights["w_init"] = torch.rand(B, T_init, V, m_init, **f64) + 0.5
        weights["w_smooth"] = torch.rand(B, T - 1, V, 1, **f64) + 0.5
    if kind == "orders":
        weights["w_smooth"] = torch.rand(B, T - 1, V, R + 1, **f64) + 0.5
    return make_problem(c, d, u, s, scheme=scheme, **weights)[0]


def levels_of(problem: Problem, pieces: int) -> tuple[strategy.Level, ...]:
    B, T, V, m = problem.y_shape
    return strategy.plan(B, T, pieces, V, m, problem.reach)


def compare(scheme: str, case: tuple) -> dict[str, object]:
    """Compare solution, adjoint solution and gradients of a case with another backend."""
    problem, pieces = problem_of(scheme, case), case[7]
    gpu, judge = backend_named("gpu"), backend_named("torch")
    ours, theirs = gpu.plan(problem, pieces).solve(), judge.plan(problem, 1).solve()
    g = torch.randn_like(theirs.y)
    x, z = (
        gpu.plan(problem, pieces).adjoint(ours.factor, g),
        judge.plan(problem, 1).adjoint(theirs.factor, g),
    )
    if pieces == gpu_backend.REDUCED:
        _, rcond, weakest = theirs.diagnostics.tensors()
    else:  # pivots of a triangle depend on the order of the unknowns alone
        rcond, weakest = judged(problem, eliminated(levels_of(problem, pieces)))
    wanted = [True] * 7
    mine = gpu.row_gradients(problem, z, theirs.y, wanted)
    other = judge.row_gradients(problem, z, theirs.y, wanted)
    both = mine
    if pieces != gpu_backend.REDUCED and strategy.adjoint_lanes(levels_of(problem, pieces)):
        both = gpu.plan(problem, pieces).gradients(problem.tensors, ours.y, ours.factor, g, wanted)
    found = ours.diagnostics.tensors()
    return {
        "y": relative(ours.y, theirs.y),
        "adjoint": relative(x, z),
        "gradients": max(
            relative(a, b) for x in (mine, both) for a, b in zip(x, other, strict=True)
        ),
        "rcond": relative(found[1], rcond),
        "weakest": bool((found[2] == weakest).all()),
        "status": found[0].tolist(),
    }


def failures(ways: list[str]) -> dict[str, object]:
    """A good sample, a bad step, a NaN, and a singular sample, with every kind of kernel."""
    out = {}
    f64 = {"dtype": torch.float64}
    for name in ways:
        V, T, pieces = WAYS[name]
        strategy.WARPS_FOR_TEAMS = 99 if name == "warps" else WARPS
        c = torch.eye(V, **f64)[:, :, None].repeat(4, T, 1, 1, 3)
        c[2, T // 2] = torch.nan
        c[3] = 0.0
        s = torch.full((4, T - 1), 0.1, **f64)
        s[1, T // 3] = -0.1
        u = torch.ones(4, 1, V, 2, **f64)
        problem, _ = make_problem(c, torch.zeros(4, T, V, **f64), u, s)
        solved = backend_named("gpu").plan(problem, pieces).solve()
        out[name] = [
            solved.diagnostics.tensors()[0].tolist(),
            solved.y.isnan().flatten(1).all(1).tolist(),
        ]
    return out


def uneven(ways: list[str]) -> dict[str, float]:
    """Largest errors with rows of very different size, against rotations on the CPU."""
    f64 = {"dtype": torch.float64}
    sizes = {  # no two plans alike: they are kept
        "whole": (4, 2, 1), "pieces": (4, 2, 2), "warps": (3, 2, 0), "teams": (4, 2, 0),
        "tiles": (2, 9, 0), "panels": (2, 11, 0), "reduced": (4, 2, -1),
    }  # fmt: skip
    ones = torch.ones(4, 1, 1, 1, **f64)
    w_gov, w_init, w_smooth = ones[..., 0].clone(), ones.clone(), ones.clone()
    w_gov[0], w_gov[1], w_init[2], w_smooth[3] = 1e6, 1e-6, 1e6, 1e-5  # in each sample another
    out: dict[str, float] = {}
    for way in ways:
        T, V, pieces = sizes[way]
        strategy.WARPS_FOR_TEAMS = 99 if way == "warps" else WARPS
        c, d = torch.randn(4, T, V, V, 3, **f64), torch.randn(4, T, V, **f64)
        u, s = torch.randn(4, 1, V, 1, **f64), torch.full((4, T - 1), 0.01, **f64)
        problem, _ = make_problem(c, d, u, s, w_gov=w_gov, w_init=w_init, w_smooth=w_smooth)
        y, judge = (
            backend_named(name).plan(problem, p).solve().y
            for name, p in (("gpu", pieces), ("cpu", 1))
        )
        out[way] = max(relative(*pair) for pair in zip(y, judge, strict=True))
    return out


def long_and_singular() -> list[list[int]]:
    """Without equations: at this length only the condition estimate detects it."""
    f64 = {"dtype": torch.float64}
    c, d = torch.zeros(2, 200, 1, 1, 3, **f64), torch.zeros(2, 200, 1, **f64)
    u, s = torch.ones(2, 1, 1, 2, **f64), torch.full((2, 199), 0.3, **f64)
    problem, _ = make_problem(c, d, u, s, scheme="central")
    gpu = backend_named("gpu")
    pieces = gpu.pieces(2, 200, 3, 2)
    plan = gpu.plan(problem, pieces)
    _, factor, found = plan.solve()
    status, rcond, weakest = found.tensors()
    closer = final_status(plan, problem, factor, status, rcond, weakest)
    return [status.tolist(), closer.tolist()]


def short() -> float:
    """Largest error for given values at a single time, in units of rounding."""
    f64 = {"dtype": torch.float64}
    u, w = torch.randn(64, 1, 4, 3, **f64), torch.rand(64, 1, 4, 3, **f64) + 0.5
    c, d, s = (
        torch.zeros(64, 1, 0, 4, 3, **f64),
        torch.zeros(64, 1, 0, **f64),
        torch.ones(64, 0, **f64),
    )
    y = smnn.solve(c, d, u, s, w_init=w, backend="gpu")
    error = (y - u).flatten(1).norm(dim=1) / u.flatten(1).norm(dim=1)
    return float(error.max()) / torch.finfo(torch.float64).eps


def odd_gradients() -> list[float]:
    """Effect of negative views, and gradients of zeros without memory."""
    f64 = {"dtype": torch.float64}
    x = [torch.randn(2, 5, 1, 1, 2, **f64), torch.randn(2, 5, 1, **f64),
         torch.randn(2, 1, 1, 1, **f64), torch.rand(2, 4, **f64) + 0.1]  # fmt: skip
    leaves = [t.requires_grad_() for t in x]

    def grads(g: Tensor) -> Tensor:
        y = smnn.solve(*leaves, backend="gpu")
        return torch.cat([t.flatten() for t in torch.autograd.grad(y, leaves, g)])

    g = torch.randn(2, 5, 1, 2, **f64)
    zero = torch._efficientzerotensor((4, *g.shape[1:]), **f64)
    found = [grads(g) - grads(torch._neg_view(-g)), grads(zero[:2]), grads(zero[2:])]
    return [float(t.abs().max()) for t in found]


def some_gradients() -> list[float]:
    """Largest difference between gradients computed alone and together."""
    f64 = {"dtype": torch.float64}
    c, d = torch.randn(3, 6, 2, 1, 3, **f64), torch.randn(3, 6, 2, **f64)
    u, s = torch.randn(3, 2, 1, 2, **f64), torch.rand(3, 5, 1, **f64) + 0.3
    problem, _ = make_problem(c, d, u, s, w_gov=torch.rand(3, 6, 2, **f64) + 0.5)
    gpu = backend_named("gpu")
    y, factor, *_ = gpu.plan(problem, 1).solve()
    g, out = torch.randn_like(y), []
    every = gpu.plan(problem, 1).gradients(problem.tensors, y, factor, g, [True] * 7)
    for wanted in ({0}, {1, 2}, {3}, {0, 1, 2, 3}, {4}, {5}, {6}, set(range(7)) - {3, 6}):
        flags = [i in wanted for i in range(7)]
        found = gpu.plan(problem, 1).gradients(problem.tensors, y, factor, g, flags)
        assert [x is not None for x in found] == flags
        out.append(max(relative(found[i], every[i]) for i in wanted))
    return out


def large_weights() -> list[float]:
    """Effect of equations times 1e-160 with weights of 1e160, whose squares overflow."""
    f64 = {"dtype": torch.float64}
    out = []
    for V in (1, 6):  # kernels for a lane and for tiles
        c, u = torch.randn(1, 4, V, V, 3, **f64), torch.randn(1, 1, V, 2, **f64)
        d, s = torch.randn(1, 4, V, **f64), torch.rand(1, 3, V, **f64) + 0.3
        found = []
        for scale in (1.0, 1e-160):
            x = [(scale * t).requires_grad_() for t in (c, d)]
            y = smnn.solve(*x, u, s, backend="gpu", w_gov=1 / scale)
            found.append([scale * g for g in torch.autograd.grad(y.sum(), x)])
        out += [relative(b, a) for a, b in zip(*found)]
    return out


def panels() -> dict[str, object]:
    """Kernels whose rows are in memory."""
    strategy.LARGEST_IN_REGISTERS = 16
    ways = ["panels"]
    cases = {name: compare(name.split(",")[0], case) for name, case in PANELS.items()}
    return {"cases": cases, "failures": failures(ways), "uneven": uneven(ways)}


def refined(name: str) -> list[float]:
    """Errors of the residual at any `y`, of `y` after one correction, and after an overflow."""
    problem = problem_of(name.split(",")[0], REDUCED[name])
    right = backend_named("gpu").plan(problem, gpu_backend.REDUCED).solve()
    _, tensors, strides = gpu_backend._inputs(problem)
    sizes = reduction_levels.sizes_of(problem)
    B, N, M, _ = sizes.shape
    new, y = problem.c.new_empty, torch.randn(problem.y_shape, dtype=torch.float64)
    tensors |= {"link": new((N + 1) * B * sizes.slots * (2 * M + 2)), "y": y.clone()}
    tensors |= {"local": new(N * B * sizes.own * (M + 2)), "z": new(N * B * M)}
    tensors |= {name: new(size) for name, size in reduction.final_sizes(sizes.shape).items()}
    names = "status", "rcond", "weakest"
    tensors |= {
        "factor": right.factor,
        **dict(zip(names, right.diagnostics.tensors(), strict=True)),
    }
    reduction.blocks_program(sizes, strides).run(tensors)
    launches = reduction.refine_program(sizes, strides).launches[len(sizes.levels) :]
    for launch in launches:
        launch.interpret(tensors)
    errors = [relative(tensors["residual"].view_as(y), normal_residual(problem, y))]
    errors.append(relative(tensors["y"], right.y))
    tensors["better"].fill_(torch.inf)
    for launch in launches[-2:]:  # status and solution
        launch.interpret(tensors)
    return [*errors, relative(tensors["y"], right.y)]


def reduced() -> dict[str, object]:
    """Odd-even reduction, also with matrix products."""
    reduction_substitute.SMALL_ROWS = 2  # so that what is gathered takes several turns
    ways = ["reduced"]
    cases = {name: compare(name.split(",")[0], case) for name, case in REDUCED.items()}
    found = {"cases": cases, "failures": failures(ways), "uneven": uneven(ways)}
    found["refined"] = {name: refined(name) for name in BY_LAUNCHES}
    reduction_levels.Sizes.at_once = False
    found["launches"] = {x: compare(x.split(",")[0], REDUCED[x]) for x in BY_LAUNCHES}
    reduction.MANY, reduction.ROOM, reduction_triangle.WIDE_BLOCK = 0, 1, 16
    some = ["smnn, 18 unknowns", "central, 6 unknowns"]
    return found | {"products": {x: compare(x.split(",")[0], REDUCED[x]) for x in some}}


PARTS = {"panels": panels, "reduced": reduced}


def others() -> dict[str, object]:
    """All other kernels."""
    result = {f"smnn {i}": compare("smnn", case) for i, case in enumerate(CASES)}
    result |= {f"central {i}": compare("central", CASES[i]) for i in CENTRAL}
    result |= {name: compare(name.split(",")[0], case) for name, case in LARGE.items()}
    ways = [way for way in WAYS if way not in PARTS]
    found = {"cases": result, "failures": failures(ways)}
    found |= {"long": long_and_singular(), "uneven": uneven(ways), "short": short()}
    found |= {"odd gradients": odd_gradients(), "some gradients": some_gradients()}
    return found | {"large weights": large_weights()}


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)  # new memory holds NaN
    json.dump(PARTS[sys.argv[1]]() if sys.argv[1:] else others(), sys.stdout)
