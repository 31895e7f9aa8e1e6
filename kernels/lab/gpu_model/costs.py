"""What operations cost, from shapes alone: a dialect that computes nothing.

Inside `with counting() as count:` every operation of `kernels` checks nothing and launches nothing:
it hands back an array of the right shape and dtype whose content is meaningless, and notes its
floating-point operations and the least bytes it must move (each operand read once, each result
written once). So a network, its gradients and its optimiser can be "run" in milliseconds, at any
size, and `count` says what they would cost. Results share one piece of memory, however large.

An operation of a pointwise line is an arithmetic operator, a comparison or a call (`exp` counts 1).
What NumPy does itself (sorting, assignments to indexed elements) is not counted.
"""

from __future__ import annotations

import ast
import functools
import math
import mmap
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from kernels import dispatch
from kernels.pointwise import Expr
from kernels.reduction import TABLE as REDUCTIONS
from kernels.reference.common import normalize_axes
from kernels.reference.conv import conv_output_size
from kernels.reference.pointwise import default_dtype
from kernels.reference.pool import pool_output_size

Shape = tuple[int, ...]
Spec = tuple[Shape, np.dtype] | None  # None for a result that is not wanted


class Launch(NamedTuple):
    """One operation: family, floating-point operations, least bytes, and whether tensor cores
    could do it (matrix products and convolutions)."""

    family: str
    flops: int
    bytes: int
    matrix: bool


class Counting:
    """The dialect that counts. launches: all operations so far, in order.

    live: bytes of the results that something still holds; peak: the most there ever were.
    """

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.live = self.peak = 0
        self._scratch = mmap.mmap(-1, 1 << 12)
        self._held: dict[int, tuple[weakref.ref, int]] = {}

    @property
    def flops(self) -> int:
        return sum(launch.flops for launch in self.launches)

    @property
    def bytes(self) -> int:
        return sum(launch.bytes for launch in self.launches)

    def __getattr__(self, name: str) -> Callable:
        if name not in RULES:
            raise AttributeError(f"counting: no rule for {name!r}")
        return functools.partial(self._run, name)

    def _run(self, name: str, *args: Any, **kwargs: Any) -> Any:
        specs, flops = RULES[name](*args, **kwargs)
        given = [*args, *kwargs.values()]
        moved = sum(map(_bytes, given))
        out = kwargs.get("out")
        if specs is None:  # an optimiser: what it changes is also written
            written = sum(map(_bytes, WRITTEN[name](*args)))
            results: tuple = ()
        elif out is not None:
            written, results = 0, (out,)
        else:
            results = tuple([None if spec is None else self.empty(*spec) for spec in specs])
            written = sum(map(_bytes, results))
        family = f"{name}.{args[0].name}" if name == "pointwise" else name
        family = f"{name}.{args[0]}" if name == "reduce" else family
        self.launches.append(Launch(family, int(flops), moved + written, name in MATRIX))
        return results if len(results) > 1 else results[0] if results else None

    def empty(self, shape: Shape, dtype: np.dtype) -> np.ndarray:
        """An array of any size that takes no memory of its own and is counted while it lives."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size > len(self._scratch):
            self._scratch = mmap.mmap(-1, size)  # pages that nothing touches take no memory
        array = np.ndarray(shape, dtype, buffer=self._scratch)
        key = id(array)
        self._held[key] = (weakref.ref(array, lambda _: self._freed(key)), size)
        self.live += size
        self.peak = max(self.peak, self.live)
        return array

    def _freed(self, key: int) -> None:
        self.live -= self._held.pop(key)[1]


@contextmanager
def counting() -> Iterator[Counting]:
    """Count the operations of the block instead of running them."""
    count, before = Counting(), dispatch.active
    dispatch.active = count
    try:
        yield count
    finally:
        dispatch.active = before


def _bytes(value: Any) -> int:
    """Bytes of the arrays in an argument; what a broadcast repeats counts once."""
    if isinstance(value, np.ndarray):
        steps = zip(value.shape, value.strides)
        return math.prod(n for n, step in steps if step) * value.itemsize if value.size else 0
    return sum(map(_bytes, value)) if isinstance(value, list | tuple) else 0


# One rule an operation: from the arguments to the (shape, dtype) of each result and the flops.


def _same(flops_an_element: int) -> Callable:
    """The rule of an operation whose result is like its first argument."""
    return lambda x, *_, **__: ([(x.shape, x.dtype)], flops_an_element * x.size)


def _pointwise(
    expr: Expr, *arrays: Any, params: Sequence = (), dtype: Any = None, out: Any = None,
    out_dtype: Any = None,
) -> tuple[list[Spec], int]:  # fmt: skip
    shape = np.broadcast_shapes(*(np.shape(a) for a in arrays))
    dtype = np.dtype(default_dtype(expr, arrays) if dtype is None else dtype)
    result = out_dtype or (np.dtype(bool) if expr.result == "bool" else dtype)
    return [(shape, result)], operations(expr.text) * math.prod(shape)


@functools.cache
def operations(text: str) -> int:
    """Operators, comparisons and calls in an expression."""
    counted = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call)
    nodes = list(ast.walk(ast.parse(text, mode="eval")))
    signs = sum(isinstance(n, ast.UnaryOp) and isinstance(n.operand, ast.Constant) for n in nodes)
    return sum(isinstance(node, counted) for node in nodes) - signs  # -1 is a number


def _reduce(
    name: str, a: np.ndarray, axis: Any = None, keepdims: bool = False, dtype: Any = None
) -> tuple[list[Spec], int]:
    line, axes = REDUCTIONS[name], normalize_axes(name, axis, a.ndim)
    shape = [1 if i in axes else n for i, n in enumerate(a.shape) if keepdims or i not in axes]
    kind = {"same": np.dtype(dtype or a.dtype), "bool": np.dtype(bool), "index": np.dtype(np.int64)}
    each = operations(line.map) + operations(line.combine)
    return [(tuple(shape), kind[line.result])], each * a.size


def _matmul(a: np.ndarray, b: np.ndarray, bias: Any = None) -> tuple[list[Spec], int]:
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    each = 2 * a.shape[-1] + (bias is not None)
    return [(shape, a.dtype)], each * math.prod(shape)


def _conv2d(
    x: np.ndarray, w: np.ndarray, bias: Any = None, stride: Any = (1, 1), padding: Any = (0, 0),
    dilation: Any = (1, 1), groups: int = 1,
) -> tuple[list[Spec], int]:  # fmt: skip
    sides = zip(x.shape[2:], w.shape[2:], stride, padding, dilation)
    shape = (x.shape[0], w.shape[0], *(conv_output_size(*side) for side in sides))
    each = 2 * math.prod(w.shape[1:]) + (bias is not None)
    return [(shape, x.dtype)], each * math.prod(shape)


def _conv2d_backward_data(g: np.ndarray, w: np.ndarray, x_shape: Shape, *_: Any, **__: Any):
    return [(tuple(x_shape), g.dtype)], 2 * g.size * math.prod(w.shape[1:])


def _conv2d_backward_weight(g: np.ndarray, x: np.ndarray, w_shape: Shape, *_: Any, **__: Any):
    return [(tuple(w_shape), g.dtype)], 2 * g.size * math.prod(w_shape[1:])


def _pooled(x: np.ndarray, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool):
    sides = zip(x.shape[2:], kernel, stride, padding, dilation)
    return (*x.shape[:2], *(pool_output_size(*side, ceil) for side in sides))


def _max_pool2d(
    x: np.ndarray, kernel: Any, stride: Any, padding: Any = (0, 0), dilation: Any = (1, 1),
    ceil_mode: bool = False,
) -> tuple[list[Spec], int]:  # fmt: skip
    shape = _pooled(x, kernel, stride, padding, dilation, ceil_mode)
    return [(shape, x.dtype), (shape, np.dtype(np.int64))], math.prod(shape) * math.prod(kernel)


def _avg_pool2d(
    x: np.ndarray, kernel: Any, stride: Any, padding: Any = (0, 0), ceil_mode: bool = False,
    *_: Any, **__: Any,
) -> tuple[list[Spec], int]:  # fmt: skip
    shape = _pooled(x, kernel, stride, padding, (1, 1), ceil_mode)
    return [(shape, x.dtype)], math.prod(shape) * math.prod(kernel)


def _max_pool2d_backward(g: np.ndarray, indices: np.ndarray, x_shape: Shape, *_: Any, **__: Any):
    return [(tuple(x_shape), g.dtype)], g.size


def _avg_pool2d_backward(g: np.ndarray, x_shape: Shape, kernel: Any, *_: Any, **__: Any):
    return [(tuple(x_shape), g.dtype)], g.size * math.prod(kernel)


def _wide(x: np.ndarray) -> np.dtype:
    """The dtype that x is computed in."""
    return np.dtype(np.float32) if x.dtype.itemsize == 2 else x.dtype


def _statistics(x: np.ndarray) -> Spec:
    """Per channel."""
    return (x.shape[1],), _wide(x)


def _batch_norm(x: np.ndarray, *_: Any, **__: Any) -> tuple[list[Spec], int]:
    return [(x.shape, x.dtype), _statistics(x), _statistics(x)], 7 * x.size


def _batch_norm_backward(g: np.ndarray, x: np.ndarray, *_: Any, **__: Any):
    return [(x.shape, x.dtype), _statistics(x), _statistics(x)], 10 * x.size


def _layer_norm(
    x: np.ndarray, weight: Any, bias: Any, eps: float, dims: int = 1
) -> tuple[list[Spec], int]:
    row = (x.shape[: x.ndim - dims], _wide(x))
    return [(x.shape, x.dtype), row, row], 8 * x.size


def _rms_norm(x: np.ndarray, weight: Any, eps: float, dims: int = 1) -> tuple[list[Spec], int]:
    return [(x.shape, x.dtype), (x.shape[: x.ndim - dims], _wide(x))], 4 * x.size


def _layer_norm_backward(
    g: np.ndarray, x: np.ndarray, mean: Any, invstd: Any, weight: Any, dims: int = 1,
    affine: bool = True,
) -> tuple[list[Spec], int]:  # fmt: skip
    parameter = (x.shape[x.ndim - dims :], _wide(x)) if affine else None
    return [(x.shape, x.dtype), parameter, parameter], (16 if affine else 11) * x.size


def _rms_norm_backward(g: np.ndarray, x: np.ndarray, invrms: Any, *rest: Any, **named: Any):
    specs, flops = _layer_norm_backward(g, x, None, invrms, *rest, **named)
    return specs[:2], flops - 3 * x.size


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, *_: Any, **__: Any):
    rows, (keys, width) = math.prod(q.shape[:3]), v.shape[2:]
    flops = rows * keys * (2 * (q.shape[3] + width) + 5)
    return [((*q.shape[:3], width), q.dtype), (q.shape[:3], _wide(q))], flops


def _attention_backward(g: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, *_: Any, **__):
    rows, (keys, width) = math.prod(q.shape[:3]), v.shape[2:]
    flops = rows * keys * (6 * q.shape[3] + 4 * width + 6)
    return [(a.shape, a.dtype) for a in (q, k, v)], flops


def _cross_entropy(logits: np.ndarray, *_: Any, **__: Any) -> tuple[list[Spec], int]:
    row = (logits.shape[:1], logits.dtype)
    return [row, row], 5 * logits.size


def _cross_entropy_backward(g: np.ndarray, logits: np.ndarray, *_: Any, **__: Any):
    return [(logits.shape, logits.dtype)], 4 * logits.size


def _embedding(weight: np.ndarray, index: np.ndarray) -> tuple[list[Spec], int]:
    return [((*index.shape, weight.shape[1]), weight.dtype)], 0


def _embedding_backward(g: np.ndarray, index: np.ndarray, num_rows: int, **__: Any):
    return [((num_rows, g.shape[-1]), g.dtype)], g.size


def _gather(x: np.ndarray, axis: int, index: np.ndarray) -> tuple[list[Spec], int]:
    return [(index.shape, x.dtype)], 0


def _scatter_add(x: np.ndarray, axis: int, index: np.ndarray, src: np.ndarray, **__: Any):
    return [(x.shape, x.dtype)], index.size


def _take(x: np.ndarray, index: np.ndarray) -> tuple[list[Spec], int]:
    return [(index.shape, x.dtype)], 0


def _take_backward(g: np.ndarray, index: np.ndarray, size: int) -> tuple[list[Spec], int]:
    return [((size,), g.dtype)], g.size


def _cast(x: np.ndarray, dtype: Any) -> tuple[list[Spec], int]:
    return [(x.shape, np.dtype(dtype))], 0


def _transpose(x: np.ndarray, axes: Sequence[int]) -> tuple[list[Spec], int]:
    return [(tuple(x.shape[a] for a in axes), x.dtype)], 0


def _concat(arrays: Sequence[np.ndarray], axis: int = 0) -> tuple[list[Spec], int]:
    shape = list(arrays[0].shape)
    shape[axis] = sum(a.shape[axis] for a in arrays)
    return [(tuple(shape), arrays[0].dtype)], 0


def _random(shape: Any, seed: int, offset: int, dtype: Any = np.float32) -> tuple[list[Spec], int]:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return [(shape, np.dtype(dtype))], math.prod(shape)


def _words(n: int, seed: int, offset: int) -> tuple[list[Spec], int]:
    return [((n,), np.dtype(np.uint32))], 0


def _sgd(p: np.ndarray, g: np.ndarray, buf: Any, lr: float, momentum: float = 0.0, *_: Any, **__):
    return None, (4 if momentum else 2) * p.size


def _adam(p: np.ndarray, *_: Any, **__: Any) -> tuple[None, int]:
    return None, 13 * p.size


RULES: dict[str, Callable] = {
    "adam_": _adam,
    "attention": _attention,
    "attention_backward": _attention_backward,
    "avg_pool2d": _avg_pool2d,
    "avg_pool2d_backward": _avg_pool2d_backward,
    "batch_norm": _batch_norm,
    "batch_norm_apply": _same(3),
    "batch_norm_backward": _batch_norm_backward,
    "cast": _cast,
    "concat": _concat,
    "conv2d": _conv2d,
    "conv2d_backward_data": _conv2d_backward_data,
    "conv2d_backward_weight": _conv2d_backward_weight,
    "copy": _same(0),
    "cross_entropy": _cross_entropy,
    "cross_entropy_backward": _cross_entropy_backward,
    "cumsum": _same(1),
    "dropout": _same(2),
    "embedding": _embedding,
    "embedding_backward": _embedding_backward,
    "gather": _gather,
    "layer_norm": _layer_norm,
    "layer_norm_backward": _layer_norm_backward,
    "log_softmax": _same(5),
    "log_softmax_backward": _same(4),
    "matmul": _matmul,
    "max_pool2d": _max_pool2d,
    "max_pool2d_backward": _max_pool2d_backward,
    "normal": _random,
    "philox_uint32": _words,
    "pointwise": _pointwise,
    "reduce": _reduce,
    "rms_norm": _rms_norm,
    "rms_norm_backward": _rms_norm_backward,
    "scatter_add": _scatter_add,
    "sgd_": _sgd,
    "softmax": _same(5),
    "softmax_backward": _same(4),
    "take": _take,
    "take_backward": _take_backward,
    "transpose": _transpose,
    "uniform": _random,
}
#: what the optimisers change in place
WRITTEN: dict[str, Callable] = {
    "sgd_": lambda p, g, buf, *_: (p, buf),
    "adam_": lambda p, g, m, v, vmax, *_: (p, m, v, vmax),
}
MATRIX = frozenset(
    "matmul conv2d conv2d_backward_data conv2d_backward_weight attention attention_backward".split()
)
