# mypy: disable-error-code="attr-defined"
# What is set here are methods of SparseTensor, which a type checker cannot see.
"""Operations on whole sparse tensors: products of two, joins, parts, norms.

Each computes the positions of the result, and its elements from the elements of its arguments by
operations that are differentiated: gradients reach them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from minigrad import layouts
from minigrad.backends import array_module
from minigrad.ops.sparse_make import make_coo
from minigrad.ops.sparse_tensor import CooTensor, CsrTensor, SparseTensor, _check_matrix, _refused
from minigrad.tensor import Tensor, functions, normalize_dim, wrap

F = TypeVar("F", bound=Callable)


def _sparse_form(*names: str) -> Callable[[F], F]:
    """Decorator: what functions and methods of these names do where an argument is sparse."""

    def register(function: F) -> F:
        for name in names:
            layouts.SPARSE_FORMS[name] = function
            setattr(SparseTensor, name, function)
        return function

    return register


def _like(found: CooTensor, *given: Any) -> Any:
    """A result in the layout of the arguments: compressed rows if all sparse ones have them."""
    sparse = [t for t in given if isinstance(t, SparseTensor)]
    return found.to_sparse_csr() if all(isinstance(t, CsrTensor) for t in sparse) else found


def _coo(name: str, tensor: Any) -> CooTensor:
    if not isinstance(tensor, SparseTensor):
        raise NotImplementedError(
            f"{name}: expected sparse tensors, got a dense one; use x.to_dense()"
        )
    return tensor.to_sparse().coalesce()


def _keys(tensor: CooTensor) -> Any:
    """The position of each element as one number."""
    xp, flat = array_module(tensor._places), 0
    for places, n in zip(tensor._places, tensor.shape, strict=False):
        flat = flat * n + places
    return xp.asarray(flat, np.int64)


def _ranges(starts: Any, counts: Any) -> tuple[Any, Any]:
    """(owner, place): the places starts[i] up to starts[i] + counts[i] of each i, in a row."""
    xp = array_module(starts)
    last = xp.cumsum(counts)
    owner = xp.searchsorted(last, xp.arange(int(last[-1]) if last.size else 0), side="right")
    return owner, xp.arange(owner.size) - (last - counts)[owner] + starts[owner]


def _product(a: SparseTensor, b: SparseTensor) -> Any:
    """The product of two sparse matrices, which is sparse."""
    for matrix in (a, b):
        _check_matrix("mm", matrix)
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and "
            f"{b.shape[0]}x{b.shape[1]})"
        )
    left, right = _coo("mm", a), _coo("mm", b)
    crow, (row, inner) = right._pattern().crow, left._places
    owner, place = _ranges(crow[inner], crow[inner + 1] - crow[inner])
    places = array_module(row).stack([row[owner], right._places[1][place]])
    elements = left._elements.index_select(0, wrap(owner))
    elements = elements * right._elements.index_select(0, wrap(place))
    found = CooTensor(places, elements, (a.shape[0], b.shape[1]), False).coalesce()
    return _like(found, a, b)


def _where_both(a: SparseTensor, name: str, b: SparseTensor) -> Any:
    """`name` ("mul") of the elements that both tensors have."""
    if a.shape != b.shape or a.dense_dim() != b.dense_dim():
        raise RuntimeError(
            f"{name}: expected sparse tensors of one shape, got {list(a.shape)} and {list(b.shape)}"
        )
    left, right = _coo(name, a), _coo(name, b)
    mine, theirs = _keys(left), _keys(right)
    xp = array_module(mine)
    place = xp.searchsorted(theirs, mine)
    there = xp.nonzero(place < theirs.size)[0]
    there = there[theirs[place[there]] == mine[there]]
    elements = getattr(functions, name)(
        left._elements.index_select(0, wrap(there)),
        right._elements.index_select(0, wrap(place[there])),
    )
    return _like(CooTensor(left._places[:, there], elements, tuple(a.shape), True), a, b)


@_sparse_form("unsqueeze")
def unsqueeze(input: Any, dim: int) -> Any:
    """With a dimension of length 1 more, a sparse one if it is before a sparse one or follows the
    last."""
    found = input.to_sparse()
    dim = normalize_dim(dim, input.ndim + 1)
    shape, count = [*input.shape], found.sparse_dim()
    shape.insert(dim, 1)
    if dim > count:
        elements = found._elements.unsqueeze(dim - count + 1)
        return CooTensor(found._places, elements, tuple(shape), found._coalesced)
    places = array_module(found._places).insert(found._places, dim, 0, 0)
    return CooTensor(places, found._elements, tuple(shape), found._coalesced)


@_sparse_form("cat", "concat", "concatenate")
def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Sparse tensors one after another along a sparse dimension."""
    parts = [t.to_sparse() if isinstance(t, SparseTensor) else _coo("cat", t) for t in tensors]
    first, dim = parts[0], normalize_dim(dim, parts[0].ndim)
    others = [(*t.shape[:dim], *t.shape[dim + 1 :]) for t in parts]
    if others.count(others[0]) < len(others) or len({t.sparse_dim() for t in parts}) > 1:
        raise RuntimeError(
            "cat: expected sparse tensors whose sizes match except in dimension "
            f"{dim}, got {[list(t.shape) for t in parts]}"
        )
    if dim >= first.sparse_dim():
        _refused("cat", first, "a dense dimension")
    places, start = [], 0
    for t in parts:
        own = t._places.copy()
        own[dim] += start
        start += t.shape[dim]
        places.append(own)
    joined = array_module(places[0]).concatenate(places, 1)
    elements = functions.cat([t._elements for t in parts])
    shape = (*first.shape[:dim], start, *first.shape[dim + 1 :])
    return _like(CooTensor(joined, elements, shape, False), *tensors)


@_sparse_form("stack")
def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Sparse tensors of one shape along a new sparse dimension."""
    return cat([unsqueeze(t, dim) for t in tensors], dim)


@_sparse_form("index_select")
def index_select(input: Any, dim: int, index: Tensor) -> Any:
    """The parts along a dimension that `index` names, in its order."""
    found, dim = input.to_sparse(), normalize_dim(dim, input.ndim)
    shape, count = [*input.shape], found.sparse_dim()
    wanted = index._array.reshape(-1)
    if wanted.size and not -1 < int(wanted.min()) <= int(wanted.max()) < shape[dim]:
        raise IndexError(f"index_select(): index out of range for dimension of size {shape[dim]}")
    shape[dim] = int(wanted.size)
    if dim >= count:
        elements = found._elements.index_select(dim - count + 1, index)
        return CooTensor(found._places, elements, tuple(shape), found._coalesced)
    xp, own = array_module(wanted), found._places[dim]
    order = xp.argsort(own, kind="stable")
    starts = xp.searchsorted(own[order], wanted)
    counts = xp.searchsorted(own[order], wanted, side="right") - starts
    owner, place = _ranges(starts, counts)
    places = found._places[:, order[place]]
    places[dim] = owner
    elements = found._elements.index_select(0, wrap(order[place]))
    return _like(CooTensor(places, elements, tuple(shape), False), input)


@_sparse_form("select")
def select(input: Any, dim: int, index: int) -> Any:
    """One part along a dimension: sparse while a sparse dimension is left, else dense."""
    found, dim = input.to_sparse(), normalize_dim(dim, input.ndim)
    n, count = input.shape[dim], found.sparse_dim()
    if not -n <= index < n:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at "
            f"dimension {dim}"
        )
    shape = (*input.shape[:dim], *input.shape[dim + 1 :])
    if dim >= count:
        elements = found._elements.select(dim - count + 1, index % n)
        return CooTensor(found._places, elements, shape, found._coalesced)
    xp = array_module(found._places)
    here = xp.nonzero(found._places[dim] == index % n)[0]
    elements = found._elements.index_select(0, wrap(here))
    if count == 1:
        return elements.sum(0)
    return CooTensor(xp.delete(found._places[:, here], dim, 0), elements, shape, False)


def _getitem(self: SparseTensor, key: Any) -> Any:
    """Parts by numbers and slices."""
    result: Any = self
    dim = 0
    for part in key if isinstance(key, tuple) else (key,):
        if isinstance(part, slice):
            chosen = range(*part.indices(result.shape[dim]))
            result = index_select(result, dim, functions.tensor(list(chosen)).long())
            dim += 1
        elif type(part) is bool or not isinstance(part, int | np.integer):
            _refused("getitem", self, f"an index of type {type(part).__name__}")
        elif isinstance(result, SparseTensor):
            result = select(result, dim, int(part))
        else:
            result = result.select(dim, int(part))
    return result


SparseTensor.__getitem__ = _getitem  # type: ignore[assignment, method-assign]
SparseTensor._times_sparse, SparseTensor._where_both = _product, _where_both


@_sparse_form("norm")
def norm(input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False) -> Tensor:
    """The norm of all elements."""
    if dim is not None or keepdim:
        _refused("norm", input, "dimensions")
    return _coo("norm", input)._elements.norm(2 if p == "fro" else p)


@_sparse_form("pow", "__pow__")
def power(input: Any, exponent: Any) -> Any:
    """The power of each stored element, for a positive exponent, which keeps the zeros."""
    if isinstance(exponent, Tensor) or not exponent > 0:
        _refused("pow", input, "an exponent that is not a positive number")
    return _like(_coo("pow", input)._with(_coo("pow", input)._elements.pow(exponent)), input)


@_sparse_form("zeros_like", "empty_like")
def zeros_like(input: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    """A sparse tensor of this shape without elements."""
    elements = input._values()[:0].detach().to(dtype=dtype or input.dtype)
    places = input.to_sparse()._places[:, :0]
    return _like(CooTensor(places, elements, tuple(input.shape), True), input)


@_sparse_form("bmm")
def bmm(input: Any, mat2: Any) -> Tensor:
    """A batch of sparse matrices (b, m, k), times a dense batch (b, k, n): one product with the
    matrix that has those of the batch on its diagonal."""
    (b, m, k), (batch, inner, n) = input.shape, mat2.shape
    if (b, k) != (batch, inner) or isinstance(mat2, SparseTensor):
        raise RuntimeError(
            f"bmm: expected a sparse batch (b, m, k) and a dense one (b, k, n), got "
            f"{list(input.shape)} and {list(mat2.shape)}"
        )
    found = _coo("bmm", input)
    which, row, column = found._places
    places = array_module(which).stack([which * m + row, which * k + column])
    whole = CooTensor(places, found._elements, (b * m, b * k), True)
    return whole.mm(mat2.reshape(b * k, n)).reshape(b, m, n)


@_sparse_form("addmm")
def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta * input + alpha * (mat1 @ mat2) for a sparse mat1."""
    total = mat1 @ mat2
    total = total if alpha == 1 else total * alpha
    return total + (input if beta == 1 else input * beta)


@_sparse_form("linear")
def linear(input: Any, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.t() + bias for a sparse input."""
    product = input @ weight.t()
    return product if bias is None else product + bias


def _on_elements(name: str) -> None:
    def change(self: SparseTensor, *number: Any) -> SparseTensor:
        if any(isinstance(n, Tensor) and n.ndim for n in number):
            _refused(name, self, "a tensor")
        getattr(self._elements, name)(*number)
        return self

    change.__name__, change.__doc__ = name, "In place, with a number."
    _sparse_form(name)(change)


for _name in ("mul_", "div_", "zero_"):
    _on_elements(_name)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: tuple, layout: Any = None) -> Any:
    """The sparse matrix with the rows of `diagonals` on the diagonals that `offsets` number: column
    j has the elements j of the rows."""
    rows, columns = (int(n) for n in shape)
    values = diagonals.reshape(1, -1) if diagonals.ndim < 2 else diagonals
    places, chosen = [], []
    for which, offset in enumerate(offsets.reshape(-1).tolist()):
        j = np.arange(max(offset, 0), min(columns, rows + offset, values.shape[1]))
        places.append(np.stack([j - offset, j]))
        chosen.append(np.stack([np.full(j.size, which), j]))
    picked = np.concatenate(chosen, 1)
    elements = values[tuple(wrap(array_module(values._array).asarray(i)) for i in picked)]
    joined = wrap(np.concatenate(places, 1))
    found = make_coo(joined, elements, (rows, columns), None, None, False, False).coalesce()
    return found.to_sparse_csr() if layout is layouts.sparse_csr else found
