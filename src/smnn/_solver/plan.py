"""Backends, and plans: everything that follows from the memory layout of a problem.

A `Backend` makes a `Plan` for a problem; a `Plan` solves all problems of that layout. `plan_for`
keeps the plans of recent layouts. It is the only cache of the solver, and holds no tensor of a
caller.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from smnn._solver.problem import Problem, Solved, Weight, make_problem
from smnn._solver.rows import row_gradients
from smnn._solver.tracing import constant
from smnn.errors import BackendError

LARGEST_CACHE = 512
ORDINARY = (Tensor, torch.nn.Parameter)  # Types of tensors whose memory holds their values


class Plan(ABC):
    """How a backend solves problems of one layout. Stateless after construction.

    Args:
        backend: The backend that made it.
        problem: Its weights are constants of the plan; `c, d, u, s` only define the layout, and may
            be on the `meta` device.
        pieces: Number of pieces of time into which each sequence is cut.
    """

    status_is_final = False
    """Whether `solve` has already examined doubtful samples (see `diagnostics.final_status`)."""
    forward_keeps_factor = True
    """Whether what `forward` returns as factor, if not empty, can be passed to `adjoint`."""

    def __init__(self, backend: Backend, problem: Problem, pieces: int) -> None:
        self.backend, self.problem, self.pieces = backend, problem, pieces
        self.batch: tuple[int, ...] = tuple(problem.c.shape[:1])
        self.given: Sequence[Tensor] = problem.tensors
        """Tensors with the layout of those that the plan is called with."""

    @abstractmethod
    def solve(self, tensors: Sequence[Tensor] = ()) -> Solved:
        """Factorize and solve.

        Args:
            tensors: `c, d, u, s` of the layout of the plan; those of its problem by default.
        """

    def forward(self, tensors: Sequence[Tensor]) -> Solved:
        """As `solve`; the factor is empty if `gradients` would rather compute it again."""
        return self.solve(tensors)

    @abstractmethod
    def adjoint(self, factor: Tensor, g: Tensor) -> Tensor:
        """Solve `M x = g` with a factor, where `M` is the normal matrix."""

    def gradients(
        self, tensors: Sequence[Tensor], y: Tensor, factor: Tensor, gy: Tensor,
        wanted: Sequence[bool], into: Sequence[Tensor | None] = (),
    ) -> list[Tensor | None]:  # fmt: skip
        """Gradients by `c, d, u, s`, and by the weights if `wanted` has seven entries.

        Args:
            tensors: `c, d, u, s` of the layout of the plan.
            y: The solution.
            factor: As returned by `solve` or `forward`.
            gy: Gradient by the solution.
            wanted: Which gradients to compute.
            into: Contiguous memory that may be used for them.

        Returns:
            Gradients of the shapes of the tensors, or of their broadcast form; `None` where not
            wanted.
        """
        return self.backend.row_gradients(self.fit(tensors), self.adjoint(factor, gy), y, wanted)

    def covariances(self, tensors: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor, Tensor] | None:
        """Blocks of the inverse normal matrix, or `None` if the backend cannot compute them.

        Returns:
            Of each time `(B, T, n, n)`, of each time with the next `(B, T-1, n, n)`, and
            the logarithm of the determinant of the normal matrix `(B,)`.
        """
        del tensors
        return None

    def fit(self, tensors: Sequence[Tensor]) -> Problem:
        """The problem of `c, d, u, s` of this layout (or of all seven tensors)."""
        views = [
            x if x.shape == like.shape else x.as_strided(like.shape, like.stride())
            for x, like in zip(tensors, self.problem.tensors, strict=False)
        ]
        return Problem.of([*views, *self.problem.tensors[len(views) :]], self.problem.scheme)

    def compiled(self, differentiable: Callable[..., Any]) -> Any:
        """`solve` with its derivative as one compiled call, if the backend has that; else `None`.

        Args:
            differentiable: Computes gradients that are themselves differentiable from the plan, its
                tensors, the gradient by `y`, which are wanted, and whether to keep the factor.
        """
        del differentiable
        return None

    def out_of_memory(self) -> Exception | None:
        """A more helpful error for a lack of memory."""
        return None

    @functools.cached_property
    def saved_layout(self) -> list[tuple[tuple[int, ...], torch.dtype, torch.device]]:
        """Strides, types and devices of what autograd saves: the tensors, `y` and the factor."""
        dtype, device = torch.float64, self.problem.w_gov.device
        y_stride = torch.empty(self.problem.y_shape, device="meta").stride()
        strides = [*(x.stride() for x in self.given), y_stride, (1,)]
        return [(stride, dtype, device) for stride in strides]


class Backend(ABC):
    """One way to compute the solution. All tensors are float64, with the shapes of `Problem`."""

    name: str
    schemes: tuple[str, ...] = ()
    """Those it has kernels for; empty for all."""

    @abstractmethod
    def unavailable(self, device: torch.device | None = None, n: int = 1) -> str | None:
        """Why the backend cannot be used, or `None`.

        Args:
            device: Where the tensors are; `None` checks this process only.
            n: Unknowns per time, `V (R+1)`.
        """

    @abstractmethod
    def plan(self, problem: Problem, pieces: int | None = None) -> Plan:
        """The plan for a layout; `pieces` defaults to `self.pieces_of(problem)`."""

    @abstractmethod
    def factor_size(self, problem: Problem, pieces: int) -> int:
        """Length of `Solved.factor`; from shapes only, so that `torch.compile` can trace it."""

    def pieces_of(self, problem: Problem) -> int:
        """Number of pieces of time into which each sequence of a problem is cut."""
        return self.pieces(*problem.y_shape[:2], problem.block, problem.reach)

    def pieces(self, B: int, T: int, n: int, reach: int) -> int:
        """Number of pieces for `B` sequences of `T` times, with `n` unknowns per time."""
        del B, T, n, reach
        return 1

    def full_load(self, n: int) -> int:
        """Number of samples below which a solve hardly gets faster."""
        del n
        return 1

    def row_gradients(
        self, problem: Problem, lam: Tensor, y: Tensor, wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        """Gradients by `c, d, u, s` and the weights for a known adjoint solution `lam`."""
        every = row_gradients(problem, lam, y)
        return [g if w else None for g, w in zip(every, wanted, strict=False)]


# ---------------------------------------------------------------- registry

_BACKENDS: dict[str, Backend] = {}


def register(backend: Backend) -> None:
    """Make a backend known; `"auto"` tries backends in the order of their registration."""
    _BACKENDS[backend.name] = backend


def available_backends() -> dict[str, str | None]:
    """Every backend with `None`, or the reason why it cannot be used in this process."""
    return {name: backend.unavailable() for name, backend in _BACKENDS.items()}


def backend_named(name: str) -> Backend:
    """The backend of that name.

    Raises:
        BackendError: There is none.
    """
    if name not in _BACKENDS:
        known = ", ".join(["'auto'", *map(repr, _BACKENDS)])
        raise BackendError(f"backend: got {name!r}; expected one of {known}.")
    return _BACKENDS[name]


@constant
def _unavailable(name: str) -> str | None:
    return _BACKENDS[name].unavailable()


def choose_backend(name: str, device: torch.device, n: int, scheme: str = "smnn") -> Backend:
    """The requested backend, or for `"auto"` the first that takes blocks of `n` unknowns.

    Raises:
        BackendError: The backend cannot be used; the message gives the reason.
    """
    candidates = list(_BACKENDS.values()) if name == "auto" else [backend_named(name)]
    reasons = []
    for backend in candidates:
        reason = _unavailable(backend.name) or backend.unavailable(device, n)
        if reason is None and backend.schemes and scheme not in backend.schemes:
            known = " and ".join(map(repr, backend.schemes))
            reason = f"it has kernels for the schemes {known} only, not for {scheme!r}"
        if reason is None:
            return backend
        reasons.append(f"{backend.name}: {reason}")
    raise BackendError(f"backend {name!r} cannot be used here. " + "; ".join(reasons) + ".")


# ---------------------------------------------------------------- plans of recent layouts


class Layout(NamedTuple):
    """Everything about a call but the values of its tensors."""

    tensors: tuple[tuple[torch.Size, tuple[int, ...], torch.device], ...]
    """Shapes, strides and devices of `c, d, u, s`."""
    weights: tuple[float, float, float]
    scheme: str
    n_steps: int | None
    backend: str
    threads: int


_plans: OrderedDict[Layout, Plan | None] = OrderedDict()


def plan_for(
    tensors: Sequence[Tensor], weights: tuple[Weight, Weight, Weight], scheme: str,
    n_steps: int | None, backend: str,
) -> Plan | None:  # fmt: skip
    """The plan for tensors of this layout, made on the first call; `None` if there can be none.

    Tensors that have to be converted or rearranged first, and weights that are tensors, go without.
    """
    w_gov, w_init, w_smooth = weights
    if not (isinstance(w_gov, float) and isinstance(w_init, float) and isinstance(w_smooth, float)):
        return None
    layouts = []
    for x in tensors:
        if type(x) not in ORDINARY or x.dtype is not torch.float64 or x.is_neg():
            return None
        layouts.append((x.shape, x.stride(), x.device))
    layout = Layout(
        tuple(layouts), (w_gov, w_init, w_smooth), scheme, n_steps, backend, torch.get_num_threads()
    )
    try:
        return _plans[layout]
    except KeyError:
        pass
    plan = _make_plan(tensors, layout)
    if _constants_can_be_kept(tensors[0].device):
        _plans[layout] = plan
        if len(_plans) > LARGEST_CACHE:
            _plans.popitem(last=False)
        return plan
    return None


def _make_plan(tensors: Sequence[Tensor], layout: Layout) -> Plan | None:
    c, d, u, s = tensors
    problem, batch = make_problem(
        c, d, u, s, w_gov=layout.weights[0], w_init=layout.weights[1], w_smooth=layout.weights[2],
        scheme=layout.scheme, n_steps=layout.n_steps,
    )  # fmt: skip
    views = zip(tensors, problem.tensors[:4], strict=True)
    if any(x.data_ptr() != y.data_ptr() for x, y in views) or not problem.c.numel():
        return None
    meta = [_without_memory(x) for x in problem.tensors[:4]]
    problem = Problem.of([*meta, *problem.tensors[4:]], problem.scheme)
    plan = choose_backend(layout.backend, c.device, problem.block, problem.scheme).plan(problem)
    plan.batch, plan.given = batch, [_without_memory(x) for x in tensors]
    return plan


def _without_memory(x: Tensor) -> Tensor:
    return torch.empty(0, dtype=x.dtype, device="meta").as_strided(x.shape, x.stride())


def _constants_can_be_kept(device: torch.device) -> bool:
    """Wait until constants made on the current CUDA stream can be read on any other.

    Constants made while a CUDA graph is captured have no values before it is replayed.
    """
    if device.type != "cuda":
        return True
    with torch.cuda.device(device):
        if torch.cuda.is_current_stream_capturing():
            return False
    torch.cuda.current_stream(device).synchronize()
    return True


# ---------------------------------------------------------------- helpers for backends


def is_zero_tensor(x: Tensor) -> bool:
    """Whether a tensor is known to be zero and has no memory; autograd may make such tensors."""
    return x._is_zerotensor()


def refuse_zeros(tensors: Sequence[Tensor]) -> None:
    """Raise an error for a ZeroTensor."""
    for name, x in zip("cdus", tensors, strict=False):
        if is_zero_tensor(x) and x.numel():
            raise RuntimeError(f"{name} is a ZeroTensor, without memory. Pass torch.zeros instead.")


def in_memory(g: Tensor) -> Tensor:
    """The same values in contiguous memory: no lazily negated view, no ZeroTensor."""
    return g.new_zeros(g.shape) if is_zero_tensor(g) else g.resolve_neg().contiguous()
