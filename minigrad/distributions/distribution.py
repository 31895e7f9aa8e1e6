"""`Distribution`, the base of all distributions: shapes, checks of arguments, text."""

from __future__ import annotations

import warnings
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.utils import broadcast_all, lazy_property
from minigrad.tensor import Size, Tensor

__all__ = ["Distribution"]


class Distribution:
    """Distributions of tensors: `batch_shape` independent ones, each of events of `event_shape`.

    `sample(shape)` has the shape (*shape, *batch_shape, *event_shape), `log_prob(value)` one of
    (..., *batch_shape). `rsample` can be differentiated, where there is one.
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args: bool = __debug__

    def __init__(
        self,
        batch_shape: Any = (),
        event_shape: Any = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()

    def _validate_parameters(self) -> None:
        try:
            sets = self.arg_constraints
        except NotImplementedError:
            sets = {}
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = "
                "{}` or initialize the distribution with `validate_args=False` to turn off "
                "validation.",
                stacklevel=4,
            )
        for name, constraint in sets.items():
            computed = isinstance(getattr(type(self), name, None), lazy_property)
            if constraints.is_dependent(constraint) or (computed and name not in vars(self)):
                continue
            value = getattr(self, name)
            if not bool(constraint.check(value.detach()).all()):
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

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with a larger batch shape: its parameters are expanded views.

        Parameters are the tensors that `arg_constraints` names; other attributes are kept, but what
        a `lazy_property` has computed of them is computed again.
        """
        new = type(self).__new__(type(self)) if _instance is None else _instance
        batch_shape, parameters = Size(batch_shape), self.arg_constraints
        for name, value in vars(self).items():
            if name in parameters or not isinstance(getattr(type(self), name, None), lazy_property):
                vars(new)[name] = value
        for name, constraint in parameters.items():
            value = vars(self).get(name)
            if isinstance(value, Tensor):
                event = value.shape[value.dim() - constraint.event_dim :]
                setattr(new, name, value.expand((*batch_shape, *event)))
        new._batch_shape = batch_shape
        return new

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """A new instance for `expand` of `cls`. NotImplementedError for a subclass with a
        constructor of its own, unless it gives one."""
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                "method must also define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    @property
    def batch_shape(self) -> Size:
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        return self._event_shape

    @property
    def arg_constraints(self) -> Any:
        """Per parameter, the set that it must be in."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The set of all samples."""
        raise NotImplementedError

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

    def sample_n(self, n: int) -> Tensor:
        """`sample((n,))`; torch deprecates it."""
        warnings.warn(
            "sample_n will be deprecated. Use .sample((n,)) instead", UserWarning, stacklevel=2
        )
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The value that is not exceeded with this probability: the inverse of `cdf`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution, along a new first dimension."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The mean of -log_prob."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _along_batch(self, values: Tensor, expand: bool) -> Tensor:
        """Values (n,) of all distributions as (n, *batch_shape), or (n, 1, ...)."""
        values = values.reshape(-1, *(1,) * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values

    def _validate_sample(self, value: Tensor) -> None:
        """ValueError for a value that is no tensor, does not broadcast, or is not in `support`;
        nothing is checked without `validate_args`."""
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        wanted = (*self._batch_shape, *self._event_shape)
        event_start = len(value.shape) - len(self._event_shape)
        if tuple(value.shape[event_start:]) != tuple(self._event_shape):
            raise ValueError(
                "The right-most size of value must match event_shape: "
                f"{value.shape} vs {self._event_shape}."
            )
        for i, j in zip(reversed(tuple(value.shape)), reversed(wanted)):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs "
                    f"{Size(wanted)}."
                )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support` to enable sample validation. Please "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if not bool(support.check(value.detach()).all()):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) "
                f"to be within the support ({support!r}) of the distribution {self!r}, but found "
                f"invalid values:\n{value}"
            )

    def __repr__(self) -> str:
        given = {n: vars(self)[n] for n in self.arg_constraints if n in vars(self)}
        parts = (f"{n}: {v if v.numel() == 1 else v.size()}" for n, v in given.items())
        return f"{type(self).__name__}({', '.join(parts)})"


class LocationScale(Distribution):
    """A family of which each member is another one times `scale`, plus `loc`."""

    has_rsample = True
    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)


__getattr__, __dir__ = namespace(__name__)
