"""Time and memory of a training step of the KdV models, compared with the published notebook.

    python benchmarks/bench_kdv.py --out kdv.json [--published PATH/TO/ScalableMNN]
        [--cases published,paper,paper:mnn-dense,paper:mnn-sparse,operator,modes] [--batch 32]

A step is loss, gradient and Adam on windows on the device. `published` runs the model class of the
notebook with its own solver, from the checkout. `paper` is the same network in smnn, also with the
solvers of the original MNN; before it is timed, its output is compared with that of the published
one with equal weights. `operator` and `modes` are the models of smnn. On a GPU the models of smnn
run as CUDA graphs. Modifiers after a colon change a case: `bf16` for the convolutions,
`channels-last` for their layout, `compiled` for the networks without the solver, `mnn-dense` and
`mnn-sparse` for the solver, a number for another batch size. If a case cannot run, the reason is
recorded.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from smnn._util.files import write_json
from smnn._util.machine import describe_machine
from smnn.datasets.kdv import easy
from smnn.experiments.kdv.paper import Convolution, PaperModel
from smnn.experiments.kdv.task import HISTORY, KdVTask, Windows
from smnn.experiments.solvers import DENSE, SPARSE
from smnn.training import GraphedStep

FAST = "bf16:channels-last:compiled"
CASES = ",".join([
    "published", "paper", "paper:mnn-dense", "paper:mnn-sparse", "paper:bf16",
    "paper:bf16:channels-last", "operator", "modes", "published:256", "paper:256", "paper:bf16:256",
    "paper:bf16:channels-last:256", "operator:256", "modes:256", f"paper:{FAST}:256",
    f"paper:{FAST}",
])  # fmt: skip
PAPER = {"S-MNN": {"hours": 10.1, "gib": 2.19}, "MNN dense": {"hours": 38.0, "gib": 3.40},
         "MNN sparse": {"hours": 82.4, "gib": 3.07}}  # fmt: skip
DTYPES = {"modes": torch.float64}
"""`modes` needs double precision; the other models use it only in the solver."""
SAME = 1e-4
"""Relative tolerance of the outputs of the same network in float32."""


class Unavailable(RuntimeError):
    """A case cannot be run here."""


def load(path: Path, name: str) -> Any:
    """Import a module from a file of a checkout."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise Unavailable(f"there is no {path}; give --published with the folder of a checkout")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def published_model(folder: Path | None) -> nn.Module:
    """The unmodified model class of the notebook, with its own solver."""
    if folder is None:
        raise Unavailable("needs --published with the folder of a checkout")
    example = folder / "examples" / "kdv"
    resnet = load(example / "resnet1d.py", "published_resnet")
    names: dict[str, Any] = {
        "torch": torch, "nn": nn, "ResNet1D": resnet.ResNet1D,
        "ode_forward": load(folder / "smnn.py", "published_smnn").ode_forward,
    }  # fmt: skip
    try:
        names["pl"] = importlib.import_module("pytorch_lightning")
    except ImportError as error:
        raise Unavailable(f"the notebook needs pytorch-lightning: {error}") from None
    cells = json.loads((example / "kdv.ipynb").read_text(encoding="utf-8"))["cells"]
    source = next(
        "".join(cell["source"])
        for cell in cells
        if cell["cell_type"] == "code" and "class Method(" in "".join(cell["source"])
    )
    exec(compile(source, "kdv.ipynb", "exec"), names)
    model: nn.Module = names["Method"](steps_per_example=10)
    return model


def take_weights(model: PaperModel, published: nn.Module) -> None:
    """Copy the weights of the published network, tensor by tensor in order."""
    theirs = dict(published.named_parameters())

    def part(prefix: str) -> list[Tensor]:
        unused = (".bn", "_bn.", ".dense.")
        return [p for n, p in theirs.items()
                if n.startswith(prefix) and not any(word in n for word in unused)]  # fmt: skip

    pairs = (("cf_cnn", model.coefficients), ("rhs_cnn", model.right), ("iv_cnn", model.slopes),
             ("step_cnn", model.step))  # fmt: skip
    with torch.no_grad():
        for prefix, module in pairs:
            for mine, other in zip(module.parameters(), part(prefix), strict=True):
                mine.copy_(other)


class Published(nn.Module):
    """The published model with the loss of its notebook."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Squared error summed over points, averaged over frames."""
        u = batch[0]
        x, y = u[:, :HISTORY], u[:, HISTORY - 1 : 2 * HISTORY - 1]
        return {"loss": (self.model(x) - y).abs().sum(-1).mean()}


def make(case: str, args: argparse.Namespace) -> nn.Module:
    """A task in training mode, on the device."""
    torch.manual_seed(0)
    name, *words = case.split(":")
    if name == "published":
        return Published(published_model(args.published)).to(args.device).train()
    solvers = {"mnn-dense": DENSE, "mnn-sparse": SPARSE}
    chosen = [solvers[word] for word in words if word in solvers]
    options: dict[str, Any] = {"solver": chosen[0]} if chosen else {}
    if name in ("modes", "operator"):
        options["sweeps"] = 3
    task = KdVTask(name, options).to(args.device, DTYPES.get(name, torch.float32)).train()
    for module in task.modules():
        if isinstance(module, Convolution):
            module.channels_last = "channels-last" in words
    if "compiled" in words:
        task.model.ode = torch.compile(task.model.ode)  # type: ignore[assignment, arg-type]
    return task


def check(case: str, task: nn.Module, u: Tensor, args: argparse.Namespace) -> dict[str, Any]:
    """Compare the network of the paper with that of the notebook, with the same weights."""
    if case != "paper" or args.published is None:
        return {}
    torch.manual_seed(0)
    other = published_model(args.published).to(u.device)
    take_weights(task.model, other)  # type: ignore[arg-type]
    convolutions = torch.backends.cudnn.flags(allow_tf32=False)  # for equal rounding
    with torch.no_grad(), convolutions:
        x = u[:, :HISTORY]
        ones = torch.ones(len(u), device=u.device)
        mine, theirs = task.model(x, ones, ones), other(x)  # type: ignore[operator]
    apart = ((mine - theirs).norm() / theirs.norm()).item()
    return {"apart_from_published": apart, "agrees": apart < SAME}


def measure(case: str, args: argparse.Namespace, windows: dict[int, Any]) -> dict[str, Any]:
    """Measure a case."""
    device = torch.device(args.device)
    words = case.split(":")
    size = next((int(w) for w in words if w.isdigit()), args.batch)
    task = make(case, args)
    length = getattr(task, "length", 2 * HISTORY - 1)
    data = windows.setdefault(length, Windows(args.data, length, device=device))
    generator = torch.Generator().manual_seed(0)
    batch = data.batch(torch.randint(len(data), (size,), generator=generator))
    batch = tuple(x.to(DTYPES.get(words[0], torch.float32)) for x in batch)
    row: dict[str, Any] = check(case, task, batch[0], args)
    # The solvers of the original MNN synchronize, and the notebook records its own graph.
    alone = words[0] == "published" or any(w.startswith("mnn") for w in words)
    graphed = device.type == "cuda" and not alone
    optimizer = torch.optim.Adam(
        task.parameters(), lr=1e-6, capturable=graphed, fused=graphed or None
    )

    def step(batch: Any) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled="bf16" in words):
            loss: Tensor = task.losses(batch)["loss"]  # type: ignore[operator]
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    call: Callable[[Any], Tensor] = step
    recorder = None
    if graphed:
        recorder = GraphedStep(step, lambda: optimizer.zero_grad(set_to_none=True))
        call = recorder
    times = []
    warm = 2 if device.type == "cpu" else 6
    for i in range(warm + args.repeats):
        _wait(device)
        start = time.perf_counter()
        loss = call(batch)
        _wait(device)
        if i == 0 and device.type == "cuda":  # the search for the fastest convolutions is finished
            torch.cuda.reset_peak_memory_stats()
        if i >= warm:
            times.append(time.perf_counter() - start)
    middle = statistics.median(times)
    return row | {
        "ms": 1e3 * middle,
        "batch": size,
        "samples_per_second": size / middle,
        "loss": loss.item(),
        "parameters": sum(p.numel() for p in task.parameters()),
        "graphed": bool(recorder is not None and recorder.replayed),
        "not_graphed_because": None if recorder is None else recorder.reason,
        "memory_gib": torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None,
        "status": "measured",
    }  # fmt: skip


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run all cases; the file is written after each."""
    torch.backends.cudnn.benchmark = True  # the fastest convolutions for all models
    args.data = easy("train", args.trajectories, device=args.device)
    result: dict[str, Any] = {
        "benchmark": "kdv step", "machine": describe_machine(), "paper": PAPER, "cases": [],
    }  # fmt: skip
    windows: dict[int, Any] = {}
    for case in args.cases.split(","):
        gc.collect()
        torch.compiler.reset()  # otherwise the next batch size is compiled with dynamic shapes
        if args.device == "cuda":
            torch.cuda.empty_cache()
        row: dict[str, Any] = {"case": case}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # non-convergence of conjugate gradients
                row |= measure(case, args, windows)
        except Unavailable as error:
            row |= {"status": "absent", "reason": str(error)}
        except Exception as error:
            row |= {"status": "failed", "reason": f"{type(error).__name__}: {error}".split("\n")[0]}
        result["cases"].append(row)
        write_json(args.out, result)
        if row["status"] == "measured":
            gib = "" if row["memory_gib"] is None else f" {row['memory_gib']:6.2f} GiB"
            difference = (
                f"  difference {row['apart_from_published']:.0e}" if "agrees" in row else ""
            )
            print(f"{case:40s} {row['ms']:9.2f} ms {row['samples_per_second']:10,.0f} samples/s"
                  f"{gib}{difference}", flush=True)  # fmt: skip
        else:
            print(f"{case:40s} {row['status']}: {row['reason']}", flush=True)
    return result


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--out", type=Path, default=Path("bench-output/kdv.json"))
    parser.add_argument("--published", type=Path, help="a checkout of the published S-MNN")
    parser.add_argument("--cases", default=CASES)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--trajectories", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=20, help="timed steps")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=device)
    args = parser.parse_args(argv)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    return args


if __name__ == "__main__":
    run(parse(sys.argv[1:]))
