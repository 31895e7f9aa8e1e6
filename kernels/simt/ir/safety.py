"""How safe a kernel is to be: a module of its own, since launches ask and do not load Numba."""

from __future__ import annotations

import enum


class Safety(enum.Enum):
    """What keeps a kernel from reading or writing outside of its arrays."""

    SHIPPED = "shipped"  # nothing: it is tested to be right, and its loops are known to end
    UNCHECKED = "unchecked"  # nothing, but Ctrl-C ends its loops
    PROVEN = "proven"  # conditions of the launch; where they do not hold, BOUNDS
    BOUNDS = "bounds"  # every index is checked
    DEBUG = "debug"  # and reads of unwritten shared memory, lanes, assertions and exceptions
    RECORDED = "recorded"  # likewise, for the lab: it divides, and shuffles, as hardware does
