"""One call of a function under a recorder, and what is kept of it: an `Entry` that can be replayed.

If the outputs require gradients, the backward pass is recorded at once, as a second part.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.autograd import engine
from minigrad.autograd.mode import mode
from minigrad.autograd.node import USED_TWICE, Node, attach, edge
from minigrad.compiler import plan
from minigrad.compiler.arrays import TracedArray
from minigrad.compiler.fuse import Fusion
from minigrad.compiler.graph import GIVEN, INPUT, Call
from minigrad.compiler.guards import Watch
from minigrad.compiler.program import Program
from minigrad.compiler.record import Recorder, all_tensors, recording, untrace_graph
from minigrad.tensor import Tensor, wrap
from minigrad.utils._tree import leaves, mapped

_MAX_PROGRAMS = 8  # forward parts whose backward part may still follow


class CompiledNode(Node):
    """The outputs of a replayed forward part."""

    __slots__ = ("entry", "program")

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
        as an array or None). guarded: (tensor, its array, whether it requires a gradient).
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
        self.wanted: list[tuple[Tensor, Tensor | None]] = []
        self.guarded: list[tuple[Tensor, np.ndarray, bool]] = []
        self.counters: list[tuple[list, int]] = []
        self.fusion: Any = None
        self.layout: Any = None
        self.programs: list[_Instance] = []

    def valid(self) -> bool:
        """Whether what it depends on is as it was."""
        for tensor, array, requires_grad in self.guarded:
            if tensor._array is not array or tensor._requires_grad is not requires_grad:
                return False
        for leaf, grad in self.wanted:
            if leaf._grad is not grad:
                return False
        return self.watch.changed() is None

    def instance(self) -> _Instance | None:
        """A program that no later backward pass needs; None if there are too many of them."""
        for found in self.programs:
            if not found.program.busy:
                return found
        if len(self.programs) >= _MAX_PROGRAMS:
            return None
        self.programs.append(_Instance(self))
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
        text = f"{launches} launches, {self.fusion.fused} operations fused into others"
        size, unshared = self.layout.size / 1e6, self.layout.unshared / 1e6
        text += f", {size:.2f} MB of memory ({unshared:.2f} unshared)"
        return text + (f"; from Python: {', '.join(python)}" if python else "")

    def replay(self, found: _Instance, arguments: list[Tensor]) -> Any:
        """Repeat the step in an instance that is free."""
        for place, array, _ in found.inputs:
            array[...] = arguments[place]._array
        found.program.run(0)
        return self.finish(found, arguments)

    def finish(self, found: _Instance, arguments: list[Tensor]) -> Any:
        """What a step leaves behind, from the memory of a program."""
        for place, array, written in found.inputs:
            if written:
                arguments[place]._array[...] = array
        for counter, count in self.counters:
            counter[0] += count
        for leaf, grad in found.gradients:
            (arguments[leaf] if type(leaf) is int else leaf)._grad = grad
        results = []
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
        return _rebuilt(self.tree, results)

    def _node(self, program: Program, arguments: list[Tensor]) -> CompiledNode:
        targets = [arguments[t] if type(t) is int else t for t, _ in self.slopes]
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
        for seed, grad in zip(self.seeds, grads, strict=True):
            program.array(seed)[...] = 0 if grad is None else grad._array
        program.run(1)
        return [None if s is None else wrap(program.array(s).copy()) for _, s in self.slopes]


def _free(program: weakref.ref) -> None:
    found = program()
    if found is not None:
        found.busy = False


class _Instance:
    """A program of an entry, with its views of inputs, outputs and gradients."""

    def __init__(self, entry: Entry) -> None:
        recorder = entry.recorder
        memory, layout = recorder.memory, entry.layout
        program = Program(entry.parts, memory, layout, recorder.placed, recorder.draws)
        self.program = program
        self.inputs = [
            (place, program.array(array), written) for place, array, written in entry.inputs
        ]
        self.outputs = [
            (kind, program.array(value))
            if kind == "array"
            else (kind, (value[0], program.array(value[1])))
            if kind == "slope"
            else (kind, value)
            for kind, value in entry.outputs
        ]
        self.gradients = [
            (leaf, None if array is None else wrap(program.array(array)))
            for leaf, array in entry.gradients
        ]


def _kept(entry: Entry) -> list[np.ndarray]:
    """The arrays that are read after the last call."""
    found = [value for kind, value in entry.outputs if kind == "array"]
    found += [value[1] for kind, value in entry.outputs if kind == "slope"]
    found += [array for _, array in entry.gradients if array is not None]
    found += [array for _, array in entry.slopes if array is not None]
    return found + [array for _, array, written in entry.inputs if written] + entry.seeds


def _rebuilt(tree: Any, values: list) -> Any:
    one = iter(values)
    return mapped(lambda leaf: next(one), tree)


def capture(
    function: Callable, args: tuple, kwargs: dict, fullgraph: bool, watched: Any
) -> tuple[Any, Entry | None, str | None]:
    """(result of the call, an entry, None), or (result, None, why there is none).

    The reason is None with no entry where the step has moved memory, as an optimiser's first step
    does: the next call is recorded.
    """
    recorder = Recorder(fullgraph)
    arguments = distinct_tensors((args, kwargs))
    entry = Entry(recorder, Watch(watched))
    grads = {}
    stand_ins: dict[int, Tensor] = {}
    try:
        for place, tensor in enumerate(arguments):
            if type(tensor._array) is not np.ndarray:
                recorder.stop("an argument that is not in plain memory of the CPU")
                continue
            requires_grad, grads[id(tensor)] = tensor.requires_grad, (tensor, tensor._grad)
            entry.inputs.append((place, recorder.lift_argument(tensor), False))
            if tensor._view is not None or tensor._node is not None:
                stand_ins[id(tensor)] = own = wrap(tensor._array)
                own._counter, own._requires_grad = tensor._counter, requires_grad
        recorder.lift(all_tensors())
        for tensor, _, _ in recorder.lifted.values():
            grads.setdefault(id(tensor), (tensor, tensor._grad))
        replaced = mapped(lambda leaf: stand_ins.get(id(leaf), leaf), (args, kwargs))
        inside = [stand_ins.get(id(t), t) for t in arguments]
        with recording(recorder):
            result = function(*replaced[0], **replaced[1])
            split = len(recorder.calls)
            _backward_part(entry, result, inside)
    except BaseException:
        for tensor in recorder.restore():
            tensor._array = tensor._array.value
        raise
    _describe(entry, result, inside, grads, split)
    changed = entry.watch.changed()
    if changed is not None:
        recorder.stop_quietly(f"it changes the state of Python objects ({changed})")
    expected = {id(t) for t in leaves(result)} | {id(t) for t in stand_ins.values()}
    expected |= {id(t._grad) for t, _ in grads.values()}
    _release(recorder, result, expected)
    back = {id(s): t for t, s in zip(arguments, inside, strict=True)}
    result = mapped(lambda leaf: back.get(id(leaf), leaf), result)
    for place, array, written in entry.inputs:
        if written:
            arguments[place]._array[...] = array
    if recorder.reason is not None or recorder.rebound:
        return result, None, recorder.reason
    _keep_calls(entry, split)
    if any(kind == "slope" for kind, _ in entry.outputs):
        result = _first_result(entry, result, arguments)
    entry.describe()
    return result, entry, None


def distinct_tensors(tree: Any) -> list[Tensor]:
    """The tensors in a tree, each once."""
    return list({id(t): t for t in leaves(tree) if isinstance(t, Tensor)}.values())


def _backward_part(entry: Entry, result: Any, inside: list[Tensor]) -> None:
    """Record the gradients of the outputs with respect to all leaves below them."""
    outputs = [t for t in leaves(result) if isinstance(t, Tensor) and t._node is not None]
    outputs = list({id(t): t for t in outputs}.values())
    if not outputs or entry.recorder.reason is not None:
        return
    numbers = {id(t): i for i, t in enumerate(inside)}
    found = _leaves_below([t._node for t in outputs])
    seeds = [wrap(TracedArray(np.ones(t._array.shape, t._array.dtype))) for t in outputs]
    entry.seeds = [s._array.value for s in seeds]
    for seed in entry.seeds:
        entry.recorder.memory.add(seed, INPUT)
    hooks = [(leaf, leaf._hooks) for leaf in found]
    for leaf in found:
        leaf._hooks = None  # they run where the gradient arrives
    try:
        slopes = engine.grad(outputs, found, seeds, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        if str(error) != USED_TWICE:
            raise
        slopes = ()
        found = []
    finally:
        for leaf, own in hooks:
            leaf._hooks = own
    entry.slopes = [
        (numbers.get(id(leaf), leaf), None if s is None else s._array.value)
        for leaf, s in zip(found, slopes, strict=True)
    ]


def _leaves_below(roots: list[Node]) -> list[Tensor]:
    found: dict[int, Tensor] = {}
    seen, stack = set(roots), list(roots)
    while stack:
        for target in stack.pop().edges:
            if target is None:
                continue
            if isinstance(target[0], Tensor):
                found[id(target[0])] = target[0]
            elif target[0] not in seen:
                seen.add(target[0])
                stack.append(target[0])
    return list(found.values())


def _describe(entry: Entry, result: Any, inside: list, grads: dict, split: int) -> None:
    """What the step returned, and what it did to tensors."""
    recorder, memory = entry.recorder, entry.recorder.memory
    numbers = {id(t): i for i, t in enumerate(inside)}
    heads: dict[int, int] = {}
    entry.tree = mapped(lambda leaf: None, result)
    for leaf in leaves(result):
        if not isinstance(leaf, Tensor):
            entry.outputs.append(("value", leaf))
        elif id(leaf) in numbers:
            entry.outputs.append(("argument", numbers[id(leaf)]))
        elif id(leaf) in recorder.lifted:
            entry.outputs.append(("value", leaf))
        else:
            array = leaf._array.value if type(leaf._array) is TracedArray else leaf._array
            buffer = memory.find(array)
            if leaf._node is not None:
                head = heads.setdefault(id(leaf), len(heads))
                entry.outputs.append(("slope", (head, array)))
            else:
                shared = buffer is not None and buffer.kind == GIVEN
                entry.outputs.append(("alias" if shared else "array", array))
    for tensor, before in grads.values():
        after = tensor._grad
        place = numbers.get(id(tensor), tensor)
        touched = before is not None and id(before._array) in recorder.used
        if touched and place is not tensor:
            recorder.stop_quietly("it adds to the gradient of an argument")
        elif touched:
            entry.wanted.append((tensor, before))
        if after is before:
            continue
        array = None if after is None else after._array
        entry.gradients.append((place, array.value if type(array) is TracedArray else array))
        if before is None and place is tensor:
            entry.wanted.append((tensor, None))
    changed = {id(memory.find(array)) for call in recorder.calls for array in call.writes}
    entry.inputs = [
        (place, array, id(memory.find(array)) in changed) for place, array, _ in entry.inputs
    ]
    for tensor, array, traced in recorder.lifted.values():
        if id(traced) in recorder.used and id(tensor) not in numbers:
            entry.guarded.append((tensor, array, tensor._requires_grad))
    entry.counters = [
        (counter, counter[0] - before)
        for counter, before in {id(c): (c, b) for c, b in recorder.counters}.values()
        if counter[0] != before and id(counter) not in recorder.updated
    ]


def _release(recorder: Recorder, result: Any, expected: set[int]) -> None:
    """Take the traced arrays out of all tensors; others than the expected should not be there."""
    left = recorder.restore()
    graph = any(isinstance(t, Tensor) and t._node is not None for t in leaves(result))
    if not graph and any(id(t) not in expected for t in left):
        recorder.stop_quietly("it keeps a tensor that it computed")
    for tensor in left:
        tensor._array = tensor._array.value
    if graph or recorder.reason is not None:
        untrace_graph()


def _keep_calls(entry: Entry, split: int) -> None:
    """Divide the calls into parts, and fuse what can be."""
    recorder = entry.recorder
    entry.parts = [recorder.part(0, split)]
    if entry.slopes:
        entry.parts.append(recorder.part(split))
    kept = map(recorder.memory.find, _kept(entry))
    entry.fusion = Fusion(entry.parts, recorder.memory, recorder.placed, kept, recorder.lower)
    entry.fusion.run()
    kept = map(recorder.memory.find, _kept(entry))
    calls = list(itertools.chain(*entry.parts))
    entry.layout = plan.layout(calls, recorder.memory, recorder.placed, [b for b in kept if b])
    used = entry.layout.offsets.keys()
    entry.inputs = [one for one in entry.inputs if recorder.memory.find(one[1]) in used]
    recorder.forget()


def _first_result(entry: Entry, result: Any, arguments: list[Tensor]) -> Any:
    """The result of the recorded call, with the node of a replay."""
    found = entry.instance()
    found.program.load()
    counters, gradients = entry.counters, found.gradients
    entry.counters, found.gradients = [], []  # the recorded call has done that
    try:
        again = entry.finish(found, arguments)
    finally:
        entry.counters, found.gradients = counters, gradients
    return again
