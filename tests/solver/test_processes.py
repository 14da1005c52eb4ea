"""Several threads and processes, and first calls in special modes."""

import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from helpers import differentiable, gradients, numbers_of, random_problem, same, send_numbers

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("two_threads")
def test_many_threads_at_once(fast_backend: str, device: str) -> None:
    cases = [differentiable(seed, device, T=60, V=1, batch=(2,)) for seed in range(4)]
    expected = [(case.solve(fast_backend), gradients(case, fast_backend)) for case in cases]

    def work(i: int) -> bool:
        y, grads = expected[i % 4]
        case = cases[i % 4]
        return torch.equal(case.solve(fast_backend), y) and same(
            gradients(case, fast_backend), grads, 1e-12
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(64)))


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_another_process(start: str) -> None:
    """A forked process has none of its parent's threads; a spawned one starts from nothing."""
    case = random_problem(3, T=400, V=2, batch=(2,), limit=None)
    y, grad = numbers_of(case)  # from now on there are threads
    context = multiprocessing.get_context(start)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=send_numbers, args=(sender, case))
    process.start()
    try:
        answers = []
        while len(answers) < 2 and receiver.poll(60):
            answers.append(receiver.recv())
    finally:
        process.kill()
        process.join()
    assert answers == [pytest.approx(y, rel=1e-12), pytest.approx((y, grad), rel=1e-12)]


FIRST_CALL = """
import sys, torch, smnn
from torch._subclasses.fake_tensor import FakeTensorMode

backend, surroundings = sys.argv[1:]
c = torch.tensor([2.0, 0.5, 1.0], dtype=torch.float64).view(1, 1, 1, 3)
args = c, c.new_ones(1, 1), c.new_ones(1, 1, 2), c.new_full((9,), 0.1)

def solve(*args):
    return smnn.solve(*args, w_gov=1.25, order=3, backend=backend)

if surroundings == "inference":
    with torch.inference_mode():
        solve(*args)
elif surroundings == "fake":
    with FakeTensorMode() as mode:
        assert solve(*(mode.from_tensor(x) for x in args)).shape == (10, 1, 4)
elif surroundings == "compile":
    torch.compile(solve, fullgraph=True, backend="eager")(*args)

inputs = [x.clone().requires_grad_() for x in args]
assert torch.autograd.gradgradcheck(solve, inputs, fast_mode=True)
print("well")
"""


@pytest.mark.parametrize("surroundings", ["inference", "fake", "compile"])
@pytest.mark.parametrize("name", ["cpu", "torch"])
def test_first_call_in_a_special_mode(name: str, surroundings: str) -> None:
    """Constants cached by the first call must work in every later one."""
    command = [sys.executable, "-c", FIRST_CALL, name, surroundings]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert run.stdout.strip() == "well", run.stderr[-2000:]
