"""The CPU kernels called from C++: autograd sees what it sees without them."""

import gc
import resource
import weakref

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import smnn
from helpers import Case, random_problem, relative
from smnn._solver import eager
from solver.native_calls import Switch, identical, leaves_of, results, used


class TestAutograd:
    """Each test has a graph made by C++."""

    @pytest.fixture
    def case(self, switch: Switch) -> Case:
        case = random_problem(1, T=30, batch=(3,))
        results(case)
        assert used()
        return case

    def test_a_changed_input_is_noticed(self, case: Case) -> None:
        for name in range(4):
            x = leaves_of(case)
            y = smnn.solve(*x, backend="cpu")
            with torch.no_grad():
                x[name].mul_(2)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()

    def test_a_changed_solution_is_noticed(self, case: Case) -> None:
        y = smnn.solve(*leaves_of(case), backend="cpu")
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()

    def test_retained_and_released_graphs(self, case: Case) -> None:
        x = leaves_of(case)
        y = smnn.solve(*x, backend="cpu").sum()
        first = torch.autograd.grad(y, x, retain_graph=True)
        assert identical(list(first), list(torch.autograd.grad(y, x)))
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(y, x)

    def test_two_forwards_before_one_backward(self, case: Case) -> None:
        x, z = leaves_of(case), [1.5 * t for t in leaves_of(case)]
        want = [torch.autograd.grad(smnn.solve(*t, backend="cpu").sum(), t) for t in (x, z)]
        first, second = (smnn.solve(*t, backend="cpu").sum() for t in (x, z))
        assert identical(list(torch.autograd.grad(first, x)), list(want[0]))
        assert identical(list(torch.autograd.grad(second, z)), list(want[1]))

    def test_only_what_is_asked_for(self, case: Case) -> None:
        c, d, u, s = x = leaves_of(case)
        y = smnn.solve(*x, backend="cpu").sum()
        every = torch.autograd.grad(y, x, retain_graph=True)
        for i, leaf in enumerate((c, d, u, s)):
            (g,) = torch.autograd.grad(y, leaf, retain_graph=True)
            assert torch.equal(g, every[i])

    def test_hooks_see_what_is_kept(self, case: Case) -> None:
        x, seen = leaves_of(case), []

        def pack(t: Tensor) -> Tensor:
            seen.append(t.shape)
            return t

        with saved_tensors_hooks(pack, lambda t: t):
            y = smnn.solve(*x, backend="cpu")
        assert seen[:5] == [*(t.shape for t in x), y.shape]
        assert len(seen) == 6
        want = torch.autograd.grad(smnn.solve(*x, backend="cpu").sum(), x)
        assert identical(list(torch.autograd.grad(y.sum(), x)), list(want))

    def test_hooks_may_repack_what_is_kept(self, case: Case) -> None:
        c = case.args[0]
        wide = case.replace(c=torch.stack([c, c], 1).flatten(0, 1)[::2])
        results(wide)
        x = leaves_of(wide)
        want = torch.autograd.grad(smnn.solve(*x, backend="cpu").sum(), x)
        with saved_tensors_hooks(lambda t: t.contiguous() + 0.0, lambda t: t):
            y = smnn.solve(*x, backend="cpu")
        assert identical(list(torch.autograd.grad(y.sum(), x)), list(want))

    def test_hooks_must_not_change_the_type(self, case: Case) -> None:
        with saved_tensors_hooks(lambda t: t.float(), lambda t: t):
            y = smnn.solve(*leaves_of(case), backend="cpu")
        with pytest.raises(RuntimeError, match=r"got torch\.float32 on cpu; expected"):
            y.sum().backward()

    def test_checkpoints(self, case: Case) -> None:
        def solve(*x: Tensor) -> Tensor:
            return smnn.solve(*x, backend="cpu")

        x = leaves_of(case)
        want = torch.autograd.grad(solve(*x).sum(), x)
        y = checkpoint(solve, *x, use_reentrant=False)
        assert identical(list(torch.autograd.grad(y.sum(), x)), list(want))
        checkpoint(solve, *x, use_reentrant=True).sum().backward()
        assert identical([t.grad for t in x], list(want))

    def test_a_checkpoint_around_the_first_call(self, switch: Switch, case: Case) -> None:
        """Which has nothing to remember yet, unlike its repetition."""
        x = leaves_of(case)
        want = torch.autograd.grad(smnn.solve(*x, backend="cpu").sum(), x)
        for on in (True, False):
            switch(on)
            y = checkpoint(lambda *x: smnn.solve(*x, backend="cpu"), *x, use_reentrant=False)
            assert identical(list(torch.autograd.grad(y.sum(), x)), list(want))

    def test_a_checkpoint_that_begins_without(self, switch: Switch, case: Case) -> None:
        """C++ may become ready between the first forward and its repetition."""
        x = leaves_of(case)
        switch(False)
        y = checkpoint(lambda *x: smnn.solve(*x, backend="cpu"), *x, use_reentrant=False)
        want = torch.autograd.grad(smnn.solve(*x, backend="cpu").sum(), x)
        switch(True)
        results(case)
        assert identical(list(torch.autograd.grad(y.sum(), x)), list(want))
        assert used()

    def test_without_a_graph(self, case: Case) -> None:
        x = leaves_of(case)
        want = smnn.solve(*x, backend="cpu")
        with torch.no_grad():
            y = smnn.solve(*x, backend="cpu")
        assert torch.equal(y, want)
        assert not y.requires_grad
        with torch.inference_mode():
            y = smnn.solve(*x, backend="cpu")
        assert torch.equal(y, want)
        assert y.is_inference()

    def test_surroundings_that_watch(self, case: Case) -> None:
        """Forward mode, `torch.func`: by the operators, as ever."""
        c, d, u, s = case.args
        want = torch.autograd.functional.jvp(
            lambda d: smnn.solve(c, d, u, s, backend="cpu"), d, torch.ones_like(d)
        )[1]
        got = torch.func.jvp(
            lambda d: smnn.solve(c, d, u, s, backend="cpu"), (d,), (torch.ones_like(d),)
        )[1]
        assert relative(got, want) < 1e-10

    def test_compiled_autograd(self, case: Case) -> None:
        from torch._dynamo import compiled_autograd

        x = leaves_of(case)
        want = torch.autograd.grad(smnn.solve(*x, backend="cpu").sum(), x)
        for _ in range(2):
            with compiled_autograd._enable(torch.compile(backend="eager")):
                found = torch.autograd.grad(smnn.solve(*x, backend="cpu").sum(), x)
            assert identical(list(found), list(want))

    def test_nothing_of_the_caller_is_kept(self, case: Case) -> None:
        x = leaves_of(case)
        y = smnn.solve(*x, backend="cpu")
        y.sum().backward()
        seen = [weakref.ref(t) for t in (*x, y)]
        del x, y
        gc.collect()
        assert [ref for ref in seen if ref() is not None] == []

    def test_memory_is_given_back(self, switch: Switch) -> None:
        """A factor of 3 MB each time: 600 MB if it were kept."""
        case = random_problem(1, T=15000, V=1, Q=1, R_init=1, limit=None)
        for i in range(200):
            x = leaves_of(case)
            y = smnn.solve(*x, backend="cpu")
            if i % 2:
                y.sum().backward()
            if i == 20:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert used()
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB

    def test_signatures_can_be_forgotten(self, case: Case) -> None:
        """A graph holds what its backward needs."""
        x = leaves_of(case)
        want = torch.autograd.grad(smnn.solve(*x, backend="cpu").sum(), x)
        y = smnn.solve(*x, backend="cpu")
        eager._signatures.clear()
        eager._latest.clear()
        gc.collect()
        assert identical(list(torch.autograd.grad(y.sum(), x)), list(want))
