"""Scaled dot product attention with its gradients."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import compute_dtype, traced


def _grouped(x: np.ndarray, heads: int, dtype: np.dtype) -> np.ndarray:
    """x (N, HK, S, E) with each head repeated for the heads of the queries that share it."""
    return x.astype(dtype, copy=False).repeat(heads // max(x.shape[1], 1), axis=1)


def _scores(q, k, mask, causal: bool, scale: float | None) -> np.ndarray:
    """q @ k.T * scale (N, H, L, S), -inf where nothing is to be attended to."""
    scale = q.dtype.type(1 / np.sqrt(max(q.shape[-1], 1)) if scale is None else scale)
    s = (q @ k.swapaxes(-1, -2)) * scale
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask.astype(s.dtype)
    if causal:
        s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf)
    return s.astype(q.dtype, copy=False)


@traced
def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """softmax(q @ k.T * scale + mask) @ v for q (N, H, L, E), k (N, HK, S, E), v (N, HK, S, F).

    HK divides H: H / HK heads of q share one of k and v. mask broadcasts to (N, H, L, S): numbers
    to add, or bool, where False is not attended to. causal: query i sees keys 0 .. i. scale: by
    default 1 / sqrt(E). Returns the result (N, H, L, F) and the log-sum-exp of the scores
    (N, H, L); where a query sees no key, the result is 0 and the log-sum-exp inf.
    """
    dtype, heads = compute_dtype(q.dtype), q.shape[1]
    s = _scores(q.astype(dtype, copy=False), _grouped(k, heads, dtype), mask, causal, scale)
    with np.errstate(all="ignore"):
        top = s.max(-1, keepdims=True, initial=-np.inf)
        top = np.where(top == -np.inf, 0, top).astype(dtype)
        e = np.exp(s - top)
        total = e.sum(-1, keepdims=True)
        lse = np.where(total == 0, np.inf, top + np.log(total)).astype(dtype)
        out = e @ _grouped(v, heads, dtype) / np.where(total == 0, 1, total)
    return out.astype(q.dtype, copy=False), lse[..., 0]


@traced
def attention_backward(
    g: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    out: np.ndarray,
    lse: np.ndarray,
    mask: np.ndarray | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of attention with respect to q, k and v, for g (N, H, L, F)."""
    dtype, heads = compute_dtype(q.dtype), q.shape[1]
    g_, q_, out_ = (a.astype(dtype, copy=False) for a in (g, q, out))
    k_, v_ = (_grouped(a, heads, dtype) for a in (k, v))
    scale = dtype.type(1 / np.sqrt(max(q.shape[-1], 1)) if scale is None else scale)
    p = np.exp(_scores(q_, k_, mask, causal, scale) - lse[..., None].astype(dtype, copy=False))
    ds = p * (g_ @ v_.swapaxes(-1, -2) - (g_ * out_).sum(-1, keepdims=True)) * scale
    dq, dk, dv = ds @ k_, ds.swapaxes(-1, -2) @ q_, p.swapaxes(-1, -2) @ g_

    def ungrouped(d: np.ndarray, like: np.ndarray) -> np.ndarray:
        n, shared = like.shape[:2]
        group = heads // max(shared, 1)
        return d.reshape(n, shared, group, *like.shape[2:]).sum(2).astype(like.dtype, copy=False)

    return dq.astype(q.dtype, copy=False), ungrouped(dk, k), ungrouped(dv, v)
