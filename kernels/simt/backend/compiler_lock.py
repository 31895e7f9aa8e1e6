"""Numba's lock around compilation, which has no documented name, with fewer garbage collections."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

from numba.core.compiler_lock import global_compiler_lock

OBJECTS_A_COLLECTION = 100_000


@contextlib.contextmanager
def few_collections() -> Iterator[None]:
    """Compile with few garbage collections: compilers make objects by the hundred thousand and
    drop few of them in cycles, and looking for those costs up to 7 % of the time."""
    with global_compiler_lock:  # or another thread's setting would be taken for the program's
        usual = gc.get_threshold()
        gc.set_threshold(max(usual[0], OBJECTS_A_COLLECTION) if usual[0] else 0, *usual[1:])
        try:
            yield
        finally:
            gc.set_threshold(*usual)
