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


@pytest.mark.parametrize(
    ("page", "write", "records"),
    [
        ("benchmarks", tables.bench, ["cpu_epyc"]),
        ("gpu", tables.gpu, ["gpu_h200"]),
        ("compile", tables.compile_times, ["compile_epyc"]),
        ("nonlinear", tables.nonlinear, ["nonlinear_epyc"]),
        ("peers", tables.peers, ["peers_epyc"]),
        ("lorenz", tables.lorenz, ["lorenz_epyc"]),
        ("lorenz_step", tables.lorenz_step, ["lorenz_step_h200"]),
        ("discovery_bench", tables.discovery_bench, ["discovery_bench_epyc"]),
        (
            "kdv",
            tables.kdv,
            ["kdv_pretrained_epyc", "kdv_operator_epyc", "kdv_new_epyc", "kdv_models_h200"],
        ),
        ("kdv_step", tables.kdv_step, ["kdv_step_h200"]),
        ("m4", tables.m4, ["m4_epyc"]),
        ("pde_bench", tables.pde_bench, ["pde_bench_epyc"]),
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
