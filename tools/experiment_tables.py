"""Markdown tables of the experiments: training steps, discovery, KdV."""

from __future__ import annotations

from statistics import mean
from typing import Any

from smnn.experiments.discovery_bench.run import Bench, Case
from smnn.experiments.experiment import load
from smnn.experiments.honesty.run import Config, Honesty
from smnn.experiments.honesty.run import cases_of as honest_cases
from smnn.experiments.honesty.view import tables
from smnn.experiments.kdv.run import PAPER
from smnn.experiments.kdv.train import PRESETS, training_seconds
from smnn.experiments.m4.run import PARTS as M4_PARTS
from smnn.experiments.m4.view import LABELS as M4_LABELS
from smnn.experiments.pde_bench.run import Case as PdeCase
from smnn.experiments.pde_bench.run import Config as PdeConfig
from smnn.experiments.pde_bench.run import PdeBench
from smnn.experiments.pde_bench.view import coverage
from smnn.experiments.pde_bench.view import tables as pde_tables
from smnn.experiments.scaling.run import Config as ScalingConfig
from smnn.experiments.scaling.run import Scaling
from smnn.experiments.scaling.view import stops, summary
from smnn.experiments.sst.references import CLIMATOLOGY, COUPLED, DAMPED, OURS, REFERENCES, TREND
from table_text import error, machine, milliseconds, table

NOT_CONVERGED = ("MNN sparse", (512, 500))
"""The paper's footnote: no convergence in 200 iterations of conjugate gradients."""


def lorenz(record: dict[str, Any]) -> str:
    """Coefficients of the Lorenz system by all methods."""
    truth = ["-10", "10", "28", "-1", "-1", "-2.6667", "1"]
    rows = [["truth", *truth, "", "", ""]]
    kinds = {"regression": "no network", "refined": "no network", "networks": "`neural`"}
    for answer in record["answers"]:
        group, name = answer["group"], answer["name"]
        label = f"{group}: {name}" + (f" ({kinds[name]})" if name in kinds else "")
        if group == "paper":
            label += ", as printed"
        cells = [v if isinstance(v, str) else f"{v:.4f}" for v in answer["values"]]
        cells += [error(answer["max_abs"]), "" if answer["wrong"] is None else str(answer["wrong"])]
        seconds = answer["seconds"]
        rows.append([label, *cells, "" if seconds is None else f"{seconds:.2g}"])
    steps = {t["solver"]: len(t["losses"]) for t in record["training"]}
    trained = ", ".join(f"{name} ({count:,} steps)" for name, count in steps.items())
    head = ["method", *(f"a{i}" for i in range(1, 8)), "largest error", "wrong terms", "s"]
    return "\n\n".join(
        [
            "Coefficients from the paper's data, without noise. The largest error is over all 30 "
            "coefficients; for printed rows, over the seven that are printed. *s*: processor "
            "time including tuning, one thread.",
            table(head, rows),
            "Not run to the end here: the paper's own network (MNN dense, MNN sparse, S-MNN; "
            f"76,000 steps of batch 512 and a fine-tuning that is not documented). Trained: "
            f"{trained or 'none'}, batch {record['settings']['batch']}.",
            f"{machine(record)} Written by `smnn reproduce lorenz --neural` and `python "
            "tools/tables.py --lorenz benchmarks/results/lorenz_epyc.json`.",
        ]
    )


def lorenz_step(record: dict[str, Any]) -> str:
    """Time and memory of one training step, next to the figures printed in the paper."""
    sizes = [tuple(size) for size in record["paper"]["sizes"]]
    rows = []
    for label, printed in record["paper"]["rows"].items():
        entries = [
            "out of memory" if ms is None else
            f"> {ms:g} ({gib:g}), did not converge" if (label, size) == NOT_CONVERGED else
            f"{ms:g} ({gib:g})"
            for size, ms, gib in zip(sizes, printed["ms"], printed["GiB"])
        ]  # fmt: skip
        rows.append([f"{label}, as printed ({record['paper']['device']})", *entries])
    measured: dict[str, dict[tuple[int, int], str]] = {}
    missing: set[str] = set()
    for case in record["cases"]:
        if case["status"] == "absent" or "mech-nn" in case["label"]:
            missing.add(case["label"])
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
            "network for the Lorenz system: median time in ms with synchronization, and memory in "
            "GiB. In measured rows memory is the peak of allocated tensors; the paper does not "
            "define its 'GPU memory usage', which probably includes the CUDA context and the "
            "allocator's cache, so the two cannot be compared. The loss of every solver is "
            "compared with that of smnn first.",
            table(head, rows),
            f"Not run: {', '.join(sorted(missing)) or 'none'}.",
            f"{record['device']}, torch {record['machine']['versions']['torch']}; "
            f"{record['machine']['utc'][:10]}. Written by `python tools/tables.py --lorenz-step "
            "benchmarks/results/lorenz_step_h200.json`.",
        ]
    )


def pde_bench(record: dict[str, Any]) -> str:
    """Errors of the laws that smnn and PySINDy recover from noisy fields."""
    config = {k: tuple(v) if isinstance(v, list) else v for k, v in record["settings"].items()}
    cases = [PdeCase(**case) for case in record["cases"]]
    inside, known = coverage(cases)
    (shown,) = pde_tables(PdeBench(PdeConfig(**config), record["machine"], cases))
    rows = [[row.group, row.label, *(cell.text for cell in row.cells)] for row in shown.rows]
    return "\n\n".join(
        [
            f"Largest relative error of a coefficient in per cent. {shown.caption}",
            table(["law, data", "method", *shown.columns], rows),
            f"Of {known} coefficients of exact laws from noisy data, {inside} lie inside their "
            "90 % intervals.",
            f"{machine(record)} Written by `smnn reproduce pde-bench` and `python "
            "tools/tables.py --pde-bench benchmarks/results/pde_bench_epyc.json`.",
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
            share = f"{100 * found['exact']:.0f} %"
            if method.startswith("pysindy"):
                share += f" / {100 * found['exact_in_hindsight']:.0f} %"
            cells.append(f"{share} ({error(found['median_max_rel'])})")
        rows.append([method, f"{min(draws):g}", *cells])
    head = ["method", "draws", *(f"noise {100 * float(level):g} %" for level in levels)]
    return "\n\n".join(
        [
            f"Share of {systems} known systems that are identified with exactly the right terms; "
            "in parentheses, the median over systems of the largest relative error of a true "
            "coefficient. *Draws* is the number of noise realizations for each system and level "
            "(one without noise). PySINDy is tuned for every system without using the answer; its "
            "second share is that in hindsight, with the best of the tried settings for every "
            "equation, which needs the answer.",
            table(head, rows),
            f"{machine(record)} Written by `smnn reproduce discovery-bench` and `python "
            "tools/tables.py --discovery-bench benchmarks/results/discovery_bench_epyc.json`.",
        ]
    )


def _markdown(view: Any) -> list[str]:
    """Title, caption and rows of a table of a report."""
    labels = len({row.label for row in view.rows}) > 1 or len({row.group for row in view.rows}) == 1
    head = ["", *([""] if labels else []), *view.columns]
    rows = [[r.group, *([r.label] if labels else []), *(c.text for c in r.cells)]
            for r in view.rows]  # fmt: skip
    return [f"{view.title}. {view.caption}", table(head, rows)]


def _source(record: dict[str, Any], name: str) -> str:
    stored = f"benchmarks/results/{name.replace('-', '_')}_epyc.json"
    return (
        f"{machine(record)} Written by `smnn reproduce {name}` and `python tools/tables.py "
        f"--{name} {stored}`."
    )


def public_benchmark(record: dict[str, Any]) -> str:
    """The tables of a terminal: odebench, dysts, noise-maps."""
    name = record["experiment"]
    run, view = load(name)
    settings = {k: tuple(v) if isinstance(v, list) else v for k, v in record["settings"].items()}
    config = run.Config(**settings)
    if name == "odebench":
        result = run.OdeBench(config, record["machine"], run.cases_of(record))
    else:
        result = Bench(config, record["machine"], [Case(**case) for case in record["cases"]])
    parts = [part for one in view.terminal_tables(result) for part in _markdown(one)]
    return "\n\n".join([*parts, _source(record, name)])


def honesty(record: dict[str, Any]) -> str:
    """Verdicts by group of data, coverage of the intervals, and stability of terms."""
    result = Honesty(Config(**record["settings"]), record["machine"], honest_cases(record))
    levels, stability, _ = tables(result)
    number, within = result.coverage()
    return "\n\n".join(
        [
            *_markdown(levels),
            *_markdown(stability),
            f"90 % intervals contain {100 * within / number:.0f} % of the {number} coefficients of "
            "equations with the right terms, in noisy data. The verdict takes "
            f"{100 * (result.cost() or 0):.1f} % of the time of the fit (median).",
            _source(record, "honesty"),
        ]
    )


MODELS = {
    "modes": "`modes`", "operator": "`operator`", "paper": "`paper`, the paper's network",
    "mnn": "the paper's network", "resnet": "ResNet", "fno": "FNO",
}  # fmt: skip
VARIANTS = {"ar": "unrolled", "lpsda": "LPSDA", "dense": "MNN dense", "sparse": "MNN sparse"}


def _model(name: str) -> str:
    """Display name of a KdV model."""
    base, *variants = name.split("-")
    return ", ".join([MODELS[base], *(VARIANTS.get(v, f"symmetry {v}") for v in variants)])


def kdv(*records: dict[str, Any]) -> str:
    """Errors of the models of several runs of the experiment, and those printed in the paper."""
    lengths = list(records[0]["models"]["modes"]["scores"]["nmse"])
    kinds = ("nmse", "nmse_by_truth", "worst")
    rows, notes, trained = [], [], set()
    for record in records:
        settings = record.get("settings", {})
        labels = ["packaged"] * settings.get("pretrained", False)
        labels += ["new waves"] * (settings.get("waves") == "new")
        for name, model in record["models"].items():
            trained.add(name)
            scores = model["scores"]
            cells = [" / ".join(error(scores[k].get(n)) or "–" for k in kinds) for n in lengths]
            memory, gpu = model["memory_gib"], model["machine"]["gpu"]
            made = f"{training_seconds(model):,.0f} s, {gpu or 'one CPU thread'}"
            size = ["small network"] * (model["scale"] == "small")
            label = ", ".join([_model(name), *labels, *size])
            rows.append([label, *cells, made, "" if memory is None else f"{memory:.2f}"])
            for text in labels[1:]:
                notes.append(
                    f"{_model(name)}, {text}: {len(scores['failed'])} of "
                    f"{scores['trajectories']} roll-outs failed."
                )
    for name, printed in PAPER.items():
        cells = [error(printed.get(n)) if printed else "did not converge" for n in lengths]
        cost = {"S-MNN": ("10.1 h, GPU", "2.19"), "MNN dense": ("38.0 h, GPU", "3.40"),
                "MNN sparse": ("82.4 h, GPU", "3.07")}  # fmt: skip
        rows.append([f"paper: {name}", *cells, *cost.get(name, ("", ""))])
    head = ["by prediction / by truth / worst", *(f"{n} frames" for n in lengths), "training",
            "GiB"]  # fmt: skip
    missing = [f"`{name}`" for name in PRESETS if name not in trained]
    n = records[0]["models"]["modes"]["scores"]["trajectories"]
    return "\n\n".join(
        [
            f"Mean normalized squared error over {n} test trajectories, divided by the energy of "
            "the prediction or of the truth, and that of the worst trajectory (by prediction). "
            "`modes` assumes a law that is local, constant and at most quadratic; `operator` one "
            "that is the same at all places and times; the other models assume none. Training: "
            "processor time on a CPU. GiB: peak of allocated tensors; in rows of the paper, its "
            "undefined memory. Rows of the paper are as printed; its figures for ResNet and FNO "
            "come from other publications and frames.",
            table(head, rows),
            " ".join(["New waves are bumps, waves with a mean, and short waves.", *notes]),
            f"Not trained here: {', '.join(missing)}. Each can be trained by "
            "`smnn reproduce kdv --models NAME --scale full --seconds S`.",
            "Written by `smnn reproduce kdv --pretrained` (also with `--waves new --test 96`), "
            "`smnn reproduce kdv` and `python tools/tables.py --kdv`.",
        ]
    )


def kdv_step(record: dict[str, Any]) -> str:
    """Time, throughput and memory of one training step, compared with the published notebook."""
    known = {"published", *MODELS}
    measured = [
        case for case in record["cases"]
        if case["status"] == "measured" and case["case"].split(":")[0] in known
    ]  # fmt: skip
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


def scaling(record: dict[str, Any]) -> str:
    """Time, memory and error at every length."""
    lengths, methods = (tuple(record["settings"][name]) for name in ("lengths", "methods"))
    shown = ("pairs", "hidden", "steps", "seconds")
    settings = {name: record["settings"][name] for name in shown}
    config = ScalingConfig(lengths=lengths, methods=methods, **settings)
    parts = (record[name] for name in ("machine", "data", "cells", "references", "points"))
    result = Scaling(config, *parts)

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


def m4(record: dict[str, Any]) -> str:
    """Mean scores by sampling frequency and method, with the OWA of the parts."""
    parts: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in record["summary"]:
        parts.setdefault((row["group"], row["method"]), {})[row["part"]] = row
    rows = []
    for (group, method), found in parts.items():
        row = found["all"]
        inside = f"{100 * row['covered']:.1f} %" if "covered" in row else "–"
        cells = [f"{row['series']}", f"{row['smape']:.2f}", f"{row['mase']:.3f}"]
        cells += [f"{found[p]['owa']:.3f}" if p in found else "–" for p in M4_PARTS]
        cells += [inside, f"{row['msis']:.2f}" if "msis" in row else "–"]
        cells.append(f"{row['seconds'] / row['series']:.3f}")
        rows.append([f"{group}: {M4_LABELS.get(method, method)}", *cells])
    head = ["M4", "series", "sMAPE", "MASE", *(f"OWA, {p}" for p in M4_PARTS)]
    head += ["inside 95 %", "MSIS", "s per series"]
    return "\n\n".join(
        [
            "OWA is the mean of sMAPE and MASE relative to Naive2; MSIS scores the 95 % intervals. "
            "Constants of the forecaster were chosen with the part *tuned* (two of three series) "
            "in view. Processor seconds, one thread.",
            table(head, rows),
            f"{machine(record)} Written by `smnn reproduce m4 --data FOLDER` and `python "
            "tools/tables.py --m4 benchmarks/results/m4_epyc.json`.",
        ]
    )
