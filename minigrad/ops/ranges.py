"""Numbers at equal distances: arange, range, linspace, logspace; the positions of triangles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigrad import dtypes, layouts
from minigrad.backends import current, device_module
from minigrad.creation import finish, place, placed
from minigrad.tensor import FUNCTIONS, Tensor, as_int, export, wrap


@export(method=False)
def arange(
    *limits: Any,
    start: Any = None,
    end: Any = None,
    step: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... before end; int64 if all are integers, else the default dtype.

    limits: `arange(end)`, `arange(start, end)` or `arange(start, end, step)`.
    """
    alone = start is end is step is None and len(limits) == 1
    if alone and type(limits[0]) is int and limits[0] >= 0:  # the usual call
        start, end, step = 0, limits[0], 1
    else:
        if alone:
            limits = (0, *limits)
        elif start is step is None and not limits:
            start = 0
        start, end, step = _limits("arange", limits, start, end, step)
    whole = isinstance(start, int) and isinstance(end, int) and isinstance(step, int)
    inferred = np.dtype(np.int64) if whole else dtypes.default_numpy()
    target = inferred if dtype is None else dtypes.to_numpy_dtype(dtype)
    if target.kind in "bc":
        raise dtypes.refused("arange_cpu", target)
    count = -(-(end - start) // step) if whole else math.ceil((end - start) / step)
    if target.kind in "iu" and not whole:  # as torch does: the numbers are made integers, but
        start, step, whole = int(start), int(step), True  # only int64 counts with those
        if target == np.int64:
            if step == 0:
                raise RuntimeError("step must be nonzero")
            count = -(-(int(end) - start) // step)
    where = place(device)
    with current.at(where):
        xp = device_module(where.type)
        array = xp.arange(count, dtype=np.int64 if whole else np.float64)
        if step != 1 or start != 0:
            array = array * step + start
        return finish(array.astype(target, copy=False), requires_grad, pin_memory, layout)


def _limits(name: str, limits: tuple, start: Any, end: Any, step: Any) -> list:
    """Start, end and step as numbers, given by their places or names."""
    if len(limits) > 3:
        raise TypeError(f"{name}() takes at most 3 positional arguments ({len(limits)} given)")
    found = [*limits, None, None, None][:3]
    for at, value in enumerate((start, end, step)):
        if value is not None:
            if at < len(limits):
                key = ("start", "end", "step")[at]
                raise TypeError(f"{name}() got multiple values for argument '{key}'")
            found[at] = value
    for at, key in enumerate(("start", "end")):
        if found[at] is None:
            raise TypeError(f'{name}() missing 1 required positional arguments: "{key}"')
    found[2] = 1 if found[2] is None else found[2]
    start, end, step = [v.item() if isinstance(v, (Tensor, np.generic)) else v for v in found]
    if any(isinstance(value, complex) for value in (start, end, step)):
        start, end, step = [dtypes.fitting(v, np.dtype(np.float64)) for v in (start, end, step)]
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    return [start, end, step]


@export(method=False)
def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` evenly spaced values from start to end, both included."""
    start, end = _ends("linspace", start, end)
    target = _spaced_dtype("linspace", (start, end), dtype)
    values = _spaced("linspace", start, end, steps, target)
    return finish(placed(values.astype(target), device), requires_grad, pin_memory, layout)


def _ends(name: str, start: Any, end: Any) -> list:
    """Both ends as numbers."""
    for end_name, value in (("start", start), ("end", end)):
        if isinstance(value, Tensor) and value._array.ndim:
            raise RuntimeError(
                f"{name} only supports 0-dimensional start and end tensors, but got {end_name} "
                f"with {value._array.ndim} dimension(s)."
            )
    found = [v.item() if isinstance(v, (Tensor, np.generic)) else v for v in (start, end)]
    return [value if isinstance(value, complex) else float(value) for value in found]


def _spaced_dtype(name: str, ends: tuple, dtype: Any) -> np.dtype:
    """The dtype of the result: complex if one of the ends is."""
    inferred = dtypes.default_numpy()
    if any(isinstance(value, complex) for value in ends):
        inferred = dtypes.scalar_dtype(1j)
    if dtype is None:
        return inferred
    target = dtypes.to_numpy_dtype(dtype)
    if inferred.kind == "c" and target.kind != "c":
        part = "float" if inferred == np.complex64 else "double"
        passed = dtypes.from_numpy_dtype(target).legacy_name.removesuffix("Tensor")
        raise RuntimeError(
            f"torch.{name}(): inferred dtype c10::complex<{part}> can't be safely cast to passed "
            f"dtype {passed}"
        )
    return target


def _spaced(name: str, start: Any, end: Any, steps: Any, target: np.dtype) -> np.ndarray:
    """`steps` values in double precision; from both ends to the middle, so that both are exact."""
    if type(steps) is not int:
        steps = as_int("steps", steps)
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative, got {steps}")
    first, last = start, end
    if target.kind in "iu":
        first, last = int(first), int(last)
    if target.kind != "c":
        first, last = (float(dtypes.fitting(value, target)) for value in (first, last))
    if target.kind == "b" and steps > 1:
        raise dtypes.refused(name, target)
    if steps == 1:
        last = first
    step = (last - first) / max(steps - 1, 1)
    wide = np.complex128 if target.kind == "c" else np.float64
    values = np.arange(steps, dtype=wide)
    head, tail = values[: steps // 2], values[steps // 2 :]
    np.add(first, np.multiply(head, step, head), head)
    np.subtract(steps - 1, tail, tail)
    np.subtract(last, np.multiply(tail, step, tail), tail)
    return values


@export(method=False)
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """base ** linspace(start, end, steps)."""
    start, end = _ends("logspace", start, end)
    target = _spaced_dtype("logspace", (start, end), dtype)
    values = np.power(float(base), _spaced("logspace", start, end, steps, target))
    return finish(placed(values.astype(target), device), requires_grad, pin_memory, layout)


def _range(
    *limits: Any,
    start: Any = None,
    end: Any = None,
    step: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... up to and including end, of the default dtype unless given."""
    start, end, step = _limits("range", limits, start, end, step)
    target = dtypes.default_numpy() if dtype is None else dtypes.to_numpy_dtype(dtype)
    if target.kind in "bc":
        raise dtypes.refused("range_cpu", target)
    count = math.floor((end - start) / step) + 1
    array = start + step * np.arange(count)
    return finish(placed(array.astype(target), device), requires_grad, layout=layout)


FUNCTIONS["range"] = _range


@export(method=False)
def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: Any = dtypes.int64,
    device: Any = None,
    layout: Any = None,
) -> Tensor:
    """Rows and columns (2, count) of the lower triangle."""
    layouts.check_strided(layout)
    return _triangle("tril_indices", row, col, offset, dtype, device)


@export(method=False)
def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: Any = dtypes.int64,
    device: Any = None,
    layout: Any = None,
) -> Tensor:
    """Rows and columns (2, count) of the upper triangle."""
    layouts.check_strided(layout)
    return _triangle("triu_indices", row, col, offset, dtype, device)


def _triangle(name: str, row: int, col: int, offset: int, dtype: Any, device: Any) -> Tensor:
    if row < 0 or col < 0:
        raise RuntimeError(f"{name}: expected sizes >= 0, got {row} and {col}")
    target = dtypes.to_numpy_dtype(dtype)
    if target not in (np.int32, np.int64):
        raise dtypes.refused(name, target)
    lower = name == "tril_indices"
    ends = (np.arange(row) + (offset + lower)).clip(0, col)
    counts = ends if lower else col - ends
    columns = runs(0 if lower else ends, counts)
    pair = np.empty((2, columns.size), target)
    pair[0], pair[1] = np.arange(row).repeat(counts), columns
    return wrap(placed(pair, device))


def runs(first: Any, counts: np.ndarray) -> np.ndarray:
    """counts[0] consecutive integers from first[0], then counts[1] from first[1], and so on."""
    ends = counts.cumsum()
    before = ends - counts - first
    return np.arange(ends[-1] if ends.size else 0) - before.repeat(counts)
