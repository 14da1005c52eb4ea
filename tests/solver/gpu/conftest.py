"""The C++ launcher, for tests that need it compiled."""

from types import ModuleType

import pytest

from solver.internals import launcher as native


@pytest.fixture(scope="session")
def launcher(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The compiled `launcher.cpp`; kept in pytest's cache under a hash of its source."""
    cache = getattr(pytestconfig, "cache", None)
    folder = cache.mkdir("native") if cache else tmp_path_factory.mktemp("native")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SMNN_CACHE", str(folder))
        found = native.build()
    if isinstance(found, str) and found.startswith("no C++"):
        pytest.skip(found)
    assert isinstance(found, ModuleType), found
    return found
