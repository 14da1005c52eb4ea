"""The readers under test, their inputs, and the errors that they may raise.

A target writes its input to a file, if the reader takes one, and calls the reader. An error of a
documented class with a message is a valid outcome; any other error is a bug. Accepted input is
checked as well.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fuzz_inputs as inputs
import numpy as np
from hypothesis import strategies as st

from smnn.data import TableError, read_table
from smnn.datasets.kdv import KdVFileError, read_file
from smnn.datasets.sst import DataFormatError, read_grid, read_nino
from smnn.discovery import Discovery, ModelFileError
from smnn.discovery.libraries import Library, LibraryError, parse_library
from smnn.equations import ExpressionError, parse_expression
from smnn.forecasting import SeriesError, read_series
from smnn.training import (
    CheckpointError,
    ConfigError,
    Damping,
    TrainConfig,
    TrainingError,
    fit,
    load_task,
    load_weights,
    oscillations,
    registered_tasks,
)

Errors = tuple[type[Exception], ...]


@dataclass(frozen=True)
class Target:
    """A reader."""

    name: str
    errors: Errors
    """Documented errors."""
    strategy: Callable[[], st.SearchStrategy[Any]]
    check: Callable[[Any, Path], None]
    """Feed one input, given a folder for files, and check the result."""

    def feed(self, value: Any) -> bool:
        """Feed one input and return whether it was accepted. Undocumented errors propagate."""
        with tempfile.TemporaryDirectory(prefix="smnn-fuzz-") as folder:
            return accepted(lambda: self.check(value, Path(folder)), self.errors)


def accepted(call: Callable[[], Any], errors: Errors) -> bool:
    """Whether a call succeeds; a documented error must have a message."""
    try:
        call()
    except errors as error:
        return _has_message(error)
    return True


def _has_message(error: Exception) -> bool:
    assert str(error).strip(), "an error without a message"
    return False


# ---------------------------------------------------------------- tables and arrays


def _tabled(suffix: str) -> Callable[[Any, Path], None]:
    def check(data: bytes, folder: Path) -> None:
        path = folder / f"x{suffix}"
        path.write_bytes(gzip.compress(data, 1) if suffix.endswith(".gz") else data)
        table = read_table(path)
        assert len(table.times) == len(table.values) == len(table.series) >= 1
        for t, Y in zip(table.times, table.values):
            assert t.ndim == 1
            assert Y.shape == (len(t), len(table.names))
            assert np.isfinite(t).all()
            assert (np.diff(t) > 0).all()
            assert not np.isinf(Y).any()

    return check


def _series(suffix: str) -> Callable[[Any, Path], None]:
    def check(data: bytes, folder: Path) -> None:
        path = folder / f"x{suffix}"
        path.write_bytes(data)
        read_series(path)

    return check


def _grid(data: bytes, folder: Path) -> None:
    path = folder / "x.nc"
    path.write_bytes(data)
    grid = read_grid(path)
    assert grid.values.shape == (len(grid.time), len(grid.lat), len(grid.lon))


def _nino(data: bytes, folder: Path) -> None:
    path = folder / "x.for"
    path.write_bytes(data)
    found = read_nino(path)
    assert found.sst.shape == (len(found.time), 4)


def _kdv(data: bytes, folder: Path) -> None:
    path = folder / "x.h5"
    path.write_bytes(data)
    assert np.isfinite(read_file(path).u).all()


# ---------------------------------------------------------------- models


def _model(data: bytes, folder: Path) -> None:
    path = folder / "model.json"
    path.write_bytes(data)
    model = Discovery.load(path)
    assert model.coefficients_.shape == (len(model.variables_), len(model.terms_))
    assert all(isinstance(line, str) for line in model.equations())


def _settings() -> TrainConfig:
    return TrainConfig(max_steps=2, tensorboard=False, ema=0.5, accelerator="cpu")


@functools.cache
def run_folder() -> Path:
    """A small run, with everything that a checkpoint can hold."""
    out = Path(tempfile.mkdtemp(prefix="smnn-fuzz-")) / "run"
    fit(Damping(), oscillations(8), _settings(), out, progress=False)
    return out


STEP = "step-0000000002"


def _place(folder: Path) -> Path:
    shutil.copytree(run_folder(), folder / "run")
    return folder / "run" / "checkpoints" / STEP


def reseal(record: Any) -> Any:
    """Give a forged record a valid digest."""
    from internals import digest_of

    if isinstance(record, dict):
        record = {key: value for key, value in record.items() if key != "digest"}
        try:
            record["digest"] = digest_of(record)
        except (ValueError, TypeError):
            record["digest"] = "0"
    return record


def _loaded(place: Path) -> None:
    """Load in all three ways; accepted if one of them succeeds."""
    run = place.parent.parent
    (place.parent / "latest").write_text(STEP + "\n")
    config = _settings().replace(max_steps=3)
    ways = [
        lambda: load_task(place),
        lambda: load_weights(Damping(), place),
        lambda: fit(Damping(), oscillations(8), config, run, resume=True, progress=False),
    ]
    # A forged state may also be found out by the step that it does not fit.
    if not any([accepted(way, (TrainingError, ConfigError)) for way in ways]):
        raise CheckpointError("refused in all three ways")


def _record(data: bytes, folder: Path) -> None:
    place = _place(folder)
    (place / "checkpoint.json").write_bytes(data)
    _loaded(place)


def _records() -> st.SearchStrategy[Any]:
    registered_tasks()  # imports what installed packages register, which no input may cause
    seed = (run_folder() / "checkpoints" / STEP / "checkpoint.json").read_bytes()
    forged = inputs.spoiled_records(json.loads(seed)).map(reseal).map(inputs.as_json)
    return st.one_of(forged, inputs.spoiled_bytes(seed))


def _safetensors(data: bytes, folder: Path) -> None:
    place = _place(folder)
    record = json.loads((place / "checkpoint.json").read_text())
    (place / "weights.safetensors").write_bytes(data)
    record["files"]["weights"] = hashlib.sha256(data).hexdigest()
    (place / "checkpoint.json").write_text(json.dumps(reseal(record)))
    _loaded(place)


def _tensors() -> st.SearchStrategy[Any]:
    seed = run_folder() / "checkpoints" / STEP / "weights.safetensors"
    return inputs.spoiled_bytes(seed.read_bytes())


def _training(record: Any, folder: Path) -> None:
    TrainConfig.from_dict(record if isinstance(record, dict) else {"lr": record})


# ---------------------------------------------------------------- expressions

VARIABLES = ["x", "y", "x'", "a b"]


def only_mathematics(expr: Any, names: list[str] = VARIABLES) -> None:
    """Check that the grammar can produce every part of a sympy expression."""
    import sympy

    allowed = (
        sympy.Add, sympy.Mul, sympy.Pow, sympy.Number, sympy.Symbol, sympy.sin, sympy.cos,
        sympy.tan, sympy.exp, sympy.log, sympy.Abs, sympy.tanh, sympy.sinh, sympy.cosh, sympy.sign,
        type(sympy.pi), type(sympy.E),
    )  # fmt: skip
    for part in sympy.preorder_traversal(expr):
        assert isinstance(part, allowed), f"{type(part).__name__} in {expr}"
    assert {s.name for s in expr.free_symbols} <= set(names), expr


def _expression(text: str, folder: Path) -> None:
    only_mathematics(parse_expression(text, VARIABLES))


def _library(text: str, folder: Path) -> None:
    library = parse_library(text)
    terms = library.terms(VARIABLES)
    for term in terms:
        only_mathematics(term.symbolic)
    assert Library.from_json(json.loads(json.dumps(library.to_json()))).terms(VARIABLES) == terms


def _system(text: str, folder: Path) -> None:
    from smnn.equations import read

    path = folder / "x.ode"
    path.write_text(text, encoding="utf-8", errors="replace")
    read(path)


def _equation_errors() -> Errors:
    from smnn.equations import EquationError

    return (EquationError,)


def _text() -> st.SearchStrategy[Any]:
    return st.one_of(inputs.tables(), inputs.spoiled_bytes(*inputs.TABLE_SEEDS))


def _grids() -> st.SearchStrategy[Any]:
    return inputs.spoiled_bytes(*inputs.netcdf_files())


def _arrays(suffix: str) -> Callable[[], st.SearchStrategy[Any]]:
    return lambda: inputs.spoiled_bytes(*inputs.numpy_files()[suffix])


def _models() -> st.SearchStrategy[Any]:
    seed = inputs.model_record()
    return st.one_of(
        inputs.spoiled_records(seed).map(inputs.as_json), inputs.spoiled_bytes(inputs.as_json(seed))
    )


def targets() -> dict[str, Target]:
    """Every reader by name."""
    expressions, libraries = (LibraryError, ExpressionError), (CheckpointError, ConfigError)
    every = [
        Target("csv table", (TableError,), _text, _tabled(".csv")),
        Target("gzipped table", (TableError,), _text, _tabled(".csv.gz")),
        Target("json table", (TableError,), lambda: inputs.json_tables, _tabled(".json")),
        Target("npy table", (TableError,), _arrays(".npy"), _tabled(".npy")),
        Target("npz table", (TableError,), _arrays(".npz"), _tabled(".npz")),
        Target("netcdf table", (TableError,), _grids, _tabled(".nc")),
        Target("netcdf grid", (DataFormatError,), _grids, _grid),
        Target("hdf5 trajectories", (KdVFileError,),
               lambda: inputs.spoiled_bytes(*inputs.hdf5_files()), _kdv),
        Target("nino text", (DataFormatError,), lambda: inputs.spoiled_bytes(inputs.NINO), _nino),
        Target("csv series", (SeriesError,), _text, _series(".csv")),
        Target("netcdf series", (SeriesError,), _grids, _series(".nc")),
        Target("model json", (ModelFileError,), _models, _model),
        Target("checkpoint record", libraries, _records, _record),
        Target("checkpoint tensors", libraries, _tensors, _safetensors),
        Target("training settings", (ConfigError,),
               lambda: inputs.spoiled_records(TrainConfig(epochs=1).to_dict()), _training),
        Target("expression", (ExpressionError,), lambda: inputs.expressions, _expression),
        Target("library text", expressions, lambda: inputs.libraries, _library),
        Target("equations to solve", _equation_errors(), lambda: inputs.systems, _system),
    ]  # fmt: skip
    return {target.name: target for target in every}
