"""Inputs for fuzzing readers: valid files, and strategies that damage them.

Used by the tests of this folder and, for more inputs, by tools/fuzz.py.
"""

from __future__ import annotations

import functools
import io
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

# ---------------------------------------------------------------- bytes

_ODD_BYTES = st.sampled_from(
    [b"", b"\x00", b"\xff", b"\x00" * 8, b"\xff" * 8, b"\x7f\xff\xff\xff", b"\n", b",", b'"',
     b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x00\x00\x00\x01"]
)  # fmt: skip
_EDIT = st.tuples(
    st.sampled_from(["set", "insert", "cut", "copy", "end"]),
    st.floats(0.0, 1.0, exclude_max=True),
    st.one_of(_ODD_BYTES, st.binary(min_size=1, max_size=8)),
)


def spoiled(seed: bytes, edits: list[tuple[str, float, bytes]]) -> bytes:
    """Apply edits to bytes: overwrite, insert, delete, duplicate, truncate."""
    data = bytearray(seed)
    for kind, where, new in edits:
        at = int(where * (len(data) + 1))
        if kind == "set":
            data[at : at + len(new)] = new
        elif kind == "insert":
            data[at:at] = new
        elif kind == "cut":
            del data[at : at + 1 + len(new) ** 2]
        elif kind == "copy":
            data[at:at] = data[at : at + 64]
        else:
            del data[at:]
    return bytes(data)


def spoiled_bytes(*seeds: bytes) -> st.SearchStrategy[bytes]:
    """One of several valid files with a few edits, most of them near its beginning."""
    near = _EDIT.map(lambda e: (e[0], e[1] ** 3, e[2]))
    edits = st.lists(st.one_of(_EDIT, near), max_size=5)
    return st.builds(spoiled, st.sampled_from(seeds), edits)


# ---------------------------------------------------------------- text

HOSTILE = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</script>", "{{7*7}}", "${x}",
    "__import__('os').system('true')", "=cmd|' /C calc'!A0", "[/red]", "[bold]x", "`", "x'", "",
    " ", "\u202e", "a" * 300, "t", "time", "date", "id", "series", "NaN", "nan", "%s", "\\", "[x]",
    "../../x", "x [m]", "x (m)", "index", "Unnamed: 0",
]  # fmt: skip
_FIELD = st.one_of(
    st.floats().map(repr),
    st.integers(-(10**6), 10**6).map(str),
    st.sampled_from(
        ["", "NA", "nan", "inf", "-inf", "1e999", "1e-999", "-", "?", ".", "1,5", "0x10", "1_000",
         "2024-01-01", "2024-13-45", "0001-01-01", "9999-12-31T23:59:59", "2024-01-01T00:00+14:00",
         "true", "1e5", "٣", "1" * 400, '"', '"a', "a b", "#", "%", "//", "1970-01-01 00:00:00",
         "20240101", "2024Q1", "2024 q5", "12:30", "Jan 2020"]
    ),
    st.sampled_from(HOSTILE),
    st.text(max_size=6),
)  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """Nearly valid tables as text: regular rows, some of them damaged, in many dialects."""
    width = draw(st.integers(1, 5))
    rows = draw(st.integers(0, 12))
    between = draw(st.sampled_from([",", ";", "\t", " ", "|", ", "]))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    lines = []
    if draw(st.booleans()):
        names = draw(st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=8)),
                              min_size=width, max_size=width))  # fmt: skip
        lines.append(between.join(names))
    kind = draw(st.sampled_from(["number", "number", "date", "field"]))
    for i in range(rows):
        first = {"number": str(i * 0.5), "date": f"2024-01-{i + 1:02d}"}.get(kind) or draw(_FIELD)
        fields = [first, *(f"{math.sin(i + j):.6g}" for j in range(1, width))]
        if draw(st.integers(0, 5)) == 0:
            fields[draw(st.integers(0, width - 1))] = draw(_FIELD)
        if draw(st.integers(0, 15)) == 0:
            fields += draw(st.lists(_FIELD, max_size=2))
        lines.append(between.join(fields))
    text = end.join(lines) + draw(st.sampled_from(["", end, end * 3, "\x00", "\x1a"]))
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]))
    data = text.encode(encoding, "replace")
    if draw(st.integers(0, 3)) == 0:
        data = spoiled(data, draw(st.lists(_EDIT, max_size=3)))
    return data


WORDS = [
    "x", "y", "x'", "`a b`", "pi", "e", "sin", "cos", "tan", "exp", "log", "sqrt", "abs", "tanh",
    "sinh", "cosh", "sign", "+", "-", "*", "/", "^", "**", "(", ")", "(", ")", "1", "2", "3", "0",
    "0.5", "10", "1e3", "1e99", "1e-99", "99999999999999999999", "0.333333333", "32", "33",
    ".5", "5.", " ", ",", ".", "[", "]", "{", "}", ":", "=", ";", "'", '"', "\\", "\n", "\x00",
    "lambda", "lambda:0", "__import__", "__class__", "eval", "exec", "open", "import", "os",
    "x.__class__", "().__class__", "f'{x}'", "f\"", "x if y else x", "x and y", "x for x in y",
    "x[0]", "x@y", "x:=1", "%", "//", "!", "~", "&", "|", "<", ">", "#", "Symbol", "sympify", "I",
    "oo", "zoo", "nan", "inf", "Integer", "factorial", "gamma", "diff", "integrate", "S", "E", "N",
    # letters and digits that look like ours
    "ѕin", "х", "у", "ｘ", "𝑥", "𝐬𝐢𝐧", "１", "٣", "²", "½", "∞", "π", "ｅ", "е", "−", "×",
    "·", "′", "（", "）",
]  # fmt: skip

expressions = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=30).map("".join),
    st.lists(st.sampled_from(WORDS[:40]), max_size=40).map("".join),
    st.lists(st.sampled_from(WORDS[:40]), max_size=200).map("*".join),
    st.text(max_size=40),
    st.recursive(
        st.sampled_from(["x", "y", "2", "0.5", "pi", "e", "x'", "3", "7", "1e9", "0", "1"]),
        lambda part: st.one_of(
            st.tuples(part, st.sampled_from("+-*/^"), part).map(lambda p: "".join(p)),
            st.tuples(st.sampled_from(WORDS[6:17]), part).map(lambda p: f"{p[0]}({p[1]})"),
            part.map(lambda p: f"({p})"),
            part.map(lambda p: f"-{p}"),
        ),
        max_leaves=24,
    ),
)

libraries = st.one_of(
    st.lists(
        st.one_of(
            st.sampled_from(
                ["poly", "poly:2", "poly:20", "poly:21", "poly:-1", "poly:1e9", "poly:nan", "trig",
                 "trig:1:2", "trig:1e7", "rational", "rational:2", "poly:1*trig", "poly:9*poly:9",
                 "trig:1e-300", "poly:2:3", "poly*poly*poly*poly", "x:1"]
            ),
            expressions,
        ),
        min_size=1,
        max_size=4,
    ).map(",".join),
    expressions,
)  # fmt: skip

_STATEMENT = st.one_of(
    st.sampled_from(
        ["y'' + 2.1*y = sin(t)", "y(0) = 1, y'(0) = 0", "t = 0 .. 10 step 0.01", "k = 2.1",
         "y' = x", "x' = -y", "x(0) = 1", "t = 0 .. 1 in 10 steps", "t = 0 .. 1e99 step 1e-99",
         "t = 0 .. 1 step 0", "t = 1 .. 0", "y(0) = y(1)", "y' = y^2", "# words", "y = 1/0", "",
         "k = 10^10^10", "y" + 9 * "'" + " = 0", "y' = __import__('os')", "a = b", "b = a",
         "t = 1", "y(1e9) = 1", "y' = (((((x)))))", "y' = k*y; y(0) = 1", "y' = exp(exp(exp(t)))"]
    ),
    expressions,
    st.tuples(expressions, expressions).map(" = ".join),
)  # fmt: skip
SYSTEM_SEEDS = (
    b"k = 2.1\ny'' + k*y = sin(t)\ny(0) = 1, y'(0) = 0\nt = 0 .. 10 step 0.01\n",
    b"x' = -y\ny' = x\nx(0) = 1, y(0) = 0\nt = 0 .. 1 in 100 steps\n",
)
systems = st.one_of(
    st.lists(_STATEMENT, max_size=7).map("\n".join),
    spoiled_bytes(*SYSTEM_SEEDS).map(lambda data: data.decode("latin-1")),
    st.tuples(st.sampled_from(SYSTEM_SEEDS), _STATEMENT).map(lambda p: p[0].decode() + p[1]),
)
"""Files of equations as `smnn solve` reads them, nearly."""

# ---------------------------------------------------------------- JSON

_LEAF = st.one_of(
    st.none(), st.booleans(), st.integers(-10, 10), st.floats(), st.sampled_from(HOSTILE),
    st.sampled_from([10**400, -(10**18), 2**63, 1e308, -0.0, math.nan, math.inf, 10**9, 0.5]),
    st.sampled_from(["union", "product", "polynomial", "expressions", "custom", "x", "__class__"]),
)  # fmt: skip
odd_values = st.recursive(
    _LEAF,
    lambda part: st.one_of(
        st.lists(part, max_size=4),
        st.dictionaries(st.sampled_from(["kind", "libraries", "degree", ""]), part, max_size=3),
        st.just([[]] * 3),
    ),
    max_leaves=6,
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for key in value:
            found += _paths(value[key], (*path, key))
    elif isinstance(value, list):
        for i, part in enumerate(value[:6]):
            found += _paths(part, (*path, i))
    return found


def spoiled_record(seed: Any, edits: list[tuple[float, str, Any]]) -> Any:
    """Edit a JSON value: replace values, remove them, wrap them in lists."""
    record = json.loads(json.dumps(seed))
    for where, kind, new in edits:
        paths = _paths(record)
        if not paths:
            break
        *path, last = paths[int(where * len(paths))]
        new = json.loads(json.dumps(new))  # strategies share what they return
        place = functools.reduce(lambda x, key: x[key], path, record)
        if kind == "drop":
            del place[last]
        elif kind == "wrap":
            place[last] = [place[last]]
        elif kind == "double" and isinstance(place, list):
            place.append(json.loads(json.dumps(place[last])))
        else:
            place[last] = new
    return record


def spoiled_records(*seeds: Any) -> st.SearchStrategy[Any]:
    """One of several valid records with a few edits; sometimes an unrelated value."""
    edit = st.tuples(
        st.floats(0.0, 1.0, exclude_max=True),
        st.sampled_from(["set", "set", "set", "drop", "wrap", "double"]),
        odd_values,
    )
    spoilt = st.builds(spoiled_record, st.sampled_from(seeds), st.lists(edit, max_size=4))
    return st.one_of(spoilt, spoilt, spoilt, odd_values)


def as_json(record: Any) -> bytes:
    """Encode as Python does, with NaN and infinity."""
    return json.dumps(record).encode()


json_tables = st.one_of(
    spoiled_records(
        [{"t": 0.5 * i, "x": math.sin(i), "y": None if i == 3 else i * i} for i in range(6)],
        {"t": [0.1 * i for i in range(6)], "x": [math.cos(i) for i in range(6)]},
        {"columns": ["t", "x"], "data": [[i, math.sin(i)] for i in range(6)]},
    ).map(as_json),
    spoiled_bytes(b'{"t": [0, 1, 2, 3], "x": [1, 4, 9, 16], "y": [1, 0, null, 2]}'),
    st.sampled_from([b"[" * 100_000, b'{"a":' * 50_000, b"1" * 10_000, b'"' + b"x" * 100_000]),
)

# ---------------------------------------------------------------- valid files


def _saved(write: Any, suffix: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x{suffix}"
        write(path)
        return path.read_bytes()


@functools.cache
def numpy_files() -> dict[str, list[bytes]]:
    """.npy and .npz files by their ending."""
    T = 0.1 * np.arange(6.0)
    plain, archive = [], []
    for array in (np.stack([T, np.sin(T)], 1), T, np.ones((2, 4, 3)), np.arange(4, dtype="i2")):
        buffer = io.BytesIO()
        np.save(buffer, array)
        plain.append(buffer.getvalue())
    for save in (np.savez, np.savez_compressed):
        buffer = io.BytesIO()
        save(buffer, t=T, x=np.sin(T))
        archive.append(buffer.getvalue())
    return {".npy": plain, ".npz": archive}


@functools.cache
def netcdf_files() -> list[bytes]:
    """Classic and version 4: a grid of temperatures, and series along time."""
    import xarray as xr

    days = ("time", 7.0 * np.arange(5), {"units": "days since 2000-01-01"})
    grid = xr.Dataset(
        {"sst": (("time", "lat", "lon"), np.arange(30, dtype="f4").reshape(5, 2, 3))},
        {"time": days, "lat": [0.0, 1.0], "lon": [0.0, 1.0, 2.0]},
    )
    series = xr.Dataset({"x": ("time", np.sin(np.arange(5.0)))}, {"time": days})
    found = []
    for data in (grid, series):
        for engine, form in (("scipy", "NETCDF3_CLASSIC"), ("h5netcdf", "NETCDF4")):
            packed = {v: {"zlib": True} for v in data.data_vars} if engine == "h5netcdf" else {}
            found.append(
                _saved(
                    lambda p, d=data, e=engine, f=form, k=packed: d.to_netcdf(
                        p, engine=e, format=f, encoding=k
                    ),
                    ".nc",
                )
            )
    return found


@functools.cache
def hdf5_files() -> list[bytes]:
    """KdV data in the published layout, small; plain and compressed."""
    import h5py

    def write(path: Path, **options: Any) -> None:
        with h5py.File(path, "w") as file:
            group = file.create_group("train")
            group.create_dataset("pde_4-8", data=1.0 + np.arange(64.0).reshape(2, 4, 8), **options)
            for name, shape in {"x": (2, 8), "t": (2, 4), "dx": (2,), "dt": (2,)}.items():
                group.create_dataset(name, data=np.ones(shape))

    return [
        _saved(write, ".h5"),
        _saved(lambda p: write(p, compression="gzip", shuffle=True), ".h5"),
    ]


@functools.cache
def model_record() -> dict[str, Any]:
    """A model as `Discovery.save` writes it."""
    from smnn.discovery import Discovery

    t = np.linspace(0.0, 4.0, 60)
    X = np.stack([np.exp(-0.5 * t), np.cos(t)], 1)
    model = Discovery(library="poly:1,sin(x)", ensemble=0, method="regression")
    model.fit(X, t=t, feature_names=["x", "y"])
    return json.loads(_saved(model.save, ".json"))


NINO = (
    b" Weekly SST data starts week centered on 3Jan1990\n\n"
    b"                Nino1+2      Nino3        Nino34        Nino4\n"
    b" 03JAN1990     23.4-0.4     25.1-0.3     26.6 0.0     28.6 0.3\n"
    b" 10JAN1990     23.4-0.8     25.2-0.3     26.6 0.1     28.6 0.3\n"
)
TABLE_SEEDS = (
    b"t,x,y\n" + b"".join(b"%.1f,%.3f,%d\n" % (i / 10, math.sin(i), i * i) for i in range(8)),
    b"date;value\n" + b"".join(b"2024-01-%02d;1,%d\n" % (i + 1, i) for i in range(8)),
)
