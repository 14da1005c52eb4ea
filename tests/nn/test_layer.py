"""The solver as a module: the same numbers, any batch, any precision, compiled."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import smnn
from helpers import SCHEMES, random_problem, relative
from smnn.nn import LinearODE, MechanisticLayer


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def problem(seed: int = 0, **options: Any) -> LinearODE:
    return LinearODE(*random_problem(seed, **options).args)


def leaves(ode: LinearODE) -> LinearODE:
    return ode.apply(lambda x: x.detach().clone().requires_grad_())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("batch", [(), (3,), (2, 1, 2)])
def test_is_the_solver(scheme: str, batch: tuple[int, ...], backend: str, device: str) -> None:
    ode = problem(batch=batch, device=device)
    layer = MechanisticLayer(scheme=scheme, w_gov=2.0, backend=backend)
    expected = smnn.solve(*ode, scheme=scheme, w_gov=2.0, backend=backend)
    assert relative(layer(ode), expected) == 0
    assert layer(ode).shape == (*batch, 6, 2, 3)


def test_order_is_raised_as_the_solver_raises_it(fast_backend: str, device: str) -> None:
    ode = problem(T=9, device=device)
    layer = MechanisticLayer(order=4, backend=fast_backend)
    assert relative(layer(ode), smnn.solve(*ode, order=4, backend=fast_backend)) < 1e-12
    assert relative(MechanisticLayer(order=2)(ode), MechanisticLayer()(ode)) == 0


def test_order_below_that_of_the_coefficients_is_refused() -> None:
    with pytest.raises(smnn.ShapeError, match="order"):
        MechanisticLayer(order=1)(problem())


def test_posterior_has_the_weights_of_the_layer_and_of_the_call() -> None:
    ode = leaves(problem(batch=(3,)))
    layer = MechanisticLayer(order=3, scheme="iwp", w_gov=2.0, w_smooth=3.0)
    found = layer.posterior(ode.apply(Tensor.float), w_smooth=4.0)
    exact = ode.apply(lambda x: x.float().double())
    expected = smnn.posterior(*exact, order=3, scheme="iwp", w_gov=2.0, w_smooth=4.0)
    assert found.mean.dtype == torch.float64
    assert relative(found.mean, expected.mean) == 0
    assert relative(found.variance(), expected.variance()) == 0
    found.variance().sum().backward()
    assert ode.c.grad is not None
    assert ode.s.grad is not None


def test_gradients_are_those_of_the_solver() -> None:
    ode = leaves(problem(T=4, V=1, Q=1, batch=(2,)))
    layer = MechanisticLayer(order=3)
    assert torch.autograd.gradcheck(lambda *x: layer(LinearODE(*x)), tuple(ode))


def test_number_of_times_of_a_constant_ode_comes_from_the_layer_or_the_call() -> None:
    ode = LinearODE(*(torch.ones(shape) for shape in ((1, 1, 1, 2), (1, 1), (1, 1, 1), (1,))))
    assert MechanisticLayer(n_steps=7)(ode).shape == (7, 1, 2)
    assert MechanisticLayer(n_steps=7)(ode, n_steps=5).shape == (5, 1, 2)
    with pytest.raises(smnn.ShapeError, match="n_steps=T"):
        MechanisticLayer()(ode)


# ---------------------------------------------------------------- weights


def test_weights_may_be_numbers_buffers_parameters_or_given_with_the_call() -> None:
    ode = problem(batch=(2,))
    w = torch.linspace(0.5, 2.0, 6).double().view(1, 6, 1)
    expected = smnn.solve(*ode, w_gov=w)
    as_buffer, learned = MechanisticLayer(w_gov=w), MechanisticLayer(w_gov=nn.Parameter(w))
    for y in (as_buffer(ode), learned(ode), MechanisticLayer()(ode, w_gov=w)):
        assert relative(y, expected) == 0
    assert [name for name, _ in as_buffer.named_parameters()] == []
    assert list(as_buffer.state_dict()) == ["w_gov"]
    assert [name for name, _ in learned.named_parameters()] == ["w_gov"]
    assert relative(learned(ode, w_gov=1.0), smnn.solve(*ode)) == 0
    learned(ode).square().sum().backward()
    gradient = learned.w_gov.grad
    assert gradient is not None
    assert gradient.shape == w.shape
    assert (gradient != 0).all()


def test_a_float32_weight_follows_the_float64_solve() -> None:
    ode = problem()
    layer = MechanisticLayer(w_init=nn.Parameter(torch.tensor(0.5)))
    assert relative(layer(ode), smnn.solve(*ode, w_init=0.5)) == 0


def test_a_layer_without_learned_weights_holds_nothing() -> None:
    layer = MechanisticLayer(order=4, w_smooth=3.0)
    assert list(layer.parameters()) == []
    assert layer.state_dict() == {}
    assert repr(layer) == "MechanisticLayer(order=4, w_smooth=3.0)"
    assert repr(MechanisticLayer(w_gov=torch.ones(2))) == "MechanisticLayer(w_gov=(2,))"


# ---------------------------------------------------------------- precision


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_solves_in_float64_whatever_goes_in(dtype: torch.dtype) -> None:
    ode = problem(batch=(2,)).apply(lambda x: x.to(dtype))
    exact = smnn.solve(*(x.double() for x in ode))
    y = MechanisticLayer()(ode)
    assert y.dtype == torch.float32
    assert relative(y, exact) < 1e-6


def test_comes_back_in_the_widest_dtype() -> None:
    c, d, u, s = problem()
    assert MechanisticLayer()(LinearODE(c.float(), d.float(), u, s.half())).dtype == torch.float64


def test_autocast_does_not_reach_the_solver(fast_backend: str, device: str) -> None:
    ode = leaves(problem(batch=(2,), device=device, dtype=torch.float32))
    layer = MechanisticLayer(backend=fast_backend)
    expected = torch.autograd.grad(layer(ode).square().sum(), tuple(ode))
    with torch.autocast(device, dtype=torch.bfloat16):
        y = layer(ode)
        assert (ode.d @ ode.d.mT).dtype == torch.bfloat16  # it is on
    assert y.dtype == torch.float32
    got = torch.autograd.grad(y.square().sum(), tuple(ode))
    assert all(relative(a, b) < 1e-6 for a, b in zip(got, expected))


# ---------------------------------------------------------------- compiled, captured


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("check", [True, False])
def test_compiles_without_graph_breaks(check: bool, fast_backend: str, device: str) -> None:
    layer = MechanisticLayer(order=3, backend=fast_backend, check=check, w_gov=torch.tensor(2.0))
    layer = layer.to(device)
    ode = leaves(problem(batch=(2,), device=device, dtype=torch.float32))

    def loss(*tensors: Tensor) -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16):
            return layer(LinearODE(*tensors)).square().sum()

    value = torch.compile(loss, fullgraph=True, backend="aot_eager")(*ode)
    expected = loss(*ode)
    assert relative(value, expected) < 1e-6
    got, grads = (torch.autograd.grad(x, tuple(ode)) for x in (value, expected))
    assert all(relative(a, b) < 1e-5 for a, b in zip(got, grads))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestCapture:
    def test_forward_and_backward_can_be_captured(self) -> None:
        layer = MechanisticLayer(order=4, check=False)
        ode = leaves(problem(batch=(4,), device="cuda", dtype=torch.float32))

        def step() -> tuple[Tensor, ...]:
            return torch.autograd.grad(layer(ode).square().sum(), tuple(ode))

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            captured = step()
        with torch.no_grad():
            ode.d.mul_(2.0)
        graph.replay()
        torch.cuda.synchronize()
        assert all(relative(a, b) < 1e-6 for a, b in zip(captured, step()))

    def test_a_check_while_capturing_says_what_to_do(self) -> None:
        layer, ode = MechanisticLayer(), problem(device="cuda")
        layer(ode)
        with (
            pytest.raises(RuntimeError, match="check=False"),
            torch.cuda.graph(torch.cuda.CUDAGraph()),
        ):
            layer(ode)


# ---------------------------------------------------------------- failures


def broken(ode: LinearODE) -> LinearODE:
    s = ode.s.clone()
    s[1] = -1.0
    return ode._replace(s=s)


def test_a_failed_sample_is_named() -> None:
    ode = broken(problem(batch=(3,)))
    with pytest.raises(smnn.SolveError, match=r"sample \(1,\): step"):
        MechanisticLayer()(ode)


def test_without_a_check_only_the_failed_sample_is_lost() -> None:
    good = problem(batch=(3,))
    ode = broken(good)
    y, info = MechanisticLayer(check=True).solve_ex(ode)
    assert info.status.tolist() == [0, 1, 0]
    assert y[1].isnan().all()
    assert relative(y[::2], MechanisticLayer()(good)[::2]) == 0
    assert MechanisticLayer(check=False)(ode)[1].isnan().all()


# ---------------------------------------------------------------- LinearODE


@given(
    T=st.integers(2, 6),
    constant=st.sets(st.sampled_from("cds")),
    batch=st.sampled_from([(), (2,), (2, 3)]),
    per_variable=st.booleans(),
)
def test_times_are_the_sums_of_the_steps(
    T: int, constant: set[str], batch: tuple[int, ...], per_variable: bool
) -> None:
    ode = LinearODE(
        *random_problem(
            T=T, constant="".join(constant), batch=batch, per_variable=per_variable, limit=None
        ).args
    )
    nb = len(batch)
    told = ode.n_steps()
    assert told in (T, None)
    t = ode.times(T)
    assert t.shape[: nb + 1] == (*batch, T)
    assert t.ndim == nb + 1 + per_variable
    assert (t.select(nb, 0) == 0).all()
    assert torch.allclose(t.diff(dim=nb), ode.s.expand(t.diff(dim=nb).shape))


def test_times_of_a_constant_ode_need_their_number() -> None:
    ode = LinearODE(*random_problem(constant="cds").args)
    assert ode.n_steps() is None
    with pytest.raises(ValueError, match="n_steps=T"):
        ode.times()


def test_detached_tensors_have_no_graph() -> None:
    ode = leaves(problem())
    assert not any(x.requires_grad for x in ode.detach())
