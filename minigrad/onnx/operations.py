"""ONNX nodes of the operations: one function for each, from a writer and a call to the name of the
result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.reduction import Reduction
from minigrad.onnx.pointwise import Symbol, pointwise
from minigrad.onnx.trace import Call, OnnxExporterError, Value, same_attributes
from minigrad.onnx.writer import Writer, element
from minigrad.ops.pointwise import Pointwise
from minigrad.ops.reduce import Reduce

MAPPED: dict[str, Callable[[Writer, Call], str]] = {}
SIZED: dict[str, tuple[str, ...]] = {}  # attributes that may differ between the runs


def mapping(*names: str, sized: tuple[str, ...] = ()) -> Callable:
    """Register the function of operations."""

    def register(function: Callable) -> Callable:
        for name in names:
            MAPPED[name], SIZED[name] = function, sized
        return function

    return register


def write(writer: Writer, call: Call) -> None:
    """Add the nodes of a call."""
    writer.call = call
    function: Callable[[Writer, Call], str]
    sized: tuple[str, ...]
    if isinstance(call.op, Pointwise):
        function, sized = pointwise, ()
    elif isinstance(call.op, Reduction) or issubclass(call.op, Reduce):
        function, sized = _reduce, ()
    elif call.op.name in MAPPED:
        function, sized = MAPPED[call.op.name], SIZED[call.op.name]
    else:
        hint = "; call model.eval() first" if call.op.name in ("Dropout", "BatchNorm") else ""
        raise OnnxExporterError(
            f"onnx.export: {call} cannot be written as ONNX nodes{hint or ': use others there'}"
        )
    same_attributes(call, sized)
    writer.names[(id(call), 0)] = function(writer, call)


def _names(writer: Writer, call: Call) -> list[str]:
    return [writer.name(x) if isinstance(x, Value) else "" for x in call.inputs]


def _ints(values: Any) -> list[int]:
    return [int(v) for v in values]


# -- shapes ------------------------------------------------------------------------------------


@mapping("Reshape", sized=("shape",))
def _reshape(writer: Writer, call: Call) -> str:
    shape = writer.sizes(call.outputs[0].sizes(), infer=True)
    return writer.node("Reshape", writer.name(call.inputs[0]), shape)


@mapping("Permute", "Transpose")
def _permute(writer: Writer, call: Call) -> str:
    return writer.node("Transpose", writer.name(call.inputs[0]), perm=_ints(call.attrs["dims"]))


@mapping("Expand", sized=("shape",))
def _expand(writer: Writer, call: Call) -> str:
    x = call.inputs[0]
    old, new = x.sizes(), call.outputs[0].sizes()
    kept = [(0, 0)] * (len(new) - len(old)) + old
    return writer.node(
        "Expand",
        writer.name(x),
        writer.sizes([(1, 1) if n == k else n for n, k in zip(new, kept, strict=True)]),
    )


def _whole(call: Call) -> tuple:
    """The index of a slice, without the bounds that are the whole of a dynamic dimension."""
    same_attributes(call, ("index",))
    found, axis = [], 0
    for a, b in zip(call.attrs["index"], call.counterpart.attrs["index"], strict=True):
        if isinstance(a, slice) and isinstance(b, slice) and a.stop != b.stop:
            m, n = call.inputs[0].sizes()[axis]
            if None not in (a.stop, b.stop) and a.stop >= m and b.stop >= n:
                a, b = slice(a.start, None, a.step), slice(b.start, None, b.step)
        if a != b:
            same_attributes(call, ())
        found.append(a)
        axis += a is not None
    return tuple(found)


@mapping("Slice", sized=("index",))
def _slice(writer: Writer, call: Call) -> str:
    x = call.inputs[0]
    name, last = writer.name(x), np.iinfo(np.int64).max
    starts: list[int] = []
    stops: list[int] = []
    steps: list[int] = []
    axes, gone, new = [], [], []
    axis = place = 0  # of the input, of the result
    for item in _whole(call):
        if item is None:
            new.append(place)
            place += 1
            continue
        if isinstance(item, slice):
            bounds = (item.start or 0, last if item.stop is None else item.stop, item.step or 1)
            place += 1
        else:
            bounds = (int(item), last if item == -1 else int(item) + 1, 1)
            gone.append(axis)
        if bounds != (0, last, 1):
            for values, value in zip((starts, stops, steps), bounds, strict=True):
                values.append(value)
            axes.append(axis)
        axis += 1
    if axes:
        parts = [writer.integers(*v) for v in (starts, stops, axes, steps)]
        name = writer.node("Slice", name, *parts)
    if gone:
        name = writer.node("Squeeze", name, writer.integers(*gone))
    return writer.node("Unsqueeze", name, writer.integers(*new)) if new else name


@mapping("Clone", "Move", "Pin", sized=("where", "origin", "non_blocking"))
def _same(writer: Writer, call: Call) -> str:
    return writer.name(call.inputs[0])


@mapping("Cast")
def _cast(writer: Writer, call: Call) -> str:
    x = call.inputs[0]
    return writer.cast(writer.name(x), writer.dtype(x), call.attrs["dtype"])


@mapping("Cat")
def _cat(writer: Writer, call: Call) -> str:
    used = [x for x in call.inputs if x.array.shape != (0,)] or call.inputs[:1]
    return writer.node("Concat", *[writer.name(x) for x in used], axis=int(call.attrs["dim"]))


@mapping("Stack")
def _stack(writer: Writer, call: Call) -> str:
    dim = int(call.attrs["dim"])
    rows = [writer.node("Unsqueeze", writer.name(x), writer.integers(dim)) for x in call.inputs]
    return writer.node("Concat", *rows, axis=dim)


@mapping("PadConstant")
def _pad(writer: Writer, call: Call) -> str:
    x = call.inputs[0]
    pads = call.attrs["pads"]
    fill = writer.constant(call.attrs["value"], writer.dtype(x))
    sides = writer.integers(*[p[0] for p in pads], *[p[1] for p in pads])
    return writer.node("Pad", writer.name(x), sides, fill)


@mapping("Flip")
def _flip(writer: Writer, call: Call) -> str:
    axes = _ints(call.attrs["axes"])
    least, n = int(np.iinfo(np.int64).min), len(axes)
    parts = [[-1] * n, [least] * n, axes, [-1] * n]
    return writer.node("Slice", writer.name(call.inputs[0]), *[writer.integers(*p) for p in parts])


@mapping("Roll")
def _roll(writer: Writer, call: Call) -> str:
    name, last = writer.name(call.inputs[0]), np.iinfo(np.int64).max
    for dim, cut in call.attrs["cuts"]:
        bounds = ((int(cut), last), (0, int(cut)))
        parts = [[writer.integers(v) for v in (start, stop, int(dim))] for start, stop in bounds]
        pair = [writer.node("Slice", name, *part) for part in parts]
        name = writer.node("Concat", *pair, axis=int(dim))
    return name


@mapping("Triangle")
def _triangle(writer: Writer, call: Call) -> str:
    diagonal, lower = writer.constant(call.attrs["diagonal"], np.int64), call.attrs["lower"]
    return writer.node("Trilu", writer.name(call.inputs[0]), diagonal, upper=int(not lower))


# -- selection ---------------------------------------------------------------------------------


@mapping("Embedding")
def _embedding(writer: Writer, call: Call) -> str:
    return writer.node("Gather", *_names(writer, call), axis=0)


@mapping("Gather")
def _gather(writer: Writer, call: Call) -> str:
    return writer.node("GatherElements", *_names(writer, call), axis=int(call.attrs["dim"]))


@mapping("Take")
def _take(writer: Writer, call: Call) -> str:
    parts = writer.integers(-1, *call.attrs.get("tail", ()))
    flat = writer.node("Reshape", writer.name(call.inputs[0]), parts)
    return writer.node("Gather", flat, writer.constant(call.attrs["index"], np.int64), axis=0)


# -- products and convolutions -----------------------------------------------------------------


@mapping("MatMul")
def _matmul(writer: Writer, call: Call) -> str:
    return writer.node("MatMul", *_names(writer, call))


@mapping("Linear")
def _linear(writer: Writer, call: Call) -> str:
    x, weight, *bias = [name for name in _names(writer, call) if name]
    if call.inputs[0].array.ndim == 2:
        return writer.node("Gemm", x, weight, *bias, transB=1)
    turned = writer.node("Transpose", weight, perm=[1, 0])
    product = writer.node("MatMul", x, turned)
    return writer.node("Add", product, *bias) if bias else product


def _geometry(attrs: dict) -> dict[str, Any]:
    return {
        "strides": _ints(attrs["stride"]),
        "pads": _ints(attrs["padding"]) * 2,
        "dilations": _ints(attrs["dilation"]),
        "group": int(attrs["groups"]),
    }


@mapping("Conv2d", "Conv1d")
def _conv(writer: Writer, call: Call) -> str:
    kernel = _ints(call.inputs[1].array.shape[2:])
    names = [name for name in _names(writer, call) if name]
    return writer.node("Conv", *names, kernel_shape=kernel, **_geometry(call.attrs))


@mapping("ConvData", sized=("shape",))
def _conv_transpose(writer: Writer, call: Call) -> str:
    geometry = _geometry(call.attrs)
    kernel = _ints(call.inputs[1].array.shape[2:])
    extra = [
        size - ((n - 1) * s - 2 * p + d * (k - 1) + 1)
        for size, n, s, p, d, k in zip(
            call.attrs["shape"][2:], call.inputs[0].array.shape[2:], geometry["strides"],
            call.attrs["padding"], geometry["dilations"], kernel, strict=True,
        )
    ]  # fmt: skip
    names = [name for name in _names(writer, call) if name]
    return writer.node(
        "ConvTranspose", *names, kernel_shape=kernel, output_padding=_ints(extra), **geometry
    )


# -- pooling -----------------------------------------------------------------------------------


def _windows(call: Call, dilation: list[int]) -> dict[str, Any]:
    """Attributes of a pool; windows of ceil_mode that begin inside end in padding."""
    attrs, x = call.attrs, call.inputs[0]
    before, after = _ints(attrs["padding"]), _ints(attrs["padding"])
    if attrs["ceil_mode"]:
        if x.sizes()[2:] != [(n, n) for n in x.array.shape[2:]]:
            raise OnnxExporterError(
                f"onnx.export: {call} has ceil_mode and a dynamic height or width; leave them out "
                "of dynamic_axes"
            )
        out = call.outputs[0].array.shape[2:]
        after = [
            max((m - 1) * s + d * (k - 1) + 1 - n - p, 0)
            for m, s, d, k, n, p in zip(
                out, attrs["stride"], dilation, attrs["kernel"], x.array.shape[2:], before
            )
        ]
    return {
        "kernel_shape": _ints(attrs["kernel"]),
        "strides": _ints(attrs["stride"]),
        "pads": before + after,
    }


@mapping("MaxPool2d")
def _max_pool(writer: Writer, call: Call) -> str:
    dilation = _ints(call.attrs["dilation"])
    windows = _windows(call, dilation)
    return writer.node("MaxPool", writer.name(call.inputs[0]), dilations=dilation, **windows)


@mapping("AvgPool2d", sized=("kernel", "stride"))
def _avg_pool(writer: Writer, call: Call) -> str:
    x, attrs = call.inputs[0], call.attrs
    plain = not any(attrs["padding"]) and attrs["divisor_override"] is None
    if plain and all(
        tuple(c.attrs["kernel"]) == c.inputs[0].array.shape[2:] for c in (call, call.counterpart)
    ):
        return writer.node("GlobalAveragePool", writer.name(x))
    same_attributes(call, ())
    windows = _windows(call, [1, 1])
    divisor = attrs["divisor_override"]
    if windows["pads"][2:] != windows["pads"][:2] and attrs["count_include_pad"]:
        raise OnnxExporterError(
            f"onnx.export: {call} has windows that end outside of its input (ceil_mode), whose "
            "divisor ONNX does not have; use ceil_mode=False or count_include_pad=False"
        )
    counted = int(attrs["count_include_pad"] or divisor is not None)
    y = writer.node("AveragePool", writer.name(x), count_include_pad=counted, **windows)
    if divisor is None:
        return y
    scale = attrs["kernel"][0] * attrs["kernel"][1] / divisor
    return writer.node("Mul", y, writer.constant(scale, writer.dtype(x)))


# -- normalisation -----------------------------------------------------------------------------


@mapping("BatchNormApply")
def _batch_norm(writer: Writer, call: Call) -> str:
    x, mean, invstd, weight, bias = call.inputs
    dtype, shape = writer.dtype(x), mean.array.shape
    found = _variance(invstd)
    if found is None:
        inverse = Symbol(writer, writer.name(invstd), dtype)
        variance, eps = (1 / (inverse * inverse)).name, 0.0
    else:
        variance, eps = writer.name(found[0]), float(found[1])
    scale = writer.name(weight) if weight is not None else writer.constant(np.ones(shape, dtype))
    shift = writer.name(bias) if bias is not None else writer.constant(np.zeros(shape, dtype))
    names = (writer.name(x), scale, shift, writer.name(mean), variance)
    return writer.node("BatchNormalization", *names, epsilon=eps)


def _variance(invstd: Value) -> tuple[Value, float] | None:
    """(variance, eps) of a value that was computed as (variance + eps).rsqrt()."""
    root = invstd.call
    if root is None or root.op.name != "rsqrt":
        return None
    total = root.inputs[0].call
    if total is None or total.op.name != "add" or not isinstance(total.inputs[0], Value):
        return None
    variance, eps = total.inputs
    return None if isinstance(eps, Value) or variance.stale else (variance, eps)


@mapping("LayerNorm")
def _layer_norm(writer: Writer, call: Call) -> str:
    x, weight, bias = call.inputs
    first = x.array.ndim - len(call.attrs["shape"])
    eps, dtype = call.attrs["eps"], writer.dtype(x)
    if writer.opset >= 17:
        scale = writer.constant(np.ones(x.array.shape[first:], dtype)) if weight is None else None
        names = [writer.name(x), scale or writer.name(weight)]
        names += [writer.name(bias)] if bias is not None else []
        return writer.node("LayerNormalization", *names, axis=first, epsilon=float(eps))
    axes = list(range(first, x.array.ndim))
    value = Symbol(writer, writer.name(x), dtype)
    centred = value - Symbol(writer, reduction(writer, "ReduceMean", value.name, axes), dtype)
    return _scaled(writer, centred, centred, axes, eps, weight, bias).name


@mapping("RMSNorm")
def _rms_norm(writer: Writer, call: Call) -> str:
    x, weight = call.inputs
    value = Symbol(writer, writer.name(x), writer.dtype(x))
    axes = list(range(x.array.ndim - len(call.attrs["shape"]), x.array.ndim))
    return _scaled(writer, value, value, axes, call.attrs["eps"], weight, None).name


def _scaled(
    writer: Writer, x: Symbol, of: Symbol, axes: list, eps: float, weight: Any, bias: Any
) -> Symbol:
    """x / sqrt(mean(of * of) + eps) * weight + bias."""
    mean = Symbol(writer, reduction(writer, "ReduceMean", (of * of).name, axes), x.dtype)
    y = x / (mean + eps).apply("Sqrt")
    y = y if weight is None else y * Symbol(writer, writer.name(weight), x.dtype)
    return y if bias is None else y + Symbol(writer, writer.name(bias), x.dtype)


@mapping("Softmax", "LogSoftmax")
def _softmax(writer: Writer, call: Call) -> str:
    return writer.node(call.op.name, writer.name(call.inputs[0]), axis=int(call.attrs["dim"]))


# -- reductions --------------------------------------------------------------------------------

_REDUCTIONS = {
    "sum": "ReduceSum", "mean": "ReduceMean", "prod": "ReduceProd", "max": "ReduceMax",
    "min": "ReduceMin", "sum_squares": "ReduceSumSquare", "norm1": "ReduceL1",
    "norm2": "ReduceL2", "norm_inf": "ReduceMax", "any": "ReduceMax", "all": "ReduceMin",
}  # fmt: skip


def reduction(writer: Writer, kind: str, x: str, axes: Any, keepdim: bool = True) -> str:
    """A reduction over axes (None: all): an input or an attribute, by the version."""
    keep = int(keepdim)
    if axes is None:
        return writer.node(kind, x, keepdims=keep)
    if writer.opset >= 18 or kind == "ReduceSum":
        return writer.node(kind, x, writer.integers(*axes), keepdims=keep)
    return writer.node(kind, x, axes=_ints(axes), keepdims=keep)


def _reduce(writer: Writer, call: Call) -> str:
    x, line = call.inputs[0], getattr(call.op, "key", call.op.name)
    axes, keepdim = call.attrs["axes"], call.attrs["keepdim"]
    name, dtype = writer.name(x), writer.dtype(x)
    if line in ("argmax", "argmin"):
        if axes is None:
            name, axes = writer.node("Reshape", name, writer.integers(-1)), (0,)
            keepdim = keepdim and x.array.ndim == 1
        kind = "ArgMax" if line == "argmax" else "ArgMin"
        return writer.node(kind, name, axis=int(axes[0]), keepdims=int(keepdim))
    if line in ("any", "all"):
        if dtype.kind != "b":
            name = (Symbol(writer, name, dtype) != 0).name
        name = reduction(writer, _REDUCTIONS[line], writer.cast(name, bool, "u1"), axes, keepdim)
        return writer.node("Cast", name, to=element(bool))
    target = call.attrs.get("dtype") or call.outputs[0].array.dtype
    name = writer.cast(name, dtype, target)
    if line == "norm_inf":
        name = writer.node("Abs", name)
    return reduction(writer, _REDUCTIONS[line], name, axes, keepdim)


@mapping("CumSum")
def _cumsum(writer: Writer, call: Call) -> str:
    axis = writer.constant(call.attrs["dim"], np.int64)
    return writer.node("CumSum", writer.name(call.inputs[0]), axis)
