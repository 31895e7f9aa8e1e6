"""Choosing the next token from scores."""

from __future__ import annotations

import minigrad
from minigrad.tensor import Tensor


def sample(logits: Tensor, temperature: float, top_k: int | None) -> Tensor:
    """A class per row of logits (N, classes), as (N, 1).

    temperature: below 1 prefers large scores, 0 takes the largest; top_k: of so many largest ones.
    """
    if temperature < 0:
        raise ValueError(f"generate: expected a temperature of at least 0, got {temperature}")
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    logits = logits / temperature
    if top_k is not None:
        least = minigrad.topk(logits, min(top_k, logits.shape[-1])).values[:, -1:]
        logits = logits.masked_fill(logits < least, -minigrad.inf)
    return minigrad.multinomial(logits.softmax(-1), 1)
