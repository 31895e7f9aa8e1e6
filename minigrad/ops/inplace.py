"""In-place operations: the result is written into the tensor's own memory.

A line of the pointwise table writes there at once, unless the gradient needs the old value. Other
values are computed out of place and then copied. Either way the gradient is that of the ordinary
operation. This file adds the checks, the version counter, and for a view a new node of its base
(`CopySlices`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels import dispatch
from minigrad import dtypes
from minigrad._overlap import check_apart, check_no_overlap
from minigrad._view import SEVERAL, View, replay
from minigrad.autograd.function import CHANGED_VIEW
from minigrad.autograd.mode import Unversioned, batching, inferred, mode
from minigrad.autograd.node import Node, attach, edge, identity
from minigrad.backends import array_module
from minigrad.backends.memory import root_of
from minigrad.ops.pointwise import number, onto
from minigrad.ops.views import overwrite
from minigrad.tensor import FUNCTIONS, Tensor, export, type_name, wrap


def inplace(name: str, composed: bool = False, line: bool = False) -> None:
    """Define `Tensor.name_` for an operation whose result has the shape of its first argument."""
    function = getattr(Tensor, name, None) or FUNCTIONS[name]
    setattr(Tensor, f"{name}_", overwriting(name, function, composed, line))


def overwriting(
    name: str, function: Callable, composed: bool = False, line: bool = False
) -> Callable:
    """The form `name_` of an operation, which writes its result into its first argument.

    composed: of several operations, of which the first may save the argument that the last one
    overwrites; they get a copy, as do the hooks of `saved_tensors_hooks`. line: it ends in one line
    of the pointwise table, and reads no element of its first argument before.
    """

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_writable(self)
        check_apart(self, (*args, *kwargs.values()) if kwargs else args)
        copied = (composed or mode.saved_hooks) and mode.enabled and self.requires_grad
        if line and not copied:
            value = onto(self, function, args, kwargs)
            return self if value is self else assign(self, value)
        return assign(self, function(self.clone() if copied else self, *args, **kwargs))

    method.__name__ = method.__qualname__ = f"{name}_"
    vars(method)["__wrapped__"] = function  # for `help`: the same arguments
    before, example, after = (function.__doc__ or "").partition("\n\nExample")
    method.__doc__ = (
        f"`{name}` in place: changes this tensor and returns it.\n\n{before}{example}{after}"
    )
    return method


_OF_SEVERAL = (
    "This view is the output of a function that returns multiple views. Such functions do not "
    "allow the output views to be modified inplace. You should replace the inplace operation by an "
    "out-of-place one."
)

_ONE_OF_SEVERAL = (
    "A view was created in no_grad mode and is being modified inplace with grad mode enabled. "
    + _OF_SEVERAL
)


def _untracked_view(tensor: Tensor, block: str) -> str:
    """What is wrong with a change of a view that was made in a block of that name, or beside
    others."""
    if block == SEVERAL and tensor.grad_fn is None:
        return _ONE_OF_SEVERAL
    if block == SEVERAL:
        title = tensor.grad_fn.name().rstrip("0123456789").removesuffix("Backward")
        return (
            f"Output {tensor.output_nr} of {title} is a view and is being modified inplace. "
            + _OF_SEVERAL
        )
    made, now = {
        "no_grad": ("no_grad mode", "with grad mode enabled"),
        "inference_mode": ("inference mode", "in normal mode"),
    }[block]
    return (
        f"A view was created in {made} and is being modified inplace {now}. Given that this use "
        "case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving "
        f"both the view and the inplace either both inside the {block} block (if you don't want "
        "the inplace to be tracked) or both outside (if you want the inplace to be tracked)."
    )


def check_writable(tensor: Tensor) -> None:
    """RuntimeError if an in-place change can't be recorded, or is one of an inference tensor."""
    if inferred and type(tensor._counter) is Unversioned:
        tensor._counter[0] = 0  # which raises outside of inference mode
    if not mode.enabled:
        return
    view = tensor._view
    if not (tensor._requires_grad if view is None else tensor.requires_grad):
        return
    if view is not None:
        if view.untracked:
            raise RuntimeError(_untracked_view(tensor, view.untracked))
        if view.base._node is None:
            raise RuntimeError(
                "a view of a leaf Variable that requires grad is being used in an in-place "
                "operation."
            )
    if tensor._node is None:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation."
        )


def assign(target: Tensor, value: Tensor) -> Tensor:
    """Write a computed value into a tensor's memory, and make its node that of the tensor."""
    array, new = target._array, value._array
    view = target._view
    if view is not None and view.untracked == SEVERAL and mode.enabled and value._requires_grad:
        raise RuntimeError(_ONE_OF_SEVERAL)
    check_no_overlap(array)
    if new is array:  # a line of the table has written there
        if mode.enabled and (value._requires_grad or target._requires_grad):
            rebase(target, value)
        return target
    if new.shape != array.shape:
        raise RuntimeError(
            f"output with shape {list(array.shape)} doesn't match the broadcast shape "
            f"{list(new.shape)}"
        )
    node = value._node  # which may have saved the target; that of a conversion does not
    if new.dtype != array.dtype:
        if dtypes.category(new.dtype) > dtypes.category(array.dtype):
            names = [
                type_name(t).rpartition(".")[2].removesuffix("Tensor") for t in (value, target)
            ]
            raise RuntimeError(
                f"result type {names[0]} can't be cast to the desired output type {names[1]}"
            )
        value = value.to(target.dtype)
        new = value._array
    if node is not None and node.saved:
        _keep_old_value(target, node)
    write(target, new)
    if mode.enabled and (value._requires_grad or target._requires_grad):
        rebase(target, value)
    return target


def _is_large_view(array: Any) -> bool:
    """Whether NumPy's copy of an array to a contiguous one takes long."""
    if type(array) is not np.ndarray or array.size < 4096:
        return False
    return not array.flags.c_contiguous and 0 not in array.strides


def _is_large(array: Any) -> bool:
    """Whether the array is one piece of memory on the CPU, of more than a few microseconds."""
    return type(array) is np.ndarray and array.nbytes >= _LARGE and array.flags.c_contiguous


_LARGE = 1 << 14  # bytes


def is_zero(value: Any) -> bool:
    """Whether this is a real number of which all bytes are zeros."""
    return isinstance(value, int | float) and value == 0 and math.copysign(1, value) == 1


_NUMBERS = {float, int}


def _fills_at_once(array: Any) -> bool:
    """Whether to fill an array with a number is all there is to do."""
    if mode.recorder is not None or mode.observer is not None or batching:
        return False
    return type(array) is np.ndarray and array.nbytes < _LARGE and array.flags.writeable


def write(target: Tensor, array: Any) -> None:
    """Copy elements into a tensor's memory and increment its version."""
    if type(array) in _NUMBERS and _fills_at_once(target._array):
        target._array.fill(array)
        target._counter[0] += 1
        return
    if not getattr(target._array.flags, "writeable", True):  # CuPy arrays don't have this flag
        raise RuntimeError(
            "in-place operation on a read-only array: the NumPy array behind this tensor isn't "
            "writeable; clone() it first"
        )
    for level in batching:
        level.written(target._array, array)
    if mode.recorder is None:
        if _is_large_view(array) and target._array.dtype == array.dtype:
            array = dispatch.active.copy(array)  # by a transpose in tiles, if it is one
        if is_zero(array) and _is_large(target._array):
            target._array.view(np.uint8).fill(0)  # by memset
        else:
            overwrite(target._array, array)
    else:
        mode.recorder.write(target._array, array)
    target._counter[0] += 1
    if mode.observer is not None:
        mode.observer.wrote(target, array)


def rebase(target: Tensor, value: Tensor) -> None:
    """Make the node of `value` that of `target`; if it is a view, give its base a `CopySlices`."""
    view = target._view
    owner = target if view is None else view.base
    node, index = owner._node, owner._index
    if view is None:
        _replace(target, value)
    else:
        _write_slices(target, view, value)
    if node is not None and node.retained:
        node.move_retained(index, owner)


def _changed_view(view: Tensor, value: Tensor) -> None:
    """A function of the program has written a value into a view."""
    check_writable(view)
    rebase(view, value)


CHANGED_VIEW.append(_changed_view)


def _replace(target: Tensor, value: Tensor) -> None:
    if not value._requires_grad:
        described = ((target._array.shape, target._array.dtype),)
        attach(target, Overwritten((edge(target),), described), 0)
    elif value._node is None:  # the value is a leaf: `Identity` connects to it
        attach(target, identity(value), 0)
    else:
        attach(target, value._node, value._index)


def _write_slices(target: Tensor, view: View, value: Tensor) -> None:
    view.settle(target)
    base = view.base
    shape = ((base._array.shape, base._array.dtype),)
    node = CopySlices((edge(base) if base.requires_grad else None, edge(value)), shape)
    node.chain = view.chain
    of_storage = any(op.of_storage for op, _ in view.chain)
    node.layout = layout(base._array) if of_storage else None
    attach(base, node, 0)
    view.version = -1  # stale: refresh goes through CopySlices
    view.refresh(target)


def _keep_old_value(target: Tensor, node: Node) -> None:
    """If the node saved `target`, which is about to be overwritten, save a copy with the present
    node of `target` instead."""
    if not any(s is target for s in node.saved):
        return
    old = wrap(target._array.copy())
    old._requires_grad, old._node, old._index = target._requires_grad, target._node, target._index
    node.save(tuple([old if s is target else s for s in node.saved]))


class Overwritten(Node):
    """A tensor whose elements were all replaced: its old value has a gradient of zero."""

    __slots__ = ()

    def name(self) -> str:
        return "CopyBackwards"

    def backward(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        return (grads[0].detach().clone().zero_(),)


class CopySlices(Node):
    """A base tensor after one of its views was overwritten.

    The gradient of the old base is zero at the elements of the view; that of the written value is
    this view of the gradient.

    chain: from the base to the view. layout: that of the base, which a view of its storage needs to
        be one of the gradient, too.
    """

    __slots__ = ("chain", "layout")
    chain: tuple
    layout: tuple | None

    def name(self) -> str:
        return "CopySlices"

    def backward(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        place = self.layout
        g: Any = grads[0] if place is None else _laid_out(grads[0], *place)
        to_value = replay(self.chain, g) if self.edges[1] is not None else None
        to_base = None
        if self.edges[0] is not None:
            to_base = g.clone() if place is None else _laid_out(g, *place)
            replay(self.chain, to_base).zero_()
        return (to_base, to_value.clone() if to_value is not None else None)


def layout(array: Any) -> tuple:
    """(shape, strides, position in its storage, elements of its storage), in elements."""
    _, start, stop = root_of(array)
    tensor = wrap(array)
    return array.shape, tensor.stride(), tensor.storage_offset(), stop - start


def _laid_out(tensor: Any, shape: tuple, stride: tuple, offset: int, size: int) -> Tensor:
    """A copy of a tensor in a storage of its own, of that layout."""
    array = tensor._array
    xp = array_module(array)
    steps = tuple(s * array.itemsize for s in stride)
    storage = xp.zeros(size, array.dtype)[offset:]
    return wrap(xp.lib.stride_tricks.as_strided(storage, shape, steps)).copy_(tensor)


def copy_(self: Tensor, other: Any, non_blocking: bool = False) -> Tensor:
    """Copy elements from `other`: a tensor that broadcasts to this shape, of any dtype, or a
    number."""
    check_writable(self)
    src = other
    if not isinstance(src, Tensor):
        return fill_(self, src)
    if src is self:
        return self
    array = self._array
    check_no_overlap(array)
    check_apart(self, (src,))
    if src._array.shape != array.shape:
        src = src.expand(array.shape)
    if src.device != self.device:
        src = src.to(self.device)
    if mode.enabled and (src.requires_grad or self.requires_grad):
        if src._array is array:  # the same elements with another gradient, of which views learn
            self._counter[0] += 1
        return assign(self, src if src._array.dtype == array.dtype else src.to(self.dtype))
    write(self, src._array)
    return self


def fill_(input: Tensor, value: Any) -> Tensor:
    """Set every element to a number or a 0-dimensional tensor."""
    check_writable(input)
    if isinstance(value, Tensor):
        if value._array.ndim:
            raise RuntimeError(
                "fill_ only supports 0-dimension value tensor but got tensor with "
                f"{value._array.ndim} dimensions."
            )
        return copy_(input, value)
    write(input, dtypes.fitting(number("fill_", value), input._array.dtype))
    return _filled(input)


def _filled(input: Tensor) -> Tensor:
    """A tensor that is a constant now."""
    if mode.enabled and input.requires_grad:
        rebase(input, input.detach().clone())
    return input


def zero_(input: Tensor) -> Tensor:
    """Set every element to zero."""
    check_writable(input)
    write(input, 0)
    return _filled(input)


for _function in (copy_, fill_, zero_):
    setattr(Tensor, _function.__name__, _function)
FUNCTIONS |= {"fill_": fill_, "zero_": zero_}


@export(function=False)
def apply_(self: Tensor, callable: Callable) -> Tensor:
    """Each element becomes callable(element), a Python call for each; on a CPU, and slow."""
    return _each("apply_", self, callable)


@export(function=False)
def map_(self: Tensor, tensor: Tensor, callable: Callable) -> Tensor:
    """Each element becomes callable(element, that of `tensor`), which broadcasts to this one; on a
    CPU, and slow."""
    if tensor._array.dtype != self._array.dtype:
        raise TypeError(f"map_: expected {type_name(self)} for 'other' (got {type_name(tensor)})")
    return _each("map_", self, callable, tensor.expand(self.shape))


def _each(name: str, self: Tensor, callable: Callable, *others: Tensor) -> Tensor:
    if self.requires_grad or any(other.requires_grad for other in others):
        raise RuntimeError(
            f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() "
            "instead."
        )
    if self.is_cuda:
        raise TypeError(f"{name} is only implemented on CPU tensors")
    check_writable(self)
    columns = [x._array.ravel().tolist() for x in (self, *others)]
    found = [callable(*values) for values in zip(*columns, strict=True)]
    if any(isinstance(value, str) or not hasattr(value, "__float__") for value in found):
        bad = next(v for v in found if isinstance(v, str) or not hasattr(v, "__float__"))
        raise TypeError(f"must be real number, not {type(bad).__name__}")
    write(self, np.reshape(found, self._array.shape).astype(self._array.dtype))
    return self
