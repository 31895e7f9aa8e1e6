"""What an operation of any dialect does around its kernels: checks, plans, allocation, launches.

One file a family. Its functions are those of `kernels.reference`, with the dialect as their first
argument: `bind` makes them the functions of a dialect. Whatever depends on the language lies with
the kernels (`kernels.numba_cuda`, `kernels.cuda_c`), one module a family there too.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

from kernels import reference
from kernels.launchers.common import Dialect

FAMILIES = (
    "pointwise reduction transpose scan matmul conv pool softmax cross_entropy norm row_norm"
    " attention random embedding optim"
).split()


def bind(package: str) -> dict[str, object]:
    """The operations of the dialect whose kernels are in `package`, and its CATALOG."""
    dialect = Dialect(package)
    found: dict[str, object] = {"CATALOG": []}
    for family in FAMILIES:
        launchers = importlib.import_module(f"{__name__}.{family}")
        kernels = getattr(dialect, family, None)  # a dialect's own ladder, or the common one
        found["CATALOG"] += getattr(kernels, "CATALOG", None) or launchers.CATALOG
        for name in reference.__all__:
            function = vars(launchers).get(name)
            if function is not None and function.__module__ == launchers.__name__:
                found[name] = _bound(function, dialect)
    return found


def _bound(function: Callable, dialect: Dialect) -> Callable:
    return functools.update_wrapper(functools.partial(function, dialect), function)
