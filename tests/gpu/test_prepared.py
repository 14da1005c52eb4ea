"""From a call to the kernels of its launches, with nothing on a device: which, for what, in order.

Where there is no C++ compiler this is the only way to them, and no GPU is at hand in most tests.
"""

import importlib.util

import pytest
import torch

import smnn
from smnn import _eager

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


ROWS = {"cdus": "row_gradients"}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels in the order of their launches, which end here."""
    from smnn._backends._gpu_launch import Program
    from smnn._backends.gpu import GpuBackend

    names: list[str] = []

    def launch(self: Program, bases: dict[str, int], device: int) -> None:
        for one in self.launches:
            missing = {tensor for _, tensor, _ in one.slots} - set(bases)
            assert not missing, f"{one.kernel.jit.__name__} without {missing}"
            names.append(one.kernel.jit.__name__)

    monkeypatch.setenv("SMNN_NATIVE", "0")
    monkeypatch.setattr(Program, "launch", launch)
    monkeypatch.setattr(GpuBackend, "unusable", lambda self: None)
    monkeypatch.setattr(GpuBackend, "unsupported", lambda self, device, n: None)
    monkeypatch.setattr(_eager, "_signatures", type(_eager._signatures)())
    return names


@pytest.mark.parametrize("wanted", ["cdus", "c", "du", "s"])
@pytest.mark.parametrize(
    ("V", "T", "solve", "adjoint", "rows"),
    [
        (1, 20, ["solve_whole"], ["adjoint_whole"], ROWS),
        (1, 400, ["eliminate_pieces", "chain_whole", "back_pieces"],
         ["forward_pieces", "adjoint_whole", "back_pieces"], ROWS),
        (5, 20, ["solve_wide"], ["adjoint_wide"], ROWS),
        (9, 20, ["solve_large"], ["adjoint_large"],
         {"cd": "equation_gradients", "us": "variable_gradients"}),
    ],
    ids=["whole", "pieces", "a team for each", "tiles"],
)  # fmt: skip
def test_launches_of_a_step(
    launched: list[str], V: int, T: int, solve: list[str], adjoint: list[str],
    rows: dict[str, str], wanted: str,
) -> None:  # fmt: skip
    f64 = {"dtype": torch.float64}
    c, d = torch.randn(3, T, V, V, 3, **f64), torch.randn(3, T, V, **f64)
    tensors = dict(c=c, d=d, u=torch.randn(3, 1, V, 1, **f64), s=torch.rand(3, T - 1, **f64) + 0.1)
    leaves = [tensors[name].requires_grad_() for name in wanted]
    for _ in range(3):  # the first is like no other before; later ones find it prepared
        launched.clear()
        y, _ = smnn.solve_ex(*tensors.values(), backend="gpu")
        assert launched == solve
        launched.clear()
        grads = torch.autograd.grad(y, leaves, torch.ones_like(y))
        needed = [kernel for names, kernel in rows.items() if set(names) & set(wanted)]
        assert launched == [*adjoint, *needed]
        assert [g.shape for g in grads] == [x.shape for x in leaves]
