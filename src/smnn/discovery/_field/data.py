"""Validated fields on a grid: axes in order, missing values, periodicity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from smnn.errors import DataError

Field = np.ndarray[Any, np.dtype[Any]]
FEWEST_TIMES, FEWEST_POINTS = 8, 8
UNEVEN = 1e-3
"""Relative deviation of the steps of an even grid."""
ROUNDING = 1e-5
"""Imaginary parts of real fields, relative to the largest value."""
AXES = ("x", "y")


@dataclass
class FieldSet:
    """Runs of the same fields on the same grid.

    Attributes:
        runs: `(F, T, *grid)` values of each run; NaN where missing.
        times: `(T,)` of each run.
        axes: Coordinates in each direction.
        periodic: Whether each direction is periodic.
        names: Names of the fields.
        values: Values on the grid of coordinates and coefficient functions, by name.
        functions: Coefficient functions on any coordinates, by name.
        notes: What was assumed or changed.
        source: Name of the file.
        time_unit: Unit of the times, if it is known.
    """

    runs: list[Field]
    times: list[Field]
    axes: list[Field]
    periodic: list[bool]
    names: list[str]
    values: dict[str, Field] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    source: str = "data"
    time_unit: str | None = None

    def with_functions(self, functions: Mapping[str, Any]) -> FieldSet:
        """The same fields with coefficient functions."""
        _check_names(self.names, functions)
        values = on_grid(self.axes, functions)
        return replace(self, functions=dict(functions), values=values)

    def summary(self) -> str:
        """What was read, in one line."""
        count, unit = len(self.runs), f" {self.time_unit}" if self.time_unit else ""
        parts = [f"{count} runs" if count > 1 else "", f"field{'s' * (len(self.names) > 1)} "
                 f"{', '.join(self.names)}{' (complex)' * np.iscomplexobj(self.runs[0])}",
                 _axis_text("t", self.times[0], unit)]  # fmt: skip
        for name, x, wraps in zip(AXES, self.axes, self.periodic):
            parts.append(_axis_text(name, x) + (", periodic" if wraps else ", not periodic"))
        missing = np.mean([np.isnan(u).mean() for u in self.runs])
        parts.append(f"{100 * missing:.3g} % of the values missing")
        return f"{self.source}: {'; '.join(p for p in parts if p)}."

    @property
    def lengths(self) -> list[float]:
        """Period of each direction."""
        return [float(len(x) * (x[1] - x[0])) for x in self.axes]

    def values_on(self, shape: Sequence[int]) -> dict[str, Field]:
        """Coordinates and coefficient functions on another grid of the same domain."""
        return on_grid(
            [x[0] + np.arange(n) * length / n
             for x, n, length in zip(self.axes, shape, self.lengths)], self.functions,
        )  # fmt: skip


def _axis_text(name: str, x: Field, unit: str = "") -> str:
    steps = np.diff(x)
    even = np.ptp(steps) <= UNEVEN * np.median(steps)
    step = f"{'' if even else 'median '}step {np.median(steps):.4g}"
    return f"{name} {len(x)} points from {x[0]:.4g} to {x[-1]:.4g}{unit}, {step}"


def on_grid(axes: Sequence[Field], functions: Mapping[str, Any]) -> dict[str, Field]:
    """Values of the coordinates and of functions of them.

    Raises:
        DataError: A function has the wrong shape or is not finite.
    """
    mesh = np.meshgrid(*axes, indexing="ij")
    found: dict[str, Field] = dict(zip(AXES, mesh))
    for name, function in functions.items():
        values = np.asarray(function(*mesh), float)
        if values.shape not in ((), mesh[0].shape) or not np.isfinite(values).all():
            raise DataError(
                f"functions: {name!r} returned an array of shape {values.shape}; expected finite "
                f"values of shape {mesh[0].shape}, one for each point."
            )
        found[name] = np.broadcast_to(values, mesh[0].shape)
    return found


def gather_fields(
    u: Any, t: Any, axes: Sequence[Any], names: Sequence[str] | None,
    periodic: bool | Sequence[bool] | None,
) -> FieldSet:  # fmt: skip
    """Validate fields.

    Args:
        u: `(T, X[, Y][, F])`, or a list of such arrays.
        t: `(T,)`, a step, `None`, or a list of these.
        axes: Coordinates of each direction, steps, or `None`; an empty second one for fields with
            one direction.
        names: Names of the fields.
        periodic: Whether the domain is periodic, for each direction; `None` to detect it.

    Raises:
        DataError: The arrays are inconsistent, too small, or not numbers.
    """
    several = isinstance(u, list | tuple) and not all(np.ndim(one) == 1 for one in u)
    arrays = [_numbers(one) for one in (u if several else [u])]
    if not arrays:
        raise DataError("u is an empty list; expected an array (time, x[, y][, field]).")
    times = list(t) if isinstance(t, list | tuple) and several else [t] * len(arrays)
    if len(times) != len(arrays):
        raise DataError(
            f"t has {len(times)} entries for {len(arrays)} runs; expected one for each."
        )
    given = [None if x is None else np.asarray(x, float) for x in axes]
    while len(given) > 1 and given[-1] is None and arrays[0].ndim < 4:
        if arrays[0].ndim == 3 and given[0] is not None and _is_plane(arrays[0], names):
            break
        given.pop()
    notes: list[str] = []
    runs, found_times, found_axes = [], [], []
    for i, (one, at) in enumerate(zip(arrays, times)):
        label = f"u[{i}]" if several else "u"
        v, tt, xs = _ordered(one, at, given, names, label, notes)
        runs.append(v)
        found_times.append(tt)
        found_axes.append(xs)
    if any(
        len(x) != len(y) or not np.allclose(x, y)
        for xs in found_axes
        for x, y in zip(xs, found_axes[0])
    ):
        raise DataError("the runs have different grids; expected the same x for all of them.")
    count = len(runs[0])
    if names is not None and len(names) != count:
        raise DataError(
            f"names has {len(names)} entries for {count} fields; expected one for each."
        )
    default = ["u", "v", "w"] if count <= 3 else [f"u{i + 1}" for i in range(count)]
    chosen = list(names) if names is not None else default[:count]
    _check_names(chosen, ())
    if any(np.iscomplexobj(one) for one in (u if several else [u])) and not np.iscomplexobj(
        runs[0]
    ):
        notes.append("the imaginary parts are zero or rounding errors and were left out.")
    data = FieldSet(
        runs, found_times, list(found_axes[0]), [], chosen, notes=list(dict.fromkeys(notes))
    )
    _settle_periods(data, periodic)
    data.values = on_grid(data.axes, {})
    return data


def _is_plane(u: Field, names: Sequence[str] | None) -> bool:
    """Whether the last axis of three is a direction rather than fields: it is long."""
    return u.shape[-1] > 8 and (names is None or len(names) != u.shape[-1])


def _numbers(one: Any) -> Field:
    if hasattr(one, "detach"):
        one = one.detach().cpu().numpy()
    values = np.asarray(one.values if hasattr(one, "dtypes") or hasattr(one, "dims") else one)
    if np.ma.isMaskedArray(one):
        values = np.ma.filled(one.astype(complex if one.dtype.kind == "c" else float), np.nan)
    if values.dtype.kind not in "fiubc":
        raise DataError(f"u has entries of type {values.dtype}; expected numbers.")
    values = values.astype(complex if values.dtype.kind == "c" else float)
    if values.dtype.kind == "c":
        known = values[np.isfinite(values)]
        if not np.any(np.abs(known.imag) > ROUNDING * np.abs(known.real).max(initial=0.0)):
            values = values.real
    if values.ndim < 2 or values.ndim > 4:
        raise DataError(
            f"u has {values.ndim} axes {values.shape}; expected 2 to 4: (time, x), "
            "(time, x, field), (time, x, y) or (time, x, y, field)."
        )
    bad = ~np.isfinite(values)
    if bad.all():
        raise DataError("u has no finite values.")
    return np.where(bad, np.nan, values)


def _ordered(
    u: Field, t: Any, given: Sequence[Field | None], names: Sequence[str] | None, label: str,
    notes: list[str],
) -> tuple[Field, Field, list[Field]]:  # fmt: skip
    """Fields with axes `(F, T, *grid)`, times, coordinates."""
    d = len(given)
    if u.ndim not in (d + 1, d + 2):
        raise DataError(
            f"{label} has shape {u.shape}; expected (time, {', '.join(AXES[:d])}) or "
            f"(time, {', '.join(AXES[:d])}, field)."
        )
    lengths = [None if t is None or np.ndim(t) == 0 else np.size(t)]
    lengths += [None if x is None or x.ndim == 0 else x.size for x in given]
    if any(n is not None and n != m for n, m in zip(lengths, u.shape)):
        order = _permutation(lengths, u.shape)
        if order is None:
            wanted = ", ".join("any" if n is None else str(n) for n in lengths)
            raise DataError(
                f"{label} has shape {u.shape}, but t and x have lengths for ({wanted}); expected "
                f"(time, {', '.join(AXES[:d])}[, field]). Transpose it, or correct t and x."
            )
        u = np.transpose(u, [*order, *[a for a in range(u.ndim) if a not in order]])
        notes.append(
            f"the axes of {label} were reordered to (time, {', '.join(AXES[:d])}), by the lengths "
            "of t and x."
        )
    fields = np.moveaxis(u, -1, 0) if u.ndim == d + 2 else u[None]
    coordinates = []
    for a, one in enumerate([t, *given]):
        name = "t" if a == 0 else AXES[a - 1]
        x, sorting = _coordinate(one, fields.shape[a + 1], name)
        if sorting is not None:
            fields = np.take(fields, sorting, a + 1)
            notes.append(f"{name} was sorted.")
        coordinates.append(x)
    spread = np.nanstd(fields.reshape(len(fields), -1), 1)
    if (spread == 0).any():
        raise DataError(f"{label} is constant; expected a field that changes.")
    return fields, coordinates[0], coordinates[1:]


def _permutation(lengths: Sequence[int | None], shape: tuple[int, ...]) -> list[int] | None:
    """The only order of axes in which the lengths agree."""
    from itertools import permutations

    d = len(lengths)
    fits = [
        list(order) for order in permutations(range(len(shape)), d)
        if all(n is None or shape[a] == n for n, a in zip(lengths, order))
    ]  # fmt: skip
    return fits[0] if len(fits) == 1 and None not in lengths else None


def _coordinate(given: Any, n: int, name: str) -> tuple[Field, Field | None]:
    """Increasing coordinates, and the order that sorts them unless they are."""
    fewest = FEWEST_TIMES if name == "t" else FEWEST_POINTS
    if n < fewest:
        raise DataError(f"{name} has {n} points; expected at least {fewest}.")
    if given is None:
        return np.arange(n, dtype=float), None
    x = np.asarray(given)
    if x.dtype.kind in "Mm":
        x = (x - x.ravel()[0]) / np.timedelta64(1, "s")
    x = x.astype(float)
    if x.ndim == 0:
        if not float(x) > 0:
            raise DataError(f"{name}={given!r}; expected a positive step, or coordinates.")
        return np.arange(n) * float(x), None
    x = x.ravel()
    if len(x) != n or not np.isfinite(x).all():
        raise DataError(f"{name} has {len(x)} values; expected {n} finite ones.")
    if (np.diff(x) > 0).all():
        return x, None
    order = np.argsort(x)
    if (np.diff(x[order]) <= 0).any():
        raise DataError(f"{name} has the same value more than once; expected distinct coordinates.")
    return x[order], order


def _check_names(names: Sequence[str], functions: Iterable[str]) -> None:
    reserved = {"i", "t", *AXES, *functions}
    for name in names:
        if not name.isidentifier() or "_" in name or name in reserved or name.endswith("bar"):
            raise DataError(
                f"names: got {name!r}; expected letters and digits without an underscore, other "
                f"than {', '.join(sorted(reserved))}."
            )
    if len(set(names)) < len(names):
        raise DataError(f"names: {', '.join(names)}; expected distinct names.")
    for name in functions:
        if not name.isidentifier() or "_" in name or name in ("i", "t"):
            raise DataError(f"functions: got the name {name!r}; expected letters and digits.")


# ---------------------------------------------------------------- periodicity


def _settle_periods(data: FieldSet, periodic: bool | Sequence[bool] | None) -> None:
    """Set `periodic`; drop a last point that repeats the first one."""
    d = len(data.axes)
    given = [None] * d if periodic is None else list(np.broadcast_to(periodic, d))
    for a in range(d):
        x = data.axes[a]
        even = bool(np.ptp(np.diff(x)) <= UNEVEN * np.median(np.diff(x)))
        if given[a] and not even:
            raise DataError(f"{AXES[a]} is uneven; a periodic direction needs an even grid.")
        wraps = even and given[a] is not False
        if wraps and _repeats(data, a):
            data.axes[a] = x[:-1]
            data.runs = [np.take(u, range(len(x) - 1), a + 2) for u in data.runs]
            data.notes.append(
                f"the last point in {AXES[a]} repeats the first one and was left out."
            )
            data.periodic.append(True)
        else:
            data.periodic.append(
                bool(given[a]) if given[a] is not None else wraps and _wraps(data, a)
            )
        if given[a] is None:
            kind = "periodic" if data.periodic[a] else "not periodic"
            data.notes.append(f"the domain was found to be {kind} in {AXES[a]}.")


def _repeats(data: FieldSet, a: int) -> bool:
    """Whether the last point always has the value of the first one."""
    size = np.nanmax([np.nanstd(u) for u in data.runs])
    ends = [np.take(u, -1, a + 2) - np.take(u, 0, a + 2) for u in data.runs]
    inner = [np.take(u, 1, a + 2) - np.take(u, 0, a + 2) for u in data.runs]
    largest = max(float(np.nanmax(np.abs(e), initial=0.0)) for e in ends)
    usual = max(float(np.nanmax(np.abs(e), initial=0.0)) for e in inner)
    return largest <= 1e-9 * size and usual > 1e-6 * size


def _wraps(data: FieldSet, a: int) -> bool:
    """Whether the field continues across the ends as smoothly as it does elsewhere.

    At every point, lines through the points on either side are extrapolated to the middle. Their
    mean squared difference across the ends is compared with that elsewhere.
    """
    n = len(data.axes[a])
    m = int(np.clip(n // 24, 2, 8))
    s = -(np.arange(m) + 0.5)
    weights = 1 / m - s.mean() * (s - s.mean()) / ((s - s.mean()) ** 2).sum()
    scores = np.zeros(n)
    for u in data.runs:
        v = np.moveaxis(u, a + 2, 0).reshape(n, -1)
        known = ~np.isnan(v)
        mean = np.where(known, v, 0).sum(0) / np.maximum(known.sum(0), 1)
        v = np.where(known, v, mean) - mean.mean()
        left = sum(w * np.roll(v, j, 0) for j, w in enumerate(weights))
        right = sum(w * np.roll(v, -1 - j, 0) for j, w in enumerate(weights))
        scores += (np.abs(left - right) ** 2).mean(1)
    inner = scores[m - 1 : n - m]
    return bool(scores[-1] <= max(1.5 * np.max(inner), 4 * np.median(inner)))
