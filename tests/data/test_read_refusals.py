"""Tables that cannot be read, or not in full: what is said."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.written_tables import rows, written
from smnn.data import TableError, read, read_table

pytest.importorskip("pandas")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("\n \n", {}, "data.csv is empty; expected a table"),
        ("# only\n# words\n", {}, "has only comments; expected rows of numbers"),
        ("t,x\n0,1\n", {}, "has 1 row with values; expected at least 3 times"),
        ("t,x\n0,1\n1,2\n", {}, "has 2 rows with values; expected at least 3 times"),
        ("t,x\n0,1\n1,abc\n2,3\n", {}, "column 'x', line 3: got 'abc'; expected a number"),
        ("t;x\n0;1,5\n1;1.2.3\n2;3\n", {}, "column 'x', line 3: got '1.2.3'"),
        ("t,x\n0,1\n1,inf\n2,3\n", {}, "column 'x', line 3: got 'inf'"),
        (
            "t,x\n0,1\nsoon,2\n2,3\n",
            {},
            "time column 't' has 'soon' in line 3; expected a number, or a date",
        ),
        (
            "date,x\n01/02/2024,1\n02/02/2024,2\n",
            {},
            "may be 2024-02-01 .dayfirst=True. or 2024-01-02 .dayfirst=False.",
        ),
        ("t,x\ninf,1\n1,2\n", {}, "time column 't' has an infinite entry"),
        (
            "date,x\n,1\n,2\nNA,3\n",
            {"time": "date"},
            "time column 'date' got no times; expected numbers",
        ),
        ("a,b\nu,v\nw,z\nq,r\n", {}, "has no column of numbers beside the time"),
        ("t,x\n0,1\n1,1\n2,1\n", {}, "has no column of numbers that changes in time"),
        (
            "t,x\n0,1\n1,1\n2,1\n",
            {"columns": ["x"]},
            "columns: 'x' is 1 everywhere; expected a col",
        ),
        ("t,x\n0,\n1,NA\n2,-\n", {"columns": ["x"]}, "columns: 'x' has no values; leave it out"),
        ("t,x,n\n0,1,a\n1,2,b\n2,3,c\n", {"columns": ["n"]}, "column 'n', line 2: got 'a'"),
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
        (b"PK\x03\x04" + bytes(99), {}, "Expected a table as CSV or TSV, plain or .gz, or a file"),
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
        "the column 'n' is text, such as 'a', and was left out (series= separates series by it).",
        "the column 'e' has no values and was left out.",
        "the column 'c' is 3 everywhere and was left out.",
    ]


def test_missing_values_are_counted(tmp_path: Path) -> None:
    text = rows({"t": range(4), "x": [1, "", 4, 3], "y": [1, "NA", "-", 3]})
    table = read_table(written(tmp_path, text))
    assert table.notes == ["1 row without any value: left out."]
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
    with pytest.raises(TableError, match="cannot be read: permission denied"):
        read_table(path)


def test_an_unknown_argument() -> None:
    with pytest.raises(TypeError, match="read: got an unknown argument 'tim'; did you mean 'time'"):
        read([1.0, 2.0], tim="t")  # type: ignore[call-arg]
