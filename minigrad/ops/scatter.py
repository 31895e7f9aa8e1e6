"""Elements written, added or reduced at an index along a dimension."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np

from kernels import dispatch
from minigrad import dtypes
from minigrad._foreign import check_tensors
from minigrad._overlap import check_no_overlap
from minigrad.autograd.mode import mode
from minigrad.autograd.node import Op
from minigrad.backends import array_module, on_gpu
from minigrad.ops.brackets import plus_multiple
from minigrad.ops.index import (
    FEW,
    Scatter,
    ScatterAdd,
    as_vectors,
    check_index,
    check_source,
    inside,
    padded,
    wrong_index,
)
from minigrad.ops.inplace import check_writable, inplace
from minigrad.ops.pointwise import POINTWISE
from minigrad.tensor import Tensor, export, normalize_dim, wrap


@export()
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """input with src added at index along dim; equal positions add up."""
    check_tensors("scatter_add", index=index, src=src)
    return _scattered(ScatterAdd, input, dim, index, src)


def _scattered(op: type[Op], input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    place = normalize_dim(dim, input._array.ndim)
    result = op.apply(*as_vectors(input, index, src), dim=place)
    return result if input._array.ndim else result.reshape(())


@export()
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    *,
    value: Any = None,
    reduce: str | None = None,
) -> Tensor:
    """input with the elements of src written to the places along dim that index names.

    For dim 0 and two dimensions: out[index[i, j], j] = src[i, j]. index: int64, with as many
    dimensions as input. src: a tensor at least as long as index in each dimension, or a number
    (`value`). reduce: "add" or "multiply" instead of writing. Where several elements go to one
    place, one of them is written.

    Example::

        minigrad.zeros(2, 3).scatter(1, minigrad.tensor([[2], [0]]), 1.0)
        # tensor([[0., 0., 1.],
        #         [1., 0., 0.]])
    """
    check_tensors("scatter", index=index)
    source = _as_tensor(value if src is None else src, input, index)
    if reduce is not None and isinstance(src, Tensor):
        warnings.warn(_REDUCE_OF_TENSORS, UserWarning, stacklevel=3)
    if reduce == "multiply":
        return scatter_reduce(input, dim, index, source, "prod")
    if reduce not in (None, "add"):
        raise RuntimeError("reduce argument must be either add or multiply.")
    return _scattered(Scatter if reduce is None else ScatterAdd, input, dim, index, source)


_REDUCE_OF_TENSORS = (
    "The reduce argument of torch.scatter with Tensor src is deprecated and will be removed in a "
    "future PyTorch release. Use torch.scatter_reduce instead for more reduction options."
)


def _as_tensor(source: Any, x: Tensor, index: Tensor) -> Tensor:
    """A number as a tensor of x's dtype and index's shape."""
    if isinstance(source, Tensor):
        return source
    source, like = dtypes.fitting(source, x._array.dtype), x._array
    return wrap(array_module(like).full(index._array.shape, source, like.dtype))


@functools.lru_cache(16)
def _starts(shape: tuple, region: tuple, dim: int) -> np.ndarray:
    """Where the lines along dim that an index of shape `region` reaches begin in an array."""
    places = np.ogrid[tuple([slice(0, 1 if d == dim else n) for d, n in enumerate(region)])]
    return sum(p * math.prod(shape[d + 1 :]) for d, p in enumerate(places))


class ScatterReduce(Op):
    """The product or an extremum of x and of what src has for the same place."""

    saves = (0, 1, 2)
    saves_outputs = (0,)

    @staticmethod
    def rule(x: Tensor, index: Tensor, src: Tensor, dim: int, reduce: str) -> None:
        check_index("scatter_reduce", x, index, dim)
        check_source("scatter", x, index, src)

    @staticmethod
    def forward(x: Any, index: Any, src: Any, dim: int, reduce: str) -> Any:
        xp, out = array_module(x), dispatch.active.copy(x)
        region = tuple([slice(0, n) for n in index.shape])
        start = xp.asarray(_starts(out.shape, index.shape, dim))
        step = math.prod(out.shape[dim + 1 :])
        if type(index) is np.ndarray:
            places = np.multiply(index, step, dtype=np.int64)
            places += start
        else:
            places = plus_multiple(start, step, index)
        places = places.reshape(-1)  # flat: ufunc.at is fast
        used = src[region].reshape(-1)
        if reduce == "prod" and on_gpu(out):  # CuPy has no multiply.at: the CPU multiplies
            host = out.get()
            np.multiply.at(host.reshape(-1), places.get(), used.get())
            out.set(host)
            return out
        ufunc = {"prod": xp.multiply, "amax": xp.maximum, "amin": xp.minimum}[reduce]
        with np.errstate(invalid="ignore"):  # NaN wins quietly
            ufunc.at(out.reshape(-1), places, used)
        return out

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int, reduce: str) -> tuple:
        x, index, src, y = ctx.tensors()
        region = tuple([slice(0, n) for n in index._array.shape])
        used = src[region]
        if reduce == "prod":
            gx, gs = _product_gradients(g, x, index, used, y, dim)
        else:
            mine = (x == y).to(g.dtype)
            theirs = (used == y.gather(dim, index)).to(g.dtype)
            share = g / mine.scatter_add(dim, index, theirs)  # ties share the gradient
            gx, gs = mine * share, theirs * share.gather(dim, index)
        return (gx, None, padded(gs, src._array.shape))


def _product_gradients(
    g: Tensor, x: Tensor, index: Tensor, src: Tensor, y: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """The gradient of a factor is the product of the others. A factor of 0 is replaced by 1 in it;
    of several zeros in src at one place, each has a gradient of 0."""

    def product(x: Tensor, src: Tensor) -> Tensor:
        return ScatterReduce.apply(x, index, src, dim=dim, reduce="prod")

    ones = x.masked_fill(x == 0, 1)
    zero = src == 0
    zeros = (x * 0).scatter_add(dim, index, zero.to(x.dtype)).gather(dim, index)
    single = zero & (zeros == 1)
    without = (g * product(x, src.masked_fill(single, 1))).gather(dim, index)
    others = (g * y).gather(dim, index) / src.masked_fill(zero, 1)
    return g * product(ones, src) / ones, POINTWISE["where"](single, without, others)


@export()
def scatter_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """input with src reduced into it at index along dim: by "sum", "prod", "mean", "amax" or
    "amin". Without include_self, places that the index names start from nothing."""
    check_tensors("scatter_reduce", index=index, src=src)
    identities = {"sum": 0, "mean": 0, "prod": 1, "amax": -math.inf, "amin": math.inf}
    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if reduce not in identities:
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        )
    if src._array.dtype != input._array.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    if reduce in ("amax", "amin") and input._array.dtype.kind == "c":
        raise dtypes.refused(f"scatter_gather_tensor_cpu_reduce_{reduce}", input._array.dtype)
    if reduce == "mean" and input._array.dtype.kind == "b":
        raise dtypes.refused("scatter_reduce_mean", input._array.dtype)
    if not include_self:
        first = identities[reduce]
        if math.isinf(first) and input._array.dtype.kind == "b":
            first = first > 0
        elif math.isinf(first) and not input.is_floating_point():
            limits = np.iinfo(input._array.dtype)
            first = limits.min if first < 0 else limits.max
        input = scatter(input, dim, index, first)
    if reduce not in ("sum", "mean"):
        place = normalize_dim(dim, input._array.ndim)
        result = ScatterReduce.apply(*as_vectors(input, index, src), dim=place, reduce=reduce)
        return result if input._array.ndim else result.reshape(())
    total = scatter_add(input, dim, index, src)
    if reduce == "sum":
        return total
    xp, shape = array_module(input._array), input._array.shape
    count = wrap((xp.ones if include_self else xp.zeros)(shape, input._array.dtype))
    count = scatter_add(count, dim, index, wrap(xp.ones(src._array.shape, input._array.dtype)))
    count = count.masked_fill(count == 0, 1)
    if input._array.dtype.kind in "biu":
        return total.div(count, rounding_mode="floor")
    return total / count


def _written(name: str, op: type[Scatter] | type[ScatterAdd]) -> None:
    """Define `Tensor.name_`, which writes into the tensor itself where no gradient is recorded."""
    inplace(name)
    general = getattr(Tensor, f"{name}_")

    @functools.wraps(general)
    def method(self: Tensor, dim: int, index: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        given = (*args, *[kwargs[key] for key in ("src", "value") if key in kwargs])
        alone = len(args) + len(kwargs) == len(given) == 1
        alone = alone and (op is Scatter or isinstance(given[0], Tensor))
        if not alone or not _may_be_written(self, index, given[0]):
            return general(self, dim, index, *args, **kwargs)
        check_writable(self)
        src = _as_tensor(given[0], self, index) if op is Scatter else given[0]
        index, src = as_vectors(index, src)
        check_no_overlap(self._array)
        place = normalize_dim(dim, self._array.ndim)
        op.rule(self, index, src, place)
        x, at, values = self._array, index._array, src._array
        if at.size <= FEW and at.shape == values.shape and inside(x, at, place):
            dispatch.together(_into(name, place), x, at, values)
        else:
            launch = getattr(dispatch.active, name)
            launch(x, place, at, values, out=x, error=wrong_index(x, place))
        self._counter[0] += 1
        return self

    setattr(Tensor, f"{name}_", method)


@functools.cache
def _into(name: str, dim: int) -> Any:
    """An operation at an index along a dimension, in place, as remembered launches know it."""
    return lambda x, at, values: getattr(dispatch.active, name)(x, dim, at, values, out=x)


def _may_be_written(x: Tensor, index: Any, src: Any) -> bool:
    """Whether elements of src can be written into x by one launch, and no one records that."""
    tensors = [t for t in (x, index, src) if isinstance(t, Tensor)]
    if mode.recorder is not None or mode.observer is not None or not isinstance(index, Tensor):
        return False
    if mode.enabled and any(t.requires_grad for t in tensors):
        return False
    array = x._array
    if array.dtype.kind == "c" or not array.ndim or not getattr(array.flags, "writeable", True):
        return False
    if any(type(t._array) is not type(array) for t in tensors):
        return False  # of another device
    return not any(array_module(array).may_share_memory(array, t._array) for t in tensors[1:])


for _name, _op in (("scatter", Scatter), ("scatter_add", ScatterAdd)):
    _written(_name, _op)
