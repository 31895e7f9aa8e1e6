"""Recurrent layers over a sequence, and their gradients."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import compute_dtype, traced


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _step(mode: str, x: np.ndarray, product: np.ndarray, h: np.ndarray, c: np.ndarray | None):
    """(new h, new c or None, saved gates) from the gates of input and state, (B, gates * H)."""
    if mode in ("tanh", "relu"):
        v = x + product
        return (np.tanh(v) if mode == "tanh" else np.maximum(v, 0)), None, []
    parts = 4 if mode == "lstm" else 3
    a, b = np.split(x, parts, 1), np.split(product, parts, 1)
    if mode == "lstm":
        i, f, o = (_sigmoid(a[k] + b[k]) for k in (0, 1, 3))
        g = np.tanh(a[2] + b[2])
        c = f * c + i * g
        return o * np.tanh(c), c, [i, f, g, o]
    r, z = (_sigmoid(a[k] + b[k]) for k in (0, 1))
    n = np.tanh(a[2] + r * b[2])
    return (1 - z) * n + z * h, None, [r, z, n, b[2]]


@traced
def recurrent(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None,
    h: np.ndarray,
    c: np.ndarray | None,
    mode: str,
    sizes: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """One direction of a recurrent layer; mode "tanh", "relu", "lstm" or "gru".

    x (T, B, gates * H): the part of the gates that depends on the input; weight (gates * H, H),
    bias (gates * H,) or None: the other part; h (B, H), for "lstm" also c: the first states. sizes
    (T,): how many sequences, the first ones, have a step t; the others keep their state. Returns
    all states (1, T + 1, B, H), for "lstm" (2, T + 1, B, H) with those of the cell, and what the
    gradients need of the gates, (T, B, 4 * H) or (T, B, 0).
    """
    steps, batch = x.shape[:2]
    dtype = compute_dtype(x.dtype)
    x_, w = x.astype(dtype, copy=False), weight.astype(dtype, copy=False)
    now = [s.astype(dtype, copy=False) for s in (h, c) if s is not None]
    states = np.empty((len(now), steps + 1, *h.shape), x.dtype)
    saved = np.zeros((steps, batch, 4 * h.shape[1] if mode in ("lstm", "gru") else 0), x.dtype)
    for k, state in enumerate(now):
        states[k, 0] = state
    for t in range(steps):
        n = batch if sizes is None else int(sizes[t])
        product = now[0][:n] @ w.T + (0 if bias is None else bias.astype(dtype, copy=False))
        cell = now[1][:n] if len(now) == 2 else None
        new_h, new_c, gates = _step(mode, x_[t, :n], product, now[0][:n], cell)
        for k, new in enumerate((new_h, new_c)[: len(now)]):
            now[k] = np.concatenate((new, now[k][n:]))
            states[k, t + 1] = now[k]
        if gates:
            saved[t, :n] = np.concatenate(gates, 1)
    return states, saved


def _step_backward(mode, dh, dc, gates, h, c, new_h, new_c):
    """(gradients of x's and of the product's gates, what goes past the product to h, to c)."""
    if mode == "tanh":
        d = dh * (1 - new_h * new_h)
        return [d], [d], 0, None
    if mode == "relu":
        d = dh * (new_h > 0)
        return [d], [d], 0, None
    parts = np.split(gates, 4, 1)
    if mode == "lstm":
        i, f, g, o = parts
        bounded = np.tanh(new_c)
        dc = dc + dh * o * (1 - bounded * bounded)
        d = [dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g)]
        d.append(dh * bounded * o * (1 - o))
        return d, d, 0, dc * f
    r, z, n, q = parts
    dn = dh * (1 - z) * (1 - n * n)
    dr, dz = dn * q * r * (1 - r), dh * (h - n) * z * (1 - z)
    return [dr, dz, dn], [dr, dz, dn * r], dh * z, None


@traced
def recurrent_backward(
    g: np.ndarray,
    weight: np.ndarray,
    states: np.ndarray,
    gates: np.ndarray,
    mode: str,
    sizes: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of recurrent, for g like `states`: with respect to x, to h @ weight.T + bias of all
    steps (the same for all modes but "gru"), and to the first states (1 or 2, B, H)."""
    steps, batch = gates.shape[:2]
    dtype = compute_dtype(g.dtype)
    g_, s, saved, w = (a.astype(dtype, copy=False) for a in (g, states, gates, weight))
    dx, dr = (np.zeros((steps, batch, len(weight)), g.dtype) for _ in range(2))
    dh, dc = g_[0, steps].copy(), g_[1, steps].copy() if len(g) == 2 else None
    for t in reversed(range(steps)):
        n = batch if sizes is None else int(sizes[t])
        cells = (s[1, t, :n], s[1, t + 1, :n]) if dc is not None else (None, None)
        own, product, past, past_c = _step_backward(
            *(mode, dh[:n], None if dc is None else dc[:n], saved[t, :n]),
            *(s[0, t, :n], cells[0], s[0, t + 1, :n], cells[1]),
        )
        dx[t, :n] = np.concatenate(own, 1)
        product = np.concatenate(product, 1)
        dr[t, :n] = product
        dh[:n] = product @ w + past
        dh += g_[0, t]
        if dc is not None:
            dc[:n] = past_c
            dc += g_[1, t]
    return dx, dr, np.stack([dh] if dc is None else [dh, dc]).astype(g.dtype, copy=False)
