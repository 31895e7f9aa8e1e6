"""Loop hints: what the code generator learns of a loop.

A plan carries a hint as a field of its loop. The generated module is Python, in which a loop has
no attributes, so there a hint is part of the name of the loop's counter:

    for _k_q in range(8):     Hint.UNROLL: unroll it fully
        q = _k_q
    for _d_p in range(n):     Hint.UNROLL_4: unroll it by four
        p = _d_p
    for _tx in range(32):     Hint.THREADS: iterations are threads, free of dependences
    for _sx in range(32):     Hint.ORDERED_THREADS: threads that must run one after the other
        _tx = _sx
    for _ty in range(8):      Hint.ROWS: iterations are rows of threads; also for _tz

`encode` is the only place that makes such names, `decode` the only one that reads them.
"""

from __future__ import annotations

import enum


class Hint(enum.Enum):
    """A hint; its value is the counter's name or, where it ends in an underscore, its prefix."""

    UNROLL = "_k_"
    UNROLL_4 = "_d_"
    THREADS = "_tx"
    ORDERED_THREADS = "_sx"
    ROWS = "_ty"


_ROWS = ("_ty", "_tz")


def encode(counter: str, hint: Hint | None) -> str:
    """The name that the counter of a loop has in the generated module."""
    if hint is None:
        return counter
    return hint.value + counter if hint.value.endswith("_") else hint.value


def decode(name: str) -> Hint | None:
    """The hint in a counter's name."""
    if name in _ROWS:
        return Hint.ROWS
    for hint in Hint:
        if name == hint.value or (hint.value.endswith("_") and name.startswith(hint.value)):
            return hint
    return None
