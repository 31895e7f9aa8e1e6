"""Calls of `vmap` in force, and how tensors enter and leave them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from kernels import dispatch, launchers
from kernels.support import forks
from minigrad.autograd.mode import batching, crossing, joining, mode
from minigrad.autograd.node import Op
from minigrad.backends import array_module, every_element
from minigrad.batching.arrays import (
    Batch,
    BatchedArray,
    Unbatchable,
    call,
    check_target,
    levels_of,
)
from minigrad.ops.views import ViewOp
from minigrad.tensor import Tensor

DRAWN = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
    "'different' randomness flags on vmap or perform the randomness operation out of vmap"
)

_numbers = itertools.count()
_changing = forks.rlock()
_blocks = [0]  # how many blocks let the dialect take batched arrays


class Refused(RuntimeError):
    """An error of vmap itself, which calls for each element would hide."""


class _Dialect:
    """Stands for the dialect in use while there are batched arrays."""

    def __init__(self, dialect: Any) -> None:
        self.dialect = dialect

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.dialect, name)
        declared = launchers.operations().get(name)
        if declared is None:
            return function

        def operation(*args: Any, **kwargs: Any) -> Any:
            for target in declared.written(*args, **kwargs) if name != "pointwise" else ():
                check_target(target, args)
            return call(function, args, kwargs, name)

        setattr(self, name, operation)
        return operation


def take_batched() -> None:
    """Let the dialect in use take batched arrays, until `take_plain`."""
    with _changing:
        _blocks[0] += 1
        if _blocks[0] == 1:
            stand_in: Any = _Dialect(dispatch.dialect(dispatch.backend()))
            dispatch.active = stand_in


def take_plain() -> None:
    """End of what `take_batched` began."""
    with _changing:
        _blocks[0] -= 1
        if not _blocks[0]:
            dispatch.active = dispatch.dialect(dispatch.backend())


class Level:
    """A block in which one call of `vmap` runs its function.

    randomness: "error" raises where random numbers are drawn, "different" `Unbatchable`.
    """

    def __init__(self, randomness: str) -> None:
        self.number, self.randomness = next(_numbers), randomness
        self.thread = threading.get_ident()

    def __enter__(self) -> Level:
        crossing[:], joining[:] = [_crossed], [_joined]
        batching.append(self)
        take_batched()
        return self

    def __exit__(self, *error: Any) -> None:
        take_plain()
        batching.remove(self)

    @staticmethod
    def written(target: Any, value: Any) -> None:
        """A value is about to be written into the memory of a tensor."""
        check_target(target, (value,), Refused)

    @staticmethod
    def called(function: Any, args: tuple) -> None:
        """A function of the program with a gradient of its own is about to be recorded. The
        gradient may run when there is no way back to calls for each element."""
        batched = any(isinstance(a, Tensor) and levels_of(a._array) for a in args)
        if batched and not function.generate_vmap_rule:
            raise Unbatchable(f"vmap: {function.__name__} without generate_vmap_rule = True")

    def drawn(self) -> None:
        """Random numbers are about to be drawn."""
        if self.thread != threading.get_ident() or self.randomness == "same":
            return
        if self.randomness == "different":
            raise Unbatchable("vmap: random numbers that differ from element to element")
        raise Refused(DRAWN)


def _crossed(grad: Tensor, shape: tuple, stored: bool = False) -> Tensor:
    """A gradient as it goes on to a tensor of a shape: the sum over the elements of levels that
    the tensor has not, and that are not in force (which see a gradient for each element). stored:
    it is added to the tensor's `.grad`, which takes the sum in all cases."""
    if type(grad._array) is not BatchedArray:
        return grad
    for level in _left_behind(grad._array, shape, stored):
        grad = Sum.apply(grad, level=level)
    return grad


def _left_behind(array: Any, shape: tuple, stored: bool = False) -> list[int]:
    """The levels of a gradient that does not have them any more once it is that of a tensor of a
    shape."""
    if type(array) is not BatchedArray:
        return []
    kept = {*getattr(shape, "levels", ()), *([] if stored else [b.number for b in batching])}
    return [level for level in levels_of(array) if level not in kept]


def _joined(x: Tensor, y: Tensor, shape: tuple, of_x: int, of_y: int) -> tuple[Tensor, Tensor]:
    """Two factors, the first of which may be an index, whose product will be the gradient of a
    tensor of a shape, such as the weight of a layer that all elements share. The product sums over
    elements, too, along a dimension of each factor: none is made for each of them."""
    first, second = (_left_behind(factor._array, shape) for factor in (x, y))
    for level in dict.fromkeys((*first, *second)):
        if level not in first:
            y = Sum.apply(y, level=level)
        elif level in second or not x.is_floating_point():
            size = _size_of(x._array, level)
            x, y = _in_a_row(x, level, of_x, size), _in_a_row(y, level, of_y, size)
        else:
            x = Sum.apply(x, level=level)
    return x, y


def _in_a_row(x: Tensor, level: int, dim: int, size: int) -> Tensor:
    """The elements of a level side by side along a dimension."""
    shape = x._array.shape
    dim %= len(shape)
    found = Exit.apply(x, level=level, dim=dim, size=size)
    return found.reshape(*shape[:dim], size * shape[dim], *shape[dim + 1 :])


def _size_of(array: Any, level: int) -> int:
    """How many elements an array has at one of its levels."""
    while array.level != level:
        array = array.whole
    return len(array.whole)


def _under(array: Any, level: int, function: Callable, dim: int) -> Any:
    """function(array, dim), below newer levels of the array: each adds a dimension in front."""
    if type(array) is BatchedArray and array.level > level:
        return BatchedArray(_under(array.whole, level, function, dim + 1), array.level)
    return function(array, dim)


class Enter(ViewOp):
    """A tensor in a level: the elements along a dimension."""

    @staticmethod
    def forward(x: Any, level: int, dim: int) -> Any:
        def entered(array: Any, dim: int) -> Any:
            return BatchedArray(array if not dim else _moved(array, dim, 0), level)

        return _under(x, level, entered, dim)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, level: int, dim: int) -> tuple:
        return (Exit.apply(g, level=level, dim=dim, size=ctx.shapes[0][dim]),)


class Exit(Op):
    """The elements of a level along a new dimension; a tensor without the level is repeated."""

    saves = ()

    @staticmethod
    def forward(x: Any, level: int, dim: int, size: int) -> Any:
        def left(array: Any, dim: int) -> Any:
            batch = Batch(level, size, left)
            whole = batch.full(array)
            shared = not batch.has(array) or every_element(whole).base is not None
            whole = _moved(whole, 0, dim) if dim else whole
            return whole.copy() if shared else whole

        return _under(x, level, left, dim)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, level: int, dim: int, size: int) -> tuple:
        _enter_pass()
        return (Enter.apply(g, level=level, dim=dim),)


class Sum(Op):
    """The sum over the elements of a level."""

    saves = ()

    @staticmethod
    def forward(x: Any, level: int) -> Any:
        def summed(array: Any, dim: int) -> Any:
            if array.dtype.kind == "c":  # kernels add no complex numbers
                return array_module(array.whole).sum(array.whole, axis=(0,))
            return dispatch.active.reduce("sum", array.whole, (0,), False, array.dtype)

        return _under(x, level, summed, 0)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, level: int) -> tuple:
        _enter_pass()
        return (g,)


def _enter_pass() -> None:
    """Let the rest of the backward pass that runs take batched arrays: it enters a level."""
    run = mode.running
    if mode.recorder is not None:
        mode.recorder.stop("the gradient of a vmap that ran before the step")
    if run.after is None:
        take_batched()
        run.after = take_plain


def _moved(array: Any, source: int, destination: int) -> Any:
    order = [*range(array.ndim)]
    order.insert(destination, order.pop(source))
    return array.transpose(order)
