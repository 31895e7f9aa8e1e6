"""What threads that pass a guard have in common is computed once for their row."""

from __future__ import annotations

import importlib

import numpy as np
import pytest


@pytest.mark.parametrize(("rows", "width"), [(9, 40), (8, 64), (3, 1), (1, 200), (0, 5), (5, 0)])
def test_loads_come_before_the_loop(rows, width):
    """In the loop over threads they would keep it from being vector code."""
    embedding = importlib.import_module("kernels.numba_cuda.embedding")
    kernel = embedding.embedding_kernel(np.dtype(np.float32), np.dtype(np.int64))
    rng = np.random.default_rng(0)
    table, index = rng.random((6, width), np.float32), rng.integers(0, 6, rows)
    out = np.zeros((rows, width), np.float32)
    tiles = max(1, -(-width // 64))
    args = table.ravel(), index, out.ravel(), width, tiles
    kernel[3 * tiles, (64, 4)](*args)
    np.testing.assert_array_equal(out, table[index])
    lines = kernel.specialise((64, 4, 1), args).text.splitlines()
    (before,) = [line for line in lines if "start = " in line]
    stores = [line for line in lines if "] = weight[" in line]
    assert stores and all(_depth(line) > _depth(before) for line in stores)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
