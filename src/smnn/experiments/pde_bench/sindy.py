"""PySINDy's PDE-FIND and weak form, with thresholds tuned without knowledge of the law.

Every method gives rows of candidate terms and rates of change, which sequentially thresholded least
squares fits at every threshold of a grid. The Bayesian information criterion of the rows chooses
one; all are kept, so that the best choice in hindsight can be reported too. Complex fields are
given as real and imaginary parts, and missing values by interpolation in time, since PySINDy
accepts neither.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import sympy

from smnn._util.optional import require

Field = np.ndarray[Any, np.dtype[Any]]
Law = dict[tuple[str, sympy.Expr], float]
"""Coefficients by field and term."""
THRESHOLDS = np.geomspace(1e-3, 0.5, 24)
"""Thresholds of coefficients of normalized columns, relative to the size of the rate."""
DOMAINS = 400
"""Test functions of the weak form."""
WIDTHS = (8, 16)
"""Its domains, in fractions of the whole: a half width of an eighth, and of a sixteenth."""
OVERLAP = 10
"""Rows that share values, and count as one."""
DEGREE, ORDER = 3, 4


def fit_all(method: str, u: Field, t: Field, x: Field) -> list[list[Law]]:
    """Laws at every setting and threshold; of each setting, the first is the chosen one.

    Args:
        method: `"pde-find"` or `"weak form"`.
        u: `(T, X, F)` real values without gaps.
        t: `(T,)` times.
        x: `(X,)` coordinates.
    """
    ps = require("pysindy", "compare with PySINDy")
    rows: list[Callable[[], tuple[Field, Field, list[str]]]]
    if method == "pde-find":
        rows = [lambda: _differences(ps, u, t, x)]
    else:
        rows = [lambda w=w: _integrals(ps, u, t, x, w) for w in WIDTHS]  # type: ignore[misc]
    found = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for make in rows:
            A, Y, names = make()
            terms = [term_of(name) for name in names]
            found.append(_path(ps, A, Y, terms))
    return found


def _path(ps: Any, A: Field, Y: Field, terms: list[sympy.Expr]) -> list[Law]:
    """The law that the criterion chooses, then those of all thresholds."""
    n = max(len(Y) / OVERLAP, 3.0)
    size = float(np.linalg.norm(Y, axis=0).max())
    laws: list[Law] = []
    scores = []
    for share in THRESHOLDS:
        optimizer = ps.STLSQ(threshold=share * size, alpha=1e-8, normalize_columns=True)
        C = optimizer.fit(A, Y).coef_
        rest = ((Y - A @ C.T) ** 2).sum(0)
        scores.append(float((n * np.log(rest + 1e-300)).sum() + np.log(n) * np.count_nonzero(C)))
        laws.append({("uv"[f], term): float(C[f, p]) for f in range(len(C))
                     for p, term in enumerate(terms) if C[f, p]})  # fmt: skip
    return [laws[int(np.argmin(scores))], *laws]


def _differences(ps: Any, u: Field, t: Field, x: Field) -> tuple[Field, Field, list[str]]:
    field = _axes(u)
    library = ps.PDELibrary(
        function_library=ps.PolynomialLibrary(degree=DEGREE, include_bias=False),
        derivative_order=ORDER, spatial_grid=x, include_bias=True,
    )  # fmt: skip
    A = np.asarray(library.fit_transform([field])[0])
    rate = np.asarray(ps.FiniteDifference(axis=1)._differentiate(field, t))
    inner = (slice(4, -4), slice(2, -2))  # one-sided differences are poor
    A, Y = A[inner].reshape(-1, A.shape[-1]), rate[inner].reshape(-1, u.shape[-1])
    return A, Y, library.get_feature_names(["u", "v"][: u.shape[-1]])


def _integrals(ps: Any, u: Field, t: Field, x: Field, width: int) -> tuple[Field, Field, list[str]]:
    field = _axes(u)
    state = np.random.get_state()
    np.random.seed(0)  # PySINDy places its domains by the global generator
    try:
        library = ps.WeakPDELibrary(
            function_library=ps.PolynomialLibrary(degree=DEGREE, include_bias=False),
            derivative_order=ORDER, include_bias=True, K=DOMAINS, p=ORDER + 2,
            spatiotemporal_grid=np.stack(np.meshgrid(x, t, indexing="ij"), -1),
            H_xt=[np.ptp(x) / width, np.ptp(t) / width],
        )  # fmt: skip
        A = np.asarray(library.fit_transform([field])[0])
        Y = np.asarray(library.convert_u_dot_integral(field))
    finally:
        np.random.set_state(state)
    return A, Y, library.get_feature_names(["u", "v"][: u.shape[-1]])


def _axes(u: Field) -> Any:
    from pysindy.utils import AxesArray

    return AxesArray(np.moveaxis(u, 0, 1), {"ax_spatial": [0], "ax_time": 1, "ax_coord": 2})


def term_of(name: str) -> sympy.Expr:
    """PySINDy's `u^2u_11` as the product of `u^2` and `u_xx`."""
    found = sympy.S.One
    for field, ones, power in re.findall(r"([uv])(?:_(1+))?(?:\^(\d))?", name):
        symbol = sympy.Symbol(field + ("_" + "x" * len(ones) if ones else ""))
        found *= symbol ** int(power or 1)
    return found
