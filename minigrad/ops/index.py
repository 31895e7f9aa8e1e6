"""Indexing: `x[...]` with torch's rules, gather and scatter, and selection by index or mask.

An index is applied in two steps, as in torch: integers, slices and None make a view; then tensors
and boolean masks (converted to positions) select elements by their flat position.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import dispatch
from minigrad.autograd.mode import mode
from minigrad.autograd.node import Op, needs_grad
from minigrad.backends import array_module
from minigrad.ops.inplace import assign, check_no_overlap, check_writable, copy_, inplace
from minigrad.ops.shape import Slice
from minigrad.tensor import Tensor, export, normalize_dim, type_name, wrap


class Take(Op):
    """Elements of the flattened x at flat positions (an array)."""

    saves = ()
    grad_name = "IndexBackward0"

    @staticmethod
    def forward(x: Any, index: Any) -> Any:
        return dispatch.active.take(x, index)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, index: Any) -> tuple:
        return (PutInZeros.apply(g, index=index, shape=ctx.shapes[0]),)


class PutInZeros(Op):
    """Zeros of `shape` with g added at flat positions: the gradient of `Take`."""

    saves = ()

    @staticmethod
    def forward(g: Any, index: Any, shape: tuple) -> Any:
        size = 1
        for n in shape:
            size *= n
        return dispatch.active.take_backward(g, index, size).reshape(shape)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, index: Any, shape: tuple) -> tuple:
        return (Take.apply(g, index=index),)


class Put(Op):
    """x with `values` at flat positions; of equal positions the last is used, unless
    accumulating."""

    saves = ()
    grad_name = "IndexPutBackward0"

    @staticmethod
    def forward(x: Any, values: Any, index: Any, accumulate: bool) -> Any:
        out = dispatch.active.copy(x)
        flat = out.reshape(-1)
        if accumulate:
            return dispatch.active.scatter_add(
                flat, 0, index.reshape(-1), values.reshape(-1)
            ).reshape(x.shape)
        flat[index] = values
        return out

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


class Gather(Op):
    """x.gather(dim, index)."""

    saves = (1,)

    @staticmethod
    def rule(x: Tensor, index: Tensor, dim: int) -> None:
        check_index("gather", x, index, dim)

    @staticmethod
    def forward(x: Any, index: Any, dim: int) -> Any:
        return dispatch.active.gather(x, dim, index)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        (index,) = ctx.tensors()
        zeros = wrap(array_module(g._array).zeros(ctx.shapes[0], g._array.dtype))
        return (ScatterAdd.apply(zeros, index, g, dim=dim), None)


class ScatterAdd(Op):
    """x with src added at index along dim."""

    saves = (1,)

    @staticmethod
    def rule(x: Tensor, index: Tensor, src: Tensor, dim: int) -> None:
        check_index("scatter_add", x, index, dim)
        check_source("scatter_add", x, index, src)

    @staticmethod
    def forward(x: Any, index: Any, src: Any, dim: int) -> Any:
        region = tuple([slice(0, n) for n in index.shape])
        return dispatch.active.scatter_add(x, dim, index, src[region])

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        (index,) = ctx.tensors()
        if not ctx.needs[2]:
            return (g, None, None)
        return (g, None, _padded(Gather.apply(g, index, dim=dim), ctx.shapes[2]))


class Scatter(Op):
    """x with src written at index along dim."""

    saves = (1,)

    @staticmethod
    def rule(x: Tensor, index: Tensor, src: Tensor, dim: int) -> None:
        check_index("scatter", x, index, dim)
        check_source("scatter", x, index, src)

    @staticmethod
    def forward(x: Any, index: Any, src: Any, dim: int) -> Any:
        xp = array_module(x)
        out = dispatch.active.copy(x)
        region = tuple([slice(0, n) for n in index.shape])
        rows = out[tuple([slice(None) if d == dim else s for d, s in enumerate(region)])]
        xp.put_along_axis(rows, index, src[region], dim)
        return out

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        (index,) = ctx.tensors()
        kept = values = None
        if ctx.needs[0]:
            zeros = wrap(array_module(g._array).zeros(index._array.shape, g._array.dtype))
            kept = Scatter.apply(g, index, zeros, dim=dim)
        if ctx.needs[2]:
            values = _padded(Gather.apply(g, index, dim=dim), ctx.shapes[2])
        return (kept, None, values)


class Embedding(Op):
    """Rows of weight (V, D) at index."""

    saves = (1,)

    @staticmethod
    def forward(weight: Any, index: Any, padding_idx: int | None) -> Any:
        return dispatch.active.embedding(weight, index)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, padding_idx: int | None) -> tuple:
        (index,) = ctx.tensors()
        if padding_idx is not None:
            g = g.masked_fill((index == padding_idx).unsqueeze(-1), 0)
        return (AddRows.apply(g, index, rows=ctx.shapes[0][0]), None)


class AddRows(Op):
    """Rows of g added at their index: the gradient of `Embedding`."""

    saves = (1,)

    @staticmethod
    def forward(g: Any, index: Any, rows: int) -> Any:
        return dispatch.active.embedding_backward(g, index, rows)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, rows: int) -> tuple:
        (index,) = ctx.tensors()
        return (Embedding.apply(g, index, padding_idx=None), None)


def _padded(x: Tensor, shape: tuple) -> Tensor:
    """x with zeros appended, up to `shape` (a source may be larger than its index)."""
    if x._array.shape == shape:
        return x
    pads = [
        p
        for n, m in zip(reversed(x._array.shape), reversed(shape), strict=True)
        for p in (0, m - n)
    ]
    return x.pad_constant(pads)


def check_index(name: str, x: Tensor, index: Tensor, dim: int) -> None:
    """Check an index of gather and scatter."""
    a, i = x._array, index._array
    if i.dtype.kind not in "iu":
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index")
    if a.ndim != i.ndim:
        raise RuntimeError(
            "Index tensor must have the same number of dimensions as input tensor: "
            f"{name} got {list(i.shape)} and {list(a.shape)}"
        )
    for d, (n, m) in enumerate(zip(i.shape, a.shape, strict=True)):
        if d != dim and n > m:
            raise RuntimeError(
                f"Size does not match at dimension {d} expected index {list(i.shape)} to be no "
                f"larger than self {list(a.shape)} apart from dimension {dim}"
            )
    n = a.shape[dim] if a.ndim else 1
    if i.size and (i.min() < 0 or i.max() >= n):
        wrong = int(i.max()) if i.max() >= n else int(i.min())
        raise RuntimeError(f"index {wrong} is out of bounds for dimension {dim} with size {n}")


def check_source(name: str, x: Tensor, index: Tensor, src: Tensor) -> None:
    """Check the values of scatter."""
    if src._array.dtype != x._array.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")
    if any(n > m for n, m in zip(index._array.shape, src._array.shape, strict=True)):
        raise RuntimeError(
            f"{name}: expected index {list(index.shape)} to be no larger than src {list(src.shape)}"
        )


# --- x[...] ---


def getitem(self: Tensor, index: Any) -> Tensor:
    """`x[index]`: a view for integers, slices, None and `...`; a copy for tensors and masks."""
    if type(index) is int:
        _check_position(self._array.shape, index, 0)
        return Slice.apply(self, index=(index,))
    basic, tensors = parse(self, index)
    view = Slice.apply(self, index=basic) if basic or not tensors else self
    if not tensors:
        return view
    flat = flat_positions(view._array.shape, tensors)
    return Take.apply(view, index=flat)


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """`x[index] = value`, recorded if x or value requires a gradient."""
    basic, tensors = parse(self, index)
    target = Slice.apply(self, index=basic) if basic or not tensors else self
    check_writable(target)
    if not tensors:
        values = value if isinstance(value, Tensor | int | float) else _like(self, value)
        if isinstance(values, Tensor):
            values = _without_leading_ones(values, target._array.ndim)
        copy_(target, values)
        return
    flat = flat_positions(target._array.shape, tensors)
    values = value if isinstance(value, Tensor) else _like(self, value)
    index_put(target, flat, values, accumulate=False)


def index_put(target: Tensor, flat: Any, values: Tensor, accumulate: bool) -> None:
    """Write values (they broadcast) at flat positions of a tensor, in place."""
    check_no_overlap(target._array)
    if values._array.dtype != target._array.dtype:
        values = values.to(target.dtype)
    if values._array.shape != flat.shape:
        values = _without_leading_ones(values, flat.ndim)
        try:
            values = values.expand(flat.shape)
        except RuntimeError:
            raise RuntimeError(
                f"shape mismatch: value tensor of shape {list(values._array.shape)} cannot be "
                f"broadcast to indexing result of shape {list(flat.shape)}"
            ) from None
    recorded = mode.enabled and (needs_grad(values) or needs_grad(target))
    if recorded or accumulate:
        assign(target, Put.apply(target, values, index=flat, accumulate=accumulate))
        return
    array = target._array
    array[array_module(array).unravel_index(flat, array.shape)] = values._array
    target._counter[0] += 1


def _without_leading_ones(values: Tensor, ndim: int) -> Tensor:
    """Values without leading dimensions of length 1, down to `ndim` dimensions."""
    extra = values._array.ndim - ndim
    if extra > 0 and values._array.shape[:extra] == (1,) * extra:
        return values.reshape(values._array.shape[extra:])
    return values


def _like(self: Tensor, value: Any) -> Tensor:
    if value is None or isinstance(value, str | dict):
        raise TypeError(f"can't assign a {type(value).__name__} to a {type_name(self)}")
    xp = array_module(self._array)
    return wrap(xp.asarray(value, self._array.dtype))


def _check_position(shape: tuple, position: int, dim: int) -> None:
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
    items = _items(index)
    consumed = sum(_width(item) for item in items)
    if consumed > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    whole = [slice(None)] * (len(shape) - consumed)
    if Ellipsis in [i if i is Ellipsis else None for i in items]:
        place = next(k for k, i in enumerate(items) if i is Ellipsis)
        items[place : place + 1] = whole
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
            tensors += _positions(array_module(self._array).asarray(item), shape, dim)
            dim += width
        else:
            _check_position(shape, item, dim)
            basic.append(item)
            dim += 1
    has_tensors = any(t is not None for t in tensors)
    while basic and isinstance(basic[-1], slice) and basic[-1] == slice(None):
        basic.pop()
    left = len(shape) - dim
    return tuple(basic), (tensors + [None] * left) if has_tensors else []


def _items(index: Any) -> list:
    """The parts of an index: None, bool, int, slice, Ellipsis or an array."""
    parts = index if isinstance(index, tuple) else (index,)
    return [_item(p) for p in parts]


def _item(part: Any) -> Any:
    if part is None or part is Ellipsis or isinstance(part, slice | int):
        return part
    array = part._array if isinstance(part, Tensor) else part
    if isinstance(array, list | tuple | range):
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
    if array.dtype.kind not in "biu":
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    if array.ndim == 0:
        return bool(array) if array.dtype.kind == "b" else int(array)
    return array.astype(bool) if array.dtype == np.uint8 else array


def _width(item: Any) -> int:
    """How many dimensions a part of an index consumes."""
    if item is None or item is Ellipsis or type(item) is bool:
        return 0
    if isinstance(item, int | slice):
        return 1
    return item.ndim if item.dtype.kind == "b" else 1


def _slice(item: slice) -> slice:
    parts = [p.__index__() if p is not None else None for p in (item.start, item.stop, item.step)]
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
        return list(item.nonzero())
    n = shape[dim]
    if item.size and (item.min() < -n or item.max() >= n):
        wrong = int(item.max()) if item.max() >= n else int(item.min())
        raise IndexError(f"index {wrong} is out of bounds for dimension {dim} with size {n}")
    return [array_module(item).where(item < 0, item + n, item)]


def flat_positions(shape: tuple, tensors: list) -> Any:
    """Flat positions in a row-major array of `shape`. The index arrays broadcast together; their
    dimensions replace adjacent indexed dimensions, or come first if those are not adjacent."""
    steps = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        steps[d] = steps[d + 1] * shape[d + 1]
    chosen = [d for d, t in enumerate(tensors) if t is not None]
    xp = array_module(tensors[chosen[0]])
    try:
        arrays = xp.broadcast_arrays(*[tensors[d] for d in chosen])
    except ValueError as error:
        shapes = ", ".join(str(list(tensors[d].shape)) for d in chosen)
        raise IndexError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes " + shapes
        ) from error
    inner = arrays[0].shape
    adjacent = chosen == list(range(chosen[0], chosen[-1] + 1))
    before = [d for d in range(len(shape)) if tensors[d] is None and d < chosen[0] and adjacent]
    after = [d for d in range(len(shape)) if tensors[d] is None and d not in before]
    flat = sum(a.astype(np.int64) * steps[d] for a, d in zip(arrays, chosen, strict=True))
    flat = flat.reshape((1,) * len(before) + inner + (1,) * len(after))
    ndim = flat.ndim
    places = [*range(len(before)), *range(len(before) + len(inner), ndim)]
    for d, place in zip(before + after, places, strict=True):
        axis = [1] * ndim
        axis[place] = shape[d]
        flat = flat + (xp.arange(shape[d], dtype=np.int64) * steps[d]).reshape(axis)
    return flat


Tensor.__getitem__ = getitem
Tensor.__setitem__ = setitem


def index_put_(self: Tensor, indices: tuple, values: Tensor, accumulate: bool = False) -> Tensor:
    """`self[indices] = values`, or with accumulate `+=`, where equal positions add up."""
    check_writable(self)
    basic, tensors = parse(self, tuple(indices))
    target = Slice.apply(self, index=basic) if basic else self
    index_put(target, flat_positions(target._array.shape, tensors), values, accumulate)
    return self


Tensor.index_put_ = index_put_


# --- by index along a dimension ---


@export()
def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """out[i, j] = input[index[i, j], j] for dim 0, and so on; of index's shape."""
    return Gather.apply(input, index, dim=normalize_dim(dim, input._array.ndim))


@export()
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """input with src added at index along dim; equal positions add up."""
    return ScatterAdd.apply(input, index, src, dim=normalize_dim(dim, input._array.ndim))


@export()
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    *,
    value: Any = None,
    reduce: str | None = None,
) -> Tensor:
    """input with src (a tensor or a number) written at index along dim; reduce="add" adds."""
    place = normalize_dim(dim, input._array.ndim)
    source = value if src is None else src
    if not isinstance(source, Tensor):
        xp = array_module(input._array)
        source = wrap(xp.full(index._array.shape, source, input._array.dtype))
    if reduce == "add":
        return ScatterAdd.apply(input, index, source, dim=place)
    if reduce is not None:
        raise RuntimeError(f"scatter: expected reduce to be None or 'add', got {reduce!r}")
    return Scatter.apply(input, index, source, dim=place)


@export()
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of `input` at `index` (one-dimensional) along `dim`."""
    if index._array.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    place = normalize_dim(dim, input._array.ndim)
    return getitem(input, (slice(None),) * place + (index.reshape(-1),))


@export()
def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements of the flattened tensor at `index`."""
    i = index._array
    flat = array_module(i).where(i < 0, i + input._array.size, i)
    return Take.apply(input, index=flat)


@export()
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather`, with the other dimensions broadcast."""
    if dim is None:
        return take(input, indices.reshape(-1))
    return gather(input, dim, indices)


@export()
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where mask (broadcast) is True, as one dimension."""
    if mask._array.dtype.kind != "b":
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    shape = np.broadcast_shapes(input._array.shape, mask._array.shape)
    return getitem(input.expand(shape), mask.expand(shape))


def _along(input: Tensor, dim: int, index: Tensor) -> tuple:
    return (slice(None),) * normalize_dim(dim, input._array.ndim) + (index,)


@export()
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    """input with alpha * source added to the slices at `index`."""
    tensors = parse(input, _along(input, dim, index))[1]
    flat = flat_positions(input._array.shape, tensors)
    return Put.apply(input, source if alpha == 1 else source * alpha, index=flat, accumulate=True)


@export()
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """input with the slices at `index` replaced by those of source."""
    tensors = parse(input, _along(input, dim, index))[1]
    flat = flat_positions(input._array.shape, tensors)
    return Put.apply(input, source, index=flat, accumulate=False)


@export()
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """input with the slices at `index` set to a number."""
    out = input.clone()
    out[_along(input, dim, index)] = value
    return out


@export()
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Positions of non-zero elements: (count, ndim) int64, or one tensor per dimension."""
    array = input._array
    found = array_module(array).atleast_1d(array).nonzero() if array.ndim == 0 else array.nonzero()
    if as_tuple:
        return tuple([wrap(f) for f in found])
    rows = array_module(array).stack(found, 1) if array.ndim else found[0].reshape(-1, 1)[:, :0]
    return wrap(rows)


@export(method=False)
def embedding(weight: Tensor, index: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of weight (V, D) at an integer index of any shape: (*index.shape, D).

    The row `padding_idx` gets no gradient. (`nn.functional.embedding` takes the index first.)
    """
    if weight._array.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    i = index._array
    if i.dtype.kind not in "iu":
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got {index.dtype} instead (while checking arguments for embedding)"
        )
    rows = weight._array.shape[0]
    if i.size and (i.min() < 0 or i.max() >= rows):
        raise IndexError(
            f"index out of range in self: embedding has {rows} rows, got an index of "
            f"{int(i.max()) if i.max() >= rows else int(i.min())}"
        )
    padding = padding_idx + rows if padding_idx is not None and padding_idx < 0 else padding_idx
    return Embedding.apply(weight, index, padding_idx=padding)


@export(method=False)
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 rows with a one at the class index."""
    array = tensor._array
    if array.dtype != np.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if array.size and array.min() < 0:
        raise RuntimeError("Class values must be non-negative.")
    if num_classes == -1 and not array.size:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    count = int(array.max()) + 1 if num_classes == -1 else num_classes
    if array.size and array.max() >= count:
        raise RuntimeError("Class values must be smaller than num_classes.")
    xp = array_module(array)
    return wrap((array[..., None] == xp.arange(count)).astype(np.int64))


def _masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """input with consecutive elements of source where mask is True."""
    tensors = parse(input, (mask.expand(input._array.shape),))[1]
    flat = flat_positions(input._array.shape, tensors)
    return Put.apply(input, source.reshape(-1)[: flat.size], index=flat, accumulate=False)


_masked_scatter.__name__ = "masked_scatter"
export()(_masked_scatter)

for _name in "scatter scatter_add index_add index_copy index_fill masked_scatter".split():
    inplace(_name)
