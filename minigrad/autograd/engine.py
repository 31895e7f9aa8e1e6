"""The backward pass: iterative, and it frees saved tensors as soon as they are used.

Nodes are numbered in order of creation, so an input always has a smaller number than its users.
A heap that returns the largest number first is therefore a topological order: when a node is
popped, all gradients that flow into it have been added. It needs no recursion and no search.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from kernels import dispatch
from kernels.pointwise import TABLE
from kernels.support import forks
from minigrad.autograd.anomaly_mode import watched
from minigrad.autograd.graph import GradientEdge
from minigrad.autograd.mode import crossing, mode, sparse_gradients, unusual
from minigrad.autograd.node import (
    AFTER,
    BEFORE,
    AccumulateGrad,
    Node,
    attach,
    described,
    edges_of,
    split,
)
from minigrad.autograd.part import Part, add_to
from minigrad.autograd.paths import nodes_to, uses_of
from minigrad.backends import array_module, current
from minigrad.backends.current import Found
from minigrad.layouts import NoDenseArray
from minigrad.tensor import BACKWARD, Tensor, wrap
from minigrad.utils.hooks import Hooks

Tensors = Tensor | Sequence[Tensor]
_ADD = TABLE["add"]
_adding = forks.rlock()  # threads may add to one gradient


class Observer(Protocol):
    """Takes the gradients of some leaves over, each as soon as it is complete.

    leaves: their ids. `begin` is called for a pass whose graph has some of them, `ready` when no
    node that is still to run adds to a leaf's gradient, `end` when the pass is over; `end` must
    have set each leaf's `.grad`. `fail` is called instead where the pass raised.
    """

    leaves: set[int]

    def begin(self) -> None: ...

    def ready(self, leaf: Tensor, grad: Tensor) -> None: ...

    def end(self) -> None: ...

    def fail(self) -> None: ...


observers: list[Observer] = []
VMAP: list[Callable] = []  # that of `minigrad.batching`


_NOTHING: Any = MappingProxyType({})


class Pass:
    """One backward pass.

    pending: node -> list of gradients per output, popped when the node runs.
    leaves: id -> (leaf tensor, gradient), accumulated at the end; `sparse` likewise.
    wanted: keys of the requested tensors ((node, output index), or the id of a leaf); None for all
        leaves. `needed` are the nodes on a path to them.
    captures: (node, output index) -> gradient, for requested tensors that are not leaves.
    totals: id -> sum of gradients that nothing refers to but `pending` or `leaves`.
    handed_out: ids of arrays that are referenced outside this pass.
    """

    wanted: set | None = None
    needed: set[Node] | None = None
    needed_below: Collection[Node] = ()
    needed_in_part: Collection[Node] = ()
    outputs: tuple = ()
    after: Callable[[], None] | None = None  # called at the end of the pass
    # Those that few passes need are made where they get their first entry
    sparse: dict[int, tuple[Tensor, Tensor]] = _NOTHING
    captures: dict[Any, Tensor] = _NOTHING
    uses: dict[int, int] = _NOTHING  # of an observed leaf: nodes to run that may add to it
    observers: dict[int, Observer] = _NOTHING  # by the id of the leaf
    _reached: set[int] | None = None  # ids of nodes and leaves; see `reaches`

    def __init__(self, keep: bool, create_graph: bool) -> None:
        self.keep = keep
        self.create_graph = create_graph
        self.pending: dict[Node, list] = {}
        self.heap: list[tuple[int, Node]] = []
        self.leaves: dict[int, tuple[Tensor, Tensor]] = {}
        self.totals: dict[int, Tensor] = {}
        self.handed_out: set[int] = set()

    def run(self, tensors: tuple, gradients: list[Tensor]) -> None:
        """Run every node that has a gradient, from those of the outputs `tensors`."""
        self.outputs, mode.running = tensors, self
        for grad in gradients:
            self.handed_out.add(id(grad._array))
        self.add(edges_of(tensors)[0], gradients)
        heap, pending, add, uses, keep = self.heap, self.pending, self.add, self.uses, self.keep
        totals = self.totals
        plain = self.wanted is None and not (unusual and mode.anomaly) and not Found.several
        while heap:
            node = heappop(heap)[1]
            grads = pending.pop(node)
            if totals:
                for grad in grads:
                    totals.pop(id(grad), None)
            if plain and node.hooks is None and node.retained is None:
                results = node.backward(grads)
            elif self._must_run(node, grads):
                results = self._run(node, grads)
            else:
                continue
            del grads
            if not keep:
                node.release()
            add(node.edges, results)
            if uses:
                self._used(node)

    def _must_run(self, node: Node, grads: list) -> bool:
        """Hand gradients to hooks and to who wants them; whether the node itself must run."""
        if node.hooks or node.retained:
            self._observe(node, grads)
        must = self.wanted is None or self._capture(node, grads)
        if must and node.hooks and BEFORE in node.hooks:
            self._run_before(node, grads)
        return must

    def _run(self, node: Node, grads: list) -> Sequence[Tensor | None]:
        """Run a node with the hooks after it, on its GPU, watched by the anomaly mode."""
        given = tuple(grads) if node.hooks and AFTER in node.hooks else None
        part = self._towards_wanted(node) if node in self.needed_in_part else node
        with current.of([g._array for g in grads if g is not None]):
            run = part.backward
            results = watched(node, run, grads) if mode.anomaly else run(grads)
        return results if given is None else self._after(node, results, given)

    def _towards_wanted(self, node: Any) -> Node:
        """A node like this one, which computes only what leads to a requested tensor; the node
        itself where it can't, or where it is in the graph of the gradients."""
        if not node.selective or (self.create_graph and node.outputs):
            return node
        if AFTER in (node.hooks or ()):
            return node
        return node.with_edges(tuple([e if self._leads_on(e) else None for e in node.edges]))

    def _leads_on(self, edge: Any) -> bool:
        target = split(edge)[0]
        if isinstance(target, Node):
            return target in (self.needed or ())
        return id(target) in (self.wanted or ())

    def add(self, edges: Sequence, grads: Sequence[Tensor | None]) -> None:
        """Add contributions to the gradients of outputs of nodes, or of leaves: one for each edge,
        of which either may be None."""
        pending = self.pending
        for edge, grad in zip(edges, grads):
            if edge is None or grad is None:
                continue
            target, index = (edge, 0) if type(edge) is not tuple else edge
            if grad.__class__ is Part:
                self._add_part(edge, target, index, grad)
                continue
            try:
                array = grad._array
            except NoDenseArray:
                grad = self._of_sparse(target, grad)
                if grad is None:
                    continue
                array = grad._array
            if isinstance(target, Node):
                if self.needed is not None and target not in self.needed:
                    continue
                shape, dtype = target.more[index - 1] if index else (target.shape, target.dtype)
                if crossing:
                    grad = crossing[0](grad, shape)
                    array = grad._array
                if array.shape != shape or array.dtype is not dtype:
                    grad = fit(grad, shape, dtype)
                sums = pending.get(target)
                if sums is None:
                    pending[target] = sums = [None] * (1 + len(target.more))
                    sums[index] = grad
                    heappush(self.heap, (-target.number, target))
                else:
                    other = sums[index]
                    sums[index] = grad if other is None else self._sum(other, grad)
                continue
            key = id(target)
            if self.wanted is None or key in self.wanted:
                leaf, entry = target._array, self.leaves.get(key)
                if crossing:
                    grad = crossing[0](grad, leaf.shape)
                    array = grad._array
                if array.dtype is not leaf.dtype or array.shape != leaf.shape:
                    grad = fit(grad, leaf.shape, leaf.dtype)
                if entry is not None:
                    grad = self._sum(entry[1], grad)
                self.leaves[key] = (target, grad)

    def _add_part(self, edge: Any, target: Any, index: int, grad: Any) -> None:
        """Add the gradient of a part in place, where such a sum has begun."""
        total = self._total(target, index)
        if id(total) in self.totals:
            grad.add_to(total._array)
            return
        self.add((edge,), (grad.made(),))
        total = self._total(target, index)
        if total is not None and type(total._array) is np.ndarray:
            self.totals[id(total)] = total

    def _total(self, target: Any, index: int) -> Any:
        """The sum of the gradients of an output or a leaf so far."""
        if isinstance(target, Node):
            sums = self.pending.get(target)
            return None if sums is None else sums[index]
        return self.leaves.get(id(target), (None, None))[1]

    def _of_sparse(self, target: Any, grad: Tensor) -> Tensor | None:
        """A sparse gradient of a leaf is kept, and None returned; what else needs it gets the dense
        one."""
        if isinstance(target, Node) or self.observers:
            return grad.to_dense()
        if self.wanted is None or id(target) in self.wanted:
            sparse_gradients[:] = [True]
            self.sparse = self.sparse or {}
            _, other = self.sparse.get(id(target), (None, None))
            self.sparse[id(target)] = (target, grad if other is None else other + grad)
        return None

    def _sum(self, a: Tensor, b: Tensor) -> Tensor:
        """a + b, by a remembered launch where it is not recorded; in `a` where nothing else has
        that."""
        if id(a) in self.totals and type(b._array) is np.ndarray:
            add_to(a._array, b._array)
            return a
        if not self.create_graph and (not unusual or mode.observer is None):
            found = dispatch.relaunch(dispatch.tracer, dispatch.active, _ADD, a._array, b._array)
            if found is not None:
                return wrap(found)
        return a + b

    def observe(self, roots: list[Node]) -> None:
        """Prepare to hand leaves over to their observers."""
        counts = uses_of(roots, set().union(*(observer.leaves for observer in observers)))
        self.uses, self.observers = {}, {}
        self.delivered: list[Tensor] = []
        for observer in observers:
            shared = observer.leaves & counts.keys()
            if shared:
                observer.begin()
                self.observers.update(dict.fromkeys(shared, observer))
                self.uses.update((leaf, counts[leaf]) for leaf in shared)

    def _used(self, node: Node) -> None:
        """A node has run: leaves that wait for no other node are complete."""
        for key in map(id, node.targets()):
            if key in self.uses:
                self.uses[key] -= 1
                if not self.uses[key] and key in self.leaves:
                    self._deliver(key)

    def _deliver(self, key: int) -> None:
        leaf, grad = self.leaves.pop(key)
        if leaf._hooks:
            grad = run_hooks(leaf._hooks, grad)
        self.delivered.append(leaf)
        self.observers[key].ready(leaf, grad)

    def _observe(self, node: Node, grads: list) -> None:
        """Run hooks, and keep the gradients that `retain_grad` asked for."""
        hooks = node.hooks or {}
        for index, own in hooks.items():
            if index >= 0 and grads[index] is not None:
                grads[index] = run_hooks(own, grads[index])
        if hooks:  # a hook may have stored its arguments
            self.handed_out.update([id(g._array) for g in grads if g is not None])
        for index, reference in (node.retained or {}).items():
            tensor = reference()
            if tensor is not None and grads[index] is not None:
                self.store(tensor, grads[index])

    def _run_before(self, node: Node, grads: list) -> None:
        """Run the hooks of the node itself, after those of its outputs: what these have made is
        what is kept, or was asked for, as in torch."""
        for hook in list((node.hooks or {})[BEFORE].values()):
            replaced = hook(tuple(grads))
            if replaced is not None:
                grads[:] = replaced if isinstance(replaced, tuple | list) else [replaced]
        self.handed_out.update([id(g._array) for g in grads if g is not None])

    def _after(self, node: Node, results: Any, given: tuple) -> tuple:
        """Run the hooks that get the gradients of a node's inputs, too; what they become."""
        grads = tuple(
            grad if edge is None or grad is None else fit(grad, *described(edge))
            for edge, grad in zip(node.edges, results, strict=True)
        )
        for hook in list((node.hooks or {})[AFTER].values()):
            replaced = hook(grads, given)
            if replaced is not None:
                grads = tuple(replaced) if isinstance(replaced, tuple | list) else (replaced,)
        self.handed_out.update([id(g._array) for g in (*grads, *given) if g is not None])
        return grads

    def reaches(self, tensor: Tensor) -> bool:
        """Whether the pass computes the gradient of a tensor."""
        key = tensor if tensor._node is None else tensor._node
        if self.wanted is not None:
            return (key in (self.needed or ())) if isinstance(key, Node) else id(key) in self.wanted
        if self._reached is None:
            self._reached = {id(t) for t in self.outputs if t._node is None}
            stack = [t._node for t in self.outputs if t._node is not None]
            while stack:
                node = stack.pop()
                if id(node) not in self._reached:
                    self._reached.add(id(node))
                    targets = node.targets()
                    self._reached.update(id(t) for t in targets if isinstance(t, Tensor))
                    stack += [t for t in targets if isinstance(t, Node)]
        return id(key) in self._reached

    def _capture(self, node: Node, grads: list) -> bool:
        """Store requested gradients of non-leaf tensors; whether the node itself must run."""
        for index, grad in enumerate(grads):
            if (node, index) in self.wanted and grad is not None:
                self.captures[node, index] = grad
        return node in self.needed_below

    def restrict(self, roots: list[Node], wanted: set) -> None:
        """Run only the nodes on a path to the requested tensors."""
        self.wanted, self.captures = wanted, {}
        self.needed_below, self.needed_in_part, self.needed = nodes_to(roots, wanted)

    def store(self, tensor: Tensor, grad: Tensor) -> None:
        """Add to `.grad`; in place unless the gradient is recorded, as torch does."""
        if crossing:
            grad = crossing[0](grad, tensor._array.shape, stored=True)
        with _adding:
            if tensor._grad is None:
                tensor._grad = grad.clone() if self.create_graph else self.own(grad)
            elif tensor._grad.is_sparse:
                tensor._grad = tensor._grad.to_dense() + grad
            elif self.create_graph:
                tensor._grad = tensor._grad + grad
            else:
                tensor._grad.add_(grad)

    def _store_sparse(self) -> None:
        """Add the sparse gradients to the leaves: a sum with a dense one is dense."""
        for key, (leaf, grad) in self.sparse.items():
            if key in self.leaves:
                self.leaves[key] = (leaf, self.leaves[key][1] + grad.to_dense())
                continue
            if leaf._hooks:
                grad = run_hooks(leaf._hooks, grad)
            with _adding:
                if leaf._grad is None:
                    leaf._grad = grad.clone()
                elif leaf._grad.is_sparse:
                    leaf._grad = leaf._grad + grad
                else:
                    leaf._grad.add_(grad.to_dense())
            if leaf._accumulate_hooks:
                _run_accumulate_hooks(leaf)

    def own(self, grad: Tensor) -> Tensor:
        """The gradient in memory that neither `gradient` nor another leaf's `.grad` has."""
        if self.create_graph:
            return grad
        array = grad._array
        if array.base is not None or id(array) in self.handed_out:
            many = array.size > 4096 or not dispatch.has_numbers()
            many = many and type(array) is np.ndarray and array.dtype.kind == "f"
            with current.of((array,)):  # NumPy repeats a short row element by element
                array = dispatch.active.copy(array) if many else array.copy()
        self.handed_out.add(id(array))
        return wrap(array)

    def accumulate(self) -> None:
        """Add the gradients to the leaves."""
        if self.observers:
            self._finish_observed()
        if self.sparse:
            self._store_sparse()
        for leaf, grad in self.leaves.values():
            if not leaf._requires_grad:  # any more: it was frozen after it had been used
                continue
            if leaf._hooks:
                grad = run_hooks(leaf._hooks, grad)
                self.handed_out.add(id(grad._array))  # the hook may have stored it
            self.store(leaf, grad)
            if leaf._accumulate_hooks:
                _run_accumulate_hooks(leaf)

    def end(self, outer: tuple) -> None:
        """Restore the mode of the caller."""
        mode.enabled, mode.running = outer
        if self.after is not None:
            self.after()

    def _finish_observed(self) -> None:
        for key in [key for key in self.leaves if key in self.observers]:
            self._deliver(key)  # of a leaf with a use that got no gradient
        for observer in {id(one): one for one in self.observers.values()}.values():
            observer.end()
        for leaf in self.delivered:
            _run_accumulate_hooks(leaf)


def _run_accumulate_hooks(leaf: Tensor) -> None:
    for hook in list((leaf._accumulate_hooks or {}).values()):
        hook(leaf)


def fit(grad: Tensor, shape: tuple, dtype: Any) -> Tensor:
    """Undo broadcasting and promotion: a gradient gets the shape and dtype of its tensor."""
    array = grad._array
    if array.shape != shape:
        grad = grad.sum_to_size(shape)
    if array.dtype != dtype:
        grad = grad.to(dtype)
    return grad


def run_hooks(hooks: Hooks, grad: Tensor) -> Tensor:
    """The gradient after all hooks, in order."""
    for hook in list(hooks.values()):
        replaced = hook(grad)
        if replaced is None:
            continue
        name = getattr(hook, "__name__", hook)
        if not isinstance(replaced, Tensor):
            raise TypeError(f"hook '{name}': expected a tensor or None, got {replaced!r}")
        if replaced.is_sparse:
            grad = replaced
            continue
        if replaced._array.shape != grad._array.shape:
            raise RuntimeError(
                f"hook '{name}' has changed the size of value: expected "
                f"{list(grad.shape)}, got {list(replaced.shape)}"
            )
        if replaced._array.dtype != grad._array.dtype:
            raise RuntimeError(
                f"hook '{name}' has changed the type of value: expected {grad.dtype}, "
                f"got {replaced.dtype}"
            )
        grad = replaced
    return grad


def as_tuple(tensors: Any) -> tuple:
    """One or several tensors; those that edges stand for, too."""
    if isinstance(tensors, Tensor):
        return (tensors,)
    given = (tensors,) if isinstance(tensors, GradientEdge) else tuple(tensors)
    return tuple([_at(t) if isinstance(t, GradientEdge) else t for t in given])


def _at(edge: GradientEdge) -> Tensor:
    """The leaf at an edge, or a tensor that takes no memory in the place of an operation's
    output."""
    node, index = edge
    if isinstance(node, AccumulateGrad):
        return node.variable
    shape, dtype = described((node, index))
    return attach(wrap(np.broadcast_to(np.zeros((), dtype), shape)), node, index)


def _root_gradients(tensors: tuple, gradients: Any) -> list[Tensor]:
    """One gradient per output: given, or ones where the output is a scalar."""
    given = (None,) * len(tensors) if gradients is None else as_tuple(gradients)
    if len(given) != len(tensors):
        raise RuntimeError(f"got {len(tensors)} tensors and {len(given)} gradients")
    result = []
    for i, (tensor, grad) in enumerate(zip(tensors, given)):
        array = tensor._array
        if not tensor.requires_grad:
            raise RuntimeError(
                f"element {i} of tensors does not require grad and does not have a grad_fn"
            )
        if grad is None:
            if array.size != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            if array.dtype.kind == "c":
                raise RuntimeError(
                    "grad can be implicitly created only for real scalar outputs but got "
                    f"{tensor.dtype}"
                )
            grad = wrap(_ones_like(array))
        elif grad._array.shape != array.shape:
            raise RuntimeError(
                f"Mismatch in shape: grad_output[{i}] has a shape of {grad.shape} and output[{i}] "
                f"has a shape of {tensor.shape}."
            )
        elif (grad._array.dtype.kind == "c") != (array.dtype.kind == "c"):
            raise RuntimeError(
                f"Mismatch in dtype: grad_output[{i}] is {grad.dtype}, output[{i}] {tensor.dtype}"
            )
        result.append(grad)
    return result


_ONES: dict[np.dtype, np.ndarray] = {}


def _ones_like(array: Any) -> Any:
    if type(array) is not np.ndarray or array.ndim:
        with current.of((array,)):
            return array_module(array).ones_like(array)
    one = _ONES.get(array.dtype)
    if one is None:
        one = _ONES[array.dtype] = np.ones_like(array)
    return one.copy()  # a tenth of the time


def backward(
    tensors: Tensors,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Add the gradients of `tensors` into the `.grad` of leaves; see `Tensor.backward`."""
    tensors = as_tuple(tensors)
    gradients = _root_gradients(tensors, grad_tensors if grad_variables is None else grad_variables)
    run = Pass(create_graph if retain_graph is None else retain_graph, create_graph)
    chosen = None if inputs is None else as_tuple(inputs)
    if chosen is not None:
        if not chosen:
            raise RuntimeError("'inputs' argument to backward() cannot be empty.")
        run.restrict([t._node for t in tensors if t._node is not None], _keys(chosen))
    outer = mode.enabled, mode.running
    mode.enabled = create_graph
    try:
        if observers and chosen is None and not create_graph:
            run.observe([t._node for t in tensors if t._node is not None])
        if Found.cupy is None:
            run.run(tensors, gradients)
        else:
            with current.of(()):  # whose nodes see to it where there are several
                run.run(tensors, gradients)
        for tensor in chosen or ():
            if (tensor._node, tensor._index) in run.captures:
                run.store(tensor, run.captures[tensor._node, tensor._index])
        run.accumulate()
    except BaseException:
        for observer in run.observers.values():
            observer.fail()
        raise
    finally:
        run.end(outer)


BACKWARD.append(backward)


def _keys(inputs: tuple) -> set:
    keys: set = set()
    for tensor in inputs:
        if not tensor.requires_grad:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
        keys.add(id(tensor) if tensor._node is None else (tensor._node, tensor._index))
    return keys


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs` with respect to `inputs`, as a tuple; no `.grad` is touched.

    outputs, inputs: tensors, or edges of `autograd.graph.get_gradient_edge`.
    grad_outputs: one gradient per output (may be None for scalars).
    retain_graph, create_graph: as in `Tensor.backward`.
    allow_unused: give None for an input that the outputs don't depend on, instead of an error.
    materialize_grads: give zeros instead of None.
    is_grads_batched: grad_outputs have a first dimension more, and so have the results: `vmap` of
        one backward pass.
    """
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To "
            "accumulate gradient for other parts of the graph, please use backward.",
            FutureWarning,
            stacklevel=2,
        )
    if materialize_grads and allow_unused is False:
        raise ValueError("grad: materialize_grads=True expects that allow_unused isn't False")
    outputs, inputs = as_tuple(outputs), as_tuple(inputs)
    if is_grads_batched:
        settings = (create_graph, True, allow_unused, False, materialize_grads)
        return _of_a_batch(outputs, inputs, grad_outputs, retain_graph, settings)
    if not inputs:
        raise RuntimeError("grad: expected at least one input, got none")
    gradients = _root_gradients(outputs, grad_outputs)
    run = Pass(create_graph if retain_graph is None else retain_graph, create_graph)
    run.restrict([t._node for t in outputs if t._node is not None], _keys(inputs))
    outer = mode.enabled, mode.running
    mode.enabled = create_graph
    try:
        with current.of(()):
            run.run(outputs, gradients)
        found = [_collected(run, t) for t in inputs]
    finally:
        run.end(outer)
    return tuple(
        _unused(t, i, allow_unused, materialize_grads) if g is None else g
        for i, (t, g) in enumerate(zip(inputs, found, strict=True))
    )


def _of_a_batch(
    outputs: tuple, inputs: tuple, batch: Any, retain_graph: bool | None, settings: tuple
) -> tuple[Tensor | None, ...]:
    """`grad` for all elements along the first dimension of gradients at once."""
    given = as_tuple(batch)
    places = [i for i, g in enumerate(given) if g is not None]
    if not any(given[i].ndim and len(given[i]) for i in places):
        raise RuntimeError("grad: is_grads_batched=True needs grad_outputs with a first dimension")
    used: list[int] = []  # of the inputs

    def row(*own: Tensor) -> list[Tensor]:
        gradients: list[Tensor | None] = [None] * len(given)
        for i, g in zip(places, own):
            gradients[i] = g
        found = grad(outputs, inputs, gradients, True, *settings)
        used[:] = [i for i, g in enumerate(found) if g is not None]
        return [g for g in found if g is not None]

    rows = VMAP[0](row)(*[given[i] for i in places])
    if not (settings[0] if retain_graph is None else retain_graph):
        roots = [t._node for t in outputs if t._node is not None]
        for node in nodes_to(roots, _keys(inputs))[0]:
            node.release()
    results: list[Tensor | None] = [None] * len(inputs)
    for i, found in zip(used, rows):
        results[i] = found
    return tuple(results)


def _collected(run: Pass, tensor: Tensor) -> Tensor | None:
    if tensor._node is not None:
        found = run.captures.get((tensor._node, tensor._index))
    else:
        found = run.leaves.get(id(tensor), (None, None))[1]
        _, sparse = run.sparse.get(id(tensor), (None, None))
        if sparse is not None:
            if found is None:
                return run_hooks(tensor._hooks, sparse) if tensor._hooks else sparse
            found = found + sparse.to_dense()
        if found is not None and tensor._hooks:
            found = run_hooks(tensor._hooks, found)
    return None if found is None else run.own(found)


def _unused(tensor: Tensor, i: int, allow_unused: bool | None, zeros: bool) -> Tensor | None:
    if zeros:
        with current.of((tensor._array,)):
            return wrap(array_module(tensor._array).zeros_like(tensor._array))
    if not allow_unused:
        raise RuntimeError(
            f"The differentiated Tensor at index {i} appears to not have been used in the graph. "
            "Set allow_unused=True if this is the desired behavior."
        )
    return None
