"""`cupyx.scipy.fft`: SciPy's functions on device arrays; also a backend for `scipy.fft`:

with scipy.fft.set_backend(cupyx.scipy.fft):
    scipy.fft.fft(device_array)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kernels.cupy._array import ndarray
from kernels.cupy._creation import asarray
from kernels.cupyx._proxy import of_scipy

__ua_domain__ = "numpy.scipy.fft"


def __ua_convert__(dispatchables: Iterable[Any], coerce: bool) -> Any:
    """The arguments of a call of scipy.fft; NotImplemented where an array is not on the device."""
    values = []
    for one in dispatchables:
        value = one.value
        if one.type is np.ndarray and value is not None and not isinstance(value, ndarray):
            if not (coerce and one.coercible):
                return NotImplemented
            value = asarray(value)
        values.append(value)
    return values


def __ua_function__(method: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A function of scipy.fft on device arrays."""
    import scipy.fft

    here = sys.modules[__name__]
    found = getattr(here, method.__name__, None)
    if found is None:
        return NotImplemented
    with scipy.fft.skip_backend(here):  # it calls SciPy's own
        return found(*args, **kwargs)


__getattr__, __dir__ = of_scipy("cupyx.scipy.fft", globals())
