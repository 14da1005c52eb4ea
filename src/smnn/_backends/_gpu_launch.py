"""From source text to a running kernel."""

from __future__ import annotations

import copy
import functools
import linecache
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

try:  # part of Triton since 3.4, still called experimental
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl
except ImportError:
    gluon = gl = None

from smnn._backends import _gpu_native
from smnn._backends._gpu_chain import chain_body
from smnn._backends._gpu_clock import Clock
from smnn._backends._gpu_emit import Source
from smnn._backends._gpu_large import shape
from smnn._backends._gpu_large_rows import equations_body
from smnn._backends._gpu_large_source import solve_body as large_solve_body
from smnn._backends._gpu_large_substitute import adjoint_body as large_adjoint_body
from smnn._backends._gpu_mode import interpreted
from smnn._backends._gpu_panel_source import solve_body as panel_solve_body
from smnn._backends._gpu_rows import TENSORS, rows_body, variables_body
from smnn._backends._gpu_source import Spec, eliminate_body, verdict
from smnn._backends._gpu_substitute import back_body, forward_body
from smnn._backends._gpu_wide_source import solve_body as wide_solve_body
from smnn._backends._gpu_wide_substitute import adjoint_body as wide_adjoint_body


def _with_layout(text: str) -> str:
    """The same kernel in Gluon: one lane per thread, said outright.

    Triton's search for memory layouts takes minutes on long unrolled kernels, to find the same.
    """
    layout = "gl.BlockedLayout([1], [32], [LANES // 32], [0])"
    # Rows over the warps, a column in each lane (`_gpu_large.py`), or in several (`_gpu_triangle.py`).
    per_thread, threads = "[ROWS * COLUMNS // LANES, 1]", "[32 // COLUMNS, COLUMNS]"
    tile = f"gl.BlockedLayout({per_thread}, {threads}, [LANES // 32, 1], [1, 0])"
    barrier = "thread_barrier" if hasattr(gl, "thread_barrier") else "barrier"  # since Triton 3.7
    for old, new in (
        ("@triton.jit", "@gluon.jit"),
        ("tl.arange(0, LANES)", f"tl.arange(0, LANES, {layout})"),
        ("tl.arange(0, ROWS)", f"tl.arange(0, ROWS, gl.SliceLayout(1, {tile}))"),
        ("tl.arange(0, COLUMNS)", f"tl.arange(0, COLUMNS, gl.SliceLayout(0, {tile}))"),
        ("tl.zeros([LANES], dtype=tl.float64)", f"tl.zeros([LANES], tl.float64, {layout})"),
        ("tl.zeros([LANES], dtype=tl.int64)", f"tl.zeros([LANES], tl.int64, {layout})"),
        ("tl.debug_barrier", f"tl.{barrier}"),
        ("tl.", "gl."),
    ):
        text = text.replace(old, new)
    return text


_COMBINED = re.compile(r"\badd(\d+)(?:max(\d+))?\)")


def _combining(adds: str, largest: str) -> str:
    """Source of a function that adds so many numbers to as many others, and compares further ones."""
    plus, most = int(adds), int(largest or 0)
    first, second = ([f"{letter}{i}" for i in range(plus + most)] for letter in "ab")
    found = [f"{a} + {b}" for a, b in zip(first[:plus], second[:plus], strict=True)]
    found += [f"tl.maximum({a}, {b})" for a, b in zip(first[plus:], second[plus:], strict=True)]
    name = f"add{adds}" + (f"max{largest}" if largest else "")
    head = f"@triton.jit\ndef {name}({', '.join(first + second)}):\n"
    return f"{head}    return {', '.join(found)}\n\n\n"


class Slot(NamedTuple):
    """A place that a launch reads or writes: a tensor by name, from a number of words on."""

    tensor: str
    offset: int = 0


LOOP_BOUNDS = {"L", "T_init", "low", "high", "stop", "few"}
"""Arguments that the interpreter can only take as constants."""
INTEGERS = ("weakest_ptr", "weakest_below_ptr", "status_ptr")


class Kernel:
    """A kernel, compiled once per device and width, and the order of its arguments."""

    def __init__(self, name: str, source: Source, arguments: list[str]) -> None:
        fixed = LOOP_BOUNDS if interpreted() else set()
        kinds = {a: "tl.constexpr" if a in fixed else "tl.int64" for a in arguments}
        parameters = [a if a.endswith("_ptr") else f"{a}: {kinds[a]}" for a in arguments]
        free = [a for a in arguments if a not in fixed]
        text = source.function(name, free, [*parameters, "LANES: tl.constexpr"])
        text = "".join(_combining(*x) for x in sorted(set(_COMBINED.findall(text)))) + text
        if gluon is not None and not interpreted():
            text = _with_layout(text)
        file = f"<smnn {name} {abs(hash(text)):x}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        scope: dict[str, Any] = {
            "triton": triton,
            "tl": tl,
            "gluon": gluon,
            "gl": gl,
            "__name__": __name__,
        }
        exec(compile(text, file, "exec"), scope)
        self.text, self.arguments, self.jit = text, arguments, scope[name]
        self._compiled: dict[tuple[int, int], Any] = {}

    def on(self, device: int, width: int) -> Any:
        """The compiled kernel for the current device, which must be `device`."""
        key = device, width
        if key not in self._compiled:
            kinds = [
                (torch.int64 if a in INTEGERS else torch.float64) if a.endswith("_ptr") else 1
                for a in self.arguments
            ]
            kernel = self.jit.warmup(*kinds, LANES=width, num_warps=max(1, width // 32), grid=(1,))
            kernel = kernel.result() if hasattr(kernel, "result") else kernel
            _ = kernel.run  # loads it onto the device: before that it has no `function`
            self._compiled[key] = kernel
        return self._compiled[key]


class Launch:
    """One kernel call with everything but the addresses already in place."""

    def __init__(
        self, kernel: Kernel, lanes: int, width: int, values: dict[str, int | Slot]
    ) -> None:
        self.kernel, self.width = kernel, width
        self.grid = -(-lanes // width)
        chosen = [values[name] for name in kernel.arguments]
        self.template = [0 if isinstance(x, Slot) else x for x in chosen] + [width]
        self.slots = [(i, x.tensor, x.offset) for i, x in enumerate(chosen) if isinstance(x, Slot)]

    def bound(self, fixed: dict[str, int]) -> Launch:
        """The same launch with some addresses put in for good."""
        out = copy.copy(self)
        out.template = self.template.copy()
        for i, tensor, offset in self.slots:
            if tensor in fixed:
                out.template[i] = fixed[tensor] + 8 * offset
        out.slots = [slot for slot in self.slots if slot[1] not in fixed]
        return out

    def run(self, bases: dict[str, int], device: int, stream: int) -> None:
        """Launch on the current device; `bases` are addresses."""
        arguments = self.template.copy()
        for i, tensor, offset in self.slots:
            arguments[i] = bases[tensor] + 8 * offset
        kernel = self.kernel.on(device, self.width)
        kernel.run(
            self.grid, 1, 1, stream, kernel.function, kernel.packed_metadata,
            None, None, None, *arguments,
        )  # fmt: skip

    def interpret(self, tensors: dict[str, Tensor]) -> None:
        """Run in Triton's interpreter, on the CPU."""
        arguments: list[Any] = self.template.copy()
        for i, tensor, offset in self.slots:
            x = tensors[tensor]
            size = max(0, x.untyped_storage().nbytes() // 8 - x.storage_offset())
            view = x.as_strided((size,), (1,))[offset:]
            integer = self.kernel.arguments[i] in INTEGERS
            arguments[i] = view.view(torch.int64) if integer else view
        *plain, width = arguments
        self.kernel.jit[(self.grid,)](*plain, LANES=width, num_warps=1)


class Program:
    """Launches one after the other."""

    def __init__(self, launches: list[Launch]) -> None:
        self.launches = launches
        self._places = sorted({tensor for launch in launches for _, tensor, _ in launch.slots})
        self._native: dict[int, Any] = {}

    def run(self, tensors: dict[str, Tensor]) -> None:
        """Run on the device of the tensors, on its current stream."""
        if interpreted():
            for launch in self.launches:
                launch.interpret(tensors)
            return
        self.launch(tensors, next(iter(tensors.values())).device.index)

    def bound(self, fixed: dict[str, int]) -> Program:
        """The same launches with some addresses put in for good."""
        return Program([launch.bound(fixed) for launch in self.launches])

    def launch(self, bases: Mapping[str, Tensor | int], device: int) -> None:
        """Run with these tensors, or addresses, on that device and its current stream."""
        if device != torch.cuda.current_device():
            with torch.cuda.device(device):
                self.launch(bases, device)
            return
        call = self._native.get(device)
        if call is None:
            call = self._native[device] = _gpu_native.launcher(self.launches, device, self._places)
        if call is not None:
            call(*[bases[name] for name in self._places])
            return
        addresses = {
            name: x.data_ptr() if isinstance(x, Tensor) else x for name, x in bases.items()
        }
        stream = torch._C._cuda_getCurrentRawStream(device)
        for launch in self.launches:
            launch.run(addresses, device, stream)


def _strides(name: str, axes: str) -> list[str]:
    return [f"{name}_s{axis}" for axis in axes]


SIZES = ["B", "T", "P", "L"]
INPUTS = [
    "c_ptr", *_strides("c", "bt"), "d_ptr", *_strides("d", "bt"), "u_ptr", *_strides("u", "bt"),
    "s_ptr", *_strides("s", "btv"), "wg_ptr", *_strides("wg", "btq"),
    "wi_ptr", *_strides("wi", "btvr"), "scale_ptr", *_strides("scale", "btv"),
    "wt_ptr", *_strides("wt", "btv"), "T_init",
]  # fmt: skip
VARYING = ["K_ptr", "KF_ptr", *_strides("k", "btv")]


def _finish(clock: Clock) -> None:
    """Status of a whole sequence: bad step, singular, or not finite at its first or last time."""
    out = clock.out
    out("finite = tl.abs(y0) < float('inf')")
    if clock.orders:
        out(f"finite = finite & ({clock.other(out.new('finite.to(tl.int32)'))} > 0)")
    out("code = tl.where(finite | (ratio <= 1e-14), tl.where(ratio > 1e-14, 0, 3), 2)")
    out("code = tl.where(bad_step, 1, code)")
    out("tl.store(status_ptr + b, code.to(tl.int64), mask=first)")


@functools.cache
def solve_kernel(spec: Spec) -> Kernel:
    """Elimination of whole sequences with substitution, or of pieces without."""
    out = Source()
    clock = Clock(out, spec.orders)
    eliminate_body(clock, spec)
    verdict(clock)
    arguments = [*SIZES, *INPUTS, *(VARYING if spec.varying else []), "factor_ptr", "z_ptr"]
    if spec.left:
        return Kernel(
            "eliminate_pieces", out, [*arguments, "coupling_ptr", "rcond_ptr", "weakest_ptr"]
        )
    out("poison = tl.where(ratio > 1e-14, 0.0, float('nan')).to(tl.float64)")
    out("tl.debug_barrier()")
    back_body(clock, spec.n, spec.reach, 0)
    _finish(clock)
    return Kernel(
        "solve_whole", out, [*arguments, "y_ptr", "rcond_ptr", "weakest_ptr", "status_ptr"]
    )


@functools.cache
def chain_kernel(k: int, left: bool, depth: int) -> Kernel:
    """Elimination of a chain of separators, whole with substitution, or in pieces without."""
    out = Source()
    clock = Clock(out)
    chain_body(out, k, left=left, depth=depth)
    verdict(clock)
    levels = [f"{letter}{i}" for i in range(depth) for letter in "NP"]
    arguments = [
        *SIZES,
        "in_ptr",
        "n0",
        *levels,
        "factor_ptr",
        "z_ptr",
        "rcond_ptr",
        "weakest_ptr",
        "rcond_below_ptr",
        "weakest_below_ptr",
    ]
    if left:
        return Kernel("chain_pieces", out, [*arguments, "coupling_ptr"])
    out("poison = zero")
    out("tl.debug_barrier()")
    back_body(clock, k, 1, 0)
    return Kernel("chain_whole", out, [*arguments, "y_ptr"])


@functools.cache
def back_kernel(n: int, reach: int, k: int, judge: bool) -> Kernel:
    """Back substitution in pieces; with `judge`, failed sequences are poisoned and reported."""
    out = Source()
    clock = Clock(out)
    arguments = [*SIZES, "factor_ptr", "z_ptr", "sep_ptr", "y_ptr"]
    if judge:
        out("ratio = tl.load(rcond_ptr + b)")
        out("bad_step = ratio < 0.0")
        out("poison = tl.where(ratio > 1e-14, 0.0, float('nan')).to(tl.float64)")
        arguments += ["rcond_ptr", "status_ptr"]
    else:
        out("poison = zero")
    back_body(clock, n, reach, k)
    if judge:
        out("first = valid & (p == 0)")
        _finish(clock)
    return Kernel("back_pieces", out, arguments)


@functools.cache
def adjoint_kernel(n: int, reach: int, k: int, paired: bool, orders: int) -> Kernel:
    """`R^T z = g`; for whole sequences followed by `R y = z`."""
    out = Source()
    clock = Clock(out, orders)
    forward_body(clock, n, reach, k, paired=paired)
    arguments = [*SIZES, "factor_ptr", "z_ptr", "g_ptr"]
    if k:
        return Kernel("forward_pieces", out, [*arguments, "sep_ptr"])
    out("poison = zero")
    out("tl.debug_barrier()")
    back_body(clock, n, reach, 0)
    return Kernel("adjoint_whole", out, [*arguments, "y_ptr"])


@functools.cache
def wide_solve_kernel(spec: Spec, team: int) -> Kernel:
    """Elimination and substitution of whole sequences, a team of lanes for each, or for each end."""
    out = Source()
    wide_solve_body(out, spec, team)
    arguments = ["B", "T", "L", *INPUTS, *(VARYING if spec.varying else []), "factor_ptr", "y_ptr"]
    return Kernel("solve_wide", out, [*arguments, "rcond_ptr", "weakest_ptr", "status_ptr"])


@functools.cache
def large_solve_kernel(spec: Spec) -> Kernel:
    """Elimination and substitution of whole sequences, one or several warps for each."""
    out = Source()
    large_solve_body(out, spec, shape(spec.n))
    arguments = ["T", "L", *INPUTS, *VARYING, "factor_ptr", "y_ptr"]
    return Kernel("solve_large", out, [*arguments, "rcond_ptr", "weakest_ptr", "status_ptr"])


@functools.cache
def panel_solve_kernel(spec: Spec) -> Kernel:
    """As `large_solve_kernel`, with rows that lie in memory."""
    out = Source()
    panel_solve_body(out, spec)
    arguments = ["T", "L", *INPUTS, *VARYING, "factor_ptr", "z_ptr", "y_ptr"]
    return Kernel("solve_panels", out, [*arguments, "rcond_ptr", "weakest_ptr", "status_ptr"])


@functools.cache
def large_adjoint_kernel(n: int, reach: int) -> Kernel:
    """`R^T z = g`, then `R y = z`, a warp for each sequence."""
    out = Source()
    large_adjoint_body(out, n, reach)
    return Kernel("adjoint_large", out, ["T", "L", "factor_ptr", "g_ptr", "y_ptr"])


@functools.cache
def wide_adjoint_kernel(n: int, reach: int, team: int, orders: int) -> Kernel:
    """`R^T z = g`, then `R y = z`, a team of lanes for each sequence, or one from each end."""
    out = Source()
    wide_adjoint_body(out, n, reach, team, orders)
    return Kernel("adjoint_wide", out, ["B", "T", "L", "factor_ptr", "g_ptr", "y_ptr"])


@functools.cache
def rows_kernel(
    V: int, m: int, Q: int, m_init: int, scheme: str, wanted: tuple[bool, ...]
) -> Kernel:
    """Gradients by everything that is wanted."""
    out = Source()
    rows_body(out, V, m, Q, m_init, scheme, wanted)
    return _rows_kernel("row_gradients", out)


@functools.cache
def variables_kernel(V: int, m: int, m_init: int, scheme: str, wanted: tuple[bool, ...]) -> Kernel:
    """Gradients by everything that is wanted and no part of an equation."""
    out = Source()
    variables_body(out, V, m, m_init, scheme, wanted)
    return _rows_kernel("variable_gradients", out)


@functools.cache
def equations_kernel(V: int, m: int, Q: int, wanted: tuple[bool, ...]) -> Kernel:
    """Gradients by what is wanted of the equations."""
    out = Source()
    equations_body(out, V, m, Q, wanted)
    return _rows_kernel("equation_gradients", out)


def _rows_kernel(name: str, out: Source) -> Kernel:
    inputs = [a for a in INPUTS if not a.startswith(("scale", "wt"))]
    outputs = [f"g{name}_ptr" for name in TENSORS]
    weights = ["ws_ptr", *_strides("ws", "btvr")]
    return Kernel(name, out, ["B", "T", "y_ptr", "lam_ptr", *inputs, *weights, *outputs])
