"""KdV data in HDF5 files with the published layout.

One group, `train`, `valid` or `test`, contains `pde_140-256 (N, 140, 256)`, `x (N, 256)`,
`t (N, 140)`, `dx (N,)` and `dt (N,)`, all float64.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smnn._util.files import InputError, check_file, write_atomically
from smnn._util.optional import require
from smnn.data import DataFormatError, check_dataset
from smnn.datasets.kdv._easy import KEPT, POINTS, SPLITS, Split, Trajectories, easy
from smnn.datasets.kdv._solver import Form

NAME = f"pde_{KEPT}-{POINTS}"


class KdVFileError(DataFormatError):
    """A file of KdV data is missing, damaged, or laid out differently."""


def write_easy(
    path: str | Path, split: Split, count: int = 512, *, seed: int = 0, form: Form = "advective",
    device: str | torch.device = "cpu", tick: Callable[[int], None] = lambda count: None,
) -> Path:  # fmt: skip
    """Generate a split of the "easy" data set into a file, which appears when it is complete.

    An existing file is replaced. The other arguments are those of `easy`.

    Raises:
        OutputError: The file cannot be written.
    """
    h5py = require("h5py", "write KdV data")
    data = easy(split, count, seed=seed, form=form, device=device, tick=tick)
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        settings = {"split": split, "count": count, "seed": seed, "form": form}
        file.attrs["smnn"] = json.dumps(settings)
        for name, values in vars(data).items():
            file[f"{split}/{NAME if name == 'u' else name}"] = values
    return write_atomically(Path(path), content.getvalue())


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
