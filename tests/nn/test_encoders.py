"""Encoders and decoders against what they are said to compute."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.fft import dct
from torch import Tensor, nn

from smnn.nn import MLP, ResNet1d, SpectralInput, StateDecoder, TakeOrder


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def test_mlp_is_linear_maps_with_activations_between() -> None:
    net = MLP(3, (5, 4), 2, nn.Tanh)
    assert [type(m) for m in net] == [nn.Linear, nn.Tanh, nn.Linear, nn.Tanh, nn.Linear]
    weights = [(m.weight, m.bias) for m in net if isinstance(m, nn.Linear)]
    x = draw(2, 1, 3)
    h = x
    for i, (w, b) in enumerate(weights):
        h = h @ w.T + b
        h = h if i == 2 else h.tanh()
    assert torch.allclose(net(x), h, atol=1e-6)
    assert len(MLP(3, (), 2)) == 1


@pytest.mark.parametrize("batch", [(), (4,), (2, 3)])
def test_resnet_keeps_every_point_in_its_place(batch: tuple[int, ...]) -> None:
    net = ResNet1d(2, 7, (8, 8, 12), kernel=5)
    x = draw(*batch, 2, 20)
    out = net(x)
    assert out.shape == (*batch, 20, 7)
    if batch:
        first = net(x[(0,) * len(batch)])
        assert torch.allclose(out[(0,) * len(batch)], first, atol=1e-5)


@given(shift=st.integers(-30, 30), kernel=st.sampled_from([1, 3, 9]))
def test_periodic_resnet_commutes_with_shifts(shift: int, kernel: int) -> None:
    torch.manual_seed(0)
    net = ResNet1d(1, 3, (4, 6), kernel=kernel, periodic=True, activation=nn.Tanh).double()
    x = draw(2, 1, 16).double()
    assert torch.allclose(net(x.roll(shift, -1)), net(x).roll(shift, -2), atol=1e-12)


def test_resnet_on_an_open_line_sees_its_ends() -> None:
    torch.manual_seed(0)
    net = ResNet1d(1, 3, (4,), kernel=3).double()
    x = draw(1, 1, 16).double()
    assert not torch.allclose(net(x.roll(3, -1)), net(x).roll(3, -2), atol=1e-3)


def test_resnet_reaches_as_far_as_its_kernels() -> None:
    """Two convolutions a block, one before, one behind, of reach kernel // 2 each."""
    torch.manual_seed(0)
    net = ResNet1d(1, 1, (4, 4), kernel=5, activation=nn.Tanh).double()
    x = draw(1, 1, 61).double().requires_grad_()
    net(x)[0, 30, 0].backward()
    assert x.grad is not None
    reached = x.grad[0, 0].nonzero().flatten()
    assert (reached.min(), reached.max()) == (30 - 12, 30 + 12)


@pytest.mark.parametrize("kernel", [0, 4])
def test_kernel_has_a_middle(kernel: int) -> None:
    with pytest.raises(ValueError, match=f"kernel: got {kernel}; expected an odd number"):
        ResNet1d(1, 1, kernel=kernel)


def test_resnet_has_blocks() -> None:
    with pytest.raises(ValueError, match="widths: got none"):
        ResNet1d(1, 1, ())


@given(length=st.integers(1, 40), part=st.floats(0.01, 1.0))
def test_spectral_input_is_the_orthonormal_cosine_transform(length: int, part: float) -> None:
    keep = max(1, int(part * length))
    x = draw(3, length).double()
    net = SpectralInput(length, keep)
    expected = dct(x.numpy(), type=2, norm="ortho", axis=-1)[:, :keep]
    np.testing.assert_allclose(net(x).numpy(), expected, atol=1e-12)
    assert torch.allclose(net(net.inverse(net(x))), net(x), atol=1e-12)  # a projection
    if keep == length:
        assert torch.allclose(net.inverse(net(x)), x, atol=1e-12)
        assert torch.allclose(net(x).square().sum(-1), x.square().sum(-1))


def test_spectral_coefficient_has_its_period() -> None:
    L, k = 208, 8
    t = torch.arange(L).double()
    wave = torch.cos(2 * math.pi * (t + 0.5) / (2 * L / k))
    coefficients = SpectralInput(L, 52)(wave)
    assert coefficients.abs().argmax() == k
    assert coefficients[k] == pytest.approx(math.sqrt(L / 2))


def test_spectral_input_is_exact_under_autocast() -> None:
    net, x = SpectralInput(20, 5), draw(2, 20)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(net(x), net(x.clone()))
        assert net(x).dtype == torch.float32
        assert net.inverse(net(x)).dtype == torch.float32
    assert net.state_dict() == {}


@pytest.mark.parametrize("keep", [0, 21])
def test_no_more_coefficients_than_samples(keep: int) -> None:
    with pytest.raises(ValueError, match=f"keep: got {keep}; expected 1 to 20"):
        SpectralInput(20, keep)


def test_take_order() -> None:
    y = draw(2, 5, 3, 4)
    assert torch.equal(TakeOrder()(y), y[..., 0])
    assert torch.equal(TakeOrder(2)(y), y[..., 2])
    assert repr(TakeOrder(2)) == "TakeOrder(2)"


def test_state_decoder_sees_the_state_of_each_time_alone() -> None:
    y = draw(2, 5, 3, 4).requires_grad_()
    z = StateDecoder(3, 2, 6, hidden=(8,))(y)
    assert z.shape == (2, 5, 6)
    (g,) = torch.autograd.grad(z[0, 3].sum(), y)
    assert g[0, 3, :, :2].any()
    g[0, 3, :, :2] = 0
    assert not g.any()
