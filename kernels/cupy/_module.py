"""Modules of CuPy that are generated from its index and a library's functions of the same names."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ._absent import unknown
from ._generate import function
from ._index import entries


def names_of(
    module: str, library: str, given: dict[str, Any]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of the module `module` of CuPy.

    A name is generated at its first use from the function of that name of `library`, and kept in
    `given`, the module's globals. One that the library lacks raises AttributeError with what to do
    instead.
    """

    def get(name: str) -> Any:
        entry = entries(module).get(name)
        if entry is None or name.startswith("__"):
            raise unknown(module, name, entries(module))
        theirs = getattr(importlib.import_module(library), name, None)
        if theirs is None or entry.kind == "class":
            raise AttributeError(
                f"{module}.{name} is not on the CPU; compute it with NumPy or SciPy from"
                " cupy.asnumpy(array)"
            )
        value = function(name, entry.text, theirs, module) if entry.kind == "function" else theirs
        given[name] = value
        return value

    return get, lambda: sorted({*given, *entries(module)})
