"""Device code and how to run it: arrays, grids and blocks, and nothing of gradients.

`kernels.matmul(a, b)` and the other operations take and return NumPy arrays (on a GPU machine also
CuPy arrays); so do the lines of the tables, `kernels.exp(x)` and `kernels.sum(x, axis=0)`.
`backend=` picks a dialect and `version=` a version of its ladder; `kernels.catalog()` lists them.

`from kernels import cuda` is `numba.cuda` where there is a GPU, and the SIMT compiler behind the
same names where there is none. `kernels.raw_kernel(code, name)` runs CUDA C in the same two ways.
`kernels.install()` does more: where there is no GPU, `import numba.cuda` and `import cupy` find
what runs on the CPU.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import warnings
from collections.abc import Callable
from pathlib import Path

from kernels import dispatch, launchers, pointwise, reduction
from kernels.dispatch import trace

if any(Path(__file__).parents[1].glob("kernels-*.dist-info")):
    warnings.warn(
        "Hugging Face's package `kernels` is installed in the same folder as minigrad's package of"
        " that name, and each overwrites files of the other: make an environment for minigrad"
        " (python3 -m venv), or remove the other (pip uninstall kernels) and then install minigrad"
        " again",
        stacklevel=2,
    )

__all__ = ["catalog", "dispatch", "launchers", "pointwise", "reduction", "trace"]


def catalog() -> list[tuple[str, str, str, str]]:
    """All kernels: rows of (family, dialect, version, the one idea that it adds)."""
    return [
        (family, name, version, idea)
        for name in dispatch.DIALECTS
        if dispatch.installed(name)
        for family, version, idea in launchers.catalog(name)
    ]


def _run(name: str, args: tuple, kwargs: dict, backend: str | None, version: str | None):
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
    operation.__module__ = __name__
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
    function.__doc__ = doc
    return function


def __dir__() -> list[str]:
    return sorted(
        {*globals(), *launchers.operations(), *reduction.TABLE, *pointwise.TABLE, "cuda", "install"}
    )


def __getattr__(name: str):
    if name in reduction.TABLE or name in pointwise.TABLE:
        value = _table_line(name)
    elif name == "install":
        from kernels.door import install as value
    elif name in ("raw_kernel", "raw_module"):
        value = getattr(importlib.import_module("kernels.host"), name)
    elif name in ("cuda", "cupy", "cupyx", "host", "lab", "reference", "simt"):
        return importlib.import_module(f"kernels.{name}")
    elif not name.startswith("_") and name in launchers.operations():
        value = _operation(name)
    else:
        raise AttributeError(f"module 'kernels' has no attribute {name!r}")
    globals()[name] = value
    return value
