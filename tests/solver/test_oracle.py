"""Every backend, scheme, dtype and option gives the answer of dense least squares."""

import pytest
import torch

import smnn
from helpers import OPTIONS, SCHEMES, option, random_problem, relative, takes


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", OPTIONS)
def test_float64(name: str, scheme: str, backend: str, device: str) -> None:
    for seed in range(3):
        case = option(name, seed, scheme=scheme, device=device)
        y = case.solve(backend)
        assert y.dtype == torch.float64
        assert y.device.type == device
        assert relative(y, case.oracle()) < 1e-9


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", OPTIONS)
def test_float32(name: str, scheme: str, backend: str, device: str) -> None:
    """The solution of the rounded problem, to float32 accuracy."""
    case = option(name, 7, scheme=scheme, device=device).to(torch.float32)
    y = case.solve(backend)
    assert y.dtype == torch.float32
    assert relative(y, case.to(torch.float64).solve(backend)) < 1e-5
    assert relative(y, case.oracle()) < 1e-5


def test_solve_ex_gives_the_same(backend: str, device: str) -> None:
    case = random_problem(3, batch=(4,), device=device)
    y, info = smnn.solve_ex(*case.args, **case.kw, backend=backend)
    assert torch.equal(y, case.solve(backend))
    assert info.status.tolist() == [0] * 4
    assert info.status.dtype == info.weakest.dtype == torch.int64
    assert info.status.shape == info.rcond.shape == info.weakest.shape == (4,)
    assert bool(((info.rcond > 1e-8) & (info.rcond <= 1 + 1e-12)).all())
    assert bool(((info.weakest >= 0) & (info.weakest < y[0].numel())).all())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_large_blocks(scheme: str, fast_backend: str, device: str) -> None:
    case = random_problem(1, T=5, V=6, Q=6, R=4, T_init=3, R_init=3, scheme=scheme, device=device)
    assert relative(case.solve("auto"), case.oracle()) < 1e-9
    if takes(fast_backend, case):
        assert relative(case.solve(fast_backend), case.oracle()) < 1e-9
    else:
        with pytest.raises(smnn.BackendError, match=r"30 unknowns per time"):
            case.solve(fast_backend)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_inputs_of_any_memory_layout(scheme: str, backend: str, device: str) -> None:
    """Results do not depend on strides."""
    case = random_problem(5, batch=(3,), weights="tensor", scheme=scheme, device=device)
    expected = case.solve(backend)

    def odd(x: torch.Tensor) -> torch.Tensor:
        spread = torch.stack([x, x.new_full((), torch.nan).expand_as(x)], -1)[..., 0]
        return spread.movedim(0, -1).contiguous().movedim(-1, 0)

    strange = {k: odd(x) for k, x in case.tensors().items()}
    assert not any(x.is_contiguous() for x in strange.values())
    assert relative(case.replace(**strange).solve(backend), expected) < 1e-13
