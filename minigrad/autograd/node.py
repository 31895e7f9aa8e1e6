"""The graph: nodes that record operations, and `Op`, the base class of operations.

An operation has three parts: `rule` (raises before anything is launched), `forward` (arrays in,
arrays out, through `kernels.dispatch`) and `vjp` (the gradient, written in operations on tensors,
so that it can itself be differentiated). `record` is the only place where a call of an operation
enters the graph: for subclasses of `Op` and for the lines of the pointwise table alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from itertools import count, repeat
from typing import Any, ClassVar, Self

from kernels import dispatch
from minigrad._meta import MetaArray
from minigrad._meta_results import results as meta_results
from minigrad.autograd.anomaly_mode import remember
from minigrad.autograd.mode import INFERENCE_SAVED, inferred, mode, unusual
from minigrad.backends import current
from minigrad.backends.current import Found
from minigrad.tensor import Tensor, type_name, wrap
from minigrad.utils.hooks import Hooks, RemovableHandle, add_hook

next_number = count().__next__
new: Callable[[type], Any] = object.__new__  # without `__init__`

USED_TWICE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward."
)

UNCHANGED = repeat(0)  # versions of saved tensors, however many
BEFORE, AFTER = -1, -2  # where hooks of a whole node are among those of its outputs


class Node:
    """One recorded operation.

    edges: per input, where its gradient goes: a node, of which it is output 0; (node, output
        index) for its other outputs; a leaf tensor; or None.
    shape, dtype: of output 0, a NumPy dtype; gradients are summed and cast to these.
    more: the same of the other outputs, as pairs.
    number: creation order. An input's node always has a smaller number than the node itself,
        so the backward pass can use a heap instead of a search.
    saved, versions: tensors saved for backward and their version counters at that time; `saved`
        is None once freed.
    hooks: per output index, functions that get (and may replace) the gradient; those at BEFORE get
        the gradients of all outputs, those at AFTER what `backward` has made of them, too.
    retained: per output index, a weak reference to a tensor with `retain_grad()`.

    Objects that Python's garbage collector looks at cost time as long as the graph is there, so a
    node has few of them: no pair where one value will do, no list of zeros.
    """

    __slots__ = ("__weakref__", "dtype", "edges", "hooks", "more", "number", "retained", "saved",
                 "shape", "versions")  # fmt: skip

    opaque = False  # whether it does more than operations: the program's functions, a replay
    titled = False  # whether the class is there for its name (`named`)
    selective = False  # whether `backward` computes only gradients that have an edge

    def __init__(self, edges: tuple, outs: tuple) -> None:
        self.edges = edges
        self.shape, self.dtype = outs[0]
        self.more = outs[1:]
        self.number = next_number()
        self.saved: tuple | None = ()
        self.versions: Iterable[int] = UNCHANGED
        self.hooks: dict[int, Hooks] | None = None
        self.retained: dict[int, Any] | None = None
        if unusual and mode.anomaly:
            remember(self)

    @property
    def outs(self) -> tuple:
        """Per output, (shape, NumPy dtype)."""
        return ((self.shape, self.dtype), *self.more)

    def targets(self) -> list:
        """The nodes and leaves where the gradients of the inputs go."""
        return [e[0] if type(e) is tuple else e for e in self.edges if e is not None]

    def backward(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """The gradients of the inputs from those of the outputs."""
        raise NotImplementedError

    def save(self, tensors: tuple, own: dict[int, int] | None = None) -> None:
        """Save tensors (or None, or Python scalars) for backward, with their versions. own: places
        among them of outputs, without their graph, and the numbers of these."""
        if inferred and any(isinstance(t, Tensor) and t.is_inference() for t in tensors):
            raise RuntimeError(INFERENCE_SAVED)
        if unusual and mode.saved_hooks:
            nodes = {i: (self, number) for i, number in (own or {}).items()}
            tensors = tuple(
                [
                    Packed(t, nodes.get(i)) if isinstance(t, Tensor) else t
                    for i, t in enumerate(tensors)
                ]
            )
        self.saved = tensors
        self.versions = _versions(tensors)

    def unpack(self) -> tuple:
        """The saved tensors; RuntimeError if they were freed or changed in place since."""
        saved = self.saved
        if saved is None:
            raise RuntimeError(USED_TWICE)
        packed = False
        for tensor, version in zip(saved, self.versions):
            if isinstance(tensor, Tensor):
                if tensor._counter[0] != version:
                    raise RuntimeError(_changed_in_place(tensor, version))
            elif type(tensor) is Packed:
                packed = True
        if not packed:
            return saved
        return tuple([t.tensor() if type(t) is Packed else t for t in saved])

    def arrays(self) -> list:
        """The arrays of the saved tensors, and what else was saved, as `unpack`."""
        saved = self.saved
        if saved is None:
            raise RuntimeError(USED_TWICE)
        arrays: list[Any] = []
        for value, version in zip(saved, self.versions):
            if isinstance(value, Tensor):
                if value._counter[0] != version:
                    raise RuntimeError(_changed_in_place(value, version))
                arrays.append(value._array)
            elif type(value) is Packed:
                return [v._array if isinstance(v, Tensor) else v for v in self.unpack()]
            else:
                arrays.append(value)
        return arrays

    def release(self) -> None:
        """Free the saved tensors; a node without any can run again."""
        if self.saved:
            self.saved = None

    def name(self) -> str:
        """torch's name of the node, such as `MulBackward0`."""
        return "Node"

    def shown(self) -> Self:
        """This node as programs get it: its class has its name from now on."""
        return self

    @property
    def next_functions(self) -> tuple:
        """Per input (node, output index), with an `AccumulateGrad` for a leaf. For a loss that is
        one node in torch and here the reduction of another one: the inputs of that."""
        edges = self.edges
        inner = split(edges[0])[0] if len(edges) == 1 else None
        if isinstance(inner, Node) and inner.name() in _TERMS:
            edges = inner.edges
        return tuple([shown(*split(edge)) for edge in edges])

    def register_hook(self, hook: Callable) -> RemovableHandle:
        """Call `hook(grad_inputs, grad_outputs)` after this node has run; a tuple that it returns
        replaces `grad_inputs`."""
        return self.add_hook(AFTER, hook)

    def register_prehook(self, hook: Callable) -> RemovableHandle:
        """Call `hook(grad_outputs)` before this node runs; a tuple it returns replaces them."""
        return self.add_hook(BEFORE, hook)

    def add_hook(self, index: int, hook: Callable) -> RemovableHandle:
        """Put `hook` last among those of an output."""
        if self.hooks is None:
            self.hooks = {}
        return add_hook(self.hooks.setdefault(index, Hooks()), hook)

    def move_retained(self, index: int, tensor: Tensor) -> None:
        """Output `index` was `tensor`, which has another node now: there it keeps the gradient that
        `retain_grad` has asked for."""
        if self.retained and self.retained.get(index, _nobody)() is tensor:
            del self.retained[index]
            tensor.retain_grad()

    def __repr__(self) -> str:
        return f"<{self.name()} object at {hex(id(self))}>"


def _nobody() -> None: ...


# The terms of losses, which torch has no nodes for.
_TERMS = frozenset(f"{name}Backward0" for name in ("Mse", "SmoothL1", "Huber", "Bce", "BceLogits"))


class Identity(Node):
    """The value of a leaf, copied into another tensor."""

    __slots__ = ()

    def name(self) -> str:
        return "CopyBackwards"

    def backward(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        return (grads[0],)


def identity(leaf: Tensor) -> Identity:
    """The node of a copy of a leaf."""
    return Identity((edge(leaf),), ((leaf._array.shape, leaf._array.dtype),))


class Packed:
    """A saved tensor as the innermost `saved_tensors_hooks` has packed it.

    value: what the hook has made of it. source: where its gradient goes, for gradients that are
    recorded; None for an output, whose node (`made_by`) refers to this.
    """

    __slots__ = ("source", "unpack", "value")

    def __init__(self, tensor: Tensor, made_by: tuple | None = None) -> None:
        pack, self.unpack = mode.saved_hooks[-1]
        self.source, made_by = edge(tensor), made_by or (tensor._node, tensor._index)
        shown = tensor if made_by[0] is None else attach(alias(tensor), *made_by)
        hooks, mode.saved_hooks = mode.saved_hooks, ()  # the hook's own operations are not packed
        enabled, mode.enabled = mode.enabled, False
        try:
            self.value = pack(shown)
        finally:
            mode.saved_hooks, mode.enabled = hooks, enabled
        if self.value is shown and shown is not tensor:
            self.value = alias(tensor)  # no cycle of references through the node

    def tensor(self) -> Tensor:
        """What the other hook makes of the value, with the place of the saved tensor in the
        graph."""
        enabled, mode.enabled = mode.enabled, False
        try:
            found = self.unpack(self.value)
        finally:
            mode.enabled = enabled
        if not isinstance(found, Tensor):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(found).__name__}"
            )
        if self.source is None or not mode.enabled:
            return found
        node, index = split(self.source)
        if isinstance(node, Tensor):
            node, index = identity(node), 0
        return attach(alias(found), node, index)


class AccumulateGrad:
    """The end of the graph, as `next_functions` shows it: adds into `variable.grad`."""

    next_functions = ()

    def __init__(self, variable: Tensor) -> None:
        self.variable = variable

    def name(self) -> str:
        return "AccumulateGrad"

    def register_prehook(self, hook: Callable) -> RemovableHandle:
        """Call `hook((gradient,))` before it is added; a tuple of one replaces it."""

        def one(grad: Tensor) -> Tensor | None:
            replaced = hook((grad,))
            return replaced if replaced is None else replaced[0]

        return self.variable.register_hook(one)

    def register_hook(self, hook: Callable) -> RemovableHandle:
        """Call `hook((), (gradient,))` after the gradient has been added."""
        added: list[Tensor] = []
        first = self.variable.register_hook(added.append)
        handle = self.variable.register_post_accumulate_grad_hook(
            lambda _: hook((), (added.pop(),))
        )
        return handle.join(first)

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {hex(id(self))}>"


def _changed_in_place(tensor: Tensor, version: int) -> str:
    where = (
        ""
        if tensor._node is None
        else f", which is output {tensor._index} of {tensor._node.name()},"
    )
    return (
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: [{type_name(tensor)} {list(tensor._array.shape)}]{where} is at version "
        f"{tensor._counter[0]}; expected version {version} instead. Hint: the operation that "
        "changed it ran after its value was saved for backward; use the out-of-place form, or "
        "change a clone()."
    )


def edge(tensor: Tensor) -> Node | tuple | Tensor | None:
    """Where the gradient of a tensor goes: one of `Node.edges`."""
    if not tensor._requires_grad:
        return None
    node = tensor._node
    if node is None:
        return tensor
    return (node, tensor._index) if tensor._index else node


def split(edge: Node | tuple | Tensor | None) -> tuple[Any, int]:
    """(node, leaf or None; output index) of an edge."""
    return edge if isinstance(edge, tuple) else (edge, 0)


def shown(target: Node | Tensor | None, index: int) -> tuple:
    """The two parts of an edge as programs get them."""
    if target is None:
        return None, 0
    return AccumulateGrad(target) if isinstance(target, Tensor) else target.shown(), index


def described(edge: Node | tuple | Tensor) -> tuple:
    """The shape and NumPy dtype of the tensor where a gradient goes."""
    target, index = split(edge)
    if isinstance(target, Tensor):
        return target._array.shape, target._array.dtype
    return target.more[index - 1] if index else (target.shape, target.dtype)


def edges_of(inputs: Sequence) -> tuple[tuple, int]:
    """The edges of a node with these inputs (what is no tensor has none), and which of the inputs
    require a gradient, as bits."""
    edges: list[Any] = []
    needs, bit = 0, 1
    for t in inputs:
        if isinstance(t, Tensor) and (t._requires_grad if t._view is None else t.requires_grad):
            node = t._node  # and as `edge`, in less time
            edges.append(t if node is None else (node, t._index) if t._index else node)
            needs += bit
        else:
            edges.append(None)
        bit += bit
    return tuple(edges), needs


def alias(tensor: Tensor) -> Tensor:
    """A tensor of the same array and version counter without a graph, so that saving it in its own
    node makes no reference cycle."""
    result = new(Tensor)  # as `wrap` does, without a counter
    result._array, result._counter = tensor._array, tensor._counter
    return result


def check_devices(inputs: Sequence) -> None:
    """RuntimeError if tensors among `inputs` are on different devices. It is called where an
    operation has failed, so that those that work do not pay for it."""
    devices = list(dict.fromkeys(t.device for t in inputs if isinstance(t, Tensor)))
    if len(devices) > 1:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{devices[0]} and {devices[1]}!"
        ) from None


def refuse_complex(name: str, inputs: Sequence) -> None:
    """NotImplementedError if a tensor is complex; called where an operation has failed."""
    found = next((t for t in inputs if isinstance(t, Tensor) and t.is_complex()), None)
    if found is not None:
        legacy = found.dtype.legacy_name.removesuffix("Tensor")
        raise NotImplementedError(f"\"{name.lower()}\" not implemented for '{legacy}'") from None


class OpNode(Node):
    """A recorded call of an operation.

    op: an `Op` class or a `Pointwise` line; both have `name`, `grad_name` and `forward`.
    attrs: the keyword arguments of `forward`, and of the `vjp` of an `Op`.
    outputs: numbers of the outputs that follow the inputs in `saved`. They are saved without
        their graph (it would be a reference cycle); `tensors` restores that of output 0.
    shapes: the shapes of the inputs, or None for a pointwise operation: the engine undoes
        broadcasting.
    """

    __slots__ = ("attrs", "op", "outputs", "shapes")
    copied: ClassVar[tuple[str, ...]] = (*Node.__slots__[1:], *__slots__)  # no weak references
    selective = True

    op: Any
    attrs: dict[str, Any]
    outputs: tuple[int, ...]
    shapes: Sequence | None

    @property
    def needs(self) -> tuple[bool, ...]:
        """Per input, whether it requires a gradient."""
        return tuple([edge is not None for edge in self.edges])

    def name(self) -> str:
        return type(self).__name__ if self.titled else self.op.grad_name

    def shown(self) -> Self:
        # Not when it is made: in Python, a loop over objects of one class takes less time
        if not self.titled:
            kind: Any = type(self)
            self.__class__ = named(kind, self.op.grad_name)
        return self

    def tensors(self) -> tuple:
        """The saved values, for `vjp`."""
        saved = self.unpack()
        if not self.outputs or 0 not in self.outputs or not mode.enabled:
            return saved
        place = len(saved) - len(self.outputs) + self.outputs.index(0)
        return (*saved[:place], attach(alias(saved[place]), self, 0), *saved[place + 1 :])

    def with_edges(self, edges: tuple) -> Self:
        """A node like this one, with other edges."""
        node = new(type(self))
        for name in self.copied:
            setattr(node, name, getattr(self, name))
        node.edges = edges
        return node

    def without_data(self) -> list[Tensor | None]:
        """The gradients of inputs on the device meta, which have their shapes and dtypes."""
        found: list[Tensor | None] = []
        for edge in self.edges:
            found.append(None if edge is None else wrap(MetaArray(*described(edge))))
        return found

    def backward(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        if not mode.enabled and isinstance(grads[0]._array, MetaArray):  # type: ignore[union-attr]
            return self.without_data()
        attrs = self.attrs
        results = self.op.vjp(self, grads[0], **attrs) if attrs else self.op.vjp(self, grads[0])
        if len(results) != len(self.edges):
            raise ValueError(f"{self}: {len(results)} gradients of {len(self.edges)} inputs")
        return results


@functools.cache
def named(kind: type[Node], name: str) -> type:
    """A class of nodes by torch's name, which programs ask the type of a `grad_fn` for."""
    return type(name, (kind,), {"__slots__": (), "__module__": __name__, "titled": True})


def retitled(kind: type[Node], name: str) -> type[Node]:
    """A class of nodes of operations, by another name: `name`, or `name` before "Backward0"."""
    if not (kind.titled or issubclass(kind, OpNode)):
        return kind
    base = kind.__bases__[0] if kind.titled else kind
    return named(base, name if "Backward" in name else f"{name}Backward0")


def titled(tensor: Tensor, name: str) -> Tensor:
    """The result of a function of several operations, whose last node gets torch's name for the
    function."""
    node = tensor._node
    if node is not None:
        node.__class__ = retitled(type(node), name)
    return tensor


def _versions(tensors: tuple) -> tuple[int, ...]:
    """Of tensors, or None, or Python scalars."""
    return tuple([t._counter[0] if isinstance(t, Tensor) else 0 for t in tensors])


def attach(tensor: Tensor, node: Node, index: int) -> Tensor:
    """Make a tensor an output of a node."""
    tensor._requires_grad = True
    tensor._node = node
    tensor._index = index
    return tensor


def record(node: OpNode, edges: tuple, saved: tuple, outputs: tuple) -> None:
    """Add a call of an operation to the graph: output 0, a new tensor, becomes that of `node`, made
    by `new`, which has what `OpNode` adds to `Node`.

    edges: of its inputs (`edges_of`). saved: the inputs to save for `vjp`; the outputs that
    `node.outputs` names (tensors, or arrays that only `vjp` gets) are saved after them.
    """
    first = outputs[0]
    array = first._array
    node.edges = edges  # from here on as `Node.__init__` does, in less time
    node.shape, node.dtype, node.more = array.shape, array.dtype, ()
    node.number = next_number()
    node.hooks = node.retained = None
    for i in node.outputs:
        output = outputs[i]
        saved += (wrap(output) if i and not isinstance(output, Tensor) else alias(output),)
    node.saved = saved
    node.versions = UNCHANGED
    for t in saved:
        if isinstance(t, Tensor) and t._counter[0]:
            node.versions = versions = _versions(saved)
            if inferred and -1 in versions:
                raise RuntimeError(INFERENCE_SAVED)
            break
    if unusual:
        if mode.anomaly:
            remember(node)
        if mode.saved_hooks and saved:
            place = len(saved) - len(node.outputs)
            node.save(saved, {place + node.outputs.index(0): 0} if 0 in node.outputs else None)
    first._requires_grad = True
    first._node = node


@functools.lru_cache(4096)
def _forward(op: Any, **attrs: Any) -> Callable:
    """`forward` of an operation with these attributes, as a function of arrays."""
    return lambda *arrays: op.forward(*arrays, **attrs)


class Op:
    """An operation: subclasses define static methods, and `Name.apply(*inputs, **attrs)` calls it.

    inputs are tensors or None; attrs are anything else. Only output 0 is differentiable: the
    others (indices, statistics) never require a gradient.
    """

    saves: ClassVar[tuple[int, ...] | None] = None  # inputs saved for vjp; None: all
    bilinear: ClassVar[bool] = False  # inputs 0 and 1 are only saved for each other's gradient
    saves_outputs: ClassVar[tuple[int, ...]] = ()  # outputs saved for vjp
    first_only: ClassVar[bool] = False  # whether `apply` returns output 0; the others are for vjp
    name: ClassVar[str] = ""  # default: the name of the class
    grad_name: ClassVar[str] = ""  # torch's name of the node; default: from the class's name

    def __init_subclass__(cls) -> None:
        own = cls.__dict__
        cls.name = own.get("name") or cls.__name__
        cls.grad_name = own.get("grad_name") or f"{cls.name}Backward0"

    rule: ClassVar[Callable | None] = None
    """`rule(*inputs, **attrs)` raises if the inputs don't fit; it runs before any kernel."""

    again: ClassVar[Callable | None] = None
    """`again(*arrays, **attrs)` is the result by a remembered launch (`dispatch.relaunch`), for a
    call like one that has been checked before, or None."""

    repeats: ClassVar[bool] = False
    """Whether `forward` does nothing but operations of the dialect on its arrays, of which the
    launches are remembered together."""

    @staticmethod
    def forward(*arrays: Any, **attrs: Any) -> Any:
        """The result, or a tuple of results, from arrays."""
        raise NotImplementedError

    @staticmethod
    def vjp(*args: Any, **attrs: Any) -> Sequence[Tensor | None]:
        """`vjp(ctx: OpNode, g: Tensor, **attrs)`: the gradients of the inputs.

        `ctx.tensors()` are the saved values, `ctx.needs` says which inputs require a gradient.

        A gradient is `g` itself, a view of it, or a new tensor: never a saved one.
        """
        raise NotImplementedError

    @classmethod
    def apply(cls, *inputs: Tensor | None, **attrs: Any) -> Any:
        """Check, compute, and record if grad mode is on and an input requires a gradient."""
        if unusual and mode.autocast is not None:
            inputs = mode.autocast.cast(cls.__name__, inputs)
        arrays = []
        for t in inputs:
            arrays.append(None if t is None else t._array)
        again, result = cls.again, None
        if again is not None:
            result = again(*arrays, **attrs)
        elif cls.repeats:
            forward = _forward(cls, **attrs)  # type: ignore[arg-type]
            result = dispatch.relaunch(dispatch.tracer, dispatch.active, forward, *arrays)
        if result is None:
            result = cls._first(inputs, arrays, attrs)
        several = type(result) is tuple
        if not several:
            if not (mode.enabled or unusual):
                return wrap(result)  # which nobody records
            outputs: tuple = (wrap(result),)
        elif cls.first_only:
            outputs, several = (wrap(result[0]), *result[1:]), False
        else:
            outputs = tuple([wrap(array) for array in result])
        if unusual and mode.observer is not None:
            mode.observer(cls, inputs, attrs, outputs[:1] if cls.first_only else outputs)
        if mode.enabled:
            edges, needs = edges_of(inputs)
            if needs:
                cls.record(inputs, attrs, edges, outputs)
        return outputs if several else outputs[0]

    @classmethod
    def _first(cls, inputs: tuple, arrays: list, attrs: dict) -> Any:
        """The result, with all checks."""
        if cls.rule is not None:
            cls.rule(*inputs, **attrs)
        try:
            if Found.cupy is None:
                return cls._forward(arrays, attrs)
            with current.of(arrays):
                return cls._forward(arrays, attrs)
        except Exception:
            check_devices(inputs)
            if cls.name != "Move" and any(isinstance(a, MetaArray) for a in arrays):
                return meta_results(lambda *given: cls._forward(list(given), attrs), arrays)
            refuse_complex(cls.name, inputs)
            raise

    @classmethod
    def _forward(cls, arrays: list, attrs: dict) -> Any:
        if not cls.repeats:
            return cls.forward(*arrays, **attrs)
        forward = _forward(cls, **attrs)  # type: ignore[arg-type]
        return dispatch.together(forward, *arrays)

    @classmethod
    def record(cls, inputs: tuple, attrs: dict, edges: tuple, outputs: tuple) -> None:
        """Add a call to the graph, with the inputs that `saves` and `bilinear` name."""
        if cls.bilinear:
            saved: tuple = (
                None if edges[1] is None else inputs[0],
                None if edges[0] is None else inputs[1],
            )
        else:
            saved = inputs if cls.saves is None else ()
            for i in cls.saves or ():
                saved += (inputs[i],)
        shapes = []
        for t in inputs:
            shapes.append(None if t is None else t._array.shape)
        node = new(OpNode)
        node.op, node.attrs, node.outputs = cls, attrs, cls.saves_outputs
        node.shapes = tuple(shapes)
        record(node, edges, saved, outputs)
