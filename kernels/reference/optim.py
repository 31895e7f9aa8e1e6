"""Optimiser steps over a flat arena, in place."""

from __future__ import annotations

import math

import numpy as np

from kernels.reference.common import traced


@traced
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
    """
    d = -g if maximize else g
    if weight_decay:
        d = d + p.dtype.type(weight_decay) * p
    if momentum:
        if first:
            buf[...] = d
        else:
            buf *= p.dtype.type(momentum)
            buf += p.dtype.type(1 - dampening) * d
        d = d + p.dtype.type(momentum) * buf if nesterov else buf
    p -= p.dtype.type(lr) * d


@traced
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
    AdamW (Loshchilov and Hutter, 2019).
    """
    t = p.dtype.type
    d = -g if maximize else g
    if weight_decay and decoupled:
        p *= t(1 - lr * weight_decay)
    elif weight_decay:
        d = d + t(weight_decay) * p
    m += t(1 - beta1) * (d - m)
    v *= t(beta2)
    v += t(1 - beta2) * d * d
    second = v
    if vmax is not None:
        np.maximum(vmax, v, out=vmax)
        second = vmax
    denom = np.sqrt(second) / t(math.sqrt(1 - beta2**step)) + t(eps)
    p -= t(lr / (1 - beta1**step)) * m / denom
