"""Which samples each step sees, as a function of the seed, the step and the process alone.

Every epoch has one permutation of all samples, the same in every process. A step takes the next
`batch_size` of it; each process takes its share of those, in `accumulate` parts. So neither the
number of processes nor a resumption changes what a step sees, and resuming needs one number: the
step.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from smnn.training._config import TrainConfig
from smnn.training._errors import ConfigError
from smnn.training._rng import derived_seed, preserved, seed_all


class Share(NamedTuple):
    """Samples that go through the model together."""

    indices: Tensor
    counted: int
    """How many of them count: all, or none where a process would otherwise stand idle."""
    epoch: int
    last: bool = True
    """Whether the step is complete with it."""


@dataclass
class Plan:
    """The steps of a run."""

    samples: int
    batch_size: int
    seed: int
    drop_last: bool = False
    world: int = 1
    rank: int = 0
    accumulate: int = 1
    _kept: tuple[int, Tensor] | None = field(default=None, repr=False)

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps."""
        whole, rest = divmod(self.samples, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def permutation(self, epoch: int) -> Tensor:
        """Order of the samples in an epoch (counted from 0)."""
        if self._kept is None or self._kept[0] != epoch:
            generator = torch.Generator().manual_seed(derived_seed(self.seed, "order", epoch))
            self._kept = epoch, torch.randperm(self.samples, generator=generator)
        return self._kept[1]

    def batch(self, step: int) -> Tensor:
        """Samples of a step (counted from 0), over all processes."""
        epoch, position = divmod(step, self.steps_per_epoch)
        start = position * self.batch_size
        return self.permutation(epoch)[start : start + self.batch_size]

    def count(self, step: int) -> int:
        """How many samples that are."""
        start = step % self.steps_per_epoch * self.batch_size
        return min(self.batch_size, self.samples - start)

    def shares(self, step: int) -> list[Share]:
        """The parts of a step that this process computes."""
        epoch = step // self.steps_per_epoch
        return shares(self.batch(step), self.world, self.rank, self.accumulate, epoch)


def total_steps(config: TrainConfig, plan: Plan) -> int:
    """Optimiser steps of a run.

    Raises:
        ConfigError: An epoch has none.
    """
    if plan.steps_per_epoch == 0:
        raise ConfigError(
            f"batch_size: got {config.batch_size}; there are {plan.samples} training samples, and "
            "drop_last leaves no batch. Use smaller batches."
        )
    limits = [
        config.max_steps,
        None if config.epochs is None else config.epochs * plan.steps_per_epoch,
    ]
    return min(limit for limit in limits if limit is not None)


def shares(whole: Tensor, world: int, rank: int, parts: int, epoch: int) -> list[Share]:
    """Cut a batch into the parts of one process.

    Processes must keep in step, so one that gets no sample of a small last batch computes its
    first sample with weight zero.
    """
    mine = whole.tensor_split(world)[rank].tensor_split(parts)
    if world == 1:
        mine = tuple(part for part in mine if len(part))
    ends = [i == len(mine) - 1 for i in range(len(mine))]
    return [
        Share(part if len(part) else whole[:1], len(part), epoch, last)
        for part, last in zip(mine, ends)
    ]


class Fetch(Dataset[Any]):
    """Collated batches of a data set, wherever it is called.

    Random numbers drawn in `__getitem__` of the data set follow from the seed, the epoch and the
    sample, so that loading in other processes, or in another number of them, changes nothing.
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
        with preserved():
            return default_collate([self._sample(i, share.epoch) for i in share.indices.tolist()])

    def _sample(self, index: int, epoch: int) -> Any:
        seed = derived_seed(self.seed, "sample", epoch, index)
        seed_all(seed, torch.device("cpu"))
        return self.dataset[index]

    def digest(self) -> str:
        """A short sign of the contents: the number of samples, the first and the last."""
        found = hashlib.sha256(str(self.size).encode())
        ends = Share(torch.tensor([0, self.size - 1]), 2, 0)
        for _, x in tensors_in(self[ends]):
            found.update(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return found.hexdigest()[:16]


def load(fetch: Fetch, wanted: Iterator[Share], workers: int) -> Iterator[tuple[Any, Share]]:
    """Batches in order, prepared ahead by other processes if there are `workers`."""
    if workers == 0:
        yield from ((fetch[share], share) for share in wanted)
        return
    sent: list[Share] = []

    def noted() -> Iterator[Share]:
        for share in wanted:
            sent.append(share)
            yield share

    loader: DataLoader[Any] = DataLoader(
        fetch,
        sampler=_Once(noted()),
        batch_size=None,
        num_workers=workers,
        generator=torch.Generator(),  # else it draws from the generator that training uses
    )
    try:
        for batch in loader:
            yield batch, sent.pop(0)
    except (EOFError, ConnectionError) as error:
        # It died while it was sending. PyTorch tells of a death by a signal, whose exception would
        # interrupt whatever comes next: wait for it here.
        with contextlib.suppress(RuntimeError):
            time.sleep(1.0)
        raise RuntimeError("DataLoader worker (pid unknown) died while it sent a batch") from error


class _Once:
    """An iterator as a sampler; `DataLoader` wants something iterable."""

    def __init__(self, shares: Iterator[Share]) -> None:
        self.shares = shares

    def __iter__(self) -> Iterator[Share]:
        return self.shares


def tensors_in(batch: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a batch, with its place in it: `"x"`, `"[0]"`."""
    if isinstance(batch, Tensor):
        yield path, batch
    elif isinstance(batch, dict):
        for key, value in batch.items():
            yield from tensors_in(value, f"{path}.{key}" if path else str(key))
    elif isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        for i, value in enumerate(batch):
            yield from tensors_in(value, f"{path}[{i}]")


def find_non_finite(fetch: Fetch, indices: Tensor, epoch: int) -> str | None:
    """Which of the samples hold NaN or infinity, and where, in words."""
    for place, x in tensors_in(fetch[Share(indices, len(indices), epoch)]):
        if not x.is_floating_point() or x.ndim == 0 or len(x) != len(indices):
            continue
        bad = ~x.flatten(1).isfinite().all(1) if x.ndim > 1 else ~x.isfinite()
        if bad.any():
            names = indices[bad.cpu()].sort().values.tolist()
            listed = ", ".join(map(str, names[:5])) + (", ..." if len(names) > 5 else "")
            where = f" in {place}" if place else ""
            return f"sample{'s' * (len(names) > 1)} {listed}{where}"
    return None
