"""Matrix products: matmul, and the functions built on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from kernels import dispatch
from minigrad import dtypes
from minigrad._foreign import no_tensor, reject_foreign
from minigrad.autograd.mode import autocasts, joining, mode
from minigrad.autograd.node import Op, titled
from minigrad.backends import array_module, is_batched
from minigrad.backends.current import Found
from minigrad.ops.former import numbers_first
from minigrad.ops.pointwise import POINTWISE, broadcast_shape, is_narrow, rounded_once
from minigrad.ops.views import Diagonal, ZerosExceptView, reshaped, unshared
from minigrad.overrides import operator_of_other
from minigrad.tensor import Tensor, export, functions, normalize_dim, wrap

_NAME = dispatch.named("matmul")


def _dtype_name(x: Tensor) -> str:
    return {"float32": "float", "float64": "double", "int64": "long", "int32": "int"}.get(
        x.dtype.name, x.dtype.name
    )


def _check_addmm(c: Tensor, a: Tensor, b: Tensor) -> None:
    """RuntimeError unless c + a @ b is of one dtype."""
    for value in (a, b):
        if not isinstance(value, Tensor):
            raise no_tensor("addmm", "mat1" if value is a else "mat2", value)
    for names, x, y in (("mat1 and mat2", a, b), ("self and mat2", c, b)):
        if x._array.dtype != y._array.dtype:
            first, second = (t.dtype.legacy_name.removesuffix("Tensor") for t in (x, y))
            raise RuntimeError(f"{names} must have the same dtype, but got {first} and {second}")


def _same_dtype(a: Tensor, b: Tensor) -> None:
    if a._array.dtype.kind == "b" and a._array.size and b._array.size:
        raise dtypes.refused("addmm_impl_cpu_", a._array.dtype)
    if a._array.dtype != b._array.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {_dtype_name(a)} != "
            f"{_dtype_name(b)}"
        )


class MatMul(Op):
    """(..., m, k) @ (..., k, n); batch dimensions broadcast. Or of one or two vectors, (k,), as of
    matrices of one row or column, which the result then lacks."""

    grad_name = "MmBackward0"
    bilinear = True

    @staticmethod
    def rule(a: Tensor, b: Tensor) -> None:
        _same_dtype(a, b)
        m, n = a._array.shape, b._array.shape
        m, n = (1, *m)[-max(len(m), 2) :], (*n, 1)[: max(len(n), 2)]
        if m[-1] != n[-2]:
            if len(m) == len(n) == 2:
                raise RuntimeError(
                    f"mat1 and mat2 shapes cannot be multiplied ({m[0]}x{m[1]} and {n[0]}x{n[1]})"
                )
            raise RuntimeError(
                f"matmul: inner dimensions differ: {list(m)} @ {list(n)}; "
                "transpose one of the operands?"
            )
        if len(m) > 2 or len(n) > 2:
            broadcast_shape(m[:-2], n[:-2])

    @staticmethod
    def again(a: Any, b: Any) -> Any:
        if a.ndim > 1 and b.ndim > 1:
            return dispatch.relaunch(dispatch.tracer, dispatch.active, _NAME, a, b, None)
        if _is_recorded(b) or Found.several:  # GPUs, of which this may not be the one in use
            return None
        x, y, shape = _matrices(a, b)
        found = dispatch.relaunch(dispatch.tracer, dispatch.active, _NAME, x, y, None)
        return None if found is None else found.reshape(shape)

    @staticmethod
    def forward(a: Any, b: Any) -> Any:
        if a.dtype.kind == "c":
            xp = array_module(a)
            return xp.asarray(xp.matmul(a, b))  # of vectors, NumPy's is a number
        if a.ndim > 1 and b.ndim > 1:
            return dispatch.active.matmul(a, b)
        x, y, shape = _matrices(a, b)
        return dispatch.active.matmul(x, y).reshape(shape)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        a: Any
        b: Any
        a, b = ctx.tensors()
        m, n = ctx.shapes
        if min(len(m), len(n)) == 1:  # as matrices
            rows, columns = (1, *m)[-2:], (*n, 1)[:2]
            a = a if a is None else reshaped(a, rows)
            b = b if b is None else reshaped(b, columns)
            g = reshaped(g, (rows[0], columns[1]))
            x = reshaped(_slope(ctx, 0, g, transposed(b)), m) if ctx.needs[0] else None
            return x, reshaped(_slope(ctx, 1, transposed(a), g), n) if ctx.needs[1] else None
        x = _slope(ctx, 0, g, transposed(b)) if ctx.needs[0] else None
        if len(m) > 2 == len(n) and ctx.needs[1]:  # one product of all rows instead of a batch
            rows = math.prod(m[:-1])
            a, g = reshaped(a, (rows, m[-1])), reshaped(g, (rows, n[-1]))
        return x, _slope(ctx, 1, transposed(a), g) if ctx.needs[1] else None


def _matrices(a: Any, b: Any) -> tuple[Any, Any, tuple]:
    """Factors, of which one is a vector or both are, as matrices, and the shape of the product."""
    x, y = a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    return x, y, a.shape[:-1] + b.shape[1:]


def _is_recorded(x: Any) -> bool:
    return type(x) is not np.ndarray and type(x).__module__ != "cupy"


def _slope(ctx: Any, i: int, x: Tensor, y: Tensor) -> Tensor:
    """x @ y as the gradient of input i; where there is nothing to add up, as for vectors, a
    pointwise product."""
    if joining:
        x, y = joining[0](x, y, ctx.shapes[i], -1, -2)
    return x * y if x._array.shape[-1] == 1 else MatMul.apply(x, y)


def transposed(x: Tensor) -> Tensor:
    """x.mT, of a complex tensor x.mH; without a view record if nothing is recorded."""
    if x._array.dtype.kind == "c":
        return x.mH
    return x.mT if mode.enabled else wrap(x._array.swapaxes(-1, -2))


class Linear(Op):
    """x (..., k) @ weight (n, k).T + bias (n,), or without a bias, as one kernel."""

    grad_name = "AddmmBackward0"
    bilinear = True

    @staticmethod
    def rule(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        if bias is not None and not x._array.dtype == weight._array.dtype == bias._array.dtype:
            _check_addmm(bias, x, weight)
        _same_dtype(x, weight)
        (*rows, k), (n, features) = x._array.shape, weight._array.shape
        if k != features:
            m = math.prod(rows)
            raise RuntimeError(
                f"mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {features}x{n})"
            )
        if bias is not None and bias._array.shape != (n,):
            raise RuntimeError(
                f"linear: expected a bias of shape [{n}] for a weight of shape "
                f"{list(weight.shape)}, got {list(bias.shape)}"
            )

    @staticmethod
    def again(x: Any, weight: Any, bias: Any) -> Any:
        if _is_recorded(weight):
            return None
        return dispatch.relaunch(dispatch.tracer, dispatch.active, _NAME, x, weight.T, bias)

    @staticmethod
    def forward(x: Any, weight: Any, bias: Any) -> Any:
        return dispatch.active.matmul(x, weight.T, bias)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> Sequence[Tensor | None]:
        need = ctx.edges
        of_x, of_weight, of_bias = need
        if not (mode.enabled or (joining and is_batched(g._array))):
            compute = _linear_gradients(
                of_x is not None, of_weight is not None, of_bias is not None
            )
            found = [*dispatch.together(compute, g._array, *ctx.arrays())]
            gradients: list[Tensor | None] = []
            for edge in need:
                gradients.append(None if edge is None else wrap(found.pop()))
            return gradients
        x, weight = ctx.tensors()
        rows = _rows(g)
        return (
            None if need[0] is None else matmul(g, weight),
            None if need[1] is None else _slope(ctx, 1, rows.mT, _rows(x)),
            None if need[2] is None else rows.sum(0),
        )


@cache
def _linear_gradients(of_x: bool, of_weight: bool, of_bias: bool) -> Callable:
    """The function of g (..., n), x (..., k) and weight (n, k), as arrays, that computes those
    gradients of a linear layer that are wanted, the last one first."""

    def compute(g: Any, x: Any, weight: Any) -> tuple:
        active, found = dispatch.active, []
        rows = _rows(g)
        if of_bias:
            found.append(active.reduce("sum", rows, (0,), False, g.dtype))
        if of_weight:
            found.append(active.matmul(rows.swapaxes(0, 1), _rows(x)))
        if of_x:
            found.append(active.matmul(g, weight))
        return tuple(found)

    return compute


def _rows(x: Any) -> Any:
    """A tensor or an array of shape (..., k) as (m, k)."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


@export(method=False)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input (..., in) @ weight (out, in).T + bias (out,)."""
    shape = input._array.shape
    if weight._array.ndim == 1 and shape and bias is None:
        weight.numel()  # raises for that of a lazy layer, which has no shape yet
        return matmul(input, weight)
    if weight._array.ndim != 2 or not shape:
        raise RuntimeError(
            f"linear: expected input (..., in_features) and weight (out_features, in_features), "
            f"got {list(shape)} and {list(weight.shape)}"
        )
    if input._array.dtype.kind == "c":
        out = matmul(input, weight.t())
        return out if bias is None else out + bias
    if len(shape) == 1:
        return unshared(linear(input.reshape(1, *shape), weight, bias).reshape(-1))
    out = Linear.apply(input, weight, bias)
    if bias is None:
        titled(out, "MmBackward0" if len(shape) == 2 else "UnsafeViewBackward0")
    return out


@export()
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Product of vectors, matrices or batches of matrices, as NumPy's `@`."""
    if not isinstance(other, Tensor):
        raise no_tensor("matmul", "other", other)
    a, b = input._array.ndim, other._array.ndim
    if a == 0 or b == 0:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {a}D and {b}D"
        )
    if a == 1 and b == 1:
        return _dot(input, other)
    if a + b == 3:
        return titled(MatMul.apply(input, other), "Mv" if b == 1 else "SqueezeBackward4")
    if a == 1:
        return unshared(MatMul.apply(input.unsqueeze(0), other).squeeze(-2))
    if b == 1:
        return unshared(matmul(input, other.unsqueeze(-1)).squeeze(-1))
    out = MatMul.apply(input, other)
    return titled(out, "UnsafeViewBackward0") if a > 2 and b == 2 else out


def _operator(self: Tensor, other: Tensor) -> Tensor:
    if isinstance(other, Tensor):
        return matmul(self, other)
    reject_foreign("matmul", other)
    return operator_of_other("__matmul__", self, other)


setattr(Tensor, "__matmul__", _operator)  # noqa: B010 - as `export` does


@export()
@autocasts
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """Inner product of two vectors."""
    if not isinstance(tensor, Tensor):
        raise no_tensor("dot", "tensor", tensor)
    return _dot(input, tensor)


def _dot(input: Tensor, other: Tensor) -> Tensor:
    """`dot` as a part of `matmul`, which `autocast` runs in 16 bits."""
    a, b = input._array, other._array
    if a.ndim != 1 or b.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {a.ndim}D and {b.ndim}D tensors")
    if a.shape != b.shape:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor {list(a.shape)} and src {list(b.shape)} to "
            f"have the same number of elements, but got {a.size} and {b.size} elements respectively"
        )
    _same_dtype(input, other)
    return titled(MatMul.apply(input, other), "Dot")


@export()
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """(m, k) @ (k, n)."""
    if not isinstance(mat2, Tensor):
        raise no_tensor("mm", "mat2", mat2)
    for name, x in (("self", input), ("mat2", mat2)):
        if x._array.ndim != 2:
            raise RuntimeError(f"{name} must be a matrix")
    return MatMul.apply(input, mat2)


@export()
@autocasts
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """(m, k) @ (k,)."""
    if not isinstance(vec, Tensor):
        raise no_tensor("mv", "vec", vec)
    if input._array.ndim != 2 or vec._array.ndim != 1:
        raise RuntimeError(
            f"vector + matrix @ vector expected, got {input._array.ndim}, {vec._array.ndim}"
        )
    return matmul(input, vec)


@export()
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """(b, m, k) @ (b, k, n)."""
    if not isinstance(mat2, Tensor):
        raise no_tensor("bmm", "mat2", mat2)
    for name, x in (("batch1", input), ("batch2", mat2)):
        if x._array.ndim != 3:
            raise RuntimeError(f"{name} must be a 3D tensor")
    a, b = input._array.shape, mat2._array.shape
    if (a[0], a[2]) != b[:2]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{a[0]}, {a[2]}] but "
            f"got: [{b[0]}, {b[1]}]."
        )
    return MatMul.apply(input, mat2)


@export("ger")
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """The matrix of all products of two vectors."""
    if not isinstance(vec2, Tensor):
        raise no_tensor("outer", "vec2", vec2)
    if input._array.ndim != 1 or vec2._array.ndim != 1:
        raise RuntimeError(
            f"outer: Expected 1-D arguments, got {input._array.ndim}-D and {vec2._array.ndim}-D"
        )
    return POINTWISE["mul"](input.unsqueeze(1), vec2.unsqueeze(0))


@export()
@autocasts
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *former: Any, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2)."""
    if former:
        given = (input, mat1, mat2, *former)
        input, mat1, mat2, beta, alpha = numbers_first("addmm", given, 3, (1, 1))
    _check_addmm(input, mat1, mat2)
    if beta == 1 == alpha and _is_bias(input._array, mat1._array, mat2._array):
        return Linear.apply(mat1, mat2.t(), input)
    if is_narrow(mat1._array):
        return rounded_once(
            lambda a, b, c: addmm(c, a, b, beta=beta, alpha=alpha), mat1, mat2, input
        )
    return _added(input, mm(mat1, mat2), beta, alpha)


def _is_bias(c: Any, a: Any, b: Any) -> bool:
    """Whether c + a @ b is what one kernel computes."""
    return (
        c.ndim == 1
        and a.ndim == b.ndim == 2
        and c.shape == b.shape[1:]
        and a.dtype == b.dtype == c.dtype
        and dtypes.category(a.dtype) == dtypes.FLOATING
    )


@export()
@autocasts
def addmv(
    input: Tensor, mat: Tensor, vec: Tensor, *former: Any, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * input + alpha * (mat @ vec)."""
    if former:
        given = (input, mat, vec, *former)
        input, mat, vec, beta, alpha = numbers_first("addmv", given, 3, (1, 1))
    _check_addmm(input, mat, vec)
    return _added(input, mv(mat, vec), beta, alpha)


@export()
@autocasts
def baddbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *former: Any,
    beta: float = 1,
    alpha: float = 1,
) -> Tensor:
    """beta * input + alpha * bmm(batch1, batch2)."""
    if former:
        given = (input, batch1, batch2, *former)
        input, batch1, batch2, beta, alpha = numbers_first("baddbmm", given, 3, (1, 1))
    _check_addmm(input, batch1, batch2)
    if is_narrow(batch1._array):
        return rounded_once(
            lambda a, b, c: baddbmm(c, a, b, beta=beta, alpha=alpha), batch1, batch2, input
        )
    return _added(input, bmm(batch1, batch2), beta, alpha)


@export()
@autocasts
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *former: Any, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * input + alpha * (the sum of bmm(batch1, batch2) over the batch)."""
    if former:
        given = (input, batch1, batch2, *former)
        input, batch1, batch2, beta, alpha = numbers_first("addbmm", given, 3, (1, 1))
    _check_addmm(input, batch1, batch2)
    return _added(input, _summed_bmm(batch1, batch2), beta, alpha)


def _summed_bmm(a: Tensor, b: Tensor) -> Tensor:
    """The sum over the batch of the products of matrices, as one product of longer ones."""
    first, second = a._array.shape, b._array.shape
    if len(first) != 3 or len(second) != 3 or first[::2] != second[:2]:
        return bmm(a, b)  # it raises the error
    (batch, n, k), m = first, second[2]
    return mm(a.transpose(0, 1).reshape(n, batch * k), b.reshape(batch * k, m))


@export()
@autocasts
def addr(
    input: Tensor, vec1: Tensor, vec2: Tensor, *former: Any, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2)."""
    if former:
        given = (input, vec1, vec2, *former)
        input, vec1, vec2, beta, alpha = numbers_first("addr", given, 3, (1, 1))
    return _added(input, outer(vec1, vec2), beta, alpha)


def _added(base: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    if product._array.dtype.kind in "biu":  # as torch does
        kind = bool if product._array.dtype.kind == "b" else int
        beta, alpha = kind(beta), kind(alpha)
    beta, alpha = (dtypes.fitting(factor, product._array.dtype) for factor in (beta, alpha))
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    if base._array.shape != product._array.shape:
        base = base.expand(product._array.shape)
    return POINTWISE["add"](base if beta == 1 else base * beta, product)


class Trace(Op):
    """Sum of the diagonal of a matrix."""

    saves = ()

    @staticmethod
    def forward(x: Any) -> Any:
        if x.dtype.kind == "c":
            return array_module(x).asarray(x.trace())
        return dispatch.together(_trace, x)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        shape = ctx.shapes[0]
        attrs, sizes = {"offset": 0, "dim1": 0, "dim2": 1}, (min(shape),)
        g = g.expand(sizes)
        return (ZerosExceptView.apply(g, view=Diagonal, attrs=attrs, shape=shape),)


def _trace(x: Any) -> Any:
    dtype = x.dtype if x.dtype.kind not in "iu" else np.dtype(np.int64)
    return dispatch.active.reduce("sum", x.diagonal(), None, False, dtype)


@export()
@autocasts
def trace(input: Tensor) -> Tensor:
    """Sum of the diagonal of a matrix."""
    if input._array.ndim != 2:
        raise RuntimeError("trace: expected a matrix")
    if input._array.dtype.kind == "b":
        raise dtypes.refused("trace", input._array.dtype)
    return Trace.apply(input)


@export(method=False)
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Contract the last `dims` dimensions of a with the first of b, or two lists of dimensions."""
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a._array.ndim, b._array.ndim):
            raise RuntimeError(
                f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims} for "
                f"{a._array.ndim} and {b._array.ndim} dimensions"
            )
        dims = (list(range(a._array.ndim - dims, a._array.ndim)), list(range(dims)))
    left = [normalize_dim(d, a._array.ndim) for d in dims[0]]
    right = [normalize_dim(d, b._array.ndim) for d in dims[1]]
    if len(left) != len(right):
        raise RuntimeError("both dimension lists should have same length")
    for i, j in zip(left, right, strict=True):  # a length of 1 is summed away on the other side
        n, m = a._array.shape[i], b._array.shape[j]
        if n == 1 and m != 1:
            b = _summed(b, j)
        elif m == 1 and n != 1:
            a = _summed(a, i)
        elif n != m:
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {n} in dim {i} and "
                f"second has size {m} in dim {j}"
            )
    keep_a = [d for d in range(a._array.ndim) if d not in left]
    keep_b = [d for d in range(b._array.ndim) if d not in right]
    inner = math.prod(a._array.shape[d] for d in left)
    rows = [a._array.shape[d] for d in keep_a]
    columns = [b._array.shape[d] for d in keep_b]
    if not keep_a and not keep_b:
        return dot(a.permute(left).reshape(-1), b.permute(right).reshape(-1))
    flat = matmul(
        a.permute(keep_a + left).reshape(math.prod(rows), inner),
        b.permute(right + keep_b).reshape(inner, math.prod(columns)),
    )
    return flat.reshape(rows + columns)


def _summed(x: Tensor, dim: int) -> Tensor:
    """The sum over a dimension, which stays, in x's dtype; of bool, whether any is True."""
    if x._array.dtype.kind == "b":
        return x.any(dim, keepdim=True)
    return x.sum(dim, keepdim=True, dtype=x.dtype)


@export()
def kron(input: Tensor, other: Tensor) -> Tensor:
    """Kronecker product: every element of input times the whole of other."""
    ndim = max(input._array.ndim, other._array.ndim)
    a, b = ((1,) * (ndim - x._array.ndim) + x._array.shape for x in (input, other))
    left = input.reshape([n for m in a for n in (m, 1)])
    right = other.reshape([n for m in b for n in (1, m)])
    return POINTWISE["mul"](left, right).reshape([m * n for m, n in zip(a, b, strict=True)])


@export()
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """Cross product of vectors of three elements along `dim` (the first such dimension)."""
    a, b = input._array.ndim, other._array.ndim
    if a != b:
        raise RuntimeError(
            f"linalg.cross: inputs must have the same number of dimensions. Got {a} and {b}"
        )
    if dim is None:
        threes = [d for d, n in enumerate(input._array.shape) if n == 3]
        if not threes:
            raise RuntimeError("no dimension of size 3 in input")
        dim = threes[0]
    place = normalize_dim(dim, a)
    if input._array.dtype.kind == "b":
        raise dtypes.refused("cross", input._array.dtype)
    if (input.size(place), other.size(place)) != (3, 3):
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.size(place)} and "
            f"{other.size(place)}"
        )
    if not (input.is_complex() or other.is_complex()):
        dtype = POINTWISE["mul"].compute_dtype((input, other))
        x, y = input.to(dtype), other.to(dtype)
        if x._array.shape != y._array.shape:
            x, y = functions.broadcast_tensors(x, y)
        return Cross.apply(x, y, dim=place)
    a, b = (_next_two(x.movedim(place, 0)) for x in (input, other))
    mul, sub = POINTWISE["mul"], POINTWISE["sub"]
    product = sub(mul(a[0], b[1]), mul(a[1], b[0]))
    return product.movedim(0, place).contiguous()


class Cross(Op):
    """Cross product of vectors of three elements along a dimension."""

    saves = (0, 1)
    grad_name = "LinalgCrossBackward0"

    @staticmethod
    def forward(a: Any, b: Any, dim: int) -> Any:
        return dispatch.active.cross(a, b, dim)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        a, b = ctx.tensors()
        return Cross.apply(b, g, dim=dim), Cross.apply(g, a, dim=dim)


def _next_two(x: Tensor) -> tuple[Tensor, Tensor]:
    """For x of three parts: the next part in turn of each, and the one after that."""
    parts = functions.cat((x, x.narrow(0, 0, 2)), 0)
    return parts.narrow(0, 1, 3), parts.narrow(0, 2, 3)


@export(method=False)
def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of several matrices, in the cheapest order."""
    return multi_dot(list(matrices))


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of matrices (the first and last may be vectors) in the cheapest order."""
    parts = list(tensors)
    if len(parts) < 2:
        raise RuntimeError("multi_dot(): expected at least 2 tensors but got 1")
    first, last = parts[0].ndim == 1, parts[-1].ndim == 1
    if first:
        parts[0] = parts[0].unsqueeze(0)
    if last:
        parts[-1] = parts[-1].unsqueeze(1)
    if any(p.ndim != 2 for p in parts):
        raise RuntimeError("multi_dot(): expected matrices, and vectors at the ends only")
    sizes = [parts[0].shape[0], *(p.shape[1] for p in parts)]
    found = _product(parts, _splits(sizes), 0, len(parts) - 1)
    found = found.squeeze(0) if first else found
    return found.squeeze(-1) if last else found


def _splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where each chain of factors is best divided (Cormen et al., matrix-chain order)."""
    n = len(sizes) - 1
    cost = {(i, i): 0 for i in range(n)}
    best: dict[tuple[int, int], int] = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            options = [
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            ]
            cost[i, j], best[i, j] = min(options)
    return best


def _product(parts: list, splits: dict, i: int, j: int) -> Tensor:
    if i == j:
        return parts[i]
    k = splits[i, j]
    return _product(parts, splits, i, k) @ _product(parts, splits, k + 1, j)
