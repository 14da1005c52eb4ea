"""The C++ launcher, for tests that need it compiled."""

from types import ModuleType

import pytest

from native_modules import compiled
from smnn._backends import _gpu_native


@pytest.fixture(scope="session")
def launcher(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """`_gpu_native.cpp`."""
    return compiled(_gpu_native.build, pytestconfig, tmp_path_factory)
