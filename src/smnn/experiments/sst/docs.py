"""Write the tables of docs/sst.md from the JSON of the experiments; no number is typed by hand.

`python -m smnn.experiments.sst.docs docs/sst.md --sst benchmarks/results/sst_epyc.json --scaling
benchmarks/results/scaling_h200.json`
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.files import write_atomically
from smnn.experiments.scaling.run import from_record
from smnn.experiments.scaling.view import stops, summary
from smnn.experiments.sst.references import CLIMATOLOGY, COUPLED, DAMPED, OURS, REFERENCES, TREND

HEAD = ("", "1000 × relative MSE", "first 12 months", "of climatology", "first 12 months",
        "RMSE, °C", "correlation")  # fmt: skip
KEYS = (
    ("relative_mse", "{:.3f}"), ("relative_mse_first_year", "{:.3f}"), ("of_climatology", "{:.3f}"),
    ("of_climatology_first_year", "{:.3f}"), ("rmse", "{:.3f}"), ("anomaly_correlation", "{:.3f}"),
)  # fmt: skip


MEASURES = (
    ("ms a step", "ms", "{:.3g}"), ("GiB", "gib", "{:.3g}"), ("test error", "test_mse", "{:.4f}"),
)  # fmt: skip


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _numbers(scores: Sequence[dict[str, Any]]) -> list[str]:
    """Means over seeds; the range beside the first."""
    out = []
    for place, (key, style) in enumerate(KEYS):
        values = [s[key] * (1000 if key.startswith("relative") else 1) for s in scores]
        text = style.format(np.mean(values))
        if len(values) > 1 and place == 0:
            text += f" ({style.format(min(values))} to {style.format(max(values))})"
        out.append(text)
    return out


def main_table(record: dict[str, Any]) -> str:
    """The last hold-out from the history only."""
    scores = record["holdouts"][0]["scores"]
    rows = [
        [f"**{name}**" if name == COUPLED else name, *_numbers([scores[name]])]
        for name in (*REFERENCES, *OURS)
        if name in scores
    ]
    return _table(HEAD, [*rows, *_networks(record, "history only", "scores")])


def peeking_table(record: dict[str, Any]) -> str:
    """The networks with the first steps given."""
    rows = _networks(record, "first steps given", "scores")
    after = _networks(record, "first steps given", "scores_after_given")
    return _table(HEAD, [*rows, *([f"{name}; after these", *rest] for name, *rest in after)])


def _networks(record: dict[str, Any], protocol: str, which: str) -> list[list[str]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in record["networks"]:
        if entry["protocol"] == protocol:
            found.setdefault(entry["name"], []).append(entry[which])
    return [[name, *_numbers(scores)] for name, scores in found.items()]


def holdout_table(record: dict[str, Any]) -> str:
    """Relative MSE of all hold-outs, and the best of ours against the best reference."""
    names = [n for n in (CLIMATOLOGY, TREND, DAMPED, *OURS) if n in record["holdouts"][0]["scores"]]
    rows = []
    for one in record["holdouts"]:
        scores = one["scores"]
        ratios = []
        for key in ("relative_mse", "relative_mse_first_year"):
            least = min(scores[name][key] for name in REFERENCES)
            ratios.append(f"{scores[COUPLED][key] / least:.3f}")
        errors = [f"{1000 * scores[name]['relative_mse']:.3f}" for name in names]
        rows.append([f"to {one['target_ends']}", *errors, *ratios])
    head = ["48 months", *names, "coupled / best reference", "first 12 months"]
    return _table(head, rows)


def probe_list(record: dict[str, Any]) -> str:
    """What the parameters know."""
    probes = record["probes"]
    zones, alone = probes["zones"], probes["zones_by_mean_temperature"]
    lines = [
        f"- Climate zone on longitudes and in a chunk that were not seen: balanced accuracy "
        f"{zones['held_out_both']:.2f} (mean temperature alone {alone['held_out_both']:.2f}, "
        f"shuffled labels {zones['shuffled_labels']:.2f}, chance {zones['chance']:.2f})."
    ]
    for name, found in probes["effects"].items():
        verdict = "comparable" if found["believable"] else "**not comparable**"
        lines.append(
            f"- Effect on temperature, {name}: {found['effect']:.2f} ± "
            f"{found['standard_error']:.2f} °C (difference of means "
            f"{found['naive_difference']:.2f}); {100 * found['overlap']:.0f} % of the units "
            f"overlap: {verdict}."
        )
    return "\n".join(lines)


def scaling_table(record: dict[str, Any]) -> str:
    """Time, memory and error at every length."""
    result = from_record(record)
    lengths = result.config.lengths
    rows = []
    for method in result.config.methods:
        points = {p["length"]: p for p in result.points if p["method"] == method}
        for words, key, style in MEASURES:
            values = [points[n].get(key) for n in lengths]
            if any(v is not None for v in values):
                rows.append([f"{method}, {words}", *(_cell(v, style) for v in values)])
    told = [f"- {value}: {meaning}." for value, meaning in summary(result) if "T/1000" in value]
    told += [f"- {method} stops at {reason}." for method, reason in stops(result).items()]
    return _table(["weeks", *map(str, lengths)], rows) + "\n\n" + "\n".join(told)


def _cell(value: float | None, style: str) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 1000 else style.format(value)


def fill(text: str, parts: dict[str, str]) -> str:
    """Replace what stands between `<!-- NAME:start -->` and `<!-- NAME:end -->`.

    Raises:
        ValueError: A pair of marks is missing.
    """
    for name, content in parts.items():
        start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
        before, mark, rest = text.partition(start)
        _, close, after = rest.partition(end)
        if not (mark and close):
            raise ValueError(f"the page has no {start} ... {end}.")
        text = f"{before}{start}\n{content}\n{end}{after}"
    return text


def sections(sst: dict[str, Any], scaling: dict[str, Any]) -> dict[str, str]:
    """All generated parts of the page by name."""
    return {
        "main": main_table(sst),
        "holdouts": holdout_table(sst),
        "peeking": peeking_table(sst),
        "probes": probe_list(sst),
        "scaling": scaling_table(scaling),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--sst", type=Path, required=True)
    parser.add_argument("--scaling", type=Path, required=True)
    options = parser.parse_args(arguments)
    records = [json.loads(path.read_text()) for path in (options.sst, options.scaling)]
    text = fill(options.page.read_text(), sections(*records))
    write_atomically(options.page, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
