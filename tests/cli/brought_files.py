"""Files that people bring, what a command has to say of each, and how that is judged."""

import codecs
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from smnn.cli import app

runner = CliRunner()
N = 64
SCREEN = 24
"""Lines of an error that fit on one screen."""


def rows(n: int = N) -> list[list[str]]:
    """A circle, slowly damped: x' = y, y' = -x, nearly."""
    t = 0.1 * np.arange(n)
    x, y = np.exp(-0.02 * t) * np.cos(t), -np.exp(-0.02 * t) * np.sin(t)
    return [[f"{v:.6f}" for v in row] for row in zip(t, x, y)]


def text(body: list[list[str]], between: str = ",", names: bool = True) -> str:
    head = [["t", "x", "y"]] if names else []
    return "\n".join(between.join(row) for row in [*head, *body]) + "\n"


def changed(column: int, value: str, every: int = 1) -> str:
    body = rows()
    for i in range(5, len(body), every):
        body[i][column] = value
    return text(body)


def shuffled() -> str:
    body = rows()
    random.Random(0).shuffle(body)
    return text(body)


def write(content: str | bytes) -> Callable[[Path], None]:
    raw = content.encode() if isinstance(content, str) else content
    return lambda path: path.write_bytes(raw) and None  # type: ignore[func-returns-value]


COMMAS = text([[v.replace(".", ",") for v in row] for row in rows()], ";")
FILES: dict[str, Callable[[Path], None]] = {
    "missing": lambda path: None,
    "folder": lambda path: path.mkdir(),
    "empty": write(""),
    "blank": write("\n \n\n"),
    "header only": write("t,x,y\n"),
    "text among numbers": write(changed(1, "broken", 20)),
    "a column of text": write(changed(1, "word").replace("\n0.", "\n0.", 1)),
    "one row": write(text(rows(1))),
    "two rows": write(text(rows(2))),
    "constant column": write(text([[t, "5", y] for t, _, y in rows()])),
    "all constant": write(text([[t, "5", "7"] for t, _, _ in rows()])),
    "some times twice": write(text(sorted(rows() + rows(4), key=lambda row: float(row[0])))),
    "every time twice": write(text(sorted(rows() * 2, key=lambda row: float(row[0])))),
    "unsorted": write(shuffled()),
    "nan only": write(text([[t, "nan", "NaN"] for t, _, _ in rows()])),
    "times nan only": write(text([["nan", x, y] for _, x, y in rows()])),
    "some nan": write(changed(1, "nan", 9)),
    "inf": write(changed(1, "inf", 30)),
    "negative inf": write(changed(2, "-Infinity", 30)),
    "binary": write(random.Random(0).randbytes(4000)),
    "zeros": write(b"\0" * 1000),
    "utf-16": write(text(rows()).encode("utf-16")),
    "bom": write(codecs.BOM_UTF8 + text(rows()).encode()),
    "latin-1": write(text(rows()).replace("y", "é").encode("latin-1")),
    "decimal commas": write(COMMAS),
    "semicolons": write(text(rows(), ";")),
    "no names": write(text(rows(), names=False)),
    "ragged": write(text(rows()) + "6.4,1.0,2.0,3.0\n"),
    "short row": write(text(rows()) + "6.4\n"),
    "same name twice": write(text(rows()).replace("t,x,y", "t,x,x")),
    "prose": write("This is a letter.\nIt has, here and there, commas.\n" * 5),
    "html": write("<!doctype html><html><body><p>404</p></body></html>\n"),
    "terminal codes": write(text(rows()).replace("x", "\x1b[31mx\x1b[0m")),
}

OK = None
"""A result is expected."""
NOT_TEXT = r"is not text|not a table|cannot be read|not UTF|no column|holds? (no|neither)|has no"

# What each command has to say; `OK` where it has to go on. A pattern that is not listed for a file
# is taken from "*".
TABLES: dict[str, str | None] = {
    "missing": r"there is no file|no such file",
    "folder": r"is a folder|Is a directory|directory|folder",
    "empty": r"is empty|no columns|there are no rows",
    "blank": r"is empty|no columns|there are no rows",
    "header only": r"no rows",
    "text among numbers": r"line 7: got 'broken'; expected a number|broken",
    "a column of text": OK,
    "one row": r"1 row|few|at least|short",
    "two rows": r"2 rows|few|at least|short",
    "constant column": OK,
    "all constant": r"no column of numbers that changes in time|constant",
    "some times twice": OK,
    "every time twice": OK,
    "unsorted": OK,
    "nan only": r"no column of numbers beside the time|no column holds numbers",
    "times nan only": r"got no times|time",
    "some nan": OK,
    "inf": r"line 7: got 'inf'; expected a number|infinite|inf",
    "negative inf": r"line 7: got '-Infinity'; expected a number|infinite|inf",
    "binary": NOT_TEXT,
    "zeros": NOT_TEXT,
    "utf-16": OK,
    "bom": OK,
    "latin-1": OK,
    "decimal commas": OK,
    "semicolons": OK,
    "no names": OK,
    "ragged": r"line 66: got more than 3 fields|66",
    "short row": OK,
    "same name twice": r"'x' 2 times; expected each name once",
    "prose": r".",
    "html": r".",
    "terminal codes": r"is not text",
}
DISCOVER = ["discover", "--library", "poly:1", "--ensemble", "0", "--holdout", "0"]


def run(words: list[str], path: Path, out: Path | None) -> Any:
    where = ["--out", str(out)] if out is not None else []
    return runner.invoke(app, [*words[:1], *_target(words, path), *where])


def _target(words: list[str], path: Path) -> list[str]:
    rest = words[1:]
    return [w.replace("FILE", str(path)) for w in rest] if any("FILE" in w for w in rest) else [
        str(path), *rest,
    ]  # fmt: skip


def judge(done: Any, expected: str | None, what: str) -> None:
    """Either a result, or an error that fits on a screen and says what it should."""
    shown = f"{what}: code {done.exit_code}\n{done.output}"
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    assert "Traceback" not in done.output, shown
    assert "(--debug shows where)" not in done.output, shown  # nobody thought of it
    assert "\x1b" not in done.output, shown
    if expected is OK:
        assert done.exit_code == 0, shown
        return
    assert done.exit_code == 2, shown
    assert "error: " in done.stderr, shown
    assert len(done.stderr.splitlines()) <= SCREEN, shown
    assert re.search(expected, " ".join(done.stderr.split())), shown
