"""What the commands have in common: a bar of named stages, and results on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from smnn.cli._guard import notices, plain

if TYPE_CHECKING:
    from smnn.report.tables import Table


@contextmanager
def progress(
    total: int, unit: str, first: str, last: str = "Done", width: int = 22
) -> Iterator[Callable[[str], None]]:
    """A bar over `total` units; what is yielded is called with the name of each that is begun."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn(f"{{task.description:<{width}}}"), BarColumn(), MofNCompleteColumn(),
        TextColumn(unit), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=notices()) as bar:
        task = bar.add_task(first, total=total)

        def tick(name: str) -> None:
            bar.update(task, description=name, advance=1)

        yield tick
        bar.update(task, description=last)


def show(
    tables: Iterable[Table],
    summary: Iterable[tuple[str, str]],
    report: Path,
    *,
    before: Iterable[str] = (),
    after: Iterable[str] = (),
) -> None:
    """Tables, lines, the summary, more lines, and where the report is."""
    from smnn.report.tables import rich_table

    console = Console(highlight=False)
    for table in tables:
        console.print()
        console.print(rich_table(table))
    console.print()
    for line in before:
        console.print(line, soft_wrap=True, markup=False)
    if before:
        console.print()
    for value, meaning in summary:
        console.print(f"[bold]{value}[/]  {meaning}")
    for line in after:
        console.print(line, soft_wrap=True, markup=False)
    console.print()
    console.print(f"Report: {plain(str(report))}", soft_wrap=True)
