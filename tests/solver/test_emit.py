"""Code written by the generator of the CPU kernels."""

import numpy as np
import pytest

from solver.internals import emit

LANES = 16


def applied(write: object, *arrays: np.ndarray, estimates: bool) -> None:
    """Compile a function of vectors in memory and call it."""
    e = emit.Code("f", LANES, len(arrays), estimates)
    write(e, *(e.memory(x) for x in e.arguments))  # type: ignore[operator]
    owner, function, _ = emit.compiled([e])
    function(*(x.ctypes.data for x in arrays))
    del owner


@pytest.mark.parametrize("estimates", sorted({False, emit.has_estimates()}))
def test_inverse_root_is_exact_to_rounding(estimates: bool) -> None:
    """With the estimates of the processor, if it has them, and without."""
    count = 500
    draw = np.random.default_rng(0)
    x = 10.0 ** draw.uniform(-300, 300, (count, LANES))
    x[0, :2] = np.inf, np.nan
    out = np.empty_like(x)

    def write(e: emit.Code, out: emit.Cells, x: emit.Cells) -> None:
        for i in e.range(e.arguments[0] - e.arguments[0], count):
            out[i] = e.inverse_root(x[i])

    applied(write, out, x, estimates=estimates)
    exact = 1 / np.sqrt(x.astype(np.longdouble))
    error = np.abs(out - exact) / exact
    assert not np.isfinite(out[0, :2]).any() or (out[0, :1] == 0).all()
    assert float(error.ravel()[2:].max()) < 4e-16


@pytest.mark.parametrize("known", [True, False])
def test_loops_and_branches_of_known_and_unknown_numbers(known: bool) -> None:
    """The same source, unrolled and as a loop."""
    x, out = np.arange(5.0 * LANES).reshape(5, LANES), np.zeros((5, LANES))

    def write(e: emit.Code, out: emit.Cells, x: emit.Cells) -> None:
        zero = 0 if known else e.arguments[0] - e.arguments[0]
        for i in e.range(4 + zero, zero, -1):
            out[i] = x[i] * 2.0
            for _ in e.when(e.both(i >= 2 + zero, i < 4 + zero)):
                out[i] = out[i] - x[i - 1]
            out[i] = e.select(x[i] > 40.0, -1.0, out[i])

    applied(write, out, x, estimates=False)
    expected = 2 * x
    expected[2:4] -= x[1:3]
    expected[x > 40] = -1
    expected[0] = 0
    np.testing.assert_array_equal(out, expected)
