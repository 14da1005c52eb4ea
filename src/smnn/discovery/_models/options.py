"""Check of the options of `Discovery`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smnn.discovery._fit.data import DataError
from smnn.discovery._fit.model import LINKS
from smnn.discovery._models.delays import lag_range

if TYPE_CHECKING:
    from smnn.discovery._estimator import Discovery
    from smnn.discovery._fit.neural import Neural

METHODS = ("auto", "regression", "refine", "neural")
KINDS = ("ode", "map")


def check_options(model: Discovery) -> None:
    """Check the options of an estimator.

    Raises:
        ValueError: If one is invalid, or options cannot be combined.
    """
    if model.method not in METHODS:
        raise ValueError(f"method={model.method!r}; expected one of {', '.join(METHODS)}.")
    automatic = model.order is None or model.order == "auto"
    if not automatic and not (isinstance(model.order, int) and 1 <= model.order <= 4):
        raise ValueError(f"order={model.order!r}; expected a whole number from 1 to 4, or 'auto'.")
    if model.kind not in KINDS:
        raise ValueError(f"kind={model.kind!r}; expected one of {', '.join(KINDS)}.")
    if model.kind == "map" and not (automatic or model.order == 1):
        raise ValueError(f"order={model.order!r} with kind='map'; a map has order 1.")
    if model.delay is not None:
        lag_range(model.delay)
        if model.kind == "map" or model.varies or model.order not in (1, None, "auto"):
            raise ValueError("delay needs kind='ode', order=1 and no varies.")
        if model.method not in ("auto", "refine"):
            raise ValueError(f"method={model.method!r} does not support delay.")
    check_hidden(model)
    if model.method == "neural" and (model.kind == "map" or model.constraints or model.varies):
        raise ValueError("method='neural' does not support kind='map', constraints and varies.")
    if model.link is not None and model.link not in LINKS:
        raise ValueError(f"link={model.link!r}; expected one of {', '.join(LINKS)}, or None.")
    if model.threshold is not None and not 0.0 <= float(model.threshold) < 1.0:
        raise ValueError(f"threshold={model.threshold!r}; expected a fraction from 0 to below 1.")
    if not float(model.penalty) > 0.0:
        raise ValueError(f"penalty={model.penalty!r}; expected a positive number.")
    if not isinstance(model.ensemble, int) or model.ensemble < 0:
        raise ValueError(f"ensemble={model.ensemble!r}; expected the number of resamples, or 0.")
    if model.method == "neural":
        neural_settings(model.neural)


def check_hidden(model: Discovery) -> None:
    """Check the option `hidden`, and what it is combined with.

    Raises:
        ValueError: It is not zero or one, or another option does not support it.
    """
    if model.hidden not in (0, 1):
        raise ValueError(f"hidden={model.hidden!r}; expected 0, or 1 for a hidden variable.")
    usual: dict[str, tuple[Any, ...]] = {
        "kind": ("ode",), "method": ("auto", "refine"), "order": (1, None, "auto")
    }  # fmt: skip
    others = ("delay", "varies", "fixed", "forbidden", "constraints", "link")
    for name in (*usual, *others) if model.hidden else ():
        value = getattr(model, name)
        if value not in usual[name] if name in usual else value:
            raise ValueError(f"hidden=1 does not support {name}={value!r}.")


def neural_settings(given: Any) -> Neural:
    from smnn.discovery._fit.neural import Neural

    if given is None or isinstance(given, Neural):
        return given or Neural()
    try:
        return Neural(**given)
    except TypeError:
        names = ", ".join(Neural.__dataclass_fields__)
        raise ValueError(
            f"neural={given!r}; expected a Neural, or a dictionary with keys out of {names}."
        ) from None


def check_kind(X: Any) -> None:
    """Refuse what NumPy would convert into something else."""
    if hasattr(X, "tocsr"):
        raise DataError("X is sparse; sparse data are not supported. Use X.toarray().")
    if getattr(getattr(X, "dtype", None), "kind", "") == "c":
        raise DataError("Complex data not supported: X has complex values; use its real part.")
