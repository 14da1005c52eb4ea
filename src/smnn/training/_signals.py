"""Ctrl-C and SIGTERM as a wish to stop, not as an end in the middle of a step."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Wish:
    """The signal that asked to stop; 0 if none has."""

    number = 0


@contextlib.contextmanager
def stop_signals(active: bool) -> Iterator[Wish]:
    """Note SIGINT and SIGTERM. A second one acts at once, as it would without this.

    Signals can only be handled in the main thread; elsewhere they keep their meaning.
    """
    wish = Wish()
    before: dict[int, object] = {}

    def note(number: int, frame: FrameType | None) -> None:
        wish.number = number
        _put_back(before)

    if active and threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, note)
    try:
        yield wish
    finally:
        _put_back(before)


def _put_back(before: dict[int, object]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)  # type: ignore[arg-type]
    before.clear()
