"""The memory of an emulated device: what lies where, and who touches it in which order."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

ADDRESS, BLOCK, EPOCH, WRITTEN, WARP, LINE = range(6)


class Memory:
    """Tensors, and nothing between them."""

    def __init__(self) -> None:
        self.races: dict[str, int] = {}
        """Kernels and lines that depend on an order that a device need not keep; how often."""
        self._parts: dict[int, np.ndarray] = {}
        self._starts = np.empty(0, np.uint64)
        self._noted: list[tuple[np.ndarray, tuple[int, ...]]] = []

    def lend(self, *tensors: Tensor) -> None:
        """Memory of tensors on the CPU, all that lies behind them."""
        for x in tensors:
            storage = x.untyped_storage()
            if storage.nbytes():
                words = torch.empty(0, dtype=torch.int64)
                words.set_(storage, 0, (storage.nbytes() // 8,), (1,))
                self._parts[storage.data_ptr()] = words.numpy().view(np.uint64)
        self._starts = np.array(sorted(self._parts), np.uint64)

    def words(self, addresses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of a tensor, and which."""
        at = int(np.searchsorted(self._starts, addresses.min(), side="right")) - 1
        assert at >= 0, "an access to memory that no tensor has"
        start = self._starts[at]
        words, offsets = self._parts[int(start)], addresses - start
        assert not (offsets & np.uint64(7)).any(), "an address between two words"
        which = (offsets >> np.uint64(3)).astype(np.int64)
        assert which.max() < words.size, "an access to memory that no tensor has"
        return words, which

    def note(self, addresses: np.ndarray, written: int, *who: int) -> None:
        """An access; `who` are block, barriers before, warp, and line."""
        self._noted.append((addresses, (written, *who)))

    def load(self, addresses: np.ndarray, *who: int) -> np.ndarray:
        """Words."""
        words, which = self.words(addresses)
        self.note(addresses, 0, *who)
        return words[which]

    def store(self, addresses: np.ndarray, values: np.ndarray, *who: int) -> None:
        """As `load`."""
        words, which = self.words(addresses)
        self.note(addresses, 1, *who)
        words[which] = values

    # --------------------------------------------------------------------------- order of accesses

    def end(self, kernel: str, text: str) -> None:
        """Look through all accesses of a launch.

        What a block writes, no other may touch, and what a warp writes, no other before the next
        barrier.
        """
        noted = np.empty((sum(len(x) for x, _ in self._noted), 6), np.int64)
        if not len(noted):
            return
        sizes = [len(x) for x, _ in self._noted]
        noted[:, ADDRESS] = np.concatenate([x for x, _ in self._noted]).view(np.int64)
        who = np.repeat(np.array([x for _, x in self._noted]), sizes, axis=0)
        noted[:, [WRITTEN, BLOCK, EPOCH, WARP, LINE]] = who
        self._noted.clear()
        lines = text.splitlines()
        for name, key, apart in (
            ("blocks", [ADDRESS], BLOCK), ("warps", [BLOCK, EPOCH, ADDRESS], WARP),
        ):  # fmt: skip
            for found in _met(noted, key, apart):
                said = " | ".join(lines[line - 1].strip() for line in found)
                said = f"{kernel}: {name} meet: {said}"
                self.races[said] = self.races.get(said, 0) + 1


def _met(noted: np.ndarray, key: list[int], apart: int) -> list[list[int]]:
    """Lines of accesses with the same key, one of which writes, that several make."""
    noted = noted[np.lexsort(noted[:, key].T)]
    same = (noted[1:][:, key] == noted[:-1][:, key]).all(1)
    starts = np.flatnonzero(np.r_[True, ~same])
    ends = np.r_[starts[1:], len(noted)]
    first = np.minimum.reduceat(noted[:, apart], starts)
    last = np.maximum.reduceat(noted[:, apart], starts)
    meet = (np.maximum.reduceat(noted[:, WRITTEN], starts) > 0) & (first < last)
    pairs = zip(starts[meet], ends[meet], strict=True)
    return [sorted(set(noted[a:b, LINE].tolist())) for a, b in pairs]
