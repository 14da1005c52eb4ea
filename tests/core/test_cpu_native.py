"""The CPU kernels called from C++: the same numbers to the last bit, and autograd sees the same."""

import contextlib
import gc
import itertools
import multiprocessing
import resource
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import smnn
from helpers import (
    OPTIONS,
    SCHEMES,
    Case,
    numbers_of,
    option,
    random_problem,
    relative,
    send_numbers,
)
from smnn import _eager
from smnn._backends import _cpu_native

Switch = Callable[[bool], None]
NUMBERS = [
    name
    for name, extra in OPTIONS.items()
    if extra.get("weights", "float") == "float" and "order" not in extra
    if extra.get("R") != 0 and extra.get("Q") != 0
]
"""Options that a remembered signature serves."""


@pytest.fixture(scope="session")
def module(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Compiled once and kept among pytest's own files: its name has the digest of its source."""
    cache = getattr(pytestconfig, "cache", None)
    folder = cache.mkdir("native") if cache else tmp_path_factory.mktemp("native")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SMNN_CACHE", str(folder))
        found = _cpu_native.extension.build()
    if isinstance(found, str) and found.startswith("no C++"):
        pytest.skip(found)
    assert isinstance(found, ModuleType), found
    return found


@pytest.fixture
def switch(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Switch]:
    """Whether C++ is used from now on. At first it is; nothing is remembered."""

    def to(on: bool) -> None:
        _eager._signatures.clear()
        _eager._latest.clear()
        monkeypatch.setattr(_cpu_native.extension, "module", module if on else None)
        monkeypatch.setattr(_cpu_native.extension, "reason", None if on else "switched off")

    to(True)
    yield to
    _eager._signatures.clear()
    _eager._latest.clear()


def used() -> bool:
    """Whether some call since the last switch went through C++."""
    return any(signature.direct for signature in _eager._signatures.values())


def leaves_of(case: Case, wanted: str = "cdus") -> list[Tensor]:
    return [
        x.detach().requires_grad_(name in wanted) for name, x in zip("cdus", case.args, strict=True)
    ]


def results(case: Case, wanted: str = "cdus", gy: Tensor | None = None) -> list[Tensor]:
    """Of the second call: the first is from the start."""
    for _ in range(2):
        x = leaves_of(case, wanted)
        y = smnn.solve(*x, **case.kw, backend="cpu")
        leaves = [leaf for leaf in x if leaf.requires_grad]
        g = 2 * y.detach() if gy is None else gy
        found = [y, *torch.autograd.grad(y, leaves, g)]
    with torch.no_grad():
        found.append(smnn.solve(*case.args, **case.kw, backend="cpu"))
    y, info = smnn.solve_ex(*case.args, **case.kw, backend="cpu")
    return [*found, y, *(t for t in info if t is not None)]


def both(switch: Switch, *args: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Results with and without C++."""
    switch(True)
    ours = results(*args)
    assert used()
    switch(False)
    theirs = results(*args)
    assert not used()
    return ours, theirs


def identical(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return len(ours) == len(theirs) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
        for a, b in zip(ours, theirs, strict=True)
    )


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
        _eager._signatures.clear()
        _eager._latest.clear()
        gc.collect()
        assert identical(list(torch.autograd.grad(y.sum(), x)), list(want))


class TestThreadsAndProcesses:
    def test_many_threads_at_once(self, switch: Switch) -> None:
        cases = [random_problem(seed, T=200, batch=(2,), limit=None) for seed in range(4)]
        want = [results(case) for case in cases]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(results, cases * 8))
        assert used()
        assert all(identical(found[i], want[i % 4]) for i in range(32))

    def test_python_goes_on_meanwhile(self, switch: Switch) -> None:
        """The interpreter's lock is free while the kernels run."""
        case = random_problem(1, T=15000, V=1, Q=1, R_init=1, limit=None)
        results(case)
        started, done, steps = threading.Event(), threading.Event(), 0

        def work() -> None:
            started.set()
            for _ in range(20):
                y = smnn.solve(*leaves_of(case), backend="cpu")
                y.sum().backward()
            done.set()

        before = sys.getswitchinterval()
        sys.setswitchinterval(1000.0)  # no thread is ever asked to yield
        try:
            thread = threading.Thread(target=work)
            thread.start()
            started.wait()
            while not done.is_set():
                steps += 1
                time.sleep(0)  # yield
            thread.join()
        finally:
            sys.setswitchinterval(before)
        assert steps > 0

    @pytest.mark.skipif(torch.cuda.is_available(), reason="autograd with a GPU takes no fork")
    def test_a_forked_process(self, switch: Switch) -> None:
        case = random_problem(3, T=400, V=2, batch=(2,), limit=None)
        for _ in range(3):
            y, grad = numbers_of(case)
        assert used()
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=send_numbers, args=(sender, case))
        process.start()
        try:
            answers = [receiver.recv() for _ in range(2) if receiver.poll(60)]
        finally:
            process.kill()
            process.join()
        assert answers == [y, (y, grad)]

    @pytest.mark.usefixtures("two_threads")
    def test_what_threads_share_stays_in_python(self, switch: Switch) -> None:
        large = random_problem(1, T=100, batch=(64,), limit=None)
        results(large)
        assert not used()
        small = random_problem(1, T=30)
        torch.set_num_threads(1)
        want = results(small)
        torch.set_num_threads(2)
        assert identical(results(small), want)
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

    monkeypatch.setattr(_cpu_native, "_address", missing)
    case = random_problem(1, batch=(2,))
    ours = results(case)
    assert not used()
    assert "no address of a kernel" in str(_cpu_native.extension.reason)
    switch(False)
    assert identical(ours, results(case))
