"""The operations that one run of a model calls, in order, and what each of them reads and returns.

`mode.observer` reports each call. Nothing else is known of a run: a tensor that no reported
operation returned is a constant of the run, so a model is run twice with different inputs, and a
constant that differs is an error (`matched`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minigrad.autograd.mode import mode, no_grad
from minigrad.nn import Module
from minigrad.tensor import Tensor


class OnnxExporterError(RuntimeError):
    """A model that cannot be written as an ONNX file."""


@dataclass(eq=False)
class Value:
    """A tensor of a run.

    kind: "input", "parameter" (its name is that of the state dict), "constant" or "result".
    call, place: the call that returned it, and its number among the results.
    counter, version: the version counter of its memory, and what it was: others are stale.
    counterpart: the same value in the second run.
    """

    kind: str
    array: Any
    counter: list[int]
    version: int
    name: str = ""
    call: Call | None = None
    place: int = 0
    counterpart: Any = None

    @property
    def stale(self) -> bool:
        return self.counter[0] != self.version

    @property
    def fixed(self) -> bool:
        """Whether it is the same for all inputs of the model."""
        if self.kind == "result":
            return self.call is not None and self.call.fixed
        return self.kind != "input"

    def sizes(self) -> list[tuple[int, int]]:
        """The length of each dimension in both runs."""
        return list(zip(self.array.shape, self.counterpart.array.shape, strict=True))


@dataclass(eq=False)
class Call:
    """A call of an operation. inputs: values, numbers and None. where: the module that called."""

    op: Any
    inputs: tuple
    attrs: dict[str, Any]
    where: str
    outputs: list[Value] = field(default_factory=list)
    counterpart: Any = None

    def __post_init__(self) -> None:
        self.fixed = all(v.fixed for v in self.inputs if isinstance(v, Value))

    def __str__(self) -> str:
        return f"the operation {self.op.name} in {self.where}"


class Trace:
    """An observer of one run."""

    def __init__(self, model: Any) -> None:
        self.calls: list[Call] = []
        self.modules: list[str] = []  # those that are running, the innermost last
        self.inputs: list[Value] = []
        self._known: dict[int, Value] = {}  # by the id of the array
        self._alive: list[Any] = []  # so that no id is used twice
        state = model.state_dict(keep_vars=True) if isinstance(model, Module) else {}
        for name, tensor in state.items():
            if isinstance(tensor, Tensor) and id(tensor._array) not in self._known:
                self._add(tensor, Value("parameter", tensor._array, *_version(tensor), name))

    def input(self, tensor: Tensor) -> None:
        self.inputs.append(Value("input", tensor._array, *_version(tensor)))
        self._add(tensor, self.inputs[-1])

    def __call__(self, op: Any, inputs: tuple, attrs: dict, outputs: tuple) -> None:
        read = tuple([self.value(x) if isinstance(x, Tensor) else x for x in inputs])
        call = Call(op, read, attrs, self.where())
        for place, out in enumerate(outputs):
            value = Value("result", out._array, *_version(out), call=call, place=place)
            call.outputs.append(value)
            self._add(out, value)
        self.calls.append(call)

    def wrote(self, target: Tensor, array: Any) -> None:
        """All elements of a tensor were overwritten by those of an array (or by a number)."""
        source = self._known.get(id(array))
        same = source is not None and array.dtype == target._array.dtype
        if source is None or not same or source.kind != "result":
            self._known.pop(id(target._array), None)
            return
        value = Value("result", target._array, *_version(target), call=source.call)
        value.place = source.place
        self._add(target, value)

    def read(self, tensor: Tensor) -> None:
        """The model takes a number out of a tensor: warn if it depends on the inputs."""
        value = self._known.get(id(tensor._array))
        if value is not None and not value.fixed:
            warnings.warn(
                f"onnx.export: {self.where()} reads a value of a tensor in Python (if, .item()). "
                "The file holds what was computed for these arguments, also for other inputs",
                stacklevel=3,
            )

    def value(self, tensor: Tensor) -> Value:
        """What is known of a tensor that an operation reads."""
        value = self._known.get(id(tensor._array))
        if value is None:
            value = Value("constant", tensor._array.copy(), *_version(tensor))
            self._add(tensor, value)
        if value.stale:
            raise OnnxExporterError(
                f"onnx.export: {self.where()} reads a tensor of shape {list(tensor.shape)} that was"
                " changed in place through a view; use an operation that returns a new tensor"
                " (torch.cat, torch.where)"
            )
        return value

    def where(self) -> str:
        return self.modules[-1] if self.modules else "the model"

    def _add(self, tensor: Tensor, value: Value) -> None:
        self._known[id(tensor._array)] = value
        self._alive.append(tensor._array)


def _version(tensor: Tensor) -> tuple[list[int], int]:
    return tensor._counter, tensor._counter[0]


@contextmanager
def observed(trace: Trace, model: Any) -> Iterator[None]:
    """Report what this thread computes to a trace, and which modules run."""
    hooks = []
    for name, module in model.named_modules() if isinstance(model, Module) else ():
        text = f"{name or 'the model'} ({type(module).__name__})"
        enter = module.register_forward_pre_hook(
            lambda module, args, text=text: trace.modules.append(text)
        )
        leave = module.register_forward_hook(lambda module, args, out: _left(trace))
        hooks += [enter, leave]
    outside, mode.observer = mode.observer, trace
    try:
        with no_grad():
            yield
    finally:
        mode.observer = outside
        for hook in hooks:
            hook.remove()


def _left(trace: Trace) -> None:
    trace.modules.pop()


def matched(first: Trace, second: Trace, outputs: tuple[list[Value], list[Value]]) -> None:
    """Give each value of the first run its counterpart in the second.

    OnnxExporterError where the runs differ in more than the sizes of tensors.
    """
    calls = [[call.op.name for call in trace.calls] for trace in (first, second)]
    if calls[0] != calls[1]:
        raise OnnxExporterError(
            "onnx.export: two runs of the model called different operations: which ones it calls "
            "depends on the values of its inputs, or on the length of a dimension in dynamic_axes "
            "(as a loop over time steps does); a file holds one list of operations"
        )
    for a, b in zip(first.inputs, second.inputs, strict=True):
        a.counterpart = b
    for call, counterpart in zip(first.calls, second.calls, strict=True):
        call.counterpart = counterpart
        for x, y in zip(call.inputs, counterpart.inputs, strict=True):
            _match(x, y, str(call))
        for x, y in zip(call.outputs, counterpart.outputs, strict=True):
            x.counterpart = y
    for x, y in zip(*outputs, strict=True):
        _match(x, y, "the result of the model")


def _match(x: Any, y: Any, reader: str) -> None:
    """Check that a value that `reader` reads is the same in both runs."""
    if not isinstance(x, Value) or not isinstance(y, Value):
        if not _equal(x, y):
            raise OnnxExporterError(
                f"onnx.export: {reader} reads the number {x} in one run and {y} in another: the "
                "model computed it in Python from its inputs or their dynamic sizes (by .item(), "
                ".shape or a mean over a dynamic dimension); use operations on tensors"
            )
        return
    x.counterpart = y
    if x.kind == "constant" and not _equal(x.array, y.array) and not is_uniform(x):
        raise OnnxExporterError(
            f"onnx.export: {reader} reads a tensor of shape {list(x.array.shape)} that was computed"
            " without recorded operations, but depends on the inputs of the model, on a dynamic "
            "size or on random numbers; compute it with operations that can be exported, or keep "
            "it as a buffer"
        )


def is_uniform(value: Value) -> bool:
    """Whether a constant has one value for all elements, the same one in both runs."""
    a, b = value.array, value.counterpart.array
    return bool(a.size and b.size and a.ndim == b.ndim and (a == b.flat[0]).all()
                and (b == b.flat[0]).all())  # fmt: skip


def _equal(a: Any, b: Any) -> bool:
    if hasattr(a, "dtype") and hasattr(b, "dtype"):
        return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | (a != a)).all())
    return type(a) is type(b) and (a == b or a != a)


def same_attributes(call: Call, but: tuple[str, ...]) -> None:
    """OnnxExporterError for an attribute that differs between the runs, except those named."""
    for name, value in call.attrs.items():
        other = call.counterpart.attrs[name]
        if name not in but and not _equal_trees(value, other):
            raise OnnxExporterError(
                f"onnx.export: {name} of {call} is {_short(value)} in one run and {_short(other)} "
                "in another: it depends on the inputs, on a dynamic size or on random numbers; a "
                "file can only hold a fixed one"
            )


def _equal_trees(a: Any, b: Any) -> bool:
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(_equal_trees, a, b))
    return _equal(a, b)


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {list(value.shape)}"
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}..."
