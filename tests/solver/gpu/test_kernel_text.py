"""The text of the generated kernels, pinned by hash.

Kernels that were measured on a device must not change while no device is available. After a change
that was tested and measured on a device, rewrite the hashes:

    PYTHONPATH=tests python tests/solver/gpu/test_kernel_text.py
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch

from solver.internals import TRITON, GpuBackend, gpu, interpreted, make_problem

if not TRITON or interpreted():
    pytest.skip("needs Triton, and not its interpreter", allow_module_level=True)

import triton

from solver.internals import Kernel, Program

FILE = Path(__file__).with_name("kernel_hashes.json")
MEMORY = 140 * 2**30
LONGEST = 9_000
"""Lines of a kernel; longer ones take more than ten seconds to compile."""
SIZES = [  # V, R, B, T: at least one for every strategy
    (1, 2, 512, 50), (1, 2, 9000, 50), (1, 2, 1, 1000), (1, 2, 64, 1000), (1, 2, 1, 100_000),
    (1, 2, 40_000, 2), (1, 2, 3, 1), (1, 1, 512, 50), (1, 4, 512, 50), (1, 5, 1, 1000),
    (2, 2, 512, 50), (2, 2, 1, 1000), (2, 2, 9000, 50), (3, 2, 512, 50), (3, 2, 9000, 50),
    (3, 2, 1, 100_000), (4, 2, 512, 50), (5, 2, 512, 50), (5, 2, 1, 50), (4, 3, 9000, 50),
    (8, 2, 512, 50), (8, 2, 1, 1000), (16, 2, 512, 50), (16, 2, 1, 50), (22, 2, 512, 50),
    (21, 2, 64, 1000), (32, 2, 1, 1000), (64, 3, 1, 50), (100, 2, 3, 1), (100, 2, 1, 50),
]  # fmt: skip
WANTED = [[i in which for i in range(7)] for which in
          ({0, 1, 2, 3}, set(range(7)), {3}, {0}, {1, 2})]  # fmt: skip


class Case(NamedTuple):
    scheme: str
    V: int
    R: int
    B: int
    T: int
    Q: int
    weights_by_order: bool
    initial_orders: int


def cases() -> list[Case]:
    """Nearly every size with both schemes; the remaining options in turns."""
    found = []
    for scheme, sizes in (("smnn", SIZES), ("central", SIZES[:-3])):
        for i, (V, R, B, T) in enumerate(sizes):
            Q, by_order, orders = ((V, False, R), (V + 1, True, 1), (V, False, 0))[i % 3]
            found.append(Case(scheme, V, R, B, T, Q, by_order, orders))
    return found


def launches(case: Case) -> list[Any]:
    """All launches of a solve, its gradients and an adjoint solve; tensors have no memory."""
    scheme, V, R, B, T, Q, by_order, orders = case
    none: dict[str, Any] = {"dtype": torch.float64, "device": "meta"}
    c, d = torch.empty(B, T, Q, V, R + 1, **none), torch.empty(B, T, Q, **none)
    u, s = torch.empty(B, min(T, 2), V, orders, **none), torch.empty(B, T - 1, **none)
    weights = {f"w_{x}": torch.ones((), **none) for x in ("gov", "init", "smooth")}
    if by_order:
        weights["w_smooth"] = torch.empty(B, T - 1, V, R + 1, **none)
    problem, _ = make_problem(c, d, u, s, scheme=scheme, **weights)
    found: list[Any] = []
    with (
        mock.patch.object(Program, "run", lambda program, _: found.extend(program.launches)),
        mock.patch.object(gpu, "_memory", return_value=MEMORY),
    ):
        backend = GpuBackend()
        plan = backend.plan(problem, backend.pieces_of(problem))
        y, factor, *_ = plan.solve()
        for wanted in WANTED if by_order else WANTED[:1]:
            plan.gradients(problem.tensors, y, factor, y, wanted)
            backend.row_gradients(problem, y, y, wanted)
        plan.adjoint(factor, y)
    return found


def digest(x: object) -> str:
    return hashlib.sha256(repr(x).encode()).hexdigest()[:16]


def hash_of(kernel: Kernel) -> str:
    return digest((kernel.name, kernel.text, kernel.arguments, kernel._options))


def hashes(case: Case) -> dict[str, str]:
    """Of each kernel by name, and of the order, sizes and arguments of the launches."""
    kernels: dict[str, dict[str, None]] = {}
    order = []
    for x in launches(case):
        if case.V < 5:
            assert x.kernel.text.count("\n") < LONGEST, f"{x.kernel.name} of {case} is too long"
        kernels.setdefault(x.kernel.name, {})[hash_of(x.kernel)] = None
        template = [str(value) for value in x.template]
        order.append((x.kernel.name, hash_of(x.kernel), x.width, x.grid, template,
                      [tuple(slot) for slot in x.slots]))  # fmt: skip
    return {"launches": digest(order)} | {name: " ".join(x) for name, x in kernels.items()}


def label(case: Case) -> str:
    return ", ".join(f"{name}={value}" for name, value in case._asdict().items())


def test_generated_kernels_are_unchanged() -> None:
    record = json.loads(FILE.read_text())
    if triton.__version__ != record["triton"]:
        pytest.skip(f"the hashes are those of Triton {record['triton']}")
    changed = []
    for case in cases():
        found, wanted = hashes(case), record["problems"][label(case)]
        names = found.keys() | wanted.keys()
        changed += [f"{x}: {label(case)}" for x in names if found.get(x) != wanted.get(x)]
    assert changed == [], (
        "generated kernels or their launches have changed. Kernels that were measured on a device "
        "must not change unless a device is available to test and measure them again; then rewrite "
        f"{FILE.name} (see the docstring of this file)"
    )


if __name__ == "__main__":
    lines = [f"{json.dumps(label(case))}: {json.dumps(hashes(case))}" for case in cases()]
    body = ",\n".join(lines)
    FILE.write_text(f'{{"triton": {json.dumps(triton.__version__)}, "problems": {{\n{body}\n}}}}\n')
