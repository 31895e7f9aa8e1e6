"""Shape operations: views that share memory, and operations that copy.

A view operation is an `Op` whose forward is a NumPy view; its output shares the version counter and
records how it is computed from its base (`minigrad.tensor.View`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from kernels import dispatch
from minigrad import dtypes
from minigrad.autograd.mode import mode
from minigrad.autograd.node import Op, needs_grad
from minigrad.backends import array_module
from minigrad.tensor import (
    Size,
    Tensor,
    View,
    as_int,
    device,
    export,
    move_array,
    normalize_dim,
    wrap,
)


class ViewOp(Op):
    """An operation whose result shares memory with its input."""

    saves = ()

    @classmethod
    def apply(cls, x: Tensor, **attrs: Any) -> Tensor:
        out = wrap(cls.forward(x._array, **attrs))
        out._counter = x._counter
        needs = needs_grad(x)
        parent = x._view
        link = ((cls, attrs),)
        untracked = needs and not mode.enabled
        if parent is None:
            out._view = View(x, link, x._counter[0], untracked)
        else:
            chain, untracked = parent.chain + link, untracked or parent.untracked
            out._view = View(parent.base, chain, x._counter[0], untracked)
        if needs and mode.enabled:
            cls.record((x,), attrs, (True,), (out,))
        return out


class Reshape(ViewOp):
    """The same elements in row-major order under another shape, without a copy."""

    grad_name = "ViewBackward0"

    @staticmethod
    def forward(x: Any, shape: tuple) -> Any:
        return array_module(x).reshape(x, shape)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, shape: tuple) -> tuple:
        return (reshape(g, ctx.shapes[0]),)


class Permute(ViewOp):
    """Dimensions in another order."""

    @staticmethod
    def forward(x: Any, dims: tuple) -> Any:
        return x.transpose(dims)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dims: tuple) -> tuple:
        inverse = [0] * len(dims)
        for i, d in enumerate(dims):
            inverse[d] = i
        return (Permute.apply(g, dims=tuple(inverse)),)


class Transpose(Permute):
    """Two dimensions exchanged."""


class Expand(ViewOp):
    """Dimensions of length 1 (and new ones in front) repeated without a copy."""

    @staticmethod
    def forward(x: Any, shape: tuple) -> Any:
        return expand_array(x, shape)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, shape: tuple) -> tuple:
        return (sum_to_size(g, ctx.shapes[0]),)


def expand_array(x: Any, shape: tuple) -> Any:
    """`np.broadcast_to`, but writeable and with less Python overhead."""
    if not isinstance(x, np.ndarray):
        return array_module(x).broadcast_to(x, shape)
    new = len(shape) - x.ndim
    kept = zip(x.shape, x.strides, shape[new:])
    strides = (0,) * new + tuple([0 if m == 1 and n != 1 else s for m, s, n in kept])
    if x.flags.c_contiguous and x.dtype.kind != "V":  # bfloat16 has no buffer
        return np.ndarray(shape, x.dtype, x, 0, strides)
    return np.lib.stride_tricks.as_strided(x, shape, strides)


class Slice(ViewOp):
    """Basic indexing: a tuple of integers, slices, None and Ellipsis."""

    @staticmethod
    def forward(x: Any, index: tuple) -> Any:
        return x[(*index, ...)]  # with `...` even a single element is a view, not a number

    @staticmethod
    def vjp(ctx: Any, g: Tensor, index: tuple) -> tuple:
        return (ZerosExceptView.apply(g, view=Slice, attrs={"index": index}, shape=ctx.shapes[0]),)


class Diagonal(ViewOp):
    """A diagonal of two dimensions, as a new last dimension."""

    @staticmethod
    def forward(x: Any, offset: int, dim1: int, dim2: int) -> Any:
        view = x.diagonal(offset, dim1, dim2)
        if array_module(x).__name__ == "numpy":
            view.flags.writeable = x.flags.writeable
        return view

    @staticmethod
    def vjp(ctx: Any, g: Tensor, **attrs: int) -> tuple:
        return (ZerosExceptView.apply(g, view=Diagonal, attrs=attrs, shape=ctx.shapes[0]),)


class Unfold(ViewOp):
    """Windows of `size` elements every `step` along a dimension, as a new last dimension."""

    @staticmethod
    def forward(x: Any, dim: int, size: int, step: int) -> Any:
        count = (x.shape[dim] - size) // step + 1
        shape = (*x.shape[:dim], count, *x.shape[dim + 1 :], size)
        stride = x.strides[dim]
        strides = (*x.strides[:dim], stride * step, *x.strides[dim + 1 :], stride)
        return array_module(x).lib.stride_tricks.as_strided(x, shape, strides)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, **attrs: int) -> tuple:
        return (FoldWindows.apply(g, shape=ctx.shapes[0], **attrs),)


class ZerosExceptView(Op):
    """Zeros of `shape` with g written into a view of them: the gradient of that view."""

    saves = ()

    @staticmethod
    def forward(g: Any, view: type[ViewOp], attrs: dict, shape: tuple) -> Any:
        zeros = array_module(g).zeros(shape, g.dtype)
        view.forward(zeros, **attrs)[...] = g
        return zeros

    @staticmethod
    def vjp(ctx: Any, g: Tensor, view: type[ViewOp], attrs: dict, shape: tuple) -> tuple:
        return (view.apply(g, **attrs),)


class FoldWindows(Op):
    """Overlapping windows added at their positions: the gradient of `Unfold`."""

    saves = ()

    @staticmethod
    def forward(g: Any, shape: tuple, dim: int, size: int, step: int) -> Any:
        total = array_module(g).zeros(shape, g.dtype)
        span = g.shape[dim] * step
        for k in range(size):
            window = slice(k, k + span - step + 1, step)
            total[(slice(None),) * dim + (window,)] += g[..., k]
        return total

    @staticmethod
    def vjp(ctx: Any, g: Tensor, shape: tuple, **attrs: int) -> tuple:
        return (Unfold.apply(g, **attrs),)


class Clone(Op):
    """A contiguous copy."""

    saves = ()

    @staticmethod
    def forward(x: Any) -> Any:
        return dispatch.active.copy(x)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        return (g,)


class Cast(Op):
    """A copy of another dtype (the engine casts the gradient back)."""

    saves = ()
    grad_name = "ToCopyBackward0"

    @staticmethod
    def forward(x: Any, dtype: Any) -> Any:
        return dispatch.active.cast(x, dtype)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dtype: Any) -> tuple:
        return (g,)


class Move(Op):
    """A copy on another device."""

    saves = ()
    grad_name = "ToCopyBackward0"

    @staticmethod
    def forward(x: Any, where: device, origin: device) -> Any:
        return move_array(x, where)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, where: device, origin: device) -> tuple:
        return (Move.apply(g, where=origin, origin=where),)


class Cat(Op):
    """Arrays of one dtype, concatenated along a dimension."""

    saves = ()

    @staticmethod
    def forward(*arrays: Any, dim: int) -> Any:
        return dispatch.active.concat(arrays, dim)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> list:
        grads, start = [], 0
        for shape, need in zip(ctx.shapes, ctx.needs, strict=True):
            grads.append(narrow(g, dim, start, shape[dim]) if need else None)
            start += shape[dim]
        return grads


def sizes(args: tuple, named: Any = None) -> tuple[int, ...]:
    """Sizes given one by one, as one sequence, or as the keyword `named`; 0-dimensional tensors
    count as integers."""
    if named is not None:
        args = (named,)
    if len(args) == 1 and isinstance(args[0], tuple | list):
        args = args[0]
    return tuple([a if type(a) is int else as_int("size", a) for a in args])


def infer_shape(shape: tuple[int, ...], numel: int) -> tuple[int, ...]:
    """The shape with -1 replaced; RuntimeError if it doesn't have `numel` elements."""
    known = 1
    for n in shape:
        if n != -1:
            known *= n
    if -1 in shape:
        if shape.count(-1) > 1:
            raise RuntimeError("only one dimension can be inferred")
        if known == 0:
            raise RuntimeError(
                f"cannot reshape tensor of 0 elements into shape {list(shape)} because the "
                "unspecified dimension size -1 can be any value and is ambiguous"
            )
        if numel % known == 0:
            return tuple([numel // known if n == -1 else n for n in shape])
    elif known == numel:
        return shape
    raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")


@export()
def reshape(input: Tensor, *lengths: Any, shape: Any = None) -> Tensor:
    """The same elements under another shape; one length may be -1. A view where possible."""
    array = input._array
    new = infer_shape(sizes(lengths, shape), array.size)
    if array.flags.c_contiguous or _viewable(array, new):
        return Reshape.apply(input, shape=new)
    return Reshape.apply(Clone.apply(input), shape=new)


def _viewable(array: Any, shape: tuple[int, ...]) -> bool:
    """Whether a reshape can share memory (by the rules of the array library)."""
    xp = array_module(array)
    if xp.__name__ != "numpy":
        return xp.may_share_memory(array.reshape(shape), array)
    try:
        xp.reshape(array, shape, copy=False)
    except ValueError:
        return False
    return True


def view(self: Tensor, *shape: Any, size: Any = None) -> Tensor:
    """`reshape` that never copies; with a dtype, the same bytes read as another type."""
    if len(shape) == 1 and isinstance(shape[0], dtypes.dtype):
        out = wrap(self._array.view(shape[0].numpy))
        out._counter = self._counter
        return out
    new = infer_shape(sizes(shape, size), self._array.size)
    if not (self._array.flags.c_contiguous or _viewable(self._array, new)):
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return Reshape.apply(self, shape=new)


Tensor.view = view
Tensor.view_as = lambda self, other: view(self, other._array.shape)
Tensor.reshape_as = lambda self, other: reshape(self, other._array.shape)


def _dims(args: tuple, ndim: int) -> tuple[int, ...]:
    return tuple([normalize_dim(d, ndim) for d in sizes(args)])


@export()
def permute(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """Dimensions in the order given."""
    given = sizes(order, dims)
    ndim = input._array.ndim
    if len(given) != ndim:
        raise RuntimeError(
            "permute: number of dimensions in the tensor input does not match the length of the "
            f"desired ordering of dimensions i.e. input.dim() = {ndim} is not equal to len(dims) "
            f"= {len(given)}"
        )
    wanted = _dims(given, ndim)
    if len(set(wanted)) != ndim:
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return Permute.apply(input, dims=wanted)


@export("swapaxes", "swapdims")
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged."""
    ndim = input._array.ndim
    a, b = normalize_dim(dim0, ndim), normalize_dim(dim1, ndim)
    order = list(range(ndim))
    if ndim:
        order[a], order[b] = order[b], order[a]
    return Transpose.apply(input, dims=tuple(order))


@export()
def t(input: Tensor) -> Tensor:
    """The transpose of a matrix (a vector stays as it is)."""
    ndim = input._array.ndim
    if ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {ndim}D")
    return transpose(input, 0, 1) if ndim == 2 else input


def _mt(self: Tensor) -> Tensor:
    if self._array.ndim < 2:
        raise RuntimeError(
            f"tensor.mT is only supported on matrices. Got {self._array.ndim}-D tensor."
        )
    return transpose(self, -2, -1)


Tensor.T = property(lambda self: permute(self, *range(self._array.ndim - 1, -1, -1)))
Tensor.mT = property(_mt)
Tensor.H = property(t)


@export("moveaxis")
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions `source` moved to the positions `destination`."""
    ndim = input._array.ndim
    source = _dims((source,) if isinstance(source, int) else tuple(source), ndim)
    places = (destination,) if isinstance(destination, int) else tuple(destination)
    order = [d for d in range(ndim) if d not in source]
    for place, dim in sorted(zip(_dims(places, ndim), source, strict=True)):
        order.insert(place, dim)
    return permute(input, order)


@export(function=False)
def expand(self: Tensor, *lengths: Any, size: Any = None) -> Tensor:
    """Dimensions of length 1 repeated without a copy; -1 keeps a length."""
    new = sizes(lengths, size)
    old = self._array.shape
    extra = len(new) - len(old)
    if extra < 0:
        raise RuntimeError(
            f"expand: the number of sizes provided ({len(new)}) must be greater or equal to the "
            f"number of dimensions in the tensor ({len(old)})"
        )
    shape = list(new)
    for i, n in enumerate(old):
        wanted = new[i + extra]
        if wanted == -1:
            shape[i + extra] = n
        elif n not in (1, wanted):
            raise RuntimeError(
                f"The expanded size of the tensor ({wanted}) must match the existing size ({n}) at "
                f"non-singleton dimension {i + extra}.  Target sizes: {list(new)}.  Tensor sizes: "
                f"{list(old)}"
            )
    return Expand.apply(self, shape=tuple(shape))


Tensor.expand_as = lambda self, other: expand(self, *other._array.shape)


@export(method=False)
def broadcast_to(input: Tensor, shape: Sequence[int]) -> Tensor:
    """`expand` as a function."""
    return expand(input, *shape)


@export()
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Without dimensions of length 1 (all, or those named)."""
    shape = input._array.shape
    if dim is None:
        gone = range(len(shape))
    else:
        gone = _dims((dim,) if isinstance(dim, int) else tuple(dim), len(shape))
    return Reshape.apply(
        input, shape=tuple([n for i, n in enumerate(shape) if n != 1 or i not in gone])
    )


@export()
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A new dimension of length 1 at `dim`."""
    shape = input._array.shape
    place = normalize_dim(dim, len(shape) + 1)
    return Reshape.apply(input, shape=(*shape[:place], 1, *shape[place:]))


@export()
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions start_dim .. end_dim as one."""
    shape = input._array.shape
    if not shape:
        return reshape(input, 1)
    first, last = normalize_dim(start_dim, len(shape)), normalize_dim(end_dim, len(shape))
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if first == last:
        return input
    merged = Size(shape[first : last + 1]).numel()
    return reshape(input, (*shape[:first], merged, *shape[last + 1 :]))


@export()
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """One dimension as several; one length may be -1."""
    shape = input._array.shape
    place = normalize_dim(dim, len(shape))
    try:
        inner = infer_shape(tuple(sizes), shape[place])
    except RuntimeError as error:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {place} "
            f"({shape[place]}) in the input tensor"
        ) from error
    return reshape(input, (*shape[:place], *inner, *shape[place + 1 :]))


@export()
def ravel(input: Tensor) -> Tensor:
    """All elements as one dimension."""
    return reshape(input, -1)


@export()
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` elements along `dim` from `start` on."""
    place = normalize_dim(dim, input._array.ndim)
    n = input._array.shape[place]
    start = int(start) + n if start < 0 else int(start)
    if length < 0 or start + length > n:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return Slice.apply(input, index=(slice(None),) * place + (slice(start, start + length),))


@export()
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One position along `dim`; the dimension is removed."""
    place = normalize_dim(dim, input._array.ndim)
    n = input._array.shape[place]
    if not -n <= index < n:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at "
            f"dimension {place}"
        )
    return Slice.apply(input, index=(slice(None),) * place + (int(index),))


@export()
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of a diagonal, as a new last dimension."""
    ndim = input._array.ndim
    a, b = normalize_dim(dim1, ndim), normalize_dim(dim2, ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return Diagonal.apply(input, offset=offset, dim1=a, dim2=b)


@export(function=False)
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of `size` every `step` along a dimension, as a new last dimension (a view)."""
    dim = normalize_dim(dimension, self._array.ndim)
    if size > self._array.shape[dim]:
        raise RuntimeError(
            f"maximum size for tensor at dimension {dim} is {self._array.shape[dim]} but size is "
            f"{size}"
        )
    return Unfold.apply(self, dim=dim, size=size, step=step)


@export()
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views along `dim`: of one size (the last may be smaller), or of the sizes listed."""
    place = normalize_dim(dim, tensor._array.ndim)
    n = tensor._array.shape[place]
    if isinstance(split_size_or_sections, int):
        size = split_size_or_sections
        if size <= 0:
            raise RuntimeError(
                f"split expects split_size be non-negative, but got split_size={size}"
            )
        lengths = [min(size, n - i) for i in range(0, n, size)] or [0]
    else:
        lengths = list(split_size_or_sections)
        if sum(lengths) != n:
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size "
                f"at dimension {place}), but got split_sizes={lengths}"
            )
    parts, start = [], 0
    for length in lengths:
        parts.append(narrow(tensor, place, start, length))
        start += length
    return tuple(parts)


@export()
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` views of equal length (the last may be shorter)."""
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    n = input._array.shape[normalize_dim(dim, input._array.ndim)]
    return split(input, max(1, -(-n // chunks)), dim)


@export()
def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views cut at the given positions, or into that many nearly equal parts."""
    n = input._array.shape[normalize_dim(dim, input._array.ndim)]
    if isinstance(indices_or_sections, int):
        small, extra = divmod(n, indices_or_sections)
        return split(input, [small + (i < extra) for i in range(indices_or_sections)], dim)
    cuts = [0, *(min(c, n) for c in indices_or_sections), n]
    return split(input, [b - a for a, b in pairwise(cuts)], dim)


@export()
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along `dim`."""
    n = input._array.shape[normalize_dim(dim, input._array.ndim)]
    return tuple([select(input, dim, i) for i in range(n)])


@export(function=False)
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """The sum over broadcast dimensions that gives this shape: the inverse of `expand`."""
    shape = sizes(size)
    array = self._array
    new = array.ndim - len(shape)
    axes = tuple(range(new))
    axes += tuple([i + new for i, n in enumerate(shape) if n == 1 and array.shape[i + new] != 1])
    result = self.sum(axes, keepdim=True) if axes else self
    return Reshape.apply(result, shape=shape) if new else result


@export()
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A contiguous copy, differentiable."""
    return Clone.apply(input)


@export(function=False)
def contiguous(self: Tensor, memory_format: Any = None) -> Tensor:
    """Itself if its elements are in row-major order, else a copy in that order."""
    return self if self._array.flags.c_contiguous else Clone.apply(self)
