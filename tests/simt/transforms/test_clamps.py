"""A clamped index becomes a plain one in a loop that ends where the clamp begins; only there."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.simt import cuda

TILE = 4


def row_sums(n: int, beyond: int, own: bool):
    """A kernel that adds up rows of `a` by tiles, of each n elements, up to `end`; the clamp is at
    `beyond` elements before that, or (not own) before k."""

    @cuda.jit
    def kernel(a, out, k, end):
        tile = cuda.shared.array((TILE, TILE), np.float32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        last = max(0, (end if own else k) - beyond)
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
    "n, beyond, own, plain",
    [
        (TILE, 1, True, True),
        (2, 1, True, True),
        (TILE, 2, True, False),  # the last element is not read
        (TILE, 1, False, False),  # the last one is read twice
    ],
)
@pytest.mark.parametrize("k", [1, 4, 5, 7])
def test_only_needless_clamps_go(n, beyond, own, plain, k, rng, monkeypatch):
    monkeypatch.setattr("kernels.simt.api.launch._SHIPPED", ("tests",))
    kernel, out = row_sums(n, beyond, own), np.zeros((TILE, TILE), np.float32)
    a = rng.normal(size=(TILE, k)).astype(np.float32)
    end = k if own else k + 1
    kernel[1, (TILE, TILE)](a, out, k, end)
    read = [
        min(k0 + kk, max(0, k - beyond))
        for k0 in range(0, k, TILE)
        for kk in range(min(n, end - k0))
    ]
    sums = a.astype(np.float64)[:, read].sum(1, keepdims=True)
    np.testing.assert_allclose(out, np.broadcast_to(sums, out.shape), rtol=1e-4, atol=1e-6)
    (inner,) = [line for line in kernel.inspect_cpu().splitlines() if "total = total + " in line]
    assert ("_minimum" not in inner) == plain, inner
