"""A training run: a loop that can be stopped after any step and taken up again."""

from __future__ import annotations

import contextlib
import functools
import math
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from smnn._util.files import OutputError
from smnn.training import _state
from smnn.training._average import Average
from smnn.training._checkpoint import Checkpoint, read_checkpoint
from smnn.training._config import TrainConfig, digest_of
from smnn.training._data import Data
from smnn.training._errors import (
    CheckpointError,
    ConfigError,
    Interrupted,
    NonFiniteError,
    TrainingError,
)
from smnn.training._evaluate import run as run_evaluation
from smnn.training._failures import explained
from smnn.training._folder import RunFolder, best_name
from smnn.training._graphed import GraphedStep, obstacle
from smnn.training._load import fill
from smnn.training._logs import Log, Row
from smnn.training._meter import Meter
from smnn.training._precision import convert, dtype_of, moved
from smnn.training._processes import Processes, on_main
from smnn.training._progress import Display
from smnn.training._rng import derived_seed, seed_all
from smnn.training._sampling import Fetch, Plan, find_non_finite, load, total_steps
from smnn.training._schedule import Plateau, Watch, rate_factor
from smnn.training._signals import Wish
from smnn.training._step import Step, make_optimizer, set_rate
from smnn.training._tally import Tally
from smnn.training._task import Task


class Run:
    """Everything that training carries from step to step."""

    def __init__(
        self,
        task: Task,
        data: Data,
        config: TrainConfig,
        processes: Processes,
        folder: RunFolder | None,
        facts: dict[str, Any],
    ) -> None:
        self.task, self.config, self.processes, self.folder = task, config, processes, folder
        self.facts = facts
        device = processes.device
        task.to(device).train()
        convert(task, config.precision)
        self.fetch = Fetch(data.train, config.seed, "training")
        self.validation = (
            None if data.validation is None else Fetch(data.validation, config.seed, "validation")
        )
        self.plan = Plan(
            self.fetch.size, config.batch_size, config.seed, config.drop_last,
            processes.world, processes.rank, config.accumulate,
        )  # fmt: skip
        self.total = total_steps(config, self.plan)
        self.optimizer = make_optimizer(config, task.parameters(), device)
        self.make_step = Step(task, self.optimizer, config, processes)
        self.average = None if config.ema is None else Average(task, config.ema)
        self.watch = Watch(config.min_delta)
        self.plateau = Plateau(
            config.plateau_patience, config.plateau_factor, Watch(config.min_delta)
        )
        writes = folder is not None and processes.is_main
        self.log = Log(folder.path if folder is not None and writes else None, config.tensorboard)
        self.meter = Meter()
        self.why_eager = obstacle(task, config, processes)
        self.graphed: GraphedStep | None = None
        if self.why_eager is None:
            self.graphed = GraphedStep(
                lambda given: self._advance([(given[0], 1.0)], given[1]),
                self.make_step.forget_gradients,
            )
        self.step = 0
        self.rate = config.lr
        self.stopped = False
        self.last: Row = {}
        self.checkpoint: Path | None = None
        self._tally = Tally(device)
        self._best: str | None = None
        self._new_best: tuple[int, Checkpoint] | None = None

    @property
    def epoch(self) -> int:
        """The epoch that the last step belongs to, counted from 1."""
        return -(-self.step // self.plan.steps_per_epoch)

    # ------------------------------------------------------------ beginning

    def begin(self, resume: bool) -> None:
        """Take up the newest checkpoint if there is one, and write down what is about to happen."""
        positions = self._restore() if resume else None
        self._check_agreement()
        if self.folder is not None:
            on_main(self.processes, lambda: self._describe(positions))

    def _restore(self) -> Mapping[str, int] | None:
        """The state of the newest checkpoint; returns where the logs were then."""
        assert self.folder is not None
        folder = self.folder
        found = folder.latest()
        if found is None:
            return None
        record, tensors = read_checkpoint(found)
        try:
            positions = self._take(record, tensors, str(found))
            on_main(self.processes, lambda: folder.tidy(record, self.config.keep_last))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            if isinstance(error, TrainingError | ConfigError | OutputError):
                raise
            what = f"{type(error).__name__}: {error}"
            raise CheckpointError(f"{found} holds no run ({what}). Use another.") from error
        self.checkpoint = found
        return positions

    def _take(
        self, record: dict[str, Any], tensors: dict[str, dict[str, Tensor]], origin: str
    ) -> Mapping[str, int]:
        """Take over everything that a checkpoint holds."""
        _state.check_identity(record["identity"], self._identity, origin)
        fill(self.task, tensors["weights"], record, origin)
        _state.restore_optimizer(self.optimizer, tensors["optimizer"])
        if self.average is not None:
            self.average.restore(tensors["average"])
        self.step, self.stopped = int(record["step"]), bool(record["stopped"])
        names = self.make_step.names = [str(name) for name in record["names"]]
        if self.step < 1 or [names[0], names[-1]] != ["loss", "grad_norm"]:
            raise ValueError(f"step {self.step} of {', '.join(names)}")
        self._tally.restore(self.step, tensors["progress"]["sums"])
        self.last = {
            name: float(x) if isinstance(x, str) else x for name, x in record["last"].items()
        }
        self._best = record["best"]
        self.watch.restore(record["watch"])
        self.plateau.restore(record["plateau"])
        return {name: int(record["logs"][name]) for name in ("steps", "epochs")}

    @functools.cached_property
    def _identity(self) -> dict[str, Any]:
        """What a run shares with the one that it continues."""
        named = _state.describe_task(self.task)
        return {**self.config.identity(), **named, "training data": self.fetch.digest()}

    def _check_agreement(self) -> None:
        """Processes that began with different things would go on in silence."""
        if self.processes.world == 1:
            return
        own = int(digest_of({**self._identity, "step": self.step})[:15], 16)
        if self.processes.any(int(self.processes.any(own) != own)):
            raise ConfigError(
                "the processes do not have the same settings, task and data, or do not see the "
                f"same folder; process {self.processes.rank} is at step {self.step}."
            )

    def _describe(self, positions: Mapping[str, int] | None) -> None:
        assert self.folder is not None
        self.log.start(self.step, positions)
        settings = {**_state.describe_task(self.task), "train": self.config.to_dict()}
        start = {"step": self.step, "processes": self.processes.world}
        self.folder.describe({"format": "smnn run", **settings, **self.facts}, start)

    # ------------------------------------------------------------ training

    def train(self, wish: Wish, screen: Display) -> None:
        """Make all steps that are left."""
        self._announce(screen)
        wanted = (s for step in range(self.step, self.total) for s in self.plan.shares(step))
        batches = load(self.fetch, wanted, self.config.workers)
        self.meter = Meter()
        while self.step < self.total and not self.stopped:
            with explained(self.config, self.processes, self.step + 1, self._how_to_go_on):
                self._turn(batches, wish, screen)
        if self.average is not None:
            self.average.apply()

    def _turn(self, batches: Iterator[Any], wish: Wish, screen: Display) -> None:
        """Make a step, and what is due after it; a process that loads data may die at any point."""
        values, flags = self._make_step(batches, wish)
        due = self.step == 1 or self.step % self.config.log_every == 0
        last, ended = self.step == self.total, self.step % self.plan.steps_per_epoch == 0
        evaluates = last or (ended and self.epoch % self.config.evaluate_every == 0)
        if due or evaluates or values.is_cpu:
            self._check_finite()
        if due:
            self._log(values)
        if due or last:
            screen.update(self.step, self.epoch, values[0].item(), self.meter.recent)
        if ended:
            self._after_epoch()
        if evaluates:
            self._evaluate()
        if ended:
            self._tally.reset()
        stop, last = self._stop_wanted(wish, flags, due or values.is_cpu), last or self.stopped
        if stop or last or self.step % self.config.checkpoint_every == 0:
            self._check_finite()
            self._save()
        if stop and not last:
            self._interrupt(stop, screen)

    def _make_step(self, batches: Iterator[Any], wish: Wish) -> tuple[Tensor, Tensor]:
        count, dtype = self.plan.count(self.step), dtype_of(self.config.precision)
        parts = []
        for batch, share in batches:
            parts.append((moved(batch, self.processes.device, dtype), share.counted / count))
            if share.last:
                break
        factor = rate_factor(self.config, self.step, self.total)
        self.rate = self.config.lr * factor * self.plateau.scale
        set_rate(self.optimizer, self.rate)
        self._seed("step")
        if self.graphed is not None:
            values, flags = self.graphed((parts[0][0], count))
        else:
            values, flags = self._advance(parts, count, float(wish.number > 0))
        self.step += 1
        self.meter.add(count)
        return values, flags

    def _advance(
        self, parts: list[tuple[Any, float]], count: int, flag: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """All that a step does on the device, which is what a CUDA graph records."""
        values, flags = self.make_step(parts, flag)
        if self.average is not None:
            self.average.update()
        self._tally.add(values, count)
        return values, flags

    def _seed(self, purpose: str, *, alike: bool = False) -> None:
        """Seed all generators; each process has its own numbers unless they are to be alike."""
        rank = 0 if alike else self.processes.rank
        seed = derived_seed(self.config.seed, purpose, self.step, rank)
        seed_all(seed, self.processes.device)

    def _check_finite(self) -> None:
        step = self._tally.bad_step()
        if step is None:
            return
        epoch = (step - 1) // self.plan.steps_per_epoch
        found = find_non_finite(self.fetch, self.plan.batch(step - 1), epoch)
        cause = (
            "The data of that step are finite: lower lr, or set clip."
            if found is None
            else f"The training data of that step are not finite: {found}."
        )
        raise NonFiniteError(
            f"the loss or its gradient is not finite at step {step} (epoch {epoch + 1}). {cause}"
            + ("" if self.checkpoint is None else f" The last checkpoint is {self.checkpoint}.")
        )

    def _log(self, values: Tensor) -> None:
        numbers = dict(zip(self.make_step.names, values.tolist()))
        row = {"step": self.step, "epoch": self.epoch, "lr": self.rate, **numbers}
        self.meter.read()
        self.log.step(row, self.meter.recent)

    # ------------------------------------------------------------ ends of epochs

    def _after_epoch(self) -> None:
        if type(self.task).after_epoch is not Task.after_epoch:
            self._seed("after epoch", alike=True)
            self.task.after_epoch(self.epoch)
            if self.graphed is not None:
                self.graphed.forget()

    def _evaluate(self) -> None:
        row: Row = {"step": self.step, "epoch": self.epoch}
        names = self.make_step.names[:-1]
        row |= {f"train_{name}": x for name, x in zip(names, self._tally.means())}
        self._seed("evaluation")
        with contextlib.nullcontext() if self.average is None else self.average.applied():
            kind = "train"
            if self.validation is not None:
                kind = "val"
                found = run_evaluation(
                    self.task, self.validation, self.config.batch_size, self.config.precision,
                    self.processes, self.config.workers, collect=False,
                )  # fmt: skip
                row |= {f"val_{name}": x for name, x in found.metrics.items()}
            value = self._monitored(row, f"{kind}_{self.config.monitor}")
            self.log.epoch(row)
            if self.config.schedule == "plateau":
                self.plateau.take(value, self.step)
            if self.watch.improved(value, self.step):
                self._best = best_name(self.step)
                if self.folder is not None and self.processes.is_main:
                    # Kept in memory and written with the next checkpoint: while a run improves in
                    # every short epoch, the disk would decide how fast it goes.
                    self._new_best = self.step, _state.weights_of(self.task, self.config, copy=True)
        self.last = row
        patience = self.config.patience
        self.stopped = patience is not None and self.watch.stale >= patience

    def _monitored(self, row: Row, name: str) -> float:
        if name not in row:
            prefix = name.split("_")[0] + "_"
            names = [n.removeprefix(prefix) for n in row if n.startswith(prefix)]
            raise ConfigError(
                f"monitor: got {self.config.monitor!r}; the task returns {', '.join(names)}."
            )
        if not math.isfinite(row[name]):
            raise NonFiniteError(
                f"{name} is {row[name]} at step {self.step} (epoch {self.epoch})."
                + ("" if self.checkpoint is None else f" The last checkpoint is {self.checkpoint}.")
            )
        return row[name]

    # ------------------------------------------------------------ stopping

    def _stop_wanted(self, wish: Wish, flags: Tensor, look: bool) -> int:
        """The signal that all processes stop for after this step, or 0."""
        if self.processes.world == 1:
            return wish.number
        # Reading a number of a GPU waits for it, so there it is read now and then only.
        return self.processes.any(wish.number) if look and float(flags) > 0 else 0

    def _interrupt(self, number: int, screen: Display) -> NoReturn:
        name = signal.Signals(number).name
        how = self._command_to_resume()
        screen.say(f"Stopped by {name} after step {self.step}; {self.checkpoint} is complete.")
        screen.say(f"To continue: {how}")
        # Another code of a process that it started would make Lightning kill the main one.
        code = 128 + number if self.processes.is_main else 0
        raise Interrupted(number, str(self.checkpoint), code)

    def _command_to_resume(self) -> str:
        command = self.facts.get("command")
        return "run the same again with resume=True" if command is None else f"{command} --resume"

    def _how_to_go_on(self) -> str:
        how = f"To continue from {self.checkpoint}: {self._command_to_resume()}"
        return how if self.checkpoint is not None else "There is no checkpoint yet."

    def _save(self) -> None:
        if self.folder is None:
            return
        folder = self.folder

        def write() -> None:
            content = _state.weights_of(self.task, self.config)
            content.tensors.update(
                optimizer=_state.optimizer_tensors(self.optimizer),
                progress={"sums": self._tally.state()},
            )
            if self.average is not None:
                content.tensors["average"] = self.average.state()
            content.record.update(
                identity=self._identity,
                train=self.config.to_dict(),
                names=self.make_step.names,
                step=self.step,
                stopped=self.stopped,
                last={n: x if math.isfinite(x) else str(x) for n, x in self.last.items()},
                best=self._best,
                watch=self.watch.state(),
                plateau=self.plateau.state(),
                logs=self.log.positions(),
            )
            self.checkpoint = folder.save(self.step, content, self._new_best)
            self._new_best = None
            folder.tidy(content.record, self.config.keep_last)

        on_main(self.processes, write)

    # ------------------------------------------------------------ CUDA graphs

    def _announce(self, screen: Display) -> None:
        if self.log.notice:
            screen.say(self.log.notice)
        wanted = self.config.graphed is True or (
            self.config.graphed == "auto" and self.task.capturable and torch.cuda.is_available()
        )
        if wanted and self.why_eager is not None:
            screen.say(f"Steps are not recorded as a CUDA graph: {self.why_eager}.")

    def graph_story(self) -> str:
        """How many steps ran from a CUDA graph, or why none did."""
        if self.graphed is None:
            return f"no: {self.why_eager}"
        if self.graphed.reason is not None:
            return f"no: {self.graphed.reason}"
        return f"{self.graphed.replayed} steps"
