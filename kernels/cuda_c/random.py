"""The kernels of random.cu."""

from __future__ import annotations

import numpy as np

from kernels.cuda_c.common import Kernel, family, scalar_type, storage_type

_kernel = family("random.cu")


def _generate(out, *words):
    return out, *words, out.size


def philox_kernel() -> Kernel:
    """kernel(out, seed, offset)."""
    return _kernel("philox_words", (), (), _generate)


def uniform_kernel(dtype: np.dtype) -> Kernel:
    """kernel(out, seed, offset)."""
    return _kernel("uniform", (), (storage_type(dtype),), _generate)


def normal_kernel(dtype: np.dtype) -> Kernel:
    """kernel(out, seed, offset)."""
    return _kernel("normal", (), (storage_type(dtype),), _generate)


def dropout_kernel(dtype: np.dtype) -> Kernel:
    """kernel(x, out, p, scale, seed, offset)."""

    def arguments(*given):
        return *given, given[0].size

    return _kernel("dropout", (), (storage_type(dtype), scalar_type(dtype)), arguments)
