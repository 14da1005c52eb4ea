"""The shape of the code base: one-way data flow, small files, nothing that belongs elsewhere."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "smnn"
FILES = sorted(PACKAGE.rglob("*.py"))
BESIDE = [p for folder in ("tests", "tools", "benchmarks") for p in (ROOT / folder).rglob("*.py")]
MAX_LINES = 400

# A module may import from the layers above its own, and from nothing beside or below it.
# Names are files or folders of src/smnn; a new one is given its place here, on purpose.
LAYERS = [
    {"_errors", "_files", "_machine", "_optional", "_taylor", "_tracing"},
    {"datasets"},  # problems and data with known answers
    {"_problem"},  # what is to be solved
    {"_rows", "_status"},  # the same as rows; did it work
    {"_backends"},  # the same answer, several ways
    {"_ops"},  # its derivatives
    {"_eager"},  # the same with less overhead
    {"_look", "_recompute"},  # a closer look at a sample; less memory
    {"_factorize"},  # a left-hand side that is kept
    {"_solve"},  # the public functions
    {"baselines", "nn", "report"},  # the original MNN; inside a network; pages and tables
    {"compat", "training"},  # the published interfaces; learned
    {"discovery", "forecasting"},  # used on somebody's data
    {"experiments"},  # the paper
    {"cli"},  # the person
]
# The same inside the folder of backends.
BACKEND_LAYERS = [
    {"_layout", "base", "_gpu_mode", "_native"},
    {"_simd", "_gpu_emit", "_gpu_native", "_cpu_native"},
    {"_lanes", "_gpu_clock", "_gpu_norms", "_gpu_launch"},
    {"_gpu_rows"},
    {"_gpu_source", "_gpu_together", "_gpu_wide", "_gpu_triangle", "_gpu_blocks_source"},
    {"_gpu_level_source", "_gpu_refine_source"},
    {"_gpu_reduction_levels", "_gpu_reduction_source"},
    {"_pieces", "_gpu_chain", "_gpu_substitute", "_gpu_wide_substitute", "_gpu_large"},
    {"_addresses", "_gpu_large_rows", "_gpu_large_substitute", "_gpu_tile_rows", "_gpu_panel"},
    {"_eliminate", "_gpu_wide_source", "_gpu_large_source"},
    {"_row_gradients", "_separators", "_substitute", "_gpu_panel_source"},
    {"_forward", "_backward", "_gpu_kernels"},
    {"_gpu_plan", "_gpu_reduction_kernels"},
    {"_gpu_reduction_plan"},
    {"_gpu_work"},
    {"_gpu_prepared"},
    {"cpu", "cyclic", "reference"},
    {"_gpu_reduction"},
    {"gpu"},
    {"registry"},
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


def imports(path: Path) -> Iterator[str]:
    """Modules below `smnn` that a file imports anywhere, also inside functions."""
    package = ["smnn", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            # `from smnn.a import b` may name the module a.b or a name inside a: both are listed.
            names = [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (
            n.removeprefix("smnn").removeprefix(".") for n in names if n.split(".")[0] == "smnn"
        )


def rank(name: str, layers: list[set[str]]) -> int | None:
    return next((i for i, layer in enumerate(layers) if name in layer), None)


def violations(root: str, layers: list[set[str]]) -> list[str]:
    """Imports that go sideways or upwards among the children of `root`."""
    prefix = f"{root}." if root else ""
    found = []
    for path in FILES:
        name = module(path)
        if not name.startswith(prefix) or name == root:
            continue  # the package's own __init__ gathers what is below it
        own = name.removeprefix(prefix).split(".")[0]
        for target in imports(path):
            if not target.startswith(prefix):
                continue
            other = target.removeprefix(prefix).split(".")[0]
            theirs, ours = rank(other, layers), rank(own, layers)
            if other != own and theirs is not None and ours is not None and theirs >= ours:
                found.append(f"{name} imports {target}")
    return sorted(set(found))


def children(root: str) -> set[str]:
    folder = PACKAGE / root
    names = {p.stem for p in folder.glob("*.py")} | {
        p.parent.name for p in folder.glob("*/__init__.py")
    }
    return names - {"__init__", "__main__"}


@pytest.mark.parametrize(("root", "layers"), [("", LAYERS), ("_backends", BACKEND_LAYERS)])
class TestLayers:
    def test_every_module_has_a_place(self, root: str, layers: list[set[str]]) -> None:
        assert children(root) - set().union(*layers) == set()

    def test_imports_go_one_way(self, root: str, layers: list[set[str]]) -> None:
        assert violations(root, layers) == []


def test_files_beside_the_package_are_short() -> None:
    found = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in BESIDE}
    assert {name: lines for name, lines in found.items() if lines > MAX_LINES} == {}


@pytest.mark.parametrize("path", FILES, ids=lambda p: module(p) or "smnn")
def test_files_are_small(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


def test_no_tensor_state_in_classes_or_modules() -> None:
    """Factors live in the call: no `global`, and in the solver no `register_buffer`."""
    state = re.compile(r"^\s*global\s", re.MULTILINE)
    assert [module(p) for p in FILES if state.search(p.read_text(encoding="utf-8"))] == []
    solver = [p for p in FILES if module(p).startswith("_")]
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
