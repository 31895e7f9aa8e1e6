"""`cupy.fuse`: a function of arrays that CuPy compiles into one kernel; here it is called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ._array import SCALARS, ndarray


class Fusion:
    """A fused function. Its operations run one by one, with the same results."""

    def __init__(self, function: Callable, name: str) -> None:
        self.func, self.name = function, name
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<Fusion name={self.name}>"

    def __call__(self, *args: Any) -> Any:
        for arg in args:
            known = isinstance(arg, ndarray | np.generic) or type(arg) in SCALARS or arg is None
            if not known:
                raise TypeError(f"Invalid argument type for '{self.name}': ({type(arg)})")
        return self.func(*args)

    def clear_cache(self) -> None:
        """Nothing is compiled."""


def fuse(*args: Any, **options: Any) -> Any:
    """Decorate a function whose operations a GPU would run as one kernel: `@fuse`,
    `@fuse(kernel_name="name")`."""
    name = options.pop("kernel_name", None)
    if set(options) - {"type_check"}:
        raise TypeError(f"fuse: unexpected arguments {sorted(options)}")
    if len(args) == 1 and callable(args[0]):
        return Fusion(args[0], name or args[0].__name__)
    return lambda function: Fusion(function, name or function.__name__)
