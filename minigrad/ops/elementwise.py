"""torch's names for the pointwise operations: functions, methods, operators and in-place forms."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.launchers.common import on_gpu
from minigrad import dtypes
from minigrad._foreign import check_tensors, no_tensor
from minigrad._meta import NoData
from minigrad.autograd.mode import mode
from minigrad.backends import every_element
from minigrad.layouts import NoDenseArray, strided
from minigrad.ops._meanings import described
from minigrad.ops.former import numbers_first
from minigrad.ops.inplace import inplace
from minigrad.ops.pointwise import (
    COMPARED,
    POINTWISE,
    Number,
    Pointwise,
    beside,
    check_floating,
    factor,
    number,
    operand,
)
from minigrad.overrides import operator_of_other
from minigrad.tensor import Tensor, export, functions

# lines of the table that are functions and methods under their own name
UNARY = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc erfinv exp exp2 expm1"
    " floor frac lgamma log log10 log1p log2 reciprocal relu rsqrt sigmoid sign sin sinh sqrt tan"
    " tanh trunc isnan isinf isfinite signbit sinc logical_not bitwise_not"
).split()
UNARY_ALIASES = {
    "abs": ("absolute",),
    "acos": ("arccos",),
    "acosh": ("arccosh",),
    "asin": ("arcsin",),
    "asinh": ("arcsinh",),
    "atan": ("arctan",),
    "atanh": ("arctanh",),
    "trunc": ("fix",),
}
BINARY = (
    "mul maximum minimum fmax fmin atan2 copysign hypot xlogy"
    " logaddexp eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or"
    " bitwise_xor bitwise_left_shift bitwise_right_shift"
).split()
TWO_TENSORS = frozenset(
    "atan2 hypot logaddexp maximum minimum fmax fmin logical_and logical_or logical_xor"
    " heaviside".split()
)
FIRST_A_TENSOR = frozenset("eq ne lt le gt ge fmod copysign rsub clamp_min clamp_max".split())
NUMBERS = frozenset(("add", "sub", "mul", "div", "floor_divide"))  # both may be numbers
_PYTHON_NUMBERS = (bool, int, float)
BINARY_ALIASES = {
    "mul": ("multiply",),
    "atan2": ("arctan2",),
    "ne": ("not_equal",),
    "lt": ("less",),
    "le": ("less_equal",),
    "gt": ("greater",),
    "ge": ("greater_equal",),
}


def _named(function: Callable, op: Pointwise) -> Callable:
    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = described(op.expr)
    return function


def _unary(op: Pointwise) -> Callable:
    def function(input: Tensor) -> Tensor:
        return op(input)

    return _named(function, op)


def _binary(op: Pointwise) -> Callable:
    def function(input: Tensor | Number, other: Tensor | Number) -> Tensor:
        if not (isinstance(other, Tensor) and isinstance(input, Tensor)):
            _check_operands(op.name, input, other)
            other = _number_or_tensor(op.name, other)
            if op.name in COMPARED and isinstance(input, Tensor):
                other = beside(input._array, other)
        return op(input, other)

    return _named(function, op)


def _check_operands(name: str, input: Any, other: Any) -> None:
    """TypeError for a number where torch takes tensors only: in both places, in the first, or in
    one of the two."""
    if name in TWO_TENSORS:
        wrong = {"input": input, "other": other}
    elif name in FIRST_A_TENSOR or (name not in NUMBERS and type(other) in _PYTHON_NUMBERS):
        wrong = {"input": input}
    else:
        return
    for argument, value in wrong.items():
        if not isinstance(value, Tensor | np.ndarray):
            raise no_tensor(name, argument, value)


def _number_or_tensor(name: str, value: Any) -> Any:
    found = operand(value)
    if found is None:
        raise TypeError(
            f"{name}(): argument 'other' must be Tensor or Number, not {type(value).__name__}"
        )
    return found


for _name in UNARY:
    _op = POINTWISE[_name]
    export(*UNARY_ALIASES.get(_name, ()))(_unary(_op))
    if _op.keeps_dtype:
        inplace(_name, line=True)
for _name in BINARY:
    export(*BINARY_ALIASES.get(_name, ()))(_binary(POINTWISE[_name]))
    if _name not in ("maximum", "minimum", "logaddexp"):  # torch has no in-place form of these
        inplace(_name, line=True)


@export("negative")
def neg(input: Tensor) -> Tensor:
    """-input, per element."""
    if input._array.dtype.kind == "b":
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. To invert a mask use "
            "`~` or logical_not()."
        )
    return POINTWISE["neg"](input)


def _without_bool(a: Any, b: Any) -> None:
    for x in (a, b):
        if x._array.dtype.kind == "b" if isinstance(x, Tensor) else type(x) is bool:
            raise RuntimeError(
                "Subtraction, the `-` operator, with a bool tensor is not supported. To invert a "
                "mask use `~` or logical_not(), to compare two use `^` or logical_xor()."
            )


@export()
def add(input: Tensor, other: Tensor | Number, *former: Any, alpha: Number = 1) -> Tensor:
    """input + alpha * other."""
    if former:
        input, other, alpha = numbers_first("add", (input, other, *former), 2, (1,))
    other = other if type(other) is Tensor else _term("add", input, other)
    if alpha == 1:
        return POINTWISE["add"](input, other)
    return _plus_multiple(input, other, alpha)


def _term(name: str, input: Any, other: Any) -> Any:
    """What is added to a tensor: a number or a tensor, of which a sparse one is made dense."""
    if not isinstance(other, Tensor):
        return _number_or_tensor(name, other)
    return other if other.layout is strided or input.layout is not strided else other.to_dense()


def _plus_multiple(a: Any, b: Any, alpha: Any, sign: int = 1) -> Tensor:
    """a + sign * alpha * b. RuntimeError where alpha doesn't fit the dtype."""
    likely = isinstance(a, Tensor) and a._array.dtype.kind == "f" and type(alpha) is float
    # A number of a recorded step is another one in each replay: it stays what it is
    if mode.recorder is None and (not likely or not -65504 <= alpha <= 65504):
        alpha = number("add", alpha)
        alpha = factor("alpha", alpha, POINTWISE["axpy"].compute_dtype((a, b)))
    return POINTWISE["axpy"](a, b, params=(sign * alpha,))


@export("subtract")
def sub(input: Tensor, other: Tensor | Number, *former: Any, alpha: Number = 1) -> Tensor:
    """input - alpha * other."""
    if former:
        input, other, alpha = numbers_first("sub", (input, other, *former), 2, (1,))
    other = other if type(other) is Tensor else _term("sub", input, other)
    _without_bool(input, other)
    if alpha == 1:
        return POINTWISE["sub"](input, other)
    return _plus_multiple(input, other, alpha, -1)


@export()
def rsub(input: Tensor, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """other - alpha * input."""
    _check_operands("rsub", input, other)
    other = _number_or_tensor("rsub", other)
    _without_bool(input, other)
    if alpha == 1:
        return POINTWISE["sub"](other, input)
    return _plus_multiple(other, input, alpha, -1)


@export("divide", "true_divide")
def div(input: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """input / other; rounding_mode "trunc" or "floor" rounds the quotient."""
    other = other if isinstance(other, Tensor) else _number_or_tensor("div", other)
    if rounding_mode is None:
        return POINTWISE["div"](input, other)
    if rounding_mode not in ("floor", "trunc"):
        raise RuntimeError(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' "
            f"but found '{rounding_mode}'"
        )
    _check_integer_division(input, other)
    whole = dtypes.category(POINTWISE["add"].compute_dtype((input, other))) < dtypes.FLOATING
    line = f"div_{rounding_mode}" + ("_int" if whole and rounding_mode == "trunc" else "")
    return POINTWISE[line](input, other)


def floor_divide(input: Tensor, other: Tensor | Number) -> Tensor:
    """floor(input / other). RuntimeError for an integer division by zero; by the zeros of a tensor
    on a GPU it gives 0."""
    other = _number_or_tensor("floor_divide", other)
    _check_integer_division(input, other)
    return POINTWISE["floor_divide"](input, other)


def remainder(input: Tensor, other: Tensor | Number) -> Tensor:
    """Python's `input % other`: the result has the divisor's sign."""
    return _rest_of_division("remainder", input, other)


def fmod(input: Tensor, other: Tensor | Number) -> Tensor:
    """The remainder of input / other, with the sign of input. RuntimeError for integers by zero.

    Example::

        minigrad.fmod(minigrad.tensor([-5.0]), minigrad.tensor([3.0]))  # tensor([-2.])
    """
    return _rest_of_division("fmod", input, other)


def _rest_of_division(name: str, input: Any, other: Any) -> Tensor:
    _check_operands(name, input, other)
    other = _number_or_tensor(name, other)
    if isinstance(input, Tensor):
        other = beside(input._array, other)
    _check_integer_division(input, other)
    return POINTWISE[name](input, other)


def _check_integer_division(a: Any, b: Any) -> None:
    """Of a tensor on a GPU, for which the host would wait, no divisor is looked at, as in torch:
    what is divided by 0 there becomes 0."""
    if isinstance(b, Tensor) and on_gpu(b._array):
        return
    if a is None:
        raise TypeError("the dividend must be Tensor or Number, not NoneType")
    values = [every_element(x._array) if isinstance(x, Tensor) else np.asarray(x) for x in (a, b)]
    if all(dtypes.category(v.dtype) < dtypes.FLOATING for v in values) and not values[1].all():
        raise RuntimeError("ZeroDivisionError: integer division or remainder by zero")


_POWERS = {2: "square", 3: "cube", -1: "reciprocal", 0.5: "sqrt", -0.5: "rsqrt"}


def pow(input: Any, exponent: Any) -> Tensor:
    """input ** exponent."""
    _check_operands("pow", input, exponent)
    exponent = _number_or_tensor("pow", exponent)
    if type(exponent) in (int, float) and isinstance(input, Tensor):
        if input._array.dtype.kind == "f" and exponent in _POWERS:
            return POINTWISE[_POWERS[exponent]](input)
        if type(exponent) is int and input._array.dtype.kind in "biu":
            if exponent < 0:
                raise RuntimeError("Integers to negative integer powers are not allowed.")
            if input._array.dtype.kind != "b" and exponent > np.iinfo(input._array.dtype).max:
                raise RuntimeError(
                    f"value cannot be converted to type {input.dtype.name}_t without overflow"
                )
    return POINTWISE["pow"](input, exponent)


def square(input: Tensor) -> Tensor:
    """input * input; bool gives int64."""
    return pow(input, 2)


for _function in (floor_divide, remainder, fmod, pow, square):
    export()(_function)
for _name in ("floor_divide", "remainder", "fmod", "pow"):
    inplace(_name, line=True)


@export()
def float_power(input: Any, exponent: Any) -> Tensor:
    """input ** exponent in float64, or of complex numbers in complex128."""
    _check_operands("float_power", input, exponent)
    parts = (input, exponent)
    of_complex = any(x.is_complex() if isinstance(x, Tensor) else type(x) is complex for x in parts)
    dtype = dtypes.complex128 if of_complex else dtypes.float64
    base, exponent = (x.to(dtype) if isinstance(x, Tensor) else x * 1.0 for x in parts)
    return POINTWISE["pow"](base, exponent)


@export()
def round(input: Tensor, *, decimals: int | None = None) -> Tensor:
    """To the nearest integer (or decimal), halves to even."""
    if decimals is not None:
        check_floating("round_cpu", input)
    if not decimals:
        return POINTWISE["round"](input)
    scale = 10.0**decimals
    return POINTWISE["round"](input * scale) / scale


@export("clip")
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Clamp to [min, max]; either may be None, a number or a tensor that broadcasts.

    The dtype is the common one of input and bounds; with numbers it must not be bool. At a bound,
    the input gets the gradient.
    """
    dtype = input._array.dtype
    usual = _USUAL.get(dtype.kind, ())
    if type(min) in usual and type(max) in usual:  # as below, in less time
        limits = tuple([dtypes.fitting(b, dtype) for b in (min, max) if b is not None])
        if limits:
            line = "clamp_max" if min is None else "clamp_min" if max is None else "clamp"
            return POINTWISE[line](input, params=limits)
    bounds = [_number_or_tensor("clamp", b) for b in (min, max) if b is not None]
    if not bounds:
        raise RuntimeError("clamp: At least one of 'min' or 'max' must not be None")
    dtype = POINTWISE["add"].compute_dtype((input, *bounds))
    if dtype.kind == "b" and len(bounds) == 2:
        raise dtypes.refused("clamp_cpu", dtype)
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        line = "clamp_below" if min is None else "clamp_above" if max is None else "clamp_between"
        return POINTWISE[line](input, *bounds)
    if dtype.kind == "b":
        raise dtypes.refused("clamp_scalar_cpu", dtype)
    if input._array.dtype != dtype:
        input = input.to(dtype)
    limits = tuple([dtypes.fitting(b, dtype) if type(b) in (int, float) else b for b in bounds])
    line = "clamp_max" if min is None else "clamp_min" if max is None else "clamp"
    return POINTWISE[line](input, params=limits)


_USUAL = {"f": (float, int, type(None)), "i": (int, type(None)), "u": (int, type(None))}


@export()
def clamp_min(input: Tensor, min: Any) -> Tensor:
    """max(input, min)."""
    _check_operands("clamp_min", input, min)
    return clamp(input, min)


@export()
def clamp_max(input: Tensor, max: Any) -> Tensor:
    """min(input, max)."""
    _check_operands("clamp_max", input, max)
    return clamp(input, None, max)


def _may_not_fit(value: Any) -> bool:
    """Whether a number may be out of the range of the dtype that it is chosen in."""
    return type(value) is int or (type(value) is float and abs(value) > 1e38)


@export(method=False)
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """input where condition holds, else other; with one argument, `nonzero(as_tuple=True)`."""
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if condition._array.dtype == np.uint8:
        warnings.warn(_BYTES_AS_CONDITION, UserWarning, stacklevel=3)
        condition = condition.bool()
    elif condition._array.dtype.kind != "b":
        raise RuntimeError(
            "where expected condition to be a boolean tensor, "
            f"but got a tensor with dtype {condition.dtype}"
        )
    args: tuple = (condition, operand(input), operand(other))
    if _may_not_fit(args[1]) or _may_not_fit(args[2]):
        dtype = POINTWISE["where"].compute_dtype(args)
        if dtype.kind in "iu" or dtype.itemsize > 2:  # floats of 16 bits become infinite
            args = tuple([dtypes.fitting(a, dtype) if type(a) in (int, float) else a for a in args])
    return POINTWISE["where"](*args)


_BYTES_AS_CONDITION = (
    "where received a uint8 condition tensor. This behavior is deprecated and will be removed in a "
    "future version of PyTorch. Use a boolean condition instead."
)


def _where_method(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """self where condition holds, else other."""
    return where(condition, self, other)


Tensor.where = _where_method


@export()
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """input with `value` (a number or 0-dimensional tensor) where mask holds."""
    if not isinstance(mask, Tensor):
        raise no_tensor("masked_fill", "mask", mask)
    if mask._array.dtype.kind != "b":
        raise RuntimeError(
            f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype}"
        )
    if isinstance(value, Tensor):
        if value._array.ndim:
            raise RuntimeError(
                "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value._array.ndim} dimension(s)."
            )
        if type(value._array) is np.ndarray and value._array.dtype != input._array.dtype:
            dtypes.fitting(value.item(), input._array.dtype)
        return POINTWISE["where"](mask, value.to(input.dtype), input)
    dtype = input._array.dtype
    value = dtypes.fitting(value, dtype)
    if type(value) is float and dtype.kind in "biu":
        value = bool(value) if dtype.kind == "b" else int(value)
    return POINTWISE["masked_fill"](input, mask, params=(value,))


@export()
def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """input + weight * (end - input)."""
    check_tensors("lerp", end=end)
    if not input.is_complex():
        check_floating("lerp_kernel", input)
    for name, x in (("end", end), ("weight", weight)):
        if isinstance(x, Tensor) and x.dtype != input.dtype and (x is end or x._array.ndim):
            raise RuntimeError(f"expected dtype {input.dtype} for `{name}` but got dtype {x.dtype}")
    return POINTWISE["lerp"](input, end, weight)


@export()
def addcmul(
    input: Tensor, tensor1: Tensor, tensor2: Tensor, *former: Any, value: Number = 1
) -> Tensor:
    """input + value * tensor1 * tensor2."""
    if former:
        given = (input, tensor1, tensor2, *former)
        input, tensor1, tensor2, value = numbers_first("addcmul", given, 3, (1,))
    if input._array.dtype.kind in "iu":
        value = dtypes.fitting(value, input._array.dtype)
    return POINTWISE["addcmul"](input, tensor1, tensor2, params=(value,))


@export()
def addcdiv(
    input: Tensor, tensor1: Tensor, tensor2: Tensor, *former: Any, value: Number = 1
) -> Tensor:
    """input + value * tensor1 / tensor2."""
    if former:
        given = (input, tensor1, tensor2, *former)
        input, tensor1, tensor2, value = numbers_first("addcdiv", given, 3, (1,))
    check_tensors("addcdiv", tensor1=tensor1, tensor2=tensor2)
    if tensor1._array.dtype.kind in "biu" and tensor2._array.dtype.kind in "biu":
        raise RuntimeError(
            "addcdiv: integer division is not supported; use input + value * "
            "div(tensor1, tensor2, rounding_mode='trunc'), or floating tensors"
        )
    return POINTWISE["addcdiv"](input, tensor1, tensor2, params=(value,))


def _converted(value: float, dtype: np.dtype) -> float:
    """A number as C converts it to a floating dtype: infinite if it is too large."""
    return math.copysign(math.inf, value) if abs(value) > dtypes.largest(dtype) else value


@export()
def nan_to_num(
    input: Tensor, nan: float | None = 0.0, posinf: Any = None, neginf: Any = None
) -> Tensor:
    """NaN and infinities replaced by numbers (infinities by the limits of the dtype), in both parts
    of complex numbers."""
    if input.is_complex():
        parts = functions.real(input), functions.imag(input)
        return functions.complex(*[nan_to_num(part, nan, posinf, neginf) for part in parts])
    if not input.is_floating_point():
        return input.clone()
    dtype = input._array.dtype
    high = dtypes.largest(dtype) if posinf is None else posinf
    low = -dtypes.largest(dtype) if neginf is None else neginf
    values = tuple([_converted(v, dtype) for v in (nan or 0.0, high, low)])
    return POINTWISE["nan_to_num"](input, params=values)


@export()
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), with x limited to [eps, 1 - eps] if given."""
    if eps is None:
        return POINTWISE["logit"](input)
    if input.is_complex():
        raise dtypes.refused("logit_cpu", input._array.dtype)
    if not input.is_floating_point():
        input = input.to(dtypes.get_default_dtype())
    return POINTWISE["logit"](clamp(input, eps, 1 - eps))


@export()
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 below zero, 1 above, `values` at zero."""
    _check_operands("heaviside", input, values)
    for x in (input, values):
        text = "heaviside is not yet implemented for complex tensors."
        dtypes.refuse_complex(text, x._array.dtype)
    if input._array.dtype != values._array.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    return where(input == 0, values, (input > 0).to(input.dtype))


@export()
def deg2rad(input: Tensor) -> Tensor:
    """Degrees to radians."""
    dtypes.refuse_complex("deg2rad is not supported for complex tensors.", input._array.dtype)
    return input * (math.pi / 180)


@export()
def rad2deg(input: Tensor) -> Tensor:
    """Radians to degrees."""
    dtypes.refuse_complex("rad2deg is not supported for complex tensors.", input._array.dtype)
    return input * (180 / math.pi)


@export()
def isclose(
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> Tensor:
    """|input - other| <= atol + rtol * |other|, per element."""
    if input._array.dtype != other._array.dtype:
        raise RuntimeError(f"{input.dtype} did not match {other.dtype}")
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value < 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {value}")
    close = POINTWISE["eq"](input, other)
    if not (input.is_floating_point() or input.is_complex()):
        input, other = input.double(), other.double()
    if rtol or atol:
        gap = POINTWISE["abs"](input - other)
        near = (gap <= atol + rtol * POINTWISE["abs"](other)) & POINTWISE["isfinite"](gap)
        close = close | (near & POINTWISE["isfinite"](other))
    if equal_nan:
        close = close | (POINTWISE["isnan"](input) & POINTWISE["isnan"](other))
    return close


@export()
def allclose(
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> bool:
    """Whether all elements are close (see `isclose`)."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@export()
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape and elements."""
    same = input._array.shape == other._array.shape
    if same and (input.is_meta or other.is_meta):
        raise NoData("equal")
    return same and bool((input._array == other._array).all())


for _name in (
    "neg add sub div round square clamp clip clamp_min clamp_max masked_fill lerp addcmul addcdiv"
    " nan_to_num logit logical_not multiply divide subtract true_divide"
).split():
    _composed = _name in ("logit", "nan_to_num", "round")
    inplace(_name, _composed, line=not _composed)


def _operator(name: str, op: Callable, swapped: bool = False) -> Callable:
    """An operator method; NotImplemented for operands that are not numbers, arrays or tensors."""

    def method(self: Tensor, other: Any) -> Tensor:
        if not isinstance(other, Tensor):
            value = operand(other)
            if value is None:
                return operator_of_other(name, self, other)
            other = value
        try:
            return op(other, self) if swapped else op(self, other)
        except NoDenseArray:  # beside a Parameter, Python hasn't asked the sparse operand yet
            if type(self) is Tensor or self.layout is not strided:
                raise
            return NotImplemented

    return method


def _comparison(name: str, op: Pointwise) -> Callable:
    def method(self: Tensor, other: Any) -> Tensor:
        if not isinstance(other, Tensor):
            value = operand(other)
            if value is None:
                return operator_of_other(name, self, other)
            other = value
            other = beside(self._array, other)
        return op(self, other)

    return method


def _equality(name: str, op: Pointwise, different: bool) -> Callable:
    compare = _comparison(name, op)

    def method(self: Tensor, other: Any) -> Tensor:  # a bool beside None
        result: Any = compare(self, other)
        if result is NotImplemented and other is None:
            result = different
        return result

    return method


_REST = Pointwise(POINTWISE["sub"].expr)
_REST.grad_name = "RsubBackward1"  # as torch calls `1 - x`


def _rest(number: Any, x: Tensor) -> Tensor:
    """number - x"""
    _without_bool(x, number)
    return _REST(number, x)


def _install_operators() -> None:
    arithmetic: dict[str, Callable] = {
        "add": POINTWISE["add"], "sub": sub, "mul": POINTWISE["mul"], "truediv": POINTWISE["div"],
        "floordiv": floor_divide, "mod": remainder, "pow": pow,
        "and": POINTWISE["bitwise_and"], "or": POINTWISE["bitwise_or"],
        "xor": POINTWISE["bitwise_xor"], "lshift": POINTWISE["bitwise_left_shift"],
        "rshift": POINTWISE["bitwise_right_shift"],
    }  # fmt: skip
    for name, op in arithmetic.items():
        setattr(Tensor, f"__{name}__", _operator(f"__{name}__", op))
        swapped = _rest if name == "sub" else op
        setattr(Tensor, f"__r{name}__", _operator(f"__r{name}__", swapped, swapped=True))
    augmented = {
        "add": "add_", "sub": "sub_", "mul": "mul_", "truediv": "div_", "pow": "pow_",
        "floordiv": "floor_divide_", "mod": "remainder_", "and": "bitwise_and_",
        "or": "bitwise_or_", "xor": "bitwise_xor_",
    }  # fmt: skip
    for name, method in augmented.items():
        setattr(Tensor, f"__i{name}__", getattr(Tensor, method))
    for name in ("lt", "le", "gt", "ge"):
        setattr(Tensor, f"__{name}__", _comparison(f"__{name}__", POINTWISE[name]))
    Tensor.__eq__ = _equality("__eq__", POINTWISE["eq"], False)
    Tensor.__ne__ = _equality("__ne__", POINTWISE["ne"], True)
    reflected: Any = Tensor.__rtruediv__
    reflected.__name__ = "__rdiv__"  # torch has that for both
    setattr(Tensor, "__rdiv__", reflected)  # noqa: B010 - as `export` does
    Tensor.__neg__ = Tensor.neg
    Tensor.__pos__ = _positive
    Tensor.__abs__ = Tensor.abs
    Tensor.__invert__ = _invert


def _positive(self: Any) -> Tensor:
    if self._array.dtype.kind == "b":
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return self


def _invert(self: Tensor) -> Tensor:
    if self._array.dtype.kind not in "biu":
        raise TypeError(
            "~ (operator.invert) is only implemented on integer and Boolean-type tensors"
        )
    return POINTWISE["bitwise_not"](self)


_install_operators()
