"""The C++ launcher, for tests that need it compiled."""

from types import ModuleType

import pytest

from native_modules import compiled
from solver.internals import launcher as gpu_native


@pytest.fixture(scope="session")
def launcher(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """`launcher.cpp`."""
    return compiled(gpu_native.build, pytestconfig, tmp_path_factory)
