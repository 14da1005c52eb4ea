"""Run every kind of GPU kernel once on a small problem, for example under compute-sanitizer.

    python tools/every_kernel.py                                  run and compare
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --target-processes application-only \\
        python tools/every_kernel.py                              check all memory accesses

Without the caching allocator, each tensor has a separate allocation, so every out-of-bounds access
is detected. Solutions, adjoint solutions and gradients are compared with the `cpu` backend.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from smnn._solver.plan import Backend, backend_named
from smnn._solver.problem import Problem, make_problem

KINDS = [  # name, scheme, B, T, V, R, pieces (0: several threads, -1: reduction), weights by order
    ("two lanes", "smnn", 5, 9, 1, 2, 1, False),
    ("two lanes, weights by order", "smnn", 5, 8, 2, 1, 1, True),
    ("two lanes, two launches", "smnn", 37, 9, 2, 2, 1, False),
    ("a lane", "central", 37, 9, 1, 2, 1, False),
    ("a single time", "smnn", 5, 1, 1, 2, 1, False),
    ("pieces", "smnn", 5, 41, 1, 2, 7, False),
    ("pieces of pieces", "smnn", 3, 400, 1, 1, 97, False),
    ("pieces, central", "central", 5, 41, 1, 2, 4, True),
    ("two warps", "smnn", 5, 8, 3, 2, 0, False),
    ("two warps, weights by order", "smnn", 5, 9, 2, 2, 0, True),
    ("a warp", "central", 5, 8, 2, 2, 0, False),
    ("teams of 8", "smnn", 2049, 5, 2, 2, 0, False),
    ("teams of 16", "central", 2049, 5, 3, 2, 0, False),
    ("tiles", "smnn", 3, 4, 9, 2, 0, False),
    ("tiles of four warps", "central", 2, 4, 11, 2, 0, True),
    ("panels", "smnn", 2, 4, 22, 2, 0, False),
    ("panels, central, weights by order", "central", 2, 4, 13, 4, 0, True),
    ("reduction", "smnn", 2, 19, 3, 2, -1, False),
    ("reduction, weights by order", "central", 3, 18, 1, 2, -1, True),
    ("reduction, eight warps", "smnn", 2, 11, 8, 2, -1, False),
    ("reduction, several launches a level", "smnn", 2, 11, 12, 2, -1, False),
    ("reduction, central, weights by order", "central", 3, 6, 9, 2, -1, True),
    ("reduction, products of matrices", "smnn", 9, 12, 36, 2, -1, False),
]
LIMIT = 1e-9


def problem(scheme: str, B: int, T: int, V: int, R: int, by_order: bool) -> Problem:
    """A random well-posed problem on the CPU."""
    g = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=g)

    c, d, u = random(B, T, V + 1, V, R + 1), random(B, T, V + 1), random(B, 1, V, R)
    s, w = 0.3 + random(B, T - 1, V).abs(), 0.5 + random(B, T - 1, V, R + 1).abs()
    return make_problem(c, d, u, s, scheme=scheme, w_smooth=w if by_order else 1.0)[0]


def answers(engine: Backend, case: Problem, pieces: int, g: Tensor) -> list[Tensor]:
    """Solution, adjoint solution, and all gradients in two ways."""
    plan = engine.plan(case, pieces)
    y, factor, _ = plan.solve()
    lam = plan.adjoint(factor, g)
    rows = engine.row_gradients(case, lam, y, [True] * 7)
    return [y, lam, *rows, *plan.gradients(case.tensors, y, factor, g, [True] * 7)]


def main() -> None:
    """Compare all kernels; the exit status is 1 if any of them differs."""
    if not torch.cuda.is_available():
        sys.exit("every_kernel: PyTorch finds no CUDA device; run pytest tests/solver/gpu")
    gpu, reference = backend_named("gpu"), backend_named("cpu")
    wrong = 0
    for name, scheme, B, T, V, R, pieces, by_order in KINDS:
        case = problem(scheme, B, T, V, R, by_order)
        g = torch.randn(case.y_shape, dtype=torch.float64, generator=torch.Generator())
        there = Problem.of([x.cuda() for x in case.tensors], scheme)
        ours, theirs = answers(gpu, there, pieces, g.cuda()), answers(reference, case, 1, g)
        error = max(
            float((a.cpu() - b).abs().max() / b.abs().max().clamp(min=1e-300))
            for a, b in zip(ours, theirs, strict=True)
            if b.numel()
        )
        wrong += not error < LIMIT
        print(f"{name:34s} {error:.1e}{'' if error < LIMIT else '  WRONG'}", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
