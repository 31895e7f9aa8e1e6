"""Optimiser steps: one launch over a flat arena of parameters.

SGD with momentum does about 5 floating-point operations a parameter and moves 5 elements (reads
p, g, buf; writes p, buf); Adam about 14, and moves 7 (reads p, g, m, v; writes p, m, v): 28 bytes
a parameter in float32. Both run at the speed of memory, which is why all parameters of a model live
in one array: a launch per tensor would cost more than the work.

One version each: a thread a parameter, specialised on which of its options are on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from numba import types

from kernels.numba_cuda.common import ceil_div, launcher, scalar_type, storage_type
from kernels.simt import cuda

CATALOG = [
    ("sgd_", "fused", "weight decay, momentum and update in one pass over the arena"),
    ("adam_", "fused", "moments, bias correction, decay and update in one pass over the arena"),
]

THREADS = 256


@functools.cache
def _sgd_kernel(
    dtype: np.dtype, momentum: bool, nesterov: bool, first: bool, maximize: bool
) -> Callable:
    """kernel(p, g, buf, lr, momentum, undamped, weight_decay)."""
    T = scalar_type(dtype)
    MOMENTUM, NESTEROV, FIRST, MAXIMIZE = momentum, nesterov, first, maximize

    def sgd(p, g, buf, lr, momentum, undamped, weight_decay):
        i = cuda.grid(1)
        if i < p.size:
            x = T(p[i])
            d = T(g[i])
            if MAXIMIZE:
                d = -d
            d = d + weight_decay * x
            if MOMENTUM:
                b = d
                if not FIRST:
                    b = momentum * T(buf[i]) + undamped * d
                buf[i] = b
                d = d + momentum * b if NESTEROV else b
            p[i] = x - lr * d

    flat = types.Array(storage_type(dtype), 1, "C")
    return cuda.jit(types.void(flat, flat, flat, T, T, T, T))(sgd)


@functools.cache
def _adam_kernel(dtype: np.dtype, amsgrad: bool, decoupled: bool, maximize: bool) -> Callable:
    """kernel(p, g, m, v, vmax, one_minus_beta1, beta2, one_minus_beta2, decay, rate, root, eps).

    rate: lr / (1 - beta1**step); root: 1 / sqrt(1 - beta2**step); decay: the factor of p before
    the step (decoupled), or the weight of p in the gradient.
    """
    T = scalar_type(dtype)
    AMSGRAD, DECOUPLED, MAXIMIZE = amsgrad, decoupled, maximize

    def adam(p, g, m, v, vmax, one_minus_beta1, beta2, one_minus_beta2, decay, rate, root, eps):
        i = cuda.grid(1)
        if i < p.size:
            x = T(p[i])
            d = T(g[i])
            if MAXIMIZE:
                d = -d
            if DECOUPLED:
                x = x * decay
            else:
                d = d + decay * x
            mean = T(m[i])
            mean = mean + one_minus_beta1 * (d - mean)
            second = beta2 * T(v[i]) + one_minus_beta2 * d * d
            m[i] = mean
            v[i] = second
            if AMSGRAD:
                top = T(vmax[i])
                second = top if top > second else second
                vmax[i] = second
            p[i] = x - rate * mean / (math.sqrt(second) * root + eps)

    flat = types.Array(storage_type(dtype), 1, "C")
    return cuda.jit(types.void(*[flat] * 5, *[T] * 7))(adam)


def _check(name: str, p, *others) -> None:
    """Raise unless the arrays are flat, contiguous, and all like p."""
    for a in (p, *others):
        if a is None:
            continue
        if a.ndim != 1 or not a.flags.c_contiguous:
            raise ValueError(f"{name}: expected flat contiguous arrays, got shape {a.shape}")
        if a.shape != p.shape:
            raise ValueError(f"{name}: expected {p.shape[0]} elements as in p, got {a.shape[0]}")
        if a.dtype != p.dtype:
            raise TypeError(f"{name}: expected dtype {p.dtype} as in p, got {a.dtype}")
    if scalar_type(p.dtype) not in (types.float32, types.float64):
        raise TypeError(f"{name}: expected a floating dtype, got {p.dtype}")


@functools.lru_cache(maxsize=1024)
def _launch(name: str, n: int, factory: Callable, *flags) -> Callable:
    return launcher(name, "fused", factory(*flags), ceil_div(n, THREADS), THREADS)


def sgd_(
    p: np.ndarray,
    g: np.ndarray,
    buf: np.ndarray | None,
    lr: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    maximize: bool = False,
    first: bool = False,
) -> None:
    """One SGD step on flat p (n,), in place; `buf` (n,) is the momentum (Sutskever et al., 2013).

    first: the momentum buffer starts as the gradient itself (no dampening).
    Raises ValueError for shapes that differ, or momentum without `buf`; TypeError for dtypes.
    """
    _check("sgd_", p, g, buf)
    if momentum and buf is None:
        raise ValueError("sgd_: momentum needs a buffer, got buf=None")
    if p.size:
        flags = (p.dtype, bool(momentum), bool(nesterov), bool(first), bool(maximize))
        launch = _launch("sgd_", p.size, _sgd_kernel, *flags)
        launch(p, g, p if buf is None else buf, lr, momentum, 1 - dampening, weight_decay)


def adam_(
    p: np.ndarray,
    g: np.ndarray,
    m: np.ndarray,
    v: np.ndarray,
    vmax: np.ndarray | None,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
    decoupled: bool = False,
    maximize: bool = False,
) -> None:
    """One Adam step on flat p (n,), in place (Kingma and Ba, 2015); step counts from 1.

    vmax (n,) where given makes it AMSGrad (Reddi et al., 2018); decoupled weight decay makes it
    AdamW (Loshchilov and Hutter, 2019). Raises ValueError for shapes that differ or a step below
    1, TypeError for dtypes.
    """
    _check("adam_", p, g, m, v, vmax)
    if step < 1:
        raise ValueError(f"adam_: step counts from 1, got {step}")
    if not p.size:
        return
    flags = (p.dtype, vmax is not None, bool(decoupled), bool(maximize))
    launch = _launch("adam_", p.size, _adam_kernel, *flags)
    decay = 1 - lr * weight_decay if decoupled else weight_decay
    rate, root = lr / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)
    top = v if vmax is None else vmax
    launch(p, g, m, v, top, 1 - beta1, beta2, 1 - beta2, decay, rate, root, eps)
