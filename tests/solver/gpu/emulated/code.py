"""Parser of PTX as Triton prints it."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

_STATEMENT = re.compile(r"(?:@(!?%?\w+)\s+)?([\w.:]+)\s*(.*)")


class Instruction(NamedTuple):
    """An operation with its operands and the predicate of the lanes that execute it."""

    condition: str
    operation: str
    operands: list[str]
    line: int
    """Of the source."""


class Code(NamedTuple):
    """A kernel: its instructions and the positions of its labels."""

    instructions: list[Instruction]
    labels: dict[str, int]


def _operands(text: str) -> list[str]:
    """Split at commas that are not inside braces or brackets."""
    parts = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", text)
    return [re.sub(r"\s+", "", part) for part in parts]


@functools.lru_cache(maxsize=256)
def parsed(ptx: str) -> Code:
    """Parse the single kernel of a PTX text."""
    body = ptx[ptx.index(".entry") :]
    body = body[body.index("\n{") + 2 : body.index("\n}")]
    code, source = Code([], {}), 0
    for raw in body.splitlines():
        text = raw.split("//")[0].strip()
        if text.startswith(".loc"):
            source = int(text.split()[2])
        elif text.endswith(":"):
            code.labels[text[:-1]] = len(code.instructions)
        elif text.endswith((";", "}")):
            for statement in text.strip("{}").split(";"):  # inline assembly has several
                words = statement.strip()
                found = _STATEMENT.fullmatch(words)
                if found and not words.startswith("."):
                    condition, operation, rest = found.groups()
                    one = Instruction(condition or "", operation, _operands(rest), source)
                    code.instructions.append(one)
    return code
