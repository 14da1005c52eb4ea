"""Damaged input: every reader returns a sound result, or raises its documented error."""

import io
import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smnn.data import DataError, read_table
from smnn.datasets.sst import read_grid, read_nino
from smnn.discovery import Discovery
from smnn.discovery.libraries import LibraryError, parse_library
from smnn.equations import EquationError, ExpressionError, parse_expression
from smnn.equations import read as read_equations
from smnn.forecasting import SeriesError, read_series
from smnn.training import (
    CheckpointError,
    ConfigError,
    Damping,
    TrainConfig,
    fit,
    load_task,
    oscillations,
)

pytestmark = pytest.mark.slow
EDIT = st.tuples(
    st.sampled_from(["set", "insert", "cut", "copy", "end"]),
    st.floats(0.0, 1.0, exclude_max=True),
    st.one_of(st.sampled_from([b"\x00", b"\xff" * 8, b"\n", b",", b'"', b"nan"]),
              st.binary(max_size=8)),
)  # fmt: skip


def spoiled(seed: bytes, edits: list[tuple[str, float, bytes]]) -> bytes:
    """Apply edits: overwrite, insert, delete, duplicate, truncate."""
    data = bytearray(seed)
    for kind, where, new in edits:
        at = int(where**2 * (len(data) + 1))  # mostly near the beginning
        if kind == "end":
            del data[at:]
        elif kind == "cut":
            del data[at : at + 1 + len(new) ** 2]
        else:
            end = at + len(new) * (kind == "set")
            data[at:end] = data[at : at + 64] if kind == "copy" else new
    return bytes(data)


def near(*seeds: bytes) -> st.SearchStrategy[bytes]:
    """Valid content with a few edits."""
    return st.builds(spoiled, st.sampled_from(seeds), st.lists(EDIT, max_size=5))


T = 0.1 * np.arange(8.0)
ROWS = [{"t": t, "x": math.sin(t), "y": None if t == T[3] else t * t} for t in T.tolist()]
CSV = b"t,x,y\n" + b"".join(b"%.1f,%.3f,%d\n" % (t, math.sin(t), 9 * t) for t in T)
DATES = b"date;value\n" + b"".join(b"2024-01-%02d;1,%d\n" % (i + 1, i) for i in range(8))
NINO = (
    b" Weekly SST data starts week centered on 3Jan1990\n\n"
    b" 03JAN1990     23.4-0.4     25.1-0.3     26.6 0.0     28.6 0.3\n"
    b" 10JAN1990     23.4-0.8     25.2-0.3     26.6 0.1     28.6 0.3\n"
)
SYSTEM = b"k = 2.1\ny'' + k*y = sin(t)\ny(0) = 1, y'(0) = 0\nt = 0 .. 10 step 0.01\n"
WORDS = st.lists(
    st.sampled_from(
        ["x", "y", "x'", "`a b`", "pi", "e", "sin", "sqrt", "abs", "tanh", "+", "-", "*", "/", "^",
         "**", "(", ")", "(", ")", "1", "2", "0", "0.5", "1e99", "33", ".5", " ", ",", "poly:2",
         "trig", "[", ":", "=", "'", "\n", "__import__", "x.__class__", "lambda:0", "∞", "π", "²"]
    ),
    max_size=40,
).map("".join)  # fmt: skip


def numpy_file(save: Callable[..., None], *arrays: Any, **named: Any) -> bytes:
    buffer = io.BytesIO()
    save(buffer, *arrays, **named)
    return buffer.getvalue()


def grid_file() -> bytes:
    days = ("time", 7.0 * np.arange(5), {"units": "days since 2000-01-01"})
    values = (("time", "lat", "lon"), np.arange(30, dtype="f4").reshape(5, 2, 3))
    data = xarray.Dataset({"sst": values}, {"time": days, "lat": [0.0, 1], "lon": [0.0, 1, 2]})
    return bytes(data.to_netcdf(engine="scipy"))


def model_file() -> bytes:
    X = np.stack([np.exp(-0.5 * T), np.cos(T)], 1)
    model = Discovery(library="poly:1,sin(x)", ensemble=0, method="regression")
    with tempfile.TemporaryDirectory() as folder:
        model.fit(X, t=T, feature_names=["x", "y"]).save(Path(folder) / "m.json")
        return (Path(folder) / "m.json").read_bytes()


def checkpoint_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(max_steps=1, tensorboard=False, ema=0.5, accelerator="cpu")
        found = fit(Damping(), oscillations(8), config, folder, progress=False)
        assert found.checkpoint is not None
        return found.checkpoint.read_bytes()


def check_table(path: Path) -> None:
    table = read_table(path)
    assert len(table.times) == len(table.values) == len(table.series) >= 1
    for t, x in zip(table.times, table.values):
        assert x.shape == (len(t), len(table.names))
        assert np.isfinite(t).all()
        assert (np.diff(t) > 0).all()
        assert not np.isinf(x).any()


def check_model(path: Path) -> None:
    model = Discovery.load(path)
    assert model.coefficients_.shape == (len(model.variables_), len(model.terms_))


READERS: dict[str, tuple[Callable[[], Any], Callable[[Path], object], tuple[type[Exception], ...]]]
READERS = {
    "x.csv": (lambda: near(CSV, DATES), check_table, (DataError,)),
    "y.csv": (lambda: near(CSV, DATES), read_series, (SeriesError, DataError)),
    "x.json": (lambda: near(json.dumps(ROWS).encode()), check_table, (DataError,)),
    "x.npy": (lambda: near(numpy_file(np.save, np.stack([T, T**2], 1))), check_table, (DataError,)),
    "x.npz": (lambda: near(numpy_file(np.savez, t=T, x=T**2)), check_table, (DataError,)),
    "x.nc": (lambda: near(grid_file()), read_grid, (DataError,)),
    "y.nc": (lambda: near(grid_file()), read_series, (SeriesError, DataError)),
    "x.for": (lambda: near(NINO), read_nino, (DataError,)),
    "model.json": (lambda: near(model_file()), check_model, (DataError,)),
    "x.safetensors": (lambda: near(checkpoint_file()), load_task, (CheckpointError, ConfigError)),
    "x.ode": (lambda: near(SYSTEM), read_equations, (EquationError,)),
}


def judged(call: Callable[[], object], errors: tuple[type[Exception], ...]) -> None:
    """A documented error has a message; all others propagate."""
    try:
        call()
    except errors as error:
        if not str(error).strip():
            raise AssertionError("an error without a message") from error


@pytest.mark.parametrize("name", READERS)
def test_damaged_files(name: str, tmp_path: Path) -> None:
    contents, reader, errors = READERS[name]

    @settings(max_examples=60, deadline=20_000, suppress_health_check=list(HealthCheck))
    @given(contents())
    def check(data: bytes) -> None:
        (tmp_path / name).write_bytes(data)
        judged(lambda: reader(tmp_path / name), errors)

    check()


@settings(max_examples=300, deadline=20_000)
@given(st.one_of(WORDS, st.text(max_size=40)))
def test_expressions_and_libraries(text: str) -> None:
    judged(lambda: parse_expression(text, ["x", "y", "x'", "a b"]), (ExpressionError,))
    judged(lambda: parse_library(text).terms(["x", "y"]), (LibraryError, ExpressionError))
