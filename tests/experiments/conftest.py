import pytest

from smnn.experiments import standalone


@pytest.fixture(scope="session")
def result() -> standalone.Standalone:
    """The whole experiment once, with as few timings as it takes."""
    pytest.importorskip("scipy")
    return standalone.run(standalone.Config(repeats=1))
