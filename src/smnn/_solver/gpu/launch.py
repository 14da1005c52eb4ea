"""Compile generated source into kernels, and launch them."""

from __future__ import annotations

import copy
import linecache
import re
from collections.abc import Callable
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

from smnn._solver.gpu.emit import Source, interpreted


def _with_layout(text: str) -> str:
    """Translate a kernel into Gluon with explicit layouts, one lane per thread.

    Triton's layout inference takes minutes on long unrolled kernels and arrives at the same
    layouts.
    """
    layout = "gl.BlockedLayout([1], [32], [LANES // 32], [0])"
    # Rows across warps; a column per lane (`tile/tiles.py`) or per several (`reduction/triangle.py`).
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


_COMBINE_NAMES = re.compile(r"\badd(\d+)(?:max(\d+))?\)")


def _combine_function(adds: str, largest: str) -> str:
    """Source of a combine function for `tl.reduce`: a number of sums, then maxima."""
    plus, most = int(adds), int(largest or 0)
    first, second = ([f"{letter}{i}" for i in range(plus + most)] for letter in "ab")
    found = [f"{a} + {b}" for a, b in zip(first[:plus], second[:plus], strict=True)]
    found += [f"tl.maximum({a}, {b})" for a, b in zip(first[plus:], second[plus:], strict=True)]
    name = f"add{adds}" + (f"max{largest}" if largest else "")
    head = f"@triton.jit\ndef {name}({', '.join(first + second)}):\n"
    return f"{head}    return {', '.join(found)}\n\n\n"


class Slot(NamedTuple):
    """A pointer argument: tensor name and offset in words."""

    tensor: str
    offset: int = 0


def slots_of(*names: str) -> dict[str, int | Slot]:
    return {f"{name}_ptr": Slot(name) for name in names}


LOOP_BOUNDS = {"L", "T_init", "low", "high", "stop", "few", *(f"stop{i}" for i in range(8))}
"""Arguments that must be constants in the interpreter."""
INTEGERS = ("weakest_ptr", "weakest_below_ptr", "status_ptr")


class Kernel:
    """A kernel, compiled once per device and width, and the order of its arguments.

    `fused` sets explicitly whether products and sums are contracted into fused multiply-adds,
    because the default differs between versions of Triton.
    """

    def __init__(
        self, name: str, source: Source, arguments: list[str], *, fused: bool = True
    ) -> None:
        self._options = {"enable_fp_fusion": fused}
        fixed = LOOP_BOUNDS if interpreted() else set()
        kinds = {a: "tl.constexpr" if a in fixed else "tl.int64" for a in arguments}
        parameters = [a if a.endswith("_ptr") else f"{a}: {kinds[a]}" for a in arguments]
        free = [a for a in arguments if a not in fixed]
        text = source.function(name, free, [*parameters, "LANES: tl.constexpr"])
        text = (
            "".join(_combine_function(*x) for x in sorted(set(_COMBINE_NAMES.findall(text)))) + text
        )
        if gluon is not None and not interpreted():
            text = _with_layout(text)
        file = f"<smnn {name} {abs(hash(text)):x}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        scope: dict[str, Any] = {"triton": triton, "tl": tl, "gluon": gluon, "gl": gl}
        scope["__name__"] = __name__
        exec(compile(text, file, "exec"), scope)
        self.name, self.text, self.arguments, self.jit = name, text, arguments, scope[name]
        self._compiled: dict[tuple[int, int], Any] = {}

    def compiled_for(self, capability: int, width: int) -> Any:
        """Compile for a GPU of a compute capability; does not need a GPU.

        Raises:
            RuntimeError: This Triton has no Gluon, or no backend for NVIDIA.
        """
        if gluon is None or "nvidia" not in triton.backends.backends:
            raise RuntimeError("this Triton has no Gluon, or no backend for NVIDIA")
        from triton.backends.compiler import GPUTarget
        from triton.experimental.gluon._runtime import GluonASTSource

        kinds = {
            name: ("*i64" if name in INTEGERS else "*fp64") if name.endswith("_ptr") else "i64"
            for name in self.arguments
        }
        source = GluonASTSource(
            self.jit, kinds | {"LANES": "constexpr"}, {(len(self.arguments),): width}
        )
        options = self._options | {"num_warps": max(1, width // 32)}
        return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)

    def on(self, device: int, width: int) -> Any:
        """The compiled kernel for the current device, which must be `device`.

        Raises:
            torch.OutOfMemoryError: The device has no memory for the code of the kernel.
        """
        key = device, width
        if key not in self._compiled:
            kinds = [
                (torch.int64 if a in INTEGERS else torch.float64) if a.endswith("_ptr") else 1
                for a in self.arguments
            ]
            warps = max(1, width // 32)
            options: dict[str, Any] = {"LANES": width, "num_warps": warps, **self._options}
            kernel = self.jit.warmup(*kinds, grid=(1,), **options)
            kernel = kernel.result() if hasattr(kernel, "result") else kernel
            try:
                # Load the module onto the device, which sets `function`. `kernel.run` would not
                # retry after a failure.
                _ = kernel[1, 1, 1]
            except RuntimeError as error:
                if "out of memory" not in str(error):
                    raise
                raise torch.OutOfMemoryError(
                    f"CUDA out of memory: no room for {self.name}"
                ) from error
            self._compiled[key] = kernel
        return self._compiled[key]


def kernel_from(
    name: str,
    arguments: list[str],
    write: Callable[..., None],
    *parameters: object,
    **options: bool,
) -> Kernel:
    """A kernel whose source `write` generates from the parameters."""
    out = Source()
    write(out, *parameters)
    return Kernel(name, out, arguments, **options)


class Launch:
    """A kernel launch whose arguments are complete except for addresses."""

    def __init__(
        self, kernel: Kernel, lanes: int, width: int, values: dict[str, int | Slot]
    ) -> None:
        self.kernel, self.width = kernel, width
        self.grid = -(-lanes // width)
        chosen = [values[name] for name in kernel.arguments]
        self.template = [0 if isinstance(x, Slot) else x for x in chosen] + [width]
        self.slots = [(i, x.tensor, x.offset) for i, x in enumerate(chosen) if isinstance(x, Slot)]

    def bound(self, fixed: dict[str, int]) -> Launch:
        """The same launch with some addresses filled in."""
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
    """A sequence of launches."""

    def __init__(self, launches: list[Launch]) -> None:
        self.launches = launches

    def run(self, tensors: dict[str, Tensor]) -> None:
        """Run on the device of the tensors, on its current stream."""
        if interpreted():
            for launch in self.launches:
                launch.interpret(tensors)
            return
        device = next(iter(tensors.values())).device.index
        addresses = {name: x.data_ptr() for name, x in tensors.items()}
        with torch.cuda.device(device):
            stream = torch.cuda.current_stream().cuda_stream
            for launch in self.launches:
                launch.run(addresses, device, stream)

    def bound(self, fixed: dict[str, int]) -> Program:
        return Program([launch.bound(fixed) for launch in self.launches])
