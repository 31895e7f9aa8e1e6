"""What an operation of any dialect does around its kernels: checks, plans, allocation, launches.

One file per family, which ends with its declaration (`kernels.families`). Its functions are those
of `kernels.reference`, with the dialect as their first argument: `bind` makes them the functions of
a dialect. Whatever depends on the language lies with the kernels (`kernels.numba_cuda`,
`kernels.cuda_c`), one module per family there too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from kernels import families
from kernels.launchers.common import Dialect


def bind(package: str) -> dict[str, Callable]:
    """The operations of the dialect whose kernels are in `package`."""
    dialect = Dialect(package)

    def bound(family: families.Family, operation: families.Operation) -> Callable:
        launch = operation.launch
        return functools.update_wrapper(functools.partial(launch, dialect), launch)

    return families.exports(dialect.name, bound)
