"""Run `smnn discover` on an oscillator, and parse its page."""

import csv
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import typer
from typer.testing import CliRunner

from smnn.cli.discover import discover

runner = CliRunner()
app = typer.Typer()
app.command("discover")(discover)
app.callback()(lambda: None)


def oscillator(path: Path, n: int = 160, **columns: Any) -> Path:
    """x' = y, y' = -4 x - 0.2 y, with a little noise."""
    t = 0.05 * np.arange(n)
    w, decay = np.sqrt(3.99), np.exp(-0.1 * t)
    x = decay * (np.cos(w * t) + 0.1 / w * np.sin(w * t))
    y = -4 / w * decay * np.sin(w * t)
    noise = 0.002 * np.random.default_rng(0).standard_normal((2, n))
    data = {"t": t, "x": x + noise[0], "y": y + noise[1]} | columns
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(data)
        writer.writerows(zip(*data.values()))
    return path


def invoke(*words: object) -> Any:
    return runner.invoke(app, ["discover", *map(str, words)])


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts = 0
        self.texts: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href")]
        assert not [k for k, _ in attrs if k.startswith("on")]
        if tag not in ("meta", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "path":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def check_page(text: str) -> Page:
    """Check that a page is well-formed and self-contained."""
    found = Page(text)
    assert found.open == []
    assert found.scripts == 1
    assert all(a.startswith(("#", "data:text/plain;base64,")) for a in found.addresses)
    assert not any("nan" in path for path in re.findall(r' d="[^"]*"', text))
    return found
