"""Learning rate schedules, early stopping and the monitored scalar."""

import math
from typing import Any

import pytest
import torch
from short_runs import run, scripted, settings
from training_cases import Line, line_data

from smnn.training import ConfigError, Damping, Data, oscillations
from smnn.training._step import Plateau, rate_factor


def factors(total: int, **options: Any) -> list[float]:
    config = settings(max_steps=total, **options)
    return [rate_factor(config, step, total) for step in range(total)]


def test_constant_rate_with_warmup() -> None:
    assert factors(6, warmup_steps=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert factors(3) == [1.0, 1.0, 1.0]


def test_cosine() -> None:
    found = factors(12, schedule="cosine", warmup_steps=2, final_lr=0.1)
    assert found[:3] == [0.5, 1.0, 1.0]
    expected = [0.1 + 0.9 * math.cos(math.pi * k / 20) ** 2 for k in range(10)]
    assert found[2:] == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("total", [1, 2, 3, 4, 5, 17, 100])
def test_one_cycle_equals_torch(total: int) -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([weight], lr=1.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1.0, total_steps=total, cycle_momentum=False
    )
    expected = []
    for _ in range(total):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(expected) < total:
            schedule.step()
    assert factors(total, schedule="one-cycle") == pytest.approx(expected, rel=1e-12)


def test_plateau_equals_torch() -> None:
    values = [5.0, 4, 4, 4, 4, 3.95, 3.94, 3.9, 3.9, 3.9, 3.9, 1, 1, 1, 1, 1, 1]
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    other = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=2, threshold=0.05, threshold_mode="abs"
    )
    plateau = Plateau(settings(epochs=1, plateau_patience=2, min_delta=0.05))
    for step, value in enumerate(values):
        plateau.add(value, step)
        other.step(value)
        assert plateau.scale == optimizer.param_groups[0]["lr"]
    assert plateau.scale < 0.5


def test_early_stopping_and_the_best() -> None:
    task = scripted(5, 4, 4.5, 3.9, 3.95, 3.9, 3.85, 1, 1, 1)
    data = Data(line_data(), line_data(seed=1))
    result = run(task, data, epochs=10, monitor="score", patience=3, min_delta=0.06)
    # 8 samples in batches of 4: two steps an epoch. 3.9 is the best, three are not better by 0.06.
    assert result.stopped_early
    assert result.steps == 14
    assert result.best == {"step": 8, "value": 3.9}
    assert [row["val_score"] for row in result.evaluations] == [5, 4, 4.5, 3.9, 3.95, 3.9, 3.85]


def test_plateau_lowers_the_rate_of_the_run() -> None:
    task = scripted(5, 5, 5, 5)
    result = run(
        task, Data(line_data(), line_data()), epochs=4, monitor="score", lr=0.1,
        schedule="plateau", plateau_patience=1, plateau_factor=0.1,
    )  # fmt: skip
    assert [r["lr"] for r in result.history] == pytest.approx([0.1] * 6 + [0.01] * 2)


def test_evaluate_every() -> None:
    task = scripted(5, 4, 3, 2, 1)
    data = Data(line_data(), line_data())
    result = run(task, data, epochs=5, evaluate_every=2, monitor="score")
    assert [r["epoch"] for r in result.evaluations] == [2, 4, 5]


def test_an_unknown_monitor() -> None:
    with pytest.raises(ConfigError, match=r"monitor: got 'accuracy'; the task returns loss\."):
        run(Damping(), oscillations(20), max_steps=2, monitor="accuracy")
    with pytest.raises(ConfigError, match=r"monitor: got 'accuracy'; the task returns loss\."):
        run(Damping(), oscillations(20).train, max_steps=2, monitor="accuracy")


def test_without_validation_the_training_loss_is_monitored() -> None:
    result = run(Line(), line_data(), epochs=3)
    means = [sum(r["loss"] for r in result.history[i : i + 2]) / 2 for i in (0, 2, 4)]
    assert [r["train_loss"] for r in result.evaluations] == pytest.approx(means, rel=1e-14)
    assert result.best["value"] == min(r["train_loss"] for r in result.evaluations)


def test_epoch_means_are_over_samples() -> None:
    result = run(Line(), line_data(5), epochs=1, lr=1e-12)
    x, y = line_data(5).tensors
    assert result.metrics["train_loss"] == pytest.approx((2 * x - y).square().mean().item())
