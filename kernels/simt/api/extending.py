"""`numba.cuda.extending`: teach kernels functions, methods and types of your own.

As `numba.extending`, with one difference: an `overload` is for kernels alone unless its `target`
says otherwise. Its implementation runs in one thread; it can use no thread indices or barriers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import extending as _numba_extending
from numba.extending import *  # noqa: F403 - all of its names are here, too
from numba.extending import models as core_models  # noqa: F401 - numba-cuda's name
from numba.extending import overload as _overload
from numba.extending import overload_attribute as _overload_attribute
from numba.extending import overload_method as _overload_method

from kernels.simt.ir.jitted import Jitted


def overload(func: Any, *args: Any, target: str = "cuda", **options: Any) -> Callable:
    """Implement `func` in kernels: the decorated function gets the Numba types of the arguments and
    returns a function, or None."""
    return _overload(func, *args, target=target, **options)


def overload_attribute(typ: Any, attr: str, *, target: str = "cuda", **options: Any) -> Callable:
    """Implement the attribute `attr` of values of a Numba type in kernels."""
    return _overload_attribute(typ, attr, target=target, **options)


def overload_method(typ: Any, attr: str, *, target: str = "cuda", **options: Any) -> Callable:
    """Implement the method `attr` of values of a Numba type in kernels."""
    return _overload_method(typ, attr, target=target, **options)


def is_jitted(function: Any) -> bool:
    """Whether `function` was decorated with `cuda.jit`."""
    return isinstance(function, Jitted)


def __getattr__(name: str) -> Any:
    return getattr(_numba_extending, name)
