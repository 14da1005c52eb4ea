"""Problems of the package, and the sizes that `make bench` measures."""

from __future__ import annotations

from smnn.experiments.bench.cases import INPUTS as INPUTS
from smnn.experiments.bench.cases import STEP as STEP
from smnn.experiments.bench.cases import Case as Case
from smnn.experiments.bench.cases import Data as Data
from smnn.experiments.bench.cases import make_data as make_data
from smnn.experiments.bench.cases import relative_mse as relative_mse


def cases(quick: bool) -> list[Case]:
    """All cases of `make bench`."""
    both = ("auto", "torch")
    found = [
        Case("headline", 1, 1000, peers=True, published=True, backends=both, memory=True),
        Case("headline", 512, 50, peers=True, published=True, backends=both, memory=True),
    ]
    lengths = (1_000, 10_000, 100_000) if quick else (1_000, 10_000, 100_000, 1_000_000)
    found += [Case("length", 1, T, published=T <= 10_000, memory=True) for T in lengths]
    found += [Case("length", 16, T) for T in lengths]
    batches = (8, 512) if quick else (1, 8, 64, 512, 4096)
    found += [Case("batch", B, 50, published=B <= 512, backends=both) for B in batches]
    blocks = [(1, 2), (1, 6), (3, 2)]
    if not quick:
        blocks += [(1, 1), (1, 4), (1, 8), (2, 2), (4, 2), (2, 6), (6, 2)]
    blocks.sort(key=lambda size: (size[0] * (size[1] + 1), size))
    found += [Case("block", 64, 200, V, R, published=True, backends=both) for V, R in blocks]
    return found
