"""Hold-out evaluation and reports."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.discover_runs import check_page
from discovery.made_model import EVIL, Made, made_report, made_table
from smnn.data import Table
from smnn.discovery import (
    DataError,
    Discovery,
    EquationVerdict,
    HeldOutSeries,
    Report,
    evaluate,
    first_rows,
    hold_out,
)
from smnn.discovery._evaluate import FEWEST_FITTED
from smnn.discovery._view.charts import prediction_band

T = 0.05 * np.arange(200)
SPIRAL = np.exp(-0.1 * T) * np.array([np.cos(2 * T), -np.sin(2 * T)])


class TestEvaluate:
    def test_errors_are_in_standard_deviations(self) -> None:
        """The simulation starts at the last fitted state."""
        table = made_table(names=("x",))
        t, data = table.times[0], table.values[0]
        result = made_report(table).evaluation
        assert result is not None
        (part,) = result.series
        assert part.start == 11.0
        assert part.t.tolist() == t[12:].tolist()
        path = 12 + 0.1 * np.arange(1, 4)
        expected = np.abs(path - data[12:, 0]) / data.std()
        np.testing.assert_allclose(part.error, expected, rtol=1e-12)
        assert result.error == pytest.approx(np.sqrt(np.mean(expected**2)))
        assert part.until == 1.0
        assert result.followed == pytest.approx(1 / 3)

    @pytest.mark.parametrize(
        ("error", "until"),
        [([0.1, 0.2, 0.3], None), ([0.1, 0.5, 0.1], 2.0), ([0.1, np.inf, 9.0], 2.0),
         ([np.nan, 0.1, 0.1], None), ([0.41, 0.1, 0.1], 1.0)],
    )  # fmt: skip
    def test_time_until_the_error_is_large(self, error: list[float], until: float | None) -> None:
        empty = np.zeros((3, 1))
        part = HeldOutSeries(0, "", 0.0, np.arange(1.0, 4.0), empty, empty, np.array(error))
        assert part.until == until

    def test_intervals_contain_the_held_out_data(self) -> None:
        rng = np.random.default_rng(4)
        data = SPIRAL.T + 0.02 * rng.standard_normal(SPIRAL.T.shape)
        model = Discovery(library="poly:1", ensemble=0).fit(data[:150], t=T[:150])
        (part,) = evaluate(model, data[150:], t=T[150:]).series
        t, low, high = prediction_band(model, part)
        assert t.tolist() == part.t.tolist()
        assert 0.78 < ((low < part.data) & (part.data < high)).mean() <= 0.98
        assert np.median(high - low) == pytest.approx(2 * 1.645 * 0.02, rel=0.3)

    def test_simulations_that_diverge(self) -> None:
        class Diverges(Made):
            def simulate(self, x0: Any, t: Any, inputs: Any = None, series: Any = None) -> Any:
                return np.where(np.arange(len(t))[:, None] < 2, 0.5, np.nan)

        report = made_report(made_table(names=("x",)), Diverges)
        assert report.evaluation is not None
        assert np.isinf(report.evaluation.series[0].error[-1])
        assert report.evaluation.error == np.inf
        assert "hold-out error" not in str(report.summary())
        check_page(report.page())

    def test_arrays(self) -> None:
        model = Discovery(library="poly:1", ensemble=0).fit(SPIRAL.T[:150], t=T[:150])
        result = evaluate(model, SPIRAL.T[150:], t=T[150:])
        assert result.error is not None
        assert result.error < 1e-3
        assert result.followed == 1.0
        holes = SPIRAL.T[150:] + 0.1
        holes[3, 0] = np.nan  # the error is that of the other variable
        result = evaluate(model, holes, t=T[150:])
        expected = (result.series[0].simulated - holes)[3, 1] / result.scale[1]
        assert result.series[0].error[3] == pytest.approx(abs(expected))
        several = Discovery(library="poly:1", ensemble=0).fit(
            [SPIRAL.T[:90], SPIRAL.T[100:190]], t=[T[:90], T[100:190]]
        )
        empty = np.empty((0, 2))
        result = evaluate(several, [empty, SPIRAL.T[190:]], t=[[], T[190:]])
        assert [part.index for part in result.series] == [1]

    @pytest.mark.parametrize(
        ("X", "t", "message"),
        [
            ([np.ones((2, 2))] * 2, [[8, 9]] * 2, "for each of the 1 fitted series"),
            (np.ones((2, 2)), None, "expected held-out data and times"),
            (np.ones((2, 1)), [8.0, 9.0], r"X\[0\] has shape \(2, 1\); expected \(2, 2\)"),
            (np.ones((2, 2)), [1.0, 2.0], r"t\[0\] must increase, and start after the last"),
        ],
    )
    def test_data_that_do_not_continue_the_fit(self, X: Any, t: Any, message: str) -> None:
        model: Any = Made(Table(["x", "y"], [np.arange(3.0)], [np.ones((3, 2))], series=[""]))
        with pytest.raises(DataError, match=message):
            evaluate(model, X, t=None if t is None else [t] if isinstance(X, list) else t)

    def test_inputs_continue_from_the_last_fitted_row(self) -> None:
        table = replace(
            made_table(names=("x",)), input_names=["u"], inputs=[np.arange(15.0)[:, None]]
        )
        seen: dict[str, Any] = {}

        class Driven(Made):
            def simulate(self, x0: Any, t: Any, inputs: Any = None, series: Any = None) -> Any:
                seen.update(inputs=inputs, t=t, x0=x0)
                return np.zeros((len(t), 1))

        made_report(table, Driven)
        np.testing.assert_array_equal(seen["inputs"], table.inputs[0][11:])
        np.testing.assert_array_equal(seen["t"], table.times[0][11:])
        np.testing.assert_array_equal(seen["x0"], [12.0])


class TestHoldOut:
    @pytest.mark.parametrize(
        ("rows", "fraction", "fitted"),
        [(100, 0.2, 80), (100, 0.0, 100), (10, 0.2, FEWEST_FITTED), (9, 0.9, FEWEST_FITTED),
         (3, 0.5, 3)],
    )  # fmt: skip
    def test_sizes(self, rows: int, fraction: float, fitted: int) -> None:
        table = Table(["x"], [np.arange(float(rows))], [np.zeros((rows, 1))])
        assert [part.rows for part in hold_out(table, fraction)] == [fitted, rows - fitted]

    def test_variables_without_values_in_the_fitted_part(self) -> None:
        late = np.where(np.arange(20) < 18, np.nan, 1.0)[:, None]
        with pytest.raises(DataError, match="late has values only in the part that is held out"):
            hold_out(Table(["late"], [np.arange(20.0)], [late]))

    def test_first_rows(self) -> None:
        table = made_table(2)
        assert first_rows(table, 60) is table
        short = first_rows(table, 50)
        assert [len(t) for t in short.times] == [12, 12]
        assert short.warnings == [EVIL, "the first 24 of 30 rows are used. Split the data to use "
                                  "others."]  # fmt: skip


class TestReport:
    @pytest.mark.parametrize("series", [1, 2, 5])
    @pytest.mark.parametrize("resampled", [True, False])
    def test_names_from_data_are_escaped(self, series: int, resampled: bool) -> None:
        page = check_page(made_report(made_table(series), resampled=resampled).page())
        assert any(EVIL in text for text in page.texts)

    def test_verdict_comes_before_the_equations(self) -> None:
        report = made_report(made_table())
        page = report.page()
        assert page.index('<div class="verdict">') < page.index('<div class="equations">')
        assert "<b>Tentative</b>" in page
        assert "Rival equations" in page
        record = report.record()
        assert record["verdict"]["level"] == "tentative"
        assert [rival["evidence"] for rival in record["candidates"]] == [1.5]

    def test_unstable_equations_are_not_shown(self) -> None:
        report = made_report(made_table())
        level = EquationVerdict("not determined", "too few rows.", 0.5, 2, 15, chosen=0.0)
        report.model.verdict_.equations[EVIL] = level
        text = report.page().split('<div class="equations">')[1].split("<details>")[0]
        assert "not determined" in text
        assert "3.000" not in text

    def test_python_source_computes_the_derivatives(self) -> None:
        t = 0.05 * np.arange(200)
        x = np.exp(-0.2 * t) * np.cos(2 * t)
        model = Discovery(library="poly:2", order=2, ensemble=0)
        page = check_page(Report(model.fit(x, t=t, feature_names=["lambda x"])).page())
        (source,) = (text for text in page.texts if text.startswith("import numpy"))
        scope: dict[str, Any] = {}
        exec(source, scope)
        np.testing.assert_allclose(
            scope["f"](0.0, [0.3, 0.4]), model.to_function()(0.0, [0.3, 0.4]), rtol=1e-12
        )

    def test_given_and_rare_terms(self) -> None:
        text = made_report(made_table()).page()
        assert "−1.000 (given)" in text
        assert "−2.5 ± 0.3" in text
        assert text.count('<tr class="quiet">') == 9  # selected in some resamples only

    def test_empty_equations(self) -> None:
        report = made_report(made_table())
        report.model.coefficients_[:] = 0
        rows = report.coefficients().rows
        assert [(row.label, row.quiet) for row in rows] == [("0", True), ("0", True)]
        check_page(report.page())

    def test_warnings(self) -> None:
        assert made_report(made_table()).warnings == [EVIL, "terms left out"]

    def test_of_arrays_and_of_loaded_models(self, tmp_path: Path) -> None:
        model = Discovery(library="poly:1", ensemble=0).fit([SPIRAL.T, SPIRAL.T], t=[T, T])
        page = check_page(model.report(tmp_path / "page.html", source="spirals").read_text("utf-8"))
        assert any("Found in spirals: 400 rows, 2 series, 400 fitted." in x for x in page.texts)
        assert Report(model).record()["held_out"] is None
        loaded = Discovery.load(model.save(tmp_path / "model.json"))
        with pytest.raises(DataError, match="the model was loaded from a file"):
            loaded.report(tmp_path / "page.html")
        with pytest.raises(DataError, match="no fitted states"):
            evaluate(loaded, SPIRAL.T, t=T)

    def test_fit_of_a_table(self) -> None:
        table = Table(["p", "q"], [T], [SPIRAL.T], series=[""], time_name="s")
        model = Discovery(library="poly:1", ensemble=0).fit(table)
        assert model.targets_ == ["p'", "q'"]
        assert model.table_ is table
        with pytest.raises(DataError, match="leave these arguments out"):
            Discovery().fit(table, t=T)
