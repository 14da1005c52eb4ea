"""Samples of each step, compared with sets and slices."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import IterableDataset, TensorDataset
from training_cases import Line, RandomSamples, line_data

from smnn import ShapeError
from smnn.training import ConfigError, SeriesWindows, TrainConfig, fit
from smnn.training._data import (
    Fetcher,
    Sampler,
    Share,
    find_non_finite,
    load,
)

sizes = st.integers(1, 40)


@given(sizes, st.integers(1, 50), st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_processes_share_one_permutation(
    n: int, batch: int, world: int, parts: int, drop: bool
) -> None:
    alone = Sampler(n, batch, seed=7, drop_last=drop)
    ranks = [Sampler(n, batch, 7, drop, world, rank, parts) for rank in range(world)]
    assert alone.steps_per_epoch == (n // batch if drop else -(-n // batch))
    for epoch in range(2):
        seen: list[int] = []
        for position in range(alone.steps_per_epoch):
            step = epoch * alone.steps_per_epoch + position
            whole = alone.batch(step)
            assert alone.count(step) == len(whole)
            shares = [plan.shares(step) for plan in ranks]
            counted = [s.indices for own in shares for s in own if s.counted]
            assert torch.cat(counted).tolist() == whole.tolist()
            assert sum(s.counted for own in shares for s in own) == len(whole)
            if world > 1:  # all must make the same number of passes, to meet in each
                assert {len(own) for own in shares} == {parts}
            for own in shares:
                assert [s.last for s in own] == [False] * (len(own) - 1) + [True]
                assert all(len(s.indices) > 0 and s.epoch == epoch for s in own)
            sizes = [sum(s.counted for s in own) for own in shares]
            assert max(sizes) - min(sizes) <= 1
            seen += whole.tolist()
        if drop:
            assert len(set(seen)) == len(seen) == n // batch * batch
        else:
            assert sorted(seen) == list(range(n))


def test_order_depends_only_on_seed_and_epoch() -> None:
    plan = Sampler(30, 4, seed=1)
    first, second = plan.permutation(0), plan.permutation(1)
    assert not torch.equal(first, second)
    assert torch.equal(plan.permutation(0), first)
    torch.manual_seed(5)
    assert torch.equal(Sampler(30, 7, seed=1, world=3).permutation(1), second)
    assert not torch.equal(Sampler(30, 4, seed=2).permutation(0), first)


def losses(dataset: Any, **options: Any) -> list[float]:
    config = TrainConfig(epochs=2, batch_size=4, log_every=1, lr=0.1, **options)
    return [row["loss"] for row in fit(Line(), dataset, config, progress=False).history]


def test_workers_do_not_change_samples() -> None:
    """Random numbers of a sample depend on the seed, the epoch and the sample only."""
    here = losses(RandomSamples())
    assert losses(RandomSamples(), workers=2) == here
    assert losses(RandomSamples(), seed=1) != here
    tensors = line_data(10)
    assert losses(tensors, workers=1) == losses(tensors)


def test_random_samples_differ_between_epochs() -> None:
    fetch = Fetcher(RandomSamples(), seed=0, name="training")
    first, again, later = (fetch[Share(torch.tensor([3, 4]), 2, e)][0] for e in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)
    alone = fetch[Share(torch.tensor([4]), 1, 0)][0]
    assert alone[0] == first[1]


def test_tensor_data_sets_are_indexed_by_batches() -> None:
    x, y = torch.arange(10), torch.arange(10.0)
    fetch = Fetcher(TensorDataset(x, y), 0, "training")
    found = fetch[Share(torch.tensor([4, 2]), 2, 0)]
    assert [t.tolist() for t in found] == [[4, 2], [4.0, 2.0]]


def test_workers_keep_the_order() -> None:
    fetch = Fetcher(line_data(40), 0, "training")
    plan = Sampler(40, 3, 0)
    wanted = [plan.shares(s)[0] for s in range(30)]
    found = list(load(fetch, iter(wanted), 2))
    assert len(found) == 30
    for (batch, share), expected in zip(found, wanted):
        assert torch.equal(share.indices, expected.indices)
        assert torch.equal(batch[0], line_data(40).tensors[0][expected.indices])


def test_iterable_data_sets_are_rejected() -> None:
    class Stream(IterableDataset):
        def __iter__(self) -> Any:
            return iter([])

    with pytest.raises(ConfigError, match="training data: got Stream; expected a data set with a"):
        Fetcher(Stream(), 0, "training")


def test_digest_distinguishes_data() -> None:
    def digest(dataset: Any) -> str:
        return Fetcher(dataset, 0, "training").digest()

    assert digest(line_data(9)) == digest(line_data(9))
    assert len({digest(line_data(9)), digest(line_data(10)), digest(line_data(9, seed=1))}) == 3


def test_non_finite_samples_are_found() -> None:
    x = torch.zeros(8, 3)
    x[2, 1], x[5, 0] = torch.nan, torch.inf
    fetch = Fetcher(TensorDataset(torch.arange(8), x), 0, "training")
    assert find_non_finite(fetch, torch.tensor([5, 1, 2]), 0) == "samples 2, 5 in [1]"
    assert find_non_finite(fetch, torch.tensor([5, 1]), 0) == "sample 5 in [1]"
    assert find_non_finite(fetch, torch.tensor([0, 1]), 0) is None
    many = Fetcher(TensorDataset(torch.full((9,), torch.nan)), 0, "training")
    assert find_non_finite(many, torch.arange(9), 0) == "samples 0, 1, 2, 3, 4, ... in [0]"


# ---------------------------------------------------------------- windows


@given(
    st.lists(st.integers(6, 20), min_size=1, max_size=4),
    st.integers(1, 6),
    st.integers(1, 5),
    st.integers(1, 3),
)
def test_windows_are_slices(lengths: list[int], length: int, stride: int, V: int) -> None:
    rng = np.random.default_rng(0)
    series = [rng.normal(size=(n, V)) for n in lengths]
    windows = SeriesWindows(series, length, stride)
    expected = [x[i : i + length] for x in series for i in range(0, len(x) - length + 1, stride)]
    assert len(windows) == len(expected)
    found = windows.batch(torch.arange(len(windows)))
    assert np.array_equal(found.numpy(), np.stack(expected))
    order = torch.from_numpy(rng.permutation(len(windows)))
    assert torch.equal(windows.batch(order), found[order])
    assert torch.equal(windows[-1], found[-1])


def test_files_are_memory_mapped(tmp_path: Path) -> None:
    path = tmp_path / "series.npy"
    x = np.arange(40, dtype=np.float32).reshape(20, 2)
    np.save(path, x)
    windows = SeriesWindows(path, length=5)
    assert isinstance(windows._series[0], np.memmap)
    assert windows[3].dtype == torch.float32
    assert np.array_equal(windows[3].numpy(), x[3:8])
    both = SeriesWindows([str(path), torch.zeros(6, 2, dtype=torch.float64)], length=5)
    assert len(both) == 16 + 2
    assert both[0].dtype == torch.float64
    whole = SeriesWindows(np.arange(9), length=2)  # numbers that are not floats
    assert whole[7].tolist() == [[7.0], [8.0]]


def test_wrong_series(tmp_path: Path) -> None:
    x = np.zeros((5, 2))
    for series, length, stride, message in (
        (x, 6, 1, r"series\[0\]: got 5 times; expected at least 6"),
        (
            [x, np.zeros((9, 3))],
            2,
            1,
            r"series\[1\]: got 3 variables; expected 2 as in series\[0\]",
        ),
        (np.zeros((2, 2, 2)), 1, 1, r"shape \(2, 2, 2\) of float64; expected numbers \(N, V\)"),
        (np.array(["a"]), 1, 1, "expected numbers"),
        ([], 1, 1, "series: got an empty sequence"),
        (x, 0, 1, "length: got 0; expected a positive"),
        (x, 2, 0, "stride: got 0; expected a positive"),
    ):
        with pytest.raises(ShapeError, match=message):
            SeriesWindows(series, length, stride)
    with pytest.raises(IndexError, match="window 9 of 4"):
        SeriesWindows(x, 2)[9]
    with pytest.raises(FileNotFoundError, match=r"series\[0\]: there is no file nothing\.npy"):
        SeriesWindows("nothing.npy", 2)
    objects = tmp_path / "objects.npy"
    np.save(objects, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ShapeError, match=r"expected a \.npy file of numbers"):
        SeriesWindows(objects, 1)
