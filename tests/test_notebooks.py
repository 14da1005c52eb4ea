"""Every notebook runs, prints what is stored in it, and has an up-to-date page."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import notebooks as tool  # noqa: E402

NUMBER = re.compile(r"[-+]?\d[\d,.]*(?:e[-+]?\d+)?")


def printed(notebook: dict[str, Any]) -> str:
    outputs = [o for cell in notebook["cells"] for o in cell.get("outputs", [])]
    return "".join("".join(o["text"]) for o in outputs if o["output_type"] == "stream")


def kinds(notebook: dict[str, Any]) -> list[list[str]]:
    outputs = [o for cell in notebook["cells"] for o in cell.get("outputs", [])]
    return [sorted(o.get("data", {"text": ""})) for o in outputs]


def test_all_notebooks_are_known() -> None:
    assert {path.stem for path in tool.NOTEBOOKS.glob("*.ipynb")} == set(tool.NAMES)
    assert {path.stem for path in tool.PAGES.glob("*.md")} == set(tool.NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", tool.NAMES)
def test_notebook(name: str) -> None:
    torch.set_default_dtype(torch.float32)
    stored, again = tool.load(name), tool.load(name)
    tool.run(again)
    assert kinds(again) == kinds(stored)
    assert NUMBER.sub("#", printed(again)) == NUMBER.sub("#", printed(stored))


@pytest.mark.parametrize("name", tool.NAMES)
def test_page(name: str) -> None:
    page = (tool.PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert page == tool.page(name, tool.load(name))
