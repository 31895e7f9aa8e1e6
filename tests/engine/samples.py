"""One table of operations that all engine tests share: how to call each, on what, and what NumPy
says the result is.

`call(m, *tensors)` uses torch's names only, so the same line runs with `m = minigrad` and with
`m = torch`. `reference(*arrays)` is NumPy in float64.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special


@dataclass(frozen=True)
class Sample:
    """name: of the case. call: on a module and tensors. inputs: shapes, or arrays used as they are.
    reference: in NumPy, or None where only torch is compared. domain: (low, high) of random inputs.
    grad, gradgrad: whether first and second derivatives are checked.
    frozen: positions of inputs that never require a gradient (class weights, statistics).
    """

    name: str
    call: Callable[..., Any]
    inputs: tuple
    reference: Callable[..., Any] | None = None
    domain: tuple[float, float] = (-2.0, 2.0)
    grad: bool = True
    gradgrad: bool = True
    frozen: tuple[int, ...] = ()

    def arrays(self, dtype: Any = np.float64) -> list[np.ndarray]:
        """Reproducible inputs: the seed is made of the case's name."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        made = []
        for spec in self.inputs:
            if isinstance(spec, np.ndarray):
                made.append(spec.astype(dtype) if spec.dtype.kind == "f" else spec)
            else:
                made.append(rng.uniform(*self.domain, spec).astype(dtype))
        return made


SAMPLES: list[Sample] = []


def case(name: str, call: Callable, *inputs: Any, ref: Any = None, **options: Any) -> None:
    SAMPLES.append(Sample(name, call, inputs, ref, **options))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _lse(x: np.ndarray, axis: int) -> np.ndarray:
    return np.log(np.exp(x).sum(axis))


def _erf(x: np.ndarray) -> np.ndarray:
    from math import erf

    return np.vectorize(erf)(x)


INDEX = np.array([[2, 0, 1], [0, 0, 2]])
ROWS = np.array([2, 0, 2])
MASK = np.array([[True, False, True, False], [False, True, True, False], [True] * 4])
EDGE = np.array([[0.0, 2.0, 3.0], [4.0, 5.0, -6.0], [0.0, 0.0, 7.0]])  # zeros, for prod
CLASSES = np.array([1, 0, 3, 3, 2])

# --- pointwise ---
UNARY: dict[str, tuple] = {
    "abs": (np.abs, (0.2, 2)),
    "acos": (np.arccos, (-0.9, 0.9)),
    "acosh": (np.arccosh, (1.1, 3)),
    "asin": (np.arcsin, (-0.9, 0.9)),
    "asinh": (np.arcsinh, (-2, 2)),
    "atan": (np.arctan, (-2, 2)),
    "atanh": (np.arctanh, (-0.9, 0.9)),
    "cos": (np.cos, (-2, 2)),
    "cosh": (np.cosh, (-2, 2)),
    "erf": (_erf, (-2, 2)),
    "exp": (np.exp, (-2, 2)),
    "exp2": (np.exp2, (-2, 2)),
    "expm1": (np.expm1, (-2, 2)),
    "log": (np.log, (0.2, 3)),
    "log10": (np.log10, (0.2, 3)),
    "log1p": (np.log1p, (-0.5, 3)),
    "log2": (np.log2, (0.2, 3)),
    "neg": (np.negative, (-2, 2)),
    "reciprocal": (np.reciprocal, (0.3, 2)),
    "relu": (lambda x: np.maximum(x, 0), (-2, 2)),
    "rsqrt": (lambda x: 1 / np.sqrt(x), (0.3, 3)),
    "sigmoid": (sigmoid, (-3, 3)),
    "sin": (np.sin, (-2, 2)),
    "sinh": (np.sinh, (-2, 2)),
    "sqrt": (np.sqrt, (0.2, 3)),
    "square": (np.square, (-2, 2)),
    "tan": (np.tan, (-1, 1)),
    "tanh": (np.tanh, (-2, 2)),
}
for _name, (_ref, _domain) in UNARY.items():
    case(_name, lambda m, x, n=_name: getattr(m, n)(x), (3, 4), ref=_ref, domain=_domain)
STEPS = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint, "sign": np.sign}
for _name, _ref in STEPS.items():
    case(_name, lambda m, x, n=_name: getattr(m, n)(x), (3, 4), ref=_ref, grad=False)
TESTS = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}
for _name, _ref in TESTS.items():
    _odd = np.array([1.0, np.nan, np.inf, -np.inf])
    case(_name, lambda m, x, n=_name: getattr(m, n)(x), _odd, ref=_ref, grad=False)

case("add", lambda m, a, b: a + b, (3, 4), (3, 4), ref=np.add)
case("add_broadcast", lambda m, a, b: a + b, (3, 1, 4), (2, 1), ref=np.add)
case(
    "add_alpha", lambda m, a, b: m.add(a, b, alpha=2.5), (3, 4), (4,), ref=lambda a, b: a + 2.5 * b
)
case("add_scalar", lambda m, a: 2 + a, (3, 4), ref=lambda a: a + 2)
case("sub", lambda m, a, b: a - b, (3, 4), (3, 1), ref=np.subtract)
case("rsub_scalar", lambda m, a: 1 - a, (3, 4), ref=lambda a: 1 - a)
case("mul", lambda m, a, b: a * b, (3, 4), (3, 4), ref=np.multiply)
case("mul_zero_dim", lambda m, a, b: a * b, (3, 4), (), ref=np.multiply)
case("div", lambda m, a, b: a / b, (3, 4), (3, 4), ref=np.divide, domain=(0.5, 2))
case("rdiv_scalar", lambda m, a: 3 / a, (3, 4), ref=lambda a: 3 / a, domain=(0.5, 2))
case(
    "div_floor",
    lambda m, a, b: m.div(a, b, rounding_mode="floor"),
    (9,),
    (9,),
    ref=np.floor_divide,
    grad=False,
)
case("floordiv", lambda m, a, b: a // b, (9,), (9,), ref=np.floor_divide, grad=False)
case("remainder", lambda m, a, b: a % b, (9,), (9,), ref=np.mod, domain=(0.6, 3), gradgrad=False)
case("fmod", lambda m, a: m.fmod(a, 0.7), (9,), ref=lambda a: np.fmod(a, 0.7))
case("pow", lambda m, a, b: a**b, (3, 4), (3, 4), ref=np.power, domain=(0.5, 2))
case("pow_scalar", lambda m, a: a**3, (3, 4), ref=lambda a: a**3)
case("pow_two", lambda m, a: a**2, (3, 4), ref=lambda a: a**2)
case("rpow", lambda m, a: 2.0**a, (3, 4), ref=lambda a: 2.0**a)
case("maximum", lambda m, a, b: m.maximum(a, b), (3, 4), (4,), ref=np.maximum)
case("minimum", lambda m, a, b: m.minimum(a, b), (3, 4), (4,), ref=np.minimum)
case("atan2", lambda m, a, b: m.atan2(a, b), (3, 4), (3, 4), ref=np.arctan2, domain=(0.3, 2))
case("logaddexp", lambda m, a, b: m.logaddexp(a, b), (3, 4), (3, 4), ref=np.logaddexp)
case("clamp", lambda m, a: a.clamp(-0.5, 1), (3, 4), ref=lambda a: a.clip(-0.5, 1))
case("clamp_min", lambda m, a: a.clamp(min=0.3), (3, 4), ref=lambda a: np.maximum(a, 0.3))
case("clamp_tensor", lambda m, a, b: m.clamp(a, max=b), (3, 4), (4,), ref=np.minimum)
case(
    "where",
    lambda m, a, b: m.where(a > 0, a, b),
    (3, 4),
    (4,),
    ref=lambda a, b: np.where(a > 0, a, b),
)
case(
    "masked_fill",
    lambda m, a, k: a.masked_fill(k, 7.0),
    (3, 4),
    MASK,
    ref=lambda a, k: np.where(k, 7, a),
)
case("lerp", lambda m, a, b: m.lerp(a, b, 0.3), (3, 4), (3, 4), ref=lambda a, b: a + 0.3 * (b - a))
case(
    "addcmul",
    lambda m, a, b, c: m.addcmul(a, b, c, value=0.5),
    (3, 4),
    (3, 4),
    (4,),
    ref=lambda a, b, c: a + 0.5 * b * c,
)
case(
    "addcdiv",
    lambda m, a, b, c: m.addcdiv(a, b, c, value=0.5),
    (3, 4),
    (3, 4),
    (4,),
    ref=lambda a, b, c: a + 0.5 * b / c,
    domain=(0.5, 2),
)
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"):
    _numpy = {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }.get(_name) or getattr(np, _name)
    case(
        _name,
        lambda m, a, b, n=_name: getattr(m, n)(a, b),
        np.array([1.0, 2, 0]),
        np.array([1.0, 0, 3]),
        ref=_numpy,
        grad=False,
    )

# --- activations ---
case(
    "leaky_relu",
    lambda m, x: m.nn.functional.leaky_relu(x, 0.1),
    (3, 4),
    ref=lambda x: np.where(x > 0, x, 0.1 * x),
)
case(
    "elu",
    lambda m, x: m.nn.functional.elu(x, 1.5),
    (3, 4),
    ref=lambda x: np.where(x > 0, x, 1.5 * np.expm1(x)),
)
case("selu", lambda m, x: m.selu(x), (3, 4))
case(
    "celu",
    lambda m, x: m.celu(x, 1.5),
    (3, 4),
    ref=lambda x: np.where(x > 0, x, 1.5 * np.expm1(x / 1.5)),
)
case("silu", lambda m, x: m.nn.functional.silu(x), (3, 4), ref=lambda x: x * sigmoid(x))
case(
    "gelu",
    lambda m, x: m.nn.functional.gelu(x),
    (3, 4),
    ref=lambda x: x * 0.5 * (1 + _erf(x / np.sqrt(2))),
)
case("gelu_tanh", lambda m, x: m.nn.functional.gelu(x, approximate="tanh"), (3, 4))
case(
    "mish",
    lambda m, x: m.nn.functional.mish(x),
    (3, 4),
    ref=lambda x: x * np.tanh(np.log1p(np.exp(x))),
)
case(
    "softplus",
    lambda m, x: m.nn.functional.softplus(x, 2.0, 1.0),
    (3, 4),
    ref=lambda x: np.where(2 * x > 1, x, np.log1p(np.exp(2 * x)) / 2),
)
case(
    "softsign", lambda m, x: m.nn.functional.softsign(x), (3, 4), ref=lambda x: x / (1 + np.abs(x))
)
case(
    "logsigmoid",
    lambda m, x: m.nn.functional.logsigmoid(x),
    (3, 4),
    ref=lambda x: np.log(sigmoid(x)),
)
case("hardtanh", lambda m, x: m.nn.functional.hardtanh(x), (3, 4), ref=lambda x: x.clip(-1, 1))
case(
    "hardsigmoid",
    lambda m, x: m.nn.functional.hardsigmoid(x),
    (3, 4),
    ref=lambda x: (x / 6 + 0.5).clip(0, 1),
)
case(
    "hardswish",
    lambda m, x: m.nn.functional.hardswish(x),
    (3, 4),
    ref=lambda x: x * (x + 3).clip(0, 6) / 6,
)
case("tanhshrink", lambda m, x: m.nn.functional.tanhshrink(x), (3, 4), ref=lambda x: x - np.tanh(x))
case(
    "softshrink",
    lambda m, x: m.nn.functional.softshrink(x, 0.5),
    (3, 4),
    ref=lambda x: x - x.clip(-0.5, 0.5),
)
case(
    "hardshrink",
    lambda m, x: m.nn.functional.hardshrink(x, 0.5),
    (3, 4),
    ref=lambda x: np.where(np.abs(x) <= 0.5, 0, x),
)
case(
    "prelu",
    lambda m, x, w: m.prelu(x, w),
    (2, 3, 4),
    (3,),
    ref=lambda x, w: np.where(x > 0, x, w[:, None] * x),
)
case(
    "glu",
    lambda m, x: m.nn.functional.glu(x, 1),
    (3, 4),
    ref=lambda x: x[:, :2] * sigmoid(x[:, 2:]),
)

# --- reductions ---
case("sum", lambda m, x: x.sum(), (3, 4), ref=lambda x: x.sum())
case("sum_dim", lambda m, x: x.sum(1), (3, 4), ref=lambda x: x.sum(1))
case(
    "sum_dims_keep",
    lambda m, x: x.sum((0, -1), keepdim=True),
    (3, 4, 2),
    ref=lambda x: x.sum((0, 2), keepdims=True),
)
case("sum_empty", lambda m, x: x.sum(0), (0, 3), ref=lambda x: x.sum(0), gradgrad=False)
case("mean", lambda m, x: m.mean(x), (3, 4), ref=lambda x: x.mean())
case("mean_dim", lambda m, x: x.mean(dim=0), (3, 4), ref=lambda x: x.mean(0))
case("prod", lambda m, x: x.prod(), (2, 3), ref=lambda x: x.prod())
case("prod_dim_zeros", lambda m, x: x.prod(1), EDGE, ref=lambda x: x.prod(1))
case("prod_zeros", lambda m, x: m.prod(x), np.array([2.0, 0.0, 3.0]), ref=lambda x: x.prod())
case("max", lambda m, x: x.max(), (3, 4), ref=lambda x: x.max())
case("max_dim", lambda m, x: x.max(1).values, (3, 4), ref=lambda x: x.max(1))
case(
    "max_dim_indices",
    lambda m, x: m.max(x, 0, keepdim=True)[1],
    (3, 4),
    ref=lambda x: x.argmax(0)[None],
    grad=False,
)
case("max_pair", lambda m, a, b: m.max(a, b), (3, 4), (3, 4), ref=np.maximum)
case("min", lambda m, x: x.min(), (3, 4), ref=lambda x: x.min())
case(
    "min_dim",
    lambda m, x: x.min(dim=-1, keepdim=True)[0],
    (3, 4),
    ref=lambda x: x.min(1, keepdims=True),
)
case(
    "amax_ties",
    lambda m, x: m.amax(x, 1),
    np.array([[1.0, 3, 3], [2, 2, 2]]),
    ref=lambda x: x.max(1),
    grad=False,
)
case("amin", lambda m, x: m.amin(x, (0, 1)), (3, 4), ref=lambda x: x.min())
case("argmax", lambda m, x: x.argmax(), (3, 4), ref=lambda x: x.argmax(), grad=False)
case(
    "argmin_dim",
    lambda m, x: m.argmin(x, dim=1, keepdim=True),
    (3, 4),
    ref=lambda x: x.argmin(1)[:, None],
    grad=False,
)
case("any", lambda m, x: (x > 1).any(1), (3, 4), ref=lambda x: (x > 1).any(1), grad=False)
case("all", lambda m, x: (x > -1).all(), (3, 4), ref=lambda x: (x > -1).all(), grad=False)
case("var", lambda m, x: x.var(), (3, 4), ref=lambda x: x.var(ddof=1))
case("var_dim", lambda m, x: x.var(1, unbiased=False), (3, 4), ref=lambda x: x.var(1))
case(
    "std",
    lambda m, x: m.std(x, 1, keepdim=True),
    (3, 4),
    ref=lambda x: x.std(1, ddof=1, keepdims=True),
)
case("norm", lambda m, x: x.norm(), (3, 4), ref=lambda x: np.sqrt((x**2).sum()))
case(
    "norm_dim",
    lambda m, x: x.norm(dim=1, keepdim=True),
    (3, 4),
    ref=lambda x: np.sqrt((x**2).sum(1, keepdims=True)),
)
case("norm_1", lambda m, x: m.norm(x, p=1, dim=0), (3, 4), ref=lambda x: np.abs(x).sum(0))
case("norm_3", lambda m, x: x.norm(3), (3, 4), ref=lambda x: (np.abs(x) ** 3).sum() ** (1 / 3))
case(
    "nansum",
    lambda m, x: m.nansum(m.where(x > 1, np.nan, x), 1),
    (3, 4),
    ref=lambda x: np.nansum(np.where(x > 1, np.nan, x), 1),
)
case("norm_inf", lambda m, x: x.norm(float("inf")), (3, 4), ref=lambda x: np.abs(x).max())
case(
    "dist",
    lambda m, a, b: a.dist(b),
    (3, 4),
    (3, 4),
    ref=lambda a, b: np.sqrt(((a - b) ** 2).sum()),
)
case("logsumexp", lambda m, x: m.logsumexp(x, 1), (3, 4), ref=lambda x: _lse(x, 1))
case("cumsum", lambda m, x: x.cumsum(1), (3, 4), ref=lambda x: x.cumsum(1))
case("cumprod", lambda m, x: x.cumprod(0), (3, 2), ref=lambda x: x.cumprod(0))
case("median", lambda m, x: x.median(1).values, (3, 5), ref=lambda x: np.median(x, 1))
case("count_nonzero", lambda m, x: m.count_nonzero(x), EDGE, ref=np.count_nonzero, grad=False)

# --- matrix products ---
case("mm", lambda m, a, b: a @ b, (3, 4), (4, 2), ref=np.matmul)
case("mm_transposed", lambda m, a, b: a.t() @ b.t(), (4, 3), (2, 4), ref=lambda a, b: a.T @ b.T)
case("matmul_vectors", lambda m, a, b: m.matmul(a, b), (4,), (4,), ref=np.matmul)
case("matmul_vector_left", lambda m, a, b: a @ b, (4,), (2, 4, 3), ref=np.matmul)
case("matmul_vector_right", lambda m, a, b: a @ b, (2, 3, 4), (4,), ref=np.matmul)
case("matmul_batch_broadcast", lambda m, a, b: a @ b, (2, 1, 3, 4), (3, 4, 2), ref=np.matmul)
case("matmul_batch_by_matrix", lambda m, a, b: a @ b, (2, 3, 4), (4, 2), ref=np.matmul)
case("bmm", lambda m, a, b: m.bmm(a, b), (2, 3, 4), (2, 4, 2), ref=np.matmul)
case("mv", lambda m, a, b: m.mv(a, b), (3, 4), (4,), ref=np.matmul)
case("dot", lambda m, a, b: a.dot(b), (4,), (4,), ref=np.dot)
case("outer", lambda m, a, b: m.outer(a, b), (3,), (4,), ref=np.outer)
case(
    "addmm",
    lambda m, c, a, b: m.addmm(c, a, b, beta=2, alpha=0.5),
    (2,),
    (3, 4),
    (4, 2),
    ref=lambda c, a, b: 2 * c + 0.5 * (a @ b),
)
case(
    "linear",
    lambda m, x, w, b: m.nn.functional.linear(x, w, b),
    (3, 4),
    (2, 4),
    (2,),
    ref=lambda x, w, b: x @ w.T + b,
)
case(
    "linear_3d",
    lambda m, x, w: m.nn.functional.linear(x, w),
    (2, 3, 4),
    (2, 4),
    ref=lambda x, w: x @ w.T,
)
case(
    "einsum_matmul",
    lambda m, a, b: m.einsum("ij,jk->ki", a, b),
    (3, 4),
    (4, 2),
    ref=lambda a, b: (a @ b).T,
)
case(
    "einsum_batch",
    lambda m, a, b: m.einsum("bhqd,bhkd->bhqk", a, b),
    (2, 2, 3, 4),
    (2, 2, 2, 4),
    ref=lambda a, b: np.einsum("bhqd,bhkd->bhqk", a, b),
)
case(
    "einsum_ellipsis",
    lambda m, a, b: m.einsum("...ij,j->...i", a, b),
    (2, 3, 4),
    (4,),
    ref=lambda a, b: a @ b,
)
case("einsum_trace", lambda m, a: m.einsum("ii", a), (3, 3), ref=np.trace)
case(
    "einsum_three",
    lambda m, a, b, c: m.einsum("i,ij,j", a, b, c),
    (3,),
    (3, 4),
    (4,),
    ref=lambda a, b, c: a @ b @ c,
)
case("tensordot", lambda m, a, b: m.tensordot(a, b, dims=([1], [0])), (3, 4), (4, 2), ref=np.matmul)
case("trace", lambda m, a: m.trace(a), (3, 3), ref=np.trace)

# --- fewer programs ask for these ---
case("erfc", lambda m, x: m.erfc(x), (3, 4), ref=special.erfc)
case("lgamma", lambda m, x: m.lgamma(x), (3, 4), ref=special.gammaln, domain=(0.3, 5))
case("digamma", lambda m, x: m.digamma(x), (3, 4), ref=special.digamma, domain=(-2.8, -2.2))
case("logit", lambda m, x: m.logit(x), (3, 4), ref=special.logit, domain=(0.1, 0.9))
case("copysign", lambda m, a, b: m.copysign(a, b), (3, 4), (4,), ref=np.copysign)
case("cummax", lambda m, x: x.cummax(1).values, (3, 4), ref=lambda x: np.maximum.accumulate(x, 1))
case(
    "logcumsumexp",
    lambda m, x: x.logcumsumexp(1),
    (3, 4),
    ref=lambda x: np.logaddexp.accumulate(x, 1),
)
for _how in ("sum", "mean", "prod", "amax", "amin"):
    case(
        f"scatter_reduce_{_how}",
        lambda m, x, i, s, how=_how: x.scatter_reduce(0, i, s, how, include_self=how != "mean"),
        (3, 3),
        INDEX,
        (2, 3),
        domain=(0.5, 2),
        gradgrad=_how not in ("amax", "amin"),
    )
for _how in ("sum", "mean", "prod", "max", "min"):
    case(
        f"segment_reduce_{_how}",
        lambda m, x, how=_how: m.segment_reduce(
            *(x, how),
            lengths=m.tensor([[2, 0, 1], [1, 1, 1]], device=x.device),
            axis=1,
            initial=1.2,
        ),
        (2, 3, 2),
        domain=(0.5, 2),
        gradgrad=_how not in ("max", "min"),
    )
case("diff", lambda m, x: m.diff(x, 2, 0), (5, 3), ref=lambda x: np.diff(x, 2, 0))
case("cross", lambda m, a, b: m.cross(a, b, dim=1), (2, 3), (2, 3), ref=np.cross)
case("quantile", lambda m, x: m.quantile(x, 0.3, 1), (3, 5), ref=lambda x: np.quantile(x, 0.3, 1))
case(
    "cdist",
    lambda m, a, b: m.cdist(a, b),
    (3, 2),
    (4, 2),
    ref=lambda a, b: np.linalg.norm(a[:, None] - b, axis=-1),
)
case(
    "interpolate",
    lambda m, x: m.nn.functional.interpolate(x, size=(5, 2), mode="bicubic"),
    (1, 2, 3, 4),
)
case(
    "unfold_images",
    lambda m, x: m.nn.functional.unfold(x, (2, 3), dilation=(2, 1), padding=1, stride=2),
    (2, 2, 5, 4),
)
case("fold_images", lambda m, x: m.nn.functional.fold(x, (4, 3), 2), (2, 8, 6))
