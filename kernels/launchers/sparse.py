"""Products with a sparse matrix in compressed rows: the checks, and which version runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import dispatch
from kernels.families import Family, Operation, floats, normal, ones
from kernels.launchers.common import (
    Dialect,
    ceil_div,
    check_floating,
    check_version,
    compute_dtype,
    contiguous,
    empty,
    namespace,
    on_gpu,
)
from kernels.launchers.plans import Plans
from kernels.launchers.transpose import cast
from kernels.support.bounds import all_below

VERSIONS = {
    "thread": "a thread per row of the result",
    "warp": "a warp per row: lanes read neighbouring columns, or share the row's elements",
    "merge": "row ends and elements as one path, cut into parts of equal length",
}
SDDMM_VERSIONS = {
    "thread": "a thread per element",
    "warp": "a warp per element, which reads neighbours",
}
THREADS = 256
WARPS = 8  # rows, or elements, of a block
ITEMS = 32  # row ends and elements of a part of the merge path

_plans = Plans()


def _check_indices(name: str, what: str, index, size: int) -> None:
    """TypeError unless they are a vector of integers, IndexError unless all are in 0..size-1."""
    if index.dtype not in (np.int32, np.int64) or index.ndim != 1:
        raise TypeError(
            f"{name}: expected a vector of int32 or int64 {what} indices, got {index.ndim}"
            f" dimensions of {index.dtype}"
        )
    if dispatch.has_numbers() and not all_below(index, size):
        bad = index[(index < 0) | (index >= size)].ravel()[0].item()
        raise IndexError(f"{name}: {what} index {bad} is out of bounds for size {size}")


def _check_rows(crow, count: int) -> None:
    """ValueError unless crow has the ends of rows with `count` elements in all."""
    if crow.size < 1 or crow[0].item() != 0 or crow[-1].item() != count:
        raise ValueError(f"spmm: expected crow to begin with 0 and to end with {count}")
    if (crow[1:] < crow[:-1]).any():
        raise ValueError("spmm: expected crow never to fall")


def _chosen(version: str | None, width: int, like) -> tuple[str, int]:
    """(version, columns of the dense matrix that a warp takes at a time)."""
    if version is None and not on_gpu(like):  # where a row of 32 threads is vector code
        return "warp" if width > 2 else "thread", 32
    return version or "warp", columns_of(width)


def columns_of(width: int) -> int:
    """How many columns neighbouring threads take: a power of two up to 32."""
    columns = 1
    while columns < min(width, 32):
        columns *= 2
    return columns


def spmm(
    dialect: Dialect,
    crow: np.ndarray,
    col: np.ndarray,
    values: np.ndarray,
    dense: np.ndarray,
    version: str | None = None,
) -> np.ndarray:
    """The product (rows, n) of a CSR matrix and dense (columns, n), in the dtype of both.

    crow (rows + 1,): where each row begins in col and values, and where the last ends. col (nnz,):
    the columns of the elements. Both int32 or both int64. version: of the ladder (default: by
    device and n). Raises TypeError for other dtypes, IndexError for columns out of bounds,
    ValueError for shapes and row ends that do not fit.
    """
    check_version("spmm", version, VERSIONS)
    check_floating("spmm", values, dense)
    if dense.ndim != 2 or values.shape != col.shape or crow.dtype != col.dtype:
        raise ValueError(
            "spmm: expected crow (rows + 1,), col and values (nnz,) and dense (columns, n), got "
            f"{crow.shape} {crow.dtype}, {col.shape} {col.dtype}, {values.shape}, {dense.shape}"
        )
    _check_indices("spmm", "column", col, dense.shape[0])
    _check_rows(crow, values.size)
    rows, width = crow.size - 1, dense.shape[1]
    sums = compute_dtype(values.dtype)
    out = empty((rows, width), sums, dense)
    if out.size:
        arrays = [contiguous(a).ravel() for a in (crow, col, values, dense)]
        _multiply(dialect, *_chosen(version, width, dense), arrays, out.ravel(), rows, width)
    return out if sums == values.dtype else cast(dialect, out, values.dtype)


def _multiply(
    dialect: Dialect, version: str, columns: int, arrays: list, out, rows: int, width: int
) -> None:
    """Launch a version on flat arrays."""
    crow, _, values, _ = arrays
    constants: tuple = (values.dtype, out.dtype, crow.dtype)
    found = dialect.sparse
    if version == "thread":
        grid = ceil_div(rows, THREADS)
        launch = _plans.launch("spmm", version, found.thread_kernel, constants, grid, THREADS, out)
        launch(*arrays, out, rows, width)
    elif version == "warp":
        grid, block = ceil_div(rows, WARPS), (32, WARPS)
        constants = (*constants, columns)
        launch = _plans.launch("spmm", version, found.warp_kernel, constants, grid, block, out)
        launch(*arrays, out, rows, width)
    else:
        parts, tiles = ceil_div(rows + values.size, ITEMS), ceil_div(width, columns)
        block = (columns, THREADS // columns)
        grid = tiles * ceil_div(parts, block[1])
        carry_row, carry = empty((parts,), crow.dtype, out), empty((parts * width,), out.dtype, out)
        merge = (*constants, ITEMS)
        launch = _plans.launch("spmm", version, found.merge_kernel, merge, grid, block, out)
        launch(*arrays, out, carry_row, carry, width, parts, tiles)
        grid, constants = ceil_div(parts * width, THREADS), constants[1:]
        launch = _plans.launch("spmm", version, found.carry_kernel, constants, grid, THREADS, out)
        launch(carry_row, carry, out, width, parts, rows)


def sddmm(
    dialect: Dialect,
    row: np.ndarray,
    col: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    version: str | None = None,
) -> np.ndarray:
    """The scalar products of rows of a (m, n) and b (k, n): out[e] = a[row[e]] . b[col[e]].

    row and col (nnz,), both int32 or both int64. Raises as `spmm`.
    """
    check_version("sddmm", version, SDDMM_VERSIONS)
    check_floating("sddmm", a, b)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or row.shape != col.shape:
        raise ValueError(
            "sddmm: expected row and col (nnz,), a (m, n) and b (k, n), got "
            f"{row.shape}, {col.shape}, {a.shape}, {b.shape}"
        )
    if row.dtype != col.dtype:
        raise TypeError(
            f"sddmm: expected row and col of one dtype, got {row.dtype} and {col.dtype}"
        )
    _check_indices("sddmm", "row", row, a.shape[0])
    _check_indices("sddmm", "column", col, b.shape[0])
    width = a.shape[1]
    out = namespace(a).zeros(row.shape, a.dtype)
    if row.size and width:
        version = version or ("warp" if on_gpu(a) or width >= 32 else "thread")
        grid: int = ceil_div(row.size, THREADS)
        block: Any = THREADS
        if version == "warp":
            grid, block = ceil_div(row.size, WARPS), (32, WARPS)
        constants = (version, a.dtype, row.dtype)
        factory = dialect.sparse.sddmm_kernel
        launch = _plans.launch("sddmm", version, factory, constants, grid, block, out)
        launch(*[contiguous(x).ravel() for x in (row, col, a, b)], out, width)
    return out


def _cost(crow, col, values, dense, **_):
    shape = (crow.size - 1, dense.shape[1])
    return [(shape, values.dtype)], 2 * values.size * dense.shape[1]


def _cost_of_sddmm(row, col, a, b, **_):
    return [(row.shape, a.dtype)], 2 * row.size * a.shape[1]


def pattern(rng: np.random.Generator, rows: int, columns: int, most: int) -> tuple:
    """Random (crow, col): rows with up to `most` elements, some without any, one full."""
    counts = rng.integers(0, most + 1, rows)
    counts[rows // 2] = columns
    col = [np.sort(rng.choice(columns, min(n, columns), replace=False)) for n in counts]
    crow = np.concatenate([[0], np.cumsum([c.size for c in col])])
    return crow, np.concatenate(col)


def _problem(version: str):
    crow, col = pattern(np.random.default_rng(1), 60, 50, 9)
    return (crow, col, floats(col.size), floats(50, 16)), {}


def _problem_of_sddmm(version: str):
    crow, col = pattern(np.random.default_rng(1), 60, 50, 5)
    row = np.repeat(np.arange(60), np.diff(crow))
    return (row, col, floats(60, 16), floats(50, 16)), {}


def _cases(rng, versions):
    crow, col = pattern(rng, 37, 211, 7)
    row = np.repeat(np.arange(37), np.diff(crow))
    values, narrow = normal(rng, col.size), (crow.astype(np.int32), col.astype(np.int32))
    for version in VERSIONS:
        for width in (1, 5, 33):
            yield "spmm", (crow, col, values, normal(rng, (211, width))), {"version": version}, 50
        half, dense = values.astype(np.float16), normal(rng, (211, 3)).astype(np.float16)
        yield "spmm", (*narrow, half, dense), {"version": version}, 50
    for version in SDDMM_VERSIONS:
        pair = normal(rng, (37, 35)), normal(rng, (211, 35))
        yield "sddmm", (row, col, *pair), {"version": version}, 50


def _compiled(versions):
    crow, col = np.arange(8), np.zeros(7, np.int64)
    for version in versions("spmm"):
        for width in (1, 40):
            yield "spmm", (crow, col, ones(7), ones(3, width)), {"version": version}
    for version in versions("sddmm"):
        yield "sddmm", (col, col, ones(7, 40), ones(3, 40)), {"version": version}


FAMILY = Family(
    "sparse",
    (
        Operation(spmm, _cost, _problem, VERSIONS),
        Operation(sddmm, _cost_of_sddmm, _problem_of_sddmm, SDDMM_VERSIONS),
    ),
    _cases,
    _compiled,
)
