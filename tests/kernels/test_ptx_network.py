"""PTX of the network kernels, with no GPU: they compile for every target, and stay in registers.

A float32 kernel must not compute in float64, and no kernel may keep an array in local memory.
"""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from numba import types

from kernels.launchers.attention import _tile as attention_tile

pytestmark = pytest.mark.needs("numba_cuda")
# modules, which functions of the same name hide in the package
NAMES = "attention conv_direct conv_gemm cross_entropy matmul norm pool row_norm softmax".split()
attention, conv_direct, conv_gemm, cross_entropy, matmul, norm, pool, row_norm, softmax = (
    importlib.import_module(f"kernels.numba_cuda.{name}") for name in NAMES
)
TARGETS = ((7, 5), (8, 0), (9, 0))
F32, I64 = types.float32, types.int64


def array(ndim: int, dtype=F32) -> types.Array:
    return types.Array(dtype, ndim, "C")


V, M, T3, T4 = array(1), array(2), array(3), array(4)
INDEX = array(3, I64)
THREE = ((3, 3), (1, 1), (1, 1))
W2, W3 = pool.Window((2, 2), (2, 2)), pool.Window((3, 3), (2, 1))


def matmul_rows():
    signature = (T3, T3, V, T3)
    for flags in ((False, False, False), (True, True, True)):
        name = "transposed" if flags[0] else "plain"
        for make in ("naive", "coalesced", "tiled", "register_1d", "warp_tile", "matvec"):
            if not flags[0] or make in ("tiled", "warp_tile"):
                yield f"matmul-{make}-{name}", getattr(matmul, make)(F32, *flags), signature
        for tile in (matmul.LARGE, matmul.SMALL):
            kernel = matmul.register_2d(F32, tile, *flags)
            yield f"matmul-register_2d-{tile.rm}-{name}", kernel, signature
    half = tuple(array(a.ndim, types.float16) for a in signature)
    kernel = matmul.register_2d(F32, matmul.SMALL, False, True, True)
    yield "matmul-register_2d-float16", kernel, half


def conv_rows():
    sizes = (I64,) * 3
    yield "conv-pad", conv_gemm.pad(F32, (1, 1), (1, 1)), (T3, V, *(I64,) * 4)
    yield "conv-pad-stride", conv_gemm.pad(F32, (2, 2), (1, 1)), (T3, V, *(I64,) * 4)
    gemm = conv_gemm.implicit_gemm(F32, conv_gemm.GemmTile(16, 16, 4, 4, 16), True)
    yield "conv-implicit_gemm", gemm, (M, V, array(1, types.uint32), V, M, *(I64,) * 5)
    grad = conv_gemm.weight_gradient(F32, conv_gemm.GradTile(32, 8, 8, 3, 256))
    yield "conv-weight_gradient", grad, (V, V, array(1, types.uint32), T3, *(I64,) * 4)
    forward = (T4, T4, V, T4, *sizes)
    yield "conv-direct", conv_direct.direct_forward(F32, *THREE, True), forward
    yield "conv-tiled", conv_direct.tiled_forward(F32, *THREE, True), forward
    yield "conv-direct_data", conv_direct.direct_data(F32, *THREE), (T4, T4, T4, *sizes)
    yield "conv-direct_weight", conv_direct.direct_weight(F32, *THREE[1:]), (T4, T4, T4, *sizes)


def pool_rows():
    for name, window in (("2x2", W2), ("3x3", W3)):
        forward = pool.max_forward(F32, window, window is W2)
        yield f"pool-max-{name}", forward, (T3, T3, INDEX, I64, I64)
        yield f"pool-max_gather-{name}", pool.max_gather(F32, window), (T3, INDEX, T3, I64, I64)
        yield f"pool-avg-{name}", pool.avg_forward(F32, window, False, None), (T3, T3, I64, I64)
        gather = pool.avg_gather(F32, window, False, None)
        yield f"pool-avg_gather-{name}", gather, (T3, T3, I64, I64)
    yield "pool-max_owner", pool.max_owner(F32, W2), (T3, INDEX, T3)
    yield "pool-max_scatter", pool.max_scatter(F32), (M, array(2, I64), M)


def softmax_rows():
    for log in (False, True):
        name = "log_softmax" if log else "softmax"
        yield f"{name}-warp", softmax.warp(F32, log, 8), (M, M)
        yield f"{name}-strided", softmax.strided(F32, log), (T3, T3)
        yield f"{name}-strided_backward", softmax.strided_backward(F32, log), (T3, T3, T3)
        if log:
            continue
        for make in ("three_pass", "online", "one_read"):
            yield f"{name}-{make}", getattr(softmax, make)(F32, log, 256), (M, M)
        yield f"{name}-block_backward", softmax.block_backward(F32, log, 256), (M, M, M)
        yield f"{name}-warp_backward", softmax.warp_backward(F32, log), (M, M, M)
    targets = array(1, I64)
    forward = (M, targets, V, I64, F32, V, V)
    yield "cross_entropy", cross_entropy.forward(F32, True, True), forward
    backward = (V, M, V, targets, V, I64, F32, M)
    yield "cross_entropy-backward", cross_entropy.backward(F32, True, True), backward


def norm_rows():
    yield "norm-statistics_planes", norm.statistics_planes(F32, 256), (T3, V, V, F32)
    yield "norm-statistics_columns", norm.statistics_columns(F32), (M, V, V, F32)
    yield "norm-sums_planes", norm.sums_planes(F32, 256), (T3, T3, V, V, V, V)
    yield "norm-sums_columns", norm.sums_columns(F32), (M, M, V, V, V, V)
    for layout in ("planes", "columns"):
        apply = getattr(norm, f"apply_{layout}")(F32, True, True)
        yield f"norm-apply_{layout}", apply, (M, V, V, V, V, M)
        gradient = getattr(norm, f"gradient_{layout}")(F32, True)
        yield f"norm-gradient_{layout}", gradient, (M, M, *(V,) * 5, F32, M)


def row_norm_rows():
    for centred in (True, False):
        name = "layer_norm" if centred else "rms_norm"
        forward, flags = (M, V, V, V, V, M, F32), (F32, centred, True)
        for version in ("online", "one_read"):
            kernel = getattr(row_norm, version)(*flags, centred, 256)
            yield f"{name}-{version}", kernel, forward
        yield f"{name}-warp", row_norm.warp(*flags, centred, 32), forward
        backward = (M, M, V, V, V, M)
        yield f"{name}-block_backward", row_norm.block_backward(*flags, 256), backward
        yield f"{name}-warp_backward", row_norm.warp_backward(*flags, 32), backward
        sums = row_norm.parameter_sums(F32, centred, (32, 8))
        yield f"{name}-parameter_sums", sums, (M, M, V, V, M, M)


def attention_rows():
    f32, numbers = np.dtype(np.float32), (F32, *(I64,) * 4)
    yield "attention-row_products", attention.row_products(F32), (T3, T3, M)
    for kind, width in (("none", 128), ("add", 64), ("keep", 16)):
        mask = array(3, types.boolean) if kind != "add" else T3
        softmax_rows = attention.softmax_rows(F32, kind)
        yield f"attention-softmax_rows-{kind}", softmax_rows, (T3, mask, M, *numbers)
        gradients = attention.score_gradients(F32, kind)
        yield f"attention-score_gradients-{kind}", gradients, (T3, T3, mask, M, M, *numbers)
        tiled = attention.tiled(F32, attention_tile(width, f32, False), kind)
        yield f"attention-tiled-{kind}", tiled, (T3, T3, T3, mask, T3, M, *numbers)
        for of_keys in (True, False):
            tile = attention_tile(width, f32, True)
            backward = attention.tiled_backward(F32, tile, kind, of_keys)
            signature = (T3, T3, T3, T3, mask, M, M, T3, T3, *numbers)
            yield f"attention-tiled_backward-{kind}-{of_keys}", backward, signature


ROWS = [
    *matmul_rows(),
    *conv_rows(),
    *pool_rows(),
    *softmax_rows(),
    *norm_rows(),
    *row_norm_rows(),
    *attention_rows(),
]


@pytest.mark.parametrize(("name", "kernel", "signature"), ROWS, ids=[row[0] for row in ROWS])
def test_gates(name, kernel, signature):
    for cc in TARGETS:
        ptx = kernel.ptx(signature, cc=cc)
        assert f".target sm_{cc[0]}{cc[1]}" in ptx
        assert ".f64" not in ptx
        assert ".local" not in ptx
