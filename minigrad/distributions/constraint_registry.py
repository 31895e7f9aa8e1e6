"""From unconstrained numbers to a set: `biject_to(set)` is a bijection, `transform_to(set)` any
transform onto it, often with fewer conditions on its argument."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

from minigrad._names import namespace
from minigrad.distributions import constraints, transforms
from minigrad.distributions.constraints import Constraint
from minigrad.distributions.transforms import Transform

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Per class of sets, a function that makes a transform of a set."""

    def __init__(self) -> None:
        self._registry: dict[type, Callable] = {}

    def register(self, constraint: Any, factory: Callable | None = None) -> Callable:
        """Register for a class of sets (or for that of an instance); a decorator without
        `factory`."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, Constraint):
            raise TypeError(
                "Expected constraint to be either a Constraint subclass or instance, but got "
                f"{constraint}"
            )
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        """The transform of real numbers onto a set. NotImplementedError where none is known."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _register(factory: Callable, *sets: Any) -> None:
    """Register for both."""
    for constraint in sets:
        biject_to.register(constraint, factory)
        transform_to.register(constraint, factory)


def _to_above(constraint: Any) -> Transform:
    shift = transforms.AffineTransform(constraint.lower_bound, 1)
    return transforms.ComposeTransform([transforms.ExpTransform(), shift])


def _to_below(constraint: Any) -> Transform:
    mirror = transforms.AffineTransform(constraint.upper_bound, -1)
    return transforms.ComposeTransform([transforms.ExpTransform(), mirror])


def _to_interval(constraint: Any) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if all(isinstance(v, numbers.Number) for v in (low, high)) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    onto = transforms.AffineTransform(low, high - low)
    return transforms.ComposeTransform([transforms.SigmoidTransform(), onto])


_register(lambda c: transforms.identity_transform, constraints.real)
_register(_to_above, constraints.greater_than, constraints.greater_than_eq)
_register(_to_below, constraints.less_than)
_register(_to_interval, constraints.interval, constraints.half_open_interval)
_register(lambda c: transforms.CorrCholeskyTransform(), constraints.corr_cholesky)
biject_to.register(constraints.simplex, lambda c: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda c: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda c: transforms.LowerCholeskyTransform())
for _set in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_set, lambda c: transforms.PositiveDefiniteTransform())


def _register_parts(registry: ConstraintRegistry) -> None:
    """Sets that are made of other sets."""

    @registry.register(constraints.independent)
    def _independent(c: Any) -> Transform:
        base = registry(c.base_constraint)
        return transforms.IndependentTransform(base, c.reinterpreted_batch_ndims)

    @registry.register(constraints.cat)
    def _cat(c: Any) -> Transform:
        return transforms.CatTransform([registry(p) for p in c.cseq], c.dim, c.lengths)

    @registry.register(constraints.stack)
    def _stack(c: Any) -> Transform:
        return transforms.StackTransform([registry(p) for p in c.cseq], c.dim)


_register_parts(biject_to)
_register_parts(transform_to)

__getattr__, __dir__ = namespace(__name__)
