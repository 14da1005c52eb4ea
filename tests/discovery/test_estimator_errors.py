"""Error messages for invalid data, options and model files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smnn.discovery import DataError, Discovery, Expressions, ModelFileError, Positive

X = np.column_stack([np.sin(np.arange(30) * 0.3), np.cos(np.arange(30) * 0.3)])
HOLES = np.array([[1.0, np.nan], [np.nan, 2.0], [3.0, 4.0], [5.0, 6.0]])


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        ([], {}, "X is an empty list; give at least one series"),
        (X[:2], {}, "X has 2 rows; a series needs at least 3"),
        ([X, X[:, :1]], {}, r"X\[1\] has 1 columns and X\[0\] has 2; every series needs the same"),
        (X[None], {}, r"X has shape \(1, 30, 2\); expected \(times, variables\)"),
        ([["a", "b"]] * 5, {}, r"X\[0\] is not a table of numbers"),
        (
            np.where(X > 0.9, np.inf, X),
            {},
            "X contains infinite values; mark missing",
        ),
        (X * [1, np.nan], {}, "y has no values; leave the column out"),
        (HOLES, {"t": [0.0, 1.0, 2.0, 4.0]}, "4 times with 6 values are too few"),
        (
            np.where(np.arange(len(X))[:, None] < [len(X), 2], X, np.nan),
            {},
            "y has 2 values; expected at least 3",
        ),
        (X, {"t": np.arange(29)}, "t has 29 times for 30 rows of X"),
        (X, {"t": np.zeros(30)}, "t must increase; it goes from 0 to 0 at row 1"),
        (X, {"t": -1.0}, r"t = -1.0; a step must be positive"),
        (X, {"t": np.r_[np.arange(29), np.nan]}, "t has times that are not finite"),
        ([X, X], {"t": [np.arange(30)] * 3}, "t has 3 entries for 2 series; give one for each"),
        (X * 1e300, {"t": 0.3}, r"x is about 1e\+300; expected a magnitude .* Choose other units"),
        (X * [1, 1e-200], {"t": 0.3}, "y is about 1e-200; expected a magnitude between 1e-50 and"),
        (
            X,
            {"t": 0.3e300},
            r"the time step is about 3e\+299; expected a magnitude .* dividing by 3e",
        ),
        (X, {"inputs": np.zeros(3)}, "inputs has 3 rows for 30 rows of X"),
        (X, {"inputs": np.full(30, np.nan)}, "inputs has missing values; fill them in"),
        (X, {"feature_names": ["a"]}, "feature_names has 1 names for 2 columns"),
        (X, {"feature_names": ["a", "a"]}, "feature_names contains a name twice: a, a"),
        (X, {"inputs": np.zeros(30), "feature_names": ["u", "v"]}, "share a name: u"),
    ],
)
def test_data(X: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Discovery().fit(X, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magic"}, "method='magic'; expected one of auto, regression, refine, neural"),
        ({"order": 0}, "order=0; expected a whole number from 1 to 4"),
        ({"link": "cube"}, "link='cube'; expected one of tanh, exp"),
        ({"threshold": 2.0}, "threshold=2.0; expected a fraction from 0 to below 1"),
        ({"penalty": 0.0}, "penalty=0.0; expected a positive number"),
        ({"ensemble": -1}, "ensemble=-1; expected the number of resamples, or 0"),
        ({"library": 3}, "library=3; expected a library such as Polynomial"),
        ({"fixed": {"q'": {"x": 1.0}}}, '"q\'" is not the left-hand side of an equation'),
        ({"fixed": {"x'": {"x^9": 1.0}}}, r"'x\^9' is not a term of the library"),
        ({"fixed": {"x'": {"x": np.nan}}}, "fixed: the coefficient of 'x' in \"x'\" is nan"),
        ({"forbidden": {"x'": "x"}}, "forbidden: give a list of terms"),
        (
            {"fixed": {"x'": {"x": 1.0}}, "forbidden": {"x'": ["x"]}},
            "'x' in \"x'\" is both fixed and forbidden",
        ),
        ({"constraints": ["x > 0"]}, "constraints: got 'x > 0'; expected Positive, Negative"),
        ({"constraints": [Positive("x'", "w")]}, "w"),
        (
            {"method": "neural", "neural": {"windw": 9}},
            "expected a Neural, .* keys out of",
        ),
        ({"fixed": {"x'": "2*q"}}, r"fixed terms of \"x'\", '2\*q': unknown name 'q'"),
        ({"order": "first"}, "order='first'; expected a whole number from 1 to 4, or 'auto'"),
        ({"method": "neural", "neural": {"window": 90}}, "no series has 90 times without a gap"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Discovery(**options).fit(X, t=0.3)


def test_non_finite_terms_are_left_out() -> None:
    library = Expressions(["x", "y", "log(x)"])
    with pytest.warns(UserWarning, match=r"not finite on the data: log\(x\)"):
        found = Discovery(library=library, ensemble=0).fit(X, t=0.3)
    assert (found.coefficients_[:, 2] == 0).all()
    with pytest.raises(DataError, match="no candidate term of the library is finite"):
        Discovery(library=Expressions(["log(x)"])).fit(X, t=0.3)


def test_use_before_fit() -> None:
    with pytest.raises(Exception, match="not fitted"):
        Discovery().equations()


def test_initial_state() -> None:
    found = Discovery(ensemble=0).fit(X, t=0.3)
    with pytest.raises(DataError, match="x0 has 1 values; expected 2: x, y"):
        found.simulate([1.0], np.arange(3.0))
    with pytest.raises(DataError, match="t must be finite and increasing"):
        found.simulate([1.0, 0.0], [1.0, 0.0])
    with pytest.raises(DataError, match="x0 has values that are not finite"):
        found.simulate([1.0, np.nan], [0.0, 1.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: "{", "is not JSON"),
        (lambda r: "[]", "is not a model that Discovery.save wrote"),
        (lambda r: {**r, "format": "other"}, "is not a model that Discovery.save wrote"),
        (lambda r: {**r, "version": 99}, "has version 99; this smnn reads version 1"),
        (lambda r: {**r, "library": {"kind": "os.system"}}, "cannot be used"),
        (lambda r: {**r, "variables": "x"}, "'variables' in the model file is not a list"),
        (lambda r: {**r, "terms": []}, "the terms in .* do not match its library"),
        (lambda r: {**r, "coefficients": [[1.0]]}, r"'coefficients' .* has shape \(1, 1\)"),
        (lambda r: {k: v for k, v in r.items() if k != "noise"}, "no numbers under 'noise'"),
        (lambda r: {**r, "order": "2"}, "cannot be used"),
    ],
)
def test_model_files(tmp_path: Path, change: Any, message: str) -> None:
    path = Discovery(ensemble=0).fit(X, t=0.3).save(tmp_path / "model.json")
    changed = change(json.loads(path.read_text()))
    path.write_text(changed if isinstance(changed, str) else json.dumps(changed))
    with pytest.raises(ModelFileError, match=message):
        Discovery.load(path)


def test_missing_model_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="cannot read"):
        Discovery.load(tmp_path / "none.json")
