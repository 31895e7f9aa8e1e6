"""The kernels of matmul.cu: which version serves, and with which tile."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from kernels.cuda_c.common import Kernel, family, scalar_type, source
from kernels.cuda_c.tensor_map import BOX, tensor_map
from kernels.launchers.common import BLOCKS, ceil_div, compute_dtype
from kernels.launchers.matmul import THIN, Product

_kernel, _async_kernel = family("matmul.cu"), family("matmul_async.cu")
_tensor_kernel, _mma_kernel = family("matmul_tensor.cu"), family("matmul_mma.cu")
_tf32_kernel = partial(Kernel, "// needs sm_80\n" + source("matmul_tensor.cu"))
_wgmma_kernel = family("matmul_wgmma.cu")
_HALVES = ("float16", "bfloat16")
# By version, the dtypes that it takes and the least compute capability that a GPU must have.
_NEEDS = {
    "double_buffer": (("float32", "float64"), (0, 0)),
    "sliced": (("float32",), (0, 0)),
    "tensor_core": (_HALVES, (7, 0)),
    "tensor_core_tf32": (("float32",), (8, 0)),
    "mma_sync": (_HALVES, (8, 0)),
    "wgmma": (_HALVES, (9, 0)),
}
# Of `wgmma`, warpgroups with 64 rows each, columns, and from how many blocks on, the largest first:
# half as many as a large GPU has multiprocessors, of which some would else have two smaller blocks.
WGMMA = ((2, 256, 128), (2, 128, BLOCKS // 4 + 1), (1, 128, BLOCKS // 4 + 1), (1, 64, 0))


class Tile(NamedTuple):
    """A block's tm x tn results, rm x rn of them per thread, tk columns of a per step."""

    tm: int
    tn: int
    rm: int
    rn: int
    tk: int

    @property
    def threads(self) -> int:
        return self.tm // self.rm * (self.tn // self.rn)


GPU_LARGE, GPU_SMALL = Tile(128, 128, 8, 8, 16), Tile(64, 64, 4, 4, 16)
GPU_BUFFERED = Tile(128, 128, 8, 16, 16)  # of six, the fastest on an H200 (benchmarks/results)
# Of `sliced`, with the number of slices, the largest first; of twelve, the fastest on an H100 for
# products of 640 to 1024, of 512, and of fewer rows and columns.
SLICED = ((Tile(64, 64, 8, 4, 16), 2), (Tile(32, 64, 4, 4, 16), 2), (Tile(16, 32, 4, 4, 16), 4))
_TERMS = 64  # of a part, a multiple of what a block of a version takes at once
ENOUGH = 100  # blocks of a tile, of which smaller ones would make more
CPU_TALL, CPU_FLAT = Tile(64, 64, 8, 16, 32), Tile(16, 64, 8, 16, 32)


def accumulator(dtype: np.dtype) -> str:
    """What products are summed in: float for 16-bit floats, long long for integers."""
    return "long long" if dtype.kind in "iu" else scalar_type(dtype)


def _pick_tile(version: str, acc_t: str, m: int, n: int, gpu: bool) -> Tile:
    if gpu:
        return GPU_LARGE if acc_t == "float" and _is_large(m, n) else GPU_SMALL
    if version == "vectorised" and max(m, n) > 64:
        return _vector_tile(acc_t, m, n)
    return CPU_TALL if m > 16 else CPU_FLAT  # of one block: a warp, which the lab shows


def _vector_tile(acc_t: str, m: int, n: int) -> Tile:
    """Of `vectorised` on a CPU: few threads, for each stops at the barriers and copies rows of its
    own. Twice as wide where that leaves no more of the blocks empty, and shared memory holds it."""
    tm, tn = 64 if m > 16 else 16, 128 if acc_t == "float" and -n % 128 < 64 else 64
    return Tile(tm, tn, min(tm, 32), 32, 32)


def _is_large(m: int, n: int) -> bool:
    """Whether large tiles make enough blocks for a GPU, as a guess."""
    return m >= 512 and n >= 512


def _fills_waves(m: int, n: int) -> bool:
    """Whether the blocks of `double_buffer` keep a GPU busy to their end. On an H100 it takes 0.84
    of the time of `sliced` for 2048 x 2048, 0.97 of a wave, and 1.13 for 3072 x 3072, 0.73 of three
    waves."""
    blocks = ceil_div(m, GPU_BUFFERED.tm) * ceil_div(n, GPU_BUFFERED.tn)
    return blocks >= 0.8 * BLOCKS * ceil_div(blocks, BLOCKS)


def _sliced_tile(z: int, m: int, n: int) -> tuple[Tile, int]:
    """The largest tile that makes enough blocks, of which less than half is outside."""

    def fits(tile: Tile) -> bool:
        blocks = ceil_div(m, tile.tm) * ceil_div(n, tile.tn) * z
        return blocks >= ENOUGH and 2 * m > tile.tm and 2 * n > tile.tn

    return next((row for row in SLICED if fits(row[0])), SLICED[-1])


def pick(product: Product) -> str:
    """The version that ships for a product."""
    m, n, k, cc = product.m, product.n, product.k, product.cc
    if n == 1 and product.has_long_sums:
        return "matvec"
    if m * n < 256 or k < 4 or n < 4:
        return "coalesced"
    wanted = ("wgmma", "mma_sync", "tensor_core")
    if compute_dtype(product.dtype) == product.dtype:
        wanted = _for_wide(product)
    elif min(m, n) < 2 * BOX and k < 8 * BOX:  # a block of wgmma's would wait for its first tiles
        wanted = wanted[1:]
    fit = (version for version in wanted if cc and not _refusal(version, product))
    return next(fit, "vectorised")


def _for_wide(product: Product) -> tuple[str, ...]:
    """Versions for elements that are summed in their own dtype, the best first."""
    cc = product.cc
    if product.dtype.name != "float32" or not cc or cc < (8, 0):
        return ()
    ours = "double_buffer" if _fills_waves(product.m, product.n) else "sliced"
    # 4096 x 4096 on an H200: `double_buffer` 3.2 ms, `tensor_core_tf32` 4.5 ms
    return ("tensor_core_tf32", ours) if product.tf32 and cc != (9, 0) else (ours,)


def for_parts(version: str, dtype: np.dtype) -> str | None:
    """The version that computes parts of the sums of one, in what they are summed in; None where
    there is none."""
    if compute_dtype(dtype) != dtype:
        return version if version in ("mma_sync", "wgmma") else None
    ours = ("coalesced", "vectorised", "double_buffer", "sliced", "tensor_core_tf32")
    return version if version in ours else None


def check(version: str, product: Product) -> None:
    """Raise ValueError where a version does not take a product."""
    if why := _refusal(version, product):
        raise ValueError(f"matmul: version {version!r} {why}; leave version out")


def _refusal(version: str, product: Product) -> str | None:
    if version not in _NEEDS:
        return None
    dtype, m, n, k, trans_a, trans_b, cc, *_ = product
    dtypes, least = _NEEDS[version]
    if dtype.name not in dtypes:
        return f"takes {' and '.join(dtypes)}, not {dtype}"
    if version == "tensor_core" and dtype.name == "bfloat16":
        least = (8, 0)
    where = "the CPU" if cc is None else f"a GPU of compute capability {cc[0]}.{cc[1]}"
    if version == "wgmma":
        if cc != least:
            return f"runs on a GPU of compute capability 9.0 alone, and the operands are on {where}"
        rows = (m if trans_a else k, k if trans_b else n)
        if any(row % 8 or not row for row in rows):
            return f"takes rows of multiples of 8 elements, and in memory they have {rows}"
    elif cc and cc < least:
        return f"needs compute capability {least[0]}.{least[1]}, and the operands are on {where}"
    return None


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
    if version in ("tensor_core", "tensor_core_tf32", "mma_sync", "wgmma"):
        return _configure_tensor_core(version, flags, z, m, n, gpu)
    if version == "matvec":
        return kernel(), (ceil_div(m, 4), n, z), (32, 4)
    if version == "matvec_split":
        split = _kernel(version, (0, 2), (acc_t, *flags[:1]), _arguments_of_parts)
        return split, (ceil_div(m, 4), 1, z), (32, 4)
    if version == "sliced":
        tile, slices = _sliced_tile(z, m, n)
        grid = (ceil_div(n, tile.tn), ceil_div(m, tile.tm), z)
        sliced = _async_kernel(version, (0,), (*flags, *tile, slices), _arguments_in_place)
        return sliced, grid, tile.threads * slices
    tile = _pick_tile(version, acc_t, m, n, gpu)
    if version in ("warp_tile", "double_buffer") and not gpu:
        tile = GPU_SMALL
    if version == "double_buffer" and tile is GPU_LARGE:
        tile = GPU_BUFFERED
    grid = (ceil_div(n, tile.tn), ceil_div(m, tile.tm), z)
    if version == "register_2d":
        by, bx = tile.tm // tile.rm, tile.tn // tile.rn
        return kernel(bx, by, tile.rm, tile.rn, tile.tk // 2), grid, (bx, by)
    if version == "double_buffer":
        return _async_kernel(version, (0,), (*flags, *tile), _arguments), grid, tile.threads
    return kernel(*tile), grid, tile.threads


def _configure_tensor_core(version: str, flags, z: int, m: int, n: int, gpu: bool):
    """As `configure`; large tiles where they make enough blocks for a GPU, as a guess."""
    if version.startswith("tensor_core"):
        kernel = _tf32_kernel if version == "tensor_core_tf32" else _tensor_kernel
        grid = (ceil_div(n, 64), ceil_div(m, 64), z)
        return kernel("tensor_core", (0,), flags, _arguments), grid, 128

    if version == "wgmma":
        return _configure_wgmma(flags, z, m, n)
    tile, warp = (64, 64), (32, 32)
    if m <= THIN:
        tile, warp = (THIN, 128), (THIN, 32)
    elif gpu and min(m, n) > 64 and ceil_div(m, 128) * ceil_div(n, 128) * z >= 64:
        tile, warp = (128, 128), (64, 32)
    kernel = _mma_kernel(version, (0, 3), (*flags, *tile, *warp), _arguments_in_place)
    threads = 32 * (tile[0] // warp[0]) * (tile[1] // warp[1])
    return kernel, (ceil_div(n, tile[1]), ceil_div(m, tile[0]), z), threads


def _configure_wgmma(flags, z: int, m: int, n: int):
    """As `configure`. A ring of 24 boxes fills a multiprocessor's shared memory; where there are
    more blocks than multiprocessors, two small ones share it."""

    def grid(groups: int, tn: int) -> tuple[int, int, int]:
        return ceil_div(n, tn), ceil_div(m, 64 * groups), z

    def fits(groups: int, tn: int, least: int) -> bool:
        return prod(grid(groups, tn)) >= least and m > 64 * (groups - 1)

    groups, tn, _ = next(row for row in WGMMA if fits(*row))
    shares = groups == 1 and prod(grid(groups, tn)) > BLOCKS // 2
    ring = groups, tn, (12 if shares else 24) // (groups + tn // BOX)
    constants, shared = (*flags, *ring), ring_bytes(*ring)
    kernel = _wgmma_kernel("wgmma", (0, 3), constants, _mapped_arguments, shared)
    return kernel, grid(groups, tn), 128 + 128 * groups


def ring_bytes(groups: int, tn: int, stages: int) -> int:
    """Bytes of shared memory for the ring of `wgmma`, of which 1024 align it."""
    return stages * (groups + tn // BOX) * BOX * BOX * 2 + 1024


def _mapped_arguments(a, b, bias, c):
    """As `_arguments`, with maps for the copy engine: it reads at multiples of 16 bytes."""
    a, b = (x.copy() if x.data.ptr % 16 else x for x in (a, b))
    *_, m, n, k, span, stride_a, stride_b = _arguments_in_place(a, b, bias, c)
    return tensor_map(a), tensor_map(b), bias, c, m, n, k, span, stride_a > 0, stride_b > 0


def _arguments_in_place(a, b, bias, c):
    """As `_arguments`, with the terms of a part: c has several parts of one product where neither
    operand has several."""
    *arrays, m, n, k, stride_a, stride_b = _arguments(a, b, bias, c)
    parts = len(c) if len(a) == len(b) == 1 else 1
    span = ceil_div(k, parts * _TERMS) * _TERMS
    return *arrays, m, n, k, span, stride_a, stride_b


def _arguments_of_parts(a, b, c, span):
    m = c.shape[1]
    return a, b, c, span, m, b.size


def _arguments(a, b, bias, c):
    m, n = c.shape[1:]
    k = a.size // (len(a) * m) if a.size else 0
    stride_a = m * k if len(a) > 1 else 0
    stride_b = n * k if len(b) > 1 else 0
    return a, b, bias, c, m, n, k, stride_a, stride_b
