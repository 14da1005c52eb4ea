"""A few kills of every scenario; tools/kills.py runs hundreds."""

import os
import time
from pathlib import Path

import pytest
from internals import STALE, UNFINISHED, prepare_output
from killing import NAMES, Trials, scenarios

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def every() -> dict[str, object]:
    return {s.name: s for s in scenarios()}


@pytest.mark.parametrize("name", NAMES)
def test_killed_at_random_moments(every: dict, name: str, tmp_path: Path) -> None:
    trials = Trials(every[name], tmp_path / "trials", seed=11)
    for _ in range(2):
        trials.trial()
    assert trials.tally.problems == []
    assert trials.tally.resumed_exactly == 2
    assert trials.tally.kills + trials.tally.finished_first >= 2


def test_finished_file_that_was_not_renamed_yet_is_used(tmp_path: Path, every: dict) -> None:
    """Killed between the last trajectory and the renaming: nothing is computed again."""
    from internals import kdv_files as files

    from smnn.datasets.kdv import read_file

    scenario = every["data generation"]
    told: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "simulate", files.simulate)  # the scenario replaces it
        patch.setattr(files, "PIECE", files.PIECE)
        scenario.work(tmp_path)
        whole = read_file(tmp_path / "train.h5")
        (tmp_path / "train.h5").rename(tmp_path / "train.h5.smnn-part")
        files.write_easy(tmp_path / "train.h5", "train", len(whole), seed=1, tick=told.append)
    assert told == [len(whole)]
    assert (read_file(tmp_path / "train.h5").u == whole.u).all()
    assert os.listdir(tmp_path) == ["train.h5"]


def test_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    old, new = (tmp_path / f".report.html.{x}{UNFINISHED}" for x in "ab")
    for path in (old, new):
        path.write_text("half")
    long_ago = time.time() - STALE - 5
    os.utime(old, (long_ago, long_ago))
    (tmp_path / ".hidden").write_text("somebody's")
    prepare_output(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".hidden", new.name]
