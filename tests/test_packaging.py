"""Wheel, sdist, metadata, and whether each extra is sufficient and minimal.

Nothing is downloaded: the archives are built with the installed hatchling, and the wheel is
installed without dependencies, which are taken from this environment.
"""

import ast
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "smnn"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
USED = (
    "data", "zarr", "discovery", "forecasting", "training", "distributed", "experiments", "gpu",
    "peers",
)  # fmt: skip
"""Extras for users; the others are for development."""
DISTRIBUTION = {
    "PIL": "pillow", "sklearn": "scikit-learn", "lightning_fabric": "pytorch-lightning",
    "pytorch_lightning": "pytorch-lightning",
}  # fmt: skip
BROUGHT_BY = {"pillow": "matplotlib", "threadpoolctl": "scikit-learn"}
"""Packages that are always installed with another dependency."""
NOT_PINNED = {"statsforecast"}
"""Peers in no extra: statsforecast needs fugue, which needs an older pandas than the pinned one."""
AT_HOME = {
    "_solver": {"triton"},
    "data": {"pandas"},
    "datasets/fields/_columns.py": {"sympy"},
    "datasets/fields/_spectral.py": {"sympy"},
    "discovery": {"pandas", "scikit-learn", "sympy"},
    "equations": {"sympy"},
    "experiments/pde_bench/run.py": {"sympy"},
    "experiments/pde_bench/sindy.py": {"sympy"},
    "report/maths.py": {"sympy"},
}
"""Optional packages that a part of smnn always needs, and may import without `require`."""


def plain(requirement: str) -> str:
    """Normalized name of a requirement."""
    return re.split(r"[ <>=!~;\[(]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def needs(extra: str | None = None) -> set[str]:
    """Names required by the package, or by one of its extras."""
    listed = PROJECT["dependencies"] if extra is None else EXTRAS[extra]
    found = {plain(r) for r in listed} - {"smnn"}
    for inner in (r for r in listed if r.startswith("smnn[")):
        for name in inner[len("smnn[") :].rstrip("]").split(","):
            found |= needs(name.strip())
    return found


# ---------------------------------------------------------------- the archives


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel and source archive."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    return build("wheel", ROOT, folder), build("sdist", ROOT, folder)


def build(kind: str, source: Path, into: Path) -> Path:
    code = f"import hatchling.build as b; print(b.build_{kind}({str(into)!r}))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    return into / run.stdout.split()[-1]


def files_of_the_package() -> set[str]:
    paths = (p for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {p.relative_to(PACKAGE.parent).as_posix() for p in paths}


def test_wheel_holds_the_package_and_nothing_else(archives: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(archives[0]) as wheel:
        names = set(wheel.namelist())
    inside = {n for n in names if n.startswith("smnn/")}
    assert inside == files_of_the_package()
    assert {n.split("/")[0] for n in names - inside} == {f"smnn-{PROJECT['version']}.dist-info"}
    assert {"smnn/py.typed", "smnn/datasets/data/oisst_v2_monthly_2p5deg.nc",
            "smnn/datasets/data/nino_weekly_1990_2020.for",
            "smnn/experiments/kdv/weights/modes/weights.safetensors"} <= inside  # fmt: skip
    assert not [n for n in names if "test" in PurePosixPath(n).name.lower().split("_")[0]]
    assert archives[0].stat().st_size < 8e6


def test_metadata(archives: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(archives[0]) as wheel:
        folder = f"smnn-{PROJECT['version']}.dist-info"
        text = wheel.read(f"{folder}/METADATA").decode()
        scripts = wheel.read(f"{folder}/entry_points.txt").decode()
        assert f"{folder}/licenses/LICENSE" in wheel.namelist()
    assert f"Version: {PROJECT['version']}\n" in text
    assert "License-Expression: MIT\n" in text
    assert set(re.findall(r"Provides-Extra: (\S+)", text)) == set(EXTRAS)
    assert "smnn = smnn.cli:main" in scripts


def test_source_archive_builds_the_same_wheel(archives: tuple[Path, Path], tmp_path: Path) -> None:
    with tarfile.open(archives[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    for needed in ("README.md", "LICENSE", "Makefile", "constraints.txt", "tests/conftest.py",
                   "examples/gallery/lorenz.py", "docs/index.md", "tools/gallery.py"):  # fmt: skip
        assert (folder / needed).is_file(), needed
    assert not [p for p in folder.rglob("*") if p.name in {"__pycache__", ".git", ".venv"}]
    again = build("wheel", folder, tmp_path)
    with zipfile.ZipFile(again) as a, zipfile.ZipFile(archives[0]) as b:
        assert sorted(a.namelist()) == sorted(b.namelist())


def test_wheel_works_in_an_empty_environment(archives: tuple[Path, Path], tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps"]
    command = [*install, "--no-index", "--quiet", archives[0]]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    # Dependencies come from this environment; .pth files of an editable smnn are not read.
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    code = (
        "import smnn, torch; from smnn.datasets import sst; print(smnn.__file__);"
        "c = torch.ones(1, 1, 1, 2); y = smnn.solve(c, torch.zeros(1, 1), torch.ones(1, 1, 1),"
        "torch.full((50,), 0.02), order=4, backend='torch');"
        "print(f'{y[-1, 0, 0]:.5f}', len(sst.nino().time))"
    )
    run = subprocess.run([python, "-c", code], env=environment, cwd=tmp_path, capture_output=True,
                         text=True, timeout=300)  # fmt: skip
    assert run.returncode == 0, run.stderr
    where, answer = run.stdout.splitlines()
    assert Path(where).is_relative_to(tmp_path)
    assert answer == "0.36788 1604"
    command = [tmp_path / "env" / "bin" / "smnn", "--version"]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert PROJECT["version"] in run.stdout


# ---------------------------------------------------------------- version and citation


def test_there_is_one_version() -> None:
    version = PROJECT["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?", version)
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert cited is not None
    assert cited[1] == version
    elsewhere = [
        p for p in PACKAGE.rglob("*.py") if re.search(r"__version__ = \"\d", p.read_text("utf-8"))
    ]
    assert [p.name for p in elsewhere if '"0+unknown"' not in p.read_text("utf-8")] == []


def test_citation_file() -> None:
    yaml = pytest.importorskip("yaml")
    record = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert record["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "type", "license"} <= set(record)
    assert record["license"] == PROJECT["license"]
    paper = record["preferred-citation"]
    assert paper["type"] == "conference-paper"
    assert [a["family-names"] for a in paper["authors"]] == [
        "Chen", "Yao", "Pervez", "Alistarh", "Locatello"]  # fmt: skip
    assert paper["start"] < paper["end"]
    assert isinstance(paper["year"], int)


# ---------------------------------------------------------------- imports


class Import:
    """An import of a third-party package."""

    def __init__(self, path: Path, module: str, how: str) -> None:
        self.where = path.relative_to(PACKAGE).as_posix()
        self.part = self.where.split("/")[0].removesuffix(".py")
        self.name = DISTRIBUTION.get(module, module).lower()
        self.how = how

    def __repr__(self) -> str:
        return f"{self.where}: {self.name} ({self.how})"


def third_party() -> Iterator[Import]:
    own = {*sys.stdlib_module_names, "smnn"}
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        guarded = {
            id(x) for node in ast.walk(tree) if isinstance(node, ast.If)
            and "TYPE_CHECKING" in ast.unparse(node.test) for x in ast.walk(node)
        }  # fmt: skip
        for node in ast.walk(tree):
            names: list[str] = []
            how = "import"
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("require"):
                first = node.args[0] if node.args else None
                names = [str(first.value)] if isinstance(first, ast.Constant) else []
                how = "require"
            how = "types" if id(node) in guarded else how
            for module in {n.split(".")[0] for n in names} - own:
                yield Import(path, module, how)


IMPORTS = list(third_party())


def test_every_imported_package_is_a_dependency() -> None:
    asked = needs().union(*(needs(e) for e in USED))
    missing = [i for i in IMPORTS if BROUGHT_BY.get(i.name, i.name) not in asked | NOT_PINNED]
    assert missing == []


def test_optional_packages_are_required_by_name() -> None:
    """Optional packages are imported with `require`, which names the extra to install."""
    core = needs()
    asked_in = {(i.where, i.name) for i in IMPORTS if i.how == "require"}
    bare = [
        i for i in IMPORTS
        if i.how == "import"
        and not {i.name, BROUGHT_BY.get(i.name)}
        & core.union(AT_HOME.get(i.part, ()), AT_HOME.get(i.where, ()))
        and (i.where, i.name) not in asked_in
    ]  # fmt: skip
    assert bare == []


@pytest.mark.parametrize("extra", USED)
def test_extras_are_minimal(extra: str) -> None:
    """No extra contains a core dependency or a package that is never imported."""
    assert needs(extra) & needs() == set()
    imported = {BROUGHT_BY.get(i.name, i.name) for i in IMPORTS}
    imported |= {"tensorboard", "openpyxl"}  # by torch.utils.tensorboard, and as engine of pandas
    assert needs(extra) - imported == set()


# ---------------------------------------------------------------- extras

BLOCK = """
import sys
from importlib.machinery import PathFinder
class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.split(".")[0] not in {absent!r}:
            return PathFinder.find_spec(name, path, target)
sys.meta_path = [Without if f is PathFinder else f for f in sys.meta_path]
"""
CLAIMS = {
    None: """
import importlib, numpy as np, torch
for name in ("baselines", "compat", "nn", "datasets.dynamics", "report.page", "report.tables"):
    importlib.import_module("smnn." + name)
from smnn.forecasting import Forecaster
t = np.arange(60)
forecast = Forecaster(season=12).fit(np.sin(2 * np.pi * t / 12) + 0.01 * t, horizon=6).predict()
assert abs(forecast.mean[0] - 0.6) < 0.05
from typer.testing import CliRunner
from smnn.cli import app
assert CliRunner().invoke(app, ["--help"]).exit_code == 0
""",
    "discovery": """
import numpy as np
from smnn.discovery import Discovery, read_table
t = np.arange(0, 5, 0.1)
open("decay.csv", "w").write("t,x\\n" + "\\n".join(f"{a},{np.exp(-a)}" for a in t))
table = read_table("decay.csv")
model = Discovery(library="poly:2", ensemble=0).fit(np.exp(-t)[:, None], t=t, feature_names=["x"])
assert model.equations() == ["x' = -1.000 x"]
""",
    "forecasting": """
from importlib import resources
from smnn.forecasting import read_series
open("s.csv", "w").write("date,y\\n" + "\\n".join(f"2020-{m:02d}-01,{m}" for m in range(1, 13)))
assert read_series("s.csv").shape == (12, 1)
grid = resources.files("smnn.datasets") / "data" / "oisst_v2_monthly_2p5deg.nc"
assert read_series(grid).dims == ("time", "lat", "lon")
""",
    "training": """
from smnn.training import Damping, TrainConfig, fit, load_task, oscillations
data = oscillations(samples=8)
fit(Damping(), data, TrainConfig(epochs=1, batch_size=8), out="run", progress=False)
load_task("run")
""",
    "experiments": """
import importlib, pkgutil, smnn.experiments
for module in pkgutil.iter_modules(smnn.experiments.__path__):
    importlib.import_module("smnn.experiments." + module.name)
""",
}


def closure(names: set[str]) -> set[str]:
    """Distributions with all their dependencies."""
    packaging = pytest.importorskip("packaging.requirements")
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        try:
            wanted = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        for requirement in map(packaging.Requirement, wanted):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(plain(requirement.name))
    return found


@pytest.mark.parametrize("extra", CLAIMS)
def test_extra_is_enough(extra: str | None, tmp_path: Path) -> None:
    allowed = closure(needs() | (needs(extra) if extra else set()))
    absent = {
        module for module, owners in metadata.packages_distributions().items()
        if not {plain(o) for o in owners} & allowed
    } - {"smnn"} - set(sys.stdlib_module_names)  # fmt: skip
    if extra is None:
        assert {"pandas", "sklearn", "sympy", "xarray", "safetensors"} & set(absent) or (
            len(metadata.packages_distributions()) < 40  # none of them in a small environment
        )
    program = BLOCK.format(absent=absent) + CLAIMS[extra]
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
