"""A clamped index becomes a plain one in a loop that ends where the clamp begins; only there."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.simt import cuda

TILE = 4


def row_sums(n: int, beyond: int):
    """A kernel that adds up rows of `a` by tiles, of each n elements; `last` is k - beyond."""

    @cuda.jit
    def kernel(a, out, k):
        tile = cuda.shared.array((TILE, TILE), np.float32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        last = max(0, k - beyond)
        total = np.float32(0)
        for k0 in range(0, k, TILE):
            tile[ty, tx] = a[ty, min(k0 + tx, last)]
            cuda.syncthreads()
            for kk in range(min(n, k - k0)):
                total += tile[ty, kk]
            cuda.syncthreads()
        out[ty, tx] = total

    return kernel


def longer_sums(n: int, beyond: int):
    """As `row_sums`, to another end."""

    @cuda.jit
    def kernel(a, out, k, end):
        tile = cuda.shared.array((TILE, TILE), np.float32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        last = max(0, k - beyond)
        total = np.float32(0)
        for k0 in range(0, k, TILE):
            tile[ty, tx] = a[ty, min(k0 + tx, last)]
            cuda.syncthreads()
            for kk in range(min(n, end - k0)):
                total += tile[ty, kk]
            cuda.syncthreads()
        out[ty, tx] = total

    return kernel


@pytest.mark.parametrize(
    "make, n, beyond, plain",
    [
        (row_sums, TILE, 1, True),
        (row_sums, 2, 1, True),
        (row_sums, TILE, 2, False),  # the last element is not read
        (longer_sums, TILE, 1, False),  # the last one is read twice
    ],
)
@pytest.mark.parametrize("k", [1, 4, 5, 7])
def test_only_needless_clamps_go(make, n, beyond, plain, k, rng, monkeypatch):
    monkeypatch.setattr("kernels.simt.api.launch._SHIPPED", ("tests",))
    kernel, out = make(n, beyond), np.zeros((TILE, TILE), np.float32)
    a = rng.normal(size=(TILE, k)).astype(np.float32)
    more = int(make is longer_sums)
    kernel[1, (TILE, TILE)](a, out, k, *[k + 1] * more)
    read = [
        min(k0 + kk, max(0, k - beyond))
        for k0 in range(0, k, TILE)
        for kk in range(min(n, k + more - k0))
    ]
    sums = a.astype(np.float64)[:, read].sum(1, keepdims=True)
    np.testing.assert_allclose(out, np.broadcast_to(sums, out.shape), rtol=1e-4, atol=1e-6)
    (inner,) = [line for line in kernel.inspect_cpu().splitlines() if "total = total + " in line]
    assert ("_minimum" not in inner) == plain, inner
