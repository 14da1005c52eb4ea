"""A model built by hand, for tests of evaluations and reports, with names that are an attack."""

from typing import Any

import numpy as np

from smnn.data import Table
from smnn.discovery import (
    Discovery,
    EquationVerdict,
    Polynomial,
    Report,
    RivalEquation,
    Verdict,
    evaluate,
    hold_out,
)

EVIL = "<script>alert(1)</script>"


class Made(Discovery):
    """A fitted model: x' = -x (given), and an equation of a variable whose name is an attack."""

    def __init__(self, table: Table, resampled: bool = True) -> None:
        super().__init__()
        self.order_, self.inputs_, self.report_ = 1, [], {"seconds": {"all": 1.0}}
        self.warnings_ = ["terms left out"]
        self.candidates_ = [RivalEquation("x", EVIL, 1.5, False, EVIL)]
        names = table.names
        self.table_ = table
        self.variables_ = list(names)
        each = {name: EquationVerdict("tentative", EVIL) for name in names}
        self.verdict_ = Verdict("tentative", EVIL, each)
        self.state_names_ = list(names)
        self.targets_ = [f"{name}'" for name in names]
        self.terms_ = Polynomial(2).terms(names)
        self._columns, self._delayed, self.series_, self.lag_ = list(names), [], [], None
        self.hidden_: dict[str, str] = {}
        P, V = len(self.terms_), len(names)
        self.coefficients_ = np.zeros((V, P))
        self.coefficients_[0, 1] = -1.0
        self.coefficients_[-1, :2] = 3.0, -2.5
        half = np.where(self.coefficients_ == -1, 0.0, 0.3)
        self.intervals_ = np.stack([self.coefficients_ - half, self.coefficients_ + half], -1)
        self.inclusion_ = np.full((V, P), 0.2) if resampled else None
        self.deviation_, self.scale_ = half / 2, np.ones(V)
        self.noise_ = np.full(V, 0.1)
        self.times_ = table.times
        self.states_ = [np.cumsum(np.ones((len(t), V)), 0) for t in table.times]

    def simulate(self, x0: Any, t: Any, inputs: Any = None, series: Any = None) -> np.ndarray:
        return np.vstack([x0 + 0.1 * i for i in range(len(t))])


def made_table(series: int = 1, names: tuple[str, ...] = ("x", EVIL)) -> Table:
    rng = np.random.default_rng(0)
    return Table(
        list(names), [np.arange(15.0) for _ in range(series)],
        [rng.random((15, len(names))) for _ in range(series)],
        series=[f"{EVIL}{i}" for i in range(series)] if series > 1 else [""],
        time_name=EVIL, time_unit=EVIL, units={names[0]: EVIL}, notes=[EVIL], warnings=[EVIL],
    )  # fmt: skip


def made_report(table: Table, model: type[Made] = Made, resampled: bool = True) -> Report:
    """A report with a fifth of the data held out."""
    fitted, held_out = hold_out(table, 0.2)
    found: Any = model(fitted, resampled)
    return Report(found, evaluate(found, held_out), EVIL, EVIL)
