"""What the reference families share: tracing, compute dtypes, windows."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from kernels import dispatch

Pair = tuple[int, int]


def traced(fn: Callable) -> Callable:
    """Report each call of a public function to the trace that is on, if any. TypeError for arrays
    on a GPU: NumPy computes on the CPU."""

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        for arg in args:
            if type(arg) is not np.ndarray:
                _check_place(fn.__name__, arg)
        if dispatch.tracer is None:
            return fn(*args, **kwargs)
        with dispatch.timed(fn.__name__, "numpy"):
            return fn(*args, **kwargs)

    return wrapper


def _check_place(name: str, arg: object) -> None:
    parts = arg if isinstance(arg, list | tuple) else (arg,)
    if any(hasattr(a, "__cuda_array_interface__") and not isinstance(a, np.ndarray) for a in parts):
        raise TypeError(
            f"{name}: the backend 'numpy' computes on the CPU, and the array is on a GPU; move it"
            " to the CPU, or use the backend 'numba' or 'cupy'"
        )


def compute_dtype(dtype: np.dtype) -> np.dtype:
    """float32 for the 16-bit storage types, else the dtype itself."""
    return np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind in "fV" else dtype


def check_index(
    name: str,
    index: np.ndarray,
    size: int,
    negative: bool = False,
    error: Callable[[int], Exception] | None = None,
) -> None:
    """Raise IndexError, or `error(wrong)`, unless every index is in 0 .. size-1, or where they may
    be negative in -size .. size-1."""
    low = -size if negative else 0
    if index.size and (index.min() < low or index.max() >= size):
        bad = index[(index < low) | (index >= size)].flat[0].item()
        if error is not None:
            raise error(bad)
        raise IndexError(f"{name}: index {bad} is out of bounds for size {size}")


def windows(x, kernel: Pair, stride: Pair, dilation: Pair, out: Pair) -> np.ndarray:
    """View of (N, C, H, W) as (N, C, OH, OW, KH, KW); x is padded already."""
    if min(*stride, *dilation) <= 0:  # the view would reach outside of x
        raise ValueError(f"stride and dilation must be positive, got {stride} and {dilation}")
    sn, sc, sh, sw = x.strides
    return np.lib.stride_tricks.as_strided(
        x,
        (*x.shape[:2], *out, *kernel),
        (sn, sc, sh * stride[0], sw * stride[1], sh * dilation[0], sw * dilation[1]),
        writeable=False,
    )
