"""Optimiser steps: one launch over a flat arena of parameters.

SGD with momentum does about 5 floating-point operations per parameter and moves 5 elements (reads
p, g, buf; writes p, buf); Adam about 14, and moves 7 (reads p, g, m, v; writes p, m, v): 28 bytes
per parameter in float32. Both run at the speed of memory. All parameters of a model are in one
array, because a launch per tensor would cost more than the work.

One version each: a thread per parameter, specialised for the options that are on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from kernels.numba_cuda.common import array, number, scalar_type, signature
from kernels.simt import cuda


@functools.cache
def sgd_kernel(
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

    return cuda.jit(signature(*[array(dtype)] * 3, *[number(dtype)] * 4))(sgd)


@functools.cache
def adam_kernel(dtype: np.dtype, amsgrad: bool, decoupled: bool, maximize: bool) -> Callable:
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

    return cuda.jit(signature(*[array(dtype)] * 5, *[number(dtype)] * 7))(adam)
