"""Irregular tables: each is read as expected, or refused with a reason; none is misread."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from data.written_tables import written
from smnn.data import DataError, describe, read
from smnn.forecasting import read_series

pd = pytest.importorskip("pandas")
nan = float("nan")


class Read(NamedTuple):
    """What is expected of the first series."""

    names: str
    times: list[float]
    values: list[Any]
    """Of the first variable."""
    unit: str | None = None
    said: str = ""
    """Part of a note or a warning."""
    series: str = ""
    options: dict[str, Any] = {}  # noqa: RUF012
    first: str | None = None
    zone: str | None = None


class Refused(NamedTuple):
    """What the error says."""

    message: str
    options: dict[str, Any] = {}  # noqa: RUF012


def L(*rows: str) -> str:
    return "\n".join(rows) + "\n"


def days(form: str, count: int, values: str = "y") -> str:
    dates = np.datetime64("2024-01-01") + np.arange(count)
    return L(f"date,{values}", *(f"{d.item().strftime(form)},{i}" for i, d in enumerate(dates)))


def months(form: str, count: int = 4) -> str:
    dates = (np.datetime64("2024-01") + np.arange(count)).astype("M8[D]")
    return L("date,y", *(f"{d.item().strftime(form)},{i}" for i, d in enumerate(dates)))


STARTS = [0.0, 31.0, 60.0, 91.0]
LONG = [f"{e},{t},{t * e},{t + e}" for e in (1, 2, 3) for t in range(4)]
CASES: dict[str, tuple[str, Read | Refused]] = {
    # ------------------------------------------------------------ dates
    "day first, decided by the rows": (
        days("%d/%m/%Y", 40), Read("y", [*range(40)], [*range(40)], "days", first="2024-01-01")
    ),
    "month first, decided by the rows": (
        days("%m/%d/%Y", 40), Read("y", [*range(40)], [*range(40)], "days", first="2024-01-01")
    ),
    "day or month first": (
        months("%d/%m/%Y"),
        Refused(r"'01/02/2024', which may be 2024-02-01 \(dayfirst=True\) or 2024-01-02 \(day"),
    ),
    "day first, stated": (
        months("%d/%m/%Y"), Read("y", STARTS, [0, 1, 2, 3], "days", options={"dayfirst": True})
    ),
    "month first, stated": (
        months("%d/%m/%Y"), Read("y", [0, 1, 2, 3], [0, 1, 2, 3], "days",
                                 options={"dayfirst": False}),
    ),
    "stated against the rows": (
        days("%d/%m/%Y", 40), Refused(r"dayfirst: got False.* '13/01/2024'", {"dayfirst": False})
    ),
    "both orders in one column": (
        L("date,y", "13/01/2024,1", "01/14/2024,2", "15/01/2024,3"),
        Refused(r"has '13/01/2024' and '01/14/2024', one with the day first and one with"),
    ),
    "dotted dates": (months("%d.%m.%Y"), Read("y", STARTS, [0, 1, 2, 3], "days")),
    "two digits of the year": (
        days("%d/%m/%y", 20), Read("y", list(range(20)), list(range(20)), "days", "2024 to 2024")
    ),
    "slashes, year first": (months("%Y/%m/%d"), Read("y", STARTS, [0, 1, 2, 3], "days")),
    "names of months": (months("%d %b %Y"), Read("y", STARTS, [0, 1, 2, 3], "days")),
    "months alone": (months("%b %Y"), Read("y", STARTS, [0, 1, 2, 3], "days")),
    "packed dates": (months("%Y%m%d"), Read("y", STARTS, [0, 1, 2, 3], "days", "YYYYMMDD")),
    "packed months": (months("%Y%m"), Read("y", STARTS, [0, 1, 2, 3], "days", "YYYYMM")),
    "quarters": (
        L("quarter,y", "2020Q4,2", "2021Q1,3"), Read("y", [0, 92], [2, 3], "days")
    ),
    "ISO weeks": (
        L("week,y", "2020-W53,2", "2021-W01,3", "2021-W02,4"),
        Read("y", [0, 7, 14], [2, 3, 4], "days", first="2020-12-28"),
    ),
    "year and month": (
        L("year,month,y", "2020,11,2", "2020,12,3", "2021,1,4"),
        Read("y", [0, 30, 61], [2, 3, 4], "days", "columns year.month together are the time"),
    ),
    "year and quarter": (
        L("y,Year,Quarter", "2,2020,4", "3,2021,1"), Read("y", [0, 92], [2, 3], "days")
    ),
    "year, month and day": (
        L("year,month,day,y", "2020,2,28,2", "2020,2,29,3", "2020,3,1,4"),
        Read("y", [0, 1, 2], [2, 3, 4], "days"),
    ),
    "no such day": (
        L("year,month,day,y", "2020,2,28,2", "2020,2,30,3"),
        Refused("row 2: year 2020, month 2, day 30 is no date of the calendar"),
    ),
    "date and time of day": (
        L("date,time,y", "2020-01-01,23:00,2", "2020-01-02,00:00,3"),
        Read("y", [0, 1], [2, 3], "hours", "the columns date.time together are the time"),
    ),
    "date and hour": (
        L("date,hour,y", *(f"2020-01-0{d},{h},{h}" for d in (1, 2) for h in (0, 12))),
        Read("y", [0, 12, 24, 36], [0, 12, 0, 12], "hours"),
    ),
    "hours that are a variable": (
        L("date,hours,y", "2020-01-01,8,2", "2020-01-02,7.5,3", "2020-01-03,9,4"),
        Read("hours y", [0, 1, 2], [8, 7.5, 9], "days"),
    ),
    "hours of several series": (
        L("id,date,h,y", *(f"{i},2024-01-0{d},{7 + d / 4},{d}" for i in "ab" for d in (1, 2, 3)))
        .replace("h,", "hours,"),
        Read("hours y", [0, 1, 2], [7.25, 7.5, 7.75], "days", series="a b"),
    ),
    "packed dates, day first": (
        L("date,y", "31012024,1", "01022024,2"), Refused("31012024, which is no date of the")
    ),
    "packed dates, day first, stated": (
        L("date,y", "31012024,1", "01022024,2"),
        Read("y", [0, 1], [1, 2], "days", options={"date_format": "%d%m%Y"}),
    ),
    "months with a point": (
        L("date;y", "01.2024;1", "02.2024;2"), Refused("'date' has 1.2024, which is no date")
    ),
    "months before years": (
        L("date,y", "01/2024,1", "02/2024,2"), Read("y", [0, 31], [1, 2], "days")
    ),
    "dates without separators": (
        L("date,y", "31JAN2024:12:00:00,1", "01FEB2024:12:00:00,2"),
        Read("y", [0, 1], [1, 2], "days"),
    ),
    "Unix time": (
        L("timestamp,y", "1704067200,2", "1704070800,3"),
        Read("y", [0, 1], [2, 3], "hours", "seconds since 1970", zone="UTC", first="2024-01-01"),
    ),
    "AM and PM": (
        L("when,y", "01/31/2024 11:00 AM,2", "01/31/2024 12:00 PM,3", "01/31/2024 1:00 PM,4"),
        Read("y", [0, 1, 2], [2, 3, 4], "hours"),
    ),
    "two formats": (
        L("date,y", "2024-01-01,1", "2024-01-02,2", "Jan 3 2024,3"),
        Refused("'Jan 3 2024' in line 4; expected a number, or a date .* in one format"),
    ),
    "a format that is stated": (
        L("date,y", "2024_01_31,1", "2024_02_29,2"),
        Read("y", [0, 29], [1, 2], "days", options={"date_format": "%Y_%m_%d"}),
    ),
    "year of two digits in front": (
        L("date,y", "24-01-31,1", "24-02-01,2", "24-02-02,3"),
        Refused(r"which may be 2024-01-31 or 2031-01-24; .* date_format='%y-%m-%d'"),
    ),
    "packed dates with hours": (
        L("date,y", "2024010123,2", "2024010200,3"), Read("y", [0, 1], [2, 3], "hours", "DDhh")
    ),
    "packed dates with seconds": (
        L("date,y", "20240101235959,2", "20240102000000,3"), Read("y", [0, 1], [2, 3], "seconds")
    ),
    "serial dates of a spreadsheet": (
        L("date,y", "45292,2", "45292.5,3"),
        Read("y", [0, 12], [2, 3], "hours", "serial dates", first="2024-01-01"),
    ),
    "Unix time in microseconds": (
        L("when,time,y", "1,1704067200000000,2", "2,1704067260000000,3"),
        Read("when y", [0, 1], [1, 2], "minutes", "microseconds since 1970", zone="UTC"),
    ),
    "French months": (
        L("date;y", "1 janvier 2024;2", "1 février 2024;3"), Read("y", [0, 31], [2, 3], "days")
    ),
    "weekdays": (
        L("date,y", '"Wednesday, January 31, 2024",2', '"Thursday, February 1, 2024",3'),
        Read("y", [0, 1], [2, 3], "days"),
    ),
    "German quarters": (
        L("Quartal;y", "4. Quartal 2023;2", "1. Quartal 2024;3"), Read("y", [0, 92], [2, 3], "days")
    ),
    "years, months, days and a clock": (
        L("year,month,day,time,y", "2024,1,1,12:00,2", "2024,1,2,00:00,3"),
        Read("y", [0, 12], [2, 3], "hours", "year.month.day.time together"),
    ),
    "packed dates and hours": (
        L("date,hour,y", "20240101,0,1", "20240101,12,2", "20240102,0,3"),
        Read("y", [0, 12, 24], [1, 2, 3], "hours"),
    ),
    "date and clock with PM": (
        L("date,time,y", "01/31/2024,11:00 PM,2", "02/01/2024,12:00 AM,3"),
        Read("y", [0, 1], [2, 3], "hours"),
    ),
    "months as columns": (
        L("year,Jan,Feb,Mar", "2023,1,2,3", "2024,4,5,6"),
        Refused("times as names of columns .Jan, Feb, Mar, .*; expected a row for each time"),
    ),
    "years as columns": (
        L("id,2019,2020,2021", "1,5,6,7", "2,8,9,10"), Refused("times as names of columns .2019")
    ),
    # ------------------------------------------------------------ time zones, elapsed times
    "a zone in the name": (
        L("time [UTC+1],y", "2024-01-01 00:00,1", "2024-01-01 01:00,2"),
        Read("y", [0, 1], [1, 2], "hours", zone="UTC+01:00", first="2024-01-01"),
    ),
    "a zone without a unique offset": (
        L("time,y", "2024-01-01 00:00 CET,1", "2024-01-01 01:00 CET,2"),
        Refused("time zone 'CET', which has no unique offset; expected Z, UTC or an offset such"),
    ),
    "clock times with AM and PM": (
        L("time,y", "11:30 AM,1", "12:30 PM,2"),
        Read("y", [11.5, 12.5], [1, 2], "hours", "counted from midnight"),
    ),
    "one time zone": (
        L("time,y", "2024-01-01T00:00:00+01:00,1", "2024-01-01T01:00:00+01:00,2"),
        Read("y", [0, 1], [1, 2], "hours", first="2024-01-01", zone="UTC+01:00"),
    ),
    "several offsets": (
        L("time,y", "2024-03-31T01:00:00+01:00,1", "2024-03-31T03:00:00+02:00,2"),
        Read("y", [0, 1], [1, 2], "hours", "offsets UTC[+]01:00, UTC[+]02:00", zone="UTC"),
    ),
    "a zone in some rows": (
        L("time,y", "2024-03-31T01:00:00Z,1", "2024-03-31T03:00:00,2"),
        Refused("1 of 2 times state a time zone; expected all or none"),
    ),
    "elapsed time": (
        L("time,y", "00:00:00,1", "00:00:30,2", "00:01:00,3"),
        Read("y", [0, 30, 60], [1, 2, 3], "seconds", "HH:MM:SS are read as elapsed time"),
    ),
    "elapsed time past midnight": (
        L("time,y", "23:00:00,1", "23:30:00,2", "00:00:00,3", "00:30:00,4"),
        Read("y", [1380, 1410, 1440, 1470], [1, 2, 3, 4], "minutes", "continued on the next day"),
    ),
    "elapsed time as pandas writes it": (
        L("time,y", "0 days 23:00:00,1", "1 days 00:00:00,2"), Read("y", [23, 24], [1, 2], "hours")
    ),
    # ------------------------------------------------------------ order and repetition
    "unsorted": (
        L("t,y", "2,6", "1,5", "4,8", "3,7"), Read("y", [1, 2, 3, 4], [5, 6, 7, 8], said="sorted")
    ),
    "newest first": (
        L("t,y", "4,8", "3,7", "2,6", "1,5"), Read("y", [1, 2, 3, 4], [5, 6, 7, 8], said="sorted")
    ),
    "exact duplicates": (
        L("t,y", "1,5", "1,5", "2,6"), Read("y", [1, 2], [5, 6], said="1 row repeated with")
    ),
    "conflicting duplicates": (
        L("t,y", "1,5", "1,6", "2,6"),
        Refused(r"1 of 3 rows have the time of another row but other .* rows 1 and 2 at"),
    ),
    "series below each other without a name": (
        L("t,y", *(f"{t + s / 10},{t}" for s in (0, 1) for t in range(5))),
        Refused("times start over, as if several series stood one below the other"),
    ),
    "rows without a time": (
        L("t,y", "0,1", ",2", "1,3"), Read("y", [0, 1], [1, 3], said="1 row without a time")
    ),
    "a sentinel among the times": (
        L("t,y", "0,1", "1,2", "-9999,3", "2,4"),
        Read("y", [0, 1, 2], [1, 2, 4], said="t: -9999 occurs once, far from all other times"),
    ),
    # ------------------------------------------------------------ series
    "experiments": (
        L("experiment,time,prey,pred", *LONG),
        Read("prey pred", [0, 1, 2, 3], [0, 1, 2, 3], series="1 2 3",
             said="series are separated by the column 'experiment'"),
    ),
    "experiments that follow each other": (
        L("run,time,x", *(f"{r},{4 * r + t},{t}" for r in (1, 2) for t in range(4))),
        Read("x", [4, 5, 6, 7], [0, 1, 2, 3], series="1 2"),
    ),
    "one series on request": (
        L("run,time,x", *(f"{r},{4 * r + t},{t}" for r in (1, 2) for t in range(4))),
        Read("run x", list(range(4, 12)), [1] * 4 + [2] * 4, options={"series": False}),
    ),
    "long, as Nixtla": (
        L("unique_id,ds,y", *(f"{u},2024-01-{d:02d},{d}" for u in "AB" for d in (1, 2, 3))),
        Read("y", [0, 1, 2], [1, 2, 3], "days", series="A B"),
    ),
    "long, with integer names": (
        L("unique_id,ds,y", *(f"{u},2024-01-{d:02d},{d}" for u in (7, 8) for d in (1, 2, 3))),
        Read("y", [0, 1, 2], [1, 2, 3], "days", series="7 8"),
    ),
    "names with leading zeros": (
        L("id,t,y", *(f"{u},{d},{d}" for u in ("007", "08") for d in (1, 2, 3))),
        Read("y", [1, 2, 3], [1, 2, 3], series="007 08"),
    ),
    "two columns of names": (
        L("shop,item,t,y", *(f"{s},{i},{t},{t}" for s in "ab" for i in "xy" for t in range(3))),
        Read("y", [0, 1, 2], [0, 1, 2], series="a x,a y,b x,b y"),
    ),
    "numeric names that nothing says are names": (
        L("station,t,y", *(f"{s},{t},{t * s}" for s in (101, 205) for t in range(4))),
        Refused(r"column that separates them \(such as 'station'\) as series="),
    ),
    # ------------------------------------------------------------ numbers
    "percent": (L("t;y", "0;45,5 %", "1;50 %"), Read("y", [0, 1], [45.5, 50], said="y: '%' b")),
    "currency": (L("t;y", "0;$1,234.50", "1;$999.00"), Read("y", [0, 1], [1234.5, 999])),
    "euros": (
        L("t;y", "0;1.234,50 €", "1;1.240,00 €", "2;999,00 €"),
        Read("y", [0, 1, 2], [1234.5, 1240, 999], said="'€' beside the numbers is read as their"),
    ),
    "units beside the numbers": (
        L("t,y", "0 s,1 kg", "1 s,2 kg"), Read("y", [0, 1], [1, 2], "s", "y: 'kg' beside")
    ),
    "two units in one column": (
        L("t,y", "0,1 kg", "1,2 g"), Refused("got '1 kg' and '2 g'; expected numbers in one unit")
    ),
    "apostrophes": (L("t;y", "0;1’234.5", "1;2'345.0"), Read("y", [0, 1], [1234.5, 2345])),
    "two separators of thousands": (
        L("t;y", "0;1.234.567", "1;2.345.678"), Read("y", [0, 1], [1234567, 2345678])
    ),
    "a point that may separate thousands": (
        L("t;y", "0;1.234", "1;2.345"),
        Read("y", [0, 1], [1.234, 2.345], said="'1.234' is read with a decimal point"),
    ),
    "values with uncertainties": (
        L("t,y", "0,1.0±0.1", "1,2.0±0.1"), Refused("Not numbers: '1.0±0.1' in 'y'")
    ),
    "fill values of NetCDF": (
        L("t,y", *(f"{t},{9.96921e36 if t == 2 else t}" for t in range(4))),
        Read("y", [0, 1, 2, 3], [0, 1, nan, 3], said="9.96921e[+]36 occurs once"),
    ),
    "thousands": (
        L("t,y", '1,"1,234.5"', '2,"12,000"'), Read("y", [1, 2], [1234.5, 12000])
    ),
    "German thousands": (L("t;y", "1;1.234,5", "2;12.000"), Read("y", [1, 2], [1234.5, 12000])),
    "comma for decimals or for thousands": (
        L("t;y", "1;1,234", "2;2,345"),
        Refused(r"column 'y': got '1,234', which may be 1.234 \(decimal comma\) or 1234 \(thous"),
    ),
    "decimal comma, stated": (
        L("t;y", "1;1,234", "2;2,345"),
        Read("y", [1, 2], [1.234, 2.345], options={"decimal": ","}),
    ),
    "decimal comma in a single column": (
        L("y", "1,5", "2,5", "3,5"), Refused("If the comma is a decimal sign, say so with")
    ),
    "decimal point in a file of commas": (
        L("t;x;y", "0,5;1,5;2.5", "1,5;2,5;3.5"), Refused("column 'y', line 2: got '2.5'")
    ),
    "Fortran exponents": (L("t x", "1 1.5D+03", "2 2.5d-1"), Read("x", [1, 2], [1500, 0.25])),
    "below the limit of detection": (
        L("t,y", "1,<LOD", "2,3", "3,n.d.", "4,<0.5", "5,6"),
        Read("y", [1, 2, 3, 4, 5], [nan, 3, nan, nan, 6], said="3 entries '<LOD'"),
    ),
    "a marker of one's own": (
        L("t,x,y", "1,bad,1", "2,3,1", "3,4,1"),
        Read("x y", [1, 2, 3], [nan, 3, 4], options={"na": "bad"}),
    ),
    "sentinels": (
        L("t,x,y", "0,1,1", "1,-999,2", "2,3,3", "3,-999,4", "4,2,5"),
        Read("x y", [0, 1, 2, 3, 4], [1, nan, 3, nan, 2], said="x: -999 occurs 2 times, far"),
    ),
    "sentinels that are kept": (
        L("t,x,y", "0,1,1", "1,-999,2", "2,3,3"),
        Read("x y", [0, 1, 2], [1, -999, 3], options={"na": ()}, said="; kept"),
    ),
    "a number that is far off but no sentinel": (
        L("t,x", "0,1", "1,-998", "2,3"), Read("x", [0, 1, 2], [1, -998, 3])
    ),
    # ------------------------------------------------------------ guesses that would be wrong
    "fiscal years": (
        L("year,y", "2009-10,1", "2010-11,2", "2011-12,3"),
        Refused("'2009-10' and '2011-12', which may be months or years that end in the next one"),
    ),
    "a week that does not exist": (L("week,y", "2021-W52,1", "2021-W53,2"), Refused("'2021-W53'")),
    "packed weeks": (
        L("week,y", "202052,1", "202053,2", "202101,3"),
        Read("y", [0, 7, 14], [1, 2, 3], "days", "ISO weeks YYYYWW", first="2020-12-21"),
    ),
    "a packed week that does not exist": (
        L("week,y", "202152,1", "202153,2"), Refused("202153, which is no week of the form YYYYWW")
    ),
    "days of January or Januaries": (
        L("date,y", "Jan-01,1", "Jan-02,2", "Jan-03,3"), Refused("may be days of a month or months")
    ),
    "days and months without a year": (
        L("date;y", "30.11;1", "01.12;2"), Refused("30.11, .* expected a date with its year")
    ),
    "years of two digits around 1969": (
        L("date,y", "31.12.68,1", "01.01.69,2"),
        Read("y", [0, 1], [1, 2], "days", first="1968-12-31"),
    ),
    "minutes and seconds by their header": (
        L("time (mm:ss),y", "00:30,1", "01:00,2"), Read("y", [30, 60], [1, 2], "seconds", "MM:SS")
    ),
    "minutes and seconds, stated": (
        L("time,y", "59:30,1", "60:30,2"),
        Read("y", [59.5, 60.5], [1, 2], "minutes", options={"date_format": "%M:%S"}),
    ),
    "hours or minutes": (
        L("time,y", "59:30,1", "60:30,2"), Refused("'60:30', which may be hours and minutes or min")
    ),
    "packed date and clock": (
        L("date,y", "20210131 1200,1", "20210131 1300,2"), Read("y", [0, 1], [1, 2], "hours")
    ),
    "clock times HHMM": (
        L("date,time,y", "2021-01-01,30,1", "2021-01-01,130,2", "2021-01-02,0,3"),
        Read("y", [0, 1, 23.5], [1, 2, 3], "hours", "clock times HHMM"),
    ),
    "year and name of the month": (
        L("year,month,y", "2020,Dec,2", "2021,Jan,3"), Read("y", [0, 31], [2, 3], "days")
    ),
    "a temperature called T": (L("T,time", "5,0", "6,1", "9,2"), Read("T", [0, 1, 2], [5, 6, 9])),
    "two columns of the same times": (
        L("t,timestamp,y", "0,1704067200,1", "1,1704067260,2"),
        Read("y", [0, 1], [1, 2], said="'timestamp' is another column of times and was left out"),
    ),
    "columns with times of their own": (
        L("time1,x1,time2,x2", "0,1,.5,1", "1,2,1.5,2", "2,1,2.5,4"),
        Refused("several columns of times .time1, time2. that"),
    ),
    "names of series in merged cells": (
        L("subject,t,x", "A,0,1", ",1,2", "B,2,1", ",3,2"), Refused("names a series in 2 of 4 rows")
    ),
    "names of variables in a column": (
        L("time,variable,value", *(f"{t},{v},{t}" for t in range(3) for v in "ab")),
        Read("value", [0, 1, 2], [0, 1, 2], series="a b", said="'variable' may name variables"),
    ),
    "a blank between white space": (
        L("t x y", "0 1 2", "1   3", "2 4 5"), Refused("line 3: got fewer than 3 fields")
    ),
    "a row too short": (
        L("t,x,y", "0,1,2", "1,2", "2,4,5"),
        Read("x y", [0, 1, 2], [1, 2, 4], said="1 row has fewer fields .* line 3"),
    ),
    "names that are numbers": (
        L(",0,1", "0,1.5,2", "1,2.5,3", "2,4.5,9"), Read("0 1", [0, 1, 2], [1.5, 2.5, 4.5])
    ),
    "a first row that counts": (
        L("0,1,2", "1,5,2", "2,4,9"),
        Read("x2 x3", [0, 1, 2], [1, 5, 4], said="skip_rows=0 reads it"),
    ),
    "thousands by default": (
        L("t,x", '0,"1,500"', '1,"2,250"'),
        Read("x", [0, 1], [1500, 2250], said="decimal=',' reads 1.5"),
    ),
    "a number that may be a sentinel": (
        L("t,x", *(f"{i},{0 if i % 4 == 1 else 400 + i}" for i in range(13))),
        Read("x", [*range(13)], [0 if i % 4 == 1 else 400 + i for i in range(13)],
             said="x: 0 occurs 3 times, far from all other values; kept. .* state na='0'"),
    ),
    "units in words": (
        L("time,temp,salt", "seconds,celsius,psu", "0,1,2", "1,2,4"),
        Read("temp salt", [0, 1], [1, 2], "seconds", "line 2 holds units"),
    ),
    "dashes": (L("t,x", "0,1", "1,—", "2,…", "3,4"), Read("x", [0, 1, 2, 3], [1, nan, nan, 4])),
    # ------------------------------------------------------------ around the table
    "lines of an instrument": (
        L("Logger: X 12", "Serial,17", "Operator,Jo", "", "time,flow,p", "s,l/min,kPa", "0,1,2",
              "1,2,3", "2,3,5"),
        Read("flow p", [0, 1, 2], [1, 2, 3], "s", "lines 1 to 4 above the table: skipped"),
    ),
    "lines of the width of the table": (
        L("Device,XY", "Serial,1234", "Date,2024-01-01", "time,x", "0,1", "1,2", "2,4", "3,1"),
        Read("x", [0, 1, 2, 3], [1, 2, 4, 1]),
    ),
    "totals below the table": (
        L("date,y", "2024-01-01,1", "2024-01-02,2", "Total,3", "Source: agency,"),
        Read("y", [0, 1], [1, 2], "days", "2 rows at the end without a time .'Total'"),
    ),
    "two lines of names": (
        L("time,A,A,B", "time,mean,std,mean", "s,m,m,m", "0,1,2,3", "1,4,5,6"),
        Read("A_mean A_std B_mean", [0, 1], [1, 4], "s", "line 3 holds units"),
    ),
    "a line of types": (
        L("t,x", "float,float", "0,1", "1,2"),
        Read("x", [0, 1], [1, 2], said="line 2 is neither names nor numbers"),
    ),
    "ends of lines in quotes": (
        L('"time\n(s)","flow\n(l/min)"', "0,1", "1,2"), Read("flow", [0, 1], [1, 2], "s")
    ),
    "a table for reading": (
        L("| t | x |", "|---|---|", "| 0 | 1 |", "| 1 | 2 |"), Read("x", [0, 1], [1, 2])
    ),
    "a web page": ("<html><table></table></html>", Refused("is a web page or XML; expected")),
    "lines to skip": (
        L("1,2", "3,4", "t,x", "0,1", "1,2"), Read("x", [0, 1], [1, 2], options={"skip_rows": 2})
    ),
    "units in brackets": (
        L("t [s],x (m/s)", "0,1", "1,2"), Read("x", [0, 1], [1, 2], "s")
    ),
    "units behind a slash": (L("t / min;x / mV", "0;1", "1;2"), Read("x", [0, 1], [1, 2], "min")),
    "units in the name": (L("time_s,x", "0,1", "1,2"), Read("x", [0, 1], [1, 2], "s")),
    "commas at the ends of rows": (
        L("t,x", "0,1,", "1,2,", "2,5,"), Read("x", [0, 1, 2], [1, 2, 5], said="'column3' has no")
    ),
    "row names as R writes them": (
        L('"t" "x"', '"1" 0 1', '"2" 1 2.5', '"3" 2 7'), Read("x", [0, 1, 2], [1, 2.5, 7])
    ),
    "comments": (
        L("# made by hand", "t,x", "0,1", "# pause", "1,2"), Read("x", [0, 1], [1, 2])
    ),
    "errors of a spreadsheet": (
        L("t,x", "0,1", "1,#DIV/0!", "2,3"), Read("x", [0, 1, 2], [1, nan, 3], said="'#DIV")
    ),
    "a column of remarks": (
        L("t,x,remark", "0,1,", "1,2,rain", "2,3,"),
        Read("x", [0, 1, 2], [1, 2, 3], said="'remark' is text, such as 'rain', and was left out"),
    ),
    "a word among numbers": (
        L("t,x", "0,1", "1,2", "2,ill", "3,5"), Refused("column 'x', line 4: got 'ill'; expected")
    ),
    "empty": ("", Refused("is empty; expected a table")),
    "names alone": ("t,x\n", Refused("has names but no rows")),
    "a name for fewer columns": (
        L("t,x", "0,1,2", "1,2,3"), Refused("line 1 has 2 fields, .* below have 3"),
    ),
    "times as columns": (
        L("country,2019,2020,2021", "A,1,2,3", "B,4,5,6"),
        Refused("line 1 has words and numbers, like the rows below it; .* transpose the"),
    ),
    "French thousands": (L("t;y", "0;1 234,5", "1;2 345,6"), Read("y", [0, 1], [1234.5, 2345.6])),
    "units behind a comma": (L('"time, s","x, mV"', "0,1", "1,2"), Read("x", [0, 1], [1, 2], "s")),
    # ------------------------------------------------------------ instruments and offices
    "month and day without names": (
        L(*(f"2024-01-0{1 + h // 24}\t{h % 24:02d}:00\t{h}" for h in range(22, 27))),
        Read("x3", [0, 1, 2, 3, 4], [22, 23, 24, 25, 26], "hours", "columns x1.x2 together are"),
    ),
    "date and clock below one name": (
        L("time x", "2024-01-01 00:00 5", "2024-01-01 12:00 6", "2024-01-02 00:00 7"),
        Read("x", [0, 12, 24], [5, 6, 7], "hours", "columns column1.time together are the time"),
    ),
    "date and a duration": (
        L("day;length;x", "2024-01-01;07:30;5", "2024-01-02;08:00;6", "2024-01-03;07:10;7"),
        Read("x", [0, 1, 2], [5, 6, 7], "days", "'length' is text"),
    ),
    "buoy": (
        L("#YY  MM DD hh mm WSPD", "#yr  mo dy hr mn m/s", "2023 03 25 22 00 1.5",
          "2023 03 25 23 30 2", "2023 03 26 01 00 3"),
        Read("m/s", [0, 1.5, 3], [1.5, 2, 3], "hours", "yr.mo.dy.hr.mn together"),
    ),
    "hours of a weather service": (
        L("STATIONS_ID;MESS_DATUM;QN_9;TT_TU;eor",
          *(f"         44;20230{a};    3;    {x};eor" for a, x in (("32522", 5.1), ("32523", 5.5),
                                                               ("32600", 4.2)))),
        Read("STATIONS_ID QN_9 TT_TU", [0, 1, 2], [44, 44, 44], "hours", "form YYYYMMDDhh"),
    ),
    "numbers of frames": (
        L("frame,time,x", "0,0,5", "1,0.04,6", "2,0.08,7"),
        Read("x", [0, 0.04, 0.08], [5, 6, 7], said="'frame' counts rows"),
    ),
    "a power called kW": (L("kW,x", "3,1", "1,2", "2,5"), Read("kW x", [0, 1, 2], [3, 1, 2])),
    "a variable called dy": (
        L("year,month,dy,x", "2020,1,0.5,1", "2020,2,1.5,2"),
        Read("dy x", [0, 31], [0.5, 1.5], "days"),
    ),
    "years of two digits beside months": (
        L("YY MM x", "93 1 1", "93 2 2"), Refused("row 1: year 93, month 1 has a year of two dig")
    ),
    "TOA5": (
        L('"TOA5","CR1000","1234","OS"', '"TIMESTAMP","RECORD","AirT"', '"TS","RN","Deg C"',
          '"","","Avg"', *(f'"2024-01-01 0{h}:00:00",{h},{h + 5}.5' for h in range(4))),
        Read("AirT", [0, 1, 2, 3], [5.5, 6.5, 7.5, 8.5], "hours", "'RECORD' counts rows"),
    ),
    "names, units, descriptions": (
        L("time,p", "s,kPa", "elapsed,barometer", "0,1", "1,2"),
        Read("p", [0, 1], [1, 2], "s", "line 2 holds units"),
    ),
    "more names than fields": (
        L("Writer_Version\t2", "***End_of_Header***\t", "X_Value\tV\tComment", "0\t1", "1\t2",
          "2\t4"),
        Read("V", [0, 1, 2], [1, 2, 4], said="3 rows have fewer fields"),
    ),
    "more names than fields, stated": (
        L("a", "b", "t\tV\tComment", "0\t1", "1\t2"),
        Read("V", [0, 1], [1, 2], options={"skip_rows": 2}),
    ),
    "merged cells above the names": (
        L(",temp,,press,", "time,mean,sd,mean,sd", "0,1,2,3,4", "1,5,6,7,8"),
        Read("temp_mean temp_sd press_mean press_sd", [0, 1], [1, 5]),
    ),
    "merged cells above names like units": (
        L("time,temp,temp", ",a,b", "0,1,2", "1,5,6"), Read("temp_a temp_b", [0, 1], [1, 5])
    ),
    "a year in the first row of each": (
        L("Year,Month,x", "2020,1,1", ",2,2", ",3,3", "2021,1,4", ",2,5", ",3,6"),
        Refused("4 of 6 rows have no time in 'Year.Month'; .* Fill the empty cells"),
    ),
    "calendar columns beside the date": (
        L("date,year,month,x", "2024-01-30,2024,1,5", "2024-01-31,2024,1,6", "2024-02-01,2024,2,7"),
        Read("x", [0, 1, 2], [5, 6, 7], "days", "'month' repeats the month and was left out"),
    ),
    "decimal years": (
        L("decimal_year,x", *(f"{2000 + (m + 0.5) / 12:.4f},{m}" for m in range(4))),
        Read("x", [2000.0417, 2000.125, 2000.2083, 2000.2917], [0, 1, 2, 3], "years"),
    ),
    "decimal years beside months": (
        L("year,month,decimal,x", "2000,1,2000.042,5", "2000,2,2000.125,6", "2000,3,2000.208,7"),
        Read("x", [0, 31, 60], [5, 6, 7], "days", "'decimal' is another column of times"),
    ),
    "numbers as clock times": (
        L("time,x", *(f"{t},{t}" for t in (930, 945, 1000, 1015, 1030))),
        Read("x", [570, 585, 600, 615, 630], [930, 945, 1000, 1015, 1030], "minutes", "times HHMM"),
    ),
    "numbers as clock times past midnight": (
        L("time,x", "220000,1", "230000,2", "0,3", "10000,4"),
        Read("x", [22, 23, 24, 25], [1, 2, 3, 4], "hours", "times HHMMSS"),
    ),
    "clock times in a stated format": (
        L("time,x", "120000,1", "120100,2", "120200,3"),
        Read("x", [720, 721, 722], [1, 2, 3], "minutes", options={"date_format": "%H%M%S"}),
    ),
    "years of two centuries": (
        L("year,x", "98,1", "99,2", "00,3", "01,4"), Refused("years of two digits in two centuries")
    ),
    "weeks before their year": (
        L("KW;x", "1/2023;1", "2/2023;2", "3/2023;3"),
        Read("x", [0, 7, 14], [1, 2, 3], "days", first="2023-01-02"),
    ),
    "weeks behind their year": (
        L("Woche;x", "2023-01;1", "2023-02;2", "2023-03;3"),
        Read("x", [0, 7, 14], [1, 2, 3], "days", first="2023-01-02"),
    ),
    "German thousands or decimals": (
        L("Datum;x", "01.01.2024;12.345", "02.01.2024;12.445"),
        Refused("'12.345', which may be 12.345 .decimal point. or 12345 .thousands sep"),
    ),
    "German thousands or decimals, stated": (
        L("Datum;x", "01.01.2024;12.345", "02.01.2024;12.445"),
        Read("x", [0, 1], [12345, 12445], "days", options={"decimal": ","}),
    ),
    "one run of 99": (
        L("t,x", *(f"{i},{99 if 4 < i < 8 else 2 + i % 4 / 10}" for i in range(12))),
        Read("x", [*range(12)], [99 if 4 < i < 8 else 2 + i % 4 / 10 for i in range(12)],
             said="99 occurs 3 times, far from all other values; kept"),
    ),
    "numbers of rows called id": (
        L("id,date,x", *(f"{d},2024-01-0{d},{d + 4}" for d in (1, 2, 3, 4))),
        Read("x", [0, 1, 2, 3], [5, 6, 7, 8], "days", "'id' counts rows"),
    ),
    "two numbers that separate series": (
        L("store,item,t,x", *(f"{s},{i},{t},{s + i * t}" for s in (1, 2) for i in (1, 2)
                              for t in range(4))),
        Refused("separates them .such as 'store' and 'item'. as series="),
    ),
    "a country called NA": (
        L("country,year,x", *(f"{c},{y},{y + k}" for k, c in enumerate(["NA", "Chad", "Peru"])
                              for y in (1990, 1991, 1992))),
        Refused("separates them .such as 'country'. as series="),
    ),
    "several limits of detection": (
        L("t,x", "0,<5", "1,<6", "2,n.d.", "3,<7", "4,9"),
        Read("x", [0, 1, 2, 3, 4], [nan, nan, nan, nan, 9],
             said="x: 4 entries '<5', '<6', 'n.d.', … read as missing"),
    ),
    "an end of file of DOS": (
        L("t,x", "0,1", "1,2") + "\x1a", Read("x", [0, 1], [1, 2], said="1 row without a time")
    ),
    "a row too long": (
        L("t,x", "0,1", "1,2,3", "2,3"), Refused("line 3: got more than 2 fields; .* skip_rows=")
    ),
    "a name twice": (L("t,x,x", "0,1,2"), Refused("got the column 'x' 2 times")),
    "no such column": (
        L("t,x", "0,1"), Refused("columns: .* no column 'y'. Its columns: t, x", {"columns": ["y"]})
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_irregular_table(name: str, tmp_path: Path) -> None:
    text, expected = CASES[name]
    path = written(tmp_path, text)
    if isinstance(expected, Refused):
        with pytest.raises(DataError, match=expected.message) as caught:
            read(path, **expected.options)
        assert "--" not in str(caught.value)
        with pytest.raises(DataError, match=re.escape(str(caught.value))):
            read_series(path, **expected.options)
        return
    data = read(path, **expected.options)
    pd.testing.assert_frame_equal(read_series(path, **expected.options), data.to_frame())
    assert describe(data)["rows"] == data.rows
    assert [name.replace(" ", "_") for name in data.names] == expected.names.split()
    np.testing.assert_allclose(data.times[0], expected.times, rtol=1e-14)
    np.testing.assert_array_equal(data.values[0][:, 0], np.array(expected.values, float))
    assert (data.time_unit or "").split(" since ")[0] == (expected.unit or "")
    series = expected.series.split("," if "," in expected.series else None) or [""]
    assert data.series == series
    assert data.zone == expected.zone
    if expected.first is not None:
        assert (data.time_unit or "").endswith(f" since {expected.first}")
    if expected.said:
        assert re.search(expected.said, "\n".join([*data.notes, *data.warnings]))
    assert data.summary().startswith("data.csv: ")


def test_the_table_is_large_enough() -> None:
    assert len(CASES) >= 150
    assert sum(isinstance(expected, Refused) for _, expected in CASES.values()) >= 40


def test_summary(tmp_path: Path) -> None:
    rows = [f"{e},2024-01-{d:02d},{d},{'' if d == 2 else d}" for e in "ab" for d in (1, 2, 3)]
    text = L("experiment,date,prey (1/ha),pred", *rows, "b,,3,1")
    assert read(written(tmp_path, text)).summary() == (
        "data.csv: time 'date' from 2024-01-01 to 2024-01-03, step 1 day; 2 series by "
        "'experiment' (a, b); variables prey [1/ha], pred; 6 rows, 16.7 % of the values missing; "
        "rows dropped: 1 without a time."
    )
