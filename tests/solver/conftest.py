"""The compiled CPU kernels, and the switch that puts them to use or aside."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from native_modules import compiled
from smnn._solver import eager
from smnn._solver.cpu import native as cpu_native
from solver.native_calls import Switch


@pytest.fixture(scope="session")
def module(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """`native.cpp`."""
    return compiled(cpu_native.extension.build, pytestconfig, tmp_path_factory)


@pytest.fixture
def switch(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Switch]:
    """Whether C++ is used from now on. At first it is; nothing is remembered."""

    def to(on: bool) -> None:
        eager._signatures.clear()
        eager._latest.clear()
        monkeypatch.setattr(cpu_native.extension, "module", module if on else None)
        monkeypatch.setattr(cpu_native.extension, "reason", None if on else "switched off")

    to(True)
    yield to
    eager._signatures.clear()
    eager._latest.clear()
