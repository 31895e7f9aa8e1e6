"""Matrix products: what the operands must be, how they lie, and the launches over a batch."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
from numpy import ndarray

from kernels import dispatch
from kernels.families import Family, Operation, floats, normal, ones
from kernels.launchers.common import (
    BFLOAT16,
    BLOCKS,
    MAX_GRID_YZ,
    Dialect,
    ceil_div,
    check_version,
    compute_capability,
    compute_dtype,
    contiguous,
    empty,
    launcher,
    namespace,
    on_gpu,
    parts_of,
    splits,
)
from kernels.launchers.plans import Plans, place
from kernels.launchers.pointwise import pointwise
from kernels.launchers.reduction import reduce
from kernels.launchers.relaunch import Single, for_now, forget_on_gpu, several
from kernels.launchers.transpose import copy
from kernels.pointwise import TABLE
from kernels.support import ahead

SIMPLE = {
    "naive": "one thread an element, neighbours down a column",
    "coalesced": "neighbours along a row: one segment per warp",
    "tiled": "shared tiles: each element is loaded TILE times less",
    "register_1d": "a column of results in registers",
    "register_2d": "an RM x RN tile of results in registers",
}
WARP_TILE = {"warp_tile": "the threads of a warp form a compact tile too"}
MATVEC = {
    "matvec": "N < 8, or few rows: a warp per element, summed by shuffles",
    "matvec_split": "N == 1, few rows: blocks share a row, whose sums are added up",
}
COLUMNS = {"matvec": 7, "matvec_split": 1}  # at most; "matvec" takes as few rows, too
FEW = {
    "short": "M < 128: tiles of 8 rows, of which few are empty",
    "thin": "M <= 16: a tile of a alone, for b is read once anyway",
    "narrow": "few columns: tiles of 16, of which few are empty",
}
VERSIONS = {
    "numba": {**SIMPLE, **WARP_TILE, **MATVEC, **FEW},
    "cupy": {
        **SIMPLE,
        "vectorised": "16-byte loads, from far and from shared memory",
        **WARP_TILE,
        "double_buffer": "cp.async: the next tiles come while these are multiplied",
        "sliced": "few results: groups of warps take tiles along k in turn, and add up",
        "tensor_core": "16-bit elements: a warp multiplies 16 x 16 fragments (WMMA)",
        "tensor_core_tf32": "float32 rounded to TF32, 10 bits of mantissa (WMMA)",
        "mma_sync": "16-bit: mma.sync, ldmatrix, XOR swizzle, three cp.async stages",
        "wgmma": "16-bit on Hopper: a producer with TMA feeds one or two warpgroups (wgmma)",
        **MATVEC,
    },
}


# Where a launch would have few blocks for a GPU, each sum is split over several.
FEW_BLOCKS = 33  # a quarter of the multiprocessors of a large GPU
THIN = 16  # rows or columns up to which an operand is read once: all multiprocessors must load it
LEAST_TERMS = 256  # of a part of a sum; by `wgmma`, which begins slower, twice as many
LONG = 2048  # terms from which versions are split whose next tiles come while they multiply


class Product(NamedTuple):
    """What a version is chosen for: a (m, k) @ b (k, n), each transposed in memory or not."""

    dtype: np.dtype
    m: int
    n: int
    k: int
    trans_a: bool
    trans_b: bool
    cc: tuple[int, int] | None  # compute capability of the operands' GPU, None on the CPU
    tf32: bool = False  # whether float32 may be rounded to TF32
    batch: int = 1

    @property
    def has_long_sums(self) -> bool:
        """Whether a sum has enough terms for a warp."""
        return self.k >= (16 if self.cc is None else 64)


IN_PLACE = ("sliced", "mma_sync", "wgmma")  # versions that make parts of a product in one launch
# Versions with one sum over k for each element, the bias last.
IN_ORDER = ("tiled", "short", "thin", "narrow")
SECONDS_BETWEEN_TRIES = 0.05  # to find the kernel that a child compiles
MOST_SECONDS = 5  # after which this process compiles it
PAGE = 4096  # bytes
MOST_COPIED = 1 << 26  # bytes: copies of more would take as long

_plans = Plans()
_precision = "highest"


def set_float32_matmul_precision(precision: str) -> None:
    """How exact products of float32 must be. "highest", the default: as float32. "high" or
    "medium": the kernels in CUDA C may round the factors to TF32 (10 bits of mantissa), which GPUs
    of compute capability 8.0 and later multiply on tensor cores. ValueError for anything else.
    """
    global _precision, _plans
    if precision not in ("highest", "high", "medium"):
        raise ValueError(
            "set_float32_matmul_precision: expected 'highest', 'high' or 'medium', got"
            f" {precision!r}"
        )
    _precision, _plans = precision, Plans()  # a call under way adds its plan to the old ones
    forget_on_gpu()


def get_float32_matmul_precision() -> str:
    """The precision that `set_float32_matmul_precision` has set."""
    return _precision


def _stack(x, batch: tuple[int, ...], transposed: bool):
    """x (..., r, c) as contiguous (Z, r, c), or (1, r, c) where all of the batch shares it.

    A transposed x is returned the way it lies in memory: (Z, c, r).
    """
    if transposed:
        x = x.swapaxes(-1, -2)
    if x.ndim == 2:
        x = x[None]
    elif math.prod(x.shape[:-2]) == 1 or x.shape[:-2] == batch:
        x = x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])
    else:
        x = namespace(x).broadcast_to(x, (*batch, *x.shape[-2:]))
        x = x.reshape(math.prod(batch), *x.shape[-2:])
    return contiguous(x)


def _is_transposed(x) -> bool:
    """Whether x is read best along its last but one axis."""
    return x.strides[-1] != x.itemsize and x.strides[-2] == x.itemsize and x.shape[-1] > 1


def _check(dialect: Dialect, a, b, bias, version: str | None) -> None:
    check_version("matmul", version, VERSIONS[dialect.name])
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError(
            f"matmul: expected (..., m, k) @ (..., k, n), got {a.shape} @ {b.shape};"
            " reshape vectors to one row or one column"
        )
    if a.shape[-1] != b.shape[-2]:
        hint = "; transpose the right operand?" if a.shape[-1] == b.shape[-1] else ""
        raise ValueError(f"matmul: inner dimensions differ: {a.shape} @ {b.shape}{hint}")
    if bias is not None and bias.shape != (b.shape[-1],):
        raise ValueError(f"matmul: expected a bias of shape ({b.shape[-1]},), got {bias.shape}")
    if a.dtype != b.dtype or compute_dtype(a.dtype).kind not in "fiu":
        raise TypeError(
            f"matmul: expected two real numeric operands of one dtype, got {a.dtype} and {b.dtype}"
        )
    m, n = a.shape[-2], b.shape[-1]
    few = min(m or n, n) if version == "matvec" else n
    if version in COLUMNS and not 0 < few <= COLUMNS[version]:
        most = COLUMNS[version]
        raise ValueError(f"matmul: version {version!r} needs n <= {most}, got n == {n}")


class Layout(NamedTuple):
    """How the operands of a product lie, and its result."""

    batch: tuple[int, ...]
    shape: tuple[int, ...]  # of the result
    rows: tuple[int, ...]  # of a: (m, k), or with a batch in front
    trans_a: bool
    trans_b: bool


def _layout(a, b) -> Layout:
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(f"matmul: batches do not broadcast: {a.shape} @ {b.shape}") from None
    trans_a, rows = _is_transposed(a), a.shape
    shape = (*batch, a.shape[-2], b.shape[-1])
    if math.prod(b.shape[:-2]) == 1 and not trans_a:
        batch, rows = (), (math.prod(a.shape[:-1]), a.shape[-1])  # all share b: one product
    # a column lies as a row does, which needs no stride between its elements
    return Layout(batch, shape, rows, trans_a, b.shape[-1] == 1 or _is_transposed(b))


def _plan(dialect: Dialect, a, b, bias, version: str | None, result=None):
    """The function of (a, b, bias) that returns c, for operands like these; c of dtype `result`."""
    operation = None if version else dispatch.named("matmul")
    _check(dialect, a, b, bias, version)
    layout = _layout(a, b)
    product = Product(
        *(a.dtype, layout.rows[-2], b.shape[-1], a.shape[-1], layout.trans_a, layout.trans_b),
        *(compute_capability(a), _precision != "highest", math.prod(layout.batch)),
    )
    chosen = version or dialect.matmul.pick(product)
    run: Callable | None = None
    if version is None and _lies_across(dialect, product, layout.batch):
        run = functools.partial(_turned, dialect, layout.shape)
    elif version is None and chosen == "coalesced" and _reads_across(dialect, product):
        run = functools.partial(_with_rows_of_b, dialect)
    elif version is None and chosen == "tiled" and _strides_over_pages(dialect, product):
        run = functools.partial(_with_rows_of_a, dialect)
    elif version is None and layout.batch == () and on_gpu(a):
        run = _in_parts(dialect, chosen, product, bias is not None)
    if run is not None:
        return run if result else several(dialect, operation, run)
    if chosen == "matvec_split":
        if layout.batch != ():
            raise ValueError("matmul: version 'matvec_split' takes no batch of vectors")
        return _split_matvec(dialect, product, version is not None)
    dialect.matmul.check(chosen, product)
    return _whole(dialect, chosen, product, layout, a, bias is not None, result, operation)


def _lies_across(dialect: Dialect, product: Product, batch: tuple[int, ...]) -> bool:
    """Whether a matrix beside a vector is read better as its transpose, from the other side: a row
    times columns that lie along memory, each of which is a sum by `matvec`, or on a CPU rows that
    lie along memory, times a column, which is a row for `thin`."""
    if dialect.name != "numba" if product.cc is None else batch != ():
        return False
    if product.m == 1 and product.trans_b:
        return product.n > 1 and product.has_long_sums
    return product.cc is None and product.n == 1 and product.trans_a and product.m >= 32


def _reads_across(dialect: Dialect, product: Product) -> bool:
    """Whether neighbours along a row of the result would read far apart on a CPU."""
    return dialect.name == "numba" and product.cc is None and product.trans_b and product.n > 1


def _strides_over_pages(dialect: Dialect, product: Product) -> bool:
    """Whether a copy of a transposed `a` on a CPU takes less time than it saves. What the rows of a
    block go through lies a row of memory apart: beyond half a page, on more pages than the first
    level of a TLB knows, and where whole pages are between, in the same few lines of the cache."""
    if dialect.name != "numba" or product.cc is not None or not product.trans_a:
        return False
    apart = product.m * product.dtype.itemsize
    return product.n >= (128 if apart % PAGE == 0 else 512) and apart >= PAGE // 2


def _with_rows_of_a(dialect: Dialect, operands: tuple):
    """a @ b + bias for a copy of a whose rows lie along memory."""
    a, b, bias = operands
    return _product(dialect, copy(dialect, a), b, bias, None)


def _with_rows_of_b(dialect: Dialect, operands: tuple):
    """a @ b + bias for a copy of b whose rows lie along memory."""
    a, b, bias = operands
    return _product(dialect, a, copy(dialect, b), bias, None)


def _turned(dialect: Dialect, shape: tuple[int, ...], operands: tuple):
    """a @ b + bias of shape (..., 1, n) or (..., m, 1) by b.T @ a.T: one row or one column lies in
    memory as its transpose does."""
    a, b, bias = operands
    dtype, compute = a.dtype, compute_dtype(a.dtype)
    # what waits for the bias is not rounded to 16 bits; kernels in CUDA C write their own dtype
    wide = compute if bias is not None and dtype != compute and dialect.name == "numba" else None
    c = _product(dialect, b.swapaxes(-1, -2), a.swapaxes(-1, -2), None, None, wide).reshape(shape)
    if bias is None:
        return c
    return pointwise(dialect, TABLE["add"], c, bias, dtype=compute, out_dtype=dtype)


def _in_parts(dialect: Dialect, version: str, product: Product, biased: bool) -> Callable | None:
    """The function of (a, b, bias) that returns c in several launches, where one would leave a GPU
    few blocks."""
    if version == "matvec" and splits(ceil_div(product.m, 4), product.k, LEAST_TERMS) > 1:
        return _split_matvec(dialect, product, False)
    count, part = _splits(dialect, version, product, biased)
    if count > 1 and part in IN_PLACE:
        return _split_in_place(dialect, part, product, count)
    return _split(dialect, part, count) if count > 1 else None


def _whole(
    dialect: Dialect, version: str, product: Product, layout: Layout, a, biased: bool, result,
    operation,
):  # fmt: skip
    """The function of (a, b, bias) that returns c, where no sum is split: one launch, or as many as
    the limits of a grid need, for `height` rows of c or for a part of the batch each."""
    dtype, m, n, shape = product.dtype, product.m, product.n, layout.shape
    z, flags = math.prod(layout.batch), (product.trans_a, product.trans_b, biased)
    no_bias, acc_t = empty(0, dtype, a), dialect.matmul.accumulator(dtype)
    allocate = functools.partial(namespace(a).empty, shape, result or dtype)

    def tiling(chunk: int, rows: int):
        return dialect.matmul.configure(version, acc_t, flags, chunk, rows, n, on_gpu(a))

    def prepare(chunk: int, rows: int):
        return launcher("matmul", version, *tiling(chunk, rows))

    def stacked(operands, c):
        a, b, bias = operands
        a3 = _stack(a.reshape(layout.rows), layout.batch, product.trans_a)
        b3 = _stack(b, layout.batch, product.trans_b)
        return a3, b3, no_bias if bias is None else bias, c.reshape(z, m, n)

    height = _height(version, m, lambda rows: tiling(1, rows)[1][1])
    if height >= m and 0 < z <= MAX_GRID_YZ and 0 not in shape:
        single = Single(prepare(z, m), allocate, stacked, dialect, operation)
        if version not in IN_ORDER or operation is None or result or on_gpu(a):
            return single
        return ReplacedAtFirst(single, version, product, biased)
    first = (1, height) if height < m else (min(z, MAX_GRID_YZ), m)
    rest = (1, m % height or height) if height < m else (z % MAX_GRID_YZ or MAX_GRID_YZ, m)
    launch, last = prepare(*first), prepare(*rest)

    def by_rows(a3, b3, bias, c3):
        for i, r in itertools.product(range(z), range(0, m, height)):
            own, rows = a3[i % len(a3)], slice(r, r + height)
            part = contiguous(own[:, rows] if product.trans_a else own[rows])
            step = launch if r + height < m else last
            step(part[None], b3[i % len(b3)][None], bias, c3[i, rows][None])

    def by_batch(a3, b3, bias, c3):
        for z0 in range(0, z, MAX_GRID_YZ):
            part = slice(z0, z0 + MAX_GRID_YZ)
            step = launch if z0 + MAX_GRID_YZ < z else last
            step(a3 if len(a3) == 1 else a3[part], b3 if len(b3) == 1 else b3[part], bias, c3[part])

    def run(operands):
        c = empty(shape, result or dtype, operands[0])
        if c.size:
            (by_rows if height < m else by_batch)(*stacked(operands, c))
        return c

    return run


class ReplacedAtFirst:
    """A product on the CPU by a version whose sums run over k in order. While a child compiles its
    kernel (`kernels.support.ahead`), another one that has run already gives the same bits, from
    operands that are copied for it."""

    _ran: ClassVar[dict[tuple, ReplacedAtFirst]] = {}  # one of each dialect and dtype

    def __init__(self, single: Single, version: str, product: Product, biased: bool) -> None:
        self.single, self.version, self.biased = single, version, biased
        self.dtype, self.flags = product.dtype, (product.trans_a, product.trans_b)
        self.same = single.dialect, product.dtype
        self.has_run, self.next_try, self.last_try = False, 0.0, math.inf

    def __call__(self, operands: tuple):
        other = None if self.has_run else self._ran.get(self.same)
        if other is None or not self._can_wait():
            return self._run(operands)
        if ahead.rehearsing:
            ahead.postponed[self] = self._launch_small
            return self.single.allocate()
        if time.monotonic() >= self.next_try:
            try:
                with ahead.postponing(self, self._launch_small):
                    return self._run(operands)
            except ahead.Busy:
                self._wait()
            if ahead.start():
                return self.single.allocate()
        copies = other._copies(*operands)
        if copies is None:
            return self._run(operands)
        a, b, bias = copies
        return _product(self.single.dialect, a, b, bias, other.version)

    def _can_wait(self) -> bool:
        if ahead.rehearsing:
            return True
        if ahead.room() == 0 or time.monotonic() > self.last_try:
            return False
        for_now()
        return dispatch.runs_unseen()

    def _run(self, operands: tuple):
        c = self.single(operands)
        self.has_run = True
        if self.same not in self._ran or self.biased:  # that can replace more
            self._ran[self.same] = self
        ahead.postponed.pop(self, None)
        return c

    def _wait(self) -> None:
        now = time.monotonic()
        self.next_try = now + SECONDS_BETWEEN_TRIES
        self.last_try = min(self.last_try, now + MOST_SECONDS)

    def _copies(self, a, b, bias):
        """Operands of the same product that this one's kernel takes; None where none are."""
        if (bias is not None and not self.biased) or a.nbytes + b.nbytes > MOST_COPIED:
            return None
        if bias is None and self.biased:
            bias = np.full(b.shape[-1], -0.0, self.dtype)  # changes no sum, not even the sign of 0
        laid = [_laid(x, transposed) for x, transposed in zip((a, b), self.flags)]
        layout = _layout(*laid)
        return (*laid, bias) if (layout.trans_a, layout.trans_b) == self.flags else None

    def _launch_small(self) -> None:
        a, b, c = (np.empty((1, 1, 1), self.dtype) for _ in range(3))
        self.single.launch(a, b, np.empty(int(self.biased), self.dtype), c)


def _laid(x, transposed: bool):
    """x as it lies, or a copy that lies along its last axis, or along its last but one."""
    if transposed:
        return contiguous(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    return contiguous(x)


def _splits(
    dialect: Dialect, version: str, product: Product, biased: bool
) -> tuple[int, str | None]:
    """Over how many blocks each sum is split, and the version for that; a number that divides k
    where that version takes the parts as a batch."""
    part = dialect.matmul.for_parts(version, product.dtype)
    if part is None:
        return 1, None
    flags = product.trans_a, product.trans_b, biased
    acc_t = dialect.matmul.accumulator(product.dtype)
    _, grid, _ = dialect.matmul.configure(version, acc_t, flags, 1, product.m, product.n, True)
    if part in IN_PLACE:
        thin = part == "mma_sync" and min(product.m, product.n) <= THIN
        blocks = math.prod(grid) if product.k >= LONG or thin else 0
        if part == "wgmma":  # no more blocks than a GPU runs at once
            most = product.k // (2 * LEAST_TERMS)
            return (min(most, BLOCKS // blocks) if 0 < blocks <= BLOCKS // 4 else 1), part
        wanted = BLOCKS if part == "sliced" else 2 * BLOCKS
        return splits(blocks, product.k, LEAST_TERMS, wanted=wanted), part
    uncopied = (product.m <= THIN and not product.trans_b) or (
        product.n <= THIN and product.trans_a
    )
    enough = BLOCKS // 2 if uncopied else FEW_BLOCKS + 1
    most = splits(math.prod(grid), product.k, LEAST_TERMS, enough)
    return next((s for s in range(most, 1, -1) if product.k % s == 0), 1), part


def _added_up(dialect: Dialect, sums, bias, dtype: np.dtype):
    """The sum of the parts `sums`, which are wider than the result may be, and of the bias."""
    if bias is None:
        return reduce(dialect, "sum", sums, 0, dtype=dtype)
    c = reduce(dialect, "sum", sums, 0)
    return pointwise(dialect, TABLE["add"], c, bias, dtype=sums.dtype, out_dtype=dtype)


def _split_matvec(dialect: Dialect, product: Product, forced: bool):
    """The function of (a, b, bias) that returns c (m, 1), the sum of those of parts of k."""
    m, k, dtype = product.m, product.k, product.dtype
    # a warp per part and row; of a block of four warps, some have none where there are few rows
    count, span = parts_of(ceil_div(m, 4), k, LEAST_TERMS, forced, wanted=16 * BLOCKS)
    flags = product.trans_a, product.trans_b, False
    acc_t, version = dialect.matmul.accumulator(dtype), "matvec_split"
    run = launcher(
        "matmul", version, *dialect.matmul.configure(version, acc_t, flags, count, m, 1, True)
    )
    wide = np.dtype(np.int64) if dtype.kind in "iu" else compute_dtype(dtype)

    def product_of(operands):
        a, b, bias = operands
        shape, sums = (*a.shape[:-1], 1), empty((count, m), wide, a)
        rows = _stack(a if product.trans_a else a.reshape(m, k), (), product.trans_a)
        if sums.size:
            run(rows, _stack(b, (), product.trans_b), sums, span)
        return _added_up(dialect, sums, bias, dtype).reshape(shape)

    return product_of


def _split_in_place(dialect: Dialect, version: str, product: Product, parts: int):
    """The function of (a, b, bias) that returns c, the sum of `parts` by one launch."""
    m, n, dtype = product.m, product.n, product.dtype
    flags, wide = (product.trans_a, product.trans_b, False), compute_dtype(dtype)
    acc_t = dialect.matmul.accumulator(dtype)
    run = launcher(
        "matmul", version, *dialect.matmul.configure(version, acc_t, flags, parts, m, n, True)
    )

    def product_of(operands):
        a, b, bias = operands
        sums, shape = empty((parts, m, n), wide, a), (*a.shape[:-1], n)
        rows = _stack(a if product.trans_a else a.reshape(m, -1), (), product.trans_a)
        run(rows, _stack(b, (), product.trans_b), empty(0, dtype, a), sums)
        return _added_up(dialect, sums, bias, dtype).reshape(shape)

    return product_of


def _split(dialect: Dialect, version: str | None, splits: int):
    """The function of (a, b, bias) that returns c, the sum of `splits` products. The parts of k are
    matrices of a batch: of operands that lie across k, for which others are copied."""

    def parts(x):
        """x (..., k, r) as (splits, k / splits, r)."""
        x = contiguous(x.reshape(x.shape[-2:]))
        return x.reshape(splits, -1, x.shape[1])

    def run(operands):
        a, b, bias = operands
        dtype, shape = a.dtype, (*a.shape[:-1], b.shape[-1])
        left = parts(a.reshape(-1, a.shape[-1]).T).swapaxes(1, 2)
        sums = _product(dialect, left, parts(b), None, version, compute_dtype(dtype))
        return _added_up(dialect, sums, bias, dtype).reshape(shape)

    return run


def _height(version: str, m: int, tiles: Callable[[int], int]) -> int:
    """Rows of a launch, at most m: `tiles(rows)` of them may lie along the grid's y."""
    height = m
    while (y := tiles(height)) > MAX_GRID_YZ:
        if version == "naive":  # there the columns lie along y
            raise ValueError(f"matmul: version 'naive' takes at most {16 * MAX_GRID_YZ} columns")
        height = ceil_div(height, ceil_div(y, MAX_GRID_YZ)) // 512 * 512
    return height


def matmul(dialect: Dialect, a, b, bias=None, version: str | None = None):
    """a (..., m, k) @ b (..., k, n) + bias (n,) -> (..., m, n); batch dimensions broadcast.

    The operands share one real dtype, which the result has; transposed views are read in place.
    Raises ValueError for shapes that do not fit, TypeError for dtypes that differ or are not
    numbers. The ladder follows S. Boehm, "How to optimize a CUDA matmul kernel" (2022).
    """
    return _product(dialect, a, b, bias, version)


def _product(dialect: Dialect, a, b, bias, version: str | None, result=None):
    """As `matmul`; the result of dtype `result`, which "mma_sync" can give in float32."""
    try:
        where = type(a) is ndarray or place(a)
        key: tuple = (
            dialect, where, a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype, version
        )  # fmt: skip
        if result is not None:
            key += (result,)
        if bias is not None:
            key += (bias.shape, bias.dtype)
    except AttributeError:
        given = " and ".join(type(x).__name__ for x in (a, b, bias) if x is not None)
        raise TypeError(
            f"matmul: expected arrays of NumPy or CuPy, got {given}; pass numpy.asarray(x)"
        ) from None
    plan = _plans.get(key) or _plans.keep(key, _plan(dialect, a, b, bias, version, result))
    return plan((a, b, bias))


def _cost(a, b, bias=None):
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    each = 2 * a.shape[-1] + (bias is not None)
    return [(shape, a.dtype)], each * math.prod(shape)


_HALVES = ("tensor_core", "mma_sync", "wgmma")
_SINGLES = ("double_buffer", "sliced", "tensor_core_tf32")


def _problem(version: str):
    a, b = floats(64, 64), floats(64, COLUMNS.get(version, 64))
    halves = tuple(x.astype(np.float16) for x in (a, b))
    if version == "tensor_core_tf32":  # halves lose nothing in TF32
        return tuple(x.astype(np.float32) for x in halves), {}
    return halves if version in _HALVES else (a, b), {}


def _cases(rng, versions):
    m, k, n = 70, 33, 131
    for version in versions("matmul"):
        how = {"version": version}
        if version == "wgmma" or version in COLUMNS:
            continue
        if version in (*_HALVES, "tensor_core_tf32"):
            half = [normal(rng, s).astype(np.float16) for s in [(k, m), (n, k), (n,)]]
            if version == "tensor_core_tf32":  # halves lose nothing in TF32
                half = [x.astype(np.float32) for x in half]
            else:
                pair = [normal(rng, s).astype(BFLOAT16) for s in [(m, k), (k, n)]]
                yield "matmul", pair, how, k
            yield "matmul", (half[0].T, half[1].T, half[2]), how, k
            continue
        yield "matmul", (normal(rng, (m, k)), normal(rng, (k, n))), how, k
        transposed = (normal(rng, (k, m)).T, normal(rng, (n, k)).T, normal(rng, n))
        if version not in ("naive", "coalesced", "register_1d"):
            yield "matmul", transposed, how, k
    if "sliced" in versions("matmul"):  # its tiles, each with more steps than one
        for z, m, k, n in ((1, 17, 150, 40), (60, 20, 65, 70), (101, 33, 70, 34)):
            pair = normal(rng, (z, m, k)), normal(rng, (z, k, n))
            yield "matmul", pair, {"version": "sliced"}, k
            crossed = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in pair]
            yield "matmul", (*crossed, normal(rng, n)), {"version": "sliced"}, k
    for version, columns in COLUMNS.items():
        pair = normal(rng, (33, 100)), normal(rng, (columns, 100)).T
        yield "matmul", pair, {"version": version}, 100
    yield "matmul", (normal(rng, (3, 33, 20)), normal(rng, (20, 9))), {}, 20
    yield "matmul", (normal(rng, (3, 8, 32)), normal(rng, (3, 32, 64))), {}, 32  # all aligned
    yield "matmul", tuple(normal(rng, (9, 9), np.int32) for _ in range(2)), {}, 1


def _compiled(versions):
    def call(version: str, m: int, n: int, dtype: type, layout: str, bias: bool):
        a, b, c = (ones(*shape).astype(dtype) for shape in [(m, 72), (72, n), (n,)])
        a = a if layout[0] == "n" else a.T.copy().T
        b = b if layout[1] == "n" else b.T.copy().T
        return "matmul", (a, b, c if bias else None), {"version": version}

    for version in versions("matmul"):
        sizes = (COLUMNS[version],) if version in COLUMNS else (600, 60)
        for n in sizes if version not in _HALVES else ():
            for layout, bias in itertools.product(("nn", "tt"), (False, True)):
                yield call(version, 600, n, np.float32, layout, bias)
        if version not in _SINGLES:
            yield call(version, 600, sizes[0], np.float16, "nn", True)
            yield call(version, 600, sizes[0], np.float16, "tt", False)
            yield call(version, 600, sizes[-1], np.float16, "nt", True)
        if version in _HALVES[1:]:  # their large tiles
            for m, n in ((1200, 3328), (1200, 1400), (1000, 1000)):
                yield call(version, m, n, np.float16, "nn", True)


FAMILY = Family(
    "matmul",
    (Operation(matmul, _cost, _problem, dialects=VERSIONS, matrix=True, gpu_only=("wgmma",)),),
    _cases,
    _compiled,
)
