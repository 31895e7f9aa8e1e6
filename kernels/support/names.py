"""Names that a user misspelt, and names of several things."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error's sentence: "; did you mean matmul?", or nothing."""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), by_lower, 1, 0.6)
    return f"; did you mean {by_lower[found[0]]}?" if found else ""


def counted(number: int, name: str) -> str:
    """ "1 warp", "2 warps", "1,024 boxes"."""
    ending = "" if number == 1 else "es" if name.endswith(("s", "x")) else "s"
    return f"{number:,} {name}{ending}"
