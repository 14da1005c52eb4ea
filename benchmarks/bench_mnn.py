"""The original MNN by exact linear-time, dense and iterative solvers, by length and batch size.

    python benchmarks/bench_mnn.py --out bench_mnn.json [--mech-nn CHECKOUT] [--quick]

Every result is checked before it is timed: values, slack and gradients against the dense solver
where possible, and the error against the closed form. If a solver exceeds the limits of memory or
time, the reason is recorded.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from _cases import INPUTS, STEP, Case, Data, make_data, relative_mse
from smnn._util.files import OutputError, write_json
from smnn._util.machine import describe_machine
from smnn.baselines import mnn_dense, mnn_exact, mnn_sparse

Solver = Callable[[dict[str, Tensor]], tuple[Tensor, Tensor]]
"""Maps c, d, u, s to y and eps."""
DENSE_BYTES = 4e9
DENSE_COST = 4e10
"""Limit of the cubed number of unknowns times the batch: about ten seconds on one core."""
AGREE = 1e-8


def cases(quick: bool) -> list[Case]:
    """Lengths up to 10^5, and the batches of the Lorenz experiment (three equations a window)."""
    lengths = (100, 1_000, 10_000) if quick else (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
    batches = (64,) if quick else (64, 512)
    return [Case("length", 1, T) for T in lengths] + [Case("batch", 3 * B, 50) for B in batches]


def unknowns(case: Case) -> int:
    """Number of unknowns of a sample, including the slack."""
    return case.T * case.n + 1


def too_large(case: Case) -> str | None:
    """Reason why the dense solver is not run, or `None`."""
    N = unknowns(case)
    rows = case.T * case.V + case.V + 2 * (case.T - 1) * case.V * case.R + (case.T - 2) * case.V
    size = 8.0 * case.B * (rows * N + 2 * N * N)
    if size > DENSE_BYTES:
        return f"would need {size / 2**30:.3g} GiB"
    if case.B * float(N) ** 3 > DENSE_COST:
        return "would take too long"
    return None


def import_mech_nn(checkout: Path) -> Any:
    """The layers published with the original MNN, from a checkout of its repository."""
    if not (checkout / "solver" / "ode_layer.py").is_file():
        raise FileNotFoundError(
            f"{checkout} is no checkout of mech-nn: solver/ode_layer.py missing"
        )
    sys.path.insert(0, str(checkout))
    return importlib.import_module("solver.ode_layer")


def mech_nn_solver(case: Case, module: Any) -> Solver:
    """Its dense solver, for V = 1."""
    layer = module.ODEINDLayer(
        bs=case.B, order=case.R, n_ind_dim=1, n_iv=1, n_step=case.T, n_iv_steps=1, double_ret=True
    )

    def solve(x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        u0, u1, u2, eps, _ = layer(x["c"], x["d"], x["u"], x["s"])
        return torch.stack([u0, u1, u2], -1).movedim(1, 2), eps

    return solve


def solvers(case: Case, module: Any) -> dict[str, Solver | str]:
    """Solvers by name, or the reason why one is not available."""
    found: dict[str, Solver | str] = {"exact": lambda x: mnn_exact(**x)[:2]}
    reason = too_large(case)
    found["dense"] = reason or (lambda x: mnn_dense(**x)[:2])
    if module is not None:
        found["mech-nn dense"] = reason or mech_nn_solver(case, module)
    if case.T <= 10_000:
        found["sparse, 200 iterations"] = lambda x: mnn_sparse(**x, check=False)[:2]
    return found


def run_case(case: Case, budget: float, module: Any = None) -> dict[str, Any]:
    """Check and time all solvers on a case."""
    data = make_data(case)
    results: list[dict[str, Any]] = []
    reference: list[Tensor] | None = None
    chosen = solvers(case, module)
    for name in sorted(chosen, key=lambda name: name != "dense"):  # the reference first
        solver = chosen[name]
        if isinstance(solver, str):
            results.append({"solver": name, "not_run": solver})
            continue
        found = answers(data, solver)
        reference = found if name == "dense" else reference
        row: dict[str, Any] = {
            "solver": name,
            "relative_mse": relative_mse(found[0][..., 0], data.exact),
            "difference": None if reference is None else differences(found, reference),
            **times(data, solver, budget),
        }
        if name.startswith("sparse"):
            result = mnn_sparse(**data.inputs(grad=False), check=False)
            row["converged"] = f"{int(result.converged.sum())} of {case.B}"
            row["residual"] = result.residual.max().item()
        results.append(row)
    sizes = {"group": case.group, "B": case.B, "T": case.T, "V": case.V, "R": case.R}
    return {**sizes, "results": results}


def weights(y: Tensor) -> Tensor:
    """A fixed functional of the scaled variables `s^r y_r`."""
    g = torch.cos(torch.arange(y.numel(), dtype=y.dtype)).view(y.shape) / y.numel()
    return g * STEP ** torch.arange(y.shape[-1], dtype=y.dtype)


def answers(data: Data, solver: Solver) -> list[Tensor]:
    """`s^r y_r`, the slack, and gradients with respect to all inputs (c in the same scaling)."""
    leaves = data.inputs(grad=True)
    y, eps = solver(leaves)
    loss = (y * weights(y)).sum() + eps.sum() / len(eps)
    grads = torch.autograd.grad(loss, [leaves[k] for k in INPUTS])
    scale = STEP ** torch.arange(y.shape[-1], dtype=y.dtype)
    return [(y * scale).detach(), eps.detach(), grads[0] * scale, *grads[1:]]


def differences(found: list[Tensor], reference: list[Tensor]) -> dict[str, float]:
    """Largest difference relative to the largest entry; the slack relative to the solution."""
    names = ("y", "eps", *(f"gradient by {k}" for k in INPUTS))
    out = {}
    for name, a, b in zip(names, found, reference):
        size = reference[0].abs().max() if name == "eps" else b.abs().max()
        out[name] = ((a - b).abs().max() / size).item()
    return out


def times(data: Data, solver: Solver, budget: float) -> dict[str, Any]:
    """Median milliseconds of forward alone, and of forward and backward together."""
    plain, leaves = data.inputs(grad=False), data.inputs(grad=True)

    def forward() -> None:
        with torch.no_grad():
            solver(plain)

    def both() -> None:
        y, eps = solver(leaves)
        loss = (y * weights(y)).sum() + eps.sum()
        torch.autograd.grad(loss, [leaves[k] for k in INPUTS])

    out: dict[str, Any] = {}
    for key, call in (("forward_ms", forward), ("both_ms", both)):
        spent: list[float] = []
        call()
        while not spent or (sum(spent) < budget and len(spent) < 30):
            start = time.perf_counter()
            call()
            spent.append(time.perf_counter() - start)
        out[key] = 1e3 * statistics.median(spent)
        out[f"{key}_repeats"] = len(spent)
    return out


def disagreements(record: dict[str, Any]) -> list[str]:
    """Results of direct solvers that differ from the dense one."""
    found = []
    for case in record["cases"]:
        for result in case["results"]:
            worst = max((result.get("difference") or {"": 0.0}).values())
            if worst > AGREE and not result["solver"].startswith("sparse"):
                found.append(f"{result['solver']} at T={case['T']}: {worst:.1e}")
    return found


def main() -> int:
    """Run the benchmark and write its JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("bench-output/bench_mnn.json"))
    parser.add_argument("--mech-nn", type=Path, help="root of a mech-nn checkout")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, shorter")
    parser.add_argument("--threads", type=int, default=1, help="for every solver (default 1)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", message="mnn_sparse: in the backward pass")
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        module = import_mech_nn(options.mech_nn) if options.mech_nn else None
        record: dict[str, Any] = {
            "benchmark": "mnn",
            "settings": {"quick": options.quick, "mech_nn": module is not None, "step": STEP},
            "machine": describe_machine(),
            "cases": [],
        }
        todo = cases(options.quick)
        for i, case in enumerate(todo, 1):
            print(f"[{i}/{len(todo)}] {case.label}", file=sys.stderr, flush=True)
            record["cases"].append(run_case(case, 0.5 if options.quick else 2.0, module))
        write_json(options.out, record)
    except (OutputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted; nothing was written.", file=sys.stderr)
        return 130
    for case in record["cases"]:
        for r in case["results"]:
            text = r.get("not_run") or (
                f"{r['forward_ms']:.4g} ms forward, {r['both_ms']:.4g} ms with backward, "
                f"relative MSE {r['relative_mse']:.1e}"
            )
            print(f"B={case['B']} T={case['T']} {r['solver']}: {text}")
    print(f"Results: {options.out}")
    wrong = disagreements(record)
    for line in wrong:
        print(f"DISAGREES with dense: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
