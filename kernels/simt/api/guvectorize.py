"""`guvectorize` for CUDA: a function of small arrays, along the leading axes of large ones."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core import types

from kernels.simt.api import stagers
from kernels.simt.api.launch import Kernel
from kernels.simt.device.arrays import DeviceNDArray, is_cuda_array, memory_of

_STAGER = """
def applied({args}):
    i = cuda.grid(1)
    if i < {last}.shape[0]:
        core({items})
"""
_GROUP = re.compile(r"\(([^()]*)\)")

Symbols = list[tuple[str, ...]]


def parse_signature(signature: str) -> tuple[Symbols, Symbols]:
    """("(m,n),(n)->(m)") as the names of the dimensions of each input and each output."""
    text = "".join(signature.split())
    sides = text.split("->")
    sides += [""] * (2 - len(sides))
    parsed: list[Symbols] = []
    for side in sides:
        groups = [group[1] for group in _GROUP.finditer(side)]
        if ",".join(f"({group})" for group in groups) != side.rstrip(","):
            raise ValueError(f"bad token in signature {signature!r}")
        parsed.append([tuple(name for name in group.split(",") if name) for group in groups])
    inputs, outputs = parsed[:2]
    known = {name for group in inputs for name in group}
    if missing := sorted({name for group in outputs for name in group} - known):
        raise NameError(f"undefined output symbols: {','.join(missing)}")
    return inputs, outputs


class Schedule(NamedTuple):
    """How a call loops: over `loop` dimensions, with inner shapes of inputs and outputs."""

    loop: tuple[int, ...]
    inner: list[tuple[int, ...]]
    results: list[tuple[int, ...]]

    @property
    def count(self) -> int:
        return math.prod(self.loop)


class GeneralizedUFunc:
    """What `guvectorize` makes. `kernelmap`: (output dtypes, kernel) by the inputs' dtypes."""

    def __init__(
        self, function: FunctionType, inputs: Symbols, outputs: Symbols, kernelmap: dict
    ) -> None:
        functools.update_wrapper(self, function)
        self.inputs, self.outputs, self.kernelmap = inputs, outputs, kernelmap

    def __call__(self, *args: Any, out: Any = None, stream: Any = 0) -> Any:
        """Apply to arrays; outputs are made, or given as `out` or as further arguments.

        Returns device arrays if an argument or an output is one, else NumPy arrays. Raises
        TypeError for dtypes or a count that no signature has, ValueError for shapes that do not
        fit.
        """
        given, outputs = self._split(args, out)
        arrays = [memory_of(arg) for arg in given]
        schedule = self._schedule([array.shape for array in arrays])
        dtypes = self._match(arrays)
        result_dtypes, kernel = self.kernelmap[dtypes]
        for arg, array, dtype in zip(given, arrays, dtypes):
            if is_cuda_array(arg) and array.dtype != dtype:
                raise TypeError(
                    f"{self.__name__}: compatible signature is possible by casting but"
                    f" {type(arg).__name__} does not support .astype()"
                )
        count = schedule.count
        if count == 0:
            raise ValueError(f"{self.__name__}: zero looping dimension: {schedule.loop}")
        inputs = [
            self._spread(array.astype(dtype, copy=False), count, inner)
            for array, dtype, inner in zip(arrays, dtypes, schedule.inner)
        ]
        shapes = [schedule.loop + inner for inner in schedule.results]
        results = [
            np.empty(shape, dtype) if output is None else memory_of(output)
            for output, shape, dtype in zip(outputs, shapes, result_dtypes)
        ]
        for result, shape in zip(results, shapes):
            if result.shape != shape:
                raise ValueError(
                    f"{self.__name__}: output shape mismatch: {result.shape}, not {shape}"
                )
        self._launch(kernel, schedule, inputs, results, result_dtypes, stream)
        on_device = any(map(is_cuda_array, (*given, *outputs)))
        returned = [
            output if output is not None else DeviceNDArray(result) if on_device else result
            for output, result in zip(outputs, results)
        ]
        return returned[0] if len(returned) == 1 else tuple(returned)

    def _split(self, args: tuple, out: Any) -> tuple[tuple, list]:
        """(inputs, outputs or None for each)."""
        count, more = len(self.inputs), len(self.outputs)
        if out is not None and len(args) > count:
            raise ValueError("cannot specify argument 'out' as both positional and keyword")
        if len(args) != count and (out is not None or len(args) != count + more):
            raise TypeError(
                f"This gufunc accepts {_arguments(count)} (when providing input only) or"
                f" {_arguments(count + more)} (when providing input and output). Got"
                f" {_arguments(len(args))}."
            )
        given = list(args[count:]) or (list(out) if isinstance(out, tuple) else [out] * more)
        return args[:count], given

    def _schedule(self, shapes: list[tuple[int, ...]]) -> Schedule:
        sizes: dict[str, int] = {}
        outer, inner = [], []
        for number, (shape, names) in enumerate(zip(shapes, self.inputs), 1):
            if len(shape) < len(names):
                raise ValueError(f"arg #{number}: insufficient inner dimension")
            split = len(shape) - len(names)
            for axis, (size, name) in enumerate(zip(shape[split:], names), split):
                if sizes.setdefault(name, size) != size:
                    raise ValueError(f"arg #{number}: shape[{axis}] mismatch argument")
            outer.append(shape[:split])
            inner.append(shape[split:])
        loop = max(outer, key=math.prod)
        for number, dims in enumerate(outer, 1):
            if dims != loop and dims not in ((), (1,)):
                raise ValueError(f"arg #{number}: outer dimension mismatch")
        return Schedule(loop, inner, [tuple(sizes[n] for n in names) for names in self.outputs])

    def _match(self, arrays: list[np.ndarray]) -> tuple[np.dtype, ...]:
        """The input dtypes of the signature to use: numba-cuda's rule, exact ones first."""
        exact = tuple(array.dtype for array in arrays)
        if exact in self.kernelmap:
            return exact
        for dtypes in self.kernelmap:
            if all(np.can_cast(mine, given) for mine, given in zip(dtypes, exact)):
                return dtypes
        raise TypeError(
            f"{self.__name__}: no matching signature for ({', '.join(map(str, exact))}); it has"
            f" {'; '.join(map(str, self.kernelmap))}"
        )

    @staticmethod
    def _spread(array: np.ndarray, count: int, inner: tuple[int, ...]) -> np.ndarray:
        """The array as `count` items of shape `inner`; the same item each time if it has one."""
        items = array.reshape(-1, *inner) if array.size else array.reshape(count, *inner)
        return items if len(items) == count else np.broadcast_to(items[0], (count, *inner))

    @staticmethod
    def _launch(kernel, schedule, inputs, results, dtypes, stream) -> None:
        targets = [
            result
            if result.flags.c_contiguous and result.dtype == dtype
            else np.empty(result.shape, dtype)
            for result, dtype in zip(results, dtypes)
        ]
        count = schedule.count
        flat = [t.reshape(count, *inner) for t, inner in zip(targets, schedule.results)]
        kernel.forall(count, stream=stream)(*inputs, *flat)
        for target, result in zip(targets, results):
            if target is not result:
                result[...] = target


def _arguments(count: int) -> str:
    return f"{count} positional argument{'s' * (count != 1)}"


class CUDAGUFuncVectorize:
    """The builder behind `numba.guvectorize(..., target="cuda")`."""

    def __init__(
        self,
        func: FunctionType,
        sig: str,
        identity: Any = None,
        cache: bool = False,
        targetoptions: dict | None = None,
        writable_args: tuple = (),
        is_dynamic: bool = False,
    ) -> None:
        options = dict(targetoptions or {})
        options.pop("is_dynamic", None)
        if cache:
            raise TypeError("caching is not supported")
        if writable_args:
            raise TypeError("writable_args are not supported")
        if not options.pop("nopython", True):
            raise TypeError("nopython flag must be True")
        if options:
            named = ", ".join(map(repr, options))
            raise TypeError(f"The following target options are not supported: {named}")
        self.py_func, self.identity, self.signature = func, identity, sig
        self.inputs, self.outputs = parse_signature(sig)
        self.kernelmap: dict[tuple[np.dtype, ...], tuple[tuple[np.dtype, ...], Kernel]] = {}

    def add(self, sig: Any = None) -> None:
        """Make a version for one signature."""
        kinds, returned = stagers.declared(sig)
        if returned not in (types.none, None):
            raise TypeError(
                "guvectorized functions cannot return values: signature"
                f" {sig} specifies {returned} return type"
            )
        names = [f"arg{i}" for i in range(len(kinds))]
        inner = [len(symbols) for symbols in (*self.inputs, *self.outputs)]
        for kind, ndim in zip(kinds, inner):
            if ndim > 0 and not isinstance(kind, types.Array):
                raise ValueError("gufunc signature mismatch: ndim>0 for scalar")
        items = [f"{n}[{_index(k, d)}]" for n, k, d in zip(names, kinds, inner)]
        text = _STAGER.format(args=", ".join(names), last=names[-1], items=", ".join(items))
        kernel = Kernel(stagers.made(text, "applied", stagers.core_of(self.py_func, None)), None)
        dtypes = [stagers.dtype_of(getattr(kind, "dtype", kind)) for kind in kinds]
        count = len(self.inputs)
        self.kernelmap[tuple(dtypes[:count])] = tuple(dtypes[count:]), kernel

    def disable_compile(self) -> None:
        """Versions are compiled when they are first called."""

    def build_ufunc(self) -> GeneralizedUFunc:
        return GeneralizedUFunc(self.py_func, self.inputs, self.outputs, self.kernelmap)


def _index(kind: types.Type, ndim: int) -> str:
    """How one item is taken of an array of items."""
    if ndim:
        return ", ".join(["i", *[":"] * ndim])
    return "i:i + 1" if isinstance(kind, types.Array) else "i"


def guvectorize(*args: Any, target: str = "cuda", **kwargs: Any) -> Callable[[FunctionType], Any]:
    """A decorator: `@cuda.guvectorize(["void(float32[:], float32[:])"], "(n)->(n)")`.

    Outputs are the last parameters of the function. A call is one thread for each item of the
    leading dimensions; see `GeneralizedUFunc`.
    """
    if target != "cuda":
        return numba.guvectorize(*args, target=target, **kwargs)
    if len(args) not in (1, 2):
        raise TypeError("guvectorize() takes one or two positional arguments")
    signatures, layout = ([], args[0]) if len(args) == 1 else args
    identity, cache = kwargs.pop("identity", None), kwargs.pop("cache", False)
    writable = kwargs.pop("writable_args", ())
    return stagers.decorator(
        lambda func: CUDAGUFuncVectorize(func, layout, identity, cache, kwargs, writable),
        signatures,
    )
