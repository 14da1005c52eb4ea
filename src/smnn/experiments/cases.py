"""Experiments that consist of cases: computed one by one, stored, and continued after a stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from smnn._util.files import InputError, write_json
from smnn._util.machine import describe_machine, package_versions
from smnn._util.optional import require
from smnn.experiments.experiment import Tick, read_record
from smnn.experiments.timing import threads


@dataclass
class Results:
    """Results of an experiment; a subclass states the dataclass of its cases.

    A case has a `key`, as listed by the method `cases` of the settings, and a `label` for the
    progress bar. Numbers that are not finite are stored as missing, which stands for the default.
    """

    config: Any
    machine: dict[str, Any]
    cases: list[Any] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)
    """Stored cases of earlier runs with other settings: kept in the file, but not counted."""
    case: ClassVar[type]

    def summary(self) -> Any:
        """Key figures for the record."""
        return None

    def record(self) -> dict[str, Any]:
        """JSON-serializable record."""
        cases = [asdict(case) for case in (*self.cases, *self.others)]
        return {
            "experiment": self.config.experiment,
            "settings": asdict(self.config),
            "machine": self.machine,
            "summary": self.summary(),
            "cases": [{k: _finite(x) for k, x in entry.items()} for entry in cases],
        }

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> list[Any]:
        """The cases of a record."""
        entries = record["cases"]
        return [cls.case(**{k: x for k, x in e.items() if x is not None}) for e in entries]

    @classmethod
    def load(cls, store: Path, experiment: str) -> list[Any]:
        """The cases in a file; none if there is no file.

        Raises:
            InputError: It is not a result of this experiment.
        """
        if not store.exists():
            return []
        try:
            return cls.read(read_record(store, experiment))
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{store} has entries that are not cases ({error}).") from error


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


R = TypeVar("R", bound=Results)


def ticks(config: Any) -> int:
    """Number of progress reports of `run`."""
    return len(config.cases())


def run_cases(
    kind: type[R], config: Any, compute: Callable[[Any], Any], tick: Tick, out: Path | None,
    packages: tuple[str, ...] = (),
) -> R:  # fmt: skip
    """Compute all cases that are not stored yet, on one thread.

    Args:
        kind: Class of the results.
        config: Settings; cases whose method is in `again` are computed again.
        compute: Computes the case with a key.
        tick: Called after every case with its label.
        out: Folder of the JSON file, which holds the cases of earlier runs and gets every new case.
        packages: Packages whose versions are recorded.

    Raises:
        InputError: The file holds something else.
    """
    store = None if out is None else out / f"{config.experiment}.json"
    known = [] if store is None else kind.load(store, config.experiment)
    again = getattr(config, "again", ())
    stored = {c.key: c for c in known if not again or c.method not in again}
    wanted = dict.fromkeys(config.cases())
    pools = require("threadpoolctl", "keep the linear algebra to one thread")

    def results() -> R:
        cases = [stored[key] for key in wanted if key in stored]
        others = [case for key, case in stored.items() if key not in wanted]
        return kind(config, machine, cases, others)

    with threads(1), pools.threadpool_limits(limits=1):
        machine = describe_machine()
        machine["versions"] |= package_versions(packages)
        for key in wanted:
            if key not in stored:
                stored[key] = compute(key)
                if store is not None:
                    write_json(store, results().record())
            tick(stored[key].label)
    return results()
