"""The kernels of ctc.cu."""

from __future__ import annotations

import numpy as np

from kernels.cuda_c.common import Kernel, family, scalar_type

_kernel = family("ctc.cu")


def prefixes(dtype: np.dtype) -> Kernel:
    """kernel(log_probs, targets, times, lengths, blank, symbols, rows, losses)"""

    def arguments(log_probs, targets, *others):
        steps, _, classes = log_probs.shape
        return log_probs, targets, *others, steps, classes, targets.shape[1]

    return _kernel("prefixes", (0,), (scalar_type(dtype),), arguments)


def links() -> Kernel:
    """kernel(targets, lengths, blank, symbols, before, heads)"""

    def arguments(targets, *others):
        return targets, *others, others[-1].shape[1], targets.shape[1]

    return _kernel("links", (), (), arguments)


def shares(dtype: np.dtype) -> Kernel:
    """kernel(log_probs, times, lengths, symbols, rows, losses, suffixes, parts)"""

    def arguments(log_probs, *others):
        steps, _, classes = log_probs.shape
        return log_probs, *others, steps, classes, others[-1].shape[2] // 2

    return _kernel("shares", (0,), (scalar_type(dtype),), arguments)


def collect(dtype: np.dtype) -> Kernel:
    """kernel(g, log_probs, times, lengths, blank, before, heads, losses, parts, spared, d)"""

    def arguments(*given):
        before, d = given[5], given[-1]
        return *given, d.shape[2], before.shape[1]

    return _kernel("collect", (1,), (scalar_type(dtype),), arguments)
