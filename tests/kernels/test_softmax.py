"""Softmax, log-softmax, cross entropy and their gradients against float64."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from kernels import reference
from kernels.launchers.softmax import BACKWARD, FORWARD
from tests.kernels.helpers import BFLOAT16, DEVICES, assert_close, eps, get, normal, put, wide

pytestmark = pytest.mark.parametrize("device", DEVICES)
LENGTHS = (1, 10, 31, 33, 255, 257, 1024, 1025, 4097, 100_000)
NAMES = ("softmax", "log_softmax")


def longest(version: str) -> int:
    return {"warp": 1024, "one_read": 4096}.get(version, 10**9)


def check(device, name: str, x: np.ndarray, axis: int = -1, version: str | None = None) -> None:
    """The result to a few rounding steps of the exponents, which are of the size of max - x."""
    operation, oracle = getattr(kernels, name), getattr(reference, name)
    y = operation(put(x, device), axis, backend="numba", version=version)
    assert y.dtype == x.dtype
    expected = oracle(wide(x), axis)
    size = np.abs(expected) * 20 if name == "softmax" else np.abs(expected) + 20
    assert_close(y, expected, size)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("version", [v for v in FORWARD if v != "strided"])
def test_rows(device, version, name, rng):
    for n in LENGTHS:
        if n <= longest(version):
            rows = 1 if n > 10_000 else 9
            check(device, name, 4 * normal(rng, (rows, n)), version=version)


@pytest.mark.parametrize("name", NAMES)
def test_any_axis(device, name, rng):
    x = normal(rng, (3, 33, 5, 2))
    for axis in (0, 1, 2, 3, -1, -3):
        check(device, name, x, axis)
    check(device, name, normal(rng, 1025)[:, None], 0)
    check(device, name, normal(rng, (33, 40)).T)
    check(device, name, normal(rng, (4, 0)))
    check(device, name, np.array(2.5, np.float32))


@pytest.mark.parametrize(
    ("name", "dtype", "length"),
    [
        ("softmax", np.float64, 40),
        ("softmax", np.float16, 300),
        ("softmax", BFLOAT16, 40),
        ("log_softmax", np.float64, 300),
        ("log_softmax", np.float16, 40),
        ("log_softmax", BFLOAT16, 300),
    ],
)
def test_dtypes(device, name, dtype, length, rng):
    check(device, name, normal(rng, (5, length), dtype))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("version", FORWARD)
def test_extremes(device, version, name):
    x = np.zeros((5, 40), np.float32)
    x[0, :39] = -np.inf
    x[1] = -np.inf
    x[2, 3] = np.nan
    x[3] = 1e4
    x[4, 0], x[4, 1] = 1e38, -1e38
    view = x.T if version == "strided" else x
    axis = 0 if version == "strided" else -1
    y = get(getattr(kernels, name)(put(view, device), axis, backend="numba", version=version))
    expected = getattr(reference, name)(wide(view), axis)
    np.testing.assert_allclose(wide(y), expected, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_short_rows(device, name, dtype, rng):
    """Those that a CPU takes several at a time of, and what is left of the last block."""
    for rows, n in ((16, 1), (17, 10), (31, 32), (16, 33), (40, 256), (20, 257)):
        x = normal(rng, (rows, n), dtype)
        check(device, name, x)
        x[1], x[2, n // 2], x[rows - 1, 0] = -np.inf, np.nan, np.inf
        y = get(getattr(kernels, name)(put(x, device), backend="numba"))
        absent = [1, 2, rows - 1]
        assert np.isnan(y[absent]).all() and not np.isnan(np.delete(y, absent, 0)).any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("backend", ["numba", "cupy"])
def test_a_warp_per_row(device, backend, dtype, name, rng):
    """In packs, and one by one where rows have no whole packs or begin beside one. In Python there
    are no packs, and five kernels for the lengths: all of them in float32."""
    every = backend == "cupy" or dtype == np.float32
    for n in (1, 31, 33, 64, 250, 512, 1023, 1024) if every else (33, 64, 1023, 1024):
        memory = normal(rng, 9 * n + 1, dtype)
        for x in (memory[:-1].reshape(9, n), put(memory, device)[1:].reshape(9, n)):
            y = getattr(kernels, name)(put(x, device), backend=backend, version="warp")
            expected = getattr(reference, name)(wide(get(x)), -1)
            size = np.abs(expected) * 20 if name == "softmax" else np.abs(expected) + 20
            assert_close(y, expected, size)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("version", BACKWARD)
def test_backward(device, version, name, rng):
    for n in (1, 10, 33, 257, 1025):
        shape, axis = ((3, n, 5), 1) if version == "strided" else ((7, n), -1)
        x, g = normal(rng, shape), normal(rng, shape)
        y = getattr(reference, name)(x, axis)
        backward = getattr(kernels, f"{name}_backward")
        dx = backward(put(g, device), put(y, device), axis, backend="numba", version=version)
        expected = getattr(reference, f"{name}_backward")(wide(g), wide(y), axis)
        scale = 8 + np.abs(g).sum(axis, keepdims=True) * np.exp(wide(y).max())
        assert_close(dx, expected, scale)


@pytest.mark.parametrize("name", NAMES)
def test_few_long_columns(device, name, rng):
    """They become rows, which a CPU and a GPU read along."""
    for shape, axis in (((300, 3), 0), ((2, 256, 2, 4), 1), ((2, 300, 2), -2), ((0, 300, 2), 1)):
        x, g = normal(rng, shape), normal(rng, shape)
        x.ravel()[4:5] = -np.inf
        check(device, name, x, axis)
        y = getattr(reference, name)(x, axis)
        backward = getattr(kernels, f"{name}_backward")
        with kernels.trace() as trace:
            dx = backward(put(g, device), put(y, device), axis, backend="numba")
        if x.size:
            assert (f"{name}_backward", "strided") not in trace.rows
        expected = getattr(reference, f"{name}_backward")(wide(g), wide(y), axis)
        scale = 8 + np.abs(g).sum(axis, keepdims=True) * np.exp(wide(y).max(initial=0))
        assert_close(dx, expected, scale)


@pytest.mark.parametrize("name", NAMES)
def test_many_short_rows(device, name, rng):
    """On a CPU they become columns, in any layout; extremes as elsewhere."""
    for shape in ((256, 1), (300, 3), (40, 10, 8), (130, 2, 1, 2)):
        x, g = 4 * normal(rng, shape), normal(rng, shape)
        x.reshape(-1, shape[-1])[5] = -np.inf
        x.reshape(-1, shape[-1])[7, -1] = np.nan
        with kernels.trace() as trace:
            check(device, name, x)
        assert ((name, "strided") in trace.rows) == (device == "cpu")
        check(device, name, np.moveaxis(x, 0, 1))
        check(device, name, x[::-1])
        x = normal(rng, shape)
        y = getattr(reference, name)(x, -1)
        for _ in range(3):  # remembered after the second call
            dx = getattr(kernels, f"{name}_backward")(
                put(g, device), put(y, device), backend="numba"
            )
        expected = getattr(reference, f"{name}_backward")(wide(g), wide(y), -1)
        scale = 8 + np.abs(g).sum(-1, keepdims=True) * np.exp(wide(y).max())
        assert_close(dx, expected, scale)


CLASSES = (1, 2, 10, 33, 257, 1025)


@pytest.mark.parametrize(
    ("dtype", "weighted", "smoothing"),
    [
        (np.float32, False, 0.0),
        (np.float32, True, 0.1),
        (np.float64, False, 0.1),
        (np.float16, True, 0.0),
    ],
)
def test_cross_entropy(device, dtype, weighted, smoothing, rng):
    for classes in CLASSES:
        n = 17
        logits = 3 * normal(rng, (n, classes), dtype)
        target = rng.integers(0, classes, n)
        target[::5] = -100
        weight = rng.random(classes).astype(dtype) if weighted else None
        options = (-100, smoothing)
        on_device = (put(logits, device), put(target, device), weight)
        if weighted:
            on_device = (*on_device[:2], put(weight, device))
        losses, lse = kernels.cross_entropy(*on_device, *options, backend="numba")
        assert losses.dtype == lse.dtype == dtype
        wide_weight = None if weight is None else wide(weight)
        arrays = (wide(logits), target, wide_weight)
        expected, expected_lse = reference.cross_entropy(*arrays, *options)
        assert_close(lse, expected_lse, 20)
        assert_close(losses, expected, 20)
        g = normal(rng, n, dtype)
        d = kernels.cross_entropy_backward(
            put(g, device), on_device[0], lse, *on_device[1:], *options, backend="numba"
        )
        expected = reference.cross_entropy_backward(wide(g), arrays[0], wide(lse), *arrays[1:])
        if smoothing:
            expected = reference.cross_entropy_backward(
                wide(g), arrays[0], wide(lse), *arrays[1:], *options
            )
        assert_close(d, expected, 20 * np.abs(wide(g))[:, None] + 100 * eps(dtype))


def test_cross_entropy_extremes(device):
    logits = np.array([[0, -np.inf, 3], [-np.inf, 1, 2], [1e38, -1e38, 0]], np.float32)
    target = np.array([0, 0, 1])
    on_device = put(logits, device), put(target, device)
    for weight in (None, np.array([0, 1, 1], np.float32)):
        w = None if weight is None else put(weight, device)
        losses, _ = kernels.cross_entropy(*on_device, w, backend="numba")
        wide_weight = None if weight is None else wide(weight)
        expected, _ = reference.cross_entropy(wide(logits), target, wide_weight)
        np.testing.assert_allclose(get(losses), expected, rtol=1e-6)


def test_empty_batch(device):
    logits = put(np.zeros((0, 3), np.float32), device)
    target = put(np.zeros(0, np.int64), device)
    losses, lse = kernels.cross_entropy(logits, target, backend="numba")
    assert losses.shape == lse.shape == (0,)
    d = kernels.cross_entropy_backward(losses, logits, lse, target, backend="numba")
    assert d.shape == (0, 3)


def test_errors(device, rng):
    x, target = put(normal(rng, (4, 5)), device), put(np.array([0, 1, 2, 5]), device)
    with pytest.raises(IndexError, match="axis 2 is out of range"):
        kernels.softmax(x, 2, backend="numba")
    with pytest.raises(TypeError, match="floating dtype"):
        kernels.softmax(x.astype(np.int32), backend="numba")
    with pytest.raises(ValueError, match="rows of up to 1024"):
        kernels.softmax(put(normal(rng, (2, 1025)), device), backend="numba", version="warp")
    with pytest.raises(ValueError, match="use 'strided'"):
        kernels.softmax(x, 0, backend="numba", version="online")
    with pytest.raises(ValueError, match="shapes differ"):
        kernels.softmax_backward(x, x[:2], backend="numba")
    with pytest.raises(ValueError, match=r"target \(N,\)"):
        kernels.cross_entropy(x, target[:2], backend="numba")
    with pytest.raises(TypeError, match="target of integers"):
        kernels.cross_entropy(x, x[:, 0], backend="numba")
    with pytest.raises(ValueError, match="weight of shape"):
        kernels.cross_entropy(x, target, x[0, :3], backend="numba")
    if device == "cpu":
        with pytest.raises(IndexError, match="target 5 is out of bounds for 5 classes"):
            kernels.cross_entropy(x, target, backend="numba")
