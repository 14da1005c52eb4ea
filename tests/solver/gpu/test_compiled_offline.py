"""The kernels pass through Triton's compiler and NVIDIA's assembler, which need no GPU.

The interpreter runs other code than the compiler reads: names that a version of Triton lacks, or
types that it does not mix, show here only.
"""

import importlib.util
import re
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


def compiled(kernel: Any, width: int, capability: int = 90) -> dict[str, Any]:
    """What the compiler makes of it for a compute capability."""
    import triton

    pytest.importorskip("triton.experimental.gluon._runtime")
    if "nvidia" not in triton.backends.backends:
        pytest.skip("this Triton has no backend for NVIDIA")
    return kernel.compiled_for(capability, width).asm


def kernels() -> dict[str, tuple[Any, int]]:
    from smnn._solver.gpu.reduction.level import form_for as form_at_once
    from smnn._solver.gpu.reduction.triangle import form_for
    from smnn._solver.gpu.tile.panels import form
    from smnn._solver.gpu.tile.tiles import shape
    from solver.internals import Kind, Spec
    from solver.internals import programs as kernel_of
    from solver.internals import reduction_programs as reduction

    def triangle(count: int) -> tuple[Any, int]:
        return reduction.triangle_kernel(form_for(count)), 32 * form_for(count).warps

    def level(M: int, rows: int) -> tuple[Any, int]:
        form = form_at_once(M, rows)
        assert form is not None
        return reduction.level_kernel(form), 32 * form.warps

    def spec(scheme: str, **changes: Any) -> Spec:
        return Spec(1, 3, 1, 2, scheme, False, False)._replace(**changes)

    def large(scheme: str, V: int, m: int, Q: int) -> tuple[Any, int]:
        kernel = kernel_of.large_solve_kernel(spec(scheme, V=V, m=m, Q=Q))
        return kernel, 32 * shape(V * m).warps

    def panels(scheme: str, V: int, m: int) -> tuple[Any, int]:
        kernel = kernel_of.panel_solve_kernel(spec(scheme, V=V, m=m, Q=V))
        return kernel, 32 * form(V * m).warps

    return {
        "whole": (kernel_of.solve_kernel(spec("smnn")), 32),
        "from both ends": (kernel_of.solve_kernel(spec("smnn", pairs=True)), 32),
        "whole, weights by order": (kernel_of.solve_kernel(spec("central", varying=True)), 32),
        "pieces": (kernel_of.solve_kernel(spec("smnn", left=True)), 32),
        # Triton compared what looked alike in these without end.
        "pieces, central, no initial values": (
            kernel_of.solve_kernel(spec("central", m=4, m_init=0, left=True)),
            32,
        ),
        "chain": (kernel_of.chain_kernel(3, False, 4), 32),
        "chain in pieces": (kernel_of.chain_kernel(3, True, 4), 32),
        "back": (kernel_of.back_kernel(3, 1, 3, True), 32),
        "adjoint": (kernel_of.adjoint_kernel(3, 1, 0, False, 3), 32),
        "backward": (kernel_of.backward_kernel(1, 3, 1, 2, "smnn", 3, (True,) * 7), 32),
        "row gradients": (kernel_of.rows_kernel(1, 3, 1, 2, "central", (True,) * 7), 128),
        "warp": (kernel_of.wide_solve_kernel(spec("smnn", V=2), 32), 32),
        "warps from both ends": (
            kernel_of.wide_solve_kernel(spec("smnn", V=3, pairs=True), 32),
            64,
        ),
        "warps from both ends, adjoint": (kernel_of.wide_adjoint_kernel(9, 1, 32, 3), 64),
        "warp, central": (kernel_of.wide_solve_kernel(spec("central", V=2, varying=True), 32), 32),
        "warp, adjoint": (kernel_of.wide_adjoint_kernel(6, 2, 32, 0), 32),
        "team": (kernel_of.wide_solve_kernel(spec("smnn", V=3), 16), 32),
        "team, central": (kernel_of.wide_solve_kernel(spec("central", V=2, varying=True), 8), 32),
        "team, adjoint": (kernel_of.wide_adjoint_kernel(6, 2, 8, 0), 32),
        "tiles of a warp": large("smnn", 9, 3, 20),
        "tiles of a warp, central": large("central", 9, 3, 9),
        "tiles of a warp, adjoint": (kernel_of.large_adjoint_kernel(27, 1), 32),
        "tiles of four warps": large("smnn", 10, 4, 40),
        "tiles of four warps, central": large("central", 10, 4, 10),
        "tiles, adjoint": (kernel_of.large_adjoint_kernel(40, 2), 32),
        "panels": panels("smnn", 17, 2),
        "panels, central": panels("central", 11, 3),
        "panels, adjoint": (kernel_of.large_adjoint_kernel(66, 1), 32),
        "reduction, blocks": (reduction.block_kernels(Kind(3, 3, 2, 1))[0], 128),
        "reduction, links": (reduction.block_kernels(Kind(3, 3, 0, 1))[1], 128),
        "reduction, blocks, central": (reduction.block_kernels(Kind(2, 3, 2, 2))[0], 128),
        "reduction, links, central": (reduction.block_kernels(Kind(2, 3, 2, 2, True))[1], 128),
        "reduction, level": level(9, 39),
        "reduction, level of eight warps": level(24, 104),
        "reduction, residual": (reduction.residual_kernel(), 128),
        "reduction, ratios": (reduction.verdict_kernels()[0], 128),
        "reduction, verdict": (reduction.verdict_kernels()[1], 1024),
        "reduction, solution": (reduction.verdict_kernels()[2], 128),
        "reduction, sizes": (reduction.row_kernels()[0], 128),
        "reduction, rows": (reduction.row_kernels()[1], 128),
        "reduction, small forward": (reduction.small_substitution_kernels(9)[0], 32),
        "reduction, small back": (reduction.small_substitution_kernels(32)[1], 32),
        "reduction, forward": (reduction.substitution_kernels(1)[0], 32),
        "reduction, back": (reduction.substitution_kernels(4)[1], 128),
        "triangles of few rows": triangle(50),
        "triangles": triangle(500),
        "triangles of many rows": triangle(2000),
        "tiles, gradients by equations": (kernel_of.equations_kernel(10, 4, 10, (True,) * 7), 32),
        "tiles, other gradients": (
            kernel_of.variables_kernel(10, 4, 2, "central", (True,) * 7),
            128,
        ),
    }


@pytest.mark.parametrize(
    "name",
    ["whole", "from both ends", "whole, weights by order", "pieces",
     "pieces, central, no initial values", "chain", "chain in pieces",
     "back", "adjoint", "backward", "row gradients", "warp", "warp, central", "warp, adjoint",
     "warps from both ends", "warps from both ends, adjoint",
     "team", "team, central", "team, adjoint",
     "tiles of a warp", "tiles of a warp, central", "tiles of a warp, adjoint",
     "tiles of four warps", "tiles of four warps, central", "tiles, adjoint",
     "panels", "panels, central", "panels, adjoint",
     "reduction, blocks", "reduction, links", "reduction, blocks, central",
     "reduction, links, central", "reduction, level", "reduction, level of eight warps",
     "reduction, residual", "reduction, ratios", "reduction, verdict", "reduction, solution",
     "reduction, sizes", "reduction, rows", "reduction, small forward",
     "reduction, small back", "reduction, forward", "reduction, back",
     "triangles of few rows", "triangles", "triangles of many rows",
     "tiles, gradients by equations", "tiles, other gradients"],
)  # fmt: skip
def test_kernel(name: str) -> None:
    code = compiled(*kernels()[name])
    assert code["cubin"]
    # Of two constants, Triton makes single precision: such may have no digits to lose.
    single = set(re.findall(r"arith.constant (?:dense<)?([^>\s]+)>? : [^\n]*f32", code["ttgir"]))
    assert single <= {"0.000000e+00", "1.000000e+00", "0x7FC00000"}
    if name == "reduction, residual":  # products that cancel each other are rounded alike
        assert "fma" not in code["ptx"]
        assert "mul.rn.f64" in code["ptx"]
    if name.startswith(("warp", "team", "tiles of")):
        assert "shfl.sync" in code["ptx"]  # columns are handed round without memory
    if name.startswith("warps"):  # which serves when the two meet
        assert 0 < code["ptx"].count("st.shared") < code["ptx"].count("shfl.sync") / 4
    if name.startswith("tiles of a warp"):
        assert "st.shared" not in code["ptx"]


@pytest.mark.parametrize("capability", [75, 80, 86, 89, 100, 120])
def test_other_devices(capability: int) -> None:
    """From the oldest that `GpuBackend` takes on; kernels that ask the memory for most."""
    for name in ("from both ends", "backward", "reduction, level"):
        assert compiled(*kernels()[name], capability)["cubin"]
