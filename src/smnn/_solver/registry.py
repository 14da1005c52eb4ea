"""Which backends exist, which can be used here, and which one `"auto"` means."""

from __future__ import annotations

import torch

from smnn._solver.base import Backend
from smnn._solver.cpu.backend import CpuBackend
from smnn._solver.cyclic import TorchBackend
from smnn._solver.gpu.backend import GpuBackend
from smnn._solver.reference import ReferenceBackend
from smnn._solver.tracing import constant
from smnn.errors import BackendError

_BACKENDS: dict[str, Backend] = {
    b.name: b for b in (CpuBackend(), GpuBackend(), TorchBackend(), ReferenceBackend())
}
"""In the order in which `"auto"` tries them."""


def available_backends() -> dict[str, str | None]:
    """Every backend with `None`, or the reason why it cannot be used in this process."""
    return {name: backend.unusable() for name, backend in _BACKENDS.items()}


def backend_named(name: str) -> Backend:
    """The backend of that name.

    Raises:
        BackendError: If there is none.
    """
    if name not in _BACKENDS:
        known = ", ".join(["'auto'", *map(repr, _BACKENDS)])
        raise BackendError(f"backend: got {name!r}; expected one of {known}.")
    return _BACKENDS[name]


@constant
def _unusable(name: str) -> str | None:
    return _BACKENDS[name].unusable()


def choose_backend(name: str, device: torch.device, n: int) -> Backend:
    """The backend asked for, or for `"auto"` the first that takes blocks of `n` unknowns there.

    Raises:
        BackendError: If the backend asked for cannot be used, with the reason.
    """
    candidates = list(_BACKENDS.values()) if name == "auto" else [backend_named(name)]
    reasons = []
    for backend in candidates:
        reason = _unusable(backend.name) or backend.unsupported(device, n)
        if reason is None:
            return backend
        reasons.append(f"{backend.name}: {reason}")
    raise BackendError(f"backend {name!r} cannot be used here. " + "; ".join(reasons) + ".")
