"""Products with a sparse matrix in compressed rows (CSR), in NumPy."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import check_index, compute_dtype, traced


@traced
def spmm(crow: np.ndarray, col: np.ndarray, values: np.ndarray, dense: np.ndarray) -> np.ndarray:
    """The product (rows, n) of a CSR matrix and dense (columns, n)."""
    check_index("spmm", col, dense.shape[0])
    rows = np.repeat(np.arange(crow.size - 1), np.diff(crow))
    out = np.zeros((crow.size - 1, dense.shape[1]), compute_dtype(values.dtype))
    products = values[:, None].astype(out.dtype) * dense[col].astype(out.dtype)
    np.add.at(out, rows, products)
    return out.astype(values.dtype, copy=False)


@traced
def sddmm(row: np.ndarray, col: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The scalar products of rows of a and of b: out[e] = a[row[e]] . b[col[e]]."""
    check_index("sddmm", row, a.shape[0])
    check_index("sddmm", col, b.shape[0])
    wide = compute_dtype(a.dtype)
    products = a[row].astype(wide) * b[col].astype(wide)
    return products.sum(-1, dtype=wide).astype(a.dtype, copy=False)
