"""Equations and forecasts are the same, bit for bit, in whatever form the data come."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.test_read_objects import FORMS, files
from smnn.data import DataError

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
T = np.round(0.1 * np.arange(60), 9)
X = np.round(np.stack([np.cos(2 * T), -np.sin(2 * T)], 1) * np.exp(-0.1 * T)[:, None], 9)
FRAME = pd.DataFrame({"time": T, "x": X[:, 0], "y": X[:, 1]})


def fitted(data: Any, **options: Any) -> tuple[list[str], np.ndarray]:
    from smnn.discovery import Discovery

    model = Discovery(library="poly:1", method="regression", ensemble=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data, **options)
    return model.equations(), model.coefficients_


@pytest.fixture(scope="module")
def reference() -> tuple[list[str], np.ndarray]:
    return fitted(X, t=T, feature_names=["x", "y"])


ARRAYS = {"numpy": X, "torch": torch.as_tensor(X), "list": [X], "mapping": dict(zip("xy", X.T))}


@pytest.mark.parametrize("form", [*FORMS, *ARRAYS])
def test_equations(form: str, tmp_path: Path, reference: Any) -> None:
    if form in ARRAYS:
        t = [T] if form == "list" else T
        names = {} if form == "mapping" else {"feature_names": ["x", "y"]}
        found = fitted(ARRAYS[form], t=t, **names)
    else:
        found = fitted(files(FRAME, tmp_path)[form]())
    assert found[0] == reference[0]
    np.testing.assert_array_equal(found[1], reference[1])


@pytest.mark.parametrize("form", ["csv", "parquet", "excel", "pandas", "index", "polars", "arrow"])
def test_forecasts(form: str, tmp_path: Path) -> None:
    from smnn.forecasting import Forecaster

    def predicted(data: Any, t: Any) -> np.ndarray:
        model = Forecaster(season=None, log=False, trend="none").fit(data, t)
        return np.asarray(model.predict(4).mean)

    data = files(FRAME, tmp_path)[form]()
    t = None if form == "index" else "time"
    np.testing.assert_array_equal(predicted(data, t), predicted(X, T))


def test_series_of_a_file(tmp_path: Path) -> None:
    frame = pd.concat([FRAME.assign(experiment=k, t=T, u=T**2) for k in "ab"]).drop(columns="time")
    frame.to_csv(tmp_path / "a.csv", index=False)
    expected = fitted([X, X], t=[T, T], feature_names=["x", "y"])
    options = {"series": "experiment", "columns": ["x", "y"]}
    for given in ({"time": "t"}, {"t": "t"}, {}):
        found = fitted(tmp_path / "a.csv", **given, **options)
        assert found[0] == expected[0]
        np.testing.assert_array_equal(found[1], expected[1])
    driven = fitted(frame, t="t", inputs=["u"], series="experiment")
    arrays = fitted([X, X], t=[T, T], inputs=[T**2, T**2], feature_names=["x", "y"])
    np.testing.assert_array_equal(driven[1], arrays[1])


@pytest.mark.parametrize(("options", "message"), [
    ({"t": "time", "time": "time"}, "got both t and time|multiple values"),
    ({"serie": "id"}, "serie"),
    ({"series": "id"}, "no column 'id'"),
])  # fmt: skip
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises((DataError, TypeError), match=message):
        fitted(FRAME, **options)
