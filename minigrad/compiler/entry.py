"""A recording that can be replayed, and the node that stands for it in a graph."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from operator import attrgetter, is_
from typing import Any

import numpy as np

from minigrad.autograd.mode import mode
from minigrad.autograd.node import Node, attach, edge
from minigrad.backends import current
from minigrad.compiler.graph import Call
from minigrad.compiler.guards import Watch
from minigrad.compiler.program import Program
from minigrad.compiler.record import Recorder
from minigrad.tensor import Tensor, wrap
from minigrad.utils._pytree import tree_map

_MAX_PROGRAMS = 8  # forward parts whose backward part may still follow


class CompiledNode(Node):
    """The outputs of a replayed forward part."""

    __slots__ = ("entry", "program")

    opaque = True
    entry: Entry
    program: Program

    def name(self) -> str:
        return "CompiledFunctionBackward"

    def backward(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        self.unpack()
        if mode.enabled:
            raise RuntimeError(
                "compile: a compiled function cannot be differentiated twice (create_graph=True);"
                " call the function that is not compiled"
            )
        return self.entry.backward(self.program, grads)

    def release(self) -> None:
        super().release()
        self.program.busy = False


class Entry:
    """A recording of a function for one signature.

    inputs: (number of the argument, its array in the recording, whether the step writes it).
    outputs: per leaf of the result (kind, value), see `capture`. gradients: (leaf, its new `.grad`
        as an array or None). expected: by the name of an attribute, tensors and what it is of each.
    """

    def __init__(self, recorder: Recorder, watch: Watch) -> None:
        self.recorder, self.watch = recorder, watch
        self.parts: list[list[Call]] = []
        self.inputs: list[tuple[int, np.ndarray, bool]] = []
        self.tree: Any = None
        self.outputs: list[tuple[str, Any]] = []
        self.slopes: list[tuple[Tensor | int, np.ndarray | None]] = []
        self.seeds: list[np.ndarray] = []
        self.gradients: list[tuple[Tensor | int, np.ndarray | None]] = []
        self.expected: dict[str, tuple[list[Tensor], list]] = {}
        self.counters: list[tuple[list | int, int]] = []  # an argument's by its number
        self.fused = 0
        self.layout: Any = None
        self.programs: list[Instance] = []

    def expect(self, tensor: Tensor, **attributes: Any) -> None:
        """It is valid while a tensor has these attributes."""
        for name, value in attributes.items():
            tensors, values = self.expected.setdefault(name, ([], []))
            tensors.append(tensor)
            values.append(value)

    def valid(self) -> bool:
        """Whether what it depends on is as it was."""
        for name, (tensors, values) in self.expected.items():
            if not all(map(is_, map(attrgetter(name), tensors), values)):
                return False
        for again, value in self.recorder.numbers.conditions:
            if again() != value:
                return False
        return self.watch.changed() is None

    def instance(self) -> Instance | None:
        """A program that no later backward pass needs; None if there are too many of them."""
        for found in self.programs:
            if not found.program.busy:
                return found
        if len(self.programs) >= _MAX_PROGRAMS:
            return None
        self.programs.append(Instance(self))
        return self.programs[-1]

    def describe(self) -> None:
        """Let go of the memory of the recording."""
        memory = self.recorder.memory
        place = memory.described
        for call in itertools.chain(*self.parts):
            call.describe(memory)
        self.inputs = [(number, place(a), written) for number, a, written in self.inputs]
        self.outputs = [
            (kind, (value[0], place(value[1])) if kind == "slope" else place(value))
            for kind, value in self.outputs
        ]
        self.slopes = [(leaf, place(array)) for leaf, array in self.slopes]
        self.gradients = [(leaf, place(array)) for leaf, array in self.gradients]
        self.seeds = [place(array) for array in self.seeds]
        memory.release()

    def kernels(self) -> list[Any]:
        """The kernels that fusion has generated."""
        return [kernel for call in itertools.chain(*self.parts) for kernel in call.kernels]

    def summary(self) -> str:
        """One line about it."""
        calls = list(itertools.chain(*self.parts))
        launches = sum(len(call.launches or ()) for call in calls)
        python = [call.name for call in calls if call.launches is None]
        text = f"{launches} launches, {self.fused} operations fused into others"
        size, unshared = self.layout.size / 1e6, self.layout.unshared / 1e6
        text += f", {size:.2f} MB of memory ({unshared:.2f} unshared)"
        return text + (f"; from Python: {', '.join(python)}" if python else "")

    def replay(self, found: Instance, arguments: list[Tensor]) -> Any:
        """Repeat the step in an instance that is free."""
        with current.numbered(self.layout.device):
            for place, array, _ in found.inputs:
                array[...] = arguments[place]._array
            found.program.run(0)
            for count in self.recorder.updates.after:
                count()
            for counter, more in self.counters:
                own = arguments[counter]._counter if isinstance(counter, int) else counter
                own[0] += more
            any(map(setattr, found.leaves, itertools.repeat("_grad"), found.grads))  # a loop of C's
            for place, grad in found.gradients:
                arguments[place]._grad = grad
            return self.finish(found, arguments)

    def finish(self, found: Instance, arguments: list[Tensor]) -> Any:
        """The results of a step, and the arguments that it writes, from the memory of a program."""
        for place, array, written in found.inputs:
            if written:
                arguments[place]._array[...] = array
        results: list[Any] = []
        node = None
        for kind, value in found.outputs:
            if kind == "array":
                results.append(wrap(value.copy()))
            elif kind == "argument":
                results.append(arguments[value])
            elif kind == "alias":
                results.append(wrap(value))
            elif kind == "slope":
                node = node or self._node(found.program, arguments)
                results.append(attach(wrap(value[1].copy()), node, value[0]))
            else:
                results.append(value)
        return results[0] if self.tree is None else _rebuilt(self.tree, results)

    def _node(self, program: Program, arguments: list[Tensor]) -> CompiledNode:
        # the leaves, some of which are arguments of this call
        targets = [arguments[leaf] if isinstance(leaf, int) else leaf for leaf, _ in self.slopes]
        node = CompiledNode(
            tuple([edge(t) for t in targets]), tuple([(s.shape, s.dtype) for s in self.seeds])
        )
        node.entry, node.program = self, program
        node.save((program,))
        if len(self.parts) > 1:
            program.busy = True
            weakref.finalize(node, _free, weakref.ref(program)).atexit = False
        else:
            node.saved = None  # the step has run its own backward pass
        return node

    def backward(self, program: Program, grads: list[Tensor | None]) -> list[Tensor | None]:
        """Replay the backward part."""
        with current.numbered(self.layout.device):
            for seed, grad in zip(self.seeds, grads, strict=True):
                program.array(seed)[...] = 0 if grad is None else grad._array
            program.run(1)
            return [None if s is None else wrap(program.array(s).copy()) for _, s in self.slopes]


def _free(program: weakref.ref) -> None:
    found = program()
    if found is not None:
        found.busy = False


class Instance:
    """A program of an entry, with its views of inputs, outputs and gradients.

    leaves, grads: tensors whose `.grad` a replay sets. gradients: the same of arguments.
    """

    def __init__(self, entry: Entry) -> None:
        recorder = entry.recorder
        memory, layout = recorder.memory, entry.layout
        random = recorder.draws, recorder.drawn
        program = Program(entry.parts, memory, layout, recorder.placed, *random)
        self.program = program
        self.inputs = [
            (place, program.array(array), written) for place, array, written in entry.inputs
        ]
        self.outputs: list[tuple[str, Any]] = [
            (kind, program.array(value))
            if kind == "array"
            else (kind, (value[0], program.array(value[1])))
            if kind == "slope"
            else (kind, value)
            for kind, value in entry.outputs
        ]
        self.leaves: list[Tensor] = []
        self.grads: list[Tensor | None] = []
        self.gradients: list[tuple[int, Tensor | None]] = []  # of arguments
        for leaf, array in entry.gradients:
            grad = None if array is None else wrap(program.array(array))
            if isinstance(leaf, int):
                self.gradients.append((leaf, grad))
            else:
                self.leaves.append(leaf)
                self.grads.append(grad)


def kept_arrays(entry: Entry) -> list[np.ndarray]:
    """The arrays that are read after the last call."""
    found = [value for kind, value in entry.outputs if kind == "array"]
    found += [value[1] for kind, value in entry.outputs if kind == "slope"]
    found += [array for _, array in entry.gradients if array is not None]
    found += [array for _, array in entry.slopes if array is not None]
    return found + [array for _, array, written in entry.inputs if written] + entry.seeds


def _rebuilt(tree: Any, values: list) -> Any:
    one = iter(values)
    return tree_map(lambda leaf: next(one), tree)
