"""Which column of a table is time, which tell series apart, which are inputs."""

from pathlib import Path

import numpy as np
import pytest

from data.written_tables import FEW, curve, rows, written
from smnn.data import TableError, read_table

pd = pytest.importorskip("pandas")


# ---------------------------------------------------------------- time


@pytest.mark.parametrize("name", ["t", "Time", "TIMES", "time_s", "date", "Year", "t [h]", "day"])
def test_time_is_found_by_its_name(tmp_path: Path, name: str) -> None:
    text = rows({"x": curve(), name: [0, 1, 3, 7, 8, 9], "y": curve()[::-1]})
    table = read_table(written(tmp_path, text))
    assert table.time_name == name.split(" ")[0]
    assert table.times[0].tolist() == [0, 1, 3, 7, 8, 9]
    assert table.names == ["x", "y"]


def test_time_is_found_by_growing_evenly(tmp_path: Path) -> None:
    text = rows({"x": curve(), "clock": 0.1 * np.arange(FEW), "y": curve()[::-1]})
    table = read_table(written(tmp_path, text))
    assert table.time_name == "clock"
    assert table.notes == ["time is the column 'clock': it grows evenly, or holds dates."]


def test_a_column_that_is_asked_for_is_not_taken_for_time(tmp_path: Path) -> None:
    text = rows({"t": [0, 1, 2, 3, 4, 5], "x": curve()})
    table = read_table(written(tmp_path, text), columns=["t", "x"])
    assert table.names == ["t", "x"]
    assert table.time_name is None


@pytest.mark.parametrize(
    ("step", "unit", "first"),
    [("1D", "days", 1.0), ("2h", "hours", 2.0), ("90s", "minutes", 1.5), ("5s", "seconds", 5.0),
     ("250ms", "seconds", 0.25), ("365D", "years", 365 / 365.25)],
)  # fmt: skip
def test_dates(tmp_path: Path, step: str, unit: str, first: float) -> None:
    when = pd.date_range("2024-02-27", periods=FEW, freq=step).astype(str)
    table = read_table(written(tmp_path, rows({"when": when, "x": curve()})))
    assert table.time_unit == f"{unit} since 2024-02-27"
    np.testing.assert_allclose(table.times[0], first * np.arange(FEW), rtol=1e-12)


def test_dates_with_zones_and_gaps(tmp_path: Path) -> None:
    when = ["2024-01-01T00:00:00Z", "2024-01-01T02:00:00+01:00", "", "2024-01-01T02:00:00Z"]
    table = read_table(written(tmp_path, rows({"date": when, "x": [1, 2, 3, 4]})))
    assert table.times[0].tolist() == [0, 1, 2]
    assert table.values[0][:, 0].tolist() == [1, 2, 4]
    assert table.warnings == ["1 row without a time: left out."]


def test_rows_at_the_same_time_with_the_same_values_are_merged(tmp_path: Path) -> None:
    t = [*range(20), 7, 8]
    text = rows({"t": t, "x": [*range(20), 7, ""], "y": [*[""] * 8, 4, *range(11), 5, ""]})
    table = read_table(written(tmp_path, text))
    assert table.times[0].tolist() == list(range(20))
    assert table.values[0][7].tolist() == [7, 5]
    assert table.dropped == {"duplicates": 2}
    assert "2 rows repeated with the same values: left out." in table.warnings


# ---------------------------------------------------------------- series and inputs


def test_series(tmp_path: Path) -> None:
    text = rows({"who": ["b", "a"] * 4, "t": [0, 5, 1, 6, 2, 7, 3, 8], "x": range(8)})
    table = read_table(written(tmp_path, text), series="who")
    assert table.series == ["b", "a"]
    assert [t.tolist() for t in table.times] == [[0, 1, 2, 3], [5, 6, 7, 8]]
    assert [v.ravel().tolist() for v in table.values] == [[0, 2, 4, 6], [1, 3, 5, 7]]


@pytest.mark.parametrize("name", ["id", "Run", "trajectory", "subject_id"])
def test_series_are_found_when_times_repeat(tmp_path: Path, name: str) -> None:
    text = rows({name: [1, 1, 1, 2, 2, 2], "t": [0, 1, 2] * 2, "x": curve()})
    table = read_table(written(tmp_path, text))
    assert len(table.times) == 2
    assert table.names == ["x"]
    assert table.notes == [f"series are separated by the column {name!r}."]


def test_series_are_told_apart_by_text(tmp_path: Path) -> None:
    """A German sheet: semicolons, decimal commas, units, and a column of marks by any name."""
    rows = [f"V{i};{t},5;{i + t},25" for i in (1, 2) for t in range(4)]
    path = tmp_path / "wachstum.csv"
    path.write_text("Versuch;Zeit (h);Biomasse (g/l)\n" + "\n".join(rows) + "\n")
    table = read_table(path)
    assert (table.names, table.series, table.time_name) == (["Biomasse"], ["V1", "V2"], "Zeit")
    assert (table.time_unit, table.units["Biomasse"]) == ("h", "g/l")
    np.testing.assert_array_equal(table.values[1][:, 0], [2.25, 3.25, 4.25, 5.25])
    assert table.warnings == []
    assert "series are separated by the column 'Versuch'." in table.notes


def test_an_id_that_is_not_needed_stays_a_column(tmp_path: Path) -> None:
    text = rows({"id": [3, 1, 2, 5, 9, 4], "t": range(FEW), "x": curve()})
    assert read_table(written(tmp_path, text)).names == ["id", "x"]


def test_marks_of_series_that_look_like_missing_values(tmp_path: Path) -> None:
    text = rows({"land": ["NA"] * 3 + ["DE"] * 3, "t": [0, 1, 2] * 2, "x": curve()})
    assert read_table(written(tmp_path, text), series="land").series == ["NA", "DE"]


def test_rows_without_a_mark(tmp_path: Path) -> None:
    text = rows({"who": ["a", "", "a"], "t": [0, 1, 2], "x": [1, 2, 4]})
    with pytest.raises(TableError, match="series: the column 'who' has rows without a name"):
        read_table(written(tmp_path, text), series="who")


def test_short_series_are_left_out(tmp_path: Path) -> None:
    text = rows({"who": list("aaaab"), "t": [0, 1, 2, 3, 0], "x": [1, 2, 4, 5, 6]})
    table = read_table(written(tmp_path, text), series="who")
    assert table.series == ["a"]
    assert table.warnings == ["1 series with fewer than 3 times: left out."]
    text = rows({"who": list("aabb"), "t": [0, 1, 0, 1], "x": [1, 2, 4, 5]})
    with pytest.raises(TableError, match="has 4 rows with values, no series with 3; expected at"):
        read_table(written(tmp_path, text), series="who")


def test_inputs(tmp_path: Path) -> None:
    text = rows({"t": [2, 0, 1, 4], "x": [5, 3, 4, 6], "u": [20, 0, "", ""]})
    table = read_table(written(tmp_path, text), inputs=["u"])
    assert table.names == ["x"]
    assert table.input_names == ["u"]
    assert table.inputs[0].ravel().tolist() == [0, 10, 20, 20]
    assert "2 missing values of inputs: interpolated." in table.warnings


def test_inputs_without_values(tmp_path: Path) -> None:
    text = rows(
        {"who": list("aaabbb"), "t": [0, 1, 2] * 2, "x": curve(), "u": [1, 2, 3] + [""] * 3}
    )
    with pytest.raises(TableError, match="inputs: 'u' has no values in the series 'b'"):
        read_table(written(tmp_path, text), series="who", inputs=["u"])
    text = rows({"t": range(FEW), "x": curve(), "u": [""] * FEW})
    with pytest.raises(TableError, match="inputs: 'u' has no values; leave it out"):
        read_table(written(tmp_path, text), inputs=["u"])
