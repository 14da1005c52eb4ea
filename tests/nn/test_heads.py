"""Heads: shapes, bounds, what is fixed, observed or learned, and where learning starts."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import smnn
from smnn.nn import (
    OBSERVED,
    Between,
    Coefficients,
    Free,
    InitialValues,
    Positive,
    RightHandSide,
    Share,
    Steps,
)

BATCHES = [(), (5,), (2, 1, 3)]


def features(batch: tuple[int, ...] = (5,), size: int = 4, scale: float = 1.0) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return scale * torch.randn(*batch, size, generator=draw)


# ---------------------------------------------------------------- shapes


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("times", [None, 7])
def test_shapes_follow_the_features(batch: tuple[int, ...], times: int | None) -> None:
    x, T = features(batch), times or 1
    pattern = [[[Free(), Positive(), 1.0], [0.0, Free(), 0.0]]]
    assert Coefficients(4, pattern, times=times)(x).shape == (*batch, T, 1, 2, 3)
    assert RightHandSide(4, [Free(), 0.0], times=times)(x).shape == (*batch, T, 2)
    assert InitialValues(4, [[[Free()] * 2] * 3] * 2)(x).shape == (*batch, 2, 3, 2)
    step = Between(1e-3, 1.0, 0.1)
    assert Steps(4, step, times=times)(x).shape == (*batch, T)
    assert Steps(4, step, times=times, variables=2)(x).shape == (*batch, T, 2)
    assert Steps(4, Share(2.0), times=6)(x).shape == (*batch, 6)


@pytest.mark.parametrize("batch", BATCHES)
def test_numbers_that_do_not_depend_on_features_broadcast(batch: tuple[int, ...]) -> None:
    ones = (1,) * len(batch)
    x = features(batch)
    assert Coefficients(None, [[[Free(), 1.0]]])(x).shape == (*ones, 1, 1, 1, 2)
    assert RightHandSide(None)(x).shape == (*ones, 1, 1)
    assert Steps(None, 0.1)(x).shape == (*ones, 1)
    assert RightHandSide(None)().shape == (1, 1)


def test_one_set_of_numbers_for_each_sample() -> None:
    head = Coefficients(None, [[[Free(), Free(), 1.0]]], batch=(3, 2))
    assert head.raw is not None
    assert head.raw.shape == (3, 2, 2)
    c = head()
    assert c.shape == (3, 2, 1, 1, 1, 3)
    c[1, 0].sum().backward()
    assert head.raw.grad is not None
    assert head.raw.grad.flatten(0, 1).any(1).tolist() == [False, False, True, False, False, False]


# ---------------------------------------------------------------- what a number is


def test_only_learned_numbers_have_parameters_and_fixed_ones_are_exact() -> None:
    pattern = [[[Free(0.5), 0.1, Between(0, 1)], [1.0, Positive(2.0), -3.0]]]
    head = Coefficients(4, pattern, times=5).double()
    assert isinstance(head.project, nn.Linear)
    assert head.project.out_features == 3 * 5
    c = head(features().double())
    for (v, r), value in {(0, 1): 0.1, (1, 0): 1.0, (1, 2): -3.0}.items():
        assert (c[..., 0, v, r] == value).all()
    for v, r in ((0, 0), (0, 2), (1, 1)):
        assert c[..., 0, v, r].unique().numel() == 25


def test_a_head_that_learns_nothing_has_no_parameters() -> None:
    for head in (Coefficients(4, [[[0.0, 1.0]]]), RightHandSide(None), Steps(4, 0.01)):
        assert list(head.parameters()) == []
    assert Steps(4, 0.01)(features((2, 3))).tolist() == [[[pytest.approx(0.01)]]]


finite = st.floats(-(2.0**100), 2.0**100, width=32)


@given(raw=st.lists(finite, min_size=2, max_size=2), low=st.floats(-5, 5), span=st.floats(0.01, 9))
def test_bounds_hold_for_every_raw_value(raw: list[float], low: float, span: float) -> None:
    init = low + 0.25 * span
    head = RightHandSide(None, [Positive(init, low), Between(low, low + span, init)]).double()
    assert head.raw is not None
    with torch.no_grad():
        head.raw.copy_(torch.tensor(raw, dtype=torch.float64))
    above, inside = head().flatten().tolist()
    slack = 1e-12 * (abs(low) + span)
    assert above >= low - slack
    assert low - slack <= inside <= low + span + slack


@given(
    x=st.lists(finite, min_size=4, max_size=4),
    kind=st.sampled_from([Positive(0.1, 1e-3), Between(1e-3, 0.5, 0.1), Share(3.0, 0.01)]),
)
def test_steps_stay_positive_whatever_the_network_says(x: list[float], kind: Any) -> None:
    """In float32, and where the sigmoid, the exponential or the softmax underflow."""
    head = Steps(4, kind, times=6, gain=1.0)
    s = head(torch.tensor(x))
    assert (s > 0).all()
    if isinstance(kind, Share):
        assert s.sum().item() == pytest.approx(kind.total, rel=1e-5)
        assert s.min().item() >= kind.floor * kind.total / 6 * (1 - 1e-5)
    else:
        assert s.min().item() >= kind.low * (1 - 1e-6)
        assert s.max().item() <= getattr(kind, "high", math.inf) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("entry", "z", "value"),
    [
        (Free(), -1.5, -1.5),
        (Positive(3.0, 2.0), 0.7, 2.0 + math.log1p(math.exp(0.7))),
        (Between(-1.0, 3.0), 0.7, -1.0 + 4.0 / (1.0 + math.exp(-0.7))),
    ],
)
def test_formulas(entry: Any, z: float, value: float) -> None:
    head = RightHandSide(None, [entry]).double()
    assert head.raw is not None
    torch.nn.init.constant_(head.raw, z)
    assert head().item() == pytest.approx(value, rel=1e-14)


def test_shares_of_a_duration() -> None:
    head = Steps(None, Share(5.0, 0.1), times=4).double()
    assert head.raw is not None
    z = torch.tensor([0.3, -1.0, 2.0, 0.0], dtype=torch.float64)
    with torch.no_grad():
        head.raw.copy_(z)
    expected = 5.0 * (0.1 / 4 + 0.9 * z.exp() / z.exp().sum())
    assert torch.allclose(head(), expected, rtol=1e-14)


# ---------------------------------------------------------------- where learning starts


@pytest.mark.parametrize("entry", [Free(-0.7), Positive(2.5), Positive(1e-3, -1), Between(2, 9, 3)])
@pytest.mark.parametrize("in_features", [None, 4])
def test_starts_at_init(entry: Any, in_features: int | None) -> None:
    head = RightHandSide(in_features, [entry], times=3, gain=0.0)
    assert torch.allclose(head(features()), torch.tensor(float(entry.init)), atol=1e-6)


def test_the_middle_is_where_nothing_else_is_said() -> None:
    assert RightHandSide(None, [Between(2.0, 4.0)])().item() == pytest.approx(3.0)


def test_all_samples_start_with_the_same_step_but_not_with_the_same_coefficients() -> None:
    x = features()
    assert Steps(4, Between(1e-3, 1, 0.1), times=9)(x).std().item() < 1e-7
    assert Coefficients(4, [[[Free(), 1.0]]])(x)[..., 0].std().item() > 0.1


def test_start_at_given_values() -> None:
    pattern = [[[Free(), Positive(1.0), 1.0], [Between(0, 1), 0.0, Free()]]]
    target = torch.tensor([[[0.3, 2.0, 1.0], [0.25, 0.0, -4.0]]]).double()
    for head in (Coefficients(None, pattern), Coefficients(4, pattern, gain=0.0)):
        head.double().start_at(target[None])
        assert torch.allclose(head(features().double()), target, rtol=1e-12)
    each = torch.stack([target, 0.5 * target])[:, None]
    many = Coefficients(None, pattern, batch=(2,)).double()
    many.start_at(each)
    assert torch.allclose(many()[0], target)
    assert torch.allclose(many()[1, ..., 0, 0], each[1, ..., 0, 0])
    assert (many()[1, ..., 0, 2] == 1.0).all()  # fixed ones stay


def test_steps_start_at_given_ones() -> None:
    s = torch.tensor([0.5, 1.0, 1.5]).double()
    for entry in (Share(3.0), Between(0.01, 2.0), Positive(1.0, 0.01)):
        head = Steps(None, entry, times=3).double()
        head.start_at(s)
        assert torch.allclose(head(), s, rtol=1e-12)


def test_known_steps_are_kept() -> None:
    s = torch.tensor([0.1, 0.2, 0.4], dtype=torch.float64)
    head = Steps(4, s)
    assert list(head.parameters()) == []
    assert torch.equal(head(features().double()), s.expand(1, 3))
    grid = torch.stack([s, 2 * s], -1)
    assert torch.equal(Steps(None, grid, variables=2).double()(features().double()), grid[None])


# ---------------------------------------------------------------- observed values


def test_observed_values_go_through_and_the_others_are_learned() -> None:
    head = InitialValues(
        4, [[[OBSERVED, Free(7.0), 0.5]], [[OBSERVED, OBSERVED, Free()]]], gain=0.0
    )
    seen = torch.arange(20.0).view(5, 2, 1, 2).requires_grad_()
    u = head(features(), seen)
    assert u.shape == (5, 2, 1, 3)
    assert torch.equal(u[:, 0, 0, 0], seen[:, 0, 0, 0])
    assert torch.equal(u[:, 1, 0, :2], seen[:, 1, 0])
    assert torch.allclose(u[:, 0, 0, 1], torch.tensor(7.0))
    assert (u[:, 0, 0, 2] == 0.5).all()
    u.sum().backward()
    assert seen.grad is not None
    assert seen.grad.flatten(1).sum(0).tolist() == [5.0, 0.0, 5.0, 5.0]  # y'(0) is not read


def test_observed_values_give_the_batch_where_nothing_else_does() -> None:
    head = InitialValues(None, [[[OBSERVED]]] * 3)
    assert torch.equal(head(features(), torch.ones(5, 3, 1, 1)), torch.ones(5, 3, 1, 1))


# ---------------------------------------------------------------- precision and state


def test_projection_is_exact_under_autocast() -> None:
    head = Coefficients(4, [[[Free(), Positive(), 1.0]]], hidden=(16,))
    x = features((6,))
    exact = head(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        c = head(x)
        assert isinstance(head.trunk, nn.Module)
        assert head.trunk(x).dtype == torch.bfloat16
    assert c.dtype == torch.float32
    assert 1e-5 < (c - exact).abs().max() < 0.05  # the trunk in bfloat16, what follows not
    bare = Coefficients(4, [[[Free(), 1.0]]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = bare(x)
    assert torch.equal(again, bare(x))


def test_numbers_without_features_have_the_precision_of_the_module() -> None:
    assert RightHandSide(None)().dtype == torch.float32
    for head in (RightHandSide(None, [Free()]), RightHandSide(None, [0.1]), Steps(None, 0.1)):
        assert head.double()().dtype == torch.float64
    assert Steps(None, 0.1).double()().item() == 0.1
    assert Steps(None, 0.1)(features().bfloat16()).dtype == torch.float32


def test_state_comes_back() -> None:
    def make() -> nn.ModuleList:
        return nn.ModuleList(
            [
                Coefficients(4, [[[Free(), 0.3, Between(0, 1)]]], times=3, hidden=(8, 8)),
                RightHandSide(None, [Free()], batch=(5,)),
                Steps(4, Share(1.0), times=3, gain=1.0),
                Steps(None, torch.tensor([0.1, 0.3])),
            ]
        )

    one, other = make(), make()
    other.load_state_dict(one.state_dict())
    for a, b in zip(one, other):
        assert torch.equal(a(features()), b(features()))
    assert not any("fixed" in key or "known" in key for key in one.state_dict())


def test_gradients_of_every_kind() -> None:
    x = features((2,)).double().requires_grad_()
    pattern = [[[Free(), Positive(), 1.0], [Between(0, 1), 0.0, Free()]]]
    head = Coefficients(4, pattern, times=2, hidden=(3,), activation=nn.Tanh).double()
    share = Steps(4, Share(1.0), times=3, gain=1.0).double()
    assert torch.autograd.gradcheck(lambda x: (head(x), share(x)), (x,))


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Free(math.nan), "expected init finite"),
        (lambda: Positive(0.0), "expected low < init"),
        (lambda: Between(1.0, 1.0), "expected low < init < high"),
        (lambda: Between(0.0, 1.0, 2.0), "expected low < init < high"),
        (lambda: Share(0.0), "expected total > 0"),
        (lambda: Coefficients(4, [[Free()]]), r"axis 2 \(order\)"),
        (lambda: Coefficients(4, [[[Free()], [Free(), 1.0]]]), "several lengths"),
        (lambda: Coefficients(None, [[[1.0]]], hidden=(8,)), "hidden: got"),
        (lambda: Coefficients(4, [[[Free()]]], batch=(2,)), "batch: got"),
        (lambda: Steps(4, Positive(0.1)), "low > 0"),
        (lambda: Steps(4, -0.1), "low > 0"),
        (lambda: Steps(4, Share(1.0)), "expected the number of steps"),
        (lambda: Steps(4, torch.tensor([0.1, -0.1])), "positive and finite"),
        (lambda: Steps(4, torch.ones(3), times=2), "times: got 2; expected 3"),
        (lambda: Steps(4, torch.ones(3), variables=2), "One step per interval"),
        (lambda: RightHandSide(None).start_at(torch.zeros(1, 1)), "learns nothing"),
        (lambda: RightHandSide(None, [Free()]).start_at(torch.zeros(3)), r"expected \(1, 1\)"),
        (lambda: RightHandSide(None, [Positive()]).start_at(-torch.ones(1, 1)), "inside"),
        (lambda: Steps(None, Share(1.0), times=2).start_at(torch.ones(2)), "1 in all"),
        (lambda: Coefficients(4, [[[Free()]]])(features(size=3)), r"expected \(\*B, 4\)"),
        (lambda: Coefficients(4, [[[Free()]]])(), "got None"),
        (lambda: RightHandSide(None, [Free()], batch=(2,))(features((2, 3))), "1 batch axes"),
        (lambda: InitialValues(4, [[[OBSERVED]]])(features()), "observed: got None"),
        (
            lambda: InitialValues(4, [[[OBSERVED]]])(features(), torch.zeros(5, 2, 1, 1)),
            r"expected \(\*B, 1, 1, k\)",
        ),
        (
            lambda: InitialValues(4, [[[0.0, OBSERVED]]])(features(), torch.zeros(5, 1, 1, 1)),
            "order 1 too",
        ),
    ],
)
def test_errors_say_what_is_wrong(make: Any, message: str) -> None:
    with pytest.raises((ValueError, smnn.ShapeError), match=message):
        make()


@pytest.mark.parametrize("entry", ["free", None, True, OBSERVED])
def test_unknown_entries_are_named(entry: Any) -> None:
    with pytest.raises(TypeError, match="expected a number, Free, Positive, Between"):
        Coefficients(4, [[[entry]]])
