"""Markdown tables of the experiments: training steps, discovery, KdV."""

from __future__ import annotations

from statistics import mean
from typing import Any

from smnn.experiments.scaling.run import from_record
from smnn.experiments.scaling.view import stops, summary
from smnn.experiments.sst.references import CLIMATOLOGY, COUPLED, DAMPED, OURS, REFERENCES, TREND
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
            "Written by `smnn reproduce kdv --pretrained`, `smnn reproduce kdv --scale full` and "
            "`python tools/tables.py --kdv`.",
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


SCORES = {
    "1000 × relative MSE": ("relative_mse", "{:.3f}"),
    "first 12 months": ("relative_mse_first_year", "{:.3f}"),
    "of climatology": ("of_climatology", "{:.3f}"),
    "first 12 months ": ("of_climatology_first_year", "{:.3f}"),
    "RMSE, °C": ("rmse", "{:.3f}"),
    "correlation": ("anomaly_correlation", "{:.3f}"),
}
SCORES_HEAD = ["", *(name.strip() for name in SCORES)]


def sst(record: dict[str, Any]) -> dict[str, str]:
    """Sections of docs/sst.md on the forecasts, by marker."""
    scores = record["holdouts"][0]["scores"]
    rows = [
        [f"**{name}**" if name == COUPLED else name, *_scores([scores[name]])]
        for name in (*REFERENCES, *OURS)
        if name in scores
    ]
    peeking = _networks(record, "first steps given", "scores")
    after = _networks(record, "first steps given", "scores_after_given")
    peeking += [[f"{name}; after these", *cells] for name, *cells in after]
    return {
        "main": table(SCORES_HEAD, [*rows, *_networks(record, "history only", "scores")]),
        "holdouts": _holdouts(record),
        "peeking": table(SCORES_HEAD, peeking),
        "probes": _probes(record["probes"]),
    }


def _scores(scores: list[dict[str, Any]]) -> list[str]:
    """Means over seeds; the first with the range."""
    cells = []
    for place, (key, style) in enumerate(SCORES.values()):
        values = [s[key] * (1000 if key.startswith("relative") else 1) for s in scores]
        text = style.format(mean(values))
        if len(values) > 1 and place == 0:
            text += f" ({style.format(min(values))} to {style.format(max(values))})"
        cells.append(text)
    return cells


def _networks(record: dict[str, Any], protocol: str, which: str) -> list[list[str]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in record["networks"]:
        if entry["protocol"] == protocol:
            found.setdefault(entry["name"], []).append(entry[which])
    return [[name, *_scores(scores)] for name, scores in found.items()]


def _holdouts(record: dict[str, Any]) -> str:
    """Relative MSE of all hold-outs, and that of the coupled forecast over the best reference."""
    names = [n for n in (CLIMATOLOGY, TREND, DAMPED, *OURS) if n in record["holdouts"][0]["scores"]]
    rows = []
    for one in record["holdouts"]:
        scores = one["scores"]
        errors = [f"{1000 * scores[name]['relative_mse']:.3f}" for name in names]
        for key in ("relative_mse", "relative_mse_first_year"):
            least = min(scores[name][key] for name in REFERENCES)
            errors.append(f"{scores[COUPLED][key] / least:.3f}")
        rows.append([f"to {one['target_ends']}", *errors])
    return table(["48 months", *names, "coupled / best reference", "first 12 months"], rows)


def _probes(probes: dict[str, Any]) -> str:
    zones, alone = probes["zones"], probes["zones_by_mean_temperature"]
    lines = [
        f"- Climate zone at held-out longitudes and in a held-out chunk: balanced accuracy "
        f"{zones['held_out_both']:.2f} (mean temperature alone {alone['held_out_both']:.2f}, "
        f"shuffled labels {zones['shuffled_labels']:.2f}, chance {zones['chance']:.2f})."
    ]
    for name, found in probes["effects"].items():
        state = "comparable" if found["believable"] else "**not comparable**"
        lines.append(
            f"- Effect on temperature, {name}: {found['effect']:.2f} ± "
            f"{found['standard_error']:.2f} °C (difference of means "
            f"{found['naive_difference']:.2f}); {100 * found['overlap']:.0f} % of the units "
            f"overlap: {state}."
        )
    return "\n".join(lines)


def scaling(record: dict[str, Any]) -> str:
    """Time, memory and error at every length."""
    result = from_record(record)
    lengths = result.config.lengths

    def cell(value: float | None, style: str) -> str:
        if value is None:
            return "–"
        return f"{value:,.0f}" if value >= 1000 else format(value, style)

    rows = []
    for method in result.config.methods:
        points = {p["length"]: p for p in result.points if p["method"] == method}
        for label, key, style in (
            ("ms a step", "ms", ".3g"),
            ("GiB", "gib", ".3g"),
            ("test error", "test_mse", ".4f"),
            ("steps", "steps", "d"),
        ):
            values = [points[n].get(key) for n in lengths]
            if any(v is not None for v in values):
                rows.append([f"{method}, {label}", *(cell(v, style) for v in values)])
    lines = [f"- {value}: {meaning}." for value, meaning in summary(result) if "T/1000" in value]
    lines += [f"- {method} stops at {reason}." for method, reason in stops(result).items()]
    return table(["weeks", *map(str, lengths)], rows) + "\n\n" + "\n".join(lines)
