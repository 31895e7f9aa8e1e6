"""A function that `cuda.jit` decorates, as the compilers see it: its code and its options."""

from __future__ import annotations

from types import FunctionType
from typing import Any


class Jitted:
    """A function and the options of its `cuda.jit`; `gpu` are those of a GPU's compiler alone."""

    def __init__(
        self,
        func: FunctionType,
        signature: Any,
        device: bool = False,
        debug: bool | None = None,
        fastmath: bool = False,
        gpu: dict[str, Any] | None = None,
    ) -> None:
        self.py_func = func
        self.signature = signature
        self.device = device
        self.debug = debug
        self.fastmath = fastmath
        self.gpu_options = gpu or {}
        self.__name__, self.__doc__ = func.__name__, func.__doc__
        self.__qualname__, self.__module__ = func.__qualname__, func.__module__
        self.__wrapped__ = func

    def __reduce__(self) -> str:
        """Pickled by its name, as functions are: the process that loads it imports its module."""
        return self.__qualname__
