"""Markdown tables of the experiments: training steps, discovery, KdV."""

from __future__ import annotations

from typing import Any

from table_text import error, machine, milliseconds, table


def lorenz_step(record: dict[str, Any]) -> str:
    """Time and memory of one training step, next to the figures printed in the paper."""
    sizes = [tuple(size) for size in record["paper"]["sizes"]]
    rows = []
    for label, printed in record["paper"]["rows"].items():
        entries = [
            "out of memory" if ms is None else f"{ms:g} ({gib:g})"
            for ms, gib in zip(printed["ms"], printed["GiB"])
        ]
        rows.append([f"{label}, as printed ({record['paper']['device']})", *entries])
    measured: dict[str, dict[tuple[int, int], str]] = {}
    for case in record["cases"]:
        if case["status"] == "absent" or "mech-nn" in case["label"]:
            continue
        text = case["status"]
        if case["status"] == "measured":
            text = f"{milliseconds(case['ms'])} ({case['memory']['allocated_gib']:.2f})"
            text += "" if case["agrees"] else ", loss differs"
        name = f"{case['label']}, {case['mode']}"
        measured.setdefault(name, {})[case["B"], case["T"]] = text
    rows += [[name, *(cells.get(size, "") for size in sizes)] for name, cells in measured.items()]
    head = ["ms (GiB)", *(f"B = {B:,}, T = {T}" for B, T in sizes)]
    return "\n\n".join(
        [
            "One training step (forward, backward, Adam; float64, 2.5 million parameters) of the "
            "network for the Lorenz system: median time in ms with synchronization, and peak "
            "tensor memory in GiB. The loss of every solver is compared with that of smnn first.",
            table(head, rows),
            f"{record['device']}, torch {record['machine']['versions']['torch']}; "
            f"{record['machine']['utc'][:10]}. Written by `python tools/tables.py --lorenz-step "
            "benchmarks/results/lorenz_step_h200.json`.",
        ]
    )


def discovery_bench(record: dict[str, Any]) -> str:
    """Share of systems identified exactly, and errors of coefficients, for every method."""
    levels = list(next(iter(record["summary"].values())))
    known = [c for c in record["cases"] if c["system"] != "Hare and lynx"]
    systems = len({case["system"] for case in known})
    rows = []
    for method, by_noise in record["summary"].items():
        mine = [case for case in known if case["method"] == method]
        if len({case["system"] for case in mine if case["noise"] == float(levels[-1])}) < systems:
            continue  # was run on a part of the systems only
        draws = {sum(c["noise"] == float(level) for c in mine) / systems for level in levels[1:]}
        cells = []
        for level in levels:
            found = by_noise[level]
            cells.append(f"{100 * found['exact']:.0f} % ({error(found['median_max_rel'])})")
        rows.append([method, f"{min(draws):g}", *cells])
    head = ["method", "draws", *(f"noise {100 * float(level):g} %" for level in levels)]
    return "\n\n".join(
        [
            f"Share of {systems} known systems that are identified with exactly the right terms; "
            "in parentheses, the median over systems of the largest relative error of a true "
            "coefficient. *Draws* is the number of noise realizations for each system and level "
            "(one without noise). PySINDy is tuned for every system without using the answer.",
            table(head, rows),
            f"{machine(record)} Written by `smnn reproduce discovery-bench` and `python "
            "tools/tables.py --discovery-bench benchmarks/results/discovery_bench_epyc.json`.",
        ]
    )


MODELS = {
    "modes": "`modes`", "window": "`window`", "paper": "`paper`", "fno": "FNO",
    "fno-ar-lpsda": "FNO, unrolled, LPSDA", "resnet": "ResNet",
    "resnet-ar-lpsda": "ResNet, unrolled, LPSDA",
}  # fmt: skip


def kdv(pretrained: dict[str, Any], trained: dict[str, Any]) -> str:
    """Errors of the packaged model, of models trained on a GPU, and of the paper."""
    lengths = list(pretrained["models"]["modes"]["scores"]["nmse"])

    def row(name: str, record: dict[str, Any]) -> list[str]:
        scores = record["scores"]
        cells = [
            f"{error(scores['nmse'][n])} / {error(scores['nmse_by_truth'][n])}" for n in lengths
        ]
        memory = record["memory_gib"]
        made = f"{record['seconds']:.0f} s, {record['machine']['gpu'] or 'one CPU thread'}"
        return [name, *cells, made, "" if memory is None else f"{memory:.2f}"]

    best = pretrained["models"]["modes"]
    rows = [row("`modes`, packaged", best)]
    rows += [row(MODELS[name], record) for name, record in trained["models"].items()]
    for name, printed in pretrained["paper"].items():
        cells = [error(printed.get(n)) for n in lengths]
        cost = {"S-MNN": ("10.1 h, GPU", "2.19"), "MNN dense": ("38.0 h, GPU", "3.40")}
        rows.append([f"paper: {name}", *cells, *cost.get(name, ("", ""))])
    head = ["error by prediction / by truth", *(f"{n} frames" for n in lengths), "training", "GiB"]
    n = best["scores"]["trajectories"]
    return "\n\n".join(
        [
            f"Mean normalized squared error over {n} test trajectories. With the packaged model, "
            f"the median over {lengths[0]} frames is {best['scores']['median'][lengths[0]]:.1e} "
            f"and the maximum {best['scores']['worst'][lengths[0]]:.1e}. Rows of the paper are as "
            "printed; its figures for ResNet and FNO come from other publications and frames.",
            table(head, rows),
            "Written by `smnn reproduce kdv --pretrained`, `python -m smnn.experiments.kdv.train` "
            "and `python tools/tables.py --kdv`.",
        ]
    )


def kdv_step(record: dict[str, Any]) -> str:
    """Time, throughput and memory of one training step, compared with the published notebook."""
    measured = [case for case in record["cases"] if case["status"] == "measured"]
    published = {c["batch"]: c for c in measured if c["case"].split(":")[0] == "published"}
    own = published[min(published)]
    rows = []
    for case in sorted(measured, key=lambda c: c["batch"]):
        name, *words = case["case"].split(":")
        label = "published notebook" if name == "published" else f"`{name}`"
        label = ", ".join([label, *(w for w in words if not w.isdigit())])
        same = published.get(case["batch"])
        rows.append(
            [
                label,
                str(case["batch"]),
                milliseconds(case["ms"]),
                f"{case['samples_per_second']:,.0f}",
                f"{case['samples_per_second'] / own['samples_per_second']:.1f}",
                "" if same is None else f"{same['ms'] / case['ms']:.1f}",
                f"{case['memory_gib']:.2f}",
            ]
        )
    apart = next(c["apart_from_published"] for c in measured if "apart_from_published" in c)
    head = ["model and solver", "batch", "ms", "samples/s", f"speedup at batch {own['batch']}",
            "at the same batch", "peak GiB"]  # fmt: skip
    return "\n\n".join(
        [
            "One training step: loss, gradient, Adam. With equal weights, the outputs of `paper` "
            f"and of the published notebook differ by {apart:.0e}. Peak memory is measured during "
            "the timed steps, after cuDNN has selected its convolution algorithms.",
            table(head, rows),
            f"{record['machine']['gpu']}, torch {record['machine']['versions']['torch']}; "
            f"{record['machine']['utc'][:10]}. Written by `benchmarks/bench_kdv.py` and `python "
            "tools/tables.py --kdv-step benchmarks/results/kdv_step_h200.json`.",
        ]
    )
