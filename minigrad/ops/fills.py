"""Random numbers written into a tensor: `uniform_`, `normal_` and other distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad._overlap import check_no_overlap
from minigrad.autograd.mode import mode
from minigrad.backends import array_module
from minigrad.ops.inplace import check_writable, rebase, write
from minigrad.ops.pointwise import check_floating
from minigrad.random import _draw, _draw_into, _drawn, _integers, check_range, whole_numbers
from minigrad.tensor import Tensor


def _fill(self: Tensor, values: Any) -> Tensor:
    check_writable(self)
    check_no_overlap(self._array)
    write(self, values)
    return _constant(self)


def _constant(tensor: Tensor) -> Tensor:
    """A tensor of which all elements were replaced by numbers: its old value has no gradient."""
    if mode.enabled and tensor.requires_grad:
        rebase(tensor, tensor.detach())
    return tensor


def _limits(name: str, low: Any, high: Any, named: dict[str, Any]) -> tuple:
    """The ends of an interval, which torch calls `from`, a keyword of Python, and `to`."""
    for key in named:
        if key not in ("from", "to"):
            raise TypeError(f"{name}() got an unexpected keyword argument '{key}'")
    return named.get("from", low), named.get("to", high)


def uniform_(
    self: Tensor, a: float = 0.0, b: float = 1.0, /, *, generator: Any = None, **named: Any
) -> Tensor:
    """Fill with uniform numbers in [a, b); their names are `from` and `to`."""
    if named:
        a, b = _limits("uniform_", a, b, named)
    if a > b:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={a} > to={b}"
        )
    if a == 0 and b == 1 and _draw_into(self, "uniform", generator):
        return _constant(self)
    u = _drawn("check_uniform_bounds", "uniform", *_like(self, generator))
    if self.is_meta:
        return _fill(self, u)
    return _fill(self, u * u.dtype.type(b - a) + u.dtype.type(_in_both_parts(self, a)))


def _in_both_parts(self: Tensor, number: float) -> complex:
    """A number as the real and the imaginary part of one of a complex tensor, as torch has it."""
    return complex(number, number) if self.is_complex() else number


def _like(self: Tensor, generator: Any) -> tuple:
    """What is drawn for a tensor: the shape, the dtype, from what and where."""
    return self._array.shape, self.dtype, generator, self.device


def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with normal numbers."""
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if mean == 0 and std == 1 and _draw_into(self, "normal", generator):
        return _constant(self)
    z = _drawn("normal_kernel_cpu", "normal", *_like(self, generator))
    if self.is_meta:
        return _fill(self, z)
    return _fill(self, z * z.dtype.type(std) + z.dtype.type(_in_both_parts(self, mean)))


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with exponentially distributed numbers of rate lambd."""
    if not lambd > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    if not self.is_floating_point():
        raise RuntimeError(
            "Exponential distribution is a continuous probability distribution. dtype must be a "
            "floating point but you specified "
            f"{self.dtype.legacy_name.removesuffix('Tensor')}"
        )
    u = _draw("uniform", self._array.shape, self._array.dtype, generator, self.device)
    if self.is_meta:
        return _fill(self, u)
    return _fill(self, -array_module(u).log1p(-u) / self._array.dtype.type(lambd))


def _from_uniform(
    self: Tensor, generator: Any, formula: Callable[[Any, Any], Any], dtype: Any = None
) -> Tensor:
    """Fill with a formula of (array module, uniform numbers in (0, 1)), by default in the tensor's
    dtype, of 16 bits in float32."""
    own = self._array.dtype
    wide = np.dtype(dtype or (np.float32 if own.itemsize == 2 else own))
    u = _draw("uniform", self._array.shape, wide, generator, self.device)
    if self.is_meta:
        return _fill(self, u)
    xp, found = array_module(u), np.finfo(u.dtype)
    return _fill(self, formula(xp, u.clip(found.tiny, 1 - found.eps / 2)))


def log_normal_(
    self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None
) -> Tensor:
    """Fill with exp of normal numbers."""
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
    check_floating("log_normal_cpu", self)
    return normal_(self, mean, std, generator=generator).exp_()


def cauchy_(
    self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None
) -> Tensor:
    """Fill with numbers of the Cauchy distribution of this median and scale."""
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    if not self.is_floating_point():
        raise RuntimeError(
            "Cauchy distribution is a continuous probability distribution. dtype must be a "
            f"floating point but you specified {dtypes.from_numpy_dtype(self._array.dtype)}"
        )

    def formula(xp: Any, u: Any) -> Any:
        return median + sigma * xp.tan(np.pi * (u - 0.5))

    return _from_uniform(self, generator, formula)


def geometric_(self: Tensor, p: float, *, generator: Any = None) -> Tensor:
    """Fill with the number of trials up to the first success of probability p: 1, 2, ..."""
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")

    if self._array.dtype.kind == "b":
        raise dtypes.refused("geometric_cpu", self._array.dtype)

    def formula(xp: Any, u: Any) -> Any:
        return xp.ceil(xp.log(u) / np.log1p(-p))

    return _from_uniform(self, generator, formula, np.float64)


def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Fill with ones with probability p (a number or a tensor), else zeros."""
    probability = p._array if isinstance(p, Tensor) else p
    if isinstance(p, int | float) and not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    u = _draw("uniform", self._array.shape, np.dtype(np.float64), generator, self.device)
    return _fill(self, u if self.is_meta else u < probability)


def random_(
    self: Tensor,
    low: int | None = None,
    high: int | None = None,
    /,
    *,
    generator: Any = None,
    **named: Any,
) -> Tensor:
    """Fill with integers in [low, high), by default over those that the dtype holds exactly; their
    names are `from` and `to`."""
    default = whole_numbers(self._array.dtype)[2]
    first: Any = low
    last: Any = high
    if named:
        first, last = _limits("random_", low, high, named)
    if last is None and "from" not in named:
        first, last = 0, first
    first, last = 0 if first is None else first, default if last is None else last
    check_range(first, last, self._array.dtype)
    return _fill(self, _integers(first, int(last), self._array.shape, generator, self.device))


for _function in (
    uniform_,
    normal_,
    exponential_,
    log_normal_,
    cauchy_,
    geometric_,
    bernoulli_,
    random_,
):
    setattr(Tensor, _function.__name__, _function)
