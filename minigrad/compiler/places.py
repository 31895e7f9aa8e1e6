"""Where arrays lie: those of NumPy on the CPU, those of CuPy on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernels.launchers.common import namespace, on_gpu
from minigrad.devices import address

ALIGNMENT, WORD = 64, 16  # bytes: a cache line, what any allocation starts at a multiple of


def is_array(value: Any) -> bool:
    """Whether a value is an array of NumPy or CuPy."""
    return isinstance(value, np.ndarray) or on_gpu(value)


def with_arrays(result: Any) -> Any:
    """What a function of NumPy returns, with arrays in place of NumPy's numbers."""
    if type(result) in (tuple, list):
        return type(result)([with_arrays(part) for part in result])
    return np.asarray(result) if isinstance(result, np.generic) else result


def arrays_in(value: Any) -> Iterator[Any]:
    """The arrays in nested tuples, lists and dictionaries."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from arrays_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from arrays_in(item)
    elif is_array(value):
        yield value


def place_of(array: Any) -> tuple:
    """Where the elements of an array lie; equal for equal views."""
    return address(array), array.shape, array.strides


def bounds(array: Any) -> tuple[int, int]:
    """The first byte of an array, and the first one after it."""
    start = stop = address(array)
    for n, step in zip(array.shape, array.strides, strict=True):
        if step < 0:
            start += (n - 1) * step
        else:
            stop += (n - 1) * step
    return start, stop + array.itemsize


def may_share(a: Any, b: Any) -> bool:
    """Whether the memory from the first to the last elements of two arrays overlaps."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.may_share_memory(a, b)
    if not a.size or not b.size:
        return False
    (first, last), (start, stop) = bounds(a), bounds(b)
    return first < stop and start < last


def sharing(named: list[tuple[Any, Any]]) -> list[list[tuple[Any, Any]]]:
    """Those of some (name, array) whose memory may overlap that of others, in groups."""
    if len({id(a) for _, a in named if a.base is None}) == len(named):
        return []
    groups: list[list[tuple[Any, Any]]] = []
    for one in named:
        apart, met = [], [one]
        for group in groups:
            if any(may_share(one[1], other) for _, other in group):
                met += group
            else:
                apart.append(group)
        groups = [*apart, met]
    return [group for group in groups if len(group) > 1]


def overlap(a: Any, b: Any) -> bool:
    """Whether two arrays have an element in common, as far as that is found out quickly."""
    if not may_share(a, b) or not isinstance(a, np.ndarray):
        return may_share(a, b)
    try:
        return np.shares_memory(a, b, max_work=10000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def owner_of(array: Any) -> Any:
    """The array that owns the memory of a view."""
    base: Any = array.base
    while base is not None:
        if is_array(base):
            array = base
        base = getattr(base, "base", None)
    return array


def device_of(array: Any) -> Any:
    """The number of the GPU that an array lies on; None on the CPU."""
    return None if isinstance(array, np.ndarray) else array.device.id


def memory(size: int, alignment: int, device: Any) -> Any:
    """Uninitialised bytes on a device, from a multiple of `alignment` on."""
    if device is None:
        raw: Any = np.empty(size + alignment, np.uint8)
    else:
        import cupy

        with cupy.cuda.Device(device):
            raw = cupy.empty(size + alignment, np.uint8)
    skip = -address(raw) % alignment
    return raw[skip : skip + size]


def view(raw: Any, start: int, shape: tuple, dtype: np.dtype, strides: tuple) -> Any:
    """An array over bytes in memory, from the byte `start` on."""
    if isinstance(raw, np.ndarray):
        return np.ndarray(shape, dtype, raw, start, strides)
    return namespace(raw).ndarray(shape, dtype, memptr=raw.data + start, strides=strides)


def on_host(array: Any) -> np.ndarray:
    """A NumPy array with the same elements."""
    return array if isinstance(array, np.ndarray) else array.get()


def assign(target: Any, source: Any) -> None:
    """Copy elements."""
    target[...] = source
