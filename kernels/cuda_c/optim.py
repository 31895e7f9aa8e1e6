"""The kernels of optim.cu."""

from __future__ import annotations

import numpy as np

from kernels.cuda_c.common import Kernel, family, scalar_type, storage_type

_kernel = family("optim.cu")


def _types(dtype: np.dtype) -> tuple[str, str]:
    return storage_type(dtype), scalar_type(dtype)


def sgd_kernel(
    dtype: np.dtype, momentum: bool, nesterov: bool, first: bool, maximize: bool
) -> Kernel:
    """kernel(p, g, buf, lr, momentum, undamped, weight_decay)."""

    def arguments(p, g, buf, *numbers):
        return p, g, buf, p.size, *numbers

    flags = (momentum, nesterov, first, maximize)
    return _kernel("sgd", (), (*_types(dtype), *flags), arguments)


def adam_kernel(dtype: np.dtype, amsgrad: bool, decoupled: bool, maximize: bool) -> Kernel:
    """kernel(p, g, m, v, vmax, one_minus_beta1, beta2, one_minus_beta2, decay, rate, root, eps)."""

    def arguments(p, g, m, v, vmax, *numbers):
        return p, g, m, v, vmax, p.size, *numbers

    return _kernel("adam", (), (*_types(dtype), amsgrad, decoupled, maximize), arguments)
