"""KdV data on disk, in the layout of the published files.

One HDF5 group, `train`, `valid` or `test`, holds `pde_140-256 (N, 140, 256)`, `x (N, 256)`,
`t (N, 140)`, `dx (N,)` and `dt (N,)`, all float64.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smnn._files import OutputError
from smnn._optional import require
from smnn.datasets._kdv_easy import KEPT, POINTS, SPLITS, Split, Trajectories, draw, simulate
from smnn.datasets._kdv_solver import Form

PIECE = 32
"""Trajectories that are written at a time; what an interruption can cost."""
NAME = f"pde_{KEPT}-{POINTS}"


class KdVFileError(ValueError):
    """A file is not what it was taken for: says what was found and what was expected."""


def write_easy(
    path: str | Path,
    split: Split,
    count: int = 512,
    *,
    seed: int = 0,
    form: Form = "advective",
    device: str | torch.device = "cpu",
    tick: Callable[[int], None] = lambda count: None,
) -> Path:
    """Generate a split of the "easy" data set into a file. An interrupted call is taken up again.

    The file appears when it is complete; until then, what is done lies beside it under the name
    `PATH.part`, and a later call with the same arguments goes on from there.

    Args:
        path: Where; an existing file is replaced.
        split: As in `easy`.
        count: As in `easy`.
        seed: As in `easy`.
        form: As in `easy`.
        device: As in `easy`.
        tick: As in `easy`; trajectories of an earlier call are told at once.

    Raises:
        OutputError: It cannot be written.
    """
    path = Path(path)
    part = path.with_name(path.name + ".part")
    settings = json.dumps({"split": split, "count": count, "seed": seed, "form": form})
    h5py = require("h5py", "write KdV data")
    draw(split, [], seed)  # a wrong split is told before anything is written
    try:
        with _opened_part(h5py, part, settings) as file:
            group = file[split] if split in file else _make(file, split, count)
            done = int(group.attrs["done"])
            if done:
                tick(done)
            while done < count:
                end = min(count, done + (PIECE if torch.device(device).type == "cpu" else count))
                found = simulate(
                    draw(split, range(done, end), seed), form=form, device=device, tick=tick
                )
                for name, values in _columns(found).items():
                    group[name][done:end] = values
                group.attrs["done"] = done = end
                file.flush()
            del group.attrs["done"]
            file.attrs["smnn"] = settings
        with part.open("rb") as handle:
            os.fsync(handle.fileno())
        part.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}.") from error
    return path


def _columns(data: Trajectories) -> dict[str, np.ndarray]:
    return {NAME: data.u, "x": data.x, "t": data.t, "dx": data.dx, "dt": data.dt}


def _make(file: Any, split: str, count: int) -> Any:
    group = file.create_group(split)
    for name, shape in {
        NAME: (count, KEPT, POINTS), "x": (count, POINTS), "t": (count, KEPT), "dx": (count,),
        "dt": (count,),
    }.items():  # fmt: skip
        group.create_dataset(name, shape, dtype="f8")
    group.attrs["done"] = 0
    return group


@contextlib.contextmanager
def _opened_part(h5py: Any, part: Path, settings: str) -> Iterator[Any]:
    """The unfinished file, if it belongs to the same settings and is whole; else a new one."""
    file = None
    if part.exists():
        with contextlib.suppress(OSError):  # killed while writing: start again
            file = h5py.File(part, "r+")
        if file is not None and file.attrs.get("settings") != settings:
            file.close()
            file = None
    if file is None:
        file = h5py.File(part, "w")
        file.attrs["settings"] = settings
    with file:
        yield file


def read_file(path: str | Path, split: Split | None = None) -> Trajectories:
    """Read a file in the published layout, whoever wrote it.

    Args:
        path: Where.
        split: Which group; the only one by default.

    Raises:
        KdVFileError: It is not there, not HDF5, or not laid out so; names what is missing. Also for
            trajectories that are zero everywhere: the published generator leaves them where its
            solver failed.
    """
    h5py = require("h5py", "read KdV data")
    path = Path(path)
    if not path.is_file():
        raise KdVFileError(f"there is no file {path}.")
    try:
        with h5py.File(path, "r") as file:
            return _checked(path, *_arrays(path, file, split))
    except OSError as error:
        raise KdVFileError(f"{path} is not a readable HDF5 file ({error}).") from None


def _arrays(path: Path, file: Any, split: Split | None) -> tuple[str, dict[str, np.ndarray]]:
    groups = [name for name in SPLITS if name in file]
    if split is None and len(groups) != 1:
        raise KdVFileError(
            f"{path}: got the groups {', '.join(map(repr, file)) or 'none'}; expected one of "
            f"{', '.join(map(repr, SPLITS))}. Say which with split=."
        )
    name = groups[0] if split is None else split
    if name not in file:
        raise KdVFileError(f"{path}: there is no group {name!r}; there are {', '.join(file)}.")
    group = file[name]
    fields = [key for key in group if key.startswith("pde_")]
    missing = [key for key in ("x", "t", "dx", "dt") if key not in group]
    if len(fields) != 1 or missing:
        raise KdVFileError(
            f"{path}: the group {name!r} holds {', '.join(group)}; expected one pde_FRAMES-POINTS "
            "and x, t, dx, dt."
        )
    keys = {"u": fields[0], "x": "x", "t": "t", "dx": "dx", "dt": "dt"}
    return name, {key: np.asarray(group[where], float) for key, where in keys.items()}


def _checked(path: Path, name: str, arrays: dict[str, np.ndarray]) -> Trajectories:
    u = arrays["u"]
    if u.ndim != 3:
        raise KdVFileError(f"{path}: {name} has frames of shape {u.shape}; expected (N, T, X).")
    N, T, X = u.shape
    for key, shape in {"x": (N, X), "t": (N, T), "dx": (N,), "dt": (N,)}.items():
        if arrays[key].shape != shape:
            raise KdVFileError(
                f"{path}: {name}/{key} has shape {arrays[key].shape}; expected {shape}."
            )
    for bad, what in (
        (~np.isfinite(u).all((1, 2)), "not finite"),
        (~u.any((1, 2)), "zero everywhere: their solver failed"),
    ):
        if bad.any():
            listed = ", ".join(map(str, np.flatnonzero(bad)[:5]))
            raise KdVFileError(f"{path}: trajectories {listed} are {what}; leave them out.")
    return Trajectories(**arrays)
