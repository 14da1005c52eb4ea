"""The standalone experiment: the digits of the paper, and smaller errors in native order."""

from typing import Any

import numpy as np
import pytest
import torch

from smnn.datasets import STANDALONE, LinearOde
from smnn.experiments.standalone import run as standalone
from smnn.experiments.standalone import view
from smnn.experiments.standalone.run import (
    LSODA,
    NATIVE_ORDER,
    PRINTED,
    RK45,
    SCHEMES,
    SMNN,
    Config,
    Entry,
    Standalone,
    native_solver,
    relative_mse,
    shown,
)
from smnn.experiments.timing import Timing
from smnn.report.tables import html_table


@pytest.fixture(name="result")
def _result(runs: Any) -> Standalone:
    return runs["standalone"]  # type: ignore[no-any-return]


problems = pytest.mark.parametrize("problem", STANDALONE, ids=lambda p: p.name)


@problems
def test_smnn_row_of_the_paper_at_its_printed_digits(
    result: Standalone, problem: LinearOde
) -> None:
    entry = result.find("paper", problem.key, SMNN)
    assert tuple(shown(e) for e in entry.errors) == PRINTED[SMNN][problem.key]
    assert entry.agrees == (True, True, True)


@problems
@pytest.mark.parametrize("solver", [RK45, LSODA])
def test_settings_of_the_other_solvers_are_those_of_the_paper(
    result: Standalone, problem: LinearOde, solver: str
) -> None:
    """To one digit, because the last one may depend on the version of SciPy."""
    entry = result.find("paper", problem.key, solver)
    known = [e for e in entry.errors if e is not None]
    printed = [float(p) for p in PRINTED[solver][problem.key]]
    np.testing.assert_allclose(known, printed, rtol=0.06)
    assert len(known) == problem.order


@problems
def test_native_order_is_below_both_in_every_column(result: Standalone, problem: LinearOde) -> None:
    ours = result.find("native", problem.key, SMNN).errors
    for solver in (RK45, LSODA):
        theirs = result.find("native", problem.key, solver).errors
        assert all(a is not None and b is not None and a < b for a, b in zip(ours, theirs))
    assert max(e for e in ours if e is not None) < 1e-15


@problems
def test_no_lower_order_suffices(problem: LinearOde) -> None:
    config, order = Config(), NATIVE_ORDER[problem.key] - 1
    truth = problem.exact(np.arange(config.n_steps) * np.longdouble(config.step))
    y = native_solver(problem, config, order)()[:, 0, :3].numpy()
    assert max(e for e in relative_mse(y, truth) if e is not None) > 1e-15


def test_relative_mse_divides_by_the_variance() -> None:
    truth = np.array([[0.0], [2.0]], dtype=np.longdouble)
    assert relative_mse(np.array([[1.0], [3.0]]), truth) == (1.0,)
    assert relative_mse(truth.astype(float), np.hstack([truth, truth])) == (0.0, None)


def test_disagreement_is_seen() -> None:
    printed = ("1.0e-09", "2.0e-09", None)
    entry = Entry("R", SMNN, 2, (1.04e-9, 2.06e-9, 1.0), Timing(1.0, 1.0, 1), printed)
    assert entry.agrees == (True, False, None)


def test_the_number_of_threads_is_restored() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        standalone.run(Config(n_steps=50, repeats=1))
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def test_tables_mark_what_agrees_and_what_is_best(result: Standalone) -> None:
    paper, native, coarse = view.tables(result)
    ours = [row for row in paper.rows if row.label == SMNN and row.group in view.QUANTITIES]
    assert [cell.verdict for row in ours for cell in row.cells] == [True] * 18
    assert html_table(paper).count('class="agrees"') == sum(
        cell.verdict is True for row in paper.rows for cell in row.cells
    )
    for row in native.rows:
        if row.group in view.QUANTITIES:
            assert all(cell.best == (row.label == SMNN) for cell in row.cells)
    assert [row.label for row in coarse.rows[:6]] == [RK45, LSODA, *SCHEMES]
    assert all(any(row.cells[j].best for row in coarse.rows[4:6]) for j in range(6))


@problems
def test_coarse_grid_is_below_both_at_a_tight_tolerance(
    result: Standalone, problem: LinearOde
) -> None:
    errors = {
        name: max(e for e in result.find("coarse", problem.key, name).errors if e is not None)
        for name in (*SCHEMES, RK45, LSODA)
    }
    assert errors["hermite"] < 1e-24 < 1e-19 < min(errors[RK45], errors[LSODA])
    assert errors["hermite"] < errors["iwp"] < errors["smnn"]
