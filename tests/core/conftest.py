"""The compiled CPU kernels, and the switch that puts them to use or aside."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from core.native_calls import Switch
from native_modules import compiled
from smnn import _eager
from smnn._backends import _cpu_native


@pytest.fixture(scope="session")
def module(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """`_cpu_native.cpp`."""
    return compiled(_cpu_native.extension.build, pytestconfig, tmp_path_factory)


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
