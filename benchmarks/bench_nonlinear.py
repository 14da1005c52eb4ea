"""Nonlinear initial value problems: error beside time, with gradients by the initial values.

    python benchmarks/bench_nonlinear.py --out nonlinear.json

Every solver gets the loosest of several tolerances at which its error is at most 1e-6 (relative to
the largest value of each variable; the reference is SciPy with a tolerance of 1e-12). Times are
those of the processor, the fastest of some calls; those of diffrax are without compilation, which
is in `first_s`. Packages that are not installed are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import smnn
from nonlinear.problems import INITIAL, Initial
from smnn._util.files import OutputError, write_json
from smnn._util.machine import describe_machine, package_versions

TARGET = 1e-6
NAMES = ("Lotka-Volterra", "FitzHugh-Nagumo", "Robertson", "HIRES")
MOST_STEPS = 20_000
Solve = Callable[[float, bool], Any]
"""`solve(rtol, gradients)`: the values, or the gradient of their sum by the initial values."""


def ours(problem: Initial) -> Solve:
    """`smnn.odeint`."""
    t, y0 = torch.from_numpy(problem.t), torch.tensor(problem.y0, dtype=torch.float64)

    def solve(rtol: float, gradients: bool) -> Any:
        start = y0.clone().requires_grad_(gradients)
        found = smnn.odeint(problem.right, start, t, rtol=rtol, atol=rtol * problem.atol * 1e6)
        if gradients:
            return torch.autograd.grad(found.y.sum(), start)[0]
        return found.y.numpy() if bool(found.ok) else np.full(found.y.shape, np.nan)

    return solve


def torchdiffeq(problem: Initial) -> Solve:
    """dopri5, differentiated through its steps."""
    from torchdiffeq import odeint

    t, y0 = torch.from_numpy(problem.t), torch.tensor(problem.y0, dtype=torch.float64)

    def solve(rtol: float, gradients: bool) -> Any:
        start = y0.clone().requires_grad_(gradients)
        y = odeint(
            problem.right, start, t, rtol=rtol, atol=rtol * problem.atol * 1e6, method="dopri5",
            options={"max_num_steps": MOST_STEPS},
        )  # fmt: skip
        return torch.autograd.grad(y.sum(), start)[0] if gradients else y.detach().numpy()

    return solve


def diffrax(problem: Initial, method: str) -> Solve:
    """Jitted, with the tolerance as an argument."""
    import diffrax as dx
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    t, y0 = jnp.asarray(problem.t), jnp.asarray(problem.y0)

    def f(t: Any, y: Any, _: Any) -> Any:
        return jnp.stack([jnp.asarray(x, dtype=float) for x in problem.f(t, y, jnp)])

    def run(y0: Any, rtol: Any) -> Any:
        controller = dx.PIDController(rtol=rtol, atol=rtol * problem.atol * 1e6)
        return dx.diffeqsolve(
            dx.ODETerm(f), getattr(dx, method)(), t[0], t[-1], None, y0, saveat=dx.SaveAt(ts=t),
            stepsize_controller=controller, max_steps=MOST_STEPS, throw=False,
        ).ys  # fmt: skip

    forward, backward = jax.jit(run), jax.jit(jax.grad(lambda y, r: run(y, r).sum()))

    def solve(rtol: float, gradients: bool) -> Any:
        return np.asarray((backward if gradients else forward)(y0, rtol))

    return solve


def scipy(problem: Initial, method: str) -> Solve:
    """`solve_ivp`, which has no gradients."""
    from scipy.integrate import solve_ivp

    def solve(rtol: float, gradients: bool) -> Any:
        if gradients:
            return None
        return solve_ivp(
            lambda t, y: problem.f(t, y, np), problem.t[[0, -1]], problem.y0, method,
            t_eval=problem.t, rtol=rtol, atol=rtol * problem.atol * 1e6,
        ).y.T  # fmt: skip

    return solve


MAKERS: dict[str, Callable[[Initial], Solve]] = {
    "smnn.odeint": ours,
    "torchdiffeq dopri5": torchdiffeq,
    "diffrax Tsit5": lambda x: diffrax(x, "Tsit5"),
    "diffrax Kvaerno5": lambda x: diffrax(x, "Kvaerno5"),
    "SciPy LSODA": lambda x: scipy(x, "LSODA"),
    "SciPy Radau": lambda x: scipy(x, "Radau"),
}


def clocked(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = call()
    return time.process_time() - start, found


def measure(problem: Initial, solve: Solve, expected: np.ndarray) -> dict[str, Any]:
    """Loosest sufficient tolerance, its error, and seconds."""
    size, error, first = np.abs(expected).max(0), np.inf, 0.0
    for rtol in 10.0 ** -np.arange(4, 12):
        try:
            seconds, y = clocked(lambda: solve(float(rtol), False))  # noqa: B023
        except (AssertionError, ValueError, RuntimeError):
            break
        first = first or seconds
        if y.shape == expected.shape:
            error = float(np.nan_to_num(np.abs(y - expected) / size, nan=np.inf).max())
        if error <= TARGET or seconds > 20:
            break
    if error > TARGET:
        return {"failed": True}
    out: dict[str, Any] = {"rtol": float(rtol), "error": error, "first_s": first}
    for key, gradients in (("forward_s", False), ("gradient_s", True)):
        times = [clocked(lambda: solve(float(rtol), gradients)) for _ in range(3)]  # noqa: B023
        out[key] = None if times[0][1] is None else min(x for x, _ in times)
    return out


def main() -> int:
    """Measure all solvers, and write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("bench-output/nonlinear.json"))
    parser.add_argument("--only", help="measure this solver; keep the others of the record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    machine = describe_machine()
    machine["versions"] |= package_versions(("diffrax", "jax", "torchdiffeq", "scipy"))
    results, missing = [], set()
    if options.only:
        before = json.loads(options.out.read_text())["results"]
    for name in NAMES:
        problem = INITIAL[name]
        expected = problem.reference()
        for solver, make in MAKERS.items():
            if options.only not in (None, solver):
                old = [r for r in before if (r["problem"], r["solver"]) == (name, solver)]
                results += old
                continue
            if "torchdiffeq" in solver and problem.stiff:
                continue  # minutes for every tolerance
            try:
                found = measure(problem, make(problem), expected)
            except ImportError:
                missing.add(solver)
                continue
            results.append({"problem": name, "solver": solver, **found})
            print(results[-1], file=sys.stderr, flush=True)
    try:
        write_json(
            options.out,
            {"benchmark": "nonlinear", "command": "python benchmarks/bench_nonlinear.py",
             "target": TARGET, "machine": machine, "missing": sorted(missing), "results": results},
        )  # fmt: skip
    except OutputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
