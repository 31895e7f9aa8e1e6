"""`vectorize` for CUDA: a function of scalars applied to arrays that broadcast together.

As in numba-cuda, arrays must have the dtypes of one of the signatures; Python's numbers convert.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numba
import numpy as np

from kernels.simt.api import stagers
from kernels.simt.api.guvectorize import CUDAGUFuncVectorize, guvectorize
from kernels.simt.api.launch import Kernel
from kernels.simt.device.arrays import DeviceNDArray, is_cuda_array, memory_of

__all__ = ["CUDAGUFuncVectorize", "CUDAVectorize", "guvectorize", "vectorize"]

_STAGER = """
def vectorized({args}, out):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] = core({items})
"""


class UFunc:
    """What `vectorize` makes. `functions` are (result dtype, kernel) by the arguments' dtypes."""

    def __init__(self, function: FunctionType, functions: dict) -> None:
        functools.update_wrapper(self, function)
        self.functions = functions

    def __call__(self, *args: Any, out: Any = None, stream: Any = 0, **unknown: Any) -> Any:
        """Apply to arrays and numbers.

        Returns a device array if an argument or `out` is one, else a NumPy array. Raises TypeError
        where no signature has the dtypes of the arrays, ValueError where shapes do not broadcast.
        """
        if unknown:
            warnings.warn(f"unrecognized keywords: {', '.join(unknown)}", stacklevel=2)
        arrays = [None if _is_number(arg) else memory_of(arg) for arg in args]
        dtypes = self._match(args, arrays)
        result_dtype, kernel = self.functions[dtypes]
        given = [
            np.array([arg], dtype) if array is None else array
            for arg, array, dtype in zip(args, arrays, dtypes)
        ]
        shape = _broadcast_shape([array.shape for array in given])
        result = self._result(out, shape, result_dtype)
        flat = [np.ascontiguousarray(np.broadcast_to(a, shape)).reshape(-1) for a in given]
        target = result if result.flags.c_contiguous else np.empty(shape, result_dtype)
        kernel.forall(target.size, stream=stream)(*flat, target.reshape(-1))
        if target is not result:
            result[...] = target
        if out is not None:
            return out
        return DeviceNDArray(result, stream) if any(map(is_cuda_array, args)) else result

    def _match(self, args: tuple, arrays: list) -> tuple[np.dtype, ...]:
        """The dtypes of the signature to use: numbers fit any, exact ones are preferred."""
        candidates = [dtypes for dtypes in self.functions if len(dtypes) == len(args)]
        exact = [np.asarray(x).dtype if a is None else a.dtype for x, a in zip(args, arrays)]
        if tuple(exact) in candidates:
            return tuple(exact)
        found = [
            dtypes
            for dtypes in candidates
            if all(a is None or a.dtype == dtype for a, dtype in zip(arrays, dtypes))
        ]
        if len(found) == 1:
            return found[0]
        kinds = ", ".join(map(str, exact))
        if not found:
            raise TypeError(
                f"{self.__name__}: No matching version for ({kinds}). GPU ufunc requires array"
                f" arguments to have the exact types; it has {'; '.join(map(str, self.functions))}"
            )
        raise TypeError(
            f"{self.__name__}: ambiguous signature for ({kinds}): too many untyped scalars; give"
            " them a type, as in numpy.float32(x)"
        )

    def _result(self, out: Any, shape: tuple, dtype: np.dtype) -> np.ndarray:
        if out is None:
            return np.empty(shape, dtype)
        memory = memory_of(out)
        if memory.shape != shape or memory.dtype != dtype:
            raise TypeError(
                f"{self.__name__}: out is {memory.dtype} of shape {memory.shape}; the result is"
                f" {dtype} of shape {shape}"
            )
        return memory

    def reduce(self, arg: Any, stream: Any = 0) -> Any:
        """Combine all elements of a one-dimensional array; the function must be associative."""
        memory = memory_of(arg)
        if any(len(dtypes) != 2 for dtypes in self.functions):
            raise ValueError(f"{self.__name__}: must be a binary ufunc")
        if memory.ndim != 1:
            raise ValueError(f"{self.__name__}: must use 1d array, not {memory.ndim} dimensions")
        if memory.size == 0:
            raise TypeError("Reduction on an empty array.")
        while memory.size > 1:
            half = memory.size // 2
            combined = self(memory[:half], memory[half : 2 * half])
            memory = np.concatenate([combined, memory[2 * half :]])
        return memory[0]


def _is_number(arg: Any) -> bool:
    return isinstance(arg, int | float | complex | np.number)


def _broadcast_shape(shapes: list[tuple]) -> tuple:
    for position in range(1, len(shapes) + 1):
        try:
            shape = np.broadcast_shapes(*shapes[:position])
        except ValueError:
            raise ValueError(f"failed to broadcast argument #{position - 1}: {shapes}") from None
    return shape


class CUDAVectorize:
    """The builder that `numba.vectorize(..., target="cuda")` looks for in this module."""

    def __init__(
        self,
        func: FunctionType,
        identity: Any = None,
        cache: bool = False,
        targetoptions: dict | None = None,
    ) -> None:
        if cache:
            raise TypeError("caching is not supported")
        for option in targetoptions or {}:
            if option != "nopython":
                raise KeyError(
                    "Unrecognized options. cuda vectorize target does not support option:"
                    f" '{option}'"
                )
            warnings.warn(
                "nopython kwarg for cuda target is redundant", RuntimeWarning, stacklevel=3
            )
        self.py_func, self.identity = func, identity
        self.kernelmap: dict[tuple[np.dtype, ...], tuple[np.dtype, Kernel]] = {}

    def add(self, sig: Any = None) -> None:
        """Make a version for one signature."""
        kinds, returned = stagers.declared(sig)
        core = stagers.core_of(self.py_func, sig)
        returned = returned or stagers.result_of(core, kinds)
        names = [f"a{i}" for i in range(len(kinds))]
        items = ", ".join(f"{name}[i]" for name in names)
        text = _STAGER.format(args=", ".join(names), items=items)
        kernel = Kernel(stagers.made(text, "vectorized", core), None)
        dtypes = tuple(map(stagers.dtype_of, kinds))
        self.kernelmap[dtypes] = stagers.dtype_of(returned), kernel

    def disable_compile(self) -> None:
        """Versions are compiled when they are first called."""

    def build_ufunc(self) -> UFunc:
        return UFunc(self.py_func, self.kernelmap)


def vectorize(
    ftylist_or_function: Sequence[Any] | str = (), target: str = "cuda", **kws: Any
) -> Callable[[FunctionType], Any]:
    """A decorator for functions of scalars: `@cuda.vectorize(["float32(float32, float32)"])`.

    Signatures are required. A call takes NumPy arrays, device arrays and numbers, `out=` and
    `stream=`; see `UFunc`.
    """
    if target != "cuda":
        return numba.vectorize(ftylist_or_function, target=target, **kws)
    if callable(ftylist_or_function):
        raise TypeError(
            "cuda.vectorize needs signatures: @cuda.vectorize(['float32(float32, float32)'])"
        )
    identity, cache = kws.pop("identity", None), kws.pop("cache", False)
    return stagers.decorator(
        lambda func: CUDAVectorize(func, identity, cache, kws), ftylist_or_function
    )
