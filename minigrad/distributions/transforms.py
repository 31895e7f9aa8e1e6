"""Invertible functions with known Jacobians, with torch.distributions.transforms' names."""

from __future__ import annotations

import math
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions._part_transforms import CatTransform, StackTransform
from minigrad.distributions._transform import (
    ComposeTransform,
    IndependentTransform,
    ReshapeTransform,
    Transform,
    _InverseTransform,  # noqa: F401 - programs look for it here
    at_least,
    identity_transform,
)
from minigrad.distributions.distribution import Distribution
from minigrad.distributions.utils import (
    _sum_rightmost,
    broadcast_all,
    lazy_property,
    tril_matrix_to_vec,
    vec_to_tril_matrix,
)
from minigrad.nn import functional as F
from minigrad.tensor import Size, Tensor

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform",
    "LowerCholeskyTransform", "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform",
    "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform", "StackTransform",
    "StickBreakingTransform", "TanhTransform", "Transform", "identity_transform",
]  # fmt: skip


class _Plain(Transform):
    """Transforms without parameters: all of a class are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self))


class _Increasing(_Plain):
    domain = constraints.real
    bijective = True
    sign = 1


class ExpTransform(_Increasing):
    """exp(x)"""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class SigmoidTransform(_Increasing):
    """sigmoid(x), which is never quite 0 or 1."""

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        return _inside(x.sigmoid())

    def _inverse(self, y: Tensor) -> Tensor:
        y = _inside(y)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x) - F.softplus(x)


def _inside(y: Tensor) -> Tensor:
    found = minigrad.finfo(y.dtype)
    return y.clamp(found.tiny, 1 - found.eps)


class SoftplusTransform(_Increasing):
    """log(1 + exp(x))"""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return F.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x)


class TanhTransform(_Increasing):
    """tanh(x)"""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        # log(1 - tanh(x)^2), without the loss of digits where tanh(x) is near 1
        return 2 * (math.log(2) - x - F.softplus(-2 * x))


class AbsTransform(_Plain):
    """|x|; the inverse takes the positive of both."""

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class PowerTransform(Transform):
    """x ** exponent"""

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        (self.exponent,) = broadcast_all(exponent)

    @lazy_property
    def sign(self) -> Tensor:  # type: ignore[override]
        return self.exponent.sign()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and _same(self.exponent, other.exponent)

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Size) -> Size:
        return minigrad.broadcast_shapes(shape, self.exponent.shape)

    inverse_shape = forward_shape


def _same(a: Any, b: Any) -> bool:
    """Whether two numbers or tensors are equal."""
    equal = a == b
    return bool(equal.all()) if isinstance(equal, Tensor) else equal


class AffineTransform(Transform):
    """loc + scale * x, for events of `event_dim` dimensions."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> constraints.Constraint:
        if not self._event_dim:
            return constraints.real
        return constraints.independent(constraints.real, self._event_dim)

    codomain = domain

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AffineTransform):
            return False
        return _same(self.loc, other.loc) and _same(self.scale, other.scale)

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, int | float):
            return (self.scale > 0) - (self.scale < 0)
        return self.scale.sign()

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, int | float):
            log = minigrad.full_like(x, math.log(abs(self.scale)))
        else:
            log = self.scale.abs().log()
        log = _sum_rightmost(log, self._event_dim)
        return log.expand(x.shape[: x.dim() - self._event_dim])

    def forward_shape(self, shape: Size) -> Size:
        given = [v.shape for v in (self.loc, self.scale) if isinstance(v, Tensor)]
        return minigrad.broadcast_shapes(shape, *given)

    inverse_shape = forward_shape


class CumulativeDistributionTransform(Transform):
    """`distribution.cdf(x)`"""

    bijective = True
    codomain = constraints.unit_interval
    sign = 1

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)


# --- vectors and matrices ---


class SoftmaxTransform(_Plain):
    """softmax over the last dimension: not invertible; its inverse is log."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Size) -> Size:
        at_least(1, shape)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(_Plain):
    """n numbers to n + 1 probabilities: each takes a part of what those before it left."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    @staticmethod
    def _log_left(like: Tensor, count: int) -> Tensor:
        """log of how many follow: with it, zeros become equal probabilities."""
        return minigrad.arange(count, 0, -1, dtype=like.dtype, device=like.device).log()

    def _call(self, x: Tensor) -> Tensor:
        taken = _inside((x - self._log_left(x, x.shape[-1])).sigmoid())
        left = (1 - taken).cumprod(-1)
        return F.pad(taken, (0, 1), value=1.0) * F.pad(left, (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        y = y[..., :-1]
        left = (1 - y.cumsum(-1)).clamp(min=minigrad.finfo(y.dtype).tiny)
        return y.log() - left.log() + self._log_left(y, y.shape[-1])

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - self._log_left(x, x.shape[-1])
        return (-x + F.logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Size) -> Size:
        at_least(1, shape)
        return Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Size) -> Size:
        at_least(1, shape)
        return Size((*shape[:-1], shape[-1] - 1))


class LowerCholeskyTransform(_Plain):
    """The lower triangle, with exp of the diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(0, -2, -1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(0, -2, -1).log().diag_embed()


class PositiveDefiniteTransform(_Plain):
    """L @ L.T with the L of `LowerCholeskyTransform`."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        lower = LowerCholeskyTransform()(x)
        return lower @ lower.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(minigrad.linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """n (n - 1) / 2 numbers to the Cholesky factor of an n by n correlation matrix: tanh gives
    partial correlations, and each entry takes its part of what is left of the row's length."""

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        eps = minigrad.finfo(x.dtype).eps
        partial = vec_to_tril_matrix(x.tanh().clamp(-1 + eps, 1 - eps), diag=-1)
        left = (1 - partial**2).sqrt().cumprod(-1)
        unit = minigrad.eye(partial.shape[-1], dtype=x.dtype, device=x.device)
        return (partial + unit) * F.pad(left[..., :-1], (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        left = F.pad((1 - (y * y).cumsum(-1))[..., :-1], (1, 0), value=1.0)
        partial = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return (partial.log1p() - (-partial).log1p()) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor, intermediates: Any = None) -> Tensor:
        left = tril_matrix_to_vec(1 - (y * y).cumsum(-1), diag=-2)
        of_tanh = TanhTransform().log_abs_det_jacobian(x, y)
        return 0.5 * left.log().sum(-1) + of_tanh.sum(-1)

    def forward_shape(self, shape: Size) -> Size:
        at_least(1, shape)
        count = shape[-1]
        n = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != count:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return Size((*shape[:-1], n, n))

    def inverse_shape(self, shape: Size) -> Size:
        at_least(2, shape)
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        n = shape[-1]
        return Size((*shape[:-2], n * (n - 1) // 2))


__getattr__, __dir__ = namespace(__name__)
