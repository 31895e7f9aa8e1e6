"""The default: an operation runs in Numba's dialect on the CPU and in CUDA C on a GPU, as its first
array lies. Where one of the two lacks the operation, the other runs it in both places.

The dialect is chosen before anything runs, and never after a failure. A program in which no array
can lie on a GPU does not pay for the choice: its calls go straight to the launchers.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

from numpy import ndarray

from kernels import dispatch, launchers
from kernels.families import Family, Operation
from kernels.launchers.common import Dialect
from kernels.support.memory import is_on_gpu

_HERE, _THERE = "numba", "cupy"


@functools.cache
def _dialect(name: str) -> Dialect:
    """A dialect whose launches are remembered as those of this module."""
    return Dialect(dispatch.DIALECTS[name], sys.modules[__name__])


def _straight(family: Family, operation: Operation) -> Callable:
    """The operation for arrays on the CPU."""
    dialect = _dialect(_having(family, operation)[0])
    return functools.update_wrapper(functools.partial(operation.launch, dialect), operation.launch)


def _chosen(family: Family, operation: Operation) -> Callable:
    """The operation for arrays anywhere."""
    launch, (here, there) = operation.launch, _having(family, operation)

    @functools.wraps(launch)
    def run(*args: Any, **kwargs: Any) -> Any:
        on_gpu = _on_gpu((*args, *kwargs.values()))
        return launch(_dialect(there if on_gpu else here), *args, **kwargs)

    return run


def _having(family: Family, operation: Operation) -> tuple[str, str]:
    """The dialects that run an operation on the CPU and on a GPU."""
    here, there = (launchers.has(name, family, operation) for name in (_HERE, _THERE))
    return (_HERE if here or not there else _THERE), (_THERE if there or not here else _HERE)


def _on_gpu(values: Iterable[Any]) -> bool | None:
    """Whether the first array lies on a GPU; None where there is no array."""
    for value in values:
        if isinstance(value, ndarray):
            return False
        if isinstance(value, list | tuple):
            found = _on_gpu(value)
            if found is not None:
                return found
        elif is_on_gpu(value):
            return True
    return None


def __getattr__(name: str) -> Any:
    if name == "fused":  # for compiled steps: it takes the kernels that are in Python
        return _dialect(_HERE).fused
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _bind(make: Callable[[Family, Operation], Callable]) -> None:
    globals().update(
        {
            operation.name: make(family, operation)
            for family in launchers.declared().values()
            for operation in family.operations
        }
    )


@functools.cache
def look() -> None:
    """Look at the arrays of each call from now on: some may lie on a GPU."""
    _bind(_chosen)


if "cupy" in sys.modules:
    look()
else:
    _bind(_straight)
