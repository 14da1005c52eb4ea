"""The numbers in docs/guarantees.md are those of the JSON records."""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))


def records(*names: str) -> list[dict[str, Any]]:
    folder = ROOT / "benchmarks" / "results"
    return [json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in names]


def test_figures_of_random_problems() -> None:
    import long_run

    found = records("trust_long_run", "trust_gpu_h200")
    assert long_run.TABLE.read_text(encoding="utf-8") == long_run.table(found)
    every = {name: x for record in found for name, x in record["backends"].items()}
    assert set(every) == {"reference", "torch", "cpu", "gpu"}
    assert set(long_run.ways.WORDS) <= set(every["gpu"]["ways"])
    for x in every.values():
        assert x["problems"] >= 100_000
        assert x["failures"] == []
        assert (x["regular_called_singular"], x["singular_passed"]) == (0, 0)
        for name, limit in long_run.LIMITS.items():
            assert x["properties"].get(name, {"largest": 0.0})["largest"] < limit
