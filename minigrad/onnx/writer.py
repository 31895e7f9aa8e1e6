"""The nodes, constants and sizes of the ONNX graph that is being written."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, defs, helper, numpy_helper

from minigrad.onnx.trace import Call, OnnxExporterError, Trace, Value, is_uniform


class Writer:
    """Collects nodes and initializers; `name` gives the name of a value of the trace.

    opset: the version of ONNX's operators. fold: whether what depends on no input is stored as a
    constant. dims: the lengths that differ between the runs: (input, axis, sizes).
    """

    def __init__(self, trace: Trace, opset: int, fold: bool) -> None:
        self.opset, self.fold = opset, fold
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.parameters: dict[str, Value] = {}
        self.names: dict[Any, str] = {}
        self.dims: list[tuple[str, int, tuple[int, int]]] = []
        self._count: dict[str, int] = {}
        self._constants: dict[tuple, str] = {}
        self.call: Call | None = None  # being written

    # -- nodes -----------------------------------------------------------------------------

    def node(self, kind: str, *inputs: str, **attrs: Any) -> str:
        """Add a node with one output; its name."""
        where = self.call.where if self.call is not None else "the model"
        self._check_version(kind)
        out = self.fresh(kind.lower())
        self.nodes.append(
            helper.make_node(kind, list(inputs), [out], f"{where}: {out}", doc_string="", **attrs)
        )
        return out

    def _check_version(self, kind: str) -> None:
        try:
            defs.get_schema(kind, self.opset)
        except defs.SchemaError:
            raise OnnxExporterError(
                f"onnx.export: {self.call} needs the operator {kind}, which opset_version="
                f"{self.opset} does not have; use a newer one"
            ) from None

    def fresh(self, stem: str) -> str:
        number = self._count[stem] = self._count.get(stem, -1) + 1
        return f"{stem}_{number}"

    def constant(self, value: Any, dtype: Any = None) -> str:
        """The name of a constant; small equal ones are stored once."""
        array = np.ascontiguousarray(np.asarray(value, dtype)).reshape(np.shape(value))
        key = (array.dtype, array.shape, array.tobytes()) if array.size <= 64 else None
        if key in self._constants:
            return self._constants[key]
        name = self.fresh("constant")
        self.initializers[name] = numpy_helper.from_array(array, name)
        if key is not None:
            self._constants[key] = name
        return name

    def integers(self, *values: int) -> str:
        return self.constant(values, np.int64)

    # -- values of the trace ---------------------------------------------------------------

    def name(self, value: Value) -> str:
        """The name of a value that a node reads."""
        key = (id(value.call), value.place) if value.kind == "result" else id(value)
        found = self.names.get(key)
        if found is None:
            found = self.names[key] = self._named(value)
        return found

    def _named(self, value: Value) -> str:
        if value.kind == "parameter":
            self.parameters[value.name] = value
            self.initializers[value.name] = numpy_helper.from_array(host(value.array), value.name)
            return value.name
        if self.folded(value) and value.array.shape == value.counterpart.array.shape:
            return self.constant(host(value.array))
        if is_uniform(value):  # zeros or ones of a dynamic size
            fill = self.constant(host(value.array).flat[0])
            return self.node("Expand", fill, self.sizes(value.sizes()))
        raise OnnxExporterError(
            "onnx.export: the model makes a tensor of dynamic size that is not filled with one "
            f"number and that {self.call} reads; leave that dimension out of dynamic_axes"
        )

    def folded(self, value: Value) -> bool:
        """Whether a value is stored as a constant."""
        if value.kind == "result":
            same = value.array.shape == value.counterpart.array.shape
            return self.fold and value.fixed and same and not value.stale
        return value.kind == "constant"

    def dtype(self, value: Value) -> np.dtype:
        return value.array.dtype

    def cast(self, name: str, old: Any, new: Any) -> str:
        if np.dtype(old) == np.dtype(new):
            return name
        return self.node("Cast", name, to=element(new))

    # -- sizes -----------------------------------------------------------------------------

    def sizes(self, pairs: list[tuple[int, int]], infer: bool = False) -> str:
        """An int64 vector of lengths from those of both runs: constants where they agree, else
        computed from the shapes of the inputs. infer: one may be -1, as in Reshape."""
        dynamic = [i for i, (a, b) in enumerate(pairs) if a != b]
        known = [a if a == b else -1 for a, b in pairs]
        if not dynamic or (infer and len(dynamic) == 1):
            return self.integers(*known)
        parts = [self._length(a, b) if a != b else self.integers(a) for a, b in pairs]
        return self.node("Concat", *parts, axis=0)

    def _length(self, a: int, b: int) -> str:
        """A length that is that of a dynamic dimension times a number."""
        for name, axis, (m, n) in self.dims:
            if a % m == 0 and a // m * n == b:
                shape = self.node("Shape", name)
                length = self.node("Gather", shape, self.integers(axis), axis=0)
                return length if a == m else self.node("Mul", length, self.integers(a // m))
        raise OnnxExporterError(
            f"onnx.export: {self.call} has a length that is {a} in one run and {b} in another, "
            "which is no multiple of a dimension in dynamic_axes; leave that dimension out of "
            "dynamic_axes"
        )


def host(array: Any) -> np.ndarray:
    """An array in the memory of the CPU."""
    return array.get() if hasattr(array, "get") else np.asarray(array)


def element(dtype: Any) -> int:
    """ONNX's number of a dtype."""
    dtype = np.dtype(dtype)
    if dtype.name == "bfloat16":
        return TensorProto.BFLOAT16
    return helper.np_dtype_to_tensor_dtype(dtype)
