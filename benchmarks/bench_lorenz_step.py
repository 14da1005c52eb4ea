"""Time and memory of an optimization step of the paper's Lorenz model, by solver.

    python benchmarks/bench_lorenz_step.py --out step.json [--published PATH/TO/ScalableMNN]
        [--mechnn PATH/TO/mech-nn] [--sizes 512x50,512x5] [--solvers smnn,mnn-dense]

A step is forward, backward and Adam on one batch on the device, in float64. All solvers start from
the same weights; before a solver is timed, its loss and gradient are compared with those of smnn.
smnn is measured in eager mode, as a CUDA graph, and as a CUDA graph whose loss and optimizer are
compiled by torch.compile. If a solver is absent, runs out of memory or takes longer than `--limit`
seconds for a size, the reason is recorded. The JSON file is written after every case.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import math
import signal
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from _lorenz_model import LorenzModel, windows
from _lorenz_solvers import KINDS, Unavailable, make
from smnn._util.files import write_json
from smnn._util.machine import describe_machine

SIZES = [(512, 50), (512, 5), (512, 500), (64, 50), (4096, 50)]
"""Batch and times of the paper's table."""
PAPER = {
    "MNN dense": {"ms": [36.4, 9.5, None, 10.0, 208.1], "GiB": [2.77, 1.18, None, 1.33, 14.85]},
    "MNN sparse": {
        "ms": [104.4, 76.5, 589.7, 80.5, 406.8], "GiB": [1.69, 0.93, 9.83, 0.96, 7.96],
    },
    "S-MNN": {"ms": [7.4, 5.5, 32.2, 5.5, 18.3], "GiB": [1.38, 1.32, 1.96, 1.33, 1.81]},
}  # fmt: skip
"""Values of the paper's table, on an H100, in the order of `SIZES`; `None`: out of memory at 80
GiB. The sparse solver did not converge at 500 times."""
LEARNING_RATE = 5e-4
SAME_ROWS, OTHER_ROWS = 1e-6, 1e-2
"""Relative tolerance of a loss compared with that of smnn."""
GIB = 2.0**30


MODES = EAGER, GRAPHED, COMPILED = "eager", "CUDA graph", "CUDA graph, compiled"


class OverLimit(RuntimeError):
    """A case exceeded the time limit."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `OverLimit` in the main thread after a number of seconds, if the system has alarms."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: Any) -> None:
        raise OverLimit(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


class Case:
    """A model with its optimizer and one batch, on the device."""

    def __init__(self, B: int, T: int, name: str, args: argparse.Namespace, mode: str) -> None:
        graphed, compiled = mode != EAGER, mode == COMPILED
        device = torch.device(args.device)
        torch.manual_seed(0)  # the same weights for every solver
        model = LorenzModel(T, make(name, B, T, args.published, args.mechnn), args.hidden)
        self.device, self.model = device, model.double().to(device)
        self.batch = windows(B, T).to(device)
        self.parameters = sum(p.numel() for p in model.parameters())
        rate = torch.tensor(LEARNING_RATE, device=device) if compiled else LEARNING_RATE
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=rate, capturable=graphed)
        self.loss: Callable[[Tensor], Tensor] = self.model.loss
        self.update: Callable[[], Any] = self.optimizer.step
        if compiled:
            torch._dynamo.reset()
            self.loss, self.update = torch.compile(self.loss), torch.compile(self.update)
        self.call: Callable[[Tensor], Tensor] = self.step
        self.recorder: Any = None
        if graphed:
            from smnn.training import GraphedStep

            self.recorder = GraphedStep(
                self.step, lambda: self.optimizer.zero_grad(set_to_none=True)
            )
            self.call = self.recorder

    def step(self, batch: Tensor) -> Tensor:
        """One optimization step; returns the loss before it."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.update()
        return loss.detach()

    def loss_and_gradient(self) -> tuple[float, Tensor]:
        """Loss and gradient at the current weights."""
        loss = self.model.loss(self.batch)
        grads = torch.autograd.grad(loss, list(self.model.parameters()))
        return loss.item(), torch.cat([g.flatten() for g in grads]).cpu()

    def time(self, repeats: int, limit: float) -> dict[str, Any]:
        """Milliseconds of a step, alone and in a row, and the loss at the end.

        Slow steps are repeated less often, but at least three times.
        """
        self.timed()
        first = self.timed()
        for _ in range(4 if self.recorder is not None or first < limit / 100 else 0):
            self.timed()
        if self.recorder is not None and not self.recorder.replayed:
            raise Unavailable(f"not recorded: {self.recorder.reason}")
        repeats = max(3, min(repeats, int(0.3 * limit / self.timed())))
        times = [1e3 * self.timed() for _ in range(repeats)]
        start = time.perf_counter()
        for _ in range(repeats):
            loss = self.call(self.batch)
        synchronize(self.device)
        in_a_row = (time.perf_counter() - start) * 1e3 / repeats
        low, middle, high = statistics.quantiles(times, n=4)
        return {
            "ms": middle, "low": low, "high": high, "ms_in_a_row": in_a_row,
            "repeats": repeats, "loss_at_the_end": _number(loss.item()),
        }  # fmt: skip

    def timed(self) -> float:
        """Seconds of one step."""
        synchronize(self.device)
        start = time.perf_counter()
        self.call(self.batch)
        synchronize(self.device)
        return time.perf_counter() - start


def _number(x: float) -> float | None:
    """Replace NaN, which JSON does not support."""
    return x if math.isfinite(x) else None


def forget(device: torch.device) -> float:
    """Free the memory of the last case; returns the bytes that remain allocated."""
    sys.modules.pop("published_smnn", None)  # keeps the buffers of every size in its classes
    gc.collect()
    if device.type != "cuda":
        return 0.0
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated()


def start_counting(device: torch.device) -> None:
    """Reset the peak memory statistics."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def memory(device: torch.device, left: float) -> dict[str, float] | None:
    """GiB: peaks of tensors and of PyTorch's reserved memory, and all memory used on the device."""
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated_gib": (torch.cuda.max_memory_allocated() - left) / GIB,
        "reserved_gib": torch.cuda.max_memory_reserved() / GIB,
        "device_gib": (total - free) / GIB,
    }


def describe(B: int, T: int, name: str, mode: str) -> dict[str, Any]:
    """A case of the benchmark."""
    return {"B": B, "T": T, "solver": name, "label": KINDS[name].label, "mode": mode}


def measure(
    what: dict[str, Any], args: argparse.Namespace, expected: Any
) -> tuple[dict[str, Any], Any]:
    """An entry of the table, and the loss and gradient for comparison."""
    device, name, row = torch.device(args.device), what["solver"], dict[str, Any]()
    left = forget(device)
    try:
        with limited(args.limit), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # non-convergence of conjugate gradients
            case = Case(what["B"], what["T"], name, args, what["mode"])
            row["parameters"] = case.parameters
            found = case.loss_and_gradient()
            expected = expected or (found if name == "smnn" else None)
            row |= _compare(found, expected, KINDS[name].same_rows)
            start_counting(device)
            row |= case.time(args.repeats, args.limit)
            row["status"] = "measured"
            row["memory"] = memory(device, left)
    except Unavailable as error:
        row |= {"status": "absent", "reason": str(error)}
    except OverLimit as error:
        row |= {"status": "over the limit", "reason": str(error)}
    except torch.OutOfMemoryError as error:
        row |= {"status": "out of memory", "reason": str(error).splitlines()[0]}
    except Exception as error:
        row |= {"status": "failed", "reason": f"{type(error).__name__}: {error}".splitlines()[0]}
    case = None  # type: ignore[assignment]
    return row, expected


def _compare(found: Any, expected: Any, same_rows: bool) -> dict[str, Any]:
    loss, gradient = found
    if expected is None:  # smnn was not selected, or failed
        return {
            "loss": _number(loss), "loss_apart": None, "gradient_apart": None, "agrees": None
        }  # fmt: skip
    apart = abs(loss - expected[0]) / abs(expected[0])
    turned = ((gradient - expected[1]).norm() / expected[1].norm()).item()
    return {
        "loss": _number(loss),
        "loss_apart": _number(apart),
        "gradient_apart": _number(turned),
        "agrees": apart < (SAME_ROWS if same_rows else OTHER_ROWS),
    }


def show(row: dict[str, Any]) -> None:
    """Print a line."""
    head = f"B={row['B']:<5d} T={row['T']:<4d} {row['label']:36s} {row['mode']:21s}"
    if row["status"] != "measured":
        print(f"{head} {row['status']}: {row['reason']}", flush=True)
        return
    held = row["memory"]
    gib = "" if held is None else f" {held['allocated_gib']:6.2f} GiB"
    word = {True: "agrees", False: "DIFFERS", None: "not compared"}[row["agrees"]]
    apart, turned = (
        "?" if row[key] is None else f"{row[key]:.0e}" for key in ("loss_apart", "gradient_apart")
    )
    print(
        f"{head} {row['ms']:9.3f} ms ({row['ms_in_a_row']:.3f} in a row){gib}  loss {word}, "
        f"{apart} apart, gradient {turned}",
        flush=True,
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run all cases; the file is written after each."""
    result: dict[str, Any] = {
        "benchmark": "lorenz step",
        "machine": describe_machine(),
        "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
        "paper": {"device": "NVIDIA H100 80 GB", "sizes": SIZES, "rows": PAPER},
        "settings": {"limit_s": args.limit, "repeats": args.repeats, "hidden": args.hidden},
        "cases": [],
    }
    # By solver: if one makes the device unusable, the previous ones are complete.
    expected: dict[tuple[int, int], Any] = {}
    begin = time.monotonic()
    for name in args.solvers:
        modes = MODES if name == "smnn" and args.device == "cuda" else MODES[:1]
        for (B, T), mode in itertools.product(args.sizes, modes):
            row = describe(B, T, name, mode)
            if args.total is not None and time.monotonic() - begin > args.total:
                row |= {"status": "skipped", "reason": f"{args.total:g} s in all were spent"}
            else:
                found, expected[B, T] = measure(row, args, expected.get((B, T)))
                row |= found
            result["cases"].append(row)
            write_json(args.out, result)
            show(row)
    return result


def _sizes(text: str) -> list[tuple[int, int]]:
    try:
        found = [tuple(int(x) for x in part.split("x")) for part in text.split(",")]
    except ValueError:
        found = [()]
    if any(len(x) != 2 or x[0] < 1 or x[1] < 3 for x in found):
        raise argparse.ArgumentTypeError(f"{text!r}: expected BATCHxTIMES,... as 512x50,512x5")
    return [(x[0], x[1]) for x in found]


def _solvers(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown}: expected some of {', '.join(KINDS)}")
    return sorted(names, key=lambda name: name != "smnn")  # the others are compared with it


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--out", type=Path, default=Path("bench-output/lorenz_step.json"))
    parser.add_argument("--published", type=Path, help="a checkout of the published S-MNN")
    parser.add_argument("--mechnn", type=Path, help="a checkout of the original MNN")
    parser.add_argument("--sizes", type=_sizes, default=SIZES, help="BATCHxTIMES,...")
    parser.add_argument("--solvers", type=_solvers, default=list(KINDS), help=", ".join(KINDS))
    parser.add_argument("--limit", type=float, default=60.0, help="time limit of a case in seconds")
    parser.add_argument("--total", type=float, help="no case starts after so many seconds")
    parser.add_argument("--repeats", type=int, default=30, help="timed steps")
    parser.add_argument("--hidden", type=int, default=1024, help="width of the networks")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=device)
    args = parser.parse_args(argv)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    return args


if __name__ == "__main__":
    run(parse(sys.argv[1:]))
