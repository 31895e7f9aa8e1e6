# mypy: disable-error-code="override, assignment, misc"
# A sparse tensor is a Tensor whose methods take and return less than those of dense ones.
"""Sparse tensors: coordinates (COO) and compressed rows (CSR).

A sparse tensor has the positions of its elements, and their values in a dense tensor. That one is
part of the graph: what is computed from a sparse tensor depends on its values, and gradients reach
them. An operation that is not here raises by name: it would need the dense tensor.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from copy import copy, deepcopy
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from minigrad import dtypes, layouts
from minigrad.autograd.mode import mode
from minigrad.backends import array_module, current
from minigrad.layouts import NoDenseArray
from minigrad.ops.sparse import Pattern, SparseMM, ends, transposed_mm
from minigrad.printing import unsaid, values_text, with_notes
from minigrad.tensor import Size, Tensor, functions, normalize_dim, wrap


def _operation() -> str:
    """The name of minigrad's function that the program has called."""
    name = "this operation"
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if module.split(".")[0] != "minigrad":
            break
        called = frame.f_locals.get("fn" if function == "checked" else "name")
        if function in ("checked", "function", "method"):
            name = getattr(called, "__name__", called) or name
        elif function == "__call__":  # of a line of the pointwise table
            name = getattr(frame.f_locals.get("self"), "name", name)
        elif function != "apply" and not _is_private(function):
            name = function
        frame = frame.f_back
    return name.strip("_") if name.startswith("__") else str(name)


def _is_private(function: str) -> bool:
    return not function.isidentifier() or (function[0] == "_" and function[:2] != "__")


class SparseTensor(Tensor):
    """What both layouts share: `_shape`, the dense tensor of values `_elements`, and arithmetic
    that keeps the positions."""

    is_sparse = True
    is_meta = False

    def __new__(cls, *_: Any) -> Any:
        return object.__new__(cls)  # without the elements that Tensor's constructor makes

    def __init__(self, shape: tuple[int, ...], elements: Tensor) -> None:
        self._shape, self._elements = Size(shape), elements
        self._counter = elements._counter

    # What subclasses define.

    def _coordinates(self) -> tuple:
        """Per sparse dimension, an array with the position of each element."""
        raise NotImplementedError

    def _with(self, elements: Tensor) -> Any:
        """A tensor with these positions and other elements."""
        raise NotImplementedError

    def _pattern(self) -> Pattern:
        """The positions of a matrix in compressed rows, in the order of the elements."""
        raise NotImplementedError

    def _parts(self) -> tuple:
        """What torch saves of such a tensor."""
        raise NotImplementedError

    # What minigrad.ops.sparse_algebra defines.

    _where_both: Callable
    _times_sparse: Callable

    def __deepcopy__(self, memo: dict) -> Any:
        return self._with(deepcopy(self._elements, memo))

    def __copy__(self) -> Any:
        return self._with(copy(self._elements))

    @property
    def _array(self) -> Any:
        name = _operation()
        raise NoDenseArray(
            f"{name}: not implemented for layout {self.layout}; use x.to_dense(), or an operation"
            " of minigrad.sparse"
        )

    # --- properties ---

    @property
    def shape(self) -> Size:
        return self._shape

    @property
    def dtype(self) -> dtypes.dtype:
        return self._elements.dtype

    @property
    def device(self) -> Any:
        return self._elements.device

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def is_cuda(self) -> bool:
        return self._elements.is_cuda

    @property
    def itemsize(self) -> int:
        return self._elements.itemsize

    def element_size(self) -> int:
        return self._elements.itemsize

    def size(self, dim: int | None = None) -> Any:
        return self._shape if dim is None else self._shape[normalize_dim(dim, self.ndim)]

    def dim(self) -> int:
        return self.ndim

    ndimension = dim

    def numel(self) -> int:
        return self._shape.numel()

    nelement = numel

    def __len__(self) -> int:
        return self._shape[0]

    def is_floating_point(self) -> bool:
        return self._elements.is_floating_point()

    def is_complex(self) -> bool:
        return self._elements.is_complex()

    def _nnz(self) -> int:
        """The number of elements that are stored."""
        return self._elements.shape[0]

    def sparse_dim(self) -> int:
        """How many of the dimensions have positions."""
        return len(self._coordinates())

    def dense_dim(self) -> int:
        """How many dimensions each stored element has."""
        return self._elements.ndim - 1

    def _values(self) -> Tensor:
        """The stored elements (nnz, ...)."""
        return self._elements

    def __repr__(self) -> str:
        names = {"indices": "_indices"} if self.layout is layouts.sparse_coo else {
            "crow_indices": "crow_indices", "col_indices": "col_indices"}  # fmt: skip
        parts = [_labelled(name, getattr(self, method)()) for name, method in names.items()]
        parts.append(_labelled("values", self._elements))
        text = "tensor(" + ",\n       ".join(parts)
        notes = [f"size={tuple(self._shape)}", f"nnz={self._nnz()}"]
        if self.is_cuda:
            notes.insert(0, f"device='{self.device}'")
        if self.dtype not in unsaid():
            notes.append(f"dtype={self.dtype}")
        notes.append(f"layout={self.layout}")
        if self.grad_fn is not None:
            notes.append(f"grad_fn=<{self.grad_fn.name()}>")
        elif self.requires_grad:
            notes.append("requires_grad=True")
        if self.is_sparse:
            text, notes = f"{text},\n       {notes[0]}", notes[1:]
        return with_notes(text, notes, len("tensor(")) + ")"

    # --- autograd: that of the elements ---

    @property
    def requires_grad(self) -> bool:
        return self._elements.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._elements.requires_grad = value

    _requires_grad = requires_grad

    @property
    def grad_fn(self) -> Any:
        return self._elements.grad_fn

    @property
    def grad(self) -> Any:
        """The gradient of the stored elements, as a sparse tensor with the same positions."""
        grad = self._elements.grad
        return None if grad is None else self._with(grad)

    @grad.setter
    def grad(self, value: Any) -> None:
        self._elements.grad = None if value is None else value._elements

    def detach(self) -> Any:
        return self._with(self._elements.detach())

    @property
    def data(self) -> Any:
        return self.detach()

    def clone(self) -> Any:
        return self._with(self._elements.clone())

    def to(self, *args: Any, **kwargs: Any) -> Any:
        moved = self._elements.to(*args, **kwargs)
        if moved is self._elements:
            return self
        if moved.device != self.device:
            return self._moved(moved)
        return self._with(moved)

    def _moved(self, elements: Tensor) -> Any:
        raise NotImplementedError

    def float(self) -> Any:
        return self.to(dtypes.float32)

    def double(self) -> Any:
        return self.to(dtypes.float64)

    def half(self) -> Any:
        return self.to(dtypes.float16)

    def bfloat16(self) -> Any:
        return self.to(dtypes.bfloat16)

    def int(self) -> Any:
        return self.to(dtypes.int32)

    def long(self) -> Any:
        return self.to(dtypes.int64)

    # --- conversions ---

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """The dense tensor; equal positions add up."""
        elements = self._elements if dtype is None else self._elements.to(dtype)
        sparse = self._shape[: self.sparse_dim()]
        flat, step = 0, math.prod(sparse)
        for places, n in zip(self._coordinates(), sparse, strict=True):
            step = step // n if n else 0
            flat = flat + places * step
        zeros = elements.new_zeros((math.prod(sparse), *elements.shape[1:]))
        if not self._nnz() or not zeros.numel():
            return zeros.reshape(self._shape)
        index = wrap(array_module(flat).asarray(flat, np.int64))
        return zeros.index_add(0, index, elements).reshape(self._shape)

    # --- arithmetic ---

    def _scaled(self, name: str, other: Any) -> Any:
        if isinstance(other, SparseTensor):
            if name != "mul":
                _refused(name, self, "two sparse tensors")
            return self._where_both(name, other)
        if isinstance(other, Tensor) and other.ndim:
            if name != "mul" or other.shape != self._shape:
                _refused(name, self, "a dense tensor")
            other = other[tuple(wrap(i) for i in self._coordinates())]
        return self._with(getattr(functions, name)(self._elements, other))

    def mul(self, other: Any) -> Any:
        """Times a number, or elementwise times a dense tensor of the same shape."""
        return self._scaled("mul", other)

    def div(self, other: Any) -> Any:
        """Divided by a number."""
        return self._scaled("div", other)

    __mul__ = __rmul__ = multiply = mul
    __truediv__ = divide = true_divide = div

    def add(self, other: Any, *, alpha: Any = 1) -> Any:
        """Plus a sparse tensor: sparse; plus a dense one: dense."""
        if not isinstance(other, Tensor):
            _refused("add", self, "a number")
        if not isinstance(other, SparseTensor):
            return other + (self.to_dense() if alpha == 1 else self.to_dense() * alpha)
        if other._shape != self._shape:
            raise RuntimeError(
                f"add: expected sparse tensors of one shape, got {list(self._shape)} and "
                f"{list(other._shape)}"
            )
        return self._plus(other if alpha == 1 else other.mul(alpha))

    def _plus(self, other: Any) -> Any:
        raise NotImplementedError

    def sub(self, other: Any, *, alpha: Any = 1) -> Any:
        """Minus a sparse or dense tensor."""
        return self.add(other.neg(), alpha=alpha)

    __add__ = __radd__ = add
    __sub__ = subtract = sub

    def __rsub__(self, other: Any) -> Any:
        return other.sub(self) if isinstance(other, Tensor) else _refused("sub", self, "a number")

    def __neg__(self) -> Any:
        return self.neg()

    def sum(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        """The sum of all elements, or over dimensions, which gives a sparse tensor."""
        if keepdim:
            _refused("sum", self, "keepdim=True")
        return total(self, dim, dtype)

    # --- products ---

    def mm(self, mat2: Any) -> Tensor:
        """This matrix times a dense one (columns, n): dense (rows, n)."""
        _check_matrix("mm", self)
        if isinstance(mat2, SparseTensor):
            return self._times_sparse(mat2)
        pattern = self._pattern()  # of a COO tensor that is not coalesced: it becomes so
        return SparseMM.apply(self._ordered(), mat2, pattern=pattern)

    spmm = mm

    def _ordered(self) -> Tensor:
        """The elements in the order of the pattern."""
        return self._elements

    def mv(self, vec: Tensor) -> Tensor:
        """This matrix times a vector."""
        return self.mm(vec.unsqueeze(1)).squeeze(1)

    def matmul(self, other: Any) -> Tensor:
        """This matrix times a dense matrix or vector."""
        if isinstance(other, Tensor) and other.ndim == 1:
            return self.mv(other)
        return self.mm(other)

    def __matmul__(self, other: Any) -> Tensor:
        return self.matmul(other)

    def __rmatmul__(self, other: Tensor) -> Tensor:
        """A dense matrix (n, rows), or a vector, times this matrix."""
        _check_matrix("matmul", self)
        if other.ndim == 1:
            return self.__rmatmul__(other.unsqueeze(0)).squeeze(0)
        if other.ndim != 2 or other.shape[1] != self._shape[0]:
            raise RuntimeError(
                f"mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, other.shape))} and "
                f"{'x'.join(map(str, self._shape))})"
            )
        pattern = self._pattern()
        return transposed_mm(self._ordered(), other.t().contiguous(), pattern).t()

    def t(self) -> Any:
        """The transpose of a matrix."""
        _check_matrix("t", self)
        return self.transpose(0, 1)

    T = property(t)

    @property
    def mT(self) -> Any:
        """The transposes of matrices, of a batch too."""
        if self.ndim < 2:
            raise RuntimeError(
                "tensor.mT is only supported on matrices or batches of matrices. Got "
                f"{self.ndim}-D tensor."
            )
        return self.transpose(-2, -1)

    @property
    def mH(self) -> Any:
        """The conjugates of `mT`."""
        found = self.mT
        return found._with(found._elements.conj()) if self.is_complex() else found

    def adjoint(self) -> Any:
        """`mH`, as a method."""
        return self.mH

    @property
    def H(self) -> Any:
        """The conjugate transpose of a matrix."""
        _check_matrix("H", self)
        return self.mH

    def swapaxes(self, axis0: Any, axis1: Any) -> Any:
        """`transpose` under NumPy's name."""
        return self.transpose(axis0, axis1)

    swapdims = swapaxes


def _labelled(name: str, tensor: Tensor) -> str:
    """name=tensor(...), its further lines below the first bracket."""
    size = "" if tensor.numel() else f", size={tuple(tensor.shape)}"
    return f"{name}=tensor({values_text(tensor, len(f'tensor({name}=tensor('))}{size})"


def _refused(name: str, tensor: SparseTensor, what: str) -> NoReturn:
    raise NotImplementedError(
        f"{name}: not implemented for layout {tensor.layout} and {what}; use x.to_dense()"
    )


def _check_matrix(name: str, tensor: SparseTensor) -> None:
    if tensor.ndim != 2 or tensor.dense_dim():
        raise RuntimeError(
            f"{name}: expected a sparse matrix without dense dimensions, got {tensor.sparse_dim()}"
            f" sparse and {tensor.dense_dim()} dense dimensions"
        )


class CooTensor(SparseTensor):
    """Coordinates: `_places` is an array (sparse dimensions, nnz)."""

    layout = layouts.sparse_coo
    _sorted: CooTensor | None = None

    def __init__(
        self, places: Any, elements: Tensor, shape: tuple[int, ...], coalesced: bool
    ) -> None:
        super().__init__(shape, elements)
        self._places, self._coalesced = places, coalesced

    def _coordinates(self) -> tuple:
        return tuple(self._places)

    def _with(self, elements: Tensor) -> CooTensor:
        return CooTensor(self._places, elements, self._shape, self._coalesced)

    def _moved(self, elements: Tensor) -> CooTensor:
        places = wrap(self._places).to(elements.device)._array
        return CooTensor(places, elements, self._shape, self._coalesced)

    def _parts(self) -> tuple:
        return self._indices(), self._elements.detach(), self._shape, self._coalesced

    def is_coalesced(self) -> bool:
        """Whether positions are sorted and none occurs twice."""
        return self._coalesced

    def _indices(self) -> Tensor:
        return wrap(self._places)

    def indices(self) -> Tensor:
        """The positions (sparse dimensions, nnz) of a coalesced tensor."""
        self._need_coalesced("indices")
        return wrap(self._places)

    def values(self) -> Tensor:
        """The elements (nnz, ...) of a coalesced tensor."""
        self._need_coalesced("values")
        return self._elements

    def _need_coalesced(self, name: str) -> None:
        if not self._coalesced:
            raise RuntimeError(
                f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first"
            )

    def coalesce(self) -> CooTensor:
        """With sorted positions and the sum of the elements at each; itself if it is so."""
        if self._coalesced:
            return self
        xp = array_module(self._places)
        sizes = self._shape[: len(self._places)]
        flat = xp.zeros(self._nnz(), np.int64)
        for places, n in zip(self._places, sizes, strict=True):
            flat = flat * n + places
        kept, group = xp.unique(flat, return_inverse=True)
        places = xp.empty((len(sizes), kept.size), np.int64)
        left = kept
        for d in range(len(sizes) - 1, -1, -1):
            places[d] = left % max(sizes[d], 1)
            left = left // max(sizes[d], 1)
        elements = self._elements
        if kept.size == flat.size:
            order = xp.argsort(flat)
            elements = elements.index_select(0, wrap(order))
        else:
            zeros = elements.new_zeros((int(kept.size), *elements.shape[1:]))
            elements = zeros.index_add(0, wrap(group.reshape(-1)), elements)
        return CooTensor(places, elements, self._shape, True)

    def _pattern(self) -> Pattern:
        if not self._coalesced:
            return self._in_order()._pattern()
        if "_compressed" not in self.__dict__:
            row, col = self._places
            self._compressed = Pattern(ends(row, self._shape[0]), col, tuple(self._shape))
        return self._compressed

    def _ordered(self) -> Tensor:
        return self._elements if self._coalesced else self._in_order()._elements

    def _in_order(self) -> CooTensor:
        """The coalesced tensor, computed once while no gradient is recorded through it."""
        if mode.enabled and self.requires_grad:
            return self.coalesce()
        if self._sorted is None:
            self._sorted = self.coalesce()
        return self._sorted

    def _plus(self, other: Any) -> CooTensor:
        other = other.to_sparse() if other.layout is layouts.sparse_csr else other
        xp = array_module(self._places)
        places = xp.concatenate([self._places, other._places], 1)
        elements = functions.cat([self._elements, other._elements])
        return CooTensor(places, elements, self._shape, False).coalesce()

    def transpose(self, dim0: int, dim1: int) -> CooTensor:
        """Two sparse dimensions exchanged."""
        order = list(range(self.ndim))
        a, b = normalize_dim(dim0, self.ndim), normalize_dim(dim1, self.ndim)
        order[a], order[b] = order[b], order[a]
        return self._reordered("transpose", order)

    def permute(self, *order: Any, dims: Any = None) -> CooTensor:
        """The sparse dimensions in another order; the dense ones keep their places."""
        numbered = wrap(np.empty(range(self.ndim)))  # its shape are the numbers of its dimensions
        return self._reordered("permute", [*functions.permute(numbered, *order, dims=dims).shape])

    def _reordered(self, name: str, order: list[int]) -> CooTensor:
        count = self.sparse_dim()
        if order[count:] != [*range(count, self.ndim)]:
            _refused(name, self, "a dense dimension")
        shape = tuple(self._shape[d] for d in order)
        return CooTensor(self._places[order[:count]], self._elements, shape, False)

    def to_sparse(self, sparse_dim: Any = None, *, layout: Any = None) -> Any:
        """This tensor, in another layout if one is given."""
        return self.to_sparse_csr() if layout is layouts.sparse_csr else self

    to_sparse_coo = to_sparse

    def to_sparse_csr(self, dense_dim: int | None = None) -> CsrTensor:
        """The matrix in compressed rows."""
        _check_matrix("to_sparse_csr", self)
        found = self.coalesce()
        return CsrTensor(found._pattern(), found._elements)


class CsrTensor(SparseTensor):
    """A matrix in compressed rows."""

    layout = layouts.sparse_csr
    is_sparse = False  # as in torch, where it says COO
    is_sparse_csr = True

    def __init__(self, pattern: Pattern, elements: Tensor) -> None:
        super().__init__(pattern.shape, elements)
        self._compressed = pattern

    def _coordinates(self) -> tuple:
        return self._compressed.row, self._compressed.col

    def _with(self, elements: Tensor) -> CsrTensor:
        return CsrTensor(self._compressed, elements)

    def _moved(self, elements: Tensor) -> CsrTensor:
        where = elements.device
        crow, col = (
            wrap(a).to(where)._array for a in (self._compressed.crow, self._compressed.col)
        )
        return CsrTensor(Pattern(crow, col, self._compressed.shape), elements)

    def _pattern(self) -> Pattern:
        return self._compressed

    def _parts(self) -> tuple:
        places = self.crow_indices(), self.col_indices()
        return *places, self._elements.detach(), self._shape

    def crow_indices(self) -> Tensor:
        """Where each row begins, and where the last ends (rows + 1,)."""
        return wrap(self._compressed.crow)

    def col_indices(self) -> Tensor:
        """The column of each element (nnz,)."""
        return wrap(self._compressed.col)

    def values(self) -> Tensor:
        """The elements (nnz,)."""
        return self._elements

    def to_sparse(self, sparse_dim: Any = None, *, layout: Any = None) -> Any:
        """In coordinates, unless `layout` is minigrad.sparse_csr."""
        if layout is layouts.sparse_csr:
            return self
        xp, found = array_module(self._compressed.col), self._coordinates()
        places = xp.stack(found).astype(np.int64)
        return CooTensor(places, self._elements, self._shape, self._is_sorted())

    to_sparse_coo = to_sparse

    def _is_sorted(self) -> bool:
        """Whether columns rise within each row."""
        row, col = self._coordinates()
        return bool(((row[1:] > row[:-1]) | (col[1:] > col[:-1])).all())

    def to_sparse_csr(self, dense_dim: int | None = None) -> CsrTensor:
        return self

    def _plus(self, other: SparseTensor) -> CsrTensor:
        return self.to_sparse()._plus(other).to_sparse_csr()

    def transpose(self, dim0: int, dim1: int) -> CsrTensor:
        """The transpose, in compressed rows again."""
        if normalize_dim(dim0, 2) == normalize_dim(dim1, 2):
            return self
        pattern, order = self._compressed.transposed
        return CsrTensor(pattern, self._elements.index_select(0, wrap(order)))


# Functions with f(0) = 0: they keep the positions.
_KEEP_ZERO = (
    *("abs", "neg", "relu", "sqrt", "square", "sign", "sin", "tan", "tanh", "asin", "atan"),
    *("sinh", "asinh", "atanh", "expm1", "log1p", "erf", "floor", "ceil", "trunc", "round"),
)


def _keeping(name: str) -> Callable:
    def method(self: Any) -> Any:
        found = self.coalesce() if isinstance(self, CooTensor) else self
        return found._with(getattr(functions, name)(found._elements))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`{name}` of the elements; coalesces first."
    return method


for _name in _KEEP_ZERO:
    setattr(SparseTensor, _name, _keeping(_name))


def total(input: Any, dim: Any = None, dtype: Any = None) -> Any:
    """The sum of all elements (a dense scalar), or over dimensions: sparse while a sparse dimension
    is left, else dense."""
    if not isinstance(input, SparseTensor):
        raise RuntimeError("sparse.sum: expected a sparse tensor; for dense ones use minigrad.sum")
    values = input._values() if dtype is None else input._values().to(dtype)
    if dim is None:
        return values.sum()
    dims = {normalize_dim(d, input.ndim) for d in (dim if isinstance(dim, list | tuple) else [dim])}
    coo = input.to_sparse()
    sparse = coo.sparse_dim()
    kept = [d for d in range(sparse) if d not in dims]
    inner = [d - sparse + 1 for d in sorted(dims) if d >= sparse]
    values = values.sum(inner) if inner else values
    if not kept:
        return values.sum(0)
    shape = tuple(n for d, n in enumerate(input.shape) if d not in dims)
    return CooTensor(coo._places[kept], values, shape, False).coalesce()


current.CLASSES.extend((SparseTensor, CooTensor, CsrTensor))
