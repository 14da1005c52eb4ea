"""Logs that can be taken up again: CSV files to the byte, TensorBoard events to the step."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smnn._util.files import writing
from smnn._util.optional import MissingPackageError, require
from smnn.training._errors import CheckpointError, TrainingError

Row = dict[str, float | int]


class Table:
    """Rows of numbers, in memory and (with a path) in a CSV file.

    The file holds nothing that depends on the clock, so that a resumed run writes the same bytes.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: list[Row] = []
        self._columns: list[str] | None = None
        self._size = 0

    def start(self) -> None:
        """Begin anew."""
        if self.path is not None:
            with writing(self.path):
                self.path.unlink(missing_ok=True)

    def add(self, row: Row) -> None:
        """Append a row; all rows must have the same columns."""
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
            self._append(text + _line(list(row.values())))

    def _append(self, text: str) -> None:
        assert self.path is not None
        with writing(self.path), self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(text)
        self._size += len(text.encode())

    def position(self) -> int:
        """Bring the file to the disk; its length."""
        if self.path is not None and self._size:
            with writing(self.path), self.path.open("rb") as file:
                os.fsync(file.fileno())
        return self._size

    def resume(self, size: int) -> None:
        """Go back to the rows that were there when `position` returned `size`."""
        assert self.path is not None
        if size == 0:
            self.start()
            return
        found = self.path.stat().st_size if self.path.exists() else 0
        if found < size:
            raise CheckpointError(
                f"{self.path} has {found} bytes; the checkpoint was written after {size}. Put the "
                "file back to resume."
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
                f"{self.path} is damaged ({error}). Put the file back to resume."
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
    """The logs of a run: a row per logged step, a row per evaluation."""

    def __init__(self, out: Path | None, tensorboard: bool) -> None:
        self.steps = Table(out and out / "steps.csv")
        self.epochs = Table(out and out / "epochs.csv")
        self.notice: str | None = None
        """Why there is no TensorBoard log although it was asked for."""
        self._events: Any = None
        self._folder = out / "tensorboard" if out is not None and tensorboard else None

    def start(self, step: int, positions: Mapping[str, int] | None) -> None:
        """Begin, anew or from where a checkpoint was written."""
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
                # Events after the checkpoint are of the run that was interrupted.
                purge = step + 1 if positions is not None else None
                with writing(self._folder):
                    self._events = board.SummaryWriter(str(self._folder), purge_step=purge)

    def step(self, row: Row, samples_per_second: float) -> None:
        """Log a step."""
        self.steps.add(row)
        self._write("train", row)
        if self._events is not None:
            self._write("train", {"step": row["step"], "samples_per_second": samples_per_second})

    def epoch(self, row: Row) -> None:
        """Log an evaluation."""
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
        """Where the files end, to be kept in a checkpoint."""
        if self._events is not None:
            assert self._folder is not None
            with writing(self._folder):
                self._events.flush()
        return {"steps": self.steps.position(), "epochs": self.epochs.position()}

    def close(self) -> None:
        """Close the files."""
        if self._events is not None:
            assert self._folder is not None
            with writing(self._folder):
                self._events.close()
