r"""Write the result tables of README.md and docs/ from the JSON that the experiments leave.

    python tools/tables.py --standalone smnn-results/standalone/standalone.json \
        --bench bench-output/bench.json --gpu benchmarks/results/gpu_h200.json

No number in a table is typed by hand. Without an option its table is left as it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table; all columns but the first are numbers."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def error(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"


def milliseconds(value: float | None) -> str:
    """Three figures, without an exponent."""
    if value is None:
        return ""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def mebibytes(value: dict[str, float] | None) -> str:
    return "" if value is None else f"{value['extra'] / 2**20:.1f}"


def machine(record: dict[str, Any]) -> str:
    m = record["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in m["versions"].items() if v and k != "smnn")
    threads = f"{m['threads']} thread{'s' if m['threads'] != 1 else ''}"
    return f"{m['processor']}, {threads}, {versions}; {m['utc'][:10]}."


def standalone(record: dict[str, Any]) -> str:
    """The README table: error of y and time, in the setting of the paper and in native order."""
    paper = {(e["problem"], e["solver"]): e for e in record["paper_setting"]}
    native = {(e["problem"], e["solver"]): e for e in record["native_order"]}
    rows = []
    for problem in record["problems"]:
        key = problem["key"]
        rk45, same, best = paper[key, "RK45"], paper[key, "S-MNN"], native[key, "S-MNN"]
        rows.append(
            [
                problem["name"],
                error(rk45["relative_mse"][0]),
                same["paper"][0],
                error(same["relative_mse"][0]),
                f"{error(best['relative_mse'][0])} (R = {best['order']})",
                milliseconds(rk45["ms"]),
                milliseconds(best["ms"]),
            ]
        )
    settings = record["settings"]
    head = ["problem", "RK45", "paper", "smnn, as in the paper", "smnn, `order=` raised"]
    text = table([*head, "RK45, ms", "smnn, ms"], rows)
    agree = [a for e in record["paper_setting"] if e["solver"] == "S-MNN" for a in e["agrees"]]
    caption = (
        "Relative mean squared error of $y$ against the closed form, "
        f"{settings['n_steps']} steps of {settings['step']}, and median time of one solve on one "
        f"CPU thread. RK45 is SciPy's with rtol {settings['rtol']:g}, which gives the paper's row. "
        f"{sum(map(bool, agree))} of {len(agree)} errors of $y$, $y'$ and $y''$ equal those of the "
        "paper at its printed digits."
    )
    made = "Written by `smnn reproduce standalone` and `make tables`."
    return f"{caption}\n\n{text}\n\n{machine(record)} {made}"


def bench(record: dict[str, Any]) -> str:
    """The table of docs/benchmarks.md: every case and every solver.

    Raises:
        ValueError: A solver gave another answer than its judge; its time means nothing.
    """
    wrong = [r["solver"] for c in record["cases"] for r in c["results"] if r["agrees"] is False]
    if wrong:
        raise ValueError(f"answers disagree, so times are not comparable: {sorted(set(wrong))}")
    head = ["solver", "relative MSE", "forward, ms", "forward + backward, ms", "extra memory, MiB"]
    titles = {
        "headline": "In short",
        "length": "Length of the sequences",
        "batch": "Number of sequences",
        "block": "Size of a block",
    }
    parts: list[str] = []
    groups = list(dict.fromkeys(case["group"] for case in record["cases"]))
    for group in groups:
        parts.append(f"### {titles.get(group, group)}")
        rows = []
        for case in (c for c in record["cases"] if c["group"] == group):
            size = f"**B = {case['B']:,}, T = {case['T']:,}, V = {case['V']}, R = {case['R']}**"
            rows.append([size, *[""] * (len(head) - 1)])
            rows += [
                [
                    f"{r['solver']}, {r['note']}" if r["note"] else r["solver"],
                    error(r["relative_mse"]),
                    milliseconds(r["forward_ms"]),
                    milliseconds(r["both_ms"]),
                    mebibytes(r.get("memory_both")),
                ]
                for r in case["results"]
            ]
        parts.append(table(head, rows))
        parts += per_time([c for c in record["cases"] if c["group"] == group])
    parts.append(f"{machine(record)} Written by `make bench tables` from `{record['command']}`.")
    return "\n\n".join(parts) + "\n"


def per_time(cases: list[dict[str, Any]]) -> list[str]:
    """How far the time per time is the same at every length, of calls in a row."""
    lines = []
    for B in dict.fromkeys(case["B"] for case in cases):
        own = [c for c in cases if c["B"] == B and "in_a_row_ms" in c["results"][0]]
        if own:
            each = [1e6 * c["results"][0]["in_a_row_ms"] / (B * c["T"]) for c in own]
            middle = (min(each) + max(each)) / 2
            spread = 100 * (max(each) / middle - 1)
            times = " / ".join(f"{c['T']:,}" for c in own)
            found = " / ".join(f"{x:.0f}" for x in each)
            lines.append(
                f"Forward and backward per time, call after call as in training, with B = {B} and "
                f"T = {times}: {found} ns, that is {middle:.0f} ns within {spread:.1f} %."
            )
    return lines


def ratio(value: float | None) -> str:
    """How many times as fast."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def gpu(record: dict[str, Any]) -> str:
    """The page on the GPU: forward and backward beside the published solver, and long sequences."""
    rows = []
    for case in record["cases"]:
        ours, published = case["ours"], case.get("published", {})
        peaks = [ours["peak_mb"], ours.get("peak_mb_factor_forgotten"), published.get("peak_mb")]
        memory = " / ".join("–" if x is None else f"{x:,.0f}" for x in peaks)
        rate = case["bytes_per_s"]
        rows.append(
            [
                case["name"],
                milliseconds(ours["ms"]),
                milliseconds(ours.get("one_thread_ms")),
                milliseconds(ours["device_ms"]),
                milliseconds(published.get("ms")),
                ratio(case.get("speedup")),
                ratio(case.get("speedup_one_thread")),
                memory,
                f"{100 * rate / record['copy_bytes_per_s']:.0f} %" if rate else "",
                error(max(case["error"].values())),
            ]
        )
    head = ["case", "eager, ms", "one thread, ms", "device, ms", "published, ms", "ratio",
            "ratio, one thread", "memory, MB", "of copy", "error"]  # fmt: skip
    lengths = [
        [f"{row['T']:,}", milliseconds(row["ms"]), milliseconds(row["device_ms"])]
        for row in record["lengths"]
    ]
    return "\n\n".join(
        [
            "Forward and backward, float64, gradients by `c`, `d`, `u` and `s`. *Eager* is what a "
            "program sees, and the ratio is to that; *one thread* is the same inside "
            "`torch.autograd.set_multithreading_enabled(False)`, which saves autograd the way to "
            "its own thread and back, and its ratio is to the published solver inside the same; "
            "*device* is the replay of a captured graph. *Of copy* "
            "is the rate of the bytes that must move, against a measured copy "
            f"({record['copy_bytes_per_s'] / 1e12:.2f} TB/s). *Error* is the largest difference "
            "to the `torch` backend, of values and gradients. *Memory* beyond the inputs: with the "
            "factor kept, with `keep_factor=False`, and that of the published solver.",
            table(head, rows),
            *floor(record.get("multiplication")),
            *later_runs(record["cases"]),
            "One sequence of order 2, cut into pieces of time"
            + (f" ({record['lengths_of']}):" if "lengths_of" in record else ":"),
            table(["T", "eager, ms", "device, ms"], lengths),
            f"{record['device']}, torch {record['torch']}, Python {record['python']}. "
            "Written by `python tools/tables.py --gpu benchmarks/results/gpu_h200.json`.",
        ]
    )


def later_runs(cases: list[dict[str, Any]]) -> list[str]:
    """Which cases were measured after the first run had ended."""
    later = [f"*{case['name']}*" for case in cases if case.get("run", 1) > 1]
    return [f"Of a second run: {', '.join(later)}."] if later else []


def floor(multiplication: dict[str, float] | None) -> list[str]:
    """What no solver can go below."""
    if multiplication is None:
        return []
    return [
        "The small cases are bound by PyTorch itself: forward and backward of a single "
        f"multiplication take {milliseconds(multiplication['ms'])} ms in the same run, "
        f"{milliseconds(multiplication['one_thread_ms'])} on one thread."
    ]


def lorenz_step(record: dict[str, Any]) -> str:
    """The step table of the paper: milliseconds and GiB of one optimisation step."""
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
            "One optimisation step (forward, backward, Adam; float64, 2.5 million parameters) of "
            "the network that finds the Lorenz equations, synchronised, median of repeats; peak "
            "memory of tensors in GiB. The loss of each solver is held against that of smnn first.",
            table(head, rows),
            f"{record['device']}, torch {record['machine']['versions']['torch']}; "
            f"{record['machine']['utc'][:10]}. Written by `python tools/tables.py --lorenz-step "
            "benchmarks/results/lorenz_step_h200.json`.",
        ]
    )


def discovery_bench(record: dict[str, Any]) -> str:
    """Which methods find exactly the right terms, and how far off coefficients are."""
    levels = list(next(iter(record["summary"].values())))
    known = [c for c in record["cases"] if c["system"] != "Hare and lynx"]
    systems = len({case["system"] for case in known})
    rows = []
    for method, by_noise in record["summary"].items():
        mine = [case for case in known if case["method"] == method]
        if len({case["system"] for case in mine if case["noise"] == float(levels[-1])}) < systems:
            continue  # on some systems alone it could not be compared
        draws = {sum(c["noise"] == float(level) for c in mine) / systems for level in levels[1:]}
        cells = []
        for level in levels:
            found = by_noise[level]
            cells.append(f"{100 * found['exact']:.0f} % ({error(found['median_max_rel'])})")
        rows.append([method, f"{min(draws):g}", *cells])
    head = ["method", "draws", *(f"noise {100 * float(level):g} %" for level in levels)]
    return "\n\n".join(
        [
            f"Share of {systems} known systems whose equations come back with exactly the right "
            "terms, and the median largest relative error of a true coefficient. *Draws* of the "
            "noise for each system and level; without noise there is one. PySINDy is tuned for "
            "every system without knowing the answer.",
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
    """Errors of the packaged model, of the models trained on a GPU, and of the paper."""
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
    rows = [row("`modes`, of the package", best)]
    rows += [row(MODELS[name], record) for name, record in trained["models"].items()]
    for name, printed in pretrained["paper"].items():
        cells = [error(printed.get(n)) for n in lengths]
        cost = {"S-MNN": ("10.1 h, GPU", "2.19"), "MNN dense": ("38.0 h, GPU", "3.40")}
        rows.append([f"paper: {name}", *cells, *cost.get(name, ("", ""))])
    head = ["error by prediction / by truth", *(f"{n} frames" for n in lengths), "training", "GiB"]
    n = best["scores"]["trajectories"]
    return "\n\n".join(
        [
            f"Mean over {n} test trajectories. Half of them have an error below "
            f"{best['scores']['median'][lengths[0]]:.1e} over {lengths[0]} frames with the model "
            f"of the package; the worst has {best['scores']['worst'][lengths[0]]:.1e}. Rows of the "
            "paper as printed; those for ResNet and FNO come from other publications and frames.",
            table(head, rows),
            "Written by `smnn reproduce kdv --pretrained`, `python -m smnn.experiments._kdv_train` "
            "and `python tools/tables.py --kdv`.",
        ]
    )


def kdv_step(record: dict[str, Any]) -> str:
    """Time, samples per second and memory of one training step, beside the published notebook."""
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
    head = ["model and solver", "batch", "ms", "samples/s", f"to the notebook at {own['batch']}",
            "to it at this batch", "peak GiB"]  # fmt: skip
    return "\n\n".join(
        [
            "One training step: loss, gradient, Adam. With the same weights `paper` and the "
            f"published notebook give outputs that differ by {apart:.0e}. Peak memory is that "
            "of the timed steps, after cuDNN has chosen its convolutions.",
            table(head, rows),
            f"{record['machine']['gpu']}, torch {record['machine']['versions']['torch']}; "
            f"{record['machine']['utc'][:10]}. Written by `benchmarks/bench_kdv.py` and `python "
            "tools/tables.py --kdv-step benchmarks/results/kdv_step_h200.json`.",
        ]
    )


def between_markers(text: str, content: str, name: str) -> str:
    """Put content between the comments `name:start` and `name:end`."""
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    before, rest = text.split(start)
    after = rest.split(end)[1]
    return f"{before}{start}\n{content}\n{end}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--standalone", type=Path, help="JSON of `smnn reproduce standalone`")
    parser.add_argument("--gpu", type=Path, help="JSON of benchmarks/bench_gpu.py")
    parser.add_argument("--bench", type=Path, help="bench.json of `make bench`")
    parser.add_argument("--lorenz-step", type=Path, help="JSON of benchmarks/bench_lorenz_step.py")
    parser.add_argument("--discovery-bench", type=Path, help="JSON of the discovery bench")
    parser.add_argument(
        "--kdv",
        type=Path,
        nargs=2,
        metavar=("PRETRAINED", "TRAINED"),
        help="kdv.json of the packaged model, and of models trained on a GPU",
    )
    parser.add_argument("--kdv-step", type=Path, help="JSON of benchmarks/bench_kdv.py")
    options = parser.parse_args()
    if options.standalone:
        readme = ROOT / "README.md"
        content = standalone(json.loads(options.standalone.read_text()))
        readme.write_text(between_markers(readme.read_text(), content, "results"))
        print(f"Written: {readme.relative_to(ROOT)}")
    if options.bench:
        page = ROOT / "docs" / "generated" / "benchmarks.md"
        page.write_text(bench(json.loads(options.bench.read_text())))
        print(f"Written: {page.relative_to(ROOT)}")
    if options.gpu:
        page = ROOT / "docs" / "generated" / "gpu.md"
        page.write_text(gpu(json.loads(options.gpu.read_text())) + "\n")
        print(f"Written: {page.relative_to(ROOT)}")
    if options.lorenz_step:
        page = ROOT / "docs" / "generated" / "lorenz_step.md"
        page.write_text(lorenz_step(json.loads(options.lorenz_step.read_text())) + "\n")
        print(f"Written: {page.relative_to(ROOT)}")
    if options.discovery_bench:
        page = ROOT / "docs" / "generated" / "discovery_bench.md"
        content = discovery_bench(json.loads(options.discovery_bench.read_text()))
        page.write_text(content + "\n")
        readme = ROOT / "README.md"
        readme.write_text(between_markers(readme.read_text(), content, "discovery"))
        print(f"Written: {page.relative_to(ROOT)}, {readme.relative_to(ROOT)}")
    if options.kdv:
        page = ROOT / "docs" / "generated" / "kdv.md"
        page.write_text(kdv(*(json.loads(path.read_text()) for path in options.kdv)) + "\n")
        print(f"Written: {page.relative_to(ROOT)}")
    if options.kdv_step:
        page = ROOT / "docs" / "generated" / "kdv_step.md"
        page.write_text(kdv_step(json.loads(options.kdv_step.read_text())) + "\n")
        print(f"Written: {page.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
