"""Cross entropy with its gradient."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import compute_dtype, traced
from kernels.reference.softmax import log_softmax_and_sum


def _target_distribution(target, classes, dtype, weight, ignore_index, label_smoothing):
    """The weights q (N, C) for which cross entropy is -sum(q * log_softmax); 0 rows if ignored."""
    keep = target != ignore_index
    safe = np.where(keep, target, 0)
    if safe.size and (safe.min() < 0 or safe.max() >= classes):
        bad = safe[(safe < 0) | (safe >= classes)][0]
        raise IndexError(f"cross_entropy: target {bad} is out of bounds for {classes} classes")
    w = np.ones(classes, dtype) if weight is None else weight.astype(dtype, copy=False)
    q = np.tile(w * dtype.type(label_smoothing / classes), (len(target), 1))
    q[np.arange(len(target)), safe] += dtype.type(1 - label_smoothing) * w[safe]
    return q * keep[:, None].astype(dtype)


@traced
def cross_entropy(
    logits: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Losses (N,) of logits (N, C) against class indices (N,), and the log-sum-exp (N,).

    Losses are weighted by class and not reduced; 0 where the target is `ignore_index`.
    Raises IndexError for a target outside 0 .. C-1.
    """
    z = logits.astype(compute_dtype(logits.dtype), copy=False)
    args = (weight, ignore_index, label_smoothing)
    q = _target_distribution(target, z.shape[1], z.dtype, *args)
    logp, lse = log_softmax_and_sum(z, 1)
    losses = -(q * np.where(q == 0, 0, logp)).sum(1)
    return losses.astype(logits.dtype, copy=False), lse[:, 0].astype(logits.dtype, copy=False)


@traced
def cross_entropy_backward(
    g: np.ndarray,
    logits: np.ndarray,
    lse: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> np.ndarray:
    """Gradient (N, C) of the losses with respect to the logits, for g (N,)."""
    z = logits.astype(compute_dtype(logits.dtype), copy=False)
    args = (weight, ignore_index, label_smoothing)
    q = _target_distribution(target, z.shape[1], z.dtype, *args)
    p = np.exp(z - lse[:, None].astype(z.dtype, copy=False))
    kept = np.where(target == ignore_index, 0, g)  # g is infinite for the mean of no rows
    d = kept[:, None].astype(z.dtype, copy=False) * (p * q.sum(1, keepdims=True) - q)
    return d.astype(logits.dtype, copy=False)
