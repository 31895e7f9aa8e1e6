"""Random numbers: the shapes, the counters they take, and one launch each."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from numpy import ndarray

from kernels import dispatch
from kernels.families import Family, Operation, floats, like_first, ones
from kernels.launchers.common import (
    Dialect,
    ceil_div,
    compute_dtype,
    contiguous,
    launcher,
    namespace,
)
from kernels.launchers.plans import Plans, place
from kernels.launchers.relaunch import Single

THREADS = 256


_plans = Plans()


def _plan(name: str, counters: int, kernel) -> Callable:
    return launcher(name, "counter", kernel, ceil_div(counters, THREADS), THREADS)


def _words(seed: int, offset: int) -> tuple[int, int]:
    return seed & 2**64 - 1, offset & 2**64 - 1


def _float_dtype(name: str, dtype) -> np.dtype:
    dtype = np.dtype(dtype)
    if compute_dtype(dtype).kind != "f":
        raise TypeError(f"{name}: expected a floating dtype, got {dtype}")
    return dtype


def _numbers(
    dialect: Dialect, name: str, shape: tuple[int, ...], seed: int, offset: int, dtype, like, out
) -> np.ndarray:
    if out is not None:
        if not out.flags.c_contiguous or (out.shape, out.dtype) != (shape, dtype):
            raise ValueError(f"{name}: out must be contiguous, of shape {shape} and {dtype}")
        like = out
    where = like is None or type(like) is ndarray or place(like)
    key = (dialect, name, where, shape, dtype, out is None)
    plan = _plans.get(key) or _plans.keep(key, _plan_numbers(dialect, name, shape, dtype, like))
    return plan(_words(seed, offset), out)


def _plan_numbers(dialect: Dialect, name: str, shape: tuple[int, ...], dtype, like) -> Callable:
    """A function of ((seed, offset), out)."""
    dtype = _float_dtype(name, dtype)
    allocate = functools.partial(namespace(like).empty, shape, dtype)
    if 0 in shape:
        return lambda operands, out: allocate() if out is None else out
    kernel = getattr(dialect.random, f"{name}_kernel")(dtype)
    counters = ceil_div(math.prod(shape), 2 if dtype == np.float64 else 4)
    names = dispatch.named(name, shape, dtype), dispatch.named("into", name)

    def arguments(operands: tuple, out) -> tuple:
        return (out.ravel(), *operands)

    return Single(_plan(name, counters, kernel), allocate, arguments, dialect, *names)


def philox_uint32(dialect: Dialect, n: int, seed: int, offset: int, like=None) -> np.ndarray:
    """n random words (uint32).

    like: an array of the kind to return (default NumPy).
    """
    if n < 0:
        raise ValueError(f"philox_uint32: expected n >= 0, got {n}")
    where = like is None or type(like) is ndarray or place(like)
    key = (dialect, where, n)
    plan = _plans.get(key) or _plans.keep(key, _plan_words(dialect, n, like))
    return plan(_words(seed, offset))


def _plan_words(dialect: Dialect, n: int, like) -> Callable:
    """A function of (seed, offset)."""
    allocate = functools.partial(namespace(like).empty, n, np.dtype(np.uint32))
    if not n:
        return lambda operands: allocate()
    launch = _plan("philox_uint32", ceil_div(n, 4), dialect.random.philox_kernel())
    name = dispatch.named("philox_uint32", n)
    return Single(launch, allocate, lambda operands, out: (out, *operands), dialect, name)


def uniform(
    dialect: Dialect,
    shape: tuple[int, ...],
    seed: int,
    offset: int,
    dtype: np.dtype = np.float32,
    like=None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Uniform numbers in [0, 1): 24 random bits for float32, 53 for float64.

    like: an array of the kind to return (default NumPy). out: a contiguous array of this shape and
    dtype, which is filled and returned.
    """
    return _numbers(dialect, "uniform", shape, seed, offset, dtype, like, out)


def normal(
    dialect: Dialect,
    shape: tuple[int, ...],
    seed: int,
    offset: int,
    dtype: np.dtype = np.float32,
    like=None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Standard normal numbers: Box and Muller's transform of pairs of `uniform` numbers.

    like: an array of the kind to return (default NumPy). out: a contiguous array of this shape and
    dtype, which is filled and returned.
    """
    return _numbers(dialect, "normal", shape, seed, offset, dtype, like, out)


def dropout(dialect: Dialect, x: np.ndarray, p: float, seed: int, offset: int) -> np.ndarray:
    """Zero each element with probability p and scale the others by 1 / (1 - p).

    An element is kept where `uniform(x.shape, seed, offset, float32)` is at least p, so the
    gradient is the same call on the incoming gradient and no mask is stored.
    Raises ValueError unless 0 <= p <= 1, TypeError for integers.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: expected a probability between 0 and 1, got {p}")
    _float_dtype("dropout", x.dtype)
    if p == 1:
        return namespace(x).zeros(x.shape, x.dtype)
    out = namespace(x).empty(x.shape, x.dtype)
    if out.size:
        counters = ceil_div(out.size, 4)
        key = (dialect, "dropout", type(out) is ndarray or place(out), counters, x.dtype)
        launch = _plans.get(key)
        if launch is None:
            plan = _plan("dropout", counters, dialect.random.dropout_kernel(x.dtype))
            launch = _plans.keep(key, plan)
        flat = contiguous(x).ravel()
        launch(flat, out.ravel(), p, 1 / (1 - p), *_words(seed, offset))
    return out


def _cost(shape, seed, offset, dtype=np.float32, **_):
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return [(shape, np.dtype(dtype))], math.prod(shape)


def _cost_of_words(n, seed, offset):
    return [((n,), np.dtype(np.uint32))], 0


def _cases(rng, versions):
    yield "philox_uint32", (1027, 2**63 + 5, 2**40 + 1), {}, 0
    for dtype in (np.float32, np.float64):
        yield "uniform", ((33, 31), 11, 5, np.dtype(dtype)), {}, 0
        yield "normal", ((33, 31), 11, 5, np.dtype(dtype)), {}, 8
    yield "dropout", (rng.standard_normal(1027, dtype=np.float32), 0.25, 3, 9), {}, 1


def _compiled(versions):
    yield "uniform", ((1237,), 1, 2), {"like": ones(1)}
    yield "normal", ((1237,), 1, 2), {"like": ones(1)}
    yield "philox_uint32", (1237, 1, 2), {"like": ones(1)}
    yield "dropout", (ones(1237), 0.5, 1, 2), {}


FAMILY = Family(
    "random",
    (
        Operation(
            philox_uint32,
            _cost_of_words,
            lambda version: ((1000, 1, 0), {}),
            {"counter": "Philox4x32-10: a thread turns one counter into four words"},
        ),
        Operation(
            uniform,
            _cost,
            lambda version: (((1000,), 1, 0), {}),
            {"counter": "24 or 53 of the random bits as a number in [0, 1)"},
        ),
        Operation(
            normal,
            _cost,
            lambda version: (((1000,), 1, 0), {}),
            {"counter": "Box and Muller's transform of pairs of uniform numbers"},
        ),
        Operation(
            dropout,
            like_first(2),
            lambda version: ((floats(1000), 0.5, 1, 0), {}),
            {"counter": "draws, compares and scales in one pass; no mask is stored"},
        ),
    ),
    _cases,
    _compiled,
)
