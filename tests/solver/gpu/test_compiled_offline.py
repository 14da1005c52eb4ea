"""The kernels pass through Triton's compiler and NVIDIA's assembler, which need no GPU.

The interpreter runs other code than the compiler reads: names that a version of Triton lacks, or
types that it cannot mix, show only here and in `test_emulated.py`, which compiles all others.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

from solver.internals import TRITON, reduction_level, reduction_triangle

if not TRITON:
    pytest.skip("Triton is not installed", allow_module_level=True)
pytest.importorskip("triton.experimental.gluon._runtime")

import triton

from solver.internals import Kernel, Kind, Spec, panels, programs, reduction_programs, tiles

Sized = tuple[Kernel, int]
"""A kernel and its number of threads."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "nvidia" not in triton.backends.backends, reason="this Triton has no backend for NVIDIA"
    ),
]


def compiled(kernel: Kernel, width: int, capability: int = 90) -> dict[str, Any]:
    """Intermediate and machine code for a compute capability."""
    return dict(kernel.compiled_for(capability, width).asm)


def triangle(count: int) -> Sized:
    form = reduction_triangle.form_for(count)
    return reduction_programs.triangle_kernel(form), 32 * form.warps


def level(M: int, rows: int) -> Sized:
    form = reduction_level.form_for(M, rows)
    assert form is not None
    return reduction_programs.level_kernel(form), 32 * form.warps


def spec(scheme: str, **changes: Any) -> Spec:
    return Spec(1, 3, 1, 2, scheme, False, False)._replace(**changes)


def large(scheme: str, V: int, m: int, Q: int) -> Sized:
    kernel = programs.large_solve_kernel(spec(scheme, V=V, m=m, Q=Q))
    return kernel, 32 * tiles.shape(V * m).warps


def panel(scheme: str, V: int, m: int) -> Sized:
    kernel = programs.panel_solve_kernel(spec(scheme, V=V, m=m, Q=V))
    return kernel, 32 * panels.form(V * m).warps


KERNELS: dict[str, Callable[[], Sized]] = {
    "from both ends": lambda: (programs.solve_kernel(spec("smnn", pairs=True)), 32),
    "whole, weights by order": lambda: (programs.solve_kernel(spec("central", varying=True)), 32),
    # Triton compared equivalent expressions in this one without end.
    "pieces, central, no initial values": lambda: (
        programs.solve_kernel(spec("central", m=4, m_init=0, left=True)),
        32,
    ),
    "adjoint in place": lambda: (programs.adjoint_kernel(3, 1, 0, False, 3, True), 32),
    "warps from both ends": lambda: (
        programs.wide_solve_kernel(spec("smnn", V=3, pairs=True), 32),
        64,
    ),
    "team": lambda: (programs.wide_solve_kernel(spec("smnn", V=3), 16), 32),
    "tiles of a warp": lambda: large("smnn", 9, 3, 20),
    "tiles of four warps": lambda: large("smnn", 11, 3, 11),
    "panels": lambda: panel("smnn", 17, 2),
    "reduction, blocks, central": lambda: (
        reduction_programs.block_kernels(Kind(2, 3, 2, 2))[0],
        128,
    ),
    "reduction, links, central": lambda: (
        reduction_programs.block_kernels(Kind(2, 3, 2, 2, True))[1],
        128,
    ),
    "reduction, level": lambda: level(9, 39),
    "reduction, level of eight warps": lambda: level(24, 104),
    "reduction, residual": lambda: (reduction_programs.residual_kernel(), 128),
    "triangles of few rows": lambda: triangle(50),
    "triangles": lambda: triangle(500),
    "triangles of many rows": lambda: triangle(2000),
    "tiles, gradients by equations": lambda: (
        programs.equations_kernel(10, 4, 10, (True,) * 7),
        32,
    ),
    "tiles, other gradients": lambda: (
        programs.variables_kernel(10, 4, 2, "central", (True,) * 7),
        128,
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_compiles(name: str) -> None:
    code = compiled(*KERNELS[name]())
    assert code["cubin"]
    # Triton makes some constants single precision: they must be exact in it.
    single = set(re.findall(r"arith.constant (?:dense<)?([^>\s]+)>? : [^\n]*f32", code["ttgir"]))
    assert single <= {"0.000000e+00", "1.000000e+00", "0x7FC00000"}
    if name == "reduction, residual":  # products that cancel must be rounded alike
        assert "fma" not in code["ptx"]
        assert "mul.rn.f64" in code["ptx"]
    if name.startswith(("warp", "team", "tiles of")):
        assert "shfl.sync" in code["ptx"]  # columns are exchanged without memory
    if name.startswith("warps"):  # needed only where the two ends meet
        assert 0 < code["ptx"].count("st.shared") < code["ptx"].count("shfl.sync") / 4
    if name.startswith("tiles of a warp"):
        assert "st.shared" not in code["ptx"]


@pytest.mark.parametrize("capability", [75, 86, 120])
def test_other_compute_capabilities(capability: int) -> None:
    """The oldest that `GpuBackend` supports, and those with the least memory for a block."""
    for name in ("from both ends", "adjoint in place", "reduction, level"):
        assert compiled(*KERNELS[name](), capability)["cubin"]
