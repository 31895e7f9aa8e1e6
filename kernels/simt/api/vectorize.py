"""`@cuda.vectorize`: an elementwise function from a function of scalars."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numba

from kernels.simt.device.arrays import DeviceNDArray


def vectorize(signatures: Sequence[Any] | Callable, **options: Any) -> Any:
    """A function of scalars applied to arrays that broadcast together.

    As in numba.cuda: `@cuda.vectorize(["float32(float32, float32)"])`. A call with a device array
    returns a device array, otherwise a NumPy array; `out=` and `stream=` are accepted.
    """
    options.pop("target", None)

    def decorate(function: Callable) -> Callable:
        ufunc = numba.vectorize(signatures, **options)(function)

        @functools.wraps(function)
        def call(*args: Any, out: Any = None, stream: Any = 0) -> Any:
            on_device = any(isinstance(arg, DeviceNDArray) for arg in args)
            plain = [arg.memory if isinstance(arg, DeviceNDArray) else arg for arg in args]
            if out is not None:
                ufunc(*plain, out=out.memory if isinstance(out, DeviceNDArray) else out)
                return out
            result = ufunc(*plain)
            return DeviceNDArray(result, stream) if on_device else result

        return call

    if callable(signatures):
        function, signatures = signatures, ()
        return decorate(function)
    return decorate
