"""Behaviour that requires a CUDA device: graphs, streams, memory, compilation."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo import compiled_autograd

import smnn
from solver.internals import REDUCED, backend_named, launcher

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def tensors(B: int = 40, T: int = 30, V: int = 1, R: int = 2, seed: int = 0) -> list[Tensor]:
    """A first-order system on an uneven grid."""
    g = torch.Generator().manual_seed(seed)
    c = torch.zeros(B, T, V, V, R + 1, dtype=torch.float64)
    c[..., 0] = 0.3 * torch.randn(B, T, V, V, generator=g)
    c[..., 1] = torch.eye(V)
    s = 0.1 + 0.01 * torch.rand(B, T - 1, generator=g, dtype=torch.float64)
    d = torch.randn(B, T, V, generator=g, dtype=torch.float64)
    u = torch.randn(B, 1, V, 1, generator=g, dtype=torch.float64)
    return [x.cuda().requires_grad_() for x in (c, d, u, s)]


def solve(*x: Tensor) -> Tensor:
    return smnn.solve_ex(*x, backend="gpu")[0]


def expected(x: list[Tensor], g: Tensor) -> list[Tensor]:
    """Gradients on the CPU."""
    leaves = [t.detach().cpu().requires_grad_() for t in x]
    return list(torch.autograd.grad(smnn.solve(*leaves, backend="cpu"), leaves, g.cpu()))


def close(a: list[Tensor], b: list[Tensor]) -> None:
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x.cpu(), y.cpu(), rtol=1e-9, atol=1e-9 * float(y.abs().max()))


@pytest.mark.parametrize(("T", "V"), [(30, 1), (400, 1), (10, 9), (130, 8), (30, 32)])
def test_training_step_in_a_graph(T: int, V: int) -> None:
    """Lanes, pieces, tiles, and reductions with and without matrix products."""
    x = tensors(T=T, V=V)
    g = torch.randn(40, T, V, 3, dtype=torch.float64, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            torch.autograd.grad(solve(*x), x, g)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out = torch.autograd.grad(solve(*x), x, g)
    fresh = tensors(T=T, V=V, seed=7)
    with torch.no_grad():
        for old, new in zip(x, fresh, strict=True):
            old.copy_(new)
    graph.replay()
    torch.cuda.synchronize()
    close(list(out), expected(fresh, g))


@pytest.mark.parametrize(("T", "V"), [(30, 1), (130, 1), (10, 9), (130, 8)])
def test_length_first_used_in_a_graph(T: int, V: int) -> None:
    """Constants captured in a graph are not computed yet and must not be cached."""
    x, y = (tensors(B=2, T=length, V=V, seed=3) for length in (T, T + 1))
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        solve(*x)  # compiles and loads the kernels
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream), torch.no_grad():
        captured = solve(*y)
    found, info = smnn.solve_ex(*y, backend="gpu")
    expected, judged = smnn.solve_ex(*(t.detach().cpu() for t in y), backend="torch")
    close([found], [expected])
    assert not info.status.any()
    if V == 8:  # the one that eliminates in the same order
        torch.testing.assert_close(info.weakest.cpu(), judged.weakest)
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(captured, found)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize(("T", "V"), [(30, 1), (400, 1), (10, 9), (330, 3)])
def test_device_that_is_not_the_current_one(T: int, V: int) -> None:
    """Solve on the second device while the first is current, with and without a cached plan."""
    x = [t.detach().to("cuda:1").requires_grad_() for t in tensors(B=4, T=T, V=V)]
    for _ in range(3):
        y = solve(*x)
        g = torch.randn_like(y)
        out = torch.autograd.grad(y, x, g)
        assert {t.device.index for t in (y, *out)} == {1}
        assert torch.cuda.current_device() == 0
        close([*out], expected(x, g))


def test_another_stream() -> None:
    x = tensors(T=200)
    g = torch.randn(40, 200, 1, 3, dtype=torch.float64, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out = torch.autograd.grad(solve(*x), x, g)
    stream.synchronize()
    close(list(out), expected(x, g))


@pytest.mark.parametrize(("T", "V"), [(33, 1), (133, 1), (13, 9), (133, 8)])
def test_length_first_used_on_a_busy_stream(T: int, V: int) -> None:
    """Another stream uses the cached constants of the first call."""
    weights = {"w_gov": 1.37, "w_init": 2.11, "w_smooth": 0.73}
    x, y = (tensors(B=2, T=length, V=V, seed=4) for length in (T, T + 1))
    smnn.solve_ex(*x, **weights, backend="gpu")  # compiles and loads the kernels
    torch.cuda.synchronize()
    busy, other = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(busy), torch.no_grad():
        torch.cuda._sleep(1_000_000_000)
        first, _ = smnn.solve_ex(*y, **weights, backend="gpu")
    with torch.cuda.stream(other), torch.no_grad():
        second, _ = smnn.solve_ex(*y, **weights, backend="gpu")
    torch.cuda.synchronize()
    on_cpu = smnn.solve(*(t.detach().cpu() for t in y), **weights, backend="cpu")
    close([first, second], [on_cpu, on_cpu])


def test_factor_is_released_before_gradients_are_allocated() -> None:
    """Unless the graph is retained. Only launches from C++ can release it early."""
    if reason := launcher.wait():
        pytest.skip(reason)
    B, T = 20_000, 60
    x = tensors(B, T)
    size = 8 * B * T * 3  # of a solution, and of right-hand sides; the factor is five times that
    more = []
    for retained in (True, False, True, False):
        y = smnn.solve(*x, check=False)
        g = torch.ones_like(y)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        grads = torch.autograd.grad(y, x, g, retain_graph=retained)
        more.append((torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()) / size)
        del y, grads
    assert more[2] == pytest.approx(1, abs=0.1)
    assert more[3] > 1 + 5 - 2  # the gradients came when the factor had gone


def test_many_shapes_do_not_leak_memory() -> None:
    for T in range(5, 15):
        solve(*tensors(T=T))
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for T in range(15, 60):
        x = tensors(T=T)
        torch.autograd.grad(solve(*x).sum(), x)
    del x
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() - before < 2_000_000


@pytest.mark.parametrize(("B", "T", "V"), [(40, 30, 1), (2, 130, 8)])
def test_compiled(B: int, T: int, V: int) -> None:
    x = tensors(B=B, T=T, V=V)
    compiled = torch.compile(lambda *t: solve(*t).square().sum(), fullgraph=True)
    close(
        list(torch.autograd.grad(compiled(*x), x)),
        list(torch.autograd.grad(solve(*x).square().sum(), x)),
    )


@pytest.mark.parametrize(("V", "R"), [(5, 2), (6, 2), (8, 2), (9, 2), (16, 2), (16, 3), (22, 2)])
@pytest.mark.parametrize("scheme", ["smnn", "central"])
def test_larger_blocks(V: int, R: int, scheme: str) -> None:
    """15 unknowns per time: a warp for each sequence; 18 to 64: tiles of some; 66: panels."""
    x = tensors(B=4, T=12, V=V, R=R)
    y = smnn.solve(*x, scheme=scheme, backend="gpu")
    other = [t.detach().cpu().requires_grad_() for t in x]
    z = smnn.solve(*other, scheme=scheme, backend="cpu")
    torch.testing.assert_close(y.cpu(), z, rtol=1e-9, atol=1e-9)
    g = torch.randn_like(z)
    close(list(torch.autograd.grad(y, x, g.cuda())), list(torch.autograd.grad(z, other, g)))


@pytest.mark.parametrize("V", [9, 16, 22])
def test_more_equations_than_fit_into_registers(V: int) -> None:
    c, d, u, s = tensors(B=4, T=12, V=V)
    x = [torch.cat([c] * 8, dim=2)[:, :, :70], torch.randn_like(torch.cat([d] * 8, 2)[..., :70])]
    x = [t.detach().requires_grad_() for t in (*x, u, s)]
    y = solve(*x)
    g = torch.randn_like(y)
    close([y], [smnn.solve(*(t.detach().cpu() for t in x), backend="cpu")])
    close(list(torch.autograd.grad(y, x, g)), expected(x, g))


@pytest.mark.parametrize("scheme", ["smnn", "central"])
@pytest.mark.parametrize(("V", "R"), [(9, 2), (16, 3), (22, 2)])
def test_failed_samples_of_large_blocks(V: int, R: int, scheme: str) -> None:
    c, d, u, s = (x.detach() for x in tensors(B=4, T=12, V=V, R=R))
    s[1, 5] = -0.1
    c[2, 6] = torch.nan
    c[3] = 0.0
    y, info = smnn.solve_ex(c, d, u, s, scheme=scheme, backend="gpu")
    assert info.status.tolist() == [0, 1, 2, 3]
    assert y.isnan().flatten(1).all(1).tolist() == [False, True, True, True]
    torch.testing.assert_close(y[:1], smnn.solve(c[:1], d[:1], u[:1], s[:1], scheme=scheme))


@pytest.mark.parametrize("scheme", ["smnn", "central"])
@pytest.mark.parametrize(
    ("B", "T", "V", "R"),
    [
        (1, 301, 3, 2), (50, 1000, 2, 3), (1, 301, 5, 2), (3, 130, 8, 2),
        (40, 35, 16, 2), (2, 5, 129, 1),
    ],
)  # fmt: skip
def test_odd_even_reduction(B: int, T: int, V: int, R: int, scheme: str) -> None:
    """For few long sequences, and for blocks of more than 256 unknowns."""
    x = tensors(B=B, T=T, V=V, R=R)
    assert backend_named("gpu").pieces(B, T, V * (R + 1), 1) == REDUCED
    y = smnn.solve(*x, scheme=scheme)
    g = torch.randn_like(y)
    other = [t.detach().cpu().requires_grad_() for t in x]
    z = smnn.solve(*other, scheme=scheme, backend="cpu" if V * (R + 1) < 200 else "torch")
    torch.testing.assert_close(y.cpu(), z, rtol=1e-9, atol=1e-9)
    close(list(torch.autograd.grad(y, x, g)), list(torch.autograd.grad(z, other, g.cpu())))


def test_reduction_of_many_numbers_and_of_few() -> None:
    """Beyond three million entries, blocks of reflections are matrix products."""
    c, d, u, s = (t.detach() for t in tensors(B=40, T=40, V=32, R=2))
    y = smnn.solve(c, d, u, s)
    torch.testing.assert_close(smnn.solve(c[:1], d[:1], u[:1], s[:1]), y[:1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scheme", ["smnn", "central"])
def test_failed_samples_of_a_reduction(scheme: str) -> None:
    c, d, u, s = (x.detach() for x in tensors(B=4, T=130, V=8))
    s[1, 5] = -0.1
    c[2, 6] = torch.nan
    c[3] = 0.0
    y, info = smnn.solve_ex(c, d, u, s, scheme=scheme)
    assert info.status.tolist() == [0, 1, 2, 3]
    assert y.isnan().flatten(1).all(1).tolist() == [False, True, True, True]
    expected = smnn.solve(*(t[:1].cpu() for t in (c, d, u, s)), scheme=scheme)
    torch.testing.assert_close(y[:1].cpu(), expected, rtol=1e-9, atol=1e-9)


def compiled() -> Any:
    """A context in which autograd itself is compiled."""
    return compiled_autograd._enable(torch.compile(backend="eager"))


def remembered(T: int, V: int) -> tuple[list[Tensor], Tensor, list[Tensor]]:
    """Leaves, an incoming gradient, and the expected gradients; the plan launches from C++."""
    if reason := launcher.wait():
        pytest.skip(reason)
    x = tensors(T=T, V=V)
    g = torch.randn(40, T, V, 3, dtype=torch.float64, device="cuda")
    for _ in range(3):
        y = solve(*x)
    assert "SolveOnGpu" in y.grad_fn.name()
    return x, g, expected(x, g)


@pytest.mark.parametrize(("T", "V"), [(30, 1), (400, 1), (20, 5), (10, 9)])
def test_gradients_by_compiled_autograd(T: int, V: int) -> None:
    x, g, theirs = remembered(T, V)
    for _ in range(2):
        with compiled():
            ours = torch.autograd.grad(solve(*x), x, g)
        close(list(ours), theirs)


def test_thread_without_a_context() -> None:
    """A new thread solves with kernels that another one has loaded."""
    x, found = tensors(), []
    for _ in range(3):
        y = solve(*x)
    plain = [t.detach() for t in x]
    thread = threading.Thread(target=lambda: found.append(solve(*plain)))
    thread.start()
    thread.join()
    (other,) = found
    assert torch.equal(other, y.detach())


@pytest.mark.parametrize("apart", [True, False])
def test_compiled_autograd_as_a_setting_of_the_compiler(apart: bool) -> None:
    """Between compiled code, by the C++ launcher; inside it, by the operator."""
    x, g, _ = remembered(30, 1)
    chosen = torch.compiler.disable(solve) if apart else solve
    theirs = expected([2 * t.detach() for t in x], g)
    with torch._dynamo.config.patch(compiled_autograd=True):
        # Not `2 * t`: on a GPU, torch 2.11 cannot compile the derivative of that by itself.
        step = torch.compile(lambda: (chosen(*(t + t for t in x)) * g).sum().backward())
        for _ in range(2):
            for t in x:
                t.grad = None
            step()
            close([t.grad for t in x], [2 * t for t in theirs])
