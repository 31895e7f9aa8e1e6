"""Arrays of what programs write: numbers, nested sequences of them, NumPy's numbers, tensors."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.tensor import Tensor

_NUMBERS = {bool, int, float, complex}
_SEQUENCES = (list, tuple, range)
_ARRAYS = (np.generic, np.ndarray, Tensor)


def as_array(data: Any, dtype: np.dtype | None) -> np.ndarray:
    """Data (numbers, nested sequences, arrays, tensors) as a NumPy array, always a copy.

    Without `dtype` it is what the types of all parts promote to: Python's floats are of the default
    dtype, integers int64; a tensor of one element is a number, whatever its shape."""
    if isinstance(data, Tensor):
        data = data.detach().cpu()._array
    if isinstance(data, np.ndarray | np.generic):
        dtypes.from_numpy_dtype(data.dtype)
        return np.array(data, dtype=dtype)
    nested = isinstance(data, _SEQUENCES)
    parts = _types(data) if nested else {type(data)}
    if not parts <= _NUMBERS:
        if any(issubclass(part, _ARRAYS) for part in parts):
            return _of_arrays(data, dtype)
        _check_types(data, parts, nested)
    array = _array(data)
    if int in parts and array.dtype.kind in "uOf":
        array = _integers(data, array, dtype)
    if dtype is None:
        dtype = {
            "f": dtypes.default_numpy(),
            "u": np.dtype(np.int64),
            "c": dtypes.scalar_dtype(1j),
        }.get(array.dtype.kind)
        if array.size == 0:
            dtype = dtypes.default_numpy()
    return array if dtype is None else _fitting(array, dtype, data)


def _check_types(data: Any, parts: set[type], nested: bool) -> None:
    wrong = next((part for part in parts if not issubclass(part, (int, float, complex))), None)
    if wrong in (str, bytes):
        if nested and len(parts) == 1:
            raise ValueError(f"tensor(): expected numbers, not {wrong.__name__}")
        raise TypeError(f"new(): invalid data type '{wrong.__name__}'")
    # what is not nested may be a sequence of another kind
    if wrong is not None and (nested or np.array(data).dtype == object):
        raise RuntimeError(f"Could not infer dtype of {wrong.__name__}")


def _types(data: Iterable, depth: int = 1) -> set[type]:
    """The types of the parts of nested sequences that are no sequences."""
    if isinstance(data, range):
        return {int} if len(data) else set()
    found = set(map(type, data))
    for part in [part for part in found if issubclass(part, _SEQUENCES)]:
        if depth == 64:  # NumPy's limit; a list may hold itself
            raise ValueError("too many dimensions: sequences are nested more than 64 deep")
        found.remove(part)
        for inner in data:
            if type(inner) is part:
                found |= _types(inner, depth + 1)
    return found


def _array(data: Any, dtype: np.dtype | None = None) -> np.ndarray:
    try:
        return np.array(data, dtype)
    except ValueError as error:
        raise _ragged(data, 0) or ValueError(str(error)) from None
    except OverflowError as error:
        text = "Overflow when unpacking long long: an integer has over 64 bits"
        raise ValueError(text) from error


def _of_arrays(data: Any, dtype: np.dtype | None) -> np.ndarray:
    """Nested sequences that hold arrays, numbers of NumPy or tensors."""
    data = _tensors_to_arrays(data)
    inferred = functools.reduce(dtypes.promote, set(_dtypes(data)))
    exact = inferred
    if dtype is not None and inferred.kind == "f":
        exact = dtype if dtype.kind in "fc" else np.result_type(inferred, np.float64)
    with np.errstate(over="ignore"):
        return _fitting(_array(data, exact), dtype or inferred, data)


def _tensors_to_arrays(data: Any) -> Any:
    if isinstance(data, Tensor):
        array = data.detach().cpu()._array
        return array.reshape(()) if array.size == 1 else array
    return [_tensors_to_arrays(d) for d in data] if isinstance(data, list | tuple) else data


def _dtypes(data: Any) -> Iterable[np.dtype]:
    """The dtypes of the parts of nested sequences; RuntimeError for parts that have none."""
    if isinstance(data, _SEQUENCES):
        for part in data:
            yield from _dtypes(part)
    elif isinstance(data, np.ndarray | np.generic):
        dtypes.from_numpy_dtype(data.dtype)
        yield data.dtype
    elif isinstance(data, (int, float, complex)):
        yield dtypes.scalar_dtype(data)
    else:
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")


def _fitting(array: np.ndarray, dtype: np.dtype, data: Any) -> np.ndarray:
    """The numbers of `data` in another dtype. RuntimeError where an integer dtype has no such
    numbers, TypeError for complex ones in a real dtype."""
    if array.dtype.kind == "c" and dtype.kind not in "bc":
        raise TypeError(f"tensor(): expected real numbers for {dtype.name}, got complex ones")
    if dtype.kind in "iu" and array.dtype.kind in "iuf" and array.dtype != dtype:
        least, most = dtypes.integer_range(dtype, of_integers=True)
        fits = (array >= least) & (array <= most)
        if dtype.kind == "u" and array.dtype.kind == "f" and (array < 0).any():
            whole = [type(n) is int for n in np.array(data, object).ravel()]  # some: [-1, 3.7]
            fits &= (array >= 0) | np.reshape(whole, array.shape)
        if not fits.all():
            raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow")
    return array.astype(dtype, copy=False)


def _integers(data: Any, array: np.ndarray, dtype: np.dtype | None) -> np.ndarray:
    """Python's integers of which NumPy makes something else than int64: it does so beyond 64 bits,
    where torch refuses them unless a floating dtype is asked for."""
    if array.dtype.kind == "f" and not (np.abs(array) >= 2.0**63).any():
        return array
    whole = [type(n) is int for n in np.array(data, object).ravel()]
    if (array.dtype.kind == "f" and not all(whole)) or (array.dtype.kind == "O" and not any(whole)):
        return array
    if dtype is None or dtype.kind in "ib" or (dtype.kind == "u" and array.dtype.kind != "u"):
        raise ValueError("Overflow when unpacking long long: an integer has over 64 bits")
    return np.array(data, dtype)


def _ragged(data: Any, dim: int) -> Exception | None:
    """torch's error for nested sequences of unequal length, or of numbers and sequences."""
    if not isinstance(data, list | tuple) or not data:
        return None
    lengths = [len(d) if isinstance(d, list | tuple) else None for d in data]
    for n in lengths[1:]:
        if n != lengths[0]:
            if n is None or lengths[0] is None:
                return TypeError("not a sequence")
            text = f"expected sequence of length {lengths[0]} at dim {dim + 1} (got {n})"
            return ValueError(text)
    return next((m for d in data if (m := _ragged(d, dim + 1))), None)
