"""Sorting, top-k, k-th value, unique values.

On a GPU rows are sorted by the kernels of `kernels.sort`, on a CPU by NumPy, which is faster there.
The gradient of the values is that of `gather` at their positions.
"""

from __future__ import annotations

import math
from numbers import Number
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.launchers.sort import longest
from kernels.pointwise import Expr
from minigrad import dtypes
from minigrad._foreign import no_tensor
from minigrad._meta import MetaArray
from minigrad.autograd.mode import autocasts
from minigrad.autograd.mode import mode as grad_mode
from minigrad.autograd.node import Op, check_devices
from minigrad.backends import array_module, on_gpu
from minigrad.ops.bounds import check_bounds
from minigrad.ops.index import Pick
from minigrad.ops.masks import runs_on_gpu, without_repeats
from minigrad.ops.pointwise import POINTWISE, is_narrow
from minigrad.ops.reduce import values_and_indices
from minigrad.ops.shape import either
from minigrad.tensor import Tensor, check_flag, export, normalize_dim, wrap

_Sort, _TopK, _KthValue, _Median, _NanMedian = map(
    values_and_indices, ("sort", "topk", "kthvalue", "median", "nanmedian")
)


class Ranked(Op):
    """x.gather(dim, index), whose values have been computed with the index."""

    name = "Gather"
    saves = (1,)

    @staticmethod
    def forward(x: Any, index: Any, values: Any, dim: int) -> Any:
        return values

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        return (*Pick.vjp(ctx, g, dim), None)


def _ranked(
    x: Tensor, dim: int, descending: bool, start: int = 0, stop: int | None = None
) -> tuple[Tensor, Tensor]:
    """The elements at places start to stop of the order of x along dim, and their positions."""
    array = x._array
    if not array.size or not on_gpu(array) or array.dtype.kind == "c":
        indices = _order(x, dim, descending, stop)
        if start:
            indices = indices.narrow(dim, start, indices._array.shape[dim] - start).contiguous()
        return _picked(x, dim, indices), indices
    n, last = array.shape[dim], array.ndim - 1
    if dim != last or not array.flags.c_contiguous:
        array = x.detach().movedim(dim, last).contiguous()._array
    stop = n if stop is None else stop
    found = _ranked_rows(array.reshape(-1, n), descending, start, stop)
    shape = (*array.shape[:-1], stop - start)
    values, indices = (wrap(part.reshape(shape)) for part in found)
    if dim != last:
        values, indices = (part.movedim(last, dim).contiguous() for part in (values, indices))
    return Ranked.apply(x, indices, values, dim=dim), indices


def _ranked_rows(rows: Any, descending: bool, start: int, stop: int) -> tuple:
    """`_ranked` along the rows of a matrix on a GPU, in arrays."""
    count, n = rows.shape
    if n <= longest(rows.dtype):
        return dispatch.active.sort(rows, descending, start, stop)
    if stop <= _FEW:
        return _ranked_parts(rows, descending, start, stop)
    if count == 1:  # CuPy sorts a vector five times as fast as the rows of a matrix
        order = _order(wrap(rows.reshape(-1)), 0, descending).reshape(1, n)
    elif rows.dtype in (np.float32, np.int32):
        order = _order_by_rows(rows, descending)
    else:
        order = _order(wrap(rows), 1, descending)
    order = order.narrow(1, start, stop - start).contiguous()
    return _picked(wrap(rows), 1, order)._array, order._array


def _ranked_parts(rows: Any, descending: bool, start: int, stop: int) -> tuple:
    """`_ranked_rows` of long rows: by the first `stop` of each part of a row, and what is left
    behind the last part."""
    xp, (count, n) = array_module(rows), rows.shape
    parts = n // _ROW
    whole = parts * _ROW
    values, places = _ranked_rows(rows[:, :whole].reshape(-1, _ROW), descending, 0, stop)
    places = places.reshape(count, parts, stop) + xp.arange(0, whole, _ROW).reshape(parts, 1)
    rest = xp.broadcast_to(xp.arange(whole, n), (count, n - whole))
    values = xp.concatenate([values.reshape(count, -1), rows[:, whole:]], 1)
    places = xp.concatenate([places.reshape(count, -1), rest], 1)
    values, order = _ranked_rows(values, descending, start, stop)
    return values, xp.take_along_axis(places, order, 1)


_ROW = 4096  # elements of a part, which a block of a GPU sorts
_FEW = _ROW // 4  # of which so many are taken at most: that leaves a quarter


def _order_by_rows(array: Any, descending: bool) -> Tensor:
    """`_order` along the rows of a matrix of 32 bits on a GPU: a vector of integers, the number of
    the row above and the element below, which is sorted in one pass."""
    xp, (count, n) = array_module(array), array.shape
    keys = array
    if array.dtype == np.float32:
        bits = (array + np.float32(0)).view(np.int32)  # -0 counts as 0
        keys = xp.where(array != array, np.int32(0x7FFFFFFF), bits ^ ((bits >> 31) & 0x7FFFFFFF))
    rows = xp.arange(count).reshape(count, 1)
    packed = (rows << 32) + (~keys if descending else keys)
    order = xp.argsort(packed.reshape(-1), kind="stable").reshape(count, n)
    return wrap(order - rows * n)


def _order(x: Tensor, dim: int, descending: bool, count: int | None = None) -> Tensor:
    """Positions that sort x along dim, or the first `count` of them; equal values keep their order,
    NaN counts as largest."""
    array = x._array
    if type(array) is MetaArray:
        shape, n = array.shape, array.shape[dim] if count is None else count
        return wrap(MetaArray((*shape[:dim], n, *shape[dim + 1 :]), np.int64))
    whole = (slice(None),) * dim
    packs = _packs(array)
    near = _near(array) if array.shape[dim] > (_LONG_PACKED if packs else _LONG) else None
    if near is not None:
        keys = near.max() - near if descending else near
        found = keys.argsort(dim, "stable")
        return wrap(found if count is None else found[(*whole, slice(count))].copy())
    if packs:
        found = _positions(np.sort(_packed(array, dim, descending), dim))
        return wrap(found if count is None else found[(*whole, slice(count))].copy())
    if descending:
        array = array[(*whole, _BACKWARDS)]
    xp = array_module(array)
    array = _by_bits(array)
    found = array.argsort(dim, "stable") if xp is np else xp.argsort(array, axis=dim, kind="stable")
    if descending:
        end = None if count is None else -count - 1
        found = array.shape[dim] - 1 - found[(*whole, slice(None, end, -1))].copy()
    elif count is not None:
        found = found[(*whole, slice(count))]
    return wrap(found if found.flags.c_contiguous else xp.ascontiguousarray(found))


# What CuPy sorts by its bits: NaN with a sign would be the least, and -0 less than 0.
_BY_BITS = Expr("by_bits", ("x",), "where(isnan(x), nan, x + 0)", params=("nan",))


def _by_bits(array: Any) -> Any:
    """The array, on a GPU with zeros and NaN that have no sign."""
    if type(array) is np.ndarray or array.dtype.kind != "f" or not array.size:
        return array
    return dispatch.active.pointwise(_BY_BITS, array, params=(math.nan,))


def _near(array: Any) -> np.ndarray | None:
    """Many integers as their distance from the least one, if 16 bits hold it: NumPy sorts such
    numbers digit by digit, and tables take them as indices. None for others."""
    if type(array) is not np.ndarray or array.dtype.kind not in "iu" or array.size <= _MANY:
        return None
    least = array.min()
    if int(array.max()) - int(least) >= 1 << 16:
        return None
    unsigned = np.dtype(f"u{array.dtype.itemsize}")  # differences of which do not wrap
    return (array.view(unsigned) - least.view(unsigned)).astype(np.uint16)


_BACKWARDS = slice(None, None, -1)
_MANY = 1000  # elements; fewer take longer to pack than to sort
_LONG, _LONG_PACKED = 32, 256  # integers in a row; fewer take longer to count than to compare


def _packs(array: Any) -> bool:
    """Whether NumPy sorts many values of 32 bits, which it does faster with their positions beside
    them in one integer than by `argsort`."""
    many = type(array) is np.ndarray and array.size > _MANY
    return many and array.dtype in (np.float32, np.int32)


def _packed(array: np.ndarray, dim: int, descending: bool) -> np.ndarray:
    """int64 numbers in the order of the values, then of their positions: the value as an integer
    above, the position below."""
    packed = _keys(array, descending)
    packed |= np.arange(array.shape[dim]).reshape(
        [-1 if d == dim else 1 for d in range(array.ndim)]
    )
    return packed


def _keys(array: np.ndarray, descending: bool) -> np.ndarray:
    """int64 numbers in the order of the values, whose lower 32 bits are 0."""
    keys = array
    if array.dtype == np.float32:
        keys = (array + np.float32(0)).view(np.int32)  # -0 counts as 0
        keys ^= (keys >> 31) & 0x7FFFFFFF
        absent = array != array
        if absent.any():
            keys[absent] = np.iinfo(np.int32).max
    packed = (~keys if descending else keys).astype(np.int64)
    packed <<= 32
    return packed


def _positions(packed: np.ndarray) -> np.ndarray:
    return packed & 0xFFFFFFFF


@export()
def sort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = True,
) -> Any:
    """(values, indices) in order along `dim`."""
    check_flag("sort", "descending", descending)
    dtypes.refuse_complex("Sort does not support complex dtypes", input._array.dtype)
    place = normalize_dim(dim, input._array.ndim)
    if not input._array.ndim:
        return _Sort(input.clone(), wrap(np.zeros((), np.int64)))
    return _Sort(*_ranked(input, place, descending))


def _picked(x: Tensor, dim: int, indices: Tensor) -> Tensor:
    """`x.gather(dim, indices)` at positions that `_order` has found."""
    return Pick.apply(x, indices, dim=dim) if indices._array.size else x.gather(dim, indices)


@export()
def argsort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = True,
) -> Tensor:
    """The positions that sort `input` along `dim`."""
    array = input._array
    if array.ndim == 1 and on_gpu(array) and array.size > longest(array.dtype):
        return _order(input.detach(), normalize_dim(dim, 1), descending)
    return sort(input.detach(), dim, descending).indices


@export()
def topk(
    input: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> Any:
    """(values, indices) of the k largest (or smallest) along `dim`."""
    check_flag("topk", "largest", largest)
    dtypes.refuse_complex("topk does not support complex dtypes", input._array.dtype)
    place = normalize_dim(dim, input._array.ndim)
    n = input._array.shape[place] if input._array.ndim else 1
    if not 0 <= k <= n:
        raise RuntimeError("selected index k out of range")
    if input._array.dtype.kind == "b":
        raise RuntimeError("topk does not support bool dtypes on CPU")
    if not input._array.ndim:
        return _TopK(*sort(input, place, largest))
    if (0 < k < n // 4 or (k == 1 and largest)) and not on_gpu(input._array):
        indices = _extreme(input, k, place, largest)
        return _TopK(_picked(input, place, indices), indices)
    return _TopK(*_ranked(input, place, largest, 0, k))


def _extreme(x: Tensor, k: int, dim: int, largest: bool) -> Tensor:
    """Positions of the first k that `_order` has, without those of the others; which of the values
    equal to the last one count is open."""
    array, xp = x._array, array_module(x._array)
    if type(array) is MetaArray:
        return _order(x, dim, largest, k)
    n = array.shape[dim]
    if k == 1 and largest:
        return wrap(dispatch.active.reduce("argmax", array, dim, True))
    packs = _packs(array)
    few = array.size <= 8 * _MANY if packs else n <= 2 * _SHORT and array.size <= _MANY
    if few or (packs and n <= _SHORT):
        return _order(x, dim, largest, k)  # a sort takes less time than a search
    if packs:
        rows = x.detach().movedim(dim, -1).contiguous()
        order = wrap(_first_places(rows._array, k, largest))
        return order.movedim(-1, dim).contiguous()
    part = xp.argpartition(array, n - k if largest else k - 1, axis=dim)
    found = wrap(part).narrow(dim, n - k if largest else 0, k)
    found = wrap(xp.sort(found._array, axis=dim))  # equal values keep their order
    return _picked(found, dim, _order(_picked(x.detach(), dim, found), dim, largest))


_SHORT = 256  # elements of a row


def _first_places(rows: np.ndarray, k: int, largest: bool) -> np.ndarray:
    """`_extreme` along the last dimension of a contiguous array of 32-bit elements: the positions,
    in order, of those that are not behind the k-th of the best ones of parts of a row."""
    *lead, n = rows.shape
    rows = rows.reshape(-1, n)
    parts = 4 * k if n >= 8 * k else n
    best, size = rows, n // parts
    if size > 1:
        columns = rows[:, : parts * size].reshape(-1, size, parts)
        best = dispatch.active.reduce("max" if largest else "min", columns, 1)
    place = parts - k if largest else k - 1
    limit = np.partition(best, place)[:, place, None]
    found = np.flatnonzero(~(rows < limit if largest else rows > limit))  # NaN, the largest, too
    counts = np.bincount(found // n, minlength=len(rows))
    most = int(counts.max())
    if most > n // 2:  # many that are equal
        return _positions(np.sort(_packed(rows, 1, largest), 1)[:, :k]).reshape(*lead, k)
    packed = np.full((len(rows), most), np.iinfo(np.int64).max)
    packed[np.arange(most) < counts[:, None]] = _keys(rows.ravel()[found], largest) | found % n
    return _positions(np.sort(packed, 1)[:, :k]).reshape(*lead, k)


def _kth(x: Tensor, k: int, dim: int) -> tuple[Tensor, Tensor]:
    """The k-th smallest, from 1, and its position: a dimension of length 1."""
    if not _packs(x._array):
        return _ranked(x, dim, False, k - 1, k)
    part = np.partition(_packed(x._array, dim, False), k - 1, axis=dim)
    indices = wrap(_positions(part.take([k - 1], dim)))
    return _picked(x, dim, indices), indices


@export()
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """(value, index) of the k-th smallest (from 1) along `dim`."""
    check_flag("kthvalue", "keepdim", keepdim)
    if input._array.dtype.kind in "bc" and input._array.ndim:
        raise dtypes.refused("kthvalue_cpu", input._array.dtype)
    place = normalize_dim(dim, input._array.ndim)
    n = input._array.shape[place] if input._array.ndim else 1
    if not n:
        raise IndexError(f"kthvalue(): Expected reduction dim {place} to have non-zero size.")
    if not 1 <= k <= n:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {dim}")
    if not input._array.ndim:
        return _KthValue(input.clone(), wrap(np.zeros((), np.int64)))
    values, indices = _kth(input, k, place)
    if keepdim:
        return _KthValue(values, indices)
    return _KthValue(values.squeeze(place), indices.squeeze(place))


@export()
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median: a tensor, or with `dim` (values, indices)."""
    check_flag("median", "keepdim", keepdim)
    if input._array.dtype.kind in "bc":
        raise dtypes.refused("median_cpu", input._array.dtype)
    if dim is None:
        return _median_of_all(input.reshape(-1))
    place = normalize_dim(dim, input._array.ndim)
    if not input._array.ndim:
        return _Median(*input.kthvalue(1, 0, keepdim))
    count = input._array.shape[place]
    middle = _Median(*input.kthvalue((count + 1) // 2, place, keepdim))
    if not input.is_floating_point() or input.is_meta:
        return middle
    absent = POINTWISE["isnan"](input.detach())
    if not bool(absent.any()):
        return middle
    first = absent.to(dtypes.uint8).argmax(place, keepdim=True)  # in a row with NaN, its position
    indices = middle.indices if keepdim else middle.indices.unsqueeze(place)
    indices = POINTWISE["where"](absent.any(place, keepdim=True), first, indices)
    values = input.gather(place, indices)
    if keepdim:
        return _Median(values, indices)
    return _Median(values.squeeze(place), indices.squeeze(place))


def _median_of_all(x: Tensor) -> Tensor:
    """The median; NaN if there is a NaN or no element. Equal elements share the gradient."""
    values, array = x.detach(), x._array
    recorded = grad_mode.recorder is not None or (grad_mode.enabled and x.requires_grad)
    if type(array) is np.ndarray and array.size and not recorded and not is_narrow(array):
        middle = (array.size - 1) // 2
        found = np.partition(array, (middle, -1))  # NaN comes last
        return wrap(np.asarray(found[middle if found[-1] == found[-1] else -1]))
    if not values.numel() and not x.is_floating_point():
        return x.sum(dtype=x.dtype)  # 0, where torch has it from memory
    if x.is_meta:
        return x.kthvalue(1, 0).values
    if not values.numel():
        return x.sum() * float("nan")
    absent = POINTWISE["isnan"](values)
    if bool(absent.any()):
        return x.masked_select(absent).amax()
    middle = values.kthvalue((values.numel() + 1) // 2).values
    return x.masked_select(POINTWISE["eq"](values, middle)).amax()


@export()
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of the elements that are not NaN: a tensor, or with `dim` (values,
    indices)."""
    dtypes.refuse_complex("nanmedian does not support complex inputs", input._array.dtype)
    if input._array.dtype.kind == "b":
        raise dtypes.refused("median_cpu", input._array.dtype)
    if dim is None and input.is_meta:
        return _median_of_all(input.reshape(-1))
    if dim is None:
        absent = POINTWISE["isnan"](input.detach())
        kept = input.masked_select(~absent)
        return _median_of_all(kept if kept.numel() else input.reshape(-1))
    place = normalize_dim(dim, input._array.ndim)
    if not input._array.ndim or not input._array.shape[place]:  # which `kthvalue` refuses
        return _NanMedian(*input.kthvalue(1, place, keepdim))
    absent = POINTWISE["isnan"](input.detach())
    order = _ranked(input.detach(), place, False)[1]  # NaN last
    count = (~absent).sum(place, keepdim=True)
    indices = order.gather(place, ((count - 1) // 2).clamp(min=0))
    values = input.gather(place, indices)
    if keepdim:
        return _NanMedian(values, indices)
    return _NanMedian(values.squeeze(place), indices.squeeze(place))


_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile(
    name: str, input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str
) -> Tensor:
    if not input._array.size:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if not isinstance(q, Tensor):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        q = wrap(array_module(input._array).asarray(q, input._array.dtype))
    elif not ((q._array >= 0) & (q._array <= 1)).all():
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    if q._array.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if not input.is_floating_point() or input.dtype.itemsize == 2:
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if q._array.dtype != input._array.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, "
            f"but got {interpolation}"
        )
    place = normalize_dim(0 if dim is None else dim, 1 if dim is None else input._array.ndim)
    x = input.reshape(-1) if dim is None else input.movedim(place, -1) if input.ndim else input
    x = x if x._array.ndim else x.reshape(1)
    result = _interpolated(name, sort(x).values, q.reshape(-1), interpolation).movedim(-1, 0)
    if keepdim:
        lengths = [1] * input._array.ndim
        if dim is not None:
            lengths = [1 if d == place else n for d, n in enumerate(input._array.shape)]
        result = result.reshape(-1, *lengths)
    return result if q._array.ndim else result.squeeze(0)


def _interpolated(name: str, ordered: Tensor, q: Tensor, interpolation: str) -> Tensor:
    """Quantiles q (k,) of rows (..., n) in order: (..., k). A row with NaN gives NaN, or with
    nanquantile leaves it out."""
    last, lost = ordered._array.shape[-1] - 1, None
    if name == "nanquantile":
        absent = POINTWISE["isnan"](ordered.detach())
        places = q * ((~absent).sum(-1, keepdim=True) - 1).clamp(min=0).to(q.dtype)
    else:
        lost = POINTWISE["isnan"](ordered.detach().narrow(-1, last, 1))  # the largest
        places = q * last + lost.to(q.dtype) * 0

    def found(places: Tensor) -> Tensor:
        values = ordered.gather(-1, places.long())
        return values if lost is None else POINTWISE["where"](lost, float("nan"), values)

    if interpolation in ("lower", "higher", "nearest"):
        rounding = {"lower": "floor", "higher": "ceil", "nearest": "round"}[interpolation]
        return found(POINTWISE[rounding](places))
    low = POINTWISE["floor"](places)
    below, above = found(low), found(POINTWISE["ceil"](places))
    share = 0.5 if interpolation == "midpoint" else places - low
    return POINTWISE["lerp"](below, above, share)


@export()
@autocasts
def quantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The q-th quantiles (q in [0, 1], a number or a vector, which becomes the first dimension)
    along `dim`, or of all elements."""
    return _quantile("quantile", input, q, dim, keepdim, interpolation)


@export()
@autocasts
def nanquantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """`quantile` of the elements that are not NaN."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation)


@export()
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
    *,
    axis: int | None = None,
) -> Any:
    """The distinct values in order; optionally the index of each element in them, and their
    counts."""
    array = input.detach()._array
    if array.dtype.kind == "c":
        raise dtypes.refused("unique", array.dtype)
    dim = axis if dim is None else dim
    if dim is not None:
        dim = _of_unique(array.shape, dim)
    near = _near(array) if dim is None else None
    if near is not None:
        asked = True, return_inverse, return_counts
        counted = zip(_distinct(array.min(), near), asked, strict=True)
        given = [wrap(part) for part, wanted in counted if wanted]
        return tuple(given) if len(given) > 1 else given[0]
    if dim is None and not (return_inverse or return_counts) and runs_on_gpu(array):
        values = _by_bits(array)
        values = input.detach().clone()._array if values is array else values
        values = values.reshape(-1)  # contiguous, and nobody else's
        values.sort()
        return wrap(without_repeats(values))
    # NumPy sorts halves with NaN wrong on some processors
    wide = np.float32 if array.dtype == np.float16 else array.dtype
    found = array_module(array).unique(
        _by_bits(array.astype(wide, copy=False)),
        return_inverse=return_inverse,
        return_counts=return_counts,
        axis=dim,
        equal_nan=False,
    )
    if not (return_inverse or return_counts):
        return wrap(found.astype(array.dtype, copy=False))
    parts = [wrap(found[0].astype(array.dtype, copy=False)), *map(wrap, found[1:])]
    if return_inverse and dim is None:
        parts[1] = parts[1].reshape(array.shape)
    return tuple(parts)


def _of_unique(shape: tuple, dim: int) -> int:
    """The dimension along which `unique` compares slices, which must have elements."""
    if not shape:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    place = normalize_dim(dim, len(shape))
    if 0 in shape[:place] + shape[place + 1 :]:
        raise RuntimeError(
            "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
        )
    return place


def _distinct(least: Any, near: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of `least` + `near`: the distinct numbers, the index of each element in them, counts."""
    counts = np.bincount(near.ravel())
    found = np.flatnonzero(counts)
    places = np.zeros(counts.size, np.int64)
    places[found] = np.arange(found.size)
    return found.astype(least.dtype) + least, places[near], counts[found]


def _wrong_place(place: int) -> Exception:
    return RuntimeError(f"searchsorted(): sorter index out of range: {place}")


@export(method=False)
def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """The positions (int64) at which `input` would be inserted into an ascending vector, or, row by
    row, into the last dimension of a tensor.

    right, or side="right": after equal elements. sorter: positions that sort the sequence.
    """
    if side not in (None, "left", "right"):
        raise RuntimeError(f"side can only be 'left' or 'right' but got {side}")
    if right and side == "left":
        raise RuntimeError(
            "side and right can't be set to opposites, got side of left while right was True"
        )
    order, xp = sorted_sequence._array, array_module(sorted_sequence._array)
    if isinstance(input, Tensor) and input.device != sorted_sequence.device:
        check_devices((sorted_sequence, input))
    if not isinstance(input, Tensor | Number | np.ndarray):
        raise no_tensor("searchsorted", "input", input)
    wanted = xp.asarray(input._array if isinstance(input, Tensor) else input)
    if not isinstance(input, Tensor) and order.ndim != 1:
        raise RuntimeError("searchsorted(): a number needs a vector as the sorted sequence")
    if order.ndim != 1 and (not order.ndim or order.shape[:-1] != wanted.shape[:-1]):
        raise RuntimeError(
            "searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions "
            f"of boundaries tensor and input value tensor must match, but we got boundaries tensor "
            f"{list(order.shape)} and input value tensor {list(wanted.shape)}"
        )
    if sorter is not None:
        if sorter._array.dtype != np.int64:
            raise RuntimeError(
                f"searchsorted(): sorter must be a tensor of long dtype, got {sorter.dtype}"
            )
        if sorter._array.shape != order.shape:
            raise RuntimeError(
                "searchsorted(): boundary and sorter must have the same size, but got boundary "
                f"tensor {list(order.shape)} and got sorter tensor {list(sorter.shape)}"
            )
        places = check_bounds(sorter._array, 0, order.shape[-1], _wrong_place)
        order = xp.take_along_axis(order, places, -1)
    common = dtypes.promote(order.dtype, wanted.dtype)
    if common.kind in "bc" and wanted.size:
        raise dtypes.refused("searchsorted_out_cpu", common)
    if type(wanted) is MetaArray:
        return wrap(MetaArray(wanted.shape, np.int32 if out_int32 else np.int64))
    where = "right" if right or side == "right" else "left"
    if not wanted.size:
        found = xp.empty(wanted.shape, np.int64)
    elif order.ndim == 1 and not (on_gpu(order) and order.size):
        found = xp.asarray(xp.searchsorted(order, wanted, where))
    else:
        common = np.promote_types(order.dtype, wanted.dtype)
        order, values = (a if a.dtype == common else a.astype(common) for a in (order, wanted))
        rows = math.prod(order.shape[:-1])
        order, values = order.reshape(rows, order.shape[-1]), values.reshape(rows, -1)
        found = dispatch.active.searchsorted(order, values, where == "right")
        found = found.reshape(wanted.shape)
    return wrap(found.astype(np.int32) if out_int32 else found)  # int64


@export(method=False)
def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The number of the interval between ascending boundaries that holds each element."""
    if boundaries._array.ndim != 1:
        raise RuntimeError(
            f"boundaries tensor must be 1 dimension, but got dim({boundaries._array.ndim})"
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


@export(method=False)
def isin(
    elements: Any = None,
    test_elements: Any = None,
    *,
    assume_unique: bool = False,
    invert: bool = False,
    element: Any = None,
    test_element: Any = None,
) -> Tensor:
    """Whether each element is among the test elements; one of both may be a number.

    element, test_element: the names of a number in place of a tensor.
    """
    elements = either("isin", elements, element)
    test_elements = either("isin", test_elements, test_element)
    given = next(x for x in (elements, test_elements) if isinstance(x, Tensor))
    for x in (elements, test_elements):
        if isinstance(x, Tensor) and x._array.dtype.kind in "bc":
            name = x.dtype.legacy_name.removesuffix("Tensor")
            raise RuntimeError(f"Unsupported input type encountered for isin(): {name}")
    xp = array_module(given._array)
    dtype = POINTWISE["eq"].compute_dtype((elements, test_elements))
    arrays = [x._array if isinstance(x, Tensor) else x for x in (elements, test_elements)]
    arrays = [xp.asarray(x, dtype) for x in arrays]
    found = xp.isin(*arrays, assume_unique=assume_unique, invert=invert)
    return wrap(xp.asarray(found))
