"""Optimiser steps: the checks, and one launch over the whole arena."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy import ndarray

from kernels.families import Family, Operation, floats, normal, ones
from kernels.launchers.common import Dialect, ceil_div, compute_dtype, launcher
from kernels.launchers.plans import Plans, place

THREADS = 256


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
    if compute_dtype(p.dtype).kind != "f":
        raise TypeError(f"{name}: expected a floating dtype, got {p.dtype}")


_plans = Plans()


def _plan(name: str, p, factory: Callable, flags: tuple) -> Callable:
    grid = ceil_div(p.size, THREADS)
    return launcher(name, "fused", factory(p.dtype, *flags), grid, THREADS)


def sgd_(
    dialect: Dialect,
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
        flags = (bool(momentum), bool(nesterov), bool(first), bool(maximize))
        factory = dialect.optim.sgd_kernel
        key = (factory, type(p) is ndarray or place(p), p.size, p.dtype, flags)
        launch = _plans.get(key) or _plans.keep(key, _plan("sgd_", p, factory, flags))
        launch(p, g, p if buf is None else buf, lr, momentum, 1 - dampening, weight_decay)


def adam_(
    dialect: Dialect,
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
    flags = (vmax is not None, bool(decoupled), bool(maximize))
    factory = dialect.optim.adam_kernel
    key = (factory, type(p) is ndarray or place(p), p.size, p.dtype, flags)
    launch = _plans.get(key) or _plans.keep(key, _plan("adam_", p, factory, flags))
    decay = 1 - lr * weight_decay if decoupled else weight_decay
    rate, root = lr / (1 - beta1**step), (1 - beta2**step) ** -0.5
    top = v if vmax is None else vmax
    launch(p, g, m, v, top, 1 - beta1, beta2, 1 - beta2, decay, rate, root, eps)


def _cost_of_sgd(p, g, buf, lr, momentum=0.0, *_, **__):
    return None, (4 if momentum else 2) * p.size


def _cost_of_adam(p, *_, **__):
    return None, 13 * p.size


def _cases(rng, versions):
    p, g, m = (normal(rng, 1027) for _ in range(3))
    v, top = normal(rng, 1027) ** 2, normal(rng, 1027) ** 2
    yield "sgd_", (p, g, None, 0.1, 0.0, 0.0, 0.01), {}, 2
    yield "sgd_", (p, g, m, 0.1, 0.9, 0.3, 0.01), {"nesterov": True, "maximize": True}, 2
    yield "adam_", (p, g, m, v, None, 0.01, 0.9, 0.999, 1e-8, 0.1, 3), {}, 2
    yield "adam_", (p, g, m, v, top, 0.01, 0.9, 0.999, 1e-8, 0.1, 3), {"decoupled": True}, 2


def _compiled(versions):
    p, g, m, v = (ones(1237) for _ in range(4))
    for momentum, first in [(0.0, False), (0.9, False), (0.9, True)]:
        how = dict(momentum=momentum, first=first, nesterov=first)
        yield "sgd_", (p, g, m, 0.1), how
    for top, decoupled in [(None, False), (None, True), (ones(1237), True)]:
        how = (0.1, 0.9, 0.999, 1e-8, 0.1, 1)
        yield "adam_", (p, g, m, v, top, *how), {"decoupled": decoupled}


FAMILY = Family(
    "optim",
    (
        Operation(
            sgd_,
            _cost_of_sgd,
            lambda version: ((*floats(3, 1000), 0.1, 0.9), {}),
            {"fused": "weight decay, momentum and update in one pass over the arena"},
            written=lambda p, g, buf, *_, **__: (p, buf),
        ),
        Operation(
            adam_,
            _cost_of_adam,
            lambda v: ((*abs(floats(4, 1000)), None, 1e-3, 0.9, 0.999, 1e-8, 0.0, 1), {}),
            {"fused": "moments, bias correction, decay and update in one pass over the arena"},
            written=lambda p, g, m, v, vmax, *_, **__: (p, m, v, vmax),
        ),
    ),
    _cases,
    _compiled,
)
