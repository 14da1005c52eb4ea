"""The CPU kernels called from C++: the same bits, the same failures, and what stays in Python."""

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import smnn
from helpers import OPTIONS, SCHEMES, Case, option, random_problem, relative
from smnn._solver.cpu import native
from solver.native_calls import Switch, both, identical, leaves_of, results, used

NUMBERS = [
    name
    for name, extra in OPTIONS.items()
    if extra.get("weights", "float") == "float" and "order" not in extra
    if extra.get("R") != 0 and extra.get("Q") != 0
]
"""Options that a remembered signature serves."""


class TestSameBits:
    @pytest.mark.parametrize("scheme", SCHEMES)
    @pytest.mark.parametrize("name", NUMBERS)
    def test_every_option(self, switch: Switch, name: str, scheme: str) -> None:
        case = option(name, scheme=scheme)
        ours, theirs = both(switch, case)
        assert identical(ours, theirs)
        assert relative(ours[0], case.oracle()) < 1e-9

    @pytest.mark.parametrize(
        ("B", "T", "V", "R", "scheme"),
        [
            (1, 1000, 1, 2, "smnn"),
            (1, 5000, 1, 2, "smnn"),
            (512, 50, 1, 2, "smnn"),
            (3, 300, 2, 3, "central"),
            (40, 100, 3, 1, "smnn"),
            (17, 60, 1, 4, "central"),
        ],
    )
    def test_shapes(self, switch: Switch, B: int, T: int, V: int, R: int, scheme: str) -> None:
        sizes = {"batch": (B,), "T": T, "V": V, "Q": V, "R": R, "R_init": R, "scheme": scheme}
        case = random_problem(3, limit=None, **sizes)
        assert identical(*both(switch, case))

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_some_gradients(self, switch: Switch, scheme: str) -> None:
        case = random_problem(1, T=60, batch=(3,), scheme=scheme)
        for count in range(1, 5):
            for wanted in itertools.combinations("cdus", count):
                assert identical(*both(switch, case, "".join(wanted)))

    @pytest.mark.parametrize("name", ["c", "d", "s"])
    @pytest.mark.parametrize(
        "view",
        [
            lambda x: x[:1].expand(3, *x.shape[1:]),
            lambda x: x[:, :1].expand_as(x),
            lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
            lambda x: torch.stack([x, x], 1).flatten(0, 1)[::2],
        ],
        ids=["batch", "time", "transposed", "every second"],
    )
    def test_views(self, switch: Switch, name: str, view: Callable[[Tensor], Tensor]) -> None:
        case = random_problem(1, batch=(3,), T_init=3, R_init=2)
        assert identical(*both(switch, case.replace(**{name: view(case.tensors()[name])})))

    @pytest.mark.parametrize("kind", ["expanded", "transposed", "negative", "zero", "single"])
    def test_gradients_by_the_solution(self, switch: Switch, kind: str) -> None:
        case = random_problem(1, T=40, batch=(3,))
        shape = torch.Size((3, 40, 2, 3))
        g = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        gy = {
            "expanded": g[0, 0, 0, 0].expand(shape),
            "transposed": g.transpose(0, 3).contiguous().transpose(0, 3),
            "negative": torch._neg_view(g),
            "zero": torch._efficientzerotensor(shape, dtype=g.dtype),
            "single": g.float(),
        }[kind]
        ours, theirs = both(switch, case, "cdus", gy)
        assert identical(ours, theirs)
        if kind == "negative":
            assert identical(ours, both(switch, case, "cdus", -g)[0])

    def test_other_values_in_the_same_memory(self, switch: Switch) -> None:
        case = random_problem(1, batch=(2,))
        results(case)
        for name in "cdus":
            case.tensors()[name].mul_(1.5)
            assert relative(case.solve("cpu"), case.oracle()) < 1e-9
        assert used()

    def test_two_layouts_in_turns(self, switch: Switch) -> None:
        cases = [random_problem(1, batch=(2,)), random_problem(2, T=9, batch=(3,))]
        for _ in range(4):
            for case in cases:
                assert relative(case.solve("cpu"), case.oracle()) < 1e-9
        assert used()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["batch", "all constant", "steps per variable"])
def test_first_and_second_derivatives(switch: Switch, name: str, scheme: str) -> None:
    case = option(name, scheme=scheme)
    inputs = leaves_of(case)

    def solve(*x: Tensor) -> Tensor:
        return smnn.solve(*x, **case.kw, backend="cpu")

    assert torch.autograd.gradcheck(solve, inputs)
    assert torch.autograd.gradgradcheck(solve, inputs, fast_mode=True)
    assert used()
    assert "Quick" not in type(solve(*inputs).grad_fn).__name__


def test_second_derivatives_are_the_same(switch: Switch) -> None:
    case, found = random_problem(1, T=30, batch=(2,)), []
    for on in (True, False):
        switch(on)
        for _ in range(3):
            x = leaves_of(case)
            y = smnn.solve(*x, backend="cpu")
            first = torch.autograd.grad(y.square().sum(), x, create_graph=True)
            total = sum(g.square().sum() for g in first)
            second = torch.autograd.grad(total, x)
        assert used() == on
        found.append([*first, *second])
    assert identical(*found)


class TestFailures:
    """What a sample without a solution leads to."""

    @pytest.mark.parametrize("kind", ["nan", "singular", "step", "one of many", "few values"])
    def test_same_words_and_numbers(self, switch: Switch, kind: str) -> None:
        case = random_problem(1, T=40, V=1, Q=1, R_init=1, batch=(4,))
        c, d, u, s = (x.clone() for x in case.args)
        if kind == "nan":
            d[1, 3] = torch.nan
        elif kind == "singular":
            c[:], u = 0.0, u[:, :0]
        elif kind == "step":
            s[2, 5] = -1.0
        elif kind == "one of many":
            c[3] = 0.0
            s[0, 7] = torch.inf
        else:  # y' + y / 2 = 1 without a start: what is left open dies out along the sequence
            c = torch.zeros(1, 1, 1, 8, dtype=torch.float64)
            c[..., 0], c[..., 1] = 0.5, 1.0
            d, u, s = c.new_ones(2000, 1), c.new_zeros(0, 1, 1), c.new_full((1999,), 0.02)
        bad, found = Case((c, d, u, s), {}), []
        for on in (True, False):
            switch(on)
            numbers: list[Tensor] = []
            for _ in range(3):
                words = ""
                with contextlib.suppress(smnn.SolveError):
                    bad.solve("cpu")
                try:
                    bad.solve("cpu")
                except smnn.SolveError as error:
                    words = str(error)
                x = leaves_of(bad)
                y, info = smnn.solve_ex(*x, backend="cpu")
                numbers = [y, *torch.autograd.grad(y.sum(), x), *info[:3]]
            assert used() == on
            found.append((words, [t.nan_to_num(nan=7e300) for t in numbers]))
        (ours, a), (theirs, b) = found
        assert ours == theirs
        assert "have no unique finite solution" in ours
        assert identical(a, b)

    def test_initial_values_without_weight_are_none(self, switch: Switch) -> None:
        """However often: what is left open dies out along the sequence, and no pivot shows it."""
        c = torch.zeros(1, 1, 1, 8, dtype=torch.float64)
        c[..., 0], c[..., 1] = 0.5, 1.0
        d, u, s = c.new_ones(2000, 1), c.new_ones(1, 1, 1), c.new_full((1999,), 0.02)
        for _ in range(3):
            with pytest.raises(smnn.SolveError, match="have no unique finite solution"):
                smnn.solve(c, d, u, s, w_init=0.0, backend="cpu")
            smnn.solve(c, d, u, s, backend="cpu")
            smnn.solve(c, d, u, s, w_init=0.0, backend="cpu", check=False)
        assert used()

    def test_a_tensor_without_memory_is_refused(self, switch: Switch) -> None:
        case = random_problem(1, batch=(2,))
        results(case)
        zero = torch._efficientzerotensor(case.args[1].shape, dtype=torch.float64)
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"d is a ZeroTensor.*torch\.zeros"):
                case.replace(d=zero).solve("cpu")
        assert used()


def test_what_is_large_stays_in_python(switch: Switch) -> None:
    case = random_problem(1, T=30000, V=1, Q=1, R_init=1, limit=None)
    for _ in range(3):
        smnn.solve(*leaves_of(case), backend="cpu").sum().backward()
    assert not used()


def test_numba_without_addresses(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no promise of Numba's. Without them all goes on in Python."""

    def missing(kernel: Any) -> int:
        raise AttributeError("llvm_cfunc_wrapper_name")

    monkeypatch.setattr(native, "_address", missing)
    case = random_problem(1, batch=(2,))
    ours = results(case)
    assert not used()
    assert "no address of a kernel" in str(native.extension.reason)
    switch(False)
    assert identical(ours, results(case))
