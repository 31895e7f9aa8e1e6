"""The names of `cupyx` on NumPy: see `kernels.cupy`."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernels.cupy._absent import library, unknown
from kernels.cupy._array import fresh, ndarray
from kernels.cupy._trace import recorded
from kernels.cupy.linalg import reports

_SUBMODULES = "jit linalg optimizing profiler scipy signal time".split()


def scatter_add(a: ndarray, slices: Any, value: Any) -> None:
    """a[slices] += value, where repeated indices count each time."""
    a.scatter_add(slices, value)


def scatter_max(a: ndarray, slices: Any, value: Any) -> None:
    """a[slices] = max(a[slices], value), where repeated indices count each time."""
    a.scatter_max(slices, value)


def scatter_min(a: ndarray, slices: Any, value: Any) -> None:
    """a[slices] = min(a[slices], value), where repeated indices count each time."""
    a.scatter_min(slices, value)


@recorded
def rsqrt(x: Any) -> ndarray:
    """1 / sqrt(x)."""
    from kernels.cupy._methods import ufunc_named

    root = ufunc_named("sqrt")(x)
    return fresh((1 / root._array).astype(root.dtype))


def empty_pinned(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    """A host array. (On a GPU its pages are locked for faster transfers.)"""
    return np.empty(shape, dtype, order)


def zeros_pinned(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    """A host array of zeros."""
    return np.zeros(shape, dtype, order)


def _like(make: Any, a: Any, dtype: Any, order: str, shape: Any) -> np.ndarray:
    memory = a._array if isinstance(a, ndarray) else np.asarray(a)
    return make(memory, dtype, order, shape=shape)


def empty_like_pinned(
    a: Any, dtype: Any = None, order: str = "K", subok: None = None, shape: Any = None
) -> np.ndarray:
    """A host array like `a`."""
    return _like(np.empty_like, a, dtype, order, shape)


def zeros_like_pinned(
    a: Any, dtype: Any = None, order: str = "K", subok: None = None, shape: Any = None
) -> np.ndarray:
    """A host array of zeros like `a`."""
    return _like(np.zeros_like, a, dtype, order, shape)


def geterr() -> dict[str, Any]:
    """What `seterr` set."""
    return {**dict.fromkeys(("divide", "over", "under", "invalid")), "linalg": reports.linalg}


def seterr(
    *, divide: Any = None, over: Any = None, under: Any = None, invalid: Any = None,
    linalg: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Set whether failed solvers raise (`linalg="raise"`); the rest is not implemented, as in CuPy.

    Returns the settings before.
    """
    before = geterr()
    if any(value is not None for value in (divide, over, under, invalid)):
        raise NotImplementedError("only linalg= can be set")
    if linalg not in (None, "ignore", "raise"):
        raise ValueError(f"linalg: expected 'ignore' or 'raise', got {linalg!r}")
    reports.linalg = linalg or reports.linalg
    return before


@contextlib.contextmanager
def errstate(**settings: Any) -> Iterator[None]:
    """`seterr` for a block."""
    before = seterr(**settings)
    try:
        yield
    finally:
        reports.linalg = before["linalg"]


class DeviceSynchronized(RuntimeError):
    """A synchronisation inside of `allow_synchronize(False)`. Never raised here."""


@contextlib.contextmanager
def allow_synchronize(allow: bool) -> Iterator[None]:
    """Work is done when it is submitted, so nothing ever waits."""
    yield


def get_runtime_info(*, full: bool = True) -> str:
    """What runs the arrays."""
    return f"CuPy on NumPy {np.__version__}; device 0: this machine's CPU\n"


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "GeneralizedUFunc":
        raise AttributeError(
            "cupyx.GeneralizedUFunc is not on the CPU; write a loop of cupy.einsum"
        )
    if found := library("cupyx", name):
        return found
    raise unknown("cupyx", name, [*globals(), *_SUBMODULES])


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES})
