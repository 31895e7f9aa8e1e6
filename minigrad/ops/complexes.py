"""Complex tensors: what NumPy and CuPy compute, with gradients.

There are no kernels for complex numbers: these operations run NumPy's functions, or CuPy's on a
GPU, and an operation that is not here refuses complex tensors by name. A gradient is that of
torch: for a real loss L and z = x + iy it is dL/dx + i dL/dy.
"""

from __future__ import annotations

import builtins
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.pointwise import Expr
from minigrad import _meta, dtypes
from minigrad._meta_results import results as meta_results
from minigrad.autograd.mode import autocasts, mode
from minigrad.autograd.node import Op, edges_of
from minigrad.backends import array_module, is_batched
from minigrad.ops.pointwise import COMPLEX, POINTWISE, Pointwise, PointwiseNode, check_broadcast
from minigrad.ops.views import ViewOp
from minigrad.tensor import Tensor, export, wrap

# Lines of the pointwise table that are holomorphic, or that compare or choose. The derivative text
# of a holomorphic f gives conj(f'(z)) g when it gets conj(g) and its result is conjugated.
LINES = frozenset(
    "add sub mul div neg exp exp2 log log2 log10 log1p expm1 sqrt rsqrt sin sinc cos tan sinh cosh"
    " tanh asin acos atan asinh acosh atanh pow square reciprocal sigmoid silu axpy addcmul addcdiv"
    " lerp copy where masked_fill eq ne logical_not logical_and logical_or logical_xor".split()
)
_NAMES = {
    "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan",
    "atanh": "arctanh", "pow": "power",
}  # fmt: skip
_TESTS = {"isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite"}
_FUNCTIONS = "abs exp log log2 log10 log1p expm1 sqrt sin cos tan sinh cosh tanh where".split()


def real_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the parts of a complex dtype."""
    return np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)


def complex_dtype(dtype: np.dtype) -> np.dtype:
    """The complex dtype whose parts hold numbers of a dtype."""
    return np.dtype(np.complex128 if dtype == np.float64 else np.complex64)


# Of a power's exponent: 0 ** b is taken as the same number for all b.
_POW = Pointwise(replace(POINTWISE["pow"].expr, grads=(
    POINTWISE["pow"].expr.grads[0], "where(a == 0, 0, g * y * log(a))"
)))  # fmt: skip


def pointwise(op: Pointwise, args: tuple, arrays: list, params: tuple, dtype: np.dtype) -> Tensor:
    """A line of the table on complex numbers."""
    if op.name == "abs":
        return Abs.apply(args[0])
    xp = next(array_module(a) for a in arrays if hasattr(a, "dtype"))
    if op.name in _TESTS:
        return wrap(_called(_TESTS[op.name], arrays[0]))
    if op.name in _COMPOSED:
        given = [x.to(dtypes.from_numpy_dtype(dtype)) for x in args]
        return _COMPOSED[op.name](*given)
    if op.name not in LINES:
        raise dtypes.refused(op.name, dtype)
    op = _POW if op.name == "pow" else op
    result = _evaluate(op.expr.text, op.expr.args + op.expr.params, (*arrays, *params), xp)
    kind = bool if op.expr.result == "bool" else dtype
    result = result.astype(kind) if is_batched(result) else xp.asarray(result, kind)
    tensor = wrap(result)
    if mode.enabled and op.expr.grads:
        edges, needs = edges_of(args)
        if needs:
            op.record(args, params, dtype, edges, needs, tensor, ComplexNode)
    return tensor


def _logaddexp(a: Tensor, b: Tensor) -> Tensor:
    """log(exp(a) + exp(b)); exp is of a number with a real part of 0 at most."""
    where, first, second = POINTWISE["where"], a.real.detach(), b.real.detach()
    most, least = where(first < second, b, a), where(first < second, a, b)
    same = (first == second) & POINTWISE["isinf"](first)  # infinities, whose difference is NaN
    return most + (least - most).masked_fill(same, 0).exp().log1p()


_COMPOSED: dict[str, Callable[..., Tensor]] = {
    "logaddexp": _logaddexp,
    "softsign": lambda z: z / (z.abs() + 1),
}


def _called(name: str, x: Any) -> Any:
    """A function of the array library, of which NumPy's make a number of an array without
    dimensions."""
    xp = array_module(x)
    return xp.asarray(getattr(xp, name)(x))


def _evaluate(text: str, names: tuple, values: tuple, xp: Any) -> Any:
    if xp is _meta:
        return meta_results(lambda *given: _evaluate(text, names, given, np), values)
    with np.errstate(all="ignore"):
        return _function(text, names, xp)(*values)


@functools.cache
def _function(text: str, names: tuple[str, ...], xp: Any) -> Callable:
    """A line's text as a function of its arguments and parameters."""
    space: dict[str, Any] = {name: getattr(xp, name) for name in _FUNCTIONS}
    space |= {name: getattr(xp, own) for name, own in _NAMES.items()}
    space |= {"rsqrt": lambda x: 1 / xp.sqrt(x), "exp2": lambda x: 2**x}
    return eval(f"lambda {', '.join(names)}: {text}", {"__builtins__": {}, **space})


class ComplexNode(PointwiseNode):
    """A recorded line on complex numbers."""

    __slots__ = ()

    def backward(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """The gradients of the inputs, evaluated on tensors where that is recorded."""
        g: Any = grads[0]
        if not mode.enabled and type(g._array) is np.ndarray:
            return self.at_once(g)
        turned = conj(g)
        found = self.recorded(turned)
        return [g if x is turned else None if x is None else conj(x) for x in found]

    def at_once(self, g: Tensor) -> list[Tensor | None]:
        """The same of arrays."""
        dtype, params, masks = self.attrs["dtype"], self.attrs["params"], self.op.masks
        places = [*self.plan.kept, *[None] * len(self.plan.kept_outputs)]
        values = [a if i in masks else np.asarray(a, dtype) for i, a in zip(places, self.arrays())]
        results: list[Tensor | None] = []
        for derivative in self.plan.derivatives:
            if derivative is None or derivative.identity:
                results.append(derivative and g)
                continue
            own = [params[i] for i in derivative.params]
            inputs = [g._array if s < 0 else values[s] for s in derivative.sources]
            results.append(
                wrap(_turned(derivative.expr, [*inputs, *own]).astype(dtype, copy=False))
            )
        return results


def _turned(expr: Expr, values: list) -> Any:
    """conj(f(conj(g), x)) of a derivative's line f, from g and x. Without functions and powers,
    whose values jump at a cut, it is f(g, conj(x)): x may be small."""
    names, rational = expr.args + expr.params, not _HAS_CUTS(expr.text)
    turned = [
        np.conj(v) if (name == "g") != rational and isinstance(v, _COMPLEX) else v
        for name, v in zip(names, values)
    ]
    found = _evaluate(expr.text, names, tuple(turned), np)
    return np.asarray(found if rational else np.conj(found))


_HAS_CUTS = re.compile(r"\w\(|\*\*").search
_COMPLEX = (np.ndarray, builtins.complex)

COMPLEX.append(pointwise)


class Abs(Op):
    """The absolute value, which is real."""

    @staticmethod
    def forward(x: Any) -> Any:
        return _called("abs", x)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        (x,) = ctx.tensors()
        return (sgn(x) * g,)


class Angle(Op):
    """The angle to the positive real axis."""

    @staticmethod
    def forward(x: Any) -> Any:
        return _called("angle", x)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        (x,) = ctx.tensors()
        size = Abs.apply(x)
        safe = POINTWISE["where"](size == 0, 1.0, size)
        return (sgn(x) * 1j * (g / safe),)


class Conj(Op):
    """The complex conjugate, as a copy."""

    saves = ()

    @staticmethod
    def forward(x: Any) -> Any:
        return _called("conj", x)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        return (conj(g),)


class Real(ViewOp):
    """The real part, a view."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x.real

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        return (g.to(complex_dtype(g._array.dtype)),)


class Imag(ViewOp):
    """The imaginary part, a view."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x.imag

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        return (g * 1j,)


class Parts(ViewOp):
    """Real and imaginary part as a new last dimension of two, a view."""

    grad_name = "ViewAsRealBackward0"

    @staticmethod
    def forward(x: Any) -> Any:
        step = real_dtype(x.dtype).itemsize
        strided = array_module(x).lib.stride_tricks.as_strided
        return strided(x.real, (*x.shape, 2), (*x.strides, step))

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        return (OfParts.apply(g.contiguous()),)


class OfParts(ViewOp):
    """Complex numbers of which the last dimension has the parts, a view."""

    grad_name = "ViewAsComplexBackward0"

    @staticmethod
    def forward(x: Any) -> Any:
        return x.view(complex_dtype(x.dtype))[..., 0]

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        return (Parts.apply(g),)


class FromParts(Op):
    """real + i imag."""

    saves = ()
    grad_name = "ComplexBackward0"

    @staticmethod
    def forward(real: Any, imag: Any) -> Any:
        xp = array_module(imag if is_batched(imag) else real)
        shape = check_broadcast([real, imag])
        out = xp.empty(shape, complex_dtype(real.dtype))
        out.real, out.imag = real, imag
        return out

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        return Real.apply(g), Imag.apply(g)


def _need_complex(name: str, x: Tensor) -> None:
    if x._array.dtype.kind != "c":
        raise RuntimeError(f"{name} is not implemented for tensors with non-complex dtypes.")


@export()
def conj(input: Tensor) -> Tensor:
    """The complex conjugate (a real tensor itself). It is computed here, not when it is used."""
    return Conj.apply(input) if input._array.dtype.kind == "c" else input


@export()
def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate."""
    return conj(input)


@export("resolve_neg")
def resolve_conj(input: Tensor) -> Tensor:
    """Itself: conjugates are computed at once."""
    return input


@export("is_neg")
def is_conj(input: Tensor) -> bool:
    """False: conjugates are computed at once."""
    return False


@export(method=False)
def real(input: Tensor) -> Tensor:
    """The real part, a view; a real tensor itself."""
    return Real.apply(input) if input._array.dtype.kind == "c" else input


@export(method=False)
def imag(input: Tensor) -> Tensor:
    """The imaginary part, a view. RuntimeError for a real tensor."""
    _need_complex("imag", input)
    return Imag.apply(input)


@export()
def angle(input: Tensor) -> Tensor:
    """The angle in radians: of real numbers 0, or pi where negative."""
    if input._array.dtype.kind == "c":
        return Angle.apply(input)
    if not input.is_floating_point():
        input = input.to(dtypes.get_default_dtype())
    where = POINTWISE["where"]
    return where(input < 0, np.pi, where(POINTWISE["isnan"](input), input, 0.0))


@export()
def sgn(input: Tensor) -> Tensor:
    """input / |input|, zero at zero."""
    if input._array.dtype.kind != "c":
        return POINTWISE["sign"](input)
    size = Abs.apply(input)
    return input / POINTWISE["where"](size == 0, 1.0, size)


@export(method=False)
def complex(real: Tensor, imag: Tensor) -> Tensor:
    """real + i imag, from tensors of one dtype, float32 or float64."""
    if real._array.dtype != imag._array.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {real.dtype} but got scalar type {imag.dtype} for "
            "second argument"
        )
    if real._array.dtype not in (np.float32, np.float64):
        raise RuntimeError(
            f"Expected both inputs to be Float or Double tensors but got {real.dtype} and "
            f"{imag.dtype}"
        )
    return FromParts.apply(real, imag)


@export(method=False)
@autocasts
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """abs * exp(i angle)."""
    for name, x in (("abs", abs), ("angle", angle)):
        if not isinstance(x, Tensor):
            raise TypeError(f"polar(): argument '{name}' must be Tensor, not {type(x).__name__}")
    if abs._array.dtype not in (np.float32, np.float64) or angle._array.dtype != abs._array.dtype:
        raise RuntimeError(
            "Expected both inputs to be Half, Float or Double tensors but got "
            f"{abs.dtype} and {angle.dtype}"
        )
    return complex(abs * angle.cos(), abs * angle.sin())


@export(method=False)
def view_as_real(input: Tensor) -> Tensor:
    """A view (..., 2) of the real and imaginary parts."""
    if input._array.dtype.kind != "c":
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return Parts.apply(input)


@export(method=False)
@autocasts
def view_as_complex(input: Tensor) -> Tensor:
    """A view as complex numbers, whose parts are the last dimension of input (..., 2)."""
    if input._array.dtype.kind != "f" or not input._array.ndim or input._array.shape[-1] != 2:
        raise RuntimeError(
            "view_as_complex: expected a real tensor whose last dimension has length 2, got "
            f"{list(input.shape)} of {input.dtype}"
        )
    if not input.numel():
        return complex(input[..., 0], input[..., 1])
    *others, last = tuple(s // input.itemsize for s in input._array.strides)
    if last != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(step % 2 for step in others):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    # An offset is found by addresses, on which no recorded step may depend
    if mode.recorder is None and input.storage_offset() % 2:
        raise RuntimeError("Tensor must have a storage_offset divisible by 2")
    return OfParts.apply(input)


@export(method=False)
def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex."""
    return input.is_complex()


@export()
def isreal(input: Tensor) -> Tensor:
    """Whether the imaginary part is zero, per element."""
    if input._array.dtype.kind == "c":
        return imag(input.detach()) == 0
    return wrap(array_module(input._array).ones(input._array.shape, bool))


@export()
def adjoint(input: Tensor) -> Tensor:
    """The conjugate transpose of the last two dimensions."""
    return conj(input.mT)


def _transposed(self: Tensor) -> Tensor:
    """The conjugate transpose of a matrix."""
    return conj(self.t())


def _set_real(self: Tensor, value: Any) -> None:
    real(self).copy_(value)


def _set_imag(self: Tensor, value: Any) -> None:
    imag(self).copy_(value)


for _name, _part in {
    "real": property(real, _set_real), "imag": property(imag, _set_imag),
    "mH": property(adjoint), "H": property(_transposed),
}.items():  # fmt: skip
    setattr(Tensor, _name, _part)


@export(function=False)
def __complex__(self: Tensor) -> builtins.complex:
    if self.numel() != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    return builtins.complex(self.item())
