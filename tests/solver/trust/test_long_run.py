"""The tool that tries many random problems: their sizes, ways of the kernels, what it counts."""

import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from solver.internals import REDUCED, GpuBackend, gpu
from solver.internals import strategy as plans
from solver.trust import sizes, ways
from solver.trust.problems import Shape, draw

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import long_run  # noqa: E402


def shapes(count: int, samples: int, fewest: int, most: int) -> list[Shape]:
    rng = np.random.default_rng(0)

    def choose(options: Any) -> Any:
        return options[int(rng.integers(len(options)))]

    fixed = sizes.many(samples, fewest, most)
    return [draw(choose, samples, **fixed) for _ in range(count)]


@pytest.mark.parametrize(("fewest", "most"), [(6, 24), (13, 24), (25, 64), (65, 96), (25, 25)])
def test_large_shapes(fewest: int, most: int) -> None:
    """All sizes of the range occur, none beyond it, and an exact solution stays affordable."""
    drawn = shapes(2500, 200, fewest, most)
    assert {x.n for x in drawn} == set(range(fewest, most + 1))
    assert {x.T for x in drawn} == set(range(1, 7))
    assert {x.scheme for x in drawn} == {"smnn", "central"}
    for x in drawn:
        count = int(np.prod(x.batch, dtype=int))
        assert 1 <= count <= 200
        assert count == 1 or count * (x.T * x.n) ** 3 <= sizes.WORK
        assert 0 <= x.R < x.m
        assert x.m > 1 or x.scheme == "smnn"
        assert 1 <= x.m_init <= x.m
        assert 0 <= x.T_init <= x.T
    # More equations than fit into registers at once, and fewer than variables.
    assert any(x.Q < x.V for x in drawn)
    assert most < 32 or any(x.Q > 32 for x in drawn)


def test_what_a_property_asks_for_is_added() -> None:
    """Not instead of the size: five samples at least, and as many as there were."""
    for x in shapes(50, 40, 40, 64):
        more = long_run.adapted(x, long_run.FIXED["order_of_samples"])
        assert more.batch == (max(5, int(np.prod(x.batch, dtype=int))),)
        assert (more.n, more.T, more.seed) == (x.n, x.T, x.seed)


@pytest.mark.parametrize(
    ("B", "T", "V", "m", "scheme", "way"),
    [
        (512, 50, 2, 2, "central", "lane"),
        (10**5, 50, 4, 3, "central", "lane"),
        (512, 50, 2, 2, "smnn", "twin"),
        (512, 3, 2, 2, "smnn", "twin"),
        (512, 2, 2, 2, "smnn", "lane"),
        (10**5, 50, 4, 3, "smnn", "twin"),
        (1, 10**5, 1, 3, "smnn", "lane, pieces"),
        (1, 10**5, 1, 3, "central", "lane, pieces"),
        (100, 50, 3, 2, "central", "team of 32"),
        (100, 50, 5, 3, "smnn", "twin, team of 32"),
        (100, 2, 5, 3, "smnn", "team of 32"),
        (512, 50, 3, 3, "smnn", "twin, team of 32"),
        (1023, 50, 4, 3, "smnn", "twin, team of 32"),
        (1024, 50, 4, 3, "smnn", "team of 16"),
        (2000, 50, 3, 3, "smnn", "twin"),
        (2048, 50, 2, 3, "central", "team of 8"),
        (2048, 50, 4, 2, "central", "team of 16"),
        (2048, 50, 8, 2, "smnn", "large"),
        (1, 50, 25, 1, "smnn", "large"),
        (4096, 50, 16, 4, "central", "large"),
    ],
)
def test_ways_are_those_of_the_plan(B: int, T: int, V: int, m: int, scheme: str, way: str) -> None:
    pieces = GpuBackend().pieces(B, T, V * m, 2 if scheme == "central" else 1)
    problem = SimpleNamespace(y_shape=(B, T, V, m), scheme=scheme)
    assert ways.named(gpu._levels(problem, pieces)[0]) == way  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("B", "T", "n", "reduced"),
    [
        (1, 1000, 3, False),  # pieces of lanes
        (1, 299, 10, False),
        (1, 300, 10, True),
        (49, 800, 10, False),
        (49, 900, 10, True),
        (481, 10_000, 10, False),
        (1, 299, 13, False),
        (1, 300, 13, True),
        (49, 900, 13, False),
        (48, 300, 24, True),
        (49, 300, 24, False),
        (1, 100, 24, False),
        (1, 50, 96, True),
        (1000, 2, 256, False),
        (1000, 2, 257, True),
    ],
)
def test_few_long_sequences_are_reduced(B: int, T: int, n: int, reduced: bool) -> None:
    for reach in (1, 2):
        assert (GpuBackend().pieces(B, T, n, reach) == REDUCED) == reduced


@pytest.mark.parametrize(
    ("B", "n", "reach", "pieces"),
    [
        (1, 6, 1, 256), (1, 7, 1, REDUCED), (49, 12, 1, REDUCED), (1000, 12, 1, 0),
        (1, 3, 2, 256), (1, 4, 2, REDUCED), (49, 6, 2, REDUCED), (9000, 7, 2, 1),
    ],
)  # fmt: skip
def test_kernels_for_pieces_compile_in_time(B: int, n: int, reach: int, pieces: int) -> None:
    """Those of 9 unknowns take a minute, and the central scheme has two times between pieces."""
    assert GpuBackend().pieces(B, 10_000, n, reach) == pieces


def test_what_would_not_fit_is_not_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_memory", lambda: 2**30)
    assert GpuBackend().pieces(1, 1000, 24, 1) == REDUCED
    assert GpuBackend().pieces(1, 10_000, 24, 1) == 0
    assert GpuBackend().pieces(1, 10_000, 300, 1) == REDUCED  # there is no other way


def test_a_new_way_is_counted_under_its_own_name() -> None:
    class Level(plans.Level):
        @property
        def mirrored(self) -> bool:
            return self.reach == 1

    assert ways.named(Level(B=64, N=50, P=1, n=3, reach=1)) == "mirrored"
    assert ways.named(Level(B=64, N=50, P=1, n=3, reach=2)) == "lane"
    assert ways.in_words({"mirrored", "large"}) == {
        "large": ways.WORDS["large"],
        "mirrored": "mirrored",
    }


def record(seed: int, **taken: int) -> dict[str, Any]:
    """As a run writes it, for two backends."""
    tally = long_run.Tally()
    tally.counts["problems"] = 100
    tally.ways.update(taken)
    other = long_run.Tally()
    machine = {"gpu": "a device", "utc": "2026-01-01T00", "versions": {"torch": "2"}}
    return {
        "machine": machine, "commands": ["run"], "seed": seed, "shapes": 2, "seconds": 1.0,
        "seen": {key: [seed] for key in long_run.SEEN},
        "backends": {"gpu": tally.record(), "cpu": other.record()},
    }  # fmt: skip


def test_ways_add_up() -> None:
    both = long_run.merged([record(1, lane=60, large=40), record(2, lane=30, new=1)])
    assert both["backends"]["gpu"]["ways"] == {"lane": 90, "large": 40, "new": 1}
    assert both["backends"]["cpu"]["ways"] == {}
    again = long_run.merged([both, record(3, new=5)])
    assert again["backends"]["gpu"]["ways"] == {"lane": 90, "large": 40, "new": 6}
    assert again["backends"]["gpu"]["problems"] == 300
    assert again["seed"] == again["seen"]["n"] == [1, 2, 3]


def test_runs_that_did_not_count_ways() -> None:
    old = json.loads(json.dumps(record(1)))
    del old["seen"]["n"]
    for x in old["backends"].values():
        del x["ways"]
    assert "solved by" not in long_run.table([old])
    assert "2 shapes, seeds 1;" in long_run.table([old])
    both = long_run.merged([old, record(2, large=7)])
    assert both["backends"]["gpu"]["ways"] == {"large": 7}
    assert both["backends"]["gpu"]["problems"] == 200
    assert both["seen"]["n"] == [2]


def test_table_of_ways() -> None:
    lines = long_run.table([record(1, **{"team of 8": 1234, "large": 5, "odd": 6})]).split("\n")
    assert "`gpu`, `cpu`: 2 shapes of 1 to 1 unknowns per time, seeds 1;" in " ".join(lines)
    rows = [x for x in lines if x.startswith("| solved by")]
    assert rows == [
        "| solved by eight lanes for each sequence | 1,234 |  |",
        "| solved by tiles of a warp or several | 5 |  |",
        "| solved by odd | 6 |  |",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--large", "64-25"], "expected a range like 25-64"),
        (["--large", "many"], "invalid limits value"),
        (["--large", "0-4"], "expected a range like 25-64"),
        (["--large", "--small"], "exclude each other"),
        (["--large", "6-13", "--cut"], "--cut is for at most 12 unknowns"),
        (["--cut", "--teams"], "not allowed with"),
    ],
)
def test_options_that_cannot_be(
    given: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["long_run.py", *given])
    with pytest.raises(SystemExit):
        long_run.main()
    assert message in capsys.readouterr().err


def test_a_run_of_large_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "found.json"
    options = ["--backends", "reference,cpu", "--large", "25-64", "--samples", "4"]
    options += ["--problems", "60", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["long_run.py", *options])
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)  # those of other tests
    assert long_run.main() == 0
    found = json.loads(out.read_text())
    assert found["seen"]["n"][0] >= 25
    assert len(found["seen"]["n"]) > 5
    for x in found["backends"].values():
        assert x["problems"] >= 60
        assert x["well_posed"] > 30
        assert x["ways"] == {}
    assert Counter(found["commands"]) == {
        "python tools/long_run.py --backends reference,cpu --large 25-64 --samples 4 "
        "--problems 60": 1
    }
