"""Convolutions that copy packs, of 16-bit elements on tensor cores and of float32: tiles that end
inside and outside, groups, strides, sums in parts; and when they are taken."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import kernels
from kernels import lab, reference
from kernels.lab.gpu_model import resources
from kernels.launchers.plans import Plans
from tests.kernels.helpers import BFLOAT16, DEVICES, assert_close, normal, put, wide

F16, F32 = np.dtype(np.float16), np.dtype(np.float32)
launchers = importlib.import_module("kernels.launchers.conv")
tables = importlib.import_module("kernels.launchers.conv_mma")
# x, w, stride, padding, dilation, groups
CASES = {
    "3x3": ((2, 3, 17, 15), (70, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "many_channels": ((1, 33, 9, 8), (70, 33, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "1x1": ((2, 72, 7, 9), (64, 72, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    "stride": ((2, 4, 21, 19), (8, 4, 3, 2), (2, 3), (1, 2), (1, 1), 1),
    "no_tap_reaches": ((1, 9, 8, 8), (16, 9, 1, 1), (3, 3), (0, 0), (1, 1), 1),
    "everything": ((2, 6, 13, 16), (8, 3, 2, 3), (3, 2), (3, 4), (2, 1), 2),
    "groups": ((2, 36, 5, 6), (68, 9, 3, 3), (1, 1), (1, 1), (1, 1), 4),
    "depthwise": ((1, 9, 10, 11), (9, 1, 3, 3), (1, 1), (1, 1), (1, 1), 9),
    "empty_batch": ((0, 4, 8, 8), (5, 4, 3, 3), (1, 1), (0, 0), (1, 1), 1),
}


def version_for(dtype) -> str:
    return "double_buffer" if dtype == F32 else "mma_sync"


def check(rng, case, device, dtype=F16) -> None:
    """Forward with a bias and both gradients against float64."""
    x_shape, w_shape, *options = CASES[case]
    x, w, bias = (normal(rng, shape, dtype) for shape in (x_shape, w_shape, w_shape[:1]))
    wide_x, wide_w, wide_b = map(wide, (x, w, bias))
    expected = reference.conv2d(wide_x, wide_w, wide_b, *options)
    g = normal(rng, expected.shape, dtype)
    on_x, on_w, on_b, on_g = (put(a, device) for a in (x, w, bias, g))
    how = {"backend": "cupy", "version": version_for(dtype)}
    y = kernels.conv2d(on_x, on_w, on_b, *options, **how)
    scale = reference.conv2d(abs(wide_x), abs(wide_w), abs(wide_b), *options)
    assert y.dtype == dtype
    assert_close(y, expected, scale, terms=w[0].size)
    data, weight = reference.conv2d_backward_data, reference.conv2d_backward_weight
    dx = kernels.conv2d_backward_data(on_g, on_w, x_shape, *options, **how)
    scale = data(abs(wide(g)), abs(wide_w), x_shape, *options)
    assert_close(dx, data(wide(g), wide_w, x_shape, *options), scale, terms=w[:, 0].size)
    dw = kernels.conv2d_backward_weight(on_g, on_x, w_shape, *options, **how)
    scale = weight(abs(wide(g)), abs(wide_x), w_shape, *options)
    assert_close(dw, weight(wide(g), wide_x, w_shape, *options), scale, terms=g[:, 0].size)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_cases_cuda_c(case, device, rng, monkeypatch):
    for order in ("forward", "reversed"):
        monkeypatch.setenv("MINIGRAD_THREAD_ORDER", order)
        check(rng, case, device)
        check(rng, case, device, F32)
    check(rng, case, device, BFLOAT16)


@pytest.mark.parametrize("device", DEVICES)
def test_sums_in_parts_and_large_tiles_cuda_c(device, rng, monkeypatch):
    """Every sum in parts of a single step; then tiles as for results that fill a GPU."""
    monkeypatch.setattr(launchers, "_plans", Plans())
    monkeypatch.setattr(tables, "LEAST_STEPS", 1)
    for dtype in (F16, F32):
        check(rng, "many_channels", device, dtype)
        check(rng, "stride", device, dtype)
    monkeypatch.setattr(launchers, "_plans", Plans())
    monkeypatch.setattr(tables, "MULTIPROCESSORS", 1)
    mma = importlib.import_module("kernels.cuda_c.conv_mma")
    monkeypatch.setattr(mma, "EDGES", (128, 128))
    check(rng, "many_channels", device)


def planned(x_shape, w_shape, dtype=F16, groups=1) -> list[str]:
    """The versions of a convolution and its gradients, as on a GPU, where nothing is launched."""
    x, w = np.ones(x_shape, dtype), np.ones(w_shape, dtype)
    with resources.noting() as rows:
        y = kernels.conv2d(x, w, groups=groups, backend="cupy")
        kernels.conv2d_backward_data(y, w, x_shape, groups=groups, backend="cupy")
        kernels.conv2d_backward_weight(y, x, w_shape, groups=groups, backend="cupy")
    return [
        v for op, v in rows if op.startswith("conv2d") and v in launchers.FORWARD | launchers.PACKS
    ]


def test_the_version_that_ships(monkeypatch):
    assert planned((2, 16, 9, 9), (32, 16, 3, 3)) == ["mma_sync"] * 3
    assert planned((2, 16, 9, 9), (32, 16, 3, 3), BFLOAT16) == ["mma_sync"] * 3
    assert planned((2, 16, 9, 9), (32, 16, 3, 3), F32) == ["double_buffer"] * 3
    assert planned((2, 16, 9, 9), (32, 16, 3, 3), np.float64) == ["implicit_gemm"] * 3
    assert planned((2, 3, 9, 9), (32, 3, 3, 3)) == ["mma_sync", "direct", "mma_sync"]
    assert planned((2, 9, 9, 9), (9, 1, 3, 3), groups=9) == ["direct"] * 3
    monkeypatch.setattr(tables, "LIMIT", 1 << 12)
    assert planned((2, 16, 9, 9), (32, 16, 3, 3)) == ["implicit_gemm"] * 3
    assert planned((2, 16, 9, 9), (32, 16, 3, 3), F32) == ["implicit_gemm"] * 3


def test_an_older_gpu_takes_another_version(monkeypatch):
    with resources.noting() as rows, monkeypatch.context() as patch:
        patch.setattr(launchers, "compute_capability", lambda a: (7, 5))
        kernels.conv2d(np.ones((2, 16, 9, 9), F16), np.ones((32, 16, 3, 3), F16), backend="cupy")
        assert ("conv2d", "implicit_gemm") in rows and ("conv2d", "mma_sync") not in rows
        with pytest.raises(ValueError, match=r"'mma_sync' needs compute capability 8.0, .* 7.5"):
            kernels.conv2d(np.ones((2, 16, 9, 9), F16), np.ones((32, 16, 3, 3), F16),
                           backend="cupy", version="mma_sync")  # fmt: skip


def test_errors_cuda_c(monkeypatch):
    x, w = np.ones((2, 16, 9, 9), np.float32), np.ones((32, 16, 3, 3), np.float32)
    with pytest.raises(ValueError, match="'mma_sync' takes float16 and bfloat16, not float32"):
        kernels.conv2d(x, w, backend="cupy", version="mma_sync")
    with pytest.raises(ValueError, match="'double_buffer' takes float32, not float16"):
        kernels.conv2d(x.astype(F16), w.astype(F16), backend="cupy", version="double_buffer")
    with pytest.raises(ValueError, match=r"expected a version among \('direct', 'tiled'"):
        kernels.conv2d(x.astype(F16), w.astype(F16), backend="numba", version="mma_sync")
    monkeypatch.setattr(tables, "LIMIT", 1 << 12)
    with pytest.raises(ValueError, match="'mma_sync' counts in 32 bits, and the arrays are larger"):
        kernels.conv2d(x.astype(F16), w.astype(F16), backend="cupy", version="mma_sync")


@pytest.mark.parametrize("dtype", [F16, F32])
def test_no_races_cuda_c(dtype, rng):
    x, w = normal(rng, (1, 16, 6, 7), dtype), normal(rng, (24, 16, 3, 3), dtype)
    how = {"backend": "cupy", "version": version_for(dtype)}
    with lab.profiled() as launches:
        y = kernels.conv2d(x, w, **how)
        kernels.conv2d_backward_data(y, w, x.shape, **how)
        kernels.conv2d_backward_weight(y, x, w.shape, **how)
    reports = [launch.report for launch in launches if launch.version == how["version"]]
    assert len(reports) == 3
    assert not any(report.races or report.errors for report in reports)
