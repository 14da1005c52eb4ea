"""Reading a learned ODE: arrays, equations, rates, a picture."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import smnn
from smnn.nn import LinearODE, ODEReadout, read_out


def ode(c: Any, d: Any = None, *, steps: int = 4, u: Any = None) -> LinearODE:
    """From nested lists `(*B, T, Q, V, R+1)`."""
    tensor = torch.tensor(c, dtype=torch.float64)
    right = tensor.new_zeros(tensor.shape[:-2]) if d is None else tensor.new_tensor(d)
    batch = tensor.shape[:-4]
    start = tensor.new_zeros(*batch, 1, tensor.shape[-2], 1) if u is None else u
    return LinearODE(tensor, right, start, tensor.new_full((*batch, steps), 0.5))


_POWERS = r"y' + 1 \times 10^{-7}\,y = 2 \times 10^{9}"
OSCILLATOR = ode([[[[4.01, 0.2, 1.0]]]])


# ---------------------------------------------------------------- equations


@pytest.mark.parametrize(
    ("c", "d", "text", "latex"),
    [
        ([[[[4.5, 0.2, 1.0]]]], [[0.0]], "y'' + 0.2 y' + 4.5 y = 0", r"y'' + 0.2\,y' + 4.5\,y = 0"),
        ([[[[-2.0, -1.0, 0.0]]]], [[-3.5]], "-y' - 2 y = -3.5", r"-y' - 2\,y = -3.5"),
        ([[[[0, 0, 0, 0, 2.5]]]], [[1.0]], "2.5 y^(4) = 1", r"2.5\,y^{(4)} = 1"),
        ([[[[1e-7, 1]]]], [[2e9]], "y' + 1e-7 y = 2e9", _POWERS),
        ([[[[0.0, 0.0]]]], [[2.0]], "0 = 2", "0 = 2"),
        # varies over time: mean and standard deviation (of 1, 2, 3: 2 and 1)
        (
            [[[[1.0, 1.0]]], [[[2.0, 1.0]]], [[[3.0, 1.0]]]],
            [[-5.0], [-6.0], [-7.0]],
            "y' + (2.0 ± 1.0) y = -(6.0 ± 1.0)",
            r"y' + (2.0 \pm 1.0)\,y = -(6.0 \pm 1.0)",
        ),
    ],
)  # fmt: skip
def test_equation(c: Any, d: Any, text: str, latex: str) -> None:
    found = read_out(ode(c, d))
    assert found.equations() == [text]
    assert found.latex() == [latex]
    assert str(found) == text


def test_several_equations_and_names() -> None:
    lorenz = [[[[10.0, 1.0], [-10.0, 0.0], [0.0, 0.0]], [[-28.0, 0.0], [1.0, 1.0], [0.0, 0.0]]]]
    assert read_out(ode(lorenz), "xyz").equations() == [
        "x' + 10 x - 10 y = 0",
        "y' - 28 x + y = 0",
    ]
    assert read_out(ode(lorenz)).equations()[0] == "y1' + 10 y1 - 10 y2 = 0"


def test_uncertainty_over_the_batch_sets_the_digits() -> None:
    c0 = [3.99, 4.01, 4.03]
    c = [[[[[x, 1.0]]]] for x in c0]
    assert read_out(ode(c)).equations() == ["y' + (4.010 ± 0.020) y = 0"]
    c = [[[[[1000 * x, 1.0]]]] for x in c0]
    assert read_out(ode(c)).equations() == ["y' + (4010 ± 20) y = 0"]
    c = [[[[[1e-9 * x, 1.0]]]] for x in c0]
    assert read_out(ode(c)).equations() == ["y' + (4.010 ± 0.020)e-9 y = 0"]
    assert read_out(ode(c)).latex() == [r"y' + (4.010 \pm 0.020) \times 10^{-9}\,y = 0"]


def test_a_zero_with_uncertainty_is_shown() -> None:
    c = [[[[[x, 1.0]]]] for x in (-0.1, 0.1)]
    assert read_out(ode(c)).equations() == ["y' + (0.00 ± 0.14) y = 0"]


def test_digits() -> None:
    assert read_out(ode([[[[math.pi, 1.0]]]])).equations(7) == ["y' + 3.141593 y = 0"]


def test_monic_divides_by_the_leading_coefficient() -> None:
    """A factor common to c and d is only a weight."""
    k = torch.tensor([2.0, -4.0, 8.0], dtype=torch.float64)
    one = ode([[[[4.01, 0.2, 1.0]]]], [[3.0]])
    many = LinearODE(
        k.view(3, 1, 1, 1, 1) * one.c, k.view(3, 1, 1) * one.d, one.u[None], one.s[None]
    )
    assert read_out(many, monic=True).equations() == ["y'' + 0.2 y' + 4.01 y = 3"]
    assert "±" in str(read_out(many))
    padded = ode([[[[2.0, 4.0, 0.0]]]])  # the highest order that occurs, not the highest there is
    assert str(read_out(padded, monic=True)) == "y' + 0.5 y = 0"


def test_monic_uses_the_equation_s_own_variable() -> None:
    system = ode([[[[0.0, 2.0], [6.0, 0.0]], [[5.0, 0.0], [0.0, 5.0]]]])
    assert read_out(system, "xy", monic=True).equations() == ["x' + 3 y = 0", "y' + x = 0"]


def test_monic_does_not_disturb_what_it_reads() -> None:
    one = ode([[[[4.0, 2.0]]]])
    read_out(one, monic=True)
    assert one.c.flatten().tolist() == [4.0, 2.0]


def test_monic_needs_a_leading_coefficient() -> None:
    with pytest.raises(ValueError, match="leading coefficient of equation 0 is zero somewhere"):
        read_out(ode([[[[1.0, 1.0]]], [[[1.0, 0.0]]]]), monic=True)


def test_names_must_fit() -> None:
    with pytest.raises(smnn.ShapeError, match="expected 1 names"):
        read_out(OSCILLATOR, ["x", "y"])


# ---------------------------------------------------------------- arrays


def test_arrays_are_plain_float64_and_detached() -> None:
    learned = OSCILLATOR.apply(lambda x: x.float().requires_grad_())
    found = read_out(learned)
    for x, name in zip(learned, ("c", "d", "u", "s")):
        array = getattr(found, name)
        assert array.dtype == np.float64
        np.testing.assert_array_equal(array, x.detach().numpy())


def test_times_come_from_the_steps() -> None:
    found = read_out(ode([[[[[1.0, 1.0]]]] * 3] * 2, steps=2))
    np.testing.assert_allclose(found.times(), [[0.0, 0.5, 1.0]] * 2)


# ---------------------------------------------------------------- rates


@given(re=st.floats(-2, 2), im=st.floats(0.1, 5), scale=st.floats(0.1, 10))
def test_modes_of_an_oscillator(re: float, im: float, scale: float) -> None:
    c = [[[[scale * (re * re + im * im), -2 * scale * re, scale]]]]
    np.testing.assert_allclose(
        read_out(ode(c)).modes(), [[complex(re, -im), complex(re, im)]], atol=1e-9
    )


def test_modes_of_a_system_are_those_of_its_matrix() -> None:
    A = np.random.default_rng(0).standard_normal((2, 3, 3))
    M = np.random.default_rng(1).standard_normal((2, 3, 3)) + 3 * np.eye(3)
    c = np.stack([A, M], -1)[:, None]  # M x' + A x = 0
    expected = np.linalg.eigvals(-np.linalg.solve(M, A))
    order = np.lexsort((expected.real, expected.imag), axis=-1)
    found = read_out(ode(c.tolist())).modes()
    np.testing.assert_allclose(found[:, 0], np.take_along_axis(expected, order, -1), atol=1e-10)


def test_modes_of_a_second_order_system() -> None:
    """Two masses with three springs: frequencies 1 and sqrt 3."""
    c = [[[[2.0, 0, 1.0], [-1.0, 0, 0]], [[-1.0, 0, 0], [2.0, 0, 1.0]]]]
    found = read_out(ode(c)).modes()[0]
    np.testing.assert_allclose(found.imag, [-math.sqrt(3), -1, 1, math.sqrt(3)], atol=1e-12)


def test_modes_follow_the_solution() -> None:
    """The trajectory of the solver decays at the rate that is read out."""
    one = LinearODE(
        torch.tensor([[[[4.01, 0.2, 1.0]]]], dtype=torch.float64), torch.zeros(1, 1).double(),
        torch.tensor([[[0.0, 2.0]]], dtype=torch.float64), torch.full((200,), 0.05).double(),
    )  # fmt: skip
    y = smnn.solve(*one, order=6)[:, 0, 0].numpy()
    rate = read_out(one).modes()[0, 1]
    t = read_out(one).times()
    np.testing.assert_allclose(y, np.exp(rate.real * t) * np.sin(rate.imag * t), atol=1e-7)


@pytest.mark.parametrize(
    ("c", "message"),
    [
        ([[[[1.0, 1.0], [0.0, 1.0]]]], "1 equations for 2 variables"),
        ([[[[1.0, 0.0]]]], "of order 0"),
        ([[[[1.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 1.0]]]], "singular"),
    ],
)
def test_modes_need_a_regular_system(c: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_out(ode(c)).modes()


# ---------------------------------------------------------------- the picture


def test_plot_shows_every_coefficient_over_time() -> None:
    t = np.linspace(0, 2, 5)
    c = np.zeros((3, 5, 1, 1, 3))
    c[..., 0], c[..., 2] = 4 + t[:, None, None] + np.arange(3)[:, None, None, None], 1.0
    found = ODEReadout(c, np.zeros((3, 1, 1)), np.zeros((3, 1, 1, 1)), np.full((3, 4), 0.5), ("y",))
    (axes,) = found.plot().axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert set(lines) == {"of y", "of y''", "right-hand side"}
    np.testing.assert_allclose(lines["of y"].get_xdata(), t)
    np.testing.assert_allclose(lines["of y"].get_ydata(), 5 + t)
    assert len(axes.collections) == 3  # the band of the batch
    assert axes.get_xlim() == (0.0, 2.0)


def test_plot_of_a_constant_ode_needs_its_length() -> None:
    one = OSCILLATOR._replace(s=OSCILLATOR.s[:1])
    with pytest.raises(ValueError, match="n_steps=T"):
        read_out(one).plot()
    figure = read_out(one).plot(n_steps=9)
    assert len(figure.axes[0].get_lines()[0].get_xdata()) == 9


def test_plot_of_a_system_has_a_panel_per_equation(tmp_path: Any) -> None:
    system = ode([[[[0.0, 2.0], [6.0, 0.0]], [[5.0, 0.0], [0.0, 5.0]]]] * 5)
    figure = read_out(system).plot()
    assert len(figure.axes) == 2
    assert "of y1'" in [line.get_label() for line in figure.axes[0].get_lines()]
    figure.savefig(tmp_path / "ode.png")
    assert (tmp_path / "ode.png").stat().st_size > 5000
