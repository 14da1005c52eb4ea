"""Whole mechanistic networks: they run for any batch, learn, save, and work in mixed precision."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import smnn
from helpers import relative
from smnn.nn import (
    MLP,
    OBSERVED,
    Between,
    Coefficients,
    Free,
    InitialValues,
    LinearODE,
    MechanisticLayer,
    MechanisticModel,
    ODEHeads,
    Positive,
    ResNet1d,
    RightHandSide,
    SpectralInput,
    StateDecoder,
    Steps,
    read_out,
)

T, F = 12, 6


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def forecaster(check: bool = True) -> MechanisticModel:
    """From 8 values of a series: a damped, driven oscillator for the 12 times that follow."""
    torch.manual_seed(0)
    heads = ODEHeads(
        c=Coefficients(F, [[[Positive(1.0), Free(), 1.0]]], times=T, hidden=(8,)),
        d=RightHandSide(F, [Free()], times=T),
        u=InitialValues(F, [[[OBSERVED, Free()]]]),
        s=Steps(F, Between(0.01, 1.0, 0.1)),
    )
    encoder = nn.Sequential(SpectralInput(8, 5), MLP(5, (16,), F))
    return MechanisticModel(encoder, heads, MechanisticLayer(order=3, check=check))


def data(batch: tuple[int, ...] = (5,)) -> tuple[Tensor, Tensor]:
    x = torch.randn(*batch, 8, generator=torch.Generator().manual_seed(3))
    return x, x[..., -1].view(*batch, 1, 1, 1)


@pytest.mark.parametrize("batch", [(), (5,), (2, 3)])
def test_any_batch(batch: tuple[int, ...]) -> None:
    model, (x, seen) = forecaster(), data(batch)
    z, y, ode = model(x, seen)
    assert z.shape == (*batch, T, 1)
    assert y.shape == (*batch, T, 1, 4)
    assert torch.equal(z, y[..., 0])
    assert ode.c.shape == (*batch, T, 1, 1, 3)
    assert all(torch.equal(a, b) for a, b in zip(ode, model.ode(x, seen)))


def test_samples_of_a_batch_do_not_know_each_other() -> None:
    model, (x, seen) = forecaster(), data((6,))
    whole = model(x, seen).z
    alone = torch.stack([model(x[i], seen[i]).z for i in range(6)])
    assert relative(whole, alone) < 1e-5


def test_gradients_reach_every_parameter_and_the_observed_values() -> None:
    model, (x, seen) = forecaster(), data()
    seen = seen.clone().requires_grad_()
    model(x, seen).z.square().mean().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []
    assert seen.grad is not None
    assert seen.grad.all()


def test_it_learns() -> None:
    """Series of one frequency: the network finds equations that continue them."""
    torch.manual_seed(1)
    t = 0.3 * torch.arange(8 + T - 1)
    phase = 6.28 * torch.rand(32, 1)
    series = torch.sin(t + phase)
    x, target = series[:, :8], series[:, 7:]
    model = forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    first = last = 0.0
    for _ in range(150):
        optimizer.zero_grad()
        loss = (model(x, x[:, -1].view(-1, 1, 1, 1)).z[..., 0] - target).square().mean()
        loss.backward()
        optimizer.step()
        last = loss.item()
        first = first or last
    assert last < 0.02 * first


def test_mixed_precision_trains_the_network_in_bfloat16_and_solves_in_float64() -> None:
    model, (x, seen) = forecaster(), data()
    exact = model(x, seen)
    seen_by_solver: list[torch.dtype] = []
    inner = model.layer._arguments

    def spy(*args: object) -> object:
        out = inner(*args)  # type: ignore[arg-type]
        seen_by_solver.extend(x.dtype for x in out[0])
        return out

    model.layer._arguments = spy  # type: ignore[assignment, method-assign]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.encoder is not None
        assert model.encoder(x).dtype == torch.bfloat16
        z, y, ode = model(x, seen)
    assert set(seen_by_solver) == {torch.float64}
    assert y.dtype == torch.float32
    assert relative(y[..., 0, :, 0], seen[..., 0, :, 0]) < 0.02
    assert relative(z, exact.z) < 0.05
    (z - 1.0).square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_state_dict_gives_the_same_model_back() -> None:
    model, (x, seen) = forecaster(), data()
    other = forecaster()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.01)
    assert not torch.equal(other(x, seen).z, model(x, seen).z)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x, seen).z, model(x, seen).z)


@pytest.mark.usefixtures("fresh_compiler")
def test_a_whole_model_compiles_without_graph_breaks() -> None:
    model, (x, seen) = forecaster(check=False), data()
    compiled = torch.compile(lambda a, b: model(a, b).z, fullgraph=True, backend="aot_eager")
    z = compiled(x, seen)
    assert relative(z, model(x, seen).z) < 1e-5
    got = torch.autograd.grad(z.sum(), list(model.parameters()))
    expected = torch.autograd.grad(model(x, seen).z.sum(), list(model.parameters()))
    assert all(relative(a, b) < 1e-3 for a, b in zip(got, expected))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_training_step_can_be_captured_in_mixed_precision() -> None:
    model = forecaster(check=False).cuda()
    x, seen = (a.cuda() for a in data())

    def step() -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            loss: Tensor = model(x, seen).z.square().mean()
        loss.backward()
        return loss

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            model.zero_grad()
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    model.zero_grad()
    with torch.cuda.graph(graph, stream=stream):
        loss = step()
    graph.replay()
    torch.cuda.synchronize()
    assert relative(loss, step()) < 1e-3


# ---------------------------------------------------------------- other shapes of model


def test_every_point_of_a_line_has_its_own_ode() -> None:
    """As for a PDE: channels are past frames, features belong to points, one step for a sample."""
    points = 16

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c = Coefficients(F, [[[Free(1.0)] * 3]], times=T)
            self.d = RightHandSide(F, [Free()], times=T)
            self.u = InitialValues(F, [[[OBSERVED, Free()]]])
            self.s = Steps(F, Between(1e-3, 1.0, 0.05))

        def forward(self, features: Tensor, observed: Tensor) -> LinearODE:
            shared = features.mean(-2, keepdim=True)
            return LinearODE(
                self.c(features), self.d(features), self.u(features, observed), self.s(shared)
            )

    torch.manual_seed(0)
    model = MechanisticModel(ResNet1d(10, F, (8,), periodic=True), Heads())
    frames = torch.randn(3, 10, points)
    z, _, ode = model(frames, frames[:, -1].view(3, points, 1, 1, 1))
    assert z.shape == (3, points, T, 1)
    assert ode.s.shape == (3, 1, 1)
    rolled = frames.roll(5, -1)
    again = model(rolled, rolled[:, -1].view(3, points, 1, 1, 1)).z
    assert relative(again, z.roll(5, 1)) < 1e-3


def test_learned_constants_need_no_data() -> None:
    heads = ODEHeads(
        Coefficients(None, [[[Positive(4.0), Free(0.1), 1.0]]]),
        RightHandSide(None),
        InitialValues(None, [[[Free(1.0), Free()]]]),
        Steps(None, 0.1),
    )
    model = MechanisticModel(None, heads, MechanisticLayer(n_steps=20)).double()
    z, y, ode = model()
    assert z.shape == (20, 1)
    assert str(read_out(ode)) == "y'' + 0.1 y' + 4 y = 0"
    expected = smnn.solve(*ode, n_steps=20)
    assert torch.equal(y, expected)


def test_decoder_and_coupled_variables() -> None:
    torch.manual_seed(0)
    pattern = [[[Free(0.1), 1.0], [Free(0.1), 0.0]], [[Free(0.1), 0.0], [Free(0.1), 1.0]]]
    heads = ODEHeads(
        Coefficients(F, pattern),
        RightHandSide(F, [0.0, 0.0]),
        InitialValues(F, [[[Free()], [Free()]]]),
        Steps(None, torch.full((T - 1,), 0.1)),
    )
    model = MechanisticModel(MLP(4, (8,), F), heads, decoder=StateDecoder(2, 2, 7, (9,)))
    assert model(torch.randn(3, 4)).z.shape == (3, T, 7)
