"""`fit`: a training loop that can be stopped after any step and resumed."""

from __future__ import annotations

import contextlib
import functools
import math
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

from torch import Tensor
from torch.utils.data import Dataset

from smnn._util.files import OutputError
from smnn.training._checkpoint import (
    Checkpoint,
    RunFolder,
    check_identity,
    load_state,
    name_of_step,
    read_checkpoint,
    weights_of,
)
from smnn.training._config import TrainConfig, convert, digest_of, dtype_of, matmul_precision
from smnn.training._data import (
    Data,
    Fetcher,
    Sampler,
    derived_seed,
    find_non_finite,
    load,
    moved,
    seed_all,
)
from smnn.training._errors import (
    CheckpointError,
    ConfigError,
    Interrupted,
    NonFiniteError,
    TrainingError,
)
from smnn.training._evaluate import evaluate_all
from smnn.training._logs import Display, Log, Row, Throughput
from smnn.training._processes import Processes, StopRequest, explained_failures, join, stop_signals
from smnn.training._step import Minimum, Plateau, Step, rate_factor
from smnn.training._task import Task, describe_task


@dataclass(frozen=True)
class FitResult:
    """Result of a training run. The task itself has the weights that were evaluated last."""

    steps: int
    """Number of optimizer steps, including those before resuming."""
    metrics: dict[str, float | int]
    """Last evaluation: `train_*` are means over the epoch, `val_*` are of the validation data."""
    best: dict[str, float | int]
    """`step` and `value` of the lowest monitored scalar."""
    stopped_early: bool
    """Whether `patience` ended the run."""
    history: list[Row]
    """The logged steps, as in steps.csv."""
    evaluations: list[Row]
    """The evaluations, as in epochs.csv."""
    samples_per_second: float | None
    """Throughput of this call over all processes; `None` if no steps were left."""
    graphed: str
    """How many steps of this call were replayed from a CUDA graph, or why there were none."""
    checkpoint: Path | None
    """The latest checkpoint."""
    is_main: bool
    """Whether this is the main process, which should print."""


def fit(
    task: Task, data: Data | Dataset[Any], config: TrainConfig,
    out: str | PathLike[str] | None = None, *, resume: bool = False, progress: bool = True,
    record: Mapping[str, Any] | None = None,
) -> FitResult:  # fmt: skip
    """Train a task.

    Args:
        task: The task; it is changed in place and moved to its device.
        data: Training data, optionally with validation data.
        config: Settings.
        out: Folder for logs and checkpoints; by default nothing is written.
        resume: Continue from the latest checkpoint in `out`, bit for bit on a CPU. Starts from the
            beginning if there is none.
        progress: Show progress on standard error.
        record: JSON-compatible values to be added to config.json.

    Raises:
        ConfigError: The settings do not fit the data or the task.
        NonFiniteError: A loss or gradient is not finite; the message names the step and, if the
            data are the reason, the samples.
        CheckpointError: The checkpoint is damaged or belongs to another run.
        OutputError: `out` is not writable, or contains a run and `resume` is false.
        Interrupted: SIGINT or SIGTERM was received; `out` contains a checkpoint of the last step.
    """
    if isinstance(data, Dataset):
        data = Data(data)
    if not isinstance(data, Data):
        raise ConfigError(f"data: got {type(data).__name__}; expected a data set or Data.")
    if resume and out is None:
        raise ConfigError("resume=True needs the folder of the run; set out.")
    processes = join(config)
    folder = RunFolder(Path(out)) if out is not None else None
    with contextlib.ExitStack() as stack:
        if folder is not None:
            stack.callback(folder.close)
            processes.on_main(lambda: folder.open(resume))
        run = _Run(task, data, config, processes, folder, dict(record or {}))
        stack.callback(run.log.close)
        run.start(resume)
        stack.enter_context(matmul_precision(config.precision))
        stop = stack.enter_context(stop_signals(folder is not None))
        screen = stack.enter_context(Display(progress, processes.is_main, run.total, run.steps))
        run.train(stop, screen)
    return run.result()


class _Run:
    """State of a run, and the training loop."""

    def __init__(
        self, task: Task, data: Data, config: TrainConfig, processes: Processes,
        folder: RunFolder | None, facts: dict[str, Any],
    ) -> None:  # fmt: skip
        task.to(processes.device).train()
        convert(task, config.precision)
        self.task, self.config, self.processes = task, config, processes
        self.folder, self.facts = folder, facts
        self.training = Fetcher(data.train, config.seed, "training")
        self.validation = (
            None if data.validation is None else Fetcher(data.validation, config.seed, "validation")
        )
        self.sampler = Sampler(
            self.training.size, config.batch_size, config.seed, config.drop_last,
            processes.world, processes.rank, config.accumulate,
        )  # fmt: skip
        self.total = self._total_steps()
        self.step = Step(task, config, processes)
        self.minimum, self.plateau = Minimum(config.min_delta), Plateau(config)
        writes = folder is not None and processes.is_main
        self.log = Log(folder.path if folder is not None and writes else None, config.tensorboard)
        self.throughput = Throughput()
        self.steps = 0
        self.stopped = False
        self.last: Row = {}
        self.checkpoint: Path | None = None
        self._new_best: tuple[int, Checkpoint] | None = None

    def _total_steps(self) -> int:
        per_epoch, config = self.sampler.steps_per_epoch, self.config
        if per_epoch == 0:
            raise ConfigError(
                f"batch_size: got {config.batch_size}; there are {self.sampler.samples} training "
                "samples, and drop_last leaves no batch. Use smaller batches."
            )
        epochs = None if config.epochs is None else config.epochs * per_epoch
        return min(limit for limit in (config.max_steps, epochs) if limit is not None)

    @property
    def epoch(self) -> int:
        """The epoch of the last step, counted from 1."""
        return -(-self.steps // self.sampler.steps_per_epoch)

    def result(self) -> FitResult:
        best = self.minimum.best
        return FitResult(
            steps=self.steps,
            metrics={k: v for k, v in self.last.items() if k not in ("step", "epoch")},
            best={} if best is None else {"step": self.minimum.best_step, "value": best},
            stopped_early=self.stopped, history=self.log.steps.rows,
            evaluations=self.log.epochs.rows, samples_per_second=self.throughput.overall,
            graphed=self.step.graph_report(), checkpoint=self.checkpoint,
            is_main=self.processes.is_main,
        )  # fmt: skip

    # ------------------------------------------------------------ start

    def start(self, resume: bool) -> None:
        """Restore the latest checkpoint, if any, and write config.json."""
        positions = self._restore() if resume else None
        self._check_agreement()
        if self.folder is not None:
            self.processes.on_main(lambda: self._describe(positions))

    def _restore(self) -> Mapping[str, int] | None:
        """Restore the latest checkpoint; return the positions of the logs at that time."""
        assert self.folder is not None
        folder = self.folder
        found = folder.find("step")
        if found is None:
            return None
        record, tensors = read_checkpoint(found)
        try:
            positions = self._load(record, tensors, str(found))
            self.processes.on_main(lambda: folder.clean(record, self.config.keep_last))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            if isinstance(error, TrainingError | ConfigError | OutputError):
                raise
            what = f"{type(error).__name__}: {error}"
            raise CheckpointError(
                f"{found} does not hold a run ({what}). Use another checkpoint."
            ) from error
        self.checkpoint = found
        return positions

    def _load(
        self, record: dict[str, Any], tensors: dict[str, dict[str, Tensor]], origin: str
    ) -> Mapping[str, int]:
        check_identity(record["identity"], self._identity, origin)
        load_state(self.task, tensors["weights"], record, origin)
        self.steps, self.stopped = int(record["step"]), bool(record["stopped"])
        self.step.restore(self.steps, [str(name) for name in record["names"]], tensors)
        self.last = {
            name: float(x) if isinstance(x, str) else x for name, x in record["last"].items()
        }
        self.minimum.restore(record["watch"])
        self.plateau.restore(record["plateau"])
        return {name: int(record["logs"][name]) for name in ("steps", "epochs")}

    @functools.cached_property
    def _identity(self) -> dict[str, Any]:
        """What a resumed run must have in common with the original run."""
        named = describe_task(self.task)
        return {**self.config.identity(), **named, "training data": self.training.digest()}

    def _check_agreement(self) -> None:
        """Check that all processes start with the same settings, task, data and checkpoint."""
        if self.processes.world == 1:
            return
        own = int(digest_of({**self._identity, "step": self.steps})[:15], 16)
        if self.processes.max(int(self.processes.max(own) != own)):
            raise ConfigError(
                "the processes do not have the same settings, task and data, or do not see the "
                f"same folder; process {self.processes.rank} is at step {self.steps}."
            )

    def _describe(self, positions: Mapping[str, int] | None) -> None:
        assert self.folder is not None
        self.log.start(self.steps, positions)
        settings = {**describe_task(self.task), "train": self.config.to_dict()}
        start = {"step": self.steps, "processes": self.processes.world}
        self.folder.describe({"format": "smnn run", **settings, **self.facts}, start)

    # ------------------------------------------------------------ training

    def train(self, stop: StopRequest, screen: Display) -> None:
        """Make all remaining steps."""
        if self.log.notice:
            screen.message(self.log.notice)
        if self.step.graph_wanted() and self.step.why_eager is not None:
            screen.message(f"Steps are not recorded as a CUDA graph: {self.step.why_eager}.")
        shares = (s for step in range(self.steps, self.total) for s in self.sampler.shares(step))
        batches = load(self.training, shares, self.config.workers)
        self.throughput = Throughput()
        while self.steps < self.total and not self.stopped:
            step = self.steps + 1
            with explained_failures(self.config, self.processes, step, self._resume_hint):
                self._iterate(batches, stop, screen)
        if self.step.average is not None:
            self.step.average.apply()

    def _iterate(self, batches: Iterator[Any], stop: StopRequest, screen: Display) -> None:
        """Make a step, then log, evaluate and save if they are due."""
        values, flags, rate = self._make_step(batches, stop)
        due = self.steps == 1 or self.steps % self.config.log_every == 0
        last, ended = self.steps == self.total, self.steps % self.sampler.steps_per_epoch == 0
        evaluates = last or (ended and self.epoch % self.config.evaluate_every == 0)
        if due or evaluates or values.is_cpu:
            self._check_finite()
        if due:
            self._log(values, rate)
        if due or last:
            screen.update(self.steps, self.epoch, values[0].item(), self.throughput.recent)
        if ended:
            self._after_epoch()
        if evaluates:
            self._evaluate()
        if ended:
            self.step.totals.reset()
        number, last = self._stop_signal(stop, flags, due or values.is_cpu), last or self.stopped
        if number or last or self.steps % self.config.checkpoint_every == 0:
            self._check_finite()
            self._save()
        if number and not last:
            self._interrupt(number, screen)

    def _make_step(self, batches: Iterator[Any], stop: StopRequest) -> tuple[Tensor, Tensor, float]:
        count, dtype = self.sampler.count(self.steps), dtype_of(self.config.precision)
        parts = []
        for batch, share in batches:
            parts.append((moved(batch, self.processes.device, dtype), share.counted / count))
            if share.last:
                break
        factor = rate_factor(self.config, self.steps, self.total)
        rate = self.config.lr * factor * self.plateau.scale
        self._seed("step")
        values, flags = self.step(parts, count, rate, float(stop.signal > 0))
        self.steps += 1
        self.throughput.add(count)
        return values, flags, rate

    def _seed(self, purpose: str, *, same: bool = False) -> None:
        """Seed all generators, differently in each process unless `same`."""
        rank = 0 if same else self.processes.rank
        seed = derived_seed(self.config.seed, purpose, self.steps, rank)
        seed_all(seed, self.processes.device)

    def _check_finite(self) -> None:
        step = self.step.totals.bad_step()
        if step is None:
            return
        epoch = (step - 1) // self.sampler.steps_per_epoch
        found = find_non_finite(self.training, self.sampler.batch(step - 1), epoch)
        cause = (
            "The data of that step are finite: lower lr, or set clip."
            if found is None
            else f"The training data of that step are not finite: {found}."
        )
        raise NonFiniteError(
            f"the loss or its gradient is not finite at step {step} (epoch {epoch + 1}). {cause}"
            + self._last_checkpoint()
        )

    def _last_checkpoint(self) -> str:
        return "" if self.checkpoint is None else f" The last checkpoint is {self.checkpoint}."

    def _log(self, values: Tensor, rate: float) -> None:
        numbers = dict(zip(self.step.names, values.tolist()))
        row = {"step": self.steps, "epoch": self.epoch, "lr": rate, **numbers}
        self.throughput.read()
        self.log.step(row, self.throughput.recent)

    # ------------------------------------------------------------ end of an epoch

    def _after_epoch(self) -> None:
        if type(self.task).after_epoch is not Task.after_epoch:
            self._seed("after epoch", same=True)
            self.task.after_epoch(self.epoch)
            if self.step.graphed is not None:
                self.step.graphed.forget()

    def _evaluate(self) -> None:
        row: Row = {"step": self.steps, "epoch": self.epoch}
        names = self.step.names[:-1]
        row |= {f"train_{name}": x for name, x in zip(names, self.step.totals.means())}
        self._seed("evaluation")
        average = self.step.average
        with contextlib.nullcontext() if average is None else average.applied():
            kind = "train"
            if self.validation is not None:
                kind = "val"
                found = evaluate_all(
                    self.task, self.validation, self.config.batch_size, self.config.precision,
                    self.processes, self.config.workers, collect=False,
                )  # fmt: skip
                row |= {f"val_{name}": x for name, x in found.metrics.items()}
            value = self._monitored(row, f"{kind}_{self.config.monitor}")
            self.log.epoch(row)
            if self.config.schedule == "plateau":
                self.plateau.add(value, self.steps)
            improved = self.minimum.improved(value, self.steps)
            if improved and self.folder is not None and self.processes.is_main:
                # Kept in memory and written with the next checkpoint: otherwise short epochs that
                # all improve would be limited by the disk.
                self._new_best = self.steps, weights_of(self.task, self.config, copy=True)
        self.last = row
        patience = self.config.patience
        self.stopped = patience is not None and self.minimum.stale >= patience

    def _monitored(self, row: Row, name: str) -> float:
        if name not in row:
            prefix = name.split("_")[0] + "_"
            names = [n.removeprefix(prefix) for n in row if n.startswith(prefix)]
            raise ConfigError(
                f"monitor: got {self.config.monitor!r}; the task returns {', '.join(names)}."
            )
        if not math.isfinite(row[name]):
            raise NonFiniteError(
                f"{name} is {row[name]} at step {self.steps} (epoch {self.epoch})."
                + self._last_checkpoint()
            )
        return row[name]

    # ------------------------------------------------------------ stopping

    def _stop_signal(self, stop: StopRequest, flags: Tensor, check: bool) -> int:
        """Return the signal for which all processes stop after this step, or 0."""
        if self.processes.world == 1:
            return stop.signal
        # Reading a value from a GPU synchronizes, so it is not done in every step.
        return self.processes.max(stop.signal) if check and float(flags) > 0 else 0

    def _interrupt(self, number: int, screen: Display) -> NoReturn:
        name = signal.Signals(number).name
        screen.message(f"Stopped by {name} after step {self.steps}; {self.checkpoint} is complete.")
        screen.message(f"To continue: {self._resume_command()}")
        # If a process that Lightning started ended with an error, it would kill the main process.
        code = 128 + number if self.processes.is_main else 0
        raise Interrupted(number, str(self.checkpoint), code)

    def _resume_command(self) -> str:
        command = self.facts.get("command")
        return "run the same again with resume=True" if command is None else f"{command} --resume"

    def _resume_hint(self) -> str:
        if self.checkpoint is None:
            return "There is no checkpoint yet."
        return f"To continue from {self.checkpoint}: {self._resume_command()}"

    def _save(self) -> None:
        if self.folder is None:
            return
        folder = self.folder

        def write() -> None:
            content = weights_of(self.task, self.config)
            content.tensors.update(self.step.state())
            step = None if self.minimum.best is None else self.minimum.best_step
            content.record.update(
                identity=self._identity, train=self.config.to_dict(), names=self.step.names,
                step=self.steps, stopped=self.stopped,
                last={n: x if math.isfinite(x) else str(x) for n, x in self.last.items()},
                best=None if step is None else name_of_step("best", step),
                watch=self.minimum.state(), plateau=self.plateau.state(), logs=self.log.positions(),
            )  # fmt: skip
            self.checkpoint = folder.save(self.steps, content, self._new_best)
            self._new_best = None
            folder.clean(content.record, self.config.keep_last)

        self.processes.on_main(write)
