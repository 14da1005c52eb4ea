"""Errors of training: non-finite numbers, invalid losses, nothing to train."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from short_runs import run, scripted, settings
from torch import Tensor
from training_cases import Line, latest_step, line_data

from smnn.training import ConfigError, Data, NonFiniteError, Task, TrainingError, evaluate, fit
from smnn.training._data import Sampler


def test_nan_in_the_data_is_named(tmp_path: Path) -> None:
    data = line_data(12)
    data.tensors[1][7] = math.nan
    plan = Sampler(12, 4, 0)
    step = next(s for s in range(3) if 7 in plan.batch(s)) + 1
    task = Line()
    before = task.weight.item()
    with pytest.raises(NonFiniteError, match=rf"at step {step} \(epoch 1\).*sample 7 in \[1\]\."):
        run(task, data, tmp_path, epochs=2, checkpoint_every=1)
    assert math.isfinite(task.weight.item())
    if step > 1:
        assert latest_step(tmp_path) == step - 1
        assert task.weight.item() != before


class Exploding(Line):
    at = 3

    def losses(self, batch: Any) -> dict[str, Tensor]:
        self.calls = getattr(self, "calls", 0) + 1
        found = super().losses(batch)["loss"]
        return {"loss": found / (self.calls < self.at)}


def test_a_loss_that_is_not_finite_stops_at_its_step(tmp_path: Path) -> None:
    task = Exploding()
    with pytest.raises(NonFiniteError) as caught:
        run(task, line_data(), tmp_path, max_steps=9, checkpoint_every=1)
    assert "at step 3 (epoch 2)" in str(caught.value)
    assert "The data of that step are finite: lower lr, or set clip." in str(caught.value)
    assert str(tmp_path / "checkpoints" / "step-0000000002") in str(caught.value)
    assert latest_step(tmp_path) == 2
    assert len((tmp_path / "steps.csv").read_text().splitlines()) == 3


def test_a_gradient_that_is_not_finite_stops_too() -> None:
    class Steep(Line):
        def losses(self, batch: Any) -> dict[str, Tensor]:
            return {"loss": (self.weight - 2).abs().sqrt().sum()}  # 0 with slope infinity

    with pytest.raises(NonFiniteError, match="at step 1 "):
        run(Steep(), line_data(), max_steps=3)


def test_a_monitored_scalar_that_is_not_finite_stops() -> None:
    data = Data(line_data(), line_data())
    with pytest.raises(NonFiniteError, match=r"val_score is nan at step 4 \(epoch 2\)"):
        run(scripted(1.0, math.nan, 1.0), data, epochs=3, monitor="score")


def test_a_scalar_that_is_not_monitored_may_be_nan(tmp_path: Path) -> None:
    class Partly(Line):
        def evaluate(self, batch: Any) -> dict[str, Tensor]:
            return {**self.losses(batch), "rare": torch.tensor(math.nan)}

    data = Data(line_data(), line_data())
    run(Partly(), data, tmp_path, epochs=1)
    result = fit(Partly(), data, settings(epochs=1), tmp_path, resume=True, progress=False)
    assert math.isnan(result.metrics["val_rare"])


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"other": torch.ones(())}, "must return a dict with the key 'loss'"),
        (torch.ones(()), "must return a dict with the key 'loss'"),
        ({"loss": torch.ones(3)}, r"'loss' is shape \(3,\); expected a scalar tensor"),
        ({"loss": torch.ones(()), "note": 1.0}, "'note' is float; expected a scalar tensor"),
    ],
)
def test_invalid_losses(returned: Any, message: str) -> None:
    class Wrong(Line):
        def losses(self, batch: Any) -> Any:
            return returned

    with pytest.raises(TrainingError, match=message):
        run(Wrong(), line_data(), max_steps=1)


def test_scalars_must_not_change() -> None:
    class Fickle(Line):
        def losses(self, batch: Any) -> dict[str, Tensor]:
            self.calls = getattr(self, "calls", 0) + 1
            return super().losses(batch) | {f"extra{self.calls}": torch.zeros(())}

        def evaluate(self, batch: Any) -> dict[str, Tensor]:
            return self.losses(batch)

    with pytest.raises(TrainingError, match="losses returned loss, extra2 after loss, extra1"):
        run(Fickle(), line_data(), max_steps=2)
    with pytest.raises(TrainingError, match="evaluate returned loss, extra2 after loss, extra1"):
        evaluate(Fickle(), line_data(), batch_size=4)


def test_nothing_to_train_or_to_train_on() -> None:
    frozen = Line()
    frozen.weight.requires_grad_(False)
    with pytest.raises(TrainingError, match="Line has no parameters to train"):
        run(frozen, line_data(), max_steps=1)
    with pytest.raises(ConfigError, match="training data: got no samples"):
        run(Line(), line_data(0), max_steps=1)
    with pytest.raises(ConfigError, match=r"there are 8 training samples, and drop_last leaves no"):
        run(Line(), line_data(), max_steps=1, batch_size=9, drop_last=True)
    with pytest.raises(ConfigError, match="data: got list; expected a data set or Data"):
        run(Line(), [1, 2], max_steps=1)
    with pytest.raises(ConfigError, match="resume=True needs the folder of the run"):
        fit(Line(), line_data(), settings(max_steps=1), resume=True)


def test_required_methods() -> None:
    class Bare(Task):
        pass

    with pytest.raises(NotImplementedError, match=r"Bare does not define losses\(batch\)"):
        Bare().losses(None)
    with pytest.raises(NotImplementedError, match=r"Bare does not define config\(\)"):
        Bare().config()
