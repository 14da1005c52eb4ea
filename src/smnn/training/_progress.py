"""How training is going, for a person: a bar in a terminal, a line now and then in a pipe."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from smnn._util.optional import require

LINE_EVERY = 10.0
"""Seconds between two lines where there is no terminal."""


class Display:
    """Shows messages only, and those only in the main process."""

    def __init__(self, speaks: bool) -> None:
        self._speaks = speaks

    def update(self, step: int, epoch: int, loss: float, speed: float) -> None:
        """Show where training is."""

    def say(self, text: str) -> None:
        """Show a message."""
        if self._speaks:
            print(text, file=sys.stderr)


class _Lines(Display):
    def __init__(self, console: Any, total: int) -> None:
        super().__init__(speaks=True)
        self._console, self._total = console, total
        self._last = time.monotonic()

    def update(self, step: int, epoch: int, loss: float, speed: float) -> None:
        now = time.monotonic()
        if now - self._last >= LINE_EVERY or step == self._total:
            self._last = now
            where = f"step {step:,} of {self._total:,}, epoch {epoch}"
            self.say(f"{where}, loss {loss:.6g}, {speed:,.0f} samples/s")

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)


class _Bar(_Lines):
    def __init__(self, console: Any, total: int, start: int) -> None:
        super().__init__(console, total)
        rich = require("rich.progress", "show progress")
        self.progress = rich.Progress(
            rich.TextColumn("epoch {task.fields[epoch]}"),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TextColumn("loss {task.fields[loss]}"),
            rich.TextColumn("{task.fields[speed]} samples/s"),
            rich.TimeRemainingColumn(),
            console=console,
        )
        self._task = self.progress.add_task(
            "", total=total, completed=start, epoch="-", loss="-", speed="-"
        )

    def update(self, step: int, epoch: int, loss: float, speed: float) -> None:
        fields = {"epoch": epoch, "loss": f"{loss:.4g}", "speed": f"{speed:,.0f}"}
        self.progress.update(self._task, completed=step, **fields)


@contextlib.contextmanager
def display(progress: bool, is_main: bool, total: int, start: int) -> Iterator[Display]:
    """Something that shows progress and messages on standard error."""
    if not (progress and is_main):
        yield Display(speaks=is_main)
        return
    console = require("rich.console", "show progress").Console(stderr=True, highlight=False)
    if console.is_terminal:
        bar = _Bar(console, total, start)
        with bar.progress:
            yield bar
    else:
        yield _Lines(console, total)
