"""The operations as functions of `kernels`: `kernels.matmul`, `kernels.exp`, `kernels.catalog`.

Imported by the first of these names: a program of `numba.cuda` or CuPy needs none of them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

from kernels import dispatch, launchers, pointwise, reduction


def catalog() -> list[tuple[str, str, str, str]]:
    """All kernels: rows of (family, dialect, version, the one idea that it adds)."""
    return [
        (family, name, version, idea)
        for name in dispatch.DIALECTS
        if dispatch.installed(name)
        for family, version, idea in launchers.catalog(name)
    ]


def _run(name: str, args: tuple, kwargs: dict, backend: str | None, version: str | None):
    if "cupy" in sys.modules:
        dispatch.gpu_found()
    module = dispatch.active if backend is None else dispatch.dialect(backend)
    if version is not None:
        if module.__name__ == dispatch.DIALECTS["numpy"]:
            raise ValueError(f"{name}: backend 'numpy' has no versions to choose from")
        if not launchers.operations()[name].takes_version:
            raise ValueError(f"{name}: takes no version; the shapes choose its kernel")
        kwargs["version"] = version
    return getattr(module, name)(*args, **kwargs)


def _operation(name: str) -> Callable:
    """A function of the dialects, with `backend=` and `version=`; one number serves as a pair."""
    reference = getattr(importlib.import_module("kernels.reference"), name)
    signature = inspect.signature(reference)
    parameters = signature.parameters.values()
    pairs = {p.name for p in parameters if str(p.annotation).startswith("Pair")}
    names = [p.name for p in parameters]

    def twice(key: str, value):
        return (value, value) if key in pairs and isinstance(value, int) else value

    @functools.wraps(reference)
    def operation(*args, backend: str | None = None, version: str | None = None, **kwargs):
        if pairs:
            args = (*map(twice, names, args), *args[len(names) :])
            kwargs = {key: twice(key, value) for key, value in kwargs.items()}
        return _run(name, args, kwargs, backend, version)

    choices = [
        inspect.Parameter(
            key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation="str | None"
        )
        for key in ("backend", "version")
    ]
    operation.__signature__ = signature.replace(parameters=[*parameters, *choices])
    operation.__module__ = "kernels"
    return operation


def _table_line(name: str) -> Callable:
    """A line of the pointwise or the reduction table as a function."""
    if name in reduction.TABLE:
        operation, line = "reduce", name
        doc = f"The reduction {name!r}: {reduction.TABLE[name].combine} (see `kernels.reduce`)."
    else:
        operation, line = "pointwise", pointwise.TABLE[name]
        doc = f"{name}({', '.join(line.args)}) = {line.text}, element by element."

    def function(*args, backend: str | None = None, version: str | None = None, **kwargs):
        return _run(operation, (line, *args), kwargs, backend, version)

    function.__name__ = function.__qualname__ = name
    function.__module__, function.__doc__ = "kernels", doc
    return function


def names() -> set[str]:
    """The names that `find` knows."""
    return {"catalog", *launchers.operations(), *reduction.TABLE, *pointwise.TABLE}


def find(name: str) -> Any:
    """What `kernels.NAME` stands for. Raises AttributeError for what is no operation."""
    if name == "catalog":
        return catalog
    if name in reduction.TABLE or name in pointwise.TABLE:
        return _table_line(name)
    if not name.startswith("_") and name in launchers.operations():
        return _operation(name)
    raise AttributeError(f"module 'kernels' has no attribute {name!r}")
