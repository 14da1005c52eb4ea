"""KdV data in HDF5 files with the published layout.

One group, `train`, `valid` or `test`, contains `pde_140-256 (N, 140, 256)`, `x (N, 256)`,
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
from smnn.data import DataFormatError, check_dataset, check_library
from smnn.datasets.kdv._easy import KEPT, POINTS, SPLITS, Split, Trajectories, draw, simulate
from smnn.datasets.kdv._solver import Form

PIECE = 32
"""Trajectories written at a time, which are lost on interruption."""
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
    """Generate a split of the "easy" data set into a file; an interrupted call can be resumed.

    The file appears when it is complete. Until then the data are in `PATH.smnn-part`, from which a
    later call with the same arguments continues.

    Args:
        path: Path of the file; an existing file is replaced.
        split: As in `easy`.
        count: As in `easy`.
        seed: As in `easy`.
        form: As in `easy`.
        device: As in `easy`.
        tick: As in `easy`; trajectories of an earlier call are reported at once.

    Raises:
        OutputError: The file cannot be written.
    """
    path = Path(path)
    part = path.with_name(path.name + ".smnn-part")
    settings = json.dumps({"split": split, "count": count, "seed": seed, "form": form})
    h5py = require("h5py", "write KdV data")
    draw(split, [], seed)  # validates the split before anything is written
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
                file.flush()  # values are written before they are counted
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
    """The unfinished file, if it is intact and has the same settings; otherwise a new one."""
    file = None
    if part.exists():
        # A killed process may have left a damaged file: then start again.
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
    """Whether a file is readable and contains the beginning of the data to be written."""
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
    """Convert errors of the operating system that h5py reports as other errors."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if "Unable to" not in str(error) and "Can't" not in str(error):
            raise
        raise OSError(0, f"{part.name}: {error}") from error


def read_file(path: str | Path, split: Split | None = None) -> Trajectories:
    """Read a file in the published layout.

    Args:
        path: Path of the file.
        split: Group to read; by default the only one.

    Raises:
        KdVFileError: The file is missing, not HDF5, or laid out differently, or trajectories are
            not finite or zero everywhere, as the published generator leaves them if its solver
            fails.
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
    except Exception as error:  # h5py raises various errors for damaged files
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
            f"{', '.join(map(repr, SPLITS))}. Choose one with split=."
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
