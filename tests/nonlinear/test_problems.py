"""Every nonlinear problem is solved to the tolerance, or its status says why it is not."""

import numpy as np
import pytest

from nonlinear.problems import BOUNDARY, FITS, INITIAL, Boundary, Fit, Initial

PROBLEMS = INITIAL | BOUNDARY | FITS
SOLVED = [name for name, x in (INITIAL | BOUNDARY).items() if x.solvable]
LOOSE = {"Lorenz": 1e-7, "Kepler, eccentricity 0.6": 1e-6, "van der Pol, mu = 1000": 1e-6}
"""Errors where neighbouring trajectories move apart."""


def test_there_are_thirty() -> None:
    assert len(PROBLEMS) >= 30


@pytest.mark.parametrize("name", SOLVED)
def test_solution(name: str) -> None:
    """At a tolerance of 1e-9."""
    problem: Initial | Boundary = (INITIAL | BOUNDARY)[name]  # type: ignore[assignment]
    found = problem.solve().check()
    expected = problem.reference()
    y = found.y.numpy()[:, : expected.shape[1]]
    error = (np.abs(y - expected).max(0) / np.abs(expected).max(0)).max()
    assert error < LOOSE.get(name, 5e-8)
    assert len(found.mesh) <= 1000


@pytest.mark.parametrize("name", [name for name, x in FITS.items() if x.solvable])
def test_parameters(name: str) -> None:
    """Within four standard deviations, which are small."""
    problem: Fit = FITS[name]
    found = problem.solve().check()
    for parameter, true in problem.true.items():
        sd = found.params_sd[parameter].item()
        assert abs(found.params[parameter].item() - true) < 4 * sd
        assert sd < 0.05 * max(abs(true), 1.0)
    assert found.chi2 is not None
    assert 0.3 < found.chi2.item() < 1.7


@pytest.mark.parametrize("name", [name for name, x in PROBLEMS.items() if not x.solvable])
def test_status(name: str) -> None:
    """No answer without a solution, but a reason."""
    found = PROBLEMS[name].solve()
    assert not bool(found.ok)
    assert len(found.reasons[0]) > 20
    with pytest.raises(RuntimeError, match="sample 0"):
        found.check()
