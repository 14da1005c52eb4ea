"""Logs of a run (CSV and TensorBoard), throughput, and the progress display.

Logs can be resumed: the CSV files of a resumed run are byte-identical to those of an uninterrupted
one.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smnn._util.files import writing
from smnn._util.optional import MissingPackageError, require
from smnn.training._errors import CheckpointError, TrainingError

Row = dict[str, float | int]


class Table:
    """Rows of numbers, in memory and (with a path) in a CSV file.

    The file contains nothing that depends on time, so that a resumed run writes the same bytes.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: list[Row] = []
        self._columns: list[str] | None = None
        self._size = 0

    def start(self) -> None:
        if self.path is not None:
            with writing(self.path):
                self.path.unlink(missing_ok=True)

    def add(self, row: Row) -> None:
        """Append a row; all rows have the same columns."""
        text = ""
        if self._columns is None:
            self._columns = list(row)
            text = _line(self._columns)
        elif list(row) != self._columns:
            raise TrainingError(
                f"the task returned the scalars {', '.join(row)} after {', '.join(self._columns)} "
                "before; return the same in every call (NaN where one does not apply)."
            )
        self.rows.append(row)
        if self.path is not None:
            text += _line(list(row.values()))
            with writing(self.path), self.path.open("a", encoding="utf-8", newline="") as file:
                file.write(text)
            self._size += len(text.encode())

    def position(self) -> int:
        """Flush the file to disk and return its length."""
        if self.path is not None and self._size:
            with writing(self.path), self.path.open("rb") as file:
                os.fsync(file.fileno())
        return self._size

    def resume(self, size: int) -> None:
        """Truncate the file to the length that `position` returned, and read its rows."""
        assert self.path is not None
        if size == 0:
            self.start()
            return
        found = self.path.stat().st_size if self.path.exists() else 0
        if found < size:
            raise CheckpointError(
                f"{self.path} has {found} bytes; the checkpoint was written after {size}. "
                "Restore the file to resume."
            )
        with writing(self.path):
            os.truncate(self.path, size)
        self._size = size
        try:
            with self.path.open(encoding="utf-8", newline="") as file:
                columns, *rows = csv.reader(file)
                self.rows = [dict(zip(columns, map(_number, cells))) for cells in rows]
        except (ValueError, csv.Error) as error:
            raise CheckpointError(
                f"{self.path} is damaged ({error}). Restore the file to resume."
            ) from None
        self._columns = columns


def _line(cells: list[Any]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def _number(cell: str) -> float | int:
    try:
        return int(cell)
    except ValueError:
        return float(cell)


class Log:
    """Logs of a run: one row per logged step, one row per evaluation."""

    def __init__(self, out: Path | None, tensorboard: bool) -> None:
        self.steps = Table(out and out / "steps.csv")
        self.epochs = Table(out and out / "epochs.csv")
        self.notice: str | None = None
        """Reason why there is no TensorBoard log although it was requested."""
        self._events: Any = None
        self._folder = out / "tensorboard" if out is not None and tensorboard else None

    def start(self, step: int, positions: Mapping[str, int] | None) -> None:
        """Start new logs, or continue from the positions stored in a checkpoint."""
        for name, table in (("steps", self.steps), ("epochs", self.epochs)):
            if positions is None:
                table.start()
            else:
                table.resume(positions[name])
        if self._folder is not None:
            try:
                board = require("torch.utils.tensorboard", "log for TensorBoard")
            except (MissingPackageError, ModuleNotFoundError):
                self.notice = "no TensorBoard log: pip install tensorboard"
            else:
                # Hides events that were written after the checkpoint.
                purge = step + 1 if positions is not None else None
                with writing(self._folder):
                    self._events = board.SummaryWriter(str(self._folder), purge_step=purge)

    def step(self, row: Row, samples_per_second: float) -> None:
        self.steps.add(row)
        self._write("train", row)
        if self._events is not None:
            self._write("train", {"step": row["step"], "samples_per_second": samples_per_second})

    def epoch(self, row: Row) -> None:
        self.epochs.add(row)
        self._write("epoch", row)

    def _write(self, group: str, row: Row) -> None:
        if self._events is not None:
            assert self._folder is not None
            with writing(self._folder):
                for name, value in row.items():
                    if name not in ("step", "epoch"):
                        self._events.add_scalar(f"{group}/{name}", value, int(row["step"]))

    def positions(self) -> dict[str, int]:
        """Flush the files and return their lengths, to be stored in a checkpoint."""
        if self._events is not None:
            assert self._folder is not None
            with writing(self._folder):
                self._events.flush()
        return {"steps": self.steps.position(), "epochs": self.epochs.position()}

    def close(self) -> None:
        if self._events is not None:
            assert self._folder is not None
            with writing(self._folder):
                self._events.close()


class Throughput:
    """Samples per second: since the last reading, and overall."""

    def __init__(self) -> None:
        self.recent = 0.0
        """Between the last two readings."""
        self._start = self._last = time.monotonic()
        self._total = self._since = 0

    def add(self, samples: int) -> None:
        self._total += samples
        self._since += samples

    def read(self) -> None:
        now = time.monotonic()
        self.recent = self._since / max(now - self._last, 1e-9)
        self._last, self._since = now, 0

    @property
    def overall(self) -> float | None:
        """Mean since the start; `None` before the first step."""
        if not self._total:
            return None
        return self._total / max(time.monotonic() - self._start, 1e-9)


# ---------------------------------------------------------------- progress

LINE_EVERY = 10.0
"""Seconds between progress lines if standard error is not a terminal."""


class Display(contextlib.AbstractContextManager["Display"]):
    """Progress on standard error: a bar in a terminal, occasional lines elsewhere.

    Args:
        progress: Whether to show progress, in addition to messages.
        is_main: Whether this is the main process; the others show nothing.
        total: Number of steps.
        start: Number of finished steps.
    """

    def __init__(self, progress: bool, is_main: bool, total: int, start: int) -> None:
        self._is_main, self._progress, self._total = is_main, progress and is_main, total
        self._last = time.monotonic()
        self._bar: Any = None
        if self._progress:
            console = require("rich.console", "show progress").Console(stderr=True, highlight=False)
            if console.is_terminal:
                self._bar = _bar(console)
                fields = {"epoch": "-", "loss": "-", "speed": "-"}
                self._task = self._bar.add_task("", total=total, completed=start, **fields)
                self._bar.start()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, step: int, epoch: int, loss: float, speed: float) -> None:
        if self._bar is not None:
            fields = {"epoch": epoch, "loss": f"{loss:.4g}", "speed": f"{speed:,.0f}"}
            self._bar.update(self._task, completed=step, **fields)
            return
        now = time.monotonic()
        if self._progress and (now - self._last >= LINE_EVERY or step == self._total):
            self._last = now
            where = f"step {step:,} of {self._total:,}, epoch {epoch}"
            self.message(f"{where}, loss {loss:.6g}, {speed:,.0f} samples/s")

    def message(self, text: str) -> None:
        """Show a message in the main process."""
        if self._bar is not None:
            self._bar.console.print(text, soft_wrap=True, markup=False)
        elif self._is_main:
            print(text, file=sys.stderr)


def _bar(console: Any) -> Any:
    rich = require("rich.progress", "show progress")
    return rich.Progress(
        rich.TextColumn("epoch {task.fields[epoch]}"), rich.BarColumn(), rich.MofNCompleteColumn(),
        rich.TextColumn("loss {task.fields[loss]}"),
        rich.TextColumn("{task.fields[speed]} samples/s"), rich.TimeRemainingColumn(),
        console=console,
    )  # fmt: skip
