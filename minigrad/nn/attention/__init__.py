"""Which way `scaled_dot_product_attention` takes: torch's `sdpa_kernel`."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minigrad._names import namespace
from minigrad.autograd.mode import mode

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """MATH: plain operations, which store the scores; the others: minigrad's fused kernels."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    __str__ = enum.Enum.__str__


_WAYS = {
    SDPBackend.MATH: "math",
    SDPBackend.EFFICIENT_ATTENTION: "mem_efficient",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
}  # the others are "flash"


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Inside, attention is computed by these backends only; also a decorator.

    backends: an SDPBackend or a list of them. With MATH alone plain operations are used, without it
    a fused kernel, or RuntimeError where it doesn't take the inputs (dropout, a mask that requires
    a gradient). set_priority: there is one fused kernel, so that the order says nothing.
    """
    given = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(given, list | tuple | set) or not given:
        raise AssertionError("sdpa_kernel: expected an SDPBackend or a list of them")
    if wrong := [b for b in given if not isinstance(b, SDPBackend)]:
        raise AssertionError(f"sdpa_kernel: expected SDPBackend, got {wrong[0]!r}")
    before = mode.attention
    mode.attention = frozenset(_WAYS.get(b, "flash") for b in given)
    try:
        yield
    finally:
        mode.attention = before


__getattr__, __dir__ = namespace(  # at its first use: it needs nn's functions
    __name__, {"bias": "minigrad.nn.attention.bias"}
)
