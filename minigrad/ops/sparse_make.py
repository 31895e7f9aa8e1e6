"""Making sparse tensors: from positions, from compressed rows, and from dense tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad import dtypes, layouts
from minigrad.backends import array_module
from minigrad.ops.sparse import Pattern
from minigrad.ops.sparse_tensor import CooTensor, CsrTensor, SparseTensor
from minigrad.tensor import Tensor, export, functions, wrap


def _index_array(name: str, value: Any, ndim: int, where: Any) -> Any:
    found = value if isinstance(value, Tensor) else functions.tensor(value, dtype=dtypes.int64)
    if found.is_floating_point() or found.ndim != ndim:
        raise RuntimeError(
            f"{name} must be an int64 tensor of {ndim} dimensions, got {found.dtype} of shape "
            f"{list(found.shape)}"
        )
    return found.detach().to(where).to(dtypes.int64).contiguous()._array


def _elements(values: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    found = values if isinstance(values, Tensor) else functions.tensor(values)
    found = found.to(device=device, dtype=dtype)
    return found.detach().requires_grad_() if requires_grad else found


def _check_bounds(name: str, places: Any, sizes: tuple) -> None:
    for d, (index, n) in enumerate(zip(places, sizes, strict=True)):
        if index.size and (int(index.min()) < 0 or int(index.max()) >= n):
            bad = int(index.min()) if int(index.min()) < 0 else int(index.max())
            raise RuntimeError(
                f"{name}: size is inconsistent with indices: for dim {d}, size is {n} but found "
                f"index {bad}"
            )


def make_coo(
    indices: Any, values: Any, size: Any, dtype: Any, device: Any, grad: bool, coalesced: bool
) -> CooTensor:
    """`minigrad.sparse_coo_tensor`."""
    elements = _elements(values, dtype, device, grad)
    places = _index_array("indices", indices, 2, elements.device)
    if elements.ndim == 0 or places.shape[1] != elements.shape[0]:
        raise RuntimeError(
            f"number of elements in indices ({places.shape[1]}) must be that of values "
            f"({list(elements.shape)})"
        )
    if size is None:
        found = [int(row.max()) + 1 if row.size else 0 for row in places]
        size = (*found, *elements.shape[1:])
    size = tuple(int(n) for n in size)
    if len(size) != places.shape[0] + elements.ndim - 1:
        raise RuntimeError(
            f"number of dimensions must be sparse_dim ({places.shape[0]}) + dense_dim "
            f"({elements.ndim - 1}), but got {len(size)}"
        )
    if size[places.shape[0] :] != tuple(elements.shape[1:]):
        raise RuntimeError(
            f"values has incorrect size, expected {[elements.shape[0], *size[places.shape[0] :]]}, "
            f"got {list(elements.shape)}"
        )
    _check_bounds("sparse_coo_tensor", places, size[: places.shape[0]])
    return CooTensor(places, elements, size, coalesced)


def make_csr(
    crow: Any, col: Any, values: Any, size: Any, dtype: Any, device: Any, grad: bool
) -> CsrTensor:
    """`minigrad.sparse_csr_tensor`."""
    elements = _elements(values, dtype, device, grad)
    crow = _index_array("crow_indices", crow, 1, elements.device)
    col = _index_array("col_indices", col, 1, elements.device)
    if elements.ndim != 1 or col.shape != tuple(elements.shape):
        raise RuntimeError(
            f"sparse_csr_tensor: expected as many values as col_indices, got "
            f"{list(elements.shape)} and {list(col.shape)} (batches have no place in minigrad)"
        )
    columns = int(col.max()) + 1 if col.size else 0
    shape = (crow.size - 1, columns) if size is None else tuple(int(n) for n in size)
    ends_fit = crow.size and int(crow[0]) == 0 and int(crow[-1]) == col.size
    if len(shape) != 2 or crow.size != shape[0] + 1 or not ends_fit:
        raise RuntimeError(
            f"sparse_csr_tensor: expected {shape[0] + 1} crow_indices from 0 to {col.size}, got "
            f"{crow.size} of them"
        )
    if bool((crow[1:] < crow[:-1]).any()):
        raise RuntimeError("sparse_csr_tensor: crow_indices must never fall")
    _check_bounds("sparse_csr_tensor", [col], shape[1:])
    return CsrTensor(Pattern(crow, col, shape), elements)


def rebuilt(layout: Any, parts: Any, requires_grad: bool = False) -> SparseTensor:
    """A sparse tensor of its `_parts`, which may come from a file."""
    if layout is layouts.sparse_csr:
        crow, col, values, size = parts
        return make_csr(crow, col, values, size, None, None, requires_grad)
    indices, values, size, *coalesced = parts
    found = make_coo(indices, values, size, None, None, requires_grad, False)
    return found.coalesce() if coalesced == [True] else found


def _reduced(self: SparseTensor, protocol: Any) -> tuple:
    """How a sparse tensor is pickled."""
    return rebuilt, (self.layout, self._parts(), self.requires_grad)


SparseTensor.__reduce_ex__ = _reduced  # type: ignore[assignment]


def from_dense(dense: Tensor, sparse_dim: Any, layout: Any) -> SparseTensor:
    """`Tensor.to_sparse`."""
    if isinstance(sparse_dim, layouts.layout):
        sparse_dim, layout = None, sparse_dim
    if layout is layouts.sparse_csr and dense.ndim != 2:
        raise RuntimeError(
            f"to_sparse_csr: expected a matrix, got {dense.ndim} dimensions (batches have no place"
            " in minigrad)"
        )
    count = dense.ndim if sparse_dim is None else int(sparse_dim)
    if not dense.ndim or not 0 < count <= dense.ndim:
        raise RuntimeError(
            f"to_sparse: expected sparse_dim from 1 to {dense.ndim}, got {sparse_dim} for a tensor "
            f"of {dense.ndim} dimensions"
        )
    array = dense._array
    xp = array_module(array)
    used = array != 0
    if count < dense.ndim:
        used = used.any(axis=tuple(range(count, dense.ndim)))
    places = xp.stack(xp.nonzero(used)).astype(np.int64)
    elements = dense[tuple(wrap(row) for row in places)]
    found = CooTensor(places, elements, tuple(dense.shape), True)
    return found.to_sparse_csr() if layout is layouts.sparse_csr else found


@export(method=False)
def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Any:
    """A sparse tensor from the positions of its elements: indices (sparse dimensions, nnz), values
    (nnz, ...). Equal positions add up. size: by default just large enough.

    Gradients reach `values`; with `requires_grad` the result is a leaf of its own instead.
    With a size alone the tensor has no elements.
    """
    if values is None:
        size = tuple(indices if size is None else size)
        indices, values = functions.zeros(len(size), 0).long(), functions.zeros(0)
        dtype = dtype or dtypes.get_default_dtype()
    return make_coo(indices, values, size, dtype, device, requires_grad, bool(is_coalesced))


@export(method=False)
def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Any:
    """A sparse matrix in compressed rows: row i has the elements crow_indices[i] up to
    crow_indices[i + 1] of `col_indices` and `values`. size: by default just large enough."""
    return make_csr(crow_indices, col_indices, values, size, dtype, device, requires_grad)


@export("to_sparse_coo", function=False)
def to_sparse(self: Tensor, sparse_dim: Any = None, *, layout: Any = None) -> Any:
    """The elements that are not zero, as a COO tensor (or with `layout` minigrad.sparse_csr).

    sparse_dim: how many of the first dimensions are sparse (default: all).
    """
    return from_dense(self, sparse_dim, layout)


@export(function=False)
def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Any:
    """The elements of a matrix that are not zero, in compressed rows."""
    return from_dense(self, None, layouts.sparse_csr)


@export(function=False)
def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """This tensor, which is dense, in another dtype if one is given."""
    return self if dtype is None else self.to(dtype)


@export(function=False)
def sparse_mask(self: Tensor, mask: Any) -> Any:
    """The elements of this tensor where a sparse tensor has some, as a tensor of its layout."""
    found = mask.coalesce() if mask.layout.name == "sparse_coo" else mask
    places = tuple(wrap(i) for i in found._coordinates())
    return found._with(self[places])


@export("dsmm", method=False)
def spmm(input: Any, mat2: Any) -> Tensor:
    """`mm`, for a sparse matrix times a dense one."""
    return input.mm(mat2)


def _of_sparse_tensors(name: str, layout: str) -> None:
    def method(self: Tensor) -> Any:
        raise RuntimeError(
            f"{name} expected sparse {layout} tensor layout but got Strided; x.to_sparse() makes a"
            " sparse tensor"
        )

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`{name}` of a sparse tensor; RuntimeError for a dense one."
    export(function=False)(method)


for _name in ("indices", "values", "coalesce", "is_coalesced"):
    _of_sparse_tensors(_name, "coordinate")
for _name in ("crow_indices", "col_indices"):
    _of_sparse_tensors(_name, "row compressed")
