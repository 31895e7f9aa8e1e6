"""What programs take from the inside of torch's compiler, `torch._dynamo`: the names of
`minigrad.compiler` that stand there too, and settings, which are kept and change nothing here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from minigrad._dynamo import eval_frame
from minigrad._dynamo.eval_frame import OptimizedModule as OptimizedModule
from minigrad._names import namespace
from minigrad.compiler import (
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    reset,
)

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "config",
    "disable",
    "eval_frame",
    "is_compiling",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "reset",
]

config = SimpleNamespace(
    cache_size_limit=8,
    capture_dynamic_output_shape_ops=False,
    capture_scalar_outputs=False,
    recompile_limit=8,
    suppress_errors=False,
    verbose=False,
)


def mark_dynamic(t: Any, index: Any, **_: Any) -> None:
    """Nothing: `minigrad.compile` makes a recording for each shape."""


mark_static = mark_dynamic


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Nothing: a recording reads its arguments where they lie."""


__getattr__, __dir__ = namespace(__name__)
