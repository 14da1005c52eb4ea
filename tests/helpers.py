"""Random problems with every option, and an oracle that shares no code with the package."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import smnn
from solver.internals import Problem, backend_named, make_problem
from solver.trust.oracle import rows

NAMES = ("c", "d", "u", "s", "w_gov", "w_init", "w_smooth")
"""Every differentiable argument, in the order of the operators."""
SCHEMES = ("smnn", "central")


# ---------------------------------------------------------------- the oracle


def expand(
    c: Any, d: Any, u: Any, s: Any, *, w_gov: Any = 1.0, w_init: Any = 1.0, w_smooth: Any = 1.0,
    order: int | None = None, scheme: str = "smnn", n_steps: int | None = None,
) -> tuple[tuple[int, ...], list[np.ndarray]]:  # fmt: skip
    """The batch shape, and every argument as a float64 array of its full size."""
    plain = [
        x.detach().cpu().double().numpy() if isinstance(x, Tensor) else np.asarray(x, float)
        for x in (c, d, u, s, w_gov, w_init, w_smooth)
    ]
    c, d, u, s, *weights = plain
    nb = c.ndim - 4
    if s.ndim == nb + 1:
        s = s[..., None]
    orders = c.shape[-1] if order is None else order + 1
    c = np.concatenate([c, np.zeros((*c.shape[:-1], orders - c.shape[-1]))], -1)
    T = n_steps or max(c.shape[nb], d.shape[nb], s.shape[nb] + 1 if s.shape[nb] != 1 else 1)
    batch = np.broadcast_shapes(*(x.shape[:nb] for x in (c, d, u, s)))
    Q, V = c.shape[-3:-1]
    if T == 1:
        s = s[..., :0, :]
    tails = [(T, Q, V, orders), (T, Q), u.shape[nb:], (T - 1, V)]
    tails += [(T, Q), u.shape[nb:], (T - 1, V, orders)]
    full = [np.broadcast_to(x, batch + tail) for x, tail in zip((c, d, u, s, *weights), tails)]
    return batch, full


def rows_of(*args: Any, **kw: Any) -> tuple[tuple[int, ...], tuple[int, ...], Any, Any]:
    """Batch shape, shape of a solution, and the weighted rows of every sample."""
    batch, full = expand(*args, **kw)
    T, _, V, orders = full[0].shape[-4:]
    flat = (x.reshape(math.prod(batch), *x.shape[len(batch) :]) for x in full)
    return batch, (T, V, orders), *rows(*flat, kw.get("scheme", "smnn"))


def oracle(*args: Any, **kw: Any) -> np.ndarray:
    """Expected result of `smnn.solve`: dense least squares by SVD."""
    batch, shape, As, bs = rows_of(*args, **kw)
    y = np.zeros((len(As), *shape))
    for i, (A, b) in enumerate(zip(As, bs)):
        scale = np.linalg.norm(A, axis=0)
        y[i] = (np.linalg.lstsq(A / scale, b, rcond=None)[0] / scale).reshape(shape)
    return y.reshape(*batch, *shape)


def condition(*args: Any, **kw: Any) -> float:
    """Largest condition number over the batch, columns scaled to one; infinite from 1e7 on."""
    worst = 0.0
    for A in rows_of(*args, **kw)[2]:
        norms = np.linalg.norm(A, axis=0)
        if A.shape[0] < A.shape[1] or not norms.all():
            return math.inf
        # Much faster than singular values.
        squares = np.linalg.eigvalsh((A / norms).T @ (A / norms))
        if squares[0] < 1e-14 * squares[-1]:
            return math.inf
        worst = max(worst, math.sqrt(squares[-1] / squares[0]))
    return worst


def relative(got: Any, expected: Any) -> float:
    """Largest difference relative to the largest entry."""
    a, b = (
        x.detach().cpu().double().numpy() if isinstance(x, Tensor) else np.asarray(x, float)
        for x in (got, expected)
    )
    assert a.shape == b.shape, f"{a.shape} is not {b.shape}"
    if a.size == 0:
        return 0.0
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return math.inf
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-300))


# ---------------------------------------------------------------- random problems


@dataclass(frozen=True)
class Case:
    """Arguments of `smnn.solve`."""

    args: tuple[Tensor, Tensor, Tensor, Tensor]
    kw: dict[str, Any]

    def solve(self, backend: str = "auto") -> Tensor:
        return smnn.solve(*self.args, **self.kw, backend=backend)

    def oracle(self) -> np.ndarray:
        return oracle(*self.args, **self.kw)

    def tensors(self) -> dict[str, Tensor]:
        """The arguments that are tensors, by name."""
        named = dict(zip(NAMES, self.args)) | self.kw
        return {k: x for k, x in named.items() if isinstance(x, Tensor)}

    def replace(self, **new: Any) -> "Case":
        args = tuple(new.pop(k, x) for k, x in zip(NAMES, self.args))
        return Case(args, self.kw | new)

    def to(self, *args: Any) -> "Case":
        return self.replace(**{k: x.to(*args) for k, x in self.tensors().items()})


def _weights(
    kind: str, rng: np.random.Generator, shape: tuple[int, ...], lead: int
) -> float | np.ndarray:
    """Weights of one kind for rows of that shape; the first `lead` axes are batch and time."""
    if kind == "one":
        return 1.0
    if kind == "float":
        return float(rng.uniform(0.5, 2.0))
    if kind == "scalar":
        return rng.uniform(0.5, 2.0, ())
    if kind == "broadcast":  # one weight for all samples and times
        return rng.uniform(0.5, 2.0, (1,) * min(lead, len(shape)) + shape[lead:])
    full = rng.uniform(0.5, 2.0, shape)
    if kind == "zeros":
        full[rng.random(shape) < 0.2] = 0.0
    return full


def random_problem(
    seed: int = 0, *, T: int = 6, V: int = 2, Q: int = 2, R: int = 2, T_init: int = 1,
    R_init: int = 0, batch: tuple[int, ...] = (), per_variable: bool = False, constant: str = "",
    shared: str = "", weights: str = "one", order: int | None = None, scheme: str = "smnn",
    device: str = "cpu", dtype: torch.dtype = torch.float64, limit: float | None = 1e5,
    attempts: int = 100,
) -> Case:  # fmt: skip
    """A random well-posed problem: drawn again until its condition number is below `limit`.

    The check is dense: for long sequences turn it off with `limit=None`.

    Args:
        constant: Letters out of `cds`: which have time size 1.
        shared: Letters out of `cdus`: which have batch size 1.
        weights: `one`, `float`, `scalar` (tensor without axes), `broadcast`, `tensor` or `zeros`.
    """
    orders = (R if order is None else order) + 1
    for attempt in range(attempts):
        rng = np.random.default_rng([seed, attempt])

        def lead(name: str, times: int) -> tuple[int, ...]:
            own = tuple(1 for _ in batch) if name in shared else batch
            return (*own, 1 if name in constant and times else times)

        c = rng.standard_normal((*lead("c", T), Q, V, R + 1))
        d = rng.standard_normal((*lead("d", T), Q))
        u = rng.standard_normal((*lead("u", 0)[:-1], T_init, V, R_init + 1))
        s = rng.uniform(0.4, 1.2, lead("s", T - 1) + ((V,) if per_variable else ()))
        nb = len(batch)
        own = tuple(1 for _ in batch) if set("cdus") <= set(shared) else batch
        rows = {
            "w_gov": _weights(weights, rng, (*own, T, Q), nb + 1),
            "w_init": _weights(weights, rng, (*own, T_init, V, R_init + 1), nb + 1),
            "w_smooth": _weights(weights, rng, (*own, T - 1, V, orders), nb + 1),
        }
        if weights == "broadcast" and 0 in (T_init, T - 1):
            rows = {k: w for k, w in rows.items() if T_init or k != "w_init"}
        tensors = {k: x for k, x in rows.items() if not isinstance(x, float)}
        kw: dict[str, Any] = {k: x for k, x in rows.items() if isinstance(x, float) and x != 1.0}
        kw |= {k: torch.as_tensor(x, dtype=dtype, device=device) for k, x in tensors.items()}
        kw |= {"scheme": scheme}
        if order is not None:
            kw["order"] = order
        if set("cds") <= set(constant) or (T == 2 and set("cd") <= set(constant)):
            kw["n_steps"] = T
        args = tuple(torch.as_tensor(x, dtype=dtype, device=device) for x in (c, d, u, s))
        case = Case(args, kw)
        if limit is None or condition(*case.args, **case.kw) < limit:
            return case
    raise AssertionError("no well-posed problem found: are there enough rows?")


def problem_of(case: Case) -> Problem:
    """The validated problem of a case; `order=` pads `c`, as in `smnn.solve`."""
    c, *others = case.args
    kw = {k: x for k, x in case.kw.items() if k != "order"}
    more = max(0, (case.kw.get("order") or 0) + 1 - c.shape[-1])
    return make_problem(torch.nn.functional.pad(c, (0, more)), *others, **kw)[0]


def takes(backend: str, case: Case) -> bool:
    """Whether the backend's kernels hold blocks of this size."""
    V, orders = case.args[0].shape[-2:]
    n = V * max(orders, (case.kw.get("order") or 0) + 1)
    return backend_named(backend).unavailable(case.args[0].device, n) is None


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one time": {"T": 1, "Q": 3, "V": 1, "R": 2},
    "two times": {"T": 2, "R": 1},
    "three times": {"T": 3, "R": 1, "T_init": 2},
    "many times": {"T": 37, "V": 1, "Q": 1, "R_init": 1},
    "order 0": {"R": 0, "V": 3, "Q": 2, "T_init": 2},
    "order 1": {"R": 1, "V": 3, "Q": 3},
    "order 4": {"R": 4, "V": 1, "Q": 1, "T_init": 2, "R_init": 4},
    "one equation": {"Q": 1, "T_init": 3, "R_init": 1},
    "more equations than variables": {"Q": 5},
    "no equation": {"Q": 0, "T_init": 6, "R_init": 2},
    "no initial value": {"T_init": 0, "Q": 3},
    "initial values everywhere": {"T_init": 6, "R_init": 2},
    "batch": {"batch": (3,)},
    "more lanes than one group": {"batch": (11,), "V": 1, "Q": 1, "R_init": 1},
    "two batch axes": {"batch": (2, 3)},
    "broadcast batch": {"batch": (2, 3), "shared": "cs"},
    "broadcast right side": {"batch": (3,), "shared": "du"},
    "steps per variable": {"per_variable": True, "batch": (2,)},
    "constant c": {"constant": "c"},
    "constant d": {"constant": "d"},
    "constant s": {"constant": "s", "per_variable": True},
    "all constant": {"constant": "cds", "batch": (2,), "R_init": 1},
    "weights float": {"weights": "float"},
    "weights scalar": {"weights": "scalar"},
    "weights broadcast": {"weights": "broadcast", "batch": (3,)},
    "weights tensor": {"weights": "tensor", "batch": (2,)},
    "weights zeros": {"weights": "zeros", "batch": (2,), "Q": 3, "T_init": 3, "R_init": 1},
    "order raised": {"order": 4, "R_init": 1},
    "order raised, weights": {"order": 3, "weights": "tensor", "batch": (2,), "R_init": 3},
}
"""Every option of the solver at least once, by name."""


def option(name: str, seed: int = 0, **extra: Any) -> Case:
    """The random problem that shows one option."""
    chosen = OPTIONS[name] | extra
    if chosen.get("scheme") == "central" and max(chosen.get("R", 2), chosen.get("order") or 0) < 1:
        chosen |= {"order": 1, "R_init": 0}  # the central scheme needs one derivative
    return random_problem(seed, **chosen)


# ---------------------------------------------------------------- gradients by every input


def differentiable(seed: int = 1, device: str = "cpu", **extra: Any) -> Case:
    """A small, well-conditioned problem in which every argument is a tensor."""
    sizes = {"T": 5, "V": 2, "Q": 2, "R": 2, "R_init": 1, "weights": "tensor"}
    return random_problem(seed, device=device, limit=1e3, **(sizes | extra))


def solve_of(case: Case, names: tuple[str, ...], backend: str) -> Callable[..., Tensor]:
    """The solution as a function of some arguments."""
    return lambda *x: case.replace(**dict(zip(names, x))).solve(backend)


def loss_of(case: Case, backend: str) -> Callable[..., Tensor]:
    """The sum of squares as a function of all seven arguments."""
    f = solve_of(case, NAMES, backend)
    return lambda *x: f(*x).square().sum()


def leaves(case: Case) -> tuple[Tensor, ...]:
    """All seven arguments as leaves that require gradients."""
    return tuple(case.tensors()[name].detach().clone().requires_grad_() for name in NAMES)


def gradients(case: Case, backend: str) -> tuple[Tensor, ...]:
    """Gradients of the sum of squares by all seven arguments."""
    inputs = leaves(case)
    return torch.autograd.grad(loss_of(case, backend)(*inputs), inputs)


def same(got: Any, expected: Any, tolerance: float = 1e-10) -> bool:
    """Whether two sequences of tensors agree."""
    return all(relative(a, b) < tolerance for a, b in zip(got, expected, strict=True))


# ---------------------------------------------------------------- other processes


def numbers_of(case: Case) -> tuple[float, float]:
    """A solution and a gradient by the CPU kernels, one number each."""
    inputs = tuple(x.detach().clone().requires_grad_() for x in case.args)
    y = Case(inputs, case.kw).solve("cpu")
    y.square().sum().backward()
    return y.sum().item(), inputs[0].grad.sum().item()


def send_numbers(sender: Any, case: Case) -> None:
    """Send numbers from a worker process, first with several threads, then with one.

    PyTorch's own parallel loops hang in a forked process, hence one thread for the gradient, as in
    a `DataLoader` worker.
    """
    sender.send(case.solve("cpu").sum().item())
    torch.set_num_threads(1)
    sender.send(numbers_of(case))
