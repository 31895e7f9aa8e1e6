"""Functions whose rules differ from NumPy's of the same name, or that only CuPy has."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _memory
from ._array import fresh, ndarray, operand, view, wrap
from ._creation import array, asarray
from ._generate import inputs
from ._quiet import quietly
from ._trace import recorded


def _check_kind(kind: str | None) -> None:
    if kind not in (None, "stable"):
        raise ValueError("kind can only be None or 'stable'")


def sort(a: ndarray, axis: int | None = -1, kind: str | None = None) -> ndarray:
    """A sorted copy."""
    _check_kind(kind)
    return fresh(np.sort(operand(a), axis, kind="stable"))


def argsort(a: ndarray, axis: int | None = -1, kind: str | None = None) -> ndarray:
    """The indices that would sort `a`; equal elements keep their order."""
    _check_kind(kind)
    return fresh(np.argsort(operand(a), axis, kind="stable"))


def msort(a: ndarray) -> ndarray:
    """A copy sorted along the first axis."""
    return sort(a, 0)


@recorded
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """x where the condition is true, else y; without x and y, where it is not zero."""
    missing = (x is None, y is None).count(True)
    if missing == 1:
        raise ValueError("Must provide both 'x' and 'y' or neither.")
    if missing:
        return wrap(np.nonzero(operand(condition)))
    return fresh(np.where(operand(condition), operand(x), operand(y)))


def take(a: ndarray, indices: Any, axis: int | None = None, out: Any = None) -> ndarray:
    """Elements at indices, which wrap around."""
    result = np.take(operand(a), inputs(indices), axis, mode="wrap")
    if out is None:
        return fresh(result)
    np.copyto(out._array, result)
    return out


def matmul(x1: Any, x2: Any, out: ndarray | None = None, **options: Any) -> ndarray:
    """The matrix product. Raises ValueError for 0-d arrays."""
    options = {key: value for key, value in options.items() if value is not None}
    result = quietly(np.matmul, operand(x1), operand(x2), **options)
    if out is None:
        return fresh(result)
    np.copyto(out._array, result)
    return out


def size(a: Any, axis: int | None = None) -> int:
    """The number of elements, or of those along an axis."""
    return np.size(inputs(a), axis)


def diagonal(a: ndarray, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ndarray:
    """A view of the diagonals, which can be written to."""
    found = operand(a).diagonal(offset, axis1, axis2)
    if a._array.flags.writeable:
        found.flags.writeable = True
    return view(a, found)


def broadcast_to(array: ndarray, shape: Any) -> ndarray:
    """A view of another shape. Raises ValueError where it does not broadcast."""
    return view(array, np.broadcast_to(asarray(array)._array, shape))


def _on_device(function: Callable) -> Callable:
    """A function for NumPy to call that gets and gives device arrays."""
    return lambda *args, **options: inputs(function(*map(wrap, args), **options))


def apply_along_axis(
    func1d: Callable, axis: int, arr: ndarray, *args: Any, **kwargs: Any
) -> ndarray:
    """func1d of each 1-d slice along an axis."""
    return wrap(np.apply_along_axis(
        _on_device(lambda part: func1d(part, *args, **kwargs)), axis, operand(arr)
    ))  # fmt: skip


def apply_over_axes(func: Callable, a: ndarray, axes: Any) -> ndarray:
    """func(a, axis) for each axis in turn."""
    return wrap(np.apply_over_axes(
        lambda part, axis: inputs(func(fresh(part), axis)), operand(a), axes
    ))  # fmt: skip


def piecewise(x: ndarray, condlist: Any, funclist: list[Any]) -> ndarray:
    """Values of `funclist` where the conditions hold. Raises NotImplementedError for functions."""
    if any(callable(item) for item in funclist):
        raise NotImplementedError("Callable functions are not supported currently")
    return fresh(np.piecewise(operand(x), inputs(condlist), inputs(funclist)))


def mask_indices(n: int, mask_func: Callable, k: int = 0) -> tuple[ndarray, ...]:
    """Where mask_func(ones, k) is not zero."""
    return wrap(np.nonzero(operand(mask_func(fresh(np.ones((n, n), int)), k))))


@recorded
def round_(a: ndarray, decimals: int = 0, out: ndarray | None = None) -> ndarray:
    """Rounded to `decimals`."""
    return asarray(a).round(decimals, out)


around = round = round_


def ndim(a: Any) -> int:
    """The number of dimensions."""
    return a.ndim if hasattr(a, "ndim") else np.ndim(a)


def shape(a: Any) -> tuple[int, ...]:
    """The shape of an array or of nested lists."""
    return a.shape if hasattr(a, "shape") else np.shape(a)


def result_type(*arrays_and_dtypes: Any) -> np.dtype:
    """The dtype that NumPy's promotion gives for arrays, dtypes and numbers."""
    return np.result_type(*(a.dtype if isinstance(a, ndarray) else a for a in arrays_and_dtypes))


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """Whether a cast between dtypes is allowed."""
    return np.can_cast(from_.dtype if isinstance(from_, ndarray) else from_, to, casting)


def common_type(*arrays: ndarray) -> type:
    """The inexact scalar type that all arrays can be cast to."""
    return np.common_type(*map(operand, arrays)) if arrays else np.float16


def min_scalar_type(a: Any) -> np.dtype:
    """The smallest dtype that holds a number; an array's own."""
    return a.dtype if isinstance(a, ndarray) and a.ndim else np.min_scalar_type(inputs(a))


def byte_bounds(a: ndarray) -> tuple[int, int]:
    """The addresses of the array's first byte and of the one after its last."""
    return np.lib.array_utils.byte_bounds(operand(a))


def get_array_module(*args: Any) -> Any:
    """This module if an argument is a device array or sparse matrix, else NumPy."""
    for arg in args:
        if isinstance(arg, ndarray) or hasattr(arg, "__host_value__"):
            return sys.modules[__package__]
    return np


def is_available() -> bool:
    """True: kernels and array functions run, on the CPU."""
    return True


def get_default_memory_pool() -> _memory.MemoryPool:
    return _memory.default_pool


def get_default_pinned_memory_pool() -> _memory.PinnedMemoryPool:
    return _memory.default_pinned_pool


def load(file: Any, mmap_mode: str | None = None, allow_pickle: bool | None = None) -> Any:
    """The arrays of an .npy or .npz file, on the device."""
    loaded = np.load(file, mmap_mode, allow_pickle=bool(allow_pickle))
    return array(loaded) if isinstance(loaded, np.ndarray) else NpzFile(loaded)


class NpzFile:
    """The arrays of an .npz file by name: `files`, `f[name]`, `close()`."""

    def __init__(self, loaded: Any) -> None:
        self.npz_file = loaded
        self.files = loaded.files

    def __getitem__(self, key: str) -> ndarray:
        return array(self.npz_file[key])

    def __enter__(self) -> NpzFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.npz_file.close()


def save(file: Any, arr: Any, allow_pickle: bool | None = None) -> None:
    """Write an array to an .npy file."""
    np.save(file, asarray(arr).get(), allow_pickle=bool(allow_pickle))


def savez(file: Any, *args: Any, **kwds: Any) -> None:
    """Write arrays to an .npz file."""
    np.savez(file, *map(inputs, args), **inputs(kwds))


def savez_compressed(file: Any, *args: Any, **kwds: Any) -> None:
    """Write arrays to a compressed .npz file."""
    np.savez_compressed(file, *map(inputs, args), **inputs(kwds))


def savetxt(fname: Any, X: Any, *args: Any, **kwargs: Any) -> None:
    """Write an array as text."""
    np.savetxt(fname, inputs(X), *args, **kwargs)


_memoized: list[Any] = []


def memoize(for_each_device: bool = False) -> Callable:
    """A decorator that keeps a function's results until `clear_memo`."""

    def decorate(function: Callable) -> Callable:
        cached = functools.cache(function)
        _memoized.append(cached)
        return functools.wraps(function)(lambda *args, **options: cached(*args, **options))

    return decorate


def clear_memo() -> None:
    """Forget what `memoize` kept."""
    for cached in _memoized:
        cached.cache_clear()


def show_config() -> None:
    """Print what this CuPy is and what it runs on."""
    print(f"CuPy on NumPy {np.__version__}, device 0: this machine's CPU")


class vectorize:
    """A function of numbers as one of arrays. It is called for each element, in Python."""

    def __init__(
        self, pyfunc: Callable, otypes: Any = None, doc: str | None = None, excluded: Any = None,
        cache: bool = False, signature: str | None = None,
    ) -> None:  # fmt: skip
        for name, value in (("otypes", otypes), ("excluded", excluded), ("signature", signature)):
            if value is not None:
                raise NotImplementedError(f"vectorize: {name} is not supported")
        if cache:
            raise NotImplementedError("vectorize: cache is not supported")
        self.pyfunc, self.__doc__ = pyfunc, doc or pyfunc.__doc__
        self._function = np.vectorize(pyfunc)

    def __call__(self, *args: Any) -> ndarray:
        return fresh(self._function(*map(operand, args)))


def _removed(name: str, instead: str) -> Callable:
    def removed(*args: Any, **kwds: Any) -> None:
        raise RuntimeError(f"{name} has been removed in NumPy v2. Use {instead} instead.")

    removed.__name__ = name
    return removed


find_common_type = _removed("find_common_type", "`promote_types` or `result_type`")
set_string_function = _removed("set_string_function", "`np.set_printoptions`")
get_array_wrap = _removed("get_array_wrap", "no function")
disp = _removed("disp", "your own print function")
safe_eval = _removed("safe_eval", "`ast.literal_eval`")


def issubclass_(arg1: Any, arg2: Any) -> bool:
    """issubclass, False where an argument is no class."""
    return isinstance(arg1, type) and issubclass(arg1, arg2)


def obj2sctype(rep: Any, default: Any = None) -> Any:
    """The scalar type of a type, a dtype or a name."""
    try:
        return np.dtype(rep).type
    except TypeError:
        return default


def issctype(rep: Any) -> bool:
    """Whether `rep` is a scalar type or a dtype."""
    return isinstance(rep, type | np.dtype) and obj2sctype(rep) not in (None, np.object_)


def issubsctype(arg1: Any, arg2: Any) -> bool:
    """Whether the scalar type of the one is a subclass of the other's."""
    return issubclass(obj2sctype(arg1), obj2sctype(arg2))


def sctype2char(sctype: Any) -> str:
    """The character of a scalar type."""
    found = obj2sctype(sctype)
    if found is None:
        raise ValueError("unrecognized type")
    return np.dtype(found).char


def who(vardict: dict[str, Any] | None = None) -> None:
    """Print the device arrays in a dictionary (default: the caller's globals)."""
    if vardict is None:
        vardict = sys._getframe(1).f_globals
    for name, value in vardict.items():
        if isinstance(value, ndarray):
            print(f"{name:12} {value.shape!s:20} {value.nbytes:12} {value.dtype}")
