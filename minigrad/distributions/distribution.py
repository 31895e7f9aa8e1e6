"""`Distribution`, the base of all distributions: shapes, checks of arguments, text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import minigrad
from minigrad.tensor import Size, Tensor


class Constraint(NamedTuple):
    """A set of values: its name in errors, and where a tensor's elements (or rows) are in it."""

    name: str
    check: Callable[[Tensor], Tensor]

    def __repr__(self) -> str:
        return self.name


def _is_simplex(value: Tensor) -> Tensor:
    return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


REAL = Constraint("Real()", lambda v: v == v)
REAL_VECTOR = Constraint("IndependentConstraint(Real(), 1)", lambda v: v == v)
POSITIVE = Constraint("GreaterThan(lower_bound=0.0)", lambda v: v > 0)
UNIT_INTERVAL = Constraint(
    "Interval(lower_bound=0.0, upper_bound=1.0)", lambda v: (v >= 0) & (v <= 1)
)
BOOLEAN = Constraint("Boolean()", lambda v: (v == 0) | (v == 1))
SIMPLEX = Constraint("Simplex()", _is_simplex)
LOWER_CHOLESKY = Constraint(
    "LowerCholesky()",
    lambda v: (v.tril() == v).flatten(-2).all(-1) & (v.diagonal(0, -2, -1) > 0).all(-1),
)
SQUARE = Constraint("PositiveDefinite()", lambda v: (v - v.mT).abs().flatten(-2).max(-1)[0] < 1e-6)


def broadcast_all(*values: Any) -> list[Tensor]:
    """Tensors and numbers as tensors of one shape."""
    first = next((v for v in values if isinstance(v, Tensor)), None)
    kind: dict[str, Any] = {} if first is None else {"dtype": first.dtype, "device": first.device}
    tensors = [v if isinstance(v, Tensor) else minigrad.tensor(float(v), **kind) for v in values]
    return list(minigrad.broadcast_tensors(*tensors))


class Distribution:
    """Distributions of tensors: `batch_shape` independent ones, each of events of `event_shape`.

    `sample(shape)` has the shape (*shape, *batch_shape, *event_shape), `log_prob(value)` one of
    (..., *batch_shape). `rsample` can be differentiated, where there is one.
    """

    has_rsample = False
    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    support: Constraint | None = None
    _validate_args = True

    def __init__(
        self,
        batch_shape: Any = (),
        event_shape: Any = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if not self._validate_args:
            return
        for name, constraint in self.arg_constraints.items():
            value = self.__dict__.get(name)
            if value is not None and not bool(constraint.check(value.detach()).all()):
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
                    f"{constraint!r}, but found invalid values:\n{value}"
                )

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether arguments are checked from now on."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    @property
    def batch_shape(self) -> Size:
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        return self._event_shape

    @property
    def mean(self) -> Tensor:
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Samples without a graph."""
        with minigrad.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Samples as a differentiable function of the parameters."""
        raise NotImplementedError

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The value that is not exceeded with this probability: the inverse of `cdf`."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The mean of -log_prob."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value: Tensor) -> None:
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        wanted = (*self._batch_shape, *self._event_shape)
        for i, j in zip(reversed(tuple(value.shape)), reversed(wanted)):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs "
                    f"{Size(wanted)}."
                )
        support = self.support
        if support is not None and not bool(support.check(value.detach()).all()):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) "
                f"to be within the support ({support!r}) of the distribution {self!r}, but found "
                f"invalid values:\n{value}"
            )

    def __repr__(self) -> str:
        given = {n: self.__dict__[n] for n in self.arg_constraints if n in self.__dict__}
        parts = (f"{n}: {v if v.numel() == 1 else v.size()}" for n, v in given.items())
        return f"{type(self).__name__}({', '.join(parts)})"
