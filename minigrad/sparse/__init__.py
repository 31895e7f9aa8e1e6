"""Sparse tensors and their operations, with torch.sparse's names.

`minigrad.sparse_coo_tensor`, `minigrad.sparse_csr_tensor` and `x.to_sparse()` make them. Products
with dense matrices run on kernels of their own (the family `sparse`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import minigrad
from minigrad import dtypes
from minigrad._names import namespace
from minigrad.creation import place
from minigrad.ops.sparse import SampledMM
from minigrad.ops.sparse_algebra import spdiags
from minigrad.ops.sparse_make import make_coo
from minigrad.ops.sparse_tensor import CooTensor, CsrTensor, SparseTensor
from minigrad.ops.sparse_tensor import total as sum
from minigrad.tensor import Tensor, normalize_dim, wrap

__all__ = ["addmm", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "sum"]


def mm(mat1: Any, mat2: Any) -> Tensor:
    """A sparse matrix (m, k) times a dense one (k, n), or the reverse: dense (m, n)."""
    if not isinstance(mat1, SparseTensor) and not isinstance(mat2, SparseTensor):
        raise RuntimeError("sparse.mm: expected a sparse matrix; for dense ones use minigrad.mm")
    return mat1 @ mat2


def addmm(mat: Tensor, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * mat + alpha * (mat1 @ mat2) for a sparse mat1."""
    product = mm(mat1, mat2)
    return (mat if beta == 1 else mat * beta) + (product if alpha == 1 else product * alpha)


def sampled_addmm(
    input: Any, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> SparseTensor:
    """beta * input + alpha * (mat1 @ mat2) at the positions of a sparse matrix in compressed
    rows, which are all that is computed of the product (m, k) times (k, n)."""
    if not isinstance(input, CsrTensor):
        raise RuntimeError("sampled_addmm: expected a matrix in compressed rows (to_sparse_csr())")
    if (mat1.shape[0], mat2.shape[1]) != tuple(input.shape) or mat1.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"sampled_addmm: expected matrices whose product has shape {list(input.shape)}, got "
            f"{list(mat1.shape)} and {list(mat2.shape)}"
        )
    found = SampledMM.apply(mat1, mat2.t().contiguous(), pattern=input._pattern())
    return input._with(input._values() * beta + found * alpha)


def softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Softmax along a sparse dimension, over the stored elements: those that are not stored count
    as minus infinity."""
    return _normalised(input, dim, dtype, lambda shifted, total: shifted.exp() / total)


def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """The logarithm of `softmax`."""
    return _normalised(input, dim, dtype, lambda shifted, total: shifted - total.log())


def _normalised(input: Any, dim: int, dtype: Any, finish: Callable) -> Any:
    """finish(values - maximum of their line, sum of exp of the line) at the input's positions."""
    if not isinstance(input, SparseTensor):
        raise RuntimeError("sparse.softmax: expected a sparse tensor")
    found = input.coalesce() if isinstance(input, CooTensor) else input
    dim = normalize_dim(dim, input.ndim)
    if dim >= found.sparse_dim() or found.dense_dim():
        raise NotImplementedError(
            f"sparse.softmax: not implemented along dimension {dim} of a tensor with "
            f"{found.dense_dim()} dense dimensions; use x.to_dense()"
        )
    values = found._values() if dtype is None else found._values().to(dtype)
    if not found._nnz():
        return found._with(values)
    line, count = 0, 1
    for d, places in enumerate(found._coordinates()):
        if d != dim:
            line, count = line * input.shape[d] + places, count * input.shape[d]
    index = wrap(places * 0 + line).to(dtypes.int64)
    empty = minigrad.full((count,), -minigrad.inf, dtype=values.dtype, device=values.device)
    top = empty.scatter_reduce(0, index, values.detach(), "amax")
    shifted = values - top[index]
    total = values.new_zeros(count).scatter_add(0, index, shifted.exp())
    return found._with(finish(shifted, total[index]))


class _Legacy(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, CooTensor) and instance.dtype is cls.dtype  # type: ignore


def _legacy(dtype: dtypes.dtype) -> type:
    """`sparse.FloatTensor(indices, values, size)` and so on."""

    def make(cls: type, indices: Any, values: Any, size: Any = None) -> CooTensor:
        return make_coo(indices, values, size, dtype, place(None), False, False)

    text = f"`sparse_coo_tensor` with dtype {dtype.name}."
    return _Legacy(dtype.legacy_name, (), {"__new__": make, "dtype": dtype, "__doc__": text})


FloatTensor = _legacy(dtypes.float32)
DoubleTensor = _legacy(dtypes.float64)
LongTensor = _legacy(dtypes.int64)
IntTensor = _legacy(dtypes.int32)

__getattr__, __dir__ = namespace(__name__)
