"""Copies: what lies how, and which copy is a transpose."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from kernels.families import Family, Operation, floats, like_first, normal, ones
from kernels.launchers import copies
from kernels.launchers.common import (
    BFLOAT16,
    Dialect,
    ceil_div,
    check_version,
    compute_dtype,
    contiguous,
    empty,
    launcher,
    namespace,
    on_gpu,
)
from kernels.launchers.layout import contiguous_strides, is_dense, merge, parts_with_borders
from kernels.launchers.plans import Plans, place
from kernels.launchers.pointwise import pointwise
from kernels.launchers.relaunch import MAX_OPERANDS, remembered
from kernels.pointwise import TABLE

VERSIONS = {
    "naive": "reads rows, writes columns: uncoalesced",
    "tile": "through a tile of shared memory: both sides coalesced",
    "padded": "one more column in the tile: no bank conflicts",
}
BY_SHAPE = {"few": "up to 8 rows or columns: a thread moves one element of each"}
_BY_PART = {"rows": "each part as columns of the result, a block per tile"}
CONCAT = {
    "numba": {**_BY_PART, "four": "four parts of one width in a launch, others as in rows"},
    "cupy": {**_BY_PART, "parts": "up to four parts in a launch, in the order of the result"},
}
TILE = 32
ROWS = 8  # a block is TILE x ROWS threads: each moves TILE / ROWS elements
SHORT = 8  # rows of fewer elements leave most threads of a warp idle
FEW = 8  # rows or columns that one thread moves an element of each
FEW_BLOCK = (8, 32)  # along a row, and rows
LONG, LINES = 1 << 16, 64  # rows so long want OS threads to share them, unless there are so many

PART = (128, 2)  # the block that copies a part of a concatenation; on a CPU one as wide as rows are
SIDES = 64  # rows of a block that adds borders
CPU_PARTS = (16, 64), (64, 16), (128, 8), (256, 4)
_COPY = TABLE["copy"]
_plans = Plans()


@remembered(1)
def copy(dialect: Dialect, x: np.ndarray) -> np.ndarray:
    """A C-contiguous copy."""
    if not x.flags.c_contiguous and is_dense(x):
        order = sorted(range(x.ndim), key=lambda i: (-x.strides[i], i))
        return transpose(dialect, x.transpose(order), [order.index(i) for i in range(x.ndim)])
    return pointwise(dialect, _COPY, x, dtype=x.dtype)


@remembered(1)
def cast(dialect: Dialect, x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A C-contiguous copy of another dtype, with C's conversions."""
    if dtype == BFLOAT16 and dialect.name == "numba" and on_gpu(x):
        # numba-cuda 0.30 has a conversion to bfloat16 from float32 alone; a float64 rounds twice
        x = pointwise(dialect, _COPY, x, dtype=x.dtype, out_dtype=np.dtype(np.float32))
    return pointwise(dialect, _COPY, x, dtype=x.dtype, out_dtype=dtype)


def transpose(
    dialect: Dialect, x: np.ndarray, axes: Sequence[int], version: str | None = None
) -> np.ndarray:
    """A C-contiguous copy with the axes in the order given.

    version: a version of the ladder (default: the padded tile). Raises ValueError for axes that are
    no permutation of x's, and for a version where the last axis does not move.
    """
    where, axes = type(x) is ndarray or place(x), tuple(axes)
    key = (dialect, where, x.dtype, x.shape, x.strides, axes, version)
    plan = _plans.get(key) or _plans.keep(key, _plan(dialect, x, axes, version))
    return plan(x)


def _plan(dialect: Dialect, x, given: tuple[int, ...], version: str | None) -> Callable:
    """Check the arguments and prepare a function of x."""
    check_version("transpose", version, {**VERSIONS, **BY_SHAPE})
    axes = [int(a) + x.ndim * (a < 0) for a in given]
    if sorted(axes) != list(range(x.ndim)):
        raise ValueError(f"transpose: axes {given} are no permutation of {x.ndim} dimensions")
    view = x.transpose(axes)
    shape, dtype, matrix = view.shape, x.dtype, _matrix(view, x)
    if matrix and min(matrix[1:]) <= FEW and (version == "few" or _pays_few(x, version, *matrix)):
        return _few(dialect, matrix, shape, dtype)
    if version == "few":
        raise ValueError(
            f"transpose: version 'few' takes up to {FEW} rows or columns, got {x.shape}"
        )
    if matrix and version is None and min(matrix[1:]) < _least(dialect, x):
        matrix = None  # most of a tile would be empty
    if matrix is None:
        if version is not None:
            raise ValueError(
                f"transpose: version {version!r} swaps the two last axes of (batch, rows, columns);"
                f" shape {x.shape} with axes {given} is not of that form"
            )
        on_cpu = not on_gpu(x) or dialect.name != "cupy"
        if on_cpu and x.ndim and x.size and shape[-1] < min(SHORT, x.shape[-1]):
            return _scattered(dialect, axes, shape, dtype)
        return lambda x: pointwise(dialect, _COPY, x.transpose(axes), dtype=dtype)
    batch, rows, columns = matrix
    grid = (ceil_div(columns, TILE), ceil_div(rows, TILE), batch)
    version = version or "padded"
    # numba-cuda has no shared memory of bfloat16: the elements are moved as words
    words = np.dtype(np.uint16) if dtype == BFLOAT16 else None
    kernel = dialect.transpose.kernel(version, words or dtype)
    call = launcher("transpose", version, kernel, grid, (TILE, ROWS))

    def run(x):
        out = empty(shape, dtype, x)
        flat = (x.ravel(), out.ravel())
        call(*(flat if words is None else [a.view(words) for a in flat]), rows, columns)
        return out

    return run


def _pays_few(x, version: str | None, batch: int, rows: int, columns: int) -> bool:
    """Whether a thread for few rows or columns is fastest: on a CPU, if there are enough blocks."""
    shared = batch >= LINES or max(rows, columns) <= LONG
    return version is None and not on_gpu(x) and shared


def _least(dialect: Dialect, x) -> int:
    """The rows or columns of a matrix that takes the way through tiles."""
    if not on_gpu(x):
        return SHORT
    return copies.SHORT_COLUMNS if dialect.name == "cupy" else 0


def _few(dialect: Dialect, matrix: tuple[int, int, int], shape: tuple[int, ...], dtype) -> Callable:
    """The function of x (batch, rows, columns) where rows or columns are few."""
    batch, rows, columns = matrix
    more: tuple[int, ...] = ()
    if rows < columns:
        kernel, more = dialect.transpose.few_rows_kernel(dtype, rows), (1, 1)
    else:
        kernel = dialect.transpose.few_columns_kernel(dtype, columns)
    length = max(rows, columns)
    call = _by_lines(kernel, batch)

    def run(x):
        out = empty(shape, dtype, x)
        call(x.ravel(), out.ravel(), batch, length, *more)
        return out

    return run


def _by_lines(kernel, lines: int) -> Callable:
    return launcher("transpose", "few", kernel, ceil_div(lines, FEW_BLOCK[1]), FEW_BLOCK)


def interleave(dialect: Dialect, x: np.ndarray) -> np.ndarray:
    """x (N, P, K, T, U) as (N, T, P, U, K): P and K phases of the axes (T, P) and (U, K)."""
    n, phases, count, times, length = x.shape
    if on_gpu(x) or not 1 < count <= FEW or not x.size:
        return transpose(dialect, x, (0, 3, 1, 4, 2))
    lines, key = n * times * phases, ("interleave", dialect, x.dtype, x.shape)
    call = _plans.get(key) or _plans.keep(
        key, _by_lines(dialect.transpose.few_rows_kernel(x.dtype, count), lines)
    )
    out = empty((n, times, phases, length, count), x.dtype, x)
    call(contiguous(x).ravel(), out.ravel(), lines, length, times, phases)
    return out


def _scattered(dialect: Dialect, axes: list[int], shape: tuple[int, ...], dtype) -> Callable:
    """The function of x that goes along the rows of x, for rows of out are short."""
    back = [axes.index(i) for i in range(len(axes))]

    def run(x):
        out = empty(shape, dtype, x)
        pointwise(dialect, _COPY, x, dtype=dtype, out=out.transpose(back))
        return out

    return run


def _matrix(view, x) -> tuple[int, int, int] | None:
    """(batch, rows, columns) of contiguous x where `view` swaps the last two, else None."""
    if not x.flags.c_contiguous or x.size == 0:
        return None
    strides = [s // x.itemsize for s in view.strides]
    sizes, (source, _) = merge(view.shape, [strides, contiguous_strides(view.shape)])
    if len(sizes) == 2:
        sizes, source = [1, *sizes], [x.size, *source]
    batch, columns, rows = sizes if len(sizes) == 3 else (0, 0, 0)
    fits = source == [rows * columns, 1, columns] and 0 < batch < 65536
    return (batch, rows, columns) if fits and ceil_div(rows, TILE) < 65536 else None


def concat(
    dialect: Dialect, arrays: Sequence[np.ndarray], axis: int = 0, version: str | None = None
) -> np.ndarray:
    """The arrays, of one dtype, one after the other along `axis`.

    version: of those that the dialect has (default: on a GPU the fastest). Raises ValueError for no
    arrays and for shapes that differ elsewhere, TypeError for dtypes that differ, IndexError for an
    axis that is not there.
    """
    check_version("concat", version, CONCAT[dialect.name])
    if not arrays:
        raise ValueError("concat: expected at least one array, got none")
    return _concat(dialect, *arrays, axis=axis, version=version)


@remembered(MAX_OPERANDS)
def _concat(dialect: Dialect, *arrays: np.ndarray, axis: int, version: str | None) -> np.ndarray:
    first = arrays[0]
    where = type(first) is ndarray or place(first)
    key = (dialect, where, axis, version, *[(a.shape, a.dtype) for a in arrays])
    plan = _plans.get(key) or _plans.keep(key, _plan_concat(dialect, arrays, axis, version))
    return plan(arrays)


def _cpu_part(width: int) -> tuple[int, int]:
    return next((part for part in CPU_PARTS if width <= part[0]), CPU_PARTS[-1])


def _gpu_part(width: int) -> tuple[int, int]:
    columns = min(1 << (width - 1).bit_length(), PART[0])
    return columns, math.prod(PART) // columns


def _plan_concat(dialect: Dialect, arrays: Sequence, axis: int, version: str | None) -> Callable:
    """Check the arguments and prepare a function of the arrays."""
    first = arrays[0]
    if not -first.ndim <= axis < first.ndim:
        raise IndexError(f"concat: axis {axis} is out of range for {first.ndim} dimensions")
    axis %= first.ndim
    rest = [*first.shape[:axis], *first.shape[axis + 1 :]]
    for a in arrays:
        if [*a.shape[:axis], *a.shape[axis + 1 :]] != rest or a.ndim != first.ndim:
            raise ValueError(f"concat: shapes {first.shape} and {a.shape} differ off axis {axis}")
        if a.dtype != first.dtype:
            raise TypeError(f"concat: dtypes {first.dtype} and {a.dtype} differ; cast one of them")
    sizes, dtype = [a.shape[axis] for a in arrays], first.dtype
    shape = (*first.shape[:axis], sum(sizes), *first.shape[axis + 1 :])
    rows, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    lead, start, parts = (slice(None),) * axis, 0, []
    for i, size in enumerate(sizes):
        if rows and size * inner:
            parts.append(Part(i, size * inner, start * inner, (*lead, slice(start, start + size))))
        start += size
    total = start * inner
    fast = "parts" in CONCAT[dialect.name] and rows * total <= copies.MAX_INDEX
    if (version or ("parts" if on_gpu(first) and fast else "rows")) == "parts":
        return _several_at_once(dialect, dtype, shape, rows, total, parts)
    fours = version != "rows" and "four" in CONCAT[dialect.name]
    groups = _fours(parts) if fours else [[part] for part in parts]
    return _in_columns(dialect, dtype, shape, rows, total, groups, on_gpu(first))


class Part(NamedTuple):
    """An array of a concatenation that is not empty: which, the elements of a row, where these
    begin in a row of the result, and the index of all of it there."""

    array: int
    width: int
    start: int
    columns: tuple


def _fours(parts: list[Part]) -> list[list[Part]]:
    """The parts in groups of four of one width; other parts alone."""
    groups: list[list[Part]] = []
    while parts:
        same = len(parts) >= 4 and len({part.width for part in parts[:4]}) == 1
        count = 4 if same else 1
        groups.append(parts[:count])
        parts = parts[count:]
    return groups


def _in_columns(
    dialect: Dialect, dtype, shape: tuple[int, ...], rows: int, total: int, groups: list, gpu: bool
) -> Callable:
    """Each group of parts as columns of the result, in a launch."""
    calls = []
    for group in groups:
        width, start = group[0].width, group[0].start
        block = _gpu_part(width) if gpu else _cpu_part(width)
        grid = ceil_div(width, block[0]) * ceil_div(rows, block[1])
        four = len(group) == 4
        kernel = dialect.transpose.four_kernel if four else dialect.transpose.concat_kernel
        call = launcher("concat", "four" if four else "rows", kernel(dtype), grid, block)
        calls.append((call, group, width, start))

    def run(arrays):
        out = empty(shape, dtype, arrays[0])
        flat = out.ravel()
        for call, group, width, start in calls:
            given = [_whole(dialect, arrays[part.array]) for part in group]
            if all(x is not None for x in given):
                call(*given, flat, rows, width, total, start)
                continue
            for part in group:
                x = arrays[part.array]
                pointwise(dialect, _COPY, x, dtype=dtype, out=out[part.columns])
        return out

    return run


def _whole(dialect: Dialect, x: np.ndarray) -> np.ndarray | None:
    """The elements of x in order, as one row; None for a part of another array."""
    if x.flags.c_contiguous:
        return x.ravel()
    return copy(dialect, x).ravel() if is_dense(x) else None


def _several_at_once(
    dialect: Dialect, dtype, shape: tuple[int, ...], rows: int, total: int, parts: list[Part]
) -> Callable:
    groups = [parts[i : i + copies.PARTS] for i in range(0, len(parts), copies.PARTS)]
    calls = []
    for group in groups:
        widths = [part.width for part in group]
        made = copies.parts(dialect, dtype, rows, widths, total, group[0].start)
        places = [part.array for part in group]
        calls.append((places + places[:1] * (copies.PARTS - len(places)), *made))

    def run(arrays):
        out = empty(shape, dtype, arrays[0])
        if all(arrays[part.array].flags.c_contiguous for part in parts):
            for places, call, argument in calls:
                call(*[copies.whole(arrays[i]) for i in places], copies.whole(out), argument)
        else:
            for part in parts:
                pointwise(dialect, _COPY, arrays[part.array], dtype=dtype, out=out[part.columns])
        return out

    return run


def pad(
    dialect: Dialect,
    x: np.ndarray,
    pads: Sequence[tuple[int, int]],
    mode: str = "constant",
    value: float = 0.0,
) -> np.ndarray:
    """x with (before, after) more elements per dimension: of the value, of "reflect" (about the
    first and the last element), "replicate" (those) or "circular". With "constant" negative ones
    crop.

    Raises ValueError for other modes, and for a border that x is too short for.
    """
    pads = tuple([(int(a), int(b)) for a, b in pads])
    if mode not in copies.MODES or len(pads) != x.ndim:
        raise ValueError(
            f"pad: expected a mode among {copies.MODES} and {x.ndim} pairs, got {mode!r}, {pads}"
        )
    for n, sides in zip(x.shape, pads):
        most = {"reflect": max(n - 1, 0), "circular": n}.get(mode, max(*sides, 0) if n else 0)
        if (n + sum(sides) < 0) if mode == "constant" else min(sides) < 0 or max(sides) > most:
            raise ValueError(f"pad: {sides} with mode {mode!r} does not fit a length of {n}")
    value = compute_dtype(x.dtype).type(value).item()
    return _padded(dialect, x, pads, mode, value, math.copysign(1, value))


@remembered(1)
def _padded(dialect: Dialect, x, pads: tuple, mode: str, value: float | int | bool, sign: float):
    """sign: of the value, for 0.0 and -0.0 are equal, but not the same launch."""
    where = type(x) is ndarray or place(x)
    key = (dialect, where, x.dtype, x.shape, x.strides, pads, mode)
    plan = _plans.get(key) or _plans.keep(key, _plan_pad(dialect, x, pads, mode))
    return plan(x, value)


def _plan_pad(dialect: Dialect, x, pads: tuple, mode: str) -> Callable:
    """A function of x and the value."""
    shape = tuple([n + a + b for n, (a, b) in zip(x.shape, pads)])
    grows = any(n > 0 for sides in pads for n in sides)  # else x covers the result
    found = None
    if dialect.name == "cupy" and x.size and 0 not in shape and (on_gpu(x) or x.flags.c_contiguous):
        found = copies.bordered(dialect, x, shape, pads, mode)

    def at_once(x, value):
        launch, sides = found
        out = empty(shape, x.dtype, x)
        launch(copies.whole(x), copies.whole(out), value, sides)
        return out

    def in_parts(x, value):
        out = empty(shape, x.dtype, x)
        if mode == "constant" and grows:
            pointwise(dialect, _COPY, value, dtype=x.dtype, out=out)
        for part, source in parts:
            pointwise(dialect, _COPY, x[(*source, ...)], dtype=x.dtype, out=out[(*part, ...)])
        if sides is not None:
            sides(out)
        return out

    if found is not None:
        return at_once
    sides = None
    if mode == "constant":
        to = tuple([slice(max(a, 0), n - max(b, 0)) for n, (a, b) in zip(shape, pads)])
        source = tuple([slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, pads)])
        parts = [(to, source)]
    else:
        parts = parts_with_borders(x.shape, pads, mode)
        if pads and any(pads[-1]) and 0 not in shape:
            sides = _sides(dialect, x.dtype, shape, pads[-1], mode)
    return in_parts


def _sides(dialect: Dialect, dtype, shape: tuple, pads: tuple[int, int], mode: str) -> Callable:
    """A launch that gives each row of a contiguous array of this shape its borders."""
    before, after = pads
    n = shape[-1] - before - after
    step, left, right = {
        "reflect": (-1, 2 * before, before + n - 2),
        "replicate": (0, before, before + n - 1),
        "circular": (1, n, before),
    }[mode]
    rows = math.prod(shape[:-1])
    kernel = dialect.transpose.sides_kernel(dtype)
    launch = launcher("pad", "sides", kernel, ceil_div(rows, SIDES), SIDES)
    return lambda out: launch(out.ravel(), rows, shape[-1], before, after, step, left, right)


@remembered(1)
def triangle(dialect: Dialect, x: np.ndarray, diagonal: int, lower: bool) -> np.ndarray:
    """The lower (j - i <= diagonal) or upper triangle of the last two dimensions, else zeros."""
    x = contiguous(x)
    where = type(x) is ndarray or place(x)
    key = (dialect, where, x.dtype, x.shape, diagonal, lower)
    plan = _plans.get(key) or _plans.keep(key, _plan_triangle(dialect, x, diagonal, lower))
    return plan(x)


def _plan_triangle(dialect: Dialect, x, diagonal: int, lower: bool) -> Callable:
    """A function of contiguous x."""
    found = None
    if dialect.name == "cupy" and x.size:
        found = copies.triangular(dialect, x, diagonal, lower)

    def at_once(x):
        launch, sizes = found
        out = empty(x.shape, x.dtype, x)
        launch(copies.whole(x), copies.whole(out), sizes)
        return out

    def chosen(x):
        kept = namespace(x).tri(*x.shape[-2:], diagonal if lower else diagonal - 1, dtype=bool)
        operands = (kept, x, 0) if lower else (kept, 0, x)
        return pointwise(dialect, TABLE["where"], *operands, dtype=x.dtype)

    return chosen if found is None else at_once


def _cost_of_cast(x, dtype):
    return [(x.shape, np.dtype(dtype))], 0


def _cost_of_transpose(x, axes):
    return [(tuple(x.shape[a] for a in axes), x.dtype)], 0


def _cost_of_concat(arrays, axis=0):
    shape = list(arrays[0].shape)
    shape[axis] = sum(a.shape[axis] for a in arrays)
    return [(tuple(shape), arrays[0].dtype)], 0


_SIDES = {"sides": "a thread adds the borders of a row, in its place by then"}


def _cost_of_pad(x, pads, mode="constant", value=0.0):
    return [(tuple(n + a + b for n, (a, b) in zip(x.shape, pads)), x.dtype)], 0


def _problem_of_pad(version: str):
    if version == "elements":
        return (floats(9, 40), ((1, 1), (3, 3)), "reflect"), {}
    # More dimensions with borders than `elements` of CUDA C takes
    return (floats(2, 2, 2, 2, 2, 2, 5), ((1, 0), (0, 0)) * 3 + ((1, 2),), "reflect"), {}


_BORDERS = ((2, 1), (0, 0), (3, 4))


def _cases(rng, versions):
    for mode in copies.MODES:
        yield "pad", (normal(rng, (4, 3, 33)), _BORDERS, mode, 1.5), {}, 1
    yield "triangle", (normal(rng, (3, 33, 31)), 1, True), {}, 1
    for version in VERSIONS:
        yield "transpose", (normal(rng, (3, 33, 40)), (0, 2, 1)), {"version": version}, 1
    for shape in ((3, 4, 33), (3, 33, 4)):
        yield "transpose", (normal(rng, shape), (0, 2, 1)), {"version": "few"}, 1
    yield "copy", (normal(rng, (9, 8, 7))[::2, ::-1],), {}, 1
    yield "cast", (np.abs(normal(rng, 257)) * 9, np.dtype(np.int64)), {}, 1
    for version in versions("concat"):
        arrays = [normal(rng, (3, n)) for n in (5, 33, 33, 33, 33, 5)]
        yield "concat", (arrays, 1), {"version": version}, 1


def _compiled(versions):
    for version in versions("transpose"):
        yield "transpose", (ones(3, 29, 43), (0, 2, 1)), {"version": version}
    for shape in ((3, 4, 43), (3, 43, 4)):
        yield "transpose", (ones(*shape), (0, 2, 1)), {"version": "few"}
    for version in versions("concat"):
        yield "concat", ([ones(29, n) for n in (43, 43, 43, 43, 11)], 1), {"version": version}
    for mode in copies.MODES:
        yield "pad", (ones(5, 3, 43), _BORDERS, mode), {}
    yield "pad", (ones(2, 3, 2, 3, 2, 3, 5), ((1, 0), (0, 0)) * 3 + ((1, 2),), "reflect"), {}
    for lower in (True, False):
        yield "triangle", (ones(29, 44), 0, lower), {}
    yield "copy", (ones(29, 43)[:, ::2],), {}
    yield "copy", (ones(33, 3, 43).transpose(2, 1, 0),), {}


FAMILY = Family(
    "transpose",
    (
        Operation(
            transpose,
            _cost_of_transpose,
            lambda version: ((floats(70, 3 if version == "few" else 66), (1, 0)), {}),
            VERSIONS,
            BY_SHAPE,
        ),
        Operation(
            concat,
            _cost_of_concat,
            lambda version: (([floats(9, n) for n in (40, 40, 40, 40, 30)], 1), {}),
            dialects=CONCAT,
        ),
        Operation(
            pad,
            _cost_of_pad,
            _problem_of_pad,
            dialects={"numba": _SIDES, "cupy": {**_SIDES, "elements": "each finds its place in x"}},
        ),
        Operation(
            triangle,
            like_first(0),
            lambda version: ((floats(40, 40), 0, True), {}),
            dialects={"numba": {}, "cupy": {"elements": "reads what it keeps, in packs"}},
        ),
        Operation(copy, like_first(0)),
        Operation(cast, _cost_of_cast),
    ),
    _cases,
    _compiled,
)
