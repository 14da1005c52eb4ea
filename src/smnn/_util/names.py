"""Suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def suggestion(word: str, known: Sequence[str]) -> str:
    """Return `; did you mean 'x'?` for the closest known name, or an empty string."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6) or [
        name for name in known if name.lower() == word.lower()
    ]
    return f"; did you mean {near[0]!r}?" if near else ""
