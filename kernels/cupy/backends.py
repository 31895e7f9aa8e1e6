"""`cupy_backends`: the names under which CuPy's sources find the CUDA libraries."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ._absent import library
from .cuda import compiler, driver, nvrtc, runtime


class _Libraries(ModuleType):
    """`cupy_backends.cuda.libs`."""

    nvrtc = nvrtc

    def __getattr__(self, name: str) -> Any:
        found = library(self.__name__, name)
        if found is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return found


cuda: Any = ModuleType("cupy_backends.cuda")
cuda.api = ModuleType("cupy_backends.cuda.api")
cuda.libs = _Libraries("cupy_backends.cuda.libs")
cuda.api.runtime, cuda.api.driver, cuda.compiler = runtime, driver, compiler
