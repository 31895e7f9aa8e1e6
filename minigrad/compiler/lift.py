"""Traced arrays in place of those of all tensors, and back again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.launchers.common import empty
from minigrad.autograd.mode import mode
from minigrad.autograd.node import OpNode
from minigrad.backends import current
from minigrad.compiler.arrays import TracedArray, is_plain, plain
from minigrad.compiler.graph import INPUT, Buffer, Memory
from minigrad.compiler.places import (
    ALIGNMENT,
    WORD,
    address,
    bounds,
    device_of,
    may_share,
    memory,
    owner_of,
    sharing,
    view,
)
from minigrad.ops.sparse_tensor import SparseTensor
from minigrad.tensor import Tensor, every_attribute


class Lifted:
    """What a recorder knows of the tensors that there were before the step.

    lifted: by id, a tensor, its array and the traced one. counters: version counters, and their
    values before the step. replaced: whether the step gave one of them another array.
    """

    def __init__(self) -> None:
        self.memory = Memory()
        self.lifted: dict[int, tuple[Tensor, np.ndarray, TracedArray]] = {}
        self.counters: list[tuple[list, int]] = []
        self.replaced = False
        self._roots: set[int] = set()  # ids of the arrays that own their memory
        self._traced: dict[int, TracedArray] = {}
        self._arguments: set[int] = set()  # ids of tensors

    def trace(self, array: np.ndarray) -> TracedArray:
        """The traced array of an array: always the same."""
        if id(array) not in self._traced:
            self._traced[id(array)] = TracedArray(array)
        return self._traced[id(array)]

    def lift(self, tensors: Iterator[Tensor]) -> None:
        """Give tensors traced arrays."""
        for tensor in tensors:
            array: Any = every_attribute(tensor).get("_array")
            if is_plain(array) and id(tensor) not in self.lifted:
                self._roots.add(id(owner_of(array)))
                traced = self.trace(array)
                self.lifted[id(tensor)] = (tensor, array, traced)
                self.counters.append((tensor._counter, tensor._counter[0]))
                tensor._array = traced

    def lift_argument(self, tensor: Tensor, memory: Any = None) -> np.ndarray:
        """Give an argument a traced copy of its elements; returns the copy. memory: bytes that
        arguments share as their own memory, and the address that these stand for."""
        array = tensor._array
        with current.of((array,)):
            if memory is not None:
                raw, start = memory
                buffer = view(raw, address(array) - start, array.shape, array.dtype, array.strides)
                buffer[...] = array
            else:
                buffer = self._copy(array)
        self._arguments.add(id(tensor))
        self._traced[id(array)] = TracedArray(buffer)
        self.lifted[id(tensor)] = (tensor, array, self._traced[id(array)])
        self.counters.append((tensor._counter, tensor._counter[0]))
        tensor._array = self._traced[id(array)]
        return buffer

    def trace_tensors_in(self, buffer: Buffer) -> None:
        """Tensors that the step has made hold arrays of NumPy as long as these are constants: what
        NumPy computes with them is one, too. Now this memory changes."""
        for tensor in all_tensors():
            array: Any = every_attribute(tensor).get("_array")
            if is_plain(array) and self.memory.find(array) is buffer:
                tensor._array = TracedArray(array)

    def _copy(self, array: np.ndarray) -> np.ndarray:
        once = array[tuple([slice(0, 1) if step == 0 else slice(None) for step in array.strides])]
        buffer = empty(once.shape, array.dtype, array)
        buffer[...] = once
        self.memory.add(buffer, INPUT)
        if once.shape == array.shape:
            return buffer
        pairs = zip(buffer.strides, array.strides, strict=True)  # into an expanded array nothing
        steps = tuple([0 if step == 0 else new for new, step in pairs])  # can be written
        return view(buffer, 0, array.shape, array.dtype, steps)

    def shared_memory(self, tensors: list[Tensor]) -> dict[int, Any]:
        """For arguments that share memory, by id, memory in which their copies do, too."""
        found: dict[int, Any] = {}
        for group in sharing([(t, t._array) for t in tensors]):
            spans = [bounds(array) for _, array in group]
            start = min(first for first, _ in spans) // WORD * WORD
            raw = memory(max(last for _, last in spans) - start, ALIGNMENT, device_of(group[0][1]))
            self.memory.add(raw, INPUT)
            found |= {id(tensor): (raw, start) for tensor, _ in group}
        return found

    def before_change(self, array: np.ndarray) -> bool:
        """Before memory of other tensors changes: arguments that lie in it are no copies any more.
        Whether there are any."""
        found = False
        for number, (_, own, traced) in self.lifted.items():
            copied = number in self._arguments and traced.value is not own
            if copied and may_share(own, array):
                with current.of((own,)):
                    own[...] = traced.value
                traced.value, found = own, True
        return found

    @contextmanager
    def unlifted(self, optimizer: Any) -> Iterator[None]:
        """Arrays that are not traced in all lifted tensors and in the gradients."""
        params = [p for group in optimizer.param_groups for p in group["params"]]
        grads = [
            p._grad._elements if isinstance(p._grad, SparseTensor) else p._grad
            for p in params
            if p._grad is not None
        ]
        traced = {id(g): (g, g._array) for g in grads if type(g._array) is TracedArray}
        for tensor, array, mine in self.lifted.values():
            if tensor._array is mine:
                tensor._array = array
        for tensor, found in traced.values():
            tensor._array = found.value
        recorder, mode.recorder = mode.recorder, None
        outside = dispatch.active
        dispatch.active = getattr(outside, "dialect", outside)
        try:
            yield
        finally:
            mode.recorder, dispatch.active = recorder, outside
            for tensor, array, mine in self.lifted.values():
                if tensor._array is array:
                    tensor._array = mine
            for tensor, found in traced.values():
                tensor._array = found

    def restore(self) -> list[Tensor]:
        """Give lifted tensors their arrays back; returns all other tensors with traced ones."""
        for tensor, array, mine in self.lifted.values():
            if tensor._array is mine:
                tensor._array = array
            elif type(tensor._array) is TracedArray:
                tensor._array = tensor._array.value
                self.replaced = True
        return [t for t in _alive(Tensor) if type(every_attribute(t).get("_array")) is TracedArray]


def _alive(kind: type) -> list[Any]:
    """All objects of a class and of those below it: what refers to these classes. Not by way of
    all objects: Python refuses to resize a tuple (`tuple(generator)` in another thread) that is
    held twice."""
    kinds = [kind]
    for known in kinds:
        kinds += known.__subclasses__()
    return [o for o in gc.get_referrers(*kinds) if issubclass(type(o), kind)]


def all_tensors() -> Iterator[Tensor]:
    """All tensors of this process."""
    return iter(_alive(Tensor))


def untrace_graph() -> None:
    """Give recorded operations that are still alive arrays that are not traced."""
    for node in _alive(OpNode):
        if getattr(node, "attrs", None):
            node.attrs = plain(node.attrs)
