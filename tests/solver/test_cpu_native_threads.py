"""The CPU kernels called from C++, by several threads and by forked processes."""

import multiprocessing
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import smnn
from helpers import numbers_of, random_problem, send_numbers
from solver.native_calls import Switch, identical, leaves_of, results, used


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
