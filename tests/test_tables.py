"""Tables are written from the JSON records of experiments and benchmarks."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import tables  # noqa: E402

MACHINE = {
    "processor": "a processor",
    "threads": 1,
    "versions": {"smnn": "0", "torch": "2"},
    "utc": "2026-01-02T03:04:05+00:00",
}


def entry(solver: str, **changes: Any) -> dict[str, Any]:
    plain = {"problem": "H", "solver": solver, "order": 2, "relative_mse": [1e-7], "ms": 2.0}
    return plain | {"paper": ["1.0e-07"], "agrees": [True]} | changes


def test_standalone() -> None:
    record = {
        "machine": MACHINE,
        "settings": {"n_steps": 1000, "step": 0.01, "rtol": 1e-5},
        "problems": [{"key": "H", "name": "Oscillator"}],
        "paper_setting": [entry("S-MNN"), entry("RK45", relative_mse=[3e-10])],
        "native_order": [entry("S-MNN", order=4, relative_mse=[2e-16], ms=0.5)],
    }
    text = tables.standalone(record)
    row = "| Oscillator | 3.0e-10 | 1.0e-07 | 1.0e-07 | 2.0e-16 (R = 4) | 2 | 0.5 |"
    assert row in text.splitlines()
    assert "1 of 1 errors" in text
    assert "a processor, 1 thread, torch 2; 2026-01-02." in text


def bench_record(agrees: bool) -> dict[str, Any]:
    result = {"solver": "smnn", "note": "", "relative_mse": 1e-10, "forward_ms": 1234.5}
    result |= {"both_ms": None, "agrees": agrees}
    case = {"group": "length", "B": 1, "T": 10_000, "V": 1, "R": 2, "results": [result]}
    return {"machine": MACHINE, "command": "python -m benchmarks", "cases": [case]}


def test_bench() -> None:
    lines = tables.bench(bench_record(True)).splitlines()
    assert "| solver | relative MSE | forward, ms |" in lines  # nothing else was measured
    assert "| smnn | 1.0e-10 | 1,234 |" in lines


def test_bench_refuses_wrong_answers() -> None:
    with pytest.raises(ValueError, match="disagree"):
        tables.bench(bench_record(False))


def test_gpu() -> None:
    case = {
        "name": "some case", "speedup": 41.6, "speedup_one_thread": 55.0, "bytes_per_s": 2e12,
        "error": {"y": 1e-15, "c": 3e-13},
        "ours": {
            "ms": 0.5, "one_thread_ms": 0.375, "device_ms": 0.25, "peak_mb": 12.0,
            "peak_mb_factor_forgotten": 7.0, "ms_factor_forgotten": 0.75,
        },
        "published": {"ms": 20.8, "peak_mb": 90.0},
    }  # fmt: skip
    alone = {k: v for k, v in case.items() if not k.startswith(("published", "speedup"))}
    record = {
        "device": "a device", "torch": "2", "python": "3", "copy_bytes_per_s": 4e12,
        "cases": [case, alone], "lengths": [{"T": 1000, "ms": 1.5, "device_ms": 0.5}],
    }  # fmt: skip
    page = tables.gpu(record)
    assert "| some case | 20.8 | 0.5 (42×) | 0.375 (55×) | 0.25 |" in page
    assert "| some case |  | 0.5 | 0.375 | 0.25 |" in page
    assert "| some case | 12 | 7 | 90 | 0.75 | 50 % | 3.0e-13 |" in page
    assert "| some case | 12 | 7 |  | 0.75 | 50 % | 3.0e-13 |" in page
    assert "| 1,000 | 1.5 | 0.5 |" in page
    brief = alone | {"ours": {k: v for k, v in case["ours"].items() if k != "ms_factor_forgotten"}}
    assert "| recomputed, ms |" in page
    assert "| recomputed, ms |" not in tables.gpu(record | {"cases": [brief]})
    assert "in a row" not in page
    rows = case | {"ours": case["ours"] | {"in_a_row_ms": 0.4375}, "speedup_in_a_row": 45.0}
    with_rows = tables.gpu(record | {"cases": [rows]})
    assert "| some case | 20.8 | 0.5 (42×) | 0.438 (45×) | 0.375 (55×) | 0.25 |" in with_rows
    assert "*in a row* is the same for calls without synchronization" in with_rows
    others = [{"multiplication_ms": x, "ratios": {"a": 30 + x, "b": 2.5}} for x in (0.5, 1.5)]
    page = tables.gpu(record | {"other_runs": others, "notes": ["A remark."]})
    assert "2 further runs: a 30 to 32, b 2.5 to 2.5." in page
    assert "\n\nA remark.\n\n" in page
    record["multiplication"] = {"ms": 0.125, "one_thread_ms": 0.0625}
    record["addcmul"] = {"ms": 0.25, "one_thread_ms": 0.1875}
    page = tables.gpu(record)
    assert "multiplication take 0.125 ms (0.0625 on one thread), and `torch.addcmul`" in page
    assert "with three gradients 0.25 ms (0.188 on one thread)." in page


@pytest.mark.parametrize(
    ("page", "write", "records"),
    [
        ("benchmarks", tables.bench, ["cpu_epyc"]),
        ("gpu", tables.gpu, ["gpu_h200"]),
        ("compile", tables.compile_times, ["compile_epyc"]),
        ("lorenz", tables.lorenz, ["lorenz_epyc"]),
        ("lorenz_step", tables.lorenz_step, ["lorenz_step_h200"]),
        ("discovery_bench", tables.discovery_bench, ["discovery_bench_epyc"]),
        (
            "kdv",
            tables.kdv,
            ["kdv_pretrained_epyc", "kdv_operator_epyc", "kdv_new_epyc", "kdv_models_h200"],
        ),
        ("kdv_step", tables.kdv_step, ["kdv_step_h200"]),
    ],
)
def test_pages_are_what_their_records_say(page: str, write: Any, records: list[str]) -> None:
    found = [
        json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))
        for name in records
    ]
    text = (ROOT / "docs" / "generated" / f"{page}.md").read_text("utf-8")
    assert text.rstrip("\n") == write(*found).rstrip("\n")


def test_honesty() -> None:
    equation = {"level": "established", "right": True, "stability": [1.0], "true": [True]}
    equation |= {"coefficients": 1, "within": 1}
    plain = {"kind": "logistic", "rows": 12, "level": "established", "reason": ""}
    cases = [
        plain | {"group": "true", "seed": k, "noise": 0.01, "equations": [equation],
                 "seconds": {"refinement": 1.0, "verdict": 0.05}}
        for k in range(4)
    ]  # fmt: skip
    cases += [plain | {"group": "unrelated", "seed": 0, "level": "nothing found"}]
    settings = {"unrelated": 1, "known": 4, "missing": 0, "seed": 7}
    text = tables.honesty({"machine": MACHINE, "settings": settings, "cases": cases})
    lines = text.splitlines()
    assert "| unrelated columns | data sets | 0 | 0 | 0 | 0 | 100.0 | 0 | 1 |" in lines
    assert "| terms in the library | data sets | 100.0 | 0 | 0 | 0 | 0 | 0 | 4 |" in lines
    assert "| terms in the library | 0 of 0 | 0 of 0 | 0 of 0 | 4 of 4 |" in lines
    assert "90 % intervals contain 100 % of the 4 coefficients" in text
    assert "5.0 % of the time of the fit" in text
    assert "a processor, 1 thread, torch 2; 2026-01-02." in text
