"""The same data in every form, on disk and in memory: bitwise the same series."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.written_tables import FEW
from smnn.data import DataError, TimeSeriesData, read

pd = pytest.importorskip("pandas")
RNG = np.random.default_rng(0)
N = 40
T = 0.1 * np.arange(N)
X = RNG.standard_normal((N, 2)) / 3
X[5, 1] = np.nan
DATES = np.datetime64("2024-02-27T06:00", "us") + 6 * np.arange(N).astype("m8[h]")
FRAME = pd.DataFrame({"time": T, "x": X[:, 0], "y": X[:, 1]})
DATED = FRAME.assign(time=DATES)


def same(a: TimeSeriesData, b: TimeSeriesData, names: bool = True) -> None:
    assert not names or (a.names, a.time_name) == (b.names, b.time_name)
    assert (a.time_unit or "") == (b.time_unit or "")
    assert a.zone == b.zone
    assert len(a.times) == len(b.times)
    for p, q in zip([*a.times, *a.values], [*b.times, *b.values]):
        np.testing.assert_array_equal(p, q)
    assert (a.dates is None) == (b.dates is None)


def files(frame: Any, folder: Path) -> dict[str, Callable[[], Any]]:
    """Writes the frame in a format and returns what is to be read."""

    def csv(**options: Any) -> Path:
        frame.to_csv(folder / "a.csv", index=False, **options)
        return folder / "a.csv"

    def written(name: str, write: Callable[[Path], Any]) -> Path:
        write(folder / name)
        return folder / name

    def xarray() -> Any:
        pytest.importorskip("xarray")
        return frame.set_index("time").to_xarray()

    def netcdf() -> Path:
        pytest.importorskip("h5netcdf")
        xarray().to_netcdf(folder / "a.nc", engine="h5netcdf")
        return folder / "a.nc"

    def needs(package: str, make: Callable[[], Any]) -> Any:
        pytest.importorskip(package)
        return make()

    def polars() -> Any:
        import polars as pl

        return pl.DataFrame({c: frame[c].to_numpy() for c in frame}).fill_nan(None)

    return {
        "csv": csv,
        "tsv": lambda: csv(sep="\t"),
        "german csv": lambda: csv(sep=";", decimal=","),
        "json": lambda: written("a.json", lambda p: frame.to_json(
            p, orient="records", date_format="iso", double_precision=15)),
        "parquet": lambda: needs("pyarrow", lambda: written("a.parquet", frame.to_parquet)),
        "parquet with an index": lambda: needs("pyarrow", lambda: written(
            "a.parquet", frame.set_index("time").to_parquet)),
        "feather": lambda: needs("pyarrow", lambda: written("a.feather", frame.to_feather)),
        "excel": lambda: needs("openpyxl", lambda: written(
            "a.xlsx", lambda p: frame.to_excel(p, index=False))),
        "pandas": lambda: frame,
        "index": lambda: frame.set_index("time"),
        "index without a name": lambda: frame.set_index("time").rename_axis(None),
        "shuffled": lambda: frame.sample(frac=1, random_state=0),
        "polars": lambda: needs("polars", polars),
        "lazy polars": lambda: needs("polars", lambda: polars().lazy()),
        "arrow": lambda: needs("pyarrow", lambda: __import__("pyarrow").Table.from_pandas(frame)),
        "xarray": xarray,
        "netcdf": netcdf,
        "dictionary of arrays": lambda: {c: frame[c].to_numpy() for c in frame},
        "dictionary of lists": lambda: {c: frame[c].tolist() for c in frame},
        "list of rows": lambda: frame.to_dict("records"),
    }  # fmt: skip


FORMS = list(files(FRAME, Path()))
ROUNDED = ("json", "excel")
"""Forms that pandas writes with 15 or 16 digits."""


@pytest.mark.parametrize("form", FORMS)
def test_numbers(form: str, tmp_path: Path) -> None:
    frame = FRAME.round(9) if form in ROUNDED else FRAME
    same(read(files(frame, tmp_path)[form]()), read(frame))


@pytest.mark.parametrize("form", FORMS)
def test_dates(form: str, tmp_path: Path) -> None:
    frame = DATED.round(9) if form in ROUNDED else DATED
    found = read(files(frame, tmp_path)[form]())
    same(found, read(frame))
    assert found.time_unit == "hours since 2024-02-27T06:00:00"
    assert found.step == 6


@pytest.mark.parametrize(
    "data",
    [X, X.tolist(), torch.as_tensor(X), [X], X[None], [torch.as_tensor(X)], dict(zip("xy", X.T))],
    ids=["numpy", "lists", "torch", "list", "three axes", "list of tensors", "dict"],
)  # fmt: skip
@pytest.mark.parametrize(
    "time", [T, torch.as_tensor(T), 0.1, T.tolist()], ids=lambda t: type(t).__name__
)
def test_arrays(data: Any, time: Any) -> None:
    same(read(data, time=time, columns=["x", "y"]), read(FRAME))
    same(read(data, time=DATES, columns=["x", "y"]), read(DATED))


def test_npz_and_npy(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", time=T, x=X[:, 0], y=X[:, 1])
    same(read(tmp_path / "a.npz"), read(FRAME))
    np.save(tmp_path / "a.npy", np.column_stack([T, X]))
    same(read(tmp_path / "a.npy"), read(FRAME), names=False)


def test_an_array_without_times_has_only_variables() -> None:
    data = read(np.column_stack([T, X]))
    assert data.names == ["x1", "x2", "x3"]
    assert data.times[0].tolist() == list(range(N))


# ---------------------------------------------------------------- series


def long(kind: str) -> Any:
    frame = pd.concat([FRAME.assign(run=name) for name in ("a", "b")], ignore_index=True)
    if kind == "polars":
        pytest.importorskip("polars")
        pytest.importorskip("pyarrow")
        return __import__("polars").from_pandas(frame)
    if kind == "two levels":
        return frame.set_index(["run", "time"])
    if kind == "dictionary":
        return {"a": FRAME, "b": FRAME}
    if kind == "list":
        return [FRAME, FRAME]
    if kind == "three axes":
        return np.stack([X, X])
    return frame


@pytest.mark.parametrize(
    "kind", ["column", "two levels", "polars", "dictionary", "list", "three axes"]
)
def test_several_series(kind: str) -> None:
    options = {"time": T, "columns": ["x", "y"]} if kind == "three axes" else {}
    data = read(long(kind), **options)
    assert len(data.series) == 2
    assert kind in ("list", "three axes") or data.series == ["a", "b"]
    for t, values in zip(data.times, data.values):
        np.testing.assert_array_equal(t, T)
        np.testing.assert_array_equal(values, X)


def test_kinds_of_columns() -> None:
    """Nullable, boolean, categorical, decimal and masked columns."""
    from decimal import Decimal

    frame = pd.DataFrame({
        "t": pd.Categorical(["2024-01-01", "2024-01-02", "2024-01-03"]),
        "n": pd.array([1, None, 3], dtype="Int64"),
        "b": pd.array([True, None, False], dtype="boolean"),
        "d": [Decimal("1.5"), None, Decimal("2.25")], "s": ["1,5", "", "2,25"],
    })  # fmt: skip
    expected = [[1, 1, 1.5, 1.5], [np.nan] * 4, [3, 0, 2.25, 2.25]]
    np.testing.assert_array_equal(read(frame).values[0], expected)
    masked = {"t": np.arange(3.0), "x": np.ma.masked_equal([1.0, 2, 3], 2)}
    np.testing.assert_array_equal(read(masked).values[0][:, 0], [1, np.nan, 3])
    np.testing.assert_array_equal(read(masked["x"]).values[0][:, 0], [1, np.nan, 3])
    assert read([["2024-01-01", 1.0], ["2024-01-02", 2.0]]).time_unit == "days since 2024-01-01"


# ---------------------------------------------------------------- the index of a frame


def test_a_plain_index_is_no_time() -> None:
    frame = pd.DataFrame({"x": [1.0, 3, 2], "y": [2.0, 5, 1]})
    assert read(frame).time_name is None
    assert read(frame.iloc[::-1]).time_name is None


def test_an_index_of_years_is_the_time() -> None:
    data = read(pd.Series([1.0, 3, 2], index=[1900, 1901, 1905], name="hare"))
    assert (data.names, data.times[0].tolist()) == (["hare"], [1900, 1901, 1905])
    named = pd.Series([1.0, 3, 2], index=pd.RangeIndex(1900, 1903, name="year"), name="hare")
    assert read(named).time_unit == "years"


def test_a_time_that_is_named_replaces_the_index() -> None:
    frame = FRAME.assign(clock=T * 2).set_index("time")
    data = read(frame, time="clock")
    assert (data.names, data.time_name) == (["x", "y"], "clock")
    assert "the index 'time' of the data frame was left out." in data.notes


@pytest.mark.parametrize(("index", "unit"), [
    (pd.to_timedelta(np.arange(N) * 90, unit="s"), "minutes"),
    (pd.date_range("2024-01-01", periods=N, freq="h"), "hours since 2024-01-01"),
    (pd.period_range("2024-01", periods=N, freq="M"), "days since 2024-01-01"),
    (pd.date_range("2024-03-30", periods=N, freq="D", tz="Europe/Berlin"), "days since 2024-03-30"),
])  # fmt: skip
def test_kinds_of_index(index: Any, unit: str) -> None:
    data = read(pd.DataFrame(X, columns=["x", "y"], index=index))
    assert data.time_unit == unit
    assert data.zone == ("Europe/Berlin" if "03-30" in unit else None)


def test_time_zones_survive_a_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = DATED.assign(time=DATED["time"].dt.tz_localize("America/New_York"))
    frame.to_parquet(tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet")
    same(found, read(frame))
    assert "(America/New_York)" in found.summary()
    assert "from 2024-02-27T06:00:00 to" in found.summary()


def test_frame_of_the_result() -> None:
    frame = read(DATED).to_frame()
    np.testing.assert_array_equal(frame.to_numpy(), X)
    np.testing.assert_array_equal(frame.index.to_numpy().astype("M8[us]"), DATES)
    both = read(long("column")).to_frame()
    assert list(both.columns) == ["a x", "a y", "b x", "b y"]
    assert read(long("column"), columns=["x"]).to_frame().shape == (N, 2)


def test_frame_of_times_with_a_zone() -> None:
    """Local time, or UTC where clocks are set back."""
    for start, hour, zone in (("2024-03-01", 0, "Europe/Berlin"), ("2024-10-27", 22, "UTC")):
        dates = pd.date_range(start, periods=N, freq="h", tz="Europe/Berlin")
        frame = read(pd.DataFrame(X, columns=["x", "y"], index=dates)).to_frame()
        assert (frame.index[0].hour, frame.attrs["time_zone"]) == (hour, zone)


# ---------------------------------------------------------------- spreadsheets, units, odd types


def test_a_spreadsheet_with_lines_above_and_units(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["Pump 3"], [], ["time", "flow", "note"], ["s", "l/min", None], [0, 1.5, "a"],
                [1, "n.d.", "b"], [2, 2.5, None]):  # fmt: skip
        book.active.append(row)
    book.create_sheet("other").append(["t", "z"])
    for row in ([0, 4], [1, 5]):
        book["other"].append(row)
    book.save(tmp_path / "a.xlsx")
    data = read(tmp_path / "a.xlsx")
    assert (data.names, data.time_unit, data.units["flow"]) == (["flow"], "s", "l/min")
    assert data.times[0].tolist() == [0, 1, 2]
    assert "a.xlsx: the sheet 'Sheet' is read; sheet= names another." in data.notes
    assert read(tmp_path / "a.xlsx", sheet="other").names == ["z"]
    with pytest.raises(DataError, match="has no sheet 'third': Sheet, other"):
        read(tmp_path / "a.xlsx", sheet="third")


def test_units_of_xarray() -> None:
    xarray = pytest.importorskip("xarray")
    values = xarray.DataArray(
        X[:, 0], dims="time", coords={"time": T}, name="v", attrs={"units": "V"}
    )
    assert read(values).units == {"v": "V"}
    wide = xarray.DataArray(X, dims=("time", "place"), coords={"time": T, "place": ["a", "b"]})
    assert read(wide).names == ["a", "b"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (object(), "got an object of type object; expected a path, a pandas, polars"),
        ([], "got an empty list; expected at least one series"),
        (np.zeros((2, 2, 2, 2)), r"got an array of float64 with shape \(2, 2, 2, 2\)"),
        (np.array(["a"]), "got an array of <U1"),
        ({"t": [1, 2], "x": [1]}, r"columns of different lengths \(t 2, x 1\)"),
        ([pd.DataFrame({"a": [1]}), pd.DataFrame({"b": [1]})], "series '2' has the columns b"),
        (pd.DataFrame({"t": [0, 1], "x": [1.0, np.inf]}), "column 'x', row 2: got 'inf'"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "got the column 'a' 2 times"),
        ({"x": np.zeros(3) + 1j}, "got a column of complex128; expected numbers, dates or text"),
    ],
)  # fmt: skip
def test_refused_objects(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(data)


@pytest.mark.parametrize("time", [-1.0, np.arange(3.0)])
def test_refused_times(time: Any) -> None:
    with pytest.raises(
        DataError, match=r"time: got -1.0; expected a pos|time: got 3 times; expected 40"
    ):
        read(X, time=time)


def test_arrays_need_no_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    same(read(X, time=T, columns=["x", "y"]), read({"time": T, "x": X[:, 0], "y": X[:, 1]}))


# ---------------------------------------------------------------- whatever is written is read

NUMBERS = st.floats(-90, 90) | st.just(np.nan)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.tuples(NUMBERS, NUMBERS), min_size=FEW, max_size=12),
    st.sampled_from(["csv", "tsv", "german csv", "json", "pandas", "index", "polars", "arrow",
                     "dictionary of lists", "list of rows", "parquet"]),
    st.booleans(),
)  # fmt: skip
def test_any_table_survives(
    tmp_path: Path, body: list[tuple[float, float]], form: str, dated: bool
) -> None:
    values = np.array(body)
    if not np.isfinite(values).any(0).all():
        return
    values = values.round(9) if form == "json" else values
    t = DATES[: len(values)] if dated else T[: len(values)].round(9)
    frame = pd.DataFrame({"time": t, "x": values[:, 0], "y": values[:, 1]})
    data = read(files(frame, tmp_path)[form]())
    np.testing.assert_array_equal(data.values[0], values)
    if dated:
        assert data.dates is not None
        np.testing.assert_array_equal(data.dates[0], DATES[: len(values)])
    else:
        np.testing.assert_array_equal(data.times[0], t)


def test_an_index_with_a_step_is_time() -> None:
    assert read(FRAME.drop(columns="time").reset_index(drop=True)[::5]).times[0][1] == 5.0


def test_unnamed_levels_of_an_index() -> None:
    index = pd.MultiIndex.from_product([[1, 2], [0, 1, 2]])
    with pytest.raises(DataError, match=r"several levels without names.*index\.names"):
        read(pd.DataFrame({"x": np.arange(6.0)}, index=index))


def test_a_second_column_of_times_beside_an_index() -> None:
    frame = pd.DataFrame({"x": [1.0, 3, 2], "time": [0.0, 1, 2]}, index=[0.0, 0.5, 1.0])
    data = read(frame)
    assert (data.names, data.step) == (["x"], 0.5)
    assert "another column of times" in data.warnings[0]
    assert read(frame, columns=["x", "time"]).names == ["x", "time"]


def test_a_truth_value_for_the_time() -> None:
    with pytest.raises(DataError, match="time: got True"):
        read(X, time=True)


def test_half_precision_tensors() -> None:
    values = torch.tensor([1.0, 2.0, 4.0], dtype=torch.bfloat16, requires_grad=True)
    np.testing.assert_array_equal(read(values).values[0][:, 0], [1, 2, 4])


def test_large_integers_of_arrow() -> None:
    pa = pytest.importorskip("pyarrow")
    data = read(pa.table({"t": [0, 1, 2], "x": [2**53 + 2, 2**53 + 4, None]}))
    np.testing.assert_array_equal(data.values[0][:, 0], [2**53 + 2, 2**53 + 4, np.nan])


def test_dimensions_without_a_time() -> None:
    xr = pytest.importorskip("xarray")
    with pytest.raises(DataError, match=r"dimensions a \(4\), b \(3\); expected one called time"):
        read(xr.DataArray(np.zeros((4, 3)), dims=("a", "b")))
    data = read(xr.DataArray(np.arange(12.0).reshape(3, 4), dims=("t", "x")))
    assert data.values[0].shape == (3, 4)
    assert data.time_name == "t"


def test_rows_that_were_selected_keep_their_column_of_times() -> None:
    frame = pd.DataFrame({"t": 0.5 * np.arange(10), "x": np.arange(10.0)})
    for rows in (frame[frame.x > 3], frame[::2], frame.drop(index=4)):
        data = read(rows)
        assert (data.time_name, data.names) == ("t", ["x"])
        np.testing.assert_array_equal(data.times[0], rows.t)


def test_all_other_levels_of_an_index_separate_series() -> None:
    keys = pd.MultiIndex.from_product([["A", "B"], [1, 2], [0.0, 0.5]], names=["site", "plot", "t"])
    data = read(pd.DataFrame({"x": np.ones(8)}, index=keys))
    assert (data.time_name, data.series) == ("t", ["A 1", "A 2", "B 1", "B 2"])
    where = pd.MultiIndex.from_product([DATES[:3], [47.5, 48.5]], names=["when", "lat"])
    assert read(pd.DataFrame({"x": np.arange(6.0)}, index=where)).series == ["47.5", "48.5"]


def test_lists_in_cells_are_left_out() -> None:
    polars = pytest.importorskip("polars")
    cells = {"t": [0, 1, 2], "x": [1, 2, 3], "z": [[1, 2]] * 3}
    for frame in (pd.DataFrame(cells), polars.DataFrame(cells)):
        assert read(frame).names == ["x"]


def test_sheets(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    path = tmp_path / "a.xlsx"
    with pd.ExcelWriter(path) as book:
        pd.DataFrame().to_excel(book, sheet_name="empty")
        pd.DataFrame({"about": ["words"]}).to_excel(book, sheet_name="about", index=False)
        pd.DataFrame({"t": [0, 1], "x": [2, 3]}).to_excel(book, sheet_name="b", index=False)
    with pytest.raises(DataError, match=r"a\.xlsx, sheet 'about' has no column of numbers"):
        read(path)
    assert read(path, sheet="b").summary().startswith("a.xlsx, sheet 'b': time 't'")
