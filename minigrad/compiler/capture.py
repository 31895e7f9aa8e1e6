"""One call of a function under a recorder, and what is kept of it: an `Entry` that can be replayed.

If the outputs require gradients, the backward pass is recorded at once, as a second part.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.launchers.common import empty
from kernels.support.errors import LaunchError
from minigrad._view import View
from minigrad.autograd import engine
from minigrad.autograd.mode import mode
from minigrad.autograd.node import USED_TWICE, Identity, Node, attach, edge
from minigrad.backends import current
from minigrad.compiler import plan
from minigrad.compiler.arrays import TracedArray, is_plain, plain
from minigrad.compiler.attach import Attachment
from minigrad.compiler.entry import Entry, kept_arrays
from minigrad.compiler.fuse import Fusion
from minigrad.compiler.graph import GIVEN, INPUT
from minigrad.compiler.guards import Watch
from minigrad.compiler.lift import all_tensors, untrace_graph
from minigrad.compiler.places import address, is_array, overlap, owner_of, view
from minigrad.compiler.record import Recorder, recording, traced_arrays
from minigrad.ops.inplace import check_writable, rebase
from minigrad.ops.sparse_tensor import SparseTensor
from minigrad.tensor import Tensor, wrap
from minigrad.utils._pytree import tree_leaves, tree_map


def capture(
    function: Callable, args: tuple, kwargs: dict, fullgraph: bool, watched: Any
) -> tuple[Any, Entry | None, str | None]:
    """(result of the call, an entry, None), or (result, None, why there is none).

    The reason is None with no entry where the step has moved memory, as an optimiser's first step
    does: the next call is recorded.
    """
    recorder = Recorder(fullgraph)
    with traced_arrays(recorder):
        try:
            entry, split, result = _captured(recorder, function, args, kwargs, watched)
        except BaseException:
            for tensor in recorder.restore():
                tensor._array = tensor._array.value
            untrace_graph()
            raise
    devices = recorder.memory.devices() or {None}
    if len(devices) > 1:
        recorder.stop_quietly("arrays in the memory of several devices")
    with current.numbered(next(iter(devices)) if len(devices) == 1 else None):
        return _prepared(entry, split, result, distinct_tensors((args, kwargs)))


def _captured(
    recorder: Recorder, function: Callable, args: tuple, kwargs: dict, watched: Any
) -> tuple[Entry, int, Any]:
    """The entry so far, how many calls its forward part has, and the result of the call."""
    arguments = distinct_tensors((args, kwargs))
    entry = Entry(recorder, Watch(watched))
    if entry.watch.unknown is not None:
        recorder.stop(f"it uses {entry.watch.unknown}")
    grads, stand_ins = _lift_arguments(entry, arguments)
    recorder.lift(all_tensors())
    for tensor, _, _ in recorder.lifted.values():
        grads.setdefault(id(tensor), (tensor, tensor._grad))
    replaced = tree_map(lambda leaf: stand_ins.get(id(leaf), leaf), (args, kwargs))
    inside = [stand_ins.get(id(t), t) for t in arguments]
    nodes = [(t, t._node) for t in (*inside, *(t for t, _, _ in recorder.lifted.values()))]
    with recording(recorder):
        result = function(*replaced[0], **replaced[1])
        if any(t._node is not node for t, node in nodes):
            recorder.stop_quietly("it makes a tensor part of a graph in place")
        for leaf in tree_leaves(result):
            if isinstance(leaf, SparseTensor):
                recorder.stop_quietly("it returns a sparse tensor")
            elif isinstance(leaf, Tensor):
                leaf.requires_grad  # noqa: B018 - a view of what has changed gets its node
        split = len(recorder.calls)
        _backward_part(entry, result, inside)
    numbers = {id(t): i for i, t in enumerate(inside)}
    _describe_outputs(entry, result, numbers)
    _describe_gradients(entry, numbers, grads)
    _describe_changes(entry, inside)
    changed = entry.watch.changed()
    if changed is not None:
        recorder.stop_quietly(f"it changes the state of Python objects ({changed})")
    if entry.watch.drew():
        recorder.stop_quietly("it draws random numbers of Python or NumPy")
    expected = {id(t) for t in tree_leaves(result)} | {id(t) for t in stand_ins.values()}
    expected |= {id(t._grad) for t, _ in grads.values()}
    views = [t._view for t in tree_leaves(result) if isinstance(t, Tensor)]
    expected |= {id(view.base) for view in views if view is not None}
    _release(recorder, result, expected)
    _return_views(entry, result, arguments)
    return entry, split, _hand_back(entry, result, arguments, inside)


def _lift_arguments(
    entry: Entry, arguments: list[Tensor]
) -> tuple[dict[int, tuple[Tensor, Tensor | None]], dict[int, Tensor]]:
    """The arguments become inputs of the entry. Returns, by id of an argument, it and its gradient,
    and what the step gets in its place, where that is another tensor."""
    recorder = entry.recorder
    grads, stand_ins = {}, {}
    shared = recorder.shared_memory([t for t in arguments if is_plain(t._array)])
    for place, tensor in enumerate(arguments):
        if not is_plain(tensor._array):
            recorder.stop("an argument that is no array of NumPy or CuPy")
            continue
        grads[id(tensor)] = (tensor, tensor._grad)
        entry.inputs.append((place, recorder.lift_argument(tensor, shared.get(id(tensor))), False))
        if tensor._view is not None or tensor._node is not None:
            stand_ins[id(tensor)] = _stand_in(tensor)
    for tensor in arguments:
        if tensor._view is not None and id(tensor) in stand_ins:
            stand_ins[id(tensor)]._view = _same_view(tensor, stand_ins)
    return grads, stand_ins


def _hand_back(entry: Entry, result: Any, arguments: list[Tensor], inside: list[Tensor]) -> Any:
    """The result with arguments for their stand-ins; what was written is copied into arguments."""
    for tensor, own in zip(arguments, inside, strict=True):
        if tensor._view is not None or own is tensor:  # the graph of a view is that of its base
            continue
        if type(own._node) is not Boundary and own._node is not None:
            check_writable(tensor)
            rebase(tensor, own)
    back = {id(s): t for t, s in zip(arguments, inside, strict=True)}
    for leaf in tree_leaves(result):
        if isinstance(leaf, Tensor) and leaf._view is not None:
            leaf._view.base = back.get(id(leaf._view.base), leaf._view.base)
    for place, array, written in entry.inputs:
        if written and entry.recorder.lifted[id(arguments[place])][2].value is array:
            with current.of((array,)):
                arguments[place]._array[...] = array
    return tree_map(lambda leaf: back.get(id(leaf), leaf), result)


def _prepared(
    entry: Entry, split: int, result: Any, arguments: list[Tensor]
) -> tuple[Any, Entry | None, str | None]:
    """The result, the entry if it can be replayed, and the reason if it cannot."""
    recorder = entry.recorder
    if recorder.reason is not None or recorder.updates.rebound:
        recorder.forget()
        return result, None, recorder.reason
    _keep_calls(entry, split)
    if any(kind == "slope" for kind, _ in entry.outputs):
        result = _first_result(entry, arguments)
    entry.describe()
    if entry.layout.device is not None:
        try:
            entry.instance()
        except (LaunchError, RuntimeError) as error:  # CuPy's are RuntimeErrors
            return result, None, f"its launches cannot be captured as a CUDA graph: {error}"
    return result, entry, None


class Boundary(Identity):
    """An argument that is itself a result: where the graph of a step begins."""

    __slots__ = ()

    def backward(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        if mode.recorder is not None:
            mode.recorder.stop("its backward pass goes on through an argument")
        return super().backward(grads)


def _stand_in(tensor: Tensor) -> Tensor:
    """What a step gets for an argument that is a view, or a result."""
    own = wrap(tensor._array)
    own._counter = tensor._counter
    if tensor.requires_grad:
        described = ((tensor._array.shape, tensor._array.dtype),)
        attach(own, Boundary((edge(tensor),), described), 0)
    return own


def _same_view(tensor: Tensor, stand_ins: dict[int, Tensor]) -> View:
    """The view of an argument, for its stand-in: another argument may be its base, or a view of
    the same memory, and gets its gradients through an in-place change of this one."""
    tensor.requires_grad  # noqa: B018 - up to date
    view = tensor._view
    assert view is not None
    base = stand_ins.get(id(view.base), view.base)
    return View(base, view.chain, tensor._counter[0], view.untracked)


def distinct_tensors(tree: Any) -> list[Tensor]:
    """The tensors in a tree, each once."""
    return list({id(t): t for t in tree_leaves(tree) if isinstance(t, Tensor)}.values())


def _return_views(entry: Entry, result: Any, arguments: list[Tensor]) -> None:
    """Results that are views of an argument's copy become views of the argument."""
    known = {id(t) for t in arguments}
    found = {id(entry.recorder.memory.find(copy)): (n, copy) for n, copy, _ in entry.inputs}
    for leaf in tree_leaves(result):
        if not isinstance(leaf, Tensor) or id(leaf) in known or isinstance(leaf, SparseTensor):
            continue
        if not is_array(leaf._array):
            continue
        buffer = entry.recorder.memory.find(leaf._array)
        if buffer is None or id(buffer) not in found:
            continue
        number, copy = found[id(buffer)]
        array = arguments[number]._array
        owner = owner_of(array)
        if array.strides == copy.strides and owner.flags.c_contiguous:
            mine = leaf._array
            start = address(array) - address(owner) + address(mine) - address(copy)
            raw = owner.reshape(-1).view(np.uint8)
            leaf._array = view(raw, start, mine.shape, mine.dtype, mine.strides)


def _backward_part(entry: Entry, result: Any, inside: list[Tensor]) -> None:
    """Record the gradients of the outputs with respect to all leaves below them."""
    outputs = [t for t in tree_leaves(result) if isinstance(t, Tensor) and t._node is not None]
    numbers = {id(t): i for i, t in enumerate(inside)}
    outputs = list({id(t): t for t in outputs if id(t) not in numbers}.values())
    if not outputs or entry.recorder.reason is not None:
        return
    found = _leaves_below(
        [t._node for t in outputs], {t._node: t for t in inside if t._node is not None}
    )
    seeds = [wrap(TracedArray(_ones_like(t._array.value))) for t in outputs]
    entry.seeds = [s._array.value for s in seeds]
    for seed in entry.seeds:
        entry.recorder.memory.add(seed, INPUT)
    hooks = [(leaf, leaf._hooks) for leaf in found]
    for leaf in found:
        leaf._hooks = None  # they run where the gradient arrives
    try:
        slopes = engine.grad(outputs, found, seeds, retain_graph=True, allow_unused=True)
    except Exception as error:  # the caller may never ask for gradients
        if str(error) != USED_TWICE:
            entry.recorder.stop_quietly(f"its backward pass fails: {error}")
        slopes = ()
        found = []
    finally:
        for leaf, own in hooks:
            leaf._hooks = own
    if any(isinstance(s, SparseTensor) for s in slopes):
        entry.recorder.stop_quietly("its backward pass computes a sparse gradient")
        return
    entry.slopes = [
        (numbers.get(id(leaf), leaf), None if s is None else plain(s._array))
        for leaf, s in zip(found, slopes, strict=True)
    ]


def _ones_like(array: Any) -> Any:
    with current.of((array,)):
        ones = empty(array.shape, array.dtype, array)
        ones[...] = 1
    return ones


def _leaves_below(roots: list[Node], ends: dict[Node, Tensor]) -> list[Tensor]:
    """The leaves that the gradients of some nodes reach; the walk ends at nodes of arguments."""
    found: dict[int, Tensor] = {}
    seen, stack = set(roots), list(roots)
    while stack:
        for target in stack.pop().targets():
            if isinstance(target, Tensor):
                found[id(target)] = target
            elif target in ends:
                found[id(ends[target])] = ends[target]
            elif target not in seen:
                seen.add(target)
                stack.append(target)
    return list(found.values())


def _describe_outputs(entry: Entry, result: Any, numbers: dict[int, int]) -> None:
    """What the step returned. numbers: of the arguments, by id."""
    heads: dict[int, int] = {}
    returned: dict[Any, list[Any]] = {}
    entry.tree = tree_map(lambda leaf: None, result)
    for leaf in tree_leaves(result):
        if not isinstance(leaf, Tensor) or isinstance(leaf, SparseTensor):
            entry.outputs.append(("value", leaf))
        elif id(leaf) in numbers:
            entry.outputs.append(("argument", numbers[id(leaf)]))
        elif id(leaf) in entry.recorder.lifted:
            entry.outputs.append(("value", leaf))
        else:
            array = leaf._array.value if type(leaf._array) is TracedArray else leaf._array
            given = _is_given(entry.recorder, array, returned)
            if leaf._node is not None:
                head = heads.setdefault(id(leaf), len(heads))
                entry.outputs.append(("slope", (head, array)))
            else:
                entry.outputs.append(("alias" if given else "array", array))


def _is_given(recorder: Recorder, array: Any, returned: dict[Any, list[Any]]) -> bool:
    """Whether a returned array is in memory that there was before the step. returned: by buffer of
    the step, the arrays so far, of which none may overlap."""
    buffer = recorder.memory.find(array)
    if buffer is None or buffer.kind == GIVEN:
        return buffer is not None
    if buffer.kind == INPUT:
        recorder.stop_quietly("it returns a view of an argument")
        return False
    if any(overlap(array, other) for other in returned.setdefault(buffer, [])):
        recorder.stop_quietly("it returns tensors that share memory")
    returned[buffer].append(array)
    return False


def _describe_gradients(entry: Entry, numbers: dict[int, int], grads: dict) -> None:
    """What the step did to `.grad`. grads: by id of a tensor, it and its gradient before."""
    recorder = entry.recorder
    for tensor, before in grads.values():
        after = tensor._grad
        if isinstance(before, SparseTensor) or isinstance(after, SparseTensor):
            if after is not before:
                recorder.stop_quietly("it computes a sparse gradient")
            continue
        place = numbers.get(id(tensor), tensor)
        touched = before is not None and id(before._array) in recorder.used
        if touched and place is not tensor:
            recorder.stop_quietly("it adds to the gradient of an argument")
        elif touched:
            entry.expect(tensor, _grad=before)
        if after is before:
            continue
        if not touched and not _uses(recorder, tensor) and not _is_traced(after):
            recorder.stop_quietly("a gradient changes that it does not compute, or another thread")
            continue
        if place is not tensor and (tensor._hooks or tensor._accumulate_hooks):
            recorder.stop_quietly("it gives an argument with hooks a gradient")
        array = None if after is None else after._array
        entry.gradients.append((place, array.value if type(array) is TracedArray else array))
        if before is None and place is tensor:
            entry.expect(tensor, _grad=None)


def _describe_changes(entry: Entry, inside: list[Tensor]) -> None:
    """Which inputs the step wrote, which other tensors it used, whose versions it incremented."""
    recorder, memory = entry.recorder, entry.recorder.memory
    arguments = {id(t) for t in inside}
    changed = {id(memory.find(array)) for call in recorder.calls for array in call.writes}
    entry.inputs = [
        (place, array, id(memory.find(array)) in changed) for place, array, _ in entry.inputs
    ]
    for tensor, array, traced in recorder.lifted.values():
        if id(traced) in recorder.used and id(tensor) not in arguments:
            entry.expect(
                tensor,
                _array=array,
                _requires_grad=tensor._requires_grad,
                _hooks=tensor._hooks,
                _accumulate_hooks=tensor._accumulate_hooks,
            )
    counted = {id(t._counter): place for place, t in enumerate(inside)}
    used = {id(t._counter) for t, _, _ in recorder.lifted.values() if _uses(recorder, t)}
    entry.counters = [
        (counted.get(id(counter), counter), counter[0] - before)
        for counter, before in {id(c): (c, b) for c, b in recorder.counters}.values()
        if counter[0] != before and id(counter) in used - recorder.updates.updated
    ]


def _uses(recorder: Recorder, tensor: Tensor) -> bool:
    """Whether calls of the step read or write a tensor that there was before."""
    return id(tensor) in recorder.lifted and id(recorder.lifted[id(tensor)][2]) in recorder.used


def _is_traced(tensor: Tensor | None) -> bool:
    return tensor is not None and type(tensor._array) is TracedArray


def _release(recorder: Recorder, result: Any, expected: set[int]) -> None:
    """Take the traced arrays out of all tensors; others than the expected should not be there."""
    left = recorder.restore()
    if recorder.replaced:
        recorder.stop_quietly("it replaces the data of a tensor")
    graph = any(isinstance(t, Tensor) and t._node is not None for t in tree_leaves(result))
    if not graph and any(id(t) not in expected for t in left):
        left = []
        gc.collect()  # what a compiler has left may still refer to some
        left = recorder.restore()
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
    kept = list(map(recorder.memory.find, kept_arrays(entry)))
    fusion = Fusion(entry.parts, recorder.memory, recorder.placed, kept, recorder.lower)
    fusion.run()
    kept = list(map(recorder.memory.find, kept_arrays(entry)))
    attachment = Attachment(entry.parts, recorder.memory, {*kept, *recorder.placed})
    attachment.run()
    entry.fused = fusion.fused + attachment.fused
    calls = list(itertools.chain(*entry.parts))
    entry.layout = plan.layout(calls, recorder.memory, recorder.placed, [b for b in kept if b])
    (entry.layout.device,) = recorder.memory.devices() or {None}
    used = entry.layout.offsets.keys()
    entry.inputs = [one for one in entry.inputs if recorder.memory.find(one[1]) in used]
    recorder.forget()


def _first_result(entry: Entry, arguments: list[Tensor]) -> Any:
    """The result of the recorded call, with the node of a replay."""
    found: Any = entry.instance()
    found.program.load()
    return entry.finish(found, arguments)
