"""`jit.script` and its relatives: the function or module itself, whose kernels are compiled anyway.

`minigrad.compile` records whole steps.
"""

from __future__ import annotations

from typing import Any

from minigrad._names import namespace


def script(obj: Any, **_: Any) -> Any:
    """The module, function or class itself."""
    return obj


ignore = unused = export = script


__getattr__, __dir__ = namespace(__name__)
