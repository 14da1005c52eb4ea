"""The C++ files of the package, compiled for tests."""

from collections.abc import Callable
from types import ModuleType

import pytest


def compiled(
    build: Callable[[], ModuleType | str],
    config: pytest.Config,
    folders: pytest.TempPathFactory,
) -> ModuleType:
    """Compiled once and kept among pytest's own files: its name has the digest of its source."""
    cache = getattr(config, "cache", None)
    folder = cache.mkdir("native") if cache else folders.mktemp("native")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SMNN_CACHE", str(folder))
        found = build()
    if isinstance(found, str) and found.startswith("no C++"):
        pytest.skip(found)
    assert isinstance(found, ModuleType), found
    return found
