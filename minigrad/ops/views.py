"""The operations behind `minigrad.ops.shape`: views that share memory, and copies.

A view operation is an `Op` whose forward is a NumPy view; its output shares the version counter
and records how it is computed from its base (`minigrad._view.View`).
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.pointwise import TABLE
from minigrad import _pinned
from minigrad._meta import MetaArray
from minigrad._view import SEVERAL, View
from minigrad.autograd.mode import mode, unusual
from minigrad.autograd.node import Node, Op, OpNode, attach, edge, record
from minigrad.autograd.part import part
from minigrad.backends import array_module
from minigrad.backends.current import Found
from minigrad.devices import device, move_array
from minigrad.tensor import Tensor, wrap


class ViewOp(Op):
    """An operation whose result shares memory with its input."""

    saves = ()
    of_storage = False  # whether it looks at the whole storage of its input, not at its elements

    @classmethod
    def apply(cls, x: Tensor, **attrs: Any) -> Tensor:
        return viewed(cls, x, cls.forward(x._array, **attrs), attrs)


def viewed(op: type[ViewOp], x: Tensor, array: Any, attrs: dict) -> Tensor:
    """`op.apply(x, **attrs)`, of which the array has been made."""
    needs = x._requires_grad if x._view is None else x.requires_grad
    out = _view(x, array, op, attrs, needs)
    if unusual and mode.observer is not None:
        mode.observer(op, (x,), attrs, (out,))
    if needs and mode.enabled:
        if op.of_storage:
            op.record((x,), attrs, (edge(x),), (out,))
            return out
        node: Any = _new(OpNode)  # as `Op.record` does, in less time
        node.op, node.attrs, node.outputs, node.shapes = op, attrs, (), (x._array.shape,)
        record(node, (edge(x),), (), (out,))
    return out


def _view(x: Tensor, array: Any, op: type[ViewOp], attrs: dict, needs: bool) -> Tensor:
    """A tensor of `array`, which is a view of that of x by one operation."""
    out, view = _new(Tensor), _new(View)
    out._array, out._view = array, view
    out._counter = counter = x._counter
    view.op, view.attrs, view.version = op, attrs, counter[0]
    parent = x._view
    if parent is None:
        view.base, view.before, view.untracked = x, (), ""
    else:
        view.base, view.before = parent.base, parent.chain
        view.untracked = parent.untracked
    if needs and not mode.enabled:
        out._requires_grad = view.base._requires_grad  # a leaf that does where its base does
        view.untracked = "inference_mode" if mode.inference else "no_grad"
    return out


def _is_seen() -> bool:
    """Whether operations are recorded, or an observer is told of them."""
    return mode.enabled or (bool(unusual) and mode.observer is not None)


def turned(op: type[ViewOp], g: Tensor, **attrs: Any) -> Tensor:
    """`op.apply(g, **attrs)` of a gradient; without what a view knows, if nothing is recorded."""
    if _is_seen():
        return op.apply(g, **attrs)
    return wrap(op.forward(g._array, **attrs))


def reshaped(g: Tensor, shape: tuple) -> Tensor:
    """The same of `g.reshape(shape)`, with as many elements."""
    array = g._array
    plain = type(array) is np.ndarray and (array.size < _FEW_ELEMENTS or array.flags.c_contiguous)
    if not plain or _is_seen():
        return g.reshape(shape)
    return wrap(array.reshape(shape))


_FEW_ELEMENTS = 4096  # which NumPy copies, where it must, as soon as a kernel


def unshared(view: Tensor) -> Tensor:
    """A view of a result that nothing else knows: it is none for a program."""
    view._view = None
    return view


_new: Callable[[type], Any] = object.__new__


class Reshape(ViewOp):
    """The same elements in row-major order under another shape, without a copy."""

    grad_name = "ViewBackward0"

    @staticmethod
    def forward(x: Any, shape: tuple) -> Any:
        if type(x) is np.ndarray:
            return x.reshape(shape)  # a tenth of the time
        return array_module(x).reshape(x, shape)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, shape: tuple) -> tuple:
        return (reshaped(g, ctx.shapes[0]),)


class Squeeze(Reshape):
    """`Reshape` that takes away all lengths of 1; it only has another name as a node."""

    name, grad_name = "Reshape", "SqueezeBackward0"


class SqueezeDim(Reshape):
    """The same for some dimensions."""

    name, grad_name = "Reshape", "SqueezeBackward1"


class Unsqueeze(Reshape):
    """`Reshape` that adds a length of 1; it only has another name as a node."""

    name, grad_name = "Reshape", "UnsqueezeBackward0"


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
        return (turned(Permute, g, dims=tuple(inverse)),)


class Transpose(Permute):
    """Two dimensions exchanged."""

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dims: tuple) -> tuple:
        return (turned(Transpose, g, dims=dims),)


class T(Transpose):
    """`Transpose` of a matrix by `t()`; it only has another name as a node."""

    name, grad_name = "Transpose", "TBackward0"


class Expand(ViewOp):
    """Dimensions of length 1 (and new ones in front) repeated without a copy."""

    @staticmethod
    def forward(x: Any, shape: tuple) -> Any:
        return expand_array(x, shape)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, shape: tuple) -> tuple:
        return (g.sum_to_size(ctx.shapes[0]),)


def expand_array(x: Any, shape: tuple) -> Any:
    """`np.broadcast_to`, but writeable and with less Python overhead."""
    if type(x) is not np.ndarray:
        return array_module(x).broadcast_to(x, shape)
    if not x.ndim and x.dtype.kind != "V":  # the gradient of a sum
        return np.ndarray(shape, x.dtype, x, 0, (0,) * len(shape))
    old, new = x.shape, len(shape) - x.ndim
    strides = (0,) * new + x.strides
    if shape[new:] != old:
        kept = zip(old, x.strides, shape[new:])
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
        array, shape = g._array, ctx.shapes[0]
        if array.size == math.prod(shape):  # all elements, in order
            return (reshaped(g, shape),)
        if type(array) is np.ndarray and not _is_seen():
            return (part(array, Slice.forward, {"index": index}, shape),)
        return (ZerosExceptView.apply(g, view=Slice, attrs={"index": index}, shape=shape),)


class Select(Slice):
    """`Slice` whose last part is an integer; it only has another name as a node."""

    name, grad_name = "Slice", "SelectBackward0"


class Insert(Slice):
    """`Slice` whose last part is None; it only has another name as a node."""

    name, grad_name = "Slice", "UnsqueezeBackward0"


def of_parts(index: tuple) -> type[Slice]:
    """The operation for an index, whose name torch gives by the last part that is no full slice."""
    for item in reversed(index):
        if item is None:
            return Insert
        if not isinstance(item, slice):
            return Select
        if item != FULL:
            break
    return Slice


FULL = slice(None)


class Parts(Node):
    """Views of a tensor that lie side by side along a dimension: so do their gradients.

    places: per view, the index and its (operation, attributes). whole: the shape of the tensor.
    stacked: whether the views are without that dimension.
    """

    __slots__ = ("dim", "places", "stacked", "title", "whole")

    dim: int
    places: list
    stacked: bool
    title: str
    whole: tuple[int, ...]

    def name(self) -> str:
        return self.title

    def backward(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        given = [(link[1], g) for (_, link), g in zip(self.places, grads) if g is not None]
        if len(given) == 1 or (len(given) < 8 < len(grads) // len(given)):  # few of many
            apply, shape = ZerosExceptView.apply, self.whole
            few = [apply(g, view=Slice, attrs=attrs, shape=shape) for attrs, g in given]
            return (functools.reduce(operator.add, few),)
        make = array_module(given[0][1]._array).zeros
        beside = [wrap(make(*out)) if g is None else g for g, out in zip(grads, self.outs)]
        return ((Stack if self.stacked else Cat).apply(*beside, dim=self.dim),)


def parts(
    x: Tensor, dim: int, lengths: Sequence[int] | None, title: str, alone: bool = False
) -> tuple[Tensor, ...]:
    """Views of x side by side along `dim`, of lengths that add up to its own, or without that
    dimension; `title`: of their node. alone: where a gradient is recorded, each may still be
    changed in place."""
    array, needs = x._array, x.requires_grad
    if lengths is None:
        length = array.shape[dim]
        places = (_few_positions if length <= _FEW else _positions)(dim, length)
    else:
        places = _places(dim, tuple(lengths))
    if unusual and mode.observer is not None:  # which is told of each operation
        return tuple([op.apply(x, **attrs) for _, (op, attrs) in places])
    views = []
    for index, (op, attrs) in places:
        made = _view(x, array[index], op, attrs, needs)
        view: Any = made._view
        if not (alone or view.untracked):
            view.untracked = SEVERAL
        views.append(made)
    if needs and mode.enabled and views:
        node = Parts((edge(x),), tuple([(v._array.shape, array.dtype) for v in views]))
        node.dim, node.whole, node.title, node.stacked = dim, array.shape, title, lengths is None
        node.places = places
        for i, made in enumerate(views):
            attach(made, node, i)
    return tuple(views)


@functools.lru_cache
def _places(dim: int, lengths: tuple[int, ...]) -> list[tuple[tuple, tuple]]:
    """The index of each of `parts`, and it as (operation, attributes)."""
    ends = itertools.accumulate(lengths)
    indices = [(slice(None),) * dim + (slice(end - n, end),) for n, end in zip(lengths, ends)]
    return [(index, (Slice, {"index": index})) for index in indices]


def _positions(dim: int, length: int) -> list[tuple[tuple, tuple]]:
    """The same for each position."""
    full = (slice(None),) * dim  # `...`: a view, never a number
    return [((*full, i, ...), (Select, {"index": (*full, i)})) for i in range(length)]


_FEW = 64  # positions, which are remembered
_few_positions = functools.lru_cache(_positions)


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


def overwrite(out: Any, x: Any) -> None:
    """Write an array or a number into all of `out`: on a GPU by a kernel, where CuPy takes long."""
    if Found.cupy is not None and type(out) is type(x) is Found.cupy.ndarray:
        whole = out.flags.c_contiguous and x.flags.c_contiguous and x.shape == out.shape
        if not whole and x.dtype == out.dtype and x.dtype.kind != "c":
            dispatch.active.pointwise(TABLE["copy"], x, out=out)
            return
    out[...] = x


class ZerosExceptView(Op):
    """Zeros of `shape` with g written into a view of them: the gradient of that view."""

    saves = ()

    @staticmethod
    def forward(g: Any, view: type[ViewOp], attrs: dict, shape: tuple) -> Any:
        zeros = array_module(g).zeros(shape, g.dtype)
        overwrite(view.forward(zeros, **attrs), g)
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
    def again(x: Any) -> Any:
        return dispatch.relaunch(dispatch.tracer, dispatch.active, _copied, x)

    @staticmethod
    def forward(x: Any) -> Any:
        if x.dtype.kind == "c" or isinstance(x, MetaArray):
            return x.copy()
        return dispatch.together(_copied, x)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        return (g,)


def _copied(x: Any) -> Any:
    """A contiguous copy, as remembered launches know it."""
    return dispatch.active.copy(x)


class Cast(Op):
    """A copy of another dtype (the engine casts the gradient back)."""

    saves = ()
    grad_name = "ToCopyBackward0"

    @staticmethod
    def again(x: Any, dtype: Any) -> Any:
        return dispatch.relaunch(dispatch.tracer, dispatch.active, _cast_to(dtype), x)

    @staticmethod
    def forward(x: Any, dtype: Any) -> Any:
        if x.dtype.kind == "c" or dtype.kind == "c":
            return (x if dtype.kind in "cb" else x.real).astype(dtype)
        return dispatch.together(_cast_to(dtype), x)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dtype: Any) -> tuple:
        return (g,)


@functools.cache
def _cast_to(dtype: Any) -> Callable:
    """The cast to a dtype, as remembered launches know it."""
    return lambda x: dispatch.active.cast(x, dtype)


class Move(Op):
    """A copy on another device."""

    saves = ()
    grad_name = "ToCopyBackward0"

    @staticmethod
    def forward(x: Any, where: device, origin: device, non_blocking: bool) -> Any:
        return move_array(x, where, non_blocking)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, where: device, origin: device, non_blocking: bool) -> tuple:
        return (Move.apply(g, where=origin, origin=where, non_blocking=False),)


class Pin(Op):
    """A copy in page-locked memory."""

    saves = ()

    @staticmethod
    def forward(x: Any) -> Any:
        return _pinned.pin(x)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        return (g,)


class Cat(Op):
    """Arrays of one dtype, concatenated along a dimension. Those of shape (0,) add nothing,
    whatever the shape of the others, as in torch."""

    saves = ()

    @staticmethod
    def rule(*tensors: Tensor, dim: int) -> None:
        used = [x for x in tensors if x._array.shape != (0,)] or tensors[:1]
        first = used[0]._array.shape
        if not first:
            raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
        for i, x in enumerate(used[1:], start=1):
            shape = x._array.shape
            if len(shape) != len(first):
                raise RuntimeError(
                    f"Tensors must have same number of dimensions: got {len(first)} and "
                    f"{len(shape)}"
                )
            for d, (n, m) in enumerate(zip(first, shape, strict=True)):
                if d != dim and n != m:
                    raise RuntimeError(
                        f"Sizes of tensors must match except in dimension {dim}. Expected size {n} "
                        f"but got size {m} for tensor number {i} in the list."
                    )

    @staticmethod
    def again(*arrays: Any, dim: int) -> Any:
        return dispatch.relaunch(dispatch.tracer, dispatch.active, _joined(dim), *arrays)

    @staticmethod
    def forward(*arrays: Any, dim: int) -> Any:
        used = [a for a in arrays if a.shape != (0,)] or arrays[:1]
        if used[0].dtype.kind == "c":
            return array_module(used[0]).concatenate(used, dim)
        if len(used) == len(arrays):
            return dispatch.together(_joined(dim), *arrays)
        return dispatch.active.concat(used, dim)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> list:
        grads, start = [], 0
        for shape, need in zip(ctx.shapes, ctx.needs, strict=True):
            if shape == (0,):
                grads.append(g.reshape(-1)[:0] if need else None)
                continue
            grads.append(g.narrow(dim, start, shape[dim]) if need else None)
            start += shape[dim]
        return grads


@functools.cache
def _joined(dim: int) -> Callable:
    """The concatenation along a dimension, as remembered launches know it."""
    return lambda *arrays: dispatch.active.concat(list(arrays), dim)


class Stack(Op):
    """Arrays of one dtype and shape along a new dimension."""

    saves = ()

    @staticmethod
    def rule(*tensors: Tensor, dim: int) -> None:
        for i, x in enumerate(tensors):
            if x._array.shape != tensors[0]._array.shape:
                raise RuntimeError(
                    "stack expects each tensor to be equal size, but got "
                    f"{list(tensors[0].shape)} at entry 0 and {list(x.shape)} at entry {i}"
                )

    @staticmethod
    def again(*arrays: Any, dim: int) -> Any:
        return dispatch.relaunch(dispatch.tracer, dispatch.active, _stacked(dim), *arrays)

    @staticmethod
    def forward(*arrays: Any, dim: int) -> Any:
        if arrays[0].dtype.kind == "c":
            return array_module(arrays[0]).stack(arrays, dim)
        return dispatch.together(_stacked(dim), *arrays)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> list:
        return [g.select(dim, i) if need else None for i, need in enumerate(ctx.needs)]


@functools.cache
def _stacked(dim: int) -> Callable:
    """Arrays along a new dimension, as remembered launches know it."""

    def stack(*arrays: Any) -> Any:
        shape = arrays[0].shape
        rows = [a.reshape(*shape[:dim], 1, *shape[dim:]) for a in arrays]
        return dispatch.active.concat(rows, dim)

    return stack
