"""Scores of the M4 competition: official definitions, parts of the series, damaged files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smnn.errors import InputError
from smnn.experiments.m4.data import GROUPS, Series, naive2, read_group, scores
from smnn.experiments.m4.run import NAIVE, PARTS, run


def test_scores_of_a_known_forecast() -> None:
    """Values computed by hand from the definitions of the competition."""
    past = np.array([1.0, 2.0, 4.0, 7.0])  # mean absolute change 2
    future = np.array([10.0, 10.0, 10.0, 10.0, 10.0, 10.0])
    series = Series("Y1", 0, past, future)
    mean = np.array([10.0, 12.0, 10.0, 10.0, 10.0, -5.0])
    lower, upper = np.full(6, 8.0), np.array([12.0, 12.0, 12.0, 12.0, 9.5, 12.0])
    found = scores(series, GROUPS["Yearly"], mean, lower, upper)
    assert found["smape"] == pytest.approx((200 * 2 / 22 + 200) / 6)
    assert found["mase"] == pytest.approx((2 + 10) / 6 / 2)  # negative forecasts become zero
    assert found["covered"] == pytest.approx(5 / 6)
    assert found["msis"] == pytest.approx((5 * 4 + 1.5 + 40 * 0.5) / 6 / 2)


def test_naive2() -> None:
    t = np.arange(40)
    y = (100 + t) * np.array([0.8, 1.0, 1.3, 0.9])[t % 4]
    found = naive2(y, 4, 6)
    np.testing.assert_allclose(found, 139 * np.array([0.8, 1.0, 1.3, 0.9, 0.8, 1.0]), rtol=0.01)
    walk = np.random.default_rng(0).standard_normal(60).cumsum() + 50
    np.testing.assert_array_equal(naive2(walk, 1, 3), np.full(3, walk[-1]))
    np.testing.assert_array_equal(naive2(np.full(30, 5.0), 4, 2), [5.0, 5.0])
    np.testing.assert_array_equal(naive2(y[:10], 4, 2), [y[9], y[9]])  # too short for the test


def test_summary(runs: Any) -> None:
    result = runs["m4"]
    for group in result.config.groups:
        whole = result.summary(group, NAIVE)
        assert whole["owa"] == 1
        assert "covered" not in whole
        for method in result.config.methods:
            parts = [result.summary(group, method, part) for part in ("tuned", "held out")]
            assert [p["series"] for p in parts] == [4, 2]
            every = result.summary(group, method)
            assert every["mase"] == pytest.approx((4 * parts[0]["mase"] + 2 * parts[1]["mase"]) / 6)
            assert every["msis"] > 0
        if group == "Quarterly":
            assert result.summary(group, "single")["owa"] < 0.6
    assert [PARTS["held out"](i) for i in range(4)] == [True, False, False, True]


def test_an_interrupted_run_is_continued(runs: Any, tmp_path: Path) -> None:
    config = replace(runs["m4"].config, methods=("single",), every=3)
    first = run(config, out=tmp_path)
    assert len(first.cases) == 8
    record = first.record()
    record["cases"] = record["cases"][:3]
    record["cases"][2]["mase"] = 7.0
    (tmp_path / "m4.json").write_text(json.dumps(record))
    again = run(config, out=tmp_path)
    assert len(again.cases) == 8
    assert again.cases[2].mase == 7.0
    (tmp_path / "m4.json").write_text("{}")
    with pytest.raises(InputError, match="no results of the experiment 'm4'"):
        run(config, out=tmp_path)


def test_errors(tmp_path: Path, runs: Any) -> None:
    config = runs["m4"].config
    with pytest.raises(InputError, match="expected the folder Dataset of"):
        run(replace(config, data=None))
    with pytest.raises(InputError, match=r"has no Train/Quarterly-train\.csv"):
        run(replace(config, data=str(tmp_path)))
    (tmp_path / "Quarterly-train.csv").write_text("V1,V2\nQ1,1,2,x\n")
    with pytest.raises(InputError, match="is not a file of the competition"):
        read_group(tmp_path, "Quarterly")
    (tmp_path / "Quarterly-train.csv").write_text("V1,V2\nQ1,1,2,3\n")
    (tmp_path / "Quarterly-test.csv").write_text("V1,V2\nQ1,1,2,3\n")
    with pytest.raises(InputError, match="expected 8 values of each of the 1 series"):
        read_group(tmp_path, "Quarterly")
    for wrong in ({"groups": ("Hourly", "Decade")}, {"methods": ()}):
        with pytest.raises(ValueError, match="expected"):
            replace(config, **wrong)
