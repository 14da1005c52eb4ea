"""Functions that kill the worker process in which they run."""

import os
import signal
from typing import Any


def killed_once(rows: Any, marker: str) -> Any:
    """The rows; the first process that is called, of those that share the marker, is killed."""
    try:
        open(marker, "x").close()
    except FileExistsError:
        return rows
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at_first_batch(marker: str) -> None:
    """Make the first batch of `forecast_groups` in this process kill it."""
    from smnn.forecasting import _groups

    real = _groups._forecast_batch

    def batch(rows: Any, **options: Any) -> Any:
        return real(killed_once(rows, marker), **options)

    _groups._forecast_batch = batch
