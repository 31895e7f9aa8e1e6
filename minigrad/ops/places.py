"""Elements at flat positions, along a dimension, on a diagonal: `take`, `put`, `index_reduce`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels import dispatch
from minigrad import dtypes
from minigrad._foreign import check_tensors
from minigrad.autograd.mode import mode as grad_mode
from minigrad.backends import array_module, on_gpu
from minigrad.devices import read
from minigrad.ops.bounds import check_bounds
from minigrad.ops.getitem import Put, Take
from minigrad.ops.index import gather
from minigrad.ops.masks import runs_on_gpu
from minigrad.ops.pointwise import POINTWISE, broadcast_shape, check_floating
from minigrad.ops.reduce import values_and_indices
from minigrad.ops.scatter import scatter_reduce
from minigrad.ops.sort import searchsorted, sort
from minigrad.ops.storage import elements_at
from minigrad.tensor import Tensor, export, functions, normalize_dim, wrap

_Mode = values_and_indices("mode")


@export()
def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements of the flattened tensor at `index`."""
    check_tensors("take", index=index)
    i, n = index._array, input._array.size
    if i.dtype != np.int64:
        raise RuntimeError(f"take(): Expected a long tensor for index, but got {index.dtype}")
    if i.size and not n:
        raise IndexError("take(): tried to take from an empty tensor")
    text = f"take(): index out of range for a tensor of {n} elements"

    def error(wrong: int) -> IndexError:
        return IndexError(text)

    if on_gpu(i) and input._array.dtype.kind != "c" and grad_mode.recorder is None:
        if input._requires_grad:
            i = i.copy()  # the program may change its own
        return Take.apply(input, index=i, error=error)  # the launcher checks
    if input.is_meta:
        return input.reshape(-1)[index]
    i = check_bounds(i, -n, n, error)
    return Take.apply(input, index=array_module(i).asarray(i))


@export()
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather`, with the other dimensions broadcast."""
    if indices._array.dtype != np.int64:
        raise RuntimeError(
            f"take_along_dim(): dtype of indices should be Long but got {indices.dtype}"
        )
    if dim is None:
        return take(input, indices.reshape(-1))
    if input._array.ndim != indices._array.ndim:
        raise RuntimeError(
            "take_along_dim(): input and indices should have the same number of dimensions, but "
            f"got {input._array.ndim} dimensions for input, and {indices._array.ndim} for indices"
        )
    place = normalize_dim(dim, input._array.ndim)
    others = broadcast_shape(
        *[(*x[:place], 1, *x[place + 1 :]) for x in (input._array.shape, indices._array.shape)]
    )
    n = input._array.shape[place]
    if on_gpu(indices._array):
        text = f"is out of bounds for dimension {place} with size {n}"
        found = check_bounds(indices._array, -n, n, lambda i: IndexError(f"index {i} {text}"))
        indices = wrap(found)
    else:
        indices = POINTWISE["where"](indices < 0, indices + n, indices)
    return gather(
        input.expand(*others[:place], -1, *others[place + 1 :]),
        place,
        indices.expand(*others[:place], -1, *others[place + 1 :]),
    )


@export()
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """input with the elements of source at flat positions; equal ones add up if `accumulate`."""
    check_tensors("put", index=index, source=source)
    at = index._array
    if at.dtype != np.int64:
        raise RuntimeError(
            f"put_(): Expected a long tensor for index, but got {index.dtype.legacy_name}"
        )
    if input._array.dtype != source._array.dtype:
        raise RuntimeError(
            "put_(): self and source expected to have the same dtype, but got self.dtype = "
            f"{input.dtype} and source.dtype = {source.dtype}"
        )
    if at.size != source._array.size:
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got "
            f"source.numel() = {source._array.size}, index.numel() = {at.size}"
        )
    n = input._array.size
    if at.size and not n:
        raise IndexError("put_(): cannot put elements into an empty tensor")
    text = f"is out of range for a tensor with {n} elements"
    at = check_bounds(at, -n, n, lambda wrong: IndexError(f"put_(): index {wrong} {text}"))
    flat = at.reshape(-1)
    return Put.apply(input, source.reshape(-1), index=flat, accumulate=bool(accumulate))


@export()
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """The count of each non-negative integer (or the sum of its weights)."""
    array = input._array
    if array.dtype.kind not in "iu":
        raise dtypes.refused("bincount_cpu", array.dtype)
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    w = None if weights is None else weights.detach()._array
    there = array.ndim == 1 and runs_on_gpu(array) and (w is None or w.shape == array.shape)
    least = there and read(dispatch.active.reduce("min", array), "item")
    if array.ndim != 1 or (array.size and (least if there else array.min()) < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if w is not None and w.shape != array.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    if there and w is not None:
        counts = _weights_on_gpu(array, w, minlength)
    else:
        counts = array_module(array).bincount(array, w, minlength)
    narrow = w is not None and w.dtype == np.float32
    return wrap(counts.astype(np.float32) if narrow else counts)


def _weights_on_gpu(array: Any, weights: Any, minlength: int) -> Any:
    """`numpy.bincount` with weights, of numbers that are not negative: additions by index."""
    most, dtype = read(dispatch.active.reduce("max", array), "item"), np.dtype(np.float64)
    sums = array_module(array).zeros(max(most + 1, minlength), dtype)
    return dispatch.active.scatter_add(sums, 0, array, weights.astype(dtype, copy=False))


@export()
def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """input with the slices of source reduced into those at index (a vector) along dim: by "prod",
    "mean", "amax" or "amin". Without include_self, slices that the index names start from nothing.
    """
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(
            "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got "
            f"{reduce}."
        )
    place = normalize_dim(dim, input._array.ndim)
    if index._array.ndim > 1:
        raise IndexError(
            f"index_reduce_(): Index is supposed to be 1-dimensional but got {index.ndim}D"
        )
    if index._array.dtype not in (np.int32, np.int64):
        raise IndexError("index_reduce_(): Expected dtype int32/int64 for index")
    if source._array.dtype != input._array.dtype:
        raise RuntimeError("index_reduce_(): self and source expected to have the same scalar type")
    rows = index._array.size
    if rows != (source._array.shape[place] if source._array.ndim else 1):
        raise RuntimeError(
            f"index_reduce_(): Number of indices ({rows}) should be equal to source.size(dim)"
        )
    ndim = source._array.ndim
    at = index.to(dtypes.int64).reshape([-1 if d == place else 1 for d in range(max(ndim, 1))])
    at = at.expand(source._array.shape) if ndim else at.reshape(())
    return scatter_reduce(input, dim, at, source, reduce, include_self=include_self)


@export()
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """input, whose slices along dim with a p-norm above maxnorm are scaled down to it."""
    if not p > 0:
        raise RuntimeError("renorm: non-positive norm not supported")
    if not maxnorm >= 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    ndim = input._array.ndim
    if ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {ndim} dimensions")
    if not input.is_complex():
        check_floating("renorm", input)
    place = normalize_dim(dim, ndim)
    norms = input.norm(p, [d for d in range(ndim) if d != place], keepdim=True)
    factor = POINTWISE["where"](norms > maxnorm, maxnorm / (norms + 1e-7), 1.0)
    return input * factor.to(input.dtype)


@export()
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """(values, indices) of the most frequent element along dim: the smallest of several, at its
    last place. NaN differ from each other and are greater than all else (torch's answer for them
    depends on their order)."""
    if input._array.dtype.kind == "c":
        raise dtypes.refused("mode_cpu", input._array.dtype)
    place = normalize_dim(dim, input._array.ndim)
    if not input._array.ndim:
        return _Mode(input.clone(), wrap(array_module(input._array).zeros((), np.int64)))
    n = input._array.shape[place]
    if not n:
        raise IndexError(f"mode(): Expected reduction dim {dim} to have non-zero size.")
    if input.is_meta:
        return _Mode(*input.kthvalue(1, place, keepdim))
    ordered, order = sort(input.detach(), place)
    xp = array_module(input._array)
    lead = xp.moveaxis(ordered._array, place, -1)
    begins = xp.ones(lead.shape, bool)  # of runs of equal elements
    begins[..., 1:] = lead[..., 1:] != lead[..., :-1]
    starts = wrap(xp.where(begins, xp.arange(n), 0)).cummax(-1).values._array
    last = (xp.arange(n) - starts).argmax(-1)[..., None]
    found = xp.take_along_axis(xp.moveaxis(order._array, place, -1), last, -1)
    at = wrap(xp.ascontiguousarray(xp.moveaxis(found, -1, place)))
    values = input.gather(place, at)
    return _Mode(*(t if keepdim else t.squeeze(place) for t in (values, at)))


@export(function=False)
def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Set the main diagonal to a number. A tall matrix: begin again after its end, if `wrap`; of
    more dimensions, which must be equal: the elements whose positions are all the same."""
    shape = self._array.shape
    if len(shape) < 2:
        raise RuntimeError("dimensions must larger than 1")
    if len(shape) > 2 and len(set(shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    self[_diagonal(self._array, wrap)] = dtypes.fitting(fill_value, self._array.dtype)
    return self


def _diagonal(array: Any, again: bool) -> tuple[Tensor, ...]:
    """Where the main diagonal is, along each dimension; `again`: and those that begin after it."""
    shape, columns = array.shape, max(array.shape[1], 1)
    count = min(shape)
    if again and len(shape) == 2 and shape[0] > columns:
        count = -(-array.size // (columns + 1))
    at = array_module(array).arange(count)
    if len(shape) > 2:
        return (wrap(at),) * len(shape)
    at = at * (columns + 1)
    return wrap(at // columns), wrap(at % columns)


@export()
def as_strided_scatter(
    input: Tensor,
    src: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:
    """A copy of input with src in the place of its `as_strided` view."""
    array = input._array
    offset = input.storage_offset() if storage_offset is None else storage_offset
    shape = input.as_strided(size, stride, offset).shape  # checks them
    if src._array.shape != shape:
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(shape)}"
        )
    at = elements_at(array, tuple(shape), stride, offset).reshape(-1)
    kept = array_module(array).asarray(at >= 0)
    at, src = array_module(array).asarray(at)[kept], src.reshape(-1)[wrap(kept)]
    return Put.apply(input, src, index=at, accumulate=False)


@export(method=False)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    """Sums, means, products or extrema of consecutive parts of a dimension, with gradients.

    Args:
        reduce: "sum", "mean", "prod", "max" or "min".
        lengths: how long each part is: (parts,) for axis 0, or (rows, parts) for axis 1, and so on.
        offsets: where each part begins, and where the last one ends, instead.
        unsafe: do not check the lengths.
        initial: what each reduction begins with.
    """
    check_floating("segment_reduce", data)
    axis = normalize_dim(axis, data.ndim)
    name = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    starts = {"sum": 0, "mean": 0, "prod": 1, "amax": -np.inf, "amin": np.inf}
    if name not in starts:
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        )
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    places, count = _parts(data.shape[axis], axis, lengths, offsets, unsafe)
    outer = data.shape[:axis]
    trailing = [1] * (data.ndim - axis - 1)
    index = places.reshape([*places.shape, *trailing]).expand(data.shape)
    first = starts[name] if initial is None else initial
    found = data.new_full((*outer, count.shape[-1] + 1, *data.shape[axis + 1 :]), first)
    extreme = name in ("amax", "amin")
    how = "sum" if name == "mean" else name
    found = found.scatter_reduce(axis, index, data, how, include_self=not extreme)
    found = found.narrow(axis, 0, count.shape[-1])
    if extreme and initial is not None:
        better = found < initial if name == "amax" else found > initial
        return found.masked_fill(better, initial)
    if name != "mean":
        return found
    count = count.reshape([*count.shape, *trailing])
    return found / (count if initial is None else count.clamp(min=1))


def _parts(
    n: int, axis: int, lengths: Tensor | None, offsets: Tensor | None, unsafe: bool
) -> tuple[Tensor, Tensor]:
    """Which part each of n positions belongs to (one more than there are: to none), and the
    lengths of the parts."""
    if offsets is None:
        if lengths is None:
            raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
        first = lengths.new_zeros((*lengths.shape[:-1], 1))
        offsets = functions.cat([first, lengths.cumsum(-1)], -1)
    else:
        lengths = offsets.diff()
    if axis != lengths.ndim - 1:
        raise RuntimeError(
            f"segment_reduce(): Expected axis to be the last dimension of lengths but got {axis}."
        )
    if not unsafe:
        if bool((lengths < 0).any()):
            raise RuntimeError("lengths contains negative value!")
        if bool((offsets[..., -1] != n).any()):
            raise RuntimeError(
                "segment_reduce(): Expected all rows of lengths along axis to sum to "
                "data.size(lengths.dim()-1) when !unsafe."
            )
    positions = functions.arange(n, device=lengths.device).expand(*lengths.shape[:-1], n)
    found = searchsorted(offsets.contiguous(), positions.contiguous(), right=True)
    return (found - 1) % offsets.shape[-1], lengths
