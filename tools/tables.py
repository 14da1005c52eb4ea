r"""Write the result tables of README.md and docs/ from the JSON of the experiments.

    python tools/tables.py --standalone smnn-results/standalone/standalone.json \
        --bench bench-output/bench.json --gpu benchmarks/results/gpu_h200.json

No number is typed by hand. Tables without an option are left unchanged.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from experiment_tables import discovery_bench, kdv, kdv_step, lorenz_step, scaling, sst
from solver_tables import bench, compile_times, gpu, standalone

ROOT = Path(__file__).resolve().parents[1]


def between_markers(text: str, content: str, name: str) -> str:
    """Put content between the comments `name:start` and `name:end`."""
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    before, rest = text.split(start)
    after = rest.split(end)[1]
    return f"{before}{start}\n{content}\n{end}{after}"


def generated(name: str) -> Path:
    return ROOT / "docs" / "generated" / f"{name}.md"


PAGES = {
    "bench": (generated("benchmarks"), bench, "bench.json of `make bench`"),
    "gpu": (generated("gpu"), gpu, "JSON of benchmarks/bench_gpu.py"),
    "compile": (generated("compile"), compile_times, "JSON of benchmarks/bench_compile.py"),
    "lorenz-step": (
        generated("lorenz_step"),
        lorenz_step,
        "JSON of benchmarks/bench_lorenz_step.py",
    ),
    "kdv-step": (generated("kdv_step"), kdv_step, "JSON of benchmarks/bench_kdv.py"),
    "discovery-bench": (generated("discovery_bench"), discovery_bench, "discovery-bench.json"),
    "kdv": (
        generated("kdv"),
        kdv,
        "kdv.json of the packaged model, and of models trained on a GPU",
    ),
}
"""Pages that hold one table: option, page, function, help."""
README, SST = ROOT / "README.md", ROOT / "docs" / "sst.md"
SECTIONS = {
    "standalone": (README, lambda r: {"results": standalone(r)}, "standalone.json"),
    "discovery-bench": (README, lambda r: {"discovery": discovery_bench(r)}, ""),
    "sst": (SST, sst, "sst.json"),
    "scaling": (SST, lambda r: {"scaling": scaling(r)}, "scaling.json"),
}
"""Tables between the markers of a page: option, page, function, help."""


def write(page: Path, text: str) -> None:
    page.write_text(text, encoding="utf-8")
    print(f"Written: {page.relative_to(ROOT)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, (_, _, text) in {**SECTIONS, **PAGES}.items():
        parser.add_argument(f"--{name}", type=Path, nargs=2 if name == "kdv" else 1, help=text)
    given = {k.replace("_", "-"): v for k, v in vars(parser.parse_args()).items() if v}
    for name, paths in given.items():
        records = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        if name in PAGES:
            page, make, _ = PAGES[name]
            write(page, make(*records).rstrip("\n") + "\n")
        if name in SECTIONS:
            page, sections, _ = SECTIONS[name]
            text = page.read_text(encoding="utf-8")
            for marker, content in sections(*records).items():
                text = between_markers(text, content, marker)
            write(page, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
