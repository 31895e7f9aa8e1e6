"""Arrays from host data and from nothing: what NumPy's functions of these names cannot do alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ._array import check_dtype, fresh, from_interface, ndarray, view, wrap
from ._generate import inputs
from ._trace import recorded


def array(
    obj: Any,
    dtype: Any = None,
    copy: bool = True,
    order: str = "K",
    subok: bool = False,
    ndmin: int = 0,
    *,
    blocking: bool = False,
) -> ndarray:
    """A device array of anything NumPy makes an array of: NumPy and device arrays, (nested) lists
    of numbers or of device arrays. Raises ValueError for a dtype that no device has."""
    if subok:
        raise NotImplementedError("subok=True is not supported")
    source = None
    if not isinstance(obj, ndarray) and hasattr(obj, "__cuda_array_interface__"):
        obj = from_interface(obj)
    elif isinstance(obj, list | tuple):
        obj = _lists(obj)
    if isinstance(obj, ndarray):
        source, obj = obj, obj._array
    found = np.array(obj, dtype, copy=True if copy and source is not None else None, ndmin=ndmin)
    check_dtype(found.dtype)
    if source is not None and not copy and np.may_share_memory(found, obj):
        kept = order in ("K", "A", None) or found.flags[f"{order}_CONTIGUOUS"]
        if kept:
            return source if found.shape == source.shape else view(source, found)
    return fresh(np.array(found, order=order or "K", copy=_copies(found, obj, order)))


def _copies(found: np.ndarray, obj: Any, order: str) -> bool | None:
    """True where the array's memory is still the host's, which the device does not share."""
    return True if found is obj or found.base is not None else None


def _lists(obj: Any) -> Any:
    """Nested lists with NumPy's arrays in the place of the device's."""
    if isinstance(obj, ndarray):
        return obj._array
    if isinstance(obj, list | tuple):
        return [_lists(part) for part in obj]
    return obj


def asarray(
    a: Any,
    dtype: Any = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    blocking: bool = False,
) -> ndarray:
    """`a` itself if it is a device array of that dtype and order, else `array(a)`."""
    if type(a) is ndarray and not copy and order in (None, "K", "A"):  # the common case
        same = dtype is None or a._array.dtype == dtype
        if same:
            return a
    if copy is False and not isinstance(a, ndarray):
        raise ValueError("asarray: copy=False, but a host array must be copied to the device")
    return array(a, dtype, bool(copy), order or "K")


def asanyarray(
    a: Any,
    dtype: Any = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    blocking: bool = False,
) -> ndarray:
    """See `asarray`."""
    return asarray(a, dtype, order, copy=copy)


def asarray_chkfinite(a: Any, dtype: Any = None, order: str | None = None) -> ndarray:
    """`asarray`, but ValueError where an element is not finite."""
    made = asarray(a, dtype, order)
    if made.dtype.kind in "fc" and not np.isfinite(made._array).all():
        raise ValueError("array must not contain Infs or NaNs")
    return made


def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    """A C-contiguous array: `a` itself if it is one. At least one dimension."""
    made = asarray(a, dtype, "C")
    return made if made.ndim else made.reshape(1)


def asfortranarray(a: Any, dtype: Any = None) -> ndarray:
    """A Fortran-contiguous array: `a` itself if it is one."""
    return asarray(a, dtype, "F")


def asfarray(a: Any, dtype: Any = np.float64) -> ndarray:
    """An array of an inexact dtype."""
    return asarray(a, dtype if np.issubdtype(dtype, np.inexact) else np.float64)


def require(a: Any, dtype: Any = None, requirements: Any = None) -> ndarray:
    """An array of a dtype that meets requirements: "C", "F", "O" (owns its data)."""
    wanted = {str(r).upper()[0] for r in requirements or ()}
    if wanted - set("CFAOEW") or {"C", "F"} <= wanted:
        raise ValueError(f"require: cannot meet the requirements {requirements!r}")
    order = "F" if "F" in wanted else "C" if "C" in wanted else None
    made = asarray(a, dtype, order)
    return made.copy() if "O" in wanted and made.base is not None else made


@recorded
def copy(a: Any, order: str = "K") -> ndarray:
    """A copy of a device array."""
    return array(a, order=order)


def asnumpy(
    a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True
) -> np.ndarray:
    """A NumPy array of a device array, or of anything else that NumPy takes."""
    if isinstance(a, ndarray):
        return a.get(stream, order, out)
    if hasattr(a, "__cuda_array_interface__"):
        return from_interface(a).get(stream, order, out)
    made = np.asarray(a, order=order)
    if out is None:
        return made
    out[...] = made
    return out


def _filled(name: str) -> Callable:
    function = getattr(np, name)

    def make(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
        return fresh(function(inputs(shape), check_dtype(dtype), order or "C"))

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{name}(shape, dtype=float, order='C') as a device array."
    return make


empty, zeros, ones = map(_filled, ("empty", "zeros", "ones"))


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> ndarray:
    """An array of one value, of its dtype unless `dtype` is given."""
    return fresh(np.full(shape, inputs(fill_value), dtype, order or "C"))


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: Any = None, axis: int = 0,
) -> Any:  # fmt: skip
    """`num` numbers from start to stop; with `retstep`, also the step."""
    start, stop = inputs(start), inputs(stop)
    if not retstep:
        return fresh(np.linspace(start, stop, num, endpoint, False, dtype, axis))
    made, step = np.linspace(start, stop, num, endpoint, True, dtype, axis)
    return fresh(made), wrap(step) if isinstance(step, np.ndarray) else float(step)


def _like(name: str) -> Callable:
    function = getattr(np, name)

    def make(
        a: ndarray, dtype: Any = None, order: str = "K", subok: None = None, shape: Any = None
    ) -> ndarray:
        if subok is not None:
            raise TypeError(f"{name}: subok is not supported")
        return fresh(function(asarray(a)._array, dtype, order or "K", shape=shape))

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{name}: an array like `a`, of its shape, dtype and order unless given."
    return make


empty_like, zeros_like, ones_like = map(_like, ("empty_like", "zeros_like", "ones_like"))


def full_like(
    a: ndarray,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: None = None,
    shape: Any = None,
) -> ndarray:
    """An array of one value like `a`."""
    return fresh(
        np.full_like(asarray(a)._array, inputs(fill_value), dtype, order or "K", shape=shape)
    )


class _Peer:
    """What gives a DLPack capsule that was made earlier (`fromDlpack`)."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def from_dlpack(array: Any, device: Any = None, copy: bool | None = None) -> ndarray:
    """A device array over the memory of another library's array."""
    kind = array.__dlpack_device__()[0]
    if kind not in (1, 3):  # kDLCPU, kDLCUDAHost
        raise BufferError(
            f"from_dlpack: the array lies on a device of type {kind}; here the device is the CPU"
        )
    made = np.from_dlpack(array, copy=copy)
    result = fresh(made) if copy else ndarray(made.shape, made.dtype, None)
    if not copy:
        result._array, result.base = made, None
    return result


def fromDlpack(dltensor: Any) -> ndarray:
    """A device array of a DLPack capsule."""
    return from_dlpack(_Peer(dltensor))
