"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any

from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.gamma import Gamma
from minigrad.tensor import Tensor

__all__ = ["Chi2"]


class Chi2(Gamma):
    """The sum of the squares of `df` standard normal numbers."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.concentration = self.concentration.expand(new.batch_shape)
        new.rate = self.rate.expand(new.batch_shape)
        return new

    @property
    def df(self) -> Tensor:
        return self.concentration * 2


__getattr__, __dir__ = namespace(__name__)
