"""Run the same tests for every backend and device that this machine supports.

A test that asks for `backend` runs once for every usable backend and device; one that asks for
`fast_backend` leaves out the dense `reference`; one that asks only for `device` runs once for every
device. Runs on a CUDA device carry the mark `gpu`, so that

    pytest -m gpu            repeats the whole matrix on the device,
    pytest -m "not gpu"      stays on the CPU,
    pytest --device cuda     as the first, and fails where there is no device,
    pytest -m gpu --reduced  makes the `gpu` backend take every problem by odd-even reduction,
    pytest --emulated -k gpu-cpu   runs its compiled kernels without a device (see
                                   `solver/gpu/emulated`).
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

# The problems are small: more threads only get into each other's way. Read when NumPy loads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import HealthCheck, settings

import smnn
from solver.internals import backend_named

sys.path.insert(0, str(Path(__file__).parent))  # `from helpers import ...` in every test

settings.register_profile(
    "smnn", deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
settings.load_profile("smnn")

torch.set_num_threads(1)

RACES = pytest.StashKey[dict[str, int]]()
"""Race conditions found by the emulated device."""


@pytest.fixture(autouse=True)
def _in_any_order(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test whose emulated kernels contain a race condition."""
    yield
    found = request.config.stash.get(RACES, {})
    races = [*found]
    found.clear()
    assert races == []


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Use two threads during a test; one thread is restored afterwards."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        choices=("all", "cpu", "cuda"),
        default="all",
        help="devices to test the solver on (default: all available)",
    )
    parser.addoption(
        "--reduced",
        action="store_true",
        help="use odd-even reduction for every problem of the gpu backend",
    )
    parser.addoption(
        "--emulated",
        action="store_true",
        help="run the compiled kernels of the gpu backend on an emulated device",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--emulated"):
        from solver.trust.ways import emulate

        config.stash[RACES] = emulate()
    if config.getoption("--reduced"):
        from solver.trust.ways import always_reduce

        always_reduce()


def _devices(config: pytest.Config) -> list[str]:
    asked = config.getoption("--device")
    if asked == "cuda" and not torch.cuda.is_available():
        raise pytest.UsageError("--device cuda: this machine has no CUDA device")
    there = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    return [device for device in there if asked in ("all", device)]


def _marks(device: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.gpu] if device == "cuda" else []


def _backends(device: str) -> list[str]:
    usable = [name for name, reason in smnn.available_backends().items() if reason is None]
    return [n for n in usable if backend_named(n).unavailable(torch.device(device), 1) is None]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    asked = {"backend", "fast_backend"} & set(metafunc.fixturenames)
    devices = _devices(metafunc.config)
    if asked:
        (name,) = asked
        pairs = [
            pytest.param(backend, device, marks=_marks(device), id=f"{backend}-{device}")
            for device in devices
            for backend in _backends(device)
            if name == "backend" or backend != "reference"
        ]
        metafunc.parametrize((name, "device"), pairs)
    elif "device" in metafunc.fixturenames:
        metafunc.parametrize("device", [pytest.param(d, marks=_marks(d)) for d in devices])
