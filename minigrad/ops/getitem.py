"""`x[...]` and `x[...] = value` with torch's rules.

An index is applied in two steps, as in torch: integers, slices and None make a view; then tensors
and boolean masks (converted to positions) select elements by their flat position.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.support.bounds import all_below
from minigrad import dtypes
from minigrad._overlap import check_apart, check_no_overlap, is_expanded, warn_of_overlap
from minigrad.autograd.mode import batching, mode
from minigrad.autograd.node import Op, titled
from minigrad.backends import array_module, is_batched, on_gpu
from minigrad.ops.brackets import (
    Indexed,
    check_position,
    flat_positions,
    parse,
    parts_of,
    plain_index,
)
from minigrad.ops.inplace import assign, check_writable, copy_
from minigrad.ops.masks import elements_at_true, runs_on_gpu, true_places
from minigrad.ops.views import FULL, Select, Slice, of_parts, viewed
from minigrad.tensor import Tensor, functions, type_name, wrap


def elements_at(x: Any, index: Any, **how: Any) -> Any:
    """Elements of x at flat positions, as remembered launches know them."""
    return dispatch.active.take(x, index, **how)


def rows_at(rows: Any, index: Any, **how: Any) -> Any:
    """Rows at an index, as remembered launches know them."""
    return dispatch.active.embedding(rows, index, **how)


def _at(function: Callable, source: Any, index: Any, size: int, how: dict) -> Any:
    """One of the two, remembered where positions on the CPU are seen to be in 0 .. size - 1."""
    if type(index) is np.ndarray and all_below(index, size):
        return dispatch.together(function, source, index)
    return function(source, index, **how)


class Take(Op):
    """Elements of the flattened x at flat positions (an array), or with `tail` parts of this shape,
    into which x is cut. error: where it is given, the positions have not been checked, negative
    ones count from the end, and it makes the error of a wrong one."""

    saves = ()
    grad_name = "IndexBackward0"

    @staticmethod
    def forward(x: Any, index: Any, tail: tuple = (), error: Callable | None = None) -> Any:
        if x.dtype.kind == "c":
            return array_module(x).asarray(x.reshape(-1, *tail)[index])
        how = {} if error is None else {"negative": True, "error": error}
        if not tail:
            return _at(elements_at, x, index, x.size, how)
        rows = x if x.shape[1:] == tail and x.ndim == 2 else x.reshape(-1, math.prod(tail))
        rows = _at(rows_at, rows, index, len(rows), how)
        return rows if len(tail) == 1 else rows.reshape(*index.shape, *tail)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, index: Any, tail: tuple = (), error: Any = None) -> tuple:
        return (PutInZeros.apply(g, index=index, shape=ctx.shapes[0], tail=tail, error=error),)


class PutInZeros(Op):
    """Zeros of `shape` with g added at flat positions, or parts of it: the gradient of `Take`."""

    saves = ()

    @staticmethod
    def forward(g: Any, index: Any, shape: tuple, tail: tuple = (), error: Any = None) -> Any:
        width = math.prod(tail)
        how = {} if error is None else {"negative": True}
        size = math.prod(shape) // width
        if g.dtype.kind == "c":
            total = array_module(g).zeros((size, width), g.dtype)
            array_module(g).add.at(total, index.reshape(-1), g.reshape(-1, width))
            return total.reshape(shape)
        if not tail:
            return dispatch.active.take_backward(g, index, size, **how).reshape(shape)
        rows = g.reshape(*index.shape, width)
        return dispatch.active.embedding_backward(rows, index, size, **how).reshape(shape)

    @staticmethod
    def vjp(
        ctx: Any, g: Tensor, index: Any, shape: tuple, tail: tuple = (), error: Any = None
    ) -> tuple:
        return (Take.apply(g, index=index, tail=tail, error=error),)


class Put(Op):
    """x with `values` at flat positions; of equal positions the last is used, unless
    accumulating."""

    saves = ()
    grad_name = "IndexPutBackward0"

    @staticmethod
    def forward(x: Any, values: Any, index: Any, accumulate: bool) -> Any:
        if x.dtype.kind == "c" and not accumulate:
            out = x.copy()
            out.reshape(-1)[index] = values
            return out
        put = dispatch.active.scatter_add if accumulate else dispatch.active.scatter
        return put(x.reshape(-1), 0, index.reshape(-1), values.reshape(-1)).reshape(x.shape)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, index: Any, accumulate: bool) -> tuple:
        kept = g
        if not accumulate and ctx.needs[0]:
            zeros = wrap(array_module(index).zeros(index.shape, g._array.dtype))
            kept = Put.apply(g, zeros, index=index, accumulate=False)
        return (
            kept if ctx.needs[0] else None,
            Take.apply(g, index=index) if ctx.needs[1] else None,
        )


class PutSlices(Op):
    """x with the slices at checked positions along dim replaced by those of source; of equal
    positions the last one counts."""

    saves = (2,)
    grad_name = "IndexPutBackward0"

    @staticmethod
    def forward(x: Any, source: Any, index: Any, dim: int) -> Any:
        if runs_on_gpu(x) or any(is_batched(a) for a in (x, source, index)):
            rows = index.reshape([-1 if d == dim else 1 for d in range(x.ndim)])
            rows = array_module(index).broadcast_to(rows, source.shape)
            return dispatch.active.scatter(x, dim, rows, source)
        out = dispatch.active.copy(x)
        out[(slice(None),) * dim + (index,)] = source
        return out

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        (index,) = ctx.tensors()
        return (
            functions.index_fill(g, dim, index, 0) if ctx.needs[0] else None,
            functions.index_select(g, dim, index) if ctx.needs[1] else None,
            None,
        )


def getitem(self: Tensor, index: Any) -> Tensor:
    """`x[index]`: a view for integers, slices, None and `...`; a copy for tensors and masks."""
    if type(index) is int:
        check_position(self._array.shape, index, 0)
        return viewed(Select, self, self._array[index, ...], {"index": (index,)})
    plain = plain_index(self._array.shape, index)
    if plain is not None:
        return of_parts(plain).apply(self, index=plain)
    on_cpu = type(self._array) is np.ndarray and mode.recorder is None
    on_cpu = on_cpu and self._array.dtype.kind != "c"  # whose indices no launcher checks
    arrays = _index_arrays(index) if on_cpu else None
    if arrays is not None:
        try:
            found = _rows(self._array.shape, *arrays)
            if found is not None:
                positions, tail = found
                if self.requires_grad and positions is arrays[0]:
                    positions = positions.copy()  # the program may change its own
                return Take.apply(self, index=positions, tail=tail)
        except (IndexError, ValueError):  # a negative position, or a wrong one
            pass
    if on_cpu and (slices := _of_slices(self, index)) is not None:
        return slices
    both_there = type(index) is Tensor and on_gpu(index._array) and on_gpu(self._array)
    if both_there and mode.recorder is None:
        parts = _parts_on_gpu(self, index._array)
        if parts is not None:
            return parts
    basic, tensors = parse(self, index)
    view = of_parts(basic).apply(self, index=basic) if basic or not tensors else self
    if not tensors:
        return view
    shape = view._array.shape
    chosen = [d for d, t in enumerate(tensors) if t is not None]
    one = len(chosen) == 1 and chosen[0] > 0
    if one and (on_cpu or runs_on_gpu(view._array)):
        # a copy where it is saved, for the program may change its own
        place, at = chosen[0], tensors[chosen[0]].astype(np.int64, copy=view.requires_grad)
        found = functions.index_select(view, place, wrap(at.reshape(-1)))
        if at.ndim != 1:
            found = found.reshape(*shape[:place], *at.shape, *shape[place + 1 :])
            found._view = None
        return titled(found, "Index")
    ndim = 1 + chosen[-1]
    if math.prod(shape[ndim:]) < 2:  # no rows that could be copied as a whole
        ndim = len(shape)
    flat = flat_positions(shape[:ndim], tensors[:ndim])
    return Take.apply(view, index=flat, tail=shape[ndim:])


def _of_slices(x: Tensor, index: Any) -> Tensor | None:
    """x[:, at], x[..., at, :] and such at the positions of a vector; None for other indices."""
    shape = x._array.shape
    place = _place_among_slices(index, len(shape))
    if place is None:
        return None
    at = next(part for part in index if type(part) is Tensor)
    array = at._array
    if type(array) is not np.ndarray or array.ndim != 1 or array.dtype != np.int64:
        return None
    if not (array.size and x._array.size and all_below(array, shape[place])):
        return None
    if x.requires_grad:
        at = wrap(array.copy())  # the program may change its own
    return titled(functions.index_select(x, place, at), "Index")


def _place_among_slices(index: Any, ndim: int) -> int | None:
    """The dimension of the one tensor of an index that is whole in all others; None for others."""
    if type(index) is not tuple:
        return None
    place = dots = None
    for k, part in enumerate(index):
        if type(part) is Tensor and place is None:
            place = k
        elif part is ... and dots is None:
            dots = k
        elif type(part) is not slice or part != FULL:
            return None
    width = ndim - len(index) + (dots is not None)  # of the ellipsis
    if place is None or width < 0:
        return None
    return place if dots is None or dots > place else place + width - 1


def _index_arrays(index: Any) -> tuple | None:
    """The arrays of a tensor, or of a tuple of tensors, that NumPy and torch take for the same
    index: not empty, of int64 or one mask."""
    parts = index if type(index) is tuple else (index,)
    arrays = []
    for part in parts:
        array = part._array if type(part) is Tensor else None
        if type(array) is not np.ndarray or not array.ndim:
            return None
        if array.dtype != np.int64 and (array.dtype != bool or len(parts) > 1):
            return None
        arrays.append(array)
    return tuple(arrays) or None


def _rows(shape: tuple, *arrays: np.ndarray) -> tuple[Any, tuple] | None:
    """What arrays select: positions of parts, and the shape of a part. None for what is not so
    simple, and for empty parts. ValueError for wrong or negative ones of several."""
    index, count = arrays[0], len(arrays)
    mask = index.dtype == bool
    if mask and index.shape != shape[: index.ndim]:
        return None
    tail = shape[index.ndim if mask else count :]
    if count > len(shape) or (tail and not math.prod(tail)):
        return None
    if count > 1:
        return np.ravel_multi_index(arrays, shape[:count]), tail
    return (index.ravel().nonzero()[0] if mask else index), tail


def _parts_on_gpu(x: Tensor, index: Any) -> Tensor | None:
    """x at one tensor of positions on a GPU, which the launcher checks, or where a mask is True;
    None for other tensors."""
    shape = x._array.shape
    if index.dtype == bool and runs_on_gpu(index) and index.shape == shape[: index.ndim]:
        return _parts_at_true(x, index)
    if index.dtype != np.int64 or not index.ndim or not shape or x._array.dtype.kind == "c":
        return None
    if math.prod(shape[1:]) < 2 and len(shape) > 1:
        return None
    text = f"is out of bounds for dimension 0 with size {shape[0]}"
    if x._requires_grad:
        index = index.copy()  # the program may change its own
    return Take.apply(x, index=index, tail=shape[1:], error=functools.partial(_wrong, text))


def _parts_at_true(x: Tensor, mask: Any) -> Tensor | None:
    """x where a mask of its first dimensions, on a GPU, is True; None for what has no launch."""
    tail = x._array.shape[mask.ndim :]
    if not mask.ndim or not runs_on_gpu(x._array) or (tail and math.prod(tail) < 2):
        return None
    if not (tail or (mode.enabled and x._requires_grad)):
        return wrap(elements_at_true(x._array, mask))
    return Take.apply(x, index=true_places(mask.reshape(-1)).reshape(-1), tail=tail)


def _wrong(text: str, wrong: int) -> IndexError:
    return IndexError(f"index {wrong} {text}")


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """`x[index] = value`, recorded if x or value requires a gradient."""
    small = isinstance(value, (int, float)) and -65504 <= value <= 65504  # in any dtype
    if small and _is_mask(index, self):
        self.masked_fill_(index, value)
        return
    if _written(self, index, value):
        return
    tensors: list = []
    basic: Any = plain_index(self._array.shape, (index,) if type(index) is int else index)
    if basic is None:
        basic, tensors = parse(self, index)
    target = Slice.apply(self, index=basic) if basic or not tensors else self
    check_writable(target)
    if not tensors:
        values = value if small or isinstance(value, Tensor) else _like(self, value)
        if isinstance(values, Tensor):
            values = _without_leading_ones(values, target._array.ndim)
        check_no_overlap(target._array)
        copy_(target, values)
        return
    values = value if isinstance(value, Tensor) else _like(self, value)
    index_put(target, tensors, _as_stored(values, self, index), accumulate=False)


def _written(x: Tensor, index: Any, value: Any) -> bool:
    """Whether NumPy's assignment does all there is to do, and has done it. Not where the change is
    recorded, values are converted or the index is wrong."""
    arrays = None if batching or mode.recorder is not None else _index_arrays(index)
    if arrays is None or type(x._array) is not np.ndarray:
        return False
    values = value if isinstance(value, Tensor) else _like(x, value)
    new = values._array
    if type(new) is not np.ndarray or new.dtype != x._array.dtype:
        return False
    if mode.enabled and (values.requires_grad or x.requires_grad):
        return False
    check_writable(x)
    warn_of_overlap("index_put_", x._array)
    check_apart(x, (values,))
    try:
        x._array[arrays] = new
    except (IndexError, TypeError, ValueError):
        return False
    x._counter[0] += 1
    return True


def _is_mask(index: Any, x: Tensor) -> bool:
    """Whether an index is one mask over all of x, floats whose changes nobody records."""
    if type(index) is not Tensor or index._array.dtype != bool or x._requires_grad:
        return False
    same = index._array.ndim > 0 and index._array.shape == x._array.shape
    return same and x._array.dtype.kind == "f"


def index_put(target: Tensor, tensors: list, values: Tensor, accumulate: bool) -> None:
    """Write values (they broadcast) at the positions that `parse` found, in place."""
    for level in batching:
        level.written(target._array, (*tensors, values._array))
    recorded = mode.enabled and (values.requires_grad or target.requires_grad)
    (check_no_overlap if recorded or accumulate else _warn)(target._array)
    check_apart(target, (values,))
    shape = Indexed(target._array.shape, tensors).result
    if values._array.shape != shape:
        values = _without_leading_ones(values, len(shape))
        try:
            values = values.expand(shape)
        except RuntimeError:
            raise RuntimeError(
                f"shape mismatch: value tensor of shape {list(values._array.shape)} cannot be "
                f"broadcast to indexing result of shape {list(shape)}"
            ) from None
    whole = values._array.ndim > 1 and values._array.size and values._array.dtype.kind != "c"
    if accumulate and whole and _are_rows(tensors) and not on_gpu(values._array):
        # a copy where it is saved, for the program may change its own
        at = wrap(tensors[0].astype(np.int64, copy=recorded))
        assign(target, functions.index_add(target, 0, at, values))
        return
    chosen = [d for d, t in enumerate(tensors) if t is not None]
    if recorded and not accumulate and len(chosen) == 1:
        place, at = chosen[0], tensors[chosen[0]].reshape(-1)
        sizes = [at.size if d == place else n for d, n in enumerate(target._array.shape)]
        rows = wrap(at.astype(np.int64, copy=False))
        assign(target, PutSlices.apply(target, values.reshape(sizes), rows, dim=place))
        return
    if recorded or accumulate:
        flat = flat_positions(target._array.shape, tensors)
        assign(target, Put.apply(target, values, index=flat, accumulate=accumulate))
        return
    if runs_on_gpu(values._array) and on_gpu(target._array) and _are_rows(tensors):
        rows = tensors[0].reshape(-1, *[1] * (len(shape) - 1))
        rows, x = array_module(rows).broadcast_to(rows, shape), target._array
        dispatch.active.scatter(x, 0, rows, values._array, out=x)
    else:
        target._array[tuple(slice(None) if t is None else t for t in tensors)] = values._array
    target._counter[0] += 1


_warn = functools.partial(warn_of_overlap, "index_put_")


def _as_stored(values: Tensor, target: Tensor, index: Any, accumulate: bool = False) -> Tensor:
    """Values in the target's dtype. As in torch only one value at the places of one mask is
    converted; RuntimeError for others of another dtype."""
    if values._array.dtype == target._array.dtype:
        return values
    tensors = [item for item in parts_of(index) if type(item) is bool or hasattr(item, "dtype")]
    masks = [t for t in tensors if type(t) is bool or t.dtype.kind == "b"]
    if accumulate or values.numel() != 1 or not len(masks) == len(tensors) == 1:
        into, source = (t.dtype.legacy_name.removesuffix("Tensor") for t in (target, values))
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {into} for the "
            f"destination and {source} for the source; write `values.to({target.dtype})`"
        )
    if values.is_complex():
        dtypes.fitting(values.item(), target._array.dtype)
    return values.to(target.dtype)


def _are_rows(tensors: list) -> bool:
    """Whether the positions are those of whole parts along the first dimension."""
    first, *others = tensors
    return first is not None and first.ndim == 1 and all(t is None for t in others)


def _without_leading_ones(values: Tensor, ndim: int) -> Tensor:
    """Values without leading dimensions of length 1, down to `ndim` dimensions."""
    extra = values._array.ndim - ndim
    if extra > 0 and values._array.shape[:extra] == (1,) * extra:
        return values.reshape(values._array.shape[extra:])
    return values


def _like(self: Tensor, value: Any) -> Tensor:
    if value is None or isinstance(value, str | dict):
        raise TypeError(f"can't assign a {type(value).__name__} to a {type_name(self)}")
    xp, dtype = array_module(self._array), self._array.dtype
    half = dtype.kind == "f" and dtype.itemsize == 2
    if isinstance(value, complex) or (isinstance(value, (int, float)) and not half):
        value = dtypes.fitting(value, dtype)
    with np.errstate(over="ignore"):  # floats of 16 bits become infinite, as torch's do here
        return wrap(xp.asarray(value, dtype))


Tensor.__getitem__ = getitem
Tensor.__setitem__ = setitem


def index_put_(
    self: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False
) -> Tensor:
    """`self[indices] = values`, or with accumulate `+=`, where equal positions add up."""
    for name, given in (("indices", indices), ("values", values)):
        if isinstance(given, Tensor) != (name == "values"):
            wanted = "Tensor" if name == "values" else "tuple of Tensors"
            raise TypeError(
                f"index_put_(): argument '{name}' must be {wanted}, not {type(given).__name__}"
            )
    check_writable(self)
    index = tuple(indices)
    if not accumulate and _written(self, index, values):
        return self
    basic, tensors = parse(self, index)
    target = Slice.apply(self, index=basic) if basic else self
    values = _as_stored(values, self, index, accumulate)
    if tensors:
        index_put(target, tensors, values, accumulate)
    else:  # one element or one part, at numbers
        copy_(target, target + values if accumulate else values)
    return self


Tensor.index_put_ = index_put_


_masked_fill_ = Tensor.masked_fill_


@functools.wraps(_masked_fill_)
def masked_fill_(self: Tensor, mask: Any, value: Any) -> Tensor:
    """In an expanded tensor only the elements that the mask selects are written, as by index."""
    if (
        is_expanded(self._array)
        and isinstance(mask, Tensor)
        and mask._array.dtype == bool
        and _written(self, mask.expand(self._array.shape), value)
    ):
        return self
    return _masked_fill_(self, mask, value)


setattr(Tensor, "masked_fill_", masked_fill_)  # noqa: B010 - as `export` does
