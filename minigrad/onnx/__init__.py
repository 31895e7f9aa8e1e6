"""`export`: a network as an ONNX file, which other programs (ONNX Runtime, TensorRT) run.

The model is run twice under an observer of operations (`trace`): once on the arguments given, once
on others of the same dtypes, whose dynamic dimensions are longer. Lengths that differ between the
runs are computed in the file from the shapes of the inputs. What else differs cannot be in a file,
and is an error. Each operation becomes nodes (`operations`, `pointwise`).

Needs the package `onnx` (extra `onnx`).
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from minigrad._names import kind, namespace
from minigrad.autograd.mode import mode
from minigrad.nn import Module
from minigrad.onnx.trace import OnnxExporterError, Trace, Value, matched, observed
from minigrad.serialization import atomic_file
from minigrad.tensor import Tensor, wrap
from minigrad.utils._pytree import tree_leaves, tree_map

__all__ = ["ONNXProgram", "OnnxExporterError", "TrainingMode", "export", "is_in_onnx_export"]

OLDEST, NEWEST, DEFAULT = 13, 21, 18  # versions of ONNX's operators


class TrainingMode(enum.IntEnum):
    """The mode of the model while it is exported."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class ONNXProgram:
    """What `export` returns. model_proto: the message of the package onnx."""

    def __init__(self, model_proto: Any) -> None:
        self.model_proto = model_proto

    def save(self, destination: str | os.PathLike | IO[bytes]) -> None:
        """Write the file: to a path (atomically) or to a binary file object."""
        content = self.model_proto.SerializeToString()
        if not isinstance(destination, str | os.PathLike):
            destination.write(content)
            return
        with atomic_file(os.fspath(destination)) as file:
            file.write(content)


def export(
    model: Any,
    args: Any = (),
    f: str | os.PathLike | IO[bytes] | None = None,
    export_params: bool = True,
    verbose: bool | None = None,
    training: Any = TrainingMode.EVAL,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    do_constant_folding: bool = True,
    dynamic_axes: Mapping[str, Any] | None = None,
    keep_initializers_as_inputs: bool = False,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamo: bool = False,
    dynamic_shapes: Any = None,
) -> ONNXProgram:
    """Write a network as an ONNX file, with the parameters under the names of the state dict.

    Args:
        model: a Module, or a function of tensors. It is run in eval mode unless `training` is
            TrainingMode.PRESERVE.
        args: its arguments, a tuple or one tensor; they fix dtypes and shapes.
        f: a path, a binary file object, or None for no file.
        export_params: False leaves the parameters out: they become inputs.
        verbose: print the operators and their number.
        input_names, output_names: names of the tensors among arguments and results, in order.
        opset_version: version of ONNX's operators, 13 to 21 (18 by default).
        dynamic_axes: dimensions of any length: {"input": {0: "batch"}} or {"input": [0]}.
        dynamo: accepted for compatibility with torch.
    Raises:
        OnnxExporterError: an operation that ONNX lacks (with its module), or values that depend on
            the inputs otherwise than by recorded operations; no file is written.
    """
    onnx = _library()
    opset = _checked_opset(opset_version)
    if dynamic_shapes is not None:
        raise NotImplementedError("onnx.export: dynamic_shapes is not supported; use dynamic_axes")
    if training == TrainingMode.TRAINING:
        raise NotImplementedError(
            "onnx.export: training graphs are not supported; use TrainingMode.EVAL or PRESERVE"
        )
    arguments = (args if isinstance(args, tuple) else (args,), dict(kwargs or {}))
    given = _tensors(arguments)
    names = _named("input_names", input_names, len(given), "input")
    dynamic = _dynamic(dynamic_axes, names, output_names)
    with _mode(model, training):
        first, out = _run(model, arguments)
        second, other = _run(model, _others(arguments, names, dynamic))
    if len(out) != len(other):
        raise OnnxExporterError("onnx.export: the number of results depends on the inputs")
    matched(first, second, (out, other))
    outputs = _named("output_names", output_names, len(out), "output")

    from minigrad.onnx.graph import build

    proto = build(first, out, names, outputs, dynamic, opset, do_constant_folding,
                  export_params, keep_initializers_as_inputs)  # fmt: skip
    if proto.ByteSize() < 2**31:
        onnx.checker.check_model(proto, full_check=True)
    if verbose:
        print(onnx.printer.to_text(proto.graph))
    program = ONNXProgram(proto)
    if f is not None:
        program.save(f)
    return program


def _library() -> Any:
    try:
        import onnx
    except ImportError:
        raise ImportError(
            "onnx.export needs the package onnx: pip install 'minigrad[onnx]'"
        ) from None
    return onnx


def _checked_opset(version: int | None) -> int:
    version = DEFAULT if version is None else version
    if not isinstance(version, int) or not OLDEST <= version <= NEWEST:
        raise ValueError(
            f"onnx.export: opset_version must be from {OLDEST} to {NEWEST}, got {version!r}"
        )
    return version


def _tensors(tree: Any) -> list[Tensor]:
    found = tree_leaves(tree)
    wrong = [x for x in found if isinstance(x, np.ndarray)]
    if wrong:
        raise TypeError("onnx.export: args must be tensors, not numpy.ndarray; torch.from_numpy")
    return [x for x in found if isinstance(x, Tensor)]


def _named(what: str, given: Sequence[str] | None, count: int, stem: str) -> list[str]:
    """The names given, and others for the rest."""
    names = [given] if isinstance(given, str) else list(given or ())
    if len(names) > count or len({*names}) < len(names):
        raise ValueError(
            f"onnx.export: {what} has {len(names)} names {names} for {count} tensors; each tensor "
            "needs a name of its own"
        )
    rest = [f"{stem}_{i}" if count > 1 else stem for i in range(len(names), count)]
    return names + rest


def _dynamic(
    given: Mapping[str, Any] | None, inputs: list[str], outputs: Any
) -> dict[str, dict[int, str | None]]:
    """Per tensor, the name of each dynamic dimension, or None."""
    found: dict[str, dict[int, str | None]] = {}
    for name, axes in (given or {}).items():
        if name not in inputs and name not in (outputs or ()):
            raise ValueError(
                f"onnx.export: dynamic_axes names {name!r}; the tensors are {inputs} and "
                f"{list(outputs or ())} (input_names, output_names)"
            )
        found[name] = dict(axes) if isinstance(axes, Mapping) else dict.fromkeys(axes)
    return found


@contextmanager
def _mode(model: Any, training: Any) -> Iterator[None]:
    """Eval mode, or the modes that the modules have; afterwards they have those of before."""
    modules = list(model.modules()) if isinstance(model, Module) else []
    before = [module.training for module in modules]
    if modules and training in (None, TrainingMode.EVAL):
        model.eval()
    try:
        yield
    finally:
        for module, flag in zip(modules, before, strict=True):
            module.training = flag


def _run(model: Any, arguments: tuple) -> tuple[Trace, list[Value]]:
    """The trace of a run, and the tensors that it returned."""
    trace = Trace(model)
    copies = tree_map(lambda x: wrap(x._array) if isinstance(x, Tensor) else x, arguments)
    for tensor in _tensors(copies):
        trace.input(tensor)
    with observed(trace, model):
        result = model(*copies[0], **copies[1])
        found = [x for x in tree_leaves(result) if x is not None]
        wrong = [x for x in found if not isinstance(x, Tensor)]
        if wrong or not found:
            raise TypeError(
                "onnx.export: the model must return tensors (also in tuples, lists and dicts), got "
                f"{kind(wrong[0]) if wrong else 'none'}"
            )
        return trace, [trace.value(x) for x in found]


def _others(arguments: tuple, names: list[str], dynamic: dict) -> tuple:
    """Arguments of the same dtypes with other elements, longer in the dynamic dimensions.

    Dimensions of one name get the same length; those of different names become longer by
    different amounts, so that a length in the graph tells which of them it is.
    """
    growth: dict[Any, int] = {}
    order = iter(names)
    rng = np.random.default_rng(0)

    def other(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        name = next(order)
        shape = list(x._array.shape)
        for axis, label in dynamic.get(name, {}).items():
            if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
                raise ValueError(
                    f"onnx.export: dynamic_axes: {name!r} has the shape {shape} and no axis {axis}"
                )
            key = label or shape[axis]
            shape[axis] += growth.setdefault(key, len(growth) + 1)
        array = x._array.get() if hasattr(x._array, "get") else x._array
        changed = wrap(_changed(np.resize(array, shape), rng))
        return changed if x.device.type == "cpu" else changed.to(x.device)

    return tree_map(other, arguments)


def is_in_onnx_export() -> bool:
    """Whether this is called by a model that is being exported."""
    return isinstance(mode.observer, Trace)


def _changed(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Other elements: floats of the same signs, integers that are valid indices where these are."""
    if array.dtype == bool:
        return ~array
    if array.dtype.kind in "iu":
        mixed = rng.permutation(array.reshape(-1)).reshape(array.shape)
        if array.size and (mixed == array).all():
            return np.full_like(array, 0 if array.any() else 1)
        return mixed
    noise = rng.uniform(0.5, 1.5, array.shape)
    return np.where(array == 0, noise, array * noise).astype(array.dtype)


__getattr__, __dir__ = namespace(__name__)
