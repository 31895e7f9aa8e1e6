"""The problems that `benchmarks.ladders` times: an operation with versions, its arguments on a CPU
and on a GPU, and the calls of NumPy and torch that compute the same.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import kernels

Arrays = tuple[np.ndarray, ...]


class Problem(NamedTuple):
    """sizes: of the problem on a CPU and on a GPU, for `arrays(rng, *size)`, the array arguments.

    before, rest: the arguments before and after them. numpy: a function of the arrays. torch: from
    torch and its tensors (and what `torch_takes_rest` adds), a function without arguments.
    half: whether a GPU has other units for 16-bit floats, which are then timed too; `float32` are
    the arrays that keep their type.
    """

    operation: str
    sizes: dict[str, tuple[int, ...]]
    arrays: Callable[..., Arrays]
    torch: Callable[..., Callable]
    rest: Callable[..., tuple] = lambda *_: ()
    numpy: Callable | None = None
    half: bool = False
    before: tuple = ()
    torch_takes_rest: bool = False
    float32: tuple[int, ...] = ()

    def arguments(self, arrays: tuple, size: tuple[int, ...]) -> tuple:
        return (*self.before, *arrays, *self.rest(*size))


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def _images(rng: np.random.Generator, n: int, c: int, hw: int) -> np.ndarray:
    return normal(rng, n, c, hw, hw)


def _weights(rng: np.random.Generator, c: int) -> np.ndarray:
    return normal(rng, c, c, 3, 3)


def _heads(rng: np.random.Generator, n: int, h: int, t: int, d: int, count: int = 3) -> Arrays:
    return tuple([normal(rng, n, h, t, d) for _ in range(count)])


def _attention_backward(rng: np.random.Generator, *size: int) -> Arrays:
    g, q, k, v = _heads(rng, *size, count=4)
    return (g, q, k, v, *kernels.attention(q, k, v, causal=True, backend="numba"))


def _attend(torch: ModuleType, q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _torch_attention_backward(torch: ModuleType, g: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    with torch.enable_grad():
        y = _attend(torch, *inputs)
    return lambda: torch.autograd.grad(y, inputs, g, retain_graph=True)


def _pooled(rng: np.random.Generator, n: int, c: int, hw: int) -> Arrays:
    y, indices = kernels.max_pool2d(_images(rng, n, c, hw), (2, 2), (2, 2), backend="numba")
    return normal(rng, *y.shape), indices


def _torch_pool(torch: ModuleType, g: Any, indices: Any) -> Callable:
    n, c, h, w = g.shape
    x = g.new_zeros(n, c, 2 * h, 2 * w)
    step = torch.ops.aten.max_pool2d_with_indices_backward
    return lambda: step(g, x, (2, 2), (2, 2), (0, 0), (1, 1), False, indices)


def _torch_rows(torch: ModuleType, g: Any, index: Any, count: int) -> Callable:
    step = torch.ops.aten.embedding_dense_backward
    return lambda: step(g, index, count, -1, False)


CONV = {"cpu": (8, 32, 28), "gpu": (64, 64, 56)}
ROWS = {"cpu": (1024, 1024), "gpu": (16384, 4096)}
HEADS = {"cpu": (1, 4, 256, 64), "gpu": (4, 16, 1024, 64)}
PAD = ((1, 1), (1, 1))  # stride and padding
ROW_COUNT = {"cpu": 1000, "gpu": 50257}

PROBLEMS = [
    Problem(
        "matmul",
        {"cpu": (512,), "gpu": (4096,)},
        lambda rng, n: (normal(rng, n, n), normal(rng, n, n)),
        lambda torch, a, b: lambda: torch.matmul(a, b),
        numpy=np.matmul,
        half=True,
    ),
    Problem(
        "conv2d",
        CONV,
        lambda rng, n, c, hw: (_images(rng, n, c, hw), _weights(rng, c)),
        lambda torch, x, w: lambda: torch.nn.functional.conv2d(x, w, padding=1),
        rest=lambda *_: (None, *PAD),
        half=True,
    ),
    Problem(
        "conv2d_backward_data",
        CONV,
        lambda rng, n, c, hw: (_images(rng, n, c, hw), _weights(rng, c)),
        lambda torch, g, w: lambda: torch.nn.grad.conv2d_input(g.shape, w, g, padding=1),
        rest=lambda n, c, hw: ((n, c, hw, hw), *PAD),
        half=True,
    ),
    Problem(
        "conv2d_backward_weight",
        CONV,
        lambda rng, n, c, hw: (_images(rng, n, c, hw), _images(rng, n, c, hw)),
        lambda torch, g, x: (
            lambda: torch.nn.grad.conv2d_weight(x, (x.shape[1], x.shape[1], 3, 3), g, padding=1)
        ),
        rest=lambda n, c, hw: ((c, c, 3, 3), *PAD),
        half=True,
    ),
    Problem(
        "attention",
        HEADS,
        _heads,
        lambda torch, q, k, v: lambda: _attend(torch, q, k, v),
        rest=lambda *_: (None, True),
        half=True,
    ),
    Problem(
        "attention_backward",
        HEADS,
        _attention_backward,
        _torch_attention_backward,
        rest=lambda *_: (None, True),
        half=True,
        float32=(5,),  # the logarithms of the sums
    ),
    Problem(
        "reduce",
        {"cpu": (2**22,), "gpu": (2**28,)},
        lambda rng, n: (rng.random(n, dtype=np.float32),),
        lambda torch, x: lambda: torch.sum(x),
        numpy=np.sum,
        before=("sum",),
    ),
    Problem(
        "softmax",
        ROWS,
        lambda rng, *rows: (normal(rng, *rows),),
        lambda torch, x: lambda: torch.softmax(x, -1),
    ),
    Problem(
        "softmax_backward",
        ROWS,
        lambda rng, *rows: (
            normal(rng, *rows),
            kernels.softmax(normal(rng, *rows), backend="numba"),
        ),
        lambda torch, g, y: lambda: torch.ops.aten._softmax_backward_data(g, y, -1, y.dtype),
    ),
    Problem(
        "layer_norm",
        ROWS,
        lambda rng, *rows: (normal(rng, *rows), normal(rng, rows[1]), normal(rng, rows[1])),
        lambda torch, x, w, b: lambda: torch.nn.functional.layer_norm(x, w.shape, w, b),
        rest=lambda *_: (1e-5,),
    ),
    Problem(
        "transpose",
        {"cpu": (2048, 2048), "gpu": (8192, 8192)},
        lambda rng, *shape: (normal(rng, *shape),),
        lambda torch, x: lambda: x.t().contiguous(),
        rest=lambda *_: ((1, 0),),
        numpy=lambda x: np.ascontiguousarray(x.T),
    ),
    Problem(
        "cumsum",
        {"cpu": (256, 4096), "gpu": (4096, 16384)},
        lambda rng, *shape: (normal(rng, *shape),),
        lambda torch, x: lambda: torch.cumsum(x, -1),
        numpy=lambda x: np.cumsum(x, -1),
    ),
    Problem(
        "sort",
        {"cpu": (256, 1024), "gpu": (4096, 4096)},
        lambda rng, *shape: (normal(rng, *shape),),
        lambda torch, x: lambda: torch.sort(x, dim=-1, stable=True),
        numpy=lambda x: np.argsort(x, -1, kind="stable"),
    ),
    Problem(
        "embedding_backward",
        {"cpu": (8192, 64, ROW_COUNT["cpu"]), "gpu": (2**20, 64, ROW_COUNT["gpu"])},
        lambda rng, n, width, count: (normal(rng, n, width), rng.integers(0, count, n)),
        _torch_rows,
        rest=lambda n, width, count: (count,),
        torch_takes_rest=True,
    ),
    Problem(
        "max_pool2d_backward",
        {"cpu": (32, 32, 28), "gpu": (256, 64, 56)},
        _pooled,
        _torch_pool,
        rest=lambda n, c, hw: ((n, c, hw, hw), (2, 2), (2, 2)),
    ),
]
