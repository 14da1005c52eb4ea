"""All data sets: what each is, and how to write it into a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.files import csv_text, write_atomically
from smnn._util.names import find, slug
from smnn._util.optional import require
from smnn.errors import DataError


@dataclass(frozen=True)
class Options:
    """How to make a data set; `None` selects its default."""

    noise: float | None = None
    seed: int = 0
    samples: int | None = None
    step: float | None = None
    split: str | None = None
    device: str = "cpu"


@dataclass(frozen=True)
class DataSet:
    """A data set."""

    name: str
    what: str
    size: str
    """Series, times and variables as text."""
    source: str
    formats: tuple[str, ...]
    """File formats, the default first."""
    options: frozenset[str]
    """The options that it has."""
    write: Callable[[Path, Options, Callable[[int], None]], str]
    """Write the file, and return a description of its content."""

    def record(self) -> dict[str, Any]:
        """Return the description as a dictionary that can be written as JSON."""
        return {
            "name": self.name, "what": self.what, "size": self.size, "source": self.source,
            "formats": list(self.formats), "options": sorted(self.options),
        }  # fmt: skip


def all_sets() -> dict[str, DataSet]:
    """All data sets by name."""
    from smnn.datasets.dynamics import HARE_LYNX, SYSTEMS

    found = [_system(system) for system in SYSTEMS]
    found += [
        DataSet(
            "hare-lynx", "pelts of hares and lynxes, thousands, 1900 to 1920",
            "21 times, 2 variables", HARE_LYNX.reference, ("csv", "nc"), frozenset(), _hare_lynx,
        ),
        DataSet(
            "nino", "sea surface temperature of the four Niño regions, weekly, °C",
            "1,604 times, 4 variables", "NOAA OI SST V2, public domain", ("csv", "nc"),
            frozenset(), _nino,
        ),
        DataSet(
            "sst", "sea surface temperature of the world, monthly, 2.5 degrees, °C",
            "494 times, 73 x 144 cells", "NOAA OI SST V2, public domain", ("nc",), frozenset(),
            _sst,
        ),
        DataSet(
            "sine", "noisy recordings of a damped sine",
            "16 series, 500 times, 1 variable", "the first example of the paper", ("csv", "nc"),
            frozenset({"noise", "seed", "samples"}), _sine,
        ),
        DataSet(
            "kdv", "waves on a circle: the Korteweg-de Vries equation, 'easy'",
            "512 series, 140 times, 256 points", "after Brandstetter et al., ICML 2022", ("h5",),
            frozenset({"seed", "samples", "split", "device"}), _kdv,
        ),
    ]  # fmt: skip
    return {data.name: data for data in found}


def find_set(name: str) -> DataSet:
    """The data set of that name, or the only one whose name begins with it.

    Raises:
        DataError: There is none, or several; the message has similar names.
    """
    return find(name, all_sets(), "data set")


# ---------------------------------------------------------------- each of them


def _system(system: Any) -> DataSet:
    from smnn.datasets.dynamics import simulate

    def write(path: Path, options: Options, tick: Callable[[int], None]) -> str:
        try:
            series = simulate(
                system, noise=options.noise or 0.0, seed=options.seed, n=options.samples,
                dt=options.step,
            )  # fmt: skip
        except RuntimeError as error:
            raise DataError(str(error)) from None
        columns: dict[str, np.ndarray] = {"t": np.concatenate([s.t for s in series])}
        if len(series) > 1:
            marks = [np.full(len(s.t), i) for i, s in enumerate(series, 1)]
            columns = {"series": np.concatenate(marks)} | columns
        x = np.concatenate([s.x for s in series])
        columns |= {name: x[:, v] for v, name in enumerate(system.variables)}
        for i, name in enumerate(system.inputs):
            columns[name] = np.concatenate([s.u[:, i] for s in series if s.u is not None])
        return write_columns(path, columns)

    series, inputs = len(system.starts), len(system.inputs)
    size = f"{series} series, " * (series > 1) + f"{system.n:,} times, "
    size += _count(len(system.variables), "variable") + f", {_count(inputs, 'input')}" * (
        inputs > 0
    )
    order = {1: "first", 2: "second", 3: "third"}[system.order]
    return DataSet(
        slug(system.name), f"{system.name}, simulated, {order} order", size, system.reference,
        ("csv", "nc"), frozenset({"noise", "seed", "samples", "step"}), write,
    )  # fmt: skip


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _hare_lynx(path: Path, options: Options, tick: Callable[[int], None]) -> str:
    from smnn.datasets.dynamics import HARE_LYNX

    (series,) = HARE_LYNX.series
    years = series.t + 1900
    return write_columns(path, {"year": years, "hare": series.x[:, 0], "lynx": series.x[:, 1]})


def _nino(path: Path, options: Options, tick: Callable[[int], None]) -> str:
    from smnn.datasets.sst import nino

    data = nino()
    columns = {name: data.sst[:, i] for i, name in enumerate(data.regions)}
    return write_columns(path, {"date": data.time.astype("datetime64[D]"), **columns})


def _sst(path: Path, options: Options, tick: Callable[[int], None]) -> str:
    from importlib import resources

    from smnn.datasets.sst import MONTHLY

    content = (resources.files("smnn.datasets") / "data" / MONTHLY).read_bytes()
    write_atomically(path, content)
    return "sst (494, 73, 144) over time, lat, lon"


def _sine(path: Path, options: Options, tick: Callable[[int], None]) -> str:
    from smnn.datasets.sine import damped_sine

    noise = 0.5 if options.noise is None else options.noise
    data = damped_sine(times=options.samples or 500, noise=noise, seed=options.seed)
    N, T = data.noisy.shape
    columns = {
        "series": np.repeat(np.arange(1, N + 1), T), "t": np.tile(data.t, N),
        "x": data.noisy.ravel(),
    }  # fmt: skip
    return write_columns(path, columns)


def _kdv(path: Path, options: Options, tick: Callable[[int], None]) -> str:
    from smnn.datasets.kdv import write_easy

    count, split = options.samples or 512, options.split or "train"
    write_easy(
        path, split, count, seed=options.seed, device=options.device, tick=tick,  # type: ignore[arg-type]
    )  # fmt: skip
    return f"{split}/pde_140-256 ({count}, 140, 256), with x, t, dx, dt"


# ---------------------------------------------------------------- tables


def write_columns(path: Path, columns: dict[str, np.ndarray]) -> str:
    """Write columns of one length as CSV, or as NetCDF to a path that ends in `.nc`."""
    rows = len(next(iter(columns.values())))
    if path.suffix == ".nc":
        write_atomically(path, _netcdf(columns))
    else:
        table = zip(*map(_plain, columns.values()))
        write_atomically(path, csv_text([[*columns], *table]))
    return f"{rows:,} rows of {', '.join(columns)}"


def _plain(values: np.ndarray) -> list[Any]:
    return values.astype(str).tolist() if values.dtype.kind == "M" else values.tolist()


def _netcdf(columns: dict[str, np.ndarray]) -> bytes:
    xarray = require("xarray", "write NetCDF")
    first = next(iter(columns))
    # Several series are rows with a mark; one series has its times as the axis.
    axis = "row" if first == "series" else first
    values = {n: (x.astype("datetime64[ns]") if x.dtype.kind == "M" else x.astype(float))
              for n, x in columns.items()}  # fmt: skip
    coords = {} if axis == "row" else {axis: (axis, values.pop(axis))}
    data = xarray.Dataset({name: (axis, x) for name, x in values.items()}, coords)
    return bytes(data.to_netcdf(engine="scipy"))
