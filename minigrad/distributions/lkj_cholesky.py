"""The distribution of Lewandowski, Kurowicka and Joe of correlation matrices."""

from __future__ import annotations

import math
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.beta import Beta
from minigrad.distributions.distribution import Distribution
from minigrad.distributions.utils import _standard_normal, broadcast_all
from minigrad.tensor import Tensor

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Lower Cholesky factors of `dim` by `dim` correlation matrices, whose density is proportional
    to their determinant to the power `concentration` - 1 (Lewandowski, Kurowicka and Joe:
    Generating random correlation matrices based on vines and extended onion method, 2009)."""

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """By the onion method: each row below the diagonal is a random direction, whose squared
        length is a beta variate."""
        kind: Any = {"dtype": self.concentration.dtype, "device": self.concentration.device}
        rows = minigrad.arange(1, self.dim, **kind)  # how many entries each has left of it
        rest = self.concentration.unsqueeze(-1) + 0.5 * (self.dim - 1 - rows)
        with minigrad.no_grad():
            squares = Beta(rows / 2, rest).sample(sample_shape)
            squares = minigrad.nn.functional.pad(squares, (1, 0)).unsqueeze(-1)
            noise = _standard_normal(self._extended_shape(sample_shape), **kind).tril(-1)
            length = (noise**2).sum(-1, keepdim=True)
            lower = noise * (squares / length.masked_fill(length == 0, 1.0)).sqrt()
            left = (1 - (lower**2).sum(-1)).clamp(min=minigrad.finfo(kind["dtype"]).tiny)
            return lower + left.sqrt().diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        diagonal = value.diagonal(0, -2, -1)[..., 1:]
        order = minigrad.arange(2, self.dim + 1, device=self.concentration.device)
        powers = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        n = self.dim - 1
        alpha = self.concentration + 0.5 * n
        constant = 0.5 * n * math.log(math.pi) + (alpha - 0.5).mvlgamma(n) - alpha.lgamma() * n
        return (powers * diagonal.log()).sum(-1) - constant


__getattr__, __dir__ = namespace(__name__)
