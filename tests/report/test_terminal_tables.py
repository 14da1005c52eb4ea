"""Tables on a terminal: names come from files and must not act."""

import io

from rich.console import Console

from smnn.report.tables import Cell, Row, Table, rich_table


def test_names_are_only_ever_text() -> None:
    table = Table("title", ["value"], "caption")
    table.rows.append(
        Row(
            "[red]a[/]",
            "b\x1b[2J",
            [
                Cell("1\x07"),
            ],
        )
    )
    shown = io.StringIO()
    Console(file=shown, width=80, force_terminal=False).print(rich_table(table))
    text = shown.getvalue()
    assert "[red]a[/]" in text
    assert "b�[2J" in text
    assert "\x1b" not in text
    assert "\x07" not in text
