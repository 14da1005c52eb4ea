"""The training loop compared with a hand-written one."""

import math
from collections.abc import Iterator
from typing import ClassVar

import pytest
import torch
from short_runs import run, settings
from torch import Tensor
from torch.utils.data import TensorDataset
from training_cases import Line, RandomSamples, encoder, line_data, small_data

from smnn.training import Damping, TrainConfig, evaluate, fit, oscillations
from smnn.training._data import Sampler


def batches(dataset: TensorDataset, config: TrainConfig) -> Iterator[list[Tensor]]:
    plan = Sampler(len(dataset), config.batch_size, config.seed)
    step = 0
    while True:
        yield [x[plan.batch(step)] for x in dataset.tensors]
        step += 1


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_fit_equals_a_plain_loop(name: str) -> None:
    """Losses, gradients, clipping, update and average, bit for bit."""
    data = oscillations(40, times=20).train
    config = settings(
        max_steps=15, optimizer=name, lr=0.03, weight_decay=0.1, clip=0.05, ema=0.8,
        schedule="cosine", warmup_steps=4,
    )  # fmt: skip
    task = Damping()
    result = fit(task, data, config, progress=False)

    other = Damping()
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    optimizer = kind(other.parameters(), lr=0.03, weight_decay=0.1)
    average = [p.detach().clone() for p in other.parameters()]
    for step, batch in zip(range(15), batches(data, config)):
        warm = (step + 1) / 4 if step < 4 else (1 + math.cos(math.pi * (step - 4) / 11)) / 2
        row = result.history[step]
        assert row["lr"] == pytest.approx(0.03 * warm, rel=1e-14)
        optimizer.param_groups[0]["lr"] = row["lr"]
        optimizer.zero_grad()
        loss = other.losses(batch)["loss"]
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(other.parameters(), 0.05)
        optimizer.step()
        average = [0.8 * a + 0.2 * p.detach() for a, p in zip(average, other.parameters())]
        assert row["loss"] == loss.item()
        assert row["grad_norm"] == norm.item()
        assert (row["step"], row["epoch"]) == (step + 1, step // 8 + 1)
    for p, a in zip(task.parameters(), average):
        torch.testing.assert_close(p.detach(), a, rtol=1e-14, atol=0)


class Average(Line):
    """Its loss is the mean of a batch, whatever the weights."""

    def losses(self, batch: list[Tensor]) -> dict[str, Tensor]:
        return {"loss": batch[0].mean() + 0 * sum(p.sum() for p in self.parameters())}


def test_every_sample_counts_once_in_the_mean_of_an_epoch() -> None:
    """Also those of the last batch, which is smaller: the mean of 0 to 6 is 3."""
    result = run(Average(), TensorDataset(torch.arange(7.0)), epochs=1, batch_size=3)
    assert result.metrics["train_loss"] == pytest.approx(3.0)


def test_coefficients_are_recovered() -> None:
    task = Damping()
    run(task, oscillations(64), max_steps=300, batch_size=32, lr=0.05, schedule="one-cycle")
    # The solver's own error at R = 4 and s = 0.1 is what remains.
    assert task.damping.item() == pytest.approx(0.43, abs=3e-3)
    assert task.stiffness.item() == pytest.approx(4.5, abs=3e-3)


def test_evaluate_averages_metrics_and_collects_outputs() -> None:
    task, data = Damping(0.43, 4.5), oscillations(30, times=9).train
    found = evaluate(task, data, batch_size=7)
    u, y = data.tensors
    z = task(u, 9).detach()
    torch.testing.assert_close(found.outputs["z"], z, rtol=1e-13, atol=1e-13)
    assert found.metrics["loss"] == pytest.approx((z - y).square().mean().item(), rel=1e-12)
    assert task.training
    assert found.outputs["z"].requires_grad is False


def test_evaluation_preserves_random_state() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    evaluate(Line(), RandomSamples(), batch_size=4)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("parts", [2, 3, 5, 16])
def test_accumulation_equals_one_batch(parts: int) -> None:
    """75 samples in batches of 16: the last batch has 11, fewer than 16 parts."""
    one, several = encoder(dropout=0.0), encoder(dropout=0.0)
    fixed = {"max_steps": 12, "batch_size": 16, "lr": 0.01}
    for task in (one, several):
        task.jitter = False
    first = run(one, small_data(), **fixed)
    second = run(several, small_data(), **fixed, accumulate=parts)
    for a, b in zip(first.history, second.history):
        assert a == pytest.approx(b, rel=1e-9)
    for p, q in zip(one.parameters(), several.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)


def test_clipping_limits_the_gradient_and_logs_its_norm_before() -> None:
    task = encoder()
    result = run(task, small_data(), max_steps=1, clip=1e-3)
    norm = torch.stack([p.grad.norm() for p in task.parameters()]).norm()
    assert norm.item() == pytest.approx(1e-3, rel=1e-3)  # torch adds 1e-6 to the norm
    assert result.history[0]["grad_norm"] > 0.05
    assert list(result.history[0])[3:] == ["loss", "damping", "grad_norm"]


class Hooked(Line):
    """Records whether its backward pass may use another thread."""

    found: ClassVar[list[bool]] = []

    def losses(self, batch: list[Tensor]) -> dict[str, Tensor]:
        loss = super().losses(batch)["loss"]
        loss.register_hook(lambda _: self.found.append(torch._C._is_multithreading_enabled()))
        return {"loss": loss}


def test_gradients_are_computed_in_the_calling_thread() -> None:
    fit(Hooked(), line_data(), settings(max_steps=2), progress=False)
    assert Hooked.found == [False, False]
    assert torch._C._is_multithreading_enabled()
