"""Names of in-place forms: those of rarer operations and of aliases, and torch's functions of
tensors that change their first argument.
"""

from __future__ import annotations

import functools
from typing import Any

from minigrad import dtypes
from minigrad.ops.inplace import inplace, overwriting
from minigrad.ops.reduce import one_dim
from minigrad.tensor import FUNCTIONS, Tensor, export

# Operations of one step, and compositions, whose first step may save what the last one overwrites.
_SINGLE = (
    "arccos arccosh arcsin arcsinh arctan arctan2 arctanh conj_physical"
    " deg2rad erfinv fix gcd greater greater_equal i0 lcm less less_equal negative"
    " not_equal polygamma rad2deg"
)
_COMPOSED = (
    "addbmm addmm addmv addr baddbmm heaviside igamma igammac index_reduce ldexp"
    " mvlgamma nextafter put renorm scatter_reduce sgn"
)
# torch has these as functions too: `torch.exp_(x)` is `x.exp_()`.
_FUNCTIONS = (
    "abs acos acosh addmv arccos arccosh arcsin arcsinh arctan arctanh as_strided asin asinh atan"
    " atanh ceil clamp clamp_max clamp_min clip conj_physical cos cosh deg2rad detach erf erfc exp"
    " exp2 expm1 fix floor frac gcd i0 index_put lcm ldexp log log10 log1p log2 logit nan_to_num"
    " neg negative rad2deg reciprocal relu round rsqrt sigmoid sin sinc sinh sqrt square tan tanh"
    " trunc xlogy"
)


@export(function=False)
def float_power_(self: Tensor, exponent: Any) -> Tensor:
    """`float_power` in place, of a tensor of float64."""
    if self.dtype not in (dtypes.float64, dtypes.complex128):
        raise RuntimeError(
            f"the base given to float_power_ has dtype {self.dtype} but the operation's result "
            "requires dtype Double"
        )
    return self.pow_(exponent)


def _running(name: str) -> None:
    """Define `cumsum_` or `cumprod_`: of any other dtype, they compute in that of the tensor."""
    function = FUNCTIONS[name]

    @functools.wraps(function)
    def computed(input: Tensor, dim: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
        if dtype is not None and dtype != input.dtype:
            raise RuntimeError(
                f"Bad in-place call: input tensor dtype {input.dtype} and output tensor dtype "
                f"{dtype} should match"
            )
        return function(input, one_dim(dim, axis), dtype=input.dtype)

    setattr(Tensor, f"{name}_", overwriting(name, computed))


def _of_real(input: Tensor) -> Tensor:
    """The absolute value of real numbers."""
    text = "In-place abs is not supported for complex tensors."
    dtypes.refuse_complex(text, input._array.dtype)
    return input.abs()


for _name in ("abs", "absolute"):
    setattr(Tensor, f"{_name}_", overwriting(_name, _of_real, line=True))
for _name in ("cumprod", "cumsum"):
    _running(_name)
for _name in _SINGLE.split():
    inplace(_name)
for _name in _COMPOSED.split():
    inplace(_name, composed=True)
for _name in _FUNCTIONS.split():
    FUNCTIONS[f"{_name}_"] = getattr(Tensor, f"{_name}_")
for _name in ("celu", "dropout", "selu", "threshold"):  # no methods of Tensor
    FUNCTIONS[f"{_name}_"] = overwriting(_name, FUNCTIONS[_name], composed=True)
