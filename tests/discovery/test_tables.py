"""`Discovery.fit` on tables: every form of the same data gives the same model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smnn.discovery import DataError, Discovery

pd = pytest.importorskip("pandas")
T = 0.05 * np.arange(200)
X = np.exp(-0.1 * T)[:, None] * np.stack([np.cos(T), -np.sin(T)], 1)
FRAME = pd.DataFrame({"time": T, "x": X[:, 0], "y": X[:, 1]})


def fitted(data: Any, **options: Any) -> np.ndarray:
    model = Discovery(library="poly:1", ensemble=0).fit(data, **options)
    assert model.variables_ == ["x", "y"]
    return np.asarray(model.coefficients_)


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return fitted(X, t=T)


@pytest.mark.parametrize(
    "form", ["column", "index", "named", "dict", "shuffled", "list", "t of frame"]
)
def test_forms(form: str, expected: np.ndarray) -> None:
    data, options = {
        "column": (FRAME, {}),
        "index": (FRAME.set_index("time"), {}),
        "named": (FRAME.rename(columns={"time": "q"}), {"t": "q"}),
        "dict": ({"time": T, "x": X[:, 0], "y": X[:, 1]}, {}),
        "shuffled": (FRAME.sample(frac=1, random_state=0), {}),
        "list": ([FRAME], {}),
        "t of frame": (FRAME[["x", "y"]], {"t": FRAME["time"]}),
    }[form]  # fmt: skip
    with pytest.warns(UserWarning, match="sorted") if form == "shuffled" else _nothing():
        np.testing.assert_array_equal(fitted(data, **options), expected)


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()


def test_a_file(tmp_path: Path, expected: np.ndarray) -> None:
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    np.testing.assert_array_equal(fitted(tmp_path / "a.csv"), expected)
    np.testing.assert_array_equal(fitted(str(tmp_path / "a.csv"), t="time"), expected)
    with pytest.raises(DataError, match="there is no file"):
        fitted(tmp_path / "b.csv")


def test_dates_have_a_unit() -> None:
    """Coefficients are per day here, not per nanosecond."""
    dates = pd.date_range("2024-01-01", periods=200, freq="D")
    daily = fitted(X, t=np.arange(200.0))
    np.testing.assert_array_equal(fitted(X, t=dates), daily)
    np.testing.assert_array_equal(fitted(FRAME[["x", "y"]].set_index(dates)), daily)


def test_a_frame_without_times_has_a_step_of_one() -> None:
    np.testing.assert_array_equal(fitted(FRAME[["x", "y"]]), fitted(X))
