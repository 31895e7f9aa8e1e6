"""Selection and addition by index along a dimension or by mask: gather, scatter, embedding."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.launchers.common import empty
from kernels.pointwise import TABLE
from kernels.support.bounds import all_below
from minigrad._foreign import check_tensors, no_tensor
from minigrad._meta import MetaArray
from minigrad.autograd.mode import joining, mode
from minigrad.autograd.node import Op
from minigrad.backends import array_module, is_batched, on_gpu
from minigrad.ops.bounds import check_bounds
from minigrad.ops.elementwise import masked_fill
from minigrad.ops.getitem import Put, PutSlices, getitem, rows_at
from minigrad.ops.inplace import inplace
from minigrad.ops.masks import runs_on_gpu, true_places
from minigrad.ops.pointwise import POINTWISE, broadcast_shape, factor
from minigrad.tensor import Tensor, export, normalize_dim, type_name, wrap

_INDEX_DTYPES = (np.dtype(np.int64), np.dtype(np.int32))


@functools.cache
def _along(name: str, dim: int) -> Callable:
    """An operation at an index along a dimension, as remembered launches know it."""
    return lambda x, *operands: getattr(dispatch.active, name)(x, dim, *operands)


def inside(x: Any, index: Any, dim: int) -> bool:
    """Whether an index on the CPU has as many dimensions as x and no wrong number."""
    known = type(index) is np.ndarray and index.dtype.kind == "i" and index.ndim == x.ndim
    return known and all_below(index, x.shape[dim])


FEW = 1 << 16  # elements; of more, Python's share of the time is small


def _again(name: str, x: Any, index: Any, src: Any, dim: int) -> Any:
    """A remembered `scatter` or `scatter_add`, or None."""
    if index.size > FEW or src.shape != index.shape or not inside(x, index, dim):
        return None
    return dispatch.relaunch(dispatch.tracer, dispatch.active, _along(name, dim), x, index, src)


def _scattered(name: str, x: Any, index: Any, src: Any, dim: int) -> Any:
    """`scatter` or `scatter_add`, remembered where the index need not be checked by the launch."""
    if src.shape != index.shape:
        src = src[tuple([slice(0, n) for n in index.shape])]
    if index.size <= FEW and inside(x, index, dim):
        return dispatch.together(_along(name, dim), x, index, src)
    return getattr(dispatch.active, name)(x, dim, index, src, error=wrong_index(x, dim))


def zeros(shape: tuple, like: Any) -> Any:
    """Zeros, which remembered launches fill."""
    if dispatch.has_numbers():
        return array_module(like).zeros(shape, like.dtype)
    out = empty(shape, like.dtype, like)
    return dispatch.active.pointwise(TABLE["copy"], 0, dtype=like.dtype, out=out)


class Pick(Op):
    """x.gather(dim, index) at an index that has been computed, and so needs no checks."""

    name = "Gather"
    saves = (1,)

    @staticmethod
    def again(x: Any, index: Any, dim: int) -> Any:
        return dispatch.relaunch(dispatch.tracer, dispatch.active, _along("gather", dim), x, index)

    @staticmethod
    def forward(x: Any, index: Any, dim: int) -> Any:
        return dispatch.together(_along("gather", dim), x, index)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        (index,) = ctx.tensors()
        return (ScatterAdd.apply(wrap(zeros(ctx.shapes[0], g._array)), index, g, dim=dim), None)


class Gather(Pick):
    """x.gather(dim, index)."""

    @staticmethod
    def rule(x: Tensor, index: Tensor, dim: int) -> None:
        check_index("gather", x, index, dim)

    @staticmethod
    def again(x: Any, index: Any, dim: int) -> Any:
        return Pick.again(x, index, dim) if inside(x, index, dim) else None


class ScatterAdd(Op):
    """x with src added at index along dim."""

    saves = (1,)

    @staticmethod
    def rule(x: Tensor, index: Tensor, src: Tensor, dim: int) -> None:
        check_index("scatter_add", x, index, dim)
        check_source("scatter_add", x, index, src)

    @staticmethod
    def again(x: Any, index: Any, src: Any, dim: int) -> Any:
        return _again("scatter_add", x, index, src, dim)

    @staticmethod
    def forward(x: Any, index: Any, src: Any, dim: int) -> Any:
        return _scattered("scatter_add", x, index, src, dim)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        (index,) = ctx.tensors()
        if not ctx.needs[2]:
            return (g, None, None)
        return (g, None, padded(Gather.apply(g, index, dim=dim), ctx.shapes[2]))


class Scatter(Op):
    """x with src written at index along dim."""

    saves = (1,)

    @staticmethod
    def rule(x: Tensor, index: Tensor, src: Tensor, dim: int) -> None:
        check_index("scatter", x, index, dim)
        check_source("scatter", x, index, src)

    @staticmethod
    def again(x: Any, index: Any, src: Any, dim: int) -> Any:
        return _again("scatter", x, index, src, dim)

    @staticmethod
    def forward(x: Any, index: Any, src: Any, dim: int) -> Any:
        if x.dtype.kind != "c":
            return _scattered("scatter", x, index, src, dim)
        region = tuple([slice(0, n) for n in index.shape])
        out = x.copy()
        rows = out[tuple([slice(None) if d == dim else s for d, s in enumerate(region)])]
        array_module(x).put_along_axis(rows, index, src[region], dim)
        return out

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        (index,) = ctx.tensors()
        kept = values = None
        if ctx.needs[0]:
            kept = Scatter.apply(g, index, wrap(zeros(index._array.shape, g._array)), dim=dim)
        if ctx.needs[2]:
            values = padded(Gather.apply(g, index, dim=dim), ctx.shapes[2])
        return (kept, None, values)


class Embedding(Op):
    """Rows of weight (V, D) at index."""

    saves = (1,)

    @staticmethod
    def rule(weight: Tensor, index: Tensor, **_: Any) -> None:
        if on_gpu(index._array):
            return  # there the launcher checks, for the gradient too
        rows = weight._array.shape[0]
        text = f"index out of range in self: embedding has {rows} rows, got an index of"
        check_bounds(index._array, 0, rows, lambda wrong: IndexError(f"{text} {wrong}"))

    @staticmethod
    def again(weight: Any, index: Any, **_: Any) -> Any:
        if type(index) is not np.ndarray or not all_below(index, weight.shape[0]):
            return None
        return dispatch.relaunch(dispatch.tracer, dispatch.active, rows_at, weight, index)

    @staticmethod
    def forward(weight: Any, index: Any, **_: Any) -> Any:
        if type(index) is np.ndarray and all_below(index, weight.shape[0]):
            return dispatch.together(rows_at, weight, index)  # which looks at the index no more
        return rows_at(weight, index)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, padding_idx: int | None, by_frequency: bool = False) -> tuple:
        (index,) = ctx.tensors()
        if padding_idx is not None:
            g = g.masked_fill((index == padding_idx).unsqueeze(-1), 0)
        if by_frequency:
            places = index._array.ravel()
            counts = wrap(array_module(places).bincount(places)[index._array])
            g = g / counts.to(g.dtype).unsqueeze(-1)
        if joining and is_batched(index._array):
            rows = g.reshape(index._array.size, g._array.shape[-1])
            index, g = joining[0](index.reshape(-1), rows, ctx.shapes[0], 0, 0)
        return (AddRows.apply(g, index, rows=ctx.shapes[0][0]), None)


class SparseEmbedding(Embedding):
    """`Embedding` whose gradient, unless it is recorded, is a sparse tensor of the rows in use."""

    name, grad_name = "Embedding", "EmbeddingBackward0"

    @staticmethod
    def vjp(ctx: Any, g: Tensor, padding_idx: int | None, by_frequency: bool = False) -> tuple:
        if mode.enabled:
            return Embedding.vjp(ctx, g, padding_idx)
        if mode.recorder is not None:
            mode.recorder.stop("it computes a sparse gradient")
        from minigrad.ops.sparse_tensor import CooTensor

        (index,) = ctx.tensors()
        places, rows = index._array.reshape(-1).astype(np.int64), g.reshape(-1, g._array.shape[-1])
        if padding_idx is not None:
            kept = places != padding_idx
            places, rows = places[kept], wrap(rows._array[kept])
        return CooTensor(places[None], rows, ctx.shapes[0], False), None


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


class AddedRows(Op):
    """x with slices of its first dimension added at a checked index: of source, one for each
    position, which are the first dimensions of source."""

    saves = (2,)
    repeats = True
    grad_name = "IndexAddBackward0"

    @staticmethod
    def forward(x: Any, source: Any, index: Any) -> Any:
        count, width = x.shape[0], math.prod(x.shape[1:])
        rows, onto = source.reshape(*index.shape, width), x.reshape(count, width)
        return dispatch.active.embedding_backward(rows, index, count, onto=onto).reshape(x.shape)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        (index,) = ctx.tensors()
        if not ctx.needs[1]:
            return g, None, None
        rows = Embedding.apply(g.flatten(1), index, padding_idx=None)
        return g if ctx.needs[0] else None, rows.reshape(ctx.shapes[1]), None


def padded(x: Tensor, shape: tuple) -> Tensor:
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
    if not i.size:
        return
    if i.dtype not in _INDEX_DTYPES:
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
    launcher = name in ("scatter_add", "scatter") or (on_gpu(i) and name == "gather")
    if launcher and a.dtype.kind != "c" and mode.recorder is None:
        return  # it checks, on a GPU for the gradient too
    check_bounds(i, 0, a.shape[dim] if a.ndim else 1, wrong_index(a, dim))


def wrong_index(x: Any, dim: int) -> Callable[[int], Exception]:
    """The error of a wrong number in an index of gather and scatter."""
    n = x.shape[dim] if x.ndim else 1
    text = f"is out of bounds for dimension {dim} with size {n}"
    return lambda wrong: RuntimeError(f"index {wrong} {text}")


def check_source(name: str, x: Tensor, index: Tensor, src: Tensor) -> None:
    """Check the values of scatter."""
    if src._array.dtype != x._array.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")
    shapes = index._array.shape, src._array.shape
    if len(shapes[0]) != len(shapes[1]) or any(n > m for n, m in zip(*shapes)):
        raise RuntimeError(
            f"{name}: expected index {list(index.shape)} to be no larger than src {list(src.shape)}"
        )


@export()
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """The elements of input at the places along dim that index names; of index's shape.

    For dim 0 and two dimensions: out[i, j] = input[index[i, j], j]. sparse_grad: without effect,
    the gradient is dense.

    Example::

        minigrad.tensor([[1, 2], [3, 4]]).gather(1, minigrad.tensor([[0, 0], [1, 0]]))
        # tensor([[1, 1],
        #         [4, 3]])
    """
    if not isinstance(index, Tensor):
        raise no_tensor("gather", "index", index)
    place = normalize_dim(dim, input._array.ndim)
    if not index._array.size:
        return input.reshape(-1)[:0].reshape(index._array.shape)
    if input._array.ndim and index._array.ndim:
        return Gather.apply(input, index, dim=place)
    return Gather.apply(*as_vectors(input, index), dim=place).reshape(index._array.shape)


def as_vectors(*tensors: Tensor) -> list[Tensor]:
    """The tensors, those of no dimension as vectors of one element."""
    return [x if x._array.ndim else x.reshape(1) for x in tensors]


def check_index_dtype(name: str, index: Tensor) -> None:
    if index._array.dtype not in _INDEX_DTYPES:
        raise RuntimeError(f"{name}(): Expected dtype int32 or int64 for index, got {index.dtype}")


def check_positions(name: str, index: Tensor, n: int) -> Any:
    """The positions; IndexError for one outside 0 .. n-1: these operations don't count from the
    end."""

    def error(wrong: int) -> IndexError:
        text = f"is out of range for a dimension of length {n}"
        return IndexError(f"{name}(): index {wrong} {text}")

    return check_bounds(index._array, 0, n, error)


@export()
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where mask (broadcast) is True, as one dimension."""
    if not isinstance(mask, Tensor):
        raise no_tensor("masked_select", "mask", mask)
    if mask._array.dtype.kind != "b":
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    shape = broadcast_shape(input._array.shape, mask._array.shape)
    return getitem(*_expanded((input, mask), shape))


def _expanded(tensors: tuple[Tensor, ...], shape: tuple) -> list[Tensor]:
    return [x if x._array.shape == shape else x.expand(shape) for x in tensors]


@export()
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    """input with alpha * source added to the slices at `index`."""
    check_tensors("index_add", index=index, source=source)
    if not input._array.ndim:
        vectors = as_vectors(input, index, source)
        return index_add(vectors[0], dim, *vectors[1:], alpha=alpha).reshape(())
    place, positions, source = _slices("index_add", input, dim, index, source)
    if alpha != 1:
        source = source * factor("alpha", alpha, input._array.dtype)
    shape = input._array.shape
    if place == 0 and math.prod(shape[1:]) > 1 and input._array.dtype.kind != "c":
        own = index._array is positions  # with its version: the program may change it
        return AddedRows.apply(input, source, index if own else wrap(positions))
    rows = wrap(positions)
    if len(shape) > 1:
        rows = rows.reshape([-1 if d == place else 1 for d in range(len(shape))])
        rows = rows.expand(source._array.shape)
    return ScatterAdd.apply(input, rows, source, dim=place)


@export()
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """input with the slices at `index` replaced by those of source."""
    check_tensors("index_copy", index=index, source=source)
    if not input._array.ndim:
        x, index, source = as_vectors(input, index, source)
        return index_copy(x, dim, index, source).reshape(())
    place, positions, source = _slices("index_copy", input, dim, index, source)
    return PutSlices.apply(input, source, wrap(positions.astype(np.int64)), dim=place)


@export()
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """input with the slices at `index` set to a number or a 0-dimensional tensor."""
    check_tensors("index_fill", index=index)
    if not input._array.ndim:
        (index,) = as_vectors(index)
        return index_fill(input.reshape(1), dim, index, value).reshape(())
    if index._array.dtype != np.int64:
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    if isinstance(value, Tensor) and value._array.ndim:
        raise RuntimeError(
            "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value._array.ndim} dimension(s)."
        )
    place = normalize_dim(dim, input._array.ndim)
    n = input._array.shape[place]
    text = f"is out of bounds for dimension {place} with size {n}"
    positions = check_bounds(index._array, -n, n, lambda i: IndexError(f"index {i} {text}"))
    chosen = array_module(input._array).zeros(n, bool)
    chosen[positions] = True
    rows = chosen.reshape([-1 if d == place else 1 for d in range(input._array.ndim)])
    return masked_fill(input, wrap(rows).expand(input._array.shape), value)


def _slices(
    name: str, x: Tensor, dim: int, index: Tensor, source: Tensor
) -> tuple[int, Any, Tensor]:
    """The dimension of index_add and index_copy, the positions along it, and their source: slices
    like those of x, one per position."""
    place = normalize_dim(dim, x._array.ndim)
    if index._array.ndim > 1:
        raise IndexError(f"{name}_(): Index should have dimension 1 or 0 (got {index.ndim})")
    check_index_dtype(name, index)
    if source._array.dtype != x._array.dtype:
        raise RuntimeError(
            f"{name}_(): self and source expected to have the same dtype, but got (self) "
            f"{x.dtype} and (source) {source.dtype}"
        )
    (vector,) = as_vectors(index)
    positions = check_positions(name, vector, x._array.shape[place])
    shape = (*x._array.shape[:place], index._array.size, *x._array.shape[place + 1 :])
    if name == "index_copy" and source._array.ndim not in (0, x._array.ndim):
        raise IndexError(
            "index_copy_(): When source and destination are not scalars, their dimensionality must "
            f"match. Source dimensionality ({source.ndim}), destination dimensionality ({x.ndim})"
        )
    if source._array.shape == shape:
        return place, positions, source
    if source._array.ndim or index._array.size != 1:
        raise RuntimeError(
            f"{name}_(): expected a source of shape {list(shape)}, got {list(source.shape)}"
        )
    return place, positions, source.reshape([1] * len(shape)).expand(shape)


@export()
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Positions of non-zero elements: (count, ndim) int64, or one tensor per dimension."""
    array = input._array
    if runs_on_gpu(array) and 0 < array.ndim < 5:
        places = true_places(array if array.dtype == bool else POINTWISE["ne"](input, 0)._array)
        return tuple([wrap(places[:, d]) for d in range(array.ndim)]) if as_tuple else wrap(places)
    found = array_module(array).atleast_1d(array).nonzero() if array.ndim == 0 else array.nonzero()
    if as_tuple:
        return tuple([wrap(f) for f in found])
    rows = array_module(array).stack(found, 1) if array.ndim else found[0].reshape(-1, 1)[:, :0]
    return wrap(rows)


@export()
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first `size` rows of `nonzero`; rows of `fill_value` where there are fewer."""
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    rows = nonzero(input)._array[:size]
    found = array_module(rows).full((size, rows.shape[1]), fill_value, np.int64)
    found[: len(rows)] = rows
    return wrap(found)


@export(method=False)
def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of weight (V, D) at integer indices of any shape: (*indices.shape, D).

    The row `padding_idx` gets no gradient. scale_grad_by_freq: the gradient of a row is divided by
    the number of times that `indices` has it. sparse: the gradient of weight is a sparse tensor.
    (`nn.functional.embedding` takes the indices first.)
    """
    if weight._array.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    i = indices._array
    if i.dtype not in _INDEX_DTYPES:
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got {type_name(indices)} instead (while checking arguments for "
            "embedding)"
        )
    padding = padding_idx
    if padding is not None and padding < 0:
        padding += weight._array.shape[0]
    if sparse and scale_grad_by_freq:
        raise RuntimeError(
            "embedding_backward: scale_grad_by_freq not supported with sparse gradients"
        )
    op = SparseEmbedding if sparse else Embedding
    return op.apply(weight, indices, padding_idx=padding, by_frequency=bool(scale_grad_by_freq))


@export(method=False)
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 rows with a one at the class index."""
    array = tensor._array
    if array.dtype != np.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if num_classes == -1 and not array.size:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    if type(array) is MetaArray and num_classes != -1:
        return wrap(MetaArray((*array.shape, num_classes), np.int64))
    # On a GPU the host does not wait for the numbers; `vmap` has no place for each
    if num_classes != -1 and (on_gpu(array) or is_batched(array)):
        xp, below = array_module(array), check_bounds(array, 0, num_classes, _wrong_class)
        rows = xp.zeros((*array.shape, num_classes), np.int64)
        ones = xp.broadcast_to(xp.ones(1, np.int64), (*array.shape, 1))
        return wrap(dispatch.active.scatter(rows, -1, below[..., None], ones, out=rows))
    if array.size and array.min() < 0:
        raise _wrong_class(-1)
    most = int(array.max()) if array.size else -1
    count = most + 1 if num_classes == -1 else num_classes
    if most >= count:
        raise _wrong_class(most)
    xp = array_module(array)
    rows = xp.zeros((array.size, count), np.int64)
    rows[xp.arange(array.size), array.reshape(-1)] = 1
    return wrap(rows.reshape(*array.shape, count))


def _wrong_class(wrong: int) -> RuntimeError:
    kind = "non-negative" if wrong < 0 else "smaller than num_classes"
    return RuntimeError(f"Class values must be {kind}.")


def _masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """input with consecutive elements of source where mask (both broadcast) is True."""
    check_tensors("masked_scatter", mask=mask, source=source)
    if mask._array.dtype.kind != "b":
        raise RuntimeError(
            f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype}"
        )
    if input._array.dtype != source._array.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got {input.dtype} "
            f"and {source.dtype}"
        )
    shape = broadcast_shape(input._array.shape, mask._array.shape)
    input, mask = _expanded((input, mask), shape)
    if not shape:
        return _masked_scatter(input.reshape(1), mask.reshape(1), source).reshape(())
    array = array_module(input._array).asarray(mask._array).reshape(-1)
    flat = true_places(array).reshape(-1) if runs_on_gpu(array) else array.nonzero()[0]
    if source._array.size < flat.size:
        raise RuntimeError(
            f"masked_scatter: expected {flat.size} or more elements in source, got {source.numel()}"
        )
    return Put.apply(input, source.reshape(-1)[: flat.size], index=flat, accumulate=False)


_masked_scatter.__name__ = "masked_scatter"
export()(_masked_scatter)

for _name in "index_add index_copy index_fill masked_scatter".split():
    inplace(_name)
