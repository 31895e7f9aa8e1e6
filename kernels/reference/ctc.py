"""Connectionist temporal classification: losses and their gradient."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import compute_dtype, traced


def _log_sum(*parts: np.ndarray) -> np.ndarray:
    return np.logaddexp.reduce(np.stack(parts), 0)


def _symbols(targets: np.ndarray, blank: int) -> np.ndarray:
    """(N, 2 S + 1): a blank before, between and after the labels."""
    symbols = np.full((len(targets), 2 * targets.shape[1] + 1), blank)
    symbols[:, 1::2] = targets
    return symbols


def _shifted(rows: np.ndarray, by: int) -> np.ndarray:
    """rows (N, L) with what lies `by` places before, or after where it is negative; -inf behind."""
    out = np.full_like(rows, -np.inf)
    if by > 0:
        out[:, by:] = rows[:, :-by]
    else:
        out[:, :by] = rows[:, -by:]
    return out


def _leaps(symbols: np.ndarray) -> np.ndarray:
    """0 where a path may come from two states before, else -inf."""
    leaps = np.full(symbols.shape, -np.inf)
    leaps[:, 2:][symbols[:, 2:] != symbols[:, :-2]] = 0
    return leaps


def _emissions(log_probs, targets, lengths, blank) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The symbols of the states, whether a sequence has them, and their log_probs (T, N, L)."""
    symbols = _symbols(targets, blank)
    used = np.arange(symbols.shape[1]) < 2 * lengths[:, None] + 1
    symbols = np.where(used, symbols, blank)
    x = log_probs.astype(compute_dtype(log_probs.dtype), copy=False)
    return symbols, used, np.take_along_axis(x, symbols[None], 2)


@traced
def ctc(
    log_probs: np.ndarray,
    targets: np.ndarray,
    times: np.ndarray,
    lengths: np.ndarray,
    blank: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """The losses (N,) of log_probs (T, N, C) that spell targets (N, S), and the logarithms of the
    probabilities of all prefixes (N, T, 2 S + 3); see `kernels.launchers.ctc`."""
    symbols, used, emissions = _emissions(log_probs, targets, lengths, blank)
    steps, batch, states = emissions.shape
    rows = np.full((batch, steps, states + 2), -np.inf, emissions.dtype)
    losses = np.where(lengths == 0, 0, np.inf).astype(emissions.dtype)
    leaps = _leaps(symbols)
    with np.errstate(all="ignore"):
        for t in range(steps):
            row = rows[:, t - 1, 2:] if t else np.where(np.arange(states) < 1, 0, -np.inf)
            row = np.broadcast_to(row, (batch, states))
            row = _log_sum(row, _shifted(row, 1), _shifted(row, 2) + leaps) + emissions[t]
            rows[:, t, 2:] = np.where(used & (t < times)[:, None], row, -np.inf)
    every, some = np.arange(batch), times > 0
    last = rows[every, np.maximum(times - 1, 0)]
    ends = -_log_sum(last[every, 2 * lengths + 2], last[every, 2 * lengths + 1])
    losses[some] = ends[some]
    return losses, rows


@traced
def ctc_backward(
    g: np.ndarray,
    log_probs: np.ndarray,
    targets: np.ndarray,
    times: np.ndarray,
    lengths: np.ndarray,
    losses: np.ndarray,
    prefixes: np.ndarray,
    blank: int = 0,
    zero_infinity: bool = False,
) -> np.ndarray:
    """The gradient (T, N, C) of the losses, for g (N,); see `kernels.launchers.ctc`."""
    symbols, used, emissions = _emissions(log_probs, targets, lengths, blank)
    steps, batch, states = emissions.shape
    classes = np.arange(log_probs.shape[2])
    d = np.zeros(log_probs.shape, emissions.dtype)
    leaps = _shifted(_leaps(symbols), -2)
    ends = np.where(used & (np.arange(states) >= 2 * lengths[:, None] - 1), 0, -np.inf)
    row = np.full((batch, states), -np.inf)
    infinite = np.where(zero_infinity, 0, np.nan)
    with np.errstate(all="ignore"):
        for t in range(steps)[::-1]:
            after = _log_sum(row, _shifted(row, -1), _shifted(row, -2) + leaps)
            after = np.where(times[:, None] == t + 1, ends, after)
            after = np.where(used & (times[:, None] > t), after, -np.inf)
            row = after + emissions[t]
            parts = np.exp(prefixes[:, t, 2:] + after + losses[:, None])
            hit = np.einsum("ns,nsc->nc", parts, symbols[..., None] == classes)
            slope = (np.exp(log_probs[t].astype(d.dtype)) - hit) * g[:, None]
            slope = np.where(np.isposinf(losses)[:, None], infinite, slope)
            d[t] = np.where(times[:, None] > t, slope, 0)
    return d.astype(log_probs.dtype, copy=False)
