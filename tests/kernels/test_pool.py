"""Pooling and its gradients against the reference in float64."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from kernels import reference
from kernels.launchers import pool
from tests.kernels.helpers import DEVICES, assert_close, get, normal, put, wide

DIRECT = dict(backend="numba", version="direct")
pytestmark = pytest.mark.parametrize("device", DEVICES)
# x, kernel, stride, padding, dilation, ceil_mode
CASES = {
    "2x2": ((2, 3, 32, 30), (2, 2), (2, 2), (0, 0), (1, 1), False),
    "odd": ((2, 3, 33, 31), (2, 2), (2, 2), (0, 0), (1, 1), False),
    "ceil": ((2, 3, 33, 31), (2, 2), (2, 2), (0, 0), (1, 1), True),
    "overlap": ((1, 2, 9, 40), (3, 3), (1, 2), (1, 1), (1, 1), True),
    "full_blocks": ((2, 3, 28, 14), (2, 2), (2, 2), (0, 0), (1, 1), False),
    "two_blocks": ((2, 2, 27, 40), (3, 3), (2, 2), (1, 1), (1, 1), False),
    "prime": ((1, 2, 58, 94), (2, 2), (2, 2), (0, 0), (1, 1), False),
    "gaps": ((1, 2, 17, 9), (2, 1), (3, 2), (0, 0), (1, 1), False),
    "dilated": ((1, 2, 14, 15), (2, 3), (2, 1), (1, 1), (3, 2), False),
    "one_window": ((3, 1, 5, 4), (5, 4), (1, 1), (0, 0), (1, 1), False),
    "empty_batch": ((0, 2, 4, 4), (2, 2), (2, 2), (0, 0), (1, 1), False),
}
PLAIN = [name for name, case in CASES.items() if case[4] == (1, 1)]


few = pytest.mark.few_on_gpu("case", "2x2", "overlap", "dilated", "one_window", "empty_batch")


@few
@pytest.mark.parametrize("case", CASES)
def test_max(device, case, rng):
    x_shape, kernel, stride, padding, dilation, ceil = CASES[case]
    x = normal(rng, x_shape)
    options = (kernel, stride, padding, dilation, ceil)
    expected, positions = reference.max_pool2d(x, *options)
    for version in (None, "window", "padded"):
        y, index = kernels.max_pool2d(put(x, device), *options, backend="numba", version=version)
        np.testing.assert_array_equal(get(y), expected)
        np.testing.assert_array_equal(get(index), positions)
        assert index.dtype == np.int64
    g = normal(rng, expected.shape)
    owned = ["owner"] if dilation == (1, 1) and case != "one_window" else []
    for version in (None, "gather", "scatter", "plane", *owned):
        windows = () if version in ("scatter", "plane") else (kernel, stride, padding, dilation)
        arrays = (put(g, device), index, x_shape, *windows)
        dx = kernels.max_pool2d_backward(*arrays, backend="numba", version=version)
        assert_close(dx, reference.max_pool2d_backward(wide(g), positions, x_shape), 2)


@pytest.mark.parametrize("dilation", [(1, 1), (2, 3)])
def test_no_maximum_lies_in_the_border(device, dilation, rng):
    """Of a window of -inf the first element of the image wins, of NaN the first one."""
    x = normal(rng, (2, 1, 9, 11))
    x[rng.random(x.shape) < 0.8] = -np.inf
    x[1, rng.random(x.shape[1:]) < 0.2] = np.nan
    options = ((3, 3), (2, 2), (1, 1), dilation)
    expected, positions = reference.max_pool2d(x, *options)
    for version in ("window", "padded"):
        y, index = kernels.max_pool2d(put(x, device), *options, backend="numba", version=version)
        np.testing.assert_array_equal(get(y), expected)
        np.testing.assert_array_equal(get(index), positions)


def test_padded_planes_go_in_parts(device, monkeypatch, rng):
    monkeypatch.setattr(pool, "AT_ONCE", 3 * 11 * 9 + 5)  # three planes with their borders
    for planes in (1, 3, 7):
        x = normal(rng, (1, planes, 9, 7))
        expected, positions = reference.max_pool2d(x, (3, 3), (2, 2), (1, 1))
        options = {"backend": "numba", "version": "padded"}
        y, index = kernels.max_pool2d(put(x, device), (3, 3), (2, 2), (1, 1), **options)
        np.testing.assert_array_equal(get(y), expected)
        np.testing.assert_array_equal(get(index), positions)


def test_first_maximum_and_nan_win(device):
    x = np.array([[5, 5, 1, np.nan], [5, 2, np.nan, 3]], np.float32)[None, None]
    x = np.concatenate([x, np.full_like(x, -np.inf)], 1)
    y, index = kernels.max_pool2d(put(x, device), (2, 2), (2, 2), backend="numba")
    np.testing.assert_array_equal(get(y)[0, :, 0], [[5, np.nan], [-np.inf, -np.inf]])
    np.testing.assert_array_equal(get(index)[0, :, 0], [[0, 3], [0, 2]])


def test_images_of_many_rows(device, rng):
    """More blocks of rows than a grid has along y: on a CPU two rows divide such planes."""
    x = normal(rng, (1, 1, 2 * 70001, 32) if device == "cpu" else (1, 1, 8 * 65535 + 2, 17))
    for y in (
        kernels.max_pool2d(put(x, device), (1, 1), (1, 1), backend="numba")[0],
        kernels.avg_pool2d(put(x, device), (1, 1), (1, 1), backend="numba"),
        kernels.conv2d(put(x, device), put(np.ones((1, 1, 1, 1), np.float32), device), **DIRECT),
    ):
        np.testing.assert_array_equal(get(y), x)


def test_max_of_integers_with_padding(device, rng):
    x = -10 + normal(rng, (1, 2, 5, 5), np.int32)
    expected = reference.max_pool2d(x, (3, 3), (2, 2), (1, 1))
    for version in ("window", "padded"):
        options = {"backend": "numba", "version": version}
        y, index = kernels.max_pool2d(put(x, device), (3, 3), (2, 2), (1, 1), **options)
        np.testing.assert_array_equal(get(y), expected[0])
        np.testing.assert_array_equal(get(index), expected[1])


@few
@pytest.mark.parametrize(
    ("case", "include_pad", "divisor"),
    [
        *((case, True, None) for case in PLAIN),
        *(("overlap", *how) for how in [(False, None), (False, 3), (True, 3)]),  # it has padding
    ],
)
def test_average(device, case, include_pad, divisor, rng):
    x_shape, kernel, stride, padding, _, ceil = CASES[case]
    x = normal(rng, x_shape)
    options = (kernel, stride, padding, ceil, include_pad, divisor)
    y = kernels.avg_pool2d(put(x, device), *options, backend="numba")
    expected = reference.avg_pool2d(wide(x), *options)
    assert_close(y, expected, 3, terms=kernel[0] * kernel[1])
    g = normal(rng, expected.shape)
    dx = kernels.avg_pool2d_backward(put(g, device), x_shape, *options, backend="numba")
    assert_close(dx, reference.avg_pool2d_backward(wide(g), x_shape, *options), 3)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_dtypes_and_views(device, dtype, rng):
    x = normal(rng, (6, 8, 3, 2), dtype).transpose(3, 2, 0, 1)
    on_device = put(x.base, device).transpose(3, 2, 0, 1)
    y, index = kernels.max_pool2d(on_device, (2, 2), (2, 2), backend="numba")
    assert_close(y, reference.max_pool2d(wide(x), (2, 2), (2, 2))[0], 0)
    for windows in ((), ((2, 2), (2, 2))):
        dx = kernels.max_pool2d_backward(y, index, x.shape, *windows, backend="numba")
        assert dx.dtype == dtype
        assert_close(dx, reference.max_pool2d_backward(wide(y), get(index), x.shape), 0)
    y = kernels.avg_pool2d(on_device, (2, 3), (1, 2), backend="numba")
    assert y.dtype == dtype
    assert_close(y, reference.avg_pool2d(wide(x), (2, 3), (1, 2)), 2)


def test_errors(device, rng):
    x = put(normal(rng, (1, 1, 4, 4)), device)
    with pytest.raises(ValueError, match="at most half of the kernel"):
        kernels.max_pool2d(x, (2, 2), (2, 2), (2, 0), backend="numba")
    with pytest.raises(ValueError, match="larger than the padded input"):
        kernels.avg_pool2d(x, (5, 2), (1, 1), backend="numba")
    with pytest.raises(ValueError, match=r"expected x \(N, C, H, W\)"):
        kernels.max_pool2d(x[0], (2, 2), (2, 2), backend="numba")
    with pytest.raises(ValueError, match="must be positive"):
        kernels.max_pool2d(x, (2, 2), (0, 2), backend="numba")
    with pytest.raises(ValueError, match="gradient of shape"):
        kernels.avg_pool2d_backward(x, (1, 1, 4, 4), (2, 2), (2, 2), backend="numba")
    y, index = kernels.max_pool2d(x, (2, 2), (2, 2), backend="numba")
    with pytest.raises(ValueError, match="needs other windows"):
        kernels.max_pool2d_backward(y, index, x.shape, backend="numba", version="gather")
    with pytest.raises(ValueError, match="does not belong to an input"):
        kernels.max_pool2d_backward(y, index, (1, 2, 4, 4), backend="numba")
