"""Products of 8-bit integers, and the rounding of rows to them: checks and launches."""

from __future__ import annotations

import numpy as np

from kernels.families import Family, Operation, floats, normal, ones
from kernels.launchers.common import (
    MAX_GRID_YZ,
    Dialect,
    ceil_div,
    check_floating,
    check_version,
    contiguous,
    empty,
    namespace,
)
from kernels.launchers.plans import Plans

VERSIONS = {
    "bytes": "a thread per result, byte by byte",
    "dp4a": "a thread per result, four bytes at a time",
    "tiled": "words of a tile in shared memory",
}
TILE = 16
ROWS = 8  # of a block that rounds
MOST = (2**31 - 1) // 127**2  # elements of a row whose sum fits into 32 bits

_plans = Plans()


def quantize_rows(dialect: Dialect, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int8 q (m, k), float32 scale (m,)) with x (m, k) about q * scale: the largest element of a
    row, by its size, is at 127. TypeError unless x is floating, ValueError unless a matrix."""
    check_floating("quantize_rows", x)
    if x.ndim != 2:
        raise ValueError(f"quantize_rows: expected a matrix, got {x.ndim} dimensions")
    m, k = x.shape
    q, scale = empty((m, k), np.dtype(np.int8), x), empty((m,), np.dtype(np.float32), x)
    if m:
        grid, block = ceil_div(m, ROWS), (32, ROWS)
        factory = dialect.int8.quantize_kernel
        launch = _plans.launch("quantize_rows", "warp", factory, (x.dtype,), grid, block, q)
        launch(contiguous(x).ravel(), q.ravel(), scale, m, k)
    return q, scale


def _words(a):
    """Rows of bytes as rows of int32; zeros are added to a length that is no multiple of 4."""
    k = a.shape[1]
    if k % 4:
        padded = namespace(a).zeros((a.shape[0], ceil_div(k, 4) * 4), np.int8)
        padded[:, :k] = a
        a = padded
    return contiguous(a).view(np.int32)


def int8_matmul(
    dialect: Dialect,
    a: np.ndarray,
    b: np.ndarray,
    scale_a: np.ndarray,
    scale_b: np.ndarray,
    bias: np.ndarray | None = None,
    version: str | None = None,
) -> np.ndarray:
    """(a @ b.T) * scale_a[:, None] * scale_b + bias in float32, the product exact.

    a (m, k) and b (n, k) int8; scale_a (m,), scale_b (n,) and bias (n,) float32. version: of the
    ladder (default "tiled"). TypeError for other dtypes, ValueError for shapes that do not fit and
    for k above 133 000, where sums could overflow.
    """
    check_version("int8_matmul", version, VERSIONS)
    reals = [s for s in (scale_a, scale_b, bias) if s is not None]
    if a.dtype != np.int8 or b.dtype != np.int8 or any(s.dtype != np.float32 for s in reals):
        raise TypeError(
            "int8_matmul: expected int8 matrices, and float32 scales and bias, got "
            f"{a.dtype}, {b.dtype} and {', '.join(str(s.dtype) for s in reals)}"
        )
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or a.shape[1] > MOST:
        raise ValueError(
            f"int8_matmul: expected matrices (m, k) and (n, k), k at most {MOST}, got "
            f"{a.shape} and {b.shape}"
        )
    (m, k), n = a.shape, b.shape[0]
    if scale_a.shape != (m,) or any(s.shape != (n,) for s in reals[1:]):
        raise ValueError(
            f"int8_matmul: expected scales ({m},) and ({n},) and a bias ({n},), got "
            f"{', '.join(str(s.shape) for s in reals)}"
        )
    out = empty((m, n), np.dtype(np.float32), a)
    if not out.size:
        return out
    version = version or "tiled"
    if version == "bytes":
        a, b = contiguous(a), contiguous(b)
    else:
        a, b = _words(a), _words(b)
        k = a.shape[1]
    other = scale_b if bias is None else bias  # stands for a bias that is not there
    scale_a, scale_b, other = (contiguous(s) for s in (scale_a, scale_b, other))
    factory, constants = dialect.int8.matmul_kernel, (version, bias is not None)
    for first in range(0, m, MAX_GRID_YZ * TILE):  # as many rows as a grid is high
        rows = slice(first, min(first + MAX_GRID_YZ * TILE, m))
        count = rows.stop - first
        grid = (ceil_div(n, TILE), ceil_div(count, TILE))
        launch = _plans.launch("int8_matmul", version, factory, constants, grid, (TILE, TILE), out)
        part = a[rows].ravel(), b.ravel(), scale_a[rows], scale_b, other, out[rows].ravel()
        launch(*part, count, n, k)
    return out


def _cost(a, b, *_, **__):
    return [((a.shape[0], b.shape[0]), np.dtype(np.float32))], 2 * a.size * b.shape[0]


def _cost_of_quantize(x):
    shapes = [(x.shape, np.dtype(np.int8)), (x.shape[:1], np.dtype(np.float32))]
    return shapes, 4 * x.size


def _bytes(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-127, 128, shape).astype(np.int8)


def _problem(version: str):
    rng = np.random.default_rng(1)
    a, b = _bytes(rng, 40, 64), _bytes(rng, 36, 64)
    return (a, b, abs(floats(40)), abs(floats(36)), floats(36)), {}


def _cases(rng, versions):
    for version in VERSIONS:
        for m, n, k in ((33, 17, 70), (1, 40, 5)):
            scales = abs(normal(rng, m)), abs(normal(rng, n))
            args = (_bytes(rng, m, k), _bytes(rng, n, k), *scales)
            yield "int8_matmul", args, {"version": version}, 1e6
        yield "int8_matmul", (*args, normal(rng, n)), {"version": version}, 1e6
    yield "quantize_rows", (normal(rng, (9, 70)),), {}, 1


def _compiled(versions):
    rng = np.random.default_rng(1)
    args = (_bytes(rng, 3, 8), _bytes(rng, 5, 8), ones(3), ones(5))
    for version in versions("int8_matmul"):
        yield "int8_matmul", args, {"version": version}
        yield "int8_matmul", (*args, ones(5)), {"version": version}
    yield "quantize_rows", (ones(3, 40),), {}


FAMILY = Family(
    "int8",
    (
        Operation(int8_matmul, _cost, _problem, VERSIONS),
        Operation(
            quantize_rows,
            _cost_of_quantize,
            lambda version: ((floats(40, 70),), {}),
            by_shape={"warp": "a warp per row: the largest element, then rounding"},
        ),
    ),
    _cases,
    _compiled,
)
