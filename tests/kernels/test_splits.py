"""Sums that several blocks share: values against float64 at lengths around warps, blocks and their
parts, rows of NaN and infinities, other dtypes, nothing at all; and no races."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import kernels
from kernels import lab, reference
from kernels.launchers.plans import Plans
from tests.kernels.helpers import BFLOAT16, DEVICES, as_wide, assert_close, normal, put
from tests.kernels.test_gpu_plans import planning_for_a_gpu  # noqa: F401

slow = pytest.mark.slow
BACKENDS = ("numba", "cupy")
LENGTHS = (1, 2, 31, 32, 33, 1023, 1025)  # in three parts, the last of which may be shorter
SPECIAL = (np.nan, np.inf, -np.inf)


def rows(rng, n: int, dtype, special: bool = True) -> np.ndarray:
    """(5, n), of which one row has a NaN, one an infinity, and one is -inf up to its last part."""
    x = normal(rng, (5, n), dtype) * 3
    if special and n > 2:
        x[1, n // 2], x[2, 1], x[3, : n - 1] = SPECIAL
    return x


def softmax(rng, n, dtype):
    return rows(rng, n, dtype), -1


def softmax_backward(rng, n, dtype):
    y = reference.softmax(as_wide(rows(rng, n, dtype, False)), -1).astype(dtype)
    return normal(rng, (5, n), dtype), y, -1


def log_softmax_backward(rng, n, dtype):
    y = reference.log_softmax(as_wide(rows(rng, n, dtype, False)), -1).astype(dtype)
    return normal(rng, (5, n), dtype), y, -1


def layer_norm(rng, n, dtype):
    return rows(rng, n, dtype), normal(rng, n, dtype), normal(rng, n, dtype), 1e-3


def rms_norm(rng, n, dtype):
    return rows(rng, n, dtype), normal(rng, n, dtype), 1e-3


def layer_norm_backward(rng, n, dtype):
    wide = np.float64 if dtype == np.float64 else np.float32
    stats = normal(rng, 5, wide), 1 + abs(normal(rng, 5, wide))
    return *(normal(rng, (5, n), dtype) for _ in range(2)), *stats, normal(rng, n, dtype)


def rms_norm_backward(rng, n, dtype):
    g, x, _, invrms, weight = layer_norm_backward(rng, n, dtype)
    return g, x, invrms, weight


def batch_norm(rng, n, dtype):
    x = 1 + normal(rng, (3, 2, n) if n % 2 else (n, 33), dtype)
    return x, normal(rng, x.shape[1], dtype), None, 1e-3


def batch_norm_backward(rng, n, dtype):
    x, weight, *_ = batch_norm(rng, n, dtype)
    _, mean, invstd = reference.batch_norm(x, None, None, 1e-3)
    return normal(rng, x.shape, dtype), x, mean, invstd, weight


def cross_entropy(rng, n, dtype):
    target = rng.integers(0, n, 5)
    target[3] = n - 1  # in the last part
    weight = abs(normal(rng, n, dtype))
    weight[n // 2] = 0
    return rows(rng, n, dtype), target, weight, -100, 0.1


def cross_entropy_backward(rng, n, dtype):
    _, target, *options = cross_entropy(rng, n, dtype)
    logits = normal(rng, (5, n), dtype)
    target[0] = -100
    lse = reference.cross_entropy(as_wide(logits), target)[1].astype(dtype)
    return normal(rng, 5, dtype), logits, lse, target, *options


# The scale of rounding errors, relative to one of each element.
SPLIT = {
    softmax: 30,
    softmax_backward: 30,
    log_softmax_backward: 60,
    layer_norm: 100,
    rms_norm: 100,
    layer_norm_backward: 400,
    rms_norm_backward: 400,
    batch_norm: 100,
    batch_norm_backward: 3000,
    cross_entropy: 60,
    cross_entropy_backward: 30,
}


def several(result) -> list:
    return list(result) if isinstance(result, tuple) else [result]


def compare(name: str, args, scale, device: str, backend: str, terms: int = 1, **how) -> None:
    with np.errstate(all="ignore"):
        expected = several(getattr(reference, name)(*map(as_wide, args)))
    given = [put(a, device) for a in args]
    for a, b in zip(several(getattr(kernels, name)(*given, backend=backend, **how)), expected):
        assert_close(a, as_wide(np.asarray(b)), scale, terms)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", SPLIT, ids=lambda make: make.__name__)
def test_lengths(make, backend, device, rng):
    for n in LENGTHS:
        args = make(rng, n, np.float32)
        compare(make.__name__, args, SPLIT[make], device, backend, n, version="split")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.float16, *(pytest.param(d, marks=slow)
                                                 for d in (BFLOAT16, np.float64))])  # fmt: skip
@pytest.mark.parametrize("make", [softmax, *(pytest.param(m, marks=slow) for m in SPLIT)],
                         ids=lambda make: make.__name__)  # fmt: skip
def test_dtypes(make, dtype, backend, device, rng):
    if dtype != np.float64 and make is cross_entropy:
        return  # a log-sum-exp of infinity in a sum is not one in 16 bits
    args = make(rng, 65, dtype)
    compare(make.__name__, args, SPLIT[make], device, backend, 65, version="split")


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_to_split(backend):
    none, one = np.zeros((0, 9), np.float32), np.ones(9, np.float32)
    how = {"version": "split", "backend": backend}
    assert kernels.softmax(none, **how).shape == none.shape
    assert kernels.softmax(none.T.copy(), **how).shape == (9, 0)
    y, mean, invstd = kernels.layer_norm(none, one, one, 1e-5, **how)
    assert (y.shape, mean.shape, invstd.shape) == ((0, 9), (0,), (0,))
    losses, lse = kernels.cross_entropy(none, np.zeros(0, np.int64), **how)
    assert losses.shape == lse.shape == (0,)
    assert kernels.batch_norm(none, one, None, 1e-5, **how)[0].shape == none.shape


def arrays(rng, *shapes, dtype=np.float32) -> list[np.ndarray]:
    return [normal(rng, shape, dtype) for shape in shapes]


def masked(rng, queries: int, keys: int) -> np.ndarray:
    mask = np.where(rng.random((queries, keys)) < 0.4, -np.inf, normal(rng, (queries, keys)))
    mask[queries // 2] = -np.inf  # a query that sees nothing
    return mask.astype(np.float32)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lengths", [(1, 1), (1, 97), (33, 65), (65, 31)])
def test_attention(lengths, backend, device, rng):
    """Parts of a tile or two; with `causal` the last ones have no key for the first queries."""
    queries, keys = lengths
    widths = (4, queries, 16), (2, keys, 16), (2, keys, 11), (4, queries, 11)
    q, k, v, g = arrays(rng, *((1, *shape) for shape in widths))
    for mask, causal in ((None, True), (masked(rng, queries, keys), False)):
        how = {"causal": causal, "version": "split", "backend": backend}
        given = [None if a is None else put(a, device) for a in (q, k, v, mask)]
        found = kernels.attention(*given, **how)
        expected = reference.attention(*map(as_wide, (q, k, v, mask)), causal)
        for a, b in zip(found, expected):
            assert_close(a, b, 9, terms=9)
        exact = [as_wide(a) for a in (g, q, k, v, *(x.astype(np.float32) for x in expected), mask)]
        grads = kernels.attention_backward(put(g, device), *given[:3], *found, given[3], **how)
        for a, b in zip(grads, reference.attention_backward(*exact, causal)):
            assert_close(a, b, 60, terms=9)


@pytest.mark.parametrize("backend", [pytest.param("numba", marks=slow), "cupy"])
def test_no_races(backend, rng):
    with lab.profiled() as launched:
        for make in (softmax, layer_norm, layer_norm_backward, batch_norm, cross_entropy):
            args = make(rng, 71, np.float32)
            getattr(kernels, make.__name__)(*args, version="split", backend=backend)
        q, k = arrays(rng, (1, 1, 17, 16), (1, 1, 140, 16))
        how = {"version": "split", "backend": backend}
        out, lse = kernels.attention(q, k, k, None, True, **how)
        kernels.attention_backward(out, q, k, k, out, lse, None, True, **how)
    reports = [launch.report for launch in launched if "split" in launch.version]
    assert len(reports) == 5 * 2 + 2 + 3
    assert not any(report.races or report.errors for report in reports)


PLANNED = {
    "sum_of_rows": ("reduce", "sum", (3, 5001), 1),
    "sum_of_columns": ("reduce", "sum", (1001, 33), 0),
    "sum_of_wide_columns": ("reduce", "sum", (300, 130), 0),
    "mean_of_channels": ("reduce", "mean", (3, 5, 700), (0, 2)),
    "argmax_of_columns": ("reduce", "argmax", (2, 601, 3), 1),
    "argmin_of_rows": ("reduce", "argmin", (3, 5001), 1),
    "running_sum": ("cumsum", (2, 5001), 1),
    "running_sum_of_columns": ("cumsum", (2, 601, 3), 1),
    "running_product": ("cumprod", (2, 5001), 1),
    "running_maximum": ("cummax", (2, 5001), 1),
    "running_minimum_of_columns": ("cummin", (2, 601, 3), 1),
    "softmax_of_columns": ("softmax", (2, 601, 3), 1),
    "vector_by_transposed": ("matmul", (1, 70), (33, 70), (33,)),
    "vectors": ("matmul", (2, 1, 70), (33, 70)),
    "matrix_by_vector": ("matmul", (5, 1025), (1025, 1), (1,)),
    "few_results": ("matmul", (3, 1024), (1024, 4)),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("call", PLANNED.values(), ids=PLANNED)
def test_as_planned_for_a_gpu(call, backend, device, rng, planning_for_a_gpu):  # noqa: F811
    name, *args = call
    args = [normal(rng, a) if isinstance(a, tuple) and name != "reduce" else a for a in args]
    if name == "reduce":
        args[1] = np.round(normal(rng, args[1]) * 9)
        args[1].flat[-2] = np.nan if "arg" in args[0] else 1
    if name == "matmul" and args[1].shape[1] > 4:
        args[1] = args[1].T
    with np.errstate(all="ignore"):
        expected = getattr(reference, name)(*map(as_wide, args))
    given = [put(a, device) for a in args]
    found = getattr(kernels, name)(*given, backend=backend)
    if type(found) is not tuple:
        found, expected = (found,), (expected,)
    for ours, right in zip(found, expected, strict=True):
        assert_close(ours, as_wide(np.asarray(right)), 100, terms=1025)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float16, marks=slow)])
def test_convolutions(dtype, backend, device, rng, planning_for_a_gpu, monkeypatch):  # noqa: F811
    module = importlib.import_module("kernels.launchers.conv_gemm")
    monkeypatch.setattr(module, "LEAST_TERMS", 16)
    if device == "cpu":
        monkeypatch.setattr(module, "on_gpu", lambda a: True)
    monkeypatch.setattr(importlib.import_module("kernels.launchers.conv"), "_plans", Plans())
    for x_shape, w_shape, *options in (
        ((1, 9, 7, 7), (13, 9, 3, 3), (1, 1), (1, 1), (1, 1), 1),
        ((2, 24, 13, 16), (24, 12, 2, 3), (3, 2), (3, 4), (2, 1), 2),
        ((1, 64, 7, 7), (70, 64, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ):
        x, w, bias = arrays(rng, x_shape, w_shape, w_shape[0], dtype=dtype)
        y = reference.conv2d(*map(as_wide, (x, w, bias)), *options)
        g = normal(rng, y.shape, dtype)
        for name, args in (
            ("conv2d", (x, w, bias, *options)),
            ("conv2d_backward_data", (g, w, x_shape, *options)),
        ):
            with kernels.trace() as trace:
                compare(name, args, 60, device, backend, 200, version="implicit_gemm")
            # the phases of a stride are rows, so that there are blocks enough without splits
            phases = name == "conv2d_backward_data" and options[0] != (1, 1)
            assert phases or any(operation == "reduce.sum" for operation, _ in trace.rows)
