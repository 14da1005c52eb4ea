"""The shape of the code base: small folders, imports in one direction, short functions."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "smnn"
FILES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = sorted({p.parent for p in FILES})
BESIDE = [p for folder in ("tests", "tools", "benchmarks") for p in (ROOT / folder).rglob("*.py")]
MAX_LINES, MAX_COMMAND = 800, 150
MAX_FILES = 13
MAX_LAYERS = 5
CIRCLE = 99

# A package imports only from the packages in rows above its own.
PACKAGES = [
    {"errors"},
    {"_util"},
    {"_solver"},
    {"report"},
    {"baselines", "nn", "nonlinear"},
    {"equations"},
    {"compat", "data", "training"},
    {"datasets"},
    {"discovery", "forecasting"},
    {"experiments"},
    {"cli"},
]

UNWANTED = {
    "a path of one machine": r"(?<![\w.$}/])/(home|work|root|mnt|nfs|scratch|Users|opt|tmp)/\w",
    "an address of a package index": r"index-url|find-links|pypi\.org/simple|files\.pythonhosted",
    "something unfinished": r"\b(TODO|FIXME|XXX|HACK)\b",
    "a marketing word": r"(?i)\b(blazing|seamless\w*|cutting-edge|revolutionary|effortless\w*"
    r"|state-of-the-art|world-class|game-chang\w+)\b",
}
TEXT = {".py", ".md", ".toml", ".txt", ".yml", ".cff", ".json", ""}
SKIPPED = {
    "assets",
    "site",
    "demo-output",
    "bench-output",
    "shared",
    "dist",
    "build",
    "__pycache__",
}


def module(path: Path) -> str:
    """Dotted name below `smnn`; the package itself is the empty string."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(p) for p in FILES}


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[str]:
    """Modules below `smnn` that a file imports, also inside functions; not those for types only."""
    tree = parsed(path)
    typing = [n for n in ast.walk(tree) if isinstance(n, ast.If) and _type_checking(n.test)]
    skipped = {id(x) for n in typing for x in ast.walk(n)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from smnn.a import b` may name the module a.b or a name inside a.
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [f if f.removeprefix("smnn.") in MODULES else node.module for f in full]
        else:
            continue
        yield from (n.removeprefix("smnn").removeprefix(".") for n in names if _ours(n))


def _type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _ours(name: str) -> bool:
    return name.split(".")[0] == "smnn"


def within(folder: Path) -> dict[str, set[str]]:
    """The modules and packages of a folder, and which of each other they import."""
    prefix = module(folder / "__init__.py")
    prefix = f"{prefix}." if prefix else ""
    graph: dict[str, set[str]] = {}
    for path in folder.rglob("*.py"):
        if path == folder / "__init__.py":
            continue  # the package's own __init__ gathers what is below it
        own = module(path).removeprefix(prefix).split(".")[0]
        targets = (t.removeprefix(prefix) for t in imports(path) if t.startswith(prefix))
        graph.setdefault(own, set()).update(t.split(".")[0] for t in targets if t)
    return {own: others & set(graph) - {own} for own, others in graph.items()}


def layers(graph: dict[str, set[str]]) -> int:
    """Length of the longest chain of imports; `CIRCLE` or more if imports go in a circle."""

    def depth(name: str, above: tuple[str, ...]) -> int:
        if name in above:
            return CIRCLE
        return 1 + max((depth(x, (*above, name)) for x in graph[name]), default=0)

    return max((depth(name, ()) for name in graph), default=0)


def test_every_package_has_a_place() -> None:
    children = set(within(PACKAGE)) | {"errors"}
    assert children - {"__main__"} == set().union(*PACKAGES)


def test_packages_import_in_one_direction() -> None:
    rank = {name: i for i, row in enumerate(PACKAGES) for name in row}
    graph = within(PACKAGE)
    wrong = [f"{a} imports {b}" for a, bs in graph.items() for b in bs if rank[b] >= rank[a]]
    assert wrong == []


@pytest.mark.parametrize("folder", [f for f in FOLDERS if f != PACKAGE], ids=lambda p: p.name)
def test_folders(folder: Path) -> None:
    assert len([*folder.glob("*.py")]) <= MAX_FILES
    assert layers(within(folder)) <= MAX_LAYERS


def test_packages_use_only_public_names_of_each_other() -> None:
    wrong = []
    for path in FILES:
        own = module(path).split(".")[0]
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.ImportFrom) or not _ours(node.module or ""):
                continue
            parts = (node.module or "").split(".")[1:]
            other, inside = (parts[0], parts[1:]) if parts else ("", [])
            names = [*inside, *(alias.name for alias in node.names)]
            private = [n for n in names if n.startswith("_") and not n.startswith("__")]
            if other and other != own and private:
                wrong.append(f"{module(path)} imports {node.module}: {', '.join(private)}")
    assert wrong == []


def test_files_have_a_moderate_length() -> None:
    lines = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in (*FILES, *BESIDE)}
    assert [p for p, count in lines.items() if count > MAX_LINES] == []


def test_files_of_commands_are_short() -> None:
    files = (PACKAGE / "cli").rglob("*.py")
    lines = {module(p): len(p.read_text(encoding="utf-8").splitlines()) for p in files}
    assert {name for name, count in lines.items() if count > MAX_COMMAND} == set()


def test_functions_are_short() -> None:
    long = []
    for path in FILES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
                if lines > 60:
                    long.append(f"{module(path)}.{node.name}")
    assert long == []


def test_no_tensor_state_in_classes_or_modules() -> None:
    """Factors live in the call: no `global`, and in the solver no `register_buffer`."""
    state = re.compile(r"^\s*global\s", re.MULTILINE)
    assert [module(p) for p in FILES if state.search(p.read_text(encoding="utf-8"))] == []
    solver = [p for p in FILES if module(p).startswith("_solver")]
    assert [module(p) for p in solver if "register_buffer" in p.read_text("utf-8")] == []


def text_files() -> Iterator[Path]:
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = [x for x in subfolders if x not in SKIPPED and not x.startswith(".")]
        paths = (Path(folder) / name for name in names if not name.startswith("."))
        yield from (p for p in paths if p.suffix in TEXT and p != Path(__file__).resolve())


@pytest.mark.parametrize("what", UNWANTED)
def test_text_is_free_of(what: str) -> None:
    pattern = re.compile(UNWANTED[what])
    found = []
    for path in text_files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == [], what
