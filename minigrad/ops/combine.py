"""Operations that join tensors or rearrange elements, with a copy."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.launchers.layout import borders
from minigrad import dtypes
from minigrad._names import kind
from minigrad.autograd.mode import autocasts, mode
from minigrad.autograd.node import Op
from minigrad.backends import array_module, on_gpu
from minigrad.ops.inplace import inplace
from minigrad.ops.pointwise import POINTWISE, broadcast_shape
from minigrad.ops.shape import either, expand, sizes
from minigrad.ops.views import Cat, Diagonal, Stack, ZerosExceptView, expand_array, unshared
from minigrad.tensor import Tensor, as_int, export, normalize_dim, wrap


class Flip(Op):
    """Reversed along axes."""

    repeats = True
    saves = ()

    @staticmethod
    def forward(x: Any, axes: tuple) -> Any:
        if x.dtype.kind == "c":
            return array_module(x).flip(x, axes).copy()
        return dispatch.active.copy(array_module(x).flip(x, axes))

    @staticmethod
    def vjp(ctx: Any, g: Tensor, axes: tuple) -> tuple:
        return (Flip.apply(g, axes=axes),)


class Roll(Op):
    """x with the first elements along some dimensions moved behind the others; cuts are (dim, how
    many, or minus how many are moved from the end to the front)."""

    repeats = True
    saves = ()

    @staticmethod
    def forward(x: Any, cuts: tuple) -> Any:
        for dim, cut in cuts:
            lead = (slice(None),) * dim
            x = Cat.forward(x[(*lead, slice(cut, None))], x[(*lead, slice(cut))], dim=dim)
        return x

    @staticmethod
    def vjp(ctx: Any, g: Tensor, cuts: tuple) -> tuple:
        return (Roll.apply(g, cuts=tuple([(dim, -cut) for dim, cut in cuts])),)


class Repeat(Op):
    """x in the shape `spaced`, with ones, expanded to `wide`, and as a copy in the shape
    `result`."""

    saves = ()
    repeats = True

    @staticmethod
    def forward(x: Any, spaced: tuple, wide: tuple, result: tuple) -> Any:
        expanded = expand_array(x.reshape(spaced), wide)
        if x.dtype.kind == "c":
            return expanded.copy().reshape(result)
        return dispatch.active.copy(expanded).reshape(result)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, spaced: tuple, wide: tuple, result: tuple) -> tuple:
        axes = tuple([d for d, (n, m) in enumerate(zip(spaced, wide)) if n != m])
        shape = ctx.shapes[0]
        if mode.enabled or not axes or g._array.dtype.kind == "c":
            parts = g.reshape(wide)
            return ((parts.sum(axes) if axes else parts).reshape(shape),)
        return (wrap(dispatch.active.reduce("sum", g._array.reshape(wide), axes).reshape(shape)),)


class PadConstant(Op):
    """x with a value around it; pads are (before, after) per dimension and may be negative
    (crop)."""

    saves = ()
    grad_name = "ConstantPadNdBackward0"

    @staticmethod
    def again(x: Any, pads: tuple, value: float) -> Any:
        if x.dtype.kind == "c":
            return None
        launches = _padded(pads, value, math.copysign(1, value))
        return dispatch.relaunch(dispatch.tracer, dispatch.active, launches, x)

    @staticmethod
    def forward(x: Any, pads: tuple, value: float) -> Any:
        if x.dtype.kind != "c":
            return dispatch.together(_padded(pads, value, math.copysign(1, value)), x)
        shape = tuple([n + a + b for n, (a, b) in zip(x.shape, pads, strict=True)])
        xp = array_module(x)
        out = xp.full(shape, value, x.dtype)
        inside = tuple(
            [slice(max(a, 0), n - max(b, 0)) for n, (a, b) in zip(shape, pads, strict=True)]
        )
        source = tuple(
            [slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, pads, strict=True)]
        )
        out[inside] = x[source]
        return out

    @staticmethod
    def vjp(ctx: Any, g: Tensor, pads: tuple, value: float) -> tuple:
        return (PadConstant.apply(g, pads=tuple([(-a, -b) for a, b in pads]), value=0.0),)


@functools.lru_cache(4096)
def _padded(pads: tuple, value: float, sign: float) -> Callable:
    """The padding of an array with a number, as remembered launches know it. sign: of the number,
    for 0.0 and -0.0 are equal, but not the same padding."""
    return lambda x: dispatch.active.pad(x, pads, "constant", value)


class PadByItself(Op):
    """x with elements of its own around it; pads are (before, after) per dimension, at least 0.

    mode: "reflect" about the first and the last element, "replicate" those, or "circular".
    """

    repeats = True
    saves = ()

    @staticmethod
    def forward(x: Any, pads: tuple, mode: str) -> Any:
        if x.dtype.kind == "c":
            return _of_parts(PadByItself.forward, x, pads, mode)
        return dispatch.active.pad(x, pads, mode)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, pads: tuple, mode: str) -> tuple:
        return (AddBorders.apply(g, pads=pads, mode=mode),)


class AddBorders(Op):
    """g without its border, whose elements are added where `PadByItself` took them from."""

    saves = ()

    @staticmethod
    def forward(g: Any, pads: tuple, mode: str) -> Any:
        if g.dtype.kind == "c":
            return _of_parts(AddBorders.forward, g, pads, mode)
        sizes = [n - a - b for n, (a, b) in zip(g.shape, pads, strict=True)]
        total = dispatch.active.copy(g)
        for border, source in reversed(borders(sizes, pads, mode)):
            part = total[border]
            if mode == "replicate":
                part = part.sum(axis=len(border) - 1, keepdims=True)
            total[source] += part
        inside = [slice(a, a + n) for n, (a, _) in zip(sizes, pads, strict=True)]
        return dispatch.active.copy(total[tuple(inside)])

    @staticmethod
    def vjp(ctx: Any, g: Tensor, pads: tuple, mode: str) -> tuple:
        return (PadByItself.apply(g, pads=pads, mode=mode),)


def _of_parts(forward: Callable, x: Any, pads: tuple, mode: str) -> Any:
    """`forward` of complex numbers: of their parts, along one more dimension."""
    parts = array_module(x).ascontiguousarray(x)[..., None].view(x.real.dtype)
    return forward(parts, (*pads, (0, 0)), mode).view(x.dtype)[..., 0]


class Triangle(Op):
    """The lower (j - i <= diagonal) or upper triangle of the last two dimensions."""

    saves = ()

    @staticmethod
    def again(x: Any, diagonal: int, lower: bool) -> Any:
        if type(x) is not np.ndarray or x.size > _SMALL or type(diagonal) is not int:
            return None
        kept = _small_triangle(x.shape[-2], x.shape[-1], diagonal, lower)
        return dispatch.relaunch(dispatch.tracer, dispatch.active, _WHERE, kept, x, 0)

    @staticmethod
    def forward(x: Any, diagonal: int, lower: bool) -> Any:
        if on_gpu(x) and x.dtype.kind != "c":
            return dispatch.active.triangle(x, int(diagonal), lower)
        xp = array_module(x)
        kept = _inside(xp, x.shape[-2], x.shape[-1], diagonal, lower)
        if x.dtype.kind == "c":
            return xp.where(kept, x, 0).astype(x.dtype, copy=False)
        return dispatch.active.pointwise(_WHERE, kept, x, 0, dtype=x.dtype)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, diagonal: int, lower: bool) -> tuple:
        return (Triangle.apply(g, diagonal=diagonal, lower=lower),)


_WHERE = POINTWISE["where"].expr
_SMALL = 1 << 16  # elements of matrices whose triangles are kept


def _inside(xp: Any, rows: int, columns: int, diagonal: int, lower: bool) -> Any:
    """Whether an element of a matrix is in its triangle."""
    mask = xp.tri(rows, columns, diagonal if lower else diagonal - 1, dtype=bool)
    return mask if lower else ~mask


_small_triangle = functools.lru_cache(functools.partial(_inside, np))


@export("concat", "concatenate", method=False)
def cat(tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Tensors one after the other along `dim`."""
    tensors = listed("cat", tensors)
    dim = dim if axis is None else axis
    if not tensors:
        raise ValueError("minigrad.cat(): expected a non-empty list of Tensors")
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {kind(x)}")
    first = tensors[0]
    if first._array.shape == (0,):
        first = next((x for x in tensors if x._array.shape != (0,)), first)
    return Cat.apply(*_of_one_dtype(tensors), dim=normalize_dim(dim, first._array.ndim))


def listed(name: str, tensors: Any) -> list[Tensor]:
    """A list or tuple of tensors as a list. TypeError for others, such as a single tensor, whose
    rows it would be."""
    if not isinstance(tensors, list | tuple):
        raise TypeError(
            f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not "
            f"{kind(tensors).rpartition('.')[2]}"
        )
    return list(tensors)


def _of_one_dtype(tensors: list[Tensor]) -> list[Tensor]:
    first = common = tensors[0]._array.dtype
    others = [x._array.dtype for x in tensors if x._array.dtype is not first]
    if not others:
        return tensors
    for dtype in others:
        common = dtypes.promote(common, dtype)
    return [x if x._array.dtype == common else x.to(common) for x in tensors]


@export(method=False)
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape along a new dimension."""
    tensors = listed("stack", tensors)
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    place = normalize_dim(dim, tensors[0]._array.ndim + 1)
    return Stack.apply(*_of_one_dtype(tensors), dim=place)


@export(method=False)
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Side by side (along dimension 1; vectors along 0)."""
    tensors = listed("hstack", tensors)
    if not tensors:
        raise RuntimeError("hstack expects a non-empty TensorList")
    tensors = [x.reshape(1) if x._array.ndim == 0 else x for x in tensors]
    return cat(tensors, 0 if tensors[0]._array.ndim == 1 else 1)


@export("row_stack", method=False)
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """On top of each other, as rows."""
    tensors = listed("vstack", tensors)
    if not tensors:
        raise RuntimeError("vstack expects a non-empty TensorList")
    return cat([x.reshape(1, -1) if x._array.ndim < 2 else x for x in tensors], 0)


@export()
def flip(input: Tensor, *axes: Any, dims: Any = None) -> Tensor:
    """Reversed along the dimensions given."""
    given = sizes(axes, dims)
    if not axes and dims is None:
        raise TypeError('flip() missing 1 required positional arguments: "dims"')
    places = tuple([normalize_dim(d, input._array.ndim) for d in given])
    for place in places:
        if places.count(place) > 1:
            raise RuntimeError(f"dim {place} appears multiple times in the list of dims")
    if not input._array.ndim:
        return input.clone()
    return Flip.apply(input, axes=places)


@export()
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Elements shifted by `shifts`; those that leave at the end re-enter at the start."""
    shifts = tuple(shifts) if isinstance(shifts, Sequence) else (shifts,)
    if not shifts:
        raise RuntimeError("`shifts` required")
    if dims is None and len(shifts) == 1:
        return unshared(roll(input.reshape(-1), shifts, 0).reshape(input._array.shape))
    places = () if dims is None else tuple(dims) if isinstance(dims, Sequence) else (dims,)
    if len(shifts) != len(places):
        raise RuntimeError(
            f"shifts and dimensions must align. shifts: {len(shifts)}, dims: {len(places)}"
        )
    if not input._array.ndim:
        raise IndexError(f"Dimension specified as {places[0]} but tensor has no dimensions")
    cuts = []
    for shift, dim in zip(shifts, places, strict=True):
        place = normalize_dim(dim, input._array.ndim)
        n = input._array.shape[place]
        cuts.append((place, -shift if -n < shift < n else -(shift % max(n, 1))))
    return Roll.apply(input, cuts=tuple(cuts))


@export(function=False)
def repeat(self: Tensor, *times: Any, repeats: Any = None) -> Tensor:
    """The tensor tiled: times[i] times along dimension i."""
    counts = sizes(times, repeats)
    shape = self._array.shape
    extra = len(counts) - len(shape)
    if extra < 0:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            "tensor"
        )
    full = (1,) * extra + shape
    spaced = tuple([n for m in full for n in (1, m)])
    wide = tuple([n for c, m in zip(counts, full, strict=True) for n in (c, m)])
    return _repeated(self, spaced, wide, tuple([c * m for c, m in zip(counts, full)]))


def _repeated(x: Tensor, spaced: tuple, wide: tuple, result: tuple) -> Tensor:
    """x in the shape `spaced`, expanded to `wide`, and as a copy in the shape `result`."""
    if min(wide, default=0) < 0 or mode.observer is not None:  # which tells how it is done
        return of_its_own(expand(x.reshape(spaced), wide).reshape(result), x)
    return Repeat.apply(x, spaced=spaced, wide=wide, result=result)


def of_its_own(found: Tensor, source: Tensor) -> Tensor:
    """A result with memory of its own: reshaping may have left a view, also of an expanded one, or
    a view of a copy that nothing else knows."""
    if found is source:
        return found.clone()
    if found._view is not None:
        if array_module(found._array).may_share_memory(found._array, source._array):
            return found.clone()
        found._view = None
    return found


@export()
def tile(input: Tensor, *times: Any, dims: Any = None) -> Tensor:
    """`repeat` with ones for missing counts in front."""
    counts = sizes(times, dims)
    return repeat(input, (1,) * (input._array.ndim - len(counts)) + counts)


@export()
def repeat_interleave(
    input: Tensor | None = None,
    repeats: Any = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> Tensor:
    """Each slice along `dim` repeated: a count, or one count per slice. output_size: their sum, if
    it is known.

    With counts alone, `repeat_interleave(repeats)`: each position as often as its count says.
    """
    if input is None or repeats is None:
        return _repeated_positions(either("repeat_interleave", input, repeats), output_size)
    if not isinstance(repeats, Tensor | int | np.integer) or isinstance(repeats, bool):
        raise TypeError(
            "repeat_interleave(): argument 'repeats' must be Tensor or int, not "
            f"{type(repeats).__name__}"
        )
    if isinstance(repeats, Tensor) and repeats._array.dtype not in (np.int32, np.int64):
        raise dtypes.refused("repeat_interleave_cpu", repeats._array.dtype)
    if dim is None:
        input, dim = input.reshape(-1), 0
    place = normalize_dim(dim, input._array.ndim)
    n = input._array.shape[place]
    short = 1 < math.prod(input._array.shape[place + 1 :]) < _LONG and not on_gpu(input._array)
    if type(repeats) is int and repeats >= 0 and output_size is None and not short:
        return repeated_along(input, {place: repeats})
    if type(repeats) is int and repeats >= 0 and output_size in (None, n * repeats):
        places = np.arange(n).repeat(repeats)
        return input.index_select(place, wrap(array_module(input._array).asarray(places)))
    counts = np.asarray(repeats.cpu()._array if isinstance(repeats, Tensor) else repeats)
    if counts.ndim > 1:
        raise RuntimeError(
            f"repeat_interleave: repeats must be 0-dim or 1-dim tensor, got {counts.ndim}D"
        )
    if counts.ndim and counts.size not in (1, n):
        raise RuntimeError(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = "
            f"{counts.size} and input.size({dim}) = {n}"
        )
    if counts.size and counts.min() < 0:
        raise RuntimeError("repeats can not be negative")
    places = np.repeat(np.arange(n), counts)
    if output_size not in (None, places.size):
        raise RuntimeError(
            f"repeat_interleave: expected output_size to be {places.size}, got {output_size}"
        )
    return input.index_select(dim, wrap(array_module(input._array).asarray(places)))


_LONG = 32  # elements of a row that a CPU copies faster by strides than by its number


def _repeated_positions(repeats: Tensor, output_size: int | None) -> Tensor:
    """0, 1, ... each as often as the count there says, in the dtype of the counts."""
    array = repeats._array
    if array.ndim != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if array.dtype not in (np.int32, np.int64):
        raise dtypes.refused("repeat_interleave_cpu", array.dtype)
    positions = wrap(array_module(array).arange(array.size, dtype=array.dtype))
    return repeat_interleave(positions, repeats, 0, output_size=output_size)


def repeated_along(input: Tensor, counts: dict[int, int]) -> Tensor:
    """Each slice along some dimensions repeated, by dimension, in one copy."""
    shape = input._array.shape
    spaced = [m for d, n in enumerate(shape) for m in ((n, 1) if d in counts else (n,))]
    wide = [m for d, n in enumerate(shape) for m in ((n, counts[d]) if d in counts else (n,))]
    result = tuple([n * counts.get(d, 1) for d, n in enumerate(shape)])
    return _repeated(input, tuple(spaced), tuple(wide), result)


def _triangle(name: str, lower: bool) -> None:
    def function(input: Tensor, diagonal: int = 0) -> Tensor:
        if input._array.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        return Triangle.apply(input, diagonal=diagonal, lower=lower)

    function.__name__ = function.__qualname__ = name
    side = "lower" if lower else "upper"
    function.__doc__ = f"The {side} triangle of the last two dimensions, zeros elsewhere."
    export()(function)
    inplace(name)


_triangle("tril", True)
_triangle("triu", False)


@export()
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A matrix with this vector on a diagonal, or the diagonal of this matrix."""
    if input._array.ndim == 1:
        return diag_embed(input, diagonal)
    if input._array.ndim != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input._array.ndim}D")
    return input.diagonal(diagonal).clone()


@export()
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices, along two dimensions of the result, with the last dimension on a diagonal."""
    ndim = input._array.ndim + 1
    places = normalize_dim(dim1, ndim), normalize_dim(dim2, ndim)
    if places[0] == places[1]:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    size = input._array.shape[-1] + abs(offset)
    shape = list(input._array.shape[:-1])
    for place in sorted(places):
        shape.insert(place, size)
    attrs = {"offset": offset, "dim1": places[0], "dim2": places[1]}
    return ZerosExceptView.apply(input, view=Diagonal, attrs=attrs, shape=tuple(shape))


@export(method=False)
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinate grids of vectors; indexing "ij" (matrix) or "xy" (first two exchanged). Without
    it, "ij" with a warning, once in a process."""
    given = list(tensors[0] if tensors and isinstance(tensors[0], list | tuple) else tensors)
    if not given:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for x in given:
        if x._array.ndim > 1:
            raise RuntimeError(
                "torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: "
                f"{list(x.shape)}"
            )
        if x._array.dtype != given[0]._array.dtype:
            raise RuntimeError("meshgrid expects all tensors to have the same dtype")
    if indexing is None:
        indexing = "ij"
        _warn_of_indexing()
    if indexing not in ("ij", "xy"):
        raise RuntimeError(
            f"meshgrid: indexing must be one of 'xy' or 'ij', but received: {indexing}"
        )
    swap = indexing == "xy" and len(given) > 1
    if swap:
        given[:2] = given[1::-1]
    shape = [x._array.size for x in given]
    grids = [
        x.reshape([-1 if i == d else 1 for i in range(len(given))]).expand(shape)
        for d, x in enumerate(given)
    ]
    if swap:
        grids[:2] = grids[1::-1]
    return tuple(grids)


@functools.cache
def _warn_of_indexing() -> None:
    warnings.warn(
        "meshgrid: indexing is not given, and is 'ij'; NumPy's default is 'xy'. Fix: "
        "indexing='ij' or indexing='xy'",
        UserWarning,
        stacklevel=3,
    )


@export(method=False)
def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Views of one common shape; of that shape already, the tensors themselves."""
    shape: tuple = ()
    for x in tensors:
        shape = broadcast_shape(shape, x._array.shape)
    return tuple([x if x._array.shape == shape else x.expand(shape) for x in tensors])


@export(method=False)
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of vectors, as rows."""
    for x in tensors:
        if x._array.ndim != 1:
            raise RuntimeError(f"cartesian_prod: Expect a 1D vector, but got shape {list(x.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([g.reshape(-1) for g in meshgrid(*tensors, indexing="ij")], 1)


def pad_constant(self: Tensor, pad: Sequence[int], value: float = 0.0) -> Tensor:
    """Padded by (before, after) pairs that start at the last dimension; negative pairs crop."""
    ndim = self._array.ndim
    if len(pad) % 2 or len(pad) > 2 * ndim:
        raise RuntimeError(
            f"pad: expected at most {2 * ndim} lengths, in pairs, for {ndim} dimensions; "
            f"got {list(pad)}"
        )
    pairs = [(0, 0)] * ndim
    for i in range(len(pad) // 2):
        pairs[ndim - 1 - i] = (pad[2 * i], pad[2 * i + 1])
        if self._array.shape[ndim - 1 - i] + sum(pairs[ndim - 1 - i]) < 0:
            raise RuntimeError(
                f"The input size {self._array.shape[ndim - 1 - i]}, plus negative padding "
                f"{pad[2 * i]} and {pad[2 * i + 1]}, resulted in a negative output size"
            )
    if type(value) is int or type(value) is float:
        dtypes.fitting(float(value), self._array.dtype)
    return PadConstant.apply(self, pads=tuple(pairs), value=value)


Tensor.pad_constant = pad_constant


@export(method=False)
def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Padding, last dimension first: "constant", "reflect", "replicate" or "circular"."""
    if mode == "constant":
        return pad_constant(input, pad, 0.0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if value or len(pad) % 2:
        raise RuntimeError(
            f"pad: mode {mode!r} takes pairs of lengths and no value, got {list(pad)} and {value}"
        )
    if input._array.dtype.kind == "b" and mode != "circular":
        raise dtypes.refused(f"{mode}_pad", input._array.dtype)
    ndim = input._array.ndim
    if len(pad) not in (2, 4, 6) or ndim - len(pad) // 2 not in (1, 2):
        raise NotImplementedError(
            f"Padding size {len(pad)} is not supported for {ndim}D input tensor.\nmode {mode!r} "
            "pads the last 1, 2 or 3 dimensions, below one or two others"
        )
    pairs = [(0, 0)] * ndim
    for i in range(len(pad) // 2):
        first, last = pad[2 * i], pad[2 * i + 1]
        pairs[ndim - 1 - i] = first, last
        _check_border(input._array.shape[ndim - 1 - i], first, last, mode)
    padded, shape = ndim - len(pad) // 2, input._array.shape
    ends = [1]  # the lengths of the result, if it may be empty
    if min(pad) < 0:
        ends = [n + sum(pair) for n, pair in zip(shape[padded:], pairs[padded:], strict=True)]
    if mode != "circular" and (0 in shape[padded - 1 :] or max(ends) < 1):
        raise RuntimeError(
            f"pad: mode {mode!r} expects no length of 0 but of the batch, before or after, got "
            f"{list(shape)} and {list(pad)}"
        )
    grown = tuple([(max(a, 0), max(b, 0)) for a, b in pairs])
    cropped = [n for a, b in reversed(pairs) for n in (min(a, 0), min(b, 0))]
    if any(cropped) and mode == "circular":  # cuts first
        input = pad_constant(input, cropped)
        for n, (before, after) in zip(input._array.shape, grown, strict=True):
            _check_border(n, before, after, mode)
    float32 = mode == "replicate" or (mode == "reflect" and len(pad) < 6)  # under `autocast`
    result = (border_pad if float32 else PadByItself.apply)(input, pads=grown, mode=mode)
    return pad_constant(result, cropped) if any(cropped) and mode != "circular" else result


@autocasts
def border_pad(input: Tensor, pads: tuple, mode: str) -> Tensor:
    """The paddings that `autocast` on a CPU computes in float32."""
    return PadByItself.apply(input, pads=pads, mode=mode)


def _check_border(n: int, before: int, after: int, mode: str) -> None:
    limit = {"reflect": n - 1, "circular": n, "replicate": math.inf}[mode]
    if before > limit or after > limit:
        raise RuntimeError(
            f"Padding size should be less than the corresponding input dimension, but got: padding "
            f"({before}, {after}) for a dimension of length {n} in mode {mode!r}"
        )


@export()
def fliplr(input: Tensor) -> Tensor:
    """Columns (dimension 1) in reverse order."""
    if input._array.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, 1)


@export()
def flipud(input: Tensor) -> Tensor:
    """Rows (dimension 0) in reverse order."""
    if input._array.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, 0)


@export()
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Turned k times by 90 degrees in the plane of two dimensions, from the first to the second."""
    ndim = input._array.ndim
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {ndim}")
    a, b = [normalize_dim(d, ndim) for d in dims]
    if a == b:
        raise RuntimeError(
            f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}"
        )
    turns = as_int("k", k) % 4
    if turns == 0:
        return input.clone()
    if turns == 2:
        return flip(input, a, b)
    return flip(input, b).transpose(a, b) if turns == 1 else flip(input, a).transpose(a, b)


@export()
def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Differences of neighbours along `dim`, n times; bool gives whether they differ."""
    if not input._array.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    if n == 0:
        return input.clone()
    ends = [x for x in (prepend, input, append) if x is not None]
    x = cat(ends, dim) if len(ends) > 1 else input
    line = POINTWISE["ne" if x._array.dtype.kind == "b" else "sub"]
    for _ in range(n):
        count = x.shape[dim]
        length = max(count - 1, 0)
        x = line(x.narrow(dim, count - length, length), x.narrow(dim, 0, length))
    return x
