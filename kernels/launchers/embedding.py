"""Copies and additions by index: the checks, and which version settles collisions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from kernels import dispatch
from kernels.families import Family, Operation, floats, normal, ones
from kernels.families import index as indices
from kernels.launchers.common import (
    BLOCKS,
    Dialect,
    Pair,
    ceil_div,
    check_version,
    compute_dtype,
    contiguous,
    empty,
    namespace,
    on_gpu,
    parts_of,
    zeros,
)
from kernels.launchers.determinism import are_deterministic_algorithms_enabled
from kernels.launchers.plans import Plans
from kernels.launchers.pointwise import pointwise
from kernels.launchers.relaunch import remembered
from kernels.launchers.transpose import cast, copy
from kernels.pointwise import TABLE
from kernels.support import wrong_index
from kernels.support.bounds import all_below

VERSIONS = {
    "atomic": "a thread per element, atomic additions",
    "lines": "a thread per line along the axis adds in order: repeatable",
    "split": "few lines: threads share a line's results, and each looks at all its indices",
}
PUT_VERSIONS = {
    "elements": "a thread per element; of equal indices any may come last",
    "lines": "a thread per line along the axis writes in order: repeatable",
}
MODES = {"atomic": "add", "elements": "put"}  # of the kernels that check the index
FEW_SUMS = 1 << 14  # of which zeros by a launch, that is remembered, take less time than the host's
THREADS, TIMES = 256, 8  # a thread has so many elements where its kernel checks the index
ROW_BLOCK, SHORT_ROWS = (64, 4), ((8, 128), (16, 64))
COLUMNS = 64  # of a block of neighbouring columns


def sum_dtype(version: str, dtype: np.dtype) -> np.dtype:
    """What elements of the dtype are added in: GPUs add atomically in 32 and 64 bits only."""
    small = version == "atomic" and dtype.kind in "biu" and dtype.itemsize < 4
    return np.dtype(np.int32) if small else compute_dtype(dtype)


def checked_index(
    dialect: Dialect, index: np.ndarray, low: int, high: int, ignore: int, number: int, record
) -> np.ndarray:
    """A copy with `low` in place of numbers outside of low .. high - 1 other than `ignore`. Of the
    others, negative ones count from the end, high.

    If there is a wrong one, and record[0] is 0, record (2 int64) becomes (number, the wrong
    number). `kernels.support.wrong_index` makes errors of that.
    """
    return _checked_copy(dialect, index, number, record, low, high, ignore)


@remembered(3)
def _checked_copy(dialect: Dialect, index, number: int, record, low: int, high: int, ignore: int):
    out = empty(index.shape, index.dtype, index)
    if out.size:
        factory, grid = dialect.embedding.checked_index_kernel, ceil_div(out.size, THREADS)
        launch = _plans.launch(
            "checked_index", "elements", factory, (index.dtype,), grid, THREADS, out
        )
        launch(contiguous(index).ravel(), out.ravel(), record, low, high, ignore, number)
    return out


def _checked(dialect: Dialect, name: str, index, size: int, negative: bool = False, error=None):
    """The index, without numbers that would lead outside of memory.

    Raises TypeError unless it is of integers, IndexError unless all are in 0 .. size - 1: for an
    array on a GPU later, when the host waits (`kernels.support.wrong_index`). negative: numbers
    from -size to -1 count from the end. error: makes another error of the wrong number.
    """
    _check_dtype(name, index)
    low, error = -size if negative else 0, error or _error(name, size)
    if on_gpu(index):
        launch = functools.partial(checked_index, dialect)
        return wrong_index.inside(launch, namespace(index), index, low, size, error)
    if not dispatch.has_numbers() or all_below(index, size):
        return index
    wrong = index[(index < low) | (index >= size)]
    if wrong.size:
        raise error(wrong.ravel()[0].item())
    return np.where(index < 0, index + size, index)


def _check_dtype(name: str, index) -> None:
    if index.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integer indices, got {index.dtype}")


def _error(name: str, size: int) -> Callable[[int], Exception]:
    return lambda wrong: IndexError(f"{name}: index {wrong} is out of bounds for size {size}")


def _kernels_check(dialect: Dialect, name: str, index) -> bool:
    """Whether the kernels that the index is for check it themselves."""
    if dialect.name != "cupy" or not on_gpu(index):
        return False
    _check_dtype(name, index)
    return True


def _expected(name: str, index, size: int, negative: bool = False, error=None):
    """As `wrong_index.expected` says."""
    low, error = -size if negative else 0, error or _error(name, size)
    return wrong_index.expected(namespace(index), index, low, size, error)


def _tiles(rows: int, width: int, block: Pair = ROW_BLOCK) -> tuple[int, int]:
    """Tiles per row of tiles, and in all."""
    tiles = ceil_div(width, block[0])
    return tiles, tiles * ceil_div(rows, block[1])


def _row_block(width: int, like) -> Pair:
    """The block of a kernel over rows. A CPU loops over the threads beyond a row's end, too."""
    if on_gpu(like) or width >= ROW_BLOCK[0] // 2:
        return ROW_BLOCK
    return SHORT_ROWS[width > SHORT_ROWS[0][0]]


_plans = Plans()


def _chosen(name: str, version: str | None, like, blocks: int) -> str:
    """blocks: that "lines" would have."""
    check_version(name, version, VERSIONS)
    if version is not None or not on_gpu(like):
        return version or "lines"
    few = 0 < blocks < BLOCKS // 2
    return ("split" if few else "lines") if are_deterministic_algorithms_enabled() else "atomic"


def embedding(
    dialect: Dialect,
    weight: np.ndarray,
    index: np.ndarray,
    negative: bool = False,
    error: Callable[[int], Exception] | None = None,
) -> np.ndarray:
    """Rows of weight (V, D) at integer `index` of any shape: (*index.shape, D).

    negative: numbers from -V to -1 count from the end. error: what is raised for a wrong one.
    """
    size = weight.shape[0]
    if not _kernels_check(dialect, "embedding", index):
        return _rows(dialect, weight, _checked(dialect, "embedding", index, size, negative, error))
    if not index.size:
        return empty((*index.shape, weight.shape[1]), weight.dtype, weight)
    with _expected("embedding", index, size, negative, error) as (record, number):
        return _rows_there(dialect, weight, index, record, number, -size if negative else 0)


@remembered(2)
def _rows(dialect: Dialect, weight: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Rows of weight at an index that has been checked."""
    rows, width = index.size, weight.shape[1]
    out = empty((*index.shape, width), weight.dtype, weight)
    if out.size:
        dtypes, block = (weight.dtype, index.dtype), _row_block(width, out)
        (tiles, grid), factory = _tiles(rows, width, block), dialect.embedding.embedding_kernel
        launch = _plans.launch("embedding", "rows", factory, dtypes, grid, block, out)
        launch(contiguous(weight).ravel(), contiguous(index).ravel(), out.ravel(), width, tiles)
    return out


def embedding_backward(
    dialect: Dialect,
    g: np.ndarray,
    index: np.ndarray,
    num_rows: int,
    version: str | None = None,
    negative: bool = False,
    onto: np.ndarray | None = None,
) -> np.ndarray:
    """Gradient (num_rows, D) of embedding: rows of g (*index.shape, D) added where they came from.

    version: "atomic", "lines" or "split" (default: by device, see the file's header). onto: what
    they are added to, of the result's shape and g's dtype, which stays as it is (default: zeros).
    """
    width, forced, name = g.shape[-1], version == "split", "embedding_backward"
    version = _chosen(name, version, g, _tiles(index.size, width)[0])
    if version in MODES and index.size and _kernels_check(dialect, name, index):
        shape, low = (num_rows, width), -num_rows if negative else 0
        with _expected(name, index, num_rows, negative) as check:
            return _added_there(dialect, g, index, *check, onto, low, shape, name)
    index = _checked(dialect, name, index, num_rows, negative)
    few = version == "lines" and not on_gpu(g) and num_rows * width <= FEW_SUMS
    add = _added_to_few if few else _added
    return add(dialect, g, index, onto, num_rows, version, forced, few)


def _added(dialect: Dialect, g, index, onto, num_rows: int, version: str, forced: bool, few: bool):
    """`embedding_backward` at a checked index. few: a launch writes the zeros."""
    made = (num_rows, width := g.shape[-1]), sum_dtype(version, g.dtype), g
    dw = _filled(dialect, onto, *made) if few or onto is not None else zeros(*made)
    if g.size:
        tiles, grid = _tiles(index.size, width)
        block: int | Pair = ROW_BLOCK
        numbers: tuple[int, ...] = (width, tiles)
        if version == "lines":
            grid, block = tiles, ROW_BLOCK[0]
        elif version == "split":
            parts, span = parts_of(tiles, num_rows, 1, forced)
            grid, block, numbers = tiles * parts, ROW_BLOCK[0], (width, tiles, span)
        kind, factory = (version, g.dtype, index.dtype), dialect.embedding.embedding_backward_kernel
        launch = _plans.launch("embedding_backward", version, factory, kind, grid, block, dw)
        launch(contiguous(g).ravel(), contiguous(index).ravel(), dw.ravel(), *numbers)
    return dw if dw.dtype == g.dtype else cast(dialect, dw, g.dtype)


_added_to_few = remembered(3)(_added)


def _filled(dialect: Dialect, onto, shape: tuple, dtype: np.dtype, like):
    """A copy of `onto`, or zeros that a launch writes."""
    start, out = 0 if onto is None else onto, empty(shape, dtype, like)
    return pointwise(dialect, TABLE["copy"], start, dtype=dtype, out=out)


def _axis(name: str, x, axis: int, index) -> int:
    if index.ndim != x.ndim:
        raise ValueError(f"{name}: index has {index.ndim} dimensions, expected {x.ndim}")
    if not -x.ndim <= axis < x.ndim:
        raise IndexError(f"{name}: axis {axis} is out of range for {x.ndim} dimensions")
    axis %= x.ndim
    for d, (n, size) in enumerate(zip(index.shape, x.shape)):
        if d != axis and n > size:
            raise ValueError(f"{name}: index {index.shape} exceeds {x.shape} in dimension {d}")
    return axis


def _part(x, shape, axis: int):
    """The corner of x that an index of `shape` reaches, whole along `axis`."""
    if all(d == axis or n == x.shape[d] for d, n in enumerate(shape)):
        return x
    return x[tuple(slice(None) if d == axis else slice(n) for d, n in enumerate(shape))]


def gather(dialect: Dialect, x: np.ndarray, axis: int, index: np.ndarray) -> np.ndarray:
    """out[i, j, k] = x[index[i, j, k], j, k] for axis 0, and so on; of index's shape.

    Raises ValueError for an index that is larger than x off the axis, IndexError out of bounds.
    """
    axis = _axis("gather", x, axis, index)
    shape, shared, size = index.shape, 1, x.shape[axis]
    checks = _kernels_check(dialect, "gather", index)
    if axis == x.ndim - 1 and (checks or shape[axis] >= ROW_BLOCK[0] // 2):
        index, shared = _distinct_rows(index)
    x = contiguous(_part(x, shape, axis))
    if not checks:
        index = _checked(dialect, "gather", index, size)
        return _gather(dialect, x, index, shape, axis, shared)
    if not index.size:
        return empty(shape, x.dtype, x)
    with _expected("gather", index, size) as (record, number):
        return _gather_there(dialect, x, index, record, number, 0, shape, axis, shared)


def _distinct_rows(index) -> tuple:
    """A broadcast index without the last of its leading dimensions along which it repeats, and how
    many rows share one of those that are left."""
    kept, shared = index.ndim - 1, 1
    while kept and (index.strides[kept - 1] == 0 or index.shape[kept - 1] == 1):
        kept -= 1
        shared *= index.shape[kept]
    if shared < 2:
        return index, 1
    return index[(slice(None),) * kept + (0,) * (index.ndim - 1 - kept)], shared


@remembered(2)
def _gather(dialect: Dialect, x, index, shape: tuple, axis: int, shared: int = 1):
    """Elements of x along `axis` at index, of `shape`, or less its last leading dimensions."""
    out, dtypes = empty(shape, x.dtype, x), (x.dtype, index.dtype)
    arrays = x.ravel(), contiguous(index).ravel(), out.ravel()
    size, length, inner = x.shape[axis], shape[axis], math.prod(shape[axis + 1 :])
    width = length if inner == 1 else inner
    if not out.size:
        return out
    block = _row_block(width, out)
    if width == 1 or (block == ROW_BLOCK and 2 * width < block[0]):  # or most threads are idle
        grid, factory = ceil_div(out.size, THREADS), dialect.embedding.gather_kernel
        kind = (*dtypes, length == inner == 1)
        launch = _plans.launch("gather", "elements", factory, kind, grid, THREADS, out)
        launch(*arrays, size, length, inner)
        return out
    factory = dialect.embedding.gather_rows_kernel
    tiles, grid = _tiles(out.size // width, width, block)
    launch = _plans.launch("gather", "rows", factory, (*dtypes, inner == 1), grid, block, out)
    per = 1 if inner == 1 else length
    launch(*arrays, width, per, size * inner, shared, tiles)
    return out


# -- on a GPU, by kernels that check the index ----------------------------------------------------


@remembered(4)
def _rows_there(dialect: Dialect, weight, index, record, number: int, low: int):
    """As `_rows`; numbers from `low` on count."""
    out = empty((*index.shape, weight.shape[1]), weight.dtype, weight)
    if out.size:
        row, check = ("embedding", "rows"), (record, number, low)
        _move_rows(dialect, row, "take", weight, index, out, check, weight.shape)
    return out


@remembered(5)
def _added_there(
    dialect: Dialect, g, index, record, number: int, onto, low: int, shape: tuple, name: str
):
    """Rows of g, or elements, added at index to `onto` or zeros of a shape (size, width)."""
    out = _filled(dialect, onto, shape, sum_dtype("atomic", g.dtype), g)
    if g.size:
        check = record, number, low
        _move_rows(dialect, (name, "atomic"), "add", g, index, out, check, shape)
    return out if out.dtype == g.dtype else cast(dialect, out, g.dtype)


@remembered(4)
def _gather_there(
    dialect: Dialect, x, index, record, number: int, low: int, shape: tuple, axis: int, shared: int
):
    """As `_gather`; numbers from `low` on count."""
    out, inner = empty(shape, x.dtype, x), math.prod(shape[axis + 1 :])
    if out.size:
        sizes = x.shape[axis], shape[axis], inner, shared
        _move(dialect, "take", x, index, out, (record, number, low), *sizes)
    return out


_NAMES = {"add": ("scatter_add", "atomic"), "put": ("scatter", "elements")}  # in a trace


def _move_rows(
    dialect: Dialect, row: tuple[str, str], mode: str, x, index, out, check: tuple, shape: tuple
) -> None:
    """Take rows out of x, of a shape (size, width), or put or add those of x to `out`, of such a
    shape.

    row: of the catalog, which it is in a trace.
    check: where a wrong index is recorded, the number of the check, and the lowest index.
    """
    size, width = shape
    pack = 16 // x.dtype.itemsize if mode != "add" else 1
    pack = pack if width % pack == 0 else 1
    count = index.size * width
    kind = mode, x.dtype, index.dtype, _is_wide(size * width, count), pack
    factory, grid = dialect.embedding.rows_kernel, ceil_div(count // pack, THREADS * TIMES // 2)
    launch = _plans.launch(*row, factory, kind, grid, THREADS, out)
    arrays = contiguous(x).ravel(), contiguous(index).ravel(), out.ravel()
    launch(*arrays, *check, size, width // pack, count // pack)


def _move(
    dialect: Dialect,
    mode: str,
    x,
    index,
    out,
    check: tuple,
    size: int,
    length: int,
    inner: int,
    shared: int = 1,
) -> None:
    """Take elements of x (outer, size, inner), or put or add those of x to `out`, of that shape, at
    an index (outer, length, inner), of which a row serves `shared` rows. check: as above."""
    arrays = contiguous(x).ravel(), contiguous(index).ravel(), out.ravel()
    lines = max(x.size, out.size) // max(size, length)  # of x and of out, along the axis
    kind: tuple = mode, x.dtype, index.dtype, _is_wide(lines * max(size, length), x.size, out.size)
    count = index.size * shared
    if inner >= COLUMNS and length >= TIMES and shared == 1:
        rows, stripes = THREADS // COLUMNS, ceil_div(inner, COLUMNS)
        tiles, factory = ceil_div(length, rows * TIMES), dialect.embedding.across_kernel
        grid = tiles * stripes * (count // (length * inner))
        name = _NAMES.get(mode, ("gather", "rows"))
        launch = _plans.launch(*name, factory, kind, grid, (COLUMNS, rows), out)
        launch(*arrays, *check, size, length, inner, tiles, stripes)
        return
    factory, grid = dialect.embedding.along_kernel, ceil_div(count, THREADS * TIMES)
    kind = (*kind, inner > 1, shared > 1)
    name = _NAMES.get(mode, ("gather", "elements"))
    launch = _plans.launch(*name, factory, kind, grid, THREADS, out)
    launch(*arrays, *check, size, length, inner, shared, count)


def _is_wide(*sizes: int) -> bool:
    """Whether positions in arrays of these sizes, and a bit behind them, need more than 31 bits."""
    return max(sizes) >= 1 << 30


# -- additions and writes --------------------------------------------------------------------------


def scatter_add(
    dialect: Dialect,
    x: np.ndarray,
    axis: int,
    index: np.ndarray,
    src: np.ndarray,
    version: str | None = None,
    out: np.ndarray | None = None,
    error: Callable[[int], Exception] | None = None,
) -> np.ndarray:
    """A copy of x with src added at index along `axis`, or x itself where it is given as `out`;
    equal indices accumulate.

    version: "atomic", "lines" or "split" (default: by device, see the file's header). error: what
    is raised for a wrong number (default: an IndexError). Raises ValueError for shapes that do not
    fit, TypeError for dtypes that differ.
    """
    axis = _axis("scatter_add", x, axis, index)
    lines = index.size // max(index.shape[axis], 1)
    version = _chosen("scatter_add", version, x, ceil_div(lines, THREADS))
    compute = sum_dtype(version, x.dtype)
    if compute == x.dtype:
        start = copy(dialect, x) if out is None else out
        return _scattered(dialect, "scatter_add", x, axis, index, src, start, version, error)
    sums = cast(dialect, x, compute)
    sums = _scattered(dialect, "scatter_add", x, axis, index, src, sums, version, error)
    if out is None:
        return cast(dialect, sums, x.dtype)
    return pointwise(dialect, TABLE["copy"], sums, dtype=x.dtype, out=out)


def scatter(
    dialect: Dialect,
    x: np.ndarray,
    axis: int,
    index: np.ndarray,
    src: np.ndarray,
    version: str | None = None,
    out: np.ndarray | None = None,
    error: Callable[[int], Exception] | None = None,
) -> np.ndarray:
    """A copy of x with src written at index along `axis`, or x itself where it is given as `out`;
    of equal indices one counts.

    version: "elements" or "lines", where it is the last (default: by device). error: what is
    raised for a wrong number (default: an IndexError). Raises ValueError for shapes that do not
    fit, TypeError for dtypes that differ.
    """
    check_version("scatter", version, PUT_VERSIONS)
    axis = _axis("scatter", x, axis, index)
    if version is None:
        any_order = on_gpu(x) and not are_deterministic_algorithms_enabled()
        version = "elements" if any_order else "lines"
    start = copy(dialect, x) if out is None else out
    return _scattered(dialect, "scatter", x, axis, index, src, start, version, error)


def _scattered(
    dialect: Dialect, name: str, x, axis: int, index, src, out, version: str, error=None
):
    """`out`, which holds the elements of x, with src added or written at index."""
    size, length = x.shape[axis], index.shape[axis]
    checks = version in MODES and _kernels_check(dialect, name, index)
    if not checks:
        index = _checked(dialect, name, index, size, error=error)
    if src.dtype != x.dtype:
        raise TypeError(f"{name}: src is {src.dtype}, expected {x.dtype} as x")
    if any(n > m for n, m in zip(index.shape, src.shape)):
        raise ValueError(f"{name}: index {index.shape} exceeds src {src.shape}")
    if index.size:
        part = _part(out, index.shape, axis)
        target = contiguous(part)
        src = contiguous(src[tuple(slice(n) for n in index.shape)])
        inner = math.prod(index.shape[axis + 1 :])
        if checks:
            mode, whole = MODES[version], index.shape[1:] == x.shape[1:]
            with _expected(name, index, size, error=error) as (record, number):
                check = record, number, 0
                if axis == 0 and inner > 1 and whole and not any(index.strides[1:]):
                    rows = index[(slice(None), *[0] * (index.ndim - 1))]
                    _move_rows(dialect, _NAMES[mode], mode, src, rows, target, check, (size, inner))
                else:
                    _move(dialect, mode, src, index, target, check, size, length, inner)
        else:
            _scatter(dialect, target, index, src, size, length, inner, version, name)
        if not part.flags.c_contiguous:
            pointwise(dialect, TABLE["copy"], target, dtype=out.dtype, out=part)
    return out


def _scatter(
    dialect: Dialect,
    out,
    index,
    src,
    size: int,
    length: int,
    inner: int,
    version: str,
    name: str = "scatter_add",
) -> None:
    constants = (version, src.dtype, index.dtype, version == "lines" and inner == 1)
    count = index.size if version in ("atomic", "elements") else index.size // length
    numbers: tuple[int, ...] = (size, length, inner)
    if version == "split":  # with as many threads as keep a GPU busy, or one for each result
        span = ceil_div(size, max(min(BLOCKS * THREADS // count, size), 1))
        count, numbers = count * ceil_div(size, span), (*numbers, span)
    grid = ceil_div(count, THREADS)
    kernels = dialect.embedding
    factory = kernels.put_kernel if name == "scatter" else kernels.scatter_kernel
    launch = _plans.launch(name, version, factory, constants, grid, THREADS, out)
    launch(src.ravel(), contiguous(index).ravel(), out.ravel(), *numbers)


def take(
    dialect: Dialect,
    x: np.ndarray,
    index: np.ndarray,
    negative: bool = False,
    error: Callable[[int], Exception] | None = None,
) -> np.ndarray:
    """Elements of the flattened x at flat positions `index`, of index's shape.

    negative: numbers from -size to -1 count from the end. error: what is raised for a wrong one.
    """
    size, shape = x.size, (index.size,)
    if not _kernels_check(dialect, "take", index):
        index = _checked(dialect, "take", index, size, negative, error)
        flat = _gather(dialect, contiguous(x).ravel(), index.ravel(), shape, 0)
        return flat.reshape(index.shape)
    if not index.size:
        return empty(index.shape, x.dtype, x)
    flat, positions, low = contiguous(x).ravel(), index.ravel(), -size if negative else 0
    with _expected("take", index, size, negative, error) as check:
        return _gather_there(dialect, flat, positions, *check, low, shape, 0, 1).reshape(
            index.shape
        )


def take_backward(
    dialect: Dialect,
    g: np.ndarray,
    index: np.ndarray,
    size: int,
    version: str | None = None,
    negative: bool = False,
) -> np.ndarray:
    """Gradient (size,) of take: g added where it came from; equal indices accumulate.

    version: "atomic", "lines" or "split" (default: by device, see the file's header).
    """
    version = _chosen("take_backward", version, g, 1)
    if version in MODES and index.size and _kernels_check(dialect, "take_backward", index):
        low = -size if negative else 0
        with _expected("take_backward", index, size, negative) as check:
            shape, name = (size, 1), "scatter_add"
            return _added_there(dialect, g, index, *check, None, low, shape, name).ravel()
    index = _checked(dialect, "take_backward", index, size, negative)
    dx = zeros(size, sum_dtype(version, g.dtype), g)
    if g.size:
        _scatter(dialect, dx, index, contiguous(g), size, index.size, 1, version)
    return dx if dx.dtype == g.dtype else cast(dialect, dx, g.dtype)


def _cost(weight, index):
    return [((*index.shape, weight.shape[1]), weight.dtype)], 0


def _cost_backward(g, index, num_rows, **_):
    return [((num_rows, g.shape[-1]), g.dtype)], g.size


def _cost_of_gather(x, axis, index):
    return [(index.shape, x.dtype)], 0


def _cost_of_scatter(x, axis, index, src, **_):
    return [(x.shape, x.dtype)], index.size


def _cost_of_put(x, axis, index, src, **_):
    return [(x.shape, x.dtype)], 0


def _cost_of_check(index, *_):
    return [(index.shape, index.dtype)], 0


def _cost_of_take(x, index):
    return [(index.shape, x.dtype)], 0


def _cost_of_take_backward(g, index, size, **_):
    return [((size,), g.dtype)], g.size


def _problem_of_scatter(version: str):
    return (floats(20, 40), 0, indices(400, 20).reshape(10, 40), floats(10, 40)), {}


def _problem_of_put(version: str):
    places = np.stack([np.arange(20)[::-1]] * 40, 1)[:10]  # none twice: the order is open
    return (floats(20, 40), 0, places, floats(10, 40)), {}


def _cases(rng, versions):
    weight, index = normal(rng, (33, 65)), rng.integers(0, 33, (9, 20))
    yield "embedding", (weight, index), {}, 0
    yield "gather", (weight, 0, rng.integers(0, 33, (7, 65))), {}, 0
    yield "take", (weight, index.astype(np.int32)), {}, 0
    yield "checked_index", (index, 2, 30, -1, 5, np.zeros(2, np.int64)), {}, 0
    for version in VERSIONS:
        how = {"version": version}
        yield "embedding_backward", (normal(rng, (9, 20, 65)), index, 33), how, 30
        src = (rng.integers(0, 65, (33, 20)), normal(rng, (33, 20)))
        yield "scatter_add", (weight, 1, *src), how, 20
        yield "take_backward", (normal(rng, (9, 20)), index, 33), how, 30
    for version in PUT_VERSIONS:
        places = rng.permuted(np.tile(np.arange(65), (33, 1)), axis=1)[:, :20]
        yield "scatter", (weight, 1, places, normal(rng, (33, 20))), {"version": version}, 0


def _compiled(versions):
    index = np.zeros((29, 7), np.int64)
    yield "embedding", (ones(3, 43), index), {}
    yield "gather", (ones(3, 7), 0, index), {}
    yield "gather", (ones(3, 67), 0, np.zeros((29, 67), np.int64)), {}
    yield "gather", (ones(29, 43), 1, np.zeros((29, 43), np.int64)), {}
    yield "checked_index", (index, 0, 7, 0, 1, np.zeros(2, np.int64)), {}
    for version in versions("scatter_add"):
        how = {"version": version}
        yield "embedding_backward", (ones(203, 43), index.ravel(), 3), how
        yield "scatter_add", (ones(3, 7), 0, index, ones(29, 7)), how
    for version in versions("scatter"):
        yield "scatter", (ones(3, 7), 0, index, ones(29, 7)), {"version": version}


FAMILY = Family(
    "embedding",
    (
        Operation(
            embedding,
            _cost,
            lambda version: ((floats(20, 40), indices(30, 20)), {}),
            {"rows": "a row of threads copies a row of the table"},
        ),
        Operation(
            gather,
            _cost_of_gather,
            lambda version: (
                (floats(40, 20), 1, indices(40, 20).reshape(-1, 40 if version == "rows" else 1)),
                {},
            ),
            {"rows": "a thread per element of the result, by tiles of rows and columns"},
            by_shape={"elements": "short rows: a thread per element"},
        ),
        Operation(
            embedding_backward,
            _cost_backward,
            lambda version: ((floats(30, 40), indices(30, 20), 20), {}),
            {
                **VERSIONS,
                "lines": "a thread per column adds in order: repeatable",
                "split": "few columns: blocks share the table's rows, and look at all indices",
            },
        ),
        Operation(scatter_add, _cost_of_scatter, _problem_of_scatter, VERSIONS),
        Operation(
            scatter,
            _cost_of_put,
            _problem_of_put,
            PUT_VERSIONS,
            written=lambda x, *_, out=None, **__: () if out is None else (out,),
        ),
        Operation(take, _cost_of_take),
        Operation(
            checked_index,
            _cost_of_check,
            lambda version: ((indices(400, 20), 0, 20, 0, 1, np.zeros(2, np.int64)), {}),
            {"elements": "a thread per number; the first wrong one is recorded"},
            written=lambda *args: args[-1:],
        ),
        Operation(take_backward, _cost_of_take_backward),
    ),
    _cases,
    _compiled,
)
