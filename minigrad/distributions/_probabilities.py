"""What distributions of probabilities or of their logits share."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad.tensor import Tensor


def one_of(probs: Any, logits: Any) -> None:
    """ValueError unless one of both is given."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


def clamped(probs: Tensor) -> Tensor:
    """Probabilities that are neither 0 nor 1."""
    eps = minigrad.finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)
