"""Tracebacks that show the program's lines: an error in a layer has two frames of minigrad.

Of consecutive frames of minigrad only the last one stays, which raised the error. All are kept with
MINIGRAD_FULL_TRACEBACK=1.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

import kernels

_OWN = Path(__file__).parent
_ROOTS = tuple(f"{path}{os.sep}" for path in (_OWN, Path(kernels.__file__).parent))
_PROGRAMS = tuple(f"{_OWN / name}{os.sep}" for name in ("examples", "models"))
_FULL = os.environ.get("MINIGRAD_FULL_TRACEBACK", "0") not in ("", "0")


def _is_internal(entry: TracebackType) -> bool:
    file = entry.tb_frame.f_code.co_filename
    return file.startswith(_ROOTS) and not file.startswith(_PROGRAMS)


def trim(error: BaseException) -> None:
    """Shorten the traceback of an error that is being handled; its first frame, the handler, stays.

    A bare ``raise`` follows.
    """
    entry, entries = error.__traceback__, []
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    if _FULL or len(entries) < 3:
        return
    kept: TracebackType | None = None
    inside = False  # whether the frame that follows is internal
    for i, entry in reversed([*enumerate(entries)]):
        internal = _is_internal(entry)
        if i == 0 or not (internal and inside):
            kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
        inside = internal
    error.__traceback__ = kept
