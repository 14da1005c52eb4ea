"""No file that is read can execute code."""

import ast
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smnn
from smnn.data import TableError, read_table
from smnn.datasets.kdv import KdVFileError, read_file
from smnn.datasets.sst import DataFormatError, read_grid, read_nino
from smnn.discovery import Discovery, ModelFileError
from smnn.forecasting import SeriesError, read_series
from smnn.training import (
    CheckpointError,
    ConfigError,
    Damping,
    SeriesWindows,
    TrainConfig,
    fit,
    load_task,
    oscillations,
)

SOURCE = Path(smnn.__file__).parent
MODULES = {
    "pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "code",
}  # fmt: skip
CALLS = {
    "eval", "exec", "compile", "__import__", "sympify", "parse_expr", "lambdify", "read_pickle",
    "read_hdf", "popen", "broadcast_object_list", "all_gather_object", "scatter_object_list",
}  # fmt: skip
WHOLE = {"torch.load", "os.system", "os.popen", "sympy.S", "ast.literal_eval"}
# Exceptions, and why data cannot reach them.
ALLOWED = {
    ("_solver/gpu/launch.py", "exec"): "kernels are generated from whole numbers only",
    ("_solver/gpu/launch.py", "compile"): "the same",
}


def called(node: ast.Call) -> str:
    part = node.func
    if isinstance(part, ast.Attribute):
        # re.compile and torch.compile do not execute code.
        owner = part.value.id if isinstance(part.value, ast.Name) else ""
        return "" if part.attr in ("compile", "eval") and owner != "builtins" else part.attr
    return part.id if isinstance(part, ast.Name) else ""


def dangers(tree: ast.AST) -> list[str]:
    """Calls and imports of a module by which data could be executed."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            found.append(str(node.module))
        elif isinstance(node, ast.Call):
            name = called(node)
            owner = ast.unparse(node.func)
            words = {k.arg: ast.unparse(k.value) for k in node.keywords}
            if name in CALLS:
                found.append(name)
            elif owner in WHOLE:
                found.append(owner)
            elif owner in ("np.load", "numpy.load") and words.get("allow_pickle") != "False":
                found.append("np.load without allow_pickle=False")
            elif name in ("require", "import_module") and node.args:
                text = ast.unparse(node.args[0]).strip("'\"").split(".")[0]
                found += [text] if text in MODULES else []
    return found


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE))
)
def test_source_executes_no_data(path: Path) -> None:
    place = path.relative_to(SOURCE).as_posix()
    found = dangers(ast.parse(path.read_text(encoding="utf-8")))
    assert [x for x in found if (place, x) not in ALLOWED] == []


def test_source_scan_detects_dangerous_calls() -> None:
    text = (
        "import pickle\nfrom yaml import load\neval('1')\ntorch.load('x')\nnp.load('x')\n"
        "np.load('x', allow_pickle=True)\nexec('1')\nrequire('joblib', 'x')\nos.system('x')\n"
        "sympy.sympify('x')\nre.compile('x')\nmodel.eval()\nnp.load('x', allow_pickle=False)\n"
    )
    assert dangers(ast.parse(text)) == [
        "pickle", "yaml", "eval", "torch.load", "np.load without allow_pickle=False",
        "np.load without allow_pickle=False", "exec", "joblib", "os.system", "sympify",
    ]  # fmt: skip


class Malice:
    """Creates a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.path),))


READERS: list[tuple[str, Callable[[Path], object], type[Exception]]] = [
    ("x.json", Discovery.load, ModelFileError),
    ("x.json", read_table, TableError),
    ("x.csv", read_table, TableError),
    ("x.npy", read_table, TableError),
    ("x.npz", read_table, TableError),
    ("x.pt", read_table, TableError),
    ("x.nc", read_table, TableError),
    ("x.nc", read_grid, DataFormatError),
    ("x.for", read_nino, DataFormatError),
    ("x.csv", read_series, SeriesError),
    ("x.nc", read_series, SeriesError),
    ("x.h5", read_file, KdVFileError),
    ("x.npy", lambda path: SeriesWindows(path, 2), smnn.ShapeError),
    ("x.safetensors", load_task, CheckpointError),
]


@pytest.mark.parametrize(
    ("name", "reader", "error"), READERS, ids=[f"{n} {e.__name__}" for n, _, e in READERS]
)
def test_disguised_pickle_is_not_executed(
    tmp_path: Path, name: str, reader: Callable[[Path], object], error: type[Exception]
) -> None:
    trap = tmp_path / "sprung"
    folder = tmp_path / "files"
    folder.mkdir()
    evil = Malice(trap)
    path = folder / name
    contents = [pickle.dumps(evil, protocol) for protocol in (0, 4)]
    with zipfile.ZipFile(tmp_path / "torch.zip", "w") as archive:  # as torch.save writes it
        archive.writestr("archive/data.pkl", pickle.dumps(evil))
    contents.append((tmp_path / "torch.zip").read_bytes())
    for suffix, save in ((".npy", np.save), (".npz", np.savez)):
        holder = np.empty(1, object)
        holder[0] = evil
        save(tmp_path / f"objects{suffix}", holder, allow_pickle=True)
        contents.append((tmp_path / f"objects{suffix}").read_bytes())
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(error):
            reader(path)
    assert not trap.exists()
    pickle.loads(contents[0])
    assert trap.exists()  # the trap works


@pytest.mark.parametrize(
    "changes",
    [
        {"task": ["damping"]}, {"task_config": None}, {"task_config": {"x": 1}},
        {"precision": "float128"}, {"task_state": []}, {"task_state": {"x": 1}},
    ],
)  # fmt: skip
def test_forged_records_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Also with a valid digest."""
    from internals import checkpoint

    config = TrainConfig(max_steps=1, tensorboard=False)
    run = fit(Damping(), oscillations(8), config, tmp_path / "run", progress=False)
    record, tensors = checkpoint.read_checkpoint(run.checkpoint)
    forged = checkpoint.Checkpoint({**record, **changes}, tensors)
    with pytest.raises((CheckpointError, ConfigError)):
        load_task(checkpoint.write_checkpoint(tmp_path / "x.safetensors", forged))
