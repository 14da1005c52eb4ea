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

from smnn._util.files import InputError, check_file, writing
from smnn._util.optional import require
from smnn.data._netcdf import DataFormatError, check_dataset, check_library
from smnn.datasets.kdv._easy import KEPT, POINTS, SPLITS, Split, Trajectories, draw, simulate
from smnn.datasets.kdv._solver import Form

PIECE = 32
"""Trajectories that are written at a time; what an interruption can cost."""
NAME = f"pde_{KEPT}-{POINTS}"


class KdVFileError(DataFormatError):
    """A file of KdV data is missing, damaged, or laid out differently."""


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
    with writing(path), _h5py_failures(part):
        with _opened_part(h5py, part, settings) as file:
            group = file[split] if split in file else _make(file, split, count)
            done = int(file.attrs["done"])
            if done:
                tick(done)
            while done < count:
                end = min(count, done + (PIECE if torch.device(device).type == "cpu" else count))
                found = simulate(
                    draw(split, range(done, end), seed), form=form, device=device, tick=tick
                )
                for name, values in _columns(found).items():
                    group[name][done:end] = values
                file.flush()  # the values are there before they are counted
                file.attrs["done"] = done = end
                file.flush()
            file.attrs["smnn"] = settings
        with part.open("rb") as handle:
            os.fsync(handle.fileno())
        part.replace(path)
    return path


def _columns(data: Trajectories) -> dict[str, np.ndarray]:
    return {NAME: data.u, "x": data.x, "t": data.t, "dx": data.dx, "dt": data.dt}


def _shapes(count: int) -> dict[str, tuple[int, ...]]:
    return {
        NAME: (count, KEPT, POINTS), "x": (count, POINTS), "t": (count, KEPT), "dx": (count,),
        "dt": (count,),
    }  # fmt: skip


def _make(file: Any, split: str, count: int) -> Any:
    group = file.create_group(split)
    for name, shape in _shapes(count).items():
        group.create_dataset(name, shape, dtype="f8")
    file.attrs["done"] = 0
    return group


@contextlib.contextmanager
def _opened_part(h5py: Any, part: Path, settings: str) -> Iterator[Any]:
    """The unfinished file, if it belongs to the same settings and is whole; else a new one."""
    file = None
    if part.exists():
        # A process that was killed while writing may have left anything: then start again.
        with contextlib.suppress(OSError, RuntimeError, KeyError, ValueError):
            file = h5py.File(part, "r+")
        if file is not None and not _continues(file, settings):
            file.close()
            file = None
    if file is None:
        file = h5py.File(part, "w")
        file.attrs["settings"] = settings
    with file:
        yield file


def _continues(file: Any, settings: str) -> bool:
    """Whether a file holds the beginning of what is to be written, and can be read."""
    wanted = json.loads(settings)
    try:
        if file.attrs.get("settings") != settings:
            return False
        if wanted["split"] not in file:
            return True
        group = file[wanted["split"]]
        done = int(file.attrs["done"])
        whole = {name: group[name].shape for name in _shapes(wanted["count"])}
        return whole == _shapes(wanted["count"]) and 0 <= done <= wanted["count"]
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError):
        return False


@contextlib.contextmanager
def _h5py_failures(part: Path) -> Iterator[None]:
    """What the system refused inside h5py, which tells some of it as other errors."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if "Unable to" not in str(error) and "Can't" not in str(error):
            raise
        raise OSError(0, f"{part.name}: {error}") from error


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
    if not path.exists():
        raise KdVFileError(f"there is no file {path}.")
    try:
        check_file(path)
        check_library(path)
        with h5py.File(path, "r") as file:
            found = _arrays(path, h5py, file, split)
    except KdVFileError:
        raise
    except (InputError, DataFormatError) as error:
        raise KdVFileError(str(error)) from None
    except Exception as error:  # whatever h5py makes of a damaged file
        what = (str(error).splitlines() or [""])[0]
        raise KdVFileError(f"{path} is not a readable HDF5 file ({what}).") from None
    return _checked(path, *found)


def _arrays(
    path: Path, h5py: Any, file: Any, split: Split | None
) -> tuple[str, dict[str, np.ndarray]]:
    groups = [name for name in SPLITS if name in file]
    if split is None and len(groups) != 1:
        raise KdVFileError(
            f"{path}: got the groups {', '.join(map(repr, file)) or 'none'}; expected one of "
            f"{', '.join(map(repr, SPLITS))}. Say which with split=."
        )
    name = groups[0] if split is None else split
    if name not in file:
        raise KdVFileError(f"{path}: there is no group {name!r}; there are {', '.join(file)}.")
    group = check_dataset(path, h5py, file, name)
    if not isinstance(group, h5py.Group):
        raise KdVFileError(f"{path}: {name!r} is an array; expected a group of arrays.")
    fields = [key for key in group if key.startswith("pde_")]
    missing = [key for key in ("x", "t", "dx", "dt") if key not in group]
    if len(fields) != 1 or missing:
        raise KdVFileError(
            f"{path}: the group {name!r} holds {', '.join(group)}; expected one pde_FRAMES-POINTS "
            "and x, t, dx, dt."
        )
    keys = {"u": fields[0], "x": "x", "t": "t", "dx": "dx", "dt": "dt"}
    arrays = {}
    for key, where in keys.items():
        found = check_dataset(path, h5py, group, where)
        if not isinstance(found, h5py.Dataset) or found.dtype.kind not in "fiu":
            raise KdVFileError(f"{path}: {name}/{where} is not an array of numbers.")
        arrays[key] = np.asarray(found[()], float)
    return name, arrays


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
