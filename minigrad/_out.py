"""`out=`: tensors that a function writes its results into."""

from __future__ import annotations

import warnings
from typing import Any

from minigrad import dtypes
from minigrad._names import kind
from minigrad._overlap import check_apart, check_no_overlap
from minigrad.autograd.mode import mode
from minigrad.tensor import Tensor

# The functions of `torch` that take it (zeros, ones and empty see to it themselves). Those of
# torch.linalg, torch.fft and torch.special take it all.
NAMES = frozenset(
    """
    abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr all amax amin aminmax angle
    any arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort asin asinh
    atan atan2 atanh baddbmm bernoulli bitwise_and bitwise_left_shift bitwise_not bitwise_or
    bitwise_right_shift bitwise_xor bmm bucketize cat ceil cholesky cholesky_inverse cholesky_solve
    clamp clamp_max clamp_min clip column_stack complex concat concatenate conj_physical copysign
    cos cosh cross cummax cummin cumprod cumsum deg2rad diag diff digamma div divide dot dstack eq
    erf erfc erfinv exp exp2 expm1 eye fix float_power floor floor_divide fmax fmin fmod frac frexp
    full gather gcd ge geqrf ger greater greater_equal gt hardshrink heaviside histc
    histogram hstack hypot i0 igamma igammac index_add index_copy index_reduce index_select inner
    inverse isin isneginf isposinf kron kthvalue lcm ldexp le lerp less less_equal lgamma linspace
    log log10 log1p log2 log_softmax logaddexp logaddexp2 logcumsumexp logical_and logical_not
    logical_or logical_xor logit logspace logsumexp lt masked_select matmul matrix_power max maximum
    mean median min minimum mm mode msort mul multinomial multiply mv mvlgamma nan_to_num nanmean
    nanmedian nanquantile nansum narrow_copy ne neg negative nextafter nonzero nonzero_static norm
    normal not_equal
    orgqr outer polar polygamma pow prod qr quantile rad2deg rand randint randn
    randperm range reciprocal remainder renorm round row_stack rsqrt scatter scatter_add
    scatter_reduce searchsorted sgn sigmoid sign signbit sin sinc sinh slice_scatter slogdet softmax
    sort sqrt square stack std sub subtract sum svd take take_along_dim tan tanh tensordot threshold
    topk triangular_solve tril triu true_divide trunc var vdot vstack where xlogy
    """.split()
)

# Those that compute in the dtype of `out`, as with that `dtype=`.
_COMPUTED_THERE = frozenset(
    "arange cumprod cumsum eye full linspace logspace nansum prod rand randn range sum".split()
)

# Those whose `out` must have the dtype of the result; other functions convert it.
_OF_THAT_DTYPE = _COMPUTED_THERE | frozenset(
    """
    addbmm addmm addmv amax amin aminmax argmax argmin argsort baddbmm bitwise_not bmm bucketize
    ceil complex conj_physical cross cummax cummin det diag dot fix floor frac frexp gather ger
    heaviside histc histogram index_add index_copy index_reduce index_select inner inv inverse isin
    isneginf isposinf kthvalue log_softmax logcumsumexp masked_select matmul matrix_norm
    matrix_power median mm mode msort multi_dot multinomial mv nan_to_num nanmedian nanquantile
    narrow_copy neg negative nonzero norm polar qr quantile renorm round scatter scatter_add
    scatter_reduce searchsorted sgn sign signbit slice_scatter slogdet softmax solve sort svd
    svdvals take take_along_dim tensordot topk triangular_solve tril triu trunc vdot vecdot
    vector_norm where
    """.split()
)

_JOINING = {"cat", "column_stack", "concat", "concatenate", "dstack", "hstack", "stack", "vstack"}


def with_dtype(name: str, out: Any, words: dict) -> dict:
    """Named arguments, with the dtype of `out` for a function that computes in it."""
    if name in _COMPUTED_THERE and isinstance(out, Tensor) and words.get("dtype") is None:
        return words | {"dtype": out.dtype}
    return words


def into(name: str, out: Any, result: Any, operands: tuple = ()) -> Any:
    """The result, or results, of the function `name`, copied into `out`.

    out: a tensor, or a tuple of them for several results; of another shape it is resized, with
    torch's warning unless it was empty. RuntimeError where a gradient would be lost, the result
    has another dtype, which is not to be converted or doesn't fit, or `out` shares a part of its
    memory with an operand.
    """
    if isinstance(result, tuple):
        if not isinstance(out, tuple | list) or len(out) != len(result):
            raise TypeError(f"{name}(): expected out to be a tuple of {len(result)} tensors")
        given = [into(name, o, r, operands) for o, r in zip(out, result, strict=True)]
        return type(result)(*given) if hasattr(result, "_fields") else tuple(given)
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {kind(out)}")
    if mode.enabled and (result.requires_grad or out.requires_grad):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad."
        )
    given, wanted = out._array.dtype, result._array.dtype
    if name in _OF_THAT_DTYPE and given != wanted:
        raise RuntimeError(f"{name}(): expected out to have dtype {result.dtype}, got {out.dtype}")
    if dtypes.category(wanted) > dtypes.category(given):
        raise (TypeError if name in _JOINING else RuntimeError)(
            f"result type {result.dtype.legacy_name.removesuffix('Tensor')} can't be cast to the "
            f"desired output type {out.dtype.legacy_name.removesuffix('Tensor')}"
        )
    if out.shape != result.shape:
        _resize(out, result)
    check_no_overlap(out._array)
    for operand in operands:
        check_apart(out, operand if isinstance(operand, list | tuple) else (operand,))
    return out.copy_(result.detach())


def _resize(out: Tensor, result: Tensor) -> None:
    if out.numel():
        warnings.warn(
            "An output with one or more elements was resized since it had shape "
            f"{list(out.shape)}, which does not match the required output shape "
            f"{list(result.shape)}.",
            stacklevel=4,
        )
    out.resize_(tuple(result.shape))
