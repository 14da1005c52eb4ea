"""Data sets, windows of long series, and the samples of each step.

The samples of a step are a function of the seed, the step and the process. Every epoch has one
permutation of all samples, the same in every process. A step takes the next `batch_size` of it;
each process takes its share of those, in `accumulate` parts. So neither the number of processes nor
resuming changes what a step sees, and the state of the data order is a single number: the step.

Random generators are seeded again for every step, so that nothing between two steps (a progress
bar, an evaluation) changes training, and checkpoints need no generator states.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from smnn.errors import mismatch
from smnn.training._errors import ConfigError

Series = NDArray[Any] | Tensor | str | PathLike[str]


@dataclass(frozen=True)
class Data:
    """Data sets of a run: PyTorch map-style data sets, with a length and an index.

    A data set may define `batch(indices)`, which returns a whole batch for a tensor of indices and
    is faster than loading single samples. `torch.utils.data.TensorDataset` is indexed by batches
    in any case.
    """

    train: Dataset[Any]
    validation: Dataset[Any] | None = None
    test: Dataset[Any] | None = None


class SeriesWindows(Dataset[Tensor]):
    """Windows of equal length from one or several long series.

    Sample `i` is a window `(length, V)`; the windows of the first series come first. Series are
    not copied, and files are memory-mapped, so that only the windows of a batch are read.

    Args:
        series: `(N, V)` or `(N,)` (then `V = 1`) as an array, a tensor or the path of a `.npy`
            file; or a sequence of these, which may differ in `N`.
        length: Number of times in a window.
        stride: Number of times between the starts of consecutive windows.

    Raises:
        ShapeError: A series has another shape, or is shorter than a window.

    Examples:
        >>> import numpy as np
        >>> windows = SeriesWindows(np.arange(10.0), length=4, stride=3)
        >>> len(windows), windows[1].ravel().tolist()
        (3, [3.0, 4.0, 5.0, 6.0])
    """

    def __init__(self, series: Series | Sequence[Series], length: int, stride: int = 1) -> None:
        for name, value in (("length", length), ("stride", stride)):
            if value < 1:
                raise mismatch(name, value, "a positive whole number", "It is a number of times.")
        several = isinstance(series, list | tuple)
        given: Sequence[Series] = series if several else [series]  # type: ignore[assignment,list-item]
        if not given:
            raise mismatch("series", "an empty sequence", "at least one series", "Add a series.")
        self._series = [_open_series(x, f"series[{i}]") for i, x in enumerate(given)]
        self.length, self.stride = length, stride
        for i, x in enumerate(self._series):
            self._check(x, f"series[{i}]")
        counts = [(len(x) - length) // stride + 1 for x in self._series]
        self._ends = np.cumsum(counts)

    def _check(self, x: NDArray[Any], name: str) -> None:
        first = self._series[0]
        if x.shape[1] != first.shape[1]:
            raise mismatch(
                name, f"{x.shape[1]} variables", f"{first.shape[1]} as in series[0]",
                "All series must have the same variables.",
            )  # fmt: skip
        if len(x) < self.length:
            raise mismatch(
                name, f"{len(x)} times", f"at least {self.length}", "Use shorter windows."
            )

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Tensor:
        if not -len(self) <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        return self.batch(torch.tensor([index % len(self)]))[0]

    def batch(self, indices: Tensor) -> Tensor:
        """Return the windows `(B, length, V)` for indices `(B)`."""
        wanted = indices.cpu().numpy()
        of = np.searchsorted(self._ends, wanted, side="right")
        first = np.concatenate(([0], self._ends))[of]
        rows = (wanted - first)[:, None] * self.stride + np.arange(self.length)
        out = np.empty((len(wanted), self.length, self._series[0].shape[1]), self._dtype())
        for i in np.unique(of):
            out[of == i] = self._series[i][rows[of == i]]
        return torch.from_numpy(out)

    def _dtype(self) -> Any:
        found = np.result_type(*self._series)
        return found if found.kind == "f" else np.float64


def _open_series(x: Series, name: str) -> NDArray[Any]:
    if isinstance(x, str | PathLike):
        try:
            array = np.load(Path(x), mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise FileNotFoundError(f"{name}: there is no file {x}.") from None
        except (ValueError, OSError, EOFError, BadZipFile) as error:
            raise mismatch(name, f"{x} ({error})", "a .npy file of numbers", "") from None
        if not isinstance(array, np.ndarray):
            array.close()
            raise mismatch(name, f"{x}, an archive", "a .npy file of numbers", "Save one array.")
    else:
        array = x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        got = f"shape {array.shape} of {array.dtype}"
        raise mismatch(name, got, "numbers (N, V) or (N)", "The first dimension is time.")
    return array


# ---------------------------------------------------------------- random numbers


def derived_seed(seed: int, *parts: object) -> int:
    """Derive a seed below 2**63 from a base seed and any labels."""
    text = "/".join(str(part) for part in (seed, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def seed_all(seed: int, device: torch.device) -> None:
    """Seed Python, NumPy, and PyTorch on the CPU and on the device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(seed)


@contextlib.contextmanager
def preserved_rng() -> Iterator[None]:
    """Restore the states of the CPU generators on exit."""
    state, py, np_state = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
        random.setstate(py)
        np.random.set_state(np_state)


# ---------------------------------------------------------------- samples of a step


class Share(NamedTuple):
    """Samples that go through the model together."""

    indices: Tensor
    counted: int
    """Number of samples that count: all, or 0 for a process without samples in a small batch."""
    epoch: int
    last: bool = True
    """Whether it completes the step."""


@dataclass
class Sampler:
    """The samples of each step."""

    samples: int
    batch_size: int
    seed: int
    drop_last: bool = False
    world: int = 1
    rank: int = 0
    accumulate: int = 1
    _current: tuple[int, Tensor] | None = field(default=None, repr=False)

    @property
    def steps_per_epoch(self) -> int:
        full, remainder = divmod(self.samples, self.batch_size)
        return full + (remainder > 0 and not self.drop_last)

    def permutation(self, epoch: int) -> Tensor:
        """Return the order of the samples in an epoch (counted from 0)."""
        if self._current is None or self._current[0] != epoch:
            generator = torch.Generator().manual_seed(derived_seed(self.seed, "order", epoch))
            self._current = epoch, torch.randperm(self.samples, generator=generator)
        return self._current[1]

    def batch(self, step: int) -> Tensor:
        """Return the samples of a step (counted from 0) over all processes."""
        epoch, position = divmod(step, self.steps_per_epoch)
        start = position * self.batch_size
        return self.permutation(epoch)[start : start + self.batch_size]

    def count(self, step: int) -> int:
        start = step % self.steps_per_epoch * self.batch_size
        return min(self.batch_size, self.samples - start)

    def shares(self, step: int) -> list[Share]:
        """Return the parts of a step that this process computes."""
        epoch = step // self.steps_per_epoch
        return split(self.batch(step), self.world, self.rank, self.accumulate, epoch)


def split(batch: Tensor, world: int, rank: int, parts: int, epoch: int) -> list[Share]:
    """Split a batch into the parts of one process.

    All processes make the same number of passes. A process without samples in a small batch
    computes the first sample with weight zero.
    """
    own = batch.tensor_split(world)[rank].tensor_split(parts)
    if world == 1:
        own = tuple(part for part in own if len(part))
    ends = [i == len(own) - 1 for i in range(len(own))]
    return [
        Share(part if len(part) else batch[:1], len(part), epoch, last)
        for part, last in zip(own, ends)
    ]


class Fetcher(Dataset[Any]):
    """Collated batches of a data set.

    Random numbers drawn in `__getitem__` of the data set depend on the seed, the epoch and the
    sample only, so that loading processes do not change them.
    """

    def __init__(self, dataset: Dataset[Any], seed: int, name: str) -> None:
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
            raise ConfigError(
                f"{name} data: got {type(dataset).__name__}; expected a data set with a length and "
                "an index, so that its order can be resumed."
            )
        self.dataset, self.seed = dataset, seed
        self.size = len(dataset)
        if self.size == 0:
            raise ConfigError(f"{name} data: got no samples; expected at least one.")

    def __getitem__(self, share: Share) -> Any:
        data: Any = self.dataset
        if hasattr(data, "batch"):
            return data.batch(share.indices)
        if isinstance(data, TensorDataset):
            return tuple(x[share.indices.to(x.device)] for x in data.tensors)
        with preserved_rng():
            return default_collate([self._sample(i, share.epoch) for i in share.indices.tolist()])

    def _sample(self, index: int, epoch: int) -> Any:
        seed = derived_seed(self.seed, "sample", epoch, index)
        seed_all(seed, torch.device("cpu"))
        return self.dataset[index]

    def digest(self) -> str:
        """Return a fingerprint of the data: number of samples, first and last sample."""
        found = hashlib.sha256(str(self.size).encode())
        ends = Share(torch.tensor([0, self.size - 1]), 2, 0)
        for _, x in tensors_in(self[ends]):
            found.update(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return found.hexdigest()[:16]


def load(fetcher: Fetcher, shares: Iterator[Share], workers: int) -> Iterator[tuple[Any, Share]]:
    """Yield batches in order, prefetched by `workers` processes if there are any."""
    if workers == 0:
        yield from ((fetcher[share], share) for share in shares)
        return
    sent: list[Share] = []

    def recorded() -> Iterator[Share]:
        for share in shares:
            sent.append(share)
            yield share

    loader: DataLoader[Any] = DataLoader(
        fetcher,
        sampler=recorded(),
        batch_size=None,
        num_workers=workers,
        generator=torch.Generator(),  # by default it draws from the generator that training uses
    )
    try:
        for batch in loader:
            yield batch, sent.pop(0)
    except (EOFError, ConnectionError) as error:
        # The worker died while sending. PyTorch also raises a RuntimeError from its SIGCHLD
        # handler, at an arbitrary later point: wait for it here.
        with contextlib.suppress(RuntimeError):
            time.sleep(1.0)
        raise RuntimeError("DataLoader worker (pid unknown) died while it sent a batch") from error


# ---------------------------------------------------------------- batches


def moved(batch: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Move a batch to the device and convert its floating-point tensors to `dtype`."""

    def move(x: Tensor) -> Tensor:
        if device.type == "cuda" and x.device.type == "cpu":
            x = x.pin_memory().to(device, non_blocking=True)
        return x.to(device, dtype if x.is_floating_point() else None)

    return map_tensors(move, batch)


def map_tensors(function: Any, batch: Any) -> Any:
    """Apply a function to every tensor of a nested structure of dicts, lists and tuples."""
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, dict):
        return {key: map_tensors(function, value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(function, value) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(map_tensors(function, value) for value in batch)
    return batch


def tensors_in(batch: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of a batch with its path: `"x"`, `"[0]"`."""
    if isinstance(batch, Tensor):
        yield path, batch
    elif isinstance(batch, dict):
        for key, value in batch.items():
            yield from tensors_in(value, f"{path}.{key}" if path else str(key))
    elif isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        for i, value in enumerate(batch):
            yield from tensors_in(value, f"{path}[{i}]")


def find_non_finite(fetcher: Fetcher, indices: Tensor, epoch: int) -> str | None:
    """Describe which of the samples contain NaN or infinity, and in which tensor."""
    for place, x in tensors_in(fetcher[Share(indices, len(indices), epoch)]):
        if not x.is_floating_point() or x.ndim == 0 or len(x) != len(indices):
            continue
        bad = ~x.flatten(1).isfinite().all(1) if x.ndim > 1 else ~x.isfinite()
        if bad.any():
            names = indices[bad.cpu()].sort().values.tolist()
            listed = ", ".join(map(str, names[:5])) + (", ..." if len(names) > 5 else "")
            where = f" in {place}" if place else ""
            return f"sample{'s' * (len(names) > 1)} {listed}{where}"
    return None
