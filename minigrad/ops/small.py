"""Questions about tensors, memory of other layouts, and numerical differences along dimensions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.creation import finish, place
from minigrad.tensor import FUNCTIONS, Tensor, export, functions, normalize_dim, type_name, wrap

FUNCTIONS["row_stack"] = FUNCTIONS["vstack"]
FUNCTIONS["is_signed"] = Tensor.is_signed


@export()
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero."""
    if input._array.size != 1:
        count = "more than one value" if input._array.size else "no values"
        raise RuntimeError(f"Boolean value of Tensor with {count} is ambiguous")
    return bool(input)


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
def dim_order(self: Tensor) -> tuple[int, ...]:
    """The dimensions from the largest stride to the smallest."""
    strides = self._array.strides
    return tuple(sorted(range(self._array.ndim), key=lambda d: -strides[d]))


@export(method=False)
def typename(obj: Any) -> str:
    """The full name of a type: of a tensor with its dtype, such as `minigrad.FloatTensor`."""
    if isinstance(obj, Tensor):
        return type_name(obj)
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(named, "__module__", "") or ""
    return named.__qualname__ if module in ("", "builtins") else f"{module}.{named.__qualname__}"


# --- creation ---


@export(method=False)
def empty_strided(
    size: Any,
    stride: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Uninitialised memory with these strides, in elements."""
    shape, steps = tuple(size), tuple(stride)
    if len(shape) != len(steps):
        raise RuntimeError(
            f"mismatch in length of strides and shape: {len(steps)} strides for {list(shape)}"
        )
    if min((*shape, *steps), default=0) < 0:
        raise RuntimeError(f"empty_strided: negative size or stride: {list(shape)}, {list(steps)}")
    last = sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
    count = 0 if 0 in shape else last + 1
    memory = functions.empty(count, dtype=dtype, device=device, pin_memory=pin_memory)
    return memory.as_strided(shape, steps).detach().requires_grad_(requires_grad)


@export(function=False)
def new_empty_strided(
    self: Tensor,
    size: Any,
    stride: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """`empty_strided` with the dtype and device of this tensor."""
    kind, where = dtype or self.dtype, device or self.device
    return empty_strided(size, stride, dtype=kind, device=where, requires_grad=requires_grad)


@export(method=False)
def frombuffer(
    buffer: Any,
    *,
    dtype: dtypes.dtype,
    count: int = -1,
    offset: int = 0,
    requires_grad: bool = False,
) -> Tensor:
    """A vector of the memory behind an object such as bytes, a bytearray or an array.

    count: of elements, all that fit unless given. offset: in bytes. ValueError where they do not
    fit.
    """
    length, width = memoryview(buffer).nbytes, dtype.itemsize
    if not length or count == 0:
        raise ValueError(f"both buffer length ({length}) and count ({count}) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length "
            f"({length} bytes) minus 1"
        )
    if count < 0 and (length - offset) % width:
        raise ValueError(
            f"buffer length ({length - offset} bytes) after offset ({offset} bytes) must be a "
            f"multiple of element size ({width})"
        )
    if count > 0 and offset + count * width > length:
        raise ValueError(
            f"requested buffer length ({count} * {width} bytes) after offset ({offset} bytes) must "
            f"not be greater than actual buffer length ({length} bytes)"
        )
    array = np.frombuffer(buffer, dtype.numpy, max(count, -1), offset)
    return finish(array, requires_grad)


def _range(
    start: Any,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... up to and including end, of the default dtype unless given."""
    if end is None:
        start, end = 0, start
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    count = math.floor((end - start) / step) + 1
    array = start + step * np.arange(count)
    kind = dtypes.default_numpy() if dtype is None else dtypes.to_numpy_dtype(dtype)
    moved = wrap(array.astype(kind)).to(place(device))
    return finish(moved._array, requires_grad)


FUNCTIONS["range"] = _range


@export(method=False)
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of a vector as columns: from N - 1 to 0, or from 0 if `increasing`."""
    if x._array.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    count = x._array.size if N is None else N
    if count < 0:
        raise RuntimeError("N must be non-negative.")
    kind = x.dtype if x.is_floating_point() or x.is_complex() else dtypes.int64
    found = functions.ones((x._array.size, count), dtype=kind, device=x.device)
    if count > 1:
        powers = x.to(kind).unsqueeze(1).expand(-1, count - 1).cumprod(1)
        found = functions.cat([found[:, :1], powers], 1)
    return found if increasing else found.flip(1)


# --- differences ---


@export(method=False)
def gradient(
    input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """The derivative along each dimension, by central differences of second order.

    spacing: of the points: one number, one per dimension, or a vector of coordinates for each.
    edge_order: of the differences at both ends, 1 or 2.
    """
    dims = _gradient_dims(input, dim)
    if input._array.dtype.kind in "bu":
        raise RuntimeError(f"torch.gradient does not support {input.dtype.name} input.")
    spacing = 1 if spacing is None else spacing
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    several = isinstance(spacing, list | tuple)
    if several and len(spacing) != len(dims):
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length "
            f"{len(dims)}, but got a list of length {len(spacing)}"
        )
    if isinstance(spacing, Tensor):
        raise TypeError("gradient(): expected spacing to be numbers or a sequence of tensors")
    steps = spacing if several else [spacing] * len(dims)
    for d in dims:
        if input._array.shape[d] < edge_order + 1:
            raise RuntimeError(
                "torch.gradient expected each dimension size to be at least edge_order+1"
            )
    return tuple(_slopes(input, d, h, edge_order) for d, h in zip(dims, steps, strict=True))


def _gradient_dims(x: Tensor, dim: Any) -> list[int]:
    if dim is None:
        return list(range(x._array.ndim))
    given = [dim] if isinstance(dim, int) else list(dim)
    dims = [normalize_dim(d, x._array.ndim) for d in given]
    if len(set(dims)) < len(dims):
        raise RuntimeError(f"dim {given} appears multiple times in the list of dims")
    return dims


def _slopes(x: Tensor, dim: int, spacing: Any, edge_order: int) -> Tensor:
    """The derivative along one dimension: by differences of neighbours, weighted by how near the
    points are."""
    n = x._array.shape[dim]
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(dtypes.get_default_dtype())
    steps: Any = spacing
    if isinstance(spacing, Tensor):
        if spacing._array.shape != (n,):
            raise RuntimeError(
                f"torch.gradient expected each element of spacing to have {n} coordinates, got "
                f"{list(spacing.shape)}"
            )
        steps = spacing.diff().reshape([-1 if d == dim else 1 for d in range(x._array.ndim)])
    slopes = x.diff(dim=dim) / steps  # between neighbours
    first, last = slopes.narrow(dim, 0, 1), slopes.narrow(dim, n - 2, 1)
    if n == 2:
        return functions.cat([first, last], dim)
    left, right = slopes.narrow(dim, 0, n - 2), slopes.narrow(dim, 1, n - 2)
    if isinstance(spacing, Tensor):
        a, b = steps.narrow(dim, 0, n - 2), steps.narrow(dim, 1, n - 2)
        share = b / (a + b)
    else:
        share = 0.5
    inner = left * share + right * (1 - share)
    if edge_order == 2:
        before, after = inner.narrow(dim, 0, 1), inner.narrow(dim, n - 3, 1)
        first, last = 2 * first - before, 2 * last - after
    return functions.cat([first, inner, last], dim)
