"""The flags of cuDNN, which minigrad does not use.

Programs set `benchmark`, `deterministic` and `enabled`. They are stored and have no effect: every
kernel is minigrad's own. All repeat bit by bit on a CPU; on a GPU, additions by index do after
`minigrad.use_deterministic_algorithms(True)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from minigrad._names import namespace

benchmark = False
deterministic = True
enabled = False
allow_tf32 = False


def is_available() -> bool:
    """False: no kernel is cuDNN's."""
    return False


def version() -> int | None:
    """None: there is no cuDNN."""
    return None


@contextmanager
def flags(**values: bool) -> Iterator[None]:
    """`with cudnn.flags(benchmark=True): ...` sets flags for a block."""
    unknown = sorted(values.keys() - {"benchmark", "deterministic", "enabled", "allow_tf32"})
    if unknown:
        raise TypeError(f"flags() got an unexpected keyword argument {unknown[0]!r}")
    before = {name: globals()[name] for name in values}
    globals().update(values)
    try:
        yield
    finally:
        globals().update(before)


__getattr__, __dir__ = namespace(__name__)
