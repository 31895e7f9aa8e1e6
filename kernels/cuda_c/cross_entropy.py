"""The kernels of cross_entropy.cu."""

from __future__ import annotations

from kernels.cuda_c.common import Kernel, family

_kernel = family("cross_entropy.cu")


def forward(acc_t: str, has_weight: bool, smooth: bool, rows: int, trees: bool) -> Kernel:
    """kernel(logits, target, weight, ignore, smoothing, losses, lse), with shuffles for all
    `rows`."""

    def arguments(logits, *others):
        return logits, *others, *logits.shape

    return _kernel("forward", (0, 1), (acc_t, has_weight, smooth), arguments)


def backward(acc_t: str, has_weight: bool, smooth: bool) -> Kernel:
    """kernel(g, logits, lse, target, weight, ignore, smoothing, d)."""

    def arguments(*given):
        return *given, *given[1].shape

    return _kernel("backward", (0, 3), (acc_t, has_weight, smooth), arguments)


def split_sums(acc_t: str, has_weight: bool, smooth: bool, block: int) -> Kernel:
    """kernel(logits, target, weight, parts, hits, span)."""

    def arguments(*given):
        return *given, *given[0].shape, given[3].shape[2]

    return _kernel("split_sums", (0, 1), (acc_t, has_weight, smooth), arguments)


def split(acc_t: str, has_weight: bool, smooth: bool) -> Kernel:
    """kernel(target, weight, ignore, smoothing, parts, hits, losses, lse, classes)."""

    def arguments(*given):
        return *given, *given[4].shape[1:]

    return _kernel("split", (1, 0), (acc_t, has_weight, smooth), arguments)


def split_backward(acc_t: str, has_weight: bool, smooth: bool) -> Kernel:
    """kernel(g, logits, lse, target, weight, weights, ignore, smoothing, d, span, parts)."""

    def arguments(*given):
        return *given, given[1].shape[1]

    return _kernel("split_backward", (0, 3), (acc_t, has_weight, smooth), arguments)
