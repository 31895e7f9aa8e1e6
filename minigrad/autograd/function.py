"""Custom operations: subclasses of `Function` with their own forward and backward."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from minigrad.autograd.mode import batching, mode, no_grad
from minigrad.autograd.node import Node, alias, attach, described, edge, named
from minigrad.backends import array_module
from minigrad.tensor import Tensor, wrap


class FunctionCtx:
    """The context that forward and backward of a `Function` share; takes any attribute."""

    _to_save: tuple = ()
    _dirty: tuple = ()
    _non_differentiable: tuple = ()
    _materialize = True
    _node: FunctionNode | None = None
    needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save inputs or outputs for backward; `saved_tensors` returns them, with a check."""
        self._to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """torch saves these for `jvp`; here forward mode differentiates `backward`."""

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Declare outputs that never have a gradient (indices, masks)."""
        self._non_differentiable = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Declare inputs that forward changes in place and returns."""
        self._dirty = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets missing output gradients as zeros (default) or as None."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The saved tensors; RuntimeError if they were freed or changed in place since."""
        return self._to_save if self._node is None else self._node.saved_tensors


class FunctionNode(Node):
    """A recorded call of a `Function`. own: position in `saved` -> output number."""

    __slots__ = ("ctx", "function", "own")

    opaque = True
    function: type[Function]
    ctx: FunctionCtx
    own: dict[int, int]

    def name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<{__name__}.{self.name()} object at {hex(id(self))}>"

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The saved tensors; if gradients are recorded, saved outputs are part of the graph."""
        saved = self.unpack()
        if not (self.own and mode.enabled):
            return saved
        return tuple(
            attach(alias(t), self, self.own[i]) if i in self.own else t for i, t in enumerate(saved)
        )

    def backward(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        if self.saved is None:
            self.unpack()  # raises: the graph was freed
        if self.ctx._materialize:
            grads = [
                _zeros(shape, dtype, grads) if g is None and dtype is not None else g
                for g, (shape, dtype) in zip(grads, self.outs, strict=True)
            ]
        results = self.function.backward(self.ctx, *grads)
        results = list(results) if isinstance(results, tuple | list) else [results]
        while len(results) > len(self.edges) and results[-1] is None:
            results.pop()
        if len(results) != len(self.edges):
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients "
                f"(expected {len(self.edges)}, got {len(results)})"
            )
        return [self._checked(i, r) for i, r in enumerate(results)]

    def _checked(self, i: int, grad: Any) -> Tensor | None:
        """One gradient, checked; copied, because the function may store it."""
        edge = self.edges[i]
        if edge is None or grad is None:
            return None
        if not isinstance(grad, Tensor):
            raise RuntimeError(f"{self.name()}: expected gradient {i} to be a tensor, got {grad!r}")
        shape, found = described(edge)[0], grad._array.shape
        if found != shape and not _expanded(shape, found):
            raise RuntimeError(
                f"Function {self.name()} returned an invalid gradient at index {i} - got "
                f"{list(found)} but expected shape compatible with {list(shape)}"
            )
        return grad if mode.enabled else grad.clone()


def _expanded(small: tuple, big: tuple) -> bool:
    tail = big[len(big) - len(small) :]
    return len(big) >= len(small) and all(m in (1, n) for m, n in zip(small, tail, strict=True))


def _zeros(shape: tuple, dtype: Any, grads: list[Tensor | None]) -> Tensor:
    like = next(g._array for g in grads if g is not None)
    return wrap(array_module(like).zeros(shape, dtype))


CHANGED_VIEW: list[Callable] = []  # that of `minigrad.ops.inplace`


class Function:
    """Base class of custom differentiable operations.

    Subclasses define `forward(ctx, *args)` and `backward(ctx, *grads)` as static methods, and are
    called through `apply`. With `setup_context(ctx, inputs, output)` forward takes no ctx.
    `backward` returns one gradient (or None) per argument of forward.

    generate_vmap_rule: whether both run for all elements of `vmap` at once; else they run for each.
    """

    setup_context: Any = None
    generate_vmap_rule = False

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The result; computed without recording."""
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradients of the arguments."""
        raise NotImplementedError(
            "You must implement the backward function for your custom autograd.Function."
        )

    def __init__(self) -> None:
        raise RuntimeError(
            f"{type(self).__name__}: a Function is never instantiated; call "
            f"{type(self).__name__}.apply(...)"
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward, and record it if an argument requires a gradient."""
        ctx = FunctionCtx()
        recording = mode.enabled
        needs = tuple([isinstance(a, Tensor) and a.requires_grad for a in args])
        ctx.needs_input_grad = needs
        if batching and recording and True in needs:
            for level in batching:
                level.called(cls, args)
        edges = tuple([edge(a) if need else None for a, need in zip(args, needs, strict=True)])
        with no_grad():
            if cls.setup_context is None:
                result = cls.forward(ctx, *args, **kwargs)
            else:
                result = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, result)
        outputs = result if isinstance(result, tuple) else (result,)
        for output in outputs:
            if any(output is d for d in ctx._dirty):
                if recording and output._requires_grad and output._node is None:
                    raise RuntimeError(
                        "a leaf Variable that requires grad has been used in an in-place operation."
                    )
                output._counter[0] += 1
        if recording and True in needs:
            outputs = _record(cls, ctx, args, edges, outputs)
        return outputs if isinstance(result, tuple) else outputs[0]


def _record(
    function: type[Function], ctx: FunctionCtx, args: tuple, edges: tuple, outputs: tuple
) -> tuple:
    """Make the outputs those of a new node; an input that is returned unchanged becomes an
    alias."""
    name = getattr(function, "grad_name", f"{function.__name__}Backward")
    node = named(FunctionNode, name)(edges, tuple([_description(o) for o in outputs or (None,)]))
    node.function, node.ctx = function, ctx
    numbers: dict[int, int] = {}
    linked = []
    for i, output in enumerate(outputs):
        if not isinstance(output, Tensor):
            linked.append(output)
            continue
        numbers[id(output)] = i
        dirty = any(output is d for d in ctx._dirty)
        if not dirty and any(output is a for a in args):
            output = alias(output)
        frozen = any(outputs[i] is t for t in ctx._non_differentiable)
        if dirty and output._view is not None and not frozen:
            CHANGED_VIEW[0](output, attach(alias(output), node, i))
            linked.append(output)
            continue
        linked.append(
            output if frozen or output._array.dtype.kind in "biu" else attach(output, node, i)
        )
    saved = ctx._to_save
    given = {id(a) for a in args}
    node.own = {
        i: numbers[id(t)] for i, t in enumerate(saved) if id(t) in numbers and id(t) not in given
    }
    kept = tuple([alias(t) if i in node.own else t for i, t in enumerate(saved)])
    node.save(kept, node.own)
    ctx._node, ctx._to_save, ctx._dirty, ctx._non_differentiable = node, (), (), ()
    return tuple(linked)


def _description(output: Any) -> tuple:
    return (output._array.shape, output._array.dtype) if isinstance(output, Tensor) else ((), None)


def once_differentiable(function: Callable) -> Callable:
    """Decorator for a `backward` that is not differentiable: differentiating it raises."""

    @functools.wraps(function)
    def wrapper(ctx: Any, *grads: Any) -> Any:
        recording = mode.enabled and any(
            isinstance(g, Tensor) and g.requires_grad for g in (*grads, *ctx.saved_tensors)
        )
        with no_grad():
            results = function(ctx, *grads)
        if not recording:
            return results
        if isinstance(results, tuple | list):
            return tuple([_undifferentiable(r) for r in results])
        return _undifferentiable(results)

    return wrapper


class _NotDifferentiable(Node):
    """The node of a gradient without a derivative; its backward raises."""

    __slots__ = ()

    def name(self) -> str:
        return "Error"

    def backward(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )


def _undifferentiable(tensor: Tensor | None) -> Tensor | None:
    if tensor is None:
        return None
    node = _NotDifferentiable((), ((tensor._array.shape, tensor._array.dtype),))
    return attach(alias(tensor), node, 0)
