"""Steps recorded as CUDA graphs equal eager steps, or there is a stated reason."""

from typing import Any

import pytest
import torch
from torch import Tensor
from training_cases import Line, line_data

import smnn
from smnn.training import Damping, GraphedStep, Task, TrainConfig, fit, oscillations
from smnn.training import _graphed as graphed

CUDA = torch.cuda.is_available()
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not CUDA, reason="no CUDA device")]


def gpu(test: Any) -> Any:
    for mark in on_gpu:
        test = mark(test)
    return test


@pytest.mark.parametrize("wanted", [True, "auto"])
def test_steps_on_a_cpu_are_eager(wanted: Any) -> None:
    config = TrainConfig(max_steps=6, batch_size=8, graphed=wanted)
    result = fit(Damping(), oscillations(20), config, progress=False)
    assert result.graphed == "no: there is no CUDA device"


@pytest.mark.skipif(CUDA, reason="there is a CUDA device")
def test_a_step_without_a_device_states_the_reason() -> None:
    seen: list[Any] = []
    step = GraphedStep(seen.append, lambda: None)
    for i in range(6):
        step(torch.full((2,), float(i)))
    assert [int(x[0]) for x in seen] == [0, 1, 2, 3, 4, 5]
    assert step.reason == "there is no CUDA device"
    assert step.replayed == 0


class Emulated(GraphedStep):
    """Replays by calling the step on the recorded inputs, to test the logic on a CPU."""

    def _on_side_stream(self, batch: Any) -> Any:
        return self._step(batch)

    _warm_up = _on_side_stream

    def _record(self, batch: Any) -> bool:
        self._inputs = graphed.map_tensors(torch.Tensor.clone, batch)
        self._output = torch.zeros(())

        class Graph:
            def replay(_) -> None:
                self._output.copy_(self._step(self._inputs))

        self._graph = Graph()  # type: ignore[assignment]
        return True


def test_recording_replaying_and_forgetting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphed, "_why_not", lambda batch: None)
    scale = 1.0
    run = Emulated(lambda batch: batch["x"].sum() * scale * batch["n"], lambda: None, warmup=2)

    def call(value: float, size: int = 3, n: int = 1) -> float:
        return float(run({"x": torch.full((size,), value), "n": n}))

    assert [call(v) for v in (1, 2)] == [3, 6]
    assert run.replayed == 0
    assert [call(v) for v in (4, 5)] == [12, 15]
    assert run.replayed == 2
    assert call(1, size=2) == 2  # another shape
    assert call(1, n=7) == 21  # another number that is not a tensor
    assert run.other_shapes == 2
    assert call(6) == 18
    first = run._graph
    run.forget()
    scale = 10.0
    assert call(1) == 30
    assert run._graph is not first
    assert run.replayed == 4
    assert run.reason is None


def test_graphs_can_be_disabled() -> None:
    config = TrainConfig(max_steps=2, batch_size=8, graphed=False)
    assert fit(Line(), line_data(), config, progress=False).graphed == "no: graphed is off"


# ---------------------------------------------------------------- on a GPU


def gpu_config(**options: Any) -> TrainConfig:
    return TrainConfig(**{"accelerator": "cuda", **options})


class Net(Task):
    """A network with dropout in front of the solver."""

    capturable = True

    def __init__(self, wait: bool = False) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(20, 32), torch.nn.Tanh(), torch.nn.Dropout(0.1),
            torch.nn.Linear(32, 2),
        )  # fmt: skip
        self.wait = wait

    def losses(self, batch: Any) -> dict[str, Tensor]:
        u, y = batch
        stiffness, damping = self.net(y[:, :20]).T
        c = torch.stack([4 + stiffness, damping, torch.ones_like(damping)], -1)
        d, s = u.new_zeros(1, 1, 1), u.new_full((1, 1), 0.1)
        z = smnn.solve(
            c[:, None, None, None], d, u[:, None, None], s, n_steps=y.shape[1], check=self.wait
        )
        return {"loss": (z[..., 0, 0] - y).square().mean(), "damping": damping.mean()}

    def config(self) -> dict[str, Any]:
        return {"wait": self.wait}


def net(**options: Any) -> Net:
    torch.manual_seed(0)
    return Net(**options)


@gpu
@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("drop_last", [True, False])
def test_a_recorded_run_equals_an_eager_run(precision: str, drop_last: bool) -> None:
    """All of `fit`: rates, average, clipping, a smaller last batch, evaluation between epochs."""
    found = {}
    for wanted in (True, False):
        task = net()
        config = gpu_config(
            epochs=5, batch_size=32, lr=0.01, schedule="cosine", ema=0.9, clip=0.5, log_every=1,
            weight_decay=0.01, precision=precision, drop_last=drop_last, graphed=wanted,
        )  # fmt: skip
        result = fit(task, oscillations(100, times=30), config, progress=False)
        found[wanted] = result, [p.detach().cpu() for p in task.parameters()]
    assert found[True][0].graphed == "7 steps"  # 5 epochs of 2 full batches, less 3 of warm-up
    assert found[False][0].graphed == "no: graphed is off"
    for a, b in zip(found[True][0].history, found[False][0].history):
        assert a == pytest.approx(b, rel=1e-12)
    for p, q in zip(found[True][1], found[False][1]):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)


class Cycled(Net):
    """Replaces a tensor after each epoch, which a graph would not notice."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(()))

    def losses(self, batch: Any) -> dict[str, Tensor]:
        found = super().losses(batch)
        return {**found, "loss": found["loss"] * self.mask}

    def after_epoch(self, epoch: int) -> None:
        self.mask = self.mask * 0.5


@gpu
def test_steps_are_recorded_again_after_a_change() -> None:
    losses = {}
    for wanted in (True, False):
        torch.manual_seed(0)
        config = gpu_config(epochs=4, batch_size=25, log_every=1, graphed=wanted)
        result = fit(Cycled(), oscillations(100, times=30), config, progress=False)
        losses[wanted] = [row["loss"] for row in result.history]
    assert losses[True] == pytest.approx(losses[False], rel=1e-12)


@gpu
def test_a_task_that_synchronizes_runs_eagerly() -> None:
    config = gpu_config(max_steps=8, batch_size=25, log_every=1, graphed=True)
    result = fit(net(wait=True), oscillations(100, times=30), config, progress=False)
    assert result.graphed.startswith("no: the step waits for the device")
    assert result.steps == 8
    assert all(torch.isfinite(torch.tensor(row["loss"])) for row in result.history)


@gpu
def test_only_capturable_tasks_are_recorded() -> None:
    config = gpu_config(max_steps=5, batch_size=4)
    result = fit(Line(), line_data(), config, progress=False)
    assert result.graphed == "no: Line is not declared capturable"
    data = oscillations(40)
    config = gpu_config(max_steps=8, batch_size=10, accumulate=2)
    assert fit(Damping(), data, config, progress=False).graphed == "no: accumulate is 2"
    config = gpu_config(max_steps=8, batch_size=10)
    assert fit(Damping(), data, config, progress=False).graphed == "5 steps"


@gpu
def test_resuming_on_a_gpu(tmp_path: Any) -> None:
    """The optimizer state is restored on the device, and steps are recorded again."""
    data = oscillations(100, times=30)
    config = gpu_config(max_steps=24, batch_size=25, log_every=1, tensorboard=False)
    whole = fit(net(), data, config, tmp_path / "a", progress=False)
    fit(net(), data, config.replace(max_steps=12), tmp_path / "b", progress=False)
    again = fit(net(), data, config, tmp_path / "b", resume=True, progress=False)
    assert again.graphed == "9 steps"
    for a, b in zip(whole.history, again.history):
        assert a == pytest.approx(b, rel=1e-12)
