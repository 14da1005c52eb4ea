"""Time the `gpu` backend on a CUDA device, and the published solver in the same process.

    python benchmarks/bench_gpu.py --out bench_gpu.json [--published PATH/TO/ScalableMNN]

For each case, values and gradients are first compared with the `torch` backend in float64 (on a
part of the batch). Then forward and backward passes are timed in eager mode: the median over calls
with synchronization after each, and the mean of consecutive calls with synchronization before the
first and after the last only, as in training and `torch.utils.benchmark`. The two solvers alternate
for three seconds, at least five times (once if a call is slow), each time after a few warm-up
calls, because the speed of a host changes within seconds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import smnn
from smnn._solver.gpu import launcher

CASES = [  # name, B, T, V, R, orders with an initial value
    ("Lorenz B512 T50", 512, 50, 1, 2, 1),
    ("Lorenz B512 T5", 512, 5, 1, 2, 1),
    ("Lorenz B512 T500", 512, 500, 1, 2, 1),
    ("Lorenz B64 T50", 64, 50, 1, 2, 1),
    ("Lorenz B4096 T50", 4096, 50, 1, 2, 1),
    ("V=Q=3 B512 T50", 512, 50, 3, 2, 1),
    ("V=Q=3 B4096 T50", 4096, 50, 3, 2, 1),
    ("KdV layer B8192 T10 R4", 8192, 10, 1, 4, 4),
    ("V=Q=5 B512 T50", 512, 50, 5, 2, 1),
    ("V=Q=5 B4096 T50", 4096, 50, 5, 2, 1),
    ("V=Q=8 B512 T50", 512, 50, 8, 2, 1),
    ("V=Q=9 B512 T50", 512, 50, 9, 2, 1),
    ("V=Q=16 R3 B512 T50", 512, 50, 16, 3, 1),
    ("V=Q=32 B512 T50", 512, 50, 32, 2, 1),
    ("V=Q=32 R3 B512 T50", 512, 50, 32, 3, 1),
    ("V=Q=100 B32 T50", 32, 50, 100, 2, 1),
    ("SST B12960 T208", 12960, 208, 1, 2, 1),
    ("SST B12960 T1727", 12960, 1727, 1, 2, 1),
    ("one sequence T10000", 1, 10_000, 1, 2, 1),
    ("one sequence V=Q=3 T1000", 1, 1000, 3, 2, 1),
    ("one sequence V=Q=8 T1000", 1, 1000, 8, 2, 1),
    ("one sequence V=Q=16 R3 T1000", 1, 1000, 16, 3, 1),
    ("one sequence V=Q=32 T50", 1, 50, 32, 2, 1),
    ("one sequence V=Q=32 T1000", 1, 1000, 32, 2, 1),
    ("one sequence V=Q=100 T50", 1, 50, 100, 2, 1),
    ("one sequence V=Q=256 R1 T50", 1, 50, 256, 1, 1),
]
TURNS, SECONDS = 5, 3.0
LENGTHS = [100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000]


def problem(B: int, T: int, V: int, R: int, m_init: int) -> list[Tensor]:
    """A random well-posed problem: a first-order system, carried to order `R`."""
    g = torch.Generator("cuda").manual_seed(0)
    kind: dict[str, Any] = {"dtype": torch.float64, "device": "cuda", "generator": g}
    c = torch.zeros(B, T, V, V, R + 1, dtype=torch.float64, device="cuda")
    c[..., 0] = 0.3 * torch.randn(B, T, V, V, **kind)
    c[..., 1] = torch.eye(V, dtype=torch.float64, device="cuda")
    s = 0.01 + 0.001 * torch.rand(B, T - 1, **kind)
    return [c, torch.randn(B, T, V, **kind), torch.randn(B, 1, V, m_init, **kind), s]


def ours(*x: Tensor) -> Tensor:
    """Solve with the default backend, without synchronization."""
    return smnn.solve(*x, check=False)


def recomputing(*x: Tensor) -> Tensor:
    """Solve with `keep_factor=False`, which computes the factor twice."""
    return smnn.solve(*x, check=False, keep_factor=False)


def oracle(*x: Tensor) -> Tensor:
    """Solve with the `torch` backend, for comparison."""
    return smnn.solve(*x, backend="torch")


def relative(a: Tensor, b: Tensor) -> float:
    """Largest difference relative to the largest value."""
    return float((a - b).abs().max() / b.abs().max())


def gradients(solve: Callable[..., Tensor], tensors: list[Tensor], g: Tensor) -> list[Tensor]:
    """The solution and the gradients with respect to all four tensors."""
    leaves = [x.detach().clone().requires_grad_() for x in tensors]
    y = solve(*leaves)
    return [y.detach(), *torch.autograd.grad(y, leaves, g)]


def trainer(solve: Callable[..., Tensor], tensors: list[Tensor], g: Tensor) -> Callable[[], None]:
    """A function that runs a forward and a backward pass with all gradients."""
    leaves = [x.detach().requires_grad_() for x in tensors]

    def step() -> None:
        torch.autograd.grad(solve(*leaves), leaves, g)

    return step


class Stopwatch:
    """Times of one solver in milliseconds, and its additional peak memory in MB.

    Memory that remains allocated after two initial calls counts as memory of the solver.
    """

    def __init__(self, step: Callable[[], Any]) -> None:
        self._step = step
        self.times: list[float] = []
        self.in_a_row: list[float] = []
        self.peak = 0.0
        self._kept, before = 0, torch.cuda.memory_allocated()
        self._watched(1)
        self.seconds = self._watched(1)[0]
        self._kept = torch.cuda.memory_allocated() - before

    def _watched(self, repeats: int) -> list[float]:
        """Seconds of each call; updates the peak memory."""
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before, found = torch.cuda.memory_allocated() - self._kept, []
        for _ in range(repeats):
            start = time.perf_counter()
            self._step()
            torch.cuda.synchronize()
            found.append(time.perf_counter() - start)
        self.peak = max(self.peak, (torch.cuda.max_memory_allocated() - before) / 1e6)
        return found

    def turn(self, repeats: int, warm: int) -> None:
        """Warm up, then measure."""
        for _ in range(warm):
            self._step()
        self.times += [1e3 * x for x in self._watched(repeats)]
        start = time.perf_counter()
        for _ in range(repeats):
            self._step()
        torch.cuda.synchronize()
        self.in_a_row.append(1e3 * (time.perf_counter() - start) / repeats)

    def result(self) -> dict[str, float]:
        """Median and quartiles of single calls, and the median of consecutive calls."""
        low, middle, high = statistics.quantiles(self.times, n=4)
        found = {"ms": middle, "low": low, "high": high, "peak_mb": self.peak}
        return found | {"in_a_row_ms": statistics.median(self.in_a_row)}


def measure(step: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Measure a single solver."""
    watch = Stopwatch(step)
    watch.turn(repeats, 10)
    return watch.result()


def in_turns(
    mine: Callable[[], Any], theirs: Callable[[], Any] | None
) -> tuple[dict[str, float], dict[str, float] | None]:
    """Measure two solvers alternately, or one; slow ones are repeated less often."""
    ours = Stopwatch(mine)
    contenders = [(ours, 20, 10) if ours.seconds < 0.002 else (ours, 4, 3)]
    if theirs is not None:
        contenders.append((Stopwatch(theirs), 3, 3))
    least = 1 if contenders[-1][0].seconds > 0.15 and theirs is not None else TURNS
    taken, start = 0, time.perf_counter()
    while taken < least or (least > 1 and time.perf_counter() - start < SECONDS):
        for watch, repeats, warm in contenders:
            watch.turn(repeats, warm)
        taken += 1
    found = [watch.result() for watch, *_ in contenders]
    return found[0], found[1] if theirs is not None else None


def device_time(step: Callable[[], Any]) -> float:
    """Milliseconds of device time, from replays of a captured graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    graph.replay()
    torch.cuda.synchronize()
    start.record()
    for _ in range(10):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 10


def case(
    name: str, B: int, T: int, V: int, R: int, m_init: int, published: ModuleType | None
) -> dict[str, Any]:
    """One row of the table."""
    tensors = problem(B, T, V, R, m_init)
    g = torch.zeros(B, T, V, R + 1, dtype=torch.float64, device="cuda")
    g[..., 0] = torch.randn(B, T, V, dtype=torch.float64, device="cuda")
    n = V * (R + 1)
    size = max(1, min(B, 100_000 // T, 3_000_000 // (T * n * n)))
    part = [x[:size] for x in tensors]
    a, b = gradients(ours, part, g[:size]), gradients(oracle, part, g[:size])
    row: dict[str, Any] = {"name": name, "B": B, "T": T, "V": V, "R": R}
    row["error"] = dict(zip(("y", "c", "d", "u", "s"), map(relative, a, b), strict=True))
    mine, theirs = trainer(ours, tensors, g), None
    if published is not None and B * T < 1e7:
        theirs = trainer(published.ode_forward, tensors, g)
    row["ours"], other = in_turns(mine, theirs)
    if published is not None and theirs is not None:  # its first call allocates permanent buffers
        row["error_published"] = relative(published.ode_forward(*part).detach(), a[0])
    with torch.autograd.set_multithreading_enabled(False):  # recommended in docs/benchmarks.md
        alone, other_alone = in_turns(mine, theirs)
    row["ours"]["one_thread_ms"] = alone["ms"]
    row["ours"]["device_ms"] = device_time(mine)
    without = measure(trainer(recomputing, tensors, g), 20 if row["ours"]["ms"] < 2 else 3)
    row["ours"] |= {f"{key}_factor_forgotten": without[key] for key in ("ms", "peak_mb")}
    if other is not None and other_alone is not None:
        row["published"] = other | {"one_thread_ms": other_alone["ms"]}
        row["speedup"] = other["ms"] / row["ours"]["ms"]
        row["speedup_in_a_row"] = other["in_a_row_ms"] / row["ours"]["in_a_row_ms"]
        row["speedup_one_thread"] = other_alone["ms"] / alone["ms"]
    return row


def floor(function: Callable[..., Tensor], count: int) -> dict[str, float]:
    """Milliseconds of PyTorch for a function of `count` tensors, forward and backward."""
    x = [torch.ones(512, 5, dtype=torch.float64, device="cuda") for _ in range(count)]
    step = trainer(function, x, x[0])
    out = {"ms": measure(step, 200)["ms"]}
    with torch.autograd.set_multithreading_enabled(False):
        return out | {"one_thread_ms": measure(step, 200)["ms"]}


def copy_bandwidth() -> float:
    """Bytes per second, read and written, of a large device-to-device copy."""
    x = torch.empty(1 << 28, dtype=torch.float64, device="cuda").normal_()
    y = torch.empty_like(x)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    y.copy_(x)
    start.record()
    for _ in range(10):
        y.copy_(x)
    end.record()
    torch.cuda.synchronize()
    return 10 * 2 * 8 * x.numel() / (start.elapsed_time(end) / 1e3)


def bytes_moved(B: int, T: int, V: int, R: int, m_init: int) -> int:
    """Minimum memory traffic of both passes with a kept factor: each array once per pass."""
    n = V * (R + 1)
    inputs, factor = V * n + V + 1, n * (n + 1) // 2 + n * n
    forward = inputs + 2 * factor + 2 * n + n
    backward = n + 2 * factor + 2 * n + n + (2 * n + inputs) + inputs
    return 8 * B * T * (forward + backward) + 8 * B * V * m_init


def show(out: dict[str, Any], copy: float) -> None:
    """Print a line for a case."""
    mine, theirs = out["ours"], out.get("published", {})
    alone, moved = mine["device_ms"], out["bytes_per_s"]
    print(
        f"{out['name']:29s} {mine['ms']:8.3f} ms (in a row {mine['in_a_row_ms']:.3f}, one thread "
        f"{mine['one_thread_ms']:.3f}, device {alone:7.3f}), published "
        f"{theirs.get('ms', float('nan')):7.2f} = {out.get('speedup', float('nan')):.1f}x (in a "
        f"row {out.get('speedup_in_a_row', float('nan')):.1f}x, one thread "
        f"{out.get('speedup_one_thread', float('nan')):.1f}x), memory {mine['peak_mb']:.0f} / "
        f"{mine['peak_mb_factor_forgotten']:.0f} / {theirs.get('peak_mb', 0):.0f} MB, "
        f"{100 * moved / copy:.0f}% of copy, errors "
        + " ".join(f"{k} {v:.0e}" for k, v in out["error"].items()),
        flush=True,
    )


def main() -> None:
    """Run all cases and write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("bench_gpu.json"))
    parser.add_argument("--published", type=Path, help="checkout of the published solver")
    parser.add_argument("--only", default="", help="only cases whose name contains this text")
    parser.add_argument("--resume", action="store_true", help="continue the record in --out")
    args = parser.parse_args()
    published = None
    if args.published:
        spec = importlib.util.spec_from_file_location("published", args.published / "smnn.py")
        if spec is None or spec.loader is None:
            parser.error(f"--published: {args.published} holds no smnn.py")
        published = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(published)
    absent = launcher.wait()
    copy = copy_bandwidth()
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "native": absent or "compiled",
        "copy_bytes_per_s": copy,
        "multiplication": floor(lambda x: 2 * x, 1),
        "addcmul": floor(torch.addcmul, 3),
        "runs": 1,
        "cases": [],
        "lengths": [],
    }
    floors = result["multiplication"], result["addcmul"]
    print(f"{result['device']}, copy {copy / 1e12:.2f} TB/s, {floors}")
    if args.resume:
        result = resumed(json.loads(args.out.read_text()), result)
    done = {case["name"] for case in result["cases"]}
    for row in CASES:
        if args.only in row[0] and row[0] not in done:
            out = case(*row, published)
            alone = out["ours"]["device_ms"]
            out["bytes_per_s"] = 1e3 * bytes_moved(*row[1:]) / alone
            out["run"] = result["runs"]
            result["cases"].append(out)
            write(result, args.out)
            show(out, copy)
            torch.cuda.empty_cache()
    lengths = {row["T"] for row in result["lengths"]}
    for T in [T for T in LENGTHS if T not in lengths and not args.only]:
        g = torch.randn(1, T, 1, 3, dtype=torch.float64, device="cuda")
        step = trainer(ours, problem(1, T, 1, 2, 1), g)
        out = measure(step, 20) | {"device_ms": device_time(step)}
        result["lengths"].append({"T": T, **out})
        write(result, args.out)
        print(f"B=1 T={T:8d}: {out['ms']:.3f} ms (device {out['device_ms']:.3f})", flush=True)


def resumed(earlier: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The earlier record, if it was made on the same kind of machine."""
    for key in ("device", "torch", "python", "native"):
        if earlier[key] != now[key]:
            raise SystemExit(f"--resume: {key} was {earlier[key]!r}; here it is {now[key]!r}")
    return earlier | {"runs": earlier.get("runs", 1) + 1}


def write(result: dict[str, Any], out: Path) -> None:
    """Write the record after each case, so that an interrupted run keeps its results."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
