"""The kernels of mask.cu."""

from __future__ import annotations

import numpy as np

from kernels.cuda_c.common import Kernel, family, storage_type

_kernel = family("mask.cu")


def _sized(mask, *rest):
    return mask, *rest, mask.size


def count() -> Kernel:
    """kernel(mask, counts)."""
    return _kernel("count", (), (), _sized)


def choose(dtype: np.dtype) -> Kernel:
    """kernel(mask, ends, x, out)."""
    return _kernel("choose", (), (storage_type(dtype),), _sized)


def places(ndim: int, wide: bool) -> Kernel:
    """kernel(mask, ends, out, size1, size2, size3). wide: a place needs more than 31 bits."""
    number = "unsigned long long" if wide else "unsigned"
    return _kernel("places", (), (ndim, number), _sized)
