"""Kernels that call a function of the user for each element: text made, compiled as any kernel."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
from numba.core import types
from numba.np.numpy_support import as_dtype

from kernels.simt.api.launch import Kernel
from kernels.simt.backend import inference
from kernels.simt.driver import pipeline
from kernels.simt.ir import stubs

_RESULT = """
def result({args}):
    returned = core({args})
"""


def declared(signature: Any) -> tuple[tuple[types.Type, ...], types.Type | None]:
    """(argument types, return type or None) of a signature in any form that Numba takes."""
    return inference.declared_types(signature)


def dtype_of(kind: types.Type) -> np.dtype:
    """The NumPy dtype of arrays with elements of a Numba type."""
    if isinstance(kind, types.EnumMember):
        kind = kind.dtype
    return np.dtype(np.float16) if str(kind) == "float16" else as_dtype(kind)


def core_of(function: FunctionType, signature: Any) -> Kernel:
    """`function` as a device function."""
    return Kernel(function, signature, device=True)


def made(text: str, name: str, core: Kernel) -> FunctionType:
    """The function `name` of a source text that calls `core` and names `cuda`."""
    filename = f"<{name} {hashlib.sha256(text.encode()).hexdigest()[:8]}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    scope: dict[str, Any] = {"cuda": stubs, "core": core, "__name__": core.__module__}
    exec(compile(text, filename, "exec"), scope)
    return scope[name]


def result_of(core: Kernel, args: tuple[types.Type, ...]) -> types.Type:
    """The type of what `core` returns for numbers of these types."""
    names = ", ".join(f"a{i}" for i in range(len(args)))
    probe = made(_RESULT.format(args=names), "result", core)
    _, _, kinds = pipeline.typed_form(probe, args, (1, 1, 1))
    return kinds["returned"]


def decorator(build: Callable[[Any], Any], signatures: Any) -> Callable[[FunctionType], Any]:
    """A decorator that gives a builder its signatures and returns what it builds."""
    listed = [signatures] if isinstance(signatures, str) else list(signatures or ())

    def decorate(function: FunctionType) -> Any:
        builder = build(function)
        for signature in listed:
            builder.add(signature)
        return builder.build_ufunc()

    return decorate
