"""`smnn discover`: what is fitted, what is held out, and how the report shows it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.discover_runs import check_page, oscillator
from cli.discovered import EVIL, Made, made, made_table
from smnn.cli import _discover_view
from smnn.cli._discover_run import FEWEST_FITTED, Trial, run, split
from smnn.data import Table, read_table


@pytest.mark.parametrize("series", [1, 2, 5])
@pytest.mark.parametrize("resampled", [True, False])
def test_names_from_data_are_only_text(series: int, resampled: bool) -> None:
    page = check_page(_discover_view.report(made(series, resampled=resampled)))
    assert any(EVIL in text for text in page.texts)


def test_given_and_rare_terms_are_told_apart() -> None:
    text = _discover_view.report(made())
    assert "−1.000 (given)" in text
    assert "−2.5 ± 0.3" in text
    assert text.count('<tr class="quiet">') == 9  # chosen now and then, not in the equations


def test_the_terminal_table_of_an_empty_equation() -> None:
    found = made()
    found.model.coefficients_[:] = 0
    table = _discover_view.coefficient_table(found)
    assert [(row.label, row.quiet) for row in table.rows] == [("0", True), ("0", True)]
    check_page(_discover_view.report(found))


def test_what_the_trial_measures() -> None:
    """The simulation starts at the last fitted state; errors are in standard deviations."""
    table = made_table(names=("x",))
    t, data = table.times[0], table.values[0]
    model = Made(names=("x",))
    found = run("f", table, {}, 0.2, "c", lambda: model)  # type: ignore[arg-type]
    (trial,) = found.trials
    assert trial.start == 11.0
    assert trial.t.tolist() == t[12:].tolist()
    path = 12 + 0.1 * np.arange(1, 4)
    expected = np.abs(path - data[12:, 0]) / data.std()
    np.testing.assert_allclose(trial.error, expected, rtol=1e-12)
    assert found.error == pytest.approx(np.sqrt(np.mean(expected**2)))
    assert trial.until == 1.0
    assert found.followed == pytest.approx(1 / 3)


def trial_with(error: list[float]) -> Trial:
    n = len(error)
    empty = np.zeros((n, 1))
    return Trial("", 0.0, np.arange(1.0, n + 1), empty, empty, np.array(error))


@pytest.mark.parametrize(
    ("error", "until"),
    [([0.1, 0.2, 0.3], None), ([0.1, 0.5, 0.1], 2.0), ([0.1, np.inf, 9.0], 2.0),
     ([np.nan, 0.1, 0.1], None), ([0.41, 0.1, 0.1], 1.0)],
)  # fmt: skip
def test_how_long_a_simulation_follows(error: list[float], until: float | None) -> None:
    assert trial_with(error).until == until


def test_a_simulation_that_runs_away() -> None:
    table = made_table(names=("x",))

    class Escapes(Made):
        def simulate(self, x0: np.ndarray, t: np.ndarray, inputs: Any = None) -> np.ndarray:
            return np.where(np.arange(len(t))[:, None] < 2, 0.5, np.nan)

    model = Escapes(names=("x",))
    found = run("f", table, {}, 0.2, "c", lambda: model)  # type: ignore[arg-type]
    assert np.isinf(found.trials[0].error[-1])
    assert found.error == np.inf
    assert "error on the data held out" not in str(_discover_view.summary(found))
    check_page(_discover_view.report(found))


def test_warnings_of_the_fit_are_kept() -> None:
    class Warns(Made):
        def fit(self, X: Any, **given: Any) -> "Made":
            import warnings

            warnings.warn("terms left out", stacklevel=2)
            warnings.warn("of no interest", DeprecationWarning, stacklevel=2)
            return super().fit(X, **given)

    found = run("f", made_table(), {}, 0.2, "c", Warns)
    assert found.warnings == [EVIL, "terms left out"]


@pytest.mark.parametrize(
    ("rows", "share", "fitted"),
    [
        (100, 0.2, 80),
        (100, 0.0, 100),
        (10, 0.2, FEWEST_FITTED),
        (9, 0.9, FEWEST_FITTED),
        (3, 0.5, 3),
    ],
)
def test_split(rows: int, share: float, fitted: int) -> None:
    table = Table(["x"], [np.arange(float(rows))], [np.zeros((rows, 1))])
    assert split(table, share) == [fitted]


def test_inputs_reach_the_estimator_by_name(tmp_path: Path) -> None:
    data = oscillator(tmp_path / "swing.csv", n=20, u=np.linspace(0, 1, 20) ** 2)
    table = read_table(data, inputs=["u"])
    seen: dict[str, Any] = {}

    class Driven(Made):
        def __init__(self) -> None:
            super().__init__(names=("x", "y"))
            self.times_, self.states_ = [table.times[0][:16]], [table.values[0][:16]]

        def simulate(self, x0: np.ndarray, t: np.ndarray, inputs: Any = None) -> np.ndarray:
            seen["inputs"], seen["t"], seen["x0"] = inputs, t, x0
            return np.zeros((len(t), 2))

    found = run("f", table, {}, 0.2, "c", Driven)
    assert list(found.model.given["inputs"][0].columns) == ["u"]
    assert len(found.model.given["inputs"][0]) == 16
    np.testing.assert_array_equal(seen["inputs"], table.inputs[0][15:])
    np.testing.assert_array_equal(seen["t"], table.times[0][15:])
    np.testing.assert_array_equal(seen["x0"], table.values[0][15])
