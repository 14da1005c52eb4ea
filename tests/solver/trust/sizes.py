"""Restrictions of random problems to few, or to many, unknowns per time.

Each function returns the argument `fixed` of `trust.problems.draw`.
"""

from typing import Any

import numpy as np

LONGEST_TAYLOR = 6
"""Most unknowns per variable and time of large blocks, so that they have many variables."""
WORK = 1e9
"""Bound on the sum of cubed unknowns, so that exact solutions take a few seconds."""


def few(samples: int, *, cut: bool) -> dict[str, Any]:
    """Shapes with few unknowns and times, which an interpreter of GPU kernels can solve.

    With `cut`, there are times enough for several pieces.
    """

    def order(x: dict[str, Any]) -> int | None:
        if x["scheme"] == "central" and x["R"] == 0:
            return 1
        more = x["V"] == 1 and x["R"] < 2 and not cut
        return None if x["order"] is None else min(x["order"], x["R"] + more)

    def times(x: dict[str, Any]) -> int:
        reach = 2 if x["scheme"] == "central" else 1
        return (reach + 1) * (2 + x["seed"] % 4) + x["seed"] % 3 if cut else 1 + x["seed"] % 4

    return {
        "V": lambda x: 1 if cut and x["scheme"] == "central" else min(x["V"], 2),
        "R": lambda x: min(x["R"], 2 if x["V"] == 1 and not cut else 1),
        "order": order,
        "m_init": lambda x: min(x["m_init"], max(x["R"], x["order"] or 0) + 1),
        "Q": lambda x: min(x["Q"], x["V"] + 1),
        "T": times,
        "T_init": lambda x: min(x["T_init"], x["T"]),
        "batch": lambda x: x["batch"] if x["seed"] % 8 == 0 else (samples,),
    }


def many(samples: int, fewest: int, most: int) -> dict[str, Any]:
    """Shapes of `fewest` to `most` unknowns per time, any number of them, and up to six times.

    Larger shapes have fewer samples, so that exact solutions are affordable.
    """

    def orders(x: dict[str, Any]) -> int:
        """Unknowns of a variable."""
        least = 2 if x["scheme"] == "central" else 1
        fitting = [
            m for m in range(least, LONGEST_TAYLOR + 1) if -(-fewest // m) * m <= most
        ]  # a multiple of it lies in between
        return _pick(x, 1, fitting)

    def variables(x: dict[str, Any]) -> int:
        m = orders(x)
        return _pick(x, 2, range(-(-fewest // m), most // m + 1))

    def highest(x: dict[str, Any]) -> int:
        """Sometimes one below the highest order."""
        return max(0, orders(x) - 1 - _pick(x, 3, (0, 0, 0, 1)))

    def batch(x: dict[str, Any]) -> tuple[int, ...]:
        if _pick(x, 4, range(8)) == 0 and x["batch"] in ((), (1,)):
            return x["batch"]
        unknowns = x["T"] * x["V"] * orders(x)
        number = max(1, min(samples, int(WORK / unknowns**3)))
        return (2, number // 2) if len(x["batch"]) == 2 and number > 1 else (number,)

    return {
        "V": variables,
        "R": highest,
        "order": lambda x: orders(x) - 1 if x["R"] < orders(x) - 1 else None,
        "m_init": lambda x: _pick(x, 5, range(1, orders(x) + 1)),
        "Q": lambda x: _pick(
            x, 6, (x["V"], x["V"], x["V"], x["V"] + 1, x["V"] - 1, 2 * x["V"], x["V"] * orders(x))
        ),
        "T": lambda x: _pick(x, 7, range(1, 7)),
        "T_init": lambda x: min(x["T_init"], x["T"]),
        "batch": batch,
    }


def _pick(x: dict[str, Any], what: int, options: Any) -> Any:
    """Choose an option, depending only on the shape's seed and a number."""
    return options[int(np.random.default_rng([x["seed"], what]).integers(len(options)))]
