"""What the distributions share, with torch.distributions.utils' names."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.tensor import Size, Tensor

__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits",
    "tril_matrix_to_vec", "vec_to_tril_matrix",
]  # fmt: skip

euler_constant = 0.57721566490153286060


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Tensors and numbers as tensors of one shape. Numbers get the dtype of the first tensor, or
    the default dtype. ValueError for anything else."""
    if not all(isinstance(v, Tensor | numbers.Number) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, minigrad.Tensor or objects "
            "implementing __torch_function__."
        )
    first = next((v for v in values if isinstance(v, Tensor)), None)
    kind: dict[str, Any] = {"dtype": minigrad.get_default_dtype()}
    if first is not None:
        kind = {"dtype": first.dtype, "device": first.device}
    tensors = [v if isinstance(v, Tensor) else minigrad.tensor(v, **kind) for v in values]
    return tuple(minigrad.broadcast_tensors(*tensors))


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Tensor:
    return minigrad.randn(Size(shape), dtype=dtype, device=device)


def open_uniform(shape: Any, like: Tensor) -> Tensor:
    """Uniform numbers in (0, 1), with the dtype and device of `like`: their logarithms are
    finite."""
    found = minigrad.finfo(like.dtype)
    u = minigrad.rand(Size(shape), dtype=like.dtype, device=like.device)
    return u.clamp(found.tiny, 1 - found.eps / 2)


def _sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """The sum over the last `dim` dimensions."""
    return value.flatten(-dim).sum(-1) if dim else value


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities that are neither 0 nor 1."""
    eps = minigrad.finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities from log-odds (`is_binary`), or from logarithms along the last dimension."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """The inverse of `logits_to_probs`, up to the clamping of 0 and 1."""
    probs = clamp_probs(probs)
    return probs.log() - (-probs).log1p() if is_binary else probs.log()


class lazy_property:
    """A property that is computed at its first use, with a graph, and then kept."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with minigrad.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def _below(n: int, diag: int, device: Any) -> Tensor:
    """Where an n by n matrix is at or below the diagonal `diag`."""
    index = minigrad.arange(n, device=device)
    return index < index.unsqueeze(-1) + (diag + 1)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The entries (..., k) at or below a diagonal of (..., n, n), row by row."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat[..., _below(n, diag, mat.device)]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """The inverse of `tril_matrix_to_vec`, with zeros above the diagonal."""
    odd = 1 + 2 * diag
    n = (-odd + math.sqrt(odd**2 + 8 * vec.shape[-1] + 4 * abs(diag) * (diag + 1))) / 2
    if abs(round(n) - n) > minigrad.finfo(vec.dtype).eps:
        raise ValueError(
            f"The size of last dimension is {vec.shape[-1]} which cannot be expressed as the lower "
            "triangular part of a square D x D matrix."
        )
    size = round(n)
    places = _below(size, diag, vec.device).flatten().nonzero().squeeze(-1)
    flat = vec.new_zeros((*vec.shape[:-1], size * size))
    return flat.index_add(-1, places, vec).unflatten(-1, (size, size))


def one_of(probs: Any, logits: Any) -> None:
    """ValueError unless one of both is given."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class Binary:
    """For distributions with `probs` or `logits` of one event that happens or not: each is computed
    from the other when it is first needed."""

    @lazy_property
    def logits(self) -> Tensor:
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def _param(self) -> Tensor:
        """The parameter that was given, or that which was computed from it."""
        return vars(self).get("probs", vars(self).get("logits"))  # type: ignore[return-value]

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._param.shape

    def _set(self, probs: Any, logits: Any, *others: Any) -> Sequence[Tensor]:
        """Keep one of both, broadcast with `others`, which are returned."""
        one_of(probs, logits)
        name, given = ("logits", logits) if probs is None else ("probs", probs)
        value, *rest = broadcast_all(given, *others)
        setattr(self, name, value)
        return rest


__getattr__, __dir__ = namespace(__name__)
