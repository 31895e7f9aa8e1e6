"""Copies of the CUDA C dialect on a GPU: which kernel, and the layout that it takes.

Dimensions that both sides walk as one are merged. A thread finds its elements by divisions by
numbers that the host knows, in 32 bits; it moves packs of 16 bytes where neighbours in the source
are neighbours in the result. Where these lie along different long dimensions, tiles pass through
shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from kernels.launchers.common import Dialect, ceil_div, launcher, on_gpu
from kernels.launchers.layout import broadcast_strides, contiguous_strides, merge, window

THREADS = 256
TILE, ROWS = 32, 8  # a block of tiles is TILE x ROWS threads
AT_ONCE = 4  # packs of a thread, where there are enough for a large GPU
ENOUGH = 264 * THREADS * AT_ONCE
SHORT_ROWS, SHORT_COLUMNS = 16, 32  # dimensions that leave most of a tile empty
MAX_NDIM = 6
MAX_INDEX = 2**31 - 1
_NUMBERS = 5 + 5 * MAX_NDIM  # of `Layout` in transpose.cu


def divisor(by: int) -> tuple[int, int, int]:
    """`Divisor` of transpose.cu: n // by = ((n * factor >> 32) + n) >> shift for n below 2**31."""
    shift = (by - 1).bit_length()
    return by, (((1 << shift) - by) << 32) // by + 1, shift


def packs(itemsize: int, *numbers: int) -> int:
    """Elements of a pack of at most 16 bytes, a divisor of all the numbers."""
    return math.gcd(16 // itemsize, *numbers)


def struct(numbers: Sequence[int], count: int) -> np.void:
    """The numbers, and zeros up to `count`, as one argument of a kernel."""
    words = np.array([n & 0xFFFFFFFF for n in numbers], np.uint32)
    return np.pad(words, (0, count - len(words))).view(f"V{4 * count}")[0]


def blocks(count: int) -> tuple[int, int]:
    """The grid for so many packs, and the packs of a thread."""
    each = AT_ONCE if count >= ENOUGH else 1
    return ceil_div(count, THREADS * each), each


def strided(dialect: Dialect, x, shape: tuple[int, ...], out=None) -> tuple | None:
    """(launch, views) of a copy of x, broadcast to `shape`, into `out` or a contiguous array:
    `launch(*views(x, out))`. None where the kernels do not take it."""
    views = [_flat(x), (whole, 0) if out is None else _flat(out)]
    to = contiguous_strides(shape) if out is None else broadcast_strides(out, shape)
    strides = [broadcast_strides(x, shape), to]
    order = sorted(range(len(shape)), key=lambda d: -abs(to[d]))  # as out lies in memory
    sizes, (source, to) = merge([shape[d] for d in order], [[s[d] for d in order] for s in strides])
    reach = [sum((n - 1) * abs(s) for n, s in zip(sizes, steps)) for steps in (source, to)]
    if len(sizes) > MAX_NDIM or max(*reach, math.prod(sizes)) > MAX_INDEX:
        return None
    starts = [start for _, start in views]
    launch, layout = _chosen(dialect, x.dtype, sizes, source, to, starts)

    def arguments(x, out) -> tuple:
        return views[0][0](x), views[1][0](out), layout

    return launch, arguments


def _flat(a) -> tuple[Callable, int]:
    """How a kernel gets an array, and where its first element lies: CuPy passes its address."""
    return (whole, 0) if on_gpu(a) else window("copy", a)


def whole(a):
    """A contiguous array, or any on a GPU, as a kernel gets it."""
    return a if on_gpu(a) else a.ravel()


def _chosen(
    dialect: Dialect,
    dtype: np.dtype,
    sizes: list[int],
    source: list[int],
    to: list[int],
    starts: list[int],
) -> tuple[Callable, np.void]:
    """The launch and its layout for merged dimensions in the order of the result's memory."""
    last = len(sizes) - 1
    near = next((d for d, s in enumerate(source) if abs(s) == 1), last)
    if near != last and source[last]:
        if sizes[near] >= SHORT_ROWS and sizes[last] >= SHORT_COLUMNS:
            return _tiled(dialect, dtype, sizes, source, to, starts, near)
        if sizes[near] < SHORT_ROWS and sizes[last] >= SHORT_COLUMNS and 0 not in source:
            order = sorted(range(len(sizes)), key=lambda d: -abs(source[d]))  # writes are short
            sizes, source, to = ([v[d] for d in order] for v in (sizes, source, to))
    width = 1
    if source[-1] == to[-1] == 1:
        width = packs(dtype.itemsize, sizes[-1], *source[:-1], *to[:-1], *starts)
    sizes = [*sizes[:-1], sizes[-1] // width]
    source, to = [*source[:-1], source[-1] * width], [*to[:-1], to[-1] * width]
    grid, each = blocks(math.prod(sizes))
    kernel = dialect.transpose.strided_kernel(dtype, width, each, len(sizes))
    layout = [math.prod(sizes), *starts, 0, 0, *_dimensions(sizes, source, to)]
    launch = launcher("pointwise.copy", "strided", kernel, grid, THREADS)
    return launch, struct(layout, _NUMBERS)


def _dimensions(sizes: Sequence[int], source: Sequence[int], to: Sequence[int]) -> list[int]:
    return [n for size, *steps in zip(sizes, source, to) for n in (*divisor(size), *steps)]


def _tiled(dialect, dtype, sizes, source, to, starts, near: int) -> tuple[Callable, np.void]:
    """In tiles of the last dimension, the result's neighbours, and of `near`, the source's."""
    last = len(sizes) - 1
    order = [d for d in range(last) if d != near] + [near, last]
    sizes, source, to = ([v[d] for d in order] for v in (sizes, source, to))
    rows, columns = sizes[-2:]
    sizes = [*sizes[:-2], ceil_div(rows, TILE), ceil_div(columns, TILE)]
    grid = math.prod(sizes)
    kernel = dialect.transpose.tiled_kernel(dtype, len(sizes))
    layout = [grid, *starts, rows, columns, *_dimensions(sizes, source, to)]
    launch = launcher("pointwise.copy", "tiled", kernel, grid, (TILE, ROWS))
    return launch, struct(layout, _NUMBERS)


PARTS = 4  # of a concatenation that a launch writes


def parts(
    dialect: Dialect, dtype: np.dtype, rows: int, widths: Sequence[int], total: int, start: int
) -> tuple[Callable, np.void]:
    """The launch and its last argument for up to PARTS contiguous parts (rows, width) beside each
    other, from column `start` of the result (rows, total) on: `launch(*parts, out, argument)` with
    the first part again for those that are absent."""
    width = packs(dtype.itemsize, *widths, total, start)
    ends = np.cumsum(widths) // width
    begins = [*map(int, ends[:-1]), *[int(ends[-1])] * PARTS][: PARTS - 1]
    columns = int(ends[-1])
    grid, each = blocks(rows * columns)
    kernel = dialect.transpose.parts_kernel(dtype, width, each)
    numbers = [rows * columns, *begins, total // width, start // width, *divisor(columns)]
    return launcher("concat", "parts", kernel, grid, THREADS), struct(numbers, len(numbers))


MODES = ("constant", "reflect", "replicate", "circular")  # the numbers of `Border`


def bordered(
    dialect: Dialect, x, shape: tuple[int, ...], pads: Sequence[tuple[int, int]], mode: str
) -> tuple[Callable, np.void] | None:
    """The launch that makes `shape` of x with a border, and its last argument:
    `launch(x, out, value, argument)`. None where the kernel does not take it."""
    sides: list[list[int]] = []  # size, stride, before, length
    for n, m, stride, (before, after) in zip(x.shape, shape, x.strides, pads):
        step, bare = stride // x.itemsize, before == after == 0
        outer = sides[-1] if sides and bare else [0, 0, 0, 1]
        if outer[0] == outer[3] and outer[1:3] == [step * n, 0]:
            sides[-1] = [outer[0] * n, step, 0, outer[0] * n]
            continue
        if m != 1 or not bare:
            sides.append([m, step, before, n])
    sides = sides or [[1, 1, 0, 1]]
    reach = sum((n - 1) * abs(s) for n, s in zip(x.shape, x.strides)) // x.itemsize
    if len(sides) > MAX_NDIM or max(math.prod(shape), reach) > MAX_INDEX:
        return None
    size, step, before, length = sides[-1]
    if step == 1 and size == length and not before:
        width = packs(x.itemsize, size, *[side[1] for side in sides[:-1]])
        sides[-1] = [size // width, width, 0, length // width]
    else:
        width = 1
    count = math.prod(side[0] for side in sides)
    grid, each = blocks(count)
    kernel = dialect.transpose.pad_kernel(x.dtype, width, each, len(sides), MODES.index(mode))
    numbers = [count, *(n for size, *rest in sides for n in (*divisor(size), *rest))]
    return launcher("pad", "elements", kernel, grid, THREADS), struct(numbers, 1 + 6 * MAX_NDIM)


def triangular(dialect: Dialect, x, diagonal: int, lower: bool) -> tuple[Callable, np.void] | None:
    """The launch that keeps a triangle of the contiguous matrices x, and its last argument:
    `launch(x, out, argument)`. None where the kernel does not take them."""
    if x.size > MAX_INDEX:
        return None
    rows, columns = x.shape[-2:]
    width = packs(x.itemsize, columns)
    grid, each = blocks(x.size // width)
    kernel = dialect.transpose.triangle_kernel(x.dtype, width, each, lower)
    shift = min(max(diagonal, -rows), columns)
    numbers = [x.size // width, *divisor(columns // width), *divisor(rows), shift]
    return launcher("triangle", "elements", kernel, grid, THREADS), struct(numbers, len(numbers))
