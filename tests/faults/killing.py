"""Processes killed at random moments while they write files.

Each scenario is real work of the package with a short computation, so that a random moment is
likely to be a moment of writing. A trial forks a copy of this process, kills it with SIGKILL after
a random time, checks every file, and finishes the work in another copy. The files must then equal
those of an uninterrupted run. Used by the tests of this folder and by tools/kills.py.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from internals import UNFINISHED
from limits import ended, forked

COUNT = 24
"""Trajectories that are generated."""


@dataclass(frozen=True)
class Scenario:
    """Work that writes files and can be resumed after an interruption."""

    name: str
    work: Callable[[Path], None]
    """Do all of the work, or the remaining part."""
    check: Callable[[Path], int]
    """Check every file that has its final name; returns their number."""
    content: Callable[[Path], dict[str, Any]]
    """Contents that must not depend on interruptions."""
    leftover: Callable[[str], bool]
    """Whether an interruption may leave a file of this name."""


@dataclass
class Tally:
    """Counts over many trials."""

    kills: int = 0
    finished_first: int = 0
    files_checked: int = 0
    leftovers: int = 0
    resumed_exactly: int = 0
    problems: list[str] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "kills": self.kills, "finished_before_the_kill": self.finished_first,
            "files_checked": self.files_checked, "unfinished_files_seen": self.leftovers,
            "finished_exactly_afterwards": self.resumed_exactly, "problems": self.problems,
        }  # fmt: skip


class Trials:
    """Many trials of one scenario."""

    def __init__(self, scenario: Scenario, folder: Path, seed: int) -> None:
        self.scenario, self.folder, self.log = scenario, folder, folder / "log"
        self.moments = random.Random(f"{scenario.name}/{seed}")
        folder.mkdir(parents=True, exist_ok=True)
        self.tally = Tally()
        self._finish(folder / "first")  # loads and compiles
        whole = folder / "whole"
        began = time.monotonic()
        self._finish(whole)
        self.seconds = time.monotonic() - began
        self.wanted = scenario.content(whole)
        self.count = 0

    def trial(self) -> None:
        """Kill the work one to three times, finish it, and compare the result."""
        self.count += 1
        out = self.folder / f"trial-{self.count}"
        try:
            for _ in range(self.moments.choice([1, 1, 2, 3])):
                self._kill(out)
                self._look(out)
            self._finish(out)
            self._look(out)
            if self.scenario.content(out) == self.wanted:
                self.tally.resumed_exactly += 1
            else:
                self._problem(out, "the result is not that of a run without interruption")
        except Exception as error:
            self._problem(out, f"{type(error).__name__}: {error}")
        shutil.rmtree(out, ignore_errors=True)

    def _kill(self, out: Path) -> None:
        child = forked(lambda: self.scenario.work(out), self.log)
        time.sleep(self.moments.uniform(0.0, 1.05 * self.seconds))
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        code = ended(child, 120.0)
        if code == -signal.SIGKILL:
            self.tally.kills += 1
        elif code == 0:
            self.tally.finished_first += 1
        else:
            raise AssertionError(f"ended with {code}: {self.log.read_text()[-600:]}")

    def _finish(self, out: Path) -> None:
        code = ended(forked(lambda: self.scenario.work(out), self.log), 120.0)
        if code != 0:
            raise AssertionError(f"ended with {code}: {self.log.read_text()[-600:]}")

    def _look(self, out: Path) -> None:
        if not out.exists():
            return
        for path in out.rglob("*"):
            if path.is_file() and self.scenario.leftover(str(path.relative_to(out))):
                self.tally.leftovers += 1
        self.tally.files_checked += self.scenario.check(out)

    def _problem(self, out: Path, what: str) -> None:
        self.tally.problems.append(f"{self.scenario.name}, trial {self.count}: {what}"[:2000])


# ---------------------------------------------------------------- data


def _generate(out: Path) -> None:
    """Write random trajectories; solving for real ones takes a second."""
    from internals import kdv_easy
    from internals import kdv_files as files

    def quick(waves: Any, **_: Any) -> Any:
        N = len(waves.length)
        seeds = [list(x.tobytes()) for x in np.asarray(waves.length)]
        u = np.stack(
            [
                np.random.default_rng(seed).normal(size=(kdv_easy.KEPT, kdv_easy.POINTS))
                for seed in seeds
            ]
        )
        return kdv_easy.Trajectories(
            u, np.ones((N, kdv_easy.POINTS)), np.ones((N, kdv_easy.KEPT)), np.ones(N), np.ones(N)
        )

    out.mkdir(parents=True, exist_ok=True)
    files.simulate, files.PIECE = quick, 2
    if not (out / "train.h5").exists():
        files.write_easy(out / "train.h5", "train", COUNT, seed=1)


def _generated(out: Path) -> int:
    from smnn.datasets.kdv import read_file

    for path in out.glob("*.h5"):
        assert len(read_file(path)) == COUNT
    return len(list(out.glob("*.h5")))


def _trajectories(out: Path) -> dict[str, Any]:
    from smnn.datasets.kdv import read_file

    return {"u": read_file(out / "train.h5").u.tobytes()}


# ---------------------------------------------------------------- training


def _command(words: list[str]) -> None:
    """Run a command of the console script, with its exit status."""
    from internals import app

    if code := app(words, standalone_mode=False):
        raise SystemExit(code)


def _train(out: Path) -> None:
    settings = {"max_steps": 24, "checkpoint_every": 2, "log_every": 1, "batch_size": 8,
                "ema": 0.9, "tensorboard": "false", "data.samples": 16,
                "accelerator": "cpu"}  # fmt: skip
    words = ["train", "damping", "--out", str(out), "--resume"]
    _command([*words, *(w for k, v in settings.items() for w in ("--set", f"{k}={v}"))])


def _trained(out: Path) -> int:
    from internals import checkpoint

    from smnn.training import load_task

    count = 0
    for folder in (out / "checkpoints").glob("[sb]*-*"):
        count += len(checkpoint.read_checkpoint(folder).tensors) + 1
    for name in ("latest", "best"):
        count += checkpoint.pointed_to(out / "checkpoints" / name) is not None
    if (out / "checkpoints" / "latest").exists():
        load_task(out, "latest")
    if (out / "config.json").exists():
        json.loads((out / "config.json").read_text())
        count += 1
    return count


def _run_files(out: Path) -> dict[str, Any]:
    names = ["steps.csv", "epochs.csv", "checkpoints/latest", "checkpoints/best"]
    for pointer in names[2:]:
        folder = out / "checkpoints" / (out / pointer).read_text().strip()
        names += [f"checkpoints/{folder.name}/{path.name}" for path in folder.iterdir()]
    return {name: (out / name).read_bytes() for name in sorted(names)}


# ---------------------------------------------------------------- reports


@functools.cache
def _found() -> Any:
    """Report of `smnn discover` on a small table; computed once, in the parent."""
    import tempfile

    from smnn.discovery import Discovery, Report, evaluate, hold_out, read_table

    t = np.linspace(0.0, 6.0, 80)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        rows = [f"{a},{math.exp(-0.4 * a)},{math.cos(a)}" for a in t.tolist()]
        path.write_text("t,x,y\n" + "\n".join(rows) + "\n")
        table = read_table(path)
    fitted, held_out = hold_out(table, 0.2)
    model = Discovery(library="poly:1", ensemble=0, method="regression").fit(fitted)
    command = "smnn discover table.csv"
    return Report(model, evaluate(model, held_out), "table.csv", command, seconds=1.0)


def _discover(out: Path) -> None:
    """Write the files of `smnn discover` several times over."""
    from internals import prepare_output

    for _ in range(6):
        _found().write(prepare_output(out))


def _same_files(reference: Callable[[], dict[str, bytes]]) -> Callable[[Path], int]:
    """Check that every file with its final name has the expected contents."""

    def check(out: Path) -> int:
        wanted = reference()
        found = [p for p in out.iterdir() if not _temporary(p.name)]
        for path in found:
            assert path.name in wanted, f"{path.name} is unexpected"
            assert path.read_bytes() == wanted[path.name], f"{path.name} is not whole"
        return len(found)

    return check


def _temporary(name: str) -> bool:
    last = name.rsplit("/", 1)[-1]
    return (last.startswith(".") and last.endswith(UNFINISHED)) or "/.unfinished-" in f"/{name}"


def _contents(out: Path) -> dict[str, Any]:
    return {p.name: p.read_bytes() for p in out.iterdir() if not _temporary(p.name)}


@functools.cache
def _discovered() -> dict[str, bytes]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        _discover(Path(folder))
        return _contents(Path(folder))


@functools.cache
def _sine() -> tuple[Any, dict[str, Any]]:
    """Result and pictures of `smnn reproduce sine`; drawing takes longer than writing."""
    from smnn.experiments.sine import view
    from smnn.experiments.sine.run import Config, run

    found = run(Config(recordings=2, steps=10, seed=1))
    found.record()  # compiles its kernels in the parent
    return found, {"figure": view.figure(found), "animation": view.animation(found, 2, 160)}


def _reproduce(out: Path) -> None:
    """Run `smnn reproduce sine` several times with precomputed results."""
    from smnn.experiments.sine import run as sine
    from smnn.experiments.sine import view

    found, pictures = _sine()
    sine.run = lambda config, tick=None: found
    view.figure = lambda result: pictures["figure"]
    view.animation = lambda result: pictures["animation"]
    words = ["reproduce", "sine", "--out", str(out), "--recordings", "2", "--steps", "10"]
    with contextlib.redirect_stdout(io.StringIO()):
        for _ in range(4):
            _command(words)


def _parsed(out: Path) -> int:
    """Check that JSON can be parsed and that pictures and pages are complete."""
    count = 0
    for path in out.iterdir():
        if _temporary(path.name):
            continue
        data = path.read_bytes()
        ends = {".json": b"}\n", ".png": b"IEND\xaeB`\x82", ".gif": b";", ".html": b"</html>\n"}
        assert data.endswith(ends[path.suffix]), f"{path.name} is not whole"
        if path.suffix == ".json":
            json.loads(data)
        count += 1
    return count


def _facts(out: Path) -> dict[str, Any]:
    """File names and pictures; other files contain the name of the folder."""
    kept = {"sine.png", "sine.gif"}
    return {p.name: p.read_bytes() if p.name in kept else None
            for p in out.iterdir() if not _temporary(p.name)}  # fmt: skip


NAMES = ("data generation", "training and checkpoints", "discovery report", "reproduction")


def scenarios() -> list[Scenario]:
    """All scenarios, in the order of `NAMES`; their inputs are computed and compiled here."""
    _found()
    _sine()
    return [
        Scenario(NAMES[0], _generate, _generated, _trajectories,
                 lambda name: name.endswith(".smnn-part")),
        Scenario(NAMES[1], _train, _trained, _run_files, _temporary),
        Scenario(NAMES[2], _discover, _same_files(_discovered), _contents, _temporary),
        Scenario(NAMES[3], _reproduce, _parsed, _facts, _temporary),
    ]  # fmt: skip
