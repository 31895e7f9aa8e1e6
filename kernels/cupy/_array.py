"""`cupy.ndarray`: an array in device memory, which on this machine is a NumPy array.

Only explicit calls copy between it and NumPy: `get`, `set`, `asnumpy`, `asarray`. Its operators and
most of its methods are attached by `_methods`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from . import _memory, _trace
from ._memory import MemoryPointer, UnownedMemory

SCALARS = frozenset((int, float, bool, complex))
_BASIC = frozenset((int, slice, type(None), type(Ellipsis)))
_KINDS = "biufcV"  # of dtypes that a device has; V is also ml_dtypes.bfloat16's


class Flags:
    """The layout of an array: `c_contiguous`, `f_contiguous`, `owndata`, also by key."""

    __slots__ = ("c_contiguous", "f_contiguous", "owndata")

    def __init__(self, c_contiguous: bool, f_contiguous: bool, owndata: bool) -> None:
        self.c_contiguous, self.f_contiguous, self.owndata = c_contiguous, f_contiguous, owndata

    fnc = property(lambda self: self.f_contiguous and not self.c_contiguous)
    forc = property(lambda self: self.f_contiguous or self.c_contiguous)

    def __getitem__(self, name: str) -> bool:
        if name not in ("C_CONTIGUOUS", "F_CONTIGUOUS", "OWNDATA"):
            raise KeyError(f"{name} is not defined for cupy.ndarray.flags")
        return getattr(self, name.lower())

    def __repr__(self) -> str:
        names = ("C_CONTIGUOUS", "F_CONTIGUOUS", "OWNDATA")
        return "\n".join(f"  {name} : {self[name]}" for name in names)


class ndarray:
    """An array of a shape and a dtype; `cupy.array` and `cupy.empty` make them.

    It is never converted to a NumPy array implicitly (TypeError): use `.get()`. Operations with
    NumPy arrays raise TypeError. An element or the result of a reduction is a 0-d array.
    `base` is the array whose memory this one shares.
    """

    __slots__ = ("__weakref__", "_array", "_pool", "base")
    _array: np.ndarray
    _pool: Any  # where its bytes are counted, or None
    base: ndarray | None
    __array_priority__ = 100
    __hash__ = None

    def __init__(
        self,
        shape: Any,
        dtype: Any = float,
        memptr: MemoryPointer | None = None,
        strides: Any = None,
        order: str = "C",
    ) -> None:
        dtype = check_dtype(dtype)
        shape = (shape,) if isinstance(shape, int | np.integer) else tuple(map(int, shape))
        if memptr is None and strides is None:
            array = np.empty(shape, dtype, order or "C")
        elif memptr is None:
            raise ValueError("memptr is required if strides is given.")
        else:
            plain = np.empty(0, dtype).itemsize * int(np.prod(shape)) if strides is None else 0
            array = _memory.array_at(memptr, shape, dtype, strides, plain)
        _own(self, array, counted=memptr is None)

    def __del__(self) -> None:
        try:
            pool = self._pool
        except AttributeError:  # it was never made
            return
        if pool is not None:
            pool.give((self._array.nbytes + 511) & -512)

    # --- layout

    ndim = property(lambda self: self._array.ndim)
    size = property(lambda self: self._array.size)
    itemsize = property(lambda self: self._array.itemsize)
    nbytes = property(lambda self: self._array.nbytes)
    strides = property(lambda self: self._array.strides)

    @property
    def dtype(self) -> np.dtype:
        return self._array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        try:
            self._array.shape = shape
        except AttributeError:
            raise AttributeError("incompatible shape") from None

    @property
    def flags(self) -> Flags:
        flags = self._array.flags
        return Flags(flags.c_contiguous, flags.f_contiguous, self.base is None)

    @property
    def T(self) -> ndarray:
        return view(self, self._array.T)

    @property
    def mT(self) -> ndarray:
        if self.ndim < 2:
            raise ValueError("matrix transpose with ndim < 2 is undefined")
        return view(self, self._array.swapaxes(-1, -2))

    @property
    def real(self) -> ndarray:
        return view(self, self._array.real)

    @real.setter
    def real(self, value: Any) -> None:
        self._array.real = operand(value)

    @property
    def imag(self) -> ndarray:
        imag = self._array.imag
        return view(self, imag) if self._array.dtype.kind == "c" else fresh(imag.copy())

    @imag.setter
    def imag(self, value: Any) -> None:
        if self._array.dtype.kind != "c":
            raise TypeError("cupy.ndarray does not have imaginary part to set")
        self._array.imag = operand(value)

    # --- memory

    @property
    def data(self) -> MemoryPointer:
        """Where the elements lie: `data.ptr` is their address."""
        owner = self if self.base is None else self.base
        begin = owner._array.__array_interface__["data"][0]
        memory = UnownedMemory(begin, owner._array.nbytes, owner)
        return MemoryPointer(memory, self._array.__array_interface__["data"][0] - begin)

    @property
    def __host_memory__(self) -> np.ndarray:
        """The NumPy array that kernels on the CPU work on."""
        return self._array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        described = self._array.__array_interface__
        return {
            "shape": self._array.shape,
            "typestr": described["typestr"],
            "descr": described["descr"],
            "data": (described["data"][0], False),
            "version": 3,
            "strides": None if self._array.flags.c_contiguous else self._array.strides,
            "stream": 1,
        }

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule; its device is the CPU, since that is where the memory is."""
        return self._array.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def toDlpack(self) -> Any:
        return self.__dlpack__()

    # --- to and from the host

    def get(
        self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True
    ) -> np.ndarray:
        """A copy as a NumPy array, or written into `out` (same shape and dtype)."""
        if out is None:
            order = order.upper()
            if order == "A":
                order = "F" if self._array.flags.fnc else "C"
            return self._array.copy(order=order)
        if not isinstance(out, np.ndarray):
            raise TypeError("Only numpy.ndarray can be obtained from cupy.ndarray")
        if out.dtype != self.dtype:
            raise TypeError(f"{out.dtype} array cannot be obtained from {self.dtype} array")
        if out.shape != self.shape:
            raise ValueError(f"Shape mismatch. Expected shape: {self.shape}, actual: {out.shape}")
        np.copyto(out, self._array)
        return out

    def set(self, arr: np.ndarray, stream: Any = None) -> None:
        """Copy a NumPy array of the same shape and dtype to the device."""
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.dtype != self.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if arr.shape != self.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        np.copyto(self._array, arr)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct"
            " a NumPy array explicitly."
        )

    def item(self, *args: Any) -> Any:
        """An element as a number of Python."""
        return self._array.item(*args)

    def tolist(self) -> Any:
        return self._array.tolist()

    def tobytes(self, order: str = "C") -> bytes:
        return self._array.tobytes(order)

    __bytes__ = tobytes

    def tofile(self, fid: Any, sep: str = "", format: str = "%s") -> None:
        self._array.tofile(fid, sep, format)

    def dump(self, file: Any) -> None:
        self._array.dump(file)

    def dumps(self) -> bytes:
        return self._array.dumps()

    def __reduce__(self) -> tuple:
        return _restored, (self._array.copy(order="K"),)

    def __bool__(self) -> bool:
        array = self._array
        if array.size == 1:
            return bool(array.item())
        if array.size == 0:
            raise ValueError("The truth value of an empty array is ambiguous; use `array.size > 0`")
        raise ValueError(
            "The truth value of an array with more than one element is ambiguous. Use a.any() or"
            " a.all()"
        )

    def __int__(self) -> int:
        return int(self._array)

    def __float__(self) -> float:
        return float(self._array)

    def __complex__(self) -> complex:
        return complex(self._array)

    def __len__(self) -> int:
        return len(self._array)

    def __repr__(self) -> str:
        return repr(self._array)

    def __str__(self) -> str:
        return str(self._array)

    def __format__(self, spec: str) -> str:
        return format(self._array[()] if self.ndim == 0 else self._array, spec)

    # --- elements

    def __iter__(self) -> Iterator[ndarray]:
        if not self._array.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self._array)))

    def __getitem__(self, index: Any) -> ndarray:
        array = self._array
        if type(index) is int:
            return view(self, array[index, ...])
        index, basic = _index(index)
        if basic:
            found = array[index]
            if not isinstance(found, np.ndarray):  # one element: a view of it
                parts = index if isinstance(index, tuple) else (index,)
                found = array[(*parts, ...)]
            return view(self, found)
        try:
            return fresh(array[index])
        except IndexError:
            return fresh(array[_wrapped(index, array.shape)])

    def __setitem__(self, index: Any, value: Any) -> None:
        kind = type(value)
        if kind is ndarray:
            value = value._array
        elif kind not in SCALARS:
            value = operand(value)
        index, basic = _index(index)
        try:
            self._array[index] = value
        except IndexError:
            if basic:
                raise
            self._array[_wrapped(index, self._array.shape)] = value

    def __copy__(self) -> ndarray:
        return fresh(self._array.copy())

    def __deepcopy__(self, memo: Any) -> ndarray:
        return fresh(self._array.copy())

    def __class_getitem__(cls, item: Any) -> Any:
        import types

        return types.GenericAlias(cls, item)


def _restored(array: np.ndarray) -> ndarray:
    return fresh(array)


def _own(result: ndarray, array: np.ndarray, counted: bool = True) -> None:
    """Make `array` the memory of a new `result`, which nothing else shares."""
    result._array, result.base, result._pool = array, None, None
    if counted:
        pool = _memory.pool
        if pool is not None:
            pool.take((array.nbytes + 511) & -512)
            result._pool = pool
        if _memory.place is not None:
            result._array = _memory.place(array)


def fresh(array: Any) -> ndarray:
    """A device array of the result of an operation, which nothing else uses."""
    if type(array) is not np.ndarray:
        array = np.asarray(array)
    if _memory.place is not None:
        array = _memory.place(array)
    pool = _memory.pool
    if pool is not None:
        pool.take((array.nbytes + 511) & -512)
    result = ndarray.__new__(ndarray)
    result._pool, result.base = pool, None
    result._array = array
    return result


def view(of: ndarray, array: np.ndarray) -> ndarray:
    """A device array that shares the memory of `of`."""
    result = ndarray.__new__(ndarray)
    result._array, result._pool = array, None
    result.base = of if of.base is None else of.base
    return result


def wrap(result: Any, *sources: Any) -> Any:
    """What NumPy gave as what CuPy gives: arrays of the device, numbers as 0-d arrays.

    A view of one of the device arrays `sources` shares its memory; anything else is fresh.
    """
    if isinstance(result, np.ndarray):
        if result.base is not None:
            for source in sources:
                if isinstance(source, ndarray) and _same_owner(source._array, result):
                    return view(source, result)
        return fresh(result)
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*(wrap(part, *sources) for part in result))
    if isinstance(result, tuple | list):
        return type(result)(wrap(part, *sources) for part in result)
    return fresh(result) if isinstance(result, np.generic | int | float | complex) else result


def _same_owner(source: np.ndarray, result: np.ndarray) -> bool:
    """Whether a result is a view of what `source` is, or is a view of. (may_share_memory: 1 us.)"""
    base = result.base
    return base is source or (base is not None and base is source.base)


def operand(value: Any) -> Any:
    """An operand of NumPy's for one of CuPy's. Raises TypeError for what CuPy does not take: NumPy
    arrays, lists, strings."""
    if isinstance(value, ndarray):
        return value._array
    if type(value) in SCALARS or isinstance(value, np.bool_ | np.number):
        return value
    if type(value).__module__ == "ml_dtypes" or isinstance(value, np.void | int | float | complex):
        return value
    if hasattr(value, "__cuda_array_interface__"):
        return from_interface(value)._array
    if isinstance(value, _trace.Traced):
        raise TypeError("cupy.fuse: this function cannot be fused; call it outside of the function")
    raise TypeError(f"Unsupported type {type(value)}")


def from_interface(value: Any) -> ndarray:
    """The array of another library's device array, sharing its memory."""
    if hasattr(value, "__cupy_get_ndarray__"):
        return value.__cupy_get_ndarray__()
    described = value.__cuda_array_interface__
    shape, strides = tuple(described["shape"]), described.get("strides")
    dtype = np.dtype(described["typestr"])
    last = sum((n - 1) * abs(s) for n, s in zip(shape, strides)) + dtype.itemsize if strides else 0
    size = last or dtype.itemsize * int(np.prod(shape))
    memory = UnownedMemory(described["data"][0] or 0, size, value)
    return ndarray(shape, dtype, MemoryPointer(memory, 0), strides)


def check_dtype(dtype: Any) -> np.dtype:
    """A dtype that a device has. Raises ValueError for objects, strings and wide floats."""
    dtype = np.dtype(dtype)
    if dtype.kind not in _KINDS or dtype.char in "gG":
        raise ValueError(f"Unsupported dtype {dtype}")
    return dtype


def _index(index: Any) -> tuple[Any, bool]:
    """(the index for NumPy's array, whether it selects a view)."""
    kind = type(index)
    if kind in _BASIC:
        return index, True
    if kind is ndarray:
        return index._array, False
    if kind is tuple:
        if all(type(part) in _BASIC for part in index):
            return index, True
        parts = [_index(part) for part in index]
        return tuple(part for part, _ in parts), all(basic for _, basic in parts)
    if isinstance(index, np.integer):
        return int(index), True
    if isinstance(index, str | bytes) or kind is float:
        if isinstance(index, str):
            return index, True
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), newaxis (`None`) and integer or"
            " boolean arrays are valid indices"
        )
    if hasattr(index, "__cuda_array_interface__"):
        return from_interface(index)._array, False
    return index, False


def _wrapped(index: Any, shape: tuple[int, ...]) -> Any:
    """An index whose arrays wrap around, as those of CuPy do where NumPy raises IndexError."""
    parts = list(index) if isinstance(index, tuple) else [index]
    used = sum(part is not None and part is not Ellipsis for part in parts)
    axis = 0
    for i, part in enumerate(parts):
        if part is None:
            continue
        if part is Ellipsis:
            axis += len(shape) - used
            continue
        if isinstance(part, list | np.ndarray):
            part = np.asarray(part)
            if part.dtype.kind in "iu" and shape[axis]:
                parts[i] = part % shape[axis]
        axis += 1
    return tuple(parts)
