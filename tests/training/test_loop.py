"""The loop against one written by hand, and each setting against its definition."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset
from training_cases import Encoder, Line, RandomSamples, encoder, line_data, small_data

from smnn._solve import solve
from smnn.training import (
    ConfigError,
    Damping,
    Data,
    NonFiniteError,
    Task,
    TrainConfig,
    TrainingError,
    evaluate,
    fit,
    oscillations,
)
from smnn.training._processes import Processes
from smnn.training._sampling import Plan
from smnn.training._schedule import Plateau, Watch, rate_factor
from smnn.training._step import Step, make_optimizer

ALONE = Processes(0, 1, torch.device("cpu"))


def settings(**options: Any) -> TrainConfig:
    return TrainConfig(**{"batch_size": 4, "tensorboard": False, "log_every": 1, **options})


def run(task: Task, data: Any, out: Path | None = None, **options: Any) -> Any:
    return fit(task, data, settings(**options), out, progress=False)


def batches(dataset: TensorDataset, config: TrainConfig) -> Iterator[list[Tensor]]:
    plan = Plan(len(dataset), config.batch_size, config.seed)
    step = 0
    while True:
        yield [x[plan.batch(step)] for x in dataset.tensors]
        step += 1


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_training_is_the_plain_loop(name: str) -> None:
    """Train procedure: losses, gradients, clipping, update, average; bit for bit."""
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


def test_the_coefficients_are_found() -> None:
    task = Damping()
    run(task, oscillations(64), max_steps=300, batch_size=32, lr=0.05, schedule="one-cycle")
    # The solver's own error at R = 4 and s = 0.1 is what remains.
    assert task.damping.item() == pytest.approx(0.43, abs=3e-3)
    assert task.stiffness.item() == pytest.approx(4.5, abs=3e-3)


def test_test_procedure_collects_losses_and_outputs() -> None:
    task, data = Damping(0.43, 4.5), oscillations(30, times=9).train
    found = evaluate(task, data, batch_size=7)
    u, y = data.tensors
    z = task(u, 9).detach()
    torch.testing.assert_close(found.outputs["z"], z, rtol=1e-13, atol=1e-13)
    assert found.metrics["loss"] == pytest.approx((z - y).square().mean().item(), rel=1e-12)
    assert task.training
    assert found.outputs["z"].requires_grad is False


def test_evaluation_disturbs_nothing() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    evaluate(Line(), RandomSamples(), batch_size=4)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("parts", [2, 3, 5, 16])
def test_accumulating_is_one_larger_batch(parts: int) -> None:
    """75 samples in batches of 16: the last has 11, and 16 parts of that are not all there."""
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


def test_clipping_bounds_the_gradient_and_reports_what_it_was() -> None:
    task, config = encoder(), settings(max_steps=1, clip=1e-3)
    step = Step(
        task.double(), make_optimizer(config, task.parameters(), ALONE.device), config, ALONE
    )
    values, _ = step([(small_data().train[:8], 1.0)])
    norm = torch.stack([p.grad.norm() for p in task.parameters()]).norm()
    assert norm.item() == pytest.approx(1e-3, rel=1e-3)  # torch adds 1e-6 to the norm
    assert values[-1] > 0.1
    assert step.names == ["loss", "damping", "grad_norm"]


# ---------------------------------------------------------------- schedules


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
def test_one_cycle_is_that_of_torch(total: int) -> None:
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


def test_plateau_is_that_of_torch() -> None:
    values = [5.0, 4, 4, 4, 4, 3.95, 3.94, 3.9, 3.9, 3.9, 3.9, 1, 1, 1, 1, 1, 1]
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    other = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=2, threshold=0.05, threshold_mode="abs"
    )
    plateau = Plateau(patience=2, factor=0.5, watch=Watch(0.05))
    for step, value in enumerate(values):
        plateau.take(value, step)
        other.step(value)
        assert plateau.scale == optimizer.param_groups[0]["lr"]
    assert plateau.scale < 0.5


class Scripted(Line):
    """Its validation loss is what the script says for each epoch."""

    script: tuple[float, ...] = ()

    def after_epoch(self, epoch: int) -> None:
        self.now = self.script[epoch - 1]

    def evaluate(self, batch: Any) -> dict[str, Tensor]:
        return {"loss": torch.tensor(0.0), "score": torch.tensor(self.now, dtype=torch.float64)}


def scripted(*script: float) -> Scripted:
    task = Scripted()
    task.script = script
    return task


def test_early_stopping_and_the_best() -> None:
    task = scripted(5, 4, 4.5, 3.9, 3.95, 3.9, 3.85, 1, 1, 1)
    data = Data(line_data(), line_data(seed=1))
    result = run(task, data, epochs=10, monitor="score", patience=3, min_delta=0.06)
    # 8 samples in batches of 4: two steps an epoch. 3.9 is the best, three are not better by 0.06.
    assert result.stopped_early
    assert result.steps == 14
    assert result.best == {"step": 8, "value": 3.9}
    assert [row["val_score"] for row in result.evaluations] == [5, 4, 4.5, 3.9, 3.95, 3.9, 3.85]


def test_plateau_lowers_the_rate_that_is_used() -> None:
    task = scripted(5, 5, 5, 5)
    result = run(
        task, Data(line_data(), line_data()), epochs=4, monitor="score", lr=0.1,
        schedule="plateau", plateau_patience=1, plateau_factor=0.1,
    )  # fmt: skip
    assert [r["lr"] for r in result.history] == pytest.approx([0.1] * 6 + [0.01] * 2)


def test_evaluating_less_often() -> None:
    task = scripted(5, 4, 3, 2, 1)
    data = Data(line_data(), line_data())
    result = run(task, data, epochs=5, evaluate_every=2, monitor="score")
    assert [r["epoch"] for r in result.evaluations] == [2, 4, 5]


def test_monitor_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"monitor: got 'accuracy'; the task returns loss\."):
        run(Damping(), oscillations(20), max_steps=2, monitor="accuracy")
    with pytest.raises(ConfigError, match=r"monitor: got 'accuracy'; the task returns loss\."):
        run(Damping(), oscillations(20).train, max_steps=2, monitor="accuracy")


def test_without_validation_the_training_loss_decides() -> None:
    result = run(Line(), line_data(), epochs=3)
    means = [sum(r["loss"] for r in result.history[i : i + 2]) / 2 for i in (0, 2, 4)]
    assert [r["train_loss"] for r in result.evaluations] == pytest.approx(means, rel=1e-14)
    assert result.best["value"] == min(r["train_loss"] for r in result.evaluations)


def test_epoch_means_count_samples_not_batches() -> None:
    result = run(Line(), line_data(5), epochs=1, lr=1e-12)
    x, y = line_data(5).tensors
    assert result.metrics["train_loss"] == pytest.approx((2 * x - y).square().mean().item())


# ---------------------------------------------------------------- precision


class Seen(Encoder):
    """Notes the number formats it meets."""

    def losses(self, batch: Any) -> dict[str, Tensor]:
        u, y = batch
        inner = self.net[0](y[:, :12])
        c = self.net[3](torch.tanh(inner)).double()
        c = torch.cat([4 + c, torch.ones_like(c[:, :1])], 1)[:, None, None, None]
        s = u.new_full((1, 1), 0.1, dtype=torch.float64)
        z = solve(c, s.new_zeros(1, 1, 1), u.double()[:, None, None], s, n_steps=y.shape[1])
        mode = torch.get_float32_matmul_precision()
        self.formats = self.net[0].weight.dtype, y.dtype, inner.dtype, z.dtype, mode
        return {"loss": (z[..., 0, 0] - y).square().mean()}


@pytest.mark.parametrize(
    ("precision", "weights", "network", "mode", "tolerance"),
    [
        ("float64", torch.float64, torch.float64, "highest", 1e-12),
        ("float32", torch.float32, torch.float32, "highest", 1e-5),
        ("tf32", torch.float32, torch.float32, "high", 1e-2),
        ("bf16", torch.float32, torch.bfloat16, "highest", 5e-2),
    ],
)
def test_precision(
    precision: str, weights: torch.dtype, network: torch.dtype, mode: str, tolerance: float
) -> None:
    before = torch.get_float32_matmul_precision()
    torch.manual_seed(0)
    task = Seen()
    result = run(task, small_data(), max_steps=10, precision=precision, lr=0.01)
    assert task.formats == (weights, weights, network, torch.float64, mode)
    assert torch.get_float32_matmul_precision() == before
    torch.manual_seed(0)
    exact = run(Seen(), small_data(), max_steps=10, lr=0.01)
    losses, others = ([r["loss"] for r in x.history] for x in (result, exact))
    assert losses == pytest.approx(others, rel=tolerance)


def test_numbers_that_are_not_real_keep_their_format() -> None:
    class Complex(Line):
        def __init__(self) -> None:
            super().__init__()
            self.phase = torch.nn.Parameter(torch.tensor([1 + 1j]))
            self.register_buffer("count", torch.tensor(3))

        def losses(self, batch: Any) -> dict[str, Tensor]:
            return {"loss": super().losses(batch)["loss"] + self.phase.abs().square().sum()}

    task = Complex()
    run(task, line_data(), max_steps=5, lr=0.1)
    assert task.phase.dtype == torch.complex64
    assert 0.5 < task.phase.imag.item() < 0.9
    assert task.count.dtype == torch.int64


# ---------------------------------------------------------------- what goes wrong


def test_nan_in_the_data_is_named(tmp_path: Path) -> None:
    data = line_data(12)
    data.tensors[1][7] = math.nan
    plan = Plan(12, 4, 0)
    step = next(s for s in range(3) if 7 in plan.batch(s)) + 1
    task = Line()
    before = task.weight.item()
    with pytest.raises(NonFiniteError, match=rf"at step {step} \(epoch 1\).*sample 7 in \[1\]\."):
        run(task, data, tmp_path, epochs=2, checkpoint_every=1)
    assert math.isfinite(task.weight.item())
    if step > 1:
        assert (tmp_path / "checkpoints" / "latest").read_text() == f"step-{step - 1:010d}\n"
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
    assert (tmp_path / "checkpoints" / "latest").read_text() == "step-0000000002\n"
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


def test_a_scalar_that_is_only_reported_may_be_nan(tmp_path: Path) -> None:
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
        ({"other": torch.ones(())}, "must return a dict that holds 'loss'"),
        (torch.ones(()), "must return a dict that holds 'loss'"),
        ({"loss": torch.ones(3)}, r"'loss' is shape \(3,\); expected a scalar tensor"),
        ({"loss": torch.ones(()), "note": 1.0}, "'note' is float; expected a scalar tensor"),
    ],
)
def test_wrong_losses(returned: Any, message: str) -> None:
    class Wrong(Line):
        def losses(self, batch: Any) -> Any:
            return returned

    with pytest.raises(TrainingError, match=message):
        run(Wrong(), line_data(), max_steps=1)


def test_scalars_that_change() -> None:
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
    with pytest.raises(ConfigError, match="resume needs the folder of the run"):
        fit(Line(), line_data(), settings(max_steps=1), resume=True)


def test_a_task_must_say_what_it_is() -> None:
    class Bare(Task):
        pass

    with pytest.raises(NotImplementedError, match=r"Bare does not define losses\(batch\)"):
        Bare().losses(None)
    with pytest.raises(NotImplementedError, match=r"Bare does not define config\(\)"):
        Bare().config()
