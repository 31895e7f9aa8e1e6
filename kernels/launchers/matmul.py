"""Matrix products: what the operands must be, how they lie, and the launches over a batch."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from kernels.launchers.common import (
    Dialect,
    check_version,
    compute_capability,
    compute_dtype,
    contiguous,
    empty,
    launcher,
    namespace,
    on_gpu,
)
from kernels.launchers.plans import Plans, place

MAX_GRID_Z = 65535


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


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was told."""
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
        x = x.reshape(-1, *x.shape[-2:])
    else:
        x = namespace(x).broadcast_to(x, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:])
    return contiguous(x)


def _is_transposed(x) -> bool:
    """Whether x is read best along its last but one axis."""
    return x.strides[-1] != x.itemsize and x.strides[-2] == x.itemsize and x.shape[-1] > 1


def _check(dialect: Dialect, a, b, bias, version: str | None) -> None:
    check_version("matmul", version, dialect.matmul.VERSIONS)
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
    if version == "matvec" and b.shape[-1] != 1:
        raise ValueError(f"matmul: version 'matvec' needs n == 1, got n == {b.shape[-1]}")


def _plan(dialect: Dialect, a, b, bias, version: str | None):
    """The function (a, b, bias) -> c for operands like these."""
    _check(dialect, a, b, bias, version)
    m, n = a.shape[-2], b.shape[-1]
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(f"matmul: batches do not broadcast: {a.shape} @ {b.shape}") from None
    trans_a, trans_b = _is_transposed(a), _is_transposed(b)
    shape, rows = (*batch, m, n), a.shape
    if math.prod(b.shape[:-2]) == 1 and not trans_a:
        batch, m = (), math.prod(a.shape[:-1])  # all of the batch shares b: one product
        rows = (m, a.shape[-1])
    z, dtype = math.prod(batch), a.dtype
    cc, tf32 = compute_capability(a), _precision != "highest"
    product = Product(dtype, m, n, a.shape[-1], trans_a, trans_b, cc, tf32)
    version = version or dialect.matmul.pick(product)
    dialect.matmul.check(version, product)
    flags = (trans_a, trans_b, bias is not None)
    no_bias = empty(0, dtype, a)

    def prepare(chunk: int):
        tiling = dialect.matmul.configure(
            version, dialect.matmul.accumulator(dtype), flags, chunk, m, n, on_gpu(a)
        )
        return launcher("matmul", version, *tiling)

    launch = prepare(min(z, MAX_GRID_Z))
    last = prepare(z % MAX_GRID_Z or MAX_GRID_Z) if z > MAX_GRID_Z else launch
    xp = namespace(a)

    def run(a, b, bias):
        c = xp.empty(shape, dtype)
        if c.size == 0:
            return c
        a3 = _stack(a.reshape(rows), batch, trans_a)
        b3 = _stack(b, batch, trans_b)
        c3 = c.reshape(z, m, n)
        if bias is None:
            bias = no_bias
        for z0 in range(0, z, MAX_GRID_Z):
            part = slice(z0, z0 + MAX_GRID_Z)
            step = launch if z0 + MAX_GRID_Z < z else last
            step(a3 if len(a3) == 1 else a3[part], b3 if len(b3) == 1 else b3[part], bias, c3[part])
        return c

    return run


def matmul(dialect: Dialect, a, b, bias=None, version: str | None = None):
    """a (..., m, k) @ b (..., k, n) + bias (n,) -> (..., m, n); batch dimensions broadcast.

    The operands share one real dtype, which the result has; transposed views are read in place.
    Raises ValueError for shapes that do not fit, TypeError for dtypes that differ or are not
    numbers. The ladder follows S. Boehm, "How to optimize a CUDA matmul kernel" (2022).
    """
    try:
        where = type(a) is ndarray or place(a)
        key = (dialect, where, a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype, version)
        if bias is not None:
            key += (bias.shape, bias.dtype)
    except AttributeError:
        given = " and ".join(type(x).__name__ for x in (a, b, bias) if x is not None)
        raise TypeError(
            f"matmul: expected arrays of NumPy or CuPy, got {given}; pass numpy.asarray(x)"
        ) from None
    plan = _plans.get(key) or _plans.keep(key, _plan(dialect, a, b, bias, version))
    return plan(a, b, bias)
