"""Defects of the published solver ("it" below), numbered as in docs/guarantees.md."""

import gc
import weakref

import pytest
import torch
from torch import Tensor

import smnn
from helpers import Case, oracle, random_problem, relative
from odes import ODES


def leaves(case: Case) -> tuple[Tensor, ...]:
    return tuple(x.detach().clone().requires_grad_() for x in case.args)


def grads(case: Case, inputs: tuple[Tensor, ...], backend: str) -> tuple[Tensor, ...]:
    y = smnn.solve(*inputs, **case.kw, backend=backend)
    return torch.autograd.grad(y.square().sum(), inputs)


def all_close(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> bool:
    return all(relative(x, y) < 1e-11 for x, y in zip(a, b, strict=True))


def test_1_third_order_in_float32(fast_backend: str, device: str) -> None:
    """It returns NaN almost everywhere, without an error."""
    args = ODES["third order"].native(1000, 0.01, dtype=torch.float32, device=device)
    y, info = smnn.solve_ex(*args, order=3, backend=fast_backend)
    assert y.isfinite().all()
    assert int(info.status) == 0


@pytest.mark.parametrize("scheme", ["smnn", "central"])
def test_1_singular_system_is_an_error(scheme: str, backend: str, device: str) -> None:
    """For c = 0 and initial values only, it returns 2.5e16."""
    c = torch.zeros(10, 1, 1, 3, dtype=torch.float64, device=device)
    d, u, s = c.new_zeros(10, 1), c.new_ones(1, 1, 1), c.new_full((9,), 0.1)
    with pytest.raises(smnn.SolveError, match="singular"):
        smnn.solve(c, d, u, s, scheme=scheme, backend=backend)
    y, _ = smnn.solve_ex(c, d, u, s, scheme=scheme, backend=backend)
    assert y.isnan().all()


@pytest.mark.parametrize("scheme", ["smnn", "central"])
def test_1_failure_in_the_last_block_is_detected(scheme: str, backend: str, device: str) -> None:
    """Each block overwrites its status. Here the last time of sample 1 has no rows."""
    case = random_problem(1, T=6, V=1, Q=3, R=2, batch=(2,), scheme=scheme, device=device)
    w_gov, w_smooth = torch.ones(2, 6, 3).to(case.args[0]), torch.ones(2, 5, 1, 3).to(case.args[0])
    w_gov[1, -1], w_smooth[1, -2:] = 0.0, 0.0
    broken = case.replace(w_gov=w_gov, w_smooth=w_smooth)
    y, info = smnn.solve_ex(*broken.args, **broken.kw, backend=backend)
    assert info.status.tolist() == [0, 3]
    assert y[1].isnan().all()
    assert y[0].isfinite().all()


def test_1_too_few_initial_values_are_an_error(fast_backend: str, device: str) -> None:
    """y' + y / 2 = d without initial values: any multiple of exp(-t / 2) may be added."""
    c = torch.tensor([0.5, 1.0], dtype=torch.float64, device=device).view(1, 1, 1, 2)
    t = 0.01 * torch.arange(4000, dtype=torch.float64, device=device)
    d, u, s = torch.cos(t).view(-1, 1), c.new_zeros(0, 1, 1), c.new_full((3999,), 0.01)
    with pytest.raises(smnn.SolveError, match="condition number at least"):
        smnn.solve(c, d, u, s, order=7, backend=fast_backend)


def test_2_state_is_not_shared_between_calls(backend: str, device: str) -> None:
    """Its CUDA path shares buffers: gradients are 18 % wrong after a second forward pass."""
    first, second = (random_problem(k, batch=(4,), R_init=1, device=device) for k in (1, 2))
    expected = grads(first, leaves(first), backend)
    a, b = leaves(first), leaves(second)
    y_a = smnn.solve(*a, backend=backend)
    y_b = smnn.solve(*b, backend=backend)
    with torch.no_grad():
        smnn.solve(*b, backend=backend)
    loss = y_a.square().sum()
    assert all_close(torch.autograd.grad(loss, a, retain_graph=True), expected)
    (y_b.square().sum()).backward()
    assert all_close(torch.autograd.grad(loss, a), expected)


def test_3_factor_of_another_batch_size(fast_backend: str, device: str) -> None:
    """Its frozen factor returns NaN for another batch size."""
    case = random_problem(1, batch=(4,), R_init=1, device=device)
    c, d, u, s = case.args
    kept = smnn.factorize(c, s, init_shape=(1, 2), backend=fast_backend)
    with pytest.raises(smnn.ShapeError, match="d: got shape"):
        kept.solve(d[:3], u[:3])
    small = smnn.factorize(c[:3], s[:3], init_shape=(1, 2), backend=fast_backend)
    assert relative(small.solve(d[:3], u[:3]), oracle(c[:3], d[:3], u[:3], s[:3])) < 1e-9


def test_3_factor_of_another_length(fast_backend: str, device: str) -> None:
    """Its frozen factor raises IndexError for another number of times."""
    case = random_problem(1, batch=(4,), R_init=1, device=device)
    c, d, u, s = case.args
    kept = smnn.factorize(c, s, init_shape=(1, 2), backend=fast_backend)
    with pytest.raises(smnn.ShapeError, match=r"d: got shape \(4, 5, 2\); expected \(4, 6, 2\)"):
        kept.solve(d[:, :5], u)


def test_4_new_left_hand_side_is_used_and_differentiated(fast_backend: str, device: str) -> None:
    """Its frozen factor ignores changes of c, and has no gradients by c and s."""
    case = random_problem(1, R_init=1, device=device)
    inputs = leaves(case)
    c, d, u, s = inputs
    expected = grads(case, inputs, fast_backend)
    for factor in (1.0, 2.0):
        kept = smnn.factorize(factor * c, s, init_shape=(1, 2), backend=fast_backend)
        y = kept.solve(d, u)
        assert relative(y, smnn.solve(factor * c, d, u, s, backend=fast_backend)) < 1e-9
        if factor == 1.0:
            got = torch.autograd.grad(y.square().sum(), inputs)
            assert all(relative(a, b) < 1e-8 for a, b in zip(got, expected))


def test_5_no_tensor_outlives_the_call(backend: str, device: str) -> None:
    """Its graph cache keeps an entry for every batch size and never removes one."""

    class Watched(torch.Tensor):
        pass

    kept = []

    def pack(x: Tensor) -> Tensor:
        watched = x.detach().clone().as_subclass(Watched)
        kept.append(weakref.ref(watched))
        return watched

    for size in (1, 2, 3):
        case = random_problem(size, batch=(size,), device=device)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x.as_subclass(Tensor)):
            y = smnn.solve(*leaves(case), backend=backend)
        y.sum().backward()
        del y
    gc.collect()
    assert len(kept) > 10
    assert [ref for ref in kept if ref() is not None] == []


def test_5_plan_cache_is_bounded_and_holds_no_data(device: str) -> None:
    """The plan cache has at most 512 entries and contains no tensor of the caller."""
    from solver.internals import plan

    case = random_problem(1, T=2, V=1, Q=2, R=1, R_init=1, limit=None, device=device)
    for size in range(1, 600):
        smnn.solve_ex(*(x.expand(size, *x.shape) for x in case.args))
    assert len(plan._plans) <= 512
    for one in plan._plans.values():
        assert one is not None
        assert all(x.is_meta for x in [*one.problem.tensors[:4], *one.given])
        assert all(x.untyped_storage().nbytes() <= 8 for x in one.problem.tensors[4:])


@pytest.mark.parametrize("missing", ["c", "d", "u", "s"])
@pytest.mark.parametrize("size", [5, 6])
def test_6_no_accidental_broadcasting(missing: str, size: int) -> None:
    """Without a batch axis it returns wrong numbers when B == T, or B == T - 1 for the steps."""
    case = random_problem(1, T=6, batch=(size,))
    with pytest.raises(smnn.ShapeError, match="same number of batch axes"):
        case.replace(**{missing: case.tensors()[missing][0]}).solve()


def test_10_edge_cases_have_clear_errors(fast_backend: str, device: str) -> None:
    """It raises AssertionError, ZeroDivisionError and IndexError here."""
    case = random_problem(1, T=1, V=1, Q=2, R=1, R_init=1, device=device)
    assert relative(case.solve(fast_backend), case.oracle()) < 1e-12
    case = random_problem(1, batch=(2,), device=device)
    empty = smnn.solve(*(x[:0] for x in case.args), backend=fast_backend)
    assert empty.shape == (0, 6, 2, 3)
    u = case.args[2].new_zeros(2, 1, 2, 4)
    with pytest.raises(smnn.ShapeError, match="Raise order= to give higher derivatives"):
        case.replace(u=u).solve(fast_backend)


@pytest.mark.parametrize("name", ["d", "u", "s"])
def test_11_mixed_precision_is_never_silent(name: str) -> None:
    case = random_problem(1)
    with pytest.raises(smnn.ShapeError, match=f"{name}: got dtype torch.float32"):
        case.replace(**{name: case.tensors()[name].float()}).solve()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex128, torch.int64])
def test_11_other_dtypes_are_refused(dtype: torch.dtype) -> None:
    case = random_problem(1)
    with pytest.raises(smnn.ShapeError, match=r"c: got dtype .*; expected torch\.float64 or"):
        case.to(dtype).solve()


def test_12_inputs_are_not_modified(backend: str, device: str) -> None:
    case = random_problem(1, batch=(2,), device=device)
    inputs = leaves(case)
    smnn.solve(*inputs, backend=backend).square().sum().backward()
    assert all(torch.equal(x, y) for x, y in zip(inputs, case.args, strict=True))
    assert {x._version for x in inputs} == {0}


def test_12_saved_tensors_are_visible_to_autograd(backend: str, device: str) -> None:
    """It keeps plain attributes on the context, which hooks cannot offload."""
    case = random_problem(1, batch=(2,), R_init=1, device=device)
    inputs = leaves(case)
    with torch.autograd.graph.save_on_cpu():
        loss = smnn.solve(*inputs, backend=backend).square().sum()
    assert all_close(torch.autograd.grad(loss, inputs), grads(case, inputs, backend))
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_13_only_requested_gradients_are_computed(backend: str, device: str) -> None:
    """It always computes the gradient of the whole matrix."""
    from solver.internals import backend_named, make_problem

    asked = []
    kind = type(
        backend_named(backend).plan(make_problem(*random_problem(0, device=device).args)[0])
    )
    original = kind.gradients

    def spy(self, tensors, y, factor, gy, wanted):  # type: ignore[no-untyped-def]
        asked.append(list(wanted))
        return original(self, tensors, y, factor, gy, wanted)

    case = random_problem(1, device=device)
    d = case.args[1].clone().requires_grad_()
    case = case.replace(d=d, w_gov=d.new_ones(()))  # not cached, because a weight is a tensor
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "gradients", spy)
        case.solve(backend).sum().backward()
    assert asked == [[False, True, False, False, False, False, False]]


def test_15_reference_implements_the_default_scheme(device: str) -> None:
    """Its reference implements a scheme other than its default: they differ by 2.1."""
    case = random_problem(1, batch=(2,), weights="tensor", device=device)
    assert relative(case.solve("reference"), case.solve("auto")) < 1e-9
    assert relative(case.replace(scheme="central").solve("reference"), case.solve("auto")) > 1e-3


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_17_current_device_is_unchanged() -> None:
    case = random_problem(1, batch=(2,), device="cuda:1")
    with torch.cuda.device(0):
        case.solve()
        assert torch.cuda.current_device() == 0
