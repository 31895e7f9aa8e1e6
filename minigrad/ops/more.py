"""Less common functions with torch's names, composed of the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad._meta import MetaArray
from minigrad._names import return_type
from minigrad.autograd.node import Op
from minigrad.backends import array_module, is_batched
from minigrad.ops.combine import listed, pad_constant
from minigrad.ops.masks import runs_on_gpu, without_repeats
from minigrad.ops.pointwise import POINTWISE, broadcast_shape, check_floating
from minigrad.ops.ranges import runs
from minigrad.ops.shape import either
from minigrad.tensor import Size, Tensor, export, functions, normalize_dim, wrap


def _tensors(args: tuple) -> tuple:
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], list | tuple) else args


def _at_least(name: str, ndim: int, shape: Any) -> None:
    def function(*tensors: Any) -> Any:
        given = _tensors(tensors)
        found = tuple(t if t._array.ndim >= ndim else t.reshape(shape(t)) for t in given)
        return found if len(tensors) != 1 or not isinstance(tensors[0], Tensor) else found[0]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Tensors with at least {ndim} dimensions; several give a tuple."
    export(method=False)(function)


_at_least("atleast_1d", 1, lambda t: (1,))
_at_least("atleast_2d", 2, lambda t: (1, -1) if t._array.size else (1, *t._array.shape))
_at_least(
    "atleast_3d",
    3,
    lambda t: (*t._array.shape, 1) if t._array.ndim == 2 else (1, t._array.size, 1),
)


@export()
def argwhere(input: Tensor) -> Tensor:
    """The positions (count, dimensions) of elements that are not zero."""
    return input.nonzero()


@export(method=False)
def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal of one, zeros elsewhere."""
    blocks = [functions.atleast_2d(t) for t in tensors]
    if any(b.ndim != 2 for b in blocks):
        raise RuntimeError("torch.block_diag: Input tensors must have 2 or fewer dimensions.")
    widths = [b._array.shape[1] for b in blocks]
    starts = [sum(widths[:i]) for i in range(len(blocks))]
    columns = [(a, sum(widths) - a - n) for a, n in zip(starts, widths, strict=True)]
    rows = [pad_constant(b, sides) for b, sides in zip(blocks, columns, strict=True)]
    return functions.cat(rows)


@export(method=False)
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Vectors as columns beside matrices."""
    tensors = listed("column_stack", tensors)
    return functions.cat([t.reshape(-1, 1) if t._array.ndim < 2 else t for t in tensors], 1)


@export(method=False)
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of at least three dimensions, concatenated along the third."""
    tensors = listed("dstack", tensors)
    if not tensors:
        raise RuntimeError("dstack expects a non-empty TensorList")
    return functions.cat(list(functions.atleast_3d(*_tensors((list(tensors),)))), 2)


def _splitter(name: str, dim: int, least: int) -> None:
    def function(
        input: Tensor,
        indices_or_sections: Any = None,
        *,
        sections: int | None = None,
        indices: Any = None,
    ) -> tuple[Tensor, ...]:
        indices_or_sections = either(name, indices_or_sections, sections, indices)
        ndim = input._array.ndim
        if ndim < least:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor "
                f"with {ndim} dimensions!"
            )
        place = 0 if dim == 1 and ndim == 1 else dim
        n = input._array.shape[place]
        if isinstance(indices_or_sections, int) and (
            indices_or_sections <= 0 or n % indices_or_sections
        ):
            raise RuntimeError(
                f"torch.{name} attempted to split along dimension {place}, but the size of the "
                f"dimension {n} is not divisible by the split_size {indices_or_sections}!"
            )
        return input.tensor_split(indices_or_sections, place)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`tensor_split` along dimension {dim}."
    export()(function)


_splitter("vsplit", 0, 2)
_splitter("hsplit", 1, 1)
_splitter("dsplit", 2, 3)


@export(method=False)
def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that all of them broadcast to."""
    found: tuple[int, ...] = ()
    for shape in shapes:
        found = broadcast_shape(found, (shape,) if isinstance(shape, int) else tuple(shape))
    return Size(found)


@export(method=False)
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of r elements of a vector, in order."""
    if input._array.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if not r:
        return input.new_empty((0,))
    n = input._array.shape[0]
    index = np.arange(n).reshape(n, 1)
    for _ in range(r - 1):  # each choice goes on with what comes after its last element
        first = index[:, -1] + (not with_replacement)
        counts = n - first
        index = np.column_stack((index.repeat(counts, 0), runs(first, counts)))
    return input[functions.from_numpy(index).to(input.device)]


@export()
def cov(
    input: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """The covariance matrix of the rows of input (variables, observations).

    fweights: how often each observation counts. aweights: its weight.
    """
    if input._array.dtype.kind == "b":
        raise RuntimeError("cov(): bool dtype is not supported for input")
    if input._array.ndim > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with "
            f"{input._array.ndim} dimensions"
        )
    x = functions.atleast_2d(input)
    x = x if x.is_floating_point() or x.is_complex() else x.to(dtypes.get_default_dtype())
    n = x._array.shape[1]
    weights = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        _check_weights(name, given, n)
        if given is not None:
            weights = given if weights is None else weights * given
    if weights is None:
        centred, factor = x - x.mean(1, keepdim=True), n - correction
        product = centred @ functions.conj(centred).mT
    else:
        total = weights.sum()
        centred = x - (x * weights).sum(1, keepdim=True) / total
        product = (centred * weights) @ functions.conj(centred).mT
        factor = total - correction
        if aweights is not None:
            factor = total - correction * (weights * aweights).sum() / total
    factor = max(factor, 0) if not isinstance(factor, Tensor) else factor.clamp(min=0)
    return (product / factor).squeeze()


def _check_weights(name: str, given: Tensor | None, n: int) -> None:
    if given is None:
        return
    if given._array.ndim > 1 or given._array.size != n:
        raise RuntimeError(
            f"cov(): expected {name} to have one or fewer dimensions and {n} elements, as there "
            f"are observations, but got {list(given.shape)}"
        )
    if (given._array.dtype.kind in "iu") != (name == "fweights"):
        kind = "integral" if name == "fweights" else "floating point"
        raise RuntimeError(f"cov(): expected {name} to have {kind} dtype but got {given.dtype}")
    if bool((given._array < 0).any()):
        raise RuntimeError(f"cov(): {name} cannot be negative")


@export()
def corrcoef(input: Tensor) -> Tensor:
    """The correlation coefficients of the rows of input (variables, observations)."""
    c = cov(input)
    if not c._array.ndim:
        return c / c
    size = c.diagonal().real if c.is_complex() else c.diagonal()
    size = size.sqrt()
    found = c / size.unsqueeze(1) / size.unsqueeze(0)
    return found if found.is_complex() else found.clamp(-1, 1)


@export()
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """All elements on the diagonal of a matrix."""
    return input.reshape(-1).diag(offset)


def _need_tensors(name: str, *values: Any) -> None:
    for value in values:
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}(): argument must be Tensor, not {type(value).__name__}")


def _of_integers(name: str) -> None:
    def function(input: Tensor, other: Tensor) -> Tensor:
        target = POINTWISE["add"].compute_dtype((input, other))
        if target.kind not in "iu":
            raise dtypes.refused(name, target)
        xp = array_module(input._array)
        a, b = (t._array.astype(target) for t in (input, other))
        broadcast_shape(a.shape, b.shape)  # which raises torch's error
        return wrap(xp.asarray(getattr(xp, name)(a, b)).astype(target))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = {"gcd": "Greatest common divisors.", "lcm": "Least common multiples."}[name]
    export()(function)


_of_integers("gcd")
_of_integers("lcm")


@export()
def inner(input: Tensor, other: Tensor) -> Tensor:
    """Scalar products along the last dimensions."""
    if not input._array.ndim or not other._array.ndim:
        return input * other
    if input._array.shape[-1] != other._array.shape[-1]:
        raise RuntimeError(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(input.shape)} and {list(other.shape)}"
        )
    return functions.tensordot(input, other, ([-1], [-1]))


@export()
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The scalar product of two vectors, the first one conjugated."""
    return functions.dot(functions.conj(input), other)


@export()
def isneginf(input: Tensor) -> Tensor:
    """Whether elements are -inf."""
    dtypes.refuse_complex("isneginf does not support complex inputs.", input._array.dtype)
    return POINTWISE["eq"](input, -math.inf) if input.is_floating_point() else input.isinf()


@export()
def isposinf(input: Tensor) -> Tensor:
    """Whether elements are inf."""
    dtypes.refuse_complex("isposinf does not support complex inputs.", input._array.dtype)
    return POINTWISE["eq"](input, math.inf) if input.is_floating_point() else input.isinf()


@export()
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """input * 2**other."""
    _need_tensors("ldexp", input, other)
    result = input * POINTWISE["pow"](2.0, other)
    integers = input.is_floating_point() and other._array.dtype.kind in "biu"
    return result.to(input.dtype) if integers else result


class NextAfter(Op):
    """The floating number after a in the direction of b."""

    grad_name = "NextafterBackward0"

    @staticmethod
    def forward(a: Any, b: Any) -> Any:
        xp = array_module(a)
        return xp.asarray(xp.nextafter(a, b))

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        a, b = ctx.tensors()
        return g.masked_fill(a == b, 0), None


@export()
def nextafter(input: Tensor, other: Tensor) -> Tensor:
    """The floating number after input in the direction of other; input has the gradient."""
    _need_tensors("nextafter", input, other)
    target = POINTWISE["add"].compute_dtype((input, other))
    if dtypes.category(target) != dtypes.FLOATING:
        raise dtypes.refused("nextafter_cpu", target)
    wide = dtypes.from_numpy_dtype(target)
    return NextAfter.apply(*functions.broadcast_tensors(input.to(wide), other.to(wide)))


FREXP = return_type("frexp", "mantissa", "exponent")


@export()
def frexp(input: Tensor) -> Any:
    """(mantissa, exponent) with input = mantissa * 2**exponent and 0.5 <= |mantissa| < 1; the
    exponent is int32."""
    if not input.is_floating_point():
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    xp = array_module(input._array)
    exponent = xp.asarray(xp.frexp(input._array)[1]).astype(np.int32)
    half = exponent // 2  # 2**-exponent may be too large for the dtype
    mantissa = input * wrap(xp.ldexp(1.0, -half)) * wrap(xp.ldexp(1.0, half - exponent))
    mantissa = POINTWISE["where"](POINTWISE["isfinite"](input), mantissa, input)
    return FREXP(mantissa.to(input.dtype), wrap(exponent))


@export()
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """log2(2**input + 2**other)."""
    check_floating("logaddexp2_cpu", input, other)
    scale = math.log(2)
    return POINTWISE["logaddexp"](input * scale, other * scale) / scale


@export()
def msort(input: Tensor) -> Tensor:
    """Sorted along the first dimension."""
    return input.sort(0).values if input._array.ndim else input.clone()


@export()
def positive(input: Tensor) -> Tensor:
    """input itself."""
    if input._array.dtype.kind == "b":
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


@export(method=False)
def scalar_tensor(
    s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of no dimensions, by default of the default dtype."""
    dtype = dtype or dtypes.get_default_dtype()
    return functions.tensor(s, dtype=dtype, device=device, requires_grad=requires_grad)


@export("trapz", method=False)
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """The integral along `dim` by the trapezoidal rule, of points at x or every dx."""
    n = y._array.shape[dim]
    if n < 1:
        return y.sum(dim)
    pairs = y.narrow(dim, 1, n - 1) + y.narrow(dim, 0, n - 1)
    if x is None:
        return pairs.sum(dim) * (_steps(y, x, dx, dim) / 2)
    return (pairs * _steps(y, x, dx, dim)).sum(dim) / 2


@export(method=False)
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1
) -> Tensor:
    """The running integrals of `trapezoid`."""
    if not y._array.ndim:
        raise IndexError("cumulative_trapezoid: expected points along a dimension, got a number")
    n = y._array.shape[normalize_dim(dim, y._array.ndim)]
    if not n:
        return (y * _steps(y, None, dx, dim)).cumsum(dim) / 2
    pairs = y.narrow(dim, 1, n - 1) + y.narrow(dim, 0, n - 1)
    if x is None:
        return pairs.cumsum(dim) * (_steps(y, x, dx, dim) / 2)
    return (pairs * _steps(y, x, dx, dim)).cumsum(dim) / 2


def _steps(y: Tensor, x: Tensor | None, dx: Any, dim: int) -> Any:
    if any(t is not None and t._array.dtype.kind == "b" for t in (y, x)):
        raise RuntimeError("trapezoid: received a bool input, but bool is not supported")
    if x is None:
        return dx
    if x._array.ndim == 1 and y._array.ndim > 1:
        shape = [1] * y._array.ndim
        shape[dim] = -1
        return x.diff().reshape(shape)
    return x.diff(dim=dim if x._array.ndim == y._array.ndim else -1)


@export()
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:
    """Runs of equal elements (or slices along `dim`) as one element each."""
    array = input._array
    if array.dtype.kind == "c":
        raise dtypes.refused("unique", array.dtype)
    xp = array_module(array)
    place = 0 if dim is None else normalize_dim(dim, array.ndim)
    flat = array.reshape(-1) if dim is None else xp.moveaxis(array, place, 0)
    if flat.ndim == 1 and not (return_inverse or return_counts) and runs_on_gpu(flat):
        return wrap(without_repeats(flat))
    starts = xp.ones(flat.shape[0], bool)
    if flat.ndim == 1:
        xp.not_equal(flat[1:], flat[:-1], out=starts[1:])
    else:
        rows = flat.reshape(flat.shape[0], -1) if flat.size else flat.reshape(flat.shape[0], 1)
        starts[1:] = (rows[1:] != rows[:-1]).any(1)
    kept = flat[starts] if dim is None else xp.moveaxis(flat[starts], 0, place)
    results = [wrap(xp.ascontiguousarray(kept))]
    if not return_inverse and not return_counts:
        return results[0]
    group = xp.cumsum(starts) - 1
    if return_inverse:
        results.append(wrap(group.reshape(array.shape if dim is None else -1)))
    if return_counts:
        results.append(wrap(xp.bincount(group.astype(np.int64), minlength=int(starts.sum()))))
    return tuple(results)


@export(method=False)
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Flat positions as one tensor of positions per dimension."""
    sizes = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    if indices._array.dtype.kind not in "iu":
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    found, left = [], indices.to(dtypes.int64)
    for n in reversed(sizes):
        found.append(left % n)
        left = left // n
    return tuple(reversed(found))


def _copy_to_write(input: Tensor, values: Sequence[Tensor]) -> Tensor:
    """A copy of input; in `vmap` with memory for each element that the values to write have."""
    for value in values:
        if is_batched(value._array):
            never = value.new_zeros(input._array.shape, dtype=dtypes.bool_)
            input = POINTWISE["where"](never, input, input)
    return input.clone()


@export()
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of input with src at one position along `dim`."""
    if src.shape != input.select(dim, index).shape:
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(input.select(dim, index).shape)}"
        )
    found = _copy_to_write(input, (src,))
    found.select(dim, index).copy_(src)
    return found


@export()
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """A copy of input with src at the positions start:end:step along `dim`."""
    place = normalize_dim(dim, input._array.ndim)
    index = (slice(None),) * place + (slice(start, end, step),)
    found = _copy_to_write(input, (src,))
    if src.shape != found[index].shape:
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(found[index].shape)}"
        )
    found[index] = src
    return found


@export()
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy of input with src on a diagonal."""
    found = _copy_to_write(input, (src,))
    view = found.diagonal(offset, dim1, dim2)
    if src.shape != view.shape:
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(view.shape)}"
        )
    view.copy_(src)
    return found


@export()
def unsafe_split_with_sizes(
    input: Tensor, split_sizes: Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """`split_with_sizes` whose views can be changed in place."""
    return input.unsafe_split(list(split_sizes), dim)


@export()
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """`split` into parts of these lengths."""
    return input.split(list(split_sizes), dim)


@export()
def index_put(
    input: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False
) -> Tensor:
    """A copy of input with `values` at the positions of `input[indices]`."""
    copied = _copy_to_write(input, (*[i for i in indices if i is not None], values))
    return copied.index_put_(tuple(indices), values, accumulate)


@export()
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Counts of elements in `bins` equal intervals of [min, max] (of the data if both are 0)."""
    check_floating("histogram_cpu", input)
    if bins <= 0:
        raise RuntimeError(f"histc(): bins must be > 0, but got {bins}")
    array = input.detach()._array
    if type(array) is MetaArray:
        return wrap(MetaArray((bins,), array.dtype))
    limits = (min, max)
    if min == max and array.size:
        limits = (float(array.min()), float(array.max()))
    if limits[0] == limits[1]:
        limits = (limits[0] - 1, limits[1] + 1)
    if not (math.isfinite(limits[0]) and math.isfinite(limits[1])):
        raise RuntimeError(f"histc(): range of [{limits[0]}, {limits[1]}] is not finite")
    if limits[0] > limits[1]:
        raise RuntimeError("histc(): max must be larger than min")
    counts, _ = np.histogram(array, bins, limits)
    return wrap(counts.astype(array.dtype))


HISTOGRAM = return_type("histogram", "hist", "bin_edges")


@export()
def histogram(
    input: Tensor,
    bins: Any = 100,
    *,
    range: Any = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    """(how many elements lie in each bin, the edges of the bins), both in input's dtype.

    bins: how many of equal width over `range` (default: from the least to the largest element), or
    their edges.
    """
    if input._array.dtype not in (np.float32, np.float64):
        raise dtypes.refused("histogram_cpu", input._array.dtype)
    xp = array_module(input._array)
    edges = bins._array if isinstance(bins, Tensor) else bins
    if not isinstance(bins, Tensor) and bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins}")
    if not isinstance(bins, Tensor):
        low, high = range or (0.0, 0.0)
        if range is None and input._array.size:
            low, high = float(input._array.min()), float(input._array.max())
        if low == high:
            empty = range is None and not input._array.size
            low, high = (low, high + 1) if empty else (low - 0.5, high + 0.5)
        edges = xp.linspace(low, high, bins + 1).astype(input._array.dtype)
    weights = None if weight is None else weight._array.reshape(-1)
    counts, _ = xp.histogram(input._array.reshape(-1), edges, weights=weights)
    counts = counts.astype(input._array.dtype)
    if density:
        counts = counts / (counts.sum() * xp.diff(edges))
    return HISTOGRAM(wrap(counts), wrap(edges))


@export(method=False)
def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor like input that has one value, a number or a 0-dimensional tensor."""
    return input.clone().fill_(value)


@export(method=False)
def get_device(input: Tensor) -> int:
    """The number of the tensor's GPU, -1 on the CPU."""
    return input.get_device()
