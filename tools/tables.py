r"""Write the result tables in docs/generated/ from the JSON records of experiments and benchmarks.

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

from experiment_tables import discovery_bench, kdv, kdv_step, lorenz_step
from solver_tables import bench, compile_times, gpu, standalone

ROOT = Path(__file__).resolve().parents[1]
TABLES: dict[str, tuple[Any, str, str]] = {  # option: function, page, help text
    "standalone": (standalone, "standalone", "JSON of `smnn reproduce standalone`"),
    "bench": (bench, "benchmarks", "bench.json of `make bench`"),
    "gpu": (gpu, "gpu", "JSON of benchmarks/bench_gpu.py"),
    "compile": (compile_times, "compile", "JSON of benchmarks/bench_compile.py"),
    "lorenz-step": (lorenz_step, "lorenz_step", "JSON of benchmarks/bench_lorenz_step.py"),
    "discovery-bench": (discovery_bench, "discovery_bench", "JSON of the discovery benchmark"),
    "kdv": (kdv, "kdv", "kdv.json of the packaged model, then of models trained on a GPU"),
    "kdv-step": (kdv_step, "kdv_step", "JSON of benchmarks/bench_kdv.py"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for option, (_, _, text) in TABLES.items():
        count = 2 if option == "kdv" else 1
        parser.add_argument(f"--{option}", type=Path, nargs=count, metavar="JSON", help=text)
    given = vars(parser.parse_args())
    for option, (write, name, _) in TABLES.items():
        if paths := given[option.replace("-", "_")]:
            content = write(*(json.loads(path.read_text(encoding="utf-8")) for path in paths))
            page = ROOT / "docs" / "generated" / f"{name}.md"
            page.write_text(content.rstrip("\n") + "\n", encoding="utf-8")
            print(f"Written: {page.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
