"""A function applied to groups of rows: in this process, in several, or on a cluster by fugue."""

from __future__ import annotations

import multiprocessing
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from smnn._util.optional import require
from smnn.errors import DataError, SmnnError

BATCH = "smnn_batch"
TYPES = {"str": object, "double": "float64", "datetime": "datetime64[us]"}
"""Types of fugue in the results, as NumPy has them."""
ATTEMPTS = 3
"""Number of times that groups are started whose process was killed."""


def map_groups(
    frame: Any, key: str, function: Callable[[Any], Any], schema: Sequence[tuple[str, str]], *,
    batch: int = 1, engine: Any = None, workers: int = 1,
) -> Any:  # fmt: skip
    """Apply a function to batches of groups of rows.

    A group belongs to a batch by the digest of its name, so that batches are the same everywhere.

    Args:
        frame: A pandas `DataFrame`, or a frame of the engine.
        key: Column whose values separate the groups.
        function: Takes and returns a pandas `DataFrame`; can be pickled.
        schema: Names and types of the columns that it returns, as fugue spells them.
        batch: Mean number of groups in a batch; 1 for single groups.
        engine: What fugue runs it on; by default processes of this machine.
        workers: Number of processes without an engine.

    Returns:
        A pandas `DataFrame` with the results, sorted by its first two columns.

    Raises:
        SmnnError: Processes are killed again and again.
    """
    pandas = require("pandas", "read frames")
    if engine is None:
        number = _Number(key, batch, frame[key].nunique())
        parts = [part for _, part in frame.groupby(number(frame)[BATCH].to_numpy())]
        found = pandas.concat(_local(function, parts, workers), ignore_index=True)
    else:
        fugue = require("fugue.api", "use Dask, Ray or Spark")
        with fugue.engine_context(engine):
            frame = fugue.as_fugue_df(frame)
            number = _Number(key, batch, fugue.count(fugue.distinct(frame[[key]])))
            types = ",".join(f"`{name}`:{kind}" for name, kind in schema)
            numbered = fugue.transform(frame, _annotated(number), f"*,{BATCH}:str", as_fugue=True)
            found = fugue.transform(
                numbered, _annotated(function), types, partition={"by": [BATCH]}, as_local=True
            )
        found = fugue.as_pandas(found)
    found = found.astype({name: TYPES[kind] for name, kind in schema})
    return found.sort_values([name for name, _ in schema[:2]], kind="stable", ignore_index=True)


def is_number(frame: Any, column: str, engine: Any) -> bool:
    """Whether a column of a frame has numbers."""
    if engine is None:
        return bool(frame[column].dtype.kind in "iuf")
    kind = str(require("fugue.api", "use Dask, Ray or Spark").get_schema(frame)[column].type)
    return kind.startswith(("int", "uint", "float", "double", "half"))


class _Number:
    """Adds the batch of every row to a frame."""

    def __init__(self, key: str, batch: int, groups: int) -> None:
        self.key, self.count = key, 0 if batch == 1 else max(1, round(groups / batch))

    def __call__(self, rows: Any) -> Any:
        texts = rows[self.key].astype(str)
        if self.count:
            names = {x: f"{zlib.crc32(x.encode()) % self.count:09d}" for x in texts.unique()}
            texts = texts.map(names)
        return rows.assign(**{BATCH: texts})


def _annotated(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function with annotations, from which fugue reads the kind of frame."""
    kind = require("pandas", "read frames").DataFrame

    def run(rows: Any) -> Any:
        return function(rows)

    run.__annotations__ = {"rows": kind, "return": kind}
    return run


def check_columns(frame: Any, names: Sequence[str]) -> None:
    """Check that a frame has columns.

    Raises:
        DataError: It has no columns, or not these.
    """
    known = [str(name) for name in getattr(frame, "columns", ())]
    missing = [name for name in names if name not in known]
    if missing:
        raise DataError(
            f"the frame has no column {missing[0]!r}; expected a long table with the columns "
            f"{', '.join(names)}. Its columns: {', '.join(known[:30]) or 'none'}."
        )


def _local(function: Callable[[Any], Any], parts: list[Any], workers: int) -> list[Any]:
    if workers <= 1 or len(parts) <= 1:
        return [function(part) for part in parts]
    done: dict[int, Any] = {}
    spawn = multiprocessing.get_context("spawn")  # threads of NumPy and Torch do not survive a fork
    for _ in range(ATTEMPTS):
        with ProcessPoolExecutor(min(workers, len(parts)), spawn, _one_thread) as pool:
            waiting = {i: pool.submit(function, x) for i, x in enumerate(parts) if i not in done}
            try:
                for i, future in waiting.items():
                    done[i] = future.result()
            except BrokenProcessPool:
                finished = {i: f for i, f in waiting.items() if f.done() and not f.exception()}
                done |= {i: f.result() for i, f in finished.items()}
        if len(done) == len(parts):
            return [done[i] for i in range(len(parts))]
    raise SmnnError(
        f"worker processes were killed {ATTEMPTS} times, probably for lack of memory. Use fewer "
        "workers."
    )


def _one_thread() -> None:
    """One thread per process: the processes share the cores."""
    import torch

    torch.set_num_threads(1)
