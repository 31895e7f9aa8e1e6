"""How kernels compute: `backends.cuda.matmul.allow_tf32`, and the ways that attention may take."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from minigrad._names import namespace
from minigrad.autograd.mode import mode


class _MatMul:
    """Flags of the matrix product."""

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 products may round their inputs to TF32 on tensor cores."""
        return _precision().get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        _precision().set_float32_matmul_precision("high" if value else "highest")


def _precision():
    return importlib.import_module("kernels.launchers.matmul")


matmul = _MatMul()


def _allow(way: str, enabled: bool) -> None:
    mode.attention = mode.attention | {way} if enabled else mode.attention - {way}


def flash_sdp_enabled() -> bool:
    """Whether attention may take the fused kernel by this name; it has three."""
    return "flash" in mode.attention


def mem_efficient_sdp_enabled() -> bool:
    """Whether attention may take the fused kernel by this name."""
    return "mem_efficient" in mode.attention


def cudnn_sdp_enabled() -> bool:
    """Whether attention may take the fused kernel by this name."""
    return "cudnn" in mode.attention


def math_sdp_enabled() -> bool:
    """Whether attention may take plain operations, which store the scores."""
    return "math" in mode.attention


def enable_flash_sdp(enabled: bool) -> None:
    """Allow or forbid the fused kernel by this name, on every device."""
    _allow("flash", enabled)


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Allow or forbid the fused kernel by this name, on every device."""
    _allow("mem_efficient", enabled)


def enable_cudnn_sdp(enabled: bool) -> None:
    """Allow or forbid the fused kernel by this name, on every device."""
    _allow("cudnn", enabled)


def enable_math_sdp(enabled: bool) -> None:
    """Allow or forbid plain operations."""
    _allow("math", enabled)


@contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[None]:
    """The ways that attention may take inside; FutureWarning: the newer name is
    `nn.attention.sdpa_kernel`."""
    warnings.warn(
        "backends.cuda.sdp_kernel: use nn.attention.sdpa_kernel", FutureWarning, stacklevel=3
    )
    before = mode.attention
    enable_flash_sdp(enable_flash)
    enable_math_sdp(enable_math)
    enable_mem_efficient_sdp(enable_mem_efficient)
    enable_cudnn_sdp(enable_cudnn)
    try:
        yield
    finally:
        mode.attention = before


def is_built() -> bool:
    """Whether CuPy, which holds arrays on a GPU, is installed."""
    return importlib.util.find_spec("cupy") is not None


__getattr__, __dir__ = namespace(__name__)
