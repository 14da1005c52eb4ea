"""Tables of text as people keep them: separators, decimals, comments, names, units, encodings."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.written_tables import FEW, curve, rows, written
from smnn.data import TableError, _text, read_table

pd = pytest.importorskip("pandas")


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
    assert "line 2 holds units." in table.notes[0]
    assert read_table(tmp_path / "data.csv", columns=["x [m/s]"]).names == ["x"]


def test_units_that_tell_names_apart_are_kept(tmp_path: Path) -> None:
    text = rows({"t": range(FEW), "T [C]": curve(), "T [K]": curve()[::-1]})
    assert read_table(written(tmp_path, text)).names == ["T [C]", "T [K]"]


def test_other_encodings(tmp_path: Path) -> None:
    text = rows({"t": range(FEW), "Höhe": curve()})
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        assert read_table(written(tmp_path, text.encode(encoding))).names == ["Höhe"]
    table = read_table(written(tmp_path, text.encode("cp1252")))
    assert table.names == ["Höhe"]
    assert table.notes == ["data.csv is not UTF-8; it is read as Windows-1252."]


def test_stated_encoding(tmp_path: Path) -> None:
    text = "Zeit;Größe\n" + "".join(f"{i};{i * i},5\n" for i in range(9))
    for encoding in ("latin-1", "utf-16-le", "utf-32", "cp037"):
        path = written(tmp_path, text.encode(encoding))
        assert read_table(path, encoding=encoding).names == ["Größe"]
    for wrong in ("utf-8", "nonsense"):
        with pytest.raises(
            TableError, match=f"encoding: got '{wrong}', with which .*cannot be read"
        ):
            read_table(path, encoding=wrong)


def test_json_with_another_ending(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"holds JSON; .*End its name in \.json"):
        read_table(written(tmp_path, b'[{"t": 0, "x": 1}, {"t": 1, "x": 2}]'))


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
    monkeypatch.setattr(_text, "MAX_CELLS", 100)
    assert read_table(path, columns=["c1199", "c7"]).rows == FEW
    with pytest.raises(TableError, match=r"more than 100 values; .* Name the columns"):
        read_table(path)


def test_reading_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_text, "CHUNK_CELLS", 1)
    n = 2500
    text = rows({"t": range(n), "x": np.arange(n) % 7, "id": ["a"] * n})
    table = read_table(written(tmp_path, text), series="id")
    assert table.values[0][:, 0].tolist() == [i % 7 for i in range(n)]
    with pytest.raises(TableError, match="line 2402: got 'bad'"):
        read_table(written(tmp_path, text.replace("\n2400,6", "\n2400,bad")))
