"""The kernels pass through Triton's compiler and NVIDIA's assembler, which need no GPU.

The interpreter runs other code than the compiler reads: names that a version of Triton lacks, or
types that it does not mix, show here only.
"""

import importlib.util
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


def compiled(kernel: Any, width: int) -> dict[str, Any]:
    """What the compiler makes of it for compute capability 9.0."""
    import triton
    from triton.backends.compiler import GPUTarget

    from smnn._backends._gpu_launch import INTEGERS

    gluon = pytest.importorskip("triton.experimental.gluon._runtime")
    if "nvidia" not in triton.backends.backends:
        pytest.skip("this Triton has no backend for NVIDIA")
    names = kernel.jit.arg_names
    kinds = {
        name: "constexpr" if name == "LANES"
        else ("*i64" if name in INTEGERS else "*fp64") if name.endswith("_ptr")
        else "i64"
        for name in names
    }  # fmt: skip
    source = gluon.GluonASTSource(kernel.jit, kinds, {(names.index("LANES"),): width})
    options = {"num_warps": max(1, width // 32)}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm


def kernels() -> dict[str, tuple[Any, int]]:
    from smnn._backends import _gpu_launch as launch
    from smnn._backends._gpu_source import Spec

    def spec(scheme: str, **changes: Any) -> Spec:
        return Spec(1, 3, 1, 2, scheme, False, False)._replace(**changes)

    return {
        "whole": (launch.solve_kernel(spec("smnn")), 32),
        "whole, weights by order": (launch.solve_kernel(spec("central", varying=True)), 32),
        "pieces": (launch.solve_kernel(spec("smnn", left=True)), 32),
        "chain": (launch.chain_kernel(3, False, 1), 32),
        "chain in pieces": (launch.chain_kernel(3, True, 1), 32),
        "back": (launch.back_kernel(3, 1, 3, True), 32),
        "adjoint": (launch.adjoint_kernel(3, 1, 0, False), 32),
        "row gradients": (launch.rows_kernel(1, 3, 1, 2, "central", (True,) * 7), 128),
        "warp": (launch.wide_solve_kernel(spec("smnn", V=2)), 32),
        "warp, central": (launch.wide_solve_kernel(spec("central", V=2, varying=True)), 32),
        "warp, adjoint": (launch.wide_adjoint_kernel(6, 2), 32),
    }


@pytest.mark.parametrize(
    "name",
    ["whole", "whole, weights by order", "pieces", "chain", "chain in pieces", "back", "adjoint",
     "row gradients", "warp", "warp, central", "warp, adjoint"],
)  # fmt: skip
def test_kernel(name: str) -> None:
    code = compiled(*kernels()[name])
    assert code["cubin"]
    if name.startswith("warp"):
        assert "shfl.sync" in code["ptx"]  # columns are handed round without memory
