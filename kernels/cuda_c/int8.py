"""The kernels of int8.cu."""

from __future__ import annotations

import numpy as np

from kernels.cuda_c.common import Kernel, as_passed, family, storage_type

_kernel = family("int8.cu")


def matmul_kernel(version: str, has_bias: bool) -> Kernel:
    """kernel(a, b, scale_a, scale_b, bias, out, m, n, k)."""
    return _kernel(f"matmul_{version}", (), (has_bias,), as_passed)


def quantize_kernel(dtype: np.dtype) -> Kernel:
    """kernel(x, q, scale, m, k)."""
    return _kernel("quantize_warp", (), (storage_type(dtype),), as_passed)
