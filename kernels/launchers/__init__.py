"""What an operation of any dialect does around its kernels: checks, plans, allocation, launches.

One file per family, which ends with its declaration (`kernels.families`). Its functions are those
of `kernels.reference`, with the dialect as their first argument: `bind` makes them the functions of
a dialect. Whatever depends on the language lies with the kernels (`kernels.numba_cuda`,
`kernels.cuda_c`), one module per family there too.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable
from typing import Any

from kernels import dispatch
from kernels.families import Family, Operation
from kernels.launchers.common import Dialect

ORACLE = "plain NumPy: the oracle"


@functools.cache
def declared() -> dict[str, Family]:
    """All families by name."""
    names = [f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)]
    found = [getattr(importlib.import_module(name), "FAMILY", None) for name in names]
    return {family.name: family for family in found if family is not None}


@functools.cache
def operations() -> dict[str, Operation]:
    """The operations of all families by name."""
    return {o.name: o for family in declared().values() for o in family.operations}


@functools.cache
def _files(dialect: str) -> frozenset[str]:
    """The modules of a dialect's package, which is not imported."""
    package = importlib.util.find_spec(dispatch.DIALECTS[dialect])
    return frozenset(m.name for m in pkgutil.iter_modules(package.submodule_search_locations))


def lacks(dialect: str, family: Family) -> list[str]:
    """The files that the dialect would need for a family, and has not."""
    return [file for file in family.files_in(dialect) if file not in _files(dialect)]


def has(dialect: str, family: Family, operation: Operation) -> bool:
    """Whether the dialect has kernels for the operation."""
    if lacks(dialect, family):
        return False
    return dialect == "numpy" or operation.versions_in(dialect) is not None


def versions(dialect: str, operation: str) -> list[str]:
    """The names of the versions that `version=` takes in a dialect."""
    found = operations()[operation]
    return [v for v in found.versions_in(dialect) or () if v not in found.by_shape]


def catalog(dialect: str) -> list[tuple[str, str, str]]:
    """(operation, version, idea) of all that a dialect has."""
    if dialect == "numpy":
        return [(name, "numpy", ORACLE) for name in sorted(operations())]
    return [
        (operation.name, version, idea)
        for family in declared().values()
        for operation in family.operations
        if has(dialect, family, operation)
        for version, idea in operation.versions_in(dialect).items()
    ]


def exports(dialect: str, find: Callable[[Family, Operation], Callable]) -> dict[str, Callable]:
    """The operations of a dialect by name: what `find` finds, or a function that says what the
    dialect lacks."""
    return {
        operation.name: find(family, operation)
        if has(dialect, family, operation)
        else missing(dialect, family, operation.name)
        for family in declared().values()
        for operation in family.operations
    }


def missing(dialect: str, family: Family, name: str) -> Callable:
    """What stands for an operation that a dialect lacks: its call raises NotImplementedError."""

    def operation(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(reason(dialect, family, name))

    operation.__name__ = operation.__qualname__ = name
    return operation


def reason(dialect: str, family: Family, name: str) -> str:
    """That a dialect lacks an operation, and what to do."""
    others = [
        repr(other)
        for other in dispatch.DIALECTS
        if other != dialect and dispatch.installed(other) and has(other, family, operations()[name])
    ]
    folder = dispatch.DIALECTS[dialect].replace(".", "/")
    files = " and ".join(f"{folder}/{file}.py" for file in lacks(dialect, family) or [family.name])
    instead = f"use backend={' or '.join(others)}, or " if others else ""
    return (
        f"{name}: the dialect {dialect!r} lacks it (family {family.name!r}); {instead}write {files}"
    )


def bind(package: str) -> dict[str, Callable]:
    """The operations of the dialect whose kernels are in `package`."""
    dialect = Dialect(package)

    def bound(family: Family, operation: Operation) -> Callable:
        launch = operation.launch
        return functools.update_wrapper(functools.partial(launch, dialect), launch)

    return exports(dialect.name, bound)
