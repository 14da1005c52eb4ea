"""Settings, their messages, and the registry of tasks."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_cases import Encoder, Line

from smnn.training import ConfigError, RunSpec, TrainConfig, register_task, registered_tasks
from smnn.training import _task as registry


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "the length of training is missing; set epochs, max_steps"),
        ({"epochs": 0}, "epochs: got 0; expected at least 1"),
        ({"max_steps": 1.5}, "max_steps: got 1.5; expected a whole number"),
        ({"max_steps": True}, "max_steps: got True; expected a whole number"),
        ({"batch_size": 0}, "batch_size: got 0; expected at least 1"),
        ({"batch_size": None}, "batch_size: got None; expected a whole number"),
        ({"batch_size": 4, "accumulate": 5}, "accumulate: got 5; expected at most batch_size"),
        ({"optimizer": "sgd"}, "optimizer: got 'sgd'; expected one of 'adam', 'adamw'"),
        ({"lr": 0}, "lr: got 0; expected more than 0"),
        ({"lr": "fast"}, "lr: got 'fast'; expected a finite number"),
        ({"lr": float("nan")}, "lr: got nan; expected a finite number"),
        ({"weight_decay": -1}, "weight_decay: got -1; expected at least 0"),
        ({"schedule": "step"}, "schedule: got 'step'; expected one of 'constant', 'cosine'"),
        (
            {"schedule": "one-cycle", "warmup_steps": 3},
            "warmup_steps: got 3; expected 0 with schedule 'one-cycle'",
        ),
        ({"final_lr": 1.0}, "final_lr: got 1.0; expected 0 <= final_lr < 1"),
        ({"plateau_factor": 1.0}, "plateau_factor: got 1.0; expected 0 < plateau_factor < 1"),
        ({"clip": 0.0}, "clip: got 0.0; expected more than 0 or None (null in JSON)"),
        ({"ema": 1.0}, "ema: got 1.0; expected 0 <= ema < 1 or None"),
        ({"patience": 0}, "patience: got 0; expected at least 1 or None"),
        ({"monitor": ""}, "monitor: got ''; expected a non-empty string"),
        ({"seed": -1}, "seed: got -1; expected 0 <= seed"),
        ({"precision": "half"}, "precision: got 'half'; expected one of 'float64', 'float32'"),
        ({"accelerator": "tpu"}, "accelerator: got 'tpu'; expected one of 'auto', 'cpu', 'cuda'"),
        ({"graphed": "yes"}, "graphed: got 'yes'; expected one of 'auto', True, False"),
        ({"drop_last": 1}, "drop_last: got 1; expected one of True, False"),
        ({"keep_last": 0}, "keep_last: got 0; expected at least 1"),
    ],
)
def test_invalid_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TrainConfig(**({"epochs": 1} if options else {}) | options)
    assert message in str(caught.value)


configs = st.builds(
    TrainConfig,
    epochs=st.integers(1, 9),
    max_steps=st.none() | st.integers(1, 99),
    lr=st.floats(1e-9, 1.0),
    clip=st.none() | st.floats(1e-3, 10),
    ema=st.none() | st.floats(0, 0.999),
    schedule=st.sampled_from(["constant", "cosine", "one-cycle", "plateau"]),
    graphed=st.sampled_from(["auto", True, False]),
    seed=st.integers(0, 2**63 - 1),
)


@given(configs)
def test_json_roundtrip(config: TrainConfig) -> None:
    text = json.dumps(config.to_dict(), allow_nan=False)
    assert TrainConfig.from_dict(json.loads(text)) == config


def test_unknown_settings() -> None:
    with pytest.raises(ConfigError, match=r"there is no setting 'batchsize'; did you mean batch_s"):
        TrainConfig.from_dict({"epochs": 1, "batchsize": 3})
    with pytest.raises(ConfigError, match="there is no setting 'xyz'; There are: epochs, max_st"):
        TrainConfig.from_dict({"epochs": 1, "xyz": 3})


def test_settings_that_may_change_on_resume() -> None:
    config = TrainConfig(epochs=3)
    for name, value in (("devices", 4), ("epochs", 5), ("accumulate", 2), ("log_every", 3)):
        assert config.replace(**{name: value}).identity() == config.identity()
    for name, value in (("lr", 1.0), ("batch_size", 3), ("seed", 2), ("precision", "float32")):
        assert config.replace(**{name: value}).identity() != config.identity()
    cosine = config.replace(schedule="cosine")
    assert cosine.replace(epochs=5).identity() != cosine.identity()


def test_settings_are_immutable() -> None:
    with pytest.raises(AttributeError):
        TrainConfig(epochs=1).lr = 3.0  # type: ignore[misc]


# ---------------------------------------------------------------- names of tasks


def test_registering() -> None:
    entry = registered_tasks()["test-encoder"]
    assert entry.make is Encoder
    assert entry.summary == "Estimate the coefficients of an oscillator from its trajectory."
    assert registered_tasks()["damping"].data is not None
    with pytest.raises(
        ConfigError, match=r"the name 'damping' is already used by smnn\.training\._damp"
    ):
        register_task("damping")(Line)
    with pytest.raises(ConfigError, match=r"there is no task 'lin'; registered are: damping, "):
        RunSpec("lin").build()
    with pytest.raises(ConfigError, match="task 'damping': got an unexpected keyword argument 'x'"):
        RunSpec("damping", task={"x": 1}).build()


def test_tasks_of_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point names a module, which is imported when its task is requested."""

    class Point:
        name = "elsewhere"

        def load(self) -> None:
            register_task("elsewhere")(Line)

    class Points(list):
        names = frozenset({"elsewhere"})

    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    monkeypatch.setattr(registry.metadata, "entry_points", lambda **_: Points([Point()]))
    assert registry.task_entry("elsewhere").make is Line
    assert "elsewhere" in registered_tasks()
