"""The data of a run, and windows cut from long series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from smnn.errors import mismatch

Series = NDArray[Any] | Tensor | str | PathLike[str]


@dataclass(frozen=True)
class Data:
    """Data sets of a run: anything with a length and an index, as PyTorch has them.

    A data set may define `batch(indices)`, which returns a whole batch for a tensor of indices, to
    be faster than sample by sample. `torch.utils.data.TensorDataset` is fast as it is.
    """

    train: Dataset[Any]
    validation: Dataset[Any] | None = None
    test: Dataset[Any] | None = None


class SeriesWindows(Dataset[Tensor]):
    """Windows of equal length from one or several long series.

    Sample `i` is a window `(length, V)`; the windows of the first series come first. Series are
    not copied and a file is mapped, not read, so that only the windows of a batch enter memory,
    also where every process has its own share of them.

    Args:
        series: `(N, V)` or `(N,)` (then `V = 1`) as an array, a tensor or the path of a `.npy`
            file; or a sequence of these, which may differ in `N`.
        length: Times in a window.
        stride: Times from the start of one window to that of the next.

    Raises:
        ShapeError: A series is not of that shape, or shorter than a window.

    Examples:
        >>> import numpy as np
        >>> windows = SeriesWindows(np.arange(10.0), length=4, stride=3)
        >>> len(windows), windows[1].ravel().tolist()
        (3, [3.0, 4.0, 5.0, 6.0])
    """

    def __init__(self, series: Series | Sequence[Series], length: int, stride: int = 1) -> None:
        for name, value in (("length", length), ("stride", stride)):
            if value < 1:
                raise mismatch(name, value, "a positive whole number", "It counts times.")
        several = isinstance(series, list | tuple)
        given: Sequence[Series] = series if several else [series]  # type: ignore[assignment,list-item]
        if not given:
            raise mismatch("series", "none", "one series or more", "There is nothing to cut.")
        self._series = [_opened(x, f"series[{i}]") for i, x in enumerate(given)]
        self.length, self.stride = length, stride
        for i, x in enumerate(self._series):
            self._check(x, f"series[{i}]")
        counts = [(len(x) - length) // stride + 1 for x in self._series]
        self._ends = np.cumsum(counts)

    def _check(self, x: NDArray[Any], name: str) -> None:
        first = self._series[0]
        if x.shape[1] != first.shape[1]:
            raise mismatch(
                name,
                f"{x.shape[1]} variables",
                f"{first.shape[1]} as series[0] has",
                "All series must have the same variables.",
            )
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
        """Windows `(B, length, V)` for indices `(B)`."""
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


def _opened(x: Series, name: str) -> NDArray[Any]:
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
        raise mismatch(name, got, "numbers (N, V) or (N)", "Times come first.")
    return array
