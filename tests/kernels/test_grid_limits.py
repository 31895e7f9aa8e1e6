"""Shapes that need more blocks than lie along the y or z of a grid (65 535)."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from kernels import dispatch
from kernels.launchers.common import MAX_BLOCK, MAX_GRID_YZ
from tests.kernels.helpers import assert_close


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_a_tall_product(rng, batch, trans_a):
    m, k, n = 8 * MAX_GRID_YZ + 9, 5, 3
    shape = (*batch, k, m) if trans_a else (*batch, m, k)
    a = rng.standard_normal(shape, dtype=np.float32)
    a = a.swapaxes(-1, -2) if trans_a else a
    b, bias = (rng.standard_normal(s, dtype=np.float32) for s in [(*batch, k, n), n])
    expected = a.astype(np.float64) @ b + bias
    scale = np.abs(a.astype(np.float64)) @ np.abs(b) + np.abs(bias)
    assert_close(kernels.matmul(a, b, bias), expected, scale, terms=k)


class Grids(dispatch.Trace):
    """Takes the grids of launches, and runs none."""

    def takes(self, family, version, kernel, grid, block, args) -> bool:
        grid, block = (v if isinstance(v, tuple) else (v,) for v in (grid, block))
        assert max(grid[1:], default=1) <= MAX_GRID_YZ, (family, version, grid)
        assert np.prod(block) <= MAX_BLOCK, (family, version, block)
        self.add(family, version, 0.0)
        return True


def _calls():
    """(operation, arguments) whose planes, rows or tiles are many."""
    plane = np.empty((1, 1, 1, 64 * MAX_GRID_YZ + 1), np.float32)
    one = np.ones(1, np.float32)
    long = plane.reshape(1, 1, -1)
    weight = np.ones((1, 1, 1, 3), np.float32)
    yield "softmax", (long[:, :, : 128 * MAX_GRID_YZ + 1], 1)
    yield "softmax_backward", (long, long, 1)
    yield "batch_norm", (plane, one, one, 1e-5)
    yield "batch_norm_backward", (plane, plane, one, one, one)
    yield "max_pool2d", (plane, (1, 2), (1, 2), (0, 0))
    yield "avg_pool2d", (plane, (1, 2), (1, 2), (0, 0))
    yield "conv2d", (plane, weight)
    yield "transpose", (plane.reshape(-1, 1)[: 2 * (plane.size // 2)].reshape(-1, 2), (1, 0))
    yield "matmul", (plane.reshape(-1, 1), weight.reshape(1, 3))
    yield "matmul", (plane.reshape(-1, 1, 1), np.empty((plane.size, 1, 1), np.float32))


@pytest.mark.parametrize("backend", ["numba", "cupy"])
@pytest.mark.parametrize("name, args", [pytest.param(*c, id=c[0]) for c in _calls()])
def test_no_grid_is_too_tall(name, args, backend):
    with dispatch.trace(Grids()) as trace:
        getattr(kernels, name)(*args, backend=backend)
    assert trace.rows


def test_what_fits_no_grid_is_refused():
    a, b = np.empty((1, 1), np.float32), np.empty((1, 16 * MAX_GRID_YZ + 1), np.float32)
    with pytest.raises(ValueError, match="'naive' takes at most 1048560 columns"):
        kernels.matmul(a, b, version="naive")
    x = np.empty((1, 1, MAX_BLOCK * MAX_GRID_YZ + 1), np.float32)
    with pytest.raises(ValueError, match="softmax: expected at most 67107840 elements"):
        kernels.softmax(x, 1)
