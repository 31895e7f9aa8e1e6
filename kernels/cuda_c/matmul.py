"""The kernels of matmul.cu: which version serves, and with which tile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernels.cuda_c.common import Kernel, family, scalar_type
from kernels.launchers.common import ceil_div, compute_dtype

CATALOG = [
    ("matmul", "naive", "one thread an element, neighbours down a column"),
    ("matmul", "coalesced", "neighbours along a row: one segment a warp"),
    ("matmul", "tiled", "shared tiles: each element is loaded TILE times less"),
    ("matmul", "register_1d", "a column of results in registers"),
    ("matmul", "register_2d", "an RM x RN tile of results in registers"),
    ("matmul", "vectorised", "16-byte loads, from far and from shared memory"),
    ("matmul", "warp_tile", "the threads of a warp form a compact tile too"),
    ("matmul", "double_buffer", "cp.async: the next tiles come while these are multiplied"),
    ("matmul", "tensor_core", "16-bit elements: a warp multiplies 16 x 16 fragments (WMMA)"),
    ("matmul", "matvec", "N == 1: a warp a row, summed by shuffles"),
]
VERSIONS = tuple(version for _, version, _ in CATALOG)
_kernel, _async_kernel = family("matmul.cu"), family("matmul_async.cu")
_tensor_kernel = family("matmul_tensor.cu")


class Tile(NamedTuple):
    """A block's tm x tn results, rm x rn of them a thread, tk columns of a a step."""

    tm: int
    tn: int
    rm: int
    rn: int
    tk: int

    @property
    def threads(self) -> int:
        return self.tm // self.rm * (self.tn // self.rn)


GPU_LARGE, GPU_SMALL = Tile(128, 128, 8, 8, 16), Tile(64, 64, 4, 4, 16)
CPU_TALL, CPU_FLAT = Tile(64, 64, 8, 16, 32), Tile(16, 64, 8, 16, 32)


def accumulator(dtype: np.dtype) -> str:
    """What products are summed in: float for 16-bit floats, long long for integers."""
    return "long long" if dtype.kind in "iu" else scalar_type(dtype)


def _pick_tile(acc_t: str, m: int, n: int, gpu: bool) -> Tile:
    if not gpu:
        return CPU_TALL if m > 16 else CPU_FLAT
    large = acc_t == "float" and m >= 512 and n >= 512
    return GPU_LARGE if large else GPU_SMALL


def pick(dtype: np.dtype, m: int, n: int, k: int, gpu: bool) -> str:
    """The version that ships for a (m, k) and b (k, n)."""
    if n == 1 and k >= 64:
        return "matvec"
    if m * n < 256 or k < 4 or n < 4:
        return "coalesced"
    return "tensor_core" if gpu and compute_dtype(dtype) != dtype else "vectorised"


def check(version: str, dtype: np.dtype) -> None:
    """Raise ValueError where a version does not take elements of the dtype."""
    if version == "double_buffer" and dtype not in (np.float32, np.float64):
        raise ValueError(
            f"matmul: version 'double_buffer' takes float32 and float64, not {dtype}: its copies"
            " convert nothing; leave version out"
        )
    if version == "tensor_core" and compute_dtype(dtype) == dtype:
        raise ValueError(
            f"matmul: version 'tensor_core' takes float16 and bfloat16, not {dtype};"
            " cast the operands, or leave version out"
        )


def configure(version: str, acc_t: str, flags, z: int, m: int, n: int, gpu: bool):
    """Kernel, grid and block of a version."""

    def kernel(*numbers: int) -> Kernel:
        return _kernel(version, (0,), (acc_t, *flags, *numbers), _arguments)

    if version == "naive":
        return kernel(), (ceil_div(m, 16), ceil_div(n, 16), z), (16, 16)
    if version == "coalesced":
        return kernel(), (ceil_div(n, 32), ceil_div(m, 8), z), (32, 8)
    if version == "tiled":
        return kernel(), (ceil_div(n, 16), ceil_div(m, 16), z), (16, 16)
    if version == "register_1d":
        return kernel(), (ceil_div(n, 32), ceil_div(m, 32), z), (32, 4)
    if version == "tensor_core":
        grid = (ceil_div(n, 64), ceil_div(m, 64), z)
        return _tensor_kernel(version, (0,), flags, _arguments), grid, 128
    if version == "matvec":
        return kernel(), (ceil_div(m, 4), 1, z), (32, 4)
    tile = _pick_tile(acc_t, m, n, gpu)
    if version in ("warp_tile", "double_buffer") and not gpu:
        tile = GPU_SMALL
    grid = (ceil_div(n, tile.tn), ceil_div(m, tile.tm), z)
    if version == "register_2d":
        by, bx = tile.tm // tile.rm, tile.tn // tile.rn
        return kernel(bx, by, tile.rm, tile.rn, tile.tk // 2), grid, (bx, by)
    if version == "double_buffer":
        return _async_kernel(version, (0,), (*flags, *tile), _arguments), grid, tile.threads
    return kernel(*tile), grid, tile.threads


def _arguments(a, b, bias, c):
    m, n = c.shape[1:]
    k = a.size // (len(a) * m) if a.size else 0
    stride_a = m * k if len(a) > 1 else 0
    stride_b = n * k if len(b) > 1 else 0
    return a, b, bias, c, m, n, k, stride_a, stride_b
