"""Functions and methods for shapes: views where the memory allows it, else copies."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from kernels.launchers.layout import merge
from minigrad import dtypes
from minigrad._foreign import check_tensors
from minigrad.ops.views import (
    Clone,
    Diagonal,
    Expand,
    Permute,
    Reshape,
    Select,
    Slice,
    Squeeze,
    SqueezeDim,
    T,
    Transpose,
    Unfold,
    Unsqueeze,
    parts,
    reshaped,
    unshared,
    viewed,
)
from minigrad.tensor import (
    Tensor,
    as_int,
    export,
    normalize_dim,
    wrap,
)


def sizes(args: tuple, named: Any = None) -> tuple[int, ...]:
    """Sizes given one by one, as one sequence, or as the keyword `named`; 0-dimensional tensors
    count as integers."""
    if named is not None:
        args = (named,)
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = tuple(args[0])
    if set(map(type, args)) <= _INT:
        return args
    return tuple([as_int("size", a) for a in args])


_INT = {int}


def infer_shape(shape: tuple[int, ...], numel: int) -> tuple[int, ...]:
    """The shape with -1 replaced; RuntimeError if it doesn't have `numel` elements."""
    known = 1
    for n in shape:
        if n != -1:
            known *= n
    if -1 in shape:
        if shape.count(-1) > 1:
            raise RuntimeError("only one dimension can be inferred")
        if known == 0:
            raise RuntimeError(
                f"cannot reshape tensor of 0 elements into shape {list(shape)} because the "
                "unspecified dimension size -1 can be any value and is ambiguous"
            )
        if numel % known == 0:
            return tuple([numel // known if n == -1 else n for n in shape])
    elif known == numel:
        return shape
    raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")


@export()
def reshape(input: Tensor, *lengths: Any, shape: Any = None) -> Tensor:
    """The same elements under another shape; one length may be -1. A view where possible."""
    wanted, array = sizes(lengths, shape), input._array
    made = _reshaped(array, wanted)
    if made is not None:
        return viewed(Reshape, input, made, {"shape": made.shape})
    new = infer_shape(wanted, array.size)
    if array.flags.c_contiguous or _viewable(array, new):
        return Reshape.apply(input, shape=new)
    return unshared(Reshape.apply(Clone.apply(input), shape=new))


def _reshaped(array: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """A contiguous NumPy array under another shape; None where that takes a closer look."""
    if type(array) is not np.ndarray or not array.flags.c_contiguous or min(shape, default=0) < -1:
        return None
    try:
        return array.reshape(shape)
    except ValueError:  # the caller says what is wrong
        return None


def _viewable(array: Any, shape: tuple[int, ...]) -> bool:
    """Whether a reshape can share memory: each run of dimensions that is walked at one stride is
    split into whole dimensions. CuPy only tells by a reshape, which copies where it cannot."""
    if 0 in shape:
        return True
    runs, _ = merge(array.shape, [list(array.strides)])
    left = 1
    for n in shape:
        if n != 1 and left == 1:
            left = runs.pop(0)
        if left % n:
            return False
        left //= n
    return True


def view(self: Tensor, *shape: Any, size: Any = None, dtype: Any = None) -> Tensor:
    """`reshape` that never copies; with a dtype, the same bytes read as another type."""
    if dtype is not None or (len(shape) == 1 and isinstance(shape[0], dtypes.dtype)):
        kind = shape[0] if dtype is None else dtype
        try:
            out = wrap(self._array.view(kind.numpy))
        except ValueError as error:
            raise RuntimeError(f"view of {self.dtype} as {kind}: {error}") from None
        out._counter = self._counter
        return out
    wanted = sizes(shape, size)
    made = _reshaped(self._array, wanted)
    if made is not None:
        return viewed(Reshape, self, made, {"shape": made.shape})
    new = infer_shape(wanted, self._array.size)
    if not (self._array.flags.c_contiguous or _viewable(self._array, new)):
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return Reshape.apply(self, shape=new)


def view_as(self: Tensor, other: Tensor) -> Tensor:
    """`view` with the shape of another tensor."""
    check_tensors("view_as", other=other)
    return view(self, other._array.shape)


def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """`reshape` with the shape of another tensor."""
    check_tensors("reshape_as", other=other)
    return reshape(self, other._array.shape)


Tensor.view, Tensor.view_as, Tensor.reshape_as = view, view_as, reshape_as


def _dims(given: Any, ndim: int) -> tuple[int, ...]:
    """One dimension or a sequence of them, each in 0 .. ndim-1."""
    dims = given if isinstance(given, (tuple, Sequence)) else (given,)
    return tuple([normalize_dim(d, ndim) for d in dims])


@export()
def permute(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """Dimensions in the order given."""
    given = sizes(order, dims)
    ndim = input._array.ndim
    if len(given) != ndim:
        raise RuntimeError(
            "permute: number of dimensions in the tensor input does not match the length of the "
            f"desired ordering of dimensions i.e. input.dim() = {ndim} is not equal to len(dims) "
            f"= {len(given)}"
        )
    wanted = given
    if sorted(given) != [*range(ndim)]:
        wanted = _dims(given, ndim)
        if len(set(wanted)) != ndim:
            raise RuntimeError("permute(): duplicate dims are not allowed.")
    return Permute.apply(input, dims=wanted)


@export("swapdims")
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged."""
    ndim = input._array.ndim
    a, b = normalize_dim(dim0, ndim), normalize_dim(dim1, ndim)
    order = list(range(ndim))
    if ndim:
        order[a], order[b] = order[b], order[a]
    return Transpose.apply(input, dims=tuple(order))


@export()
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """`transpose` under NumPy's name."""
    return transpose(input, axis0, axis1)


@export()
def t(input: Tensor) -> Tensor:
    """The transpose of a matrix, a view (of a vector as it is)."""
    ndim = input._array.ndim
    if ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {ndim}D")
    return T.apply(input, dims=(1, 0) if ndim == 2 else (0,) * ndim)


def _mt(self: Tensor) -> Tensor:
    if self._array.ndim < 2:
        raise RuntimeError(
            "tensor.mT is only supported on matrices or batches of matrices. Got "
            f"{self._array.ndim}-D tensor."
        )
    return transpose(self, -2, -1)


def _t(self: Tensor) -> Tensor:
    """The dimensions in reverse order."""
    dims = tuple(range(self._array.ndim - 1, -1, -1))
    return viewed(Permute, self, self._array.transpose(dims), {"dims": dims})


for _name, _property in (("T", _t), ("mT", _mt)):
    setattr(Tensor, _name, property(_property))


@export("moveaxis")
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions `source` moved to the positions `destination`."""
    ndim = input._array.ndim
    source, places = _dims(source, ndim), _dims(destination, ndim)
    if not ndim:
        return permute(input, ())
    if len(source) != len(places):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(source)} dims) should "
            f"contain the same number of dims as destination ({list(places)} dims)"
        )
    for name, dims in (("source", source), ("destination", places)):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(dims)})")
    order = [d for d in range(ndim) if d not in source]
    for place, dim in sorted(zip(places, source, strict=True)):
        order.insert(place, dim)
    return permute(input, order)


@export(function=False)
def expand(self: Tensor, *lengths: Any, size: Any = None) -> Tensor:
    """Dimensions of length 1 repeated without a copy; -1 keeps a length."""
    new = sizes(lengths, size)
    old = self._array.shape
    extra = len(new) - len(old)
    if extra < 0:
        raise RuntimeError(
            f"expand: the number of sizes provided ({len(new)}) must be greater or equal to the "
            f"number of dimensions in the tensor ({len(old)})"
        )
    if extra and min(new[:extra]) < 0:
        raise RuntimeError(
            f"expand: -1 keeps the length of a dimension that exists, but {list(new)} has it for a "
            f"new one of a tensor of shape {list(old)}"
        )
    if new[extra:] == old:
        return Expand.apply(self, shape=new)
    shape = list(new)
    for i, n in enumerate(old):
        wanted = new[i + extra]
        if wanted == -1:
            shape[i + extra] = n
        elif n not in (1, wanted):
            raise RuntimeError(
                f"The expanded size of the tensor ({wanted}) must match the existing size ({n}) at "
                f"non-singleton dimension {i + extra}.  Target sizes: {list(new)}.  Tensor sizes: "
                f"{list(old)}"
            )
    return Expand.apply(self, shape=tuple(shape))


def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """`expand` to the shape of another tensor."""
    check_tensors("expand_as", other=other)
    return expand(self, *other._array.shape)


Tensor.expand_as = expand_as


@export()
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Without dimensions of length 1 (all, or those named)."""
    shape = input._array.shape
    if dim is None:
        return Squeeze.apply(input, shape=tuple([n for n in shape if n != 1]))
    gone = _dims(dim, len(shape))
    return SqueezeDim.apply(
        input, shape=tuple([n for i, n in enumerate(shape) if n != 1 or i not in gone])
    )


@export()
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A new dimension of length 1 at `dim`."""
    shape = input._array.shape
    place = normalize_dim(dim, len(shape) + 1)
    return Unsqueeze.apply(input, shape=(*shape[:place], 1, *shape[place:]))


@export()
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions start_dim .. end_dim as one."""
    shape = input._array.shape
    first, last = normalize_dim(start_dim, len(shape)), normalize_dim(end_dim, len(shape))
    if not shape:
        return reshape(input, 1)
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if first == last:
        return input
    if last - first == len(shape) - 1:
        return reshape(input, -1)
    merged = math.prod(shape[first : last + 1])
    return reshape(input, *shape[:first], merged, *shape[last + 1 :])


@export()
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """One dimension as several; one length may be -1."""
    shape = input._array.shape
    place = normalize_dim(dim, len(shape))
    if not shape:
        raise RuntimeError("unflatten: expected a tensor with dimensions, got a 0-dimensional one")
    try:
        inner = infer_shape(tuple(sizes), shape[place])
    except RuntimeError as error:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {place} "
            f"({shape[place]}) in the input tensor"
        ) from error
    return reshape(input, (*shape[:place], *inner, *shape[place + 1 :]))


@export()
def ravel(input: Tensor) -> Tensor:
    """All elements as one dimension, side by side in memory: a copy where they are not."""
    return reshape(input.contiguous(), -1)


@export()
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` elements along `dim` from `start` on."""
    place = normalize_dim(dim, input._array.ndim)
    if not input._array.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if isinstance(start, Tensor) and (start._array.ndim or start._array.dtype.kind not in "iu"):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    n = input._array.shape[place]
    start, length = as_int("start", start), as_int("length", length)
    if not -n <= start <= n:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-n}, {n}], but got {start})"
        )
    start = start + n if start < 0 else start
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if start + length > n:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return Slice.apply(input, index=(slice(None),) * place + (slice(start, start + length),))


@export()
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One position along `dim`; the dimension is removed."""
    place, index = normalize_dim(dim, input._array.ndim), as_int("index", index)
    if not input._array.ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    n = input._array.shape[place]
    if not -n <= index < n:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at "
            f"dimension {place}"
        )
    return Select.apply(input, index=(slice(None),) * place + (int(index),))


@export()
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of a diagonal, as a new last dimension."""
    ndim = input._array.ndim
    a, b = normalize_dim(dim1, ndim), normalize_dim(dim2, ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return Diagonal.apply(input, offset=offset, dim1=a, dim2=b)


@export(function=False)
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of `size` every `step` along a dimension, as a new last dimension (a view)."""
    dim = normalize_dim(dimension, self._array.ndim)
    n = self._array.shape[dim] if self._array.ndim else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > n:
        raise RuntimeError(f"maximum size for tensor at dimension {dim} is {n} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if not self._array.ndim:
        return reshape(self, 1)[:size]
    return Unfold.apply(self, dim=dim, size=size, step=step)


def _length(name: str, x: Tensor, dim: int) -> tuple[int, int]:
    """A dimension, counted from the front, and its length; RuntimeError for a tensor that has
    none."""
    shape = x._array.shape
    place = normalize_dim(dim, len(shape))
    if not shape:
        raise RuntimeError(f"{name} expects at least a 1-dimensional tensor")
    return place, shape[place]


def either(name: str, *given: Any) -> Any:
    """The one of an argument's names that was used."""
    used = [value for value in given if value is not None]
    if len(used) != 1:
        raise TypeError(f"{name}(): expected one size or list of sizes, got {len(used)}")
    return used[0]


def _lengths(n: int, size: int) -> list[int]:
    """n as parts of one size; the last may be smaller."""
    full, rest = divmod(n, size or 1)
    return [size] * full + [rest] * (rest > 0) or [0]


@export()
def split(
    tensor: Tensor, split_size_or_sections: Any = None, dim: int = 0, *, split_size: Any = None
) -> tuple[Tensor, ...]:
    """Views along `dim`: of one size (the last may be smaller), or of the sizes listed.

    split_size: another name of the first argument. Where a gradient is recorded, the views cannot
    be changed in place, as in torch.
    """
    return _split(tensor, either("split", split_size_or_sections, split_size), dim)


@export()
def unsafe_split(input: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """`split` whose views can be changed in place."""
    return _split(input, split_size, dim, alone=True)


def _split(
    tensor: Tensor, split_size_or_sections: Any, dim: int, alone: bool = False
) -> tuple[Tensor, ...]:
    place, n = _length("split", tensor, dim)
    if type(split_size_or_sections) is int or not isinstance(split_size_or_sections, Sequence):
        size = as_int("split_size", split_size_or_sections)
        if size < 0 or (size == 0 and n):
            raise RuntimeError(
                f"split expects split_size be non-negative, but got split_size={size}"
            )
        lengths = _lengths(n, size)
        title = "SplitBackward0"
    else:
        lengths = [as_int("split_size", length) for length in split_size_or_sections]
        if sum(lengths) != n or min(lengths, default=0) < 0:
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size "
                f"at dimension {place}), but got split_sizes={lengths}"
            )
        title = "SplitWithSizesBackward0"
    return parts(tensor, place, lengths, title, alone)


@export()
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` views of equal length (the last may be shorter)."""
    return _chunk(input, chunks, dim)


@export()
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`chunk` whose views can be changed in place."""
    return _chunk(input, chunks, dim, alone=True)


def _chunk(input: Tensor, chunks: int, dim: int, alone: bool = False) -> tuple[Tensor, ...]:
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    place, n = _length("chunk", input, dim)
    if n == 0:
        return _split(input, [0] * chunks, dim, alone)
    lengths = _lengths(n, -(-n // as_int("chunks", chunks)))
    return parts(input, place, lengths, "SplitBackward0", alone)


@export()
def tensor_split(
    input: Tensor,
    indices_or_sections: Any = None,
    dim: int = 0,
    *,
    indices: Any = None,
    sections: Any = None,
    tensor_indices_or_sections: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Views cut at the given positions, or into that many nearly equal parts."""
    names = (indices_or_sections, indices, sections, tensor_indices_or_sections)
    given = either("tensor_split", *names)
    _, n = _length("tensor_split", input, dim)
    if isinstance(given, Tensor):
        given = given.tolist()
    if not isinstance(given, Sequence):
        sections = as_int("sections", given)
        if sections <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {sections}")
        small, extra = divmod(n, sections)
        return unsafe_split(input, [small + (i < extra) for i in range(sections)], dim)
    cuts = [0, *(slice(None, as_int("index", c)).indices(n)[1] for c in given), n]
    return tuple([narrow(input, dim, a, max(b - a, 0)) for a, b in pairwise(cuts)])


@export()
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along `dim`."""
    if not input._array.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return parts(input, normalize_dim(dim, input._array.ndim), None, "UnbindBackward0")


@export(function=False)
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """The sum over broadcast dimensions that gives this shape: the inverse of `expand`."""
    shape, array = sizes(size), self._array
    if not shape and array.dtype.kind in "biu":  # a sum of integers is int64
        return self.sum()
    axes = _summed(array.shape, shape)
    result = self.sum(axes, keepdim=True) if axes else self
    return reshaped(result, shape) if len(shape) < array.ndim else result


@functools.lru_cache(4096)
def _summed(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of a tensor over which the sum has another shape, but for axes in front."""
    extra = len(old) - len(new)
    tail = old[extra:] if extra >= 0 else ()
    if extra < 0 or any(n not in (1, m) for n, m in zip(new, tail)):
        raise RuntimeError(
            f"size {list(new)} is not expandable to size {list(old)}: sum_to_size needs "
            "a shape that broadcasts to that of the tensor"
        )
    axes = [i + extra for i, n in enumerate(new) if n == 1 and tail[i] != 1]
    return (*range(extra), *axes)


@export()
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A contiguous copy, differentiable."""
    return Clone.apply(input)


@export(function=False)
def contiguous(self: Tensor, memory_format: Any = None) -> Tensor:
    """Itself if its elements are in row-major order, else a copy in that order."""
    return self if self._array.flags.c_contiguous else Clone.apply(self)


@export()
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape."""
    return input._array.shape == other._array.shape


@export()
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """`expand` to a shape."""
    return input.expand(size)


@export()
def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """A copy of `narrow`."""
    return input.narrow(dim, start, length).clone()


@export(function=False)
def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dimensions from the largest stride to the smallest."""
    strides = self._array.strides
    return tuple(sorted(range(self._array.ndim), key=lambda d: -strides[d]))
