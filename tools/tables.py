r"""Write the result tables of README.md and docs/ from the JSON that the experiments leave.

    python tools/tables.py --standalone smnn-results/standalone/standalone.json \
        --bench bench-output/bench.json --gpu benchmarks/results/gpu_h200.json

No number in a table is typed by hand. Without an option its table is left as it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from experiment_tables import discovery_bench, kdv, kdv_step, lorenz_step
from solver_tables import bench, compile_times, gpu, standalone

ROOT = Path(__file__).resolve().parents[1]


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
    parser.add_argument("--compile", type=Path, help="JSON of benchmarks/bench_compile.py")
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
    if options.compile:
        page = ROOT / "docs" / "generated" / "compile.md"
        page.write_text(compile_times(json.loads(options.compile.read_text())) + "\n")
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
