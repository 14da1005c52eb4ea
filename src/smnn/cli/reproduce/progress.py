"""Progress bars on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from smnn.cli._guard import notices

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@contextmanager
def progress(total: int | None, width: int = 22) -> Iterator[Callable[..., None]]:
    """Yield a callback that advances a progress bar.

    `tick(name)` advances a bar of `total` steps. `tick(name, count, total)` shows a bar for each
    name, one at a time, and removes it when it is complete, so that other displays can follow.
    """
    bar: Progress | None = None
    task: TaskID | None = None
    current = ""

    def start(name: str, total: int) -> Progress:
        nonlocal bar, task, current
        stop()
        bar = _new_bar(width)
        task, current = bar.add_task(name, total=total), name
        bar.start()
        return bar

    def stop() -> None:
        nonlocal bar
        if bar is not None:
            bar.stop()
        bar = None

    def tick(name: str, count: int = 1, of: int | None = None) -> None:
        active = bar
        if active is None or (of is not None and name != current):
            active = start(name, of or total or 1)
        assert task is not None
        active.update(task, description=name, advance=count)
        if of is not None and active.finished:
            stop()

    try:
        if total is not None:
            start("Preparing", total)
        yield tick
        if bar is not None and task is not None:
            bar.update(task, description="Done")
    finally:
        stop()


def _new_bar(width: int) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn(f"{{task.description:<{width}}}")
    return Progress(text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=notices())
