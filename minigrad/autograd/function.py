"""Custom operations: subclasses of `Function` with their own forward and backward."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from minigrad.autograd.mode import mode, no_grad
from minigrad.autograd.node import Node, alias, attach, edge, needs_grad
from minigrad.tensor import Tensor


class FunctionNode(Node):
    """A recorded call of a `Function`; also the `ctx` that forward and backward get.

    Any attribute may be set on it: `ctx.scale = 2`.
    """

    def __init__(self) -> None:
        super().__init__((), ())
        self.to_save: tuple = ()
        self.dirty: tuple = ()
        self.non_differentiable: tuple = ()
        self.materialize = True
        self.needs_input_grad: tuple[bool, ...] = ()
        self.function: type[Function] | None = None
        self.outputs: dict[int, int] = {}

    def name(self) -> str:
        return f"{self.function.__name__}Backward"

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep inputs or outputs for backward; `saved_tensors` gives them back, checked."""
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        raise NotImplementedError("Function: minigrad has no forward-mode differentiation")

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which outputs never have a gradient (indices, masks)."""
        self.non_differentiable = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say which inputs forward changed in place (and returns)."""
        self.dirty = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether missing output gradients come as zeros (default) or as None."""
        self.materialize = value

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What `save_for_backward` kept; RuntimeError if freed or changed in place since."""
        saved = self.unpack()
        return tuple(
            attach(alias(t), self, self.outputs[i]) if i in self.outputs and mode.enabled else t
            for i, t in enumerate(saved)
        )

    def backward(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        if self.materialize:
            grads = [
                _zeros(shape, dtype) if g is None else g
                for g, (shape, dtype) in zip(grads, self.outs, strict=True)
            ]
        if self.saved is None:
            self.unpack()  # raises: the graph was freed
        results = self.function.backward(self, *grads)
        results = results if isinstance(results, tuple | list) else (results,)
        results = [*results]
        while len(results) > len(self.edges) and results[-1] is None:
            results.pop()
        if len(results) != len(self.edges):
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients "
                f"(expected {len(self.edges)}, got {len(results)})"
            )
        for i, result in enumerate(results):
            if result is not None and not isinstance(result, Tensor):
                raise TypeError(f"{self.name()}: gradient {i} is not a tensor: {result!r}")
            self._check_shape(i, result)
        return [None if r is None else r if mode.enabled else r.clone() for r in results]

    def _check_shape(self, i: int, grad: Tensor | None) -> None:
        target = self.edges[i]
        if target is None or grad is None:
            return
        leaf = isinstance(target[0], Tensor)
        shape = target[0]._array.shape if leaf else target[0].outs[target[1]][0]
        found = grad._array.shape
        if found != shape and not _expandable(shape, found):
            raise RuntimeError(
                f"Function {self.name()} returned an invalid gradient at index {i} - got "
                f"{list(found)} but expected shape compatible with {list(shape)}"
            )


def _expandable(small: tuple, big: tuple) -> bool:
    tail = big[len(big) - len(small) :]
    return len(big) >= len(small) and all(
        m in (1, n) for m, n in zip(small, tail, strict=True)
    )


def _zeros(shape: tuple, dtype: Any) -> Tensor:
    import numpy as np

    from minigrad.tensor import wrap

    return wrap(np.zeros(shape, dtype))


class Function:
    """A differentiable operation of your own.

    Subclasses define `forward(ctx, *args)` and `backward(ctx, *grads)` as static methods, and are
    called through `apply`. With `setup_context(ctx, inputs, output)` forward takes no ctx.
    `backward` returns one gradient (or None) per argument of forward.
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The result; runs outside the graph."""
        raise NotImplementedError("You must implement the forward function for custom Function.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradients of the arguments."""
        raise NotImplementedError("You must implement the backward function of your Function.")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward, and record it if an argument requires a gradient."""
        ctx = FunctionNode()
        ctx.function = cls
        recording = mode.enabled
        needs = tuple([isinstance(a, Tensor) and needs_grad(a) for a in args])
        ctx.needs_input_grad = needs
        edges = tuple(
            [edge(a) if need else None for a, need in zip(args, needs, strict=True)]
        )
        with no_grad():
            if "setup_context" in _own_names(cls):
                result = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args, **kwargs)
        outputs = result if isinstance(result, tuple) else (result,)
        if recording and True in needs:
            outputs = _record(ctx, args, edges, outputs)
        return outputs if isinstance(result, tuple) else outputs[0]


def _own_names(cls: type) -> set[str]:
    return {name for c in cls.__mro__ if c not in (Function, object) for name in c.__dict__}


def _record(ctx: FunctionNode, args: tuple, edges: tuple, outputs: tuple) -> tuple:
    """Make the outputs those of the node; an input that is returned unchanged becomes an alias."""
    ctx.edges = edges
    dirty = {id(t) for t in ctx.dirty}
    frozen = {id(t) for t in ctx.non_differentiable}
    linked, kept = [], {}
    for i, output in enumerate(outputs):
        if not isinstance(output, Tensor):
            linked.append(output)
            continue
        if any(output is a for a in args) and id(output) not in dirty:
            kept[id(output)] = i
            output = alias(output)
        elif id(output) in dirty:
            output._counter[0] += 1
        kept.setdefault(id(output), i)
        if id(output) not in frozen and output.is_floating_point():
            attach(output, ctx, i)
        linked.append(output)
    ctx.outs = tuple(
        [(o._array.shape, o._array.dtype) if isinstance(o, Tensor) else ((), None) for o in outputs]
    )
    own = {id(o): i for i, o in enumerate(linked) if isinstance(o, Tensor) and o._node is ctx}
    saved = ctx.to_save
    ctx.outputs = {i: own[id(t)] for i, t in enumerate(saved) if id(t) in own}
    ctx.save(tuple([alias(t) if i in ctx.outputs else t for i, t in enumerate(saved)]))
    return tuple(linked)


def once_differentiable(function: Callable) -> Callable:
    """Decorator for a `backward` that is not itself differentiable: differentiating it raises."""

    @functools.wraps(function)
    def wrapper(ctx: Any, *grads: Any) -> Any:
        recording = mode.enabled and any(
            isinstance(g, Tensor) and needs_grad(g) for g in (*grads, *ctx.saved_tensors)
        )
        with no_grad():
            results = function(ctx, *grads)
        if not recording:
            return results
        several = isinstance(results, tuple | list)
        failing = [_undifferentiable(r) for r in (results if several else (results,))]
        return tuple(failing) if several else failing[0]

    return wrapper


class _Error(Node):
    """Raises when a second derivative is asked for."""

    __slots__ = ()

    def backward(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )


def _undifferentiable(tensor: Tensor | None) -> Tensor | None:
    if tensor is None:
        return None
    twin = alias(tensor)
    return attach(twin, _Error((), ((twin._array.shape, twin._array.dtype),)), 0)
