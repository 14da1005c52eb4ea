"""A few dozen damaged inputs for every reader; tools/fuzz.py runs a hundred thousand."""

import ctypes
import os

import pytest
import torch
from fuzz_targets import Target, targets
from fuzzing import fuzz
from hypothesis import strategies as st

pytestmark = pytest.mark.slow
EVERY = targets()


@pytest.mark.parametrize("name", EVERY)
def test_readers_refuse_damaged_input_with_a_message(name: str) -> None:
    found = fuzz(EVERY[name], 40, start=5)
    assert found["bugs"] == []
    assert found["acts"] == []
    assert found["inputs"] >= 30
    assert found["growth_mib"] < 512


def fed(check: object) -> dict:
    return fuzz(Target("x", (KeyError,), lambda: st.integers(0, 9), check), 30, start=1)


def test_fuzzer_detects_every_kind_of_fault() -> None:
    """Undocumented errors, errors without a message, memory, crashes, executed input."""

    def fails(value: int, folder: object) -> None:
        if value == 7:
            raise ValueError("seven")

    def mute(value: int, folder: object) -> None:
        raise KeyError

    def grows(value: int, folder: object) -> None:
        bytearray(4 << 30)

    def dies(value: int, folder: object) -> None:
        os.kill(os.getpid(), 9)

    def acts(value: int, folder: object) -> None:
        exec("1 + 1")

    def forges(value: int, folder: object) -> None:
        acts.__code__.replace(co_filename=torch.utils._contextlib.__file__)

    def loads(value: int, folder: object) -> None:
        ctypes.CDLL(None)

    assert fed(forges)["acts"][0][0].startswith("code.__new__")
    assert fed(loads)["acts"][0][0].startswith("ctypes.dlopen")
    assert fed(fails)["bugs"][0][0] == "ValueError: seven"
    assert "without a message" in fed(mute)["bugs"][0][0]
    assert fed(grows)["bugs"][0][0].startswith("MemoryError")
    assert fed(dies)["bugs"][0][0] == "the process ended with -9"
    assert fed(acts)["acts"][0][0].startswith("exec <string>")


def test_fuzzer_detects_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    import fuzzing

    monkeypatch.setattr(fuzzing, "SECONDS", 0.2)

    def hangs(value: int, folder: object) -> None:
        if value == 3:
            time.sleep(60)

    assert fed(hangs)["bugs"][0][0].startswith("TimeoutError: an input took more than")
