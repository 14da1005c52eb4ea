"""Result tables of the solver: its errors, and its times beside its peers."""

from __future__ import annotations

from typing import Any

from table_text import error, filled, machine, mebibytes, milliseconds, ratio, table


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
        parts.append(filled(head, rows))
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


def gpu(record: dict[str, Any]) -> str:
    """The page on the GPU: forward and backward beside the published solver, and long sequences."""
    cases = record["cases"]
    lengths = [
        [f"{row['T']:,}", milliseconds(row["ms"]), milliseconds(row["device_ms"])]
        for row in record["lengths"]
    ]
    in_a_row = (
        "; *in a row* is the same for calls that are not waited for one by one, as in training"
    ) * any("in_a_row_ms" in case["ours"] for case in cases)  # older records have no such time
    return "\n\n".join(
        [
            "Forward and backward, float64, gradients by `c`, `d`, `u` and `s`, in milliseconds, "
            "and how many times as fast as the published solver in the same run and manner. "
            f"*Eager* is what a program sees{in_a_row}; *one thread* is the same inside "
            "`torch.autograd.set_multithreading_enabled(False)`, which saves autograd the way to "
            "its own thread and back; *device* is the replay of a captured graph.",
            _titled([_times(case) for case in cases]),
            *floor(record.get("multiplication"), record.get("addcmul")),
            *other_runs(record.get("other_runs", [])),
            *later_runs(cases),
            *record.get("notes", []),
            "Memory beyond the inputs, in MB: with the factor kept, with `keep_factor=False`, and "
            "that of the published solver. *Factor twice* is the time with `keep_factor=False`. "
            "*Of copy* is the rate of the bytes that must move, against a measured copy "
            f"({record['copy_bytes_per_s'] / 1e12:.2f} TB/s). *Error* is the largest difference to "
            "the `torch` backend, of values and gradients.",
            _titled([_memory(case, record["copy_bytes_per_s"]) for case in cases]),
            "One sequence of order 2, cut into pieces of time:",
            table(["T", "eager, ms", "device, ms"], lengths),
            f"{record['device']}, torch {record['torch']}, Python {record['python']}. "
            "Written by `python tools/tables.py --gpu benchmarks/results/gpu_h200.json`.",
        ]
    )


def _titled(rows: list[dict[str, str]]) -> str:
    """A table of rows that know their titles."""
    return filled([*rows[0]], [[*row.values()] for row in rows])


def _times(case: dict[str, Any]) -> dict[str, str]:
    """A case of the GPU page: times, and ratios where there is something to compare with."""
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
    """A case of the GPU page: memory, bandwidth and error."""
    ours, rate = case["ours"], case["bytes_per_s"]

    def megabytes(found: float | None) -> str:
        return "" if found is None else f"{found:,.0f}"

    return {
        "case": case["name"],
        "kept": megabytes(ours["peak_mb"]),
        "not kept": megabytes(ours.get("peak_mb_factor_forgotten")),
        "published": megabytes(case.get("published", {}).get("peak_mb")),
        "factor twice, ms": milliseconds(ours.get("ms_factor_forgotten")),
        "of copy": f"{100 * rate / copy:.0f} %" if rate else "",
        "error": error(max(case["error"].values())),
    }


def compile_times(record: dict[str, Any]) -> str:
    """The table of first calls: how long the kernels for a shape compile."""
    rows = [
        [case["name"], str(case["kernels"]), f"{case['seconds']:.1f}",
         f"{case['longest_seconds']:.1f}"]
        for case in record["cases"]
    ]  # fmt: skip
    arch = f"compute capability {record['capability'] / 10:.1f}"
    return "\n\n".join(
        [
            "Seconds until all kernels of a solve and its gradients are compiled for "
            f"{arch}, one after the other, without a GPU; Triton {record['triton']}. "
            "The first call with tensors of a shape waits for that, on any machine once.",
            table(["unknowns per time, and sizes", "kernels", "in all, s", "longest, s"], rows),
            f"{machine(record)} Written by `python tools/tables.py --compile` from "
            f"`{record['command']}`.",
        ]
    )


def other_runs(runs: list[dict[str, Any]]) -> list[str]:
    """How far the ratios that the host decides move from run to run."""
    if not runs:
        return []
    found = [
        f"{', '.join(map(ratio, run['ratios'].values()))} where a multiplication took "
        f"{milliseconds(run['multiplication_ms'])} ms"
        for run in runs
    ]
    return [f"Other runs gave other ratios ({', '.join(runs[0]['ratios'])}): {'; '.join(found)}."]


def later_runs(cases: list[dict[str, Any]]) -> list[str]:
    """Which cases were measured after the first run had ended."""
    later = [f"*{case['name']}*" for case in cases if case.get("run", 1) > 1]
    return [f"Of a second run: {', '.join(later)}."] if later else []


def floor(multiplication: dict[str, float] | None, addcmul: dict[str, float] | None) -> list[str]:
    """What PyTorch takes for next to nothing."""
    if multiplication is None:
        return []

    def times(found: dict[str, float]) -> str:
        ms, alone = milliseconds(found["ms"]), milliseconds(found["one_thread_ms"])
        return f"{ms} ms ({alone} on one thread)"

    three = f", of `torch.addcmul` with its three gradients {times(addcmul)}" if addcmul else ""
    return [
        "The small cases are bound by PyTorch itself: in the same run, forward and backward of a "
        f"single multiplication take {times(multiplication)}{three}."
    ]
