"""Markdown tables of the solver's accuracy and speed."""

from __future__ import annotations

from typing import Any

from table_text import error, filled, machine, mebibytes, milliseconds, ratio, table


def standalone(record: dict[str, Any]) -> str:
    """Errors of y and times, in the setting of the paper and with a higher order."""
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
        f"CPU thread. RK45 is SciPy's, with rtol {settings['rtol']:g}, which reproduces the "
        f"paper's RK45 errors. {sum(map(bool, agree))} of {len(agree)} errors of $y$, $y'$ and "
        "$y''$ agree with the paper to its printed digits."
    )
    made = "Written by `smnn reproduce standalone` and `make tables`."
    return f"{caption}\n\n{text}\n\n{machine(record)} {made}"


def bench(record: dict[str, Any]) -> str:
    """Time, error and memory of every solver in every case.

    Raises:
        ValueError: A solver's answer disagrees with the reference.
    """
    wrong = [r["solver"] for c in record["cases"] for r in c["results"] if r["agrees"] is False]
    if wrong:
        raise ValueError(f"answers disagree with the reference: {sorted(set(wrong))}")
    head = ["solver", "relative MSE", "forward, ms", "forward + backward, ms", "extra memory, MiB"]
    titles = {
        "headline": "Summary",
        "length": "Sequence length",
        "batch": "Batch size",
        "block": "Block size",
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
        parts.append(filled(head, rows))
        parts += per_time([c for c in record["cases"] if c["group"] == group])
    parts.append(f"{machine(record)} Written by `make bench tables` from `{record['command']}`.")
    return "\n\n".join(parts) + "\n"


def per_time(cases: list[dict[str, Any]]) -> list[str]:
    """Time per step against the length, for repeated calls."""
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
                f"Forward and backward per time step in repeated calls, for B = {B} "
                f"and T = {times}: {found} ns, or {middle:.0f} ns within {spread:.1f} %."
            )
    return lines


def gpu(record: dict[str, Any]) -> str:
    """Times and memory on a GPU, compared with the published solver, and long sequences."""
    cases = record["cases"]
    lengths = [
        [f"{row['T']:,}", milliseconds(row["ms"]), milliseconds(row["device_ms"])]
        for row in record["lengths"]
    ]
    in_a_row = (
        "; *in a row* is the same for calls without synchronization in between, as in training"
    ) * any("in_a_row_ms" in case["ours"] for case in cases)  # older records have no such time
    return "\n\n".join(
        [
            "Forward and backward in float64, with gradients with respect to `c`, `d`, `u` and "
            "`s`, in milliseconds; in parentheses, the speedup over the published solver in the "
            f"same run. *Eager* is the time of an ordinary call{in_a_row}; *one thread* is the "
            "same inside `torch.autograd.set_multithreading_enabled(False)`, which avoids the "
            "switch to autograd's own thread; *device* is the replay of a captured CUDA graph.",
            _titled([_times(case) for case in cases]),
            *floor(record.get("multiplication"), record.get("addcmul")),
            *other_runs(record.get("other_runs", [])),
            *record.get("notes", []),
            "Peak memory beyond the inputs, with the factor kept, with `keep_factor=False`, and "
            "for the published solver; *recomputed* is the time with `keep_factor=False`. "
            "*Bandwidth* is the rate of the bytes that must move, relative to a measured copy "
            f"({record['copy_bytes_per_s'] / 1e12:.2f} TB/s). *Error* is the largest difference "
            "from the `torch` backend in values and gradients.",
            _titled([_memory(case, record["copy_bytes_per_s"]) for case in cases]),
            "One sequence of order 2, split into pieces in time:",
            table(["T", "eager, ms", "device, ms"], lengths),
            f"{record['device']}, torch {record['torch']}, Python {record['python']}. "
            "Written by `python tools/tables.py --gpu benchmarks/results/gpu_h200.json`.",
        ]
    )


def _titled(rows: list[dict[str, str]]) -> str:
    """A table from rows with column titles as keys."""
    return filled([*rows[0]], [[*row.values()] for row in rows])


def _times(case: dict[str, Any]) -> dict[str, str]:
    """A row of the GPU page: times, with speedups where there is a comparison."""
    ours = case["ours"]

    def both(ms: float | None, speedup: float | None) -> str:
        return milliseconds(ms) + (f" ({ratio(speedup)}×)" if speedup else "")

    return {
        "case": case["name"],
        "published": milliseconds(case.get("published", {}).get("ms")),
        "eager": both(ours["ms"], case.get("speedup")),
        "in a row": both(ours.get("in_a_row_ms"), case.get("speedup_in_a_row")),
        "one thread": both(ours.get("one_thread_ms"), case.get("speedup_one_thread")),
        "device": milliseconds(ours["device_ms"]),
    }


def _memory(case: dict[str, Any], copy: float) -> dict[str, str]:
    """A row of the GPU page: memory, bandwidth and error."""
    ours, rate = case["ours"], case["bytes_per_s"]

    def megabytes(found: float | None) -> str:
        return "" if found is None else f"{found:,.0f}"

    return {
        "case": case["name"],
        "kept, MB": megabytes(ours["peak_mb"]),
        "not kept, MB": megabytes(ours.get("peak_mb_factor_forgotten")),
        "published, MB": megabytes(case.get("published", {}).get("peak_mb")),
        "recomputed, ms": milliseconds(ours.get("ms_factor_forgotten")),
        "bandwidth": f"{100 * rate / copy:.0f} %" if rate else "",
        "error": error(max(case["error"].values())),
    }


def compile_times(record: dict[str, Any]) -> str:
    """Compile times of the kernels for a shape."""
    rows = [
        [case["name"], str(case["kernels"]), f"{case['seconds']:.1f}",
         f"{case['longest_seconds']:.1f}"]
        for case in record["cases"]
    ]  # fmt: skip
    arch = f"compute capability {record['capability'] / 10:.1f}"
    return "\n\n".join(
        [
            "Time to compile all kernels of a solve and its gradients for "
            f"{arch}, sequentially and without a GPU; Triton {record['triton']}. "
            "The first call with a new shape waits for this, once per machine.",
            table(["unknowns per time, and sizes", "kernels", "total, s", "longest, s"], rows),
            f"{machine(record)} Written by `python tools/tables.py --compile` from "
            f"`{record['command']}`.",
        ]
    )


def peers(record: dict[str, Any]) -> str:
    """Damped oscillators by this library and others."""
    head = ["solver", "error of y", "error of gradients", "forward, ms", "with gradients, ms"]
    parts = []
    for case in record["cases"]:
        rows = [
            [
                f"{r['solver']}, {r['note']}" if r["note"] else r["solver"],
                error(r["error"]),
                error(r["gradient_error"]),
                milliseconds(r["forward_ms"]["median"]),
                milliseconds(r["both_ms"]["median"]) if r["solver"] != "SciPy" else "",
            ]
            for r in case["results"]
        ]
        parts.append(f"**B = {case['B']:,}, T = {case['T']:,}**\n\n{table(head, rows)}")
    first = [
        [name, *(f"{found[key]:.2f}" for key in ("forward", "both"))]
        for name, found in record.get("first_call_s", {}).items()
        if found
    ]
    if first:
        head = ["first call in a new process", "forward, s", "forward and gradients, s"]
        named = [[_size(row[0]), *row[1:]] for row in first]
        parts.append(table(head, named))
    made = "Written by `python tools/tables.py --peers` from"
    return "\n\n".join([*parts, f"{machine(record)} {made} `{record['command']}`."])


def _size(name: str) -> str:
    """Of a block, given as `V R`."""
    return "smnn, V = {}, R = {}".format(*name.split()) if name[0].isdigit() else name


def nonlinear(record: dict[str, Any]) -> str:
    """Nonlinear initial value problems at equal error."""
    rows = []
    for name in dict.fromkeys(r["problem"] for r in record["results"]):
        rows.append([f"**{name}**", "", "", ""])
        for r in (x for x in record["results"] if x["problem"] == name):
            if r.get("failed"):
                rows.append([r["solver"], "not reached", "", ""])
                continue
            gradient = r["gradient_s"]
            times = [r["forward_s"], gradient]
            shown = [milliseconds(None if x is None else 1e3 * x) for x in times]
            rows.append([r["solver"], error(r["error"]), *shown])
    head = ["solver", "error", "forward, ms", "gradient, ms"]
    made = "Written by `python tools/tables.py --nonlinear` from"
    return f"{table(head, rows)}\n\n{machine(record)} {made} `{record['command']}`."


def other_runs(runs: list[dict[str, Any]]) -> list[str]:
    """Range of the speedups over repeated runs."""
    if not runs:
        return []
    found = {case: [run["ratios"][case] for run in runs] for case in runs[0]["ratios"]}
    ranges = [f"{case} {ratio(min(x))} to {ratio(max(x))}" for case, x in found.items()]
    return [
        "The speedups of the small cases depend on the speed of the host; their ranges over "
        f"{len(runs)} further runs: {', '.join(ranges)}."
    ]


def floor(multiplication: dict[str, float] | None, addcmul: dict[str, float] | None) -> list[str]:
    """Time of a trivial PyTorch operation with gradients, for comparison."""
    if multiplication is None:
        return []

    def times(found: dict[str, float]) -> str:
        ms, alone = milliseconds(found["ms"]), milliseconds(found["one_thread_ms"])
        return f"{ms} ms ({alone} on one thread)"

    three = f", and `torch.addcmul` with three gradients {times(addcmul)}" if addcmul else ""
    return [
        "Small cases are limited by PyTorch's overhead: in the same run, forward and backward of a "
        f"single multiplication take {times(multiplication)}{three}."
    ]
