"""Reductions: sums, means, extrema, norms, and compositions of them."""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from kernels import dispatch
from kernels.launchers.common import on_gpu
from kernels.pointwise import Expr, names_in
from kernels.reduction import TABLE, Reduction
from minigrad import dtypes
from minigrad._meta_results import results as meta_results
from minigrad._names import return_type
from minigrad.autograd.mode import autocasts, mode
from minigrad.autograd.node import Op
from minigrad.backends import array_module, every_element
from minigrad.ops.pointwise import POINTWISE, Pointwise, is_narrow, on_tensors, rounded_once
from minigrad.ops.views import expand_array
from minigrad.tensor import Tensor, as_int, check_flag, export, functions, normalize_dim, wrap

Dims = int | Sequence[int] | None


def _again(key: str, x: Any, axes: tuple | None, keepdim: bool, dtype: Any) -> Any:
    """The result by a remembered launch, or None."""
    name = dispatch.named("reduce", key, axes, keepdim, dtype)
    return dispatch.relaunch(dispatch.tracer, dispatch.active, name, x)


class Reduce(Op):
    """A reduction of the table over axes (None: all). `REDUCTIONS` has one subclass per line with a
    gradient.

    key: the name of the line. gradient: a function of g and n, which needs nothing saved, or of
    the variables `names`.
    """

    key: ClassVar[str] = ""
    names: ClassVar[tuple[str, ...]] = ()
    gradient: ClassVar[Callable | None] = None  # g itself

    @classmethod
    def again(cls, x: Any, axes: tuple | None, keepdim: bool, dtype: Any = None) -> Any:
        return _again(cls.key, x, axes, keepdim, dtype)

    @classmethod
    def forward(cls, x: Any, axes: tuple | None, keepdim: bool, dtype: Any = None) -> Any:
        if x.dtype.kind == "c":
            if cls.key not in ("sum", "mean"):
                raise dtypes.refused(cls.key, x.dtype)
            xp, wanted = array_module(x), x.dtype if dtype is None else dtype
            x = (x if wanted.kind == "c" else x.real).astype(wanted, copy=False)
            return xp.asarray(getattr(xp, cls.key)(x, axis=axes, keepdims=keepdim))
        return dispatch.active.reduce(cls.key, x, axes, keepdim, dtype)

    @classmethod
    def vjp(
        cls, ctx: Any, g: Tensor, axes: tuple | None, keepdim: bool, dtype: Any = None
    ) -> tuple:
        shape = ctx.shapes[0]
        if cls.gradient is None:
            return (spread(g, shape, axes, keepdim),)
        if not cls.saves:
            return (spread(cls.gradient(g, _count(shape, axes)), shape, axes, keepdim),)
        x, y = ctx.tensors()
        values = {"g": with_reduced(g, shape, axes), "x": x, "y": with_reduced(y, shape, axes)}
        for name in cls.names:
            if name not in values:
                values[name] = _DERIVED[name](cls.key, values, shape, axes)
        result = cls.gradient(*[values[name] for name in cls.names])
        return (_expanded(result, shape),)


def _operation(line: Reduction) -> type[Reduce]:
    """The operation of a line of the table."""
    own: dict[str, Any] = {"__doc__": f"{line.name} over axes.", "key": line.name, "saves": ()}
    if line.name.startswith("norm"):
        own["grad_name"] = "LinalgVectorNormBackward0"
    names = tuple(sorted(names_in(line.gradient)))
    if not set(names) <= {"g", "n"}:
        own["saves"] = own["saves_outputs"] = (0,)
        own["names"] = names
        own["gradient"] = staticmethod(on_tensors(line.gradient, names))
    elif line.gradient != "g":
        own["gradient"] = staticmethod(on_tensors(line.gradient, ("g", "n")))
    return type("".join(word.capitalize() for word in line.name.split("_")), (Reduce,), own)


REDUCTIONS: dict[str, type[Reduce]] = {
    line.name: _operation(line) for line in TABLE.values() if line.gradient is not None
}

ALONG = REDUCTIONS | {
    op.key: type(op.__name__, (op,), {"grad_name": f"{op.name}Backward1"})
    for op in (REDUCTIONS["sum"], REDUCTIONS["mean"], REDUCTIONS["prod"])
}
"""The same over some axes, whose nodes torch calls otherwise."""


class Deviations(Op):
    """The sum of the squares of the distances from the mean, over axes (None: all)."""

    saves = (0,)

    @staticmethod
    def again(x: Any, axes: tuple | None, keepdim: bool) -> Any:
        return _again("deviations", x, axes, keepdim, None)

    @staticmethod
    def forward(x: Any, axes: tuple | None, keepdim: bool) -> Any:
        return dispatch.active.deviations(x, axes, keepdim)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, axes: tuple | None, keepdim: bool) -> tuple:
        (x,) = ctx.tensors()
        g = with_reduced(g, ctx.shapes[0], axes)
        if mode.enabled:
            return ((x - mean(x, axes, keepdim=True)) * (2 * g),)
        return (wrap(dispatch.together(_slopes_of_deviations(axes), x._array, g._array)),)


@functools.cache
def _slopes_of_deviations(axes: tuple | None) -> Callable:
    """The gradient of `Deviations`, as remembered launches know it."""

    def launches(x: Any, g: Any) -> Any:
        means = dispatch.active.reduce("mean", x, axes, True)
        return dispatch.active.pointwise(_SLOPE, x, means, g)

    return launches


_SLOPE = Expr("slope_of_deviations", ("x", "mean", "g"), "(x - mean) * (2 * g)")


NORMS: dict[str, Callable] = {}
"""Norms of matrices by their names: (x, dim, keepdim), filled by `minigrad.ops.eigen`."""


def reduce(name: str, x: Tensor, dim: Dims, keepdim: bool, dtype: Any = None) -> Tensor:
    """x reduced over `dim` (all dimensions for None) with a line of the table."""
    if keepdim is not False:
        check_flag("norm" if name.startswith("norm") else name, "keepdim", keepdim)
    axes = axes_of(dim, x._array.ndim)
    op = (REDUCTIONS if axes is None else ALONG).get(name)
    if op is None:  # no gradient
        if x.is_meta:
            found = meta_results(
                lambda a: dispatch.active.reduce(name, a, axes, keepdim, dtype), (x._array,)
            )
        else:
            found = _again(name, x._array, axes, keepdim, dtype)
        if found is None:
            found = dispatch.active.reduce(name, x._array, axes, keepdim, dtype)
        result = wrap(found)
        if mode.observer is not None:
            mode.observer(TABLE[name], (x,), {"axes": axes, "keepdim": keepdim}, (result,))
        return result
    return op.apply(x, axes=axes, keepdim=keepdim, dtype=dtype)


def _count(shape: tuple, axes: tuple | None) -> int:
    """n: the number of elements per result; 1 for none, so that nothing divides by 0."""
    return math.prod(shape if axes is None else [shape[i] for i in axes]) or 1


def _ties(key: str, values: dict, shape: tuple, axes: tuple | None) -> Tensor:
    """ties: the number of elements whose mapped value equals the result, or is NaN."""
    x, y = values["x"].detach(), values["y"].detach()
    equal = POINTWISE["eq"](on_tensors(TABLE[key].map, ("x",))(x), y) | POINTWISE["isnan"](x)
    return sum(equal.to(x.dtype), axes, keepdim=True)


def _others(key: str, values: dict, shape: tuple, axes: tuple | None) -> Tensor:
    """others: per element, the product of the other elements of its result, exact also with zeros.

    With zeros, the n elements of a result become the rows of an n by n matrix with ones on the
    diagonal, whose row products are computed: O(n^2) memory.
    """
    x = values["x"]
    if every_element(x._array).all():
        return values["y"] / x
    ndim = len(shape)
    axes = tuple(range(ndim)) if axes is None else axes
    kept = [d for d in range(ndim) if d not in axes]
    order = [*kept, *axes]
    moved = x.permute(order)
    group = moved.flatten(len(kept)) if axes else moved.unsqueeze(-1)
    n = group._array.shape[-1]
    eye = wrap(array_module(x._array).eye(n, dtype=bool))
    rows = group.unsqueeze(-2).expand(*group._array.shape[:-1], n, n).masked_fill(eye, 1)
    others = prod(rows, -1).reshape(moved._array.shape)
    inverse = [order.index(d) for d in range(ndim)]
    return others.permute(inverse)


_DERIVED = {
    "n": lambda key, values, shape, axes: _count(shape, axes),
    "ties": _ties,
    "others": _others,
}


def spread(g: Tensor, shape: tuple, axes: tuple | None, keepdim: bool) -> Tensor:
    """A reduced tensor expanded to the shape before the reduction."""
    return _expanded(g if keepdim else with_reduced(g, shape, axes), shape)


def with_reduced(g: Tensor, shape: tuple, axes: tuple | None) -> Tensor:
    """A reduced tensor with its reduced dimensions as ones, so that it broadcasts to `shape`."""
    if axes is None or g._array.ndim == len(shape):
        return g
    kept = tuple([1 if i in axes else n for i, n in enumerate(shape)])
    return g.reshape(kept) if mode.enabled else wrap(g._array.reshape(kept))


def _expanded(g: Tensor, shape: tuple) -> Tensor:
    """g expanded to a shape; without a view record if nothing is recorded."""
    if g._array.shape == shape:
        return g
    return g.expand(shape) if mode.enabled else wrap(expand_array(g._array, shape))


def axes_of(dim: Any, ndim: int) -> tuple[int, ...] | None:
    """`dim=` as sorted non-negative axes; None (or an empty sequence) for all."""
    if dim is None:
        return None
    if type(dim) is int or not isinstance(dim, Sequence):
        place = normalize_dim(dim, ndim)
        return (place,) if ndim else None
    if type(dim) is tuple and set(map(type, dim)) == {int}:
        return _known_axes(dim, ndim)
    return _sorted_axes(dim, ndim)


def _sorted_axes(dims: Sequence, ndim: int) -> tuple[int, ...] | None:
    axes = tuple(sorted([normalize_dim(d, ndim) for d in dims]))
    for a, b in itertools.pairwise(axes):
        if a == b:
            raise RuntimeError(f"dim {a} appears multiple times in the list of dims")
    return (axes or None) if ndim else None


_known_axes = functools.lru_cache(_sorted_axes)


def one_dim(dim: Any, axis: Any) -> Any:
    """`dim`, or its NumPy spelling `axis`, which torch accepts everywhere."""
    return axis if dim is None else dim


def sum_dtype(x: Tensor, dtype: Any) -> np.dtype:
    """The dtype of a sum or product: `dtype` if given, else int64 for integers and bools."""
    if dtype is not None:
        return dtypes.to_numpy_dtype(dtype)
    found = x._array.dtype
    return found if found.kind not in "bui" else np.dtype(np.int64)


@export()
def sum(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    axis: Dims = None,
    keepdims: bool = False,
    out: None = None,
) -> Tensor:
    """Sum over `dim` (all dimensions for None); integers give int64."""
    if keepdim is not False:
        check_flag("sum", "keepdim", keepdim)
    dim = axis if dim is None else dim
    array = input._array
    axes = None if dim is None else axes_of(dim, array.ndim)
    if dtype is None and array.dtype.kind == "f":
        target = array.dtype
    else:
        target = sum_dtype(input, dtype)
        if target.kind == "c" != array.dtype.kind:
            input = input.to(target)  # kernels add no complex numbers
    op = (REDUCTIONS if axes is None else ALONG)["sum"]
    return op.apply(input, axes=axes, keepdim=keepdim or keepdims, dtype=target)


@export()
def mean(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    axis: Dims = None,
    keepdims: bool = False,
) -> Tensor:
    """Mean over `dim`; needs a floating dtype."""
    if keepdim is not False:
        check_flag("mean", "keepdim", keepdim)
    dim = one_dim(dim, axis)
    target = input._array.dtype if dtype is None else dtypes.to_numpy_dtype(dtype)
    if dtypes.category(target) < dtypes.FLOATING:
        name = dtypes.from_numpy_dtype(target).legacy_name.removesuffix("Tensor")
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or "
            f"complex dtype. Got: {name}"
        )
    if target.kind == "c" != input._array.dtype.kind:
        input = input.to(target)
    axes = None if dim is None else axes_of(dim, input._array.ndim)
    op = (REDUCTIONS if axes is None else ALONG)["mean"]
    return op.apply(input, axes=axes, keepdim=keepdim or keepdims, dtype=target)


@export()
@autocasts
def prod(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """Product over one dimension, or all."""
    check_one_dim("prod", dim)
    input = input if dtype is None else input.to(dtypes.to_numpy_dtype(dtype))
    if input.is_complex():
        return _complex_prod(input, dim, keepdim)
    return reduce("prod", input, dim, keepdim, sum_dtype(input, dtype))


def check_one_dim(name: str, dim: Any) -> None:
    """TypeError for several dimensions where a function takes one."""
    if dim is not None and not isinstance(dim, int):
        as_int(f"{name}(): dim", dim)


def _complex_prod(x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    """The product, of halves until one element is left."""
    if dim is None:
        return _complex_prod(x.reshape(-1), 0, False)
    place = normalize_dim(dim, x._array.ndim)
    if not x._array.ndim:
        return x.clone()
    x = x.movedim(place, 0)
    if not len(x):
        x = x.sum(0, True) + 1  # part of the graph, as every product is
    while len(x) > 1:
        half = len(x) // 2
        x = functions.cat([x[:half] * x[half : 2 * half], x[2 * half :]])
    return x.movedim(0, place) if keepdim else x[0]


def _define_test(name: str) -> None:
    def function(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
        if isinstance(dim, tuple | list) and not dim:  # over no dimension, unlike a sum
            result = POINTWISE["ne"](input, 0)
        else:
            result = reduce(name, input, dim, keepdim)
        return result if input._array.dtype != np.uint8 else result.to(np.dtype(np.uint8))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Whether {name} elements (over `dim`) are non-zero; uint8 gives uint8."
    export()(function)


_define_test("any")
_define_test("all")


def values_and_indices(name: str) -> type:
    """The named tuple that the operation `name` returns; it prints as torch's do."""
    return return_type(name, "values", "indices")


@export()
def var(
    input: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    axis: Dims = None,
) -> Tensor:
    """Variance over `dim`, divided by N - correction (1 unless `unbiased=False`)."""
    return _variance("var", input, dim, unbiased, keepdim, correction, axis)


def _variance(
    name: str,
    input: Tensor,
    dim: Any,
    unbiased: bool,
    keepdim: bool,
    correction: float | None,
    axis: Dims,
) -> Tensor:
    if isinstance(dim, bool):  # torch's var(input, unbiased)
        dim, unbiased = None, dim
    check_flag(name, "unbiased", unbiased)
    check_flag(name, "keepdim", keepdim)
    dim = one_dim(dim, axis)
    correction = int(unbiased) if correction is None else correction
    if is_narrow(input._array):
        return rounded_once(lambda x: var(x, dim, keepdim=keepdim, correction=correction), input)
    if input.is_complex():
        parts = [
            var(x, dim, keepdim=keepdim, correction=correction) for x in (input.real, input.imag)
        ]
        return parts[0] + parts[1]
    if not input.is_floating_point():
        raise RuntimeError("std and var only support floating point and complex dtypes")
    axes = axes_of(dim, input._array.ndim)
    if mode.observer is None:
        total = Deviations.apply(input, axes=axes, keepdim=keepdim)
    else:  # in operations that others know, such as those of ONNX
        total = sum(POINTWISE["square"](input - mean(input, axes, keepdim=True)), axes, keepdim)
    freedom = input._array.size // (total._array.size or 1) - correction
    if freedom <= 0:
        warnings.warn(
            f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the "
            "reduction factor (input numel divided by output numel).",
            UserWarning,
            stacklevel=5,  # the caller of the method or function
        )
    return total / (freedom if freedom > 0 else 0)


@export()
def std(
    input: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    axis: Dims = None,
) -> Tensor:
    """Square root of `var`; the gradient is zero if all elements are equal."""
    if is_narrow(input._array):
        return rounded_once(
            lambda x: std(x, dim, unbiased, keepdim, correction=correction, axis=axis), input
        )
    squared = _variance("std", input, dim, unbiased, keepdim, correction, axis)
    return (POINTWISE["sqrt"] if mode.observer is not None else _DEVIATION)(squared)


_DEVIATION = Pointwise(
    Expr(
        "root_of_variance", ("x",), "sqrt(x)",
        grads=("where(y == 0, 0, g / (2 * where(y == 0, 1, y)))",), domain="float",
    )
)  # fmt: skip


def _with_mean(name: str, spread: Callable) -> None:
    def function(
        input: Tensor,
        dim: Any = None,
        unbiased: bool = True,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        result = spread(input, dim, unbiased, keepdim, correction=correction)
        return result, mean(input, None if isinstance(dim, bool) else dim, keepdim)

    function.__name__ = function.__qualname__ = f"{name}_mean"
    function.__doc__ = f"({name}, mean), with the arguments of `{name}`."
    export(method=False)(function)


_with_mean("var", var)
_with_mean("std", std)


@export()
def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """(sum of |x| ** p) ** (1 / p) over `dim`; p may be "fro" (2), inf, -inf or 0."""
    x = input if dtype is None else input.to(dtype)
    if x.is_complex() and p != "nuc":
        x = x.abs()
    if not (x.is_floating_point() or x.is_complex()):
        name = x.dtype.legacy_name.removesuffix("Tensor")
        raise RuntimeError(
            f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {name}"
        )
    if x.dtype.itemsize == 2 and p not in (None, "fro", 2):  # powers overflow 16 bits
        return norm(x.to(dtypes.float32), p, dim, keepdim).to(x.dtype)
    if p == "nuc":
        return NORMS["nuc"](x, dim, keepdim)
    if p in (None, "fro", 2):
        return reduce("norm2", x, dim, keepdim)
    axes = axes_of(dim, x._array.ndim)
    if p == 1:
        return reduce("norm1", x, axes, keepdim)
    if p == float("inf") and x._array.size:
        return reduce("norm_inf", x, axes, keepdim)
    if p in (float("inf"), -float("inf")):
        return (functions.amax if p > 0 else functions.amin)(POINTWISE["abs"](x), axes, keepdim)
    if p == 0:  # counts; x * 0 gives the gradient, which is zero
        return sum(POINTWISE["ne"](x, 0) + POINTWISE["sign"](x) * 0, axes, keepdim)
    if not isinstance(p, int | float):
        raise RuntimeError(f"norm: expected a number, 'fro' or inf for p, got {p!r}")
    if p == 3 and not on_gpu(x._array):  # a CPU multiplies faster than it raises
        total = sum(POINTWISE["cube"](POINTWISE["abs"](x)), axes, True)
    else:
        total = sum(POINTWISE["abs_pow"](x, params=(p,)), axes, True)
    zero = POINTWISE["eq"](total, 0)
    if p < 0:
        zero = POINTWISE["ne"](sum(POINTWISE["eq"](x, 0), axes, True), 0)
    root = POINTWISE["where"](zero, 0.0, POINTWISE["where"](zero, 1.0, total) ** (1.0 / p))
    return root if keepdim else sum(root, axes)


@export()
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of input - other."""
    return norm(input - other, p)


@export()
def count_nonzero(input: Tensor, dim: Dims = None) -> Tensor:
    """How many elements differ from zero."""
    return sum(POINTWISE["ne"](input, 0), dim)


@export()
def nansum(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Sum over `dim` with NaN counted as zero."""
    dtypes.refuse_complex("nansum does not support complex inputs", input._array.dtype)
    if not input.is_floating_point():
        return sum(input, dim, keepdim, dtype=dtype)
    target = sum_dtype(input, dtype)
    if dtypes.category(target) != dtypes.FLOATING or mode.observer is not None:
        filled = input.masked_fill(POINTWISE["isnan"](input), 0)  # no integer is NaN
        return sum(filled, dim, keepdim, dtype=dtype)
    return reduce("nansum", input, dim, keepdim, target)


@export()
def nanmean(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Mean over `dim` of the elements that are not NaN."""
    if not input.is_floating_point():
        raise RuntimeError(
            f"nanmean(): expected input to have floating point or complex dtype but got "
            f"{input.dtype}"
        )
    present = POINTWISE["logical_not"](POINTWISE["isnan"](input))
    return nansum(input, dim, keepdim, dtype=dtype) / sum(present, dim, keepdim)
