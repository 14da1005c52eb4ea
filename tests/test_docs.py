"""Every Python block in README.md and docs/ runs and prints the output that it states.

The blocks of a page run in order in one namespace. Each comment `# -> text` is one line of the
expected output.
"""

import contextlib
import doctest
import importlib
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted(p for p in (ROOT / "docs").rglob("*.md") if "generated" not in p.parts)
PAGES = [ROOT / "README.md", *DOCS]
FENCE = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
ARROW = "# ->"
PACKAGES = ("smnn", "smnn.baselines", "smnn.compat", "smnn.datasets", "smnn.discovery",
            "smnn.equations", "smnn.forecasting", "smnn.nn", "smnn.training")  # fmt: skip


class Block(NamedTuple):
    code: str
    line: int


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(m[1], text.count("\n", 0, m.start(1))) for m in FENCE.finditer(text)]


def stated_output(code: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    comments = (token.string for token in tokens if token.type == tokenize.COMMENT)
    return [text.removeprefix(ARROW).strip() for text in comments if text.startswith(ARROW)]


def modules_with_examples() -> list[str]:
    source = ROOT / "src"
    paths = [p for p in sorted(source.rglob("*.py")) if ">>>" in p.read_text(encoding="utf-8")]
    parts = [p.relative_to(source).with_suffix("").parts for p in paths]
    return [".".join(p[:-1] if p[-1] == "__init__" else p) for p in parts]


@pytest.fixture(autouse=True)
def _own_settings() -> Iterator[None]:
    """Restore the default dtype, which a page may change."""
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name)
def test_blocks_run_and_print_what_they_state(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # examples may write files
    torch.manual_seed(0)
    namespace: dict[str, Any] = {"__name__": "__example__"}
    for block in blocks(page):
        # Leading newlines give tracebacks the line numbers of the page.
        program = compile("\n" * block.line + block.code, str(page), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(program, namespace)
        where = f"{name(page)}, block at line {block.line}"
        lines = [line.strip() for line in printed.getvalue().splitlines()]
        assert lines == stated_output(block.code), where


@pytest.mark.parametrize("module", modules_with_examples())
def test_docstring_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *DOCS], ids=name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [t for t in targets if not (page.parent / t).exists()] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_reference(package: str) -> None:
    reference = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "docs/api").glob("*.md"))
    module = importlib.import_module(package)
    names = [n for n in module.__all__ if not n.startswith("__") and n != "OBSERVED"]
    # `smnn.ode_forward` is listed in `smnn.compat`.
    listed = re.findall(r"^::: (\S+)$|members: \[(.*)\]", reference, re.MULTILINE)
    known = {w.split(".")[-1] for one, many in listed for w in (one, *many.split(", ")) if w}
    assert [n for n in names if n not in known] == []


def test_every_public_package_is_in_the_reference() -> None:
    reference = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "docs/api").glob("*.md"))
    folders = (p.parent.name for p in (ROOT / "src" / "smnn").glob("*/__init__.py"))
    public = {f"smnn.{name}" for name in folders if not name.startswith("_")} - {"smnn.cli"}
    assert {p for p in public if f"::: {p}" not in reference} == set()
    assert "smnn.OBSERVED" not in reference
    assert "`smnn.nn.OBSERVED`" in reference


def test_every_page_is_in_the_navigation() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = re.findall(r"^ +- (?:.*: )?(\S+\.md)$", config, re.MULTILINE)
    assert sorted(nav) == sorted(p.relative_to(ROOT / "docs").as_posix() for p in DOCS)


def test_extras_that_pages_name_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = set(project["optional-dependencies"])
    pages = "\n".join(p.read_text(encoding="utf-8") for p in PAGES)
    named = {
        n for m in re.findall(r"""["'](?:\.|smnn)\[([\w,]+)\]["']""", pages) for n in m.split(",")
    }
    assert named
    assert named - known == set()
