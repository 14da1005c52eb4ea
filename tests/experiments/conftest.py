import pytest

from smnn.experiments.standalone import run as standalone


@pytest.fixture(scope="session")
def result() -> standalone.Standalone:
    """The whole experiment once, with as few timings as it takes."""
    pytest.importorskip("scipy")
    return standalone.run(standalone.Config(repeats=1))
