"""Reductions: every line of `kernels.reduction` over any axes.

n elements cost n - 1 combinations and one read of n elements: the speed of memory.

Teaching ladder (`version=`, all axes of a contiguous array; block of 256 threads):
1. interleaved: neighbours first; half the lanes of every warp idle from the first step on
2. contiguous_threads: the same pairs, done by the lowest threads; whole warps retire
3. sequential: fold halves; no bank conflicts
4. first_add: combine two elements while loading
5. shuffle: the last warp trades registers
6. block: a block walks its own segment of a row, many elements per thread; shuffles, one barrier

What the launcher picks from, for x seen as (outer, length, inner):
- thread: one thread per result; short rows, or nothing to gain from more
- warp: one warp per row (inner = 1)
- block: one block per segment of a long row; the partial results are reduced by the next pass
- columns: tiles of neighbouring columns (inner > 1); on a CPU, which has vectors for warps, several
  rows side by side where columns are few

Every thread adds a bounded number of terms and trees do the rest, so rounding errors grow as in
pairwise summation; the order never depends on timing, so results repeat bit by bit.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from kernels import dispatch
from kernels.families import Family, Operation, floats, normal, ones
from kernels.launchers.common import (
    BLOCKS,
    CPU_BLOCK,
    Dialect,
    ceil_div,
    check_floating,
    check_version,
    compute_dtype,
    empty,
    launcher,
    namespace,
    on_gpu,
    splits,
    warps_a_block,
)
from kernels.launchers.layout import is_dense
from kernels.launchers.plans import Plans, place
from kernels.launchers.pointwise import pointwise
from kernels.launchers.relaunch import Single, remembered, several
from kernels.launchers.transpose import copy
from kernels.pointwise import TABLE as POINTWISE
from kernels.pointwise import flops
from kernels.reduction import DEVIATIONS, TABLE, normalize_axes

VERSIONS = {
    "interleaved": "a tree of neighbours in shared memory; warps diverge",
    "contiguous_threads": "the same pairs by the lowest threads: whole warps retire",
    "sequential": "halves fold onto each other: no bank conflicts",
    "first_add": "two elements per thread, combined while loading",
    "shuffle": "the last warp trades registers instead of shared memory",
    "block": "a segment of a row per block: many elements per thread, one barrier",
}
BY_SHAPE = {
    "warp": "short rows: a warp each, no barrier",
    "thread": "very short rows: a thread each",
    "columns": "not the last axis: tiles of neighbouring columns",
}

THREADS = 256
WARPS = THREADS // 32
SEGMENT, CPU_SEGMENT = 32768, 16384  # elements of a row that one block reduces
CHAIN = 256  # terms that a thread of the column kernel adds one after the other
SHORT = 16  # rows up to this length take one thread each
LONGER = 128  # ... on a CPU where shuffles are not free (CUDA C), or there is one row: the kernel
# of a thread is compiled in half the time
WARP_ROW = 1024  # rows up to this length take one warp each
LEAST_SEGMENT, LEAST_CHAIN = 2048, 8  # instead of SEGMENT and CHAIN, for more blocks on a GPU
ONE_BLOCK = 32768  # elements of a row that one block reads before a second launch would begin
PARTIAL = 4  # numbers of a partial result of `deviations`: count, mean, its rest, squares
FEW_COLUMNS = 128  # on a CPU, where a block has several rows of them: threads, and terms of each
FEW, FEW_ARG = (256, 4), (128, 16)
LONG_COLUMN = 256  # columns whose few winners are found along rows, copied so

_LINES = TABLE | {DEVIATIONS.name: DEVIATIONS}
_plans = Plans()


def accumulator_dtype(name: str, dtype: np.dtype) -> np.dtype:
    """What a reduction in `dtype` is accumulated in: floats as `compute_dtype`, integers in int64
    (shuffles take 32- and 64-bit values), truth values in int32."""
    if _LINES[name].result == "bool":
        return np.dtype(np.int32)
    compute = compute_dtype(dtype)
    return compute if compute.kind == "f" else np.dtype(np.int64)


def pass_key(name: str, source: np.dtype, dtype: np.dtype, first: bool, last: bool) -> tuple:
    """The arguments of `functions`, the same for passes that do the same: a sum's partial results
    are added as its elements are."""
    line, acc = _LINES[name], accumulator_dtype(name, dtype)
    if line is DEVIATIONS:
        return name, source, dtype, first, last
    first = first or (line.map == "x" and source == acc)
    last = last or (line.finish == "a" and dtype == acc)
    return name, source, dtype, first, last


def result_dtype(name: str, dtype: np.dtype) -> np.dtype:
    """The dtype of the final result."""
    special = {"bool": np.dtype(bool), "index": np.dtype(np.int64)}
    return special.get(_LINES[name].result, dtype)


def reduce(
    dialect: Dialect,
    name: str,
    a: np.ndarray,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    dtype: np.dtype | None = None,
    version: str | None = None,
) -> np.ndarray:
    """Reduce over `axis` (all axes for None) with a line of `kernels.reduction`.

    dtype: of accumulation and result (default: that of `a`; float32 for 16-bit storage types
    while accumulating). Returns bool for any/all and int64 for argmax/argmin, which take one axis
    or all. Raises ValueError where there is nothing to reduce and no identity (max of an empty
    axis) and for a version that does not fit, IndexError for an axis that is not there.
    """
    axes = tuple(axis) if isinstance(axis, list) else axis
    where = type(a) is ndarray or place(a)
    key = (dialect, name, where, a.dtype, a.shape, a.strides, axes, keepdims, dtype, version)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans.keep(key, _plan(dialect, name, a, axes, keepdims, dtype, version))
    return plan((a,))


def deviations(
    dialect: Dialect,
    a: np.ndarray,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> np.ndarray:
    """The sum over `axis` (all axes for None) of the squares of the distances from the mean there,
    for a of a floating dtype.

    In CUDA C one pass, which merges counts, means and sums; else a pass for the mean and another.
    """
    check_floating(DEVIATIONS.name, a)
    if dialect.name != "numba":
        return reduce(dialect, DEVIATIONS.name, a, axis, keepdims)
    return _in_two_passes(dialect, a, axis, keepdims)


@remembered(1)
def _in_two_passes(dialect: Dialect, a: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    centre = reduce(dialect, "mean", a, axis, True)
    distances = pointwise(dialect, POINTWISE["sub"], a, centre)
    return reduce(dialect, "sum_squares", distances, axis, keepdims)


def _plan(
    dialect: Dialect, name: str, a, axis, keepdims: bool, dtype, version: str | None
) -> Callable:
    """Check the arguments and prepare a function of (the array,)."""
    operation = None if version else dispatch.named("reduce", name, axis, keepdims, dtype)
    if name not in TABLE and (name != DEVIATIONS.name or dialect.name == "numba"):
        raise ValueError(f"reduce: no reduction named {name!r}; there are {sorted(TABLE)}")
    check_version("reduce", version, VERSIONS)
    axes, line = normalize_axes(name, axis, a.ndim), _LINES[name]
    dtype = np.dtype(dtype or a.dtype)
    kept = [i for i in range(a.ndim) if i not in axes]
    length = math.prod(a.shape[i] for i in axes)
    if length == 0 and a.size == 0 and line.identity in ("lowest", "highest"):
        raise ValueError(f"{name}: cannot reduce an empty axis of shape {a.shape}: no identity")
    if dtype == np.uint64 and line.identity in ("lowest", "highest"):
        raise TypeError(f"{name}: uint64 is not ordered by this kernel; cast to int64 first")
    shape = tuple(1 if i in axes else n for i, n in enumerate(a.shape))
    if not keepdims:
        shape = tuple(a.shape[i] for i in kept)
    positions = line.result == "index" and len(axes) > 1  # they count in row-major order
    order = _memory_order(a, range(a.ndim) if positions else kept)
    prepare = (lambda a: a) if order is not None else functools.partial(copy, dialect)
    groups = _groups(a.shape, axes, order or range(a.ndim))
    if line.result == "index" and on_gpu(a) and len(axes) == 1 and len(groups) > 1:
        outer, _, inner = _single(groups)
        few = splits(ceil_div(outer * inner, THREADS), length, LONG_COLUMN // 2) > 1
        if few and inner > 1 and length >= LONG_COLUMN:
            order, last = None, [*kept, *axes]
            prepare = lambda a: copy(dialect, a.transpose(last))  # noqa: E731
            groups = [[False, outer * inner], [True, length]]
    if version is not None:
        passes = _ladder_passes(dialect, name, a, dtype, version, groups)
    elif line.result == "index":
        passes = _arg_passes(dialect, name, a, axes, groups)
    else:
        passes = _passes(dialect, name, a, dtype, groups, length)

    if order is not None and isinstance(passes, _Step):
        allocate = functools.partial(namespace(a).empty, shape, passes.dtype)
        return Single(passes.launch, allocate, passes.arguments, dialect, operation)

    def run(operands):
        return passes(_flat(prepare(operands[0]))).reshape(shape)

    return run if operation is None else several(dialect, operation, run)


def _flat(x):
    return x.ravel() if x.flags.c_contiguous else x.ravel("K")


class _Step(NamedTuple):
    """A pass: a launch on a flat array into a new one of `size` elements."""

    launch: Callable
    size: int
    dtype: np.dtype
    numbers: tuple[int, ...]

    def __call__(self, x):
        out = empty((self.size,), self.dtype, x)
        self.launch(x, out, *self.numbers)
        return out

    def arguments(self, operands: tuple, out) -> tuple:
        return (_flat(operands[0]), out.ravel(), *self.numbers)


def _memory_order(a, kept: Sequence[int]) -> list[int] | None:
    """a's axes from slowest to fastest in memory, where a can be reduced in place: it is dense and
    the axes `kept` are in order. None where it must be copied first."""
    order = sorted(range(a.ndim), key=lambda i: (-a.strides[i], i))
    stay = [i for i in order if i in kept and a.shape[i] != 1]
    return order if is_dense(a) and stay == sorted(stay) else None


def _groups(shape: Sequence[int], axes, order: Sequence[int]) -> list[list]:
    """[reduced?, size] of the merged runs of kept and reduced axes, slowest first."""
    groups: list[list] = []
    for i in order:
        reduced = i in axes
        if groups and groups[-1][0] == reduced:
            groups[-1][1] *= shape[i]
        elif shape[i] != 1:
            groups.append([reduced, shape[i]])
    return groups


def _single(groups: list[list]) -> tuple[int, int, int]:
    """(outer, length, inner) of the one reduced run."""
    at = next((i for i, (reduced, _) in enumerate(groups) if reduced), len(groups))
    outer = math.prod(size for _, size in groups[:at])
    inner = math.prod(size for _, size in groups[at + 1 :])
    return outer, groups[at][1] if at < len(groups) else 1, inner


def _passes(
    dialect: Dialect,
    name: str,
    a,
    dtype: np.dtype,
    groups: list[list],
    count: int,
    by_block: bool = False,
) -> Any:
    """One pass per reduced run, the fastest axes first; long runs take another for the partials."""
    if any(size == 0 for _, size in groups):  # only the identity is left: rows of length 0
        kept = math.prod(size for reduced, size in groups if not reduced)
        runs = [(kept, 0, 1)] if kept else []
        if not kept:
            result = result_dtype(name, dtype)
            return lambda x: empty((0,), result, x)
    else:
        runs = _runs(dialect, [list(g) for g in groups], on_gpu(a))
    in_c_on_cpu = dialect.name != "numba" and not on_gpu(a)
    short = 0 if by_block else LONGER if in_c_on_cpu else SHORT
    steps, source = [], a.dtype
    for i, (outer, length, inner) in enumerate(runs):
        key = pass_key(name, source, dtype, i == 0, i == len(runs) - 1)
        one_row = short and outer == inner == 1 and not on_gpu(a)
        by_thread = LONGER if one_row else short
        steps.append(_step(dialect, key, outer, length, inner, count, by_thread, on_gpu(a)))
        source = accumulator_dtype(name, dtype)
    if len(steps) == 1:
        return steps[0]

    def run(x):
        for step in steps:
            x = step(x)
        return x

    return run


def _runs(dialect: Dialect, groups: list[list], gpu: bool) -> list[tuple[int, int, int]]:
    """(outer, length, inner) of the passes one after the other; segments leave a shorter run."""
    runs = []
    while True:
        at = max((i for i, (reduced, _) in enumerate(groups) if reduced), default=None)
        if at is None:
            return runs or [(math.prod(size for _, size in groups), 1, 1)]
        outer = math.prod(size for _, size in groups[:at])
        inner = math.prod(size for _, size in groups[at + 1 :])
        length = groups[at][1]
        runs.append((outer, length, inner))
        segments = ceil_div(length, _segment(dialect, outer, length, inner, gpu))
        groups[at : at + 1] = [[True, segments]] if segments > 1 else []
        if segments == 1 and 0 < at < len(groups):  # two runs of kept axes meet
            groups[at - 1 : at + 1] = [[groups[at][0], groups[at - 1][1] * groups[at][1]]]


def _tile(outer: int, inner: int, gpu: bool) -> tuple[int, int]:
    """Width and height of the column kernel's block. On a CPU a row of threads is a vector, which
    adds on without a tree; of what is left at the end of wide rows there should be little."""
    if not gpu and inner >= 32:
        return (64 if inner % 64 == 0 or inner >= 256 else 32), 1
    few = gpu and outer * ceil_div(inner, 128) < BLOCKS // 2
    return (32, 16) if inner <= 64 or few else (128, 4)


def _columns_are_few(dialect: Dialect, inner: int, length: int, gpu: bool) -> bool:
    """Whether a block has several rows of columns. (Measured with AVX2 and AVX-512; a tile has just
    64 columns.)"""
    here = dialect.name == "numba" and not gpu
    return here and 1 < inner <= FEW_COLUMNS and (inner != 64 or length > CHAIN)


def _side_by_side(inner: int, length: int, threads: int, terms: int) -> int:
    """How many rows of few columns a block takes at once, with so many threads at most, each of
    which has so many terms at least."""
    return 1 << max(min(threads // inner, length // terms, 32), 1).bit_length() - 1


def _threads(gpu: bool) -> int:
    """Threads of a block that walks along a row: on a CPU as many as have their accumulators in
    registers."""
    return THREADS if gpu else CPU_BLOCK


def _segment(dialect: Dialect, outer: int, length: int, inner: int, gpu: bool) -> int:
    """How many elements of a run one block (or thread) reduces in one pass."""
    if length <= SHORT:
        return length
    width, height = _tile(outer, inner, gpu)
    if _columns_are_few(dialect, inner, length, gpu):
        height = _side_by_side(inner, length, *FEW)
    most = CHAIN * height
    if inner == 1:
        most = SEGMENT if gpu else CPU_SEGMENT
    least = LEAST_SEGMENT if inner == 1 else LEAST_CHAIN * height
    results = outer * ceil_div(inner, width) if inner > 1 else outer
    one = BLOCKS if inner > 1 else ONE_BLOCK
    if not gpu or length <= one or results * ceil_div(length, most) >= BLOCKS // 2:
        return most
    step = THREADS if inner == 1 else height  # whole rows of threads, and aligned packs
    return ceil_div(ceil_div(length, splits(results, length, least)), step) * step


def _step(
    dialect: Dialect,
    key: tuple,
    outer: int,
    length: int,
    inner: int,
    count: int,
    short: int,
    gpu: bool,
) -> _Step:
    """One pass over x (outer, length, inner) as a function of the flat array.

    short: rows up to this length take one thread each; 0 means one block each.
    """
    numbers: tuple[int, ...]
    family, segment = f"reduce.{key[0]}", max(1, _segment(dialect, outer, length, inner, gpu))
    segments = max(1, ceil_div(length, segment))
    size = outer * segments * inner
    # on a CPU neighbouring columns are read together in a tile; each thread alone would divide
    tiles_pay = short and not gpu and inner >= 32 and dialect.name == "numba"
    if length <= (short if inner == 1 else min(short, SHORT)) and not tiles_pay:
        numbers, kernel = (length, inner, count), dialect.reduction.by_thread(inner == 1, *key)
        call = launcher(family, "thread", kernel, ceil_div(size, THREADS), THREADS)
    elif inner == 1 and short and length <= WARP_ROW:
        numbers, kernel = (outer, length, count), dialect.reduction.rows_by_warp(*key)
        warps = warps_a_block(outer, WARPS, gpu)
        call = launcher(family, "warp", kernel, ceil_div(outer, warps), (32, warps))
    elif inner == 1:
        numbers, threads = (length, segment, segments, count), _threads(gpu)
        kernel = dialect.reduction.rows_by_block(threads, *key)
        call = launcher(family, "block", kernel, outer * segments, threads)
    elif _columns_are_few(dialect, inner, length, gpu):
        numbers, rows = (length, segment, segments, count), _side_by_side(inner, length, *FEW)
        kernel = dialect.reduction.few_columns(inner, rows, *key)
        call = launcher(family, "columns", kernel, outer * segments, inner * rows)
    else:
        width, height = _tile(outer, inner, gpu)
        tiles = ceil_div(inner, width)
        numbers = (length, inner, segment, segments, tiles, count)
        kernel = dialect.reduction.columns_by_tile(width, height, *key)
        call = launcher(family, "columns", kernel, outer * segments * tiles, (width, height))
    result = result_dtype(key[0], key[2]) if key[4] else accumulator_dtype(key[0], key[2])
    size *= PARTIAL if key[0] == DEVIATIONS.name and not key[4] else 1
    return _Step(call, size, result, numbers)


def _ladder_passes(
    dialect: Dialect, name: str, a, dtype: np.dtype, version: str, groups: list[list]
) -> Callable:
    """Launch one version of the ladder until a single value is left."""
    if TABLE[name].result == "index" or any(not reduced for reduced, _ in groups) or a.size == 0:
        raise ValueError(
            f"{name}: version {version!r} reduces all axes of a non-empty array to one value;"
            " leave version out for everything else"
        )
    if version == "block":
        return _passes(dialect, name, a, dtype, groups, a.size, by_block=True)
    per_block = THREADS * (2 if version in ("first_add", "shuffle") else 1)
    sizes = [a.size]
    while sizes[-1] > 1 or len(sizes) == 1:
        sizes.append(ceil_div(sizes[-1], per_block))
    calls, source, count = [], a.dtype, a.size
    for i, (n, blocks) in enumerate(itertools.pairwise(sizes)):
        last = i == len(sizes) - 2
        kernel = dialect.reduction.ladder(version, *pass_key(name, source, dtype, i == 0, last))
        source = result_dtype(name, dtype) if last else accumulator_dtype(name, dtype)
        call = launcher(f"reduce.{name}", version, kernel, blocks, THREADS)
        calls.append((call, n, blocks, source))

    def run(x):
        for call, n, blocks, result in calls:
            out = empty((blocks,), result, x)
            call(x, out, n, count)
            x = out
        return x

    return run


def _arg_passes(dialect: Dialect, name: str, a, axes: tuple[int, ...], groups: list[list]) -> Any:
    if len(axes) not in (1, a.ndim):
        raise ValueError(f"{name}: takes one axis or all of them, got {axes}")
    outer, length, inner = _single(groups)
    size, family = outer * inner, f"reduce.{name}"
    if size == 0:
        return lambda x: empty((0,), np.int64, x)
    rows = _side_by_side(inner, length, *FEW_ARG)
    pays = 4 * inner > FEW_ARG[0] or length >= FEW_ARG[1] * rows * outer
    if length > SHORT and pays and _columns_are_few(dialect, inner, length, on_gpu(a)):
        kernel = dialect.reduction.arg_few_columns(inner, rows, name, a.dtype)
        call = launcher(family, "columns", kernel, outer, inner * rows)
        return _Step(call, size, np.dtype(np.int64), (length,))
    if length <= SHORT or inner > 1:
        kernel = dialect.reduction.arg_by_thread(inner == 1, name, a.dtype)
        call = launcher(family, "thread", kernel, ceil_div(size, THREADS), THREADS)
        return _Step(call, size, np.dtype(np.int64), (length, inner))
    if length <= WARP_ROW:
        warps, kernel = warps_a_block(outer, WARPS, on_gpu(a)), dialect.reduction.arg_by_warp
        call = launcher(family, "warp", kernel(name, a.dtype), ceil_div(outer, warps), (32, warps))
        return _Step(call, size, np.dtype(np.int64), (outer, length))
    threads = _threads(on_gpu(a))
    steps, accumulator, n = [], accumulator_dtype(name, a.dtype), length
    while n > 1 or not steps:
        segment = _segment(dialect, outer, n, 1, on_gpu(a))
        segments = ceil_div(n, segment)
        source = accumulator if steps else a.dtype
        kernel = dialect.reduction.arg_by_block(threads, name, source, not steps)
        call = launcher(family, "block", kernel, outer * segments, threads)
        steps.append((call, outer * segments, n, min(n, segment), segments))
        n = segments

    def by_block(x):
        positions = empty((1,), np.int64, x)  # unread in the first pass
        for call, blocks, n, segment, segments in steps:
            best, found = empty((blocks,), accumulator, x), empty((blocks,), np.int64, x)
            call(x, positions, best, found, n, segment, segments)
            x, positions = best, found
        return positions

    return by_block


def _cost(name, a, axis=None, keepdims=False, dtype=None, version=None):
    line, axes = TABLE[name], normalize_axes(name, axis, a.ndim)
    shape = tuple(1 if i in axes else n for i, n in enumerate(a.shape) if keepdims or i not in axes)
    each = flops(line.map) + flops(line.combine)
    return [(shape, result_dtype(name, np.dtype(dtype or a.dtype)))], each * a.size


def _cost_of_deviations(a, axis=None, keepdims=False):
    (result,), _ = _cost("sum", a, axis, keepdims)
    return [result], 8 * a.size


def _problem(version: str):
    shape = {"warp": (9, 200), "thread": (300, 5), "columns": (60, 70)}.get(version)
    if shape is None:
        return ("sum", floats(3000)), {}
    return ("sum", floats(*shape), 0 if version == "columns" else 1), {}


def _cases(rng, versions):
    for version in VERSIONS:
        yield "reduce", ("sum", normal(rng, 1025)), {"version": version}, 1025
    for name in TABLE:
        yield "reduce", (name, normal(rng, (33, 9)) / 8 + 1, 1), {}, 9
    for shape, axis in [((5, 257), 1), ((2, 40_000), 1), ((257, 33), 0), ((6, 33, 65), (0, 2))]:
        yield "reduce", ("sum", normal(rng, shape), axis), {}, 1000
    yield "reduce", ("argmax", np.round(normal(rng, (2, 40_000)) * 9), 1), {}, 1
    for shape, axis in [((9, 33), 1), ((2, 40_000), 1), ((257, 33), 0), ((3, 17, 65), (0, 2))]:
        yield "deviations", (normal(rng, shape) + 100, axis), {}, 100_000


def _compiled(versions):
    for version in versions("reduce"):
        yield "reduce", ("sum", ones(3343)), {"version": version}
    for name in TABLE:
        for shape, axis in [((29, 11), 1), ((29, 203), 1), ((2, 70_001), 1), ((37, 43), 0)]:
            yield "reduce", (name, ones(*shape), axis), {}


FAMILY = Family(
    "reduction",
    (
        Operation(reduce, _cost, _problem, VERSIONS, BY_SHAPE),
        Operation(deviations, _cost_of_deviations),
    ),
    _cases,
    _compiled,
)
