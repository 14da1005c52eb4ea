"""What `smnn discover` has found, made by hand, with names that are an attack."""

from typing import Any

import numpy as np

from smnn.cli._discover_run import Found, run
from smnn.data import Table
from smnn.discovery import libraries
from smnn.discovery._equations import format_equations

EVIL = "<script>alert(1)</script>"


class Made:
    """A fitted model by hand: x' = -x (given), and a name that is an attack."""

    link = None
    order = 1
    report_ = {"seconds": {"all": 1.0}}  # noqa: RUF012

    def __init__(
        self, series: int = 1, resampled: bool = True, names: tuple[str, ...] = ("x", EVIL)
    ):
        self.variables_ = list(names)
        self.state_names_ = list(names)
        self.targets_ = [f"{name}'" for name in names]
        self.terms_ = libraries.Polynomial(2).terms(names)
        P, V = len(self.terms_), len(names)
        self.coefficients_ = np.zeros((V, P))
        self.coefficients_[0, 1] = -1.0
        self.coefficients_[-1, :2] = 3.0, -2.5
        half = np.where(self.coefficients_ == -1, 0.0, 0.3)
        self.intervals_ = np.stack([self.coefficients_ - half, self.coefficients_ + half], -1)
        self.inclusion_ = np.full((V, P), 0.2) if resampled else None
        self.noise_ = np.full(V, 0.1)
        self.times_ = [np.arange(12.0) for _ in range(series)]
        self.states_ = [np.cumsum(np.ones((12, V)), 0) for _ in range(series)]

    def equations(self, format: str = "text") -> list[str]:
        return format_equations(self.targets_, self.terms_, self.coefficients_, format=format)

    def simulate(self, x0: np.ndarray, t: np.ndarray, inputs: Any = None) -> np.ndarray:
        return np.vstack([x0 + 0.1 * i for i in range(len(t))])

    def fit(self, X: Any, **given: Any) -> "Made":
        self.given = given | {"X": X}
        return self


def made_table(series: int = 1, names: tuple[str, ...] = ("x", EVIL)) -> Table:
    rng = np.random.default_rng(0)
    return Table(
        list(names), [np.arange(15.0) for _ in range(series)],
        [rng.random((15, len(names))) for _ in range(series)],
        series=[f"{EVIL}{i}" for i in range(series)] if series > 1 else [""],
        time_name=EVIL, time_unit=EVIL, units={names[0]: EVIL}, notes=[EVIL], warnings=[EVIL],
    )  # fmt: skip


def made(series: int = 1, **changes: Any) -> Found:
    table = made_table(series)
    model = Made(series, **changes)
    found = run(EVIL, table, {}, 0.2, EVIL, lambda: model)  # type: ignore[arg-type]
    assert model.given["feature_names"] == table.names
    assert [len(x) for x in model.given["X"]] == [12] * series
    return found
