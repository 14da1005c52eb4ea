"""Tables as people keep them: what is read, what is decided, what is said when it cannot be."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smnn._optional import MissingPackageError
from smnn.discovery import _tables_text
from smnn.discovery._tables import Table, TableError, read_table

pd = pytest.importorskip("pandas")
FEW = 6


def written(folder: Path, text: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows(columns: dict[str, Any], separator: str = ",") -> str:
    head = separator.join(columns)
    lines = [separator.join(map(str, row)) for row in zip(*columns.values())]
    return "\n".join([head, *lines]) + "\n"


def curve(n: int = FEW) -> list[float]:
    return [float(v) for v in np.round(np.sin(np.arange(n)) + 2, 4)]


# ---------------------------------------------------------------- ways of writing


@pytest.mark.parametrize(
    ("separator", "decimal"),
    [(s, d) for s in (",", ";", "\t", "|", " ", "  ") for d in ".," if s != d],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_dialects(tmp_path: Path, separator: str, decimal: str, newline: str, mark: str) -> None:
    numbers = np.column_stack([0.5 * np.arange(FEW), curve(), -1e-7 * np.arange(1, FEW + 1) ** 2])
    lines = [separator.join(repr(float(v)).replace(".", decimal) for v in row) for row in numbers]
    text = mark + newline.join([separator.join(["t", "x", "y"]), *lines]) + newline
    table = read_table(written(tmp_path, text))
    assert table.names == ["x", "y"]
    assert table.time_name == "t"
    np.testing.assert_array_equal(table.times[0], numbers[:, 0])
    np.testing.assert_array_equal(table.values[0], numbers[:, 1:])
    assert (table.notes, table.warnings) == ([], [])


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.lists(st.floats(-1e12, 1e12) | st.none(), min_size=2, max_size=2),
        min_size=3,
        max_size=9,
    ),
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from(["", "NA", "nan", "null", "-", "?"]),
    st.booleans(),
)
def test_random_tables_survive(
    tmp_path: Path, body: list[list[float | None]], separator: str, absent: str, quoted: bool
) -> None:
    values = np.array([[np.nan if v is None else v for v in row] for row in body])
    known = np.isfinite(values)
    if any(len(np.unique(values[known[:, v], v])) < 2 for v in range(2)):
        return  # constant and empty columns have tests of their own
    if known.any(1).sum() < 3:
        return  # too few times, too
    quote = '"' if quoted else ""
    lines = [f"{quote}time{quote}{separator}{quote}a b{quote}{separator}c"]
    for i, row in enumerate(values):
        fields = [absent if np.isnan(v) else repr(float(v)) for v in row]
        lines.append(separator.join([str(i), *(f"{quote}{f}{quote}" for f in fields)]))
    table = read_table(written(tmp_path, "\n".join(lines)), time="time")
    kept = known.any(1)
    np.testing.assert_array_equal(table.values[0], values[kept])
    np.testing.assert_array_equal(table.times[0], np.arange(len(values))[kept])
    assert table.names == ["a b", "c"]
    assert table.missing == (~known[kept]).sum()


def test_comments_and_blank_lines(tmp_path: Path) -> None:
    text = "# measured in May\n\n# by hand\nt,x\n0,1\n# a pause\n1,2.5\n\n2,3\n"
    assert read_table(written(tmp_path, text)).values[0].ravel().tolist() == [1, 2.5, 3]


def test_names_in_a_comment_as_numpy_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    np.savetxt(path, np.column_stack([np.arange(FEW), curve()]), header="t x")
    table = read_table(path)
    assert (table.names, table.time_name) == (["x"], "t")
    np.testing.assert_array_equal(table.values[0][:, 0], curve())


def test_without_names(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, "0,1\n1,2.5\n2,3\n"))
    assert table.names == ["x2"]
    assert table.time_name == "x1"
    assert "has no line with names; its columns are called x1, x2, …" in table.notes[0]
    assert "time is the column 'x1'" in table.notes[1]


def test_units_in_names_and_below_them(tmp_path: Path) -> None:
    text = "Time (s),x [m/s],n\ns,m,1\n0,1,5\n1,2.5,6\n2,3,8\n"
    table = read_table(written(tmp_path, text), columns=["x"], inputs=["n"])
    assert table.names == ["x"]
    assert table.time_unit == "s"
    assert table.units == {"Time": "s", "x": "m/s"}
    assert "line 2 holds units; it is skipped" in table.notes[0]
    assert read_table(tmp_path / "data.csv", columns=["x [m/s]"]).names == ["x"]


def test_units_that_tell_names_apart_are_kept(tmp_path: Path) -> None:
    text = rows({"t": range(FEW), "T [C]": curve(), "T [K]": curve()[::-1]})
    assert read_table(written(tmp_path, text)).names == ["T [C]", "T [K]"]


def test_other_encodings(tmp_path: Path) -> None:
    text = rows({"t": range(FEW), "Höhe": curve()})
    assert read_table(written(tmp_path, text.encode("utf-16"))).names == ["Höhe"]
    table = read_table(written(tmp_path, text.encode("cp1252")))
    assert table.names == ["Höhe"]
    assert table.notes == ["data.csv is not UTF-8; it is read as Windows-1252."]


def test_gzip(tmp_path: Path) -> None:
    packed = gzip.compress(rows({"t": range(FEW), "x": curve()}).encode())
    assert read_table(written(tmp_path, packed, "data.csv.gz")).names == ["x"]
    with pytest.raises(TableError, match=r"ends in \.gz but is not a gzip file"):
        read_table(written(tmp_path, "t,x\n", "data.csv.gz"))


def test_a_column_of_row_numbers_is_no_variable(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    pd.DataFrame({"x": curve()}).to_csv(path)
    table = read_table(path)
    assert table.names == ["x"]
    assert table.notes == ["the column 'column1' counts rows and was left out."]
    assert table.warnings == ["no column looks like time; rows are taken to be 1 apart."]
    assert table.times[0].tolist() == list(range(FEW))


def test_many_columns_and_only_some_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"t": range(FEW)} | {f"c{i}": np.arange(FEW) ** 2 + i for i in range(1200)}
    path = written(tmp_path, rows(columns))
    table = read_table(path, columns=["c1199", "c7"])
    assert table.values[0][1].tolist() == [1200, 8]
    assert len(read_table(path).names) == 1200
    monkeypatch.setattr(_tables_text, "MAX_CELLS", 100)
    assert read_table(path, columns=["c1199", "c7"]).rows == FEW
    with pytest.raises(TableError, match=r"more than 100 values; .* Name the columns"):
        read_table(path)


def test_reading_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tables_text, "CHUNK_CELLS", 1)
    n = 2500
    text = rows({"t": range(n), "x": np.arange(n) % 7, "id": ["a"] * n})
    table = read_table(written(tmp_path, text), series="id")
    assert table.values[0][:, 0].tolist() == [i % 7 for i in range(n)]
    with pytest.raises(TableError, match="line 2402: got 'bad'"):
        read_table(written(tmp_path, text.replace("\n2400,6", "\n2400,bad")))


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


def test_times_out_of_order(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, rows({"t": [2, 0, 1], "x": [5, 3, 4]})))
    assert table.times[0].tolist() == [0, 1, 2]
    assert table.values[0][:, 0].tolist() == [3, 4, 5]
    assert table.warnings == ["rows were not in the order of time and have been sorted."]


def test_rows_at_the_same_time_are_averaged(tmp_path: Path) -> None:
    t = [*range(20), 7]
    text = rows({"t": t, "x": [*range(20), 9], "y": [*([""] + ["3"] * 6), 4, *range(12), ""]})
    table = read_table(written(tmp_path, text))
    assert table.times[0].tolist() == list(range(20))
    assert table.values[0][7].tolist() == [8, 4]
    assert "1 row at a time that occurred before: averaged with it." in table.warnings


def test_too_many_rows_at_the_same_time(tmp_path: Path) -> None:
    text = rows({"t": [0, 1, 2] * 3, "x": range(9)})
    with pytest.raises(TableError, match=r"6 of 9 rows have the time of another row; .* as series"):
        read_table(written(tmp_path, text))


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
    assert table.notes == [f"series are told apart by the column {name!r}."]


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
    assert "series are told apart by the column 'Versuch'." in table.notes


def test_text_that_does_not_tell_series_apart(tmp_path: Path) -> None:
    path = tmp_path / "mixed.csv"
    path.write_text("t,what,x\n" + "".join(f"{t},a,{t}\n{t},a,{t + 1}\n" for t in range(5)))
    with pytest.raises(TableError, match="5 of 10 rows have the time of another row"):
        read_table(path)


def test_an_id_that_is_not_needed_stays_a_column(tmp_path: Path) -> None:
    text = rows({"id": [3, 1, 2, 5, 9, 4], "t": range(FEW), "x": curve()})
    assert read_table(written(tmp_path, text)).names == ["id", "x"]


def test_marks_of_series_that_look_like_missing_values(tmp_path: Path) -> None:
    text = rows({"land": ["NA"] * 3 + ["DE"] * 3, "t": [0, 1, 2] * 2, "x": curve()})
    assert read_table(written(tmp_path, text), series="land").series == ["NA", "DE"]


def test_rows_without_a_mark(tmp_path: Path) -> None:
    text = rows({"who": ["a", "", "a"], "t": [0, 1, 2], "x": [1, 2, 4]})
    with pytest.raises(TableError, match="series: the column 'who' has rows without a mark"):
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


# ---------------------------------------------------------------- what is said


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "data.csv is empty; expected a table"),
        ("\n \n", {}, "data.csv is empty; expected a table"),
        ("# only\n# words\n", {}, "has only comments; expected rows of numbers"),
        ("t,x\n", {}, "has names but no rows; expected rows of numbers"),
        ("t,x\n0,1\n", {}, "has 1 row with values; expected at least 3 times"),
        ("t,x\n0,1\n1,2\n", {}, "has 2 rows with values; expected at least 3 times"),
        ("t,x\n0,1\n1,abc\n2,3\n", {}, "column 'x', line 3: got 'abc'; expected a number"),
        ("t;x\n0;1,5\n1;1.2.3\n2;3\n", {}, "column 'x', line 3: got '1.2.3'"),
        ("t,x\n0,1\n1,inf\n2,3\n", {}, "column 'x', line 3: got 'inf'"),
        ("t,x\n0,1\n1,2\n2,3,4\n", {}, "line 4: got more than 2 fields; .* by commas"),
        ("t,x\n0,1\nsoon,2\n2,3\n", {}, "column 't': got 'soon' in row 2 as a time"),
        ("date,x\n01/02/2024,1\n02/02/2024,2\n", {}, "expected a number, or a date such as 2024"),
        ("t,x\ninf,1\n1,2\n", {}, "got an infinite time"),
        (
            "date,x\n,1\n,2\nNA,3\n",
            {"time": "date"},
            "column 'date': got no times; expected numbers",
        ),
        ("t,x,x\n0,1,2\n", {}, "got the column 'x' 2 times; expected each name once"),
        ("a,b\nu,v\nw,z\nq,r\n", {}, "has no column of numbers that changes in time"),
        ("t,x\n0,1\n1,1\n2,1\n", {}, "has no column of numbers that changes in time"),
        (
            "t,x\n0,1\n1,1\n2,1\n",
            {"columns": ["x"]},
            "columns: 'x' is 1 everywhere; expected a col",
        ),
        ("t,x\n0,\n1,NA\n2,-\n", {"columns": ["x"]}, "columns: 'x' has no values; expected a col"),
        ("t,x,n\n0,1,a\n1,2,b\n2,3,c\n", {"columns": ["n"]}, "column 'n', line 2: got 'a'"),
        ("t,x\n0,1\n", {"columns": ["X"]}, "columns: .* no column 'X'; did you mean 'x'. Its col"),
        ("t,x\n0,1\n", {"time": "when"}, "time: data.csv has no column 'when'. Its columns: t, x"),
        ("t,x\n0,1\n", {"series": "id"}, "series: data.csv has no column 'id'"),
        ("t,x\n0,1\n", {"inputs": ["u"]}, "inputs: data.csv has no column 'u'"),
        (
            "t,x\n0,1\n",
            {"columns": ["x"], "inputs": ["x"]},
            "'x' is named in columns and in inputs",
        ),
        ("t,x\n0,1\n", {"columns": ["x", "x"]}, "'x' is named in columns and in columns"),
        ("t,x\n0,1\n", {"columns": ["t"], "time": "t"}, "'t' is named in columns and in time"),
        (bytes(range(256)), {}, "data.csv is not text: it begins with"),
        (b"PK\x03\x04" + bytes(99), {}, "Expected a table as CSV or TSV, or a file ending in"),
    ],
)
def test_refused(tmp_path: Path, text: str | bytes, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TableError, match=message):
        read_table(written(tmp_path, text), **options)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.binary(max_size=80)
    | st.text(alphabet="txy,;\t|. \n\r\"'#%-+eE0123456789NA:/TZ[]()é", max_size=120)
)
def test_any_content_is_read_or_refused(tmp_path: Path, content: str | bytes) -> None:
    path = written(tmp_path, content)
    try:
        table = read_table(path)
    except TableError:
        return
    for t, values in zip(table.times, table.values):
        assert (np.diff(t) > 0).all()
        assert values.shape == (len(t), len(table.names))
        assert not np.isinf(values).any()


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    text = rows({"t": range(4), "x": [1, 2, 4, 3], "c": [3] * 4, "n": list("abcd"), "e": [""] * 4})
    table = read_table(written(tmp_path, text))
    assert table.names == ["x"]
    assert table.warnings == [
        "the column 'c' is 3 everywhere and was left out.",
        "the column 'n' is text and was left out (series= tells series apart by it).",
        "the column 'e' has no values and was left out.",
    ]


def test_missing_values_are_counted(tmp_path: Path) -> None:
    text = rows({"t": range(4), "x": [1, "", 4, 3], "y": [1, "NA", "-", 3]})
    table = read_table(written(tmp_path, text))
    assert table.notes == ["1 row without any value: left out.", "1 of 6 values are missing."]
    assert table.missing == 1


def test_no_such_file(tmp_path: Path) -> None:
    written(tmp_path, "t,x\n", "lorenz.csv")
    with pytest.raises(TableError, match=r"there is no file .*lorens\.csv; did you mean 'lorenz\."):
        read_table(tmp_path / "lorens.csv")
    with pytest.raises(TableError, match=r"there is no file .*\.$"):
        read_table(tmp_path / "nowhere" / "data.csv")
    with pytest.raises(TableError, match="is a folder; expected a file"):
        read_table(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = written(tmp_path, "t,x\n0,1\n")
    path.chmod(0)
    with pytest.raises(TableError, match="may not be read; change its permissions"):
        read_table(path)


# ---------------------------------------------------------------- other formats


def same(table: Table) -> None:
    assert table.names == ["x", "y"]
    assert table.times[0].tolist() == [0, 1, 2, 3, 4, 5]
    np.testing.assert_array_equal(table.values[0][:, 0], curve())


@pytest.mark.parametrize(
    "record",
    [
        {"t": list(range(FEW)), "x": curve(), "y": [1, 2, None, 4, 5, 7]},
        [{"t": i, "x": v, "y": i * i} for i, v in enumerate(curve())],
        {"columns": ["t", "x", "y"], "data": [[i, v, i * i] for i, v in enumerate(curve())]},
    ],
)
def test_json(tmp_path: Path, record: Any) -> None:
    same(read_table(written(tmp_path, json.dumps(record), "data.json")))


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, t=np.arange(FEW), x=curve(), y=np.arange(FEW) ** 2)
    same(read_table(path))
    np.savez(path, t=np.arange(FEW), X=np.random.default_rng(0).random((FEW, 2)))
    assert read_table(path).names == ["X1", "X2"]


def test_npy(tmp_path: Path) -> None:
    path = tmp_path / "data.npy"
    values = np.random.default_rng(0).random((2, FEW, 3))
    np.save(path, values)
    table = read_table(path)
    assert table.names == ["x1", "x2", "x3"]
    np.testing.assert_array_equal(table.values[1], values[1])
    np.save(path, values[0])
    np.testing.assert_array_equal(read_table(path).values[0], values[0])
    np.save(path, values[0, :, 0])
    assert read_table(path).values[0].shape == (FEW, 1)


def test_netcdf(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    path = tmp_path / "data.nc"
    when = pd.date_range("2000-01-01", periods=FEW, freq="D")
    data = {"x": ("time", curve()), "map": (("time", "lat"), np.zeros((FEW, 2)))}
    xarray.Dataset(data, coords={"time": when}).to_netcdf(path, engine="h5netcdf")
    table = read_table(path)
    assert table.names == ["x"]
    assert table.time_unit == "days since 2000-01-01"
    assert table.notes == ["left out, not a series along 'time': map ('time', 'lat')."]
    del data["x"]
    xarray.Dataset(data, coords={"time": when}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(
        TableError, match=r"expected variables along 'time' alone\. Select one place"
    ):
        read_table(path)


def save(path: Path, **arrays: Any) -> None:
    np.savez(path, **arrays) if path.suffix == ".npz" else np.save(path, arrays["a"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.json", "{", "cannot be read as .json: JSONDecodeError"),
        ("data.json", "3", "got JSON that is no table"),
        ("data.json", '{"t": [1, 2], "x": [1]}', r"got columns of different lengths \(t 2, x 1\)"),
        ("data.json", "[]", "got JSON that is no table"),
        ("data.npy", "junk", "cannot be read as .npy: ValueError"),
        ("data.npz", "junk", "cannot be read as .npz"),
        ("data.nc", "junk", r"data\.nc: not a NetCDF file"),
        ("data.npy", {"a": np.array(["a", "b"])}, "got an array of <U1 with shape"),
        ("data.npy", {"a": np.zeros((2, 2, 2, 2))}, r"with shape \(2, 2, 2, 2\); expected numbers"),
        (
            "data.npy",
            {"a": np.array([{}], object)},
            "data.npy holds Python objects; expected numbers",
        ),
        ("data.npz", {"a": np.zeros(3), "b": np.zeros((2, 2, 2))}, "got 'b' with shape"),
        ("data.npz", {"a": np.zeros(3), "b": np.zeros(4)}, r"different lengths \(a 3, b 4\)"),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, content: Any, message: str) -> None:
    path = tmp_path / name
    if isinstance(content, dict):
        save(path, **content)
    else:
        path.write_text(content)
    with pytest.raises(TableError, match=message):
        read_table(path)


@pytest.mark.parametrize(("name", "package"), [("a.parquet", "pyarrow"), ("a.xlsx", "openpyxl")])
def test_formats_that_need_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    def absent(*_: object) -> None:
        raise ImportError(f"Missing optional dependency {package!r}")

    monkeypatch.setattr(pd, "read_parquet", absent)
    monkeypatch.setattr(pd, "read_excel", absent)
    with pytest.raises(MissingPackageError, match=rf"{package} is needed to read .*save the table"):
        read_table(written(tmp_path, "PK", name))


def test_formats_that_pandas_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"t": range(FEW), "x": curve(), "y": np.arange(FEW) ** 2})
    monkeypatch.setattr(pd, "read_parquet", lambda path: frame)
    same(read_table(written(tmp_path, "PAR1", "a.parquet")))
