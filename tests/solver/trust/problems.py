"""Random problems with all options of `smnn.solve`, many of one shape at a time.

A `Shape` describes a kind of problem; `draw` creates one from any source of choices (Hypothesis,
or NumPy in the long run); `Problems` contains random numbers for it and their exact solutions.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

import smnn
from helpers import NAMES, Case, expand
from solver.trust import oracle

SCHEMES = ("smnn", "central")
WEIGHTS = ("one", "float", "scalar", "broadcast", "tensor", "zeros")


@dataclass(frozen=True)
class Shape:
    """One kind of problem."""

    seed: int
    batch: tuple[int, ...]
    T: int
    V: int
    Q: int
    R: int
    """Highest order in `c`."""
    order: int | None
    """`order=`, if given."""
    T_init: int
    m_init: int
    scheme: str
    weights: str
    per_variable: bool
    constant: str
    """Letters out of `cds`: time size 1."""
    shared: str
    """Letters out of `cdus`: batch size 1."""
    step: float
    """Typical size of a step."""
    spread: float
    """Decades over which coefficients and steps are spread."""

    @property
    def m(self) -> int:
        return (self.R if self.order is None else self.order) + 1

    @property
    def n(self) -> int:
        """Unknowns per time."""
        return self.V * self.m


Choose = Callable[[Sequence[Any]], Any]


def draw(choose: Choose, samples: int, **fixed: Any) -> Shape:
    """Draw a shape; `fixed` overrides attributes by values or functions of the others."""
    V = choose([1, 1, 1, 2, 2, 3])
    scheme = choose(SCHEMES)
    R = choose([0, 1, 1, 2, 2, 3, 4] if V == 1 else [0, 1, 2] if V == 2 else [0, 1])
    most = 12 // V - 1
    order = choose([None, None, None, R, R + 1, R + 2])
    if scheme == "central" and max(R, order or 0) < 1:
        order = 1
    if order is not None:
        order = min(order, most)
    m = max(R, order or 0) + 1
    T = choose([1, 2, 3, 4, 5, 6, 8, 11] if V * m > 4 else [1, 2, 3, 5, 7, 12, 24])
    T_init = choose(sorted({0, 1, min(2, T), T // 2, T}))
    chosen = {
        "seed": choose(range(2**20)),
        "batch": choose([(samples,), (samples,), (2, samples // 2), (1,), ()]),
        "T": T, "V": V, "R": R, "order": order, "T_init": T_init,
        "Q": choose([V, V, V, V + 1, 2 * V, 1, 0, V * m]),
        "m_init": choose(range(1, m + 1)),
        "scheme": scheme,
        "weights": choose(WEIGHTS),
        "per_variable": choose([False, False, True]),
        "constant": choose(["", "", "", "c", "d", "s", "cd", "cds"]),
        "shared": choose(["", "", "", "c", "s", "cs", "du", "d", "cu"]),
        "step": choose([0.01, 0.1, 0.5, 1.0, 1.0, 3.0]),
        "spread": choose([0.0, 0.0, 1.0, 3.0]),
    }  # fmt: skip
    for name, value in fixed.items():
        chosen[name] = value(chosen) if callable(value) else value
    return Shape(**chosen)


def _weights(shape: Shape, rng: np.random.Generator, rows: tuple[int, ...]) -> Any:
    own = tuple(shape.batch)
    if shape.weights == "one":
        return 1.0
    if shape.weights == "float":
        return float(rng.uniform(0.5, 2.0))
    if shape.weights == "scalar":
        return torch.tensor(rng.uniform(0.5, 2.0), dtype=torch.float64)
    if shape.weights == "broadcast":
        ones = (1,) * (len(own) + min(1, rows[0]))
        return torch.as_tensor(rng.uniform(0.5, 2.0, ones + (rows if not rows[0] else rows[1:])))
    full = 10 ** rng.uniform(-0.3, 0.3, own + rows)
    if shape.weights == "zeros":
        full[rng.random(full.shape) < 0.15] = 0.0
    return torch.as_tensor(full)


def on_device(case: Case, backend: str) -> Case:
    """Move a case to the backend's device: CUDA for `gpu`, if available."""
    return case.to("cuda") if backend == "gpu" and torch.cuda.is_available() else case


def solve_ex(case: Case, backend: str, **extra: Any) -> tuple[Tensor, smnn.SolveInfo]:
    """Solve, and return the results on the CPU."""
    case = on_device(case, backend)
    y, info = smnn.solve_ex(*case.args, **(case.kw | extra), backend=backend)
    return y.cpu(), smnn.SolveInfo(*(None if x is None else x.cpu() for x in info))


@dataclass(frozen=True)
class Problems:
    """Random problems of one shape, with their exact solutions."""

    shape: Shape
    case: Case
    full: list[np.ndarray] = field(repr=False)
    """The seven arguments at their full size with one batch axis."""
    exact: oracle.Exact = field(repr=False)
    right: tuple[Tensor, Tensor] = field(repr=False)
    """A second right-hand side; `exact` has its solution too, and that of `2 b - b2`."""
    second: list[np.ndarray] = field(repr=False)
    """The same at full size."""

    @property
    def count(self) -> int:
        return self.full[0].shape[0]

    def flat(self, y: Any) -> np.ndarray:
        """A solution as `(N, unknowns)`."""
        return np.asarray(torch.as_tensor(y).detach().cpu().double()).reshape(self.count, -1)

    def ratio(self, got: Any, expected: Any = None, columns: Sequence[int] = (0,)) -> np.ndarray:
        """Error of each well-posed sample in units of the unavoidable rounding error."""
        if expected is None:
            expected = self.exact.y[..., 0]
        error = np.linalg.norm(self.exact.norms * (self.flat(got) - self.flat(expected)), axis=1)
        unit = self.exact.limit[:, list(columns)].sum(1)
        with np.errstate(invalid="ignore"):
            ratio = np.where(error == 0, 0.0, error / np.where(unit > 0, unit, 1e-300))
        return np.nan_to_num(ratio[self.well_posed], nan=np.inf)

    def error(self, got: Any) -> np.ndarray:
        """Relative error of each sample of moderate condition, in units of its columns."""
        weight, exact = self.exact.norms, self.exact.y[..., 0]
        size = np.linalg.norm(weight * exact, axis=1)
        error = np.linalg.norm(weight * (self.flat(got) - exact), axis=1)
        return (error / np.where(size > 0, size, 1.0))[self.exact.condition < 1e6]

    @property
    def well_posed(self) -> np.ndarray:
        return self.exact.converged & (self.exact.condition < 1e10)

    def solve_ex(self, backend: str, **extra: Any) -> tuple[Tensor, smnn.SolveInfo]:
        return solve_ex(self.case, backend, **extra)

    def at_full_size(self, **new: Any) -> Case:
        """The same problems without broadcasting, with some of the seven arrays replaced."""
        arrays = dict(zip(NAMES, self.full)) | new
        tensors = {k: torch.from_numpy(x.copy()) for k, x in arrays.items()}
        args = tuple(tensors.pop(k) for k in "cdus")
        T = arrays["c"].shape[1]
        return Case(args, {"scheme": self.shape.scheme, "n_steps": T} | tensors)


@functools.lru_cache(maxsize=8)
def random_problems(shape: Shape) -> Problems:
    """Random problems of a shape, cached so that all backends get the same."""
    rng = np.random.default_rng(shape.seed)

    def lead(name: str, times: int) -> tuple[int, ...]:
        own = tuple(1 for _ in shape.batch) if name in shape.shared else shape.batch
        return (*own, 1 if name in shape.constant and times else times)

    def spread(size: tuple[int, ...]) -> np.ndarray:
        return 10 ** (shape.spread * (rng.random(size) - 0.5))

    T, V, Q, R = shape.T, shape.V, shape.Q, shape.R
    at = (*lead("c", T), Q, V, R + 1)
    c = rng.standard_normal(at) * spread(at)
    d = rng.standard_normal((*lead("d", T), Q))
    u = rng.standard_normal((*lead("u", 0)[:-1], shape.T_init, V, shape.m_init))
    at = lead("s", T - 1) + ((V,) if shape.per_variable else ())
    s = shape.step * rng.uniform(0.5, 1.5, at) * spread(at)
    rows = {"w_gov": (T, Q), "w_init": u.shape[len(shape.batch) :], "w_smooth": (T - 1, V, shape.m)}
    kw: dict[str, Any] = {k: _weights(shape, rng, size) for k, size in rows.items()}
    kw |= {"scheme": shape.scheme, "n_steps": T}
    if shape.order is not None:
        kw["order"] = shape.order
    case = Case(tuple(torch.as_tensor(x) for x in (c, d, u, s)), kw)
    batch, arrays = expand(*case.args, **kw)
    N = int(np.prod(batch, dtype=int))
    full = [x.reshape((N, *x.shape[len(batch) :])) for x in arrays]
    other = [torch.as_tensor(rng.standard_normal(x.shape)) for x in (d, u)]
    _, more = expand(case.args[0], *other, case.args[3], **kw)
    second = [x.reshape(a.shape) for x, a in zip(more[1:3], full[1:3])]
    wide = [x.astype(oracle.WIDE) for x in full]
    A, b = oracle.rows(*wide, shape.scheme)
    _, b2 = oracle.rows(wide[0], *(x.astype(oracle.WIDE) for x in second), *wide[3:], shape.scheme)
    exact = oracle.least_squares(A, np.stack([b, b2, 2 * b - b2], -1))
    return Problems(shape, case, full, exact, (other[0], other[1]), second)
