"""Images laid out as planes: padding on both sides, phases of a stride."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from kernels.launchers.conv_planes import Planes

CASES = {
    "margins": (Planes(7, 9, (1, 2)), (5, 5)),
    "rows as wide as a block": (Planes(33, 34, (0, 1)), (32, 32)),
    "rows of several blocks": (Planes(5, 75, (1, 3)), (3, 70)),
    "tiles of rows": (Planes(70, 75, (30, 3)), (40, 70)),
    "cut off": (Planes(4, 6, (-2, -3)), (9, 12)),
    "beside the image": (Planes(3, 5, (7, 9)), (4, 4)),
    "phases": (Planes(4, 17, (1, 2), sub=(2, 3)), (6, 47)),
    "phases, cut off": (Planes(3, 4, (-1, -2), sub=(3, 2)), (11, 13)),
    "phases without elements": (Planes(2, 3, (1, 1), sub=(3, 3)), (1, 1)),
}


def expected(x: np.ndarray, planes: Planes, count: int) -> np.ndarray:
    """Element by element, as `conv_gemm.pad` says."""
    sub_h, sub_w = planes.sub
    out = np.zeros((count, sub_h, sub_w, planes.rows, planes.width), x.dtype)
    for place in np.ndindex(len(x), *out.shape[1:]):
        channel, p, q, t, u = place
        h, w = t * sub_h + p - planes.lead[0], u * sub_w + q - planes.lead[1]
        if 0 <= h < x.shape[1] and 0 <= w < x.shape[2]:
            out[place] = x[channel, h, w]
    return out


@pytest.mark.parametrize("dialect", ["numba_cuda", "cuda_c"])
@pytest.mark.parametrize("case", CASES)
def test_planes(case, dialect, rng, monkeypatch):
    monkeypatch.setenv("MINIGRAD_CUDA_DEBUG", "1")
    planes, size = CASES[case]
    x = rng.normal(size=(2, 3, *size)).astype(np.float32)
    lay_out = planes.launch(importlib.import_module(f"kernels.{dialect}"), "conv2d", x, 6, 10)
    found = lay_out(x)
    count = len(found) // planes.channel
    assert count * planes.channel >= 6 * planes.channel + 10
    wanted = expected(x.reshape(6, *size), planes, count)
    np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)
