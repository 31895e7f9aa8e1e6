"""`cupy.testing`: assertions that compare device arrays with NumPy's or each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ._creation import asnumpy


def _compared(name: str) -> Callable:
    theirs = getattr(np.testing, name)

    def check(*args: Any, **options: Any) -> None:
        theirs(
            *(asnumpy(a) if hasattr(a, "__cuda_array_interface__") else a for a in args), **options
        )

    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"numpy.testing.{name} of arrays on the device or the host."
    return check


assert_allclose = _compared("assert_allclose")
assert_array_equal = _compared("assert_array_equal")
assert_array_less = _compared("assert_array_less")
assert_array_almost_equal = _compared("assert_array_almost_equal")
assert_array_almost_equal_nulp = _compared("assert_array_almost_equal_nulp")
assert_array_max_ulp = _compared("assert_array_max_ulp")


def assert_array_list_equal(
    xlist: list, ylist: list, err_msg: str = "", verbose: bool = True
) -> None:
    """assert_array_equal of each pair of two lists."""
    if len(xlist) != len(ylist):
        raise AssertionError(f"lists of {len(xlist)} and {len(ylist)} arrays")
    for x, y in zip(xlist, ylist):
        assert_array_equal(x, y, err_msg=err_msg, verbose=verbose)


def shaped_arange(shape: Any, xp: Any, dtype: Any = np.float32, order: str = "C") -> Any:
    """1, 2, 3, ... in a shape, as an array of the module `xp`."""
    values = np.arange(1, np.prod(shape, dtype=int) + 1).astype(dtype)
    return xp.array(values.reshape(shape), order=order)


def shaped_random(
    shape: Any, xp: Any, dtype: Any = np.float32, scale: float = 10, seed: int = 0
) -> Any:
    """Uniform numbers from 0 to `scale`, as an array of the module `xp`."""
    values = np.random.RandomState(seed).uniform(0, scale, shape).astype(dtype)
    return xp.array(values)
