"""What stands between the brackets of `x[...]`: its parts, checked, and what they select."""

from __future__ import annotations

import functools
from operator import index as to_index
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.pointwise import TABLE
from minigrad._meta import MetaArray
from minigrad.autograd.mode import mode
from minigrad.backends import array_module, is_batched
from minigrad.ops.bounds import check_bounds
from minigrad.ops.masks import runs_on_gpu, true_places
from minigrad.ops.views import FULL
from minigrad.tensor import Tensor


def plain_index(shape: tuple, index: Any) -> tuple | None:
    """An index of integers, slices, None and one `...` as a tuple without `...`, as `parse` gives
    it, in less time; None for what has other parts or is wrong."""
    if type(index) is not tuple:
        if type(index) not in _ALONE:
            return None
        index = (index,)
    dim, ndim = 0, len(shape)
    for place, part in enumerate(index):
        kind = type(part)
        if kind is slice:
            step = part.step
            if type(part.start) not in _ENDS or type(part.stop) not in _ENDS:
                return None
            if step is not None and (type(step) is not int or step < 1):
                return None
        elif kind is int:
            if dim < ndim and not -shape[dim] <= part < shape[dim]:
                return None
        elif part is None:
            continue
        else:
            valid = part is ... and dim <= ndim
            return _with_ellipsis(shape[dim:], index, place) if valid else None
        dim += 1
    return index if dim <= ndim else None


def _with_ellipsis(shape: tuple, index: tuple, place: int) -> tuple | None:
    """The same for an index with `...` at a place, before which there is nothing wrong; shape: of
    the dimensions from there."""
    rest, count = index[place + 1 :], 0
    for part in rest:
        if part is ...:
            return None
        count += part is not None
    if count > len(shape):
        return None
    tail = plain_index(shape[len(shape) - count :], rest)
    if not tail:
        return None if tail is None else index[:place]
    return (*index[:place], *(FULL,) * (len(shape) - count), *tail)


_ALONE = (slice, type(None), type(...))
_ENDS = (int, type(None))


def check_position(shape: tuple, position: int, dim: int) -> None:
    if dim >= len(shape):
        raise IndexError(
            "invalid index of a 0-dim tensor. Use `tensor.item()` to convert it to a number"
            if not shape
            else f"too many indices for tensor of dimension {len(shape)}"
        )
    if not -shape[dim] <= position < shape[dim]:
        raise IndexError(
            f"index {position} is out of bounds for dimension {dim} with size {shape[dim]}"
        )


def parse(self: Tensor, index: Any) -> tuple[tuple, list]:
    """Split an index into a basic one (a tuple for a view) and tensors, one per dimension of the
    view (None for a full dimension; empty without tensors)."""
    shape = self._array.shape
    items = parts_of(index)
    consumed = sum(_width(item) for item in items)
    if consumed > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    _expand_ellipsis(items, len(shape) - consumed)
    basic: list = []
    tensors: list = []
    dim = 0
    for item in items:
        if item is None:
            basic.append(None)
            tensors.append(None)
        elif type(item) is bool:
            basic.append(None)
            tensors.append(np.zeros(int(item), np.int64))
        elif isinstance(item, slice):
            basic.append(_slice(item))
            tensors.append(None)
            dim += 1
        elif hasattr(item, "dtype"):
            width = _width(item)
            basic += [slice(None)] * width
            item = item if is_batched(item) else array_module(self._array).asarray(item)
            tensors += _positions(item, shape, dim)
            dim += width
        else:
            check_position(shape, item, dim)
            basic.append(item)
            dim += 1
    has_tensors = any(t is not None for t in tensors)
    while basic and isinstance(basic[-1], slice) and basic[-1] == slice(None):
        basic.pop()
    left = len(shape) - dim
    return tuple(basic), (tensors + [None] * left) if has_tensors else []


def parts_of(index: Any) -> list:
    """The parts of an index: None, bool, int, slice, Ellipsis or an array."""
    parts = index if isinstance(index, tuple) or _acts_as_tuple(index) else (index,)
    return [_item(p) for p in parts]


def _acts_as_tuple(index: Any) -> bool:
    """Whether a list stands for a tuple of parts: torch's rule (and that of early NumPy) is that it
    is shorter than 32 and holds more than numbers, as `x[[slice(2), 1]]` and `x[[rows, cols]]`."""
    kinds = (Tensor, np.ndarray, list, tuple, range, slice, type(None), type(Ellipsis))
    return isinstance(index, list) and len(index) < 32 and any(isinstance(p, kinds) for p in index)


def _expand_ellipsis(items: list, count: int) -> None:
    """Replace an ellipsis by `count` full slices. Another may follow where it selects nothing."""
    places = [k for k, item in enumerate(items) if item is Ellipsis]
    if not places:
        return
    for place in reversed(places[1:]):
        if any(_width(item) for item in items[place + 1 :]):
            raise IndexError("an index can only have one ellipsis (`...`) before other parts")
        del items[place]
    items[places[0] : places[0] + 1] = [slice(None)] * count


def _item(part: Any) -> Any:
    if part is None or part is Ellipsis or isinstance(part, (slice, int)):
        return part
    array = part._array if isinstance(part, Tensor) else part
    if isinstance(array, (list, tuple, range)):
        array = np.asarray([p.item() if isinstance(p, Tensor) else p for p in array])
        if array.size == 0:
            array = array.astype(np.int64)
    if not hasattr(array, "dtype"):
        if hasattr(part, "__index__"):
            return part.__index__()
        raise (TypeError if isinstance(part, str) else IndexError)(
            "only integers, slices (`:`), ellipsis (`...`), None and long, int, byte or bool "
            f"tensors are valid indices (got {type(part).__name__})"
        )
    narrow = isinstance(part, Tensor) and array.dtype in (np.int8, np.int16)
    if array.dtype.kind not in "biu" or narrow:
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    if array.ndim == 0 and not is_batched(array):
        return bool(array) if array.dtype.kind == "b" else int(array)
    return array.astype(bool) if array.dtype == np.uint8 else array


def _width(item: Any) -> int:
    """How many dimensions a part of an index consumes."""
    if item is None or item is Ellipsis or type(item) is bool:
        return 0
    if isinstance(item, (int, slice)):
        return 1
    return item.ndim if item.dtype.kind == "b" else 1


def _slice(item: slice) -> slice:
    try:
        parts = [p if p is None else to_index(p) for p in (item.start, item.stop, item.step)]
    except TypeError as error:
        text = "slice indices must be integers or None or have an __index__ method"
        raise TypeError(f"{text} (got {item})") from error
    if parts[2] is not None and parts[2] <= 0:
        raise ValueError("step must be greater than zero")
    return slice(*parts)


def _positions(item: Any, shape: tuple, dim: int) -> list:
    """An integer array, or the positions where a mask holds: one array per dimension."""
    if item.dtype.kind == "b":
        for i, n in enumerate(item.shape):
            if n != shape[dim + i]:
                raise IndexError(
                    f"The shape of the mask {list(item.shape)} at index {i} does not match the "
                    f"shape of the indexed tensor {list(shape)} at index {dim + i}"
                )
        if runs_on_gpu(item) and 0 < item.ndim < 5:
            places = true_places(item)
            return [places[:, d] for d in range(item.ndim)]
        return list(item.nonzero())
    n = shape[dim]
    text = f"is out of bounds for dimension {dim} with size {n}"
    item = item.astype(np.int64) if item.dtype.itemsize < 4 else item  # n may be too large for it
    return [check_bounds(item, -n, n, lambda wrong: IndexError(f"index {wrong} {text}"))]


class Indexed:
    """What index arrays, one per dimension or None, select of an array of `shape`.

    They broadcast together; their dimensions replace adjacent indexed dimensions, or come first if
    those are not adjacent, as in NumPy.
    """

    def __init__(self, shape: tuple, tensors: list) -> None:
        chosen = [d for d, t in enumerate(tensors) if t is not None]
        xp = array_module(tensors[chosen[0]])
        try:
            self.arrays = xp.broadcast_arrays(*[tensors[d] for d in chosen])
        except ValueError as error:
            shapes = ", ".join(str(list(tensors[d].shape)) for d in chosen)
            raise IndexError(
                "shape mismatch: indexing tensors could not be broadcast together with shapes "
                + shapes
            ) from error
        adjacent = chosen == list(range(chosen[0], chosen[-1] + 1))
        whole = [d for d in range(len(shape)) if tensors[d] is None]
        self.before = [d for d in whole if d < chosen[0] and adjacent]
        self.after = [d for d in whole if d not in self.before]
        self.chosen, self.inner = chosen, self.arrays[0].shape
        self.result = (
            *(shape[d] for d in self.before),
            *self.inner,
            *(shape[d] for d in self.after),
        )


def flat_positions(shape: tuple, tensors: list) -> Any:
    """Flat positions in a row-major array of `shape` of what index arrays select."""
    if mode.recorder is None and all(type(t) is np.ndarray for t in tensors):
        try:
            return np.ravel_multi_index(tuple(tensors), shape)
        except ValueError:  # they do not fit together
            pass
    tensors = [np.zeros(t.shape, int) if type(t) is MetaArray else t for t in tensors]
    steps = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        steps[d] = steps[d + 1] * shape[d + 1]
    found = Indexed(shape, tensors)
    xp, before, inner, after = array_module(found.arrays[0]), found.before, found.inner, found.after
    if runs_on_gpu(found.arrays[0]):
        flat = functools.reduce(
            lambda flat, part: plus_multiple(flat, steps[part[1]], part[0]),
            zip(reversed(found.arrays), reversed(found.chosen)),
            None,
        )
    else:
        flat = sum(a.astype(np.int64) * steps[d] for a, d in zip(found.arrays, found.chosen))
    flat = flat.reshape((1,) * len(before) + inner + (1,) * len(after))
    ndim = flat.ndim
    places = [*range(len(before)), *range(len(before) + len(inner), ndim)]
    for d, place in zip(before + after, places, strict=True):
        axis = [1] * ndim
        axis[place] = shape[d]
        flat = flat + (xp.arange(shape[d], dtype=np.int64) * steps[d]).reshape(axis)
    return flat


def plus_multiple(flat: Any, step: int, positions: Any) -> Any:
    """flat + step * positions in one launch; nothing is added without `flat`."""
    how = {"params": (step,), "dtype": np.dtype(np.int64)}
    return dispatch.active.pointwise(TABLE["axpy"], 0 if flat is None else flat, positions, **how)
