"""Load `native.cpp`, where it can be compiled: see `gpu/native/extension.py`.

For a short sequence, Python and its way through autograd take as long as the kernels. The same
kernels called from C++ need less, and give the same numbers to the last bit. To compile takes far
longer than a short program runs. So a compiled file is used at once where there is one, but the
compiler is started only by a program that has gone on solving for a while.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from smnn._solver.cpu import layout as phase
from smnn._solver.diagnostics import DOUBTFUL_PIVOT, Verdict
from smnn._solver.gpu.native.extension import NOT_YET, Extension

CALLS, SECONDS = 200, 20.0
"""Repeated solves, and time since the first of them, that make a compiler worth starting."""

extension = Extension("_smnn_cpu_native", Path(__file__).with_name("native.cpp"))


class _Asked:
    """How often and since when `ready` has been asked in vain."""

    count = 0
    since = 0.0


def ready() -> bool:
    """Whether the module can be used now. Asked for long enough, starts the compiler."""
    if extension.module is not None:
        return True
    if extension.reason != NOT_YET:
        return False
    if not _Asked.count:
        _Asked.since = time.monotonic()
    _Asked.count += 1
    if _Asked.count == 1:
        wish = os.environ.get("SMNN_NATIVE", "1")
        if wish not in ("0", "wait") and not extension.compiled_file().is_file():
            return False
    elif _Asked.count <= CALLS or time.monotonic() - _Asked.since < SECONDS:
        return False
    return extension.native() is not None


def make(
    forward: partial[Any], backward: partial[Any], tensors: Sequence[Tensor], **rest: Any
) -> Any:
    """What `native.cpp` makes of a prepared problem, if `ready`; else `None`.

    Args:
        forward: The kernel with its notes.
        backward: The same of the derivative.
        tensors: The caller's, for their layout.
        rest: As the file reads it.
    """
    (solve_notes,), (notes,) = forward.args, backward.args
    try:
        kernels = _address(forward.func), _address(backward.func)
    except (AttributeError, LookupError, ValueError, RuntimeError) as error:
        extension.module, extension.reason = None, f"no address of a kernel of Numba: {error!r}"
        return None
    return extension.module.make(  # type: ignore[union-attr]
        {
            "forward": kernels[0],
            "backward": kernels[1],
            "solve_notes": solve_notes,
            "notes": notes,
            "solve_phases": phase.SOLVE,
            "phases": phase.LOAD | phase.SEPARATE | phase.ROWS,
            "central_phase": phase.CENTRAL,
            "fine": phase.FINE,
            "started": phase.STARTED,
            "doubtful": DOUBTFUL_PIVOT,
            "layouts": [(list(x.shape), list(x.stride())) for x in tensors],
            "verdict": Verdict,
            **rest,
        }
    )


def _address(kernel: Any) -> int:
    """Where C finds a kernel of Numba that takes and gives numbers alone."""
    (compiled,) = kernel.overloads.values()
    name = compiled.fndesc.llvm_cfunc_wrapper_name
    found = int(compiled.library.get_pointer_to_function(name))
    if not found:
        raise ValueError(f"{name} is unknown")
    return found
