"""Convolution and backward-data of integers: each sum exactly, or as it wraps around."""

from __future__ import annotations

import re

import numpy as np
import pytest

import kernels
from kernels import reference
from tests.kernels.helpers import DEVICES, get, put

pytestmark = [
    pytest.mark.parametrize("device", DEVICES),
    pytest.mark.parametrize("backend", ["numba", "cupy"]),
]
# x, w, stride, padding, dilation, groups
CASES = [
    ((2, 3, 33, 31), (5, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((2, 6, 13, 16), (8, 3, 2, 3), (3, 2), (3, 4), (2, 1), 2),
    ((2, 5, 7, 9), (6, 5, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((0, 4, 8, 8), (5, 4, 3, 3), (1, 1), (0, 0), (1, 1), 1),
]


def whole(rng, shape, dtype) -> np.ndarray:
    """Whole numbers, of which products of 8-bit ones do not fit."""
    return rng.integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
@pytest.mark.parametrize("x, w, stride, padding, dilation, groups", CASES)
def test_against_int64(device, backend, x, w, stride, padding, dilation, groups, dtype, rng):
    options = stride, padding, dilation, groups
    x, w, bias = (whole(rng, shape, dtype) for shape in (x, w, w[:1]))
    long = [a.astype(np.int64) for a in (x, w, bias)]
    expected = reference.conv2d(*long, *options)
    found = kernels.conv2d(*(put(a, device) for a in (x, w, bias)), *options, backend=backend)
    np.testing.assert_array_equal(get(found), expected.astype(dtype))

    g, shape, bias = whole(rng, expected.shape, dtype), x.shape, whole(rng, x.shape[1], dtype)
    long = [a.astype(np.int64) for a in (g, w, bias)]
    expected = reference.conv2d_backward_data(*long[:2], shape, *options, long[2])
    g, w, bias = (put(a, device) for a in (g, w, bias))
    found = kernels.conv2d_backward_data(g, w, shape, *options, bias, backend=backend)
    np.testing.assert_array_equal(get(found), expected.astype(dtype))


def test_other_versions_say_what_they_take(device, backend, rng):
    x, w = put(whole(rng, (1, 2, 5, 5), np.int64), device), put(np.ones((3, 2, 2, 2), int), device)
    with pytest.raises(TypeError, match=re.escape("conv2d: expected a floating dtype, got int64")):
        kernels.conv2d(x, w, backend=backend, version="tiled")
