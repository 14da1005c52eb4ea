"""Measured data without known equations."""

from __future__ import annotations

import numpy as np

from smnn.datasets.dynamics._system import Record, Series
from smnn.datasets.dynamics._terms import Basis

# Year, hare, lynx: thousands of pelts.
_PELTS = (
    (1900, 30.0, 4.0), (1901, 47.2, 6.1), (1902, 70.2, 9.8), (1903, 77.4, 35.2),
    (1904, 36.3, 59.4), (1905, 20.6, 41.7), (1906, 18.1, 19.0), (1907, 21.4, 13.0),
    (1908, 22.0, 8.3), (1909, 25.4, 9.1), (1910, 27.1, 7.4), (1911, 40.3, 8.0),
    (1912, 57.0, 12.3), (1913, 76.6, 19.5), (1914, 52.3, 45.7), (1915, 19.5, 51.1),
    (1916, 11.2, 29.7), (1917, 7.6, 15.8), (1918, 14.6, 9.7), (1919, 16.2, 10.1),
    (1920, 24.7, 8.6),
)  # fmt: skip


def _hare_lynx() -> Record:
    table = np.array(_PELTS)
    return Record(
        "Hare and lynx", ("hare", "lynx"), Basis(2),
        "pelts traded by the Hudson's Bay Company, 1900 to 1920, in thousands; table in Howard, "
        "Modeling Basics (Texas A&M University, 2009), after Odum, Fundamentals of Ecology (1953)",
        (Series(table[:, 0] - 1900.0, table[:, 1:].copy()),),
        {"hare'": frozenset({"hare", "hare lynx"}), "lynx'": frozenset({"lynx", "hare lynx"})},
    )  # fmt: skip


HARE_LYNX = _hare_lynx()
"""Snowshoe hares and Canadian lynxes, 21 years, times counted from 1900. The textbook model is that
of Lotka and Volterra."""
