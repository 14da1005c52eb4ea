r"""Write the result tables in docs/ from the JSON records of experiments and benchmarks.

    python tools/tables.py --standalone smnn-results/standalone/standalone.json \
        --bench bench-output/bench.json --gpu benchmarks/results/gpu_h200.json

Only the tables whose option is given are written.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from experiment_tables import (
    discovery_bench,
    honesty,
    kdv,
    kdv_step,
    lorenz,
    lorenz_step,
    m4,
    pde_bench,
    public_benchmark,
    scaling,
    sst,
)
from solver_tables import bench, compile_times, gpu, nonlinear, peers, standalone

ROOT = Path(__file__).resolve().parents[1]
TABLES: dict[str, tuple[Any, str, str]] = {  # option: function, page in docs/generated, help text
    "standalone": (standalone, "standalone", "JSON of `smnn reproduce standalone`"),
    "bench": (bench, "benchmarks", "bench.json of `make bench`"),
    "gpu": (gpu, "gpu", "JSON of benchmarks/bench_gpu.py"),
    "peers": (peers, "peers", "JSON of benchmarks/bench_peers.py"),
    "nonlinear": (nonlinear, "nonlinear", "JSON of benchmarks/bench_nonlinear.py"),
    "compile": (compile_times, "compile", "JSON of benchmarks/bench_compile.py"),
    "lorenz": (lorenz, "lorenz", "JSON of `smnn reproduce lorenz`"),
    "lorenz-step": (lorenz_step, "lorenz_step", "JSON of benchmarks/bench_lorenz_step.py"),
    "discovery-bench": (discovery_bench, "discovery_bench", "JSON of the discovery benchmark"),
    "odebench": (public_benchmark, "odebench", "JSON of `smnn reproduce odebench`"),
    "dysts": (public_benchmark, "dysts", "JSON of `smnn reproduce dysts`"),
    "noise-maps": (public_benchmark, "noise_maps", "JSON of `smnn reproduce noise-maps`"),
    "honesty": (honesty, "honesty", "JSON of `smnn reproduce honesty`"),
    "pde-bench": (pde_bench, "pde_bench", "JSON of `smnn reproduce pde-bench`"),
    "m4": (m4, "m4", "JSON of `smnn reproduce m4`"),
    "kdv": (
        kdv,
        "kdv",
        "kdv.json of several runs, the first with the packaged models",
    ),
    "kdv-step": (kdv_step, "kdv_step", "JSON of benchmarks/bench_kdv.py"),
}
SECTIONS: dict[str, tuple[Any, str]] = {  # option: tables by marker in docs/sst.md, help text
    "sst": (sst, "JSON of `smnn reproduce sst`"),
    "scaling": (lambda record: {"scaling": scaling(record)}, "JSON of `smnn reproduce scaling`"),
    "scaling-equal": (
        lambda record: {"equal": scaling(record)},
        "the same at small scale with equal steps",
    ),
}


def between_markers(text: str, content: str, name: str) -> str:
    """Put content between the comments `name:start` and `name:end`."""
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    before, rest = text.split(start)
    after = rest.split(end)[1]
    return f"{before}{start}\n{content}\n{end}{after}"


def write(page: Path, text: str) -> None:
    page.write_text(text, encoding="utf-8")
    print(f"Written: {page.relative_to(ROOT)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    helps = {name: entry[-1] for name, entry in [*TABLES.items(), *SECTIONS.items()]}
    for option, text in helps.items():
        parser.add_argument(f"--{option}", type=Path, nargs="+", metavar="JSON", help=text)
    given = {k.replace("_", "-"): v for k, v in vars(parser.parse_args()).items() if v}
    for option, paths in given.items():
        records = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        if option in TABLES:
            make, name, _ = TABLES[option]
            content = make(*records).rstrip("\n") + "\n"
            write(ROOT / "docs" / "generated" / f"{name}.md", content)
        else:
            page = ROOT / "docs" / "sst.md"
            text = page.read_text(encoding="utf-8")
            for marker, content in SECTIONS[option][0](*records).items():
                text = between_markers(text, content, marker)
            write(page, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
