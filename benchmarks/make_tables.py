"""Turn the JSON of the experiments into the tables of the documentation and of the README.

    python benchmarks/make_tables.py --bench bench-output/bench.json \
        --standalone demo-output/standalone.json

Writes docs/generated/benchmarks.md and docs/generated/standalone.md, and the lines between the
result markers of README.md. Either input may be left out; what depends on it then stays as it is.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smnn.experiments._results import OutputError, write_atomically

ROOT = Path(__file__).resolve().parents[1]
START, END = "<!-- results:start -->", "<!-- results:end -->"
PARTS = ("standalone", "bench")
QUANTITIES = ("$y$", "$y'$", "$y''$")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first column is text, the others are numbers."""
    lines = [head, [":--", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def milliseconds(value: float | None) -> str:
    """Three significant digits, or a dash."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def machine_line(record: dict[str, Any]) -> str:
    """One sentence on where the numbers come from."""
    m = record["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in m["versions"].items() if v and k != "smnn")
    threads = "1 thread" if m["threads"] == 1 else f"{m['threads']} threads"
    return (
        f"Measured on {m['processor']} ({m['cores']} cores, {threads}), Python {m['python']}, "
        f"{versions}, {m['utc'][:10]}: `{_without_paths(record['command'])}`.\n"
    )


def _without_paths(command: str) -> str:
    """The command with absolute paths cut to their last part: they belong to one machine."""
    return re.sub(r"(?<=\s)/\S*?([^/\s]+)/?(?=\s|$)", r"\1", command)


# ---------------------------------------------------------------- standalone


def entry(record: dict[str, Any], table: str, problem: str, solver: str) -> dict[str, Any]:
    """One cell of the standalone record."""
    return next(e for e in record[table] if e["problem"] == problem and e["solver"] == solver)


def standalone_rows(record: dict[str, Any], table: str, solvers: Sequence[str]) -> list[list[str]]:
    """Errors, then times; the lowest error of each column in bold."""
    keys = [p["key"] for p in record["problems"]]
    rows = []
    for i, quantity in enumerate(QUANTITIES):
        found = {s: [entry(record, table, k, s)["relative_mse"][i] for k in keys] for s in solvers}
        for solver in solvers:
            rows.append([f"{quantity}, {solver}", *_lowest_bold(found, solver, "{:.1e}")])
    times = {s: [entry(record, table, k, s)["ms"] for k in keys] for s in solvers}
    return rows + [[f"ms, {s}", *_lowest_bold(times, s, "{:.2f}")] for s in solvers]


def _lowest_bold(columns: dict[str, list[Any]], solver: str, form: str) -> list[str]:
    cells = []
    for j, value in enumerate(columns[solver]):
        others = [column[j] for column in columns.values() if column[j] is not None]
        text = "–" if value is None else form.format(value)
        cells.append(f"**{text}**" if value is not None and value == min(others) else text)
    return cells


def standalone_page(record: dict[str, Any]) -> str:
    """Both tables of the standalone experiment."""
    keys = [p["key"] for p in record["problems"]]
    ours = [e for e in record["paper_setting"] if e["solver"] == "S-MNN"]
    verdicts = [v for e in ours for v in e["agrees"]]
    orders = [
        "order carried",
        *(str(entry(record, "native_order", k, "S-MNN")["order"]) for k in keys),
    ]
    names = "; ".join(f"{p['key']}: {p['name']}, ${p['equation']}$" for p in record["problems"])
    solvers = ("S-MNN", "RK45", "LSODA")
    return "\n".join(
        [
            f"{names}.\n",
            "Setting of the paper: first-order systems, derivatives up to order 2. "
            f"{sum(verdicts)} of {len(verdicts)} S-MNN errors equal the printed ones at their "
            "printed digits. Relative MSE, and milliseconds on one thread:\n",
            markdown(["", *keys], standalone_rows(record, "paper_setting", solvers)),
            "Native order, with `order=` raised:\n",
            markdown(["", *keys], [orders, *standalone_rows(record, "native_order", solvers)]),
            machine_line(record),
        ]
    )


# ---------------------------------------------------------------- benchmark


def group(record: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The cases of one group."""
    return [case for case in record["cases"] if case["group"] == name]


def result(case: dict[str, Any], solver: str) -> dict[str, Any] | None:
    """What one solver did on a case."""
    return next((r for r in case["results"] if r["solver"] == solver), None)


def ratio(case: dict[str, Any], solver: str, key: str) -> str:
    """How many times longer a solver takes than this library."""
    ours, theirs = result(case, "smnn"), result(case, solver)
    if ours is None or theirs is None or theirs[key] is None:
        return "–"
    return f"{theirs[key] / ours[key]:.3g}×"


def headline_table(case: dict[str, Any]) -> str:
    """Everybody on one size."""
    rows = [
        [
            r["solver"] + (f" ({r['note']})" if r["note"] else ""),
            milliseconds(r["forward_ms"]),
            milliseconds(r["backward_ms"]),
            milliseconds(r["both_ms"]),
            ratio(case, r["solver"], "both_ms" if r["both_ms"] else "forward_ms"),
            f"{r['relative_mse']:.1e}",
        ]
        for r in case["results"]
    ]
    head = ["solver", "forward, ms", "backward, ms", "both, ms", "against smnn", "relative MSE"]
    return markdown(head, rows)


def length_table(record: dict[str, Any]) -> str:
    """Time and memory per step over the length."""
    rows = []
    for case in group(record, "length"):
        ours, T = result(case, "smnn"), case["T"]
        assert ours is not None
        memory = [ours.get(k) for k in ("memory_forward", "memory_both")]
        rows.append(
            [
                f"{T:,}",
                milliseconds(ours["forward_ms"]),
                milliseconds(ours["both_ms"]),
                f"{1e6 * ours['forward_ms'] / T:.0f}",
                f"{1e6 * ours['both_ms'] / T:.0f}",
                *("–" if m is None else f"{m['extra'] / T:.0f}" for m in memory),
                "–" if memory[1] is None else f"{memory[1]['peak'] / 2**20:.0f}",
            ]
        )
    head = [
        "T", "forward, ms", "both, ms", "forward, ns/step", "both, ns/step",
        "forward, bytes/step", "both, bytes/step", "process peak, MiB",
    ]  # fmt: skip
    return markdown(head, rows)


def size_table(record: dict[str, Any], name: str, columns: Sequence[str]) -> str:
    """Times of this library and how much longer the others take."""
    rows = []
    for case in group(record, name):
        ours = result(case, "smnn")
        assert ours is not None
        rows.append(
            [
                *(str(case[c]) for c in columns),
                milliseconds(ours["forward_ms"]),
                milliseconds(ours["both_ms"]),
                ratio(case, "published", "forward_ms"),
                ratio(case, "published", "both_ms"),
                ratio(case, "smnn, torch backend", "both_ms"),
            ]
        )
    head = [
        *columns, "forward, ms", "both, ms",
        "published, forward", "published, both", "torch backend, both",
    ]  # fmt: skip
    return markdown(head, rows)


def bench_page(record: dict[str, Any]) -> str:
    """All tables of the benchmark."""
    parts = []
    for case in group(record, "headline"):
        parts += [f"### B = {case['B']}, T = {case['T']}, n = {case['n']}\n", headline_table(case)]
    parts += [
        "SciPy and torchdiffeq run at the loosest tolerance that is at least as exact as smnn; the "
        "gradient of torchdiffeq is by two numbers per sample, that of the others by every entry "
        "of `c`, `d`, `u` and `s`. *Both*: forward and backward.\n",
        "### Length, at B = 1, n = 3\n",
        length_table(record),
        "### Batch, at T = 50, n = 3\n",
        size_table(record, "batch", ["B"]),
        "### Block size, at B = 64, T = 200\n",
        size_table(record, "block", ["V", "R", "n"]),
        "A column of another solver says how many times longer it takes than smnn.\n",
        machine_line(record),
    ]
    return "\n".join(parts)


# ---------------------------------------------------------------- README


def standalone_block(record: dict[str, Any]) -> str:
    """Native order in short."""
    keys = [p["key"] for p in record["problems"]]

    def worst(solver: str) -> list[str]:
        entries = (entry(record, "native_order", k, solver) for k in keys)
        return [f"{max(e['relative_mse']):.0e}" for e in entries]

    def times(solver: str) -> list[str]:
        return [f"{entry(record, 'native_order', k, solver)['ms']:.2f}" for k in keys]

    rows = [[f"relative MSE, {s}", *worst(s)] for s in ("S-MNN", "RK45", "LSODA")]
    rows += [[f"ms, {s}", *times(s)] for s in ("S-MNN", "RK45", "LSODA")]
    names = [p["name"] for p in record["problems"]]
    return (
        "Six linear ODEs, 1000 times, one thread (`make demo`); the worst of $y$, $y'$ and $y''$ "
        "against the closed form:\n\n" + markdown(["", *names], rows)
    )


def bench_block(record: dict[str, Any]) -> str:
    """Headline figures in short."""
    solvers = ["smnn", "published", "torchdiffeq dopri5", "scipy RK45"]
    rows = []
    for case in group(record, "headline"):
        for key, phase in (("forward_ms", "forward"), ("both_ms", "forward + backward")):
            found = [result(case, s) for s in solvers]
            cells = [milliseconds(None if r is None else r[key]) for r in found]
            rows.append([f"B = {case['B']}, T = {case['T']}, {phase}", *cells])
    threads = record["machine"]["threads"]
    return (
        f"Milliseconds on {threads} CPU thread{'s' * (threads > 1)} (`make bench`):\n\n"
        + markdown(["", *solvers], rows)
    )


def readme_with(readme: str, blocks: dict[str, str]) -> str:
    """The README with new results; parts that are not given stay."""
    before, rest = readme.split(START)
    old, after = rest.split(END)
    kept = dict(re.findall(r"<!-- (\w+) -->\n(.*?)(?=<!-- \w+ -->|\Z)", old, re.DOTALL))
    merged = {name: blocks.get(name, kept.get(name)) for name in PARTS}
    body = "\n".join(
        f"<!-- {name} -->\n{text.rstrip()}\n" for name, text in merged.items() if text is not None
    )
    return f"{before}{START}\n{body}{END}{after}"


def main(argv: Sequence[str] | None = None) -> int:
    """Write everything whose input is given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bench", type=Path, help="JSON of bench_solver.py")
    parser.add_argument("--standalone", type=Path, help="JSON of `smnn reproduce standalone`")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(argv)
    sources = {"standalone": options.standalone, "bench": options.bench}
    pages = {
        "standalone": ("standalone.md", standalone_page),
        "bench": ("benchmarks.md", bench_page),
    }
    short = {"standalone": standalone_block, "bench": bench_block}
    if not any(sources.values()):
        parser.error("give --bench, --standalone or both")
    try:
        blocks = {}
        for name, source in sources.items():
            if source is not None:
                record = json.loads(source.read_text())
                file, page = pages[name]
                path = options.root / "docs" / "generated" / file
                path.parent.mkdir(parents=True, exist_ok=True)
                print(write_atomically(path, page(record)))
                blocks[name] = short[name](record)
        readme = options.root / "README.md"
        print(write_atomically(readme, readme_with(readme.read_text(), blocks)))
    except (OSError, OutputError, json.JSONDecodeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
