"""Transforms of parts of a tensor."""

from __future__ import annotations

from collections.abc import Sequence

import minigrad
from minigrad.distributions import constraints
from minigrad.distributions._transform import Transform
from minigrad.distributions.utils import _sum_rightmost, lazy_property
from minigrad.tensor import Tensor


class _PartsTransform(Transform):
    """Transforms for parts of a tensor along `dim`."""

    transforms: list[Transform]
    dim: int

    def _set(self, tseq: Sequence[Transform], dim: int, cache_size: int) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        Transform.__init__(self, cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    def _check(self, *tensors: Tensor) -> None:
        for value in tensors:
            if not -value.dim() <= self.dim < value.dim():
                raise AssertionError(
                    f"dim {self.dim} out of range for tensor with {value.dim()} dimensions"
                )

    @property
    def bijective(self) -> bool:
        return all(t.bijective for t in self.transforms)


class CatTransform(_PartsTransform):
    """Transforms of parts of `lengths` along `dim`."""

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        self._set(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(
                f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})"
            )

    @lazy_property
    def event_dim(self) -> int:  # type: ignore[override]
        return max(t.event_dim for t in self.transforms)

    @lazy_property
    def length(self) -> int:
        return sum(self.lengths)

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return type(self)(self.transforms, self.dim, self.lengths, cache_size)

    def _split(self, value: Tensor) -> Sequence[Tensor]:
        self._check(value)
        if value.size(self.dim) != self.length:
            raise AssertionError(
                f"dim {self.dim} size {value.size(self.dim)} must match length {self.length}"
            )
        return value.split(self.lengths, self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return minigrad.cat([t(p) for t, p in zip(self.transforms, self._split(x))], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return minigrad.cat([t.inv(p) for t, p in zip(self.transforms, self._split(y))], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        logs = []
        for t, part_x, part_y in zip(self.transforms, self._split(x), self._split(y)):
            log = t.log_abs_det_jacobian(part_x, part_y)
            logs.append(_sum_rightmost(log, self.event_dim - t.event_dim))
        dim = self.dim - x.dim() if self.dim >= 0 else self.dim
        dim += self.event_dim
        return minigrad.cat(logs, dim) if dim < 0 else sum(logs)  # type: ignore[return-value]

    @constraints.dependent_property
    def domain(self) -> constraints.Constraint:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> constraints.Constraint:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_PartsTransform):
    """A transform for each index of `dim`."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        self._set(tseq, dim, cache_size)

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return type(self)(self.transforms, self.dim, cache_size)

    def _split(self, value: Tensor) -> Sequence[Tensor]:
        self._check(value)
        if value.size(self.dim) != len(self.transforms):
            raise AssertionError(
                f"x.size({self.dim}) = {value.size(self.dim)} must equal len(transforms) "
                f"{len(self.transforms)}"
            )
        return value.unbind(self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return minigrad.stack([t(p) for t, p in zip(self.transforms, self._split(x))], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        parts = [t.inv(p) for t, p in zip(self.transforms, self._split(y))]
        return minigrad.stack(parts, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        parts = zip(self.transforms, self._split(x), self._split(y))
        return minigrad.stack([t.log_abs_det_jacobian(a, b) for t, a, b in parts], self.dim)

    @constraints.dependent_property
    def domain(self) -> constraints.Constraint:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> constraints.Constraint:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
