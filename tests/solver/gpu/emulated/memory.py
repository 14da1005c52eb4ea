"""Memory of an emulated device, with checks of bounds and race conditions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

ADDRESS, BLOCK, EPOCH, WRITTEN, WARP, LINE = range(6)


class Memory:
    """The memory of tensors; any other access is an error."""

    def __init__(self) -> None:
        self.races: dict[str, int] = {}
        """Race conditions (kernel and lines), and how often they occurred."""
        self._parts: dict[int, np.ndarray] = {}
        self._starts = np.empty(0, np.uint64)
        self._noted: list[tuple[np.ndarray, tuple[int, ...]]] = []

    def lend(self, *tensors: Tensor) -> None:
        """Add the storages of tensors on the CPU."""
        for x in tensors:
            storage = x.untyped_storage()
            if storage.nbytes():
                words = torch.empty(0, dtype=torch.int64)
                words.set_(storage, 0, (storage.nbytes() // 8,), (1,))
                self._parts[storage.data_ptr()] = words.numpy().view(np.uint64)
        self._starts = np.array(sorted(self._parts), np.uint64)

    def words(self, addresses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Words of the tensor at some addresses, and their indices."""
        at = int(np.searchsorted(self._starts, addresses.min(), side="right")) - 1
        assert at >= 0, "an access outside of all tensors"
        start = self._starts[at]
        words, offsets = self._parts[int(start)], addresses - start
        assert not (offsets & np.uint64(7)).any(), "an address between two words"
        which = (offsets >> np.uint64(3)).astype(np.int64)
        assert which.max() < words.size, "an access outside of all tensors"
        return words, which

    def note(self, addresses: np.ndarray, written: int, *who: int) -> None:
        """Record an access; `who` are block, barriers before, warp, and line."""
        self._noted.append((addresses, (written, *who)))

    def load(self, addresses: np.ndarray, *who: int) -> np.ndarray:
        """Load words."""
        words, which = self.words(addresses)
        self.note(addresses, 0, *who)
        return words[which]

    def store(self, addresses: np.ndarray, values: np.ndarray, *who: int) -> None:
        """Store words."""
        words, which = self.words(addresses)
        self.note(addresses, 1, *who)
        words[which] = values

    # --------------------------------------------------------------------------- order of accesses

    def end(self, kernel: str, text: str) -> None:
        """Check all accesses of a launch for race conditions.

        No other block may access what a block writes, and no other warp what a warp writes before
        the next barrier.
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
    """Lines of conflicting accesses: same key, different origin, at least one write."""
    noted = noted[np.lexsort(noted[:, key].T)]
    same = (noted[1:][:, key] == noted[:-1][:, key]).all(1)
    starts = np.flatnonzero(np.r_[True, ~same])
    ends = np.r_[starts[1:], len(noted)]
    first = np.minimum.reduceat(noted[:, apart], starts)
    last = np.maximum.reduceat(noted[:, apart], starts)
    meet = (np.maximum.reduceat(noted[:, WRITTEN], starts) > 0) & (first < last)
    pairs = zip(starts[meet], ends[meet], strict=True)
    return [sorted(set(noted[a:b, LINE].tolist())) for a, b in pairs]
